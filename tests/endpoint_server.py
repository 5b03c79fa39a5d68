"""A local server of chat completions, which can be made to misbehave."""

import json
import math
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.errors import InputError


def completion(probs, *, text=None, end="length"):
    """A chat completion whose first token has these probabilities."""
    top = [
        {
            "token": token,
            "logprob": math.log(p),
            "bytes": list(token.encode("utf-8", "replace")),
        }
        for token, p in probs.items()
        if p > 0
    ]
    first = max(top, key=lambda entry: entry["logprob"]) if top else None
    content = [] if first is None else [{**first, "top_logprobs": top}]
    answer = (first["token"] if first else "") if text is None else text
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": answer},
        "logprobs": {"content": content},
        "finish_reason": end,
    }
    return {"id": "chat-1", "object": "chat.completion", "choices": [choice]}


class Server(ThreadingHTTPServer):
    """Answers by what `say` returns for the user's text.

    Attributes
    ----------
    say : callable
        Text to a dict of tokens and probabilities, or to a whole body (a dict with
        "choices", text or bytes).
    faults : list
        What comes instead, one per call: a status, or (status, headers), or (status,
        headers, body), or "close", "cut", "chunks" or "cut chunk".
    delay : float
        Seconds before each answer.
    key : str
        What the Authorization header must hold; any will do where it is None.
    asked : list of dict
        The requests as they came, refused ones included.
    keys : list
        Their Authorization headers.
    busiest : int
        How many were under way at the same time.
    """

    daemon_threads = True
    block_on_close = False  # a stopped run leaves answers under way
    request_queue_size = 64

    def __init__(self, say):
        super().__init__(("127.0.0.1", 0), _EndpointHandler)
        self.say, self.faults, self.delay, self.key = say, [], 0.0, None
        self.models = ["tiny", "large"]
        self.requests, self.keys, self.paths = [], [], []
        self.lock, self.busy, self.busiest = threading.Lock(), 0, 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def texts(self):
        return [request["messages"][-1]["content"] for request in self.requests]

    def handle_error(self, *_):
        """Whoever asked may be gone."""


class _EndpointHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.paths.append(self.path)
        listed = [{"id": name} for name in self.server.models]
        if self.path == "/v1/models":
            self._send(200, {}, {"object": "list", "data": listed})
        else:
            self._send(404, {}, {"detail": "Not Found"})

    def do_POST(self):
        server = self.server
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with server.lock:
            server.paths.append(self.path)
            server.requests.append(json.loads(content))
            server.keys.append(self.headers["Authorization"])
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
            fault = server.faults.pop(0) if server.faults else None
        time.sleep(server.delay)
        with server.lock:
            server.busy -= 1
        self._answer(fault, json.loads(content))

    def _answer(self, fault, question):
        server = self.server
        if fault == "close":
            self.close_connection = True
        elif fault == "cut":
            body = json.dumps(completion({"yes": 1.0})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif fault in ("chunks", "cut chunk"):
            self._send_chunks(complete=fault == "chunks")
        elif fault is not None:
            self._send(*_triple(fault))
        elif server.key not in (None, self.headers["Authorization"]):
            authorization = self.headers["Authorization"]
            self._send(401, {}, {"error": {"message": f"wrong key {authorization}"}})
        elif self.path != "/v1/chat/completions":
            self._send(404, {}, {"detail": "Not Found"})
        elif question["model"] not in server.models:
            name = question["model"]
            self._send(404, {}, {"error": {"message": f"no model {name}"}})
        else:
            answer = server.say(question["messages"][-1]["content"])
            tokens = isinstance(answer, dict) and "choices" not in answer
            self._send(200, {}, completion(answer) if tokens else answer)

    def _send_chunks(self, *, complete):
        body = json.dumps(completion({"yes": 1.0})).encode()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in (body[:100], body[100:]):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if not complete:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status, headers, body):
        if isinstance(body, dict):
            body = json.dumps(body)
        content = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _triple(fault):
    fault = fault if isinstance(fault, tuple) else (fault,)
    defaults = ({}, {"error": {"message": "told to fail"}})
    return *fault, *defaults[len(fault) - 1 :]


@contextmanager
def serving(say):
    """Yield a server that runs in a thread."""
    server = Server(say)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


KEY = "sk-test-0123456789abcdef"
CHOICES = ("yes", "no")


def say(text):
    """The model of these tests: surer of yes, the longer the text."""
    sure = len(text) / (1 + len(text))
    return {"yes": 0.6 * sure, " Yes": 0.3 * sure, "No": 0.9 * (1 - sure), "I": 0.1}


def by_hand(texts):
    """What should come out: the mass of other tokens is divided out."""
    sure = np.array([len(text) / (1 + len(text)) for text in texts])
    return np.stack([sure, 1 - sure], 1)


def endpoint(server, **options):
    usual = {"url": server.url, "model": "tiny", "choices": CHOICES}
    return Endpoint(**{**usual, **options})


def probs_of(predictions):
    return np.exp(predictions.logits)


def refused(server, texts=("a text",), **options):
    """The one line that a run ends with."""
    with pytest.raises(InputError) as refusal:
        endpoint(server, **options)(list(texts))
    assert type(refusal.value) is InputError
    assert "\n" not in str(refusal.value)
    return str(refusal.value)
