"""Calibration on labels of which some are wrong: the promise about the truth.

Scores are normal, the true risk rises with them, and the truth at a threshold is an
integral. Wrong labels come at a rate that does not depend on the score.
"""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.gates import calibrate_scores
from trustdoctor.gates.request import Request
from trustdoctor.gates.rules import threshold_of
from trustdoctor.gates.sample import Rows

AT = np.linspace(-7, 7, 4001)
MASS = np.exp(-(AT**2) / 2) / np.exp(-(AT**2) / 2).sum()


def risk_at(score):
    return 1 / (1 + np.exp(2.2 - 1.2 * score))


def true_rate(name, threshold):
    accepted = MASS * (threshold >= AT)
    wrong = (accepted * risk_at(AT)).sum()
    return wrong if name == "joint" else wrong / max(accepted.sum(), 1e-300)


def noisy(errors, noise, kind, random):
    """Return what labels call errors, where some labels are wrong."""
    wrong_label = random.random(len(errors)) < noise
    if kind == "copied":  # the answer of the model is taken for the truth
        return errors & ~wrong_label
    return errors ^ wrong_label  # of two classes: the other one


def broken_share(name, value, *, noise, stated_noise, kind, draws=500, n=1500):
    random = np.random.default_rng(0)
    ask = Request({name: value}, label_noise=stated_noise)
    broken = 0
    for _ in range(draws):
        scores = random.normal(size=n)
        errors = random.random(n) < risk_at(scores)
        sample = Rows(scores, noisy(errors, noise, kind, random))
        cut = ask.cut(sample, ask.delta)
        if not cut.failed:
            at = np.inf if cut.state == "accept-all" else threshold_of(cut, sample)
            broken += true_rate(name, at) > value
    return broken / draws


TARGETS = [("risk", 0.08), ("joint", 0.05)]
ALLOWED = 0.1 + 3 * np.sqrt(0.1 * 0.9 / 500)


@pytest.mark.parametrize(("name", "value"), TARGETS)
@pytest.mark.parametrize("kind", ["copied", "flipped"])
def test_the_promise_about_the_truth_holds(name, value, kind):
    share = broken_share(name, value, noise=0.2, stated_noise=0.2, kind=kind)
    assert share <= ALLOWED


@pytest.mark.parametrize(("name", "value"), TARGETS)
def test_without_the_option_labels_that_copy_the_answer_break_it(name, value):
    assert broken_share(name, value, noise=0.2, stated_noise=0.0, kind="copied") > 0.5


@pytest.mark.parametrize(("name", "value"), TARGETS)
def test_it_costs_no_more_than_it_must(name, value):
    """With labels that copy the answer the corrected level is exact."""
    assert broken_share(name, value, noise=0.2, stated_noise=0.2, kind="copied") > 0.01


def rows(n=3000, seed=0):
    random = np.random.default_rng(seed)
    scores = random.normal(size=n)
    return scores, random.random(n) < risk_at(scores)


def test_it_is_the_gate_of_a_smaller_value():
    scores, errors = rows()
    for name, value in TARGETS:
        noisy_gate = calibrate_scores(scores, errors, **{name: value}, label_noise=0.25)
        plain = calibrate_scores(scores, errors, **{name: 0.75 * value})
        assert noisy_gate.threshold == plain.threshold
        assert noisy_gate.certificate.target == {name: value}
        assert noisy_gate.certificate.label_noise == 0.25
        tested = f"{name} was tested at {75 * value:g}% instead of {100 * value:g}%"
        assert any(tested in note for note in noisy_gate.certificate.notes)


@pytest.mark.parametrize("target", [{"frr": 0.1}, {"trr": 0.9}], ids=str)
def test_for_other_targets_it_only_describes_the_effect_of_wrong_labels(target):
    scores, errors = rows()
    gate = calibrate_scores(scores, errors, **target, label_noise=0.1)
    assert gate.threshold == calibrate_scores(scores, errors, **target).threshold
    assert any("more careful" in note for note in gate.certificate.notes)


def test_a_file_keeps_it(tmp_path):
    scores, errors = rows()
    gate = calibrate_scores(scores, errors, joint=0.05, label_noise=0.1)
    gate.save(tmp_path / "gate.json")
    assert td.Gate.load(tmp_path / "gate.json").certificate == gate.certificate


def test_lists_on_the_same_rows_know_it():
    """The rule that set the threshold is found again, and not one without noise."""
    random = np.random.default_rng(0)
    z = 2 * random.normal(size=(1500, 4))
    p = td.Predictions.from_logits(z, (z + random.gumbel(size=z.shape)).argmax(1))
    noisy_gate = td.calibrate(p, joint=0.1, label_noise=0.2, shortlist=0.9)
    plain = td.calibrate(p, joint=0.08, shortlist=0.9)
    assert noisy_gate.threshold == plain.threshold
    assert noisy_gate.shortlist.rule == plain.shortlist.rule
