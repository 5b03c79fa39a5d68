"""Label quality is log p(label); repeated rows are found, and no others."""

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import log_softmax

from trustdoctor import Predictions
from trustdoctor.demo import bundled_file
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.evaluation.suspect_rows import (
    label_quality,
    repeats,
    suspected_rows,
)
from trustdoctor.evaluation.suspicions import SuspectedPair


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_log_softmax_at_the_label(rng, dtype, temperature):
    z = (rng.normal(size=(500, 7)) * 5).astype(dtype)
    y = rng.integers(0, 7, 500)
    found = label_quality(Predictions.from_logits(z, y), temperature=temperature)
    expected = log_softmax(z.astype(float) / temperature, axis=1)[np.arange(500), y]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_saturated_rows_keep_their_digits_and_their_order():
    """A softmax gives 0 or 1 for all of these."""
    z = np.array([[0.0, 800.0], [0.0, 900.0], [60.0, 0.0], [80.0, 0.0]])
    found = label_quality(Predictions.from_logits(z, [0, 0, 0, 0]))
    with mp.workdps(60):
        exact = [-mp.log1p(mp.exp(mpf(b) - mpf(a))) for a, b in z]
    assert [float(x) for x in found] == pytest.approx([float(x) for x in exact])
    assert np.argsort(found).tolist() == [1, 0, 2, 3]


def test_from_probabilities_an_impossible_label_is_minus_infinity():
    p = Predictions.from_probs([[1.0, 0.0], [0.25, 0.75]], [1, 1])
    found = label_quality(p)
    assert found[0] == -np.inf
    assert found[1] == pytest.approx(np.log(0.75))


def test_rows_without_a_label_are_nan(rng):
    z = rng.normal(size=(4, 3))
    found = label_quality(Predictions.from_logits(z, [2, None, 0, None]))
    assert np.isnan(found).tolist() == [False, True, False, True]
    whole = label_quality(Predictions.from_logits(z, [2, 1, 0, 1]))
    assert found[[0, 2]].tolist() == whole[[0, 2]].tolist()


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(LabelsMissingError, match="label quality"):
        label_quality(Predictions.from_logits([[1.0, 0.0]]))
    with pytest.raises(InputError, match="probability of the label"):
        label_quality(Predictions.from_confidence([0.9], [True]))
    with pytest.raises(InputError, match="from_logits"):
        label_quality(np.zeros((3, 2)))


def test_flipped_labels_come_first_more_often_than_by_alpha():
    """The figures of benchmarks/labels.py, on the bundled rows."""
    from trustdoctor import alpha

    with np.load(bundled_file()) as file:
        z, y = file["logits"], file["labels"].astype(int)
    found = {"quality": [], "alpha": []}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        flipped = rng.choice(len(y), 200, replace=False)
        given = y.copy()
        given[flipped] = (given[flipped] + rng.integers(1, 10, 200)) % 10
        p = Predictions.from_logits(z, given)
        ways = {
            "quality": label_quality(p),
            "alpha": np.where(p.errors, alpha(p), np.inf),
        }
        for way, values in ways.items():
            first = np.argsort(values, kind="stable")[:200]
            found[way].append(np.isin(first, flipped).mean())
    assert np.mean(found["quality"]) == pytest.approx(0.83, abs=0.02)
    assert np.mean(found["alpha"]) == pytest.approx(0.67, abs=0.03)


def test_rows_of_a_pair_are_ranked(rng):
    z = rng.normal(size=(300, 3))
    y = rng.integers(0, 3, 300)
    p = Predictions.from_logits(z, y)
    rows = suspected_rows(p, SuspectedPair(2, 0, 1, 1, 0.9, 0.9))
    expected = [i for i in range(300) if y[i] == 2 and z[i].argmax() == 0]
    assert sorted(rows.tolist()) == expected
    assert np.all(np.diff(log_softmax(z, axis=1)[rows, 2]) >= 0)


def test_rows_of_a_pair_of_answers_are_found_by_name():
    p = Predictions.from_confidence(
        [0.9, 0.8, 0.7], predicted=["b", "a", "b"], labels=["a", "a", "a"]
    )
    assert suspected_rows(p, SuspectedPair("a", "b", 2, 3, 0.8, 0.8)).tolist() == [0, 2]


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


def test_what_is_missing_does_not_repeat():
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
    seen, again = set(), []
    for i, row in enumerate(x):
        key = tuple(row + 0.0)
        if key in seen:
            again.append(i)
        seen.add(key)
    (line,) = repeats(features=x)
    first = next(i for i in range(400) if (x[i] == x[again[0]]).all())
    assert line.startswith(f"{len(again)} rows repeat the features of an earlier row")
    assert f"at rows {first} and {again[0]}:" in line


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_features_that_nearly_repeat_do_not(dtype, rng):
    x = rng.permutation(np.arange(2000)).astype(dtype)[:, None] * np.ones((1, 3), dtype)
    x[:, 1:] = 1
    assert repeats(features=x) == ()


def test_one_line_each():
    lines = repeats(ids=[1, 1], texts=["a", "a"], features=[[1.0], [1.0]])
    told = [line.split(" of an earlier row")[0].split()[-1] for line in lines]
    assert told == ["id", "text", "features"]
