"""Intervals of the areas: AUROC, AURC, E-AURC, AUGRC, AUPR.

Each area's law follows from what every row contributes to it (its influence). Towards
the worse end one row more than was seen is counted, of each kind that can do harm.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import UndefinedMetricError
from trustdoctor.metrics import counts
from trustdoctor.metrics.counts import Counts, count
from trustdoctor.metrics.further import with_further
from trustdoctor.metrics.intervals import (
    FEW,
    Interval,
    check_confidence,
    clopper_pearson,
)
from trustdoctor.metrics.skewed import Spread, spread

_GROUPS = 1 << 12


def delong(scores: Any, errors: Any, *, confidence: float = 0.95) -> Interval:
    """Interval of the AUROC.

    DeLong's variance, the skewness of the same placements, and towards 0 one error and
    one correct row more than were seen. `docs/intervals.md` says how often it covers.

    References
    ----------
    DeLong et al., Biometrics 1988; Sun & Xu, IEEE Signal Processing Letters 2014.

    Examples
    --------
    >>> low, high = delong([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> 0 < low < 0.75 < high <= 1
    True
    """
    c = count(scores, errors)
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

    `value` is the area itself, where it is known; counting groups together moves it.
    """
    if name == "auroc":
        return _auroc_interval(c, check_confidence(confidence))
    low, high = _interval(AREAS[name], c, confidence, value)
    return max(0.0, low), min(1.0, high)


def _auroc_interval(c: Counts, confidence: float) -> Interval:
    """Return the same for a score and, turned round, for its negative.

    With few rows of a kind the AUROC is a mean of as many shares, and the interval is
    at least Clopper and Pearson's of those.
    """
    area = float(counts.auroc(c))
    found = []
    if area >= 0.5:
        found.append(_interval(AREAS["auroc"], c, confidence, area))
    if area <= 0.5:
        low, high = _interval(AREAS["auroc"], c.reversed(), confidence, 1 - area)
        found.append((1 - high, 1 - low))
    fewest = float(min(c.n_errors, c.n_correct))
    if fewest < FEW:
        found.append(clopper_pearson(area * fewest, fewest, confidence=confidence))
    low, high = min(ends[0] for ends in found), max(ends[1] for ends in found)
    return max(0.0, low), min(1.0, high)


def _interval(
    area: "Area", c: Counts, confidence: float, value: float | None
) -> Interval:
    few, share = _fewer(c), (1 - check_confidence(confidence)) / 2
    seen = area.law(few)
    worse = area.law(with_further(few, correct=area.correct_matters))
    if area.higher_is_better:
        low, high = worse.quantile(share), seen.quantile(1 - share)
    else:
        low, high = seen.quantile(share), worse.quantile(1 - share)
    change = (area.law(c).value if value is None else value) - seen.value
    return min(low, seen.value) + change, max(high, seen.value) + change


def _fewer(c: Counts) -> Counts:
    """Count neighbouring groups together, where there are many; never the outermost.

    This moves a law's mean by far less than it is wide; the mean is moved back.
    """
    groups = len(c.errors)
    if groups <= _GROUPS:
        return c
    inner = np.linspace(_GROUPS // 4, groups - _GROUPS // 4, _GROUPS // 2)
    outer = np.arange(_GROUPS // 4)
    starts = np.concatenate([outer, inner.astype(int), groups - 1 - outer[::-1]])
    starts = np.unique(starts)
    return Counts(np.add.reduceat(c.correct, starts), np.add.reduceat(c.errors, starts))


def _auroc(c: Counts) -> Spread:
    below, above = shares_below(c)
    value = float((c.errors * below).sum()) / float(c.n_errors)
    return spread(value, (below, c.errors), (above, c.correct))


def shares_below(c: Counts) -> tuple[Array, Array]:
    """For an error of each group, correct rows below; for a correct row, errors above.

    As shares of all of that kind; ties count one half.
    """
    below = (np.cumsum(c.correct) - 0.5 * c.correct) / c.n_correct
    above = 1 - (np.cumsum(c.errors) - 0.5 * c.errors) / c.n_errors
    return below, above


def _coverage(c: Counts) -> tuple[Array, float]:
    """Coverage in the middle of each group, and the number of rows."""
    size = c.correct + c.errors
    n = float(size.sum())
    return (np.cumsum(size) - 0.5 * size) / n, n


def _rows(c: Counts, value: float, of_errors: Array, of_correct: Array) -> Spread:
    influences = np.concatenate([of_errors, of_correct])
    return spread(value, (influences, np.concatenate([c.errors, c.correct])))


def _aurc(c: Counts) -> Spread:
    return _rows(c, float(counts.aurc(c)), *_aurc_influences(c))


def _eaurc(c: Counts) -> Spread:
    """Return the law of E-AURC.

    A perfect ranking's AURC is a + (1 - a) log(1 - a) for a share a of errors.
    """
    of_errors, of_correct = _aurc_influences(c)
    accuracy = float(c.n_correct) / float(c.n_correct + c.n_errors)
    moved = of_errors + math.log(accuracy)
    return _rows(c, float(counts.eaurc(c)), moved, of_correct)


def _aurc_influences(c: Counts) -> tuple[Array, Array]:
    """Return the derivatives of AURC by the share of errors, and of correct rows.

    Of `counts.aurc` itself, which averages over the orders of tied rows. To take a
    tied group at the coverage in its middle is wrong where it is large.
    """
    from scipy.special import polygamma

    size = c.correct + c.errors
    through = np.append(0.0, np.cumsum(size))
    before = through[:-1]
    size = np.where(size > 0, size, 1)
    rate = c.errors / size
    # Errors before a group, less those that its own rate would have made there.
    surplus = np.cumsum(c.errors) - c.errors - before * rate
    ends, slopes = counts.harmonic(through), polygamma(1, through + 1)
    steps = np.diff(ends)
    moved = surplus * np.diff(slopes) - rate * steps
    later = np.cumsum(moved[::-1])[::-1] - moved
    of_correct = later + surplus * slopes[1:] + before * rate * steps / size
    rise = 1 - before * steps / size + ends[-1] - ends[1:]
    return of_correct + rise, of_correct


def _augrc(c: Counts) -> Spread:
    coverage, n = _coverage(c)
    before = (np.cumsum(c.errors) - 0.5 * c.errors) / n
    return _rows(c, float(counts.augrc(c)), before + 1 - coverage, before)


def _aupr(c: Counts) -> Spread:
    rejected = np.cumsum(c.errors[::-1])[::-1]
    total = rejected + np.cumsum(c.correct[::-1])[::-1]
    precision = rejected / np.where(total > 0, total, 1)
    value = float((c.errors * precision).sum()) / float(c.n_errors)
    weight = c.errors / np.where(total > 0, total, 1)
    gained, lost = np.cumsum(weight), np.cumsum(weight * precision)
    scale = float(c.n_correct + c.n_errors) / float(c.n_errors)
    return _rows(c, value, scale * (precision - value + gained - lost), -scale * lost)


def _aupr_correct(c: Counts) -> Spread:
    return _aupr(c.swapped())


@dataclass(frozen=True)
class Area:
    """An area's law on counted rows, and what makes it worse."""

    law: Callable[[Counts], Spread]
    higher_is_better: bool = True
    correct_matters: bool = True


AREAS: dict[str, Area] = {
    "auroc": Area(_auroc),
    "aurc": Area(_aurc, higher_is_better=False, correct_matters=False),
    "eaurc": Area(_eaurc, higher_is_better=False),
    "augrc": Area(_augrc, higher_is_better=False, correct_matters=False),
    "aupr": Area(_aupr),
    "aupr_correct": Area(_aupr_correct),
}
