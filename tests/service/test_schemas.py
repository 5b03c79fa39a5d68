"""Reading requests: three forms of the same rows, and refusals."""

import base64
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustdoctor.service.problems import ProblemError, as_problem
from trustdoctor.service.schemas import (
    Payload,
    checked_name,
    encoded_payload,
    json_number,
    read_decide_request,
)
from trustdoctor.service.settings import Limits

LIMITS = Limits()
SMALL = Limits(rows=3, classes=4, features=2, payload=60, name=5)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
numbers = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=9
)


def read(content, limits=LIMITS):
    return read_decide_request(json.dumps(content).encode(), limits)


def refused(content, limits=LIMITS):
    """The status and the one line that a body is refused with."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(Exception) as refusal:  # noqa: PT011 - whatever it is, it has to be a problem
        read_decide_request(body, limits)
    problem = as_problem(refusal.value)
    assert "\n" not in str(problem)
    return problem.status, str(problem)


@st.composite
def tables(draw):
    """Rows as a list of objects, of any kind, with any further fields."""
    kind = draw(st.sampled_from(["logits", "probs", "topk", "confidence", "doubt"]))
    n, width = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    row = st.lists(numbers, min_size=width, max_size=width)
    classes = st.lists(st.integers(0, 99), min_size=width, max_size=width)
    value = {
        "topk": st.fixed_dictionaries({"classes": classes, "probs": row}),
        "confidence": numbers,
        "doubt": numbers,
    }.get(kind, row)
    fields = {kind: value}
    beside = {
        "id": names,
        "predicted": names,
        "group": st.integers(-5, 5),
        "features": st.lists(numbers, min_size=2, max_size=2),
    }
    for name, column in beside.items():
        if name == "predicted" and kind not in ("confidence", "doubt"):
            continue
        if draw(st.booleans()):
            fields[name] = column
    rows = [draw(st.fixed_dictionaries(fields)) for _ in range(n)]
    for entry in rows:
        if draw(st.booleans()):
            entry["payload"] = {"text": draw(st.text(st.characters(codec="utf-8")))}
    return kind, rows


def by_columns(kind, rows):
    """The same rows as columns."""
    out = {}
    for name in rows[0].keys() - {"payload", kind}:
        plural = {"id": "ids", "group": "groups"}.get(name, name)
        out[plural] = [row[name] for row in rows]
    if any("payload" in row for row in rows):
        out["payloads"] = [row.get("payload") for row in rows]
    values = [row[kind] for row in rows]
    if kind == "topk":
        values = {
            name: [entry[name] for entry in values] for name in ("classes", "probs")
        }
    return out | {kind: values}


def plain(rows):
    """Rows as plain lists and text, from any representation."""
    fields = ("values", "ids", "classes", "predicted", "groups", "features", "payloads")
    return {
        name: None if column is None else np.asarray(column, object).tolist()
        for name in fields
        for column in [getattr(rows, name)]
    } | {"kind": rows.kind}


@given(tables())
def test_three_forms_say_the_same(table):
    kind, rows = table
    batch = read({"rows": rows})
    all_values = plain(batch)
    assert plain(read(by_columns(kind, rows))) == all_values
    assert not batch.single
    assert len(batch) == len(rows)
    for at, row in enumerate(rows):
        single = read(row)
        assert single.single
        row_values = plain(single)
        for name in ("values", "ids", "classes", "predicted", "groups", "features"):
            assert row_values[name] == (
                None if all_values[name] is None else [all_values[name][at]]
            )
        payload = row.get("payload")
        if payload is not None:
            assert json.loads(single.payloads[0]) == payload
            assert single.payloads[0] == batch.payloads[at]


@given(names | st.integers())
def test_ids_are_text(name):
    ids = read({"id": name, "confidence": 0.5}).ids
    assert ids == [str(name)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "expected JSON as /openapi.json "),
        (b"{", "expected JSON as /openapi.json "),
        (b"[1, 2]", "expected one row, "),
        (b"null", "expected one row, "),
        (b'"logits"', "expected one row, "),
        (b"{}", "expected one of logits, probs, topk, confidence, doubt, got none"),
        (b'{"logits": [1], "probs": [1]}', "got logits and probs. Send one."),
        (b'{"logits": []}', "expected 1 to 100,000 logits per row, got 0."),
        (b'{"logits": [NaN]}', "expected JSON as /openapi.json "),
        (b'{"logits": [1e999]}', "expected JSON as /openapi.json "),
        (b'{"logits": ["1"]}', "expected JSON as /openapi.json "),
        (b'{"logits": [null]}', "expected JSON as /openapi.json "),
        (b'{"logits": [true]}', "expected JSON as /openapi.json "),
        (b'{"logits": [1], "extra": 1}', "unknown field `extra`"),
        (
            b'{"id": 1.5, "logits": [1]}',
            "expected JSON as /openapi.json ",
        ),
        (b'{"id": "", "logits": [1]}', "expected an id of 1 to 200 characters, got 0."),
        (b'{"id": "a\\u0000", "logits": [1]}', "without control characters"),
        (b'{"id": "a\\u2028", "logits": [1]}', "without control characters"),
        (
            b'{"id": "\\ud800", "logits": [1]}',
            "expected JSON as /openapi.json ",
        ),
        (b'{"id": "a\xff", "logits": [1]}', "expected JSON in UTF-8, got other bytes."),
        (b'{"rows": []}', "expected 1 to 20,000 rows, got 0."),
        (b'{"rows": {}}', "expected JSON as /openapi.json "),
        (b'{"rows": [{"logits": [1]}, {"probs": [1]}]}', "got logits, probs. Send"),
        (b'{"rows": [{"logits": [1]}, {"logits": [1, 2]}]}', "got 2 in row 1"),
        (b'{"rows": [{"id": 1, "doubt": 1}, {"doubt": 1}]}', "got 1 of 2 rows without"),
        (b'{"ids": [1], "logits": [[1], [2]]}', "expected 2 ids, one per row, got 1."),
        (b'{"ids": [], "logits": []}', "expected 1 to 20,000 rows, got 0."),
        (b'{"ids": [1, 2], "logits": [[1], [1, 2]]}', "got 2 in row 1"),
        (b'{"topk": {"classes": [1], "probs": [0.5, 0.1]}}', "got 1 and 2"),
        (
            b'{"topk": {"classes": [[1]], "probs": [[0.5], [0.1]]}}',
            "expected classes for 2 rows, got 1.",
        ),
        (b'{"group": 99999999999999999999, "doubt": 1}', "numbers of 64 bits at most"),
        (b'{"predicted": 1, "logits": [1]}', "predicted beside confidence alone"),
        (b'{"groups": [1, "a"], "doubt": [1, 1]}', "groups"),
    ],
)
def test_invalid_requests_are_explained(body, message):
    status, reason = refused(body)
    assert status == 400
    assert message in reason


def test_limits_hold():
    row = {"logits": [1.0]}
    assert len(read({"rows": [row] * 3}, SMALL)) == 3
    assert refused({"rows": [row] * 4}, SMALL)[0] == 413
    assert refused({"logits": [[1.0]] * 4}, SMALL)[0] == 413
    assert "1 to 4 logits per row, got 5" in refused({"logits": [1.0] * 5}, SMALL)[1]
    wide = row | {"features": [1.0] * 3}
    assert "1 to 2 features per row, got 3" in refused(wide, SMALL)[1]
    assert "1 to 5 characters, got 6" in refused(row | {"id": "abcdef"}, SMALL)[1]
    assert "1 to 5 characters, got 6" in refused(row | {"id": 123456}, SMALL)[1]
    assert refused(row | {"group": "abcdef"}, SMALL)[0] == 400
    large = row | {"payload": {"text": "x" * 60}}
    assert refused(large, SMALL) == (413, refused(large, SMALL)[1])


@pytest.mark.parametrize("name", ["a/b", "../x", "ärger", "日本", "a b", "%00", "👍"])
def test_ids_may_be_odd(name):
    assert checked_name(name, "id", LIMITS) == name


@pytest.mark.parametrize(
    ("payload", "good"),
    [
        ({"text": "<script>alert(1)</script>"}, True),
        ({"link": "https://example.org/a?b=c#d"}, True),
        ({"link": "http://[::1]:8000/"}, True),
        ({"link": "javascript:alert(1)"}, False),
        ({"link": "data:text/html,x"}, False),
        ({"link": "//example.org"}, False),
        ({"link": "https://"}, False),
        ({"link": "https://a b"}, False),
        ({"link": "https://a\n.org"}, False),
        ({"link": "http://["}, False),
        ({"link": "https://e.org/" + "x" * 2000}, False),
        ({"image": f"data:image/png;base64,{PNG}"}, True),
        ({"image": f"data:image/jpeg;base64,{PNG}"}, False),
        ({"image": f"data:image/svg+xml;base64,{PNG}"}, False),
        ({"image": f"data:image/png;base64,{PNG}\n"}, False),
        ({"image": "data:image/png;base64,===="}, False),
        ({"image": "https://example.org/x.png"}, False),
    ],
)
def test_a_reviewer_sees_text_images_and_links_only(payload, good):
    if good:
        encoded = encoded_payload(Payload(**payload), LIMITS)
        assert json.loads(encoded) == payload
    else:
        with pytest.raises(ProblemError) as refusal:
            encoded_payload(Payload(**payload), LIMITS)
        assert refusal.value.status == 400


@given(st.floats())
def test_doubts_are_numbers_or_words(doubt):
    shown = json_number(doubt)
    parsed = float(shown)
    assert parsed == doubt or (math.isnan(parsed) and math.isnan(doubt))
    json.dumps(shown, allow_nan=False)
