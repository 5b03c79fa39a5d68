"""The description holds for what the service takes and answers."""

import json

import jsonschema
import numpy as np
import pytest
from service.house import Served, draw_rows

import trustdoctor as td
from trustdoctor.service.openapi import describe_api
from trustdoctor.service.routes import JSON, OPERATIONS

API = describe_api()
HIDDEN = {"/", "/review", "/login", "/logout"}
DESCRIBED = [operation for operation in OPERATIONS if operation.summary]


def validator(schema, *, strict=False):
    """A validator; a strict one knows every field, and refuses others."""
    components = API["components"]
    if strict:
        components = json.loads(json.dumps(components))
        for component in components["schemas"].values():
            if component.get("properties"):
                component["additionalProperties"] = False
    return jsonschema.Draft202012Validator(
        schema | {"components": components},
        format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
    )


def body_of(path, method="post"):
    operation = API["paths"][path][method]
    return operation["requestBody"]["content"][JSON]["schema"]


def answer_of(path, method="post", status="200"):
    return API["paths"][path][method]["responses"][status]["content"][JSON]["schema"]


def test_the_document_is_valid():
    checker = pytest.importorskip("openapi_spec_validator")
    checker.validate(API)
    checker.validate(describe_api(tokens=True))
    json.dumps(API, allow_nan=False)


def test_every_reference_leads_somewhere():
    text = json.dumps(API)
    for kind in ("schemas", "responses"):
        references = text.split(f"#/components/{kind}/")[1:]
        assert {reference.split('"')[0] for reference in references} <= set(
            API["components"][kind]
        )
    for schema in API["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_route_but_the_pages_is_described():
    routes = {(operation.method.lower(), operation.path) for operation in OPERATIONS}
    described = {(m, path) for path, methods in API["paths"].items() for m in methods}
    assert {path for _, path in routes - described} == HIDDEN
    assert described <= routes


@pytest.mark.parametrize("path", sorted({o.path for o in OPERATIONS}))
@pytest.mark.sampled(3)
def test_other_methods_are_refused_and_those_allowed_are_named(served, path):
    """Also where another path has the method: /v1/gates/{version} has GET."""
    allowed = {o.method for o in OPERATIONS if o.path == path}
    filled = path.format(id="x", version="1", name="m")
    for method in {"GET", "POST", "PUT", "DELETE", "TRACE", "FOO"} - allowed:
        answer = served.ask(method, filled)
        assert answer.status == 405
        if method != "FOO":
            assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == allowed


def test_roles_are_described_where_tokens_are_asked_for():
    paths = describe_api(tokens=True)["paths"]
    for operation in DESCRIBED:
        described = paths[operation.path][operation.method.lower()]
        if operation.role is None:
            assert "security" not in described
        else:
            assert "admin" in described["security"][0]["token"]
            assert "401" in described["responses"]
    assert paths["/v1/export"]["get"]["security"][0]["token"] == ["admin"]


@pytest.mark.parametrize("operation", DESCRIBED, ids=lambda o: f"{o.method} {o.path}")
def test_examples_are_as_described(operation):
    described = API["paths"][operation.path][operation.method.lower()]
    answer = described["responses"][str(operation.status)]["content"]
    for content in (answer, described.get("requestBody", {}).get("content", {})):
        if "example" in content.get(JSON, {}):
            media = content[JSON]
            validator(media["schema"], strict=True).validate(media["example"])


def test_it_is_served(served):
    assert served.get("/openapi.json").json == json.loads(json.dumps(API))


def test_accepted_requests_and_their_answers(served):
    rows = np.asarray(draw_rows(3, 2).logits, float).tolist()
    bodies = [
        {"id": "a", "logits": rows[0], "group": 1, "payload": {"text": "x"}},
        {"rows": [{"id": 7, "logits": rows[1]}]},
        {"ids": ["b", "c"], "probs": [[1.0, 0, 0, 0], [0.25] * 4]},
        {"id": "d", "topk": {"classes": [0, 1], "probs": [0.6, 0.3]}},
    ]
    for body in bodies:
        validator(body_of("/v1/decide")).validate(body)
        validator(answer_of("/v1/decide")).validate(served.decide(body))
    labels = [
        {"id": "a", "label": 1},
        {"labels": [{"id": "a", "correct": True}, {"id": "zz", "cannot_say": True}]},
        {"ids": ["b"], "labels": [2]},
    ]
    for body in labels:
        validator(body_of("/v1/labels")).validate(body)
        validator(answer_of("/v1/labels")).validate(served.post_ok("/v1/labels", body))
    lease = {"reviewer": "ann", "order": "doubt", "count": 2, "seconds": 60}
    validator(body_of("/v1/review/lease")).validate(lease)
    problem = {"$ref": "#/components/schemas/Problem"}
    for answer in (served.post("/v1/decide", b"{"), served.get("/nowhere")):
        validator(problem).validate(answer.json)


def answers(served):
    """An answer of every route, with the fields that a long day fills."""
    gate = td.calibrate(draw_rows(2000, 2), score="alpha", risk=0.1, shortlist=0.9)
    yield (
        "/v1/gates",
        "post",
        "201",
        served.post("/v1/gates", json.loads(gate.to_json())),
    )
    drawn_rows = draw_rows(300, 0)
    logits = np.asarray(drawn_rows.logits, float).tolist()
    for start in ("before", "beside"):
        ids = [f"{start} {row}" for row in range(len(logits))]
        rows = {"ids": ids, "logits": logits, "groups": ["north"] * len(ids)}
        decided = served.post("/v1/decide", rows)
        yield "/v1/decide", "post", "200", decided
        wrong = [{"id": name, "correct": False} for name in ids[:200]]
        labelled = served.post("/v1/labels", {"labels": wrong})
        yield "/v1/labels", "post", "200", labelled
        served.background.tick()
        shadow = "/v1/gates/{version}/shadow"
        yield shadow, "post", "200", served.post("/v1/gates/2/shadow")
    yield "/v1/status", "get", "200", served.get("/v1/status")
    leased = served.post("/v1/review/lease")
    yield "/v1/review/lease", "post", "200", leased
    (row,) = leased.json["rows"]
    answered = served.answer(row, label=1)
    yield "/v1/review/answer", "post", "200", answered
    yield "/v1/rows/{id}", "get", "200", served.get(f"/v1/rows/{row['id']}")
    right = [
        {"id": f"{start} {row}", "label": label}
        for start in ("before", "beside")
        for row, label in enumerate(drawn_rows.labels.tolist())
    ]
    served.post("/v1/labels", {"labels": right})
    since = {"since": "2020-01-01", "targets": {"frr": 0.3}}
    yield "/v1/recalibrate", "post", "201", served.post("/v1/recalibrate", since)
    yield "/v1/rows/{id}", "delete", "200", served.ask("DELETE", f"/v1/rows/{ids[0]}")
    yield "/v1/gates", "get", "200", served.get("/v1/gates")
    yield "/v1/gates/{version}", "get", "200", served.get("/v1/gates/1")
    promoted = served.post("/v1/gates/2/promote")
    yield "/v1/gates/{version}/promote", "post", "200", promoted
    yield "/v1/gates/rollback", "post", "200", served.post("/v1/gates/rollback")
    yield "/v1/gates/shadow", "delete", "200", served.ask("DELETE", "/v1/gates/shadow")
    for path in ("/healthz", "/readyz", "/v2", "/v2/health/live", "/v2/health/ready"):
        yield path, "get", "200", served.get(path)
    yield "/openapi.json", "get", "200", served.get("/openapi.json")


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_every_field_of_every_answer_is_described(loop, tmp_path):
    """Models are in tests/service/test_model.py; other answers are not JSON."""
    gate = td.calibrate(draw_rows(2000, 1), score="alpha", risk=0.15, shortlist=0.9)
    served = Served(gate, str(tmp_path / "rows.db"), loop, review=(1.0, 0.5))
    checked = set()
    try:
        for path, method, status, answer in answers(served):
            assert str(answer.status) == status, (path, answer.content)
            schema = answer_of(path, method, status)
            validator(schema, strict=True).validate(answer.json)
            checked.add((method, path))
    finally:
        served.close()
    with_fields = {
        (operation.method.lower(), operation.path)
        for operation in DESCRIBED
        if operation.answer is not None
    }
    unchecked = {path for _, path in with_fields - checked}
    assert all(path.startswith("/v2/models/") for path in unchecked)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/decide", {"logits": ["a"]}),
        ("/v1/decide", {"id": 1.5, "logits": [1.0]}),
        ("/v1/decide", {"id": "a"}),
        ("/v1/decide", {"logits": [1.0], "probs": [1.0]}),
        ("/v1/labels", {"id": "a", "label": 1.5}),
        ("/v1/labels", {"id": "a", "label": 1, "correct": True}),
        ("/v1/review/lease", {"order": "newest"}),
    ],
)
def test_refused_values_are_not_described(served, path, body):
    assert not validator(body_of(path)).is_valid(body)
    assert served.post(path, body).status == 400
