"""One function per route: reads a request, calls the service, answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from trustdoctor._version import __version__
from trustdoctor.arrays import Array
from trustdoctor.errors import TrustDoctorError
from trustdoctor.gates import Gate
from trustdoctor.service import labels, open_inference, recalibration, review_queue
from trustdoctor.service.access import COOKIE, SESSION
from trustdoctor.service.model import VERSION, OnnxModel
from trustdoctor.service.open_inference import InferenceRequest
from trustdoctor.service.pages import (
    page_headers,
    render_live,
    render_login,
    render_review,
)
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.prometheus import exposition
from trustdoctor.service.rows import export_rows, find_row, forget_row
from trustdoctor.service.schemas import (
    AddGateRequest,
    DecideRequest,
    PromoteRequest,
    checked_name,
    checked_note,
    encode,
)
from trustdoctor.service.status import describe_gate, list_versions
from trustdoctor.service.store import Session, UnavailableError
from trustdoctor.service.times import new_ids
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

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

STREAMS = 100
"""Pages that are fed at the same time."""

# Answers change with every request, and a payload must not be taken for a page.
_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return the body of a request, or refuse one of more than `limit` bytes."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):  # nearly all requests
        _check_size(len(body), limit)
        if message["type"] == "http.disconnect":
            raise _disconnected()
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        _check_size(size, limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _disconnected()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    _check_size(size, limit)
    return b"".join(parts)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        message = (
            f"expected a request of {limit:,} bytes at most, got more. Send fewer rows "
            "in each."
        )
        raise ProblemError(413, message)


def _disconnected() -> ProblemError:
    return ProblemError(408, "the request ended before all of it was there.")


def _json(content: Any, status: int = 200) -> Response:
    return Response(encode(content), status, _NO_STORE, "application/json")


async def _body(app: "App", request: Request) -> bytes:
    return await read_body(request.receive, app.limits.body)


async def label_rows(app: "App", request: Request) -> Response:
    """Take labels, and say what became of each."""
    requested = labels.read_labels(await _body(app, request), app.limits)
    versions, deadline = app.service.versions, app.service.settings.deadline
    results = await app.service.change(
        lambda s: labels.label_rows(s, versions, requested, deadline=deadline)
    )
    kinds = ("counted", "repeated", "corrected", "kept", "refused")
    counts = {kind: sum(row.result == kind for row in results) for kind in kinds}
    return _json(counts | {"rows": results})


async def lease_rows(app: "App", request: Request) -> Response:
    """Lease rows of the review queue."""
    lease = review_queue.read_lease(await _body(app, request), app.limits)
    versions = app.service.versions
    return _json(
        await app.service.change(lambda s: review_queue.lease_rows(s, versions, lease))
    )


async def answer_review(app: "App", request: Request) -> Response:
    """Take a reviewer's answer, or the row back."""
    answer = review_queue.read_answer(await _body(app, request), app.limits)
    versions, deadline = app.service.versions, app.service.settings.deadline
    return _json(
        await app.service.change(
            lambda s: review_queue.answer_row(s, versions, answer, deadline)
        )
    )


async def status(app: "App", _request: Request) -> Response:
    """Answer how the service stands."""
    return _json(await app.service.status())


async def stream_status(app: "App", request: Request) -> Response:
    """Send how the service stands, once per second, as server-sent events."""
    if request.method == "HEAD":  # the stream would never end
        return Response(b"", 200, _NO_STORE, "text/event-stream")
    if app.streams >= STREAMS:
        message = f"expected at most {STREAMS} open pages, got more. Close some."
        raise ProblemError(503, message)

    async def events() -> AsyncIterator[bytes]:
        app.streams += 1
        try:
            yield b"retry: 2000\n\n"
            while not app.closing.is_set() and not await request.is_disconnected():
                try:
                    event = b"status\ndata: " + encode(await app.service.status())
                except UnavailableError:
                    event = b"away\ndata: {}"
                yield b"event: " + event + b"\n\n"
                await _wait(app.closing, 1.0)
        finally:
            app.streams -= 1

    headers = _NO_STORE | {"x-accel-buffering": "no"}  # nginx would hold events back
    return StreamingResponse(events(), 200, headers, "text/event-stream")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


async def show_row(app: "App", request: Request) -> Response:
    """Answer a decision, and the history of its labels."""
    name = checked_name(request.path_params["id"], "id", app.limits)
    return _json(await app.service.read(lambda s: find_row(s, name)))


async def delete_row(app: "App", request: Request) -> Response:
    """Forget a row."""
    name = checked_name(request.path_params["id"], "id", app.limits)
    versions = app.service.versions
    forgotten = await app.service.change(lambda s: forget_row(s, versions, name))
    await app.service.read_long(lambda s: s.scrub())
    return _json(forgotten)


async def show_gates(app: "App", _request: Request) -> Response:
    """Answer all versions of the gate."""

    def job(session: Session) -> list[dict[str, Any]]:
        return list_versions(session, app.service.versions, read_head(session))

    return _json({"gates": await app.service.read(job)})


async def upload_gate(app: "App", request: Request) -> Response:
    """Add a version: a gate's JSON, alone or with a note."""
    text = (await _body(app, request)).decode("utf-8", "replace")
    content = msgspec.json.decode(text)
    note = ""
    if isinstance(content, dict) and isinstance(content.get("gate"), dict):
        upload = msgspec.convert(content, AddGateRequest)
        note = checked_note(upload.note)
        text = encode(content["gate"]).decode()
    try:
        gate = await asyncio.to_thread(Gate.from_json, text)
    except TrustDoctorError as error:
        message = f"expected a gate as calibrate writes it: {error}"
        raise ProblemError(400, message) from error
    version = await app.service.change(lambda s: add_gate(s, gate, "upload", note))
    return _json({"version": version, "state": "candidate", **describe_gate(gate)}, 201)


async def show_gate(app: "App", request: Request) -> Response:
    """Answer one version as a gate's file."""
    version = _version(request)

    def job(session: Session) -> str:
        return app.service.versions.get(session, version).gate.to_json()

    text = await app.service.read(job)
    return Response(text, 200, _NO_STORE, "application/json")


def _version(request: Request) -> int:
    return parse_version(request.path_params["version"])


async def promote_gate(app: "App", request: Request) -> Response:
    """Let a version decide from now on."""
    version = _version(request)
    body = await _body(app, request) or b"{}"
    promotion = msgspec.json.decode(body, type=PromoteRequest)

    def job(session: Session) -> dict[str, Any]:
        gate = app.service.versions.get(session, version).gate
        before = lock_head(session).current
        if not promotion.anyway:
            require_useful(gate)
        if before != version:
            set_current(session, version, "promote")
        return {"version": version, "before": before}

    return _json(await app.service.change(job))


async def roll_back_gate(app: "App", _request: Request) -> Response:
    """Let the version before decide again."""
    return _json(await app.service.change(roll_back))


async def start_shadow(app: "App", request: Request) -> Response:
    """Let a version decide in the shadow."""
    version = _version(request)

    def job(session: Session) -> dict[str, Any]:
        app.service.versions.get(session, version)
        set_shadow(session, version)
        return {"shadow": version}

    return _json(await app.service.change(job))


async def end_shadow(app: "App", _request: Request) -> Response:
    """Let no version decide in the shadow."""
    await app.service.change(lambda s: set_shadow(s, None))
    return _json({"shadow": None})


async def recalibrate(app: "App", request: Request) -> Response:
    """Make a candidate of reviewed rows."""
    wanted = recalibration.read_request(await _body(app, request))
    versions, settings = app.service.versions, app.service.settings
    gate, summary = await app.service.read_long(
        lambda s: recalibration.recalibrate(
            s, versions, wanted, settings.deadline, settings.label_noise
        )
    )
    candidate = await app.service.change(
        lambda s: recalibration.add_candidate(s, gate, summary, wanted.note)
    )
    return _json(candidate, 201)


async def export(app: "App", request: Request) -> Response:
    """Send decisions and labels as Parquet."""
    return await export_rows(app.service, dict(request.query_params))


async def metrics(app: "App", _request: Request) -> Response:
    """Answer metrics in the text format of Prometheus."""
    text = exposition(
        await app.service.status(), app.service.latency, app.service.problems
    )
    return Response(text, 200, _NO_STORE, "text/plain; version=0.0.4; charset=utf-8")


async def live(_app: "App", _request: Request) -> Response:
    """Answer that the process lives."""
    return _json({"status": "ok"})


async def ready(app: "App", _request: Request) -> Response:
    """Answer whether requests would be served now."""
    if app.closing.is_set():
        message = "the service is shutting down."
        raise ProblemError(503, message)
    if not await asyncio.to_thread(app.service.is_ready):
        message = "the store does not keep what it is given; the log says why."
        raise ProblemError(503, message)
    return _json({"status": "ready"})


async def show_api(app: "App", _request: Request) -> Response:
    """Answer the description of all routes."""
    return _json(app.api)


async def show_page(app: "App", request: Request) -> Response:
    """Send a page, or who has no session to the login."""
    render = {"/": render_live, "/review": render_review}[request.url.path]
    if app.access.tokens:
        try:
            app.access.check(request.scope["headers"], "read")
        except ProblemError:
            return RedirectResponse(f"/login?next={request.url.path}", 303)
    return Response(render(tokens=bool(app.access.tokens)), 200, page_headers())


async def show_login(_app: "App", request: Request) -> Response:
    """Send the form that takes a token."""
    page = _page_after_login(request.query_params.get("next"))
    return Response(render_login(next=page), 200, page_headers())


def _page_after_login(wanted: str | None) -> str:
    """Return one of our pages: any other address would be an open redirect."""
    return "/review" if wanted == "/review" else "/"


async def log_in(app: "App", request: Request) -> Response:
    """Give a session for a token."""
    form = parse_qs((await _body(app, request)).decode("latin-1"))
    cookie = app.access.log_in(form.get("token", [""])[0])
    page = _page_after_login(form.get("next", [""])[0])
    if cookie is None:
        message = "This token is unknown, or may not read. Ask for one to label by."
        return Response(render_login(message, next=page), 401, page_headers())
    response = RedirectResponse(page, 303)
    # Behind a proxy that speaks TLS the request itself comes over http.
    secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    response.set_cookie(
        COOKIE, cookie, SESSION, httponly=True, samesite="strict", secure=secure
    )
    return response


async def log_out(_app: "App", _request: Request) -> Response:
    """End a session."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


def _model(app: "App", request: Request) -> OnnxModel:
    name = request.path_params["name"]
    if app.model is None or name != app.model.name:
        loaded = "none was loaded" if app.model is None else app.model.name
        message = f"expected the name of a model ({loaded}), got {name!a}."
        raise ProblemError(404, message)
    return app.model


async def infer(app: "App", request: Request) -> Response:
    """Run the model on tensors, and decide on its rows."""
    model = _model(app, request)
    if request.headers.get("content-encoding", "identity") != "identity":
        message = "expected a body as it is, got a compressed one. Send it plainly."
        raise ProblemError(415, message)
    body = await _body(app, request)
    json_length = open_inference.read_length(request.headers.get(open_inference.LENGTH))

    def run() -> tuple[InferenceRequest, dict[str, Any], DecideRequest]:
        parsed = open_inference.parse_request(
            body, json_length, model.inputs, model.outputs
        )
        outputs = model.run(parsed.inputs)
        return parsed, outputs, _model_rows(app, model.logits_or_probs(outputs), parsed)

    parsed, outputs, rows = await asyncio.to_thread(run)
    decisions = await app.service.decide(rows, asyncio.get_running_loop())
    outputs |= {
        "doubt": np.array([float(row.doubt) for row in decisions]),
        "accepted": np.array([row.accepted for row in decisions]),
    }
    answer, headers = await asyncio.to_thread(
        open_inference.encode_response,
        model.name,
        VERSION,
        decisions[0].id.rpartition("/")[0],
        outputs,
        parsed.binary_by_output,
        {"gate_version": decisions[0].version},
    )
    return Response(answer, 200, headers | _NO_STORE)


def _model_rows(
    app: "App", output: tuple[str, Array], parsed: InferenceRequest
) -> DecideRequest:
    """Return a model's output as rows to decide on: REQUEST/0, REQUEST/1, ..."""
    kind, values = output
    if len(values) > app.limits.rows:
        message = f"expected {app.limits.rows:,} rows at most, got {len(values):,}."
        raise ProblemError(413, message)
    start = checked_name(parsed.id, "id", app.limits) if parsed.id else new_ids(1)[0]
    # A repetition is known by what went in: another processor may round otherwise.
    digest = blake2b(digest_size=16)
    for name in sorted(parsed.inputs):
        array = parsed.inputs[name]
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(
            repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        )
    numbers = range(len(values))
    return DecideRequest(
        kind,
        np.asarray(values, np.float64),
        [f"{start}/{number}" for number in numbers],
        digests=[
            blake2b(b"%d" % number, key=digest.digest(), digest_size=16).digest()
            for number in numbers
        ],
    )


async def show_model(app: "App", request: Request) -> Response:
    """Answer a model's inputs and outputs."""
    return _json(_model(app, request).metadata())


async def model_ready(app: "App", request: Request) -> Response:
    """Answer whether a model would be run now."""
    _model(app, request)
    return await ready(app, request)


async def show_server(_app: "App", _request: Request) -> Response:
    """Answer the server's name, as the Open Inference Protocol has it."""
    extensions = ["binary_tensor_data"]
    return _json(
        {"name": "trustdoctor", "version": __version__, "extensions": extensions}
    )
