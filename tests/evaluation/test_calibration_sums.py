"""What rows say of the softmax: as rows, as sums, in any order of batches."""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.evaluation.calibration_sums import CalibrationSums
from trustdoctor.evaluation.evaluations import (
    EvaluationSettings,
    calibration_estimates,
)
from trustdoctor.kernels import _native
from trustdoctor.scores import score_all

NAMES = ("confidence", "ece", "brier", "nll")


def logits(n=5000, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 4)).astype(dtype)
    labels = np.where(rng.random(n) < 0.8, z.argmax(1), rng.integers(0, 4, n))
    return td.Predictions.from_logits(z, labels)


def answers(n=5000, seed=0):
    rng = np.random.default_rng(seed)
    sure = rng.beta(5, 1, n).clip(0.01, 0.99)
    return td.Predictions.from_confidence(sure, rng.random(n) < sure)


def doubts(p, temperature=1.0):
    if isinstance(p, td.Answers):
        return {}
    return score_all(p, ["alpha", "beta"], temperature=temperature)


def summed(*batches, temperature=1.0):
    sums = CalibrationSums(temperature)
    for batch in batches:
        sums.update(batch, doubts(batch, temperature))
    return sums


def by_rows(p, temperature=1.0):
    settings = EvaluationSettings(temperature=temperature)
    return calibration_estimates(p, doubts(p, temperature), settings)


kinds = pytest.mark.parametrize("make", [logits, answers])


@kinds
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_sums_and_rows_agree(make, temperature):
    p = make()
    rows = by_rows(p, temperature)
    sums = summed(p, temperature=temperature).summary().estimates()
    assert tuple(rows) == tuple(sums) == NAMES
    for name in NAMES:
        by_row, by_sum = rows[name], sums[name]
        assert by_row.value == pytest.approx(by_sum.value, abs=1e-8)
        near = 0.06 * (
            by_row.high - by_row.low
        )  # rows know a further one, and skewness
        assert (by_row.low, by_row.high) == pytest.approx(
            (by_sum.low, by_sum.high), abs=near
        )
        assert by_row.note == by_sum.note == ""


def test_numbers_are_those_of_the_functions():
    p = logits()
    for estimates in (by_rows(p), summed(p).summary().estimates()):
        assert estimates["ece"].value == pytest.approx(td.ece(p), abs=1e-8)
        assert estimates["brier"].value == pytest.approx(td.brier(p), abs=1e-8)
        assert estimates["nll"].value == pytest.approx(td.nll(p), abs=1e-8)
        probs = np.exp(p.logits) / np.exp(p.logits).sum(1, keepdims=True)
        sure = probs.max(1).mean()
        assert estimates["confidence"].value == pytest.approx(sure, abs=1e-8)


@kinds
def test_the_order_of_batches_changes_nothing(make):
    p = make(3000)
    cuts = [p[:1], p[1:1200], p[1200:1300], p[1300:]]
    at_once = summed(p).summary().estimates()
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        assert summed(*(cuts[i] for i in order)).summary().estimates() == at_once
        merged = summed()
        for i in order:
            merged.merge(summed(cuts[i]))
        assert merged.summary().estimates() == at_once
    mixed = p[np.random.default_rng(1).permutation(3000)]
    assert summed(mixed).summary().estimates() == at_once


@pytest.mark.skipif(not _native.available, reason="no compiler built the kernels")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_sums_as_numpy_does(dtype, monkeypatch):
    p = logits(dtype=dtype)
    native = summed(p).summary().estimates()
    monkeypatch.setattr(_native, "available", False)
    plain = summed(p).summary().estimates()
    for name in NAMES:
        for end in ("value", "low", "high"):
            ours, theirs = (
                getattr(estimates[name], end) for estimates in (native, plain)
            )
            assert ours == pytest.approx(theirs, abs=1e-7)


def test_labels_of_no_probability_are_counted_in_both():
    probs = np.array([[1.0, 0.0]] * 3 + [[0.7, 0.3]] * 97)
    p = td.Predictions.from_probs(probs, [1, 1, 0] + [0] * 60 + [1] * 37)
    for estimates in (by_rows(p), summed(p[:2], p[2:]).summary().estimates()):
        assert estimates["nll"].value is None
        assert "2 labels had probability 0" in estimates["nll"].note
        assert estimates["brier"].value == pytest.approx(td.brier(p), abs=1e-8)


@pytest.mark.parametrize(("n_errors", "marked"), [(19, True), (20, False)])
def test_few_errors_are_marked_in_both(n_errors, marked):
    p = logits(3000)
    wrong, right = np.flatnonzero(p.errors), np.flatnonzero(~p.errors)
    p = p[np.concatenate([wrong[:n_errors], right[:400]])]
    for estimates in (by_rows(p), summed(p).summary().estimates()):
        assert all(("few errors" in estimates[name].note) == marked for name in NAMES)


def test_rows_that_are_alike_leave_something_open_in_both():
    p = td.Predictions.from_probs([[0.9, 0.1]] * 50, [0] * 50)
    for estimates in (by_rows(p), summed(p).summary().estimates()):
        for name in ("ece", "brier", "nll"):
            assert estimates[name].high - estimates[name].low > 1e-6, name
