"""A few cells of benchmarks/intervals.py: how often intervals cover, and how wide."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from trustdoctor.metrics import counts

SAMPLES = 300
LEAST = 0.93 - 3 * math.sqrt(0.93 * 0.07 / SAMPLES)


@pytest.fixture(scope="module")
def bench(benchmark_of):
    return benchmark_of("intervals")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("rank", (200, 40, 0.998, 0.0)),
        ("rank", (2000, 40, 0.983, 0.25)),
        ("rank", (2000, 200, 0.92, 0.0)),
        ("tied", (200, 40, 0.75, "two values")),
        ("tied", (2000, 40, 0.95, "four values")),
        ("tied", (2000, 200, 0.75, "one digit")),
        ("calibrated", (2000, 200, 1.0, 0.0)),
        ("calibrated", (2000, 40, 1.5, 0.25)),
    ],
)
def test_intervals_cover_and_are_not_too_wide(kind, cell, bench):
    _, _, tallies = bench.simulate((kind, cell, SAMPLES, 1))
    names = bench.CALIBRATED if kind == "calibrated" else (*bench.RANKED, *bench.PAIRED)
    assert set(tallies) == set(names)
    for name, (covered, width, noted, empty) in tallies.items():
        assert covered >= LEAST, name
        assert width <= 2, name
        assert noted == 0 or cell[3], name  # scores that are rounded may jump
        assert empty == 0, name
    assert list(bench.failures([(kind, cell, tallies)], {kind: SAMPLES})) == []


def test_few_errors_carry_a_note(bench):
    for kind in ("rank", "calibrated"):
        cell = (200, 10, 0.92 if kind == "rank" else 1.0, 0.0)
        for name, tally in bench.simulate((kind, cell, 30, 1))[2].items():
            assert tally[2] >= 0.9, name
            assert tally[3] == 0


def test_a_cell_that_covers_too_seldom_fails(bench):
    """A check that cannot fail would be none."""
    cell = (2000, 200, 0.92, 0.0)
    for tally, fails in (
        ((0.95, 1.0, 0.0, 0.0), False),
        ((0.80, 1.0, 0.0, 0.0), True),
        ((0.95, 2.1, 0.0, 0.0), True),
        ((0.95, 1.0, 0.0, 0.01), True),
        ((0.80, 1.0, 1.0, 0.0), True),  # a note excuses few errors alone
    ):
        failed = list(
            bench.failures([("rank", cell, {"auroc": tally})], {"rank": SAMPLES})
        )
        assert bool(failed) == fails


def exact_ranks(rate, shifted):
    """Metrics of normal scores, by integrals over the threshold."""
    right, wrong = norm(), norm(shifted)

    def accepted(t):
        return (1 - rate) * right.cdf(t) + rate * wrong.cdf(t)

    def risk(t):
        return rate * wrong.cdf(t) / accepted(t)

    def density(t):
        return (1 - rate) * right.pdf(t) + rate * wrong.pdf(t)

    def rejected(t):
        return rate * wrong.sf(t) / (1 - accepted(t))

    def integral(f):
        return quad(f, -8, shifted + 5, limit=300, epsabs=1e-10)[0]

    def threshold(f):
        return brentq(f, -8, shifted + 8)

    aurc = integral(lambda t: risk(t) * density(t))
    best = rate + (1 - rate) * math.log(1 - rate)
    return {
        "auroc": norm.cdf(shifted / math.sqrt(2)),
        "frr_at_trr": right.sf(wrong.ppf(0.05)),
        "trr_at_frr": wrong.sf(right.ppf(0.95)),
        "aurc": aurc,
        "eaurc": aurc - best,
        "augrc": integral(lambda t: rate * wrong.cdf(t) * density(t)),
        "aupr": integral(lambda t: rejected(t) * wrong.pdf(t)),
        "aupr_correct": integral(lambda t: (1 - risk(t)) * right.pdf(t)),
        "risk_at_coverage": risk(threshold(lambda t: accepted(t) - 0.9)),
        "coverage_at_risk": accepted(threshold(lambda t: risk(t) - 0.01)),
    }


@pytest.mark.parametrize("cell", [(200, 40, 0.998, 0.0), (2000, 200, 0.92, 0.0)])
def test_true_metrics_of_rank_are_integrals(cell, bench):
    n, errors, auroc, _ = cell
    true = exact_ranks(errors / n, math.sqrt(2) * norm.ppf(auroc))
    truth = bench.rank_truth(cell)
    other = exact_ranks(errors / n, math.sqrt(2) * norm.ppf(auroc) - bench.WORSE)
    true["auroc difference"] = true["auroc"] - other["auroc"]
    true["frr_at_trr difference"] = true["frr_at_trr"] - other["frr_at_trr"]
    assert set(truth) == set(true)
    for name, value in true.items():
        assert truth[name] == pytest.approx(value, abs=2e-4), name


def test_true_metrics_of_rounded_scores_are_those_of_a_million_rows(bench):
    cell = (1_000_000, 20_000, 0.983, 0.25)
    scores, wrong = bench.draw_ranks(np.random.default_rng(2), *cell)
    assert len(np.unique(scores[0])) < 70
    ours, other = (counts(s, wrong) for s in scores)
    truth = bench.rank_truth(cell)
    for name in bench.RANKED:
        if name != "coverage_at_risk":  # it jumps from one score to the next
            assert bench.metric(name, ours) == pytest.approx(truth[name], abs=0.005)
    for name in ("auroc", "frr_at_trr"):
        gap = bench.metric(name, ours) - bench.metric(name, other)
        assert gap == pytest.approx(truth[f"{name} difference"], abs=0.002)


def test_true_metrics_of_tied_scores_are_those_of_a_million_rows(bench):
    rng = np.random.default_rng(4)
    for ties in bench.TIES:
        n, errors, auroc = 1_000_000, 100_000, 0.9
        wrong = np.arange(n) < errors
        first, other = rng.standard_normal((2, n))
        other = bench.ALIKE * first + math.sqrt(1 - bench.ALIKE**2) * other
        moved = bench.shift(auroc)
        doubts = first + moved * wrong, other + (moved - bench.WORSE) * wrong
        ours, other = (
            counts(np.searchsorted(bench.TIES[ties], doubt).astype(float), wrong)
            for doubt in doubts
        )
        truth = bench.tied_truth((n, errors, auroc, ties))
        for name in ("auroc", "aurc", "aupr", "risk_at_coverage"):
            assert bench.metric(name, ours) == pytest.approx(truth[name], abs=0.004)
        gap = bench.metric("auroc", ours) - bench.metric("auroc", other)
        assert gap == pytest.approx(truth["auroc difference"], abs=0.002)


def test_pairs_of_tied_scores_agree_as_their_doubts_do(bench):
    """Each score alone has the shares of a normal law between its cuts."""
    cuts = bench.TIES["four values"]
    for axis, mean in ((1, 1.0), (0, 0.7)):
        edges = norm.cdf(np.concatenate([[-np.inf], cuts, [np.inf]]) - mean)
        joint = bench.tied_masses(1.0, 0.7, "four values")
        assert joint.sum(axis) == pytest.approx(np.diff(edges), abs=2e-4)


def exact_calibration(mean, spread, factor):
    """By integrals over the true log-odds, a normal law above 0."""
    law = norm(mean, spread)

    def expected(f, low=0.0, high=math.inf):
        high = min(high, mean + 12 * spread)
        return quad(lambda x: f(x) * law.pdf(x), low, high, limit=200)[0] / law.sf(0)

    def sure(x):
        return expit(factor * x)

    edges = [
        0.0, *(math.log(k / (15 - k)) / factor for k in range(8, 15)), math.inf
    ]  # fmt: skip
    gaps = [expected(lambda x: expit(x) - sure(x), *ends) for ends in pairwise(edges)]
    return {
        "confidence": expected(sure),
        "ece": sum(map(abs, gaps)),
        "brier": 2 * expected(
            lambda x: expit(x) * sure(-x) ** 2 + expit(-x) * sure(x) ** 2
        ),
        "nll": expected(
            lambda x: -expit(x) * math.log(sure(x)) - expit(-x) * math.log(sure(-x))
        ),
    }  # fmt: skip


@pytest.mark.parametrize("factor", [1.0, 1.5, 0.7])
def test_true_calibration_is_an_integral(factor, bench):
    mean = bench.mean_for(0.1, 0.0)
    law = norm(mean, bench.SPREAD)
    wrong = quad(lambda x: expit(-x) * law.pdf(x), 0, mean + 24)[0] / law.sf(0)
    assert wrong == pytest.approx(0.1, abs=1e-4)
    true = exact_calibration(mean, bench.SPREAD, factor)
    truth = bench.calibrated_truth((2000, 200, factor, 0.0))
    for name, value in true.items():
        assert truth[name] == pytest.approx(value, abs=2e-4), name


def test_true_calibration_is_that_of_many_rows(bench):
    cell = (300_000, 6_000, 1.5, 0.25)
    estimates = bench.calibrated_estimates(np.random.default_rng(3), cell)
    for name, value in bench.calibrated_truth(cell).items():
        assert estimates[name].value == pytest.approx(value, abs=0.003), name
