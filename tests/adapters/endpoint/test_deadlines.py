"""Servers that never finish, and answers that are not HTTP: a one-line error each."""

import gzip
import json
import socket
import threading
import time

import pytest
from endpoint_server import CHOICES, completion

from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.errors import InputError
from trustdoctor.http_client import HttpClient
from trustdoctor.service.client import Client

SOON = 0.3
"""Seconds of the timeout in these tests."""

FOR_EVER = 30.0
"""Seconds that a server here goes on for, and that no call may take."""

BODY = json.dumps(completion({"yes": 1.0})).encode()
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Script:
    """A server that reads some bytes of a request and sends scripted bytes."""

    def __init__(self, start=b"", repeated=b"", *, pause=0.02, reads=True):
        self._start, self._repeated, self._pause = start, repeated, pause
        self._reads, self._over = reads, threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        self._socket.close()

    def _accept(self):
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            args = (connection,)
            threading.Thread(target=self._serve, args=args, daemon=True).start()

    def _serve(self, connection):
        until = time.monotonic() + FOR_EVER
        with connection:
            try:
                if self._reads:  # to the end: unread bytes would reset the connection
                    request = connection.makefile("rb")
                    lines = list(iter(request.readline, b"\r\n"))
                    sizes = [
                        int(line[15:]) for line in lines if b"Content-Length:" in line
                    ]
                    request.read(sum(sizes))
                connection.sendall(self._start)
                while self._repeated is not None and time.monotonic() < until:
                    if self._over.wait(self._pause):
                        return
                    connection.sendall(self._repeated)
            except OSError:
                return


def refusal_of(server, **options):
    """Return the single error line of a run that ends long before the server does."""
    fields = {"url": server.url, "model": "tiny", "choices": CHOICES}
    began = time.monotonic()
    with pytest.raises(InputError) as refusal:
        Endpoint(**{**fields, "timeout": SOON, "retries": 0, **options})(["a text"])
    assert time.monotonic() - began < FOR_EVER / 2
    assert type(refusal.value) is InputError
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


DRIPS = {
    "nothing": (b"", b""),
    "status": (b"", b"H"),
    "headers": (OK, b"X-A: b\r\n"),
    "one header": (OK + b"X-A: ", b"b"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "continue with headers": (b"HTTP/1.1 100 Continue\r\n", b"X-A: b\r\n"),
    "body": (OK + b"Content-Length: 100000\r\n\r\n", b"x"),
    "body without a length": (OK + b"\r\n", b"x"),
    "chunks": (CHUNKED, b"1\r\nx\r\n"),
    "size of a chunk": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY), b"X-A: b\r\n"),
}


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.sampled(2)
def test_a_timeout_is_for_the_whole_call(drip):
    with Script(*DRIPS[drip], pause=SOON / 8) as server:
        refusal = refusal_of(server)
    assert (
        "did not answer row 0: timed out" in refusal
        or "more than 100 headers" in refusal
    )


@pytest.mark.parametrize("drip", ["continue", "headers", "chunks"])
def test_a_flood_ends_as_well(drip):
    start, repeated = DRIPS[drip]
    with Script(start, repeated * 1000, pause=0) as server:
        refusal = refusal_of(server)
    assert (
        "timed out" in refusal
        or "more than 100 headers" in refusal
        or "got: xxx" in refusal
    )


def test_a_server_that_does_not_read_is_given_up():
    with Script(repeated=b"", reads=False) as server:
        assert "timed out" in refusal_of(server, prompt="{text}" + "x" * 50_000_000)


@pytest.mark.parametrize("drip", ["nothing", "continue", "one header", "body"])
def test_the_timeout_of_a_client_is_for_the_whole_call(drip):
    with Script(*DRIPS[drip], pause=SOON / 8) as server:
        began = time.monotonic()
        with pytest.raises(InputError, match="did not answer: timed out"):
            Client(server.url, timeout=SOON, retries=0).status()
        assert time.monotonic() - began < FOR_EVER / 2


def test_another_address_has_the_time_that_is_left(monkeypatch):
    timeouts = []

    def connect(_address, timeout, *_):
        timeouts.append(timeout)
        time.sleep(SOON / 4)
        raise TimeoutError

    names = [(2, 1, 6, "", ("127.0.0.1", 9))] * 50
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_o: names)
    monkeypatch.setattr(socket, "create_connection", connect)
    reply = HttpClient("http://a.example/v1", timeout=SOON).call("GET", "/models")
    assert (reply.status, reply.text) == (0, "timed out")
    assert len(timeouts) < 10
    assert timeouts == sorted(timeouts, reverse=True)


ANSWERS = {
    "redirect without a place": b"HTTP/1.1 302 Found\r\n\r\n",
    "redirect to no address": b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    "redirect to a file": b"HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\n\r\n",
    "redirect with bytes": b"HTTP/1.1 307 Go\r\nLocation: \xff\xfe\r\n\r\n",
    "redirect to a port": b"HTTP/1.1 308 Go\r\nLocation: http://a:99999\r\n\r\n",
    "redirect with a wait": b"HTTP/1.1 303 -\r\nLocation: /\r\nRetry-After: x\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "status of many digits": b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "negative length": OK + b"Content-Length: -5\r\n\r\nxxx",
    "length of letters": OK + b"Content-Length: x\r\n\r\nxxx",
    "length of many digits": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nxxx",
    "negative chunk": CHUNKED + b"-5\r\nxxxxxxxxxxx\r\n",
    "chunk of letters": CHUNKED + b"zz\r\nxxx\r\n",
    "long chunk": CHUNKED + b"f" * 300 + b"\r\nxxx\r\n",
    "long header": OK + b"X-A: " + b"b" * 70_000 + b"\r\n\r\n",
    "HTML": OK + b"Content-Length: 13\r\n\r\n<html></html>",
    "gzip": OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"\0" * 10**8),
    "unpaired": OK + b'\r\n{"choices": [{"message": "\\ud800"}]}',
    "numbers": OK + b'\r\n{"choices": ' + b"9" * 5000 + b"}",
    "words": OK + b'\r\n{"choices": NaN}',
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_odd_answers_are_reported_in_one_line(answer):
    with Script(ANSWERS[answer], None) as server:
        refusal = refusal_of(server, timeout=FOR_EVER)
    assert server.url in refusal
    assert "redirect" not in answer or "Redirects are not followed" in refusal
    assert len(refusal) < 1000


WAITS = {
    "-1": 0,
    "0": 0,
    "3": 3,
    "2.5": 2.5,
    "9" * 5000: 60,
    "1e400": 0,
    "0x10": 0,
    "1_0": 0,
    "\u0661": 0,
    "\x00": 0,
    "nan": 0,
    "Wed, 21 Oct 2015 07:28:00 GMT": 0,
    "Wed, 21 Oct 9999 07:28:00 GMT": 60,
    "Wed, 21 Oct 99999999999999999999 07:28:00 GMT": 0,
    "Wed, 99 Foo 2015 77:88:99 GMT": 0,
    "Wed, 21 Oct 2015 07:28:00 +99999999999999999999": 0,
    "Fri, 31 Dec 9999 23:59:59 -2359": 60,
    "Sat, 01 Jan 0001 00:00:00 +2359": 0,
    ",": 0,
    "a, b": 0,
    "=?utf-8?q?=ff?=": 0,
}


@pytest.mark.parametrize("after", WAITS, ids=lambda after: repr(after[:40]))
def test_odd_waits_are_waits_or_none(after, pauses):
    header = b"HTTP/1.1 503 Busy\r\nRetry-After: " + after.encode() + b"\r\n\r\n"
    with Script(header, None) as server:
        refusal = refusal_of(server, retries=1, timeout=FOR_EVER)
    assert "answered 503 to row 0" in refusal
    least = WAITS[after]
    assert least <= pauses[0] <= max(least, 0.5)


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", ".example"])
def test_unknown_hosts_are_reported_in_one_line(host):
    class Named:
        url = f"http://{host}/v1"

    assert "did not answer row 0" in refusal_of(Named, timeout=FOR_EVER)


@pytest.mark.parametrize("timeout", [1e20, 1e308, 10**400, 86_401], ids="abcd")
def test_a_timeout_is_a_day_at_most(timeout):
    with pytest.raises(InputError, match="of a day at most"):
        Endpoint("http://127.0.0.1:9", "tiny", CHOICES, timeout=timeout)
    with pytest.raises(InputError, match="of a day at most"):
        Client("http://127.0.0.1:9", timeout=timeout)
