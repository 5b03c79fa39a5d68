"""The client against the service itself, in a process of its own."""

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
    """A service in a process of its own, with tokens; yields its address."""
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
    for done in (
        admin.decide(p),
        admin.decide(logits=p.logits, features=p.logits[:, :2]),
        admin.decide([{"logits": row} for row in p.logits]),
        admin.decide(probs=probs),
        admin.decide(td.Predictions.from_probs(probs)),
    ):
        assert [one.predicted for one in done] == p.predicted.tolist()
        np.testing.assert_allclose(doubts(done), expected.scores, rtol=0, atol=1e-12)
        assert [one.accepted for one in done] == expected.accepted.tolist()
        lists = [set(one.shortlist or ()) for one in done]
        assert lists == [set(np.flatnonzero(row)) for row in expected.shortlist]
        assert {one.version for one in done} == {1}
        assert all(one.review for one in done if not one.accepted)


def test_rows_get_labels_and_answers(admin):
    sure, unsure = [9.0] + [0.0] * 9, [0.1] + [0.0] * 9
    rows = [{"id": f"late {k}", "logits": unsure} for k in range(4)]
    assert not any(one.accepted for one in admin.decide(rows))
    assert admin.decide({"id": "late 9", "logits": sure}).accepted
    assert admin.decide(rows) == admin.decide(rows)  # the first answer again
    assert "had before, got other" in refused(
        admin.decide, [{"id": "late 0", "logits": sure}]
    )
    done = admin.label(["late 0", "late 1", "nobody"], [0, 10, 1])
    assert (done.counted, sorted(done.refused)) == (1, ["late 1", "nobody"])
    assert admin.label({"late 0": 0}).repeated == 1
    assert admin.label({"late 0": 3}).corrected == 1
    leased = {}
    while rows := admin.lease(reviewer="ann", order="doubt", count=100):
        leased |= {row.id: row for row in rows}
    mine = [leased[f"late {k}"] for k in (1, 2, 3)]
    assert admin.answer(mine[0], 4) == "counted"
    assert admin.answer(mine[0], 4) == "repeated"
    assert admin.answer(mine[1], cannot_say=True) == "counted"
    assert admin.release(mine[2]) == "released"
    (again,) = admin.lease(count=100)
    assert again.id == "late 3"
    assert "one that has ended" in refused(admin.answer, mine[2], 1)
    assert admin.answer(again, correct=True) == "counted"


def test_gates_come_and_go(admin, gate):
    made = admin.add_gate(gate, note="by hand")
    assert made["version"] == 2
    assert admin.shadow(2) == {"shadow": 2}
    assert admin.shadow(None) == {"shadow": None}
    assert admin.promote(2)["before"] == 1
    assert admin.decide({"logits": [1.0] + [0.0] * 9}).version == 2
    assert admin.rollback()["version"] == 1
    assert admin.status()["gate"]["version"] == 1
    assert [one["version"] for one in admin.gates()] == [2, 1]
    assert "expected the version of a gate, got 9." in refused(admin.promote, 9)


def test_the_alerts_of_the_guide_ask_for_metrics_that_are_there(served, root):
    guide = (root / "docs" / "guides" / "production.md").read_text(encoding="utf-8")
    rules = re.search(r"```yaml\n# alerts.yml\n(.*?)```", guide, re.DOTALL)[1]
    named = set(re.findall(r"\btrustdoctor_\w+", rules))
    assert len(named) > 5
    until = time.monotonic() + 20
    while not named <= (told := metrics(served)) and time.monotonic() < until:
        time.sleep(0.2)  # the watch counts the first rows
    assert named <= told


def metrics(url):
    asked = urllib.request.Request(f"{url}/metrics")
    asked.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(asked) as answer:
        return set(re.findall(r"^(\w+)", answer.read().decode(), re.MULTILINE))


def test_tokens_have_roles(served):
    with Client(served, f"d-{TOKEN}") as client:
        assert client.decide({"logits": [1.0] + [0.0] * 9}).version
        said = refused(client.status)
        assert said.startswith("expected a token that may do this, got one for")
    with Client(served, "another-" + TOKEN) as client:
        assert "got an unknown one" in refused(client.status)
    with Client(served) as client:
        assert "expected a token" in refused(client.status)
