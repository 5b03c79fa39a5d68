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


TIED_NOTE = "many rows share one score, so an interval may reach to the next score"


@dataclass(frozen=True)
class Arms:
    """How far what is read off a curve may be from its estimate.

    Attributes
    ----------
    value : float
    below, above : (float, float)
        For where the threshold is, and for what it does: of FRR at a TRR, what the
        errors and what the correct rows leave open.
    jumps : (float, float)
        How far down and up it may jump besides, over rows that are tied.
    """

    value: float
    below: tuple[float, float]
    above: tuple[float, float]
    jumps: tuple[float, float] = (0.0, 0.0)

    @property
    def interval(self) -> Interval:
        """The ends, with all of it together."""
        low = self.value - self.jumps[0] - math.hypot(*self.below)
        high = self.value + self.jumps[1] + math.hypot(*self.above)
        return max(0.0, low), min(1.0, high)

    @property
    def note(self) -> str:
        """What to know of an interval that is a jump, for the most part."""
        return TIED_NOTE if any(self.with_large_jumps().jumps) else ""

    def with_large_jumps(self) -> "Arms":
        """Return the same, a jump that is not the larger part as part of the path."""
        jumps, arms = list(self.jumps), [self.below, self.above]
        for side, (jump, (path, noise)) in enumerate(zip(jumps, arms, strict=True)):
            if jump <= math.hypot(path, noise):
                jumps[side], arms[side] = 0.0, (path + jump, noise)
        return Arms(self.value, arms[0], arms[1], (jumps[0], jumps[1]))


def frr_arms(c: Counts, *, trr: float, confidence: float = 0.95) -> Arms:
    """Measure how far FRR at a TRR may be from its estimate.

    `c` counts rows at every score: tied rows are rejected together.
    """
    share = (1 - check_confidence(confidence)) / 2
    n_errors, n_correct = int(c.n_errors), float(c.n_correct)
    accepted = n_errors - math.ceil(float(exact_product(trr, c.n_errors)))
    low, high = binomial_quantiles(share, n_errors, 1 - trr)
    # The threshold is just below the error of one of these ranks, ties and all.
    through = np.cumsum(c.errors)
    ranks = [min(max(low, 1), accepted + 1), accepted + 1, max(high, accepted) + 1]
    most, at, least = map(int, np.searchsorted(through, ranks))
    if low < OUTERMOST:
        most = min(most, _group_beyond(c, share, 1 - trr))
    sizes = c.correct / n_correct
    value = float(counts.frr_at_trr(c, trr=trr))
    down, below = _reach(value, -1, sizes[at:least], n_correct, confidence)
    up, above = _reach(value, 1, sizes[most:at], n_correct, confidence)
    return Arms(value, below, above, (down, up))


def _reach(
    value: float, sign: int, path: Array, n: float, confidence: float
) -> tuple[float, tuple[float, float]]:
    """Return how far a share may be off: a jump, and two distances besides.

    The distances are for where the threshold is, which may have passed groups of rows
    of these sizes, and for what it does. Over small groups they add up in squares. A
    group of ties is passed whole or not at all.
    """

    def noise(share: float) -> float:
        share = min(max(share, 0.0), 1.0)
        ends = clopper_pearson(share * n, n, confidence=confidence)
        return abs(ends[(1 + sign) // 2] - share)

    jump = float(path.max(initial=0.0))
    # Rows of a smaller group, as a single row, are passed as those of a curve are.
    jump = jump if jump > max(noise(value), 1.5 / n) else 0.0
    return jump, (float(path.sum()) - jump, noise(value + sign * jump))


def _group_beyond(c: Counts, share: float, level: float) -> int:
    """Return the group that the lowest threshold is below, beyond errors if need be.

    An exponential tail leads from one of the outermost errors down to `level`: to the
    distance that its mean step makes of the logarithm of two shares (Weissman 1978),
    and as much further as the two estimates may miss.
    """
    n = int(c.n_errors)
    k = min(n - 1, max(2, min(OUTERMOST, round(n / 8))))
    if level <= 0 or k < 1:
        return 0
    z, step = outermost(c, k)
    steps = math.log((k + 0.5) / (n * level))
    missed = math.sqrt((1 + max(steps, 0.0) ** 2) / k)
    steps = max(0.0, steps + normal_quantile(1 - 2 * share) * missed)
    place = z[-1] - max(_LEAST_STEP, step) * steps
    accepted = float(below(place, float(c.n_correct)))
    return int(np.searchsorted(np.cumsum(c.correct), accepted, "right"))


def _unseen(share: float, c: Counts) -> float:
    """Return how many errors may lie below all that were seen, as a share."""
    return 1 - share ** (1 / float(c.n_errors))


def trr_arms(c: Counts, *, frr: float, confidence: float = 0.95) -> Arms:
    """Measure how far TRR at an FRR may be: the same, the kinds exchanged."""
    arms = frr_arms(c.swapped(), trr=1 - frr, confidence=confidence)
    return Arms(1 - arms.value, arms.above, arms.below, arms.jumps[::-1])


def risk_arms(c: Counts, *, coverage: float, confidence: float = 0.95) -> Arms:
    """Measure how far the risk at a coverage may be from its estimate."""
    share = (1 - check_confidence(confidence)) / 2
    rows = np.append(0.0, np.cumsum(c.correct + c.errors))
    wrong = np.append(0.0, np.cumsum(c.errors))
    kept = max(1.0, float(np.ceil(exact_product(coverage, rows[-1]))))
    own = float(np.interp(kept, rows, wrong))
    ranks = binomial_quantiles(share, int(rows[-1]), coverage)
    less, more = np.interp(ranks, rows, wrong) / kept
    low, high = clopper_pearson(own, kept, confidence=confidence)
    value = own / kept
    return Arms(
        value, (value - float(less), value - low), (float(more) - value, high - value)
    )


def coverage_arms(c: Counts, *, risk: float, confidence: float = 0.95) -> Arms:
    """Measure how far the coverage at a risk may be from its estimate.

    The threshold is at least the largest whose risk is surely below, or that an
    exponential tail of the errors allows, and at most the largest whose risk may be
    below. How many rows it accepts is a share of all.
    """
    share = (1 - check_confidence(confidence)) / 2
    n = float(c.n_correct + c.n_errors)
    value = float(counts.coverage_at_risk(c, risk=risk))
    sizes = (c.correct + c.errors) / n
    rows, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    passed = [_last(rows, wrong, test, risk, share) for test in (_surely, _maybe)]
    first, last = (int(rows[group]) if group >= 0 else 0 for group in passed)
    first, at = max(first, _bounded(c, risk, share)), round(value * n)
    least, most = (rows > first) & (rows <= at), (rows > at) & (rows <= last)
    down, below = _reach(value, -1, sizes[least], n, confidence)
    up, _ = _reach(value, 1, sizes[most], n, confidence)
    high = clopper_pearson(max(last, at), n, confidence=confidence)[1]
    return Arms(value, below, (0.0, high - value - up), (down, up))


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


def _bounded(c: Counts, risk: float, share: float) -> int:
    """Return the most rows whose risk an exponential tail of errors bounds."""
    found, steps = tail(c), np.linspace(0, 12, 241)
    through = np.append(0.0, np.cumsum(c.correct))
    places = np.searchsorted(through, found.below(steps), "right") - 1
    accepted = through[places]  # rows that are tied are accepted together
    wrong = float(c.n_errors) * _unseen(share, c) * np.exp(-steps)
    return int(accepted[wrong <= risk * accepted].max(initial=0.0))


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


CROSSINGS: dict[str, Callable[[Counts, Points, float], Arms]] = {
    "frr_at_trr": lambda c, at, level: frr_arms(c, trr=at.trr, confidence=level),
    "trr_at_frr": lambda c, at, level: trr_arms(c, frr=at.frr, confidence=level),
    "risk_at_coverage": lambda c, at, level: risk_arms(
        c, coverage=at.coverage, confidence=level
    ),
    "coverage_at_risk": lambda c, at, level: coverage_arms(
        c, risk=at.risk, confidence=level
    ),
}
"""How far each metric that is read off a curve may be; rows are counted by score."""
