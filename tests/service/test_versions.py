"""Gate versions, review rates and the position counter, current and past."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from service.house import draw_rows

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.store import open_database
from trustdoctor.service.versions import GateVersions, next_position, read_head


def content(gate):
    return json.loads(gate.to_json())


@pytest.fixture
def candidates():
    rows = draw_rows(2000, 1)
    return [td.calibrate(rows, score="beta", risk=risk) for risk in (0.1, 0.15, 0.2)]


@pytest.fixture
def versioned(served, candidates):
    """A service with four versions, of which the first decides."""
    for gate in candidates:
        served.post_ok("/v1/gates", content(gate))
    return served


def state(served):
    return {v["version"]: v["state"] for v in served.get("/v1/gates").json["gates"]}


def call(served, path):
    return served.post(f"/v1/gates/{path}")


def test_versions_come_and_go(versioned):
    assert state(versioned) == dict.fromkeys((4, 3, 2), "candidate") | {1: "current"}
    assert call(versioned, "3/promote").json == {"version": 3, "before": 1}
    assert call(versioned, "3/promote").json == {"version": 3, "before": 3}
    assert state(versioned)[1] == "earlier"
    assert versioned.decide({"logits": [1.0, 0, 0, 0]})["version"] == 3
    assert call(versioned, "2/promote").json == {"version": 2, "before": 3}
    assert call(versioned, "rollback").json == {"version": 3, "before": 2}
    assert call(versioned, "rollback").json == {"version": 1, "before": 3}
    response = call(versioned, "rollback")
    assert response.status == 409
    assert "expected a version before 1" in response.detail
    assert versioned.decide({"logits": [1.0, 0, 0, 0]})["version"] == 1
    status = versioned.get("/v1/status").json
    assert status["gate"]["version"] == 1


def test_a_version_is_the_gate_that_was_sent(versioned, candidates):
    for number, gate in enumerate(candidates, 2):
        text = versioned.get(f"/v1/gates/{number}").content.decode()
        assert td.Gate.from_json(text) == gate


def test_a_note(served, candidates):
    response = served.post_ok(
        "/v1/gates", {"gate": content(candidates[0]), "note": "by hand é"}
    )
    assert response["version"] == 2
    assert response["promise"] == candidates[0].certificate.promise()
    assert served.get("/v1/gates").json["gates"][0]["note"] == "by hand é"
    long = {"gate": content(candidates[0]), "note": "x" * 2001}
    assert served.post("/v1/gates", long).status == 400
    nul = {"gate": content(candidates[0]), "note": "a\u0000b"}
    assert served.post("/v1/gates", nul).status == 400
    odd = {"gate": content(candidates[0]), "note": 7}
    assert served.post("/v1/gates", odd).status == 400


def test_fitted_scores_travel_inside(served):
    rows = draw_rows(2000, 1)
    score = td.SCORES["rel_u"].fit(rows)
    gate = td.calibrate(rows, score=score, frr=0.1)
    served.post_ok("/v1/gates", content(gate))
    call(served, "2/promote")
    values = np.asarray(draw_rows(50, 3).logits, float)
    decisions = served.decide({"logits": values.tolist()})["rows"]
    expected = gate.screen(values, kind="logits")
    assert [decision["doubt"] for decision in decisions] == expected.doubts.tolist()


@pytest.mark.parametrize("change", ["file", "margins", "score", "digest", "list"])
def test_gates_that_are_refused(served, gate, change):
    sent = content(gate)
    if change == "file":
        sent["fitted"] = {"file": "/etc/passwd", "digest": "0"}
    elif change == "margins":
        sent["margins"] = {"views": ["a"], "accept": [0.0], "reject": [1.0]}
    elif change == "score":
        sent["score"] = None
    elif change == "digest":
        sent["threshold"] = "nan"
    else:
        sent = [sent]
    before = served.everything()
    answer = served.post("/v1/gates", sent)
    assert answer.status == 400
    assert "passwd" not in answer.detail
    assert served.everything() == before


@pytest.mark.parametrize(
    "path",
    ["9/promote", "0/promote", "x/promote", "-1/promote", "9/shadow", "²/promote"],
)
def test_versions_that_there_are_not(served, path):
    before = served.everything()
    assert call(served, path).status == 404
    assert served.everything() == before


def test_a_class_beyond_those_that_a_message_lists(serve):
    names = [f"class {number:02d}" for number in range(25)]

    def gate_of(names):
        rows = draw_rows(2000, 1, classes=25, names=names)
        return td.calibrate(rows, score="alpha", frr=0.1)

    served = serve(gate_of(names))
    assert served.post("/v1/gates", content(gate_of(names))).status == 201
    answer = served.post("/v1/gates", content(gate_of([*names[:-1], "other"])))
    assert answer.status == 409
    assert "25 classes" in answer.detail


def test_shadows(versioned):
    assert call(versioned, "2/shadow").json == {"shadow": 2}
    assert state(versioned)[2] == "shadow"
    assert call(versioned, "1/shadow").status == 409
    assert call(versioned, "3/shadow").json == {"shadow": 3}
    assert state(versioned)[2] == "candidate"
    call(versioned, "3/promote")
    assert versioned.get("/v1/status").json["shadow"] is None
    call(versioned, "4/shadow")
    assert versioned.ask("DELETE", "/v1/gates/shadow").json == {"shadow": None}
    assert versioned.get("/v1/status").json["shadow"] is None
    assert versioned.ask("DELETE", "/v1/gates/shadow").status == 200


def test_a_restart_stays_where_it_was(serve, gate, candidates):
    served = serve(gate)
    served.post_ok("/v1/gates", content(candidates[0]))
    call(served, "2/promote")
    served.close()
    restarted = serve(gate)
    assert restarted.get("/v1/status").json["gate"]["version"] == 2
    restarted.close()
    later = serve(candidates[0])
    assert later.get("/v1/status").json["gate"]["version"] == 2


def test_another_gate_is_refused_at_the_start(serve, gate, candidates):
    serve(gate).close()
    with pytest.raises(InputError, match="expected the gate that this store was begun"):
        serve(candidates[0])
    serve(gate)


def test_gates_that_cannot_be_served_are_refused_at_the_start(serve, gate):
    with pytest.raises(InputError, match="it names no score"):
        serve(replace(gate, score=None))


def rates(served):
    return served.read(
        "SELECT number, rejected, accepted FROM review_rates ORDER BY number"
    )


def test_rates_are_kept(serve, gate):
    served = serve(gate)
    assert rates(served) == [(1, 1.0, 0.02)]
    served.close()
    served = serve(gate, review=(0.5, 0.1))
    assert rates(served)[1:] == [(2, 0.5, 0.1)]
    served.close()
    served = serve(gate)
    assert len(rates(served)) == 2
    served.decide({"logits": [1.0, 0, 0, 0]})
    assert served.read("SELECT review_rates FROM rows") == [(2,)]
    served.close()
    served = serve(gate, review=(0.5, 0.1))
    assert len(rates(served)) == 2


def test_positions_are_given_out_once(served):
    positions = []
    lock = threading.Lock()

    def take():
        for n in (1, 3, 2):
            first = served.service.writer.call(lambda s, n=n: next_position(s, n))
            with lock:
                positions.extend(range(first, first + n))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    head = served.service.read_now(read_head)
    assert sorted(positions) == list(range(2, head.position + 1))


def test_a_job_that_fails_changes_nothing(served):
    before = served.everything()

    def job(session):
        next_position(session, 5)
        session.run("UPDATE gates SET note = 'x'")
        raise ProblemError(400, "no.")

    with pytest.raises(ProblemError):
        served.service.writer.call(job)
    assert served.everything() == before


def test_uncommitted_versions_are_not_remembered(place):
    """A version that was seen in a transaction that failed is another's number."""
    database = open_database(place)
    database.close()
    assert GateVersions()._versions == {}
