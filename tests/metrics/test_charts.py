import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor.metrics.charts import (
    STEP,
    histogram,
    reliability_bins,
    short_number,
    thin_curve,
    threshold_grid,
)

SCORES = st.lists(
    st.tuples(
        st.one_of(st.floats(-50, 50, width=32), st.sampled_from([-math.inf, 0.0, 1.0])),
        st.booleans(),
    ),
    min_size=2,
    max_size=80,
)


@given(SCORES)
def test_every_position_has_the_counts_of_its_threshold(rows):
    scores = np.array([row[0] for row in rows], np.float32)
    errors = np.array([row[1] for row in rows])
    grid = threshold_grid(scores, errors)
    for t, right, wrong in zip(grid.thresholds, grid.correct, grid.errors, strict=True):
        accepted = td.Gate(t).accept(scores)
        assert (accepted & ~errors).sum() == right
        assert (accepted & errors).sum() == wrong
    assert (grid.correct[-1], grid.errors[-1]) == ((~errors).sum(), errors.sum())
    # No threshold rejects a fully certain row; the first rejects all others.
    certain = scores == -np.inf
    assert grid.correct[0] == (certain & ~errors).sum()
    assert grid.errors[0] == (certain & errors).sum()


def test_rates_between_two_positions_are_bounded(rng):
    errors = rng.random(200_000) < 0.1
    scores = rng.normal(size=len(errors)) + 2 * errors
    grid = threshold_grid(scores, errors)
    assert len(grid.thresholds) <= 2 / STEP + 3 + 301
    assert grid.distinct == len(np.unique(scores))
    one_error_step = 1 / errors.sum()  # a group of tied rows is a single row here
    for rate in (grid.frr, grid.trr):
        assert np.abs(np.diff(rate)).max() <= STEP + one_error_step + 1e-12
    assert grid.coverage[-1] == 1
    assert grid.risk[-1] == pytest.approx(errors.mean())


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.1, 0.2), (-3.0, math.nextafter(-3.0, 0)), (5.0, math.inf), (-math.inf, -2.0)],
)
def test_between_is_between(low, high):
    assert low <= short_number(low, high) < high


def test_between_takes_few_digits():
    assert len(repr(short_number(0.123456789, 0.2))) <= 6


def test_histograms_count_every_row(rng):
    values = rng.normal(size=500)
    values[:3] = -np.inf
    errors = rng.random(500) < 0.3
    edges, right, wrong = histogram(values, errors)
    assert len(edges) == len(right) + 1
    assert (right.sum(), wrong.sum()) == ((~errors).sum(), errors.sum())
    edges, right, wrong = histogram(np.full(5, -np.inf), np.arange(5) < 2)
    assert np.isfinite(edges).all()
    assert right.sum() + wrong.sum() == 5


def test_reliability_is_what_ece_sums_up(rng):
    logits = 2 * rng.normal(size=(3000, 4))
    p = td.Predictions.from_logits(logits, rng.integers(0, 4, 3000))
    bins = reliability_bins(p)
    gaps = sum(b.n * abs(b.accuracy.value - b.confidence) for b in bins)
    assert gaps / 3000 == pytest.approx(td.ece(p))
    for b in bins:
        right = round(b.accuracy.value * b.n)
        ends = td.clopper_pearson(right, b.n)
        assert (b.accuracy.low, b.accuracy.high) == ends
    doubts = {"beta": td.beta(p)}
    assert reliability_bins(p, doubts=doubts) == bins


def test_thinned_curves_stay_on_the_curve(rng):
    frr, trr = (np.append(0, np.sort(rng.random(5000))) for _ in range(2))
    x, y = thin_curve(frr, trr, 400)
    assert len(x) == 401
    assert np.abs(np.interp(x, frr, trr) - y).max() < 0.02
    assert max(np.diff(x).max(), np.diff(y).max()) <= 2 / 400 + 1e-12
