"""A gate knows the classes of its calibration, and refuses rows of others."""

import json

import laws
import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError

ROWS = laws.rows(1200)  # of four classes


def named(names, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(rows, len(names)))
    labels = np.where(rng.random(rows) < 0.8, z.argmax(1), 0)
    return td.Predictions.from_logits(z, labels, class_names=list(names))


def again(gate, path):
    gate.save(path)
    return td.Gate.load(path)


def test_rows_of_another_number_of_classes_are_refused(tmp_path):
    gate = again(td.calibrate(ROWS, frr=0.1), tmp_path / "gate.json")
    assert gate.classes == 4
    assert len(gate.screen(ROWS).accepted) == 1200
    match = "expected rows of 4 classes, as in the gate's calibration, got 2. Calibrate"
    with pytest.raises(InputError, match=match):
        gate.screen([[1.0, 0.0]], kind="logits")
    with pytest.raises(InputError, match=match):
        gate.watch().update(td.Predictions.from_probs([[0.5, 0.5]]))
    with pytest.raises(InputError, match="got 9"):
        gate.screen(td.Predictions.from_topk([[0.9, 0.05]], [[0, 1]], n_classes=9))
    open_ended = td.Predictions.from_topk([[0.9, 0.05]], [[0, 1]])
    assert len(gate.screen(open_ended).accepted) == 1


def test_names_count_and_their_order_does_not(tmp_path):
    gate = again(td.calibrate(named("abc"), frr=0.2), tmp_path / "gate.json")
    assert gate.classes == ("a", "b", "c")
    rows = named("abc", seed=1)
    turned = td.Predictions.from_logits(
        rows.logits[:, ::-1], class_names=["c", "b", "a"]
    )
    assert np.array_equal(gate.screen(turned).accepted, gate.screen(rows).accepted)
    assert len(gate.screen(td.Predictions.from_logits(rows.logits)).accepted) == 400
    with pytest.raises(InputError, match="got 'd', which is none of them"):
        gate.screen(named("abd"))


def test_of_a_binary_model_one_name_may_be_made_up():
    """Without labels `--positive spam` calls the other class "not spam"."""
    gate = td.calibrate(named(["ham", "spam"]), frr=0.2)
    assert len(gate.screen(named(["not spam", "spam"])).accepted) == 400
    with pytest.raises(InputError, match="which is none of them"):
        gate.screen(named(["cat", "dog"]))


def test_their_order_counts_for_scores_that_tell_classes_by_place():
    score = td.RelU.fit(named("abc"))
    gate = td.calibrate(named("abc", seed=1), score=score, frr=0.2)
    with pytest.raises(InputError, match="in the order of the gate's calibration"):
        gate.screen(named("cba"))
    assert len(gate.screen(named("abc", seed=2)).accepted) == 400


def test_answers_and_gates_without_classes_are_as_they_were():
    rng = np.random.default_rng(0)
    answers = td.Predictions.from_confidence(rng.random(300), rng.random(300) < 0.9)
    gate = td.calibrate(answers, coverage=0.5)
    assert gate.classes is None
    assert "classes" not in json.loads(gate.to_json())
    assert (
        len(td.Gate.from_gamma(1.0).screen([[1.0, 0.0]], kind="logits").accepted) == 1
    )


@pytest.mark.parametrize(
    "classes", [0, 1, -2, True, 2.0, "ab", [], ["a"], ["a", "a"], ["a", 1], {}], ids=str
)
def test_classes_that_cannot_be_are_refused(classes, tmp_path):
    path = tmp_path / "gate.json"
    td.Gate.from_gamma(1.0).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": classes}))
    with pytest.raises(FileError, match="is not valid"):
        td.Gate.load(path)
