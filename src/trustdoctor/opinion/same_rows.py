"""Which rows of several stages are the same: by their ids, or by position if told."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions, is_missing

ABSENT = -1
"""The place of a row that a stage does not have."""


def as_ids(ids: Any) -> Array:
    """Return ids as text, so that 7, 7.0, "7" and " 7" are the same.

    Examples
    --------
    >>> as_ids([7.0, 12.0])
    array(['7', '12'], dtype='<U2')
    """
    given = np.asarray(ids)
    if given.ndim != 1:
        message = f"expected one id per row, got an array of shape {given.shape}."
        raise InputError(message)
    if given.dtype.kind in "iu":
        return given.astype(str)
    values = given.tolist()
    gone = [row for row, value in enumerate(values) if is_missing(value)]
    if gone:
        message = (
            f"expected an id for every row, row {gone[0]} has none. Give it one, or "
            "leave the row out."
        )
        raise InputError(message)
    return np.array(list(map(_text, values)), str)


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.strip()


def name_row(row: int, ids: Array | None) -> str:
    """Return what a row is called, for a message."""
    return f"row {row}" if ids is None else f"id {str(ids[row])!r}"


def find_places(
    known: Mapping[str, Predictions], ids: Array | None, *, by_position: bool
) -> tuple[dict[str, NDArray[np.int64]], Array | None, int | None]:
    """Return where the common rows are in each stage, what they are called, how many.

    The rows are those of `ids`, or of the first stage. How many is None where there is
    no stage with rows of its own.
    """
    first = next((as_ids(p.ids) for p in known.values() if p.ids is not None), None)
    order = first if ids is None else ids
    if not known:
        return {}, order, None if order is None else len(order)
    if by_position or any(p.ids is None for p in known.values()):
        rows = _one_length(known)
        _require_same_order(known, order)
        return dict.fromkeys(known, np.arange(rows)), order, rows
    assert order is not None
    _require_once(order, "the rows")
    places = {name: _places(order, as_ids(p.ids), name) for name, p in known.items()}
    return places, order, len(order)


def _one_length(known: Mapping[str, Predictions]) -> int:
    sizes = {name: len(p) for name, p in known.items()}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
        message = f"expected stages with the same rows, got other numbers: {said}."
        raise InputError(message)
    return next(iter(sizes.values()))


def _require_same_order(known: Mapping[str, Predictions], order: Array | None) -> None:
    """Refuse rows that are said to be in one order, and whose ids say otherwise."""
    for name, said in known.items():
        if order is None or said.ids is None or len(said) != len(order):
            continue
        other = as_ids(said.ids) != order
        if other.any():
            row = int(other.argmax())
            message = (
                f"expected rows in the same order, as by_position says, but row {row} "
                f"of {name} has the id {str(as_ids(said.ids)[row])!r}, not "
                f"{str(order[row])!r}. Leave by_position out: ids match rows."
            )
            raise InputError(message)


def _require_once(ids: Array, name: str) -> None:
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        again = str(values[int(counts.argmax())])
        message = (
            f"expected every id once, {again!r} comes {counts.max()} times in {name}. "
            "Give ids that tell rows apart."
        )
        raise InputError(message)


def _places(order: Array, own: Array, name: str) -> NDArray[np.int64]:
    """Return where the rows of these ids are in what a stage said."""
    _require_once(own, name)
    by_id = np.argsort(own)
    at = np.searchsorted(own, order, sorter=by_id)
    found = by_id[np.minimum(at, len(own) - 1)]
    return np.where(own[found] == order, found, ABSENT)


def require_ids(
    known: Mapping[str, Predictions], ids: Any, *, files: bool, asks: bool
) -> None:
    """Refuse rows of which some can be matched by id and some cannot."""
    named = {name for name, p in known.items() if p.ids is not None}
    complete = named == set(known) and (ids is not None or not asks)
    if complete or not (named or files):
        return
    bare = next((name for name in known if name not in named), None)
    if bare is None:
        message = (
            "expected ids of the rows in data, since the other stages match rows by "
            "id. Pass ids=, or say that rows are in the same order: by_position=True."
        )
        raise InputError(message)
    message = (
        f"expected ids in every stage, {bare} has none, so rows cannot be matched. "
        "Name the column of ids (--ids NAME, ids='NAME'), or say that rows are in the "
        "same order: --by-position, by_position=True."
    )
    raise InputError(message)


def require_all(
    name: str,
    places: NDArray[np.int64],
    rows: Array,
    said: Predictions,
    ids: Array | None,
) -> None:
    """Refuse a stage that lacks some of the rows, or has rows of other ids."""
    lost = rows[places[rows] == ABSENT]
    if len(lost):
        message = (
            f"expected the same ids in every stage, {len(lost):,} are not in {name}, "
            f"the first is {name_row(lost[0], ids)}. Calibration needs every stage's "
            "answer to every labelled row."
        )
        raise InputError(message)
    used = np.zeros(len(said), bool)
    used[places[places != ABSENT]] = True
    if not used.all():
        first = name_row(int((~used).argmax()), as_ids(said.ids))
        message = (
            f"expected the same ids in every stage, {int((~used).sum()):,} are only in "
            f"{name}, the first is {first}. Leave those rows out."
        )
        raise InputError(message)
