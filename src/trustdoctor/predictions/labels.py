"""Classes of rows as numbers: true labels, correctness, and the system's decisions."""

import re
import unicodedata
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Floats, as_labels, describe, refuse_rows, to_numpy
from trustdoctor.errors import InputError, RowError

if TYPE_CHECKING:
    from trustdoctor.predictions.predictions import Predictions

_WHOLE = re.compile(r"^([+-]?[0-9]+)\.0+$")

UNKNOWN = -1
"""The class number of a missing label, and of a missing answer."""

OUTSIDE = -2
"""The label of a row that belongs to no class: whatever is predicted is an error."""


def plain_name(name: Any) -> str:
    """Return a name in Unicode's NFC without surrounding blanks."""
    return unicodedata.normalize("NFC", str(name)).strip()


def comparable_name(value: Any) -> str:
    """Return the form in which names are compared; "" for a missing name.

    3, 3.0 and "3.0" become the same name, and so do true, "True" and "TRUE": labels and
    class names often come from two programs, one of which stored them as floats.

    Examples
    --------
    >>> [comparable_name(value) for value in (3.0, " 3 ", True, "TRUE", float("nan"))]
    ['3', '3', 'true', 'true', '']
    """
    if is_missing(value):
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = _WHOLE.sub(r"\1", plain_name(value))
    return text.lower() if text.lower() in ("true", "false") else text


def folded_name(name: str) -> str:
    """Return a form that is equal for names that differ in case, spaces or Unicode.

    Examples
    --------
    >>> folded_name("New\u00a0York ") == folded_name("new york")
    True
    """
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def as_entries(values: Any) -> NDArray[Any]:
    """Return an array of entries; of a list with a text, an array of objects."""
    # np.asarray would turn every entry of such a list into text: None into "None".
    mixed = isinstance(values, (list, tuple)) and any(
        isinstance(value, str) for value in values
    )
    if not mixed:
        return to_numpy(values)
    entries = np.empty(len(values), object)
    entries[:] = values
    return entries


def number_labels(
    labels: Any, rows: int, classes: int, *, names: Sequence[str] | None = None
) -> NDArray[np.int64] | None:
    """Return labels as class numbers, `UNKNOWN` where one is missing.

    None, NaN and an empty text count as missing. Texts are looked up in the names of
    the classes. Returns None if no row has a label.
    """
    if labels is None:
        return None
    entries = as_entries(labels)
    if entries.shape != (rows,):
        message = (
            f"expected labels as {rows} entries, one per row, got {describe(entries)}. "
            "Give each row the number or the name of its class."
        )
        raise InputError(message)
    present = _present(entries)
    if not present.any():
        return None
    numbers = np.full(rows, UNKNOWN, np.int64)
    present_numbers = _class_numbers(
        entries[present], np.flatnonzero(present), classes, names
    )
    try:
        numbered = as_labels(present_numbers, len(present_numbers), classes)
    except RowError as error:  # its row counts only those with a label
        raise RowError(error.message, int(np.flatnonzero(present)[error.row])) from None
    assert numbered is not None
    numbers[present] = numbered
    return numbers


def _present(entries: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which entries are not missing."""
    if entries.dtype.kind == "f":
        return ~np.isnan(entries)
    if entries.dtype.kind in "UT":
        return np.char.strip(entries.astype(str)) != ""
    if entries.dtype == object:
        return np.array([not is_missing(value) for value in entries], bool)
    return np.ones(len(entries), bool)


def is_missing(value: Any) -> bool:
    """Tell whether a value stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def _class_numbers(
    entries: NDArray[Any],
    row_numbers: NDArray[np.int64],
    classes: int,
    names: Sequence[str] | None,
) -> NDArray[Any]:
    """Return entries, none of them missing, as class numbers; names are looked up."""
    if entries.dtype.kind in "iuf":
        return entries
    if entries.dtype.kind == "b":
        return entries.astype(np.int64)
    values = entries.tolist()
    if all(isinstance(value, (bool, int, float, np.number)) for value in values):
        return np.array(values, float)
    if names is None:
        message = (
            f"expected labels from 0 to {classes - 1}, got {values[0]!r} at row "
            f"{{row}}. Pass class_names, one per class in the order of the columns."
        )
        raise RowError(message, int(row_numbers[0]))
    number_of = {comparable_name(name): number for number, name in enumerate(names)}
    numbers = np.array(
        [number_of.get(comparable_name(value), UNKNOWN) for value in values]
    )
    unknown = numbers == UNKNOWN
    if unknown.any():
        index = int(unknown.argmax())
        message = unknown_class_message(values[index], names)
        raise RowError(message, int(row_numbers[index]))
    return numbers


def unknown_class_message(label: Any, names: Sequence[str]) -> str:
    """Return the message for a label that is not the name of a class."""
    shown = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
    advice = "Name that class's column as well, or fix the label."
    alike = [name for name in names if folded_name(name) == folded_name(str(label))]
    if alike:
        advice = (
            f"It differs from {alike[0]!r} only in case, spaces or its Unicode form: "
            "write them alike."
        )
    return (
        f"expected labels out of the classes {shown}, got {label!r} at row {{row}}. "
        f"{advice}"
    )


def number_correct(correct: Any, rows: int) -> NDArray[np.int64] | None:
    """Return 0 for a correct answer, 1 for a wrong one, and `UNKNOWN` otherwise."""
    if correct is None:
        return None
    entries = to_numpy(correct)
    values = entries
    if entries.dtype == object:
        values = np.array(
            [np.nan if is_missing(v) else _as_truth(v) for v in entries.ravel()]
        )
    if entries.shape != (rows,) or values.dtype.kind not in "biuf":
        message = (
            f"expected correct as {rows} booleans, one per row (True where the answer "
            f"is right), got {describe(entries)}."
        )
        raise InputError(message)
    present = _present(values)
    refuse_rows(present & ~np.isin(values, (0, 1)), "correct is not True or False")
    if not present.any():
        return None
    return np.where(present, np.where(values == 1, 0, 1), UNKNOWN).astype(np.int64)


def _as_truth(value: Any) -> float:
    """Return a value as a float; 2, which is refused, for what is not a number."""
    return float(value) if isinstance(value, (bool, int, float, np.number)) else 2.0


AS_PREDICTED = "predicted"
"""The value of `decided_by` for decisions that were given as `predicted`."""

Decisions = tuple[NDArray[np.int64] | None, str]


def system_decisions(
    values: Floats,
    predicted: Any,
    cutoff: float | None,
    names: Sequence[str] | None,
    *,
    logits: bool,
) -> Decisions:
    """Return the class that the system decided on in each row, and what decided.

    None if decisions are those of the largest value; `UNKNOWN` for a row without one.

    Examples
    --------
    >>> system_decisions(np.array([[0.6, 0.4]]), None, 0.3, None, logits=False)
    (array([1]), 'cutoff 0.3')
    """
    if cutoff is not None:
        if predicted is not None:
            message = "expected cutoff or predicted, got both. Give one of them."
            raise InputError(message)
        return _above(values, cutoff, logits=logits), f"cutoff {float(cutoff)!r}"
    if predicted is None:
        return None, ""
    try:
        numbers = number_labels(predicted, *values.shape, names=names)
    except InputError as error:
        raise as_prediction_error(error) from None
    unanswered = np.full(len(values), UNKNOWN)
    return (unanswered if numbers is None else numbers), AS_PREDICTED


def as_prediction_error(error: InputError) -> InputError:
    """Return an error about labels as one about predictions, which are read alike."""
    if isinstance(error, RowError):
        return RowError(error.message.replace("label", "prediction"), error.row)
    return InputError(str(error).replace("label", "prediction"))


def check_cutoff(cutoff: Any) -> float:
    """Return a cutoff, or refuse what is not a probability."""
    is_number = isinstance(cutoff, Real) and not isinstance(cutoff, bool)
    if not (is_number and 0 < cutoff < 1):
        message = (
            f"expected a cutoff between 0 and 1, got {cutoff!r}. Give the probability "
            "from which on the system answers the second class, e.g. 0.3."
        )
        raise InputError(message)
    return float(cutoff)


def _above(values: Floats, cutoff: float, *, logits: bool) -> NDArray[np.int64]:
    """Return 1 where the second class has at least this probability, else 0."""
    cutoff = check_cutoff(cutoff)
    if values.shape[1] != 2:
        message = (
            f"expected two classes with a cutoff, got {values.shape[1]}. For more, "
            "give the system's own answers: predicted=, or --predicted NAME."
        )
        raise InputError(message)
    if logits:
        lead = values[:, 1].astype(np.float64) - values[:, 0]
        return (lead >= np.log(cutoff) - np.log1p(-cutoff)).astype(np.int64)
    # Compared as the values are stored: 0.7 in float32 is below 0.7 in float64.
    return (values[:, 1] >= values.dtype.type(cutoff)).astype(np.int64)


def refuse_decisions(predictions: "Predictions", task: str) -> None:
    """Refuse the system's own decisions for a task about the most probable class.

    Examples
    --------
    >>> from trustdoctor import Predictions
    >>> refuse_decisions(Predictions.from_probs([[0.6, 0.4]]), "this")
    """
    if predictions.decisions is None:
        return
    message = (
        f"{task} is about the most probable class, and these decisions are the "
        f"system's own ({predictions.decided_by}). Leave predicted and cutoff out."
    )
    raise InputError(message)
