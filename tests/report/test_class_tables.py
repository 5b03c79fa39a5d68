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
    found, at = find_subjects(rows), np.array([0, 3, 11])
    counted = count_tables(found, doubts, rows.errors, thresholds, at)
    assert found.n_classes == len(found.classes) == 5
    for t, place in enumerate(at):
        kept = doubts <= thresholds[place]
        for k, label in enumerate(found.classes):
            own = kept & (rows.predicted == label)
            assert counted.right[k, t] == (own & ~rows.errors).sum()
            assert counted.wrong[k, t] == (own & rows.errors).sum()
        for k, (label, predicted) in enumerate(found.pairs):
            own = (rows.labels == label) & (rows.predicted == predicted)
            assert found.sizes[k] == own.sum()
            assert counted.pairs[k, t] == (own & kept).sum()


@pytest.mark.parametrize("wide", [1000, 1])
def test_the_worst_come_first(wide, rows, monkeypatch):
    monkeypatch.setattr("trustdoctor.report.class_tables._DENSE_PAIRS", wide)
    found = find_subjects(rows)
    errors = [(rows.errors & (rows.predicted == k)).sum() for k in found.classes]
    assert errors == sorted(errors, reverse=True)
    assert found.sizes.tolist() == sorted(found.sizes, reverse=True)
    for (label, predicted), n in zip(found.pairs, found.sizes, strict=True):
        assert n == ((rows.labels == label) & (rows.predicted == predicted)).sum()


def test_many_classes_and_scores_have_fewer_thresholds(rng):
    logits = rng.normal(size=(3000, 60))
    p = Predictions.from_logits(logits, rng.integers(0, 60, 3000))
    found = find_subjects(p)
    assert (found.n_classes, len(found.classes)) == (60, 50)
    for scores in (1, 5, 11):
        places = table_places(found, 800, scores)
        numbers = len(places) * scores * (2 * 50 + len(found.pairs))
        assert numbers <= MOST_NUMBERS * 1.3
        assert (places[0], places[-1]) == (0, 799)
    assert table_places(found, 15, 5).tolist() == list(range(15))


def test_extremes_come_in_order_and_ties_by_row(rows):
    scores = np.round(np.random.default_rng(3).normal(size=400), 1)
    errors, correct = extremes(rows, scores, 10)
    wanted = sorted(np.flatnonzero(rows.errors), key=lambda row: (scores[row], row))
    assert errors == wanted[:10]
    wanted = sorted(np.flatnonzero(~rows.errors), key=lambda row: (-scores[row], row))
    assert correct == wanted[:10]
    few = Predictions.from_logits([[1.0, 0], [0, 1]], [0, 0])
    assert extremes(few, np.array([0.0, 1.0])) == ([1], [0])
