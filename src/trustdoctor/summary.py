"""What a gate did to rows, in numbers that add up."""

from dataclasses import asdict, dataclass
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.gate import Gate, Screened
from trustdoctor.metrics import Confusion
from trustdoctor.predictions import Predictions


@dataclass(frozen=True)
class Summary:
    """What a gate did to all rows.

    Attributes
    ----------
    rows, accepted : int
    counts : Confusion or None
        Where every row had a label.
    """

    rows: int
    accepted: int
    counts: Confusion | None = None

    def __add__(self, other: "Summary") -> "Summary":
        """Count the rows of both."""
        both = None
        if self.counts is not None and other.counts is not None:
            ours, theirs = asdict(self.counts), asdict(other.counts)
            both = Confusion(*(ours[kind] + theirs[kind] for kind in ours))
        rows, accepted = self.rows + other.rows, self.accepted + other.accepted
        return Summary(rows, accepted, both)


NOTHING = Summary(0, 0, Confusion(0, 0, 0, 0))


def summarize(predictions: Predictions, accepted: Any) -> Summary:
    """Count what was accepted, and how well where labels tell."""
    rows, kept = len(predictions), int(accepted.sum())
    if predictions.labels is None:
        return Summary(rows, kept)
    return summarize_errors(predictions.errors, accepted)


def summarize_errors(wrong: Any, accepted: Any) -> Summary:
    """Count rows by whether they are wrong and whether they were accepted."""
    rows, kept = len(wrong), int(accepted.sum())
    fa = int((accepted & wrong).sum())
    tr = int(wrong.sum()) - fa
    return Summary(rows, kept, Confusion(rows - kept - tr, tr, fa, kept - fa))


def require_one_width(seen: set[int], classes: int) -> None:
    """Refuse batches whose number of classes is not that of earlier ones."""
    seen.add(classes)
    if len(seen) > 1:
        first, second = sorted(seen)[:2]
        message = f"expected one number of classes, got rows of {first} and {second}."
        raise InputError(message)


def screen_batch(gate: Gate, predictions: Predictions) -> Screened:
    """Decide on a batch; a file tells no groups but the predicted classes."""
    if gate.groups and gate.grouped_by != "predicted":
        message = (
            f"the gate has thresholds for groups of its own ({gate.grouped_by}), which "
            "the files do not tell. Use gate.screen in Python, with groups=."
        )
        raise InputError(message)
    return gate.screen(predictions)
