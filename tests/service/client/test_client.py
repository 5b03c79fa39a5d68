"""What the client sends, and what it makes of the answers."""

import json
from datetime import datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from stub_service import GATE, LOGITS, answered_as, doubts, problem, refused

import trustdoctor as td
from trustdoctor.service.client import Client, Labelled, Lease, request_bodies


def test_one_row_gets_one_decision(client, service):
    decision = client.decide({"id": 7, "logits": np.array([3.0, 0.0])})
    assert decision == ("7", 0, -3.0, True, 1, False, None)
    assert decision.accepted is True
    assert service.requests == [
        ("POST", "/v1/decide", {"id": "7", "logits": [3.0, 0.0]})
    ]
    sure = client.decide({"probs": [1.0, 0.0]})
    assert sure.doubt == -np.inf


@pytest.mark.parametrize("kind", ["logits", "probs", "float32"])
def test_arrays_predictions_and_dicts_are_decided_alike(client, service, kind):
    values = LOGITS
    if kind == "probs":
        values = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    values = values.astype(np.float32) if kind == "float32" else values
    kind = "probs" if kind == "probs" else "logits"
    make = getattr(td.Predictions, f"from_{kind}")
    groups, features = np.arange(50) % 3, LOGITS + 1
    expected = GATE.screen(values.astype(np.float64), kind=kind)
    p = make(values, ids=np.arange(50), groups=groups, features=features)
    rows = [{"id": str(k), kind: row} for k, row in enumerate(values)]
    beside = {"groups": groups, "features": features}
    for decisions in (
        client.decide(rows),
        client.decide(**{kind: values}, ids=range(50), **beside),
        client.decide(p),
    ):
        assert [decision.id for decision in decisions] == [str(k) for k in range(50)]
        assert [
            decision.accepted for decision in decisions
        ] == expected.accepted.tolist()
        assert [
            decision.predicted for decision in decisions
        ] == expected.predicted.tolist()
        np.testing.assert_allclose(doubts(decisions), expected.doubts, rtol=1e-12)
        service.first_answers.clear()
    second, third = (content for _, _, content in service.requests[1:])
    np.testing.assert_allclose(second.pop(kind), values.astype(float))
    np.testing.assert_allclose(third.pop(kind), values.astype(float), rtol=1e-6)
    assert second == third
    assert second["groups"] == groups.tolist()
    assert second["features"] == features.tolist()


def test_topk_and_answers_are_sent(client, service):
    top = td.Predictions.from_topk([[0.7, 0.2], [0.5, 0.4]], [[4, 1], [2, 0]])
    assert doubts(client.decide(top)) == top.doubt("beta").tolist()
    for make in (td.Predictions.from_confidence, td.Predictions.from_doubt):
        answers = make([0.9, 0.4], predicted=["b", "a"])
        service.gate = td.Gate(-0.5, score=answers.scores[0])
        decisions = client.decide(answers)
        assert doubts(decisions) == answers.doubts.tolist()
        assert [decision.predicted for decision in decisions] == ["b", "a"]
    bare = client.decide(td.Predictions.from_doubt([0.9]))
    assert bare[0].predicted is None
    unknown = td.Predictions.from_topk([[0.7]], [[4]], open_rest=True)
    assert "open_rest" in refused(client.decide, unknown)


def test_decisions_are_a_table(client):
    table = pl.DataFrame(client.decide(logits=LOGITS))
    accepted = GATE.screen(LOGITS, kind="logits").accepted
    assert table["accepted"].to_list() == accepted.tolist()


def test_rows_without_an_id_get_a_unique_one(client):
    decisions = client.decide(logits=LOGITS) + client.decide(
        [{"logits": [1.0, 0.0]}] * 9
    )
    assert len({decision.id for decision in decisions}) == 59


def test_payloads_are_sent_row_by_row(client, service):
    payloads = [{"text": "a"}, None]
    client.decide(logits=LOGITS[:2], payloads=payloads)
    assert service.requests[0][2]["payloads"] == payloads


def test_many_rows_are_sent_in_pieces(client, service, monkeypatch):
    client.decide(logits=np.tile(LOGITS, (50, 1)))
    assert [len(request[2]["ids"]) for request in service.requests] == [1000, 1000, 500]
    client.decide([{"logits": [1.0, 0.0]}] * 1001)
    assert [len(request[2]["rows"]) for request in service.requests[3:]] == [1000, 1]
    service.requests.clear()
    monkeypatch.setattr(request_bodies, "BODY", 5_000)
    payloads = [{"text": "x" * size} for size in (10, 3000, 2500, 9000, 10)]
    client.decide(logits=LOGITS[:5], payloads=payloads)
    client.decide(logits=np.random.default_rng(1).normal(size=(10, 500)))
    assert [len(request[2]["ids"]) for request in service.requests] == [2, 1, 1, 1] + [
        1
    ] * 10
    service.requests.clear()
    rows = [{"logits": [1.0, 0.0], "payload": payload} for payload in payloads]
    client.decide(rows)
    assert [len(request[2]["rows"]) for request in service.requests] == [2, 1, 1, 1]


def test_a_partial_failure_says_how_many_rows_are_decided(client, service):
    service.faults = [None, problem(400, "expected better rows.")]
    message = refused(client.decide, logits=np.tile(LOGITS, (50, 1)))
    assert message == "expected better rows. The first 1,000 rows are decided."


def test_columns_in_another_order_are_found(client, service):
    names = ["cat", "dog", "ox"]
    p = td.Predictions.from_logits(LOGITS[:1], class_names=names)
    at = int(p.predicted[0])
    service.faults = [answered_as(names[at - 1])]
    message = refused(client.decide, p, ids=["a"])
    assert message.startswith(f"expected class {at} to be {names[at]!r}, the service")
    assert client.decide(p)[0].predicted == at  # by number: there is nothing to compare
    service.faults = [answered_as(names[at])]
    assert client.decide(p, ids=["a"])[0].predicted == names[at]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected rows, logits= or probs=, got none of them."),
        ({"logits": LOGITS, "probs": LOGITS}, "got logits and probs. Give one."),
        ({"rows": LOGITS}, "got ndarray. Give arrays by name: logits= or probs=."),
        ({"rows": []}, "got an empty list."),
        ({"rows": "logits"}, "got str."),
        ({"rows": [{"logits": [1]}, 3]}, "got list."),
        ({"logits": [1.0, 0.0]}, "expected logits"),
        ({"logits": LOGITS, "ids": ["a"]}, "expected 50 ids, one per row, got 1."),
        ({"logits": LOGITS, "ids": "abc"}, "expected a list of ids, got 'abc'."),
        ({"logits": LOGITS[:1], "ids": [1.5]}, "expected an id as text or a whole"),
        ({"logits": LOGITS[:1], "ids": [True]}, "expected an id as text or a whole"),
        ({"logits": LOGITS, "groups": [1]}, "expected 50 groups, one per row, got 1."),
        ({"rows": {"logits": [1.0]}, "ids": ["a"]}, "in the dicts themselves"),
        ({"rows": [{"logits": [1.0]}], "payloads": []}, "in the dicts themselves"),
        ({"rows": {"logits": [np.nan, 1.0]}}, "got NaN or an infinity, which JSON"),
        ({"logits": [[-np.inf, 1.0]]}, "If a logit is -inf, send probabilities"),
        ({"logits": [[np.nan, 1.0]]}, "logits hold NaN"),
        ({"probs": [[2.0, 1.0]]}, "sum"),
        ({"rows": {"payload": object()}}, "expected plain values, lists and arrays"),
    ],
)
def test_unsendable_rows_are_refused(client, service, arguments, message):
    assert message in refused(client.decide, **arguments)
    assert not service.requests


def test_labels_are_sent_in_any_form(client, service):
    ids = [decision.id for decision in client.decide(logits=LOGITS[:6])]
    pairs = {ids[0]: "cat", ids[1]: np.int64(2)}
    assert client.label(pairs) == Labelled(2, 0, 0, 0, {})
    assert client.label(np.array(ids[2:3]), ["dog"]).counted == 1
    client.label(ids[3:5], correct=np.array([True, False]))
    client.label(ids[5:], cannot_say=True)
    labels = [
        {k: v for k, v in stored_label.items() if k != "id"}
        for stored_label in _stored_labels(service, ids)
    ]
    assert labels == [
        *({"label": "cat"}, {"label": 2}, {"label": "dog"}),
        *({"correct": True}, {"correct": False}, {"cannot_say": True}),
    ]


def _stored_labels(service, ids):
    return [service.labels[name] for name in ids]


def test_refused_labels_are_named_and_pieces_add_up(client, service):
    ids = [decision.id for decision in client.decide(logits=np.tile(LOGITS, (30, 1)))]
    counts = client.label([*ids, "x"], [0] * 1501)
    assert counts == (1500, 0, 0, 0, {"x": "no such row"})
    sizes = [len(request[2]["labels"]) for request in service.requests[2:]]
    assert sizes == [1000, 501]


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (["a"], {}, "expected labels, correct= or cannot_say=True."),
        (["a"], {"labels": [0], "cannot_say": True}, "Give one of them."),
        ({"a": 0}, {"correct": [True]}, "Give one of them."),
        (["a"], {"labels": [True]}, "got True. To say whether predictions were right"),
        (["a"], {"labels": [None]}, "expected a label as text or a whole number"),
        (["a"], {"labels": [np.nan]}, "expected a label as text or a whole number"),
        (["a"], {"labels": [0, 1]}, "expected 1 labels, one per id, got 2."),
        (["a"], {"correct": [1]}, "expected True or False in correct, got 1."),
        ("a", {"labels": [0]}, "expected a list of ids, got 'a'."),
        (["a"], {"labels": "cat"}, "expected a list of labels, got 'cat'."),
    ],
)
def test_labels_that_may_be_misread_are_refused(client, service, ids, options, message):
    assert message in refused(client.label, ids, **options)
    assert not service.requests


LEASED = {
    "id": "r1", "lease": "l1", "until": "2026-11-16T12:05:00Z", "kind": "audit",
    "doubt": "-inf", "predicted": "cat", "shortlist": None, "classes": ["cat", "ox"],
    "payload": {"text": "a"}, "group": None, "at": "2026-11-16T12:00:00Z", "version": 2,
    "of_a_newer_service": 1,
}  # fmt: skip


def test_rows_are_leased_answered_and_released(client, service):
    service.faults = [json.dumps({"rows": [LEASED], "waiting": 1}).encode()]
    (row,) = client.lease(reviewer="ann", order="doubt", count=3)
    assert isinstance(row, Lease)
    assert (row.doubt, row.payload, row.version) == (-np.inf, {"text": "a"}, 2)
    assert service.requests[0][2] == {"reviewer": "ann", "order": "doubt", "count": 3}
    response = json.dumps({"id": "r1", "result": "counted"}).encode()
    service.faults = [response] * 4
    assert client.answer(row, "cat") == "counted"
    client.answer(row, cannot_say=True)
    client.answer(row, correct=False)
    client.release(row)
    right = {"id": "r1", "lease": "l1"}
    assert [content for _, _, content in service.requests[1:]] == [
        {**right, "label": "cat"},
        {**right, "cannot_say": True},
        {**right, "correct": False},
        {**right, "release": True},
    ]
    assert "Give one of them" in refused(client.answer, row)
    assert "got True" in refused(client.answer, row, True)  # noqa: FBT003


def test_thin_calls_go_where_they_should(client, service):
    later = datetime(2026, 11, 16, 13, tzinfo=timezone(timedelta(hours=1)))
    gate = td.Gate.from_gamma(0.5)
    client.status()
    client.gates()
    client.add_gate(gate, note="by hand")
    client.recalibrate(since=later, frr=0.05, confidence=0.95, note="after")
    client.recalibrate(since="2026-11-16T12:00:00Z")
    client.promote(3)
    client.rollback()
    client.shadow(2)
    client.shadow(None)
    body = {"since": "2026-11-16T12:00:00+00:00", "targets": {"frr": 0.05}}
    assert service.requests == [
        ("GET", "/v1/status", None),
        ("GET", "/v1/gates", None),
        ("POST", "/v1/gates", {"gate": json.loads(gate.to_json()), "note": "by hand"}),
        ("POST", "/v1/recalibrate", {**body, "confidence": 0.95, "note": "after"}),
        ("POST", "/v1/recalibrate", {"since": "2026-11-16T12:00:00Z"}),
        ("POST", "/v1/gates/3/promote", {}),
        ("POST", "/v1/gates/rollback", {}),
        ("POST", "/v1/gates/2/shadow", {}),
        ("DELETE", "/v1/gates/shadow", None),
    ]
    assert "time zone" in refused(client.recalibrate, since=datetime(2026, 1, 1))
    assert "number of a version" in refused(client.promote, "../rollback")


def test_a_prefix_of_a_proxy_is_kept(service):
    with Client(f"{service.url}/trust/") as client:
        client.status()
    assert service.requests[0][1] == "/trust/v1/status"
