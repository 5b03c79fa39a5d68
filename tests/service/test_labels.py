"""Labels come late, again, corrected, in any order; each is counted once."""

import itertools
import json

import numpy as np
import pytest
from service.house import NAMES, draw_rows

import trustdoctor as td


@pytest.fixture
def named(serve):
    gate = td.calibrate(draw_rows(2000, 1, names=NAMES), score="alpha", frr=0.1)
    return serve(gate, review=(1.0, 0.5))


def result(answer):
    return [row["result"] for row in answer["rows"]]


def decide(served, n, width=4, start=""):
    logits = np.random.default_rng(0).normal(size=(n, width)).tolist()
    ids = [f"{start}{at}" for at in range(n)]
    return served.decide({"ids": ids, "logits": logits})["rows"]


def stored_labels(served):
    """What the rows are labelled by in the end."""
    return served.read("SELECT position, label, judgement FROM rows ORDER BY position")


def test_right_and_wrong_are_those_of_the_classes(named):
    decisions = decide(named, 40)
    labels = [NAMES[at % 4] for at in range(40)]
    response = named.post_ok("/v1/labels", {"ids": list(range(40)), "labels": labels})
    # Those that were drawn, and others.
    assert response["counted"] + response["kept"] == 40
    for row, label in zip(decisions, labels, strict=True):
        (stored_label,) = named.get(f"/v1/rows/{row['id']}").json["labels"]
        assert stored_label["label"] == label
        assert stored_label["correct"] == (row["predicted"] == label)
        assert stored_label["source"] == "labels"


def test_three_forms(served):
    decide(served, 6)
    single = served.post_ok("/v1/labels", {"id": 0, "label": 1})
    several = served.label({"id": "1", "correct": True}, {"id": 2, "cannot_say": True})
    columns = served.post_ok("/v1/labels", {"ids": [3, "4"], "labels": [0, "2"]})
    assert [result(single), result(several), result(columns)] == [
        ["counted"],
        ["counted"] * 2,
        ["counted"] * 2,
    ]
    assert single == {
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
    results = [result(served.label({"id": "0", "label": label}))[0] for label in says]
    assert results == ["counted", "repeated", "corrected", "repeated", "corrected"]
    history = served.get("/v1/rows/0").json["labels"]
    assert [entry["label"] for entry in history] == [1, 2, 1]
    traffic = served.get("/v1/status").json["traffic"]
    assert traffic["labels"] == 1


def test_twice_in_one_request(served):
    decide(served, 1)
    response = served.label(
        {"id": 0, "label": 1}, {"id": "0", "label": 1}, {"id": 0, "correct": False}
    )
    assert result(response) == ["counted", "repeated", "corrected"]
    assert stored_labels(served)[0][2] == 1


def test_refused_row_by_row(named):
    decide(named, 3)
    before = stored_labels(named)
    response = named.label(
        {"id": "0", "label": "emu"},
        {"id": "nobody", "label": "cat"},
        {"id": "1", "label": 4},
        {"id": "2", "label": "cat"},
    )
    assert result(response) == ["refused", "refused", "refused", "counted"]
    why = [row.get("why", "") for row in response["rows"]]
    assert "expected a class out of 'cat', 'dog', 'eel', 'fox', got 'emu'" in why[0]
    assert why[1] == "no row of this id is known"
    assert stored_labels(named)[:2] == before[:2]


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
def test_wrong_requests_change_nothing(served, body):
    decide(served, 2)
    before = served.everything()
    answer = served.post("/v1/labels", body)
    assert answer.status == 400
    assert answer.detail
    assert served.everything() == before


def test_too_many_labels(served):
    most = served.service.settings.limits.labels
    for n, status in ((most, 200), (most + 1, 413)):
        body = {"ids": ["x"] * n, "labels": [0] * n}
        assert served.post("/v1/labels", body).status == status


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
    for name in order:
        served.label(*groups[name])
    served.check_watch()
    assert [row[1] for row in stored_labels(served)] == ["1", "2", None, "0", None, "3"]
    status = served.get("/v1/status").json
    assert status["traffic"]["labels"] == 6
    assert status["review"]["waiting"] == 0
    assert status["watch"]["waiting"] == 0


def test_labels_count_for_the_version_that_decided(served, gate):
    decide(served, 10, start="a")
    served.post_ok("/v1/gates", json.loads(gate.to_json()))
    served.post_ok("/v1/gates/2/promote")
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
    assert {row["predicted"] for row in served.decide(bare)["rows"]} <= {"", None}
    body = {"ids": ["d", "e", "f"], kind: [0.9, 0.4, 0.3], "predicted": ["x", "7", "8"]}
    served.decide(body)
    response = served.label({"id": "a", "label": "x"}, {"id": "a", "correct": True})
    assert result(response)[0] == "refused"
    assert result(response)[1] in ("counted", "kept")
    assert "correct" in response["rows"][0]["why"]
    response = served.label(*({"id": name, "label": 7} for name in "def"))
    assert set(result(response)) <= {"counted", "kept"}
    wrong = served.read(
        "SELECT judgement FROM rows WHERE id IN ('d', 'e', 'f') ORDER BY id"
    )
    assert [judgement for (judgement,) in wrong] == [1, 0, 1]
    response = served.post("/v1/labels", {"id": "d", "label": 10**30})
    assert response.status in (200, 400)


def test_a_row_that_was_not_drawn_is_labelled_but_not_watched(serve, gate):
    served = serve(gate, review=(0.0, 0.0))
    decide(served, 20)
    response = served.label(*({"id": str(at), "correct": False} for at in range(20)))
    assert (response["counted"], response["kept"]) == (0, 20)
    assert "not drawn for review" in response["rows"][0]["why"]
    watch = served.check_watch()
    assert watch.totals.labels == 0
    assert served.read("SELECT sum(counted) FROM labels") == [(0,)]
    assert served.get("/v1/status").json["traffic"]["labels"] == 20
    assert served.post("/v1/recalibrate", {}).status == 409
