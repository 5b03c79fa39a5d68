"""What the page shows besides the metrics: classes, confusions, and single rows.

All of it follows the threshold and the score, so the page has counts for many
thresholds of each score, and for fewer of them if that would be too many numbers.
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
"""Rows of each kind and score; fewer if each has a text or a picture."""

_DENSE_PAIRS = 1000  # classes; with fewer all pairs of them are counted

MOST_NUMBERS = 20_000
"""Counts that a page has for its tables, of all scores together."""


@dataclass(frozen=True)
class TableSubjects:
    """The classes and confusions that a page counts, whatever the threshold.

    Attributes
    ----------
    classes : integer array (k,)
        Predicted classes, those with the most errors first.
    n_classes : int
        The number of predicted classes; `classes` may be fewer.
    pairs : integer array (m, 2)
        Labels and predicted classes of the confusions with the most rows.
    sizes : integer array (m,)
        Their rows.
    of_class, of_pair : integer arrays (n,)
        For each row the place of its class and of its confusion; -1 for none.
    """

    classes: Array
    n_classes: int
    pairs: Array
    sizes: Array
    of_class: Array
    of_pair: Array


@dataclass(frozen=True)
class AcceptedCounts:
    """The rows that some thresholds accept, right and wrong, by class and confusion.

    Attributes
    ----------
    at : integer array (t,)
        The places of these thresholds on the slider.
    right, wrong : integer arrays (k, t)
        Accepted rows predicted as each class.
    pairs : integer array (m, t)
        Accepted rows of each confusion.
    """

    at: Array
    right: Array
    wrong: Array
    pairs: Array


def find_subjects(predictions: Predictions) -> TableSubjects:
    """Choose the classes and confusions to count."""
    errors, n = predictions.errors, len(predictions)
    classes: Array = np.zeros(0, np.int64)
    of_class, n_classes = np.full(n, -1), 0
    if predictions.answers_known:
        predicted, answered = predictions.predicted, ~predictions.abstained
        size = int(predicted.max()) + 1
        n_rows = np.bincount(predicted[answered], minlength=size)
        n_errors = np.bincount(predicted[errors & answered], minlength=size)
        present = np.flatnonzero(n_rows)
        n_classes = len(present)
        order = np.lexsort([present, -n_rows[present], -n_errors[present]])
        classes = present[order][:MOST_CLASSES]
        places = np.full(size, -1)
        places[classes] = np.arange(len(classes))
        of_class = np.where(answered, places[predicted], -1) if size else of_class
    pairs, sizes, of_pair = _largest_confusions(predictions)
    return TableSubjects(classes, n_classes, pairs, sizes, of_class, of_pair)


def _largest_confusions(predictions: Predictions) -> tuple[Array, Array, Array]:
    """Return the largest confusions, their rows, and where each row belongs."""
    errors = predictions.errors & ~predictions.abstained & ~predictions.outside
    of_pair = np.full(len(predictions), -1)
    if predictions.correctness_only:
        # What would have been right is not known.
        return np.zeros((0, 2), np.int64), np.zeros(0, np.int64), of_pair
    labels = predictions.require_labels("confusions")[errors].astype(np.int64)
    answers = predictions.predicted[errors].astype(np.int64)
    size = int(max(labels.max(initial=0), answers.max(initial=0))) + 1
    codes = labels * size + answers
    kinds: Array = np.arange(size * size)
    if size > _DENSE_PAIRS:  # a count of every pair would take too much memory
        kinds, codes = np.unique(codes, return_inverse=True)
    sizes = np.bincount(codes, minlength=len(kinds))
    order = np.lexsort([kinds, -sizes])[:MOST_PAIRS]
    order = order[sizes[order] > 0]
    places = np.full(len(kinds), -1)
    places[order] = np.arange(len(order))
    of_pair[errors] = places[codes]
    return np.stack(np.divmod(kinds[order], size), 1), sizes[order], of_pair


def table_places(subjects: TableSubjects, n_thresholds: int, n_scores: int) -> Array:
    """Choose which of the slider's thresholds the tables have, the last one too."""
    rows = 2 * len(subjects.classes) + len(subjects.pairs)
    limit = max(20, MOST_NUMBERS // max(1, rows * n_scores))
    if n_thresholds <= limit:
        return np.arange(n_thresholds)
    places = np.linspace(0, n_thresholds - 1, limit).round()
    return np.unique(places.astype(np.int64))


def count_tables(
    subjects: TableSubjects, doubts: Array, errors: Array, thresholds: Array, at: Array
) -> AcceptedCounts:
    """Count what some of the thresholds accept."""
    first_accepting = np.searchsorted(thresholds[at], doubts)
    width = len(at) + 1  # beyond the last: rows that no threshold accepts

    def accepted(subject: Array, rows: Array, n_subjects: int) -> Array:
        """Count rows by their subject, at every threshold."""
        rows = rows & (subject >= 0)
        cells = subject[rows] * width + first_accepting[rows]
        counts = np.bincount(cells, minlength=n_subjects * width)
        by_threshold = counts.reshape(n_subjects, width)[:, :-1]
        return np.asarray(np.cumsum(by_threshold, axis=1))

    k, m = len(subjects.classes), len(subjects.pairs)
    return AcceptedCounts(
        at,
        accepted(subjects.of_class, ~errors, k),
        accepted(subjects.of_class, errors, k),
        accepted(subjects.of_pair, errors, m),
    )


def extremes(
    predictions: Predictions, scores: Array, limit: int = MOST_ROWS
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the most confident errors and the most doubtful correct rows."""
    errors = np.flatnonzero(predictions.errors)
    correct = np.flatnonzero(~predictions.errors)
    confident = _lowest(scores[errors], errors, limit)
    return confident, _lowest(-scores[correct], correct, limit)


def _lowest(values: Array, rows: Array, limit: int) -> Any:
    """Return the rows of the lowest values, the lowest first; ties by row."""
    if len(values) > limit:
        bound = np.partition(values, limit - 1)[limit - 1]
        candidates = np.flatnonzero(values <= bound)
    else:
        candidates = np.arange(len(values))
    order = np.lexsort([rows[candidates], values[candidates]])[:limit]
    return rows[candidates][order].tolist()
