"""The HTTP client: proxies, the pool, a deadline for a whole call."""

import base64
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from trustdoctor.http_client import HttpClient, RetryPolicy, ServerResponse
from trustdoctor.service.webhook import send_alarm

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LOGIN = base64.b64encode(b"me:p@ss").decode()


@contextmanager
def answering(*responses, pause=0.0):
    """A server with one response per request; yields its address and what it read.

    A response may be a list of pieces, sent with pauses between them.
    """
    listener, requests = socket.create_server(("127.0.0.1", 0)), []
    responses = list(responses)

    def serve(connection):
        ignore_disconnect = suppress(OSError)
        with ignore_disconnect, connection, connection.makefile("rb") as stream:
            while head := b"".join(iter(stream.readline, b"\r\n")):
                length = [
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.startswith(b"Content-Length:")
                ]
                stream.read(sum(length))
                requests.append(head.decode())
                response = responses.pop(0)
                pieces = [response] if isinstance(response, bytes) else response
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause)

    def accept():
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}", requests


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_proxy_of_the_environment_gets_the_absolute_url(monkeypatch):
    with answering(OK, OK) as (address, requests):
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{address}")
        client = HttpClient("http://model.example/v1", timeout=9, proxies=True)
        for _ in range(2):
            assert client.call("GET", "/models") == ServerResponse(200, "{}")
    assert len(requests) == 2
    assert requests[0].startswith("GET http://model.example/v1/models HTTP/1.1\r\n")
    assert "Host: model.example\r\n" in requests[0]
    assert f"Proxy-Authorization: Basic {LOGIN}\r\n" in requests[0]


def test_a_proxy_tunnels_encrypted_requests_and_never_sees_the_key(monkeypatch):
    with answering(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n") as (at, requests):
        monkeypatch.setenv("https_proxy", f"me:p%40ss@{at}")
        url = "https://model.example/v1"
        client = HttpClient(url, timeout=9, bearer="secret-key", proxies=True)
        response = client.call("GET", "/models")
    assert response == ServerResponse(0, "Tunnel connection failed: 403 No")
    assert requests[0].startswith("CONNECT model.example:443 HTTP/1.")
    assert f"Proxy-Authorization: Basic {LOGIN}\r\n" in requests[0]
    assert "secret-key" not in requests[0]


@pytest.mark.parametrize(
    ("url", "proxies", "without"),
    [
        ("http://model.invalid", False, ""),
        ("http://model.invalid", True, "model.invalid"),
        ("http://localhost:9", True, ""),
    ],
)
def test_servers_that_bypass_the_proxy(monkeypatch, url, proxies, without):
    with answering(OK) as (address, requests):
        monkeypatch.setenv("http_proxy", f"http://{address}")
        monkeypatch.setenv("no_proxy", without)
        assert HttpClient(url, timeout=9, proxies=proxies).call("GET").status == 0
    assert not requests


def test_half_a_response_is_never_the_answer_to_the_next_request():
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
    with answering(long, OK) as (address, requests):
        client = HttpClient(f"http://{address}", timeout=9, response_limit=1000)
        response = client.call("GET")
        assert response.status == 200
        assert 1000 < len(response.text) < 300_000
        assert client.call("GET") == ServerResponse(200, "{}")
    assert len(requests) == 2


def test_a_webhook_that_drips_is_given_up(monkeypatch):
    monkeypatch.setattr("trustdoctor.service.webhook.TIMEOUT", 0.3)
    drip = [b"HTTP/1.1 200 OK\r\n", *([b"X-A: b\r\n"] * 90), b"\r\n"]
    with answering(drip, pause=0.05) as (address, _):
        began = time.monotonic()
        assert not send_alarm(f"http://{address}/hook?key=1", {"test": "x"}, None)
        assert time.monotonic() - began < 2


def test_a_webhook_keeps_the_query_of_its_address():
    with answering(OK) as (address, requests):
        assert send_alarm(f"http://{address}/hook?key=1", {"test": "x"}, None)
    assert requests[0].startswith("POST /hook?key=1 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "url", ["", "hook", "ftp://127.0.0.1/x", "http://[", "http://"]
)
def test_a_webhook_must_be_an_address(url):
    assert not send_alarm(url, {"test": "x"}, None)


def test_retries_stop_at_the_first_final_response():
    policy = RetryPolicy(3, frozenset({0, 503}), 0.25)
    for statuses, calls in [([200], 1), ([503, 0, 400, 200], 3), ([0] * 9, 4)]:
        to_come, pauses = list(statuses), []
        response = policy.call(
            lambda to_come=to_come: ServerResponse(to_come.pop(0), ""), pauses.append
        )
        assert response.status == statuses[calls - 1]
        assert len(pauses) == calls - 1


def test_an_error_of_a_wait_ends_the_retries():
    def stop(_seconds):
        raise KeyboardInterrupt

    policy = RetryPolicy(3, frozenset({0}), 0.25)
    with pytest.raises(KeyboardInterrupt):
        policy.call(lambda: ServerResponse(0, ""), stop)
