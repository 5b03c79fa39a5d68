"""HTTP: parses, calls and answers. Deciding is a bare ASGI function, for speed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from starlette.routing import Router

from trustdoctor.service.access import Access
from trustdoctor.service.handlers import Receive, read_body
from trustdoctor.service.model import OnnxModel
from trustdoctor.service.openapi import describe_api
from trustdoctor.service.problems import (
    CONTENT_TYPE,
    ProblemError,
    as_problem,
    body_of,
)
from trustdoctor.service.routes import make_routes
from trustdoctor.service.schemas import encode, read_decide_request
from trustdoctor.service.service import Service

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HELD = 40 << 20
"""Bytes of requests to decide that are worked on at the same time."""

CONNECTIONS = 1000
"""Connections at the same time; more are refused."""

_JSON = (b"content-type", b"application/json")
_log = logging.getLogger("trustdoctor.service")


class App:
    """The service over HTTP.

    Attributes
    ----------
    service : Service
    access : Access
    model : OnnxModel or None
    api : dict
        The description of all routes.
    closing : asyncio.Event
        Set when the service ends: streams then end, too.
    streams : int
        Pages that are fed now.
    connections : collection
        Those that are open.
    """

    def __init__(
        self, service: Service, access: Access, model: OnnxModel | None = None
    ) -> None:
        self.service, self.access, self.model = service, access, model
        self.limits = service.settings.limits
        self.api = describe_api(tokens=bool(access.tokens))
        self.closing = asyncio.Event()
        self.streams = 0
        self.connections: Collection[Any] = ()
        self._held = 0  # bytes of requests that are not answered yet
        self._rest = Router(make_routes(self), redirect_slashes=False, default=_nothing)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif len(self.connections) > CONNECTIONS:
            message = "too many connections. Send it again later."
            await self.refuse(scope, ProblemError(503, message), send)
        elif scope["path"] == "/v1/decide":
            await self._decide(scope, receive, send)
        else:
            await self._other(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.closing.set()
        await asyncio.to_thread(self.service.close)
        await send({"type": "lifespan.shutdown.complete"})

    async def _decide(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        try:
            if scope["method"] != "POST":
                message = f"expected POST, got {scope['method']}."
                raise ProblemError(405, message, allow="POST")
            self.access.check(scope["headers"], "decide")
            body = await read_body(receive, self.limits.body)
            answer = await self._answer(body, loop)
        except Exception as error:
            await self.refuse(scope, error, send)
            return
        length = b"%d" % len(answer)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [_JSON, (b"content-length", length)],
            }
        )
        await send({"type": "http.response.body", "body": answer})
        self.service.latency.add(time.perf_counter() - started)

    async def _answer(self, body: bytes, loop: asyncio.AbstractEventLoop) -> bytes:
        """Return the answers to rows, when they are stored."""
        size = len(body)
        if self._held + size > HELD and self._held:
            message = "the service has enough to do. Send it again later."
            raise ProblemError(503, message)
        self._held += size
        try:
            rows = read_decide_request(body, self.limits)
            done = await self.service.decide(rows, loop)
        finally:
            self._held -= size
        return encode(done[0]) if rows.single else encode({"rows": done})

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.perf_counter(), 0

        async def noting(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope["app"] = self  # so that Starlette raises where it refuses
        try:
            await self._rest(scope, receive, noting)
        except Exception as error:
            if status:  # its head is sent already
                raise
            await self.refuse(scope, error, noting)
        route = getattr(scope.get("route"), "path", "?")
        took = round(1000 * (time.perf_counter() - started), 1)
        _log.info(
            "request",
            extra={
                "data": {
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": took,
                }
            },
        )

    async def refuse(self, scope: Scope, error: BaseException, send: Send) -> None:
        """Answer by a problem."""
        problem = as_problem(error)
        counts = self.service.problems
        counts[problem.status] = counts.get(problem.status, 0) + 1
        if problem.status == 500:
            _log.error("%s", type(error).__name__, exc_info=error)
        body = body_of(problem, inference=scope["path"].startswith("/v2"))
        headers = [
            (b"content-type", CONTENT_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if problem.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if problem.status in (429, 503):
            headers.append((b"retry-after", b"1"))
        if "allow" in problem.more:
            headers.append((b"allow", problem.more["allow"].encode()))
        if problem.status in (408, 413):  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        await send(
            {
                "type": "http.response.start",
                "status": problem.status,
                "headers": headers,
            }
        )
        await send({"type": "http.response.body", "body": body})


async def _nothing(scope: Scope, _receive: Receive, _send: Send) -> None:
    message = (
        f"expected a path of the service, got {ascii(scope['path'])[:80]}. GET "
        "/openapi.json lists them."
    )
    raise ProblemError(404, message)
