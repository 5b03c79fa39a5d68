import numpy as np
import pytest
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.metrics import count_runs, counts, intervals, resampling


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (481, 10_000)])
def test_clopper_pearson_meets_scipy(k, n):
    true = stats.binomtest(k, n).proportion_ci(0.9, "exact")
    assert td.clopper_pearson(k, n, confidence=0.9) == pytest.approx(tuple(true))


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_bad_confidence_is_refused(confidence):
    with pytest.raises(InputError, match="confidence"):
        td.clopper_pearson(1, 2, confidence=confidence)


def components(scores, errors):
    """DeLong's structural components by comparing every pair."""
    e, c = scores[errors], scores[~errors]
    kernel = (e[:, None] > c) + 0.5 * (e[:, None] == c)
    return kernel.mean(1), kernel.mean(0)


@pytest.mark.parametrize("tied", [False, True])
def test_delong_meets_the_pairwise_formula(tied, rng):
    errors = rng.random(900) < 0.3
    scores = rng.normal(size=900) + errors
    other = scores + rng.normal(size=900)
    if tied:
        scores, other = np.round(scores), np.round(other)
    v10, v01 = components(scores, errors)
    sd = np.sqrt(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))
    mid, half = v10.mean(), stats.norm.ppf(0.975) * sd
    assert td.delong(scores, errors) == pytest.approx((mid - half, mid + half))
    w10, w01 = components(other, errors)
    sd = np.sqrt(
        (v10 - w10).var(ddof=1) / len(v10) + (v01 - w01).var(ddof=1) / len(v01)
    )
    half = stats.t.ppf(0.975, min(len(v10), len(v01)) - 1) * sd
    mid = v10.mean() - w10.mean()
    found = td.delong_difference(scores, other, errors)
    assert found == pytest.approx((mid - half, mid + half))


def test_few_errors_keep_delong_inside_the_unit_interval(rng):
    errors = np.arange(60) >= 52
    scores = rng.normal(size=60) + 2 * errors
    low, high = td.delong(scores, errors)
    assert 0 < low < td.auroc(scores, errors) < high < 1


def test_a_perfect_auroc_is_not_certain():
    errors = np.arange(30) >= 25
    low, high = td.delong(np.arange(30.0), errors)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 5)), 1.0)
    assert td.delong(-np.arange(30.0), errors) == (0.0, pytest.approx(1 - low))
    low, high = td.delong([1.0, 0.0, 2.0], [True, False, False])
    assert (low, high) == (
        pytest.approx(0.006, abs=0.01),
        pytest.approx(0.994, abs=0.01),
    )


@pytest.mark.parametrize("n_errors", [1, 2, 3, 5, 20, 40])
def test_auroc_intervals_hold_with_few_errors(n_errors):
    true = stats.norm.cdf(2.5 / np.sqrt(2))
    errors = np.arange(300 + n_errors) < n_errors
    hits = 0
    for seed in range(400):
        scores = np.random.default_rng(seed).normal(size=len(errors)) + 2.5 * errors
        low, high = td.delong(scores, errors)
        hits += low <= true <= high
    assert hits / 400 >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("n_errors", [2, 3, 10])
def test_few_errors_seldom_make_a_difference_where_there_is_none(n_errors):
    errors = np.arange(300 + n_errors) < n_errors
    claims = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=len(errors)) + 2 * errors
        first, second = (base + rng.normal(size=len(errors)) for _ in range(2))
        low, high = td.delong_difference(first, second, errors)
        claims += not low <= 0 <= high
    assert claims / 400 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_well_separated_scores_keep_narrow_intervals(rng):
    """Grouping must not mix errors into the correct rows beside them."""
    errors = rng.random(40_000) < 0.011
    scores = rng.normal(size=40_000) + 7 * errors
    (samples,) = resampling.bootstrap([scores], errors)
    drawn = counts.aupr(samples.rows)
    assert counts.aupr(count_runs(scores, errors)) - np.quantile(drawn, 0.025) < 0.001


def test_what_has_no_interval_is_refused():
    with pytest.raises(UndefinedMetricError, match="both kinds"):
        td.delong([1.0, 2.0], [False, False])
    for first, second, errors in (
        ([1.0, 2.0], [1.0, 2.0], [True, True]),
        ([1.0, 2.0], [1.0], [True, False]),
    ):
        with pytest.raises(InputError, match="same rows"):
            td.delong_difference(first, second, errors)
    with pytest.raises(InputError, match="successes"):
        td.clopper_pearson(5, 3)


def draw(rng, n=1200, rate=0.2):
    errors = rng.random(n) < rate
    return rng.normal(size=n) + 1.5 * errors, errors


def truth():
    rng = np.random.default_rng(1)
    return count_runs(*draw(rng, 2_000_000))


@pytest.fixture(scope="module")
def true_counts():
    return truth()


def covered(metric, true_counts, *, stratified, runs=300, n=1200):
    """The share of intervals that hold the true value."""
    true = metric(true_counts)
    hits = 0
    for seed in range(runs):
        scores, errors = draw(np.random.default_rng(seed), n)
        (samples,) = resampling.bootstrap([scores], errors, replicates=300, seed=seed)
        drawn = samples.strata if stratified else samples.rows
        low, high = intervals.quantiles(metric(drawn) - metric(samples.sample), 0.95)
        value = metric(count_runs(scores, errors))
        hits += value + low <= true <= value + high
    return hits / runs


@pytest.mark.parametrize(
    ("metric", "stratified"),
    [
        (counts.aurc, False),
        (counts.aupr, False),
        (lambda c: counts.risk_at_coverage(c, coverage=0.8), False),
        (lambda c: counts.frr_at_trr(c, trr=0.95), True),
    ],
    ids=["aurc", "aupr", "risk_at_coverage", "frr_at_trr"],
)
def test_bootstrap_intervals_hold_as_often_as_they_say(metric, stratified, true_counts):
    share = covered(metric, true_counts, stratified=stratified)
    assert 0.90 <= share <= 0.985  # 0.95 within three standard errors, and a bias


def test_freezing_the_error_rate_would_cover_too_little(true_counts):
    """Why areas are not bootstrapped within the errors: the check can fail."""
    assert covered(counts.aurc, true_counts, stratified=True) < 0.90


def test_order_statistics_cover_with_few_errors():
    true = float(counts.frr_at_trr(truth(), trr=0.95))
    hits = 0
    for seed in range(300):
        scores, errors = draw(np.random.default_rng(seed), n=300)
        low, high = intervals.frr_at_trr_few(count_runs(scores, errors), trr=0.95)
        hits += low <= true <= high
    assert hits / 300 >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 300)


def test_a_handful_of_errors_says_nothing_about_a_high_trr():
    scores, errors = np.arange(20.0), np.arange(20) >= 17
    assert intervals.frr_at_trr_few(count_runs(scores, errors), trr=0.95)[1] == 1.0


def test_large_samples_are_drawn_by_groups_with_the_same_spread(rng):
    scores, errors = draw(rng, 60_000)
    (grouped,) = resampling.bootstrap([scores], errors, replicates=400)
    assert not grouped.joint
    assert (grouped.strata.n_errors == errors.sum()).all()
    assert (grouped.rows.n_errors + grouped.rows.n_correct == 60_000).all()
    half, joint = scores[:50_000], errors[:50_000]
    (rows,) = resampling.bootstrap([half], joint, replicates=400)
    assert rows.joint
    ratio = counts.aurc(grouped.rows).std() / counts.aurc(rows.rows).std()
    assert ratio == pytest.approx(np.sqrt(5 / 6), rel=0.15)


def test_one_kind_of_rows_can_be_drawn():
    (samples,) = resampling.bootstrap(
        [np.arange(5.0)], np.zeros(5, bool), replicates=10
    )
    assert (samples.rows.n_correct == 5).all()
    assert (samples.strata.n_errors == 0).all()


@pytest.mark.parametrize("n", [200, 8000])
def test_means_are_drawn_with_their_standard_error(n, rng):
    values = rng.exponential(size=(n, 2))
    drawn = resampling.bootstrap_means(values, replicates=2000)
    assert drawn.shape == (2000, 2)
    assert drawn.std(0) == pytest.approx(values.std(0) / np.sqrt(n), rel=0.1)
    assert np.abs(drawn.mean(0)).max() < 4 * values.std() / np.sqrt(n * 2000)
