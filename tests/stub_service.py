"""A small service for the tests of the client, which can fail on request."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError

TOKEN = "token-0123456789abcdef"
GATE = td.Gate(-1.0, score="beta")
LOGITS = 2 * np.random.default_rng(0).normal(size=(50, 3))


class Service(ThreadingHTTPServer):
    """Decides by `gate`, and keeps the first answer to every id.

    Attributes
    ----------
    faults : list
        What comes instead, one per request: (status, headers, body), "close" before or
        "lost" after the work is done, or bytes as the body.
    requests : list
        Method, path and content of the requests, refused ones included.
    hangs_up : bool
        Whether a connection is closed after its first answer, without saying so.
    closed : semaphore
        Released whenever a connection was closed.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _StubServiceHandler)
        self.gate, self.faults, self.requests, self.headers = GATE, [], [], []
        self.first_answers, self.labels, self.connections = {}, {}, 0
        self.hangs_up, self.closed = False, threading.Semaphore(0)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """The client may be gone."""

    def finish_request(self, *arguments):
        self.connections += 1
        super().finish_request(*arguments)

    def shutdown_request(self, request):
        super().shutdown_request(request)
        self.closed.release()

    def answer(self, path, content):
        if path == "/v1/decide":
            if "rows" in content:
                return {"rows": [self.decide(**row) for row in content["rows"]]}
            if "ids" in content:
                return {"rows": [self.decide(**row) for row in by_rows(content)]}
            return self.decide(**content)
        if path == "/v1/labels":
            return self.label(content["labels"])
        return {"path": path, "gates": [], **content}

    def decide(self, id, **row):
        kind = next(iter(row))
        if kind == "topk":
            top = row["topk"]
            rows = td.Predictions.from_topk([top["probs"]], [top["classes"]])
        else:
            rows = getattr(td.Predictions, f"from_{kind}")([row[kind]])
        decisions = self.gate.screen(rows)
        doubt = float(decisions.doubts[0])
        response = {
            "id": id,
            "predicted": row.get("predicted", decisions.to_frame()["predicted"][0]),
            "doubt": doubt if np.isfinite(doubt) else str(doubt),
            "accepted": bool(decisions.accepted[0]),
            "version": 1,
            "review": not decisions.accepted[0].item(),
            "of_a_newer_service": 1,
        }
        return self.first_answers.setdefault(id, response)

    def label(self, entries):
        rows = []
        for entry in entries:
            is_decided = entry["id"] in self.first_answers
            self.labels.setdefault(entry["id"], entry) if is_decided else None
            why = {} if is_decided else {"why": "no such row"}
            result = "counted" if is_decided else "refused"
            rows.append({"id": entry["id"], "result": result, **why})
        counted = sum(row["result"] == "counted" for row in rows)
        counts = {"counted": counted, "repeated": 0, "corrected": 0, "kept": 0}
        return {**counts, "refused": len(rows) - counted, "rows": rows}


def by_rows(columns):
    """Columns of a request as rows of one."""
    single = {"ids": "id", "groups": "group", "payloads": "payload"}
    for at in range(len(columns["ids"])):
        row = {}
        for name, values in columns.items():
            if name == "topk":
                row[name] = {key: lists[at] for key, lists in values.items()}
            else:
                row[single.get(name, name)] = values[at]
        yield row


class _StubServiceHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._do(None)

    def do_DELETE(self):
        self._do(None)

    def do_POST(self):
        self._do(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _do(self, content):
        server = self.server
        server.requests.append((self.command, self.path, content))
        server.headers.append(dict(self.headers))
        fault = server.faults.pop(0) if server.faults else None
        if fault == "close":
            self.close_connection = True
            return
        if isinstance(fault, tuple):
            self._send(*fault)
            return
        body = fault
        if not isinstance(fault, bytes):
            body = json.dumps(server.answer(self.path, content or {})).encode()
        if fault == "lost":
            self.close_connection = True
            return
        self._send(200, {}, body)
        self.close_connection |= server.hangs_up

    def _send(self, status, headers=None, body=b""):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving():
    """Yield a service that runs in a thread."""
    running = Service()
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        running.server_close()


def problem(status, detail, **headers):
    body = {"type": "about:blank", "title": "t", "status": status, "detail": detail}
    return status, headers, json.dumps(body).encode()


def refused(call, *arguments, **options):
    """The one line that a call ends with."""
    with pytest.raises(InputError) as refusal:
        call(*arguments, **options)
    message = str(refusal.value)
    assert "\n" not in message
    assert TOKEN not in message
    return message


def doubts(decisions):
    return [decision.doubt for decision in decisions]


def answered_as(name):
    row = {"id": "a", "predicted": name, "doubt": 0.0, "accepted": True}
    return json.dumps({"rows": [{**row, "version": 1, "review": False}]}).encode()
