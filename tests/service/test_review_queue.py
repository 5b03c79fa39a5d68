"""Each row is leased to one person at a time, and answered once."""

import threading

import numpy as np
import pytest
from service.house import NAMES, draw_rows

import trustdoctor as td


@pytest.fixture
def reviewed(serve):
    """A service with rows in its queue: rejected ones and audits."""
    served = serve(td.Gate(0.0, score="alpha"), review=(1.0, 1.0))
    logits = (2 * np.random.default_rng(0).normal(size=(30, 4))).tolist()
    served.decide({"ids": list(range(30)), "logits": logits})
    return served


def ids(rows):
    return [row["id"] for row in rows]


def queue(served):
    return served.read("SELECT id, doubt, accepted FROM review_queue ORDER BY position")


def end_leases(served):
    served.change("UPDATE review_queue SET leased_until = 1 WHERE leased_until > 0")


@pytest.mark.parametrize(
    ("order", "key"),
    [
        ("oldest", lambda _: 0),
        ("doubt", lambda row: -row[1]),
        ("audit", lambda row: -row[2]),
    ],
)
def test_orders(reviewed, order, key):
    expected = [row[0] for row in sorted(queue(reviewed), key=key)]
    assert ids(reviewed.lease(order=order, count=30)) == expected


def test_what_a_reviewer_sees(serve):
    rows = draw_rows(2000, 1, names=NAMES)
    gate = td.calibrate(rows, score="alpha", frr=0.1, shortlist=0.9)
    served = serve(gate, review=(1.0, 0.0))
    shown = {"text": "a\u0000b", "link": "https://example.org"}
    row = {"id": "x/y ?", "logits": [0.1, 0, 0, 0], "group": 7, "payload": shown}
    decision = served.decide(row)
    assert not decision["accepted"]
    (leased,) = served.lease(reviewer="ann", seconds=60)
    for name in ("id", "predicted", "doubt", "shortlist", "version"):
        assert leased[name] == decision[name]
    assert leased["kind"] == "rejected"
    assert leased["classes"] == list(NAMES)
    assert leased["payload"] == shown
    assert leased["group"] == 7
    assert leased["until"] > leased["at"]
    assert served.answer(leased, label="cat").json["result"] == "counted"
    (label,) = served.get("/v1/rows/x/y%20%3F").json["labels"]
    assert (label["by"], label["source"], label["label"]) == ("ann", "review", "cat")


def test_nobody_gets_a_row_leased_to_another(reviewed):
    first = reviewed.lease(reviewer="ann", count=20)
    second = reviewed.lease(reviewer="bob", count=20)
    assert len(first) == 20
    assert len(second) == 10
    assert not set(ids(first)) & set(ids(second))
    assert reviewed.lease(count=5) == []
    review = reviewed.get("/v1/status").json["review"]
    assert (review["waiting"], review["leased"]) == (30, 30)


def test_many_at_once(reviewed):
    out = []
    threads = [
        threading.Thread(target=lambda: out.extend(reviewed.lease(count=7)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids(out), key=int) == [str(at) for at in range(30)]


def test_answers(reviewed):
    rows = reviewed.lease(count=4)
    assert reviewed.answer(rows[0], label=1).json == {"id": "0", "result": "counted"}
    assert reviewed.answer(rows[0], label=1).json["result"] == "repeated"
    assert reviewed.answer(rows[1], cannot_say=True).json["result"] == "counted"
    assert reviewed.answer(rows[1], cannot_say=True).json["result"] == "repeated"
    assert reviewed.answer(rows[2], release=True).json["result"] == "released"
    assert reviewed.answer(rows[3], correct=False).json["result"] == "counted"
    review = reviewed.get("/v1/status").json["review"]
    assert review["answered"] == 2
    assert review["cannot_say"] == 1
    assert review["waiting"] == 27
    assert len(queue(reviewed)) == 27
    repeated = reviewed.lease(count=1)
    assert ids(repeated) == ["2"]
    assert repeated[0]["lease"] != rows[2]["lease"]
    late = reviewed.answer(rows[2], label=1)
    assert late.status == 409
    assert "one that has ended" in late.detail


def test_a_lease_ends(reviewed):
    (first,) = reviewed.lease(reviewer="ann", seconds=1)
    end_leases(reviewed)
    (second,) = reviewed.lease(reviewer="bob")
    assert second["id"] == first["id"]
    assert reviewed.answer(first, label=1).status == 409
    assert reviewed.answer(first, release=True).status == 409
    assert reviewed.answer(second, label=1).status == 200


def test_a_late_answer_to_a_row_that_nobody_leased(reviewed):
    (row,) = reviewed.lease()
    end_leases(reviewed)
    assert reviewed.answer(row, label=2).json["result"] == "counted"


def test_a_label_comes_first(reviewed):
    (row,) = reviewed.lease()
    reviewed.label({"id": row["id"], "label": 1})
    late = reviewed.answer(row, label=2)
    assert late.status == 409
    assert "has its label" in late.detail
    assert reviewed.lease(count=100)[0]["id"] != row["id"]
    assert reviewed.get("/v1/status").json["review"]["waiting"] == 29


def test_a_repeated_answer_does_not_undo_a_correction(reviewed):
    (row,) = reviewed.lease()
    reviewed.answer(row, label=1)
    reviewed.label({"id": row["id"], "label": 2})
    assert reviewed.answer(row, label=1).json["result"] == "repeated"
    history = reviewed.get(f"/v1/rows/{row['id']}").json["labels"]
    assert [entry["label"] for entry in history] == [1, 2]


def test_a_refused_answer_keeps_the_lease(reviewed):
    (row,) = reviewed.lease()
    before = reviewed.everything()
    assert reviewed.answer(row, label="emu").status == 400
    assert reviewed.everything() == before
    assert reviewed.answer(row, label=1).status == 200


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({}, 400),
        ({"label": 1, "release": True}, 400),
        ({"label": 1, "cannot_say": True}, 400),
        ({"label": 1, "lease": "other"}, 409),
        ({"label": 1, "lease": "a\u0000b"}, (400, 409)),
        ({"label": 1, "lease": ""}, (400, 409)),
        ({"label": 1, "lease": None}, 400),
        ({"label": 1, "id": "nobody"}, 404),
        ({"label": 1, "id": ""}, 400),
        ({"release": True, "id": "nobody"}, 404),
        ({"label": 1, "more": 1}, 400),
    ],
)
def test_wrong_requests_change_nothing(reviewed, wrong, status):
    (row,) = reviewed.lease()
    before = reviewed.everything()
    body = {"id": row["id"], "lease": row["lease"]} | wrong
    answer = reviewed.post("/v1/review/answer", body)
    assert answer.status in (status if isinstance(status, tuple) else (status,))
    assert answer.detail
    assert reviewed.everything() == before


def test_a_row_that_was_never_drawn(serve, gate):
    served = serve(gate, review=(0.0, 0.0))
    served.decide({"id": "x", "logits": [1.0, 2, 3, 4]})
    answer = served.post("/v1/review/answer", {"id": "x", "lease": "a", "label": 1})
    assert answer.status == 409
    assert "not drawn" in answer.detail


@pytest.mark.parametrize(
    "body",
    [
        {"count": 0},
        {"count": 101},
        {"count": 1.5},
        {"seconds": 0},
        {"seconds": 1e6},
        {"order": "newest"},
        {"reviewer": "a\u0000"},
        {"reviewer": "x" * 201},
        {"other": 1},
        b"[]",
        b"{",
    ],
)
def test_odd_requests_lease_nothing(reviewed, body):
    assert reviewed.post("/v1/review/lease", body).status == 400
    assert reviewed.get("/v1/status").json["review"]["leased"] == 0


def test_an_empty_body_leases_the_oldest(reviewed):
    response = reviewed.post("/v1/review/lease", b"").json
    assert ids(response["rows"]) == ["0"]
    assert response["waiting"] == 30
