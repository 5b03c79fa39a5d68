"""The server: uvicorn with time limits, JSON logs, and a stop that loses nothing."""

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
    problem_body,
)
from trustdoctor.service.service import Service
from trustdoctor.service.settings import PORT, Settings
from trustdoctor.service.store import open_database

LARGEST_HEAD = 64 << 10
"""Bytes of a request before its body."""

GRACE = 30
"""Seconds that open requests have to end in when the service stops."""


@dataclass(frozen=True)
class ListenOptions:
    """Where to listen, who may call, and by which names."""

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
    settings, options = settings or Settings(), listening or ListenOptions()
    require_loopback(options.host, options.tokens)
    listener = _listen(options)
    try:
        database = open_database(store, fast=settings.fast)
        service = Service(database, gate, settings)
    except BaseException:
        listener.close()
        raise
    names = {options.host, *options.hosts}
    app = App(service, Access(options.tokens, names, service.secret), model)
    service.start()
    _raise_process_limits()
    _Server(app, _uvicorn_config(app, options, settings)).run([listener])


def _raise_process_limits() -> None:
    """Allow descriptors for all connections and files, and collect garbage rarely."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * CONNECTIONS
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    # Modules that are loaded by now stay, and the rows of a commit make no cycles:
    # the collector would visit them for nothing.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def load_model(
    path: str | Path | None, logits: str | None, probs: str | None
) -> OnnxModel | None:
    """Return an ONNX model to run; None if none is named."""
    if path is None and (logits or probs):
        message = "expected --model FILE beside --logits or --probs, got none."
        raise InputError(message)
    return None if path is None else OnnxModel(path, logits=logits, probs=probs)


def _listen(options: ListenOptions) -> socket.socket:
    """Take the port before the store is opened, or say why it cannot be had."""
    listener = None
    try:
        addresses = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM
        )
        family, *_, address = addresses[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        message = (
            f"cannot listen on {options.host}, port {options.port}: "
            f"{(error.strerror or str(error)).lower()}. Name others: --host, --port."
        )
        raise InputError(message) from error
    return listener


def _uvicorn_config(
    app: App, options: ListenOptions, settings: Settings
) -> uvicorn.Config:
    class HttpProtocol(_TimedProtocol):
        patience = settings.limits.patience
        largest_request = 2 * settings.limits.body + LARGEST_HEAD

    return uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # who is behind a proxy is of no interest here
        backlog=2048,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=64 << 10,
    )


class _TimedProtocol(HttpToolsProtocol):
    """A connection that is closed if a request, or its answer, takes too long.

    uvicorn limits only the time between requests: a client that sends its head or body
    byte by byte (Slowloris), or reads no answer, would hold a connection for ever.

    Attributes
    ----------
    patience : float
        Seconds for a request to arrive, and for an answer to be read.
    largest_request : int
        Bytes of a request with its head and its trailers.
    """

    patience = 30.0
    largest_request = 64 << 20
    head_size = 0
    """Bytes of a head that is still arriving; -1 once it is there."""
    request_size = 0
    unread_since: float | None = None
    """When the client stopped reading an answer."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.incomplete_since: float | None = time.monotonic()

    def data_received(self, data: bytes) -> None:
        """Take bytes, but no endless head, body or trailers."""
        self.request_size += len(data)
        if self.incomplete_since is not None and self.head_size >= 0:
            self.head_size += len(data)
        if self.head_size > LARGEST_HEAD + len(data):
            message = f"expected a head of {LARGEST_HEAD:,} bytes at most, got more."
            self._refuse(ProblemError(431, message))
            return
        # The app bounds the bodies that it reads, and nobody reads trailers.
        if self.request_size > self.largest_request:
            message = f"expected {self.largest_request:,} bytes at most, got more."
            self._refuse(ProblemError(413, message))
            return
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if self.incomplete_since is None and idle:  # bytes that begin no request yet
            self.incomplete_since = time.monotonic()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        super().pause_writing()
        self.unread_since = time.monotonic()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self.unread_since = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, but no trailer.

        httptools reports trailers as headers: one called Host or Authorization would
        stand beside the real one (RFC 9110, section 6.5.1).
        """
        if self.head_size >= 0:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Note that the head is there."""
        self.head_size = -1
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP by a problem, as everything is refused."""
        self._refuse(ProblemError(400, f"expected an HTTP request: {msg}"))

    def _refuse(self, problem: ProblemError) -> None:
        body = problem_body(problem)
        head = (
            f"HTTP/1.1 {problem.status} {TITLES.get(problem.status, 'Refused')}\r\n"
            f"content-type: {CONTENT_TYPE.decode()}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: any client could fill the log by it."""

    def on_message_begin(self) -> None:
        """Begin to wait for all of a request."""
        self.incomplete_since = time.monotonic()
        self.head_size, self.request_size = max(self.head_size, 0), 0
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Note that the request is there."""
        self.incomplete_since = None
        super().on_message_complete()

    def is_late(self, now: float) -> bool:
        """Tell whether a request, or the reading of its answer, takes too long."""
        waits = (self.incomplete_since, self.unread_since)
        return any(since is not None and now - since > self.patience for since in waits)


class _Server(uvicorn.Server):
    """Ends slow requests at any time, and streams when it is told to stop."""

    def __init__(self, app: App, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.app = app

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and log where."""
        await super().startup(sockets)
        if self.should_exit:
            return
        self._late_check = asyncio.create_task(self._close_late_connections())
        self.app.connections = self.server_state.connections
        host, port = self.config.host, sockets[0].getsockname()[1]
        page = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        logging.getLogger("trustdoctor.service").info(
            "serving", extra={"data": {"page": page}}
        )

    async def shutdown(self, sockets: Any = None) -> None:
        """End the streams first: they would never end by themselves."""
        self.app.closing.set()
        await super().shutdown(sockets)

    async def _close_late_connections(self) -> None:
        last = time.monotonic()
        while not self.should_exit:
            await asyncio.sleep(1)
            # While the loop was busy it read nothing: that is not the clients' delay.
            busy = time.monotonic() - last - 1
            last += busy + 1
            for connection in list(self.server_state.connections):
                if isinstance(connection, _TimedProtocol) and connection.is_late(
                    last - busy
                ):
                    # close() would wait for a client that reads nothing.
                    connection.transport.abort()


class _JsonFormatter(logging.Formatter):
    """One line of JSON per event; it holds neither payloads nor tokens."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        time = datetime.fromtimestamp(record.created, UTC)
        event: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        event |= getattr(record, "data", {})
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return json.dumps(event)


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
