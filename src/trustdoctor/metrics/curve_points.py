"""Intervals of metrics read off a point of a curve: FRR@TRR, risk@coverage, ...

Two things are uncertain there: where the threshold lies, and what it does to the rows.
Order statistics give an interval of the first (the ranks that a binomial count of rows
beyond the true threshold may have), Clopper and Pearson's interval one of the second.
The distances of both from the estimate add up in squares, as Newcombe and Zou & Donner
combine intervals. docs/intervals.md says how often the result covers.

References
----------
Clopper & Pearson, The Use of Confidence or Fiducial Limits Illustrated in the Case of
the Binomial, Biometrika 1934.
Newcombe, Interval Estimation for the Difference Between Independent Proportions,
Statistics in Medicine 1998.
Zou & Donner, Construction of Confidence Limits about Effect Measures, Statistics in
Medicine 2008.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import score_counts
from trustdoctor.metrics.bootstrap import (
    OUTERMOST,
    error_tail,
    least_doubtful_errors,
    rows_below,
)
from trustdoctor.metrics.intervals import (
    Interval,
    check_confidence,
    clopper_pearson,
    normal_quantile,
)
from trustdoctor.metrics.rank import Points
from trustdoctor.metrics.score_counts import Counts, exact_product

_TESTED = 1 << 11  # thresholds tested at first: exact tests of all would take seconds


_LEAST_STEP = 0.4  # of a standard deviation, where ranks show no distance


TIED_NOTE = "many rows share one score, so an interval may reach to the next score"


@dataclass(frozen=True)
class CurvePoint:
    """A metric read off a curve, and how far its true value may be.

    Attributes
    ----------
    value : float
        The estimate.
    below, above : (float, float)
        How far down and up: for where the threshold lies, and for what it does. Of FRR
        at a TRR, the first is due to the errors and the second to the correct rows.
    jumps : (float, float)
        How far down and up it may jump besides, over a group of tied rows.
    """

    value: float
    below: tuple[float, float]
    above: tuple[float, float]
    jumps: tuple[float, float] = (0.0, 0.0)

    @property
    def interval(self) -> Interval:
        """The interval of everything together, within 0 and 1."""
        low = self.value - self.jumps[0] - math.hypot(*self.below)
        high = self.value + self.jumps[1] + math.hypot(*self.above)
        return max(0.0, low), min(1.0, high)

    @property
    def note(self) -> str:
        """A remark where the interval is a jump, for the most part."""
        return TIED_NOTE if any(self.with_large_jumps().jumps) else ""

    def with_large_jumps(self) -> "CurvePoint":
        """Return the same, with jumps that are not the larger term made distances."""
        jumps, distances = list(self.jumps), [self.below, self.above]
        for side, (jump, (place, effect)) in enumerate(
            zip(self.jumps, (self.below, self.above), strict=True)
        ):
            if jump <= math.hypot(place, effect):
                jumps[side], distances[side] = 0.0, (place + jump, effect)
        below, above = distances
        return CurvePoint(self.value, below, above, (jumps[0], jumps[1]))


def frr_point(c: Counts, *, trr: float, confidence: float = 0.95) -> CurvePoint:
    """Measure FRR at a TRR, and how far it may be from its true value.

    `c` counts rows at every score: tied rows are rejected together.
    """
    tail = (1 - check_confidence(confidence)) / 2
    n_errors, n_correct = int(c.n_errors), float(c.n_correct)
    accepted = n_errors - math.ceil(float(exact_product(trr, c.n_errors)))
    low, high = binomial_quantiles(tail, n_errors, 1 - trr)
    # The threshold is just below the error of one of these ranks, ties and all.
    errors_through = np.cumsum(c.errors)
    ranks = [min(max(low, 1), accepted + 1), accepted + 1, max(high, accepted) + 1]
    lowest, group, highest = map(int, np.searchsorted(errors_through, ranks))
    if low < OUTERMOST:
        lowest = min(lowest, _group_in_tail(c, tail, 1 - trr))
    sizes = c.correct / n_correct
    value = float(score_counts.frr_at_trr(c, trr=trr))
    down, below = _distances(value, -1, sizes[group:highest], n_correct, confidence)
    up, above = _distances(value, 1, sizes[lowest:group], n_correct, confidence)
    return CurvePoint(value, below, above, (down, up))


def _distances(
    value: float, sign: int, passed: Array, n: float, confidence: float
) -> tuple[float, tuple[float, float]]:
    """Return how far a share of n rows may be off: a jump, and two distances besides.

    The distances are for where the threshold lies, which may have passed groups of rows
    of these sizes, and for what it does. Over small groups they add up in squares. A
    large group of tied rows is passed as a whole or not at all: a jump.
    """

    def clopper_pearson_distance(share: float) -> float:
        share = min(max(share, 0.0), 1.0)
        limits = clopper_pearson(share * n, n, confidence=confidence)
        return abs(limits[(1 + sign) // 2] - share)

    jump = float(passed.max(initial=0.0))
    # A group no larger than the noise, or a single row, is passed like rows of a curve.
    jump = jump if jump > max(clopper_pearson_distance(value), 1.5 / n) else 0.0
    place = float(passed.sum()) - jump
    return jump, (place, clopper_pearson_distance(value + sign * jump))


def _group_in_tail(c: Counts, tail: float, level: float) -> int:
    """Return the group that the lowest threshold lies below, in the tail of errors.

    An exponential tail leads from one of the outermost errors down to the share `level`
    of them: as many mean steps as the logarithm of the ratio of shares (Weissman, JASA
    1978), and as many more as the two estimates may be off.
    """
    n = int(c.n_errors)
    k = min(n - 1, max(2, min(OUTERMOST, round(n / 8))))
    if level <= 0 or k < 1:
        return 0
    z, step = least_doubtful_errors(c, k)
    steps = math.log((k + 0.5) / (n * level))
    # The asymptotic deviation of Weissman's quantile on the log scale.
    deviation = math.sqrt((1 + max(steps, 0.0) ** 2) / k)
    steps = max(0.0, steps + normal_quantile(1 - 2 * tail) * deviation)
    place = z[-1] - max(_LEAST_STEP, step) * steps
    accepted = float(rows_below(place, float(c.n_correct)))
    return int(np.searchsorted(np.cumsum(c.correct), accepted, "right"))


def _unseen_share(tail: float, c: Counts) -> float:
    """Return the share of errors that may lie below all that were seen.

    1 - tail^(1 / m): the chance that m errors all avoid a larger share is below `tail`.
    """
    return 1 - tail ** (1 / float(c.n_errors))


def trr_point(c: Counts, *, frr: float, confidence: float = 0.95) -> CurvePoint:
    """Measure TRR at an FRR: `frr_point` with the kinds of rows exchanged."""
    frr_of_swapped = frr_point(c.swapped(), trr=1 - frr, confidence=confidence)
    return CurvePoint(
        1 - frr_of_swapped.value,
        frr_of_swapped.above,
        frr_of_swapped.below,
        frr_of_swapped.jumps[::-1],
    )


def risk_point(c: Counts, *, coverage: float, confidence: float = 0.95) -> CurvePoint:
    """Measure the risk at a coverage, and how far it may be from its true value."""
    tail = (1 - check_confidence(confidence)) / 2
    rows = np.append(0.0, np.cumsum(c.correct + c.errors))
    errors = np.append(0.0, np.cumsum(c.errors))
    accepted = max(1.0, float(np.ceil(exact_product(coverage, rows[-1]))))
    accepted_errors = float(np.interp(accepted, rows, errors))
    ranks = binomial_quantiles(tail, int(rows[-1]), coverage)
    fewer, more = np.interp(ranks, rows, errors) / accepted
    low, high = clopper_pearson(accepted_errors, accepted, confidence=confidence)
    value = accepted_errors / accepted
    below = value - float(fewer), value - low
    return CurvePoint(value, below, (float(more) - value, high - value))


def coverage_point(c: Counts, *, risk: float, confidence: float = 0.95) -> CurvePoint:
    """Measure the coverage at a risk, and how far it may be from its true value.

    The threshold is at least the largest whose risk is surely below, or that an
    exponential tail of the errors allows, and at most the largest whose risk may be
    below. The rows that it accepts are a share of all rows.
    """
    tail = (1 - check_confidence(confidence)) / 2
    n = float(c.n_correct + c.n_errors)
    value = float(score_counts.coverage_at_risk(c, risk=risk))
    sizes = (c.correct + c.errors) / n
    rows, errors = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    surely, maybe = (
        _last_passing(rows, errors, test, risk, tail)
        for test in (_surely_below, _maybe_below)
    )
    first, last = (int(rows[group]) if group >= 0 else 0 for group in (surely, maybe))
    first, accepted = max(first, _rows_bounded_by_tail(c, risk, tail)), round(value * n)
    fewer = (rows > first) & (rows <= accepted)
    more = (rows > accepted) & (rows <= last)
    down, below = _distances(value, -1, sizes[fewer], n, confidence)
    up, _ = _distances(value, 1, sizes[more], n, confidence)
    high = clopper_pearson(max(last, accepted), n, confidence=confidence)[1]
    return CurvePoint(value, below, (0.0, high - value - up), (down, up))


RiskTest = Callable[[Array, Array, float, float], Array]


def _surely_below(rows: Array, errors: Array, risk: float, tail: float) -> Array:
    """Tell where an exact binomial test shows that the risk is at most `risk`."""
    from scipy.special import betainc

    correct = rows - errors
    passed = betainc(errors + 1, np.maximum(correct, 1), risk) >= 1 - tail
    return np.asarray(passed & (correct > 0))


def _maybe_below(rows: Array, errors: Array, risk: float, tail: float) -> Array:
    """Tell where no exact binomial test shows that the risk is above `risk`."""
    from scipy.special import betainc

    passed = betainc(np.maximum(errors, 1), rows - errors + 1, risk) >= tail
    return np.asarray(passed | (errors == 0))


def _last_passing(
    rows: Array, errors: Array, test: RiskTest, risk: float, tail: float
) -> int:
    """Return the last threshold that passes, -1 if none does.

    Of many thresholds, evenly spaced ones are tested first, and then all between the
    last that passed and the next.
    """
    step = max(1, len(rows) // _TESTED)
    spaced = np.arange(step - 1, len(rows), step)
    passed = np.flatnonzero(test(rows[spaced], errors[spaced], risk, tail))
    last = int(spaced[passed[-1]]) if len(passed) else -1
    near = np.arange(last + 1, min(last + step, len(rows)))
    passed = np.flatnonzero(test(rows[near], errors[near], risk, tail))
    return int(near[passed[-1]]) if len(passed) else last


def _rows_bounded_by_tail(c: Counts, risk: float, tail: float) -> int:
    """Return the most rows whose risk an exponential tail of the errors bounds."""
    steps = np.linspace(0, 12, 241)
    correct_through = np.append(0.0, np.cumsum(c.correct))
    correct_below = error_tail(c).correct_below(steps)
    groups = np.searchsorted(correct_through, correct_below, "right") - 1
    accepted = correct_through[groups]  # rows that are tied are accepted together
    errors = float(c.n_errors) * _unseen_share(tail, c) * np.exp(-steps)
    return int(accepted[errors <= risk * accepted].max(initial=0.0))


def binomial_quantiles(tail: float, n: int, rate: float) -> tuple[int, int]:
    """Return the counts that a binomial one is below, or above, with at most `tail`.

    Examples
    --------
    >>> binomial_quantiles(0.025, 100, 0.5)
    (40, 60)
    """
    from scipy.special import bdtr, bdtrik

    quantiles = []
    for level in (tail, 1 - tail):
        # bdtrik returns a real number, which rounding may put just above an integer.
        exact = float(bdtrik(level, n, rate)) if 1e-15 < rate < 1 else n * rate
        k = int(min(max(math.ceil(exact - 1e-9), 0), n))
        quantiles.append(k - 1 if k and bdtr(k - 1, n, rate) >= level else k)
    return quantiles[0], quantiles[1]


CURVE_POINTS: dict[str, Callable[[Counts, Points, float], CurvePoint]] = {
    "frr_at_trr": lambda c, at, level: frr_point(c, trr=at.trr, confidence=level),
    "trr_at_frr": lambda c, at, level: trr_point(c, frr=at.frr, confidence=level),
    "risk_at_coverage": lambda c, at, level: risk_point(
        c, coverage=at.coverage, confidence=level
    ),
    "coverage_at_risk": lambda c, at, level: coverage_point(
        c, risk=at.risk, confidence=level
    ),
}
"""Each metric that is read off a curve, by name; rows are counted at every score."""
