"""Arrays from anywhere, checked once: numpy, lists, and tensors of any device."""

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError, RowError

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]


def as_real(value: Any, name: str) -> float:
    """Return a number as a float; one beyond all floats is infinite.

    Examples
    --------
    >>> as_real(1, "risk"), as_real(-(10**400), "risk")
    (1.0, -inf)
    """
    if not isinstance(value, Real):
        message = f"expected a number as {name}, got {value!r}."
        raise InputError(message)
    try:
        return float(value)
    except OverflowError:  # a whole number, or a fraction
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def shown_number(value: Any) -> str:
    """Return a value for a message.

    Python does not write whole numbers of more than 4,300 digits.

    Examples
    --------
    >>> shown_number(0.5), shown_number(10**5000)
    ('0.5', 'inf')
    """
    try:
        return repr(value)
    except ValueError:
        return repr(as_real(value, "it"))


def to_numpy(array: Any) -> NDArray[Any]:
    """Bring a list, a numpy array or a torch tensor of any device to numpy."""
    if hasattr(array, "detach"):  # a torch tensor, without importing torch
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # numpy has no such type
            array = array.float()
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        message = "expected plain arrays, got one with masked entries. Fill them first."
        raise InputError(message)
    try:
        found = np.asarray(array)
    except ValueError as error:
        message = (
            "expected rows of equal length, got ragged rows. Give every row the "
            "same number of classes."
        )
        raise InputError(message) from error
    if not found.dtype.isnative:  # big-endian, as some files are
        found = found.astype(found.dtype.newbyteorder("="))
    return found


def keep(array: NDArray[Any], given: Any) -> NDArray[Any]:
    """Return an array that nobody can change: a copy where others may write to it."""
    known = isinstance(given, (np.ndarray, list, tuple))  # others may hand out theirs
    fresh = known and array is not given and array.base is None
    under: Any = array
    while isinstance(under.base, np.ndarray):
        under = under.base
    shared = not fresh and (array.flags.writeable or under.flags.writeable)
    array = array.copy() if shared else array.view()
    array.flags.writeable = False
    return array


def as_scores(scores: Any) -> Floats:
    """Check doubt scores: one float per row, no NaN."""
    array = to_numpy(scores)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        message = (
            f"expected scores of shape (n,), one number per row, got "
            f"{describe(array)}. Score the rows first, e.g. alpha(logits)."
        )
        raise InputError(message)
    if len(array) == 0:
        message = "expected at least one score, got none."
        raise InputError(message)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if np.isnan(array).any():
        at = int(np.isnan(array).argmax())
        message = f"expected scores without NaN, got NaN at row {at}. Fix that row."
        raise InputError(message)
    return array


def as_errors(errors: Any, *, rows: int) -> Bools:
    """Check errors: one bool (or 0 and 1) per row, True where a prediction is wrong."""
    array = to_numpy(errors)
    if array.dtype.kind in "iu" and not ((array == 0) | (array == 1)).all():
        message = (
            "expected errors as booleans (True = misclassified), got integers other "
            "than 0 and 1. Pass predicted != labels."
        )
        raise InputError(message)
    if array.shape != (rows,) or array.dtype.kind not in "biu":
        message = (
            f"expected errors as {rows} booleans, one per score, got "
            f"{describe(array)}. Pass predicted != labels of the same rows."
        )
        raise InputError(message)
    return array.astype(bool, copy=False)


def as_labels(labels: Any, rows: int, classes: int) -> NDArray[np.int64] | None:
    """Check labels: one class from 0 to C - 1 per row."""
    if labels is None:
        return None
    given = to_numpy(labels)
    if given.shape != (rows,) or given.dtype.kind not in "iuf":
        message = (
            f"expected labels as {rows} integers, one per row, got {describe(given)}. "
            "Number the classes 0 to C-1 in the order of the columns."
        )
        raise InputError(message)
    if given.dtype.kind == "f":
        refuse_rows(np.isnan(given), "the label is missing")
        refuse_rows(given != np.floor(given), "the label is not a whole number")
    outside = (given < 0) | (given >= classes)
    if outside.any():
        at = int(outside.argmax())
        message = (
            f"expected labels from 0 to {classes - 1} for {classes} classes, got "
            f"{given[at]:g} at row {{row}}. Number the classes from 0."
        )
        raise RowError(message, at)
    return given.astype(np.int64)


def as_classes(labels: Any) -> tuple[NDArray[Any], int]:
    """Return labels as one class per row, and the number of classes of one-hot rows.

    Parameters
    ----------
    labels : array (n,), (n, 1) or one-hot (n, C)

    Returns
    -------
    classes : array (n,)
    width : int
        C for one-hot rows, otherwise 0: not known.

    Examples
    --------
    >>> as_classes([[0, 1, 0], [1, 0, 0]])
    (array([1, 0]), 3)
    >>> as_classes([2, 0])
    (array([2, 0]), 0)
    """
    array = to_numpy(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        message = (
            f"expected labels as one class per row, or one-hot rows (n, C), got "
            f"{describe(array)}. Number the classes from 0; inputs= and labels= name "
            "the parts of a batch."
        )
        raise InputError(message)
    if array.ndim == 2:
        return _one_hot_classes(array), array.shape[1]
    if array.dtype.kind == "f":
        refuse_rows(array % 1 > 0, "the label is not a whole number")
        return (array if np.isnan(array).any() else array.astype(np.int64)), 0
    return array.astype(np.int64), 0


def _one_hot_classes(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the column of the 1 in each row, refusing rows that are not one-hot."""
    if ((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all():
        return rows.argmax(1)
    soft = (rows >= 0).all() and np.allclose(rows.sum(1, dtype=float), 1, atol=1e-3)
    got = "soft labels" if soft else "rows that are not one-hot"
    message = (
        f"expected labels as one class per row, or one-hot rows of a single 1, got "
        f"{got} ({describe(rows)}). Give the class of each row, as labels.argmax(1) "
        "does; inputs= and labels= name the parts of a batch."
    )
    raise InputError(message)


def refuse_rows(bad: Any, what: str) -> None:
    """Refuse arrays with bad rows, naming the first and how many there are."""
    if bad.any():
        message = (
            f"{what} at row {{row}} ({int(bad.sum())} of {len(bad)} "
            "rows). Fix or remove those rows."
        )
        raise RowError(message, int(bad.argmax()))


def describe(array: NDArray[Any]) -> str:
    """Say what an array is, for messages."""
    return f"{array.dtype} of shape {array.shape}"


def as_features(
    features: Any, *, rows: int | None = None, width: int | None = None
) -> Array:
    """Check features: finite numbers (n, d)."""
    x = to_numpy(features)
    many = "n" if rows is None else str(rows)
    wrong = x.ndim != 2 or (rows is not None and len(x) != rows) or len(x) == 0
    if wrong or x.dtype.kind not in "fiub":
        message = (
            f"expected finite features ({many}, d), got {x.dtype} of shape {x.shape}."
        )
        raise InputError(message)
    x = x.astype(np.float64)
    if width is not None and x.shape[1] != width:
        message = f"expected {width} features per row, as in the fit, got {x.shape[1]}."
        raise InputError(message)
    bad = ~np.isfinite(x).all(1)
    if bad.any():
        message = "expected finite features, got NaN or infinity at row {row}."
        raise RowError(message, int(bad.argmax()))
    return x


def as_groups(groups: Any, *, rows: int) -> NDArray[Any]:
    """Check groups: one integer or string per row."""
    array = to_numpy(groups)
    if array.dtype == object:  # strings, or integers, that pandas holds as objects
        kinds = {type(np.asarray(g).item()) for g in array.ravel()}
        plain = {str: str, int: np.int64}.get(kinds.pop()) if len(kinds) == 1 else None
        array = array if plain is None else array.astype(plain)
    if array.shape != (rows,) or array.dtype.kind not in "iuUT":
        message = (
            f"expected groups as {rows} integers or strings, one per row, got "
            f"{array.dtype} of shape {array.shape}."
        )
        raise InputError(message)
    return array


def row_numbers(rows: Any, n: int) -> Any:
    """Check what picks rows: a slice, a mask of `n` booleans, or row numbers."""
    if isinstance(rows, slice):
        return rows
    array = to_numpy(rows)
    if isinstance(rows, list) and not rows:
        return np.zeros(0, np.int64)
    if array.ndim == 1 and array.dtype == bool and len(array) == n:
        return array
    if array.ndim == 1 and array.dtype.kind in "iu":
        if len(array) and not -n <= int(array.min()) <= int(array.max()) < n:
            message = f"expected row numbers from 0 to {n - 1}, got others."
            raise InputError(message)
        return array
    message = (
        f"expected a slice, a mask of {n} booleans or row numbers, got "
        f"{describe(array)}. For one row write p[3:4]."
    )
    raise InputError(message)


_BLOCK = 64


def row_product(rows: Array, matrix: Array) -> Array:
    """Return rows (n, d) times a matrix (d, k), each row to the bit as it is alone.

    BLAS sums in another order for another number of rows. It is therefore always given
    as many: blocks of rows, the last one filled up with zeros.
    """
    n, d = rows.shape
    out = np.empty((n, matrix.shape[1]))
    for start in range(0, n, _BLOCK):
        part = rows[start : start + _BLOCK]
        block = np.zeros((_BLOCK, d))
        block[: len(part)] = part
        with np.errstate(over="ignore", invalid="ignore"):
            out[start : start + len(part)] = (block @ matrix)[: len(part)]
    return out
