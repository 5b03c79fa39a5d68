"""The service in this process, for tests that ask it without a socket."""

import asyncio
import json
import os
from dataclasses import dataclass
from itertools import count
from urllib.parse import unquote

import numpy as np
import psycopg

import trustdoctor as td
from trustdoctor.service.access import Access
from trustdoctor.service.app import App
from trustdoctor.service.monitor import load_watch
from trustdoctor.service.service import Service
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import open_database
from trustdoctor.watch import to_state

HOST = (b"host", b"localhost")
NAMES = ("cat", "dog", "eel", "fox")
_NUMBERS = count()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict
    content: bytes

    @property
    def json(self):
        return json.loads(self.content)

    @property
    def detail(self):
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return self.json["detail"]


class Served:
    """The service in this process, without a socket; background jobs run by hand."""

    def __init__(self, gate, place, loop, *, tokens=(), review=None, **settings):
        self.loop, self.gate, self.place = loop, gate, place
        if review is not None:
            settings["review"] = dict(
                zip(("rejected", "accepted"), review, strict=True)
            )
        database = open_database(place)
        self.service = Service(
            database, gate, Settings(watch_interval=3600.0, **settings)
        )
        self.app = App(self.service, Access(tokens, (), self.service.secret))
        self.service.start()
        self.background = self.service.background

    def ask(self, method, path, body=None, headers=()):
        """Send a request; bodies are bytes, or what JSON can say."""
        return asyncio.run_coroutine_threadsafe(
            self.ask_async(method, path, body, headers), self.loop
        ).result(60)

    def ask_all(self, *requests):
        """Send requests together, so that one commit takes them."""

        async def together():
            return await asyncio.gather(
                *(self.ask_async(*request) for request in requests)
            )

        return asyncio.run_coroutine_threadsafe(together(), self.loop).result(60)

    async def ask_async(self, method, path, body=None, headers=()):
        if not isinstance(body, bytes):
            body = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": [HOST, *headers] if b"host" not in dict(headers) else headers,
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
        }
        incoming = [{"type": "http.request", "body": body, "more_body": False}]
        chunks, head = [], {}

        async def receive():
            return incoming.pop() if incoming else await asyncio.Future()

        async def send(message):
            if message["type"] == "http.response.start":
                head.update(message)
            else:
                chunks.append(message.get("body", b""))

        self.service._status = None  # which is otherwise read once per second
        await self.app(scope, receive, send)
        names = {k.decode(): v.decode() for k, v in head["headers"]}
        return Answer(head["status"], names, b"".join(chunks))

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.ask("POST", path, body, **more)

    def post_ok(self, path, body=None):
        """Return the content of an answer that has to be good."""
        answer = self.post(path, body)
        assert answer.status in (200, 201), answer.content
        return answer.json

    def decide(self, body):
        return self.post_ok("/v1/decide", body)

    def label(self, *labels):
        return self.post_ok("/v1/labels", {"labels": list(labels)})

    def lease(self, **request):
        return self.post_ok("/v1/review/lease", request)["rows"]

    def answer(self, row, **fields):
        body = {"id": row["id"], "lease": row["lease"], **fields}
        return self.post("/v1/review/answer", body)

    def read(self, statement, *values):
        """Ask the store itself."""
        return self.service.read_now(lambda session: session.rows(statement, *values))

    def change(self, statement, *values):
        """Change what is stored, as the writer does."""
        return self.service.writer.call(lambda session: session.run(statement, *values))

    def everything(self):
        """Return all that is stored, but states and leaders."""
        tables = (
            *(
                "head",
                "gates",
                "version_counts",
                "gate_changes",
                "review_rates",
                "rows",
                "ids",
                "labels",
                "review_queue",
            ),
            *("review_counts", "minute_counts", "shadow_counts", "alarms"),
            *("watch_steps", "watches"),
        )
        return {
            name: sorted(self.read(f"SELECT * FROM {name}"), key=repr)
            for name in tables
        }

    def watch(self, version=1, *, anew=False):
        """Return the watch of the store as text; `anew`, by all steps again."""

        def job(session):
            progress = load_watch(
                session, self.service.versions, version, from_checkpoint=anew
            )
            return None if progress is None else to_state(progress.watch)

        return self.service.read_now(job)

    def check_watch(self, version=1):
        """Compare the live watch, the stored one, and one computed anew."""
        self.background.tick()
        live = to_state(self.background.monitor.watches[version].watch)
        assert live == self.watch(version)
        assert live == self.watch(version, anew=True)
        return self.background.monitor.watches[version].watch

    def lead(self):
        """Keep from now on, as 15 seconds after the replica that did was killed."""
        self.change("UPDATE leaders SET leads_until = 0")
        return self

    def close(self):
        self.service.close()

    def die(self):
        """End as a killed process does: nothing more is counted or saved."""
        self.background._stop.set()
        self.service.writer.close()
        for session in self.background._sessions.values():
            session.close()
        while not self.service._readers.empty():
            session = self.service._readers.get()
            if session is not None:
                session.close()
        self.service.database.close()


def new_schema(server):
    name = f"s{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as session:
        session.execute(f"CREATE SCHEMA {name}")
    return f"{server}&options=-csearch_path%3D{name}"


def draw_rows(n, seed=0, *, classes=4, names=None, scale=3.0):
    """Return labelled rows: the answer is right where a coin of its softmax says so."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(n, classes))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = (probs.cumsum(1) > rng.random((n, 1))).argmax(1)
    row_labels = labels if names is None else np.array(names)[labels]
    return td.Predictions.from_logits(logits, row_labels, class_names=names)
