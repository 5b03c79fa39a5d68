"""Tallies add up to what `evaluate` finds, in any order."""

import pickle
from itertools import pairwise

import numpy as np
import pytest

from trustdoctor import Predictions, calibrate, evaluate
from trustdoctor.errors import InputError
from trustdoctor.evaluation import Tally
from trustdoctor.gates import CalibrationSketch
from trustdoctor.scores import find_score


def rows(n=20_000, seed=0, **options):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    logits = rng.normal(size=(n, 4)).astype(np.float32)
    logits[np.arange(n), labels] += 2
    return Predictions.from_logits(logits, labels, **options)


def row_range(p, start, end):
    return p[start:end]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_a_tally_agrees_with_the_evaluation_of_the_rows(temperature):
    p = rows()
    exact = evaluate(p, temperature=temperature)
    tally = Tally(temperature=temperature, cells=1 << 13)
    for start in range(0, len(p), 7_000):
        tally.update(row_range(p, start, start + 7_000))
    evaluation = tally.evaluate()
    assert (evaluation.n, evaluation.n_errors) == (exact.n, exact.n_errors)
    assert evaluation.accuracy == exact.accuracy
    assert list(evaluation.scores) == list(exact.scores)
    for name, metrics in exact.scores.items():
        for metric, theirs in metrics.items():
            ours = evaluation.scores[name][metric]
            assert ours.value == pytest.approx(theirs.value, abs=ours.within + 1e-11)
            width = theirs.high - theirs.low
            assert ours.low <= ours.value <= ours.high
            assert ours.high - ours.low <= 1.3 * width + 3 * ours.within + 1e-6, metric
            assert ours.high - ours.low >= 0.7 * width, metric
    for name, theirs in exact.calibration.items():
        ours = evaluation.calibration[name]
        assert ours.value == pytest.approx(theirs.value, abs=1e-8)
        assert ours.low == pytest.approx(
            theirs.low, abs=0.3 * (theirs.high - theirs.low)
        )
    wide = {(d.metric, d.first, d.second): d for d in evaluation.differences}
    for theirs in exact.differences:  # unpaired intervals hold the paired ones
        ours = wide[theirs.metric, theirs.first, theirs.second]
        assert ours.low <= theirs.low + 1e-4
        assert ours.high >= theirs.high - 1e-4
    assert evaluation.streamed
    assert "streamed" in evaluation.to_json()


def test_order_and_merges_change_nothing_to_the_bit():
    p = rows(30_000)
    cuts = [0, 1, 10_000, 17_000, 30_000]
    pickled = []
    for a, b in pairwise(cuts):
        tally = Tally(cells=1 << 13)
        tally.update(row_range(p, a, b))
        pickled.append(pickle.dumps(tally))
    results = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        merged = Tally(cells=1 << 13)
        for i in order:
            merged.merge(pickle.loads(pickled[i]))
        results.append(merged.evaluate().to_json())
    assert len(set(results)) == 1


def test_saturated_and_infinite_rows_are_counted():
    logits = np.array([[1e7, 0.0], [0.0, -np.inf], [0.0, -np.inf], [1.0, 0.0]])
    p = Predictions.from_logits(logits, [0, 0, 1, 1])
    tally = Tally(["alpha"])
    tally.update(p)
    evaluation = tally.evaluate()
    assert evaluation.calibration["nll"].value is None
    assert "1 label had probability 0" in evaluation.calibration["nll"].note
    far = Predictions.from_logits([[1e9, 0.0]] * 3, [0, 1, 1])
    tally = Tally(["alpha"])
    tally.update(far)
    nll = tally.evaluate().calibration["nll"]
    assert nll.value == pytest.approx(2e9 / 3, rel=1e-6)
    assert nll.high - nll.low > 1e8
    exact = evaluate(far).calibration["nll"]  # it counts a further row, too
    assert exact.low <= nll.low < nll.value < nll.high <= exact.high


@pytest.mark.parametrize(("n_errors", "marked"), [(19, True), (20, False)])
def test_differences_have_ends_and_few_errors_are_marked(n_errors, marked):
    rng = np.random.default_rng(4)
    z = 2 * rng.normal(size=(400, 3))
    labels = (z.argmax(1) + (np.arange(400) < n_errors)) % 3
    tally = Tally(["alpha", "beta", "msp", "energy"])
    tally.update(Predictions.from_logits(z, labels))
    evaluation = tally.evaluate()
    pairs = {(d.first, d.second) for d in evaluation.differences}
    assert ("beta", "msp") not in pairs
    assert len(evaluation.differences) == 2 * len(pairs) == 2 * 5
    for d in evaluation.differences:
        first_cell, second_cell = (
            evaluation.scores[name][d.metric] for name in (d.first, d.second)
        )
        assert d.value == first_cell.value - second_cell.value
        assert (d.low, d.high) == (
            first_cell.low - second_cell.high,
            first_cell.high - second_cell.low,
        )
        assert ("few errors" in d.note) == marked


def test_rows_of_another_kind_are_refused():
    tally = Tally()
    with pytest.raises(InputError, match="at least one row"):
        tally.evaluate()
    tally.update(rows(100))
    with pytest.raises(InputError, match="logits of 4 classes everywhere"):
        tally.update(Predictions.from_logits([[1.0, 0.0]], [0]))
    with pytest.raises(InputError, match="the same scores"):
        tally.merge(Tally(["alpha"]))
    probs = Tally()
    probs.update(Predictions.from_probs([[0.7, 0.3], [0.6, 0.4]], [0, 1]))
    assert "energy" not in probs.sketches


@pytest.mark.parametrize("grouped", ["predicted", "given"])
def test_sketches_of_groups_add_up(grouped):
    p = rows(4_000, groups=np.arange(4_000) % 3)
    sketch = CalibrationSketch(find_score("alpha"), grouped)
    other = sketch.fresh()
    sketch.update(p[:1_000])
    other.update(p[1_000:])
    sketch.merge(other)
    assert len(sketch.pooled) == 4_000
    counts = np.bincount(p.predicted if grouped == "predicted" else p.groups)
    assert {k: len(s) for k, s in sketch.groups.items()} == dict(enumerate(counts))
    gate = sketch.calibrate(frr=0.1)
    exact = calibrate(p, frr=0.1, groups=grouped)
    assert gate.score_name == "alpha"
    for name, rule in exact.groups.items():  # few rows: every cell is one score
        assert gate.groups[name] == rule


def test_sketches_of_other_numbers_of_classes_do_not_merge():
    sketch = CalibrationSketch(find_score("alpha"))
    other = sketch.fresh()
    sketch.update(rows(100))
    other.update(Predictions.from_logits([[1.0, 0.0]], [0]))
    with pytest.raises(InputError, match="rows of 2 and 4"):
        sketch.merge(other)


def test_it_knows_how_far_confidences_go():
    rng = np.random.default_rng(0)
    margins, correct = rng.normal(size=900), rng.random(900) < 0.2
    p = Predictions.from_confidence(margins, correct)
    exact, tally, other = evaluate(p), Tally(), Tally()
    tally.update(row_range(p, 0, 300))
    other.update(row_range(p, 300, 900))
    tally.merge(other)
    evaluation = tally.evaluate()
    assert evaluation.warnings == exact.warnings
    assert (
        f"go from {margins.min():.4g} to {margins.max():.4g}" in evaluation.warnings[0]
    )
    assert evaluation.row_kind == exact.row_kind == "confidence"


def test_only_a_probability_may_be_that_of_one_class():
    correct = np.repeat([True, False], 300)
    for values, probable in ((np.linspace(0, 1, 600), True), (range(600), False)):
        p = Predictions.from_confidence(np.asarray(values, float), correct)
        tally = Tally()
        tally.update(p)
        for evaluation in (evaluate(p), tally.evaluate()):
            (line,) = evaluation.odd_labels
            assert line in evaluation.warnings
            assert "Check which way the numbers go." in line
            assert ("probability of one class" in line) == probable
