"""Differences between two scores on the same rows, with their intervals."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import InputError
from trustdoctor.kernels import order
from trustdoctor.metrics.areas import area_interval, shares_below
from trustdoctor.metrics.counts import Counts, last_of_each
from trustdoctor.metrics.crossings import TIED_NOTE, Arms, frr_arms
from trustdoctor.metrics.further import OUTERMOST, largest, weight
from trustdoctor.metrics.intervals import FEW, Estimate, Interval, check_confidence
from trustdoctor.metrics.skewed import Spread, spread_of_sums

_BLOCK = 1 << 15  # rows whose differences stay in the cache


_FAR = 3.0  # steps that the next difference may be beyond the largest


_FEWEST = 20  # rows from which an agreement of two thresholds is read


Places = tuple[Array, Array]
"""Where the errors are among the correct rows, and those among the errors."""


class Ranking:
    """One score's rows in order: their counts, and where each stands.

    Parameters
    ----------
    scores : float array (n,)
    wrong : bool array (n,)
    rounding : float
        Scores that rounding alone may put in order are tied, as in `count`.

    Examples
    --------
    >>> Ranking(np.array([0.1, 0.6, 0.4]), np.array([False, False, True])).counts.errors
    array([0, 1, 0])
    """

    def __init__(self, scores: Array, wrong: Array, rounding: float = 0.0) -> None:
        self.scores, self.wrong = scores, wrong
        self._order = order(scores)
        ordered = scores[self._order]
        last = last_of_each(ordered, rounding)
        self._sizes = np.diff(last, prepend=-1)
        errors = np.diff(np.cumsum(wrong[self._order])[last], prepend=0)
        first = np.append(0, last[:-1] + 1)
        self.counts = Counts(
            self._sizes - errors, errors, ordered[last], ordered[first]
        )

    @cached_property
    def places(self) -> Places:
        """For each error, correct rows below it; for each correct row, errors above.

        As shares of all of that kind; ties count one half.
        """
        wrong = self.wrong[self._order]
        out = np.empty(len(wrong))
        below, above = (np.repeat(s, self._sizes) for s in shares_below(self.counts))
        out[self._order] = np.where(wrong, below, above)
        return out[self.wrong], out[~self.wrong]

    @cached_property
    def gaps(self) -> tuple[float, float]:
        """How far the next score is at most, for errors and for correct rows."""
        below, above = shares_below(self.counts)
        steps = np.diff(below), -np.diff(above)
        return float(steps[0].max(initial=0)), float(steps[1].max(initial=0))

    def same_order(self, other: "Ranking") -> bool:
        """Say whether two scores put all rows in the same order, ties included."""
        if not np.array_equal(self._sizes, other._sizes):
            return False
        if np.array_equal(self._order, other._order):
            return True
        # Rows within a group may stand in any order.
        groups = np.repeat(np.arange(len(self._sizes)), self._sizes)
        places = np.empty((2, len(groups)), np.int64)
        places[0, self._order], places[1, other._order] = groups, groups
        return np.array_equal(*places)

    def arms(self, *, trr: float, confidence: float) -> Arms:
        """Measure how far FRR at a TRR may be from its estimate."""
        return frr_arms(self.counts, trr=trr, confidence=confidence)

    def beyond(self, *, trr: float, frr: float) -> Array:
        """Mark errors accepted at a TRR, and correct rows rejected at an FRR.

        At least twenty of each kind, where it has forty.
        """
        c = self.counts
        low = self._at_rank(c.errors, 1 - trr)
        high = self._at_rank(c.correct[::-1], frr, highest_first=True)
        return np.where(self.wrong, self.scores <= low, self.scores >= high)

    def _at_rank(
        self, counts: Array, share: float, *, highest_first: bool = False
    ) -> float:
        through = np.cumsum(counts)
        n = int(through[-1])
        rank = min(max(round(share * n), _FEWEST, 1), max(n // 2, 1))
        c, at = self.counts, int(np.searchsorted(through, rank))
        values = c.lowest if highest_first else c.highest
        assert values is not None
        return float(values[-1 - at if highest_first else at])


def delong_difference(
    first: Any, second: Any, errors: Any, *, confidence: float = 0.95
) -> Interval:
    """Interval of AUROC(first) - AUROC(second) on the same rows, paired.

    DeLong's variance of the difference, the skewness of the same placements, and
    towards either end one row of each kind more than was seen.

    Examples
    --------
    >>> errors = [False, False, True, True]
    >>> delong_difference([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0], errors)
    (0.0, 0.0)
    """
    a, b = as_scores(first), as_scores(second)
    wrong = as_errors(errors, rows=len(a))
    if len(a) != len(b) or wrong.all() or not wrong.any():
        message = (
            f"expected two scores of the same rows, some right and some wrong, got "
            f"{len(a)} and {len(b)} scores and {int(wrong.sum())} errors."
        )
        raise InputError(message)
    rankings = (Ranking(scores, wrong) for scores in (a, b))
    found = auroc_difference(*rankings, confidence=confidence)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def auroc_difference(
    first: Ranking, second: Ranking, *, confidence: float = 0.95
) -> Estimate:
    """`delong_difference` of two rankings of the same rows."""
    share = (1 - check_confidence(confidence)) / 2
    pairs = zip(first.places, second.places, strict=True)
    few = min(map(len, first.places)) < FEW
    gaps = map(max, first.gaps, second.gaps)
    kinds = [
        _Differences(*pair, few=few, gap=gap)
        for pair, gap in zip(pairs, gaps, strict=True)
    ]
    difference = kinds[0].mean
    if all(kind.none for kind in kinds):
        return _alike(first, second, confidence)
    low, high = (_end(kinds, difference, share, sign) for sign in (1, -1))
    ends = max(-1.0, min(low, difference)), min(1.0, max(-high, difference))
    return Estimate(difference, *ends)


def _alike(first: Ranking, second: Ranking, confidence: float) -> Estimate:
    """Return the difference of two scores that part errors and others alike.

    It is known where they put all rows in the same order, as two scales of one score
    do. Else nothing but luck may part them, as where both rank perfectly.
    """
    if first.same_order(second):
        return Estimate(0.0, 0.0, 0.0)
    (low, high), other = (
        area_interval("auroc", ranking.counts, confidence=confidence)
        for ranking in (first, second)
    )
    return Estimate(0.0, low - other[1], high - other[0])


def _end(
    kinds: "list[_Differences]", difference: float, share: float, sign: int
) -> float:
    """Return the low end of the difference, or of its negative."""
    laws = [kind.law(sign) for kind in kinds]
    # Errors and correct rows both give the mean; the further ones move it apart.
    moved = sum(
        law.value - sign * kind.mean for law, kind in zip(laws, kinds, strict=True)
    )
    whole = Spread(
        sign * difference + moved,
        sum(law.variance for law in laws),
        sum(law.third for law in laws),
    )
    return whole.quantile(share)


class _Differences:
    """Differences in place between two scores, of rows of one kind: their moments."""

    def __init__(
        self, first: Array, second: Array, *, few: bool, gap: float = 0.0
    ) -> None:
        self.n, self._few, self._gap = len(first), few, gap
        powers, tops = np.zeros(3), []
        for start in range(0, self.n, _BLOCK):
            at = slice(start, start + _BLOCK)
            d = first[at] - second[at]
            squares = d * d
            powers += d.sum(), squares.sum(), (squares * d).sum()
            tops.append(largest(np.abs(d), OUTERMOST + 1))
        self._powers = powers
        self.mean = float(powers[0]) / self.n
        self._tops = np.concatenate(tops)

    @property
    def none(self) -> bool:
        return not self._tops.any()

    def law(self, sign: int) -> Spread:
        """Return the law of the mean, with one row more that lowers it."""
        top = largest(self._tops, OUTERMOST + 1)
        step = float((top[:-1] - top[-1]).mean()) if len(top) > 1 else 0.0
        # Of few rows nobody knows: one score may be blind where the other is not.
        # Where rows are tied, all that were seen may agree: the next may be one off.
        far = max(self._gap, float(top[0]) + _FAR * step)
        further = -0.5 if self._few else -min(1.0, far)
        part = weight(self.n)
        n = self.n + part
        one, two, three = self._powers
        sums = (
            sign * one + part * further,
            two + part * further**2,
            sign * three + part * further**3,
        )
        mean = sums[0] / n
        squares = sums[1] - n * mean**2
        cubes = sums[2] - 3 * mean * sums[1] + 2 * n * mean**3
        return spread_of_sums(float(mean), n, float(squares), float(cubes))


@dataclass(frozen=True, eq=False)
class FrrParts:
    """What an interval of a difference in FRR at a TRR takes of each score."""

    arms: Arms
    beyond: Array
    ranking: Ranking


def frr_parts(ranking: Ranking, *, trr: float, confidence: float = 0.95) -> FrrParts:
    """Measure one score."""
    arms = ranking.arms(trr=trr, confidence=confidence)
    return FrrParts(arms, ranking.beyond(trr=trr, frr=arms.value), ranking)


def frr_difference(first: FrrParts, second: FrrParts, wrong: Array) -> Estimate:
    """Interval of FRR(first) - FRR(second) at the same TRR, paired.

    What two thresholds do to the same rows is alike; as far as it is, the distances of
    the two intervals cancel.
    """
    if first.arms == second.arms and first.ranking.same_order(second.ranking):
        return Estimate(0.0, 0.0, 0.0)
    alike = [_agreement(first.beyond, second.beyond, kind) for kind in (wrong, ~wrong)]
    a, b = first.arms.with_large_jumps(), second.arms.with_large_jumps()
    shared = sum(
        2 * share * _mean(a, side) * _mean(b, side) for side, share in enumerate(alike)
    )
    difference = a.value - b.value
    # Jumps add up: two thresholds may jump to opposite sides on the same rows.
    low = difference - a.jumps[0] - b.jumps[1] - _apart(a.below, b.above, shared)
    high = difference + a.jumps[1] + b.jumps[0] + _apart(a.above, b.below, shared)
    note = TIED_NOTE if any((*first.arms.jumps, *second.arms.jumps)) else ""
    return Estimate(difference, max(-1.0, low), min(1.0, high), note)


def _mean(arms: Arms, side: int) -> float:
    """Return the mean length of two arms, for errors (0) or for correct rows (1)."""
    return (arms.below[side] + arms.above[side]) / 2


def _apart(
    first: tuple[float, float], second: tuple[float, float], shared: float
) -> float:
    """Return how far two estimates may be apart, at least by a half of the longer."""
    square = math.hypot(*first, *second) ** 2
    return math.sqrt(max(square - shared, square / 8))


def _agreement(first: Array, second: Array, kind: Array) -> float:
    """Return the correlation of two marks among rows of one kind, at least 0."""
    n = np.count_nonzero(kind)
    a, b = (np.count_nonzero(marks & kind) / n for marks in (first, second))
    both = np.count_nonzero(first & second & kind) / n
    scale = math.sqrt(a * (1 - a) * b * (1 - b))
    return max(0.0, (both - a * b) / scale) if scale > 0 else 0.0
