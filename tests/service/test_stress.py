"""Slow clients, full disks, wrong clocks, hung processes: what others get meanwhile."""

import os
import resource
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psycopg
import pytest
from service.load import Load, make_gate, running_postgres, serving, wait_until

from trustdoctor.service.store import open_database

pytestmark = pytest.mark.soak

ROW = {"logits": [1.0, 2.0, 3.0]}
HEAD = b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\n"
ASK = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@pytest.fixture
def gate(tmp_path):
    return make_gate(tmp_path)


@pytest.fixture
def many_files():
    """Room for a thousand connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip("expected to open 3,000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(service, stack):
    link = stack.enter_context(socket.socket())
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect(("127.0.0.1", service.port))
    link.settimeout(10)
    return link


def decide(service, timeout=10):
    """Return the status of one decision, and how long it took."""
    start = time.monotonic()
    status, _ = service.ask("POST", "/v1/decide", ROW, timeout=timeout)
    return status, time.monotonic() - start


def is_open(service, link):
    """Tell whether the service still has a connection."""
    port = link.getsockname()[1]
    connections = Path("/proc/net/tcp").read_text()
    ends = f"0100007F:{service.port:04X} 0100007F:{port:04X} 01"
    return ends in connections


def test_clients_that_are_slow_are_cut_and_others_are_served(gate, tmp_path):
    with ExitStack() as stack:
        service = stack.enter_context(serving(gate, tmp_path / "a.db", patience=1.0))
        links = [connect(service, stack) for _ in range(5)]
        idle, head, body, lines, reader = links
        head.sendall(HEAD)
        body.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        lines.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not lines.recv(1 << 16).endswith(b'{"status":"ok"}'):
            pass
        lines.sendall(b"\r\n")
        reader.settimeout(0.2)
        with suppress(TimeoutError):
            for _ in range(3000):
                reader.sendall(ASK)
        end = time.monotonic() + 6
        while time.monotonic() < end and any(is_open(service, link) for link in links):
            for link, drop in ((head, b"X: a\r\n"), (body, b" ")):
                with suppress(OSError):
                    link.sendall(drop)
            status, took = decide(service)
            assert (status, took < 1) == (200, True)
            time.sleep(0.1)
        assert [is_open(service, link) for link in links] == [False] * 5
        assert idle.recv(10) == b""


@pytest.mark.usefixtures("many_files")
def test_idle_connections_take_nothing_from_others(gate, tmp_path):
    with ExitStack() as stack:
        service = stack.enter_context(serving(gate, tmp_path / "a.db", patience=3.0))
        for _ in range(500):
            connect(service, stack)
        assert decide(service)[0] == 200
        assert max(decide(service)[1] for _ in range(20)) < 1
        for _ in range(700):
            connect(service, stack)
        status, content = service.ask("POST", "/v1/decide", ROW)
        assert (status, content["status"]) == (503, 503)
        wait_until(lambda: decide(service)[0] == 200, 10)


def test_large_bodies_take_turns(gate, tmp_path):
    """Sixteen at once, all within the limits: memory stays, and others are served."""
    wide = b'{"logits":[' + b",".join([b"[" + b"0," * 98_999 + b"0]"] * 80) + b"]}"
    took = []
    with serving(gate, tmp_path / "a.db") as service:
        decide(service)

        def send():
            answers.append(service.ask("POST", "/v1/decide", wide, timeout=120)[0])

        answers = []
        jobs = [threading.Thread(target=send) for _ in range(16)]
        for job in jobs:
            job.start()
        peak = 0.0
        while any(job.is_alive() for job in jobs):
            took.append(decide(service, timeout=60)[1])
            peak = max(peak, service.memory)
        assert set(answers) <= {400, 503}
        assert peak < 2000
        assert max(took) < 10


NAMESPACE = 'mount -t tmpfs -o size=6m tmpfs "$0" && exec "$@"'


def test_a_full_disk_is_reported_and_loses_nothing(gate, tmp_path):
    disk, load = tmp_path / "disk", Load()
    disk.mkdir()
    before = ["unshare", "-m", "sh", "-c", NAMESPACE, str(disk)]
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("expected to mount a small disk, as root can")
    with serving(gate, disk / "a.db", before=before) as service:
        load.start(service)
        wait_until(lambda: load.away > 20)
        load.stop()
        large = ROW | {"payload": {"text": "x" * 500_000}}
        status, content = service.ask("POST", "/v1/decide", large)
        assert (status, content["title"]) == (503, "Unavailable")
        assert service.ask("GET", "/readyz")[0] == 503
        inside = ["nsenter", "-m", "-t", str(service.process.pid)]
        more = ["mount", "-o", "remount,size=200m", str(disk)]
        subprocess.run([*inside, *more], check=True)
        wait_until(lambda: service.ask("POST", "/v1/decide", ROW)[0] == 200, 10)
        load.start(service)
        time.sleep(1)
        load.stop()
        assert not load.wrong, load.wrong[:3]
        names = list(load.decided)
        for first in range(0, len(names), 1000):
            batch = names[first : first + 1000]
            rows = {"ids": batch, "logits": [load.decided[name][0] for name in batch]}
            status, content = service.ask("POST", "/v1/decide", rows)
            assert status == 200
            assert content["rows"] == [load.decided[name][1] for name in batch]
        assert service.ask("GET", "/readyz")[0] == 200


needs_faketime = pytest.mark.skipif(
    FAKETIME is None, reason="there is no libfaketime: apt install libfaketime"
)


class Clock:
    """The clock of a process, which can be set."""

    def __init__(self, folder):
        self.file = folder / "clock"
        self.env = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.set("+0")

    def set(self, shift):
        self.file.write_text(f"{shift}\n")


def decide_many(service, name, rows=200):
    logits = np.random.default_rng(0).normal(size=(rows, 3)).tolist()
    ids = [f"{name}-{n}" for n in range(rows)]
    status, content = service.ask("POST", "/v1/decide", {"ids": ids, "logits": logits})
    assert status == 200
    return {row["id"] for row in content["rows"] if row["review"]}


def watched(service):
    return service.get("/v1/status")["watch"]


KEEP = ("--keep", "40d", "--deadline", "30d", "--review-accepted", "1")


@needs_faketime
def test_a_clock_that_jumps_ahead_deletes_nothing_and_ends_no_waiting(gate, tmp_path):
    clock, path = Clock(tmp_path), tmp_path / "a.db"
    with serving(gate, path, *KEEP, env=clock.env) as service:
        decide_many(service, "before")
        wait_until(lambda: watched(service)["waiting"] == 200)
        clock.set("+365d")
        decide_many(service, "ahead")
        leased = service.ask("POST", "/v1/review/lease", {"count": 5})[1]["rows"]
        wait_until(lambda: watched(service)["waiting"] == 400)
        clock.set("+0")
        decide_many(service, "after")
        wait_until(lambda: watched(service)["waiting"] == 600)
        time.sleep(1)
        repeated = service.ask("POST", "/v1/review/lease", {"count": 5})[1]["rows"]
        # A lease of five minutes does not become one of a year.
        assert {row["id"] for row in repeated} == {row["id"] for row in leased}
        assert service.count("rows") == 600
        service.kill()
    clock.set("+365d")
    with serving(gate, path, *KEEP, env=clock.env) as service:
        decide_many(service, "started ahead")
        time.sleep(3)
        assert service.count("rows") == 800


@needs_faketime
def test_a_clock_that_jumps_back_stops_nothing(gate, tmp_path):
    clock = Clock(tmp_path)
    with serving(gate, tmp_path / "a.db", *KEEP, env=clock.env) as service:
        drawn = decide_many(service, "before")
        clock.set("-365d")
        drawn |= decide_many(service, "after")
        wait_until(lambda: watched(service)["waiting"] == 400)
        labels = {"ids": sorted(drawn), "labels": [0] * len(drawn)}
        assert service.ask("POST", "/v1/labels", labels)[1]["counted"] == 400
        wait_until(lambda: watched(service)["waiting"] == 0)


def test_the_watch_goes_on_while_a_webhook_hangs(gate, tmp_path):
    with ExitStack() as stack:
        hook = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        url = f"http://127.0.0.1:{hook.getsockname()[1]}/?key=hidden"
        options = ["--webhook", url, "--review-accepted", "1"]
        service = stack.enter_context(serving(gate, tmp_path / "a.db", *options))
        decide_many(service, "worse", 1000)
        hook.settimeout(20)
        connection, _ = hook.accept()
        stack.enter_context(connection)
        assert service.get("/v1/status")["alarms"][0]["sent"] is None
        decide_many(service, "later")
        wait_until(lambda: watched(service)["waiting"] == 1200, 5)
        start = time.monotonic()
        service.stop()
        assert time.monotonic() - start < 20
        assert "hidden" not in service.log.read_text()


def test_a_replica_that_hangs_stops_others_for_seconds_only(gate):
    with ExitStack() as stack:
        place = stack.enter_context(running_postgres()).fresh()
        hung, other = (stack.enter_context(serving(gate, place)) for _ in range(2))
        load, longest = Load(), 0.0
        load.start(hung, other)
        for _ in range(2):
            time.sleep(0.3)
            os.kill(hung.process.pid, signal.SIGSTOP)
            start = time.monotonic()
            wait_until(lambda: decide(other, timeout=60)[0] == 200, 60)
            longest = max(longest, time.monotonic() - start)
            os.kill(hung.process.pid, signal.SIGCONT)
        wait_until(lambda: decide(hung)[0] == 200, 20)
        load.stop()
        assert not load.wrong, load.wrong[:3]
        assert longest < 40


@pytest.mark.parametrize("copying", [False, True])
def test_so_does_one_that_hangs_within_a_transaction(copying, gate):
    """Between two statements, or while it sends rows."""
    with running_postgres() as running:
        place = running.fresh()
        with serving(gate, place) as service:
            assert decide(service)[0] == 200
            hung = open_database(place).open()
            hung.begin()
            hung.lock()
            with suppress(psycopg.Error), ExitStack() as stack:
                stack.callback(hung.connection.close)
                if copying:
                    sending = hung.connection.cursor().copy(
                        "COPY review_counts FROM STDIN"
                    )
                    stack.enter_context(sending)
                wait_until(lambda: decide(service, timeout=60)[0] == 200, 40)
