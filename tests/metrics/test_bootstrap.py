"""Moments of weighted means against Dirichlet draws; where the unseen row lies."""

import math

import numpy as np
import pytest
from metrics.rank_samples import draw
from scipy import stats
from scipy.stats import norm

import trustdoctor as td
from trustdoctor.evaluation.evaluations import EvaluationSettings, rank_estimates
from trustdoctor.metrics import Counts, Points, count_runs, counts, score_counts
from trustdoctor.metrics.bootstrap import (
    OUTERMOST,
    TAIL_STEPS,
    Moments,
    error_tail,
    largest_values,
    least_doubtful_errors,
    moments_of_influences,
    moments_of_mean,
    moments_of_sums,
    unseen_values,
    with_unseen_rows,
)


@pytest.mark.parametrize("step", [0.0, 0.5])
@pytest.mark.parametrize("change", [np.exp, np.arctan, lambda s: 3 * s**3 - 7])
def test_monotone_maps_of_the_scores_change_no_interval(rng, step, change):
    scores, errors = draw(rng, 120, step=step)
    settings = EvaluationSettings(Points(trr=0.9, risk=0.05))
    estimates = rank_estimates(counts(change(scores), errors), settings)
    assert estimates == rank_estimates(counts(scores, errors), settings)


@pytest.mark.parametrize(
    ("options", "more_errors", "more_correct"),
    [({}, 1, 1), ({"correct": False}, 1, 0), ({"errors": False}, 0, 1)],
)
def test_an_unseen_row_of_each_kind_is_counted(rng, options, more_errors, more_correct):
    for step in (0.0, 0.5):
        c = counts(*draw(rng, 120, step=step))
        extended = with_unseen_rows(c, **options)
        assert extended.n_errors == pytest.approx(c.n_errors + more_errors)
        assert extended.n_correct == pytest.approx(c.n_correct + more_correct)


def test_an_unseen_row_never_flatters(rng):
    for _ in range(50):
        c = counts(*draw(rng, 30, step=rng.choice([0.0, 0.5])))
        worse = with_unseen_rows(c)
        assert score_counts.auroc(worse) <= score_counts.auroc(c) + 1e-12
        assert (
            score_counts.aurc(with_unseen_rows(c, correct=False))
            >= score_counts.aurc(c) - 1e-12
        )


def test_a_single_error_by_hand():
    """Two correct rows on either side: it is at 0 on the normal scale."""
    c = Counts(np.array([2, 0, 2]), np.array([0, 1, 0]))
    tail = error_tail(c)
    assert (tail.first, tail.step, tail.n_correct) == (0.0, 1.0, 4.0)
    thirds = np.clip(norm.cdf([math.log(x / 6) for x in (5, 3, 1)]) * 5 - 0.5, 0, 4)
    assert tail.correct_below(TAIL_STEPS) == pytest.approx(thirds)
    assert thirds[2] == 0
    # Below the error the two correct rows are tied: one more error ties with them.
    worse = with_unseen_rows(c, correct=False)
    assert worse.errors == pytest.approx([1, 1, 0])
    assert score_counts.auroc(worse) == pytest.approx((2 + 1) / 2 / 4)
    apart = with_unseen_rows(
        Counts(np.ones(5), np.array([0, 0, 1, 0, 0])), correct=False
    )
    assert apart.errors == pytest.approx([2 / 3, 1 / 3, 1, 0, 0])  # at 0, 0.9 and 1.7


@pytest.mark.parametrize(
    ("correct", "errors", "unseen"),
    [
        ([100, 70], [10, 20], [11, 20]),  # the least doubtful value has errors
        ([100, 70], [0, 30], [1, 30]),  # it has none: the next may be there
        ([80, 60, 30], [0, 12, 18], [1, 12, 18]),
    ],
)
def test_of_tied_rows_the_next_is_beyond_the_whole_group(correct, errors, unseen):
    """To split it would put its own errors above the next, and look better."""
    c = Counts(np.array(correct), np.array(errors))
    worse = with_unseen_rows(c, correct=False)
    assert worse.errors == pytest.approx(unseen)
    assert worse.correct.tolist() == correct
    assert score_counts.auroc(worse) < score_counts.auroc(c)
    mirrored = with_unseen_rows(c.swapped(), errors=False)
    assert mirrored.correct == pytest.approx(unseen[::-1])


def test_an_unseen_row_never_flatters_tied_rows(rng):
    for values in (2, 4, 10):
        for _ in range(50):
            scores = rng.integers(0, values, 200) + (errors := rng.random(200) < 0.2)
            c = counts(np.minimum(scores, values - 1), errors)
            worse = with_unseen_rows(c)
            assert score_counts.auroc(worse) < score_counts.auroc(c)
            assert score_counts.aupr(worse) <= score_counts.aupr(c) + 0.02
            assert score_counts.aurc(
                with_unseen_rows(c, correct=False)
            ) > score_counts.aurc(c)


def test_tied_rows_are_half_below():
    z, step = least_doubtful_errors(Counts(np.array([4]), np.array([2])), 1)
    assert z.tolist() == [0, 0]
    assert step == 0
    assert error_tail(Counts(np.array([4]), np.array([2]))).step == 0.5  # the least


def test_the_outermost_errors_by_hand():
    """Correct rows at 0 to 8, errors above 1, 4, 6 and 8 of them."""
    scores = [*range(9), 0.5, 3.5, 5.5, 7.5]
    errors = np.arange(13) >= 9
    z, step = least_doubtful_errors(counts(scores, errors), 2)
    true = norm.ppf([1.5 / 10, 4.5 / 10, 6.5 / 10])
    assert z == pytest.approx(true)
    assert step == pytest.approx(((true[2] - true[0]) + (true[2] - true[1])) / 2)
    assert error_tail(count_runs(scores, errors)).step == pytest.approx(max(0.5, step))


def test_no_more_than_the_ten_outermost_errors_count(rng):
    correct, wrong = rng.normal(size=300), np.sort(rng.normal(size=40) + 2)
    moved = wrong.copy()
    moved[OUTERMOST + 1 :] += 5
    errors = np.arange(340) >= 300
    direct, moved_tail = (
        error_tail(count_runs([*correct, *w], errors)) for w in (wrong, moved)
    )
    assert direct == moved_tail
    moved[OUTERMOST] -= 0.5
    assert error_tail(count_runs([*correct, *np.sort(moved)], errors)) != direct


def test_a_value_beyond_the_largest_by_hand():
    largest = unseen_values(np.arange(100.0), 1000.0)
    assert largest == pytest.approx(99 + 5.5 * TAIL_STEPS)  # 1 to 10 above the eleventh
    assert unseen_values(np.array([1.0, 3.0]), 9.0) == pytest.approx(3 + 2 * TAIL_STEPS)


def test_no_value_is_beyond_the_most_there_can_be():
    assert unseen_values(np.arange(100.0), 100.0) == pytest.approx([100, 100, 100])
    for alike in (np.array([3.0]), np.full(20, 3.0)):
        assert unseen_values(alike, 7.0).tolist() == [7]  # nothing shows how far


def test_the_largest_values_are_found(rng):
    values = rng.normal(size=5000)
    assert np.array_equal(largest_values(values, 11), np.sort(values)[::-1][:11])
    assert largest_values(values[:3], 11).tolist() == sorted(values[:3], reverse=True)


@pytest.mark.parametrize("at", [0, 10_000, 19_999])
def test_of_many_values_the_largest_is_among_them(rng, at):
    values = rng.random(20_000)
    values[at] = 2
    largest = largest_values(values, 11)
    assert largest[0] == 2
    assert (np.diff(largest) <= 0).all()
    assert np.isin(largest, values).all()
    assert (largest <= np.sort(values)[::-1][:11]).all()
    assert largest[-1] > 0.99


SHARES = (0.001, 0.025, 0.5, 0.975, 0.999)


@pytest.mark.parametrize("skewness", [-2.0, -0.3, -0.002, 0.0, 0.002, 0.3, 1.5])
@pytest.mark.parametrize("share", SHARES)
def test_quantiles_are_those_of_pearsons_third_kind(skewness, share):
    quantile = Moments(3.0, 4.0, skewness * 8).quantile(share)
    true = stats.pearson3(skewness, loc=3, scale=2).ppf(share)
    assert quantile == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize("share", SHARES)
def test_quantiles_of_a_gamma_law_are_its_own(share):
    law = stats.gamma(2.5, scale=0.2)
    quantile = Moments(law.mean(), law.var(), 2 * 2.5 * 0.2**3).quantile(share)
    assert quantile == pytest.approx(law.ppf(share))


def test_so_little_skewness_changes_nothing():
    """On either side of the step from a gamma to a normal law."""
    ends = [Moments(0.0, 1.0, third).quantile(0.975) for third in (0.00099, 0.00101)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)


def test_without_variance_the_estimate_is_known():
    assert Moments(0.4, 0.0, 0.0).quantile(0.975) == 0.4


def drawn_moments(drawn):
    """Mean, variance and third central moment, each with its standard error."""
    apart = drawn - drawn.mean()
    return [
        (values.mean(), values.std() / np.sqrt(len(values)))
        for values in (drawn, apart**2, apart**3)
    ]


def meets(law, drawn):
    for estimate, (true, error) in zip(
        (law.value, law.variance, law.third), drawn_moments(drawn), strict=True
    ):
        assert abs(estimate - true) < 4 * error


def test_moments_are_those_of_dirichlet_weights(rng):
    values, weights = np.array([0.0, 1.0, 5.0]), np.array([7.0, 3.0, 0.5])
    drawn = rng.dirichlet(weights, 200_000) @ values
    mean = float(weights @ values / weights.sum())
    law = moments_of_influences(mean, (values, weights))
    meets(law, drawn)
    assert (
        law.third > 20 * drawn_moments(drawn)[2][1]
    )  # the simulation distinguishes it from 0
    shifted = moments_of_influences(mean, (values + 100, weights))
    assert shifted.variance == pytest.approx(law.variance)
    assert shifted.third == pytest.approx(law.third)


def test_strata_are_drawn_by_themselves(rng):
    strata = [
        (np.array([0.0, 2.0]), np.array([4.0, 2.0])),
        (np.array([1.0, 0.0, -3.0]), np.array([2.0, 2.0, 1.0])),
    ]
    drawn = sum(rng.dirichlet(w, 200_000) @ v for v, w in strata)
    mean = sum(float(w @ v / w.sum()) for v, w in strata)
    meets(moments_of_influences(mean, *strata), drawn)


def test_unseen_values_weigh_as_one_row(rng):
    values, unseen = rng.exponential(size=9), np.array([3.0, 4.0, 8.0])
    weights = [1.0] * 9 + [1 / 3] * 3
    drawn = rng.dirichlet(weights, 200_000) @ np.append(values, unseen)
    meets(moments_of_mean(values, unseen), drawn)
    alone = moments_of_mean(values)
    meets(alone, rng.dirichlet(np.ones(9), 200_000) @ values)
    assert alone.value == pytest.approx(values.mean())


def test_sums_of_powers_are_enough(rng):
    values = rng.exponential(size=50)
    apart = values - values.mean()
    sums = float((apart**2).sum()), float((apart**3).sum())
    by_powers, true = moments_of_sums(values.mean(), 50, *sums), moments_of_mean(values)
    for name in ("value", "variance", "third"):
        assert getattr(by_powers, name) == pytest.approx(getattr(true, name))


@pytest.mark.parametrize(("k", "n"), [(3, 60), (20, 200), (480, 500)])
def test_a_share_of_rows_has_nearly_clopper_and_pearsons_interval(k, n):
    """With a unseen row on each side: their ends are quantiles of those beta laws."""
    rows = (np.arange(n) < k).astype(float)
    low = moments_of_mean(rows, np.zeros(1)).quantile(0.025)
    high = moments_of_mean(rows, np.ones(1)).quantile(0.975)
    true = td.clopper_pearson(k, n)
    assert (low, high) == pytest.approx(true, abs=0.03 * (true[1] - true[0]))
