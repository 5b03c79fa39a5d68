"""What to type for columns that nobody named: values, labels, the system's answers."""

import math
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.files.frames import class_decisions
from trustdoctor.files.labels import as_text
from trustdoctor.files.layout import CORRECT, LABELS, PREDICTED
from trustdoctor.predictions import Predictions, assume_logits

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

_STATED = ("confidence", "conf", "certainty")
_LABELS = (
    *(*LABELS, "y_true", "y", "target", "truth", "true_class", "class"),
    *("true", "actual", "gold", "ground_truth"),
)
_PREDICTED = (*PREDICTED, "pred", "y_pred", "predicted_label", "predicted_class")


def advise_columns(head: pl.DataFrame) -> str:
    """Return the options that the first rows of a file suggest; "" for none.

    Examples
    --------
    >>> head = pl.DataFrame({"id": ["a"], "cat": ["0.9"], "dog": ["0.1"], "y": ["cat"]})
    >>> advise_columns(head)
    '--probs cat,dog --labels y'
    """
    names = head.columns
    if "choices" in names and head["choices"].dtype != pl.String:
        return "--choices A,B --truth FILE: these are a language model's responses"
    stated = next((n for n in names if n.lower() in _STATED), None)
    if stated is not None:
        return _answers(names, stated)
    numbers = {name: _numbers(head[name]) for name in names}
    shares = [
        name
        for name, values in numbers.items()
        if values is not None
        and name not in _LABELS
        and values.min() >= 0
        and values.max() <= 1
        and not np.isin(values, (0, 1)).all()
    ]
    label = _label(names, [*shares, *CORRECT])
    if len(shares) == 1:
        return f"--probs {shares[0]} --positive LABEL{label}"
    if len(shares) > 1 and _sums(numbers, shares):
        return f"--probs {','.join(shares)}{label}"
    return ""


def _answers(names: list[str], stated: str) -> str:
    right, said, true = (
        next((name for name in known if name in names), None)
        for known in (CORRECT, _PREDICTED, _LABELS)
    )
    if right is not None or said is None:
        return f"--confidence {stated} --correct {right or 'NAME'}"
    return f"--confidence {stated} --predicted {said} --labels {true or 'NAME'}"


def _label(names: list[str], taken: list[str]) -> str:
    usual = [name for name in names if name.lower() in _LABELS and name not in taken]
    if not usual:
        return " --labels NAME"
    return "" if usual[0] in LABELS else f" --labels {usual[0]}"


def _numbers(column: pl.Series) -> Any:
    """Return numbers, a decimal comma included; None where there are others."""
    if column.dtype.is_nested() or column.dtype == pl.Boolean or not len(column):
        return None
    text = as_text(column).str.replace(r"^([^,.]*),([^,.]*)$", "${1}.${2}")
    found = text.cast(pl.Float64, strict=False)
    return None if found.null_count() or found.is_nan().any() else found.to_numpy()


def _sums(numbers: dict[str, Any], names: list[str]) -> bool:
    total = np.sum([numbers[name] for name in names], axis=0)
    return bool((np.abs(total - 1) < 0.05).all())


NAMES = (
    *(*PREDICTED, "pred", "y_pred", "y_hat", "yhat", "pred_label", "predicted_label"),
    *("predicted_class", "decision", "decided", "answer", "output"),
)

_ROWS = 10_000
_BYTES = 100_000_000  # rows may be wide, or a line endless
_ALIKE = 0.8
"""A column of another name agrees this often with the most probable class."""

_FEWEST = 10  # answers


def warn_of_answers(source: "Source") -> tuple[str, ...]:
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
