"""Repeated rows are counted, and rows that only look alike are not."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.evaluation import repeated_rows, repeats

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
def test_rows_alike_by_chance_are_not_copies(draw):
    assert [seed for seed in range(100) if repeated_rows(draw(seed))] == []


def test_real_copies_of_reviews():
    file = SHARED / "predictions" / "minilm-imdb-amazon-fashion-test.npz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    p = td.read(file)
    table = np.column_stack([p.logits, p.labels])
    copies = len(p) - len(np.unique(table, axis=0))
    assert repeated_rows(p)[0].startswith(f"{copies:,} of 2,823 rows repeat")


@pytest.mark.parametrize("correct", [True, False])
def test_a_file_that_is_given_twice(correct, monkeypatch):
    """All rows are copies, with errors or without; a sample is enough to see it."""
    logits, labels = model(3, n=800, classes=3)
    labels = logits.argmax(1) if correct else labels
    p = td.Predictions.from_logits(np.r_[logits, logits], np.r_[labels, labels])
    (line,) = repeated_rows(p)
    assert line.startswith("800 of 1,600 rows repeat an earlier one")
    monkeypatch.setattr("trustdoctor.evaluation.duplicates._SAMPLE_ROWS", 700)
    assert repeated_rows(p) == (line,)


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "a", "c", "a"],
        np.array([4, 5, 4, 6, 4]),
        np.array(["a", "b", "a", "c", "a"], dtype=object),
        np.array([0.5, 1.5, 0.5, np.nan, 0.5]),
    ],
)
def test_repeated_ids_are_counted_and_shown(ids):
    (line,) = repeats(ids=ids)
    assert line.startswith("2 rows repeat the id of an earlier row, the first ")
    assert "at rows 0 and 2" in line


def test_missing_values_are_not_duplicates():
    assert repeats(ids=[None, "a", None, "b"]) == ()
    assert repeats(ids=np.array([np.nan, 1.0, np.nan])) == ()
    assert repeats(texts=np.array(["x", float("nan"), float("nan")], object)) == ()
    assert repeats() == ()


def test_a_long_text_is_cut():
    (line,) = repeats(texts=["word " * 100, "other", "word " * 100])
    assert line.startswith("1 row repeats the text of an earlier row")
    assert len(line) < 200


def test_features_repeat_where_all_numbers_do(rng):
    x = rng.integers(0, 3, (400, 4)).astype(float)
    x[5] = -0.0
    x[9] = 0.0
    seen_rows, repeated = set(), []
    for i, row in enumerate(x):
        key = tuple(row + 0.0)
        if key in seen_rows:
            repeated.append(i)
        seen_rows.add(key)
    (line,) = repeats(features=x)
    first = next(i for i in range(400) if (x[i] == x[repeated[0]]).all())
    assert line.startswith(
        f"{len(repeated)} rows repeat the features of an earlier row"
    )
    assert f"at rows {first} and {repeated[0]}:" in line


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_features_that_nearly_repeat_do_not(dtype, rng):
    x = rng.permutation(np.arange(2000)).astype(dtype)[:, None] * np.ones((1, 3), dtype)
    x[:, 1:] = 1
    assert repeats(features=x) == ()


def test_one_line_each():
    lines = repeats(ids=[1, 1], texts=["a", "a"], features=[[1.0], [1.0]])
    first_words = [line.split(" of an earlier row")[0].split()[-1] for line in lines]
    assert first_words == ["id", "text", "features"]
