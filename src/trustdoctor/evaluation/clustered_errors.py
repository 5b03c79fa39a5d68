"""Errors that go together in rows that share a value: a document, a patient, an image.

Intervals and promises are for rows that are drawn one by one. Where the errors of a
document come together, its rows tell less than as many rows of other documents.
"""

from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation.label_counts import LEVEL

LEAST_VALUES = 20
"""A column with fewer values, or fewer than the root of the rows, is a category.

Future rows have the same values, so these rows represent all of them.
"""

LEAST_SHARED = 1 / 3
"""The least share of the rows with a value that another row has, too."""

LEAST_OF_EACH = 10
"""With fewer errors, or fewer correct rows, nothing is tested."""

LEAST_INFLATION = 1.1
"""A smaller inflation of the variance by clusters is not reported."""

_MOST_STRATA = 20
_VALUES_PER_STRATUM = 4


@dataclass(frozen=True)
class ClusteredErrors:
    """A test of whether errors go together within the values of a column.

    Attributes
    ----------
    n, values : int
        Rows, and different values.
    p_value : float
        Of the sum over values of (errors - rate * rows)^2, if the errors were spread
        over the rows at random.
    inflation : float
        How many times larger the variance of the error rate is than of as many
        independent rows (Kish's design effect).
    """

    n: int
    values: int
    p_value: float
    inflation: float

    def clear(self, tests: int = 1) -> bool:
        """Return whether it is significant among `tests` of them, and large enough."""
        return self.p_value < LEVEL / tests and self.inflation >= LEAST_INFLATION

    @classmethod
    def test(
        cls, values: Array, errors: Array, *, ordered: bool = False
    ) -> "ClusteredErrors | None":
        """Test the errors of rows; None where a column has too few or too many values.

        Parameters
        ----------
        values : integer array (n,)
            Each row's value, numbered from 0 in their order.
        errors : bool array (n,)
        ordered : bool
            Whether near values may be alike, as ages are and numbers of patients are
            not. Errors are then compared with those of rows with values near theirs.

        Notes
        -----
        The first three moments of the statistic over permutations of the errors are
        known, and a gamma distribution is fitted to them, as Kazi-Aoual et al.
        (Computational Statistics & Data Analysis 20, 1995) do for quadratic forms.

        Examples
        --------
        >>> documents = np.repeat(np.arange(200), 10)
        >>> result = ClusteredErrors.test(documents, documents % 8 == 0)
        >>> result.clear(), round(result.inflation, 1)
        (True, 10.0)
        >>> ClusteredErrors.test(documents, np.arange(2000) % 7 == 0).clear()
        False
        """
        sizes = np.bincount(values)
        n, n_errors = len(errors), int(errors.sum())
        n_values = int(np.count_nonzero(sizes))
        n_shared = int(sizes[sizes > 1].sum())
        is_category = n_values < LEAST_VALUES or n > n_values**2
        if is_category or n_shared < LEAST_SHARED * n:
            return None
        if min(n_errors, n - n_errors) < LEAST_OF_EACH:
            return None
        n_strata = min(_MOST_STRATA, n_values // _VALUES_PER_STRATUM) if ordered else 1
        # Ages and times drift: errors are compared with those of near values alone.
        # Strata of like size, without splitting the rows of one value.
        middle = np.cumsum(sizes) - sizes / 2
        stratum = np.minimum((middle * n_strata / n).astype(np.int64), n_strata - 1)
        moments = _Moments.of(sizes, np.bincount(values, errors), stratum, n_strata)
        # Kish, Survey Sampling (1965), chapter 5: 1 + (mean size - 1) * correlation,
        # where the mean weighs each value by its rows.
        inflation = 1 + (np.square(sizes).sum() / n - 1) * moments.correlation
        return cls(n, n_values, moments.p_value, float(inflation))


@dataclass(frozen=True)
class _Moments:
    """Pairs of rows with one value whose errors agree, and what chance gives."""

    excess: float
    variance: float
    third: float
    scale: float

    @classmethod
    def of(
        cls, sizes: Array, errors: Array, stratum: Array, n_strata: int
    ) -> "_Moments":
        """Sum over strata, within each of which errors are permuted.

        With c = error - rate, the sum over pairs of rows of one value of c_i c_j has
        mean -s^2 / (n - 1) per pair, variance s^4 per pair, and a third moment of
        (E c^3)^2 per pair and 6 s^6 per triple: other products have mean 0.
        """
        m = sizes.astype(float)
        pairs, triples = m * (m - 1) / 2, m * (m - 1) * (m - 2) / 6
        n, n_errors, n_pairs, n_triples = (
            np.bincount(stratum, weights, n_strata)
            for weights in (m, errors, pairs, triples)
        )
        rate = n_errors / np.maximum(n, 1)
        square = rate * (1 - rate)
        cube = square * (1 - 2 * rate)
        value_rate = rate[stratum]
        # (sum of c)^2 is twice the pairs and the squares, which nothing changes.
        sums = errors - m * value_rate
        squares = errors * (1 - value_rate) ** 2 + (m - errors) * value_rate**2
        products = float((sums**2 - squares).sum() / 2)
        mean = float((-n_pairs * square / np.maximum(n - 1, 1)).sum())
        return cls(
            products - mean,
            float((n_pairs * square**2).sum()),
            float((n_pairs * cube**2 + 6 * n_triples * square**3).sum()),
            float((n_pairs * square).sum()),
        )

    @property
    def correlation(self) -> float:
        """Of the errors of two rows with one value."""
        return self.excess / self.scale if self.scale > 0 else 0.0

    @property
    def p_value(self) -> float:
        """By a gamma distribution with these moments."""
        from scipy.special import gammaincc

        if self.variance <= 0:
            return 1.0
        skew = self.third / self.variance**1.5
        # A gamma law of shape k has skewness 2 / sqrt(k); at 1e-6 it is normal.
        shape = 4 / max(skew, 1e-6) ** 2
        z = self.excess / np.sqrt(self.variance)
        return float(gammaincc(shape, max(0.0, shape + z * np.sqrt(shape))))
