"""The exact boundary for risk: against fractions, brute force and simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from trustdoctor.gates.boundary import (
    FEWEST_FOR_SEQUENCE,
    SEQUENCE_SHARE,
    SEQUENCE_START,
    crossing_probability,
    find_boundary,
    rising_steps,
)
from trustdoctor.gates.risk import average_risk_cut, risk_cut
from trustdoctor.gates.rules import threshold_of
from trustdoctor.gates.sample import Rows


def exact_crossing(steps, risk, n):
    """Walk by walk of all numbers of errors, in fractions, one row at a time."""
    limits = {k: sum(step <= k for step in steps) - 1 for k in range(1, n + 1)}
    alive, crossed = {0: Fraction(1)}, Fraction(0)
    for k in range(1, n + 1):
        after = {}
        for errors, chance in alive.items():
            for more, weight in ((0, 1 - risk), (1, risk)):
                total = after.get(errors + more, Fraction(0)) + chance * weight
                after[errors + more] = total
        crossed += sum(p for errors, p in after.items() if errors <= limits[k])
        alive = {e: p for e, p in after.items() if e > limits[k]}
    return crossed


@pytest.mark.parametrize("risk", [Fraction(1, 20), Fraction(1, 5), Fraction(1, 2)])
@pytest.mark.parametrize("n", [5, 23, 60])
@pytest.mark.parametrize("level", [1e-9, 0.01, 0.1])
def test_the_probability_is_that_of_fractions(n, risk, level):
    steps = rising_steps(n, float(risk), level)
    expected = exact_crossing(steps.tolist(), risk, n)
    assert crossing_probability(steps, float(risk)) == pytest.approx(
        float(expected), rel=1e-10
    )


def test_all_walks_of_a_few_rows_are_counted_by_hand():
    steps, n = np.array([3, 5, 9]), 10
    met = 0.0
    for walk in itertools.product((0, 1), repeat=n):
        errors = np.cumsum(walk)
        limits = [sum(step <= k for step in steps) - 1 for k in range(1, n + 1)]
        if (errors <= limits).any():
            met += 0.3 ** errors[-1] * 0.7 ** (n - errors[-1])
    assert crossing_probability(steps, 0.3) == pytest.approx(met)


@pytest.mark.parametrize(("n", "risk"), [(40, 0.1), (300, 0.05), (800, 0.02)])
def test_steps_are_where_scipys_p_values_pass(n, risk):
    for level in (0.003, 0.08):
        expected = []
        for errors in range(n):
            passing = [
                k
                for k in range(errors + 1, n + 1)
                if binom.cdf(errors, k, risk) <= level
            ]
            if not passing:
                break
            expected.append(passing[0])
        assert rising_steps(n, risk, level).tolist() == expected


@pytest.mark.parametrize(
    ("n", "risk"), [(60, 0.1), (150, 0.02), (300, 0.05), (500, 0.02), (1000, 0.1)]
)
def test_the_level_is_used_up_and_not_exceeded(n, risk):
    """The union with the sequence, by simulation; alone, by the exact probability."""
    boundary = find_boundary(n, risk, 0.1)
    walks = (np.random.default_rng(0).random((20_000, n)) < risk).cumsum(1)
    k = np.arange(1, n + 1)
    meets = boundary.passes(k, walks).any(1)
    if n < FEWEST_FOR_SEQUENCE:
        assert boundary.sequence_level == 0
        exact = crossing_probability(boundary.steps, risk)
        assert exact <= 0.1
        return
    assert boundary.sequence_level == pytest.approx(SEQUENCE_SHARE * 0.1)
    limits = rising_steps(n, risk, boundary.sequence_level)
    allowed = np.searchsorted(limits, k, side="right") - 1
    start = math.ceil(SEQUENCE_START * n)
    worst = max(
        (meets | (walks[:, first - 1] <= allowed[first - 1])).mean()
        for first in range(start, n + 1)
    )
    noise = 4 * math.sqrt(0.1 * 0.9 / 20_000)
    assert 0.09 - noise < worst < 0.1 + noise


def test_a_larger_level_allows_more_and_the_first_step_is_the_least_possible():
    for n, risk in ((100, 0.1), (400, 0.05)):
        strict, loose = (find_boundary(n, risk, d) for d in (0.02, 0.2))
        assert len(loose.steps) >= len(strict.steps)
        assert (loose.steps[: len(strict.steps)] <= strict.steps).all()
        for boundary in (strict, loose):
            least = math.ceil(math.log(boundary.level) / math.log1p(-risk))
            assert boundary.steps[0] == least


WORLDS = {
    "rising": lambda u: 0.01 + 0.3 * u**2,
    "oscillating": lambda u: np.where(np.floor(12 * u) % 2 == 0, 0.02, 0.2),
    "falling": lambda u: 0.25 - 0.2 * u,
    "at the edge": lambda u: np.full_like(u, 0.101),
    "bad head": lambda u: np.where(u < 0.15, 0.3, 0.02),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n", [80, 300])
@pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])
def test_the_promise_holds_in_any_population(world, n, tied):
    """True risks are known at every threshold, whatever their shape."""
    rng, risk, broken = np.random.default_rng(7), 0.1, 0
    grid = (np.arange(20_000) + 0.5) / 20_000
    true_risk = np.cumsum(WORLDS[world](grid)) / np.arange(1, 20_001)
    for _ in range(400):
        u = rng.random(n)
        errors = rng.random(n) < WORLDS[world](u)
        scores = np.floor(20 * u) / 20 if tied else u
        sample = Rows(scores, errors)
        cut = risk_cut(sample, risk, mode="confidence", delta=0.1)
        threshold = threshold_of(cut, sample)
        accepted = np.floor(20 * grid) / 20 <= threshold if tied else grid <= threshold
        if accepted.any():
            broken += true_risk[int(accepted.sum()) - 1] > risk
    assert broken <= 400 * 0.1 + 3 * math.sqrt(400 * 0.1 * 0.9)


def test_beyond_the_limit_two_sequences_take_over():
    rng = np.random.default_rng(1)
    u = rng.random(2001)
    errors = rng.random(2001) < 0.2 * u
    within, beyond = Rows(u[:2000], errors[:2000]), Rows(u, errors)
    cuts = [risk_cut(s, 0.05, mode="confidence", delta=0.1) for s in (within, beyond)]
    levels = [{round(passed.level, 9) for passed in cut.passed} for cut in cuts]
    assert levels[1] <= {0.09, 0.01}
    assert not levels[0] & {0.09, 0.01}
    shares = [
        s.confusion(threshold_of(c, s)).coverage
        for c, s in zip(cuts, (within, beyond), strict=True)
    ]
    assert abs(shares[0] - shares[1]) < 0.05


def test_on_average_it_is_the_last_threshold_of_the_definition():
    rng = np.random.default_rng(2)
    for _ in range(50):
        u = np.round(rng.random(120), 2)
        errors = rng.random(120) < 0.3 * u
        sample = Rows(u, errors)
        passing = [
            t
            for t in np.unique(u)
            if 20 * (errors[u <= t].sum() + 1) <= (u <= t).sum() + 1
        ]
        cut = average_risk_cut(sample, 0.05)
        if not passing:
            assert cut.state == "reject-all"
            continue
        accepted = u <= threshold_of(cut, sample)
        assert np.array_equal(accepted, u <= passing[-1])


def test_on_average_the_proved_part_holds():
    """P(wrong and accepted) <= r P(accepted, had the new row's label been known)."""
    rng, risk, n = np.random.default_rng(3), 0.1, 60
    wrong_accepted = accepted_knowing = 0
    for _ in range(4000):
        u = rng.random(n + 1)
        errors = rng.random(n + 1) < 0.3 * u
        sample = Rows(u[:n], errors[:n])
        threshold = threshold_of(average_risk_cut(sample, risk), sample)
        wrong_accepted += errors[n] and u[n] <= threshold
        order = np.argsort(u)
        passing = np.flatnonzero(np.cumsum(errors[order]) <= risk * np.arange(1, n + 2))
        last = u[order][passing[-1]] if len(passing) else -1.0
        accepted_knowing += u[n] <= last
    noise = 4 * math.sqrt(wrong_accepted)
    assert wrong_accepted <= risk * accepted_knowing + noise
    assert wrong_accepted > 0.5 * risk * accepted_knowing  # it is not idle
