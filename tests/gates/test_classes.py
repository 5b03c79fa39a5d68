"""A gate knows the classes of its calibration, and refuses rows of others."""

import json

import laws
import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates.outcome import ClassCounts

ROWS = laws.rows(1200)  # of four classes


def named(names, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(rows, len(names)))
    labels = np.where(rng.random(rows) < 0.8, z.argmax(1), 0)
    return td.Predictions.from_logits(z, labels, class_names=list(names))


def reloaded(gate, path):
    gate.save(path)
    return td.Gate.load(path)


def test_rows_of_another_number_of_classes_are_refused(tmp_path):
    gate = reloaded(td.calibrate(ROWS, frr=0.1), tmp_path / "gate.json")
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
    gate = reloaded(td.calibrate(named("abc"), frr=0.2), tmp_path / "gate.json")
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


def moved_probs(n=4000, seed=0):
    """A binary model that says "yes" from a probability of 0.2 on, as systems do.

    Doubt follows the decision, so that a "yes" at 0.25 is most doubtful of all.
    """
    rng = np.random.default_rng(seed)
    yes = np.where(
        rng.random(n) < 0.1, rng.uniform(0.2, 0.5, n), rng.beta(1, 30, n) * 0.6
    )
    yes[rng.random(n) < 0.003] = 0.97
    labels = (rng.random(n) < yes).astype(int)
    return np.c_[1 - yes, yes], labels


def moved():
    return td.Predictions.from_probs(
        *moved_probs(), class_names=["no", "yes"], cutoff=0.2
    )


def careful(gate):
    return [note for note in gate.certificate.notes if "accepted (" in note]


def test_a_class_that_is_never_accepted_is_reported():
    """The issue's case: about 1% of the predicted positives, and most negatives."""
    p = moved()
    gate = td.calibrate(p, frr=0.1)
    accepted = gate.screen(p).accepted
    shares = [accepted[p.predicted == c].mean() for c in (0, 1)]
    assert shares[0] > 0.9
    assert shares[1] < 0.05
    (note,) = careful(gate)
    n, k = (p.predicted == 1).sum(), accepted[p.predicted == 1].sum()
    assert note.startswith(f"Careful: {k} of {n} rows predicted 'yes' ")
    assert f"accepted ({shares[1]:.1%}), of the others {shares[0]:.1%}. " in note
    assert "groups='predicted'" in note
    per_class = td.calibrate(p, frr=0.1, groups="predicted")
    assert not careful(per_class)
    assert per_class.screen(p).accepted[p.predicted == 1].mean() > 0.5


def test_ordinary_gates_say_nothing_of_their_classes():
    """None of 200: classes of unlike sizes and difficulties."""
    rng = np.random.default_rng(0)
    targets = [{"frr": 0.05}, {"frr": 0.3}, {"coverage": 0.6}, {"trr": 0.7}]
    for i in range(200):
        classes = int(rng.integers(2, 8))
        z = 3 * rng.normal(size=(800, classes)) + rng.normal(size=classes)
        labels = (z + rng.gumbel(size=z.shape)).argmax(1)
        gate = td.calibrate(td.Predictions.from_logits(z, labels), **targets[i % 4])
        assert not careful(gate), i


COUNTS = {
    "fewer than 30 rows": ([900, 29], [850, 0], ""),
    "exactly 1 in 20": ([900, 100], [850, 5], ""),
    "below 1 in 20": ([900, 100], [850, 4], "4 of 100 rows predicted 1 are accepted"),
    "one row": ([900, 100], [850, 1], "1 of 100 rows predicted 1 is accepted"),
    "few of all classes": ([900, 100], [170, 0], ""),
    "nothing at all": ([900, 100], [0, 0], ""),
    "no rows": ([0, 0], [0, 0], ""),
    "one class": ([900, 0], [0, 0], ""),
    "two more": ([900, 40, 50, 30], [800, 0, 0, 1], "50 rows predicted 2"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_which_counts_are_reported(case):
    rows, accepted, expected = COUNTS[case]
    line = ClassCounts(np.array(rows), np.array(accepted)).neglected()
    assert (expected in line) if expected else line == ""
    assert ("and 2 more classes hardly ever" in line) == (case == "two more")


def test_many_classes_are_counted_as_they_are_accepted():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(5000, 300))
    names = [f"class {i}" for i in range(300)]
    p = td.Predictions.from_logits(z, class_names=names)
    accepted = (rng.random(5000) < 0.7) & (p.predicted != 7)
    z[:60] = 0
    z[:60, 7] = 9
    p = td.Predictions.from_logits(z, class_names=names)
    accepted = (rng.random(5000) < 0.7) & (p.predicted != 7)
    n = (p.predicted == 7).sum()
    line = ClassCounts.of(p, accepted).neglected()
    assert line.startswith(f"Careful: 0 of {n} rows predicted 'class 7' are accepted")


def test_counts_of_batches_add_up_to_those_of_all():
    p = moved()
    accepted = td.calibrate(p, frr=0.1).screen(p).accepted
    total = ClassCounts.of(p, accepted)
    batches = [
        ClassCounts.of(p[rows], accepted[rows])
        for rows in np.split(np.arange(4000), [10, 11, 3000])
    ]
    merged = batches[0] + batches[1] + batches[2] + batches[3]
    assert np.array_equal(merged.rows, np.bincount(p.predicted))
    assert np.array_equal(merged.accepted, total.accepted)
    assert merged.neglected() == total.neglected() != ""


def test_screen_says_it_and_not_of_a_gate_per_class(tmp_path, run):
    probs, labels = moved_probs()
    table = {"prob_no": probs[:, 0], "prob_yes": probs[:, 1], "label": labels}
    pl.DataFrame(table).with_columns(
        pl.col("label").replace_strict({0: "no", 1: "yes"})
    ).write_csv(tmp_path / "rows.csv")
    for name, more in (("plain", []), ("per", ["--per-class"])):
        common = ["rows.csv", "--cutoff", "0.2"]
        options = ["--frr", "0.1", "-o", f"{name}.json", *more]
        completed = run("calibrate", *common, *options, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert ("rows predicted 'yes'" in completed.stdout) == (name == "plain")
        completed = run("screen", *common, "--gate", f"{name}.json", cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert ("rows predicted 'yes'" in completed.stdout) == (name == "plain")
