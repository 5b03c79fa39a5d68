"""The law of an estimate, skewed as it is, from what each row contributes.

Rows get random weights that add up to one (Dirichlet's law, Rubin's Bayesian
bootstrap). What follows for a weighted mean has a closed form: its mean, its variance
and its third moment, which a gamma law matches. Nothing is drawn, so the same rows
give the same interval. For a share of rows it is nearly Clopper and Pearson's.

References
----------
Rubin, The Bayesian Bootstrap, Annals of Statistics 1981.
"""

import math
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array

_STRAIGHT = 1e-3  # so little skewness is none


@dataclass(frozen=True)
class Spread:
    """An estimate, and the second and third central moments of its law.

    Examples
    --------
    >>> round(Spread(0.0, 1.0, 0.0).quantile(0.975), 2)
    1.96
    """

    value: float
    variance: float
    third: float = 0.0

    def quantile(self, share: float) -> float:
        """Return what the estimate is at most with this probability."""
        from scipy.special import gammaincinv, ndtri

        if self.variance <= 0:
            return self.value
        deviation = math.sqrt(self.variance)
        skewness = self.third / deviation**3
        if abs(skewness) < _STRAIGHT:
            return self.value + deviation * float(ndtri(share))
        shape = 4 / skewness**2
        tail = share if skewness > 0 else 1 - share
        steps = (float(gammaincinv(shape, tail)) - shape) / math.sqrt(shape)
        return self.value + math.copysign(deviation, skewness) * steps


def spread(value: float, *strata: tuple[Array, Array]) -> Spread:
    """Return the law of an estimate.

    Parameters
    ----------
    value : float
        The estimate.
    strata : (influences, weights)
        Of rows drawn by themselves, how far each moves the estimate, up to a constant,
        and how many such rows there are.

    Examples
    --------
    >>> spread(0.5, (np.array([0.0, 1.0]), np.array([50.0, 50.0]))).variance
    0.0024752475247524753
    """
    moments = [_moments(influences, weights) for influences, weights in strata]
    return Spread(value, sum(m[0] for m in moments), sum(m[1] for m in moments))


def spread_of_sums(value: float, n: float, squares: float, cubes: float) -> Spread:
    """Return the law of a mean of n values, from sums of their central powers."""
    variance = squares / (n * (n + 1))
    return Spread(value, variance, 2 * cubes / (n * (n + 1) * (n + 2)))


def _moments(influences: Array, weights: Array) -> tuple[float, float]:
    n = float(weights.sum())
    apart = influences - float((weights * influences).sum()) / n
    squares = apart * apart * weights
    cubes = float((squares * apart).sum())
    found = spread_of_sums(0.0, n, float(squares.sum()), cubes)
    return found.variance, found.third


def mean_spread(values: Array, further: Array | None = None) -> Spread:
    """Return the law of a mean; `further` values together count as one row more."""
    weights = np.ones(len(values))
    if further is not None:
        weights = np.append(weights, np.full(len(further), 1 / len(further)))
        values = np.append(values, further)
    mean = float((weights * values).sum()) / float(weights.sum())
    return spread(mean, (values, weights))
