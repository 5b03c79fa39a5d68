"""The rules against scipy's binomial law, by exhaustion where that is possible."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from trustdoctor.gates import Rows, rules
from trustdoctor.gates.sample import RowScores

rates = st.sampled_from([0.01, 0.05, 0.1, 0.29, 0.5, 0.9])
deltas = st.sampled_from([0.01, 0.1, 0.3])
sizes = st.integers(1, 400)


def rank(cut, scores):
    """Which order statistic a cut stands at."""
    return int(np.searchsorted(np.sort(scores), cut.at)) + 1


@given(n=sizes, frr=rates, delta=deltas)
def test_frr_with_confidence_is_the_least_rank_that_scipy_allows(n, frr, delta):
    scores = np.random.default_rng(n).permutation(np.arange(float(n)))
    cut = rules.frr_cut(RowScores(scores), frr, mode="confidence", delta=delta)
    allowed = [k for k in range(1, n + 1) if binom.sf(k - 1, n, 1 - frr) <= delta]
    if not allowed:
        assert cut.state == "accept-all"
        assert binom.pmf(cut.needed, cut.needed, 1 - frr) <= delta + 1e-12
        assert binom.pmf(cut.needed - 1, cut.needed - 1, 1 - frr) > delta - 1e-12
    else:
        assert (cut.side, rank(cut, scores)) == ("above", allowed[0])


@given(n=sizes, trr=rates, delta=deltas)
def test_trr_with_confidence_is_the_largest_rank_that_scipy_allows(n, trr, delta):
    scores = np.random.default_rng(n).permutation(np.arange(float(n)))
    cut = rules.trr_cut(RowScores(scores), trr, mode="confidence", delta=delta)
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
        assert (errors & (scores < cut.at)).sum() == allowed[-1]


@given(n=sizes, rate=rates)
def test_expectation_ranks_are_exact(n, rate):
    scores = np.arange(float(n))
    exact = Fraction(str(rate))
    cut = rules.frr_cut(RowScores(scores), rate, mode="expectation", delta=0.1)
    k = -((-(n + 1) * (1 - exact)) // 1)
    assert (cut.state == "accept-all") == (k > n)
    assert cut.state == "accept-all" or rank(cut, scores) == k
    cut = rules.trr_cut(RowScores(scores), rate, mode="expectation", delta=0.1)
    k = ((n + 1) * (1 - exact)) // 1
    assert (cut.state == "reject-all") == (k == 0)
    assert cut.state == "reject-all" or rank(cut, scores) == k


def test_rates_are_read_as_decimals():
    """floor(100 (1 - 0.9)) is 9 in floats and 10 in decimals."""
    scores = np.arange(99.0)
    assert (
        rank(
            rules.trr_cut(RowScores(scores), 0.9, mode="expectation", delta=0.1), scores
        )
        == 10
    )


def walk_by_hand(scores, errors, risk, start, level):
    """Fixed-sequence testing, one distinct threshold after another."""
    best = 0
    for t in np.unique(scores):
        accepted = scores <= t
        j = int(accepted.sum())
        if j < start:
            continue
        if binom.cdf(int(errors[accepted].sum()), j, risk) > level:
            break
        best = j
    return best


@given(
    n=st.integers(20, 300),
    seed=st.integers(0, 50),
    risk=st.sampled_from([0.05, 0.2, 0.4]),
    tied=st.booleans(),
)
def test_the_risk_sequences_are_those_walked_by_hand(n, seed, risk, tied):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.2
    scores = rng.normal(size=n) + 2 * errors
    scores = np.round(scores) if tied else scores
    cut = rules.risk_sequence(Rows(scores, errors), risk, delta=0.1, min_coverage=0.3)
    expected = 0
    for share, level in ((0.3, 0.09), (0.05, 0.01)):
        start = max(
            int(np.ceil(np.log(level) / np.log(1 - risk))),
            int(np.ceil(Fraction(str(share)) * n)),
        )
        expected = max(expected, walk_by_hand(scores, errors, risk, start, level))
    if expected == 0:
        assert cut.state == "reject-all"
    elif expected == n:
        assert cut.state == "accept-all"
    else:
        assert (scores <= cut.at).sum() == expected


@given(n=st.integers(20, 300), seed=st.integers(0, 50))
def test_sgr_and_grid_stop_where_their_bounds_hold(n, seed):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.1
    scores = rng.normal(size=n) + 3 * errors
    level = {"sgr": 0.1 / np.ceil(np.log2(n)), "grid": 0.1 / 20}
    for name, cut in (
        ("sgr", rules.risk_sgr(Rows(scores, errors), 0.2, delta=0.1)),
        ("grid", rules.risk_grid(Rows(scores, errors), 0.2, delta=0.1)),
    ):
        if cut.state == "reject-all":
            continue
        accepted = scores <= (cut.at if cut.state == "threshold" else np.inf)
        p = binom.cdf(errors[accepted].sum(), accepted.sum(), 0.2)
        assert p <= level[name] * (1 + 1e-9)


@given(seed=st.integers(0, 50), cost=st.sampled_from([1.0, 5.0, 20.0, 200.0]))
def test_least_cost_is_the_least_of_all_thresholds(seed, cost):
    rng = np.random.default_rng(seed)
    errors = rng.random(60) < 0.2
    scores = np.round(rng.normal(size=60) + 2 * errors, 1)
    cut = rules.least_cost(Rows(scores, errors), cost)

    def spent(accepted):
        return cost * (accepted & errors).sum() + (~accepted).sum()

    least = min(spent(scores <= t) for t in [-np.inf, *scores])
    threshold = {"threshold": cut.at, "accept-all": np.inf, "reject-all": -np.inf}
    assert spent(scores <= threshold[cut.state]) == least


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_stand_half_way_where_they_can(dtype):
    scores = np.array([1, 2, 4, 8], dtype)
    assert rules.place(rules.Cut(at=2.0), Rows(scores)) == 3.0
    assert rules.place(rules.Cut(at=8.0), Rows(scores)) == 8.0
    assert rules.place(rules.Cut(at=4.0, side="below"), Rows(scores)) == 3.0
    lowest = rules.place(rules.Cut(at=1.0, side="below"), Rows(scores))
    assert lowest == np.nextafter(dtype(1), dtype(-np.inf))
    near = np.array([1, np.nextafter(dtype(1), dtype(2))], dtype)
    for side, at in (("above", near[0]), ("below", near[1])):
        t = rules.place(rules.Cut(at=float(at), side=side), Rows(near))
        assert near[0] <= t < near[1]
    certain = np.array([-np.inf, 0.5], dtype)
    assert rules.place(rules.Cut(at=-np.inf), Rows(certain)) == -np.inf


def test_binomial_tails_meet_scipy():
    for n in (1, 7, 100, 10_000):
        for p in (0.01, 0.3, 0.99):
            for k in (-1, 0, n // 3, n - 1, n):
                assert rules._at_most(k, n, p) == pytest.approx(
                    binom.cdf(k, n, p), rel=1e-9
                )
                assert rules._at_least(k, n, p) == pytest.approx(
                    binom.sf(k - 1, n, p), rel=1e-9
                )
