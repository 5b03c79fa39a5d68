"""Rows that are copies of others, and rows that merely look alike."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.evaluation import check_labels, repeated_rows

SHARED = Path(os.environ.get("TRUSTDOCTOR_SHARED", "../shared"))


def model(seed, n=1000, classes=4):
    """Draw logits and labels that they are true about."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, classes))
    probs = softmax(logits, axis=1)
    return logits, np.argmax(probs.cumsum(1) > rng.random((n, 1)), axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_copies_are_counted(dtype, classes, kind):
    logits, labels = model(0, n=700, classes=classes)
    every = np.r_[np.arange(700), np.arange(0, 600, 2)]
    mixed = np.random.default_rng(1).permutation(every)
    make = td.Predictions.from_logits
    values = logits.astype(dtype)
    if kind == "probs":
        make, values = td.Predictions.from_probs, softmax(logits, 1).astype(dtype)
    (line,) = repeated_rows(make(values[mixed], labels[mixed]))
    twins = [tuple(np.flatnonzero(mixed == row)[:2]) for row in mixed]
    second = min(pair[1] for pair in twins if len(pair) > 1)
    first = next(pair[0] for pair in twins if len(pair) > 1 and pair[1] == second)
    assert line.startswith("300 of 1,000 rows repeat an earlier one")
    assert f"at rows {first} and {second}:" in line
    assert line in td.evaluate(make(values[mixed], labels[mixed])).warnings


@pytest.mark.parametrize("hole", [-np.inf, -1e308])
def test_copies_of_rows_with_masked_classes_are_counted(hole):
    """Where a masked class left a warning of NumPy's on standard error."""
    logits, labels = model(0, n=700)
    logits[np.arange(700), logits.argmin(1)] = hole
    every = np.r_[np.arange(700), np.arange(300)]
    (line,) = repeated_rows(td.Predictions.from_logits(logits[every], labels[every]))
    assert line.startswith("300 of 1,000 rows repeat an earlier one")


def rounded(seed, digits):
    logits, labels = model(seed, classes=int(2 + seed % 3))
    probs = softmax(logits, axis=1).round(digits)
    return td.Predictions.from_probs(probs / probs.sum(1, keepdims=True), labels)


def leaves(seed):
    """A decision tree: 40 leaves, whose rows are independent."""
    rng = np.random.default_rng(seed)
    probs = softmax(2 * rng.normal(size=(40, 3)), axis=1)[rng.integers(0, 40, 2000)]
    labels = np.argmax(probs.cumsum(1) > rng.random((2000, 1)), axis=1)
    return td.Predictions.from_probs(probs, labels)


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: td.Predictions.from_logits(*model(seed)),
        lambda seed: rounded(seed, 1),
        lambda seed: rounded(seed, 2),
        lambda seed: rounded(seed, 3),
        leaves,
    ],
    ids=["exact", "1 digit", "2 digits", "3 digits", "tree"],
)
def test_rows_that_look_alike_by_chance_are_no_copies(draw):
    assert [seed for seed in range(100) if repeated_rows(draw(seed))] == []


def test_real_copies_of_reviews():
    file = SHARED / "predictions" / "minilm-imdb-amazon-fashion-test.npz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    p = td.read(file)
    table = np.column_stack([p.logits, p.labels])
    copies = len(p) - len(np.unique(table, axis=0))
    assert repeated_rows(p)[0].startswith(f"{copies:,} of 2,823 rows repeat")


def test_labels_of_some_rows_alone_are_checked_in_their_place():
    logits, labels = model(2, n=900)
    off = np.roll(labels, -1)
    off = np.where(np.arange(900) % 4 == 0, -1, off).astype(object)
    off[off == -1] = None
    report = check_labels(td.Predictions.from_logits(logits, off))
    assert "moved down by one row" in report.odd[0]


def test_a_label_in_other_letters_is_named_with_its_class():
    with pytest.raises(td.errors.InputError, match="differs from 'cat' only in case"):
        td.Predictions.from_logits([[1.0, 0]], ["Cat"], class_names=["cat", "dog"])


@pytest.mark.parametrize("correct", [True, False])
def test_a_file_that_is_given_twice(correct, monkeypatch):
    """All rows are copies, with errors or none; a part of them is enough to tell."""
    logits, labels = model(3, n=800, classes=3)
    labels = logits.argmax(1) if correct else labels
    p = td.Predictions.from_logits(np.r_[logits, logits], np.r_[labels, labels])
    (line,) = repeated_rows(p)
    assert line.startswith("800 of 1,600 rows repeat an earlier one")
    monkeypatch.setattr("trustdoctor.evaluation.suspect_rows._JUDGED", 700)
    assert repeated_rows(p) == (line,)


@pytest.mark.parametrize("share", [0.03, 0.18, 0.4])
def test_labels_one_row_off_are_seen_of_models_that_always_say_the_same(share):
    """Rare defaults: the predictions are right as often with any labels."""
    rng = np.random.default_rng(int(100 * share))
    seen, false = 0, []
    for _ in range(20):
        z = np.log(share / (1 - share)) + 1.5 * rng.normal(size=3000)
        probs = np.stack([1 / (1 + np.exp(z)), 1 / (1 + np.exp(-z))], 1)
        truth = (rng.random(3000) < probs[:, 1]).astype(int)

        def lines(labels, probs=probs):
            return check_labels(td.Predictions.from_probs(probs, labels)).odd

        seen += "moved up by one row" in str(lines(np.roll(truth, 1)))
        others = (truth, np.sort(truth), rng.permutation(truth), 1 - truth)
        false += [line for y in others for line in lines(y) if "one row" in line]
    assert seen >= 18
    assert not false


def test_rows_of_one_patient_beside_one_another_are_not_shifted():
    """Most fit the prediction of the row beside, too."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        m, patients = int(rng.integers(2, 12)), int(rng.integers(50, 300))
        z = np.repeat(2 * rng.normal(size=(patients, 3)), m, 0)
        z += rng.uniform(0.1, 1) * rng.normal(size=z.shape)
        draws = np.repeat(rng.random(patients), m) if seed % 2 else rng.random(len(z))
        labels = (softmax(z, 1).cumsum(1) > draws[:, None]).argmax(1)
        odd = check_labels(td.Predictions.from_logits(z, labels)).odd
        assert "one row" not in str(odd), seed
