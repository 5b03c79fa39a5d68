"""All requests but those to decide: one small function each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from trustdoctor.arrays import Array
from trustdoctor.errors import TrustDoctorError
from trustdoctor.gates import Gate
from trustdoctor.service import labels, open_inference, recalibration, review_queue
from trustdoctor.service.access import COOKIE, SESSION
from trustdoctor.service.counters import exposition
from trustdoctor.service.model import VERSION
from trustdoctor.service.openapi import describe_api
from trustdoctor.service.pages import (
    page_headers,
    render_live,
    render_login,
    render_review,
)
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.rows import export_rows, find_row, forget_row
from trustdoctor.service.schemas import (
    DecideRequest,
    checked_name,
    checked_note,
    encode,
)
from trustdoctor.service.store import Session, UnavailableError
from trustdoctor.service.summaries import describe, list_versions
from trustdoctor.service.times import made_ids
from trustdoctor.service.versions import (
    add_gate,
    lock_head,
    parse_version,
    read_head,
    require_useful,
    roll_back,
    set_current,
    set_shadow,
)

if TYPE_CHECKING:
    from trustdoctor.service.app import App

Handler = Callable[["App", Request], Coroutine[Any, Any, Response]]

STREAMS = 100
"""Pages that are fed at the same time."""

_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def make_routes(app: "App") -> list[Route]:
    """Return the routes of an app."""
    by_path: dict[str, dict[str, tuple[str | None, Handler]]] = {}
    for method, path, task, handler in ROUTES:
        by_path.setdefault(path, {})[method] = task, handler
    return [
        Route(path, _endpoint(app, own), methods=list(own))
        for path, own in by_path.items()
    ]


def _endpoint(app: "App", own: dict[str, tuple[str | None, Handler]]) -> Any:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        task, handler = own[method]
        app.access.check(request.scope["headers"], task)
        return await handler(app, request)

    return endpoint


def _json(content: Any, status: int = 200) -> Response:
    return Response(encode(content), status, _NO_STORE, "application/json")


async def _body(app: "App", request: Request) -> bytes:
    from trustdoctor.service.app import read_body

    return await read_body(request.receive, app.limits.body)


async def _labels(app: "App", request: Request) -> Response:
    given = labels.read_labels(await _body(app, request), app.limits)
    versions = app.service.versions

    def job(session: Session) -> list[labels.Result]:
        deadline = app.service.settings.deadline
        return labels.label_rows(session, versions, given, deadline=deadline)

    done = await app.service.change(job)
    kinds = ("counted", "repeated", "corrected", "kept", "refused")
    counts = {kind: sum(one.result == kind for one in done) for kind in kinds}
    return _json(counts | {"rows": done})


async def _lease(app: "App", request: Request) -> Response:
    asked = review_queue.read_lease(await _body(app, request), app.limits)
    versions = app.service.versions
    return _json(
        await app.service.change(lambda s: review_queue.lease_rows(s, versions, asked))
    )


async def _answer(app: "App", request: Request) -> Response:
    said = review_queue.read_answer(await _body(app, request), app.limits)
    versions = app.service.versions
    return _json(
        await app.service.change(
            lambda s: review_queue.answer_row(
                s, versions, said, app.service.settings.deadline
            )
        )
    )


async def _status(app: "App", _request: Request) -> Response:
    return _json(await app.service.status())


async def _events(app: "App", request: Request) -> Response:
    if request.method == "HEAD":  # a stream has no end
        return Response(b"", 200, _NO_STORE, "text/event-stream")
    if app.streams >= STREAMS:
        message = f"expected at most {STREAMS} open pages, got more. Close some."
        raise ProblemError(503, message)

    async def feed() -> AsyncIterator[bytes]:
        app.streams += 1
        try:
            yield b"retry: 2000\n\n"
            while not app.closing.is_set() and not await request.is_disconnected():
                try:
                    said = b"status\ndata: " + encode(await app.service.status())
                except UnavailableError:
                    said = b"away\ndata: {}"
                yield b"event: " + said + b"\n\n"
                await _wait(app.closing, 1.0)
        finally:
            app.streams -= 1

    headers = _NO_STORE | {"x-accel-buffering": "no"}
    return StreamingResponse(feed(), 200, headers, "text/event-stream")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


async def _row(app: "App", request: Request) -> Response:
    name = checked_name(request.path_params["id"], "id", app.limits)
    return _json(await app.service.read(lambda s: find_row(s, name)))


async def _forget(app: "App", request: Request) -> Response:
    name = checked_name(request.path_params["id"], "id", app.limits)
    versions = app.service.versions
    done = await app.service.change(lambda s: forget_row(s, versions, name))
    await app.service.work(lambda s: s.scrub())
    return _json(done)


async def _gates(app: "App", _request: Request) -> Response:
    def job(session: Session) -> list[dict[str, Any]]:
        return list_versions(session, app.service.versions, read_head(session))

    return _json({"gates": await app.service.read(job)})


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether a gate that rejects or accepts every row is promoted, too."""

    anyway: bool | None = None


class AddGateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A gate, and what to say of it."""

    gate: dict[str, Any]
    note: str = ""


async def _add_gate(app: "App", request: Request) -> Response:
    text = (await _body(app, request)).decode("utf-8", "replace")
    content = msgspec.json.decode(text)
    note = ""
    if isinstance(content, dict) and isinstance(content.get("gate"), dict):
        asked = msgspec.convert(content, AddGateRequest)
        note = checked_note(asked.note)
        text = encode(content["gate"]).decode()
    try:
        gate = await asyncio.to_thread(Gate.from_json, text)
    except TrustDoctorError as error:
        message = f"expected a gate as calibrate writes it: {error}"
        raise ProblemError(400, message) from error
    version = await app.service.change(lambda s: add_gate(s, gate, "upload", note))
    return _json({"version": version, "state": "candidate", **describe(gate)}, 201)


async def _gate(app: "App", request: Request) -> Response:
    number = _number(request)

    def job(session: Session) -> str:
        return app.service.versions.get(session, number).gate.to_json()

    text = await app.service.read(job)
    return Response(text, 200, _NO_STORE, "application/json")


def _number(request: Request) -> int:
    return parse_version(request.path_params["version"])


async def _promote(app: "App", request: Request) -> Response:
    number = _number(request)
    asked = msgspec.json.decode(await _body(app, request) or b"{}", type=PromoteRequest)

    def job(session: Session) -> dict[str, Any]:
        gate = app.service.versions.get(session, number).gate
        before = lock_head(session).current
        if not asked.anyway:
            require_useful(gate)
        if before != number:
            set_current(session, number, "promote")
        return {"version": number, "before": before}

    return _json(await app.service.change(job))


async def _roll_back(app: "App", _request: Request) -> Response:
    return _json(await app.service.change(roll_back))


async def _shadow(app: "App", request: Request) -> Response:
    number = _number(request)

    def job(session: Session) -> dict[str, Any]:
        app.service.versions.get(session, number)
        set_shadow(session, number)
        return {"shadow": number}

    return _json(await app.service.change(job))


async def _no_shadow(app: "App", _request: Request) -> Response:
    await app.service.change(lambda s: set_shadow(s, None))
    return _json({"shadow": None})


async def _recalibrate(app: "App", request: Request) -> Response:
    asked = recalibration.read_request(await _body(app, request))
    versions, told = app.service.versions, app.service.settings
    gate, said = await app.service.work(
        lambda s: recalibration.recalibrate(
            s, versions, asked, told.deadline, told.label_noise
        )
    )
    return _json(
        await app.service.change(
            lambda s: recalibration.add_candidate(s, gate, said, asked.note)
        ),
        201,
    )


async def _export(app: "App", request: Request) -> Response:
    return await export_rows(app.service, dict(request.query_params))


async def _metrics(app: "App", _request: Request) -> Response:
    text = exposition(
        await app.service.status(), app.service.latency, app.service.problems
    )
    return Response(text, 200, _NO_STORE, "text/plain; version=0.0.4; charset=utf-8")


async def _healthy(_app: "App", _request: Request) -> Response:
    return _json({"status": "ok"})


async def _ready(app: "App", _request: Request) -> Response:
    if app.closing.is_set():
        message = "the service is shutting down."
        raise ProblemError(503, message)
    if not await asyncio.to_thread(app.service.is_ready):
        message = "the store does not keep what it is given; the log says why."
        raise ProblemError(503, message)
    return _json({"status": "ready"})


async def _openapi(app: "App", _request: Request) -> Response:
    return _json(describe_api(app.model))


async def _page(app: "App", request: Request) -> Response:
    render = {"/": render_live, "/review": render_review}[request.url.path]
    if app.access.tokens:
        try:
            app.access.check(request.scope["headers"], "read")
        except ProblemError:
            return RedirectResponse(f"/login?next={request.url.path}", 303)
    return Response(render(tokens=bool(app.access.tokens)), 200, page_headers())


async def _login(_app: "App", request: Request) -> Response:
    where = _next(request.query_params.get("next"))
    return Response(render_login(next=where), 200, page_headers())


def _next(asked: str | None) -> str:
    """Return the page to go to after a login: one of ours."""
    return "/review" if asked == "/review" else "/"


async def _log_in(app: "App", request: Request) -> Response:
    form = parse_qs((await _body(app, request)).decode("latin-1"))
    cookie = app.access.log_in(form.get("token", [""])[0])
    where = _next(form.get("next", [""])[0])
    if cookie is None:
        told = "This token is not known, or may not read. Ask for one to label by."
        return Response(render_login(told, next=where), 401, page_headers())
    done = RedirectResponse(where, 303)
    secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    done.set_cookie(
        COOKIE, cookie, SESSION, httponly=True, samesite="strict", secure=secure
    )
    return done


async def _log_out(_app: "App", _request: Request) -> Response:
    done = RedirectResponse("/login", 303)
    done.delete_cookie(COOKIE)
    return done


def _model(app: "App", request: Request) -> Any:
    name = request.path_params.get("name")
    if app.model is None or name not in (None, app.model.name):
        told = "none was loaded" if app.model is None else app.model.name
        message = f"expected the name of a model ({told}), got {name!a}."
        raise ProblemError(404, message)
    return app.model


async def _infer(app: "App", request: Request) -> Response:
    model = _model(app, request)
    if request.headers.get("content-encoding", "identity") != "identity":
        message = "expected a body as it is, got a compressed one. Send it plainly."
        raise ProblemError(415, message)
    body = await _body(app, request)
    length = open_inference.read_length(request.headers.get(open_inference.LENGTH))

    def infer() -> tuple[
        open_inference.InferenceRequest, dict[str, Any], DecideRequest
    ]:
        asked = open_inference.parse_request(body, length, model.inputs, model.outputs)
        outputs = model.run(asked.inputs)
        return asked, outputs, _inferred(app, model.answers(outputs), asked)

    asked, outputs, rows = await asyncio.to_thread(infer)
    done = await app.service.decide(rows, asyncio.get_running_loop())
    outputs |= {
        "doubt": np.array([float(one.doubt) for one in done]),
        "accepted": np.array([one.accepted for one in done]),
    }
    said = done[0].id.rpartition("/")[0], {"gate_version": done[0].version}
    answer, headers = await asyncio.to_thread(
        open_inference.encode_response,
        model.name,
        VERSION,
        said[0],
        outputs,
        asked.asked,
        said[1],
    )
    return Response(answer, 200, headers | _NO_STORE)


def _inferred(
    app: "App", answers: tuple[str, Array], asked: open_inference.InferenceRequest
) -> DecideRequest:
    """Return what a model said as rows to decide on: REQUEST/0, REQUEST/1, ..."""
    kind, values = answers
    if len(values) > app.limits.rows:
        message = f"expected {app.limits.rows:,} rows at most, got {len(values):,}."
        raise ProblemError(413, message)
    start = checked_name(asked.id, "id", app.limits) if asked.id else made_ids(1)[0]
    # A repetition is told by what went in: another processor may round otherwise.
    whole = blake2b(digest_size=16)
    for name in sorted(asked.inputs):
        array = asked.inputs[name]
        whole.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        whole.update(
            repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        )
    numbers = range(len(values))
    return DecideRequest(
        kind,
        np.asarray(values, np.float64),
        [f"{start}/{row}" for row in numbers],
        digests=[
            blake2b(b"%d" % n, key=whole.digest(), digest_size=16).digest()
            for n in numbers
        ],
    )


async def _model_metadata(app: "App", request: Request) -> Response:
    return _json(_model(app, request).metadata())


async def _model_ready(app: "App", request: Request) -> Response:
    _model(app, request)
    return await _ready(app, request)


async def _server(_app: "App", _request: Request) -> Response:
    from trustdoctor._version import __version__

    said = {"name": "trustdoctor", "version": __version__}
    return _json(said | {"extensions": ["binary_tensor_data"]})


ROUTES: list[tuple[str, str, str | None, Handler]] = [
    ("POST", "/v1/labels", "label", _labels),
    ("POST", "/v1/review/lease", "label", _lease),
    ("POST", "/v1/review/answer", "label", _answer),
    ("GET", "/v1/status", "read", _status),
    ("GET", "/v1/events", "read", _events),
    ("GET", "/v1/rows/{id:path}", "read", _row),
    ("DELETE", "/v1/rows/{id:path}", "admin", _forget),
    ("GET", "/v1/gates", "read", _gates),
    ("POST", "/v1/gates", "admin", _add_gate),
    ("POST", "/v1/gates/rollback", "admin", _roll_back),
    ("DELETE", "/v1/gates/shadow", "admin", _no_shadow),
    ("GET", "/v1/gates/{version}", "read", _gate),
    ("POST", "/v1/gates/{version}/promote", "admin", _promote),
    ("POST", "/v1/gates/{version}/shadow", "admin", _shadow),
    ("POST", "/v1/recalibrate", "admin", _recalibrate),
    ("GET", "/v1/export", "admin", _export),
    ("GET", "/metrics", "read", _metrics),
    ("GET", "/healthz", None, _healthy),
    ("GET", "/readyz", None, _ready),
    ("GET", "/openapi.json", None, _openapi),
    ("GET", "/", None, _page),
    ("GET", "/review", None, _page),
    ("GET", "/login", None, _login),
    ("POST", "/login", None, _log_in),
    ("POST", "/logout", None, _log_out),
    ("GET", "/v2", None, _server),
    ("GET", "/v2/health/live", None, _healthy),
    ("GET", "/v2/health/ready", None, _ready),
    ("GET", "/v2/models/{name}", "decide", _model_metadata),
    ("GET", "/v2/models/{name}/ready", None, _model_ready),
    ("POST", "/v2/models/{name}/infer", "decide", _infer),
]
"""Method, path, what a token must be for (None: nothing), and who answers."""
