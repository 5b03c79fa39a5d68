"""The classes that a gate was calibrated on, and those of rows that it meets."""

from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.errors import InputError
from trustdoctor.predictions import Answers, Predictions, TopK

if TYPE_CHECKING:
    from trustdoctor.gates.gate import Gate

Classes = int | tuple[str, ...]
"""How many classes there are, or their names in the order of the columns."""


def classes_of(predictions: Any) -> Classes | None:
    """Return the classes of rows; None of answers, which have no set of classes.

    Examples
    --------
    >>> classes_of(Predictions.from_logits([[2.0, 0.0]]))
    2
    >>> classes_of(Predictions.from_logits([[2.0, 0.0]], class_names=["cat", "dog"]))
    ('cat', 'dog')
    """
    if isinstance(predictions, Answers):
        return None
    names: tuple[str, ...] | None = getattr(predictions, "class_names", None)
    return names or predictions.n_classes or None


def check_classes(gate: "Gate", predictions: Any) -> None:
    """Refuse rows of other classes than a gate's, where both are known.

    Their order counts where the score tells classes by their place.
    """
    own, given = gate.classes, classes_of(predictions)
    if own is None or given is None:
        return
    size, others = (k if isinstance(k, int) else len(k) for k in (own, given))
    if size != others:
        message = (
            f"expected rows of {size:,} classes, as in the gate's calibration, got "
            f"{others:,}. Calibrate a gate on rows like these."
        )
        raise InputError(message)
    if isinstance(own, int) or isinstance(given, int) or own == given:
        return
    strange = set(given) - set(own)
    if len(strange) > (size == 2):  # of a binary model one name may be made up
        message = (
            f"expected the classes of the gate's calibration, got {min(strange)!r}, "
            "which is none of them. Calibrate a gate on rows like these."
        )
        raise InputError(message)
    if strange or gate.score is None:
        return
    if "permutation" not in gate.scorer.laws:
        message = (
            "expected the classes in the order of the gate's calibration, which its "
            "score depends on, got another. Reorder the columns."
        )
        raise InputError(message)


def predicted_groups(predictions: Predictions | TopK) -> Any:
    """Return the predicted classes as groups, by name where they have names.

    A gate is then not fooled by columns in another order.
    """
    if getattr(predictions, "class_names", None) is None:
        if not isinstance(predictions, Answers):
            return predictions.predicted
        message = (
            "thresholds for each answer need the answers themselves: pass predicted=, "
            "or --predicted NAME on the command line."
        )
        raise InputError(message)
    assert isinstance(predictions, Predictions)
    return np.asarray(predictions.predicted_names).astype(str)
