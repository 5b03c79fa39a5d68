"""Following a stream: every row is an update of its own, at the price of a few sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array, as_groups
from trustdoctor.envelope import MOST_ROWS
from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.watch import counting
from trustdoctor.watch.given import as_mask, as_time
from trustdoctor.watch.queue import RIGHT, UNSAID, WAITING, Run
from trustdoctor.watch.rate_tests import FR, TA, Group, RateTest
from trustdoctor.watch.records import Entry
from trustdoctor.watch.review import Review

if TYPE_CHECKING:
    from trustdoctor.watch.watching import Watch


@dataclass(frozen=True)
class Arrived:
    """Rows in the order of their positions, all drawn at the same review rates.

    Attributes
    ----------
    accepted, drawn : bool array (n,)
        Whether the gate accepted a row, and whether it was drawn for review.
    keys : integer array (k,), or list of str
        The positions of the drawn rows: whole numbers that increase, or their digits.
    review : Review
    groups : array (n,), or None
    """

    accepted: Any
    drawn: Any
    keys: Any
    review: Review
    groups: Any = None


@dataclass(frozen=True)
class Said:
    """Labels of drawn rows, in the order in which they came.

    Attributes
    ----------
    keys : integer array (k,), or list of str
        The positions of the rows.
    known : integer array (k,)
        RIGHT, WRONG, or UNSAID where nobody can say.
    """

    keys: Any = ()
    known: Any = ()


@dataclass(frozen=True)
class _Rows:
    """Rows that were checked, with the groups that there are, and that of each row."""

    accepted: Array
    drawn: Array
    keys: Array
    review: Review
    names: list[Group] | None
    codes: Array | None


def follow(watch: "Watch", rows: Sequence[Arrived], said: Said, at: float) -> Entry:
    """Count rows, each as an update of its own, and labels that came.

    It does what `Watch.update` does with one row after the other, and `Watch.label`
    with the labels, but writes one record, and keeps no ids. Labels of rows that are
    not waited for are ignored, so that of several the first counts.

    Parameters
    ----------
    watch : Watch
    rows : sequence of Arrived
    said : Said
        Labels, of these rows or earlier ones.
    at : float
        Seconds since 1970.

    Examples
    --------
    >>> from trustdoctor import calibrate_scores
    >>> gate = calibrate_scores(np.arange(100.0), np.arange(100) > 90, risk=0.2)
    >>> watch = gate.watch(review={"rejected": 1.0, "accepted": 0.5})
    >>> came = Arrived([True, True, False], [True, False, True], [1, 3], watch.review)
    >>> entry = follow(watch, [came], Said([1], [RIGHT]), at=1.0)
    >>> entry.rows, entry.labels, entry.waiting
    (3, 1, 1)
    """
    now = as_time(at)
    with watch.locked():
        counting.require_open(watch)
        given = [_checked(watch, one) for one in rows]
        _require_order(watch, given)
        keys = _positions(said.keys)
        known = _answers(said.known, len(keys))
        for one in given:
            _count_traffic(watch, one)
            _draw(watch, one, now)
        told = watch.queue.answer(keys, known)
        expired = counting.expire(watch, now)
        counting.release(watch)
        counted = sum(len(one.accepted) for one in given)
        unsaid = int((told == UNSAID).sum())
        entry = Entry(
            now,
            "update" if counted else "labels",
            rows=counted,
            accepted=sum(int(one.accepted.sum()) for one in given),
            labels=len(told) - unsaid,
            unsaid=expired + unsaid,
        )
        return counting.record(watch, entry)


def _checked(watch: "Watch", given: Arrived) -> _Rows:
    """Return rows as arrays, or refuse them."""
    n = np.size(given.accepted)
    accepted = as_mask(given.accepted, n, "accepted")
    drawn = as_mask(given.drawn, n, "drawn")
    keys, many = _positions(given.keys), int(drawn.sum())
    if len(keys) != many:
        message = f"expected {many:,} keys, one per drawn row, got {len(keys):,}."
        raise InputError(message)
    if not isinstance(given.review, Review):
        message = f"expected review rates as a Review, got {given.review!r}."
        raise InputError(message)
    names, codes = _coded(watch.gate, given.groups, n)
    if all(test.only is None for test in watch.tests.values()):
        names = codes = None
    return _Rows(accepted, drawn, keys, given.review, names, codes)


def _positions(keys: Any) -> Array:
    """Return positions as whole numbers."""
    array = np.asarray(keys)
    if not array.size:
        return np.zeros(0, np.int64)
    try:
        whole = array.astype(np.int64) if array.dtype.kind in "iuU" else None
    except (ValueError, OverflowError):
        whole = None
    if whole is None or whole.ndim != 1 or not _are_counts(whole):
        message = f"expected positions of rows as whole numbers, got {keys!r:.60}."
        raise InputError(message)
    return whole


def _are_counts(whole: Array) -> bool:
    return bool(whole.min() >= 0 and whole.max() < MOST_ROWS)


def _answers(known: Any, rows: int) -> Array:
    array = np.asarray(known)
    able = np.isin(array, range(RIGHT, UNSAID + 1)).all()
    if array.shape != (rows,) or not able:
        message = (
            f"expected {rows:,} labels, one per key: {RIGHT} (right), 1 (wrong) or "
            f"{UNSAID} (nobody can say)."
        )
        raise InputError(message)
    return array.astype(np.int8)


def _coded(
    gate: Gate, groups: Any, rows: int
) -> tuple[list[Group] | None, Array | None]:
    """Return the groups that there are, and which of them each row is in."""
    if groups is None and gate.groups and rows:
        message = "this gate has groups: pass groups=, one per row."
        raise InputError(message)
    if groups is None or not rows:
        return None, None
    table: dict[Group, int] = {}
    own = as_groups(groups, rows=rows).tolist()
    codes = np.fromiter((table.setdefault(g, len(table)) for g in own), int, rows)
    if gate.groups:
        gate.accept(np.zeros(len(table)), groups=list(table))  # which refuses others
    return list(table), codes


def _require_order(watch: "Watch", given: list[_Rows]) -> None:
    """Refuse rows that come before others, or twice."""
    last = [run.keys[-1:] for run in watch.queue.runs]
    first = max((int(one[0]) for one in last if len(one)), default=-1)
    keys = np.concatenate([[first], *(one.keys for one in given)])
    wrong = np.flatnonzero(np.diff(keys) <= 0)
    if len(wrong):
        before, after = keys[wrong[0] : wrong[0] + 2].tolist()
        message = (
            f"expected positions that increase, got {after} after {before}. Pass rows "
            "in their order, each once."
        )
        raise InputError(message)


def _count_traffic(watch: "Watch", rows: _Rows) -> None:
    """Count decisions and draws, and test what needs no labels."""
    kept, drawn = rows.accepted, rows.drawn
    watch.review = rows.review
    watch.sampling = watch.sampling.add(
        rows.review,
        len(kept),
        int(kept.sum()),
        int(drawn.sum()),
        int((kept & drawn).sum()),
    )
    kinds = np.where(kept, TA, FR)
    for test in watch.tests.values():
        if not test.needs_labels:
            test.take_each(kinds, None, rows.names, rows.codes)


def _draw(watch: "Watch", rows: _Rows, at: float) -> None:
    """Put rows behind those that wait."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    inside = _inside(tests, rows)
    size = int(inside.sum())
    if not tests or not size:
        return
    drawn, names, codes = rows.drawn & inside, rows.names, rows.codes
    if names is not None and codes is not None:
        codes = codes[inside].astype(np.min_scalar_type(len(names)))
    run = Run(
        at,
        rows.review,
        size,
        np.flatnonzero(drawn[inside]).astype(np.int32),
        rows.keys[inside[rows.drawn]],
        np.full(int(drawn.sum()), at),
        rows.accepted[drawn],
        np.full(int(drawn.sum()), WAITING, np.int8),
        names,
        codes,
    )
    watch.queue.follow(run)


def _inside(tests: list[RateTest], rows: _Rows) -> Array:
    """Tell of each row whether any test counts it."""
    inside = np.ones(len(rows.accepted), bool)
    if rows.names is None or rows.codes is None:
        return inside
    only = counting.promised(tests)
    if only is not None:
        inside = np.array([name in only for name in rows.names], bool)[rows.codes]
    if not any(test.waits(rows.review) for test in tests):
        inside &= rows.drawn
    return inside
