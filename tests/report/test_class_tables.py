import numpy as np
import pytest

from trustdoctor import Predictions
from trustdoctor.report.class_tables import (
    MOST_NUMBERS,
    count_tables,
    extremes,
    find_subjects,
    table_places,
)


@pytest.fixture
def rows(rng):
    logits = rng.normal(size=(400, 5))
    labels = np.where(rng.random(400) < 0.6, logits.argmax(1), rng.integers(0, 5, 400))
    return Predictions.from_logits(logits, labels)


def test_classes_and_confusions_are_counted_at_every_threshold(rows, rng):
    doubts = rng.normal(size=400).round(1)
    thresholds = np.sort(rng.normal(size=12))
    subjects, at = find_subjects(rows), np.array([0, 3, 11])
    counted = count_tables(subjects, doubts, rows.errors, thresholds, at)
    assert subjects.n_classes == len(subjects.classes) == 5
    for t, place in enumerate(at):
        accepted = doubts <= thresholds[place]
        for k, label in enumerate(subjects.classes):
            class_rows = accepted & (rows.predicted == label)
            assert counted.right[k, t] == (class_rows & ~rows.errors).sum()
            assert counted.wrong[k, t] == (class_rows & rows.errors).sum()
        for k, (label, predicted) in enumerate(subjects.pairs):
            class_rows = (rows.labels == label) & (rows.predicted == predicted)
            assert subjects.sizes[k] == class_rows.sum()
            assert counted.pairs[k, t] == (class_rows & accepted).sum()


@pytest.mark.parametrize("wide", [1000, 1])
def test_the_worst_come_first(wide, rows, monkeypatch):
    monkeypatch.setattr("trustdoctor.report.class_tables._DENSE_PAIRS", wide)
    subjects = find_subjects(rows)
    errors = [(rows.errors & (rows.predicted == k)).sum() for k in subjects.classes]
    assert errors == sorted(errors, reverse=True)
    assert subjects.sizes.tolist() == sorted(subjects.sizes, reverse=True)
    for (label, predicted), n in zip(subjects.pairs, subjects.sizes, strict=True):
        assert n == ((rows.labels == label) & (rows.predicted == predicted)).sum()


def test_many_classes_and_scores_have_fewer_thresholds(rng):
    logits = rng.normal(size=(3000, 60))
    p = Predictions.from_logits(logits, rng.integers(0, 60, 3000))
    subjects = find_subjects(p)
    assert (subjects.n_classes, len(subjects.classes)) == (60, 50)
    for scores in (1, 5, 11):
        places = table_places(subjects, 800, scores)
        numbers = len(places) * scores * (2 * 50 + len(subjects.pairs))
        assert numbers <= MOST_NUMBERS * 1.3
        assert (places[0], places[-1]) == (0, 799)
    assert table_places(subjects, 15, 5).tolist() == list(range(15))


def test_extremes_come_in_order_and_ties_by_row(rows):
    scores = np.round(np.random.default_rng(3).normal(size=400), 1)
    errors, correct = extremes(rows, scores, 10)
    expected = sorted(np.flatnonzero(rows.errors), key=lambda row: (scores[row], row))
    assert errors == expected[:10]
    expected = sorted(np.flatnonzero(~rows.errors), key=lambda row: (-scores[row], row))
    assert correct == expected[:10]
    two_rows = Predictions.from_logits([[1.0, 0], [0, 1]], [0, 0])
    assert extremes(two_rows, np.array([0.0, 1.0])) == ([1], [0])
