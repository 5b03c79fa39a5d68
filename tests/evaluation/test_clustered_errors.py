"""Columns within which errors go together, against permutations and known truth."""

import numpy as np
import pytest

from trustdoctor.evaluation import ClusteredErrors


def draw(seed, *, spread=0.0, groups=150, rate=0.1):
    """Draw groups of uneven size whose error rates differ by `spread`."""
    rng = np.random.default_rng(seed)
    values = np.repeat(np.arange(groups), rng.integers(1, 20, groups))
    group_rates = rate * (1 + spread * rng.choice([-1, 1], groups))
    return values, rng.random(len(values)) < group_rates[values]


def statistic(values, errors):
    sizes = np.bincount(values)
    return ((np.bincount(values, errors) - errors.mean() * sizes) ** 2).sum()


@pytest.mark.parametrize("spread", [0.0, 0.5, 0.8])
def test_the_p_value_is_that_of_permutations(spread):
    for seed in range(3):
        values, errors = draw(seed, spread=spread)
        rng = np.random.default_rng(99)
        drawn = [statistic(values, rng.permutation(errors)) for _ in range(2000)]
        share = np.mean(np.array(drawn) >= statistic(values, errors))
        assert ClusteredErrors.test(values, errors).p_value == pytest.approx(
            share, abs=4 * np.sqrt(max(share * (1 - share), 1e-3) / 2000)
        )


@pytest.mark.parametrize("ordered", [False, True])
def test_false_alarms_are_as_frequent_as_allowed(ordered):
    """1,000 worlds without clusters, by a level that can be seen in them."""
    p = [ClusteredErrors.test(*draw(s), ordered=ordered).p_value for s in range(1000)]
    assert np.mean(np.array(p) < 0.01) <= 0.01 + 3 * np.sqrt(0.01 / 1000)


def test_the_inflation_is_that_of_the_variance():
    """Of groups that are wholly right or wrong the size itself."""
    values = np.repeat(np.arange(300), 6)
    clusters = ClusteredErrors.test(values, values % 7 == 0)
    assert clusters.inflation == pytest.approx(6, rel=0.02)
    assert clusters.clear(tests=30)


def test_documents_are_found():
    results = [ClusteredErrors.test(*draw(s, spread=0.9)) for s in range(50)]
    assert sum(clusters.clear(tests=5) for clusters in results) >= 48


def test_a_trend_in_a_number_is_not_a_cluster():
    """Errors that come with age are not; those of numbered patients are."""
    rng = np.random.default_rng(0)
    age = rng.integers(0, 80, 5000)
    errors = rng.random(5000) < 0.02 + 0.005 * age
    assert ClusteredErrors.test(age, errors).clear()
    assert not ClusteredErrors.test(age, errors, ordered=True).clear()
    patients = rng.random(80) < 0.2
    errors = rng.random(5000) < np.where(patients[age], 0.5, 0.1)
    assert ClusteredErrors.test(age, errors, ordered=True).clear()


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        (np.arange(1000) % 19, np.arange(1000) % 5 == 0),  # a category
        (np.arange(10000) % 99, np.arange(10000) % 5 == 0),  # likewise
        (np.arange(1000) // 1, np.arange(1000) % 5 == 0),  # names of rows
        (np.arange(1000) // 5, np.arange(1000) < 9),  # too few errors
    ],
)
def test_what_is_not_tested(values, errors):
    assert ClusteredErrors.test(values, errors) is None
