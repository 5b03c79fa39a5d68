"""Listening: uvicorn with the app, structured logs, and an end that loses nothing."""

import asyncio
import gc
import json
import logging
import resource
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.service.access import Access, Token, require_loopback
from trustdoctor.service.app import CONNECTIONS, App
from trustdoctor.service.model import OnnxModel
from trustdoctor.service.problems import (
    CONTENT_TYPE,
    TITLES,
    ProblemError,
    body_of,
)
from trustdoctor.service.service import Service
from trustdoctor.service.settings import PORT, Settings
from trustdoctor.service.store import open_database

LARGEST_HEAD = 64 << 10
"""Bytes of a request before its body."""

GRACE = 30
"""Seconds that requests have to end in, when the service does."""


@dataclass(frozen=True)
class ListenOptions:
    """Where to listen, and to whom."""

    host: str = "127.0.0.1"
    port: int = PORT
    tokens: list[Token] = field(default_factory=list)
    hosts: tuple[str, ...] = ()


def serve(
    gate: Gate,
    store: str,
    *,
    settings: Settings | None = None,
    listening: ListenOptions | None = None,
    model: OnnxModel | None = None,
) -> None:
    """Serve a gate until the process is told to stop.

    Parameters
    ----------
    gate : Gate
    store : str
        A file of SQLite, or postgresql://...
    settings : Settings, optional
    listening : ListenOptions, optional
    model : OnnxModel, optional
        Which `/v2/models/{name}/infer` then runs.
    """
    settings, where = settings or Settings(), listening or ListenOptions()
    require_loopback(where.host, where.tokens)
    listener = _listen(where)
    try:
        database = open_database(store, fast=settings.fast)
        service = Service(database, gate, settings)
    except BaseException:
        listener.close()
        raise
    names = {where.host, *where.hosts}
    app = App(service, Access(where.tokens, names, service.secret), model)
    service.start()
    _make_room()
    _Server(app, _config(app, where, settings)).run([listener])


def _make_room() -> None:
    """Let connections and files have descriptors, and memory few visits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * CONNECTIONS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    # What is loaded by now stays, and rows of a commit make no cycles.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def load_model(
    path: str | Path | None, logits: str | None, probs: str | None
) -> OnnxModel | None:
    """Return an ONNX model to run; None where none is named."""
    if path is None and (logits or probs):
        message = "expected --model FILE beside --logits or --probs, got none."
        raise InputError(message)
    return None if path is None else OnnxModel(path, logits=logits, probs=probs)


def _listen(where: ListenOptions) -> socket.socket:
    """Take the port, or say why it cannot be had."""
    listener = None
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
        listener = socket.socket(found[0][0], socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[0][4])
    except OSError as error:
        if listener is not None:
            listener.close()
        message = (
            f"cannot listen on {where.host}, port {where.port}: "
            f"{(error.strerror or str(error)).lower()}. Name others: --host, --port."
        )
        raise InputError(message) from error
    return listener


def _config(app: App, where: ListenOptions, settings: Settings) -> uvicorn.Config:
    patience = settings.limits.patience

    class Patient(_TimedProtocol):
        longest = patience
        largest = 2 * settings.limits.body + LARGEST_HEAD

    return uvicorn.Config(
        app,
        host=where.host,
        port=where.port,
        loop="uvloop",
        http=Patient,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=64 << 10,
    )


class _TimedProtocol(HttpToolsProtocol):
    """A connection that ends where a request takes too long to come."""

    longest = 30.0
    largest = 64 << 20
    head = 0
    size = 0
    paused: float | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.since: float | None = time.monotonic()

    def data_received(self, data: bytes) -> None:
        """Take bytes, but not a head without end."""
        self.size += len(data)
        if self.since is not None and self.head >= 0:
            self.head += len(data)
        if self.head > LARGEST_HEAD + len(data):
            message = f"expected a head of {LARGEST_HEAD:,} bytes at most, got more."
            self._refuse(ProblemError(431, message))
            return
        if self.size > self.largest:  # a body that nobody reads, or no end of trailers
            message = f"expected {self.largest:,} bytes at most, got more."
            self._refuse(ProblemError(413, message))
            return
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if self.since is None and idle:  # bytes that are no request yet
            self.since = time.monotonic()

    def pause_writing(self) -> None:
        """Note since when nobody reads the answers."""
        super().pause_writing()
        self.paused = time.monotonic()

    def resume_writing(self) -> None:
        """Forget it: they are read."""
        super().resume_writing()
        self.paused = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those after the body are of no use."""
        if self.head >= 0:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Count no longer: the head is there."""
        self.head = -1
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, as everything is refused."""
        self._refuse(ProblemError(400, f"expected an HTTP request: {msg}"))

    def _refuse(self, problem: ProblemError) -> None:
        body = body_of(problem)
        head = (
            f"HTTP/1.1 {problem.status} {TITLES.get(problem.status, 'Refused')}\r\n"
            f"content-type: {CONTENT_TYPE.decode()}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody could fill the log by it."""

    def on_message_begin(self) -> None:
        """Begin to wait for all of it."""
        self.since, self.head, self.size = time.monotonic(), max(self.head, 0), 0
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Wait no longer: it is there."""
        self.since = None
        super().on_message_complete()

    def is_late(self, now: float) -> bool:
        """Tell whether what began to come, or to go, should have been there."""
        begun = [one for one in (self.since, self.paused) if one is not None]
        return bool(begun) and now - min(begun) > self.longest


class _Server(uvicorn.Server):
    """Ends streams when it is told to stop, and slow requests at any time."""

    def __init__(self, app: App, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.app = app

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        if self.should_exit:
            return
        self._sweeper = asyncio.create_task(self._sweep())
        self.app.connections = self.server_state.connections
        host, port = self.config.host, sockets[0].getsockname()[1]
        where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        logging.getLogger("trustdoctor.service").info(
            "serving", extra={"data": {"page": where}}
        )

    async def shutdown(self, sockets: Any = None) -> None:
        """End the streams first: they would never end by themselves."""
        self.app.closing.set()
        await super().shutdown(sockets)

    async def _sweep(self) -> None:
        last = time.monotonic()
        while not self.should_exit:
            await asyncio.sleep(1)
            late = time.monotonic() - last - 1  # where the loop itself was busy
            last += late + 1
            for one in list(self.server_state.connections):
                if isinstance(one, _TimedProtocol) and one.is_late(last - late):
                    one.transport.abort()  # close would wait for who reads nothing


class _JsonFormatter(logging.Formatter):
    """One line of JSON per event; it holds neither payloads nor tokens."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        at = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        said |= getattr(record, "data", {})
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said)


def log_as_json(*, quiet: bool = False) -> None:
    """Write events to the standard error, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    for name in ("trustdoctor.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
