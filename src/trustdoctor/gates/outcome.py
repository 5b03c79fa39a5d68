"""What a gate did to rows: decisions, counts that add up, and their rates."""

from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates.targets import observe
from trustdoctor.metrics import Confusion, Share, share
from trustdoctor.predictions import NO_ROWS, Intake, Predictions, TopK


class Screened(NamedTuple):
    """What a gate decided on each row.

    Attributes
    ----------
    scores : array (n,)
        The doubts.
    accepted : bool array (n,)
    predicted : array (n,)
        The classes that were accepted or rejected.
    passes : integer array (n,), or None
        How often the model was asked about each row, for a second opinion.
    predictions : Predictions or None
        What the model said, where the gate asked it.
    ids : array (n,), or None
        What the rows are called, where they have names.

    Examples
    --------
    >>> from trustdoctor import Gate
    >>> done = Gate(-1.0, score="beta").screen([[2.0, 0.0]], kind="logits")
    >>> done.scores, done.accepted, done.predicted
    (array([-2.]), array([ True]), array([0]))
    """

    scores: Array
    accepted: NDArray[np.bool_]
    predicted: Array
    passes: NDArray[np.int64] | None = None
    predictions: Predictions | None = None
    ids: Array | None = None


@dataclass(frozen=True)
class Outcome:
    """What a gate did to all rows, in numbers that add up.

    Attributes
    ----------
    rows, accepted : int
    counts : Confusion or None
        Of the rows that had a label; None where none had.
    intake : Intake
        What came in: missing labels, rounded probabilities.

    Examples
    --------
    >>> done = Outcome.of(np.array([True, False]), np.array([False, True]))
    >>> done.rates()["risk"].value
    0.0
    """

    rows: int
    accepted: int
    counts: Confusion | None = None
    intake: Intake = NO_ROWS

    @classmethod
    def of(cls, accepted: Array, wrong: Array | None = None) -> "Outcome":
        """Count what was accepted, and how well where it is known."""
        rows, kept = len(accepted), int(accepted.sum())
        if wrong is None:
            return cls(rows, kept)
        fa = int((accepted & wrong).sum())
        tr = int(wrong.sum()) - fa
        return cls(rows, kept, Confusion(rows - kept - tr, tr, fa, kept - fa))

    @classmethod
    def on(cls, predictions: Predictions | TopK, accepted: Array) -> "Outcome":
        """Count what was accepted of predictions, with or without labels."""
        if isinstance(predictions, TopK):
            return cls.of(accepted, known_errors(predictions))
        done = cls.of(accepted)
        if predictions.labels is not None:
            known = predictions.known
            own = cls.of(accepted[known], predictions.labelled("rates").errors)
            done = replace(done, counts=own.counts)
        return replace(done, intake=Intake.of(predictions))

    @classmethod
    def at(cls, state: str, wrong: int, rows: int) -> "Outcome":
        """Count what accepting or rejecting everything does."""
        right = rows - wrong
        if state == "accept-all":
            return cls(rows, rows, Confusion(fr=0, tr=0, fa=wrong, ta=right))
        return cls(rows, 0, Confusion(fr=right, tr=wrong, fa=0, ta=0))

    def __add__(self, other: "Outcome") -> "Outcome":
        """Count the rows of both."""
        both = self.counts or other.counts
        if self.counts is not None and other.counts is not None:
            ours, theirs = asdict(self.counts), asdict(other.counts)
            both = Confusion(*(ours[kind] + theirs[kind] for kind in ours))
        rows, accepted = self.rows + other.rows, self.accepted + other.accepted
        return Outcome(rows, accepted, both, self.intake + other.intake)

    @property
    def decisions(self) -> Confusion:
        """The counts; where no labels tell, as if every row were correct."""
        if self.counts is not None:
            return self.counts
        return Confusion(self.rows - self.accepted, 0, 0, self.accepted)

    def rates(self, *, confidence: float = 0.95) -> dict[str, Share]:
        """Return coverage and, where labels tell, FRR, TRR, risk and joint rate.

        With Clopper-Pearson intervals; rates without rows are left out.
        """
        parts = observe(self.decisions, labelled=self.counts is not None)
        if self.counts is not None and self.counts.n < self.rows:
            parts["coverage"] = (self.accepted, self.rows)
        return {
            name: share(part, whole, confidence=confidence)
            for name, (part, whole) in parts.items()
            if whole
        }


def known_errors(predictions: Predictions | TopK) -> Array | None:
    """Return where rows are wrong; None unless every row has a label."""
    complete = predictions.labels is not None
    if complete and isinstance(predictions, Predictions):
        complete = bool(predictions.known.all())
    return predictions.errors if complete else None


NOTHING = Outcome(0, 0)
"""What was done to no rows at all."""


def require_one_width(seen: set[int], classes: int) -> None:
    """Refuse batches whose number of classes is not that of earlier ones."""
    seen.add(classes)
    if len(seen) > 1:
        first, second = sorted(seen)[:2]
        message = f"expected one number of classes, got rows of {first} and {second}."
        raise InputError(message)
