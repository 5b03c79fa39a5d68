"""The law of a weighted mean: moments against Dirichlet draws, quantiles, shares."""

import numpy as np
import pytest
from scipy import stats

import trustdoctor as td
from trustdoctor.metrics.skewed import Spread, mean_spread, spread, spread_of_sums

SHARES = (0.001, 0.025, 0.5, 0.975, 0.999)


@pytest.mark.parametrize("skewness", [-2.0, -0.3, -0.002, 0.0, 0.002, 0.3, 1.5])
@pytest.mark.parametrize("share", SHARES)
def test_quantiles_are_those_of_pearsons_third_kind(skewness, share):
    found = Spread(3.0, 4.0, skewness * 8).quantile(share)
    true = stats.pearson3(skewness, loc=3, scale=2).ppf(share)
    assert found == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize("share", SHARES)
def test_quantiles_of_a_gamma_law_are_its_own(share):
    law = stats.gamma(2.5, scale=0.2)
    found = Spread(law.mean(), law.var(), 2 * 2.5 * 0.2**3).quantile(share)
    assert found == pytest.approx(law.ppf(share))


def test_so_little_skewness_changes_nothing():
    """On either side of the step from a gamma to a normal law."""
    ends = [Spread(0.0, 1.0, third).quantile(0.975) for third in (0.00099, 0.00101)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)


def test_without_variance_the_estimate_is_known():
    assert Spread(0.4, 0.0, 0.0).quantile(0.975) == 0.4


def moments(drawn):
    """Mean, variance and third central moment, each with its standard error."""
    apart = drawn - drawn.mean()
    return [
        (values.mean(), values.std() / np.sqrt(len(values)))
        for values in (drawn, apart**2, apart**3)
    ]


def meets(law, drawn):
    for found, (true, error) in zip(
        (law.value, law.variance, law.third), moments(drawn), strict=True
    ):
        assert abs(found - true) < 4 * error


def test_moments_are_those_of_dirichlet_weights(rng):
    values, weights = np.array([0.0, 1.0, 5.0]), np.array([7.0, 3.0, 0.5])
    drawn = rng.dirichlet(weights, 200_000) @ values
    mean = float(weights @ values / weights.sum())
    law = spread(mean, (values, weights))
    meets(law, drawn)
    assert law.third > 20 * moments(drawn)[2][1]  # the simulation tells it from 0
    shifted = spread(mean, (values + 100, weights))
    assert shifted.variance == pytest.approx(law.variance)
    assert shifted.third == pytest.approx(law.third)


def test_strata_are_drawn_by_themselves(rng):
    strata = [
        (np.array([0.0, 2.0]), np.array([4.0, 2.0])),
        (np.array([1.0, 0.0, -3.0]), np.array([2.0, 2.0, 1.0])),
    ]
    drawn = sum(rng.dirichlet(w, 200_000) @ v for v, w in strata)
    mean = sum(float(w @ v / w.sum()) for v, w in strata)
    meets(spread(mean, *strata), drawn)


def test_further_values_count_as_one_row_more(rng):
    values, further = rng.exponential(size=9), np.array([3.0, 4.0, 8.0])
    weights = [1.0] * 9 + [1 / 3] * 3
    drawn = rng.dirichlet(weights, 200_000) @ np.append(values, further)
    meets(mean_spread(values, further), drawn)
    alone = mean_spread(values)
    meets(alone, rng.dirichlet(np.ones(9), 200_000) @ values)
    assert alone.value == pytest.approx(values.mean())


def test_sums_of_powers_are_enough(rng):
    values = rng.exponential(size=50)
    apart = values - values.mean()
    sums = float((apart**2).sum()), float((apart**3).sum())
    found, true = spread_of_sums(values.mean(), 50, *sums), mean_spread(values)
    for name in ("value", "variance", "third"):
        assert getattr(found, name) == pytest.approx(getattr(true, name))


@pytest.mark.parametrize(("k", "n"), [(3, 60), (20, 200), (480, 500)])
def test_a_share_of_rows_has_nearly_clopper_and_pearsons_interval(k, n):
    """With a further row on each side: their ends are quantiles of those beta laws."""
    rows = (np.arange(n) < k).astype(float)
    low = mean_spread(rows, np.zeros(1)).quantile(0.025)
    high = mean_spread(rows, np.ones(1)).quantile(0.975)
    true = td.clopper_pearson(k, n)
    assert (low, high) == pytest.approx(true, abs=0.03 * (true[1] - true[0]))
