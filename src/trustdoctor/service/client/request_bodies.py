"""The bodies of a client's requests: rows and labels, checked, of bounded size."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from trustdoctor.arrays import to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.service.times import new_ids

ROWS = 1_000
"""Rows or labels in one request; further ones are sent in the next."""

BODY = 4_000_000
"""Bytes of one request, roughly, with several rows."""

_NUMBER = 24
"""Characters of a number in JSON, at most: "-1.7976931348623157e+308"."""

Name = str | int
RowsRequest = tuple[list[str], str]
"""The ids of some rows, and the JSON that asks about them."""


def are_dicts(rows: Any) -> bool:
    """Tell whether rows are a dict or dicts; refuse what cannot be rows."""
    if rows is None or isinstance(rows, (Mapping, Predictions)):
        return isinstance(rows, Mapping)
    is_list = isinstance(rows, Sequence) and not isinstance(rows, (str, bytes))
    if is_list and rows and all(isinstance(row, Mapping) for row in rows):
        return True
    message = (
        "expected rows as a dict, a list of dicts or Predictions, got "
        f"{'an empty list' if is_list and not rows else type(rows).__name__}. Give "
        "arrays by name: logits= or probs=."
    )
    raise InputError(message)


def row_request(row: Mapping[str, Any]) -> RowsRequest:
    """Return the request about one row, which is answered by one object."""
    (name,) = _checked_ids(None if row.get("id") is None else [row["id"]], 1)
    return [name], to_json({**row, "id": name})


def row_requests(rows: Sequence[Mapping[str, Any]]) -> Iterator[RowsRequest]:
    """Yield requests about rows."""
    requests = [row_request(row) for row in rows]
    for batch in _batches([len(body) for _, body in requests]):
        ids = [name for (name,), _ in requests[batch]]
        bodies = ",".join(body for _, body in requests[batch])
        yield ids, f'{{"rows":[{bodies}]}}'


def column_requests(
    rows: Predictions | None,
    logits: Any,
    probs: Any,
    ids: Any,
    optional_columns: Mapping[str, Any],
) -> tuple[Predictions, Iterator[RowsRequest]]:
    """Return predictions, and requests about their rows."""
    p = _predictions(rows, logits, probs)
    columns = _output_columns(p)
    if probs is not None:
        # As given: Predictions hold logarithms, and exp(log(p)) may differ from p.
        columns["probs"] = to_numpy(probs)
    columns["ids"] = _checked_ids(p.ids if ids is None else ids, len(p))
    for name, option in optional_columns.items():
        values = getattr(p, name, None) if option is None else option
        if values is not None:
            columns[name] = _checked_column(name, values, len(p))
    return p, _batch_requests(columns, len(p))


def _predictions(rows: Any, logits: Any, probs: Any) -> Predictions:
    if logits is not None:
        return Predictions.from_logits(logits)
    return rows if probs is None else Predictions.from_probs(probs)


def _output_columns(p: Predictions) -> dict[str, Any]:
    """Return the output of a classifier as columns of a request."""
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


def _checked_column(name: str, values: Any, rows: int) -> Any:
    column = list(values) if name == "payloads" else to_numpy(values)
    if len(column) != rows:
        message = f"expected {rows:,} {name}, one per row, got {len(column):,}."
        raise InputError(message)
    return column


def _batch_requests(columns: dict[str, Any], rows: int) -> Iterator[RowsRequest]:
    for batch in _batches(_row_sizes(columns, rows)):
        content = {name: _sliced(column, batch) for name, column in columns.items()}
        yield content["ids"], to_json(content)


def _sliced(column: Any, batch: slice) -> Any:
    if isinstance(column, dict):  # topk has two columns
        return {name: inner[batch] for name, inner in column.items()}
    return column[batch]


def _row_sizes(columns: Mapping[str, Any], rows: int) -> list[int]:
    """Return roughly how many bytes each row takes."""
    arrays = [*columns.values(), *columns.get("topk", {}).values()]
    cells = sum(array[:1].size for array in arrays if isinstance(array, np.ndarray))
    payloads = columns.get("payloads", [None] * rows)
    return [_NUMBER * cells + len(to_json(payload)) for payload in payloads]


def _batches(sizes: Sequence[int]) -> Iterator[slice]:
    """Cut rows into batches of neither too many rows nor too many bytes."""
    first = batch_size = 0
    for row, size in enumerate(sizes):
        if row > first and (row - first == ROWS or batch_size + size > BODY):
            yield slice(first, row)
            first, batch_size = row, 0
        batch_size += size
    yield slice(first, len(sizes))


def check_names(p: Predictions, predicted: Sequence[Name | None]) -> None:
    """Refuse decisions that call a column by another name than the predictions do."""
    names = p.class_names
    if names is None or isinstance(p, Answers):
        return
    for column, answered in zip(p.predicted.tolist(), predicted, strict=True):
        if isinstance(answered, str) and answered != names[column]:
            message = (
                f"expected class {column} to be {names[column]!r}, the service calls "
                f"it {answered!r}. Put the columns into the order of its gate's "
                "classes; the decisions are stored."
            )
            raise InputError(message)


def _checked_ids(ids: Any, rows: int) -> list[str]:
    """Return ids as text; without any, random ones."""
    if ids is None:
        return new_ids(rows)
    texts = [_checked_id(value) for value in _checked_list(ids, "ids")]
    if len(texts) != rows:
        message = f"expected {rows:,} ids, one per row, got {len(texts):,}."
        raise InputError(message)
    return texts


def _checked_id(value: Any) -> str:
    return str(_checked_name(value, "an id"))


def _checked_name(value: Any, what: str) -> Name:
    """Return text or a whole number, as JSON has them."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, (str, int)) and not isinstance(plain, bool):
        return plain
    message = f"expected {what} as text or a whole number, got {plain!r}."
    raise InputError(message)


def _checked_list(values: Any, what: str) -> list[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        message = f"expected a list of {what}, got {values!r}. Give a list."
        raise InputError(message)
    return list(values)


def label_entries(
    ids: Any, labels: Any, *, correct: Any, cannot_say: bool
) -> list[dict[str, Any]]:
    """Return one entry per row, as the service takes labels."""
    if isinstance(ids, Mapping) and labels is None:
        ids, labels = list(ids), list(ids.values())
    if (labels is not None) + (correct is not None) + cannot_say != 1:
        message = "expected labels, correct= or cannot_say=True. Give one of them."
        raise InputError(message)
    names = [_checked_id(value) for value in _checked_list(ids, "ids")]
    if cannot_say:
        return [{"id": name, "cannot_say": True} for name in names]
    field: str = "label"
    check: Callable[[Any], Name] = _checked_label
    if correct is not None:
        field, labels, check = "correct", correct, _checked_flag
    values = _checked_list(labels, "labels")
    if len(values) != len(names):
        message = f"expected {len(names):,} labels, one per id, got {len(values):,}."
        raise InputError(message)
    pairs = zip(names, values, strict=True)
    return [{"id": name, field: check(value)} for name, value in pairs]


def _checked_label(value: Any) -> Name:
    """Return a class by name or number; True is neither."""
    if isinstance(value, (bool, np.bool_)):
        message = (
            f"expected a class by name or number, got {bool(value)}. To say whether "
            "predictions were right, call label(ids, correct=...)."
        )
        raise InputError(message)
    return _checked_name(value, "a label")


def _checked_flag(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    message = f"expected True or False in correct, got {value!r}."
    raise InputError(message)


def checked_version(version: Any) -> int:
    """Return the number of a gate's version."""
    if isinstance(version, int) and not isinstance(version, bool):
        return version
    message = f"expected the number of a version, got {version!r}."
    raise InputError(message)


def time_in_utc(time: datetime | str | None) -> str | None:
    """Return a time as the service takes it, in UTC; text stays as it is."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        message = (
            f"expected a time with its time zone, got {time}. Give it as "
            "datetime(..., tzinfo=UTC)."
        )
        raise InputError(message)
    return time.astimezone(UTC).isoformat()


def to_json(content: Any) -> str:
    """Return JSON; arrays become lists."""
    try:
        return json.dumps(content, default=_as_list, allow_nan=False)
    except ValueError as error:
        message = (
            "expected finite numbers, got NaN or an infinity, which JSON does not "
            "have. If a logit is -inf, send probabilities; fix other rows."
        )
        raise InputError(message) from error
    except TypeError as error:
        message = f"expected plain values, lists and arrays: {error}."
        raise InputError(message) from error


def _as_list(value: Any) -> Any:
    array = to_numpy(value)
    if array.dtype == object and not array.ndim:
        message = f"got {type(value).__name__}"
        raise TypeError(message)
    return array.tolist()
