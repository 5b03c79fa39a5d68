"""What an update brings: rows, labels and options, checked before anything counts."""

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from numbers import Real
from typing import Any

import numpy as np

from trustdoctor.arrays import (
    Array,
    as_groups,
    as_real,
    as_scores,
    shown_number,
    to_numpy,
)
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.gates import Gate, Screened
from trustdoctor.predictions import Predictions
from trustdoctor.watch.queue import CORRECT, UNDECIDED, WAITING, WRONG
from trustdoctor.watch.rate_tests import LATEST

SMALLEST_LEVEL = 1e-9
"""Smaller probabilities of a false alarm are lost to rounding."""

_LABEL_TYPES = (bool, int, float, np.bool_)


@dataclass(frozen=True)
class UpdateRows:
    """The rows of an update as the gate decided on them, with their labels.

    Attributes
    ----------
    accepted : bool array (n,)
    labels : integer array (n,)
        CORRECT, WRONG, UNDECIDED, or WAITING if there is no label yet.
    groups : array (n,), or None
    ids : list of str, or None
    reviewed : bool array (n,), or None
        Which rows were drawn for review, if the update says it.
    predictions : Predictions or None
    doubts : array (n,), or None
    has_decisions : bool
        False for labels that came by name alone; `accepted` means nothing then.
    """

    accepted: Array
    labels: Array
    groups: Array | None = None
    ids: list[str] | None = None
    reviewed: Array | None = None
    predictions: Any = None
    doubts: Array | None = None
    has_decisions: bool = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.accepted)

    @property
    def has_label(self) -> Array:
        """Which rows have a label, or never will."""
        return np.asarray(self.labels != WAITING)

    @property
    def drawn(self) -> Array:
        """Which rows were drawn for review; without `reviewed`, those with a label."""
        return self.has_label if self.reviewed is None else self.reviewed


def read_rows(  # noqa: PLR0913 - what an update is called with
    gate: Gate,
    rows: Any,
    errors: Any,
    *,
    groups: Any,
    ids: Any,
    reviewed: Any,
    undecided: Any,
) -> UpdateRows:
    """Decide on rows, and check what comes with them."""
    (accepted, doubts), errors, groups, predictions = _decide(
        gate, rows, errors, groups
    )
    n = len(accepted)
    labels = _read_labels(errors, undecided, n)
    drawn = None if reviewed is None else as_mask(reviewed, n, "reviewed")
    row_groups = None if groups is None else as_groups(groups, rows=n)
    row_ids = None if ids is None else as_ids(ids, n)
    _share_labels(row_ids, labels)
    return UpdateRows(
        np.asarray(accepted, bool),
        labels,
        row_groups,
        row_ids,
        drawn,
        predictions,
        doubts,
    )


def read_named_labels(errors: Any, ids: Any, batch: Any, undecided: Any) -> UpdateRows:
    """Return labels of rows that are identified by their names alone."""
    if ids is None and batch is None:
        message = (
            "labels without rows need names: pass ids=, or batch= with its rows in "
            "order."
        )
        raise InputError(message)
    one_per_row = undecided if errors is None else errors
    if one_per_row is None:
        message = "late labels are missing: pass errors, or undecided."
        raise LabelsMissingError(message)
    shape = to_numpy(one_per_row).shape
    if len(shape) != 1:
        message = f"expected one label per row, got {one_per_row!r}. Pass a list."
        raise InputError(message)
    (n,) = shape
    labels = _read_labels(errors, undecided, n)
    row_ids = None if ids is None else as_ids(ids, n)
    _share_labels(row_ids, labels)
    return UpdateRows(np.zeros(n, bool), labels, ids=row_ids, has_decisions=False)


def _read_labels(errors: Any, undecided: Any, rows: int) -> Array:
    labels = np.full(rows, WAITING) if errors is None else as_labels(errors, rows)
    if undecided is not None:
        labels[as_mask(undecided, rows, "undecided")] = UNDECIDED
    return labels


def _share_labels(ids: list[str] | None, labels: Array) -> None:
    """Give the first row of an id that occurs twice the label of the others."""
    first_row: dict[str, int] = {}
    for row, row_id in enumerate(ids or ()):
        first = first_row.setdefault(row_id, row)
        if labels[first] == WAITING:
            labels[first] = labels[row]


def _decide(
    gate: Gate, rows: Any, errors: Any, groups: Any
) -> tuple[tuple[Array, Array], Any, Any, Any]:
    """Return (accepted rows, doubts), errors, groups and predictions."""
    if isinstance(rows, Screened):
        if gate.groups and groups is None:
            message = "this gate has groups: pass groups=, one per row."
            raise InputError(message)
        if gate.groups:
            gate.accept(rows.doubts, groups=groups)  # refuses unknown groups
        return _decisions_and_doubts(rows), errors, groups, rows.predictions
    if not isinstance(rows, Predictions):
        doubts = as_scores(rows)
        accepted = gate.accept(doubts, groups=groups)
        return (np.asarray(accepted), to_numpy(doubts)), errors, groups, None
    if errors is None and rows.labels is not None:
        errors = partial_errors(rows)
    if groups is None and gate.groups:
        groups = gate.groups_of(rows)
    screened = gate.screen(rows, groups=groups)
    return _decisions_and_doubts(screened), errors, groups, rows


def _decisions_and_doubts(screened: Screened) -> tuple[Array, Array]:
    return np.asarray(screened.accepted), to_numpy(screened.doubts)


def as_labels(errors: Any, rows: int) -> Array:
    """Return the label of each row: CORRECT, WRONG, or WAITING."""
    array = to_numpy(errors)
    if array.ndim != 1:
        array = np.zeros(0)  # refused below
    if array.dtype == object and all(
        error is None or type(error) in _LABEL_TYPES for error in array
    ):
        array = np.array([np.nan if error is None else float(error) for error in array])
    values = array.astype(np.float64) if array.dtype.kind in "biuf" else np.zeros(0)
    missing = np.isnan(values)
    if values.shape != (rows,) or not np.isin(values[~missing], (0, 1)).all():
        message = (
            f"expected errors as {rows} entries, one per row: True, False, or NaN "
            "where unknown."
        )
        raise LabelsMissingError(message)
    return np.where(missing, WAITING, np.where(values == 1, WRONG, CORRECT))


def partial_errors(rows: Predictions) -> Array:
    """Return where predictions are wrong, NaN for rows without a label."""
    assert rows.labels is not None
    return np.where(rows.has_label, rows.predicted != rows.labels, np.nan)


def as_mask(values: Any, rows: int, name: str) -> Array:
    """Return booleans, one per row."""
    array = to_numpy(values)
    if array.shape != (rows,) or not np.isin(array, (0, 1)).all():
        message = f"expected {name} as {rows} entries, True or False, one per row."
        raise InputError(message)
    return array.astype(bool)


def as_ids(ids: Any, rows: int) -> list[str]:
    """Return ids as text, or refuse them if a row has none.

    Examples
    --------
    >>> as_ids(np.array([7, 8]), 2)
    ['7', '8']
    """
    values = list(ids) if isinstance(ids, (list, tuple)) else to_numpy(ids).tolist()
    if not isinstance(values, list) or len(values) != rows:
        got = len(values) if isinstance(values, list) else "one value"
        message = f"expected {rows:,} ids, one per row, got {got}."
        raise InputError(message)
    texts = [_id_text(value) for value in values]
    if "" in texts:
        message = (
            f"row {texts.index('')} has no id. Give every row an id, or leave ids out."
        )
        raise InputError(message)
    if not is_text("".join(texts)):
        message = (
            "an id contains an unpaired surrogate, which no file can hold; remove it."
        )
        raise InputError(message)
    return texts


def _id_text(value: Any) -> str:
    """Return an id as text; empty if it is missing."""
    if isinstance(value, str):
        return str(value)
    is_missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if is_missing or (isinstance(value, float) and value != value):
        return ""
    # Columns of integers with missing values come as floats: 7.0 is the id 7.
    is_integer = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_integer else value)


def is_text(value: str) -> bool:
    """Return whether a text has no unpaired surrogates, so that a file can hold it.

    Examples
    --------
    >>> is_text("a"), is_text(chr(0xD800))
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_time(at: Any) -> float:
    """Return a time in seconds since 1970; now for None."""
    if at is None:
        return time.time()
    seconds = at
    if isinstance(at, datetime):
        with suppress(OverflowError, OSError, ValueError):
            seconds = at.timestamp()
    if type(seconds) in (int, float) and 0 < seconds < LATEST:
        return float(seconds)
    message = (
        f"expected a time as a datetime or seconds since 1970, got {at!r}. Leave it "
        "out for the current time."
    )
    raise InputError(message)


def as_deadline(deadline: Any) -> float | None:
    """Return the seconds that a label may take; None for any time."""
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        deadline = deadline.total_seconds()
    if type(deadline) in (int, float) and 0 < deadline < LATEST:
        return float(deadline)
    message = (
        f"expected a deadline as a timedelta or seconds above 0, got "
        f"{shown_number(deadline)}. timedelta(days=30) gives a label 30 days to come."
    )
    raise InputError(message)


def check_level(level: float) -> float:
    """Return a probability of a false alarm, or refuse what is not one."""
    is_number = type(level) in (int, float) or isinstance(level, np.floating)
    if not is_number or not SMALLEST_LEVEL <= level < 1:
        got = shown_number(level)
        message = f"expected level between {SMALLEST_LEVEL:g} and 1, got {got}."
        raise InputError(message)
    return float(level)


def check_noise(noise: Any) -> float:
    """Return the share of labels that may be wrong, or refuse what is not one."""
    if isinstance(noise, Real) and 0 <= as_real(noise, "label_noise") < 0.5:
        return float(noise)
    message = (
        "expected label_noise from 0 to below 0.5, the share of labels that may be "
        f"wrong, got {shown_number(noise)}."
    )
    raise InputError(message)


def as_batch_name(batch: Any) -> str:
    """Return the name of a batch; empty if it has none."""
    if batch is None:
        return ""
    if isinstance(batch, str) and batch and is_text(batch):
        return batch
    message = f"expected the name of a batch as text, got {batch!r}."
    raise InputError(message)
