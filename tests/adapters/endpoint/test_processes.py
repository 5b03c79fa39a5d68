"""Runs that are killed, interrupted, or share a file."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
from endpoint_server import by_hand, endpoint, probs_of, say

import trustdoctor as td

RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs may ignore it
from trustdoctor.adapters.endpoint import Endpoint
url, answers, rows, most = sys.argv[1:]
options = {"answers": answers, "max_calls": int(most) or None, "workers": 4}
model = Endpoint(url, "tiny", ("yes", "no"), **options)
try:
    print(len(model([f"text {i}" for i in range(int(rows))])))
except ValueError as error:
    print(error)
"""


def start(server, path, rows, most=0):
    script = [sys.executable, "-c", RUN, server.url, path, str(rows), str(most)]
    return subprocess.Popen(
        script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_killed_run_resumes_and_asks_nothing_twice(server, tmp_path):
    """All but what was under way at that moment, one for each worker."""
    path, rows = tmp_path / "answers.jsonl", 60
    server.delay = 0.02
    for enough in (12, 36):
        job = start(server, path, rows)
        wait_for(lambda enough=enough: len(server.requests) >= enough)
        job.send_signal(signal.SIGKILL)
        job.communicate()
        assert job.returncode == -signal.SIGKILL
    texts = [f"text {i}" for i in range(rows)]
    predictions = endpoint(server, answers=path)(texts)
    np.testing.assert_allclose(probs_of(predictions), by_hand(texts), rtol=1e-12)
    calls_by_text = Counter(server.texts)
    assert set(calls_by_text) == set(texts)
    assert calls_by_text.total() - rows <= 2 * 4
    count = (tmp_path / "answers.jsonl.calls").stat().st_size
    assert calls_by_text.total() <= count <= calls_by_text.total() + 2 * 4
    assert len(td.read(path, choices="yes,no")) == rows


def test_an_interrupt_does_not_wait_and_keeps_what_was_answered(server, tmp_path):
    path = tmp_path / "answers.jsonl"
    quick = {f"text {i}" for i in range(8)}
    ended = threading.Event()

    def answer(text):
        if text not in quick:
            ended.wait(300)
        return say(text)

    server.say = answer
    job = start(server, path, 50)
    wait_for(lambda: len(server.requests) >= 12)
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=100)  # the answers are still to come
    ended.set()
    assert errors.strip().endswith("KeyboardInterrupt")
    assert len(path.read_bytes().splitlines()) == 8
    server.say = say
    endpoint(server, answers=path)(sorted(quick))
    assert len(server.requests) == 12


def test_processes_share_a_file_and_its_budget(server, tmp_path):
    path, rows, most = tmp_path / "answers.jsonl", 40, 30
    server.delay = 0.01
    jobs = [start(server, path, rows, most) for _ in range(2)]
    for job in jobs:
        out, errors = job.communicate(timeout=60)
        assert "max_calls=30 is spent" in out
        assert errors == ""
    assert len(server.requests) == most
    assert (tmp_path / "answers.jsonl.calls").stat().st_size == most
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["custom_id"] for line in lines}) == len(lines)
    assert {line["response"]["status_code"] for line in lines} == {200}
    endpoint(server, answers=path)([f"text {i}" for i in range(rows)])
    assert len(server.requests) == most + rows - len(lines)
    assert len(td.read(path, choices="yes,no")) == rows
