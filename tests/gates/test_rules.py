"""The rules against scipy's binomial law, by exhaustion where that is possible."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from trustdoctor.gates import Rows, rules

rates = st.sampled_from([0.01, 0.05, 0.1, 0.29, 0.5, 0.9])
deltas = st.sampled_from([0.01, 0.1, 0.3])
sizes = st.integers(1, 400)


def rank(cut, scores):
    """Which order statistic a cut stands at."""
    return int(np.searchsorted(np.sort(scores), cut.score)) + 1


@given(n=sizes, frr=rates, delta=deltas)
def test_frr_with_confidence_is_the_least_rank_that_scipy_allows(n, frr, delta):
    scores = np.random.default_rng(n).permutation(np.arange(float(n)))
    cut = rules.frr_cut(
        Rows(scores).of_kind("all"), frr, mode="confidence", delta=delta
    )
    allowed = [k for k in range(1, n + 1) if binom.sf(k - 1, n, 1 - frr) <= delta]
    if not allowed:
        assert cut.state == "accept-all"
        least = int(
            re.search(r"\(at least ([\d,]+) are", cut.trivial)[1].replace(",", "")
        )
        assert binom.pmf(least, least, 1 - frr) <= delta + 1e-12
        assert binom.pmf(least - 1, least - 1, 1 - frr) > delta - 1e-12
    else:
        assert (cut.side, rank(cut, scores)) == ("above", allowed[0])


@given(n=sizes, trr=rates, delta=deltas)
def test_trr_with_confidence_is_the_largest_rank_that_scipy_allows(n, trr, delta):
    scores = np.random.default_rng(n).permutation(np.arange(float(n)))
    cut = rules.trr_cut(
        Rows(scores).of_kind("all"), trr, mode="confidence", delta=delta
    )
    allowed = [k for k in range(1, n + 1) if binom.cdf(k - 1, n, 1 - trr) <= delta]
    if not allowed:
        assert cut.state == "reject-all"
    else:
        assert (cut.side, rank(cut, scores)) == ("below", allowed[-1])


@given(n=sizes, joint=rates, delta=deltas)
def test_joint_with_confidence_allows_as_many_errors_as_scipy_does(n, joint, delta):
    scores = np.arange(float(n))
    errors = np.arange(n) % 2 == 0
    cut = rules.joint_cut(Rows(scores, errors), joint, mode="confidence", delta=delta)
    allowed = [k for k in range(n + 1) if binom.cdf(k, n, joint) <= delta]
    if not allowed:
        assert cut.state == "reject-all"
    elif allowed[-1] >= errors.sum():
        assert cut.state == "accept-all"
    else:
        assert (errors & (scores < cut.score)).sum() == allowed[-1]


@given(n=sizes, rate=rates)
def test_expectation_ranks_are_exact(n, rate):
    scores = np.arange(float(n))
    exact = Fraction(str(rate))
    cut = rules.frr_cut(
        Rows(scores).of_kind("all"), rate, mode="expectation", delta=0.1
    )
    k = -((-(n + 1) * (1 - exact)) // 1)
    assert (cut.state == "accept-all") == (k > n)
    assert cut.state == "accept-all" or rank(cut, scores) == k
    cut = rules.trr_cut(
        Rows(scores).of_kind("all"), rate, mode="expectation", delta=0.1
    )
    k = ((n + 1) * (1 - exact)) // 1
    assert (cut.state == "reject-all") == (k == 0)
    assert cut.state == "reject-all" or rank(cut, scores) == k


def test_rates_are_read_as_decimals():
    """floor(100 (1 - 0.9)) is 9 in floats and 10 in decimals."""
    scores = np.arange(99.0)
    assert (
        rank(
            rules.trr_cut(
                Rows(scores).of_kind("all"), 0.9, mode="expectation", delta=0.1
            ),
            scores,
        )
        == 10
    )


@given(seed=st.integers(0, 50), cost=st.sampled_from([1.0, 5.0, 20.0, 200.0]))
def test_least_cost_is_the_least_of_all_thresholds(seed, cost):
    rng = np.random.default_rng(seed)
    errors = rng.random(60) < 0.2
    scores = np.round(rng.normal(size=60) + 2 * errors, 1)
    cut = rules.least_cost(Rows(scores, errors), cost)

    def spent(accepted):
        return cost * (accepted & errors).sum() + (~accepted).sum()

    least = min(spent(scores <= t) for t in [-np.inf, *scores])
    threshold = {"threshold": cut.score, "accept-all": np.inf, "reject-all": -np.inf}
    assert spent(scores <= threshold[cut.state]) == least


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_lie_half_way_if_possible(dtype):
    scores = np.array([1, 2, 4, 8], dtype)
    assert rules.threshold_of(rules.Cut(score=2.0), Rows(scores)) == 3.0
    assert rules.threshold_of(rules.Cut(score=8.0), Rows(scores)) == 8.0
    assert rules.threshold_of(rules.Cut(score=4.0, side="below"), Rows(scores)) == 3.0
    lowest = rules.threshold_of(rules.Cut(score=1.0, side="below"), Rows(scores))
    assert lowest == np.nextafter(dtype(1), dtype(-np.inf))
    near = np.array([1, np.nextafter(dtype(1), dtype(2))], dtype)
    for side, at in (("above", near[0]), ("below", near[1])):
        t = rules.threshold_of(rules.Cut(score=float(at), side=side), Rows(near))
        assert near[0] <= t < near[1]
    certain = np.array([-np.inf, 0.5], dtype)
    assert rules.threshold_of(rules.Cut(score=-np.inf), Rows(certain)) == -np.inf


def test_binomial_tails_meet_scipy():
    for n in (1, 7, 100, 10_000):
        for p in (0.01, 0.3, 0.99):
            for k in (-1, 0, n // 3, n - 1, n):
                assert rules.binomial_cdf(k, n, p) == pytest.approx(
                    binom.cdf(k, n, p), rel=1e-9
                )
                assert rules.binomial_upper_tail(k, n, p) == pytest.approx(
                    binom.sf(k - 1, n, p), rel=1e-9
                )


# --- room for rounding --------------------------------------------------------------


def placed(cut, values):
    return rules.threshold_of(cut, Rows(np.array(values), rounding=R))


R = 2.0**-10


def test_a_threshold_leaves_room_for_rounding():
    tied = [0.0, R, 2.0, 5.0, 5.0 + R]
    rows = Rows(np.array(tied), rounding=R)
    assert rules.cut_accepting(rows, 1).score == R  # the group goes in whole
    assert placed(rules.Cut(score=R), tied) == (R + 2.0) / 2
    assert placed(rules.Cut(score=5.0 + R), tied) > 5.0 + R + R
    assert placed(rules.Cut(score=0.0, side="below"), tied) == -R
    for ends in ([1.0, np.inf], [-np.inf, 1.0]):
        assert np.isfinite(placed(rules.Cut(score=1.0), ends))
        assert np.isfinite(placed(rules.Cut(score=1.0, side="below"), ends))


@pytest.mark.parametrize("at", [2.0, 2.0 - R, 2.0 + R, 2.0 + R / 3])
def test_a_given_threshold_on_a_score_accepts_it_with_room(at):
    cut = rules.Cut(score=at, side="exact")
    assert placed(cut, [0.0, 2.0, 2.0 + R, 5.0]) == (2.0 + R + 5.0) / 2
    assert placed(cut, [0.0, 2.0]) > 2.0 + R
    assert rules.threshold_of(cut, Rows(np.array([0.0, 2.0, 5.0]))) == at  # no rounding


@pytest.mark.parametrize("at", [1.0, -np.inf, np.inf, 1.7e308, -1.7e308, 6.0])
def test_a_given_threshold_that_is_not_a_score_stays(at):
    cut = rules.Cut(score=at, side="exact")
    assert placed(cut, [0.0, 2.0, 2.0 + R, 5.0]) == at
