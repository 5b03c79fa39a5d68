"""Calibration without labels."""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError


def make(rng, n=4000, classes=4):
    z = rng.normal(size=(n, classes)) * 2.5
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_logits(z, labels)


@pytest.mark.parametrize(
    "target",
    [{"frr": 0.1}, {"trr": 0.9}, {"risk": 0.1}, {"joint": 0.1}, {"coverage": 0.8}],
    ids=str,
)
def test_a_model_that_is_right_about_itself_meets_its_expectations(target, rng):
    """The labels are drawn from the model's own probabilities."""
    p = make(rng, 40_000)
    gate = td.calibrate_unlabelled(p, **target)
    at = td.confusion(td.alpha(p.logits), p.errors, threshold=gate.threshold)
    ((name, value),) = target.items()
    numerator, denominator = td.TARGETS[name].fraction(at)
    assert numerator / denominator == pytest.approx(value, abs=0.015)
    assert not gate.certificate.guarantee
    assert "no guarantee" in repr(gate)


def test_a_known_accuracy_corrects_an_overconfident_model(rng):
    p = make(rng, 40_000)
    bold = td.Predictions.from_logits(3 * p.logits, p.labels)
    accuracy = 1 - p.errors.mean()
    scores = td.alpha(bold.logits)
    risks = {}
    for known_accuracy in (None, accuracy):
        gate = td.calibrate_unlabelled(bold, risk=0.1, accuracy=known_accuracy)
        risks[known_accuracy] = td.confusion(
            scores, p.errors, threshold=gate.threshold
        ).risk
    assert risks[None] > 0.15
    assert risks[accuracy] == pytest.approx(0.1, abs=0.02)
    assert "temperature" in gate.certificate.assumption


def test_trivial_expectations():
    sure = td.Predictions.from_logits([[9.0, 0.0]] * 5)
    assert td.calibrate_unlabelled(sure, risk=0.1).state == "accept-all"
    torn = td.Predictions.from_logits([[0.1, 0.0]] * 5)
    assert td.calibrate_unlabelled(torn, risk=0.1).state == "reject-all"


def test_an_accuracy_that_no_temperature_gives_is_refused():
    sure = td.Predictions.from_probs([[1.0, 0.0]] * 20)
    with pytest.raises(InputError, match="no temperature"):
        td.calibrate_unlabelled(sure, frr=0.1, accuracy=0.8)


def test_unlabelled_mistakes_are_refused():
    z = td.Predictions.from_logits([[1.0, 0.0], [2.0, 0.0]])
    for options in ({}, {"frr": 0.1, "trr": 0.9}, {"target": {"cost": 3}}):
        with pytest.raises(InputError, match="expected one target out of frr, trr"):
            td.calibrate_unlabelled(z, **options)
    with pytest.raises(InputError, match="expected frr between 0 and 1"):
        td.calibrate_unlabelled(z, frr=2)
    with pytest.raises(InputError, match="expected Predictions"):
        td.calibrate_unlabelled(z.logits, frr=0.1)
    for accuracy in (0.3, 1.0):
        with pytest.raises(InputError, match="accuracy"):
            td.calibrate_unlabelled(z, frr=0.1, accuracy=accuracy)
