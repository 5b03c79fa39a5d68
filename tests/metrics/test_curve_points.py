"""Intervals at points of curves: ends by hand, on small samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics.rank_samples import draw, samples
from scipy.stats import binom, binomtest, norm

from trustdoctor.metrics import (
    CURVE_POINTS,
    RANK_METRICS,
    TIED_NOTE,
    Counts,
    Points,
    counts,
    curve_points,
)
from trustdoctor.metrics.curve_points import binomial_quantiles, frr_point


def exact(k, n):
    return binomtest(k, n).proportion_ci(0.95, "exact")


@given(
    n=st.integers(1, 3000),
    rate=st.floats(0, 1) | st.sampled_from([0.0, 0.05, 0.5, 0.9, 0.95, 1.0]),
    share=st.sampled_from([0.0005, 0.025, 0.05, 0.25]),
)
def test_binomial_quantiles_are_scipys(n, rate, share):
    true = binom.ppf([share, 1 - share], n, rate)
    assert binomial_quantiles(share, n, rate) == tuple(np.maximum(true, 0))


@pytest.mark.parametrize("n", [10**5, 10**8])
def test_of_many_rows_too(n):
    for rate in (1e-6, 0.05, 0.9):
        true = binom.ppf([0.025, 0.975], n, rate)
        assert binomial_quantiles(0.025, n, rate) == tuple(true)


def test_frr_by_hand(rng):
    """Two order statistics of the errors, and a share of the correct rows."""
    scores, errors = draw(rng, 240, rate=0.25)
    wrong, right = np.sort(scores[errors]), scores[~errors]
    low, high = binom.ppf([0.025, 0.975], len(wrong), 0.5).astype(int)
    assert low >= 10  # so no tail is needed
    most, least = ((right > wrong[at]).mean() for at in (low - 1, high))
    point = frr_point(counts(scores, errors), trr=0.5)
    ends = exact(round(point.value * len(right)), len(right))
    assert point.above == pytest.approx((most - point.value, ends.high - point.value))
    assert point.below == pytest.approx((point.value - least, point.value - ends.low))
    interval = CURVE_POINTS["frr_at_trr"](
        counts(scores, errors), Points(trr=0.5), 0.95
    ).interval
    assert interval == pytest.approx(
        (
            point.value - math.hypot(point.value - least, point.value - ends.low),
            point.value + math.hypot(most - point.value, ends.high - point.value),
        )
    )


def test_frr_by_hand_with_ties():
    """Of 50 errors the threshold is below the 18th to the 33rd: whole groups."""
    c = Counts(np.array([100, 100, 100, 100]), np.array([10, 14, 9, 17]))
    assert binom.ppf([0.025, 0.975], 50, 0.5).tolist() == [18, 32]
    point = frr_point(c, trr=0.5)
    assert point.value == 0.5  # 26 of 50 errors are above the second value
    assert point.jumps == pytest.approx((0, 0.25))  # the 18th error has that value
    ends = exact(200, 400).low, exact(300, 400).high
    assert point.below == pytest.approx((0, 0.5 - ends[0]))
    assert point.above == pytest.approx((0, ends[1] - 0.75))
    assert point.interval == pytest.approx(ends)
    assert point.note == TIED_NOTE
    sure = frr_point(Counts(100 * c.correct, 100 * c.errors), trr=0.5)
    assert (sure.jumps, sure.note) == ((0, 0), "")


@pytest.mark.parametrize("n_errors", [20, 40])
def test_the_exact_lower_rank_counts_at_ties(n_errors):
    """One error of the lower value: that it holds 5% of them cannot be ruled out."""
    c = Counts(np.array([120, 60]), np.array([1, n_errors - 1]))
    point = frr_point(c, trr=0.95)
    assert point.value == pytest.approx(1 / 3)
    assert point.interval[1] == 1
    assert binom.cdf(1, n_errors, 0.05) > 0.025


def test_small_groups_of_ties_are_not_jumps(rng):
    scores, errors = draw(rng, 2000, step=0.01)
    point = frr_point(counts(scores, errors), trr=0.95)
    assert point.jumps == (0, 0)
    assert point.note == ""


def test_frr_by_hand_where_the_threshold_may_lie_beyond_all_errors(rng):
    """Weissman's quantile of an exponential tail, and what it may miss."""
    correct = rng.normal(size=200)
    wrong = np.sort(rng.normal(size=40)) + 1.5
    scores, errors = np.append(correct, wrong), np.arange(240) >= 200
    below = np.array([(correct < w).sum() for w in wrong[:6]])
    z = norm.ppf((below + 0.5) / 201)  # of the five outermost, and the next
    step = max(0.4, (z[5] - z[:5]).mean())
    steps = math.log(5.5 / (40 * 0.05))
    steps += norm.ppf(0.95 + 0.025) * math.sqrt((1 + steps**2) / 5)
    accepted = norm.cdf(z[5] - step * steps) * 201 - 0.5
    most = 1 - math.floor(max(0.0, accepted)) / 200  # to a threshold
    most = max(most, (correct > wrong[0]).mean())  # and at the least doubtful error
    point = frr_point(counts(scores, errors), trr=0.95)
    assert point.above[0] == pytest.approx(max(0.0, most - point.value))


def test_all_errors_rejected_may_cost_all_correct_rows(rng):
    c = counts(*draw(rng, 60))
    assert CURVE_POINTS["frr_at_trr"](c, Points(trr=1.0), 0.95).interval[1] == 1
    assert CURVE_POINTS["trr_at_frr"](c, Points(frr=0.0), 0.95).interval[0] == 0


@given(data=samples(), frr=st.sampled_from([0.0, 0.05, 0.3, 0.5, 1.0]))
def test_trr_is_frr_with_the_kinds_exchanged(data, frr):
    scores, errors = data
    low, high = CURVE_POINTS["trr_at_frr"](
        counts(scores, errors), Points(frr=frr), 0.95
    ).interval
    mirrored = counts(-scores, ~errors)
    interval = CURVE_POINTS["frr_at_trr"](mirrored, Points(trr=1 - frr), 0.95).interval
    assert interval == pytest.approx((1 - high, 1 - low))


def test_risk_by_hand():
    """100 rows, the errors at the ranks given; 90 are accepted."""
    ranks = [30, 70, 84, 88, 90, 94, 97, 99]
    errors = np.isin(np.arange(1, 101), ranks)
    low, high = binom.ppf([0.025, 0.975], 100, 0.9)
    assert (low, high) == (84, 95)
    ends = exact(5, 90)
    expected = (
        5 / 90 - math.hypot(5 / 90 - ends.low, (5 - 3) / 90),
        5 / 90 + math.hypot(ends.high - 5 / 90, (6 - 5) / 90),
    )
    interval = CURVE_POINTS["risk_at_coverage"](
        counts(np.arange(100), errors), Points(), 0.95
    ).interval
    assert interval == pytest.approx(expected)


def test_a_risk_of_no_errors_has_an_upper_end():
    errors = np.arange(100) >= 98
    interval = CURVE_POINTS["risk_at_coverage"](
        counts(np.arange(100), errors), Points(), 0.95
    ).interval
    assert interval == (0, pytest.approx(exact(0, 90).high))


@pytest.mark.parametrize("coverage", [1e-13, 1e-20, 1e-160])
def test_of_the_smallest_coverage_one_row_is_left(coverage):
    for errors in (np.arange(100) >= 90, np.arange(100) < 10):
        c, at = counts(np.arange(100), errors), Points(coverage=coverage)
        value = float(errors[0])
        assert RANK_METRICS["risk_at_coverage"](c, at) == value
        low, high = CURVE_POINTS["risk_at_coverage"](c, at, 0.95).interval
        assert 0 <= low <= value <= high <= 1
        assert high - low > 0.9


def thresholds(errors, risk):
    """The last rows up to which the risk is surely, and maybe, at most `risk`."""
    surely = maybe = 0
    for n in range(1, len(errors) + 1):
        wrong = int(errors[:n].sum())
        surely = n if binom.cdf(wrong, n, risk) <= 0.025 else surely
        maybe = n if binom.sf(wrong - 1, n, risk) >= 0.025 else maybe
    return surely, maybe


def test_coverage_by_hand(rng):
    """Errors become more frequent: a binomial test of every threshold."""
    n, at = 300, Points(risk=0.2)
    errors = rng.random(n) < np.linspace(0, 0.7, n)
    errors[3] = True  # so that the tail of the errors allows less than the tests do
    c = counts(np.arange(n), errors)
    surely, maybe = thresholds(errors, 0.2)
    assert curve_points._rows_bounded_by_tail(c, 0.2, 0.025) < surely < maybe < n
    value = float(RANK_METRICS["coverage_at_risk"](c, at))
    assert surely < value * n < maybe
    least = exact(round(value * n), n).low
    below = math.hypot(value - surely / n, value - least)
    expected = value - below, exact(maybe, n).high
    assert CURVE_POINTS["coverage_at_risk"](c, at, 0.95).interval == pytest.approx(
        expected
    )


def test_distant_errors_allow_what_a_test_of_counts_cannot_show():
    """Among 50 correct rows no test shows a risk below 1%; far errors do."""
    errors = np.arange(80) >= 50
    c = counts(np.arange(80), errors)
    assert thresholds(errors, 0.01)[0] == 0
    low, high = CURVE_POINTS["coverage_at_risk"](c, Points(), 0.95).interval
    assert 0 < low < 50 / 80 < high


def test_the_last_passing_of_many_thresholds_is_found(rng):
    errors = np.sort(rng.random(9000)) ** 2 > rng.random(9000)
    rows, wrong = np.arange(1, 9001), np.cumsum(errors)
    assert len(rows) > 2 * curve_points._TESTED
    for risk in (0.02, 0.1, 0.3):
        for test in (curve_points._surely_below, curve_points._maybe_below):
            passed = np.flatnonzero(test(rows, wrong, risk, 0.025))
            last = curve_points._last_passing(rows, wrong, test, risk, 0.025)
            assert last == passed[-1]


@pytest.mark.parametrize("name", CURVE_POINTS)
@pytest.mark.parametrize("at", [Points(), Points(0.5, 0.5, 0.5, 0.2)])
@given(data=samples())
@pytest.mark.sampled(2)
def test_intervals_hold_the_value_and_have_a_width(name, at, data):
    c = counts(*data)
    value = float(RANK_METRICS[name](c, at))
    low, high = CURVE_POINTS[name](c, at, 0.95).interval
    assert 0 <= low <= value <= high <= 1
    assert low < high
