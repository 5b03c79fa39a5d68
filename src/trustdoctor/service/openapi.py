"""What the service takes and answers, as OpenAPI describes it."""

from typing import Any

import msgspec

from trustdoctor._version import __version__
from trustdoctor.service.decisions import RowDecision
from trustdoctor.service.labels import LabelColumns, Labels, Result, Said
from trustdoctor.service.recalibration import Request as Recalibration
from trustdoctor.service.review_queue import AnswerRequest, LeaseRequest
from trustdoctor.service.schemas import DecideColumns, DecideRow, DecideRows


class Decisions(msgspec.Struct):
    """The answers to many rows."""

    rows: list[RowDecision]


class LabelResults(msgspec.Struct):
    """What became of labels."""

    counted: int
    repeated: int
    corrected: int
    kept: int
    refused: int
    rows: list[Result]


class Problem(msgspec.Struct):
    """What was expected, what came, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


_TYPES = (
    *(
        DecideRow,
        DecideRows,
        DecideColumns,
        RowDecision,
        Decisions,
        Said,
        Labels,
        LabelColumns,
        LabelResults,
    ),
    *(LeaseRequest, AnswerRequest, Recalibration, Problem),
)

_PATHS: tuple[tuple[str, str, str, tuple[type, ...], type | None], ...] = (
    (
        "post",
        "/v1/decide",
        "Decide on one row, or many.",
        (DecideRow, DecideRows, DecideColumns),
        None,
    ),
    (
        "post",
        "/v1/labels",
        "Say what rows truly are, in any order, late, again, or corrected.",
        (Said, Labels, LabelColumns),
        LabelResults,
    ),
    ("post", "/v1/review/lease", "Lease rows to review.", (LeaseRequest,), None),
    ("post", "/v1/review/answer", "Answer, or release.", (AnswerRequest,), None),
    ("get", "/v1/status", "How the service stands.", (), None),
    ("get", "/v1/events", "The same, as server-sent events.", (), None),
    ("get", "/v1/rows/{id}", "A decision and its labels.", (), None),
    ("delete", "/v1/rows/{id}", "Forget a row.", (), None),
    ("get", "/v1/gates", "All versions of the gate.", (), None),
    ("post", "/v1/gates", "Add a version: a gate's JSON.", (), None),
    ("get", "/v1/gates/{version}", "A gate's JSON.", (), None),
    ("post", "/v1/gates/{version}/promote", "Let it decide.", (), None),
    ("post", "/v1/gates/{version}/shadow", "Let it decide beside.", (), None),
    ("delete", "/v1/gates/shadow", "End that.", (), None),
    ("post", "/v1/gates/rollback", "Undo the last promotion.", (), None),
    ("post", "/v1/recalibrate", "Make a candidate.", (Recalibration,), None),
    ("get", "/v1/export", "Decisions and labels as Parquet.", (), None),
    ("get", "/metrics", "Metrics for Prometheus.", (), None),
    ("get", "/healthz", "Whether the process lives.", (), None),
    ("get", "/readyz", "Whether the store answers.", (), None),
)


def describe_api(model: Any = None) -> dict[str, Any]:
    """Return the description of all paths.

    Examples
    --------
    >>> sorted(describe_api()["paths"])[0]
    '/healthz'
    """
    _, parts = msgspec.json.schema_components(
        _TYPES, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for method, path, what, bodies, answer in _PATHS:
        paths.setdefault(path, {})[method] = _operation(path, what, bodies, answer)
    decided = [_ref(RowDecision), _ref(Decisions)]
    paths["/v1/decide"]["post"]["responses"]["200"] = _content({"oneOf": decided})
    if model is not None:
        what = "Run the model and decide (Open Inference Protocol)."
        paths[f"/v2/models/{model.name}/infer"] = {
            "post": _operation("", what, (), None)
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "trustdoctor", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(
    path: str, what: str, bodies: tuple[type, ...], answer: type | None
) -> dict[str, Any]:
    out: dict[str, Any] = {
        "summary": what,
        "responses": {
            "200": {"description": "Done."}
            if answer is None
            else _content(_ref(answer)),
            "default": {
                "description": "A problem.",
                "content": {"application/problem+json": {"schema": _ref(Problem)}},
            },
        },
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        out["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if bodies:
        refs = [_ref(body) for body in bodies]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        content = {"application/json": {"schema": schema}}
        out["requestBody"] = {"required": True, "content": content}
    return out


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": "Done.",
        "content": {"application/json": {"schema": schema}},
    }
