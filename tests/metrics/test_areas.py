"""Intervals of areas: influences against derivatives, DeLong against all pairs."""

import numpy as np
import pytest
from hypothesis import given
from metrics.rank_samples import components, draw, samples
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.metrics import (
    AREAS,
    Counts,
    areas,
    count_runs,
    counts,
    score_counts,
)

METRICS = {
    name: getattr(score_counts, name) for name in AREAS if name != "aupr_correct"
}
METRICS["aupr_correct"] = lambda c: score_counts.aupr(c.swapped())
names = pytest.mark.parametrize("name", AREAS)


def derivative(metric, c, kind, group):
    """How the metric moves with the weight of one kind of rows in one group."""
    ends = []
    step = 1e-6 * getattr(c, kind).sum()
    for sign in (1, -1):
        changed = {"correct": c.correct.copy(), "errors": c.errors.copy()}
        changed[kind][group] += sign * step
        ends.append(float(metric(Counts(**changed))))
    return (ends[0] - ends[1]) / (2 * step)


def dirichlet(influences, weights):
    """Variance and third moment of a mean with Dirichlet weights, as Rubin has them."""
    n = weights.sum()
    apart = influences - weights @ influences / n
    second, third = weights @ apart**2, weights @ apart**3
    return np.array([second / n / (n + 1), 2 * third / n / (n + 1) / (n + 2)])


@pytest.mark.parametrize("groups", [2, 4, 150])
@names
def test_influences_are_derivatives(name, groups):
    """By moving a little weight to each group, of many rows each."""
    rng = np.random.default_rng(3)
    places = np.linspace(-3, 4, groups)
    c = Counts(1e6 * stats.norm.pdf(places) + 100, 2e5 * stats.norm.pdf(places, 1.5))
    c = Counts(c.correct, c.errors + 100 * rng.random(groups))
    moved = {
        kind: np.array([derivative(METRICS[name], c, kind, g) for g in range(groups)])
        for kind in ("errors", "correct")
    }
    if name == "auroc":  # errors and correct rows are drawn by themselves
        true = sum(
            dirichlet(moved[kind] * getattr(c, kind).sum(), getattr(c, kind))
            for kind in moved
        )
    else:
        weights = np.concatenate([c.errors, c.correct])
        influences = np.concatenate([moved["errors"], moved["correct"]])
        true = dirichlet(influences * weights.sum(), weights)
    law = AREAS[name].moments(c)
    assert law.value == pytest.approx(float(METRICS[name](c)), abs=1e-6)
    assert [law.variance, law.third] == pytest.approx(list(true), rel=1e-3, abs=0)


@names
@pytest.mark.parametrize(
    ("correct", "errors"), [([100, 70], [10, 20]), ([570, 380], [20, 30])]
)
def test_intervals_of_two_values_have_two_sides(name, correct, errors):
    """AUROC 70 [70, 79] would say that nothing worse is possible (METHODS 12)."""
    c = Counts(np.array(correct), np.array(errors))
    value = float(METRICS[name](c))
    law = AREAS[name].moments(c)
    low, high = td.metrics.area_interval(name, c)
    deviation = np.sqrt(law.variance)
    assert low <= value - 1.5 * deviation
    assert high >= value + 1.5 * deviation
    assert high - low <= 2 * 4 * deviation


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [200, 1000])
def test_intervals_of_two_values_cover(n, rng):
    """Each interval of an area, of the same draws; truth is that of the shares."""
    share, rate = {"correct": 0.6, "errors": 0.2}, 30 / 200
    true = Counts(
        1e9 * (1 - rate) * np.array([0.6, 0.4]), 1e9 * rate * np.array([0.2, 0.8])
    )
    covered = dict.fromkeys(AREAS, 0)
    for _ in range(400):
        n_errors = rng.binomial(n, rate)
        least = [
            rng.binomial(rows, share[kind])
            for kind, rows in (("correct", n - n_errors), ("errors", n_errors))
        ]
        c = Counts(
            np.array([least[0], n - n_errors - least[0]]),
            np.array([least[1], n_errors - least[1]]),
        )
        for name in AREAS:
            low, high = td.metrics.area_interval(name, c)
            covered[name] += low <= float(METRICS[name](true)) <= high
    worst = 0.93 - 3 * np.sqrt(0.93 * 0.07 / 400)
    assert min(covered.values()) / 400 >= worst, covered


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_delongs_variance_is_that_of_all_pairs(step, rng):
    """But for n + 1 rows instead of n - 1."""
    scores, errors = draw(rng, 900, step=step)
    kernel_means = components(scores, errors)
    law = AREAS["auroc"].moments(count_runs(scores, errors))
    assert law.value == pytest.approx(kernel_means[0].mean())
    true = sum(v.var() / (len(v) + 1) for v in kernel_means)
    assert law.variance == pytest.approx(true)
    skewed = sum(
        2 * ((v - v.mean()) ** 3).mean() / (len(v) + 1) / (len(v) + 2)
        for v in kernel_means
    )
    assert law.third == pytest.approx(skewed)


def test_of_many_rows_the_interval_is_delongs(rng):
    scores, errors = draw(rng, 8000, apart=1.0)
    kernel_means = components(scores, errors)
    half = stats.norm.ppf(0.975) * np.sqrt(
        sum(v.var(ddof=1) / len(v) for v in kernel_means)
    )
    mid = kernel_means[0].mean()
    low, high = td.delong(scores, errors)
    assert (low, high) == pytest.approx((mid - half, mid + half), abs=0.1 * half)
    narrow = td.delong(scores, errors, confidence=0.5)
    assert low < narrow[0] < mid < narrow[1] < high


@names
@given(data=samples())
@pytest.mark.sampled(2)
def test_intervals_hold_the_value_and_have_a_width(name, data):
    c = counts(*data)
    value = float(METRICS[name](c))
    low, high = td.metrics.area_interval(name, c)
    assert 0 <= low <= value <= high <= 1
    assert low < high


@given(data=samples())
def test_the_auroc_turned_round_mirrors_its_interval(data):
    scores, errors = data
    low, high = td.delong(scores, errors)
    assert td.delong(-scores, errors) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize("n_errors", [1, 5, 15])
def test_a_perfect_auroc_of_few_errors_is_as_uncertain_as_a_share(n_errors):
    errors = np.arange(100) >= 100 - n_errors
    low, high = td.delong(np.arange(100.0), errors)
    assert low <= 0.025 ** (1 / n_errors) + 1e-12
    assert high == 1
    assert td.delong(-np.arange(100.0), errors) == pytest.approx((0, 1 - low))


@pytest.mark.parametrize("n_errors", [1, 2, 3, 5, 20, 40])
@pytest.mark.sampled(2)
def test_auroc_intervals_cover_with_few_errors(n_errors):
    true = stats.norm.cdf(2.5 / np.sqrt(2))
    errors = np.arange(300 + n_errors) < n_errors
    covered = 0
    for seed in range(300):
        scores = np.random.default_rng(seed).normal(size=len(errors)) + 2.5 * errors
        low, high = td.delong(scores, errors)
        covered += low <= true <= high
    assert covered / 300 >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 300)


@pytest.fixture(scope="module")
def many_rows():
    """More groups than are counted separately."""
    sampled = counts(*draw(np.random.default_rng(5), 20_000, rate=0.4))
    assert len(sampled.errors) > 2 * areas._GROUPS
    return sampled


@names
def test_neighbouring_groups_may_be_counted_together(name, many_rows, monkeypatch):
    merged = td.metrics.area_interval(name, many_rows)
    value = float(METRICS[name](many_rows))
    monkeypatch.setattr(areas, "_GROUPS", 1 << 30)
    exact = td.metrics.area_interval(name, many_rows)
    assert merged == pytest.approx(exact, abs=0.02 * (exact[1] - exact[0]))
    assert td.metrics.area_interval(name, many_rows, value=value) == pytest.approx(
        exact
    )


def test_the_outermost_groups_are_not_merged(many_rows):
    merged = areas._merge_groups(many_rows)
    assert len(merged.errors) <= areas._GROUPS
    assert (merged.n_errors, merged.n_correct) == (
        many_rows.n_errors,
        many_rows.n_correct,
    )
    for kind in ("errors", "correct"):
        merged_groups, all_groups = getattr(merged, kind), getattr(many_rows, kind)
        assert np.array_equal(merged_groups[:1000], all_groups[:1000])
        assert np.array_equal(merged_groups[-1000:], all_groups[-1000:])
    assert areas._merge_groups(merged) is merged


def test_intervals_that_do_not_exist_are_refused():
    with pytest.raises(UndefinedMetricError, match="both kinds"):
        td.delong([1.0, 2.0], [False, False])
    with pytest.raises(InputError, match="confidence between 0 and 1"):
        td.delong([1.0, 2.0], [False, True], confidence=95)
    with pytest.raises(InputError, match="confidence between 0 and 1"):
        td.metrics.area_interval("aurc", counts([1.0, 2.0], [0, 1]), confidence=95)
