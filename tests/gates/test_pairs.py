"""Two targets at once: both are kept, or the closest attainable pair is named."""

import numpy as np
import pytest
from scipy.stats import binom, norm

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates.boundary import find_boundary
from trustdoctor.metrics import Sketch


def draw(rng, n=2000, accuracy=0.9, separation=2.0):
    errors = rng.random(n) >= accuracy
    return rng.normal(size=n) + separation * errors, errors


def rates(gate, accuracy=0.9, separation=2.0):
    """The true rates of a gate on normal scores."""
    t = {"accept-all": np.inf, "reject-all": -np.inf}.get(gate.state, gate.threshold)
    right, wrong = accuracy * norm.cdf(t), (1 - accuracy) * norm.cdf(t - separation)
    return {
        "coverage": right + wrong,
        "frr": 1 - norm.cdf(t),
        "trr": 1 - norm.cdf(t - separation),
        "risk": wrong / (right + wrong) if right + wrong else 0.0,
    }


AT_LEAST = ("coverage", "trr")
PAIRS = (
    {"frr": 0.4, "trr": 0.7},
    {"risk": 0.04, "frr": 0.3},
    {"risk": 0.04, "trr": 0.7},
    {"risk": 0.05, "coverage": 0.6},
)
pairs = pytest.mark.parametrize("pair", PAIRS, ids=["-".join(p) for p in PAIRS])


@pytest.mark.sampled(4)
@pairs
@pytest.mark.parametrize("n", [300, 1500])
def test_both_promises_hold_together(pair, n, rng):
    broken, accepted = 0, 0
    for _ in range(200):
        gate = td.calibrate_scores(*draw(rng, n), **pair)
        accepted += gate.certificate.guarantee
        true = rates(gate)
        broken_targets = [
            true[k] < v if k in AT_LEAST else true[k] > v for k, v in pair.items()
        ]
        broken += gate.certificate.guarantee and any(broken_targets)
    assert accepted > 20
    assert broken / 200 <= 0.1 + 3 * np.sqrt(0.09 / 200)


@pairs
def test_the_gate_lies_between_the_ends_that_are_given(pair, rng):
    gate = td.calibrate_scores(*draw(rng), **pair)
    assert gate.certificate.target == pair
    assert gate.certificate.guarantee
    if gate.certificate.feasible is not None:
        least, most = gate.certificate.feasible
        assert least <= gate.threshold <= most
    for name, value in pair.items():
        rate = gate.certificate.observed[name].value
        assert rate >= value if name in AT_LEAST else rate <= value


@pairs
def test_files_sketches_and_watches_know_pairs(pair, rng, tmp_path):
    scores, errors = draw(rng)
    gate = td.calibrate_scores(scores, errors, **pair)
    gate.save(tmp_path / "gate.json")
    assert td.Gate.load(tmp_path / "gate.json") == gate
    assert set(gate.watch().tests) == {"accepted", *pair}
    sketch = Sketch()
    sketch.update(scores, errors)
    streamed = td.calibrate_scores(sketch, **pair)
    assert streamed.certificate.guarantee
    assert abs(rates(streamed)["coverage"] - rates(gate)["coverage"]) < 0.1


def test_a_risk_and_a_coverage_that_exclude_each_other_are_refused(rng):
    scores, errors = draw(rng, 5000)
    gate = td.calibrate_scores(scores, errors, risk=0.02, coverage=0.95)
    c = gate.certificate
    assert (gate.state, c.guarantee) == ("reject-all", False)
    assert "no threshold does both: coverage needs at least" in c.trivial
    alone = td.calibrate_scores(scores, errors, risk=0.02, confidence=0.95)
    accepted = scores <= alone.threshold
    assert f"risk at most {alone.threshold:.6g}" in c.trivial
    assert f"(coverage {accepted.mean():.1%} on these rows)" in c.trivial
    least = td.calibrate_scores(scores, errors, coverage=0.95, confidence=0.95)
    wrong = errors[scores <= least.threshold].mean()
    assert f"{least.threshold:.6g} (risk {wrong:.1%} on these rows)" in c.trivial


def test_risk_and_trr_share_a_threshold_that_passed_a_test():
    """Risk is low from the middle on, where TRR does not reach."""
    scores = np.arange(2000.0)
    errors = ((scores % 10 == 3) & (scores < 300)) | (scores > 1900)
    first = {}  # rows at which a threshold first passes, alone and with half the level
    for delta in (0.1, 0.05):
        p_values = binom.cdf(np.cumsum(errors), np.arange(1, 2001), 0.1)
        level = find_boundary(2000, 0.1, delta).level
        first[delta] = int(np.flatnonzero(p_values <= level)[0]) + 1
    assert 300 < first[0.1] < first[0.05] < 600  # before the sequence starts
    alone = td.calibrate_scores(scores, errors, risk=0.1).certificate
    assert alone.passed[0].accepted == first[0.1]
    gate = td.calibrate_scores(scores, errors, risk=0.1, trr=0.9)
    assert not gate.certificate.guarantee
    least = first[0.05] - 0.5
    assert f"risk needs at least {least} (TRR 76.7%" in gate.certificate.trivial
    assert "TRR at most 72.5" in gate.certificate.trivial
    gate = td.calibrate_scores(scores, errors, risk=0.1, trr=0.6)
    assert gate.certificate.feasible[0] == least


def test_accepting_every_row_may_keep_both():
    scores, errors = np.arange(400.0), np.zeros(400, bool)
    for other in ({"coverage": 0.999}, {"coverage": 0.5}, {"frr": 0.001}):
        gate = td.calibrate_scores(scores, errors, risk=0.05, **other)
        assert (gate.state, gate.certificate.guarantee) == ("accept-all", True)


def test_too_few_rows_for_either_target_are_reported(rng):
    scores, errors = draw(rng, 30)
    gate = td.calibrate_scores(scores, errors, risk=0.02, coverage=0.5)
    assert "too few to promise both" in gate.certificate.trivial
    first, enough = gate.certificate.outlook
    assert first.rows == 30 < enough.rows
    assert first.decides < 0.5 < 0.8 <= enough.decides
    scores, errors = draw(rng, 3000, accuracy=0.4, separation=0.1)
    gate = td.calibrate_scores(scores, errors, risk=0.02, frr=0.5)
    assert "risk cannot be promised: no threshold" in gate.certificate.trivial


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"risk": 0.1, "joint": 0.1}, "or two: frr with trr, or risk with coverage"),
        ({"frr": 0.1, "coverage": 0.9}, "one target out of"),
        ({"risk": 0.1, "coverage": 0.5, "frr": 0.1}, "one target out of"),
        ({"risk": 0.1, "frr": 0.1, "mode": "expectation"}, "risk and frr together"),
    ],
)
def test_other_questions_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        td.calibrate_scores([0.1, 0.2], [True, False], **options)
