"""The ASGI application: decides without a framework, and routes everything else.

Starlette costs a third of the requests per second, as docs/serving.md measures, so
`/v1/decide` does without it.
"""

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
    problem_body,
)
from trustdoctor.service.routes import make_routes
from trustdoctor.service.schemas import encode, read_decide_request
from trustdoctor.service.service import Service

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PENDING_BYTES = 40 << 20
"""Bytes of requests to decide that are worked on at the same time."""

CONNECTIONS = 1000
"""Open connections; requests on further ones are refused."""

_JSON = (b"content-type", b"application/json")
_log = logging.getLogger("trustdoctor.service")


class App:
    """The service over HTTP, as an ASGI application.

    Attributes
    ----------
    service : Service
    access : Access
    model : OnnxModel or None
    api : dict
        The description of all routes.
    closing : asyncio.Event
        Set when the service stops: streams then end, too.
    streams : int
        Open pages, which get the status every second.
    connections : collection
        The open ones; the server sets it.
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
        self._pending_bytes = 0
        self._router = Router(
            make_routes(self), redirect_slashes=False, default=_refuse_path
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif len(self.connections) > CONNECTIONS:
            message = "too many connections; retry after 1 s."
            await self.refuse(scope, ProblemError(503, message), send)
        elif scope["path"] == "/v1/decide":
            await self._decide(scope, receive, send)
        else:
            await self._route(scope, receive, send)

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
        """Return the decisions on a request's rows as JSON, once they are stored."""
        size = len(body)
        # One is always taken: `limits.body` may be above the bound.
        if self._pending_bytes and self._pending_bytes + size > PENDING_BYTES:
            message = "overloaded; retry after 1 s."
            raise ProblemError(503, message)
        self._pending_bytes += size
        try:
            request = read_decide_request(body, self.limits)
            decisions = await self.service.decide(request, loop)
        finally:
            self._pending_bytes -= size
        if request.single:
            return encode(decisions[0])
        return encode({"rows": decisions})

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer all other requests, and log them."""
        started, status = time.perf_counter(), 0

        async def send_and_note_status(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Starlette then raises for other methods, instead of answering by itself.
        scope["app"] = self
        try:
            await self._router(scope, receive, send_and_note_status)
        except Exception as error:
            if status:  # too late for another one: the head is sent
                raise
            await self.refuse(scope, error, send_and_note_status)
        # The path of the table, not that of the request: ids may be personal data.
        route = getattr(scope.get("route"), "path", "?")
        milliseconds = round(1000 * (time.perf_counter() - started), 1)
        _log.info(
            "request",
            extra={
                "data": {
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": milliseconds,
                }
            },
        )

    async def refuse(self, scope: Scope, error: BaseException, send: Send) -> None:
        """Answer an error as a problem."""
        problem = as_problem(error)
        counts = self.service.problems
        counts[problem.status] = counts.get(problem.status, 0) + 1
        if problem.status == 500:
            _log.error("%s", type(error).__name__, exc_info=error)
        body = problem_body(problem, inference=scope["path"].startswith("/v2"))
        headers = [
            (b"content-type", CONTENT_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if problem.status == 401:  # RFC 9110, section 15.5.2
            headers.append((b"www-authenticate", b"Bearer"))
        if problem.status in (429, 503):
            headers.append((b"retry-after", b"1"))
        if "allow" in problem.fields:  # RFC 9110, section 15.5.6
            headers.append((b"allow", problem.fields["allow"].encode()))
        if problem.status in (408, 413):
            # The rest of the body is not read, and must not be taken for a request.
            headers.append((b"connection", b"close"))
        await send(
            {
                "type": "http.response.start",
                "status": problem.status,
                "headers": headers,
            }
        )
        await send({"type": "http.response.body", "body": body})


async def _refuse_path(scope: Scope, _receive: Receive, _send: Send) -> None:
    message = (
        f"expected a path of the service, got {ascii(scope['path'])[:80]}. GET "
        "/openapi.json lists them."
    )
    raise ProblemError(404, message)
