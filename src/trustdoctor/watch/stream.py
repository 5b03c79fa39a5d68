"""Streams: every row is an update of its own, at the price of a few sums.

The service reads stored rows in batches of up to 50,000 and must come to the same watch
whoever reads them, in whatever batches. docs/watching.md measures the rows per second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array, as_groups
from trustdoctor.envelope import MOST_ROWS
from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.watch import update_rows, updates
from trustdoctor.watch.history import HistoryEntry
from trustdoctor.watch.queue import CORRECT, UNDECIDED, WAITING, WaitingStream
from trustdoctor.watch.rate_tests import FR, TA, Group, RateTest
from trustdoctor.watch.review import Review

if TYPE_CHECKING:
    from trustdoctor.watch.watch import Watch


@dataclass(frozen=True)
class StreamRows:
    """Rows in the order of their positions, all drawn at the same review rates.

    Attributes
    ----------
    accepted, drawn : bool array (n,)
        Whether the gate accepted a row, and whether it was drawn for review.
    keys : integer array (k,), or list of str
        The positions of the drawn rows: integers that increase, or their digits.
    review : Review
    groups : array (n,), or None
    """

    accepted: Any
    drawn: Any
    keys: Any
    review: Review
    groups: Any = None


@dataclass(frozen=True)
class StreamLabels:
    """Labels of drawn rows, in the order in which they came.

    Attributes
    ----------
    keys : integer array (k,), or list of str
        The positions of the rows.
    labels : integer array (k,)
        CORRECT, WRONG, or UNDECIDED.
    """

    keys: Any = ()
    labels: Any = ()


@dataclass(frozen=True)
class _CheckedRows:
    """Rows as arrays, with the names of the groups and the group of each row."""

    accepted: Array
    drawn: Array
    keys: Array
    review: Review
    group_names: list[Group] | None
    group_codes: Array | None


def follow(
    watch: "Watch", rows: Sequence[StreamRows], labels: StreamLabels, at: float
) -> HistoryEntry:
    """Count rows, each as an update of its own, and labels that came.

    It does what `Watch.update` does with one row after the other, and `Watch.label`
    with the labels, but writes one entry, and keeps no ids. Labels of rows that do not
    wait for one are ignored, so the first of several labels counts.

    Parameters
    ----------
    watch : Watch
    rows : sequence of StreamRows
    labels : StreamLabels
        Of these rows or earlier ones.
    at : float
        Seconds since 1970.

    Examples
    --------
    >>> from trustdoctor import calibrate_scores
    >>> gate = calibrate_scores(np.arange(100.0), np.arange(100) > 90, risk=0.2)
    >>> watch = gate.watch(review={"rejected": 1.0, "accepted": 0.5})
    >>> rows = StreamRows([1, 1, 0], drawn=[1, 0, 1], keys=[1, 3], review=watch.review)
    >>> entry = follow(watch, [rows], StreamLabels([1], [CORRECT]), at=1.0)
    >>> entry.rows, entry.labels, entry.waiting
    (3, 1, 1)
    """
    now = update_rows.as_time(at)
    with watch.locked():
        updates.require_open(watch)
        runs = [_check_rows(watch, run) for run in rows]
        _require_order(watch, runs)
        keys = _as_positions(labels.keys)
        codes = _as_label_codes(labels.labels, len(keys))
        for run in runs:
            _count_traffic(watch, run)
            _enqueue(watch, run, now)
        counted_labels = watch.queue.label_stream(keys, codes)
        expired = updates.expire(watch, now)
        updates.release(watch)
        n_rows = sum(len(run.accepted) for run in runs)
        undecided = int((counted_labels == UNDECIDED).sum())
        entry = HistoryEntry(
            now,
            "update" if n_rows else "labels",
            rows=n_rows,
            accepted=sum(int(run.accepted.sum()) for run in runs),
            labels=len(counted_labels) - undecided,
            unresolved=expired + undecided,
        )
        return updates.record(watch, entry)


def _check_rows(watch: "Watch", rows: StreamRows) -> _CheckedRows:
    """Return rows as arrays, or refuse them."""
    n = np.size(rows.accepted)
    accepted = update_rows.as_mask(rows.accepted, n, "accepted")
    drawn = update_rows.as_mask(rows.drawn, n, "drawn")
    keys, n_drawn = _as_positions(rows.keys), int(drawn.sum())
    if len(keys) != n_drawn:
        message = f"expected {n_drawn:,} keys, one per drawn row, got {len(keys):,}."
        raise InputError(message)
    if not isinstance(rows.review, Review):
        message = f"expected review rates as a Review, got {rows.review!r}."
        raise InputError(message)
    names, codes = _encode_groups(watch.gate, rows.groups, n)
    # Without tests by group codes would be carried through the queue for nothing.
    if all(test.counted_groups is None for test in watch.tests.values()):
        names = codes = None
    return _CheckedRows(accepted, drawn, keys, rows.review, names, codes)


def _as_positions(keys: Any) -> Array:
    """Return positions as integers."""
    array = np.asarray(keys)
    if not array.size:
        return np.zeros(0, np.int64)
    try:
        positions = array.astype(np.int64) if array.dtype.kind in "iuU" else None
    except (ValueError, OverflowError):
        positions = None
    if (
        positions is None
        or positions.ndim != 1
        or not (positions.min() >= 0 and positions.max() < MOST_ROWS)
    ):
        message = f"expected positions of rows as integers, got {keys!r:.60}."
        raise InputError(message)
    return positions


def _as_label_codes(labels: Any, rows: int) -> Array:
    array = np.asarray(labels)
    valid = np.isin(array, range(CORRECT, UNDECIDED + 1)).all()
    if array.shape != (rows,) or not valid:
        message = (
            f"expected {rows:,} labels, one per key: {CORRECT} (correct), 1 (wrong) or "
            f"{UNDECIDED} (undecided)."
        )
        raise InputError(message)
    return array.astype(np.int8)


def _encode_groups(
    gate: Gate, groups: Any, rows: int
) -> tuple[list[Group] | None, Array | None]:
    """Return the names of the groups, and for each row the index of its group."""
    if groups is None and gate.groups and rows:
        message = "this gate has groups: pass groups=, one per row."
        raise InputError(message)
    if groups is None or not rows:
        return None, None
    code_of: dict[Group, int] = {}
    row_groups = as_groups(groups, rows=rows).tolist()
    codes = np.fromiter(
        (code_of.setdefault(group, len(code_of)) for group in row_groups), int, rows
    )
    if gate.groups:
        gate.accept(
            np.zeros(len(code_of)), groups=list(code_of)
        )  # refuses unknown ones
    return list(code_of), codes


def _require_order(watch: "Watch", runs: list[_CheckedRows]) -> None:
    """Refuse rows that come before earlier ones, or twice."""
    last_keys = [stream.keys[-1:] for stream in watch.queue.streams]
    latest = max((int(key[0]) for key in last_keys if len(key)), default=-1)
    keys = np.concatenate([[latest], *(run.keys for run in runs)])
    descents = np.flatnonzero(np.diff(keys) <= 0)
    if len(descents):
        before, after = keys[descents[0] : descents[0] + 2].tolist()
        message = (
            f"expected positions that increase, got {after} after {before}. Pass rows "
            "in their order, each once."
        )
        raise InputError(message)


def _count_traffic(watch: "Watch", rows: _CheckedRows) -> None:
    """Count decisions and draws, and test what needs no labels."""
    accepted, drawn = rows.accepted, rows.drawn
    watch.review = rows.review
    watch.sampling = watch.sampling.add(
        rows.review,
        len(accepted),
        int(accepted.sum()),
        int(drawn.sum()),
        int((accepted & drawn).sum()),
    )
    kinds = np.where(accepted, TA, FR)
    for test in watch.tests.values():
        if not test.needs_labels:
            test.count_each(kinds, None, rows.group_names, rows.group_codes)


def _enqueue(watch: "Watch", rows: _CheckedRows, now: float) -> None:
    """Put rows at the end of the queue."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    counts = _counted_rows(tests, rows)
    size = int(counts.sum())
    if not tests or not size:
        return
    drawn, names, codes = rows.drawn & counts, rows.group_names, rows.group_codes
    if names is not None and codes is not None:
        codes = codes[counts].astype(np.min_scalar_type(len(names)))
    # 22 bytes per drawn row, and none per row that was not drawn: a stream may hold a
    # million rows that wait.
    n_drawn = int(drawn.sum())
    stream = WaitingStream(
        now,
        rows.review,
        size,
        np.flatnonzero(drawn[counts]).astype(np.int32),
        rows.keys[counts[rows.drawn]],
        np.full(n_drawn, now),
        rows.accepted[drawn],
        np.full(n_drawn, WAITING, np.int8),
        names,
        codes,
    )
    watch.queue.add_stream(stream)


def _counted_rows(tests: list[RateTest], rows: _CheckedRows) -> Array:
    """Return for each row whether any test counts it."""
    counts = np.ones(len(rows.accepted), bool)
    if rows.group_names is None or rows.group_codes is None:
        return counts
    counted_groups = updates.groups_that_count(tests)
    if counted_groups is not None:
        group_counts = [name in counted_groups for name in rows.group_names]
        counts = np.array(group_counts, bool)[rows.group_codes]
    # Rows that were not drawn count for shares of all rows alone.
    if not any(test.needs_whole_batch(rows.review) for test in tests):
        counts &= rows.drawn
    return counts
