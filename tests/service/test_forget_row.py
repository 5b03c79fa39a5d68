"""A forgotten row names nobody, and the counts and the watch stay."""

import numpy as np
import pytest
from service.house import NAMES, draw_rows

import trustdoctor as td

SECRET = "patient-4711"
MARKS = [SECRET, "blood", "ward-9", "dr-who"]


def forget(served, name=SECRET):
    return served.ask("DELETE", f"/v1/rows/{name}")


def dump(served):
    return repr(served.everything()) + repr(
        [
            served.read(f"SELECT * FROM {table}")
            for table in ("watch_states", "watch_checkpoints", "meta", "leaders")
        ]
    )


@pytest.fixture
def personal(serve):
    """A row with every optional field, labelled by a review, among others."""
    gate = td.calibrate(
        draw_rows(2000, 1, names=NAMES), score="alpha", frr=0.1, shortlist=0.9
    )
    served = serve(gate, review=(1.0, 0.5))
    row = {"id": SECRET, "logits": [0.125, 0.25, 0.5, 0.0625], "group": "ward-9"}
    row |= {"payload": {"text": "blood"}, "features": [0.0078125]}
    served.decide(row)
    logits = np.asarray(draw_rows(30, 2).logits, float).tolist()
    served.decide({"ids": list(range(30)), "logits": logits})
    (leased,) = served.lease(reviewer="dr-who")
    assert leased["id"] == SECRET
    served.answer(leased, label="cat")
    served.label({"id": SECRET, "label": "dog"})
    served.check_watch()
    return served


def test_nothing_personal_is_left(personal):
    before = dump(personal)
    assert all(mark in before for mark in MARKS)
    assert (
        np.float64(0.125).tobytes()
        in personal.read("SELECT output FROM rows ORDER BY position LIMIT 1")[0][0]
    )
    counts = personal.get("/v1/status").json["traffic"]
    state = personal.watch()
    assert forget(personal).json == {"id": SECRET, "result": "forgotten"}
    after = dump(personal)
    assert not any(mark in after for mark in MARKS)
    row = personal.read("SELECT * FROM rows ORDER BY position LIMIT 1")[0]
    assert not any(isinstance(value, (bytes, memoryview)) for value in row)
    texts = [value for value in row if isinstance(value, str)]
    assert texts == []
    assert personal.get("/v1/status").json["traffic"] == counts
    assert personal.watch() == personal.watch(anew=True) == state
    personal.check_watch()


def test_it_is_as_if_it_had_never_been(personal):
    forget(personal)
    assert personal.get(f"/v1/rows/{SECRET}").status == 404
    assert forget(personal).status == 404
    assert personal.label({"id": SECRET, "label": "cat"})["refused"] == 1
    new_row = {"id": SECRET, "logits": [9.0, 0, 0, 0]}
    assert personal.decide(new_row)["accepted"]
    personal.check_watch()


def test_it_leaves_the_file(personal, place):
    if place.startswith("postgresql"):
        pytest.skip("PostgreSQL cleans up by itself, later")
    forget(personal)
    personal.close()
    from pathlib import Path

    content = b"".join(
        path.read_bytes() for path in Path(place).parent.iterdir() if path.is_file()
    )
    assert SECRET.encode() not in content
    assert b"blood" not in content


def test_a_row_that_waits(serve, gate):
    served = serve(gate, review=(1.0, 1.0))
    served.decide({"id": SECRET, "logits": [0.1, 0, 0, 0]})
    served.decide({"id": "other", "logits": [0.1, 0, 0, 0]})
    served.check_watch()
    (leased,) = served.lease()
    forget(served)
    assert served.answer(leased, label=1).status == 404
    review = served.get("/v1/status").json["review"]
    assert (review["waiting"], review["rejected"]) == (1, 1)
    assert [row["id"] for row in served.lease(count=9)] == ["other"]
    served.check_watch()


@pytest.mark.parametrize("groups", ["team", "predicted"])
def test_groups_stay_where_the_watch_needs_them(serve, groups):
    rows = draw_rows(2000, 1)
    gate_groups = np.arange(2000) % 2 if groups == "team" else "predicted"
    gate = td.calibrate(rows, score="alpha", risk=0.15, groups=gate_groups)
    served = serve(gate, review=(1.0, 1.0))
    logits = np.asarray(draw_rows(20, 2).logits, float).tolist()
    body = {"ids": list(range(20)), "logits": logits}
    served.decide(body | {"groups": [at % 2 for at in range(20)]})
    served.check_watch()
    for name in range(0, 20, 3):
        forget(served, name)
    served.check_watch()
    forgotten = served.read("SELECT group_name, predicted FROM rows WHERE id IS NULL")
    for team, predicted in forgotten:
        assert (team is not None) == (groups == "team")
        assert (predicted is not None) == (groups == "predicted")


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "%C3%A9%20%3F", "..", "%25", "a%23b"])
def test_odd_ids(served, name):
    from urllib.parse import unquote

    served.decide({"id": unquote(name), "logits": [1.0, 0, 0, 0]})
    assert served.get(f"/v1/rows/{name}").json["id"] == unquote(name)
    assert forget(served, name).status == 200
    assert served.get(f"/v1/rows/{name}").status == 404


@pytest.mark.parametrize("name", ["", "%00", "a%09b", "x" * 201])
def test_ids_that_nobody_has(served, name):
    assert served.get(f"/v1/rows/{name}").status == 400
    assert forget(served, name).status == 400
