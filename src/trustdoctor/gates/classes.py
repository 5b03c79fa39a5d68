"""The classes that a gate was calibrated on, and those of rows that it meets."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.predictions import AS_PREDICTED, Answers, Predictions

if TYPE_CHECKING:
    from trustdoctor.gates.gate import Gate

Classes = int | tuple[str, ...]
"""How many classes there are, or their names in the order of the columns."""


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
    """Refuse rows of other classes than a gate's, where both are known.

    Their order counts where the score tells classes by their place.
    """
    check_decisions(gate, predictions.decided_by)
    check_same_classes(gate, classes_of(predictions))


def check_same_classes(gate: "Gate", given: Classes | None) -> None:
    """Refuse other classes than a gate's, as `check_classes` does."""
    own = gate.classes
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
    if "permutation" not in gate.score.laws:
        message = (
            "expected the classes in the order of the gate's calibration, which its "
            "score depends on, got another. Reorder the columns."
        )
        raise InputError(message)


def check_decisions(gate: "Gate", decided_by: str) -> None:
    """Refuse rows whose decisions are made otherwise than in a gate's calibration."""
    if gate.certificate is None or gate.decided_by == decided_by:
        return
    kind, _, value = gate.decided_by.partition(" ")
    how = {
        "": "without --cutoff and --predicted (cutoff, predicted)",
        AS_PREDICTED: "with --predicted NAME (predicted=...)",
    }.get(kind, f"with --cutoff {value} (cutoff={value})")
    what, came = (
        f"decisions of the system's own ({by})" if by else "the most probable class"
        for by in (gate.decided_by, decided_by)
    )
    message = (
        f"expected {what} as predictions, as in the gate's calibration, got {came}. "
        f"Read the rows {how}."
    )
    raise InputError(message)


def predicted_groups(predictions: Predictions) -> Any:
    """Return the predicted classes as groups, by name where they have names.

    A gate is then not fooled by columns in another order.
    """
    names = predictions.predicted_names
    if names is None:
        message = (
            "thresholds for each answer need the answers themselves: pass predicted=, "
            "or --predicted NAME on the command line."
        )
        raise InputError(message)
    return names if predictions.class_names is None else names.astype(str)


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Rows of each predicted class, and how many of them a gate accepted.

    Attributes
    ----------
    rows, accepted : integer arrays (C,)
    names : tuple of str, or None

    Examples
    --------
    >>> counts = ClassCounts(np.array([900, 100]), np.array([850, 1]), ("no", "yes"))
    >>> print(counts.neglected()[:78])
    Careful: 1 of 100 rows predicted 'yes' is accepted (1.0%), of the others 94.4%
    """

    rows: Array
    accepted: Array
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, predictions: Any, accepted: Array) -> "ClassCounts | None":
        """Count rows; None of answers, which have no set of classes."""
        if isinstance(predictions, Answers):
            return None
        size, predicted = predictions.n_classes, predictions.predicted
        answered = ~predictions.abstained
        rows, kept = (
            np.bincount(predicted[mask], minlength=size)
            for mask in (answered, answered & accepted)
        )
        return cls(rows, kept, predictions.class_names)

    def __add__(self, other: "ClassCounts") -> "ClassCounts":
        """Count the rows of both."""
        rows, accepted = self.rows + other.rows, self.accepted + other.accepted
        return ClassCounts(rows, accepted, self.names)

    def neglected(self) -> str:
        """Say which predicted classes are hardly ever accepted; empty for none.

        Those of which less than one in twenty rows is accepted, where of the other rows
        at least a fifth is, and ten times that share: one threshold for all then
        answers some classes and never others.
        """
        total, accepted = self.rows.sum(), self.accepted.sum()
        share = self.accepted / np.maximum(self.rows, 1)
        others = (accepted - self.accepted) / np.maximum(total - self.rows, 1)
        hardly = (
            (self.rows >= 30) & (share < 0.05) & (others >= np.maximum(0.2, 10 * share))
        )
        if not hardly.any():
            return ""
        worst = int(np.flatnonzero(hardly)[np.argmax(self.rows[hardly])])
        name = repr(self.names[worst]) if self.names else str(worst)
        n, k = int(self.rows[worst]), int(self.accepted[worst])
        more = int(hardly.sum()) - 1
        also = f", and {more} more class{'es' * (more > 1)} hardly ever" if more else ""
        return (
            f"Careful: {k:,} of {n:,} rows predicted {name} "
            f"{'is' if k == 1 else 'are'} accepted ({share[worst]:.1%}), of the others "
            f"{others[worst]:.1%}{also}. One threshold does not fit these classes. "
            "--per-class (groups='predicted', instead of other groups) gives each its "
            "own, and rejects a class that cannot keep the promise."
        )
