"""The sampling distribution of an estimate: mean, variance and skewness, not drawn.

Rows get random weights that add up to one (Dirichlet's distribution: Rubin's Bayesian
bootstrap). The first three moments of a weighted mean then have a closed form, and a
gamma distribution matches them. Nothing is drawn, so the same rows give the same
interval. For a share of rows it is nearly that of Clopper and Pearson.

What a bootstrap cannot know is how far the next row may lie beyond the outermost: with
m errors the next one lies below all of them with probability 1 / (m + 1). So the
cautious end of an interval counts one unseen error beyond the least doubtful one, and
one unseen correct row beyond the most doubtful one. How far beyond is read off the ten
outermost rows, on the normal scale of their ranks among rows of the other kind, as for
an exponential tail. Only ranks count: no monotone change of the scores changes the
result. docs/intervals.md says how often the intervals cover.

References
----------
Rubin, The Bayesian Bootstrap, Annals of Statistics 1981.
Weissman, Estimation of Parameters and Large Quantiles Based on the k Largest
Observations, JASA 1978 (the exponential tail).
"""

import math
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics.score_counts import Counts

_NO_SKEWNESS = 1e-3  # moves a 97.5% quantile by less than 0.0005 deviations


@dataclass(frozen=True)
class Moments:
    """An estimate, and the central moments of its distribution.

    Attributes
    ----------
    value : float
        The estimate, the mean of the distribution.
    variance, third : float
        The second and the third central moment.

    Examples
    --------
    >>> round(Moments(0.0, 1.0, 0.0).quantile(0.975), 2)
    1.96
    """

    value: float
    variance: float
    third: float = 0.0

    def quantile(self, level: float) -> float:
        """Return the quantile of the gamma distribution with these moments.

        Its shape is 4 / skewness^2; a negative skewness mirrors it.
        """
        from scipy.special import gammaincinv, ndtri

        if self.variance <= 0:
            return self.value
        deviation = math.sqrt(self.variance)
        skewness = self.third / deviation**3
        if abs(skewness) < _NO_SKEWNESS:
            return self.value + deviation * float(ndtri(level))
        shape = 4 / skewness**2
        tail = level if skewness > 0 else 1 - level
        steps = (float(gammaincinv(shape, tail)) - shape) / math.sqrt(shape)
        return self.value + math.copysign(deviation, skewness) * steps


def moments_of_influences(value: float, *strata: tuple[Array, Array]) -> Moments:
    """Return the moments of an estimate from the influences of rows.

    Parameters
    ----------
    value : float
        The estimate.
    strata : (influences, weights)
        Of rows drawn independently of the other strata: how far each row moves the
        estimate, up to a constant, and the number of such rows.

    Examples
    --------
    >>> rows = np.array([0.0, 1.0]), np.array([50.0, 50.0])
    >>> moments_of_influences(0.5, rows).variance
    0.0024752475247524753
    """
    moments = [_stratum_moments(influences, weights) for influences, weights in strata]
    variance, third = (sum(moment) for moment in zip(*moments, strict=True))
    return Moments(value, variance, third)


def moments_of_sums(value: float, n: float, squares: float, cubes: float) -> Moments:
    """Return the moments of a mean of n values, from sums of their central powers.

    For Dirichlet weights of n ones, the variance is squares / (n (n + 1)) and the third
    moment 2 cubes / (n (n + 1) (n + 2)).
    """
    variance = squares / (n * (n + 1))
    return Moments(value, variance, 2 * cubes / (n * (n + 1) * (n + 2)))


def _stratum_moments(influences: Array, weights: Array) -> tuple[float, float]:
    """Return variance and third moment of the weighted mean of the influences."""
    n = float(weights.sum())
    deviations = influences - float((weights * influences).sum()) / n
    squares = deviations * deviations * weights
    cubes = float((squares * deviations).sum())
    moments = moments_of_sums(0.0, n, float(squares.sum()), cubes)
    return moments.variance, moments.third


def moments_of_mean(values: Array, unseen: Array | None = None) -> Moments:
    """Return the moments of a mean; `unseen` values together weigh as one row more."""
    weights = np.ones(len(values))
    if unseen is not None:
        weights = np.append(weights, np.full(len(unseen), 1 / len(unseen)))
        values = np.append(values, unseen)
    mean = float((weights * values).sum()) / float(weights.sum())
    return moments_of_influences(mean, (values, weights))


TAIL_STEPS = np.array([-math.log(5 / 6), -math.log(1 / 2), -math.log(1 / 6)])
"""Where an unseen row may lie: the 1/6, 1/2 and 5/6 quantiles of an exponential law."""


OUTERMOST = 10
"""The outermost rows that show how far the next one may be."""


_LEAST_STEP = 0.5  # of a standard deviation, where ranks show no distance


_SINGLE_STEP = 1.0  # a single row does not show how far the next one is


_FULL_WEIGHT_ROWS = 100


@dataclass(frozen=True)
class ErrorTail:
    """Where the least doubtful errors lie among the correct rows.

    Attributes
    ----------
    first : float
        The place of the least doubtful error, on the normal scale.
    step : float
        The mean distance from one error to the next one beyond it.
    n_correct : float
    """

    first: float
    step: float
    n_correct: float

    def correct_below(self, steps: Array) -> Array:
        """Return the number of correct rows below places that many steps beyond."""
        return rows_below(self.first - self.step * steps, self.n_correct)


def rows_below(z: Array, n: float) -> Array:
    """Return how many of n rows of the other kind lie below a place, a normal score.

    The inverse of z = normal quantile of (rank + 1/2) / (n + 1).
    """
    from scipy.special import ndtr

    return np.asarray(np.clip(ndtr(z) * (n + 1) - 0.5, 0, n))


def error_tail(c: Counts) -> ErrorTail:
    """Measure the tail of the errors among the correct rows."""
    z, step = least_doubtful_errors(c, min(OUTERMOST, int(c.n_errors) // 2))
    return ErrorTail(float(z[0]), max(_LEAST_STEP, step), float(c.n_correct))


def least_doubtful_errors(c: Counts, k: int) -> tuple[Array, float]:
    """Return the places of the k + 1 least doubtful errors, and the step between them.

    Places are on the normal scale of the correct rows' ranks. The step is the mean
    distance of the first k errors from the last: the maximum-likelihood scale of an
    exponential tail (Hill, Annals of Statistics 1975).
    """
    from scipy.special import ndtri

    groups = np.flatnonzero(c.errors)
    errors_through = np.cumsum(c.errors[groups[: k + 1]])
    group = groups[np.searchsorted(errors_through, np.arange(1, k + 2))]
    correct_through = np.cumsum(c.correct)
    ranks = correct_through[group] - 0.5 * c.correct[group]
    z = np.asarray(ndtri((ranks + 0.5) / (float(correct_through[-1]) + 1)))
    return z, float((z[-1] - z[:-1]).mean()) if k else _SINGLE_STEP


def with_unseen_rows(c: Counts, *, errors: bool = True, correct: bool = True) -> Counts:
    """Add an unseen row of each kind where it does a ranking most harm.

    Beside many rows it weighs less than one: see `unseen_weight`. `c` counts rows at
    every score.
    """
    weight = unseen_weight(float(min(c.n_errors, c.n_correct)))
    worse = _with_unseen_error(c, weight) if errors else c
    if not correct:
        return worse
    # Both are placed by the rows that were seen, not by each other.
    swapped = c.swapped()
    return Counts(_with_unseen_error(swapped, weight).errors[::-1], worse.errors)


def _with_unseen_error(c: Counts, weight: float) -> Counts:
    """Add an error of this weight beyond the least doubtful one, over `TAIL_STEPS`.

    It joins the rows that have the score there.
    """
    through = np.cumsum(c.correct)
    groups = np.searchsorted(through, error_tail(c).correct_below(TAIL_STEPS), "right")
    # A tied group must not be split, with its own errors above the unseen one: the
    # pessimistic distribution would then look better than the rows themselves, and the
    # interval collapse to one side (confidences of two or four values covered 45 to 60%
    # instead of 95; docs/intervals.md, "scores of few values").
    first = int(np.argmax(c.errors > 0))
    errors = c.errors.astype(np.float64)
    share = weight / len(TAIL_STEPS)
    np.add.at(errors, np.minimum(groups, max(first - 1, 0)), share)
    return Counts(c.correct, errors)


def unseen_weight(n: float) -> float:
    """Return the weight of the unseen row beside n rows: below one past a hundred.

    That many rows show their spread themselves.
    """
    return min(1.0, _FULL_WEIGHT_ROWS / n)


def unseen_values(values: Array, most: float) -> Array:
    """Return where a value beyond the largest may be, from the ten largest.

    At most `most`, and just that where the ten show no distance.
    """
    top = largest_values(values, OUTERMOST + 1)
    step = float((top[:-1] - top[-1]).mean()) if len(top) > 1 else 0.0
    if step == 0:
        return np.array([most])
    return np.minimum(top[0] + step * TAIL_STEPS, most)


def largest_values(values: Array, k: int) -> Array:
    """Return the k largest values, the largest first.

    In a long array the largest of each 256 values stands for its block: a partition of
    all values would take longer than the sums beside it.
    """
    block = 256
    if len(values) >= 64 * block:
        in_blocks = len(values) // block * block
        blocks = values[:in_blocks].reshape(-1, block).max(1)
        values = np.append(blocks, values[in_blocks:])
    k = min(k, len(values))
    return np.sort(np.partition(values, len(values) - k)[len(values) - k :])[::-1]
