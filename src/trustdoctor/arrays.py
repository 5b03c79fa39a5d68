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
    """Return a number as a float; one that is too large for a float is infinite.

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
    except OverflowError:  # an integer, or a fraction
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def shown_number(value: Any) -> str:
    """Return a value as text, for a message.

    Examples
    --------
    >>> shown_number(0.5), shown_number(10**5000)
    ('0.5', 'inf')
    """
    try:
        return repr(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return repr(as_real(value, "it"))


def to_numpy(array: Any) -> NDArray[Any]:
    """Return a list, a numpy array or a torch tensor of any device as numpy array."""
    if hasattr(array, "detach"):  # a torch tensor, without importing torch
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # numpy has no such type
            array = array.float()
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        message = "expected plain arrays, got one with masked entries. Fill them first."
        raise InputError(message)
    try:
        converted = np.asarray(array)
    except ValueError as error:
        message = (
            "expected rows of equal length, got ragged rows. Give every row the "
            "same number of classes."
        )
        raise InputError(message) from error
    if not converted.dtype.isnative:  # big-endian, as some files are
        converted = converted.astype(converted.dtype.newbyteorder("="))
    return converted


def read_only(array: NDArray[Any], source: Any) -> NDArray[Any]:
    """Return an array that nobody can change: a copy if others could write to it.

    `array` is what `to_numpy` returned for `source`.
    """
    # Other types may return their own memory without numpy knowing of it.
    known_type = isinstance(source, (np.ndarray, list, tuple))
    is_new = known_type and array is not source and array.base is None
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    is_shared = not is_new and (array.flags.writeable or owner.flags.writeable)
    array = array.copy() if is_shared else array.view()
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
        row = int(np.isnan(array).argmax())
        message = f"expected scores without NaN, got NaN at row {row}. Fix that row."
        raise InputError(message)
    return array


def as_errors(errors: Any, *, rows: int) -> Bools:
    """Check errors: one bool (or 0 or 1) per row, True if the prediction is wrong."""
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
    array = to_numpy(labels)
    if array.shape != (rows,) or array.dtype.kind not in "iuf":
        message = (
            f"expected labels as {rows} integers, one per row, got {describe(array)}. "
            "Number the classes 0 to C-1 in the order of the columns."
        )
        raise InputError(message)
    if array.dtype.kind == "f":
        refuse_rows(np.isnan(array), "the label is missing")
        refuse_rows(array != np.floor(array), "the label is not a whole number")
    outside = (array < 0) | (array >= classes)
    if outside.any():
        row = int(outside.argmax())
        message = (
            f"expected labels from 0 to {classes - 1} for {classes} classes, got "
            f"{array[row]:g} at row {{row}}. Number the classes from 0."
        )
        raise RowError(message, row)
    return array.astype(np.int64)


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


def refuse_rows(bad: Any, problem: str) -> None:
    """Refuse arrays with bad rows: name the first, and count them."""
    if bad.any():
        message = (
            f"{problem} at row {{row}} ({int(bad.sum())} of {len(bad)} "
            "rows). Fix or remove those rows."
        )
        raise RowError(message, int(bad.argmax()))


def describe(array: NDArray[Any]) -> str:
    """Return the type and the shape of an array, for messages."""
    return f"{array.dtype} of shape {array.shape}"


def as_features(
    features: Any, *, rows: int | None = None, width: int | None = None
) -> Array:
    """Check features: finite numbers (n, d)."""
    x = to_numpy(features)
    expected_rows = "n" if rows is None else str(rows)
    bad_shape = x.ndim != 2 or (rows is not None and len(x) != rows) or len(x) == 0
    if bad_shape or x.dtype.kind not in "fiub":
        message = f"expected finite features ({expected_rows}, d), got {describe(x)}."
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
    if array.dtype == object:  # pandas holds strings, and some integers, as objects
        types = {type(np.asarray(group).item()) for group in array.ravel()}
        dtype = {str: str, int: np.int64}.get(types.pop()) if len(types) == 1 else None
        array = array if dtype is None else array.astype(dtype)
    if array.shape != (rows,) or array.dtype.kind not in "iuUT":
        message = (
            f"expected groups as {rows} integers or strings, one per row, got "
            f"{describe(array)}."
        )
        raise InputError(message)
    return array


def row_numbers(rows: Any, n: int) -> Any:
    """Check an index of rows: a slice, a mask of `n` booleans, or row numbers."""
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


_BLOCK_ROWS = 64


def row_product(rows: Array, matrix: Array) -> Array:
    """Return rows (n, d) times a matrix (d, k).

    The product of a row does not depend, to the bit, on the other rows.
    """
    # BLAS sums in another order for another number of rows, so it always gets the same
    # number: blocks of rows, the last one padded with zeros.
    n, d = rows.shape
    product = np.empty((n, matrix.shape[1]))
    for start in range(0, n, _BLOCK_ROWS):
        block_rows = rows[start : start + _BLOCK_ROWS]
        block = np.zeros((_BLOCK_ROWS, d))
        block[: len(block_rows)] = block_rows
        with np.errstate(over="ignore", invalid="ignore"):
            block_product = block @ matrix
        product[start : start + len(block_rows)] = block_product[: len(block_rows)]
    return product
