"""Columns that look like the system's own answers, where nobody named one."""

import math
import shlex

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.files.building import class_decisions
from trustdoctor.files.columns import CORRECT, PREDICTED
from trustdoctor.files.source import Source
from trustdoctor.predictions import Predictions, assume_logits

NAMES = (
    *(*PREDICTED, "pred", "y_pred", "y_hat", "yhat", "pred_label", "predicted_label"),
    *("predicted_class", "decision", "decided", "answer", "output"),
)

_ROWS = 10_000
_BYTES = 100_000_000  # rows may be wide, or a line endless
_ALIKE = 0.8
"""A column of another name agrees this often with the most probable class."""

_FEWEST = 10  # answers


def warn_of_answers(source: Source) -> tuple[str, ...]:
    """Say which columns seem to hold other answers than the most probable classes.

    Every entry is a class or missing, and the column is called so, or one cut-off of
    the second class's probability explains it, or it agrees with the most probable
    class often, and more often than with the labels, as a second opinion would. The
    first 10,000 rows are looked at.
    """
    layout, columns = source.layout, source.columns
    named = columns.predicted is not None or columns.cutoff is not None
    others = [n for n in source.names if n not in source.needed and n not in CORRECT]
    if named or layout.answers or not others or not source.format.is_table:
        return ()
    rows = min(_ROWS, _BYTES // source.row_bytes)
    if rows < _FEWEST:
        return ()
    head = source.head([*source.needed, *others], rows)
    try:
        with assume_logits():
            predictions = source.predictions(head)
    except InputError:  # which is told where all rows are read
        return ()
    found = []
    for name in others:
        try:
            answers = class_decisions(
                head[name], layout, columns, predictions.n_classes
            )
        except InputError:  # not the names or numbers of classes
            continue
        line = _line(name, answers, predictions)
        found += [line] if line else []
    return tuple(found)


def _line(name: str, answers: NDArray[np.int64], predictions: Predictions) -> str:
    answered = answers >= 0
    other = answered & (answers != predictions.predicted)
    if answered.sum() < _FEWEST or not other.any() or len(np.unique(answers)) < 2:
        return ""
    cutoff = find_cutoff(predictions, answers)
    agrees = 1 - other.sum() / answered.sum()
    if name.lower() not in NAMES and not cutoff:
        judged = answered & predictions.has_label
        labels = predictions.labels
        if agrees < _ALIKE or labels is None or not judged.any():
            return ""
        if agrees <= (answers == labels)[judged].mean():
            return ""
    how = f"--predicted {shlex.quote(name)}" + f" (or --cutoff {cutoff})" * bool(cutoff)
    return (
        f"The column {name!r} holds classes that differ from the most probable one in "
        f"{int(other.sum()):,} of {int(answered.sum()):,} rows. If it is what the "
        f"system answers, judge that: {how}."
    )


def find_cutoff(predictions: Predictions, answers: NDArray[np.int64]) -> str:
    """Return a cut-off that explains all answers, in few digits; empty where none does.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.9, 0.1], [0.72, 0.28], [0.69, 0.31], [0.2, 0.8]])
    >>> find_cutoff(p, np.array([0, 0, 1, 1]))
    '0.3'
    """
    if predictions.n_classes != 2 or not {0, 1} <= set(np.unique(answers).tolist()):
        return ""
    logits = predictions.logits.astype(np.float64)
    with np.errstate(over="ignore"):
        second = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    highest, lowest = second[answers == 0].max(), second[answers == 1].min()
    for digits in range(1, 6):
        at = math.floor(lowest * 10**digits + 1e-9) / 10**digits
        if highest < at < 1:
            return f"{at:g}"
    return ""
