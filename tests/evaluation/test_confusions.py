"""The confusion behind most errors that go out, against counting row by row."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.evaluation import DominantConfusion, dominant_confusion

NAMES = ["no default", "default"]


def by_hand(labels, predicted, accepted):
    """Count row by row; return None or the six facts."""
    rows = list(
        zip(labels.tolist(), predicted.tolist(), accepted.tolist(), strict=True)
    )
    out = Counter((y, k) for y, k, goes in rows if goes and y not in (k, -1))
    if out.total() < 10:
        return None
    (y, k), n = out.most_common(1)[0]
    if Fraction(n, out.total()) < Fraction(2, 3):
        return None
    of_label = [guess for label, guess, _ in rows if label == y]
    facts = (f"class {y}", f"class {k}", n, out.total(), of_label.count(k))
    return DominantConfusion(*facts, len(of_label))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_it_is_what_counting_row_by_row_finds(classes):
    rng = np.random.default_rng(classes)
    confusions = []
    for _ in range(300):
        n = int(rng.integers(1, 200))
        labels = rng.integers(-1, classes, n)  # -1: not known
        wrong = rng.random(n) < rng.random()
        wrong &= (labels == 1) | (rng.random(n) < rng.random() / classes)
        missed = (labels == 1) & (rng.random(n) < 0.9)
        other = np.where(missed, 0, rng.integers(0, classes, n))
        predicted = np.where(wrong, other, np.maximum(labels, 0))
        accepted = rng.random(n) < rng.random()
        confusions.append(dominant_confusion(labels, predicted, accepted))
        assert confusions[-1] == by_hand(labels, predicted, accepted)
    dominant = sum(confusion is not None for confusion in confusions)
    assert 10 < dominant < 290  # both answers occur


def loans():
    """790 defaults of which 315 are missed; 66 of these and 4 false alarms go out."""
    labels = np.repeat([1, 1, 0, 0], [315, 475, 5000, 100])
    predicted = np.repeat([0, 1, 0, 1], [315, 475, 5000, 100])
    accepted = labels == predicted
    accepted[:66] = accepted[-4:] = True
    return labels, predicted, accepted


WORDS = (
    "66 of the 70 errors that go out are 'default' predicted as 'no default'; of all "
    "790 rows labelled 'default', 315 are predicted as 'no default'."
)


def test_it_says_so_in_one_sentence():
    confusion = dominant_confusion(*loans(), NAMES)
    assert confusion.sentence() == WORDS
    order = np.random.default_rng(0).permutation(5890)
    assert dominant_confusion(*(rows[order] for rows in loans()), NAMES) == confusion
    labels, predicted, accepted = loans()
    accepted[-4:] = False
    confusion = dominant_confusion(labels, predicted, accepted)
    assert confusion.sentence().startswith(
        "All 66 errors that go out are class 1 predicted as class 0; of all 790 rows"
    )


@pytest.mark.parametrize(
    ("sizes", "dominates"),
    [((10, 5), True), ((10, 6), False), ((9, 0), False), ((10, 0), True)],
)
def test_two_thirds_of_ten_errors_dominate(sizes, dominates):
    labels = np.repeat([1, 0, 0], [*sizes, 20])
    predicted = np.repeat([0, 1, 0], [*sizes, 20])
    confusion = dominant_confusion(labels, predicted, np.ones(len(labels), bool))
    assert (confusion is not None) == dominates


def test_predictions_bring_their_metadata():
    labels, predicted, accepted = loans()
    probs = np.where(predicted[:, None] == [0, 1], 0.9, 0.1)
    p = td.Predictions.from_probs(probs, labels, class_names=NAMES)
    assert DominantConfusion.of(p, accepted).sentence() == WORDS
    texts = [np.array(NAMES)[codes] for codes in (predicted, labels)]
    answers = td.Predictions.from_confidence(
        probs.max(1), predicted=texts[0], labels=texts[1]
    )
    assert DominantConfusion.of(answers, accepted).sentence() == WORDS
    # Where only right and wrong are known, nobody knows what would have been right.
    correct = labels == predicted
    for options in ({}, {"predicted": texts[0]}):
        judged = td.Predictions.from_confidence(probs.max(1), correct, **options)
        assert DominantConfusion.of(judged, accepted) is None
    assert DominantConfusion.of(td.Predictions.from_probs(probs), accepted) is None


def test_columns_of_another_kind_are_refused():
    labels, predicted, accepted = loans()
    for columns in (
        (labels[1:], predicted, accepted),
        (labels.astype(str), predicted, accepted),
        (labels, predicted, accepted.astype(int)),
    ):
        with pytest.raises(InputError, match="accepted as booleans, one each per row"):
            dominant_confusion(*columns)
