"""The status, against the stored rows and the library's numbers."""

import json
import random

import numpy as np
import pytest
from service.house import draw_rows

import trustdoctor as td
from trustdoctor.metrics import share
from trustdoctor.service.status import ShadowCounts, accepted_risks


def decide(served, n, seed=0, start=""):
    rows = draw_rows(n, seed)
    ids = [f"{start}{at}" for at in range(n)]
    logits = np.asarray(rows.logits, float).tolist()
    return served.decide({"ids": ids, "logits": logits})["rows"], rows


def check_keys(content, expected):
    assert set(content) == set(expected)


def test_all_that_is_promised_is_there(served):
    status = served.get("/v1/status").json
    assert {"time", "service", "gate", "shadow", "traffic", "watch", "alarms"} | {
        *("versions", "review", "latency")
    } <= set(status)
    assert status["service"]["store"] in ("sqlite", "postgresql")
    assert status["service"]["durable"] is True
    assert status["shadow"] is None
    assert status["watch"]["headline"] == "no rows yet"
    assert status["watch"]["review"] == {"rejected": 1.0, "accepted": 0.02}
    assert status["latency"] == {"p50_ms": None, "p99_ms": None, "count": 0}
    assert status["gate"]["promise"] == served.gate.certificate.promise()
    assert status["gate"]["rule"].startswith("reject where alpha > ")
    assert status["gate"]["classes"] == 4


def test_counts(serve, gate):
    served = serve(gate, review=(1.0, 0.5))
    decisions, rows = decide(served, 200)
    labels = [{"id": at, "label": int(k)} for at, k in enumerate(rows.labels[:80])]
    served.label(*labels)
    served.lease(count=7)
    served.background.tick()
    status = served.get("/v1/status").json
    accepted = sum(decision["accepted"] for decision in decisions)
    drawn = [decision for decision in decisions if decision["review"]]
    open_ = [decision for decision in drawn if int(decision["id"]) >= 80]
    assert status["traffic"]["rows"] == 200
    assert status["traffic"]["accepted"] == accepted
    assert status["traffic"]["labels"] == 80
    minutes = status["traffic"]["minutes"]
    for name, value in (("rows", 200), ("accepted", accepted), ("labels", 80)):
        assert sum(minute[name] for minute in minutes) == value
    assert sum(minute["drawn"] for minute in minutes) == len(drawn)
    review = status["review"]
    assert review["waiting"] == len(open_)
    assert review["rejected"] == sum(not decision["accepted"] for decision in open_)
    assert review["leased"] == 7
    assert review["oldest"] is not None
    (version,) = status["versions"]
    assert (version["rows"], version["accepted"]) == (200, accepted)
    assert version["state"] == "current"
    watch = served.check_watch()
    shown = status["watch"]
    assert shown["waiting"] == len(watch.queue) == len(open_)
    for test in shown["tests"]:
        rate_test = watch.tests[test["name"]]
        assert test["evidence"] == rate_test.settled_evidence
        assert test["verdict"] == watch.verdict(test["name"])
        assert test["estimate"] == rate_test.estimate()._asdict()
    (step,) = shown["history"]
    assert (step["rows"], step["accepted"]) == (200, accepted)
    assert step["labels"] == sum(int(decision["id"]) < 80 for decision in drawn)
    assert served.get("/v1/status").json["latency"]["count"] == 1


def test_minutes_end_and_are_in_order(served):
    decide(served, 5)
    for minute in range(5):
        decide(served, 5, start=f"{minute}/")
        served.change("UPDATE minute_counts SET minute = minute - 50")
    minutes = served.get("/v1/status").json["traffic"]["minutes"]
    times = [entry["at"] for entry in minutes]
    assert times == sorted(times)
    assert len(times) == 3  # of the last 180 minutes
    assert served.get("/v1/status").json["traffic"]["rows"] == 30


def test_history_is_of_the_current_version(served, gate):
    decide(served, 5)
    served.background.tick()
    served.post_ok("/v1/gates", json.loads(gate.to_json()))
    served.post_ok("/v1/gates/2/promote")
    status = served.get("/v1/status").json
    assert status["watch"]["version"] == 2
    assert status["watch"]["history"] == []
    assert {rate_test["verdict"] for rate_test in status["watch"]["tests"]} == {
        "no rows yet"
    }
    assert status["gate"]["version"] == 2
    assert status["gate"]["since"] <= status["time"]


def test_the_status_is_strict_json(serve):
    """Certain rows, alarms, infinite doubts: no NaN, no Infinity."""
    served = serve(td.calibrate(draw_rows(2000, 1), score="alpha", risk=0.15))
    served.decide({"ids": ["a", "b"], "probs": [[1.0, 0, 0, 0], [0.25] * 4]})
    served.background.tick()
    for path in ("/v1/status", "/v1/rows/a", "/v1/gates"):
        content = served.get(path).content
        json.loads(content, parse_constant=pytest.fail)


def test_the_status_is_read_once_per_second(served):
    service = served.service
    first = service._fresh_status()
    decide(served, 5)
    service._status = (1e18, first)
    assert service._fresh_status() is first
    service._status = (-1e18, first)
    assert service._fresh_status()["traffic"]["rows"] == 5


@pytest.mark.sampled(2)
@pytest.mark.parametrize("review", [(1.0, 0.1), (0.3, 0.6)])
def test_the_risk_of_a_candidate(serve, review):
    """Rows on which the gates differ are drawn at other rates; the risk is not."""
    rows = draw_rows(2000, 1)
    strict = td.calibrate(rows, score="alpha", risk=0.05)
    lax = td.calibrate(rows, score="alpha", risk=0.2)
    served = serve(strict, review=review)
    served.service.writer.decider.random = random.Random(0)  # intervals miss at times
    served.post_ok("/v1/gates", json.loads(lax.to_json()))
    served.post_ok("/v1/gates/2/shadow")
    drawn_rows, fresh = [], draw_rows(6000, 7)
    logits = np.asarray(fresh.logits, float)
    served.decide({"ids": list(range(6000)), "logits": logits.tolist()})
    drawn = served.read("SELECT id FROM rows WHERE drawn = 1")
    drawn_rows = [int(name) for (name,) in drawn]
    # Labels of rows that somebody chose do not count.
    wrong = np.flatnonzero(np.asarray(fresh.predicted != fresh.labels))
    chosen = sorted({*drawn_rows, *wrong.tolist()[:300]})
    served.label(*({"id": at, "label": int(fresh.labels[at])} for at in chosen))
    shadow = served.get("/v1/status").json["shadow"]
    assert shadow["labelled"]["rows"] == len(drawn_rows)
    errors = np.asarray(fresh.predicted != fresh.labels)
    for name, gate in (("risk_current", strict), ("risk_shadow", lax)):
        accepted = gate.screen(logits, kind="logits").accepted
        value, low, high = shadow["labelled"][name]
        truth = errors[accepted].mean()
        assert low <= truth <= high
        assert value == pytest.approx(truth, abs=0.04)


def test_risks_by_hand():
    counts = {
        (True, True): ShadowCounts(900, 9, 1),
        (False, True): ShadowCounts(100, 60, 40),
    }
    risks = accepted_risks(counts)
    assert risks["rows"] == 110
    assert risks["risk_shadow"][0] == pytest.approx(0.9 * 0.1 + 0.1 * 0.4)
    expected = share(1, 10)
    assert risks["risk_current"] == pytest.approx(
        [expected.value, expected.low, expected.high]
    )
    counts[True, True] = ShadowCounts(900, 0, 0)
    assert (
        accepted_risks(counts)["risk_shadow"] is None
    )  # nothing is known of most rows
    assert accepted_risks({(True, True): ShadowCounts(5, 0, 0)}) is None


def test_corrections_move_the_counts(serve, gate):
    served = serve(gate, review=(1.0, 1.0))
    other = td.calibrate(draw_rows(2000, 1), score="beta", risk=0.1)
    served.post_ok("/v1/gates", json.loads(other.to_json()))
    served.post_ok("/v1/gates/2/shadow")
    decide(served, 20)
    served.label(*({"id": at, "correct": True} for at in range(20)))
    served.label(*({"id": at, "correct": False} for at in range(10)))
    served.label(*({"id": at, "cannot_say": True} for at in range(5)))
    counts = served.read(
        "SELECT sum(rows), sum(correct), sum(wrong) FROM shadow_counts"
    )
    assert [*map(int, counts[0])] == [20, 10, 5]
