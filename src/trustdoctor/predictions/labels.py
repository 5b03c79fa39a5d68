"""True labels as class numbers: from numbers, names, booleans and one-hot rows."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_labels, describe, refuse_rows, to_numpy
from trustdoctor.errors import InputError, RowError

_WHOLE = re.compile(r"^([+-]?[0-9]+)\.0+$")

UNKNOWN = -1
"""The label of a row that has none."""


def plain_name(name: Any) -> str:
    """Return a name as names are compared: in Unicode's NFC, without outer blanks."""
    return unicodedata.normalize("NFC", str(name)).strip()


def compared_name(value: Any) -> str:
    """Return a name as names are compared; "" where there is none.

    3, 3.0 and "3.0" are one name, and so are true, "True" and "TRUE".

    Examples
    --------
    >>> [compared_name(value) for value in (3.0, " 3 ", True, "TRUE", float("nan"))]
    ['3', '3', 'true', 'true', '']
    """
    if is_missing(value):
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = _WHOLE.sub(r"\1", plain_name(value))
    return text.lower() if text.lower() in ("true", "false") else text


def folded_name(name: str) -> str:
    """Return what names share that differ in case, spaces or Unicode form alone.

    Examples
    --------
    >>> folded_name("New\u00a0York ") == folded_name("new york")
    True
    """
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def as_entries(values: Any) -> NDArray[Any]:
    """Return an array in which a text beside a number does not make it a text."""
    mixed = isinstance(values, (list, tuple)) and any(
        isinstance(value, str) for value in values
    )
    if not mixed:
        return to_numpy(values)
    out = np.empty(len(values), object)
    out[:] = values
    return out


def number_labels(
    labels: Any, rows: int, classes: int, *, names: Sequence[str] | None = None
) -> NDArray[np.int64] | None:
    """Return labels as numbers of classes, `UNKNOWN` where one is missing.

    None, NaN and an empty text are missing. Texts are matched to the names of classes,
    where there are some. None where no row has a label.
    """
    if labels is None:
        return None
    given = as_entries(labels)
    if given.shape != (rows,):
        message = (
            f"expected labels as {rows} entries, one per row, got {describe(given)}. "
            "Give each row the number or the name of its class."
        )
        raise InputError(message)
    known = _known(given)
    if not known.any():
        return None
    out = np.full(rows, UNKNOWN, np.int64)
    found = _numbers(given[known], np.flatnonzero(known), classes, names)
    try:
        numbered = as_labels(found, len(found), classes)
    except RowError as error:  # its row is among those that have a label
        raise RowError(error.message, int(np.flatnonzero(known)[error.row])) from None
    assert numbered is not None
    out[known] = numbered
    return out


def _known(given: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which entries are there."""
    if given.dtype.kind == "f":
        return ~np.isnan(given)
    if given.dtype.kind in "UT":
        return np.char.strip(given.astype(str)) != ""
    if given.dtype == object:
        return np.array([not is_missing(value) for value in given], bool)
    return np.ones(len(given), bool)


def is_missing(value: Any) -> bool:
    """Tell whether a value stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def _numbers(
    given: NDArray[Any],
    at: NDArray[np.int64],
    classes: int,
    names: Sequence[str] | None,
) -> NDArray[Any]:
    """Return entries that are there as numbers; names are looked up."""
    if given.dtype.kind in "iuf":
        return given
    if given.dtype.kind == "b":
        return given.astype(np.int64)
    values = given.tolist()
    if all(isinstance(value, (bool, int, float, np.number)) for value in values):
        return np.array(values, float)
    if names is None:
        message = (
            f"expected labels from 0 to {classes - 1}, got {values[0]!r} at row "
            f"{{row}}. Pass class_names, one per class in the order of the columns."
        )
        raise RowError(message, int(at[0]))
    number = {compared_name(name): i for i, name in enumerate(names)}
    found = np.array([number.get(compared_name(value), UNKNOWN) for value in values])
    odd = found == UNKNOWN
    if odd.any():
        first = int(odd.argmax())
        message = not_a_class(values[first], names)
        raise RowError(message, int(at[first]))
    return found


def not_a_class(label: Any, names: Sequence[str]) -> str:
    """Say that a label is not the name of a class."""
    shown = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
    advice = "Name that class's column as well, or fix the label."
    alike = [name for name in names if folded_name(name) == folded_name(str(label))]
    if alike:
        advice = (
            f"It differs from {alike[0]!r} only in case, spaces or its Unicode form: "
            "write them alike."
        )
    return (
        f"expected labels out of the classes {shown}, got {label!r} at row {{row}}. "
        f"{advice}"
    )


def number_correct(correct: Any, rows: int) -> NDArray[np.int64] | None:
    """Return 0 where an answer is right, 1 where it is wrong, `UNKNOWN` otherwise."""
    if correct is None:
        return None
    given = to_numpy(correct)
    values = given
    if given.dtype == object:
        values = np.array(
            [np.nan if is_missing(v) else _truth(v) for v in given.ravel()]
        )
    if given.shape != (rows,) or values.dtype.kind not in "biuf":
        message = (
            f"expected correct as {rows} booleans, one per row (True where the answer "
            f"is right), got {describe(given)}."
        )
        raise InputError(message)
    known = _known(values)
    refuse_rows(known & ~np.isin(values, (0, 1)), "correct is not True or False")
    if not known.any():
        return None
    return np.where(known, np.where(values == 1, 0, 1), UNKNOWN).astype(np.int64)


def _truth(value: Any) -> float:
    return float(value) if isinstance(value, (bool, int, float, np.number)) else 2.0
