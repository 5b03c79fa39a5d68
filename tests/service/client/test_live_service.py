"""The client against the service itself, in a separate process."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from scipy.special import softmax
from stub_service import TOKEN, doubts, refused

import trustdoctor as td
from trustdoctor.demo import bundled_file
from trustdoctor.service.client import Client


@pytest.fixture(scope="module")
def gate():
    p = td.read(bundled_file())
    return td.calibrate(p[:5000], score="alpha", frr=0.05, shortlist=0.9)


@pytest.fixture(scope="module")
def served(gate, tmp_path_factory):
    """A service in a separate process, with tokens; yields its address."""
    for package in ("starlette", "uvicorn", "uvloop", "httptools", "msgspec"):
        pytest.importorskip(package)
    path = tmp_path_factory.mktemp("served") / "gate.json"
    gate.save(path)
    command = ["-m", "trustdoctor", "serve", "--gate", path, "--port", "0"]
    running = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"TRUSTDOCTOR_TOKENS": f"admin={TOKEN},decide=d-{TOKEN}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        first = json.loads(running.stderr.readline())
        drained = threading.Thread(target=running.stderr.read)
        drained.start()
        yield first["page"]
        running.terminate()
        drained.join()


@pytest.fixture
def admin(served):
    with Client(served, TOKEN) as client:
        yield client


def test_the_service_decides_as_the_gate_does(admin, gate):
    p = td.read(bundled_file())[5000:7500]
    expected = gate.screen(p.logits.astype(float), kind="logits")
    probs = softmax(p.logits.astype(float), 1)
    for decisions in (
        admin.decide(p),
        admin.decide(logits=p.logits, features=p.logits[:, :2]),
        admin.decide([{"logits": row} for row in p.logits]),
        admin.decide(probs=probs),
        admin.decide(td.Predictions.from_probs(probs)),
    ):
        assert [decision.predicted for decision in decisions] == p.predicted.tolist()
        np.testing.assert_allclose(
            doubts(decisions), expected.doubts, rtol=0, atol=1e-12
        )
        assert [
            decision.accepted for decision in decisions
        ] == expected.accepted.tolist()
        lists = [set(decision.shortlist or ()) for decision in decisions]
        assert lists == [set(np.flatnonzero(row)) for row in expected.shortlist]
        assert {decision.version for decision in decisions} == {1}
        assert all(decision.review for decision in decisions if not decision.accepted)


def test_rows_get_labels_and_answers(admin):
    sure, unsure = [9.0] + [0.0] * 9, [0.1] + [0.0] * 9
    rows = [{"id": f"late {k}", "logits": unsure} for k in range(4)]
    assert not any(decision.accepted for decision in admin.decide(rows))
    assert admin.decide({"id": "late 9", "logits": sure}).accepted
    assert admin.decide(rows) == admin.decide(rows)  # the first answer again
    assert "had before, got other" in refused(
        admin.decide, [{"id": "late 0", "logits": sure}]
    )
    counts = admin.label(["late 0", "late 1", "nobody"], [0, 10, 1])
    assert (counts.counted, sorted(counts.refused)) == (1, ["late 1", "nobody"])
    assert admin.label({"late 0": 0}).repeated == 1
    assert admin.label({"late 0": 3}).corrected == 1
    leased = {}
    while rows := admin.lease(reviewer="ann", order="doubt", count=100):
        leased |= {row.id: row for row in rows}
    rows_to_answer = [leased[f"late {k}"] for k in (1, 2, 3)]
    assert admin.answer(rows_to_answer[0], 4) == "counted"
    assert admin.answer(rows_to_answer[0], 4) == "repeated"
    assert admin.answer(rows_to_answer[1], cannot_say=True) == "counted"
    assert admin.release(rows_to_answer[2]) == "released"
    (repeated,) = admin.lease(count=100)
    assert repeated.id == "late 3"
    assert "one that has ended" in refused(admin.answer, rows_to_answer[2], 1)
    assert admin.answer(repeated, correct=True) == "counted"


def test_gates_come_and_go(admin, gate):
    added = admin.add_gate(gate, note="by hand")
    assert added["version"] == 2
    assert admin.shadow(2) == {"shadow": 2}
    assert admin.shadow(None) == {"shadow": None}
    assert admin.promote(2)["before"] == 1
    assert admin.decide({"logits": [1.0] + [0.0] * 9}).version == 2
    assert admin.rollback()["version"] == 1
    assert admin.status()["gate"]["version"] == 1
    assert [version["version"] for version in admin.gates()] == [2, 1]
    assert "expected the version of a gate, got 9." in refused(admin.promote, 9)


def test_the_alerts_of_the_guide_ask_for_metrics_that_are_there(served, root):
    guide = (root / "docs" / "guides" / "production.md").read_text(encoding="utf-8")
    rules = re.search(r"```yaml\n# alerts.yml\n(.*?)```", guide, re.DOTALL)[1]
    named = set(re.findall(r"\btrustdoctor_\w+", rules))
    assert len(named) > 5
    until = time.monotonic() + 20
    while not named <= (present := metrics(served)) and time.monotonic() < until:
        time.sleep(0.2)  # the watch counts the first rows
    assert named <= present


def metrics(url):
    request = urllib.request.Request(f"{url}/metrics")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request) as answer:
        return set(re.findall(r"^(\w+)", answer.read().decode(), re.MULTILINE))


def test_tokens_have_roles(served):
    with Client(served, f"d-{TOKEN}") as client:
        assert client.decide({"logits": [1.0] + [0.0] * 9}).version
        message = refused(client.status)
        assert message.startswith("expected a token that may do this, got one for")
    with Client(served, "another-" + TOKEN) as client:
        assert "got an unknown one" in refused(client.status)
    with Client(served) as client:
        assert "expected a token" in refused(client.status)
