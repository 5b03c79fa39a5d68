"""What the page shows beside the metrics: classes, confusions, and single rows.

All of it follows the threshold and the score, so the page has counts for many
thresholds of each score. Where those of all would be too many, it has fewer of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.predictions import Predictions

MOST_CLASSES = 50
MOST_PAIRS = 15
MOST_ROWS = 50
"""Rows of each kind and score; fewer where each has a text or a picture."""

_WIDE = 1000  # classes; with fewer all pairs of them are counted

MOST_NUMBERS = 20_000
"""Counts that a page has for its tables, of all scores together."""


@dataclass(frozen=True)
class Subjects:
    """The classes and confusions that a page counts, whatever the threshold.

    Attributes
    ----------
    classes : integer array (k,)
        Predicted classes, those with the most errors first.
    n_classes : int
        How many there are; `classes` may be fewer.
    pairs : integer array (m, 2)
        Labels and predicted classes of the confusions with the most rows.
    sizes : integer array (m,)
        Their rows.
    of_class, of_pair : integer arrays (n,)
        For each row where its class and its confusion stand in these; -1 for none.
    """

    classes: Array
    n_classes: int
    pairs: Array
    sizes: Array
    of_class: Array
    of_pair: Array


@dataclass(frozen=True)
class Counted:
    """What thresholds of one score accept: right and wrong rows by class and confusion.

    Attributes
    ----------
    at : integer array (t,)
        Which of the slider's thresholds they are.
    right, wrong : integer arrays (k, t)
        Accepted rows predicted as each class.
    pairs : integer array (m, t)
        Accepted rows of each confusion.
    """

    at: Array
    right: Array
    wrong: Array
    pairs: Array


def find_subjects(predictions: Predictions) -> Subjects:
    """Choose the classes and confusions to count."""
    wrong, n = predictions.errors, len(predictions)
    nothing = np.zeros(0, np.int64)
    classes, of_class, seen = nothing, np.full(n, -1), 0
    if predictions.answers_known:
        predicted, answered = predictions.predicted, ~predictions.abstained
        size = int(predicted.max()) + 1
        rows = np.bincount(predicted[answered], minlength=size)
        errors = np.bincount(predicted[wrong & answered], minlength=size)
        there = np.flatnonzero(rows)
        seen = len(there)
        order = np.lexsort([there, -rows[there], -errors[there]])
        classes = there[order][:MOST_CLASSES]
        places = np.full(size, -1)
        places[classes] = np.arange(len(classes))
        of_class = np.where(answered, places[predicted], -1) if size else of_class
    pairs, sizes, of_pair = _pairs(predictions)
    return Subjects(classes, seen, pairs, sizes, of_class, of_pair)


def _pairs(predictions: Predictions) -> tuple[Array, Array, Array]:
    """Return the largest confusions, their rows, and where each row belongs."""
    wrong = predictions.errors & ~predictions.abstained
    of_pair = np.full(len(predictions), -1)
    if predictions.correctness_only:
        # What would have been right is not known.
        return np.zeros((0, 2), np.int64), np.zeros(0, np.int64), of_pair
    label = predictions.require_labels("confusions")[wrong].astype(np.int64)
    said = predictions.predicted[wrong].astype(np.int64)
    wide = int(max(label.max(initial=0), said.max(initial=0))) + 1
    codes = label * wide + said
    kinds: Array = np.arange(wide * wide)
    if wide > _WIDE:  # too many to count without looking which there are
        kinds, codes = np.unique(codes, return_inverse=True)
    sizes = np.bincount(codes, minlength=len(kinds))
    order = np.lexsort([kinds, -sizes])[:MOST_PAIRS]
    order = order[sizes[order] > 0]
    places = np.full(len(kinds), -1)
    places[order] = np.arange(len(order))
    of_pair[wrong] = places[codes]
    return np.stack(np.divmod(kinds[order], wide), 1), sizes[order], of_pair


def table_places(subjects: Subjects, thresholds: int, scores: int) -> Array:
    """Choose which of the slider's thresholds the tables have, the last one too."""
    each = 2 * len(subjects.classes) + len(subjects.pairs)
    most = max(20, MOST_NUMBERS // max(1, each * scores))
    if thresholds <= most:
        return np.arange(thresholds)
    return np.unique(np.linspace(0, thresholds - 1, most).round().astype(np.int64))


def count_tables(
    subjects: Subjects, doubts: Array, wrong: Array, thresholds: Array, at: Array
) -> Counted:
    """Count what some of the thresholds accept."""
    bucket = np.searchsorted(thresholds[at], doubts)  # the first that accepts a row

    def counts(of: Array, rows: Array, kinds: int) -> Array:
        rows = rows & (of >= 0)
        cells = of[rows] * (len(at) + 1) + bucket[rows]
        every = np.bincount(cells, minlength=kinds * (len(at) + 1))
        by_bucket = every.reshape(kinds, len(at) + 1)[:, :-1]
        return np.asarray(np.cumsum(by_bucket, axis=1))

    k, m = len(subjects.classes), len(subjects.pairs)
    return Counted(
        at,
        counts(subjects.of_class, ~wrong, k),
        counts(subjects.of_class, wrong, k),
        counts(subjects.of_pair, wrong, m),
    )


def extremes(
    predictions: Predictions, scores: Array, most: int = MOST_ROWS
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the most confident errors and the most doubtful correct rows."""
    wrong = predictions.errors
    errors, correct = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    first = _least(scores[errors], errors, most)
    return first, _least(-scores[correct], correct, most)


def _least(values: Array, rows: Array, most: int) -> Any:
    """Return the rows of the few least values, the least first; ties by row."""
    if len(values) > most:
        bound = np.partition(values, most - 1)[most - 1]
        near = np.flatnonzero(values <= bound)
    else:
        near = np.arange(len(values))
    order = np.lexsort([rows[near], values[near]])[:most]
    return rows[near][order].tolist()
