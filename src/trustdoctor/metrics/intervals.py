"""How sure a measured number is.

AUROC: DeLong with midranks. FRR at a TRR: a bootstrap within the errors and within
the correct rows, or order statistics where errors are few. Areas and risks: a
bootstrap over rows. Rates at a fixed threshold: Clopper-Pearson.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.metrics.counts import Counts, auroc, count_runs

FEW_ERRORS = 100
"""Below this many errors (or correct rows) large-sample intervals are not used."""


VERY_FEW_ERRORS = 30
"""Below this many DeLong's variance is not used."""


Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it does not exist, and why.

    Attributes
    ----------
    value, low, high : float or None
        The number and the ends of its interval.
    note : str
        What to know about it; empty most of the time.
    within : float
        How far the value may be from that of the rows themselves; above 0 only where
        rows were counted in ranges of scores.

    Examples
    --------
    >>> Estimate(0.25, 0.2, 0.3).percent()
    '25.00 [20.00, 30.00]'
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    within: float = 0.0

    def percent(self, *, sign: bool = False) -> str:
        """Show the number and its interval in percent; a dash where there is none."""
        if self.value is None:
            return "-"
        form = "+.2f" if sign else ".2f"
        text = f"{self.value * 100:{form}}"
        if self.low is None or self.high is None:
            return text
        return f"{text} [{self.low * 100:{form}}, {self.high * 100:{form}}]"


@dataclass(frozen=True)
class Share(Estimate):
    """A share of rows with its Clopper-Pearson interval, and the rows it is made of."""

    part: int = 0
    whole: int = 0


def share(part: int, whole: int, *, confidence: float = 0.95) -> Share:
    """Return `part` of `whole` rows as a share with its interval.

    Examples
    --------
    >>> share(1, 4).value, share(0, 0).value
    (0.25, None)
    """
    if not whole:
        return Share(None, part=part, whole=whole)
    low, high = clopper_pearson(part, whole, confidence=confidence)
    return Share(part / whole, low, high, part=part, whole=whole)


def clopper_pearson(successes: float, n: int, *, confidence: float = 0.95) -> Interval:
    """Exact interval of a rate of `successes` in `n` independent rows.

    References
    ----------
    Clopper & Pearson, Biometrika 1934.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 10)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.3085)
    """
    from scipy.special import betaincinv

    tail = (1 - _check_confidence(confidence)) / 2
    if not 0 <= successes <= n:
        message = f"expected successes from 0 to n, got {successes!r} of {n!r}."
        raise InputError(message)
    low = betaincinv(successes, n - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, n - successes, 1 - tail) if successes < n else 1.0
    return float(low), float(high)


def delong(scores: Any, errors: Any, *, confidence: float = 0.95) -> Interval:
    """Interval of the AUROC by DeLong's variance.

    Below 100 errors or correct rows it is taken on the logit scale. Below 30 the
    variance cannot be trusted; the AUROC is then taken as the mean of as many shares
    between 0 and 1 as there are rows of the rarer kind, and Clopper-Pearson bounds it
    from the cautious side.

    References
    ----------
    DeLong et al., Biometrics 1988; Sun & Xu, IEEE Signal Processing Letters 2014.

    Examples
    --------
    >>> low, high = delong([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> 0 < low < 0.75 < high < 1
    True
    """
    return delong_counts(count_runs(scores, errors), confidence=confidence)


def delong_counts(c: Counts, *, confidence: float = 0.95) -> Interval:
    """`delong` on counted rows."""
    _check_confidence(confidence)
    n_errors, n_correct = int(c.n_errors), int(c.n_correct)
    area = float(auroc(c))
    fewest = min(n_errors, n_correct)
    if fewest == 0:
        message = (
            "an interval of the AUROC needs rows of both kinds. Give it more rows."
        )
        raise UndefinedMetricError(message)
    if fewest < VERY_FEW_ERRORS or area in (0.0, 1.0):
        return clopper_pearson(area * fewest, fewest, confidence=confidence)
    below = (np.cumsum(c.correct) - 0.5 * c.correct) / n_correct
    above = 1 - (np.cumsum(c.errors) - 0.5 * c.errors) / n_errors
    variance = _weighted_variance(below, c.errors) / n_errors
    variance += _weighted_variance(above, c.correct) / n_correct
    half = normal_quantile(confidence) * math.sqrt(variance)
    if fewest >= FEW_ERRORS:
        return max(0.0, area - half), min(1.0, area + half)
    logit, half = math.log(area / (1 - area)), half / (area * (1 - area))
    return _expit(logit - half), _expit(logit + half)


def delong_difference(
    first: Any, second: Any, errors: Any, *, confidence: float = 0.95
) -> Interval:
    """Interval of AUROC(first) - AUROC(second) on the same rows, paired DeLong.

    With Student's quantile at as many degrees of freedom as there are rows of the
    rarer kind, less one.

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
    return placements_difference(
        placements(a, wrong), placements(b, wrong), confidence=confidence
    )


Placements = tuple[Array, Array]


def placements(scores: Array, wrong: Array) -> Placements:
    """For each error the share of correct rows below it, ties one half; and back."""
    errors, correct = scores[wrong], scores[~wrong]
    return _share_below(errors, np.sort(correct)), _share_below(
        correct, np.sort(errors)
    )


def placements_difference(
    first: Placements, second: Placements, *, confidence: float = 0.95
) -> Interval:
    """`delong_difference` from the placements of both scores."""
    of_errors, of_correct = first[0] - second[0], second[1] - first[1]
    difference = float(of_errors.mean())
    spread = math.sqrt(_variance_of_mean(of_errors) + _variance_of_mean(of_correct))
    fewest = min(len(of_errors), len(of_correct))
    half = _t_quantile(_check_confidence(confidence), fewest - 1) * spread
    return difference - half, difference + half


def frr_at_trr_few(c: Counts, *, trr: float, confidence: float = 0.95) -> Interval:
    """Interval of FRR at a TRR from order statistics, for few errors.

    The threshold lies between two order statistics of the errors' scores with
    half of the risk of being wrong, and Clopper-Pearson at both ends takes the
    other half; together they hold with the confidence asked for.
    """
    from scipy.stats import binom

    tail = (1 - _check_confidence(confidence)) / 4
    n_errors, n_correct = int(c.n_errors), int(c.n_correct)
    # With t the true (1 - trr)-quantile of the errors' scores: ranks between which
    # it lies, counted from the least doubtful error.
    low = int(binom.ppf(tail, n_errors, 1 - trr))
    high = int(binom.ppf(1 - tail, n_errors, 1 - trr)) + 1
    errors_through = np.cumsum(c.errors)
    correct_through = np.cumsum(c.correct)
    rejected_most, rejected_least = n_correct, 0
    if low >= 1:
        group = int(np.searchsorted(errors_through, low))
        before = int(correct_through[group] - c.correct[group])
        rejected_most = n_correct - before
    if high <= n_errors:
        group = int(np.searchsorted(errors_through, high))
        rejected_least = n_correct - int(correct_through[group])
    level = 1 - 2 * tail
    return (
        clopper_pearson(rejected_least, n_correct, confidence=level)[0],
        clopper_pearson(rejected_most, n_correct, confidence=level)[1],
    )


def quantiles(deviations: Array, confidence: float) -> Interval:
    """Return the lower and upper quantile that leave `confidence` between them."""
    tail = (1 - _check_confidence(confidence)) / 2
    low, high = np.quantile(deviations, [tail, 1 - tail])
    return float(low), float(high)


def _share_below(own: Array, others: Array) -> Array:
    below = np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")
    return np.asarray(below / (2 * len(others)))


def _variance_of_mean(values: Array) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else math.inf


def _weighted_variance(values: Array, weights: Array) -> float:
    n = weights.sum()
    mean = (weights * values).sum() / n
    return float((weights * (values - mean) ** 2).sum() / (n - 1))


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations leave `confidence` between them."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))


def _t_quantile(confidence: float, freedom: int) -> float:
    """Return Student's quantile: the spread is estimated, which few rows show."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1), 0.5 + confidence / 2))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _check_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        message = f"expected a confidence between 0 and 1, got {confidence!r}."
        raise InputError(message)
    return confidence
