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

_CONFIDENCE_NAMES = ("confidence", "conf", "certainty")
_LABEL_NAMES = (
    *(*LABELS, "y_true", "y", "target", "truth", "true_class", "class"),
    *("true", "actual", "gold", "ground_truth"),
)
_PREDICTED_NAMES = (*PREDICTED, "pred", "y_pred", "predicted_label", "predicted_class")

ANSWER_NAMES = (
    *(*PREDICTED, "pred", "y_pred", "y_hat", "yhat", "pred_label", "predicted_label"),
    *("predicted_class", "decision", "decided", "answer", "output"),
)
"""Names of columns that hold the system's answers, whatever the model predicts."""

_ROWS = 10_000
_BYTES = 100_000_000  # rows may be wide, or a line endless
_LEAST_AGREEMENT = 0.8
"""How often a column of another name agrees with the most probable class."""

_FEWEST_ANSWERS = 10


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
    confidence = next((n for n in names if n.lower() in _CONFIDENCE_NAMES), None)
    if confidence is not None:
        return _confidence_options(names, confidence)
    numbers = {name: _numbers_or_none(head[name]) for name in names}
    probs = [
        name
        for name, values in numbers.items()
        if values is not None
        and name not in _LABEL_NAMES
        and values.min() >= 0
        and values.max() <= 1
        and not np.isin(values, (0, 1)).all()
    ]
    labels_option = _labels_option(names, [*probs, *CORRECT])
    if len(probs) == 1:
        return f"--probs {probs[0]} --positive LABEL{labels_option}"
    if len(probs) > 1 and _sum_to_1(numbers, probs):
        return f"--probs {','.join(probs)}{labels_option}"
    return ""


def _confidence_options(names: list[str], confidence: str) -> str:
    correct, predicted, label = (
        next((name for name in usual if name in names), None)
        for usual in (CORRECT, _PREDICTED_NAMES, _LABEL_NAMES)
    )
    if correct is not None or predicted is None:
        return f"--confidence {confidence} --correct {correct or 'NAME'}"
    return (
        f"--confidence {confidence} --predicted {predicted} --labels {label or 'NAME'}"
    )


def _labels_option(names: list[str], no_labels: list[str]) -> str:
    usual = [n for n in names if n.lower() in _LABEL_NAMES and n not in no_labels]
    if not usual:
        return " --labels NAME"
    return "" if usual[0] in LABELS else f" --labels {usual[0]}"


def _numbers_or_none(column: pl.Series) -> NDArray[Any] | None:
    """Return numbers, also with a decimal comma; None if an entry is not a number."""
    if column.dtype.is_nested() or column.dtype == pl.Boolean or not len(column):
        return None
    text = as_text(column).str.replace(r"^([^,.]*),([^,.]*)$", "${1}.${2}")
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() or numbers.is_nan().any():
        return None
    return numbers.to_numpy()


def _sum_to_1(numbers: dict[str, Any], names: list[str]) -> bool:
    total = np.sum([numbers[name] for name in names], axis=0)
    return bool((np.abs(total - 1) < 0.05).all())


def warn_of_answers(source: "Source") -> tuple[str, ...]:
    """Say which columns seem to hold other answers than the most probable classes.

    In such a column every entry is a class or missing. Besides, it has a usual name, or
    one cut-off of the second class's probability explains it, or it agrees with the
    most probable class often, and more often than with the labels, as a second opinion
    would. The first 10,000 rows are looked at.
    """
    layout, columns = source.layout, source.columns
    is_named = columns.predicted is not None or columns.cutoff is not None
    others = [n for n in source.names if n not in source.needed and n not in CORRECT]
    if is_named or layout.holds_answers or not others or not source.format.is_table:
        return ()
    rows = min(_ROWS, _BYTES // source.row_bytes)
    if rows < _FEWEST_ANSWERS:
        return ()
    head = source.head([*source.needed, *others], rows)
    try:
        with assume_logits():
            predictions = source.predictions(head)
    except InputError:  # reported by whatever reads all rows
        return ()
    warnings = []
    for name in others:
        try:
            answers = class_decisions(
                head[name], layout, columns, predictions.n_classes
            )
        except InputError:  # not the names or numbers of classes
            continue
        warnings.append(_answers_warning(name, answers, predictions))
    return tuple(filter(None, warnings))


def _answers_warning(
    name: str, answers: NDArray[np.int64], predictions: Predictions
) -> str:
    """Return what to say of a column of classes; "" if they are not the answers."""
    answered = answers >= 0
    differs = answered & (answers != predictions.predicted)
    n_answered, n_differing = int(answered.sum()), int(differs.sum())
    if n_answered < _FEWEST_ANSWERS or not n_differing or len(np.unique(answers)) < 2:
        return ""
    cutoff = find_cutoff(predictions, answers)
    if name.lower() not in ANSWER_NAMES and not cutoff:
        agreement = 1 - n_differing / n_answered
        labelled = answered & predictions.has_label
        labels = predictions.labels
        if agreement < _LEAST_AGREEMENT or labels is None or not labelled.any():
            return ""
        if agreement <= (answers == labels)[labelled].mean():
            return ""
    option = f"--predicted {shlex.quote(name)}"
    option += f" (or --cutoff {cutoff})" if cutoff else ""
    return (
        f"The column {name!r} holds classes that differ from the most probable one in "
        f"{n_differing:,} of {n_answered:,} rows. If it is what the system answers, "
        f"judge that: {option}."
    )


def find_cutoff(predictions: Predictions, answers: NDArray[np.int64]) -> str:
    """Return a cut-off with few digits that explains all answers; "" if none does.

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
    highest_of_first = second[answers == 0].max()
    lowest_of_second = second[answers == 1].min()
    for digits in range(1, 6):
        # 1e-9: a probability that was written as 0.3 may be read as 0.29999...
        cutoff = math.floor(lowest_of_second * 10**digits + 1e-9) / 10**digits
        if highest_of_first < cutoff < 1:
            return f"{cutoff:g}"
    return ""
