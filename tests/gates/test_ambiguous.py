"""Answers that are always rejected, and confidences of another scale."""

import json
from dataclasses import replace

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import CalibrationSketch
from trustdoctor.scores import find_score


def answers(share, n=2000, seed=0):
    rng = np.random.default_rng(seed)
    confidence = rng.random(n)
    p = td.Predictions.from_confidence(confidence, rng.random(n) < confidence)
    unsure = rng.random(n) < share
    return replace(p, ambiguous=unsure, doubts=np.where(unsure, np.inf, p.doubts))


def streamed(p, **options):
    counted = CalibrationSketch(find_score("confidence"), needs_labels=True)
    for start in range(0, len(p), 700):
        counted.update(p[start : start + 700])
    return counted.calibrate(**options)


@pytest.mark.parametrize("calibrate", [td.calibrate, streamed])
def test_certificates_count_ambiguous_answers_as_rejected(calibrate):
    p = answers(0.03)
    for target in ({"frr": 0.1}, {"risk": 0.6}, {"joint": 0.6}, {"trr": 0.5}):
        gate = calibrate(p, **target)
        screened = gate.screen(p)
        assert not screened.accepted[p.ambiguous].any()
        observed = gate.certificate.observed
        assert observed["coverage"].value == screened.accepted.mean()
        assert observed["frr"].value == (~screened.accepted)[~p.errors].mean()
        assert gate.state == "threshold"


@pytest.mark.parametrize("calibrate", [td.calibrate, streamed])
@pytest.mark.parametrize("target", [{"frr": 0.05}, {"coverage": 0.8}])
def test_what_ambiguous_answers_break_is_not_promised(calibrate, target):
    with pytest.raises(InputError, match="ambiguous or have no answer"):
        calibrate(answers(0.3), **target)


def test_top_k_answers_are_certified_as_they_are_decided():
    rng = np.random.default_rng(1)
    top = rng.uniform(0.4, 0.9, 3000)
    probs = np.stack([top, (1 - top) * rng.random(3000)], 1)
    labels = np.where(rng.random(3000) < top, 0, 1)
    p = td.Predictions.from_topk(
        probs, np.tile([0, 1], (3000, 1)), labels, n_classes=3, open_rest=True
    )
    assert 0.05 < p.ambiguous.mean() < 0.95
    gate = td.calibrate(p, score="beta", risk=0.9)
    screened = gate.screen(p)
    assert gate.certificate.observed["coverage"].value == screened.accepted.mean()
    with pytest.raises(InputError, match="ambiguous"):
        td.calibrate(p, score="beta", frr=0.01)


def test_a_gate_of_confidences_refuses_percentages(tmp_path):
    p = answers(0.0)
    gate = td.calibrate(p, risk=0.3)
    gate.save(tmp_path / "g.json")
    loaded = td.Gate.load(tmp_path / "g.json")
    assert loaded.on_confidences
    percent = td.Predictions.from_confidence(-100 * p.doubts)
    for strict in (gate, loaded):
        with pytest.raises(InputError, match=r"from 0 to 1.*--percent"):
            strict.screen(percent)
    free = td.calibrate(
        td.Predictions.from_confidence(-100 * p.doubts, ~p.errors), risk=0.3
    )
    assert not free.on_confidences
    assert np.array_equal(free.screen(percent).accepted, gate.screen(p).accepted)
    content = json.loads((tmp_path / "g.json").read_text())
    for bad in (1, "yes", None):
        (tmp_path / "bad.json").write_text(
            json.dumps(content | {"on_confidences": bad})
        )
        with pytest.raises(FileError, match="on_confidences"):
            td.Gate.load(tmp_path / "bad.json")


def test_thresholds_by_class_number_do_not_meet_names():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(900, 3)) * 2
    labels = np.where(rng.random(900) < 0.8, z.argmax(1), 0)
    numbers = td.Predictions.from_logits(z, labels)
    names = td.Predictions.from_logits(z, labels, class_names=["a", "b", "c"])
    turned = td.Predictions.from_logits(z[:, ::-1], class_names=["c", "b", "a"])
    gate = td.calibrate(names, groups="predicted", frr=0.1)
    assert np.array_equal(gate.screen(turned).accepted, gate.screen(names).accepted)
    with pytest.raises(InputError, match="by its number"):
        td.calibrate(numbers, groups="predicted", frr=0.1).screen(names)
    with pytest.raises(InputError, match="expected groups like 'a'"):
        gate.screen(numbers)


def test_calibration_without_labels_is_not_for_answers():
    with pytest.raises(InputError, match="answers have none"):
        td.calibrate_unlabelled(answers(0.0), risk=0.1)


def test_reversed_confidences_are_reported():
    p = answers(0.0)
    turned = td.Predictions.from_confidence(1 + p.doubts, ~p.errors)
    assert any("which way the numbers go" in w for w in td.evaluate(turned).warnings)
    assert not td.evaluate(p).warnings
    tally = td.Tally()
    tally.update(turned)
    assert tally.evaluate().warnings == td.evaluate(turned).warnings


def test_infinite_doubts_are_on_the_page(tmp_path):
    p = answers(0.1)
    evaluation = td.evaluate(td.Predictions.from_doubt(p.doubts, ~p.errors))
    html = evaluation.to_html(tmp_path / "p.html").read_text()
    data = html.partition('<script id="data" type="application/json">')[2]
    score_data = json.loads(data.partition("</script>")[0])["scores"]["doubt"]
    assert sum(score_data["correct"]) == (~p.errors).sum()
    assert np.isfinite(score_data["thresholds"]).all()
