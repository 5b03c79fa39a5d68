"""Correct and wrong rows at every distinct score: the one kernel of all rank metrics.

Rows of one score form a group; groups are ordered, least doubtful first. Each metric
is a function of the correct and wrong rows in the groups, so ties need no special case,
and the order of the rows cannot matter. `rank.py` checks whether a metric is defined.
"""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_errors, as_scores
from trustdoctor.errors import InputError
from trustdoctor.kernels import cores, map_threads, place, sort, split

_SLICED_ROWS = 1 << 20  # of fewer rows, starting threads costs more than it saves

Ints = NDArray[np.int64]
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Counts:
    """Correct and wrong rows at each distinct score; `counts` makes them of rows.

    Every rank metric takes counts instead of scores and errors, so several metrics
    share one sort.

    Attributes
    ----------
    correct, errors : array (..., groups)
        Correct and wrong rows of each group, least doubtful group first.
    scores : array (groups,), or None
        The group's score: the threshold that accepts the group and all before it. Where
        scores are tied that differ by rounding alone, the largest of them.
    lowest : array (groups,), or None
        The smallest of them.

    Examples
    --------
    >>> c = counts([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    >>> c.scores, c.correct, c.errors
    (array([0.1, 0.4, 0.9]), array([1, 1, 0]), array([0, 1, 1]))
    """

    correct: Array
    errors: Array
    scores: Array | None = None
    lowest: Array | None = None

    @property
    def n_correct(self) -> Array:
        """All correct rows, (...)."""
        return self.correct.sum(-1)

    @property
    def n_errors(self) -> Array:
        """All wrong rows, (...)."""
        return self.errors.sum(-1)

    def swapped(self) -> "Counts":
        """Return the same rows with doubt reversed, and correct and wrong exchanged."""
        return Counts(self.errors[..., ::-1], self.correct[..., ::-1])

    def reversed(self) -> "Counts":
        """Return the same rows with doubt reversed."""
        return Counts(self.correct[..., ::-1], self.errors[..., ::-1])

    @cached_property
    def runs(self) -> "Counts":
        """The counts of `count_runs`: correct rows between two errors are one group."""
        groups = np.flatnonzero(self.errors)
        correct_through = np.cumsum(self.correct)
        through = correct_through[groups]
        below = through - self.correct[groups]
        return _runs(below, through, self.errors[groups], correct_through[-1])


def counts(scores: Any, errors: Any, *, rounding: float = 0.0) -> Counts:
    """Count correct and wrong rows at every distinct score.

    Three metrics of scores and errors sort three times; of their counts, once.
    `measure` takes several metrics from coarser counts, which is faster still.

    Parameters
    ----------
    scores : array (n,)
        Doubts: higher means trust less.
    errors : bool array (n,)
        Where the predictions are wrong.
    rounding : float
        How far rounding may move a score, relative to its size: scores that two
        runtimes may put in different orders are tied.

    Examples
    --------
    >>> import trustdoctor as td
    >>> c = td.counts([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> td.auroc(c), td.frr_at_trr(c), td.augrc(c)
    (0.75, 0.5, 0.1875)
    """
    s = as_scores(scores)
    sorted_errors = sort(s[as_errors(errors, rows=len(s))])
    ordered = sort(s.copy())
    last = last_of_each(ordered, rounding)
    distinct = len(last) == len(ordered)
    # Without ties, two arrays as long as the rows are spared.
    highest = ordered if distinct else ordered[last]
    lowest = ordered[np.append(0, last[:-1] + 1)] if rounding else highest
    groups, _ = place(sorted_errors, highest)
    n_errors = np.bincount(groups, minlength=len(last))
    n_correct = (1 if distinct else np.diff(last, prepend=-1)) - n_errors
    return Counts(n_correct, n_errors, highest, lowest)


def count_runs(scores: Any, errors: Any) -> Counts:
    """Count rows at every distinct score of an error, and in the runs between them.

    A run of correct rows between two errors becomes one group. That changes no metric
    but AUPR of the correct rows, and leaves few groups where errors are few: correct
    and wrong rows are sorted separately, and only errors are placed.
    """
    s = as_scores(scores)
    wrong = as_errors(errors, rows=len(s))
    # Slices of rows side by side; their counts add up.
    slices = cores() if len(s) >= _SLICED_ROWS else 1
    rows = list(zip(*(np.array_split(a, slices) for a in (s, wrong)), strict=True))
    correct, errors = zip(*map_threads(_sorted_kinds, rows), strict=True)
    ordered = sort(np.concatenate(errors))
    last = last_of_each(ordered)
    values = ordered[last]
    placed = map_threads(
        lambda slice_scores: place(values, slice_scores), list(correct)
    )
    below, through = (reduce(np.add, ranks) for ranks in zip(*placed, strict=True))
    n_errors = np.diff(last, prepend=-1)
    return _runs(below, through, n_errors, len(s) - len(ordered))


def as_counts(scores: Any, errors: Any = None) -> Counts:
    """Return counts at every distinct score, of scores and errors or counts alone."""
    return scores if _is_counts(scores, errors) else counts(scores, errors)


def as_runs(scores: Any, errors: Any = None) -> Counts:
    """Return counts in runs, of scores and errors or counts alone."""
    return scores.runs if _is_counts(scores, errors) else count_runs(scores, errors)


def _is_counts(scores: Any, errors: Any) -> bool:
    """Tell whether counts came alone; refuse counts with errors, and scores alone."""
    if isinstance(scores, Counts):
        if errors is not None:
            message = "counts know their errors, got errors besides. Leave errors out."
            raise InputError(message)
        return True
    if errors is None:
        message = (
            "expected scores and errors, or Counts alone, got "
            f"{type(scores).__name__} without errors. Pass predicted != labels, or "
            "counts(scores, errors)."
        )
        raise InputError(message)
    return False


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


def _sorted_kinds(rows: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the sorted scores of the correct rows, and those of the wrong ones."""
    correct, wrong = split(*rows)
    return sort(correct), sort(wrong)


def auroc(c: Counts) -> Array:
    """Area under the ROC: P(error above correct) + P(tie) / 2."""
    below = np.cumsum(c.correct, -1) - 0.5 * c.correct
    return (c.errors * below).sum(-1) / _nonzero(1.0 * c.n_correct * c.n_errors)


def frr_at_trr(c: Counts, *, trr: float, interpolate: bool = False) -> Array:
    """Return the smallest FRR of a threshold whose TRR is at least `trr`.

    With `interpolate`, that on the line between two thresholds where TRR is `trr`.
    """
    target = exact_product(trr, c.n_errors)[..., None]
    rejected_errors = _from_the_end(c.errors)
    rejected_correct = _from_the_end(c.correct)
    group = np.maximum((rejected_errors >= target).sum(-1, keepdims=True) - 1, 0)
    rejected = np.take_along_axis(rejected_errors, group, -1)
    errors = np.take_along_axis(c.errors, group, -1)
    correct = np.take_along_axis(c.correct, group, -1)
    correct_before = np.take_along_axis(rejected_correct, group, -1) - correct
    fraction = (target - (rejected - errors)) / _nonzero(errors)
    # Tied rows are rejected together: no threshold lies between them.
    share = np.clip(fraction, 0, 1) if interpolate else 1
    rejected = np.where(target > 0, correct_before + share * correct, 0)
    return (rejected / _nonzero(c.n_correct)[..., None])[..., 0]


def trr_at_frr(c: Counts, *, frr: float, interpolate: bool = False) -> Array:
    """Return the largest TRR of a threshold whose FRR is at most `frr`."""
    return 1 - frr_at_trr(c.swapped(), trr=1 - frr, interpolate=interpolate)


def aurc(c: Counts) -> Array:
    """Area under risk-coverage: the mean over k of the risk of the k best rows.

    Over the orders of a group of s tied rows with e errors, after b rows with a errors,
    the mean risk at b + i is (a + e i / s) / (b + i); its sum over i from 1 to s is
    (a - e b / s) (H_{b+s} - H_b) + e.
    """
    size = c.correct + c.errors
    through = np.cumsum(size, -1)
    before = through - size
    errors_before = np.cumsum(c.errors, -1) - c.errors
    slope = c.errors / _nonzero(size)
    steps = np.diff(harmonic(through), axis=-1, prepend=harmonic(np.zeros(1))[0])
    area = (errors_before - slope * before) * steps + c.errors
    return area.sum(-1) / size.sum(-1)


def eaurc(c: Counts) -> Array:
    """AURC less that of a perfect ranking of the same rows."""
    n, n_correct = c.n_correct + c.n_errors, c.n_correct
    best = c.n_errors - n_correct * (harmonic(n) - harmonic(n_correct))
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
    accepted = np.maximum(np.ceil(exact_product(coverage, size.sum(-1))), 1)[..., None]
    group = (through < accepted).sum(-1, keepdims=True)
    end = np.take_along_axis(through, group, -1)
    errors_end = np.take_along_axis(np.cumsum(c.errors, -1), group, -1)
    rate = np.take_along_axis(c.errors / _nonzero(size), group, -1)
    return ((errors_end - (end - accepted) * rate) / accepted)[..., 0]


def coverage_at_risk(c: Counts, *, risk: float) -> Array:
    """Return the largest coverage of a threshold whose risk is at most `risk`."""
    through = np.cumsum(c.correct + c.errors, -1)
    allowed = exact_product(risk, through)
    accepted = np.where(np.cumsum(c.errors, -1) <= allowed, through, 0)
    return accepted.max(-1) / through[..., -1]


def last_of_each(ordered: Array, rounding: float = 0.0) -> Ints:
    """Return the last index of each distinct value of a sorted array.

    With a `rounding`, values are distinct where two runtimes agree which is larger:
    each may be off by `rounding` times its size, or by `rounding` near 0. A chain of
    values, each too near the next, is cut wherever it would span twice the distance at
    which two values are distinct: rounded copies of one number never span that much.

    Examples
    --------
    >>> last_of_each(np.array([0.1, 0.1, 0.3, 0.3000001]))
    array([1, 2, 3])
    >>> last_of_each(np.array([0.1, 0.1, 0.3, 0.3000001]), 1e-6)
    array([1, 3])
    """
    is_last = np.ones(len(ordered), bool)
    is_last[:-1] = are_apart(ordered[:-1], ordered[1:], rounding)
    last = np.flatnonzero(is_last)
    if rounding == 0 or len(last) == len(ordered):
        return last
    first = np.append(0, last[:-1] + 1)
    if not are_apart(ordered[first], ordered[last], 2 * rounding).any():
        return last
    start = np.repeat(ordered[first], np.diff(last, prepend=-1))
    with np.errstate(invalid="ignore"):  # infinities, which are equal
        step = (ordered - start) // (4 * rounding * np.maximum(1, np.abs(start)))
    is_last[:-1] |= step[1:] > step[:-1]
    return np.flatnonzero(is_last)


def are_apart(low: Array, high: Array, rounding: float) -> Array:
    """Tell whether two values, the smaller one first, differ by more than rounding.

    Each may be off by `rounding` times its size, or by `rounding` near 0.
    """
    if rounding == 0:
        return np.asarray(high != low)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, equal or not
        size = np.maximum(1, np.minimum(np.abs(low), np.abs(high)))
        return np.asarray(high - low > 2 * rounding * size)


def _from_the_end(group_counts: Array) -> Array:
    return np.cumsum(group_counts[..., ::-1], -1)[..., ::-1]


def _nonzero(denominator: Array) -> Array:
    return np.where(denominator > 0, denominator, 1)


def exact_product(rate: float, n: Array) -> Array:
    """Return rate n, as an integer where the decimal rate makes it one.

    0.29 * 100 is 28.999999999999996 in floats; a threshold must reach 29 rows.
    """
    product = rate * np.asarray(n, np.float64)
    integer = np.rint(product)
    close = np.abs(product - integer) <= 1e-12 * np.maximum(n, 1)
    return np.where(close, integer, product)


def harmonic(k: Array) -> Array:
    """Return H_k = 1 + 1/2 + ... + 1/k less Euler's constant; also for k = 0."""
    from scipy.special import digamma

    return np.asarray(digamma(np.asarray(k, np.float64) + 1))
