"""The description of all routes as OpenAPI 3.1, made of the table in `routes`."""

import re
import types
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from trustdoctor._version import __version__
from trustdoctor.service.access import COOKIE, roles_for
from trustdoctor.service.problems import CONTENT_TYPE
from trustdoctor.service.responses import Problem
from trustdoctor.service.routes import JSON, OPERATIONS, Operation
from trustdoctor.service.schemas import KINDS

Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"
_PROBLEM = {
    CONTENT_TYPE.decode(): {"schema": {"$ref": _REFERENCE.format(name="Problem")}}
}
_PROBLEMS: dict[int | str, str] = {
    400: "The request is not as expected.",
    401: "No token, or an unknown one.",
    403: "The token's role does not allow it, or another site's page asked.",
    413: "The request is too large.",
    503: "The store is away, or too much waits. Retry-After says how long to wait.",
    "default": "Any other problem.",
}
_PARAMETERS: dict[str, Schema] = {
    "id": {"type": "string", "minLength": 1, "maxLength": 200},
    "version": {"type": "integer", "minimum": 1},
    "name": {"type": "string", "minLength": 1},
}
_ANSWERS = ("label", "correct", "cannot_say")

# Rules between fields, which msgspec's types cannot express.
_EXACTLY_ONE = {
    "DecideRow": KINDS,
    "DecideColumns": KINDS,
    "RowLabel": _ANSWERS,
    "AnswerRequest": (*_ANSWERS, "release"),
}


@cache
def describe_api(*, tokens: bool = False) -> dict[str, Any]:
    """Return the description of all routes.

    Parameters
    ----------
    tokens : bool
        Whether the service asks for tokens.

    Examples
    --------
    >>> sorted(describe_api()["paths"])[0]
    '/healthz'
    """
    described = [operation for operation in OPERATIONS if operation.summary]
    kinds = {
        kind: None
        for operation in described
        for union in (operation.body, operation.answer)
        for kind in _members(union)
    }
    schemas, components = msgspec.json.schema_components(
        [*kinds, Problem], ref_template=_REFERENCE
    )
    for name, fields in _EXACTLY_ONE.items():
        components[name]["oneOf"] = [_given(field) for field in fields]
    schema_of = dict(zip(kinds, schemas, strict=False))  # without that of Problem
    paths: dict[str, Any] = {}
    for operation in described:
        path = paths.setdefault(operation.path, {})
        path[operation.method.lower()] = _describe(operation, schema_of, tokens=tokens)
    described_api: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "trustdoctor", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                str(status): {"description": words, "content": _PROBLEM}
                for status, words in _PROBLEMS.items()
            },
        },
    }
    if tokens:
        described_api["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
        }
    return described_api


def _members(union: Any) -> tuple[Any, ...]:
    """Return the types of a union; msgspec takes only one struct in each."""
    if union is None:
        return ()
    return get_args(union) if get_origin(union) is types.UnionType else (union,)


def _given(field: str) -> Schema:
    """Return the schema of an object in which a field is given: neither null nor false.

    So exactly one of several such schemas holds if exactly one field is given.
    """
    flag = field in ("cannot_say", "release")
    value: Schema = {"const": True} if flag else {"not": {"type": "null"}}
    return {"required": [field], "properties": {field: value}}


def _describe(
    operation: Operation, schema_of: dict[Any, Schema], *, tokens: bool
) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary}
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": _content(
                operation.media_types,
                _any_of(operation.body, schema_of),
                operation.example,
            ),
        }
    described["responses"] = _responses(operation, schema_of)
    if tokens and operation.role is not None:
        roles = roles_for(operation.role)
        described["security"] = [{"token": roles}]
        if operation.role != "decide":  # no session is given for such tokens
            described["security"].append({"session": roles})
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    return in_path + [
        {"name": name, "in": place, "schema": schema}
        for place, schemas in (
            ("query", operation.query),
            ("header", operation.headers),
        )
        for name, schema in schemas.items()
    ]


def _responses(
    operation: Operation, schema_of: dict[Any, Schema]
) -> dict[str, dict[str, Any]]:
    schema = None
    if operation.answer is not None:
        schema = _any_of(operation.answer, schema_of)
    answer = {
        "description": "The answer.",
        "content": _content(operation.media_types, schema, operation.answer_example),
    }
    common = {str(status) for status in _PROBLEMS}
    if operation.body is None:
        common -= {"413"}
    if operation.role is None:
        common -= {"401"}
    return {
        str(operation.status): answer,
        **{
            str(status): {"description": words, "content": _PROBLEM}
            for status, words in operation.problems.items()
        },
        **{
            status: {"$ref": f"#/components/responses/{status}"}
            for status in sorted(common)
        },
    }


def _any_of(union: Any, schema_of: dict[Any, Schema]) -> Schema:
    schemas = [schema_of[kind] for kind in _members(union)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _content(
    media_types: Sequence[str], schema: Schema | None, example: Any
) -> dict[str, Any]:
    """Return the content by media type; only JSON has a schema and an example."""
    as_json = {} if schema is None else {"schema": schema}
    if example is not None:
        as_json["example"] = example
    return {name: as_json if name == JSON else {} for name in media_types}
