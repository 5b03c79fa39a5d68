"""Checks that rows are probabilities, or that they are logits, with precise errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Bools, Floats, refuse_rows
from trustdoctor.errors import InputError, RowError

PROBS_TOLERANCE = 0.01
"""How far any row of probabilities may be from summing to 1."""

ROUNDED_TOLERANCE = 0.05
"""How far a row may be if rounding to few decimals explains it."""

MIN_SIMPLEX_ROWS = 10
"""From this many rows on it is no accident that all of them are probability vectors."""

_SUM_TOLERANCE = PROBS_TOLERANCE * (1 + 1e-9)  # so that 1.01 is within 0.01 of 1
_DECIMALS = (1, 2, 3, 4, 5)  # six explain a miss of 0.01 from 20,000 classes on


def largest_sum_error(array: Floats) -> float:
    """Return how far the farthest row is from summing to 1; refuse what is too far.

    Rounding to d decimals changes each value by 10^-d / 2 at most, so the sum of C of
    them by C times that; more than `ROUNDED_TOLERANCE` is refused in any case.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(1, dtype=np.float64)
        sum_errors = np.abs(total - 1)
    invalid = (array < 0).any(1) | ~(sum_errors <= _SUM_TOLERANCE)
    suspects = np.flatnonzero(invalid)
    if len(suspects):
        invalid[suspects] = ~_rounded_rows(array[suspects], sum_errors[suspects])
    if invalid.any():
        raise RowError(_not_probabilities(array, total, invalid), int(invalid.argmax()))
    return float(sum_errors.max())


def divide_by_sums(array: Floats) -> Floats:
    """Return probabilities of one class against the rest, each row divided by its sum.

    Examples
    --------
    >>> divide_by_sums(np.array([[0.9, 0.6]]))
    array([[0.6, 0.4]])
    """
    probs = array.astype(np.float64)
    refuse_rows(~((probs >= 0) & (probs <= 1)).all(1), "a value is not from 0 to 1")
    total = probs.sum(1, keepdims=True)
    refuse_rows(total[:, 0] == 0, "every class has the probability 0")
    return (probs / total).astype(np.promote_types(array.dtype, np.float32))


def _rounded_rows(rows: Floats, sum_errors: Floats) -> Bools:
    """Tell which rows miss the sum 1 by no more than their rounding explains."""
    unit = _last_decimal(rows)
    allowed = np.minimum(unit * rows.shape[1] / 2, ROUNDED_TOLERANCE)
    valid = (rows >= 0).all(1) & (rows <= 1).all(1)
    return np.asarray(valid & (sum_errors <= allowed * (1 + 1e-9)))


def _last_decimal(rows: Floats) -> Floats:
    """Return the unit of each row's last decimal; 0 for more than five decimals."""
    units = np.zeros(len(rows))
    for digits in reversed(_DECIMALS):
        scaled = np.clip(rows.astype(np.float64), -2, 2) * 10**digits
        exact = (np.abs(scaled - np.rint(scaled)) < 1e-3).all(1)
        units[exact] = 10.0**-digits
    return units


def _not_probabilities(array: Floats, total: Floats, invalid: Bools) -> str:
    row = int(invalid.argmax())
    count = f"{int(invalid.sum())} of {len(array)} rows"
    median = float(np.median(total))
    if abs(median - 100) <= 5 and np.mean((array >= 0).all(1)) > 0.5:
        return (
            "expected probabilities, got percentages (rows sum to 100). Divide by 100, "
            "or give --percent on the command line (percent=True)."
        )
    outside = (array < -0.01).any() or (array > 1.01).any()
    if invalid.mean() > 0.5 and outside and array.min() >= 0 and array.max() <= 100.5:
        return (
            f"expected probabilities, got values from {array.min():.4g} to "
            f"{array.max():.4g} whose rows sum neither to 1 nor to 100 (row {{row}} "
            f"sums to {total[row]:.4g}). They look like logits (from_logits; "
            "--logits), or like percentages of one class against the rest (divide by "
            "100 and pass one_vs_rest=True; --percent --one-vs-rest)."
        )
    if invalid.mean() > 0.5 and outside:
        return (
            "expected probabilities, but these look like logits (row {row} runs from "
            f"{array[row].min():.4g} to {array[row].max():.4g} and sums to "
            f"{total[row]:.4g}). Use from_logits, or --logits on the command line."
        )
    unit = float(_last_decimal(array[row : row + 1])[0])
    rounding = array.shape[1] * unit / 2  # the most that rounding can change the sum
    if (
        unit
        and (array[row] >= 0).all()
        and abs(total[row] - 1) <= rounding * (1 + 1e-9)
    ):
        digits = round(-np.log10(unit))
        decimals = "1 decimal" if digits == 1 else f"{digits} decimals"
        return (
            f"expected probabilities that sum to 1, got a row that sums to "
            f"{total[row]:.6g} at row {{row}} ({count}): they have {decimals}, which "
            "is too few. Write them with more decimals."
        )
    if array[row].min() >= 0 and array[row].max() <= 1:
        return (
            f"expected probabilities that sum to 1, got a row that sums to "
            f"{total[row]:.6g} at row {{row}} ({count}; the median is {median:.4g}). "
            "If each is of one class against the rest, --one-vs-rest "
            "(one_vs_rest=True) divides each row by its sum. If a class is missing, "
            "name its column, too. If they are rounded, write more decimals. Several "
            "labels per row (tags) are not supported yet. Otherwise fix those rows."
        )
    if array[row].min() < 0:
        problem = f"the probability {array[row].min():.4g} at row {{row}}"
    else:
        problem = f"a row that sums to {total[row]:.6g} at row {{row}}"
    return (
        f"expected probabilities, none negative and each row summing to 1 within "
        f"{PROBS_TOLERANCE}, got {problem} ({count}). If a class is missing, name its "
        "column, too; if they are logits, use from_logits (--logits); otherwise fix "
        "those rows."
    )


_ASSUME_LOGITS = ContextVar("decided", default=False)


@contextmanager
def assume_logits() -> Iterator[None]:
    """Skip `refuse_probabilities` within: the whole file has been checked, not a part.

    A batch of ten rows may look like probabilities where the file does not.
    """
    token = _ASSUME_LOGITS.set(True)
    try:
        yield
    finally:
        _ASSUME_LOGITS.reset(token)


def refuse_probabilities(logits: NDArray[Any]) -> None:
    """Refuse 10 or more rows of "logits" that are all probability vectors."""
    if (
        _ASSUME_LOGITS.get()
        or logits.ndim < 2
        or logits.dtype.kind not in "fiu"
        or not logits.shape[-1]
    ):
        return
    rows = logits.reshape(-1, logits.shape[-1])
    if len(rows) >= MIN_SIMPLEX_ROWS and on_simplex(rows):
        raise InputError(NOT_LOGITS)


NOT_LOGITS = (
    "expected logits, but all rows are probabilities (not negative, sum 1). "
    "Use Predictions.from_probs, or --probs on the command line."
)


def on_simplex(array: NDArray[Any]) -> bool:
    """Tell whether all rows are probability vectors."""
    # The first row answers for nearly every array of logits, at no cost.
    for rows in (array[:1], array):
        if float(rows.min()) < 0:
            return False
        with np.errstate(over="ignore"):
            total = np.asarray(rows.sum(1, dtype=np.float64))
        if not (np.abs(total - 1) <= _SUM_TOLERANCE).all():
            return False
    return True
