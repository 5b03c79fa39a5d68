"""Bets against brute force, and that evidence is a supermartingale."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from trustdoctor.watch import Bet
from trustdoctor.watch.bets import ODDS

BATCHES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda n: (sum(n), n[0])),
    min_size=1,
    max_size=6,
)


def brute(batches, nulls):
    """Return the evidence: products of ratios, summed over all starts.

    `batches` are (rows, counted), `nulls` (low, high) of each.
    """
    mp.dps = 60
    sides = [side for side in (0, 1) if (nulls[0][1] < 1, nulls[0][0] > 0)[side]]
    total = mpf(0)
    for side, odds in product(sides, map(mpf, ODDS)):
        for start in range(len(batches)):
            bet = mpf(1) / ((start + 1) * (start + 2))
            for (n, k), (low, high) in zip(batches[start:], nulls[start:], strict=True):
                null, hits = (mpf(high), k) if side == 0 else (1 - mpf(low), n - k)
                q = null * odds / (1 - null + null * odds)
                bet *= (q / null) ** hits * ((1 - q) / (1 - null)) ** (n - hits)
            total += bet
    unstaked = mpf(1) / (len(batches) + 1)
    return float(mp.log(total / (len(sides) * len(ODDS)) + unstaked))


@pytest.mark.parametrize("null", [(0.0, 0.05), (0.9, 1.0), (0.2, 0.4)], ids=str)
@settings(max_examples=8)
@given(batches=BATCHES)
def test_evidence_is_the_sum_of_the_bets_of_all_starts(null, batches):
    bet, peak = Bet(*null), 0.0
    for at in range(len(batches)):
        bet = bet.add(*batches[at])
        expected = brute(batches[: at + 1], [null] * (at + 1))
        assert bet.evidence == pytest.approx(expected, rel=1e-9, abs=1e-9)
        peak = max(peak, expected)
    assert bet.peak == pytest.approx(peak, rel=1e-9, abs=1e-9)
    assert (bet.n, bet.counted) == tuple(map(sum, zip(*batches, strict=True)))


@settings(max_examples=25)
@given(batches=BATCHES, highs=st.lists(st.floats(0.001, 0.999), min_size=6, max_size=6))
def test_every_row_bets_against_its_own_null(batches, highs):
    bet = Bet(0.0, 0.05)
    for rows, high in zip(batches, highs, strict=False):
        bet = bet.add(*rows, null=(0.0, high))
    nulls = [(0.0, high) for high in highs[: len(batches)]]
    assert bet.evidence == pytest.approx(brute(batches, nulls), rel=1e-9, abs=1e-9)


@given(batches=BATCHES)
def test_a_batch_may_come_in_pieces(batches):
    at_once = in_parts = Bet(0.0, 0.1)
    for n, counted in batches:
        at_once = at_once.add(n, counted)
        in_parts = in_parts.add(n - counted, 0).add(counted, counted, start=False)
    assert in_parts.evidence == pytest.approx(at_once.evidence, abs=1e-9)
    assert in_parts.starts == at_once.starts


def expectation(null, rates, nulls=None):
    """Return the mean evidence over all outcomes of rows with these true rates."""
    total = 0.0
    for outcome in product((0, 1), repeat=len(rates)):
        bet = Bet(*null)
        chance = 1.0
        for at, (hit, rate) in enumerate(zip(outcome, rates, strict=True)):
            null_here = None if nulls is None else nulls[at]
            bet = bet.add(1, hit, start=at % 3 != 2, null=null_here)
            chance *= rate if hit else 1 - rate
        total += chance * math.exp(bet.evidence)
    return total


@pytest.mark.parametrize("edge", [0.001, 0.05, 0.5, 0.9])
@pytest.mark.sampled(2)
def test_at_the_edge_the_mean_evidence_is_1(edge):
    assert expectation((0.0, edge), [edge] * 8) == pytest.approx(1, abs=1e-9)
    assert expectation((edge, 1.0), [edge] * 8) == pytest.approx(1, abs=1e-9)
    changing = np.linspace(edge / 2, edge, 8)
    nulls = [(0.0, high) for high in changing]
    assert expectation((0.0, edge), changing, nulls) == pytest.approx(1, abs=1e-9)


@settings(max_examples=25)
@given(
    rates=st.lists(st.floats(0, 1), min_size=6, max_size=6),
    null=st.tuples(st.floats(0, 0.5), st.floats(0.5, 1)),
)
def test_within_the_null_the_mean_evidence_is_at_most_1(rates, null):
    low, high = null
    inside = [low + (high - low) * rate for rate in rates]
    assert expectation(null, inside) <= 1 + 1e-9


def test_at_the_edge_of_the_null_it_alarms_at_most_at_its_level():
    """500 streams of rows at the promised rate itself, looked at 30 times."""
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(500):
        bet = Bet(0.0, 0.05)
        for n in rng.integers(1, 200, 30):
            bet = bet.add(n, rng.binomial(n, 0.05))
        alarms += bet.peak >= math.log(10)
    assert alarms / 500 <= 0.1


def rows_to_an_alarm(bet, rate):
    """Return after how many rows at that rate, in batches of 500, it alarms."""
    for batch in range(1, 1000):
        bet = bet.add(500, round(500 * rate * batch) - round(500 * rate * (batch - 1)))
        if bet.evidence >= math.log(10):
            return 500 * batch
    return None


@pytest.mark.parametrize("age", [0, 10, 100, 1000])
def test_a_change_is_found_at_every_age(age):
    bet = Bet(0.0, 0.05)
    for batch in range(age):
        bet = bet.add(500, 22 + batch % 2)  # 4.5%
    assert bet.peak < math.log(10)
    assert rows_to_an_alarm(bet, 0.10) <= 2000


def test_twice_the_promised_risk_is_found_within_a_thousand_accepted_rows():
    alarms, rng = 0, np.random.default_rng(0)
    for _ in range(200):
        bet = Bet(0.0, 0.05)
        for _ in range(20):
            bet = bet.add(50, rng.binomial(50, 0.10))
        alarms += bet.peak >= -math.log(0.045)
    assert alarms / 200 >= 0.9


def test_an_alarm_stays():
    bet = Bet(0.0, 0.05).add(200, 60)
    assert bet.add(100_000, 0).peak == bet.peak > math.log(10)


def test_what_cannot_be_is_evidence_beyond_doubt():
    """Where no row may count, one that does ends the matter; numbers stay finite."""
    for bet in (Bet(0.0, 0.0).add(10, 1), Bet(1.0, 1.0).add(10, 9)):
        assert 600 < bet.peak < 1e6
    assert Bet(1.0, 1.0).add(10, 10).peak == pytest.approx(0, abs=1e-12)
    assert Bet(0.0, 1.0).add(10, 3).evidence == 0.0
    for low, n, hits in ((5e-324, 10, 0), (0.5, 10**9, 0), (0.5, 10**9, 10**9)):
        bet = Bet(low, 1.0).add(n, hits)
        assert math.isfinite(bet.evidence)
        assert math.isfinite(bet.peak)


@pytest.mark.parametrize(
    "null", [(0.0, 0.05), (0.9, 1.0), (0.2, 0.4), (0.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
)
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.3, 1.0])
@pytest.mark.sampled(3)
def test_rows_added_at_once_are_rows_added_one_by_one(null, rate):
    """Also after an alarm, at another null, and for rows that say nothing."""
    rng, slow, fast = np.random.default_rng(0), Bet(*null), Bet(*null)
    shifted = tuple(end if end in (0, 1) else 0.8 * end for end in null)
    for row_nulls, rows in ((None, 300), (shifted, 150), (None, 1), (None, 0)):
        n = (rng.random(rows) < 0.8).astype(int)
        counted = n * (rng.random(rows) < rate)
        evidences = []
        for n_rows, hit in zip(n.tolist(), counted.tolist(), strict=True):
            slow = slow.add(0, 0).add(n_rows, hit, start=False, null=row_nulls)
            evidences.append(slow.evidence)
        fast, evidence = fast.add_each(n, counted, null=row_nulls)
        assert evidence == pytest.approx(evidences, rel=1e-9, abs=1e-9)
        assert fast == replace(slow, peak=fast.peak)  # counts, starts, unstaked wealth
        assert fast.peak == pytest.approx(slow.peak, rel=1e-9, abs=1e-9)
        sums = (bet.log_sums[bet.sides].ravel() for bet in (fast, slow))
        assert next(sums) == pytest.approx(next(sums), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "null", [(0.0, 0.999), (0.0, 1e-9), (1e-9, 1.0), (0.9999, 1.0)]
)
@pytest.mark.parametrize("hit", [0, 1])
def test_long_runs_of_one_kind_do_not_overflow(null, hit):
    n = np.ones(1000, int)
    bet, evidence = Bet(*null).add_each(n, hit * n)
    slow = Bet(*null)
    for _ in range(1000):
        slow = slow.add(1, hit)
    assert evidence[-1] == pytest.approx(slow.evidence, rel=1e-9)
    assert np.isfinite(evidence).all()
    assert np.isfinite(bet.log_sums[bet.sides]).all()
