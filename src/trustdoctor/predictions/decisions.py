"""The decisions of a system that does not always answer the most probable class."""

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Floats
from trustdoctor.errors import InputError, RowError
from trustdoctor.predictions.labels import UNKNOWN, number_labels

if TYPE_CHECKING:
    from trustdoctor.predictions.logits import Predictions

AS_PREDICTED = "predicted"
"""What `decided_by` says where the system's own answers were handed over."""

Decisions = tuple[NDArray[np.int64] | None, str]


def take_decisions(
    values: Floats,
    predicted: Any,
    cutoff: float | None,
    names: Sequence[str] | None,
    *,
    logits: bool,
) -> Decisions:
    """Return the class that the system decided on, and what made the decision.

    None where it is the largest value's; `UNKNOWN` where the system gave no answer.

    Examples
    --------
    >>> take_decisions(np.array([[0.6, 0.4]]), None, 0.3, None, logits=False)
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
        raise about_predictions(error) from None
    missing = np.full(len(values), UNKNOWN)
    return (missing if numbers is None else numbers), AS_PREDICTED


def about_predictions(error: InputError) -> InputError:
    """Return an error about labels as one about predicted classes, read likewise."""
    if isinstance(error, RowError):
        return RowError(error.message.replace("label", "prediction"), error.row)
    return InputError(str(error).replace("label", "prediction"))


def check_cutoff(cutoff: Any) -> float:
    """Return a cut-off, or refuse what cannot be one."""
    number = isinstance(cutoff, Real) and not isinstance(cutoff, bool)
    if not (number and 0 < cutoff < 1):
        message = (
            f"expected a cutoff between 0 and 1, got {cutoff!r}. Give the probability "
            "from which on the system answers the second class, as 0.3."
        )
        raise InputError(message)
    return float(cutoff)


def _above(values: Floats, cutoff: float, *, logits: bool) -> NDArray[np.int64]:
    """Return 1 where the second class has at least this probability, else 0."""
    at = check_cutoff(cutoff)
    if values.shape[1] != 2:
        message = (
            f"expected two classes with a cutoff, got {values.shape[1]}. Of more, give "
            "the system's own answers: predicted=, or --predicted NAME."
        )
        raise InputError(message)
    if logits:
        lead = values[:, 1].astype(np.float64) - values[:, 0]
        return (lead >= np.log(at) - np.log1p(-at)).astype(np.int64)
    # Compared as the values are stored: 0.7 in float32 is below 0.7 in float64.
    return (values[:, 1] >= values.dtype.type(at)).astype(np.int64)


def refuse_decisions(predictions: "Predictions", task: str) -> None:
    """Refuse decisions of the system's own, where a task is about the likeliest class.

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
