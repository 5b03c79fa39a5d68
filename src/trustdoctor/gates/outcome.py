"""What a gate did to rows: decisions, counts that add up, and their rates."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates.classes import ClassCounts
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
    shortlist : bool array (n, C), or None
        Where the gate has one: the classes that a rejected row may be. All of them mean
        a full review; accepted rows have none.

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
    shortlist: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Lists:
    """What the lists of rejected rows hold, in numbers that add up.

    Attributes
    ----------
    rows, classes : int
        Rejected rows, and classes on all of their lists; a full review has every class.
    full : int
        Full reviews.
    labelled, held : int
        Rows with a label, and those whose list holds it.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.5, 0.4, 0.1], [0.4, 0.3, 0.3]], [1, None])
    >>> done = Lists.of(p, np.array([[True, True, False], [True, True, True]]))
    >>> print(done.words(0.95))
    Lists for 2 rejected rows: 2.50 classes on average, 1 full review (of all \
classes); they hold the true class in 100.00 [2.50, 100.00] % (promised: 95%)
    """

    rows: int = 0
    classes: int = 0
    full: int = 0
    labelled: int = 0
    held: int = 0

    @classmethod
    def of(cls, predictions: Predictions, lists: NDArray[np.bool_]) -> "Lists":
        """Count lists, (n, C); rows that were accepted have none."""
        sizes = lists.sum(1)
        full = int((sizes == lists.shape[1]).sum())
        done = cls(int((sizes > 0).sum()), int(sizes.sum()), full)
        if predictions.labels is None:
            return done
        known = np.flatnonzero((sizes > 0) & predictions.has_label)
        held = int(lists[known, predictions.labels[known]].sum())
        return replace(done, labelled=len(known), held=held)

    def __add__(self, other: "Lists") -> "Lists":
        """Count the lists of both."""
        ours, theirs = asdict(self), asdict(other)
        return Lists(*(ours[name] + theirs[name] for name in ours))

    def rate(self, *, confidence: float = 0.95) -> Share | None:
        """Return how often they hold the true class; None where no label tells."""
        if not self.labelled:
            return None
        return share(self.held, self.labelled, confidence=confidence)

    def words(self, level: float | None = None, *, where: str = "") -> str:
        """Say how long they are and how often they hold the true class.

        Without the level that was promised, how long they are alone.
        """
        if not self.rows:
            return "No row was rejected, so there are no lists"
        rows = "row" if self.rows == 1 else "rows"
        reviews = "review" if self.full == 1 else "reviews"
        said = (
            f"Lists for {self.rows:,} rejected {rows}{where}: "
            f"{self.classes / self.rows:.2f} classes on average, {self.full:,} full "
            f"{reviews}{' (of all classes)' * bool(self.full)}"
        )
        rate = self.rate()
        if level is None or rate is None:
            return said
        return (
            f"{said}; they hold the true class in {rate.percent()} % (promised: "
            f"{round(100 * level, 10):g}%)"
        )


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
    lists : Lists or None
        Of the rejected rows, where the gate has a shortlist.
    classes : ClassCounts or None
        By predicted class, where there are classes.

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
    lists: Lists | None = None
    classes: ClassCounts | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, accepted: Array, wrong: Array | None = None) -> "Outcome":
        """Count what was accepted, and how well where it is known."""
        counts = None if wrong is None else Confusion.of(accepted, wrong)
        return cls(len(accepted), int(accepted.sum()), counts)

    @classmethod
    def on(
        cls, predictions: Predictions | TopK, accepted: Array, lists: Any = None
    ) -> "Outcome":
        """Count what was accepted of predictions, with or without labels.

        `lists` are those of rejected rows (n, C), where the gate has a shortlist.
        """
        if isinstance(predictions, TopK):
            return cls.of(accepted, known_errors(predictions))
        done = cls.of(accepted)
        if predictions.labels is not None:
            known = predictions.has_label
            own = cls.of(accepted[known], predictions.labelled("rates").errors)
            done = replace(done, counts=own.counts)
        seen = None if lists is None else Lists.of(predictions, lists)
        classes = ClassCounts.of(predictions, accepted)
        return replace(done, intake=Intake.of(predictions), lists=seen, classes=classes)

    @classmethod
    def at(cls, state: str, wrong: int, rows: int) -> "Outcome":
        """Count what accepting or rejecting everything does."""
        right = rows - wrong
        if state == "accept-all":
            return cls(
                rows,
                rows,
                Confusion(0, 0, accepted_errors=wrong, accepted_correct=right),
            )
        return cls(
            rows,
            0,
            Confusion(
                rejected_correct=right,
                rejected_errors=wrong,
                accepted_errors=0,
                accepted_correct=0,
            ),
        )

    def __add__(self, other: "Outcome") -> "Outcome":
        """Count the rows of both."""
        both = self.counts or other.counts
        if self.counts is not None and other.counts is not None:
            both = self.counts + other.counts
        lists = self.lists or other.lists
        if self.lists is not None and other.lists is not None:
            lists = self.lists + other.lists
        rows, accepted = self.rows + other.rows, self.accepted + other.accepted
        classes = self.classes or other.classes
        if self.classes is not None and other.classes is not None:
            classes = self.classes + other.classes
        intake = self.intake + other.intake
        return Outcome(rows, accepted, both, intake, lists, classes)

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
        complete = bool(predictions.has_label.all())
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
