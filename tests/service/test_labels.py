"""Labels come late, again, corrected, in any order; each is counted once."""

import itertools
import json

import numpy as np
import pytest
from service.house import NAMES, made_rows

import trustdoctor as td


@pytest.fixture
def named(serve):
    gate = td.calibrate(made_rows(2000, 1, names=NAMES), score="alpha", frr=0.1)
    return serve(gate, review=(1.0, 0.5))


def result(answer):
    return [one["result"] for one in answer["rows"]]


def decide(served, n, width=4, start=""):
    logits = np.random.default_rng(0).normal(size=(n, width)).tolist()
    ids = [f"{start}{at}" for at in range(n)]
    return served.decide({"ids": ids, "logits": logits})["rows"]


def kept(served):
    """What the rows are labelled by in the end."""
    return served.read("SELECT position, label, judgement FROM rows ORDER BY position")


def test_right_and_wrong_are_those_of_the_classes(named):
    done = decide(named, 40)
    labels = [NAMES[at % 4] for at in range(40)]
    said = named.done("/v1/labels", {"ids": list(range(40)), "labels": labels})
    assert said["counted"] + said["kept"] == 40  # those that were drawn, and others
    for row, label in zip(done, labels, strict=True):
        (told,) = named.get(f"/v1/rows/{row['id']}").json["labels"]
        assert told["label"] == label
        assert told["correct"] == (row["predicted"] == label)
        assert told["source"] == "labels"


def test_three_forms(served):
    decide(served, 6)
    one = served.done("/v1/labels", {"id": 0, "label": 1})
    many = served.label({"id": "1", "correct": True}, {"id": 2, "cannot_say": True})
    columns = served.done("/v1/labels", {"ids": [3, "4"], "labels": [0, "2"]})
    assert [result(one), result(many), result(columns)] == [
        ["counted"],
        ["counted"] * 2,
        ["counted"] * 2,
    ]
    assert one == {
        "counted": 1,
        "repeated": 0,
        "corrected": 0,
        "kept": 0,
        "refused": 0,
        "rows": [{"id": "0", "result": "counted"}],
    }
    rows = {at: served.get(f"/v1/rows/{at}").json["labels"][0] for at in range(5)}
    assert [rows[at]["label"] for at in range(5)] == [1, None, None, 0, 2]
    assert (rows[1]["correct"], rows[2]["correct"]) == (True, None)


def test_again_and_corrected(served):
    decide(served, 2)
    says = [1, 1, 2, 2, 1]
    done = [result(served.label({"id": "0", "label": one}))[0] for one in says]
    assert done == ["counted", "repeated", "corrected", "repeated", "corrected"]
    history = served.get("/v1/rows/0").json["labels"]
    assert [one["label"] for one in history] == [1, 2, 1]
    traffic = served.get("/v1/status").json["traffic"]
    assert traffic["labels"] == 1


def test_twice_in_one_request(served):
    decide(served, 1)
    done = served.label(
        {"id": 0, "label": 1}, {"id": "0", "label": 1}, {"id": 0, "correct": False}
    )
    assert result(done) == ["counted", "repeated", "corrected"]
    assert kept(served)[0][2] == 1


def test_refused_row_by_row(named):
    decide(named, 3)
    before = kept(named)
    done = named.label(
        {"id": "0", "label": "emu"},
        {"id": "nobody", "label": "cat"},
        {"id": "1", "label": 4},
        {"id": "2", "label": "cat"},
    )
    assert result(done) == ["refused", "refused", "refused", "counted"]
    why = [one.get("why", "") for one in done["rows"]]
    assert "expected a class out of 'cat', 'dog', 'eel', 'fox', got 'emu'" in why[0]
    assert why[1] == "no row of this id is known"
    assert kept(named)[:2] == before[:2]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        {},
        {"id": 1},
        {"id": 1, "label": 1, "correct": True},
        {"id": 1, "label": 1, "cannot_say": True},
        {"id": 1, "label": 1.5},
        {"id": 1, "label": True},
        {"id": 1, "label": ""},
        {"id": 1, "label": "a\x00"},
        {"id": 1, "label": 1, "other": 1},
        {"id": "", "label": 1},
        {"labels": []},
        {"labels": [{"id": 1}]},
        {"ids": [1], "labels": [1, 2]},
        {"ids": [1, 2], "labels": None},
        {"ids": ["0", "1"], "labels": [1, None]},
        b'{"id": "0", "label": "\xff"}',
        b'{"id": "0", "label": NaN}',
    ],
)
def test_what_is_wrong_changes_nothing(served, body):
    decide(served, 2)
    before = served.everything()
    answer = served.post("/v1/labels", body)
    assert answer.status == 400
    assert answer.detail
    assert served.everything() == before


def test_too_many_labels(served):
    most = served.service.settings.limits.labels
    for n, status in ((most, 200), (most + 1, 413)):
        given = {"ids": ["x"] * n, "labels": [0] * n}
        assert served.post("/v1/labels", given).status == status


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_rows_does_not_matter(serve, gate, order):
    served = serve(gate, review=(1.0, 1.0))
    decide(served, 6)
    groups = [
        [{"id": "0", "label": 1}, {"id": "1", "label": 2}],
        [{"id": "2", "correct": False}, {"id": "3", "label": 0}],
        [{"id": "4", "cannot_say": True}, {"id": "5", "label": 3}],
    ]
    for one in order:
        served.label(*groups[one])
    served.check_watch()
    assert [row[1] for row in kept(served)] == ["1", "2", None, "0", None, "3"]
    status = served.get("/v1/status").json
    assert status["traffic"]["labels"] == 6
    assert status["review"]["waiting"] == 0
    assert status["watch"]["waiting"] == 0


def test_labels_count_for_the_version_that_decided(served, gate):
    decide(served, 10, start="a")
    served.done("/v1/gates", json.loads(gate.to_json()))
    served.done("/v1/gates/2/promote")
    decide(served, 10, start="b")
    served.label(*({"id": f"a{at}", "correct": True} for at in range(7)))
    served.label(*({"id": f"b{at}", "correct": True} for at in range(4)))
    counts = served.read(
        "SELECT version, rows, labels FROM version_counts ORDER BY version"
    )
    assert counts == [(1, 10, 7), (2, 10, 4)]
    versions = served.read("SELECT version, count(*) FROM labels GROUP BY version")
    assert sorted(versions) == [(1, 7), (2, 4)]


@pytest.mark.parametrize("kind", ["confidence", "doubt"])
def test_rows_without_classes(serve, kind):
    sure = np.linspace(0.3, 1, 400)
    right = np.random.default_rng(0).random(400) < sure
    make = getattr(td.Predictions, f"from_{kind}")
    value = sure if kind == "confidence" else 1 - sure
    served = serve(td.calibrate(make(value, right), score=kind, risk=0.2))
    bare = {"ids": ["a", "b", "c"], kind: [0.9, 0.4, 0.3]}
    assert {one["predicted"] for one in served.decide(bare)["rows"]} <= {"", None}
    said = {"ids": ["d", "e", "f"], kind: [0.9, 0.4, 0.3], "predicted": ["x", "7", "8"]}
    served.decide(said)
    done = served.label({"id": "a", "label": "x"}, {"id": "a", "correct": True})
    assert result(done)[0] == "refused"
    assert result(done)[1] in ("counted", "kept")
    assert "correct" in done["rows"][0]["why"]
    done = served.label(*({"id": one, "label": 7} for one in "def"))
    assert set(result(done)) <= {"counted", "kept"}
    wrong = served.read(
        "SELECT judgement FROM rows WHERE id IN ('d', 'e', 'f') ORDER BY id"
    )
    assert [one for (one,) in wrong] == [1, 0, 1]
    done = served.post("/v1/labels", {"id": "d", "label": 10**30})
    assert done.status in (200, 400)


def test_a_row_that_was_not_drawn_is_labelled_but_not_watched(serve, gate):
    served = serve(gate, review=(0.0, 0.0))
    decide(served, 20)
    done = served.label(*({"id": str(at), "correct": False} for at in range(20)))
    assert (done["counted"], done["kept"]) == (0, 20)
    assert "not drawn for review" in done["rows"][0]["why"]
    watch = served.check_watch()
    assert watch.totals.labels == 0
    assert served.read("SELECT sum(counted) FROM labels") == [(0,)]
    assert served.get("/v1/status").json["traffic"]["labels"] == 20
    assert served.post("/v1/recalibrate", {}).status == 409
