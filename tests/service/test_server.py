"""Listening, over real sockets: streams, slow clients, an end that loses nothing."""

import http.client
import json
import logging
import socket
import threading
import time
from contextlib import suppress

import pytest

from trustdoctor.errors import InputError
from trustdoctor.service import server
from trustdoctor.service.access import Access
from trustdoctor.service.app import App
from trustdoctor.service.server import ListenOptions, _JsonFormatter, _listen
from trustdoctor.service.service import Service
from trustdoctor.service.settings import Limits, Settings
from trustdoctor.service.store import UnavailableError, open_database

ROW = {"logits": [1.0, 2.0, 3.0, 4.0]}


class Running:
    """A server in a thread of this process."""

    def __init__(self, gate, place, **limits):
        settings = Settings(watch_interval=3600.0, limits=Limits(**limits))
        listen_options = ListenOptions(port=0)
        self.listener = _listen(listen_options)
        self.port = self.listener.getsockname()[1]
        self.service = Service(open_database(place), gate, settings)
        app = App(self.service, Access((), (), self.service.secret))
        self.service.start()
        self.server = server._Server(
            app, server._uvicorn_config(app, listen_options, settings)
        )
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None):
        line = self.connect()
        line.request(method, path, None if body is None else json.dumps(body))
        answer = line.getresponse()
        content = answer.read()
        line.close()
        return answer, content

    def stop(self):
        self.server.should_exit = True
        self.thread.join(40)
        assert not self.thread.is_alive()


@pytest.fixture
def start(gate, tmp_path):
    running = []

    def begin(**limits):
        running.append(Running(gate, str(tmp_path / "rows.db"), **limits))
        return running[-1]

    yield begin
    for service in running:
        service.stop()


@pytest.fixture(scope="module")
def running(gate, tmp_path_factory):
    service = Running(gate, str(tmp_path_factory.mktemp("served") / "rows.db"))
    yield service
    service.stop()


def test_one_connection_serves_many_requests(running):
    line = running.connect()
    for at in range(5):
        line.request("POST", "/v1/decide", json.dumps(ROW | {"id": at}))
        answer = line.getresponse()
        assert answer.status == 200
        assert json.loads(answer.read())["id"] == str(at)
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/nowhere", 404)):
        line.request("GET", path)
        answer = line.getresponse()
        assert answer.status == status
        json.loads(answer.read())
    line.close()


@pytest.mark.parametrize("path", ["/", "/v1/status", "/metrics", "/healthz"])
def test_heads_have_no_body(running, path):
    answer, content = running.ask("HEAD", path)
    assert answer.status == 200
    assert content == b""
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/decide", {"POST"}),
        ("/v1/gates", {"GET", "HEAD", "POST"}),
        ("/v1/rows/x", {"GET", "HEAD", "DELETE"}),
        ("/v1/labels", {"POST"}),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods(running, path, allowed, method):
    answer, content = running.ask(method, path)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert json.loads(content)["status"] == 405


def test_events(running):
    line = running.connect()
    line.request("GET", "/v1/events")
    answer = line.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = []
    while not any(line.startswith(b"data: ") for line in lines):
        lines.append(answer.fp.readline())
    assert b"event: status\n" in lines
    status = json.loads(lines[-1].removeprefix(b"data: "))
    assert status["gate"]["version"] == 1
    line.close()


def test_bodies_that_are_too_large(start):
    running = start(body=1000)
    answer, content = running.ask("POST", "/v1/decide", {"logits": [1.0] * 1000})
    assert answer.status == 413
    assert json.loads(content)["detail"].startswith("expected a request of 1,000 bytes")
    assert running.ask("POST", "/v1/decide", ROW)[0].status == 200


def test_slow_requests_end(start):
    running = start(patience=1.5)
    slow = socket.create_connection(("127.0.0.1", running.port))
    slow.sendall(
        b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    )
    silent = socket.create_connection(("127.0.0.1", running.port))
    late = socket.create_connection(("127.0.0.1", running.port))
    late.sendall(
        b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    )
    assert running.ask("POST", "/v1/decide", ROW)[0].status == 200
    for connection in (slow, silent, late):
        connection.settimeout(60)
        with suppress(ConnectionResetError):
            connection.recv(1000)  # which waits no longer than the service does
        connection.close()
    assert running.service.read_now(lambda s: s.rows("SELECT count(*) FROM rows")) == [
        (1,)
    ]


def test_shutdown_finishes_accepted_requests(gate, tmp_path, monkeypatch):
    place = str(tmp_path / "rows.db")
    running = Running(gate, place)
    decider = running.service.writer.decider
    real, leave = decider.decide, threading.Event()

    def slowly(session, head, requests):
        leave.wait(60)
        return real(session, head, requests)

    monkeypatch.setattr(decider, "decide", slowly)
    stream = running.connect()
    stream.request("GET", "/v1/events")
    stream.getresponse().fp.readline()
    answers = []

    def send(at):
        answers.append(running.ask("POST", "/v1/decide", ROW | {"id": at}))

    threads = [threading.Thread(target=send, args=(at,)) for at in range(10)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while running.service.writer.waiting < 10:
        assert time.monotonic() < until
        time.sleep(0.01)
    threading.Timer(0.3, leave.set).start()  # when the end has begun
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < server.GRACE  # the stream does not block it
    for thread in threads:
        thread.join()
    stream.close()
    assert [answer.status for answer, _ in answers] == [200] * 10
    restarted = Running(gate, place)
    stored = restarted.service.read_now(lambda s: s.rows("SELECT id FROM rows"))
    assert sorted(int(name) for (name,) in stored) == list(range(10))
    restarted.stop()


def test_a_store_that_is_away(start, monkeypatch):
    running = start()
    session = running.service.writer

    def broken():
        message = "cannot use the store: it is away."
        raise UnavailableError(message)

    with monkeypatch.context() as patch:
        patch.setattr(session, "_open_session", broken)
        answer, content = running.ask("POST", "/v1/decide", ROW | {"id": "x"})
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert json.loads(content)["detail"].endswith("Retry after 1 s.")
    assert running.ask("POST", "/v1/decide", ROW | {"id": "x"})[0].status == 200


def test_unavailable_ports():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1, port {port}: "):
        _listen(ListenOptions(port=port))
    listener.close()
    with pytest.raises(InputError, match=r"cannot listen on nowhere\.invalid"):
        _listen(ListenOptions(host="nowhere.invalid", port=0))


def test_lines_of_the_log():
    record = logging.LogRecord("x", logging.INFO, "", 0, "a %s\n", ("b",), None)
    record.data = {"route": "/v1/decide"}
    line = _JsonFormatter().format(record)
    assert "\n" not in line
    content = json.loads(line)
    assert (content["event"], content["level"], content["route"]) == (
        "a b\n",
        "info",
        "/v1/decide",
    )
    assert content["time"].endswith("Z")


def test_the_log_contains_no_content(running, caplog):
    secret = "patient-4711"
    caplog.set_level(logging.DEBUG, "trustdoctor.service")
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    running.ask("POST", "/v1/decide", ROW | {"id": secret})
    running.ask("GET", f"/v1/rows/{secret}?token=abc")
    running.ask("DELETE", f"/v1/rows/{secret}")
    running.ask("POST", "/v1/labels", {"id": secret, "label": 1, "x": 1})
    running.ask("POST", "/v1/decide", ROW | {"id": secret, "payload": {"text": 1}})
    # A log of accesses is only kept where somebody listens to it, which pytest does.
    records = [record for record in caplog.records if record.name != "uvicorn.access"]
    text = "".join(repr(vars(record)) for record in records)
    assert "/v1/rows/{id:path}" in text
    assert secret not in text
    assert "token=abc" not in text
