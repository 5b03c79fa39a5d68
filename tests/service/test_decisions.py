"""Decisions are the gate's, whatever else came with them, and are kept as they were."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from service.house import NAMES, draw_rows

import trustdoctor as td
from trustdoctor.service.request_rows import row_digests
from trustdoctor.service.schemas import DecideRequest
from trustdoctor.service.times import new_ids


def as_rows(p, n, start=0):
    values = np.asarray(p.logits, float)[start : start + n].tolist()
    return [
        {"id": f"r{at}", "logits": row} for at, row in enumerate(values, start=start)
    ]


def test_answers_are_the_gates(served, gate, rows):
    request_rows = as_rows(rows, 300)
    decisions = served.decide({"rows": request_rows})["rows"]
    expected = gate.screen(np.asarray(rows.logits, float)[:300], kind="logits")
    assert [row["id"] for row in decisions] == [row["id"] for row in request_rows]
    assert [row["doubt"] for row in decisions] == expected.doubts.tolist()
    assert [row["accepted"] for row in decisions] == expected.accepted.tolist()
    assert [row["predicted"] for row in decisions] == expected.predicted.tolist()
    assert {row["version"] for row in decisions} == {1}
    assert all(row["review"] for row in decisions if not row["accepted"])
    assert "shortlist" not in decisions[0]


def without(answers, *names):
    return [{k: v for k, v in answer.items() if k not in names} for answer in answers]


def test_the_form_does_not_matter(serve, rows):
    """One by one, in rows, in columns, in one commit with others: the same answers."""
    gate = td.calibrate(draw_rows(2000, 1), score="alpha", frr=0.1, shortlist=0.9)
    served = serve(gate, review=(1.0, 0.0))
    request_rows = as_rows(rows, 40)

    def named(start):
        return [row | {"id": start + row["id"]} for row in request_rows]

    alone = [served.decide(row) for row in named("a")]
    in_rows = served.decide({"rows": named("b")})["rows"]
    renamed = named("c")
    columns = served.decide(
        {"ids": [r["id"] for r in renamed], "logits": [r["logits"] for r in renamed]}
    )["rows"]
    requests = [("POST", "/v1/decide", row) for row in named("d")]
    requests.insert(20, ("POST", "/v1/decide", {"logits": [1.0] * 5}))
    requests.insert(30, ("POST", "/v1/decide", b"{"))
    before = served.service.writer.commits
    together = [a.json for a in served.ask_all(*requests) if a.status == 200]
    assert served.service.writer.commits - before < 40
    nameless = [served.decide({"logits": row["logits"]}) for row in request_rows]
    for answers in (in_rows, columns, together, nameless):
        assert without(answers, "id") == without(alone, "id")


def test_a_repetition_gets_the_same_bytes(serve, rows):
    served = serve(
        td.calibrate(draw_rows(2000, 1), score="alpha", frr=0.1, shortlist=0.9)
    )
    single = as_rows(rows, 1)[0] | {"group": "ä", "payload": {"text": "a"}}
    several = {"rows": as_rows(rows, 60, 1)}
    certain = {"id": "sure", "probs": [1.0, 0.0, 0.0, 0.0]}
    first = [served.post("/v1/decide", body) for body in (single, several, certain)]
    assert first[2].json["doubt"] == "-inf"
    stored = served.everything()
    repeated = [served.post("/v1/decide", body) for body in (single, several, certain)]
    assert [a.content for a in repeated] == [a.content for a in first]
    assert served.everything() == stored
    served.close()
    served = serve(served.gate)
    repeated = [served.post("/v1/decide", body) for body in (single, several, certain)]
    assert [a.content for a in repeated] == [a.content for a in first]


def test_a_row_repeated_alone_or_in_other_company(served, rows):
    first_row, second_row = as_rows(rows, 2)
    shown = second_row | {"payload": {"text": "a"}}
    first = served.decide({"rows": [first_row, shown]})["rows"]
    assert [served.decide(first_row), served.decide(shown)] == first
    assert served.decide({"rows": [shown, first_row]})["rows"] == first[::-1]
    ids, values = ["r0", "r1"], [first_row["logits"], second_row["logits"]]
    columns = {"ids": ids, "logits": values, "payloads": [None, {"text": "a"}]}
    assert served.decide(columns)["rows"] == first


@pytest.mark.parametrize(
    "other",
    [
        {"logits": [1.0, 2.0, 3.0, 4.5]},
        {"probs": [0.1, 0.2, 0.3, 0.4], "logits": None},
        {"group": "b"},
        {"group": None},
        {"payload": {"text": "b"}},
        {"payload": None},
        {"features": [1.0]},
    ],
)
def test_other_content_is_a_conflict(served, other):
    row = {"id": "x", "logits": [1.0, 2.0, 3.0, 4.0], "group": "a"}
    row |= {"payload": {"text": "a"}}
    served.decide(row)
    stored = served.everything()
    answer = served.post("/v1/decide", row | other)
    assert answer.status == 409
    assert "row 'x' had before" in answer.detail
    assert answer.json["id"] == "x"
    two_rows = {
        "rows": [{"id": "y", "logits": [1.0] * 4}, {"id": "x", "logits": [1.0] * 4}]
    }
    assert served.post("/v1/decide", two_rows).status == 409
    assert served.everything() == stored


def test_an_id_twice_in_one_request(served):
    row = {"id": "x", "logits": [1.0, 2.0, 3.0, 4.0]}
    first, second = served.decide({"rows": [row, row]})["rows"]
    assert first == second
    assert served.read("SELECT count(*) FROM rows")[0][0] == 1
    other = {"rows": [row | {"id": "y"}, {"id": "y", "logits": [1.0] * 4}]}
    assert served.post("/v1/decide", other).status == 409
    assert served.read("SELECT count(*) FROM rows")[0][0] == 1


def test_an_id_twice_in_one_commit(served):
    row = {"id": "x", "logits": [1.0, 2.0, 3.0, 4.0]}
    same = [("POST", "/v1/decide", row)] * 5
    other = ("POST", "/v1/decide", row | {"logits": [1.0] * 4})
    *answers, conflict = served.ask_all(*same, other)
    assert len({a.content for a in answers}) == 1
    assert conflict.status == 409
    assert served.read("SELECT count(*) FROM rows")[0][0] == 1


def test_numbers_and_text_are_the_same_id(served):
    row = {"logits": [1.0, 2.0, 3.0, 4.0]}
    assert served.decide(row | {"id": 7}) == served.decide(row | {"id": "7"})


def test_a_repetition_after_a_promotion(serve, gate, rows):
    served = serve(gate)
    row = as_rows(rows, 1)[0]
    first = served.post("/v1/decide", row)
    other = td.calibrate(draw_rows(1000, 2), score="beta", risk=0.2)
    served.post_ok("/v1/gates", json.loads(other.to_json()))
    served.post_ok("/v1/gates/2/promote")
    assert served.decide({"logits": [0.5] * 4})["version"] == 2
    assert served.post("/v1/decide", row).content == first.content


def test_the_stored_decisions_are_those_of_the_responses(serve, rows):
    gate = td.calibrate(
        draw_rows(2000, 1, names=NAMES), score="alpha", frr=0.1, shortlist=0.9
    )
    served = serve(gate, review=(0.5, 0.5))
    request_rows = [
        row | {"group": at % 3, "payload": {"text": row["id"]}}
        for at, row in enumerate(as_rows(rows, 100))
    ]
    for answer, row in zip(
        served.decide({"rows": request_rows})["rows"], request_rows, strict=True
    ):
        stored_row = served.get(f"/v1/rows/{row['id']}").json
        for name in ("id", "predicted", "doubt", "accepted", "version", "review"):
            assert stored_row[name] == answer[name]
        assert stored_row["group"] == row["group"]
        assert stored_row["payload"] == row["payload"]
        assert stored_row["shortlist"] == answer["shortlist"]
        assert stored_row["kind"] == "logits"
        assert stored_row["labels"] == []
    stored = served.read("SELECT position, output FROM rows ORDER BY position")
    assert [at for at, _ in stored] == list(range(2, 102))  # the first gate is 1
    logits = np.array(
        [np.frombuffer(bytes(output), np.float64) for _, output in stored]
    )
    assert logits.tolist() == [row["logits"] for row in request_rows]


def test_rows_are_drawn_at_their_rates(serve, rows):
    served = serve(td.Gate(0.0, score="alpha"), review=(0.7, 0.2))
    values = np.asarray(rows.logits, float)
    for start in range(3):
        served.decide({"logits": np.roll(values, start, 1).tolist()})
    counts = {
        (bool(a), bool(d)): n
        for a, d, n in served.read(
            "SELECT accepted, drawn, count(*) FROM rows GROUP BY accepted, drawn"
        )
    }
    for accepted, rate in ((True, 0.2), (False, 0.7)):
        drawn, not_drawn = counts[accepted, True], counts[accepted, False]
        assert binomtest(drawn, drawn + not_drawn, rate).pvalue > 1e-7
    queued = served.read(
        "SELECT accepted, count(*) FROM review_queue GROUP BY accepted"
    )
    assert dict(queued) == {0: counts[False, True], 1: counts[True, True]}
    status = served.get("/v1/status").json
    assert status["review"]["rejected"] == counts[False, True]
    assert status["review"]["audit"] == counts[True, True]
    assert status["traffic"]["rows"] == 3600
    assert status["traffic"]["accepted"] == counts[True, True] + counts[True, False]
    minutes = status["traffic"]["minutes"]
    assert sum(minute["drawn"] for minute in minutes) == sum(dict(queued).values())


def test_a_candidate_decides_in_the_shadow(serve, gate, rows):
    served = serve(gate, review=(1.0, 0.0))
    other = td.calibrate(draw_rows(2000, 1), score="beta", risk=0.1)
    served.post_ok("/v1/gates", json.loads(other.to_json()))
    served.post_ok("/v1/gates/2/shadow")
    values = np.asarray(rows.logits, float)[:400]
    served.decide({"logits": values.tolist()})
    current_accepts = gate.screen(values, kind="logits").accepted
    shadow_accepts = other.screen(values, kind="logits").accepted
    shadow = served.get("/v1/status").json["shadow"]
    assert shadow["version"] == 2
    assert shadow["rows"] == 400
    assert shadow["both"] == (current_accepts & shadow_accepts).sum()
    assert shadow["only_current"] == (current_accepts & ~shadow_accepts).sum()
    assert shadow["only_shadow"] == (~current_accepts & shadow_accepts).sum()
    assert shadow["neither"] == (~current_accepts & ~shadow_accepts).sum()
    assert shadow["labelled"] is None


def test_gates_of_other_classes_are_refused(serve, gate):
    served = serve(gate)
    other = td.calibrate(draw_rows(2000, 1, classes=6), score="beta", risk=0.1)
    response = served.post("/v1/gates", json.loads(other.to_json()))
    assert response.status == 409
    assert "6 classes" in response.json["detail"]


def test_gates_that_reject_everything_are_promoted_only_if_asked_twice(serve, gate):
    served = serve(gate)
    other = td.Gate(0.0, score="alpha", state="reject-all")
    served.post_ok("/v1/gates", json.loads(other.to_json()))
    response = served.post("/v1/gates/2/promote", {})
    assert response.status == 409
    assert "rejects every row" in response.json["detail"]
    assert served.post_ok("/v1/gates/2/promote", {"anyway": True})["version"] == 2


@given(st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=2))
def test_digests_distinguish_rows(values):
    rows = DecideRequest("logits", values)
    digests = row_digests(rows)
    same = {tuple(np.array(v).tobytes() for v in [value]) for value in values}
    assert len(set(digests)) == len(same)
    other = DecideRequest("probs", values)
    assert not set(digests) & set(row_digests(other))


def test_made_ids_are_new_and_in_order():
    ids = [name for _ in range(50) for name in new_ids(20)]
    assert len(set(ids)) == 1000
    starts = [name[:14] for name in ids]
    assert starts == sorted(starts)
