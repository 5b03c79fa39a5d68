"""Differences between two scores on the same rows, with their intervals."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import InputError
from trustdoctor.kernels import order
from trustdoctor.metrics import score_counts
from trustdoctor.metrics.areas import AREAS, area_interval, placements
from trustdoctor.metrics.bootstrap import (
    OUTERMOST,
    Moments,
    largest_values,
    moments_of_sums,
    unseen_weight,
)
from trustdoctor.metrics.curve_points import (
    TIED_NOTE,
    CurvePoint,
    frr_point,
)
from trustdoctor.metrics.intervals import (
    FEW_ROWS,
    Estimate,
    Interval,
    check_confidence,
)
from trustdoctor.metrics.score_counts import Counts, exact_product, last_of_each

_BLOCK_ROWS = 1 << 15  # differences of as many rows stay in the cache


_UNSEEN_STEPS = 3.0  # from the largest difference to one that was not seen


_FEWEST_MARKED = 20  # rows that show whether two thresholds agree


class Ranking:
    """The rows of one score in order: their counts, and the place of each.

    Parameters
    ----------
    scores : float array (n,)
    wrong : bool array (n,)
    rounding : float
        Scores whose order depends on rounding alone are tied, as in `counts`.

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
    def placements(self) -> tuple[Array, Array]:
        """For each error, correct rows below it; for each correct row, errors above.

        As shares of all of that kind; ties count one half.
        """
        of_rows = self._on_rows(*placements(self.counts))
        return of_rows[self.wrong], of_rows[~self.wrong]

    def influences(self, area: str) -> tuple[float, Array]:
        """Return one of `AREAS`, and how far each row moves it."""
        value, of_errors, of_correct = AREAS[area].influences(self.counts)
        return value, self._on_rows(of_errors, of_correct)

    def _on_rows(self, of_errors: Array, of_correct: Array) -> Array:
        """Return the value of each row, from those of its group by kind of row."""
        of_rows = np.empty(len(self.wrong))
        errors, correct = (np.repeat(v, self._sizes) for v in (of_errors, of_correct))
        of_rows[self._order] = np.where(self.wrong[self._order], errors, correct)
        return of_rows

    def risk_influences(self, coverage: float) -> tuple[float, Array]:
        """Return the risk at a coverage, and how far each row moves it.

        An accepted row moves it by its error, less the share of errors near the
        threshold: one more accepted row pushes another one out.
        """
        n, c = len(self.wrong), self.counts
        accepted = max(1, math.ceil(float(exact_product(coverage, np.asarray(n)))))
        through, errors_through = np.cumsum(self._sizes), np.cumsum(c.errors)
        group = int(np.searchsorted(through, accepted))
        width = max(_FEWEST_MARKED, n // 20)
        ends = np.clip([accepted - width, accepted + width], 0, n)
        near = np.interp(ends, np.append(0, through), np.append(0, errors_through))
        local_risk = float(np.diff(near)[0] / np.diff(ends)[0])
        # Of the group at the threshold, a share is accepted.
        share = (accepted - (through[group] - self._sizes[group])) / self._sizes[group]
        shares = np.where(np.arange(len(through)) < group, 1.0, 0.0)
        shares[group] = share
        value = float(score_counts.risk_at_coverage(c, coverage=coverage))
        of_errors, of_correct = (1 - local_risk) * shares, -local_risk * shares
        return value, self._on_rows(of_errors, of_correct) / coverage

    @cached_property
    def largest_steps(self) -> tuple[float, float]:
        """The largest step in placement to the next score, by kind of row."""
        below, above = placements(self.counts)
        steps = np.diff(below), -np.diff(above)
        return float(steps[0].max(initial=0)), float(steps[1].max(initial=0))

    def same_order(self, other: "Ranking") -> bool:
        """Tell whether two scores put all rows in the same order, ties included."""
        if not np.array_equal(self._sizes, other._sizes):
            return False
        if np.array_equal(self._order, other._order):
            return True
        # Rows within a group may stand in any order.
        groups = np.repeat(np.arange(len(self._sizes)), self._sizes)
        groups_of_rows = np.empty((2, len(groups)), np.int64)
        groups_of_rows[0, self._order] = groups
        groups_of_rows[1, other._order] = groups
        return np.array_equal(*groups_of_rows)

    def frr_point(self, *, trr: float, confidence: float) -> CurvePoint:
        """Measure FRR at a TRR, and how far it may be from its true value."""
        return frr_point(self.counts, trr=trr, confidence=confidence)

    def misjudged(self, *, trr: float, frr: float) -> Array:
        """Mark errors accepted at a TRR, and correct rows rejected at an FRR.

        At least twenty of each kind, where it has forty.
        """
        c = self.counts
        low = self._score_at_rank(c.errors, 1 - trr)
        high = self._score_at_rank(c.correct[::-1], frr, highest_first=True)
        return np.where(self.wrong, self.scores <= low, self.scores >= high)

    def _score_at_rank(
        self, group_counts: Array, share: float, *, highest_first: bool = False
    ) -> float:
        through = np.cumsum(group_counts)
        n = int(through[-1])
        rank = min(max(round(share * n), _FEWEST_MARKED, 1), max(n // 2, 1))
        group = int(np.searchsorted(through, rank))
        scores = self.counts.lowest if highest_first else self.counts.scores
        assert scores is not None
        return float(scores[-1 - group if highest_first else group])


def delong_difference(
    first: Any, second: Any, errors: Any, *, confidence: float = 0.95
) -> Interval:
    """Interval of AUROC(first) - AUROC(second) on the same rows, paired.

    DeLong's variance of the difference, the skewness of the same placements, and
    towards either end one unseen row of each kind. `docs/intervals.md` says how often
    it covers.

    References
    ----------
    DeLong et al., Biometrics 1988.

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
    difference = auroc_difference(*rankings, confidence=confidence)
    assert difference.low is not None
    assert difference.high is not None
    return difference.low, difference.high


def auroc_difference(
    first: Ranking, second: Ranking, *, confidence: float = 0.95
) -> Estimate:
    """`delong_difference` of two rankings of the same rows."""
    tail = (1 - check_confidence(confidence)) / 2
    has_few_rows = min(map(len, first.placements)) < FEW_ROWS
    steps = map(max, first.largest_steps, second.largest_steps)
    kinds = [
        _RowDifferences(a, b, has_few_rows=has_few_rows, step=step)
        for a, b, step in zip(first.placements, second.placements, steps, strict=True)
    ]
    difference = kinds[0].mean
    if all(kind.none for kind in kinds):
        return _equal_aurocs(first, second, confidence)
    low, high = (_low_end(kinds, difference, tail, sign) for sign in (1, -1))
    low, high = min(low, difference), max(-high, difference)
    return Estimate(difference, max(-1.0, low), min(1.0, high))


def _equal_aurocs(first: Ranking, second: Ranking, confidence: float) -> Estimate:
    """Return the difference of two scores that separate errors equally well.

    It is known to be 0 where they put all rows in the same order, as two scales of one
    score do. Otherwise they may agree by chance, as where both rank perfectly.
    """
    if first.same_order(second):
        return Estimate(0.0, 0.0, 0.0)
    (low, high), (other_low, other_high) = (
        area_interval("auroc", ranking.counts, confidence=confidence)
        for ranking in (first, second)
    )
    return Estimate(0.0, low - other_high, high - other_low)


def _low_end(
    kinds: "list[_RowDifferences]", difference: float, tail: float, sign: int
) -> float:
    """Return the low end of the difference, or of its negative."""
    moments = [kind.moments(sign) for kind in kinds]
    # Errors and correct rows have the same mean; their unseen rows move it separately.
    shift = sum(
        of_kind.value - sign * kind.mean
        for of_kind, kind in zip(moments, kinds, strict=True)
    )
    of_difference = Moments(
        sign * difference + shift,
        sum(of_kind.variance for of_kind in moments),
        sum(of_kind.third for of_kind in moments),
    )
    return of_difference.quantile(tail)


class _RowDifferences:
    """Differences between what rows of one kind contribute under two scores.

    `limit` is what a contribution cannot exceed, and `step` how far two neighbouring
    ones are apart.
    """

    def __init__(
        self,
        first: Array,
        second: Array,
        *,
        has_few_rows: bool = False,
        step: float = 0.0,
        limit: float = 1.0,
    ) -> None:
        self.n, self._has_few_rows, self._step = len(first), has_few_rows, step
        self._limit = limit
        powers, largest = np.zeros(3), []
        for start in range(0, self.n, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            d = first[rows] - second[rows]
            squares = d * d
            powers += d.sum(), squares.sum(), (squares * d).sum()
            largest.append(largest_values(np.abs(d), OUTERMOST + 1))
        self._powers = powers
        self.mean = float(powers[0]) / self.n
        self._largest = np.concatenate(largest)

    @property
    def none(self) -> bool:
        """Whether the placements are the same under both scores."""
        return not self._largest.any()

    def moments(self, sign: int) -> Moments:
        """Return the moments of the mean, with an unseen row that lowers it."""
        largest = largest_values(self._largest, OUTERMOST + 1)
        step = float((largest[:-1] - largest[-1]).mean()) if len(largest) > 1 else 0.0
        # Few rows do not tell: one score may be blind where the other is not. Where
        # rows are tied, all that were seen may agree, and the next be one step off.
        far = max(self._step, float(largest[0]) + _UNSEEN_STEPS * step)
        unseen = -0.5 if self._has_few_rows else -min(self._limit, far)
        weight = unseen_weight(self.n)
        n = self.n + weight
        sum_1, sum_2, sum_3 = self._powers
        sums = (
            sign * sum_1 + weight * unseen,
            sum_2 + weight * unseen**2,
            sign * sum_3 + weight * unseen**3,
        )
        mean = sums[0] / n
        squares = sums[1] - n * mean**2
        cubes = sums[2] - 3 * mean * sums[1] + 2 * n * mean**3
        return moments_of_sums(float(mean), n, float(squares), float(cubes))


@dataclass(frozen=True, eq=False)
class PairedFrr:
    """FRR at a TRR of one score, and what a difference to another score's needs."""

    point: CurvePoint
    misjudged: Array
    ranking: Ranking


def paired_frr(ranking: Ranking, *, trr: float, confidence: float = 0.95) -> PairedFrr:
    """Measure FRR at a TRR of one score, for `frr_difference`."""
    point = ranking.frr_point(trr=trr, confidence=confidence)
    return PairedFrr(point, ranking.misjudged(trr=trr, frr=point.value), ranking)


def frr_difference(first: PairedFrr, second: PairedFrr, wrong: Array) -> Estimate:
    """Interval of FRR(first) - FRR(second) at the same TRR, paired.

    Two thresholds do similar things to the same rows. As far as they do, by the
    correlation of the rows they misjudge, the distances of the two intervals cancel:
    Newcombe's square-and-add interval of a paired difference of proportions.

    References
    ----------
    Newcombe, Improved Confidence Intervals for the Difference between Binomial
    Proportions Based on Paired Data, Statistics in Medicine 1998.
    """
    if first.point == second.point and first.ranking.same_order(second.ranking):
        return Estimate(0.0, 0.0, 0.0)
    correlations = [
        _correlation(first.misjudged, second.misjudged, kind)
        for kind in (wrong, ~wrong)
    ]
    a, b = first.point.with_large_jumps(), second.point.with_large_jumps()
    shared = sum(
        2 * correlation * _mean_distance(a, side) * _mean_distance(b, side)
        for side, correlation in enumerate(correlations)
    )
    difference = a.value - b.value
    # Jumps add up: two thresholds may jump to opposite sides on the same rows.
    low = difference - a.jumps[0] - b.jumps[1] - _distance(a.below, b.above, shared)
    high = difference + a.jumps[1] + b.jumps[0] + _distance(a.above, b.below, shared)
    note = TIED_NOTE if any((*first.point.jumps, *second.point.jumps)) else ""
    return Estimate(difference, max(-1.0, low), min(1.0, high), note=note)


def area_difference(
    area: str, first: Ranking, second: Ranking, *, confidence: float = 0.95
) -> Estimate:
    """Interval of one of `AREAS` of the first less that of the second, paired.

    From the moments of the differences between the influences of each row, and towards
    either end one unseen row.
    """
    if area == "auroc":
        return auroc_difference(first, second, confidence=confidence)
    tail = (1 - check_confidence(confidence)) / 2
    value, influences = first.influences(area)
    other_value, other_influences = second.influences(area)
    difference = value - other_value
    rows = _RowDifferences(influences, other_influences, limit=math.inf)
    if rows.none and first.same_order(second):
        return Estimate(0.0, 0.0, 0.0)
    low, high = (_low_end([rows], difference, tail, sign) for sign in (1, -1))
    return Estimate(difference, min(low, difference), max(-high, difference))


def risk_difference(
    first: Ranking, second: Ranking, *, coverage: float, confidence: float = 0.95
) -> Estimate:
    """Interval of the risk at a coverage of the first less the second's, paired.

    From the moments of the differences between the influences of each row.
    """
    if first.same_order(second):
        return Estimate(0.0, 0.0, 0.0)
    tail = (1 - check_confidence(confidence)) / 2
    value, influences = first.risk_influences(coverage)
    other_value, other_influences = second.risk_influences(coverage)
    rows = _RowDifferences(influences, other_influences, limit=1 / coverage)
    difference = value - other_value
    low, high = (_low_end([rows], difference, tail, sign) for sign in (1, -1))
    low, high = min(low, difference), max(-high, difference)
    return Estimate(difference, max(-1.0, low), min(1.0, high))


def _mean_distance(point: CurvePoint, side: int) -> float:
    """Return the mean distance down and up, due to errors (0) or correct rows (1)."""
    return (point.below[side] + point.above[side]) / 2


def _distance(
    first: tuple[float, float], second: tuple[float, float], shared: float
) -> float:
    """Return how far the difference may be off: squares add up, less what is shared.

    At least an eighth of the squares remains: two scores that agree on these rows may
    still differ on others.
    """
    square = math.hypot(*first, *second) ** 2
    return math.sqrt(max(square - shared, square / 8))


def _correlation(first: Array, second: Array, kind: Array) -> float:
    """Return the correlation of two marks among rows of one kind, at least 0."""
    n = np.count_nonzero(kind)
    a, b = (np.count_nonzero(marks & kind) / n for marks in (first, second))
    joint = np.count_nonzero(first & second & kind) / n
    scale = math.sqrt(a * (1 - a) * b * (1 - b))
    return max(0.0, (joint - a * b) / scale) if scale > 0 else 0.0
