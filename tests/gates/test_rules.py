"""The rules against scipy's binomial law, by exhaustion where that is possible."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import trustdoctor as td
from trustdoctor.gates import Rows, rules
from trustdoctor.gates import risk as risk_rules
from trustdoctor.metrics import Sketch

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
    cut = risk_rules.risk_sequence(
        Rows(scores, errors), risk, delta=0.1, min_coverage=0.3
    )
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
        assert (scores <= cut.score).sum() == expected


@given(n=st.integers(20, 300), seed=st.integers(0, 50))
def test_sgr_and_grid_stop_where_their_bounds_hold(n, seed):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.1
    scores = rng.normal(size=n) + 3 * errors
    level = {"sgr": 0.1 / np.ceil(np.log2(n)), "grid": 0.1 / 20}
    for name, cut in (
        ("sgr", risk_rules.risk_sgr(Rows(scores, errors), 0.2, delta=0.1)),
        ("grid", risk_rules.risk_grid(Rows(scores, errors), 0.2, delta=0.1)),
    ):
        if cut.state == "reject-all":
            continue
        accepted = scores <= (cut.score if cut.state == "threshold" else np.inf)
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
    threshold = {"threshold": cut.score, "accept-all": np.inf, "reject-all": -np.inf}
    assert spent(scores <= threshold[cut.state]) == least


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_stand_half_way_where_they_can(dtype):
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


UNPROMISED = [
    {"frr": 0.05},
    {"frr": 0.9},  # 0.1 at confidence 0.9: where logarithms are one off
    {"trr": 0.95},
    {"trr": 0.1},
    {"risk": 0.02},
    {"risk": 0.1},
    {"risk": 0.05, "method": "sgr"},
    {"risk": 0.05, "method": "grid"},
    {"joint": 0.02},
    {"joint": 0.9},
    {"coverage": 0.99},
    {"frr": 0.05, "trr": 0.9},
    {"frr": 0.1, "trr": 0.5},
    {"frr": 0.05, "mode": "expectation"},
    {"trr": 0.95, "mode": "expectation"},
    {"joint": 0.02, "mode": "expectation"},
]


def samples():
    """Rows of every size, good and bad, continuous, tied, and with certain errors."""
    for n in (1, 3, 10, 40, 100, 400, 1500, 3600):
        for accuracy, gap in ((0.6, 0.5), (0.9, 1.5), (0.97, 1.5)):
            for kind in ("continuous", "tied", "certain"):
                rng = np.random.default_rng(n)
                errors = rng.random(n) > accuracy
                scores = rng.normal(size=n) + gap * errors
                if kind == "tied":
                    scores = np.round(scores)
                if kind == "certain":
                    scores[rng.random(n) < 0.05] = -np.inf
                yield scores, errors


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", UNPROMISED, ids=str)
def test_an_outlook_is_given_where_a_promise_fails(target):
    """Of as many rows first; of more rows only where most calibrations succeed."""
    for scores, errors in samples():
        if len(scores) not in (10, 400):
            continue
        certificate = td.calibrate_scores(scores, errors, **target).certificate
        looks = certificate.outlook
        if not certificate.trivial or not errors.any() or errors.all():
            assert looks == ()
        if looks:
            assert looks[0].rows == len(scores)
            assert all(look.rows > len(scores) for look in looks[1:])
            assert all(look.decides >= 0.8 for look in looks[1:])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", UNPROMISED, ids=str)
def test_sketches_have_the_outlook_of_their_rows(target):
    for scores, errors in samples():
        if len(scores) == 400 and "method" not in target:
            sketch = Sketch()
            sketch.update(scores, errors)
            looks = [
                td.calibrate_scores(*rows, **target).certificate.outlook
                for rows in ((scores, errors), (sketch,))
            ]
            if all(looks):
                rows, cells = (look[0].decides for look in looks)
                assert rows == pytest.approx(cells, abs=0.15)


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_more_rows_do_not_help_where_the_search_starts_badly():
    """Risk is lowest in the middle, where no sequence starts."""
    rng = np.random.default_rng(0)
    scores = np.arange(4000.0)
    errors = (rng.random(4000) < 0.3) & ((scores < 1500) | (scores > 3900))
    certificate = td.calibrate_scores(scores, errors, risk=0.15).certificate
    assert "risk does not fall with this score" in certificate.trivial
    assert "too few" not in certificate.trivial
    assert len(certificate.outlook) == 1  # no number of rows is enough
    grid = td.calibrate_scores(scores, errors, risk=0.15, method="grid")
    assert grid.state == "accept-all"


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
def test_a_given_threshold_beside_no_score_stays(at):
    cut = rules.Cut(score=at, side="exact")
    assert placed(cut, [0.0, 2.0, 2.0 + R, 5.0]) == at
