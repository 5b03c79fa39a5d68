"""The command that puts a gate to work: serve."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest

import trustdoctor as td

pytest.importorskip("starlette")

from trustdoctor.cli.commands import serve as serving
from trustdoctor.service import server


@pytest.fixture(autouse=True)
def _loggers(monkeypatch):
    """`serve` logs to this test's standard error, which is closed after it."""
    for name in ("trustdoctor.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        for attribute in ("handlers", "level", "propagate"):
            monkeypatch.setattr(logger, attribute, getattr(logger, attribute))


@pytest.fixture(scope="module")
def gate_path(tmp_path_factory):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(1000, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    gate = td.calibrate(td.Predictions.from_logits(logits, labels), frr=0.1)
    path = tmp_path_factory.mktemp("gates") / "gate.json"
    gate.save(path)
    return path


@pytest.fixture
def served(monkeypatch):
    """What the service would be started with."""
    served_with = {}

    def serve(gate, store, **options):
        served_with.update(options, gate=gate, store=store)

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(server, "log_as_json", lambda **_: None)
    return served_with


def test_defaults(run, served, gate_path):
    completed = run("serve", "--gate", gate_path)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    assert served["gate"] == td.Gate.load(gate_path)
    assert served["store"] == str(gate_path.with_suffix(".db"))
    settings, listening = served["settings"], served["listening"]
    assert dict(settings.review) == {}
    assert (settings.level, settings.deadline) == (0.1, 30 * 86400.0)
    assert (settings.keep, settings.keep_payloads, settings.webhook) == (
        None,
        None,
        None,
    )
    assert settings.label_noise is None
    assert not settings.fast
    assert (listening.host, listening.port, listening.tokens) == ("127.0.0.1", 8571, [])
    assert served["model"] is None


def test_options(run, served, gate_path, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUSTDOCTOR_WEBHOOK_SECRET", "s3cret")
    monkeypatch.setenv("TRUSTDOCTOR_TOKENS", "admin=0123456789-0123456789")
    tokens = tmp_path / "tokens"
    tokens.write_text("decide sha256:" + "0" * 64)
    completed = run(
        *("serve", "--gate", gate_path, "--store", tmp_path / "x.db", "--fast"),
        *("--keep", "90d", "--keep-payloads", "12h", "--deadline", "2w"),
        *("--review-rejected", "50%", "--review-accepted", "0.1", "--level", "5%"),
        *("--label-noise", "2%"),
        *("--webhook", "https://example.org/hook", "--host", "0.0.0.0"),
        *("--port", "0", "--tokens", tokens, "--allow-host", "gate.example"),
    )
    assert completed.returncode == 0, completed.stderr
    settings, listening = served["settings"], served["listening"]
    assert dict(settings.review) == {"rejected": 0.5, "accepted": 0.1}
    assert (settings.keep, settings.keep_payloads) == (90 * 86400.0, 43200.0)
    assert (settings.deadline, settings.level) == (14 * 86400.0, 0.05)
    assert settings.label_noise == 0.02
    assert settings.webhook == "https://example.org/hook"
    assert settings.webhook_secret == "s3cret"
    assert "s3cret" not in repr(settings)
    assert settings.fast
    assert served["store"] == str(tmp_path / "x.db")
    assert (listening.host, listening.port) == ("0.0.0.0", 0)
    assert [token.role for token in listening.tokens] == ["decide", "admin"]
    assert list(listening.hosts) == ["gate.example"]


def test_one_rate_leaves_the_other(run, served, gate_path):
    run("serve", "--gate", gate_path, "--review-rejected", "0.5")
    assert dict(served["settings"].review) == {"rejected": 0.5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "expected a gate to serve, got none. Name one: --gate gate.json."),
        (["--gate", "nowhere.json"], "cannot read the gate nowhere.json"),
        (["--keep", "1d"], "expected --keep of at least --deadline"),
        (["--keep", "forever"], "expected --keep as 90d, 12h or 30m"),
        (["--keep", "0d"], "expected --keep as 90d, 12h or 30m"),
        (["--keep", "-1d"], "expected --keep as 90d, 12h or 30m"),
        (["--keep-payloads", "1"], "expected --keep-payloads as 90d"),
        (["--deadline", "9" * 20 + "d"], "expected --deadline as 90d"),
        (["--level", "0"], "expected --level between 0 and 1"),
        (["--level", "nan"], "expected --level"),
        (["--label-noise", "0.5"], "expected label_noise from 0 to below 0.5"),
        (["--label-noise", "2"], "Did you mean 0.02 or 2%"),
        (["--review-accepted", "3"], "expected --review-accepted between 0 and 1"),
        (["--webhook", "ftp://example.org"], "expected --webhook as https://..."),
        (["--webhook", "http://["], "expected --webhook as https://..."),
        (["--port", "99999"], "expected --port from 0 to 65535, got 99999."),
        (["--port", "-1"], "expected --port from 0 to 65535, got -1."),
        (["--host", "0.0.0.0"], "expected tokens to listen on 0.0.0.0, got none"),
        (["--host", "example.org"], "expected tokens to listen on example.org"),
        (["--tokens", "nowhere"], "cannot read the tokens in nowhere"),
        (
            ["--store", "mysql://x"],
            "expected a store as a file or postgresql://..., got",
        ),
        (["--store", ""], "expected a store as a file or postgresql://..."),
        (["--store", "nowhere/x.db"], "cannot keep rows in nowhere/x.db"),
        (
            ["--store", "text.db"],
            "cannot use the store text.db: file is not a database.",
        ),
        (["--store", "."], ""),
        (
            ["--store", "postgresql://127.0.0.1:1/x"],
            "cannot use the store in PostgreSQL",
        ),
        (["--store", "postgresql://u:hidden@127.0.0.1:1/x"], "cannot use the store"),
        (["--store", "postgresql://[/x"], ""),
        (["--model", "nowhere.onnx"], "nowhere.onnx"),
        (["--logits", "out"], "expected --model FILE"),
        (["--new-token", "root"], "expected a role out of decide, label, admin"),
    ],
)
def test_mistakes_are_reported_in_one_line(run, gate_path, tmp_path, options, message):
    (tmp_path / "text.db").write_text("not a database, but text of some length\n" * 20)
    gate = [] if not options or "--gate" in options else ["--gate", gate_path]
    port = [] if "--port" in options else ["--port", "0"]
    completed = run("serve", *gate, *port, *options, cwd=tmp_path)
    assert completed.returncode == 2
    assert completed.stderr.startswith("trustdoctor: ")
    assert completed.stderr.count("\n") == 1
    assert message in completed.stderr
    assert "hidden" not in completed.stderr
    assert completed.stdout == ""


def test_a_gate_that_cannot_be_served(run, tmp_path):
    gate = td.calibrate_scores(np.arange(100.0), np.arange(100) > 90, risk=0.2)
    gate.save(tmp_path / "gate.json")
    completed = run("serve", "--gate", tmp_path / "gate.json", "--port", "0")
    assert completed.returncode == 2
    assert "this gate cannot be served: it names no score" in completed.stderr


def test_a_port_in_use(run, gate_path, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        place = tmp_path / "x.db"
        completed = run("serve", "--gate", gate_path, "--port", port, "--store", place)
    assert completed.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}" in completed.stderr


@pytest.mark.parametrize("variable", ["admin=short", "root=0123456789-0123456789", "x"])
def test_tokens_of_the_environment(run, gate_path, monkeypatch, variable):
    monkeypatch.setenv("TRUSTDOCTOR_TOKENS", variable)
    completed = run("serve", "--gate", gate_path, "--port", "0")
    assert completed.returncode == 2
    assert "0123456789" not in completed.stderr


def test_a_new_token(run, tmp_path):
    completed = run("serve", "--new-token", "label")
    token, line = completed.stdout.splitlines()
    assert completed.returncode == 0
    path = tmp_path / "tokens"
    path.write_text(line + "\n")
    from hashlib import sha256

    from trustdoctor.service.access import read_tokens

    (stored,) = read_tokens(path)
    assert stored.digest == sha256(token.encode()).digest()


def test_packages_that_are_missing(run, gate_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    completed = run("serve", "--gate", gate_path)
    assert completed.returncode == 2
    assert 'pip install "trustdoctor[serve]"' in completed.stderr.replace("'", '"')


def test_the_help(run):
    completed = run("serve", "--help")
    assert completed.returncode == 0
    for option in ("--gate", "--store", "--fast", "--keep", "--webhook", "--tokens"):
        assert option in completed.stdout


def test_times():
    from trustdoctor.cli.commands.serve import as_seconds

    for text, seconds in (("1s", 1), ("1.5h", 5400), ("2w", 1209600), ("30m", 1800)):
        assert as_seconds(text, "--keep") == seconds
    assert serving.SECRET == "TRUSTDOCTOR_WEBHOOK_SECRET"


@pytest.mark.parametrize(
    ("stop_signal", "code"),
    [(signal.SIGTERM, (0, -signal.SIGTERM)), (signal.SIGINT, (0, 130))],
)
def test_it_serves_until_a_signal_stops_it(gate_path, tmp_path, stop_signal, code):
    place = tmp_path / "rows.db"
    options = ["serve", "--gate", gate_path, "--port", "0", "--store", place]
    running = subprocess.Popen(
        [sys.executable, "-m", "trustdoctor", *map(str, options)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TRUSTDOCTOR_TOKENS": ""},
    )
    with running:
        first = json.loads(running.stderr.readline())
        remaining = []
        drained = threading.Thread(target=lambda: remaining.extend(running.stderr))
        drained.start()
        body = json.dumps({"id": "x", "logits": [3.0, 0.0, 0.0]}).encode()
        request = urllib.request.Request(first["page"] + "/v1/decide", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["id"] == "x"
        running.send_signal(stop_signal)
        running.wait(60)
        drained.join()
    assert running.returncode in code
    lines = [json.loads(line) for line in remaining if line.startswith("{")]
    assert not [
        record for record in lines if record["level"] in ("error", "critical")
    ], remaining
    assert place.is_file()
