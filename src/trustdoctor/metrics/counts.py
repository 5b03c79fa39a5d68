"""Counts at every distinct score: the one kernel under every curve and metric.

Rows are put in groups of equal score, least doubtful first. Each metric is a
function of how many correct and how many wrong rows each group holds, so ties
need no special case, and the order of the rows cannot matter.
Whether a metric exists on these rows is asked in `rank.py`.
"""

from dataclasses import dataclass
from functools import reduce
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_errors, as_scores
from trustdoctor.kernels import cores, digest, map_threads, place, sort, split

_SLICED_ROWS = 1 << 20


_REMEMBERED_ROWS = 1 << 17  # fewer are counted as fast as they are compared


_REMEMBERED_BYTES = 1 << 27  # of all that is remembered

Ints = NDArray[np.int64]
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Counts:
    """Correct and wrong rows in each group, least doubtful group first.

    Attributes
    ----------
    correct, errors : array (..., groups)
        How many rows of each kind the group holds.
    highest : array (groups,), or None
        The group's largest score: the threshold that accepts it and all before it.
    lowest : array (groups,), or None
        The group's least score: the same, but where rounding ties different ones.
    """

    correct: Array
    errors: Array
    highest: Array | None = None
    lowest: Array | None = None

    @property
    def n_correct(self) -> Array:
        """Correct rows in all, (...)."""
        return self.correct.sum(-1)

    @property
    def n_errors(self) -> Array:
        """Wrong rows in all, (...)."""
        return self.errors.sum(-1)

    def swapped(self) -> "Counts":
        """Return the same rows, doubt reversed, correct and wrong exchanged."""
        return Counts(self.errors[..., ::-1], self.correct[..., ::-1])

    def reversed(self) -> "Counts":
        """Return the same rows, doubt reversed."""
        return Counts(self.correct[..., ::-1], self.errors[..., ::-1])

    def runs(self) -> "Counts":
        """Return the same as `count_runs` gives, from the counts at every score."""
        at = np.flatnonzero(self.errors)
        through = np.cumsum(self.correct)
        last = through[at]
        return _runs(last - self.correct[at], last, self.errors[at], through[-1])


def count(scores: Any, errors: Any, *, rounding: float = 0.0) -> Counts:
    """Count rows at every distinct score.

    Parameters
    ----------
    scores, errors : arrays (n,)
    rounding : float
        How far the rounding of another runtime may move a score; what it could put in
        another order is tied, as `last_of_each` says.
    """
    s = as_scores(scores)
    wrong = sort(s[as_errors(errors, rows=len(s))])
    every = sort(s.copy())
    last = last_of_each(every, rounding)
    highest, lowest = every[last], every[np.append(0, last[:-1] + 1)]
    of_errors = np.diff(place(highest, wrong)[1], prepend=0)
    return Counts(np.diff(last, prepend=-1) - of_errors, of_errors, highest, lowest)


def count_runs(scores: Any, errors: Any) -> Counts:
    """Count rows at every distinct score of a wrong row, and in the runs between.

    A run of correct rows between two wrong ones becomes one group, which changes
    no metric but AUPR of the correct rows, and leaves few groups where errors
    are few. The last counts of many rows are remembered, by their content: one metric
    after another of the same rows counts them once.
    """
    s = as_scores(scores)
    wrong = as_errors(errors, rows=len(s))
    if len(s) < _REMEMBERED_ROWS:
        return _count_runs(s, wrong)
    key = digest(s, wrong)
    found = _MEMORY.get(key)
    return _MEMORY.keep(key, _count_runs(s, wrong)) if found is None else found


class _Memory:
    """The last counts, as many as fit; several threads may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[bytes, Counts] = {}

    def get(self, key: bytes) -> Counts | None:
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: bytes, counts: Counts) -> Counts:
        for array in (counts.correct, counts.errors):
            array.flags.writeable = False
        with self._lock:
            self._kept[key] = counts
            while sum(map(_size, self._kept.values())) > _REMEMBERED_BYTES:
                del self._kept[next(iter(self._kept))]
        return counts


_MEMORY = _Memory()


def _size(c: Counts) -> int:
    return int(c.correct.nbytes + c.errors.nbytes)


def _count_runs(scores: Array, errors: Array) -> Counts:
    """`count_runs`, in slices of rows side by side, whose counts add up."""
    slices = cores() if len(scores) >= _SLICED_ROWS else 1
    parts = list(
        zip(*(np.array_split(a, slices) for a in (scores, errors)), strict=True)
    )
    correct, wrong = zip(*map_threads(_sorted_parts, parts), strict=True)
    every = sort(np.concatenate(wrong))
    last = last_of_each(every)
    values = every[last]
    placed = map_threads(lambda part: place(values, part), list(correct))
    below, through = (reduce(np.add, part) for part in zip(*placed, strict=True))
    wrong_there = np.diff(last, prepend=-1)
    return _runs(below, through, wrong_there, len(scores) - len(every))


def _runs(below: Ints, through: Ints, errors: Ints, n_correct: int) -> Counts:
    """Put groups with errors and the runs of correct rows between them in order.

    `below` and `through` are correct rows below, and at most, each group with errors.
    """
    groups = np.zeros((2, 2 * len(errors) + 1), np.int64)
    groups[0, 0:-1:2] = below - np.concatenate([[0], through])[:-1]
    groups[0, 1::2] = through - below
    groups[0, -1] = n_correct - (through[-1] if len(errors) else 0)
    groups[1, 1::2] = errors
    return Counts(groups[0], groups[1])


def _sorted_parts(part: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the sorted scores of the correct rows, and those of the wrong ones."""
    correct, wrong = split(*part)
    return sort(correct), wrong


def auroc(c: Counts) -> Array:
    """Area under the ROC: a wrong row outranks a correct one, ties one half."""
    below = np.cumsum(c.correct, -1) - 0.5 * c.correct
    return (c.errors * below).sum(-1) / _nonzero(1.0 * c.n_correct * c.n_errors)


def frr_at_trr(c: Counts, *, trr: float, interpolate: bool = False) -> Array:
    """Return the smallest FRR of a threshold whose TRR is at least `trr`.

    With `interpolate`, that on the line between two thresholds where TRR is `trr`.
    """
    target = exact_product(trr, c.n_errors)[..., None]
    rejected_errors = _from_the_end(c.errors)
    rejected_correct = _from_the_end(c.correct)
    last = np.maximum((rejected_errors >= target).sum(-1, keepdims=True) - 1, 0)
    at = np.take_along_axis(rejected_errors, last, -1)
    step = np.take_along_axis(c.errors, last, -1)
    width = np.take_along_axis(c.correct, last, -1)
    before = np.take_along_axis(rejected_correct, last, -1) - width
    part = (target - (at - step)) / _nonzero(step)
    # Tied rows are rejected together: no threshold lies between them.
    share = np.clip(part, 0, 1) if interpolate else 1
    rejected = np.where(target > 0, before + share * width, 0)
    return (rejected / _nonzero(c.n_correct)[..., None])[..., 0]


def trr_at_frr(c: Counts, *, frr: float, interpolate: bool = False) -> Array:
    """Return the largest TRR of a threshold whose FRR is at most `frr`."""
    return 1 - frr_at_trr(c.swapped(), trr=1 - frr, interpolate=interpolate)


def aurc(c: Counts) -> Array:
    """Area under risk-coverage: the mean over k of the risk of the k best rows."""
    size = c.correct + c.errors
    through = np.cumsum(size, -1)
    before = through - size
    errors_before = np.cumsum(c.errors, -1) - c.errors
    slope = c.errors / _nonzero(size)
    steps = np.diff(harmonic(through), axis=-1, prepend=harmonic(np.zeros(1))[0])
    area = (errors_before - slope * before) * steps + c.errors
    return area.sum(-1) / size.sum(-1)


def eaurc(c: Counts) -> Array:
    """AURC above that of a perfect ranking of the same rows."""
    n, right = c.n_correct + c.n_errors, c.n_correct
    best = c.n_errors - right * (harmonic(n) - harmonic(right))
    return np.maximum(aurc(c) - best / n, 0.0)


def augrc(c: Counts) -> Array:
    """Area under the share of all rows that are wrong and accepted, by trapezoids."""
    size = c.correct + c.errors
    errors_before = np.cumsum(c.errors, -1) - c.errors
    area = (size * (errors_before + 0.5 * c.errors)).sum(-1)
    return area / (1.0 * size.sum(-1)) ** 2


def aupr(c: Counts) -> Array:
    """Average precision of finding the wrong rows, most doubtful first."""
    rejected = _from_the_end(c.errors)
    total = rejected + _from_the_end(c.correct)
    precision = rejected / _nonzero(total)
    return (c.errors * precision).sum(-1) / _nonzero(c.n_errors)


def risk_at_coverage(c: Counts, *, coverage: float) -> Array:
    """Risk of the ceil(coverage n) least doubtful rows, averaged over ties."""
    size = c.correct + c.errors
    through = np.cumsum(size, -1)
    kept = np.maximum(np.ceil(exact_product(coverage, size.sum(-1))), 1)[..., None]
    group = (through < kept).sum(-1, keepdims=True)
    end = np.take_along_axis(through, group, -1)
    errors_end = np.take_along_axis(np.cumsum(c.errors, -1), group, -1)
    rate = np.take_along_axis(c.errors / _nonzero(size), group, -1)
    return ((errors_end - (end - kept) * rate) / kept)[..., 0]


def coverage_at_risk(c: Counts, *, risk: float) -> Array:
    """Return the largest coverage of a threshold whose risk is at most `risk`."""
    through = np.cumsum(c.correct + c.errors, -1)
    allowed = exact_product(risk, through)
    kept = np.where(np.cumsum(c.errors, -1) <= allowed, through, 0)
    return kept.max(-1) / through[..., -1]


def last_of_each(ordered: Array, rounding: float = 0.0) -> Ints:
    """Return where each distinct value stands last.

    With a `rounding`, values are distinct where two runtimes agree which is larger:
    each may be off by `rounding` times its size, or by `rounding` near 0. Values that
    nothing parts, one near the other, are parted where they would span twice the gap
    that is asked for: equal numbers never span so much.

    Examples
    --------
    >>> last_of_each(np.array([0.1, 0.1, 0.3, 0.3000001]))
    array([1, 2, 3])
    >>> last_of_each(np.array([0.1, 0.1, 0.3, 0.3000001]), 1e-6)
    array([1, 3])
    """
    last = np.ones(len(ordered), bool)
    last[:-1] = are_apart(ordered[:-1], ordered[1:], rounding)
    ends = np.flatnonzero(last)
    if rounding == 0 or len(ends) == len(ordered):
        return ends
    starts = np.append(0, ends[:-1] + 1)
    if not are_apart(ordered[starts], ordered[ends], 2 * rounding).any():
        return ends
    first = np.repeat(ordered[starts], np.diff(ends, prepend=-1))
    with np.errstate(invalid="ignore"):  # infinities, which are equal
        step = (ordered - first) // (4 * rounding * np.maximum(1, np.abs(first)))
    last[:-1] |= step[1:] > step[:-1]
    return np.flatnonzero(last)


def are_apart(low: Array, high: Array, rounding: float) -> Array:
    """Tell whether two values, the lesser one first, are farther apart than rounding.

    Each may be off by `rounding` times its size, or by `rounding` near 0.
    """
    if rounding == 0:
        return np.asarray(high != low)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, equal or not
        size = np.maximum(1, np.minimum(np.abs(low), np.abs(high)))
        return np.asarray(high - low > 2 * rounding * size)


def _from_the_end(counts: Array) -> Array:
    return np.cumsum(counts[..., ::-1], -1)[..., ::-1]


def _nonzero(counts: Array) -> Array:
    return np.where(counts > 0, counts, 1)


def exact_product(rate: float, n: Array) -> Array:
    """Return rate n, a whole number where the decimal rate makes it one."""
    product = rate * np.asarray(n, np.float64)
    whole = np.rint(product)
    close = np.abs(product - whole) <= 1e-12 * np.maximum(n, 1)
    return np.where(close, whole, product)


def harmonic(k: Array) -> Array:
    """Return H_k = 1 + 1/2 + ... + 1/k, up to a constant; H_0 fits."""
    from scipy.special import digamma

    return np.asarray(digamma(np.asarray(k, np.float64) + 1))
