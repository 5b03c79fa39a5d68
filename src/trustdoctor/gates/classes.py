"""The classes and decisions that a gate was calibrated on, and those of its rows."""

from typing import TYPE_CHECKING

from trustdoctor.errors import InputError
from trustdoctor.predictions import AS_PREDICTED, Answers, Predictions

if TYPE_CHECKING:
    from trustdoctor.gates.gate import Gate

Classes = int | tuple[str, ...]
"""The number of classes, or their names in the order of the columns."""


def classes_of(predictions: Predictions) -> Classes | None:
    """Return the classes of rows; None of answers, which have no set of classes.

    Examples
    --------
    >>> classes_of(Predictions.from_logits([[2.0, 0.0]]))
    2
    >>> classes_of(Predictions.from_logits([[2.0, 0.0]], class_names=["cat", "dog"]))
    ('cat', 'dog')
    """
    if isinstance(predictions, Answers):
        return None if predictions.top is None else predictions.top.n_classes
    return predictions.class_names or predictions.n_classes


def check_classes(gate: "Gate", predictions: Predictions) -> None:
    """Refuse rows of other classes than a gate's, or decided otherwise.

    The order of the classes counts if the score depends on it.
    """
    check_decisions(gate, predictions.decided_by)
    check_same_classes(gate, classes_of(predictions))


def check_same_classes(gate: "Gate", classes: Classes | None) -> None:
    """Refuse other classes than a gate's, if both are known."""
    calibrated = gate.classes
    if calibrated is None or classes is None:
        return
    n_calibrated, n_classes = (
        k if isinstance(k, int) else len(k) for k in (calibrated, classes)
    )
    if n_classes != n_calibrated:
        message = (
            f"expected rows of {n_calibrated:,} classes, as in the gate's calibration, "
            f"got {n_classes:,}. Calibrate a gate on rows like these."
        )
        raise InputError(message)
    if isinstance(calibrated, int) or isinstance(classes, int) or calibrated == classes:
        return
    unknown = set(classes) - set(calibrated)
    # Readers make up the name of a binary model's second class.
    if len(unknown) > (n_classes == 2):
        message = (
            f"expected the classes of the gate's calibration, got {min(unknown)!r}, "
            "which is none of them. Calibrate a gate on rows like these."
        )
        raise InputError(message)
    if unknown or gate.score is None:
        return
    if "permutation" not in gate.score.laws:
        message = (
            "expected the classes in the order of the gate's calibration, which its "
            "score depends on, got another. Reorder the columns."
        )
        raise InputError(message)


def check_decisions(gate: "Gate", decided_by: str) -> None:
    """Refuse rows that were not decided as in a gate's calibration."""
    if gate.certificate is None or gate.decided_by == decided_by:
        return
    kind, _, value = gate.decided_by.partition(" ")
    options = {
        "": "without --cutoff and --predicted (cutoff, predicted)",
        AS_PREDICTED: "with --predicted NAME (predicted=...)",
    }.get(kind, f"with --cutoff {value} (cutoff={value})")
    expected, got = (
        f"decisions of the system's own ({name})" if name else "the most probable class"
        for name in (gate.decided_by, decided_by)
    )
    message = (
        f"expected {expected} as predictions, as in the gate's calibration, got {got}. "
        f"Read the rows {options}."
    )
    raise InputError(message)
