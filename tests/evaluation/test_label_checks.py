"""Implausible labels, and scores that do not distinguish rows, are reported."""

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import log_softmax, softmax
from scipy.stats import mannwhitneyu, norm

import trustdoctor as td
from trustdoctor import Predictions
from trustdoctor.demo import bundled_file
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.evaluation import (
    Tally,
    check_labels,
    is_constant,
    reversed_note,
)
from trustdoctor.evaluation.label_checks import label_quality, suspected_rows
from trustdoctor.evaluation.label_counts import SuspectedPair
from trustdoctor.metrics import counts


def model(seed, n=1000, classes=4):
    """Draw logits and labels that they are true about."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, classes))
    probs = softmax(logits, axis=1)
    return logits, np.argmax(probs.cumsum(1) > rng.random((n, 1)), axis=1)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_log_softmax_at_the_label(rng, dtype, temperature):
    z = (rng.normal(size=(500, 7)) * 5).astype(dtype)
    y = rng.integers(0, 7, 500)
    quality = label_quality(Predictions.from_logits(z, y), temperature=temperature)
    expected = log_softmax(z.astype(float) / temperature, axis=1)[np.arange(500), y]
    assert quality.dtype == np.float64
    np.testing.assert_allclose(quality, expected, rtol=1e-5, atol=1e-6)


def test_saturated_rows_keep_their_digits_and_their_order():
    """A softmax gives 0 or 1 for all of these."""
    z = np.array([[0.0, 800.0], [0.0, 900.0], [60.0, 0.0], [80.0, 0.0]])
    quality = label_quality(Predictions.from_logits(z, [0, 0, 0, 0]))
    with mp.workdps(60):
        exact = [-mp.log1p(mp.exp(mpf(b) - mpf(a))) for a, b in z]
    assert [float(x) for x in quality] == pytest.approx([float(x) for x in exact])
    assert np.argsort(quality).tolist() == [1, 0, 2, 3]


def test_from_probabilities_an_impossible_label_is_minus_infinity():
    p = Predictions.from_probs([[1.0, 0.0], [0.25, 0.75]], [1, 1])
    quality = label_quality(p)
    assert quality[0] == -np.inf
    assert quality[1] == pytest.approx(np.log(0.75))


def test_rows_without_a_label_are_nan(rng):
    z = rng.normal(size=(4, 3))
    quality = label_quality(Predictions.from_logits(z, [2, None, 0, None]))
    assert np.isnan(quality).tolist() == [False, True, False, True]
    all_labelled = label_quality(Predictions.from_logits(z, [2, 1, 0, 1]))
    assert quality[[0, 2]].tolist() == all_labelled[[0, 2]].tolist()


def test_rows_that_cannot_be_ranked_are_refused():
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
    shares = {"quality": [], "alpha": []}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        flipped = rng.choice(len(y), 200, replace=False)
        noisy_labels = y.copy()
        noisy_labels[flipped] = (noisy_labels[flipped] + rng.integers(1, 10, 200)) % 10
        p = Predictions.from_logits(z, noisy_labels)
        ways = {
            "quality": label_quality(p),
            "alpha": np.where(p.errors, alpha(p), np.inf),
        }
        for way, values in ways.items():
            first = np.argsort(values, kind="stable")[:200]
            shares[way].append(np.isin(first, flipped).mean())
    assert np.mean(shares["quality"]) == pytest.approx(0.83, abs=0.02)
    assert np.mean(shares["alpha"]) == pytest.approx(0.67, abs=0.03)


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


@pytest.mark.parametrize("share", [0.03, 0.18, 0.4])
def test_labels_one_row_off_are_seen_of_models_that_always_say_the_same(share):
    """Rare defaults: the predictions are right as often with any labels."""
    rng = np.random.default_rng(int(100 * share))
    detections, false_alarms = 0, []
    for _ in range(20):
        z = np.log(share / (1 - share)) + 1.5 * rng.normal(size=3000)
        probs = np.stack([1 / (1 + np.exp(z)), 1 / (1 + np.exp(-z))], 1)
        truth = (rng.random(3000) < probs[:, 1]).astype(int)

        def lines(labels, probs=probs):
            return check_labels(td.Predictions.from_probs(probs, labels)).odd

        detections += "moved up by one row" in str(lines(np.roll(truth, 1)))
        orders = (truth, np.sort(truth), rng.permutation(truth), 1 - truth)
        false_alarms += [line for y in orders for line in lines(y) if "one row" in line]
    assert detections >= 18
    assert not false_alarms


def test_adjacent_rows_of_one_patient_are_not_taken_for_shifted():
    """Most also fit the prediction of the adjacent row."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        m, patients = int(rng.integers(2, 12)), int(rng.integers(50, 300))
        z = np.repeat(2 * rng.normal(size=(patients, 3)), m, 0)
        z += rng.uniform(0.1, 1) * rng.normal(size=z.shape)
        draws = np.repeat(rng.random(patients), m) if seed % 2 else rng.random(len(z))
        labels = (softmax(z, 1).cumsum(1) > draws[:, None]).argmax(1)
        odd = check_labels(td.Predictions.from_logits(z, labels)).odd
        assert "one row" not in str(odd), seed


def test_a_constant_score_is_named_in_memory_and_in_pieces():
    rng = np.random.default_rng(0)
    hard = td.Predictions.from_probs(np.eye(3)[rng.integers(0, 3, 200)], [0, 1] * 100)
    tally = Tally()
    tally.update(hard)
    for evaluation in (td.evaluate(hard), tally.evaluate()):
        (line,) = [line for line in evaluation.warnings if "tell rows apart" in line]
        assert line.startswith("alpha, beta, msp and entropy have one value for all")


def test_a_nearly_constant_score():
    confidence = np.where(np.arange(1000) < 992, 1.0, 0.7)
    answers = td.Predictions.from_confidence(
        confidence, correct=np.arange(1000) % 9 > 0
    )
    lines = td.evaluate(answers).warnings
    assert any("confidence has one value for 99% or more" in line for line in lines)


@pytest.mark.parametrize(
    ("scores", "constant"),
    [
        ([-np.inf] * 9, True),
        (1 / 3 + 1e-9 * np.arange(9), True),
        ([-np.inf] * 8 + [0.0], False),
        (np.arange(9.0), False),
    ],
)
def test_what_is_constant(scores, constant):
    assert is_constant(counts(scores, [True] + [False] * 8)) is constant


def test_random_scores_are_not_turned():
    """One in 1,000 may be; errors below correct rows are."""
    rng = np.random.default_rng(0)
    wrong = np.arange(300) < 60
    lines = [
        reversed_note(counts(rng.normal(size=300), wrong), "s") for _ in range(300)
    ]
    assert sum(map(bool, lines)) <= 2
    answers = np.round(rng.random(300))  # ties
    for scores in (answers, np.minimum(rng.random(300), 0.02)):
        for power in (0.1, 0.25, 0.4):
            lowered = np.where(wrong & (rng.random(300) < power), scores.min(), scores)
            test = mannwhitneyu(
                lowered[wrong],
                lowered[~wrong],
                alternative="less",
                use_continuity=False,
            )
            noted = bool(reversed_note(counts(lowered, wrong), "s"))
            assert noted == (test.pvalue < norm.sf(3.1))
    turned = rng.normal(size=300) - wrong
    assert "Errors are less doubtful by s" in reversed_note(counts(turned, wrong), "s")
