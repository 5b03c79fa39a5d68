"""Whether numbers are probabilities, or logits, and what to say where they are not."""

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
"""How far a row may be whose decimals are few enough to explain it."""

ENOUGH = 10
"""So many rows that are all probability vectors do not come about by chance."""

_MISS = PROBS_TOLERANCE * (1 + 1e-9)  # so that 1.01 is within 0.01 of 1
_DECIMALS = (1, 2, 3, 4, 5)  # those of more hardly ever explain that much


def missed_sums(array: Floats) -> float:
    """Return how far the farthest row is from summing to 1; refuse what is too far.

    A row that was rounded to d decimals may miss by half a unit of the last one for
    each class, and by `ROUNDED_TOLERANCE` at most.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(1, dtype=np.float64)
        miss = np.abs(total - 1)
    wrong = (array < 0).any(1) | ~(miss <= _MISS)
    far = np.flatnonzero(wrong)
    if len(far):
        wrong[far] = ~_explained(array[far], miss[far])
    if wrong.any():
        raise RowError(_not_probs(array, total, wrong), int(wrong.argmax()))
    return float(miss.max())


def divided_by_sums(array: Floats) -> Floats:
    """Return probabilities of one class against the rest, each row divided by its sum.

    Examples
    --------
    >>> divided_by_sums(np.array([[0.9, 0.6]]))
    array([[0.6, 0.4]])
    """
    wide = array.astype(np.float64)
    refuse_rows(~((wide >= 0) & (wide <= 1)).all(1), "a value is not from 0 to 1")
    total = wide.sum(1, keepdims=True)
    refuse_rows(total[:, 0] == 0, "every class has the probability 0")
    return (wide / total).astype(np.promote_types(array.dtype, np.float32))


def _explained(rows: Floats, miss: Floats) -> Bools:
    """Tell where rounding explains why rows do not sum to 1."""
    unit = _unit(rows)
    allowed = np.minimum(unit * rows.shape[1] / 2, ROUNDED_TOLERANCE)
    good = (rows >= 0).all(1) & (rows <= 1).all(1)
    return np.asarray(good & (miss <= allowed * (1 + 1e-9)))


def _unit(rows: Floats) -> Floats:
    """Return the unit of each row's last decimal; 0 where there are many."""
    out = np.zeros(len(rows))
    for digits in reversed(_DECIMALS):
        scaled = np.clip(rows.astype(np.float64), -2, 2) * 10**digits
        whole = (np.abs(scaled - np.rint(scaled)) < 1e-3).all(1)
        out[whole] = 10.0**-digits
    return out


def _not_probs(array: Floats, total: Floats, wrong: Bools) -> str:
    at = int(wrong.argmax())
    count = f"{int(wrong.sum())} of {len(array)} rows"
    usual = float(np.median(total))
    if abs(usual - 100) <= 5 and np.mean((array >= 0).all(1)) > 0.5:
        return (
            "expected probabilities, got percentages (rows sum to 100). Divide by 100, "
            "or give --percent on the command line (percent=True)."
        )
    beyond = (array < -0.01).any() or (array > 1.01).any()
    if wrong.mean() > 0.5 and beyond and array.min() >= 0 and array.max() <= 100.5:
        return (
            f"expected probabilities, got values from {array.min():.4g} to "
            f"{array.max():.4g} whose rows sum neither to 1 nor to 100 (row {{row}} "
            f"sums to {total[at]:.4g}). They look like logits (from_logits; --logits), "
            "or like percentages of one class against the rest (divide by 100 and pass "
            "one_vs_rest=True; --percent --one-vs-rest)."
        )
    if wrong.mean() > 0.5 and beyond:
        return (
            "expected probabilities, but these look like logits (row {row} runs from "
            f"{array[at].min():.4g} to {array[at].max():.4g} and sums to "
            f"{total[at]:.4g}). Use from_logits, or --logits on the command line."
        )
    unit = float(_unit(array[at : at + 1])[0])
    half = array.shape[1] * unit / 2  # what rounding can take off, or add
    if unit and (array[at] >= 0).all() and abs(total[at] - 1) <= half * (1 + 1e-9):
        digits = round(-np.log10(unit))
        what = "1 decimal" if digits == 1 else f"{digits} decimals"
        return (
            f"expected probabilities that sum to 1, got a row that sums to "
            f"{total[at]:.6g} at row {{row}} ({count}): they have {what}, which is too "
            "few. Write them with more decimals."
        )
    if array[at].min() >= 0 and array[at].max() <= 1:
        return (
            f"expected probabilities that sum to 1, got a row that sums to "
            f"{total[at]:.6g} at row {{row}} ({count}; the median is {usual:.4g}). If "
            "each is of one class against the rest, --one-vs-rest (one_vs_rest=True) "
            "divides each row by its sum. If a class is missing, name its column, too. "
            "If they are rounded, write more decimals. Several labels per row (tags) "
            "are not supported yet. Otherwise fix those rows."
        )
    if array[at].min() < 0:
        what = f"the probability {array[at].min():.4g} at row {{row}}"
    else:
        what = f"a row that sums to {total[at]:.6g} at row {{row}}"
    return (
        f"expected probabilities, none negative and each row summing to 1 within "
        f"{PROBS_TOLERANCE}, got {what} ({count}). If a class is missing, name its "
        "column, too; if they are logits, use from_logits (--logits); otherwise fix "
        "those rows."
    )


_DECIDED = ContextVar("decided", default=False)


@contextmanager
def taken_for_logits() -> Iterator[None]:
    """Take rows for logits without looking: it was decided on all, these are some."""
    before = _DECIDED.set(True)
    try:
        yield
    finally:
        _DECIDED.reset(before)


def refuse_probabilities(logits: NDArray[Any]) -> None:
    """Refuse 10 or more rows that are all probability vectors: they are not logits."""
    if (
        _DECIDED.get()
        or logits.ndim < 2
        or logits.dtype.kind not in "fiu"
        or not logits.shape[-1]
    ):
        return
    rows = logits.reshape(-1, logits.shape[-1])
    if len(rows) >= ENOUGH and on_simplex(rows):
        raise InputError(NOT_LOGITS)


NOT_LOGITS = (
    "expected logits, but all rows are probabilities (not negative, sum 1). "
    "Use Predictions.from_probs, or --probs on the command line."
)


def on_simplex(array: NDArray[Any]) -> bool:
    """Tell whether all rows are probability vectors."""
    # The first row answers for nearly every array of logits, at no cost.
    for part in (array[:1], array):
        if float(part.min()) < 0:
            return False
        with np.errstate(over="ignore"):
            total = np.asarray(part.sum(1, dtype=np.float64))
        if not (np.abs(total - 1) <= _MISS).all():
            return False
    return True
