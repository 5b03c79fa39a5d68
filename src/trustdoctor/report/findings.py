"""What the page shows beside the metrics: classes, confusions, and single rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import Share, share
from trustdoctor.predictions import Answers, Predictions

MOST_CLASSES = 50
MOST_PAIRS = 15
MOST_ROWS = 10


@dataclass(frozen=True)
class ClassRow:
    """How rows predicted as one class fare at a threshold."""

    label: int
    n: int
    accuracy: Share
    frr: Share
    trr: Share
    risk: Share


@dataclass(frozen=True)
class Pair:
    """A confusion: so many rows of one class were predicted as another."""

    label: int
    predicted: int
    n: int
    accepted: int


def by_class(
    predictions: Predictions, accepted: Array, confidence: float
) -> list[ClassRow]:
    """Return the predicted classes, those whose accepted rows err most first."""
    if predictions.class_names is None and isinstance(predictions, Answers):
        return []  # what was answered is not known
    wrong, predicted = predictions.errors, predictions.predicted
    size = int(predicted.max()) + 1
    tallies = {
        key: np.bincount(predicted[rows], minlength=size)
        for key, rows in (
            ("correct", ~wrong),
            ("errors", wrong),
            ("accepted correct", ~wrong & accepted),
            ("accepted errors", wrong & accepted),
        )
    }
    out = []
    for label in np.flatnonzero(tallies["correct"] + tallies["errors"]):
        correct, errors, kept, slipped = (int(t[label]) for t in tallies.values())
        out.append(
            ClassRow(
                int(label),
                correct + errors,
                share(correct, correct + errors, confidence=confidence),
                share(correct - kept, correct, confidence=confidence),
                share(errors - slipped, errors, confidence=confidence),
                share(slipped, kept + slipped, confidence=confidence),
            )
        )
    return sorted(out, key=lambda row: (-(row.risk.value or 0.0), row.label))


def confusions(predictions: Predictions, accepted: Array) -> list[Pair]:
    """Return the confusions that are accepted most often though wrong."""
    if isinstance(predictions, Answers) and predictions.judged:
        return []  # what would have been right is not known
    labels = predictions.require_labels("confusions")
    wrong, predicted = predictions.errors, predictions.predicted
    pairs, where = np.unique(
        np.stack([labels[wrong], predicted[wrong]], 1), axis=0, return_inverse=True
    )
    where = where.ravel()
    n = np.bincount(where, minlength=len(pairs))
    slipped = np.bincount(where, accepted[wrong], len(pairs)).astype(np.int64)
    order = np.lexsort([-n, -slipped])[:MOST_PAIRS]
    return [
        Pair(int(pairs[i, 0]), int(pairs[i, 1]), int(n[i]), int(slipped[i]))
        for i in order
        if slipped[i]
    ]


def extremes(
    predictions: Predictions, scores: Array
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the most confident errors and the most doubtful correct rows."""
    wrong = predictions.errors
    errors, correct = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    return _least(scores[errors], errors), _least(-scores[correct], correct)


def _least(values: Array, rows: Array) -> Any:
    """Return the rows of the few least values, the least first; ties by row."""
    if len(values) > MOST_ROWS:
        bound = np.partition(values, MOST_ROWS - 1)[MOST_ROWS - 1]
        near = np.flatnonzero(values <= bound)
    else:
        near = np.arange(len(values))
    order = np.lexsort([rows[near], values[near]])[:MOST_ROWS]
    return rows[near][order].tolist()
