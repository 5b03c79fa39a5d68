"""Gates for decisions that are not the most probable class, and rows without one."""

import json

import numpy as np
import pytest
from scipy.special import expit

import trustdoctor as td
from trustdoctor.adapters.onnx import check_gate
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import CalibrationSketch, calibrate_unlabelled
from trustdoctor.gates.outcome import known_errors
from trustdoctor.scores import find_score
from trustdoctor.service.scoring import require_served

CUT = 0.2


def binary(n, seed, **options):
    """A model that is right about its probabilities, and answers yes from CUT on."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.5, 2, n)
    labels = (rng.random(n) < expit(z)).astype(int)
    options = options or {"cutoff": CUT}
    return td.Predictions.from_logits(np.stack([0 * z, z], 1), labels, **options)


@pytest.fixture(scope="module")
def binary_rows():
    return binary(4000, 0)


@pytest.fixture(scope="module")
def gate(binary_rows):
    return td.calibrate(binary_rows, risk=0.1)


@pytest.fixture(scope="module")
def silent():
    """Answers, a tenth of which are missing."""
    rng = np.random.default_rng(0)
    sure = rng.random(2000)
    answers = np.where(rng.random(2000) < sure, "a", "b").astype(object)
    answers[::10] = None
    return td.Predictions.from_confidence(sure, predicted=answers, labels=["a"] * 2000)


def test_the_gate_is_that_of_the_odds_of_the_decisions(binary_rows, gate):
    p = expit(binary_rows.logits[:, 1])
    yes = p >= CUT
    chosen = np.where(yes, p, 1 - p)
    doubts, errors = np.log((1 - chosen) / chosen), yes != binary_rows.labels
    by_hand = td.calibrate_scores(doubts, errors, risk=0.1)
    assert gate.score_name == "beta"
    assert gate.threshold == pytest.approx(by_hand.threshold, rel=1e-9)
    assert gate.certificate.observed == by_hand.certificate.observed
    assert any("cutoff 0.2" in note for note in gate.certificate.notes)


def test_alpha_and_auto_are_refused(binary_rows):
    with pytest.raises(InputError, match="Choose beta"):
        td.calibrate(binary_rows, score="alpha", risk=0.1)
    with pytest.raises(InputError, match="score 'auto' is about the most probable"):
        td.calibrate(binary_rows, score="auto", risk=0.1)


def test_a_gate_meets_only_rows_that_are_decided_alike(gate):
    new = binary(1000, 1)
    assert gate.screen(new).accepted.any()
    refused = {
        "most probable class. Read the rows with --cutoff 0.2": new.without_decisions(),
        "cutoff 0.3": binary(1000, 1, cutoff=0.3),
        r"\(predicted\)": binary(1000, 1, predicted=new.predicted),
    }
    for match, rows in refused.items():
        with pytest.raises(InputError, match=match):
            gate.screen(rows)
    plain = td.calibrate(new.without_decisions(), score="beta", risk=0.1)
    with pytest.raises(InputError, match="without --cutoff and --predicted"):
        plain.screen(new)
    assert td.Gate(-1.0, score="beta").screen(new).accepted.any()  # nobody promised


def test_the_file_of_a_gate_says_what_decided(gate, tmp_path):
    gate.save(tmp_path / "gate.json")
    assert td.Gate.load(tmp_path / "gate.json") == gate
    content = json.loads(gate.to_json())
    assert content["decided_by"] == "cutoff 0.2"
    for other in ("cutoff", "cutoff 0.20", "cutoff 2", "cutoff nan", "chance", 3, None):
        with pytest.raises(FileError, match=r"decided_by|text"):
            td.Gate.from_json(json.dumps(content | {"decided_by": other}))
    plain = td.calibrate(binary(500, 0).without_decisions(), coverage=0.5)
    assert "decided_by" not in json.loads(plain.to_json())


def test_what_knows_no_decisions_refuses_such_gates_and_rows(binary_rows, gate):
    for refuse in (check_gate, require_served):
        with pytest.raises(InputError, match="decisions of the system's own"):
            refuse(gate)
    with pytest.raises(InputError, match="a shortlist is about"):
        td.calibrate(binary_rows, frr=0.1, shortlist=0.9)
    with pytest.raises(InputError, match="without labels is about"):
        calibrate_unlabelled(binary_rows, score="beta", risk=0.1)


def test_rows_that_are_counted_make_the_same_gate(binary_rows, gate):
    counted = CalibrationSketch(find_score("beta"), needs_labels=True)
    for batch in (binary_rows[:1500], binary_rows[1500:]):
        counted.update(batch)
    streamed = counted.calibrate(risk=0.1)
    assert streamed.decided_by == gate.decided_by
    assert streamed.threshold == pytest.approx(gate.threshold, abs=1e-3)
    assert streamed.certificate.notes[0] == gate.certificate.notes[0]


# Rows without an answer.


@pytest.mark.parametrize(
    "target", [{"risk": 0.3}, {"trr": 0.8}, {"joint": 0.1}, {"frr": 0.1}], ids=str
)
def test_rows_without_an_answer_are_rejected_and_counted(target, silent):
    gate = td.calibrate(silent, **target)
    assert not gate.screen(silent).accepted[silent.abstained].any()
    certificate = gate.certificate
    assert certificate.n == 2000
    accepted = gate.screen(silent).accepted
    assert certificate.observed["coverage"].value == pytest.approx(accepted.mean())
    assert any("200 of 2,000 rows have no answer" in note for note in certificate.notes)


def test_a_coverage_that_counts_them_cannot_be_promised(silent):
    assert td.calibrate(silent, coverage=0.85).screen(silent).accepted.mean() >= 0.85
    with pytest.raises(InputError, match="200 of 2,000 are ambiguous or have no"):
        td.calibrate(silent, coverage=0.93)


def test_rows_without_an_answer_are_rejected_whatever_the_gate(silent):
    for gate in (
        td.Gate(np.inf, score="confidence"),
        td.Gate(0.0, score="confidence", state="accept-all"),
    ):
        accepted = gate.screen(silent).accepted
        assert np.array_equal(accepted, ~silent.abstained)


def test_of_decisions_too():
    p = binary(3000, 0)
    answers = p.predicted.astype(object)
    answers[::15] = None
    rows = binary(3000, 0, predicted=answers)
    gate = td.calibrate(rows, risk=0.1)
    screened = gate.screen(rows)
    assert not screened.accepted[::15].any()
    assert screened.predicted[::15].tolist() == [-1] * 200
    assert gate.certificate.n == 3000
    assert gate.certificate.observed["trr"].value == pytest.approx(
        (~screened.accepted)[known_errors(rows)].mean()
    )


@pytest.mark.parametrize("target", [{"frr": 0.1}, {"risk": 0.3}], ids=str)
def test_they_are_a_predicted_class_that_has_no_promise(target, silent):
    gate = td.calibrate(silent, groups="predicted", **target)
    assert not gate.groups[""].promised
    assert any("(no answer)" in note for note in gate.certificate.notes)
    assert not gate.screen(silent).accepted[silent.abstained].any()


def test_they_are_not_compared_with_rows_that_lack_a_label():
    """Their doubt is endless; that says nothing of how labels were drawn."""
    rng = np.random.default_rng(0)
    answers = np.where(rng.random(1000) < 0.9, "a", "b").astype(object)
    answers[:300] = None
    correct = (answers == "a").astype(object)
    correct[:300] = None
    p = td.Predictions.from_confidence(rng.random(1000), correct, predicted=answers)
    gate = td.calibrate(p, risk=0.3)
    assert not any("drawn at random" in note for note in gate.certificate.notes)
