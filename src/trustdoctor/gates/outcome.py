"""What a gate did to rows: decisions, counts that add up over batches, and rates."""

from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.gates.targets import rate_fractions
from trustdoctor.metrics import Confusion, Estimate, share
from trustdoctor.predictions import NO_ROWS, Answers, Intake, Predictions

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """What was decided about each row.

    Attributes
    ----------
    doubts : array (n,)
    accepted : bool array (n,)
    predicted : array (n,)
        The classes that were accepted or rejected, by name where the classes have
        names; None where the answer is not known.
    ids : array (n,), or None
        The rows' ids, if they have any.
    shortlist : bool array (n, C), or None
        The classes that a rejected row may be. All of them mean a full review; accepted
        rows have none.
    """

    doubts: Array
    accepted: NDArray[np.bool_]
    predicted: Array
    _: KW_ONLY
    ids: Array | None = None
    shortlist: NDArray[np.bool_] | None = None

    @property
    def review(self) -> NDArray[np.bool_]:
        """Which rows a person should look at: those that were not accepted."""
        return np.logical_not(self.accepted)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.accepted)

    def __repr__(self) -> str:
        """Say how many rows were accepted."""
        n, accepted = len(self), int(np.sum(self.accepted))
        share = f" ({accepted / n:.1%})" if n else ""
        kind = type(self).__name__
        return f"{kind}({accepted:,} of {n:,} predictions accepted{share})"

    def to_frame(self) -> "pl.DataFrame":
        """Return a polars table, one row per prediction; `.to_pandas()` converts it."""
        import polars as pl

        return pl.DataFrame(self._columns(), strict=False)

    def _columns(self) -> dict[str, Any]:
        """Return the columns of the table."""
        columns = {} if self.ids is None else {"id": list(self.ids)}
        columns["predicted"] = np.asarray(self.predicted).tolist()
        return columns | {
            "doubt": to_numpy(self.doubts),
            "accepted": to_numpy(self.accepted),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Screened(Decisions):
    """The decision of a gate on each row.

    Attributes
    ----------
    passes : integer array (n,), or None
        The number of passes of the model on each row, for a second opinion.
    predictions : Predictions or None
        The model's predictions, if the gate ran it.

    Examples
    --------
    >>> from trustdoctor import Gate
    >>> screened = Gate(-1.0, score="beta").screen([[2.0, 0.0]], kind="logits")
    >>> screened
    Screened(1 of 1 predictions accepted (100.0%))
    >>> screened.doubts, screened.accepted, screened.predicted
    (array([-2.]), array([ True]), array([0]))
    """

    _: KW_ONLY
    passes: NDArray[np.int64] | None = None
    predictions: Predictions | None = None

    def _columns(self) -> dict[str, Any]:
        passes = {} if self.passes is None else {"passes": self.passes}
        return super()._columns() | passes


@dataclass(frozen=True)
class ListCounts:
    """Counts of the lists of rejected rows, which add up over batches.

    Attributes
    ----------
    rows, classes : int
        Rejected rows, and classes on all of their lists; a full review has every class.
    full_reviews : int
    labelled, with_true_class : int
        Rejected rows with a label, and those whose list holds it.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.5, 0.4, 0.1], [0.4, 0.3, 0.3]], [1, None])
    >>> sets = np.array([[True, True, False], [True, True, True]])
    >>> print(ListCounts.of(p, sets).words(0.95))
    Lists for 2 rejected rows: 2.50 classes on average, 1 full review (of all \
classes); they hold the true class in 100.00 [2.50, 100.00] % (promised: 95%)
    """

    rows: int = 0
    classes: int = 0
    full_reviews: int = 0
    labelled: int = 0
    with_true_class: int = 0

    @classmethod
    def of(cls, predictions: Predictions, sets: NDArray[np.bool_]) -> "ListCounts":
        """Count lists, a mask (n, C); rows that were accepted have none."""
        sizes = sets.sum(1)
        full_reviews = int((sizes == sets.shape[1]).sum())
        counts = cls(int((sizes > 0).sum()), int(sizes.sum()), full_reviews)
        if predictions.labels is None:
            return counts
        labelled = np.flatnonzero((sizes > 0) & predictions.has_label)
        with_true_class = int(sets[labelled, predictions.labels[labelled]].sum())
        return replace(counts, labelled=len(labelled), with_true_class=with_true_class)

    def __add__(self, other: "ListCounts") -> "ListCounts":
        """Count the lists of both."""
        ours, theirs = asdict(self), asdict(other)
        return ListCounts(*(ours[name] + theirs[name] for name in ours))

    def rate(self, *, confidence: float = 0.95) -> Estimate | None:
        """Return how often lists hold the true class; None without labels."""
        if not self.labelled:
            return None
        return share(self.with_true_class, self.labelled, confidence=confidence)

    def words(self, level: float | None = None, *, scope: str = "") -> str:
        """Say how long the lists are and how often they hold the true class.

        Without the promised level, only how long they are. `scope` follows the rows.
        """
        if not self.rows:
            return "No row was rejected, so there are no lists"
        rows = "row" if self.rows == 1 else "rows"
        reviews = "review" if self.full_reviews == 1 else "reviews"
        explanation = " (of all classes)" if self.full_reviews else ""
        sizes = (
            f"Lists for {self.rows:,} rejected {rows}{scope}: "
            f"{self.classes / self.rows:.2f} classes on average, "
            f"{self.full_reviews:,} full {reviews}{explanation}"
        )
        rate = self.rate()
        if level is None or rate is None:
            return sizes
        return (
            f"{sizes}; they hold the true class in {rate.percent()} % (promised: "
            f"{round(100 * level, 10):g}%)"
        )


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
        """Count rows; return None for answers, which have no set of classes."""
        if isinstance(predictions, Answers):
            return None
        size, predicted = predictions.n_classes, predictions.predicted
        answered = ~predictions.abstained
        rows, accepted_rows = (
            np.bincount(predicted[mask], minlength=size)
            for mask in (answered, answered & accepted)
        )
        return cls(rows, accepted_rows, predictions.class_names)

    def __add__(self, other: "ClassCounts") -> "ClassCounts":
        """Count the rows of both."""
        rows, accepted = self.rows + other.rows, self.accepted + other.accepted
        return ClassCounts(rows, accepted, self.names)

    def neglected(self) -> str:
        """Say which predicted classes are hardly ever accepted; empty for none.

        These are classes of 30 rows or more of which less than 5% are accepted, if of
        the other rows at least 20% are, and ten times as large a share.
        """
        # One threshold for all rows then answers some classes and never others, though
        # its rates over all rows look fine.
        total, accepted = self.rows.sum(), self.accepted.sum()
        accepted_share = self.accepted / np.maximum(self.rows, 1)
        share_elsewhere = (accepted - self.accepted) / np.maximum(total - self.rows, 1)
        is_neglected = (
            (self.rows >= 30)
            & (accepted_share < 0.05)
            & (share_elsewhere >= np.maximum(0.2, 10 * accepted_share))
        )
        if not is_neglected.any():
            return ""
        largest = int(np.flatnonzero(is_neglected)[np.argmax(self.rows[is_neglected])])
        name = repr(self.names[largest]) if self.names else str(largest)
        n, k = int(self.rows[largest]), int(self.accepted[largest])
        more = int(is_neglected.sum()) - 1
        also = f", and {more} more class{'es' * (more > 1)} hardly ever" if more else ""
        return (
            f"Careful: {k:,} of {n:,} rows predicted {name} "
            f"{'is' if k == 1 else 'are'} accepted ({accepted_share[largest]:.1%}), of "
            f"the others {share_elsewhere[largest]:.1%}{also}. One threshold does not "
            "fit these classes. --per-class (groups='predicted', instead of other "
            "groups) gives each a threshold, and rejects a class that cannot keep the "
            "promise."
        )


@dataclass(frozen=True)
class Outcome:
    """Counts of a gate's decisions, which add up over batches.

    Attributes
    ----------
    rows, accepted : int
    counts : Confusion or None
        Of the labelled rows; None without any.
    intake : Intake
        Counts of missing labels, rounded probabilities and the like.
    lists : ListCounts or None
        Of the rejected rows, for a gate with a shortlist.
    classes : ClassCounts or None
        By predicted class, if there are classes.

    Examples
    --------
    >>> outcome = Outcome.of(np.array([True, False]), np.array([False, True]))
    >>> outcome.rates()["risk"].value
    0.0
    """

    rows: int
    accepted: int
    counts: Confusion | None = None
    intake: Intake = NO_ROWS
    lists: ListCounts | None = None
    classes: ClassCounts | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, accepted: Array, errors: Array | None = None) -> "Outcome":
        """Count decisions (n,), and how many were right if the errors are known."""
        counts = None if errors is None else Confusion.of(accepted, errors)
        return cls(len(accepted), int(accepted.sum()), counts)

    @classmethod
    def of_predictions(
        cls, predictions: Predictions, accepted: Array, sets: Any = None
    ) -> "Outcome":
        """Count decisions on predictions, with or without labels.

        `sets` are the lists of the rejected rows, a mask (n, C), if there are any.
        """
        outcome = cls.of(accepted)
        if predictions.labels is not None:
            errors = predictions.labelled("rates").errors
            counts = Confusion.of(accepted[predictions.has_label], errors)
            outcome = replace(outcome, counts=counts)
        return replace(
            outcome,
            intake=Intake.of(predictions),
            lists=None if sets is None else ListCounts.of(predictions, sets),
            classes=ClassCounts.of(predictions, accepted),
        )

    @classmethod
    def of_state(cls, state: str, errors: int, rows: int) -> "Outcome":
        """Count what accepting or rejecting everything does."""
        correct = rows - errors
        if state == "accept-all":
            counts = Confusion(0, 0, accepted_errors=errors, accepted_correct=correct)
            return cls(rows, rows, counts)
        counts = Confusion(
            rejected_correct=correct,
            rejected_errors=errors,
            accepted_errors=0,
            accepted_correct=0,
        )
        return cls(rows, 0, counts)

    def __add__(self, other: "Outcome") -> "Outcome":
        """Count the rows of both."""
        return Outcome(
            self.rows + other.rows,
            self.accepted + other.accepted,
            _sum(self.counts, other.counts),
            self.intake + other.intake,
            _sum(self.lists, other.lists),
            _sum(self.classes, other.classes),
        )

    @property
    def decisions(self) -> Confusion:
        """The counts; without labels, as if every row were correct."""
        if self.counts is not None:
            return self.counts
        return Confusion(self.rows - self.accepted, 0, 0, self.accepted)

    def rates(self, *, confidence: float = 0.95) -> dict[str, Estimate]:
        """Return coverage and, with labels, FRR, TRR, risk and joint rate.

        With Clopper-Pearson intervals (1934); rates without rows are left out.
        """
        fractions = rate_fractions(self.decisions, labelled=self.counts is not None)
        # Coverage needs no labels, so unlabelled rows count, too.
        if self.counts is not None and self.counts.n < self.rows:
            fractions["coverage"] = (self.accepted, self.rows)
        return {
            name: share(numerator, denominator, confidence=confidence)
            for name, (numerator, denominator) in fractions.items()
            if denominator
        }


def known_errors(predictions: Predictions) -> Array | None:
    """Return the errors, (n,); None unless every row has a label."""
    return predictions.errors if predictions.has_label.all() else None


NO_OUTCOME = Outcome(0, 0)
"""The outcome of no rows: where sums start."""


def _sum(ours: Any, theirs: Any) -> Any:
    """Add two counts, either of which may be missing."""
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    return ours + theirs


def add_width(widths: set[int], n_classes: int) -> None:
    """Add a batch's number of classes; refuse one that differs from the others."""
    widths.add(n_classes)
    if len(widths) > 1:
        low, high = sorted(widths)
        message = f"expected one number of classes, got rows of {low} and {high}."
        raise InputError(message)
