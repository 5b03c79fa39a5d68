"""Intervals against the set of means that brute force leaves, and their coverage."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trustdoctor.watch.windows import Window, lower_bound

ODDS = np.geomspace(1.005, 200, 80)


def not_excluded(n, counted, level, means):
    """Return which means the mixture of bets upwards does not exclude."""
    logs = [
        counted * math.log(w) - n * np.log1p(means * (w - 1)) for w in ODDS.tolist()
    ]
    mixture = np.logaddexp.reduce(logs, axis=0) - math.log(len(ODDS))
    return mixture < -math.log(level)


@given(
    n=st.integers(1, 5000),
    share=st.floats(0, 1),
    number=st.integers(1, 50),
)
@example(1, 1.0, 1)
@example(5000, 0.0, 1)
@example(10**6, 0.5, 1)
def test_the_interval_is_the_brute_force_set_and_hardly_more(n, share, number):
    counted = round(n * share)
    window = Window(number, n, counted, n, counted)
    low, high = window.interval()
    assert 0 <= low <= counted / n <= high <= 1
    means = np.linspace(0, 1, 4001)
    level = 0.05 / (number * (number + 1)) / 2
    inside = not_excluded(n, counted, level, means) & not_excluded(
        n, n - counted, level, 1 - means
    )
    if inside.any():
        assert low <= means[inside][0]
        assert high >= means[inside][-1]
        assert low >= means[inside][0] - 1 / 4000 - 1e-4
        assert high <= means[inside][-1] + 1 / 4000 + 1e-4


def test_lost_rows_widen_it():
    """Of 100 rows 90 are known, 9 of them counted; 10 may be either."""
    observed = Window(1, 90, 9, 90, 9).interval()
    lost = Window(1, 100, 9, 100, 19).interval()
    assert lost[0] < observed[0] < observed[1] < lost[1]
    assert lost[0] == lower_bound(100, 9, 0.0125)
    assert lost[1] == 1 - lower_bound(100, 81, 0.0125)


def test_without_rows_it_says_nothing():
    assert Window().interval() == (0.0, 1.0)
    assert Window(3, 10, 0, 10, 0).interval()[0] == 0.0
    assert Window(3, 10, 10, 10, 10).interval()[1] == 1.0


def test_the_levels_of_all_windows_add_up():
    first, total = Window(), 0.0
    for _ in range(10_000):
        total += first.level
        first = first.next_window()
    assert 0.0499 < total < 0.05
    assert first.number == 10_001


@pytest.mark.parametrize(
    "drift",
    [
        lambda at: np.full_like(at, 0.05),
        lambda at: 0.02 + 0.2 * at,
        lambda at: np.where(at < 0.5, 0.01, 0.3),
        lambda at: 0.1 + 0.09 * np.sin(40 * at),
    ],
    ids=["constant", "slow", "jump", "waves"],
)
@pytest.mark.sampled(2)
def test_windows_cover_their_means_at_all_times_under_drift(drift):
    """50 streams of 2,000 rows, looked at after every 50, windows of 500."""
    rates = drift(np.linspace(0, 1, 2000)).reshape(40, 50)
    missed, rng = 0, np.random.default_rng(0)
    for _ in range(50):
        window, mean, fine = Window(), 0.0, True
        for batch_rates in rates:
            if window.n_low >= 500:
                window, mean = window.next_window(), 0.0
            hits = int((rng.random(50) < batch_rates).sum())
            window = window.add(50, hits, 50, hits)
            mean += batch_rates.sum()
            low, high = window.interval()
            fine &= low <= mean / window.n_low <= high
        missed += not fine
    assert missed <= 2


@pytest.mark.parametrize("size", [1, 3, 40, 1000])
def test_rows_added_at_once_are_rows_added_one_by_one(size):
    rng = np.random.default_rng(size)
    slow = fast = Window(number=2, n_low=1, n_high=2)
    for n_rows in (1, 0, 50, 200):
        n, more = rng.integers(0, 2, (2, n_rows))
        counted, most = (
            n * rng.integers(0, 2, n_rows),
            more * rng.integers(0, 2, n_rows),
        )
        for row in zip(n, counted, more, most, strict=True):
            if slow.size >= size:
                slow = slow.next_window()
            slow = slow.add(*map(int, row))
        fast = fast.add_each(np.column_stack((counted, n, most, more)), size)
        assert fast == slow
