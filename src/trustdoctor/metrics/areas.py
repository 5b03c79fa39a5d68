"""Intervals of the areas: AUROC, AURC, E-AURC, AUGRC, AUPR.

The distribution of each area follows from how far every row moves it (its influence).
Towards the worse end, one unseen row of each kind that can do harm is counted, too.
docs/intervals.md says how often the intervals cover.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import UndefinedMetricError
from trustdoctor.metrics import score_counts
from trustdoctor.metrics.bootstrap import (
    Moments,
    moments_of_influences,
    with_unseen_rows,
)
from trustdoctor.metrics.intervals import (
    FEW_ROWS,
    Interval,
    check_confidence,
    clopper_pearson,
)
from trustdoctor.metrics.score_counts import Counts, as_counts

_GROUPS = 1 << 12  # influences of more groups would take longer than the sort


def delong(scores: Any, errors: Any = None, *, confidence: float = 0.95) -> Interval:
    """Interval of the AUROC.

    DeLong's variance, the skewness of the same placements, and towards 0 one unseen
    error and one unseen correct row. `docs/intervals.md` says how often it covers.

    References
    ----------
    DeLong et al., Biometrics 1988; Sun & Xu, IEEE Signal Processing Letters 2014.

    Examples
    --------
    >>> low, high = delong([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> 0 < low < 0.75 < high <= 1
    True
    """
    c = as_counts(scores, errors)
    if c.n_errors == 0 or c.n_correct == 0:
        message = (
            "an interval of the AUROC needs rows of both kinds. Give it more rows."
        )
        raise UndefinedMetricError(message)
    return area_interval("auroc", c, confidence=confidence)


def area_interval(
    name: str, c: Counts, *, confidence: float = 0.95, value: float | None = None
) -> Interval:
    """Return the interval of one of `AREAS` on counted rows of both kinds.

    `value` is the area itself, where it is known: merging groups changes it slightly.
    """
    confidence = check_confidence(confidence)
    if name == "auroc":
        return _auroc_interval(c, confidence, value)
    low, high = _interval(AREAS[name], c, confidence, value)
    return max(0.0, low), min(1.0, high)


def _auroc_interval(c: Counts, confidence: float, value: float | None) -> Interval:
    """Return the same interval for a score and, mirrored, for its negative.

    The variance of an AUROC A is at most A (1 - A) / n, with n rows of the rarer kind
    (Birnbaum & Klose, Annals of Mathematical Statistics 1957): that of a share of n
    rows. Where n is small, the interval is at least Clopper and Pearson's.
    """
    area = float(score_counts.auroc(c)) if value is None else value
    intervals = []
    if area >= 0.5:
        intervals.append(_interval(AREAS["auroc"], c, confidence, area))
    if area <= 0.5:
        low, high = _interval(AREAS["auroc"], c.reversed(), confidence, 1 - area)
        intervals.append((1 - high, 1 - low))
    fewest = float(min(c.n_errors, c.n_correct))
    if fewest < FEW_ROWS:
        limits = clopper_pearson(area * fewest, fewest, confidence=confidence)
        intervals.append(limits)
    lows, highs = zip(*intervals, strict=True)
    return max(0.0, min(lows)), min(1.0, max(highs))


def _interval(
    area: "Area", c: Counts, confidence: float, value: float | None
) -> Interval:
    merged, tail = _merge_groups(c), (1 - confidence) / 2
    observed = area.moments(merged)
    pessimistic = area.moments(with_unseen_rows(merged, correct=area.correct_matters))
    if area.higher_is_better:
        low, high = pessimistic.quantile(tail), observed.quantile(1 - tail)
    else:
        low, high = observed.quantile(tail), pessimistic.quantile(1 - tail)
    exact = area.moments(c).value if value is None else value
    shift = exact - observed.value
    return min(low, observed.value) + shift, max(high, observed.value) + shift


def _merge_groups(c: Counts) -> Counts:
    """Merge neighbouring groups where there are many, but never the outermost.

    This moves the mean of a distribution by far less than its width; `_interval` moves
    it back.
    """
    groups = len(c.errors)
    if groups <= _GROUPS:
        return c
    inner = np.linspace(_GROUPS // 4, groups - _GROUPS // 4, _GROUPS // 2)
    outer = np.arange(_GROUPS // 4)
    starts = np.concatenate([outer, inner.astype(int), groups - 1 - outer[::-1]])
    starts = np.unique(starts)
    return Counts(np.add.reduceat(c.correct, starts), np.add.reduceat(c.errors, starts))


class Influences(NamedTuple):
    """An area, and how far a row of each group moves it: an error, a correct row."""

    value: float
    of_errors: Array
    of_correct: Array


def _auroc(c: Counts) -> Influences:
    below, above = placements(c)
    value = float((c.errors * below).sum()) / float(c.n_errors)
    return Influences(value, below, above)


def placements(c: Counts) -> tuple[Array, Array]:
    """For an error of each group, correct rows below; for a correct row, errors above.

    As shares of all of that kind; ties count one half (DeLong's structural components).
    """
    below = (np.cumsum(c.correct) - 0.5 * c.correct) / c.n_correct
    above = 1 - (np.cumsum(c.errors) - 0.5 * c.errors) / c.n_errors
    return below, above


def _mid_coverage(c: Counts) -> tuple[Array, float]:
    """Coverage in the middle of each group, and the number of rows."""
    size = c.correct + c.errors
    n = float(size.sum())
    return (np.cumsum(size) - 0.5 * size) / n, n


def _aurc(c: Counts) -> Influences:
    return Influences(float(score_counts.aurc(c)), *_aurc_influences(c))


def _eaurc(c: Counts) -> Influences:
    """Return E-AURC and its influences.

    The AURC of a perfect ranking is a + (1 - a) log(1 - a) for a share a of errors; its
    derivative by a is -log(1 - a).
    """
    of_errors, of_correct = _aurc_influences(c)
    accuracy = float(c.n_correct) / float(c.n_correct + c.n_errors)
    value = float(score_counts.eaurc(c))
    return Influences(value, of_errors + math.log(accuracy), of_correct)


def _aurc_influences(c: Counts) -> tuple[Array, Array]:
    """Return the derivatives of AURC by the share of errors, and of correct rows.

    They are those of `score_counts.aurc` itself, which averages over the orders of tied
    rows. Taking a tied group at the coverage in its middle is wrong where it is large.
    The derivative of H_k is the trigamma function at k + 1.
    """
    from scipy.special import polygamma

    size = c.correct + c.errors
    through = np.append(0.0, np.cumsum(size))
    before = through[:-1]
    size = np.where(size > 0, size, 1)
    rate = c.errors / size
    # Errors before a group, less those that its own rate would have made there.
    surplus = np.cumsum(c.errors) - c.errors - before * rate
    sums, slopes = score_counts.harmonic(through), polygamma(1, through + 1)
    steps = np.diff(sums)
    change = surplus * np.diff(slopes) - rate * steps
    later = np.cumsum(change[::-1])[::-1] - change
    of_correct = later + surplus * slopes[1:] + before * rate * steps / size
    rise = 1 - before * steps / size + sums[-1] - sums[1:]
    return of_correct + rise, of_correct


def _augrc(c: Counts) -> Influences:
    coverage, n = _mid_coverage(c)
    before = (np.cumsum(c.errors) - 0.5 * c.errors) / n
    return Influences(float(score_counts.augrc(c)), before + 1 - coverage, before)


def _aupr(c: Counts) -> Influences:
    rejected = np.cumsum(c.errors[::-1])[::-1]
    total = rejected + np.cumsum(c.correct[::-1])[::-1]
    precision = rejected / np.where(total > 0, total, 1)
    value = float((c.errors * precision).sum()) / float(c.n_errors)
    weight = c.errors / np.where(total > 0, total, 1)
    gained, lost = np.cumsum(weight), np.cumsum(weight * precision)
    scale = float(c.n_correct + c.n_errors) / float(c.n_errors)
    of_errors = scale * (precision - value + gained - lost)
    return Influences(value, of_errors, -scale * lost)


def _aupr_correct(c: Counts) -> Influences:
    value, of_correct, of_errors = _aupr(c.swapped())
    return Influences(value, of_errors[::-1], of_correct[::-1])


@dataclass(frozen=True)
class Area:
    """An area of counted rows: what each row contributes, and what makes it worse.

    Attributes
    ----------
    influences : callable
        From counts to the area and how far each row moves it.
    drawn_separately : bool
        Whether errors and correct rows count as two samples, as for AUROC; else as one.
    higher_is_better, correct_matters : bool
        Whether a larger area is better, and whether a correct row can do harm.
    """

    influences: Callable[[Counts], Influences]
    drawn_separately: bool = False
    higher_is_better: bool = True
    correct_matters: bool = True

    def moments(self, c: Counts) -> Moments:
        """Return the distribution of the area."""
        value, of_errors, of_correct = self.influences(c)
        if self.drawn_separately:
            kinds = (of_errors, c.errors), (of_correct, c.correct)
            return moments_of_influences(value, *kinds)
        influences = np.concatenate([of_errors, of_correct])
        weights = np.concatenate([c.errors, c.correct])
        return moments_of_influences(value, (influences, weights))


AREAS: dict[str, Area] = {
    "auroc": Area(_auroc, drawn_separately=True),
    "aurc": Area(_aurc, higher_is_better=False, correct_matters=False),
    "eaurc": Area(_eaurc, higher_is_better=False),
    "augrc": Area(_augrc, higher_is_better=False, correct_matters=False),
    "aupr": Area(_aupr),
    "aupr_correct": Area(_aupr_correct),
}
