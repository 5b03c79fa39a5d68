"""Metrics as the parser of Prometheus reads them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from service.house import draw_rows

import trustdoctor as td
from trustdoctor.service.prometheus import BUCKETS, Latency, exposition


def parse(text):
    """Return every sample by its name and labels."""
    families = list(text_string_to_metric_families(text))
    for family in families:
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
    samples = [sample for family in families for sample in family.samples]
    out = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}
    assert len(out) == len(samples)
    return out


def test_what_is_counted(serve):
    gate = td.calibrate(draw_rows(2000, 1), score="alpha", risk=0.15)
    served = serve(gate, review=(1.0, 0.5))
    logits = np.asarray(draw_rows(200, 2).logits, float).tolist()
    decisions = served.decide({"ids": list(range(200)), "logits": logits})["rows"]
    served.decide({"id": "more", "logits": logits[0]})
    served.label(*({"id": at, "correct": True} for at in range(50)))
    served.lease(count=3)
    served.background.tick()
    served.get("/nowhere")
    served.post("/v1/decide", b"{")
    served.post("/v1/decide", b"{")
    samples = parse(served.get("/metrics").content.decode())
    status = served.get("/v1/status").json
    accepted = status["traffic"]["accepted"]
    assert (
        accepted
        == sum(decision["accepted"] for decision in decisions)
        + (served.get("/v1/rows/more").json["accepted"])
    )

    def value(name, **labels):
        return samples[f"trustdoctor_{name}", tuple(sorted(labels.items()))]

    assert value("rows_total", accepted="true") == accepted
    assert value("rows_total", accepted="false") == 201 - accepted
    assert value("labels_total") == 50
    assert value("review_waiting") == status["review"]["waiting"]
    assert value("review_leased") == 3
    assert value("gate_version") == 1
    assert value("problems_total", status="404") == 1
    assert value("problems_total", status="400") == 2
    assert value("decide_seconds_count") == 2
    assert value("decide_seconds_bucket", le="+Inf") == 2
    for test in status["watch"]["tests"]:
        name = test["name"]
        assert value("evidence", test=name) == pytest.approx(test["evidence"])
        assert value("evidence_limit", test=name) == pytest.approx(test["limit"])
        assert value("alarms_total", test=name) == 0
        for end in ("value", "low", "high"):
            estimate = test["estimate"][end]
            assert value("estimate", test=name, end=end) == pytest.approx(estimate)


def test_an_empty_service(served):
    samples = parse(served.get("/metrics").content.decode())
    assert samples["trustdoctor_rows_total", (("accepted", "true"),)] == 0


def test_counters_do_not_fall(serve):
    """More alarms than the status lists are still counted."""
    served = serve(td.calibrate(draw_rows(2000, 1), score="alpha", risk=0.15))
    served.decide({"logits": [[1.0, 0, 0, 0]] * 3})
    served.background.tick()
    for version in range(2, 72):
        served.change(
            "INSERT INTO alarms VALUES (?, 'risk', ?, 'w', NULL, 0, 0)",
            version,
            1000.0 + version,
        )
    samples = parse(served.get("/metrics").content.decode())
    assert samples["trustdoctor_alarms_total", (("test", "risk"),)] == 70


def status_with(name):
    test = {"name": name, "evidence": -0.5, "limit": 3.0}
    test |= {"estimate": None, "alarm": None}
    return {
        "traffic": {"rows": 1, "accepted": 1, "labels": 0},
        "review": {"waiting": 0, "leased": 0, "oldest_seconds": 0.0},
        "gate": {"version": 1},
        "watch": {"tests": [test]},
        "alarms": [{"test": name}],
        "alarmed": {name: 1},
    }


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_name_is_read_back(name):
    samples = parse(exposition(status_with(name), Latency(), {}))
    assert samples["trustdoctor_evidence", (("test", name),)] == -0.5


@given(st.lists(st.floats(0, 20), min_size=1, max_size=200))
def test_latencies(seconds):
    latency = Latency()
    for duration in seconds:
        latency.add(duration)
    assert sum(latency.counts) == len(seconds)
    assert latency.total == pytest.approx(sum(seconds))
    for share in (0.5, 0.99):
        exact = np.quantile(seconds, share, method="inverted_cdf")
        end = latency.quantile(share)
        assert end >= min(exact, BUCKETS[-1])
        below = [bound for bound in (0.0, *BUCKETS) if bound < end]
        assert exact >= below[-1] or exact == 0
    samples = parse(exposition(status_with("x"), latency, {}))
    last = 0
    for end in (*BUCKETS, "+Inf"):
        count = samples["trustdoctor_decide_seconds_bucket", (("le", str(end)),)]
        most = float("inf") if end == "+Inf" else end
        assert count == sum(duration <= most for duration in seconds)
        assert count >= last
        last = count


def test_no_requests_yet():
    assert Latency().summary() == {"p50_ms": None, "p99_ms": None, "count": 0}
