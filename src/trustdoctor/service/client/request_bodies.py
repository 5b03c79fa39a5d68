"""What a client sends: rows and labels, checked, and in requests of bounded size."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from trustdoctor.arrays import to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.service.times import new_ids

ROWS = 1_000
"""Rows or labels of one request, at most; more are sent in several."""

BODY = 4_000_000
"""Bytes of one request, about, at most."""

_DIGITS = 24  # characters of a number in JSON, at most

Name = str | int
RowsRequest = tuple[list[str], str]
"""The ids of some rows, and the JSON that asks about them."""


def are_dicts(rows: Any) -> bool:
    """Tell whether rows are dicts, or one; refuse what cannot be rows."""
    if rows is None or isinstance(rows, (Mapping, Predictions)):
        return isinstance(rows, Mapping)
    listed = isinstance(rows, Sequence) and not isinstance(rows, (str, bytes))
    if listed and rows and all(isinstance(row, Mapping) for row in rows):
        return True
    message = (
        "expected rows as a dict, a list of dicts or Predictions, got "
        f"{'an empty list' if listed and not rows else type(rows).__name__}. Give "
        "arrays by name: logits= or probs=."
    )
    raise InputError(message)


def row_request(row: Mapping[str, Any]) -> RowsRequest:
    """Return the request about one row, which is answered by one object."""
    whole = _with_id(row)
    return [whole["id"]], dumped(whole)


def row_requests(rows: Sequence[Mapping[str, Any]]) -> Iterator[RowsRequest]:
    """Yield requests about rows."""
    single = [row_request(row) for row in rows]
    for part in _parts([len(body) for _, body in single]):
        ids = [own for (own,), _ in single[part]]
        bodies = ",".join(body for _, body in single[part])
        yield ids, f'{{"rows":[{bodies}]}}'


def column_requests(
    rows: Predictions | None,
    logits: Any,
    probs: Any,
    ids: Any,
    beside: Mapping[str, Any],
) -> tuple[Predictions, Iterator[RowsRequest]]:
    """Return predictions, and requests about their rows."""
    p = _predictions(rows, logits, probs)
    columns = _said(p)
    if probs is not None:
        columns["probs"] = to_numpy(probs)  # not the logarithms' exponentials
    own = p.ids if ids is None else ids
    columns["ids"] = _as_ids(own, len(p))
    for name, given in beside.items():
        values = getattr(p, name, None) if given is None else given
        if values is not None:
            columns[name] = _as_column(name, values, len(p))
    return p, _cut_columns(columns, len(p))


def _predictions(rows: Any, logits: Any, probs: Any) -> Predictions:
    if logits is not None:
        return Predictions.from_logits(logits)
    return rows if probs is None else Predictions.from_probs(probs)


def _said(p: Predictions) -> dict[str, Any]:
    """Return what a classifier said, as columns of a request."""
    if isinstance(p, Answers) and p.top is not None:
        if p.top.open_rest:
            message = (
                "expected top-k answers whose rest belongs to other classes, got some "
                "with open_rest, which the service does not take. Send confidences."
            )
            raise InputError(message)
        return {"topk": {"classes": p.top.classes, "probs": p.top.probs}}
    if isinstance(p, Answers):
        values = -p.doubts if p.signal == "confidence" else p.doubts
        names = p.predicted_names
        return {p.signal: values, **({} if names is None else {"predicted": names})}
    if p.from_probabilities:
        return {"probs": np.exp(p.logits.astype(np.float64))}
    return {"logits": p.logits}


def _as_column(name: str, values: Any, rows: int) -> Any:
    column = list(values) if name == "payloads" else to_numpy(values)
    if len(column) != rows:
        message = f"expected {rows:,} {name}, one per row, got {len(column):,}."
        raise InputError(message)
    return column


def _cut_columns(columns: dict[str, Any], rows: int) -> Iterator[RowsRequest]:
    for part in _parts(_sizes(columns, rows)):
        content = {name: _cut(values, part) for name, values in columns.items()}
        yield content["ids"], dumped(content)


def _cut(values: Any, part: slice) -> Any:
    if isinstance(values, dict):
        return {name: own[part] for name, own in values.items()}
    return values[part]


def _sizes(columns: Mapping[str, Any], rows: int) -> list[int]:
    """Return about how many bytes each row takes."""
    arrays = [*columns.values(), *columns.get("topk", {}).values()]
    cells = sum(one[:1].size for one in arrays if isinstance(one, np.ndarray))
    payloads = columns.get("payloads", [None] * rows)
    return [_DIGITS * cells + len(dumped(one)) for one in payloads]


def _parts(sizes: Sequence[int]) -> Iterator[slice]:
    """Cut rows into requests of neither too many rows nor too many bytes."""
    first = size = 0
    for row, own in enumerate(sizes):
        if row > first and (row - first == ROWS or size + own > BODY):
            yield slice(first, row)
            first, size = row, 0
        size += own
    yield slice(first, len(sizes))


def check_names(p: Predictions, predicted: Sequence[Name | None]) -> None:
    """Refuse answers by which the columns have other names than here."""
    names = p.class_names
    if names is None or isinstance(p, Answers):
        return
    for column, theirs in zip(p.predicted.tolist(), predicted, strict=True):
        if isinstance(theirs, str) and theirs != names[column]:
            message = (
                f"expected class {column} to be {names[column]!r}, the service calls "
                f"it {theirs!r}. Put the columns into the order of its gate's classes; "
                "what it decided is stored."
            )
            raise InputError(message)


def _with_id(row: Mapping[str, Any]) -> dict[str, Any]:
    (own,) = _as_ids(None if row.get("id") is None else [row["id"]], 1)
    return {**row, "id": own}


def _as_ids(ids: Any, rows: int) -> list[str]:
    """Return ids as text; without any, random ones."""
    if ids is None:
        return new_ids(rows)
    found = [_as_id(one) for one in _listed(ids, "ids")]
    if len(found) != rows:
        message = f"expected {rows:,} ids, one per row, got {len(found):,}."
        raise InputError(message)
    return found


def _as_id(value: Any) -> str:
    return str(_name(value, "an id"))


def _name(value: Any, what: str) -> Name:
    """Return text or a whole number as JSON has them."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, (str, int)) and not isinstance(plain, bool):
        return plain
    message = f"expected {what} as text or a whole number, got {plain!r}."
    raise InputError(message)


def _listed(values: Any, what: str) -> list[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        message = f"expected a list of {what}, got {values!r}. Give a list."
        raise InputError(message)
    return list(values)


def label_entries(
    ids: Any, labels: Any, *, correct: Any, cannot_say: bool
) -> list[dict[str, Any]]:
    """Return what is said of each row, as the service takes it."""
    if isinstance(ids, Mapping) and labels is None:
        ids, labels = list(ids), list(ids.values())
    if (labels is not None) + (correct is not None) + cannot_say != 1:
        message = "expected labels, correct= or cannot_say=True. Give one of them."
        raise InputError(message)
    names = [_as_id(one) for one in _listed(ids, "ids")]
    if cannot_say:
        return [{"id": name, "cannot_say": True} for name in names]
    kind, given, read = "label", labels, _read_label
    if correct is not None:
        kind, given, read = "correct", correct, _read_truth
    values = _listed(given, "labels")
    if len(values) != len(names):
        message = f"expected {len(names):,} labels, one per id, got {len(values):,}."
        raise InputError(message)
    pairs = zip(names, values, strict=True)
    return [{"id": name, kind: read(value)} for name, value in pairs]


def _read_label(value: Any) -> Name:
    """Return a class by name or number; True is neither."""
    if isinstance(value, (bool, np.bool_)):
        message = (
            f"expected a class by name or number, got {bool(value)}. To say whether "
            "predictions were right, call label(ids, correct=...)."
        )
        raise InputError(message)
    return _name(value, "a label")


def _read_truth(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    message = f"expected True or False in correct, got {value!r}."
    raise InputError(message)


def read_version(version: Any) -> int:
    """Return the number of a gate's version."""
    if isinstance(version, int) and not isinstance(version, bool):
        return version
    message = f"expected the number of a version, got {version!r}."
    raise InputError(message)


def read_time(since: datetime | str | None) -> str | None:
    """Return a time as the service takes it, in UTC."""
    if not isinstance(since, datetime):
        return since
    if since.tzinfo is None:
        message = (
            f"expected a time with its time zone, got {since}. Give it as "
            "datetime(..., tzinfo=UTC)."
        )
        raise InputError(message)
    return since.astimezone(UTC).isoformat()


def dumped(content: Any) -> str:
    """Return JSON; arrays become lists."""
    try:
        return json.dumps(content, default=_plain, allow_nan=False)
    except ValueError as error:
        message = (
            "expected finite numbers, got NaN or an infinity, which JSON does not "
            "have. Where a logit is -inf, send probabilities; fix other rows."
        )
        raise InputError(message) from error
    except TypeError as error:
        message = f"expected plain values, lists and arrays: {error}."
        raise InputError(message) from error


def _plain(value: Any) -> Any:
    found = to_numpy(value)
    if found.dtype == object and not found.ndim:
        message = f"got {type(value).__name__}"
        raise TypeError(message)
    return found.tolist()
