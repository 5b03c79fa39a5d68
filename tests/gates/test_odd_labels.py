"""Gates on implausible labels, on duplicates, and on uninformative scores."""

import warnings

import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.errors import OddLabelsWarning
from trustdoctor.gates import CalibrationSketch, decides_nothing
from trustdoctor.scores import find_score


def rows(seed=0, n=1500, classes=4):
    """Draw logits and labels that they are true about."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(n, classes))
    drawn = softmax(logits, axis=1).cumsum(1) > rng.random((n, 1))
    return logits, drawn.argmax(1)


SPOILED = {
    "one class off": (lambda _z, y: (y + 1) % 4, "seem to count from 1"),
    "one row off": (lambda _z, y: np.roll(y, -1), "moved down by one row"),
    "in random order": (
        lambda _z, y: np.random.default_rng(1).permutation(y),
        "random order",
    ),
    "the model's own": (lambda z, _y: z.argmax(1), "predictions are correct"),
}


@pytest.mark.parametrize("oddity", SPOILED)
def test_odd_labels_are_warned_of_and_noted(oddity):
    z, y = rows()
    spoil, match = SPOILED[oddity]
    p = td.Predictions.from_logits(z, spoil(z, y))
    with pytest.warns(OddLabelsWarning, match=match) as caught:
        gate = td.calibrate(p, frr=0.1)
    assert caught[0].filename == __file__
    assert any(match in note for note in gate.certificate.notes)


@pytest.mark.parametrize("oddity", SPOILED)
def test_rows_that_are_counted_are_checked_too(oddity):
    z, y = rows()
    spoil, match = SPOILED[oddity]
    labels = spoil(z, y)
    state = CalibrationSketch(find_score("alpha"), needs_labels=True)
    for batch in np.split(np.arange(1500), [500, 900]):
        sketch = state.fresh()
        sketch.update(td.Predictions.from_logits(z[batch], labels[batch]))
        state.merge(sketch)
    with pytest.warns(OddLabelsWarning, match=match):
        gate = state.calibrate(frr=0.1)
    assert any(match in note for note in gate.certificate.notes)


def test_errors_that_are_less_doubtful_are_warned_of():
    rng = np.random.default_rng(0)
    wrong = np.arange(400) % 5 == 0
    with pytest.warns(OddLabelsWarning, match="less doubtful by the score"):
        td.calibrate_scores(rng.normal(size=400) - wrong, wrong, frr=0.1)


def test_targets_without_labels_ask_nothing_of_them():
    z, y = rows()
    p = td.Predictions.from_logits(z, (y + 1) % 4)
    assert td.calibrate(p, coverage=0.8).state == "threshold"


def test_pairs_and_copies_are_noted():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 3000)
    z = 4 * np.eye(4)[truth] + 1.5 * rng.normal(size=(3000, 4))
    y = np.where((truth == 1) & (np.arange(3000) % 4 == 0), 0, truth)
    twice = np.r_[np.arange(3000), np.arange(500)]
    gate = td.calibrate(td.Predictions.from_logits(z[twice], y[twice]), frr=0.1)
    notes = " ".join(gate.certificate.notes)
    assert "rows labelled 0 are predicted 1" in notes
    assert "500 of 3,500 rows repeat an earlier one" in notes
    assert "--clusters NAME" in notes


def test_good_labels_raise_no_warning():
    """None in 200 data sets; pytest makes any warning an error."""
    for seed in range(200):
        z, y = rows(seed, n=(60, 300, 1000)[seed % 3], classes=2 + seed % 4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gate = td.calibrate(td.Predictions.from_logits(z, y), frr=0.1)
        assert not any("odd" in note for note in gate.certificate.notes), seed


def test_tune_and_a_cascade_warn():
    z, y = rows(n=600)
    p = td.Predictions.from_logits(z, (y + 1) % 4)
    with pytest.warns(OddLabelsWarning, match="count from 1"):
        td.tune(p)
    with pytest.warns(OddLabelsWarning, match="small: Labels seem to count") as caught:
        two = td.Cascade.calibrate(
            [z, z], (y + 1) % 4, names=["small", "large"], trr=0.05, costs=[0, 1, 9]
        )
    assert caught[0].filename == __file__
    assert any("large: Labels seem to count" in n for n in two.certificate.notes)


TARGETS = [{"frr": 0.05}, {"trr": 0.5}, {"coverage": 0.9}, {"risk": 0.4}]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_a_constant_score_makes_a_trivial_gate(target, noise):
    """As of hard decisions, or of a tree of one leaf; rounding makes it no better."""
    rng = np.random.default_rng(0)
    probs = np.eye(3)[rng.integers(0, 3, 400)] * 0.7 + 0.1
    probs[:, 0] += noise * rng.random(400)
    labels = np.where(rng.random(400) < 0.7, probs.argmax(1), 0)
    gate = td.calibrate(td.Predictions.from_probs(probs, labels), **target)
    assert gate.state in ("accept-all", "reject-all")
    assert decides_nothing(gate)
    if target != {"risk": 0.4}:  # whose rule finds that all may pass
        why = "alpha gives all rows one value, which cannot tell them apart"
        assert gate.certificate.trivial == why


def test_a_score_that_is_nearly_constant_is_noted():
    confidence = np.where(np.arange(1000) < 992, 1.0, 0.7)
    correct = np.random.default_rng(0).random(1000) < 0.9
    answers = td.Predictions.from_confidence(confidence, correct=correct)
    notes = td.calibrate(answers, frr=0.05).certificate.notes
    assert any("confidence has one value for 99% or more" in note for note in notes)


def test_groups_with_a_constant_score_are_trivial_alone():
    rng = np.random.default_rng(0)
    scores = np.r_[np.zeros(300), rng.normal(size=300)]
    errors = rng.random(600) < 0.2
    groups = np.repeat(["same", "other"], 300)
    gate = td.calibrate_scores(scores, errors, frr=0.1, groups=groups)
    assert gate.groups["same"].state == "accept-all"
    assert gate.groups["other"].state == "threshold"
