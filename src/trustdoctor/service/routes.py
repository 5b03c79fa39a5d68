"""The table of all routes: who may call them, what they take, what they answer.

`openapi` describes the table, and Starlette routes by it. A new route is a function in
`handlers` and a row here.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trustdoctor.service import handlers, responses
from trustdoctor.service.decisions import RowDecision
from trustdoctor.service.labels import LabelColumns, RowLabel, RowLabels
from trustdoctor.service.open_inference import LENGTH, InferenceBody
from trustdoctor.service.recalibration import RecalibrateRequest
from trustdoctor.service.review_queue import AnswerRequest, LeaseRequest
from trustdoctor.service.schemas import (
    KINDS,
    AddGateRequest,
    DecideColumns,
    DecideRow,
    DecideRows,
    PromoteRequest,
)

if TYPE_CHECKING:
    from trustdoctor.service.app import App

Handler = Callable[["App", Request], Coroutine[Any, Any, Response]]

JSON = "application/json"


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Attributes
    ----------
    method, path : str
    role : str or None
        What a token must allow, as `access.roles_for` has it; None: everybody.
    handler : function or None
        None for `/v1/decide`, which the app answers without Starlette, for speed.
    summary : str
        What it does, in one line. Without one the operation is not described.
    body : type, optional
        The JSON it takes.
    body_required : bool
    query : dict
        The schemas of its query parameters.
    headers : dict
        The schemas of its request headers.
    status : int
        Of a good answer.
    answer : type, optional
        The JSON it answers; None for another media type.
    media_types : tuple of str
        Of a good answer, and of the body if there is one.
    problems : dict
        When it refuses, by status, besides 400, 401, 403, 413 and 503.
    example, answer_example : optional
    """

    method: str
    path: str
    role: str | None
    handler: Handler | None
    summary: str = ""
    body: Any = None
    body_required: bool = True
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    answer: Any = None
    media_types: tuple[str, ...] = (JSON,)
    problems: Mapping[int, str] = field(default_factory=dict)
    example: Any = None
    answer_example: Any = None


_TIME = {"type": "string", "format": "date-time"}
_NO_VERSION = {404: "The gate has no such version."}
_NO_MODEL = {404: "No model of this name was loaded."}
_OCTETS = "application/octet-stream"
_DECISION = {
    "id": "r1",
    "predicted": "cat",
    "doubt": 0.48,
    "accepted": False,
    "version": 1,
    "review": True,
    "shortlist": ["cat", "dog"],
}
_GATE = {
    "score": "alpha",
    "rule": "reject where alpha > 0.31",
    "promise": "at most 2% errors among the accepted, with confidence 0.9",
    "classes": ["cat", "dog", "bird"],
}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/decide",
        "decide",
        None,
        "Decide on one row, or many; the answer comes when it is stored.",
        body=DecideRow | DecideRows | DecideColumns,
        answer=RowDecision | responses.DecisionRows,
        problems={409: "Another row has this id."},
        example={"ids": ["r1"], "logits": [[1.0, 0.6, 0.0]]},
        answer_example={"rows": [_DECISION]},
    ),
    Operation(
        "POST",
        "/v1/labels",
        "label",
        handlers.label_rows,
        "Say what rows truly are: in any order, late, again, or corrected.",
        body=RowLabel | RowLabels | LabelColumns,
        answer=responses.LabelResults,
        example={"ids": ["r1", "r9"], "labels": ["dog", "cat"]},
        answer_example={
            "counted": 1,
            "repeated": 0,
            "corrected": 0,
            "kept": 0,
            "refused": 1,
            "rows": [
                {"id": "r1", "result": "counted"},
                {
                    "id": "r9",
                    "result": "refused",
                    "why": "no row of this id is known",
                },
            ],
        },
    ),
    Operation(
        "POST",
        "/v1/review/lease",
        "label",
        handlers.lease_rows,
        "Lease rows to review: nobody else gets them until the lease ends.",
        body=LeaseRequest,
        body_required=False,
        answer=responses.LeasedRows,
        example={"reviewer": "ann", "order": "oldest", "count": 1},
        answer_example={
            "rows": [
                {
                    "id": "r2",
                    "lease": "6d0c6b5e8a7f41d2a9b3c4d5",
                    "until": "2026-11-16T19:45:00.000Z",
                    "kind": "rejected",
                    "doubt": 0.68,
                    "predicted": "dog",
                    "shortlist": ["dog", "bird", "cat"],
                    "classes": ["cat", "dog", "bird"],
                    "payload": {"text": "a small brown animal"},
                    "group": None,
                    "at": "2026-11-16T19:40:00.000Z",
                    "version": 1,
                }
            ],
            "waiting": 1,
        },
    ),
    Operation(
        "POST",
        "/v1/review/answer",
        "label",
        handlers.answer_review,
        "Answer a leased row, or release it.",
        body=AnswerRequest,
        answer=responses.ReviewResult,
        problems={404: "No row has this id.", 409: "The lease has ended."},
        example={"id": "r2", "lease": "6d0c6b5e8a7f41d2a9b3c4d5", "label": "dog"},
        answer_example={"id": "r2", "result": "counted"},
    ),
    Operation(
        "GET",
        "/v1/status",
        "read",
        handlers.status,
        "How the service stands: gate, traffic, watch, alarms, review, latency.",
        answer=responses.Status,
    ),
    Operation(
        "GET",
        "/v1/events",
        "read",
        handlers.stream_status,
        "The same as server-sent events, once per second.",
        media_types=("text/event-stream",),
    ),
    Operation(
        "GET",
        "/v1/rows/{id}",
        "read",
        handlers.show_row,
        "A decision, and the history of its labels.",
        answer=responses.StoredRow,
        problems={404: "No row has this id."},
    ),
    Operation(
        "DELETE",
        "/v1/rows/{id}",
        "admin",
        handlers.delete_row,
        "Forget a row: its content goes, the counts stay.",
        answer=responses.ForgottenRow,
        problems={404: "No row has this id."},
        answer_example={"id": "r1", "result": "forgotten"},
    ),
    Operation(
        "GET",
        "/v1/gates",
        "read",
        handlers.show_gates,
        "All versions of the gate, the newest first.",
        answer=responses.VersionList,
    ),
    Operation(
        "POST",
        "/v1/gates",
        "admin",
        handlers.upload_gate,
        "Add a version: a gate's JSON, alone or with a note.",
        body=AddGateRequest | dict[str, Any],
        status=201,
        answer=responses.AddedGate,
        problems={409: "The gate is for other rows than the current one."},
        answer_example={"version": 2, "state": "candidate", **_GATE},
    ),
    Operation(
        "POST",
        "/v1/gates/rollback",
        "admin",
        handlers.roll_back_gate,
        "Undo the last promotion.",
        answer=responses.VersionChange,
        problems={409: "The first version has none before it."},
        answer_example={"version": 1, "before": 2},
    ),
    Operation(
        "DELETE",
        "/v1/gates/shadow",
        "admin",
        handlers.end_shadow,
        "Let no version decide in the shadow.",
        answer=responses.ShadowVersion,
        answer_example={"shadow": None},
    ),
    Operation(
        "GET",
        "/v1/gates/{version}",
        "read",
        handlers.show_gate,
        "One version, as a gate's file.",
        answer=dict[str, Any],
        problems=_NO_VERSION,
    ),
    Operation(
        "POST",
        "/v1/gates/{version}/promote",
        "admin",
        handlers.promote_gate,
        "Let a version decide from now on.",
        body=PromoteRequest,
        body_required=False,
        answer=responses.VersionChange,
        problems=_NO_VERSION | {409: "The gate rejects or accepts every row."},
        example={"anyway": True},
        answer_example={"version": 2, "before": 1},
    ),
    Operation(
        "POST",
        "/v1/gates/{version}/shadow",
        "admin",
        handlers.start_shadow,
        "Let a version decide in the shadow, beside the current one.",
        answer=responses.ShadowVersion,
        problems=_NO_VERSION | {409: "The version decides already."},
        answer_example={"shadow": 2},
    ),
    Operation(
        "POST",
        "/v1/recalibrate",
        "admin",
        handlers.recalibrate,
        "Make a candidate of reviewed rows.",
        body=RecalibrateRequest,
        body_required=False,
        status=201,
        answer=responses.Candidate,
        problems={409: "The reviewed rows allow no honest candidate."},
        example={"since": "2026-11-16T12:00:00Z", "targets": {"risk": 0.05}},
    ),
    Operation(
        "GET",
        "/v1/export",
        "admin",
        handlers.export,
        "Decisions and labels as Parquet: rows of one kind, over the same classes.",
        query={
            "kind": {"enum": list(KINDS), "description": "What the rows hold."},
            "version": {
                "type": "integer",
                "minimum": 1,
                "description": "The version that decided.",
            },
            "since": _TIME | {"description": "Rows from this time on."},
            "until": _TIME | {"description": "Rows before this time."},
        },
        media_types=("application/vnd.apache.parquet",),
        problems={404: "No row is like that.", 409: "The rows are of several kinds."},
    ),
    Operation(
        "GET",
        "/metrics",
        "read",
        handlers.metrics,
        "Metrics for Prometheus.",
        media_types=("text/plain",),
    ),
    Operation(
        "GET",
        "/healthz",
        None,
        handlers.live,
        "Whether the process lives.",
        answer=responses.Health,
        answer_example={"status": "ok"},
    ),
    Operation(
        "GET",
        "/readyz",
        None,
        handlers.ready,
        "Whether the store answers, and keeps what it is given.",
        answer=responses.Health,
        answer_example={"status": "ready"},
    ),
    Operation(
        "GET",
        "/openapi.json",
        None,
        handlers.show_api,
        "This description.",
        answer=dict[str, Any],
    ),
    Operation(
        "GET",
        "/v2",
        None,
        handlers.show_server,
        "The server (Open Inference Protocol).",
        answer=responses.InferenceServer,
    ),
    Operation(
        "GET",
        "/v2/health/live",
        None,
        handlers.live,
        "Whether the process lives (Open Inference Protocol).",
        answer=responses.Health,
        answer_example={"status": "ok"},
    ),
    Operation(
        "GET",
        "/v2/health/ready",
        None,
        handlers.ready,
        "Whether the store answers (Open Inference Protocol).",
        answer=responses.Health,
        answer_example={"status": "ready"},
    ),
    Operation(
        "GET",
        "/v2/models/{name}",
        "decide",
        handlers.show_model,
        "A model's inputs and outputs (Open Inference Protocol).",
        answer=responses.ModelMetadata,
        problems=_NO_MODEL,
    ),
    Operation(
        "GET",
        "/v2/models/{name}/ready",
        None,
        handlers.model_ready,
        "Whether a model would be run (Open Inference Protocol).",
        answer=responses.Health,
        problems=_NO_MODEL,
        answer_example={"status": "ready"},
    ),
    Operation(
        "POST",
        "/v2/models/{name}/infer",
        "decide",
        handlers.infer,
        "Run a model, and decide on its rows (Open Inference Protocol).",
        body=InferenceBody,
        headers={
            LENGTH: {
                "type": "integer",
                "minimum": 1,
                "description": "Bytes of JSON, if binary tensors follow.",
            }
        },
        answer=responses.InferenceResponse,
        media_types=(JSON, _OCTETS),
        problems=_NO_MODEL | {409: "Another row has this id.", 415: "Compressed."},
        example={
            "id": "q",
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [1, 2],
                    "data": [[0.5, 2.0]],
                }
            ],
        },
    ),
    Operation("GET", "/", None, handlers.show_page),
    Operation("GET", "/review", None, handlers.show_page),
    Operation("GET", "/login", None, handlers.show_login),
    Operation("POST", "/login", None, handlers.log_in),
    Operation("POST", "/logout", None, handlers.log_out),
)


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def make_routes(app: "App") -> list[Route]:
    """Return Starlette's routes for an app."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        if operation.handler is not None:
            by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(
            path.replace("{id}", "{id:path}"),  # ids may contain slashes
            _endpoint(app, by_method),
            # Of several paths Starlette takes the first that has the method: GET of
            # /v1/gates/rollback would be taken for that of a version.
            methods=_METHODS,
        )
        for path, by_method in by_path.items()
    ]


def _endpoint(app: "App", by_method: dict[str, Operation]) -> Any:
    allowed = ", ".join([*by_method, *(["HEAD"] if "GET" in by_method else [])])

    async def endpoint(request: Request) -> Response:
        # RFC 9110, section 9.3.2: HEAD is answered as GET. The server drops the body.
        method = "GET" if request.method == "HEAD" else request.method
        operation = by_method.get(method)
        if operation is None or operation.handler is None:
            raise HTTPException(405, headers={"Allow": allowed})
        app.access.check(request.scope["headers"], operation.role)
        return await operation.handler(app, request)

    return endpoint
