"""Intervals of what is read off at a point of a curve: FRR@TRR, risk@coverage, ...

Two things are uncertain there: where the threshold is, and what it does. Each has an
interval of its own, from order statistics and by Clopper and Pearson; their distances
from the estimate add up in squares.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import counts
from trustdoctor.metrics.counts import Counts, exact_product
from trustdoctor.metrics.further import OUTERMOST, below, outermost, tail
from trustdoctor.metrics.intervals import (
    Interval,
    check_confidence,
    clopper_pearson,
    normal_quantile,
)
from trustdoctor.metrics.rank import Points

_TESTED = 1 << 11


_LEAST_STEP = 0.4  # of a standard deviation, where ranks show no distance


@dataclass(frozen=True)
class Arms:
    """How far FRR at a TRR may be from its estimate.

    Attributes
    ----------
    value : float
    below, above : (float, float)
        For what the errors, which place the threshold, and the correct rows leave open.
    """

    value: float
    below: tuple[float, float]
    above: tuple[float, float]

    @property
    def interval(self) -> Interval:
        """The ends, with both together."""
        low = self.value - math.hypot(*self.below)
        return max(0.0, low), min(1.0, self.value + math.hypot(*self.above))


def frr_arms(c: Counts, *, trr: float, confidence: float = 0.95) -> Arms:
    """Measure how far FRR at a TRR may be from its estimate."""
    value = float(counts.frr_at_trr(c, trr=trr))
    share = (1 - check_confidence(confidence)) / 2
    n_errors, n_correct = float(c.n_errors), float(c.n_correct)
    low, high = binomial_quantiles(share, int(n_errors), 1 - trr)
    if low < OUTERMOST:
        most = _rejected_beyond(c, share, 1 - trr)
    else:
        most = _rejected(c, low, low - 1)
    least = _rejected(c, high + 1, high + 1) if high < n_errors else 0.0
    ends = clopper_pearson(value * n_correct, n_correct, confidence=confidence)
    return Arms(
        value,
        (max(0.0, value - least / n_correct), value - ends[0]),
        (max(0.0, most / n_correct - value), ends[1] - value),
    )


def _rejected(c: Counts, rank: int, accepted: int) -> float:
    """Return how many correct rows are rejected at the error of this rank.

    Of rows that are tied with it, in proportion to the errors accepted.
    """
    through = np.cumsum(c.errors)
    group = int(np.searchsorted(through, rank))
    own = float(c.errors[group])
    part = (accepted - float(through[group] - own)) / own
    before = float(c.correct[:group].sum())
    return float(c.n_correct) - before - part * float(c.correct[group])


def _rejected_beyond(c: Counts, share: float, level: float) -> float:
    """Return the same where the threshold may lie beyond the least doubtful error.

    An exponential tail leads from one of the outermost errors down to `level`: to the
    distance that its mean step makes of the logarithm of two shares (Weissman 1978),
    and as much further as the two estimates may miss.
    """
    n = int(c.n_errors)
    k = min(n - 1, max(2, min(OUTERMOST, round(n / 8))))
    z, step = outermost(c, k)
    if level <= 0 or k < 1:
        return float(c.n_correct)
    steps = math.log((k + 0.5) / (n * level))
    missed = math.sqrt((1 + max(steps, 0.0) ** 2) / k)
    steps = max(0.0, steps + normal_quantile(1 - 2 * share) * missed)
    place = z[-1] - max(_LEAST_STEP, step) * steps
    return float(c.n_correct) - float(below(place, float(c.n_correct)))


def _unseen(share: float, c: Counts) -> float:
    """Return how many errors may lie below all that were seen, as a share."""
    return 1 - share ** (1 / float(c.n_errors))


def frr_interval(c: Counts, at: Points, confidence: float) -> Interval:
    """Return the interval of FRR at a TRR."""
    return frr_arms(c, trr=at.trr, confidence=confidence).interval


def trr_interval(c: Counts, at: Points, confidence: float) -> Interval:
    """Return the interval of TRR at an FRR: the same, the kinds exchanged."""
    arms = frr_arms(c.swapped(), trr=1 - at.frr, confidence=confidence)
    low, high = arms.interval
    return 1 - high, 1 - low


def risk_interval(c: Counts, at: Points, confidence: float) -> Interval:
    """Return the interval of the risk at a coverage."""
    share = (1 - check_confidence(confidence)) / 2
    rows = np.append(0.0, np.cumsum(c.correct + c.errors))
    wrong = np.append(0.0, np.cumsum(c.errors))
    kept = max(1.0, float(np.ceil(exact_product(at.coverage, rows[-1]))))
    own = float(np.interp(kept, rows, wrong))
    ranks = binomial_quantiles(share, int(rows[-1]), at.coverage)
    less, more = np.interp(ranks, rows, wrong) / kept
    low, high = clopper_pearson(own, kept, confidence=confidence)
    value = own / kept
    return (
        max(0.0, value - math.hypot(value - low, value - float(less))),
        min(1.0, value + math.hypot(high - value, float(more) - value)),
    )


def coverage_interval(c: Counts, at: Points, confidence: float) -> Interval:
    """Return the interval of the coverage at a risk.

    The threshold is at least the largest whose risk is surely below, or that an
    exponential tail of the errors allows, and at most the largest whose risk may be
    below. How many rows it accepts is a share of all.
    """
    share = (1 - check_confidence(confidence)) / 2
    n = float(c.n_correct + c.n_errors)
    value = float(counts.coverage_at_risk(c, risk=at.risk))
    rows, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    passed = [_last(rows, wrong, test, at.risk, share) for test in (_surely, _maybe)]
    least, most = (float(rows[last]) / n if last >= 0 else 0.0 for last in passed)
    least = max(least, _bounded(c, at.risk, share))
    ends = min(least, value), max(most, value)
    low, high = (clopper_pearson(end * n, n, confidence=confidence) for end in ends)
    below = math.hypot(value - ends[0], ends[0] - low[0])
    return max(0.0, value - below), high[1]


Test = Callable[[Array, Array, float, float], Array]


def _surely(rows: Array, wrong: Array, risk: float, share: float) -> Array:
    """Say where the risk is surely at most `risk`: an exact test of a count."""
    from scipy.special import betainc

    right = rows - wrong
    passed = betainc(wrong + 1, np.maximum(right, 1), risk) >= 1 - share
    return np.asarray(passed & (right > 0))


def _maybe(rows: Array, wrong: Array, risk: float, share: float) -> Array:
    """Say where the risk may be at most `risk`."""
    from scipy.special import betainc

    passed = betainc(np.maximum(wrong, 1), rows - wrong + 1, risk) >= share
    return np.asarray(passed | (wrong == 0))


def _last(rows: Array, wrong: Array, test: Test, risk: float, share: float) -> int:
    """Return the last threshold that passes, -1 where none does.

    Of many thresholds some are tested, and then all from the last that passed to the
    next.
    """
    step = max(1, len(rows) // _TESTED)
    some = np.arange(step - 1, len(rows), step)
    passed = np.flatnonzero(test(rows[some], wrong[some], risk, share))
    last = int(some[passed[-1]]) if len(passed) else -1
    near = np.arange(last + 1, min(last + step, len(rows)))
    passed = np.flatnonzero(test(rows[near], wrong[near], risk, share))
    return int(near[passed[-1]]) if len(passed) else last


def _bounded(c: Counts, risk: float, share: float) -> float:
    """Return the largest coverage whose risk an exponential tail of errors bounds."""
    found, steps = tail(c), np.linspace(0, 12, 241)
    accepted = found.below(steps)
    wrong = float(c.n_errors) * _unseen(share, c) * np.exp(-steps)
    return float(accepted[wrong <= risk * accepted].max(initial=0.0)) / float(
        c.n_correct + c.n_errors
    )


def binomial_quantiles(share: float, n: int, rate: float) -> tuple[int, int]:
    """Return counts that a binomial one is below, or above, with at most this chance.

    Examples
    --------
    >>> binomial_quantiles(0.025, 100, 0.5)
    (40, 60)
    """
    from scipy.special import bdtr, bdtrik

    found = []
    for level in (share, 1 - share):
        exact = float(bdtrik(level, n, rate)) if 1e-15 < rate < 1 else n * rate
        k = int(min(max(math.ceil(exact - 1e-9), 0), n))
        found.append(k - 1 if k and bdtr(k - 1, n, rate) >= level else k)
    return found[0], found[1]


CROSSINGS = {
    "frr_at_trr": frr_interval,
    "trr_at_frr": trr_interval,
    "risk_at_coverage": risk_interval,
    "coverage_at_risk": coverage_interval,
}
"""The intervals, by the metric's name."""
