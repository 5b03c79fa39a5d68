"""The description holds for what the service takes and answers."""

import json

import jsonschema
import numpy as np
import pytest
from service.house import made_rows

from trustdoctor.service.openapi import describe_api
from trustdoctor.service.routes import ROUTES

API = describe_api()
HIDDEN = {"/", "/review", "/login", "/logout", "/openapi.json"}


def validator(schema):
    whole = schema | {"components": API["components"]}
    return jsonschema.Draft202012Validator(whole)


def body_of(path, method="post"):
    operation = API["paths"][path][method]
    return operation["requestBody"]["content"]["application/json"]["schema"]


def answer_of(path, method="post"):
    operation = API["paths"][path][method]
    return operation["responses"]["200"]["content"]["application/json"]["schema"]


def test_the_document_is_valid():
    checker = pytest.importorskip("openapi_spec_validator")
    checker.validate(API)
    json.dumps(API, allow_nan=False)


def test_every_reference_leads_somewhere():
    text = json.dumps(API)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(API["components"]["schemas"])
    for schema in API["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_path_is_served_and_described():
    served = {
        (method.lower(), path.replace(":path", "")) for method, path, *_ in ROUTES
    }
    served.add(("post", "/v1/decide"))
    described = {(m, path) for path, own in API["paths"].items() for m in own}
    assert described <= served
    missing = {path for _, path in served - described if not path.startswith("/v2")}
    assert missing <= HIDDEN


def test_it_is_served(served):
    assert served.get("/openapi.json").json == json.loads(json.dumps(API))


def test_what_is_taken_and_answered(served):
    rows = np.asarray(made_rows(3, 2).logits, float).tolist()
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
        validator(answer_of("/v1/labels")).validate(served.done("/v1/labels", body))
    lease = {"reviewer": "ann", "order": "doubt", "count": 2, "seconds": 60}
    validator(body_of("/v1/review/lease")).validate(lease)
    problem = {"$ref": "#/components/schemas/Problem"}
    for answer in (served.post("/v1/decide", b"{"), served.get("/nowhere")):
        validator(problem).validate(answer.json)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/decide", {"logits": ["a"]}),
        ("/v1/decide", {"id": 1.5, "logits": [1.0]}),
        ("/v1/labels", {"id": "a", "label": 1.5}),
        ("/v1/review/lease", {"order": "newest"}),
    ],
)
def test_what_is_refused_is_not_described(served, path, body):
    assert not validator(body_of(path)).is_valid(body)
    assert served.post(path, body).status == 400
