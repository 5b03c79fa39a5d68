"""What an update brings, checked before anything is counted."""

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
from trustdoctor.predictions import Predictions, TopK
from trustdoctor.watch.draws import as_keys, is_text
from trustdoctor.watch.queue import RIGHT, UNSAID, WAITING, WRONG

LATEST = 1e11
"""Seconds: times and deadlines are before."""

LEAST_LEVEL = 1e-9
"""Smaller probabilities of a false alarm are lost to rounding."""

_LABELS = (bool, int, float, np.bool_)


@dataclass(frozen=True)
class Rows:
    """Rows as the gate decided on them, and what is known of each.

    Attributes
    ----------
    accepted : bool array (n,)
    known : integer array (n,)
        RIGHT, WRONG, UNSAID, or WAITING where the label is not known yet.
    groups : array (n,), or None
    keys : list of str, or None
        What the rows are called.
    reviewed : bool array (n,), or None
        Which were drawn for review, where that is said.
    predictions : Predictions or None
        What the model said.
    doubts : array (n,), or None
        Where the rows came with them.
    decided : bool
        Whether `accepted` is known.
    """

    accepted: Array
    known: Array
    groups: Array | None = None
    keys: list[str] | None = None
    reviewed: Array | None = None
    predictions: Any = None
    doubts: Array | None = None
    decided: bool = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.accepted)


def take_rows(  # noqa: PLR0913 - what an update is given
    gate: Gate,
    rows: Any,
    errors: Any,
    *,
    groups: Any,
    ids: Any,
    reviewed: Any,
    cannot_say: Any,
) -> Rows:
    """Decide on rows, and check what comes with them."""
    (accepted, doubts), errors, groups, said = _decided(gate, rows, errors, groups)
    n = len(accepted)
    known = np.full(n, WAITING) if errors is None else as_known(errors, n)
    if cannot_say is not None:
        known[as_mask(cannot_say, n, "cannot_say")] = UNSAID
    drawn = None if reviewed is None else as_mask(reviewed, n, "reviewed")
    given = None if groups is None else as_groups(groups, rows=n)
    keys = None if ids is None else as_keys(ids, n)
    _join_labels(keys, known)
    return Rows(np.asarray(accepted, bool), known, given, keys, drawn, said, doubts)


def _join_labels(keys: list[str] | None, known: Array) -> None:
    """Where an id stands twice, give the first row the label that another has."""
    first: dict[str, int] = {}
    for row, key in enumerate(keys or ()):
        at = first.setdefault(key, row)
        if known[at] == WAITING:
            known[at] = known[row]


def _decided(
    gate: Gate, rows: Any, errors: Any, groups: Any
) -> tuple[tuple[Array, Array], Any, Any, Any]:
    """Return what the gate accepts, the doubts, and what is known of the rows."""
    if isinstance(rows, Screened):
        if gate.groups and groups is None:
            message = "this gate has groups: pass groups=, one per row."
            raise InputError(message)
        if gate.groups:
            gate.accept(rows.scores, groups=groups)  # which refuses others
        return _with_doubts(rows), errors, groups, rows.predictions
    if not isinstance(rows, (Predictions, TopK)):
        doubts = as_scores(rows)
        accepted = gate.accept(doubts, groups=groups)
        return (np.asarray(accepted), to_numpy(doubts)), errors, groups, None
    if errors is None and rows.labels is not None:
        errors = partial_errors(rows)
    if groups is None and gate.groups:
        groups = gate.groups_of(rows)
    return _with_doubts(gate.screen(rows, groups=groups)), errors, groups, rows


def _with_doubts(screened: Screened) -> tuple[Array, Array]:
    return np.asarray(screened.accepted), to_numpy(screened.scores)


def named_labels(errors: Any, ids: Any, batch: Any, cannot_say: Any) -> Rows:
    """Return labels of rows that are known by their names alone."""
    if ids is None and batch is None:
        message = (
            "labels without rows are told apart by names: pass ids=, or batch= with "
            "its rows in order."
        )
        raise InputError(message)
    first = cannot_say if errors is None else errors
    if first is None:
        message = "late labels are missing: pass errors, or cannot_say."
        raise LabelsMissingError(message)
    shape = to_numpy(first).shape
    if len(shape) != 1:
        message = f"expected one label per row, got {first!r}. Pass a list."
        raise InputError(message)
    (n,) = shape
    known = np.full(n, WAITING) if errors is None else as_known(errors, n)
    if cannot_say is not None:
        known[as_mask(cannot_say, n, "cannot_say")] = UNSAID
    keys = None if ids is None else as_keys(ids, n)
    _join_labels(keys, known)
    return Rows(np.zeros(n, bool), known, keys=keys, decided=False)


def as_known(errors: Any, rows: int) -> Array:
    """Return what errors say of each row: RIGHT, WRONG, or WAITING."""
    array = to_numpy(errors)
    if array.ndim != 1:
        array = np.zeros(0)  # refused below
    if array.dtype == object and all(e is None or type(e) in _LABELS for e in array):
        array = np.array([np.nan if e is None else float(e) for e in array])
    values = array.astype(np.float64) if array.dtype.kind in "biuf" else np.zeros(0)
    unknown = np.isnan(values)
    if values.shape != (rows,) or not np.isin(values[~unknown], (0, 1)).all():
        message = (
            f"expected errors as {rows} entries, one per row: True, False, or NaN "
            "where unknown."
        )
        raise LabelsMissingError(message)
    return np.where(unknown, WAITING, np.where(values == 1, WRONG, RIGHT))


def partial_errors(rows: Predictions | TopK) -> Array:
    """Return where rows are wrong, NaN where one has no label."""
    if isinstance(rows, TopK):
        return rows.errors
    assert rows.labels is not None
    return np.where(rows.has_label, rows.predicted != rows.labels, np.nan)


def as_mask(given: Any, rows: int, name: str) -> Array:
    """Return booleans, one per row."""
    array = to_numpy(given)
    if array.shape != (rows,) or not np.isin(array, (0, 1)).all():
        message = f"expected {name} as {rows} entries, True or False, one per row."
        raise InputError(message)
    return array.astype(bool)


def as_time(at: Any) -> float:
    """Return seconds since 1970: of a time that is given, or now."""
    if at is None:
        return time.time()
    seconds = at
    if isinstance(at, datetime):
        with suppress(OverflowError, OSError, ValueError):
            seconds = at.timestamp()
    if type(seconds) in (int, float) and 0 < seconds < LATEST:
        return float(seconds)
    message = (
        f"expected a time as a datetime or seconds since 1970, got {at!r}. Without "
        "it, the present is taken."
    )
    raise InputError(message)


def as_deadline(deadline: Any) -> float | None:
    """Return how many seconds a label may take; None where it may take for ever."""
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
    """Return a probability of a false alarm, or refuse what cannot be one."""
    number = type(level) in (int, float) or isinstance(level, np.floating)
    if not number or not LEAST_LEVEL <= level < 1:
        got = shown_number(level)
        message = f"expected level between {LEAST_LEVEL:g} and 1, got {got}."
        raise InputError(message)
    return float(level)


def check_noise(noise: Any) -> float:
    """Return the share of labels that may be wrong, or refuse what cannot be one."""
    if isinstance(noise, Real) and 0 <= as_real(noise, "label_noise") < 0.5:
        return float(noise)
    message = (
        "expected label_noise from 0 to below 0.5, the share of labels that may be "
        f"wrong, got {shown_number(noise)}."
    )
    raise InputError(message)


def as_batch(batch: Any) -> str:
    """Return the name of a batch; empty where it has none."""
    if batch is None:
        return ""
    if isinstance(batch, str) and batch and is_text(batch):
        return batch
    message = f"expected the name of a batch, got {batch!r}. Give a text, or none."
    raise InputError(message)
