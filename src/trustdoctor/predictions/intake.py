"""What a file or a batch of predictions contained, in numbers that can be added up."""

from collections.abc import Iterator
from dataclasses import dataclass

from trustdoctor.predictions.predictions import Predictions

NOTICEABLE_SUM_ERROR = 1e-3
"""Half precision alone makes rows miss the sum 1 by this much: no note below it."""


@dataclass(frozen=True)
class Intake:
    """Counts of rows that need a remark, and how far probabilities missed the sum 1.

    Attributes
    ----------
    rows, unlabelled : int
        All rows, and those without a label.
    sum_error : float
        How far the farthest row of probabilities was from summing to 1.
    ambiguous : int
        Answers that the rest of the mass could change.
    unknown_groups : int
        Rows of groups that a gate with groups has no threshold for.
    unanswered, without_confidence : int
        Rows without an answer, and answers without a confidence.
    overruled : int
        Rows in which the system decided otherwise than for the most probable class.
    decided_by : str
        What made the decisions, if they are the system's own.
    one_vs_rest : bool
        Whether probabilities of one class against the rest were divided by their sums.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.5, 0.5], [0.9, 0.1]], [0, None])
    >>> list(Intake.of(p).lines())
    ['1 of 2 rows has no label and is left out of every rate.']
    """

    rows: int = 0
    unlabelled: int = 0
    sum_error: float = 0.0
    ambiguous: int = 0
    unknown_groups: int = 0
    unanswered: int = 0
    without_confidence: int = 0
    overruled: int = 0
    decided_by: str = ""
    one_vs_rest: bool = False

    @classmethod
    def of(cls, predictions: Predictions) -> "Intake":
        """Count the rows of these predictions."""
        always_rejected = predictions.always_rejected
        rejected = 0 if always_rejected is None else int(always_rejected.sum())
        ambiguous = (
            0 if predictions.ambiguous is None else int(predictions.ambiguous.sum())
        )
        unanswered = int(predictions.abstained.sum())
        return cls(
            rows=len(predictions),
            unlabelled=len(predictions) - int(predictions.has_label.sum()),
            sum_error=predictions.sum_error,
            ambiguous=ambiguous,
            unanswered=unanswered,
            without_confidence=rejected - unanswered - ambiguous,
            overruled=_overruled(predictions),
            decided_by=predictions.decided_by,
            one_vs_rest=predictions.one_vs_rest,
        )

    @property
    def always_rejected(self) -> int:
        """Rows that are rejected whatever the threshold."""
        return self.ambiguous + self.unanswered + self.without_confidence

    def __add__(self, other: "Intake") -> "Intake":
        """Count the rows of both."""
        return Intake(
            self.rows + other.rows,
            self.unlabelled + other.unlabelled,
            max(self.sum_error, other.sum_error),
            self.ambiguous + other.ambiguous,
            self.unknown_groups + other.unknown_groups,
            self.unanswered + other.unanswered,
            self.without_confidence + other.without_confidence,
            self.overruled + other.overruled,
            self.decided_by or other.decided_by,
            self.one_vs_rest or other.one_vs_rest,
        )

    def lines(self) -> Iterator[str]:
        """Yield the remarks that a reader of the figures needs."""
        if 0 < self.unlabelled < self.rows:
            single = self.unlabelled == 1
            yield (
                f"{self.unlabelled:,} of {self.rows:,} rows "
                f"{'has' if single else 'have'} no label and "
                f"{'is' if single else 'are'} left out of every rate."
            )
        yield from self.decision_lines()
        if self.ambiguous:
            single = self.ambiguous == 1
            yield (
                f"{self.ambiguous:,} of {self.rows:,} answers "
                f"{'is' if single else 'are'} ambiguous: what the model left out could "
                f"change {'it' if single else 'them'}. "
                f"{'It is' if single else 'They are'} always rejected, and count as "
                "confidence 0."
            )
        if self.unknown_groups:
            single = self.unknown_groups == 1
            yield (
                f"{self.unknown_groups:,} of {self.rows:,} rows "
                f"{'is of a group' if single else 'are of groups'} that the gate does "
                f"not know: {'it has' if single else 'they have'} the threshold of "
                f"all, and no promise of {'its' if single else 'their'} own."
            )
        if self.sum_error > NOTICEABLE_SUM_ERROR:
            yield (
                "The probabilities are rounded: rows miss the sum 1 by up to "
                f"{self.sum_error:.2g}, and each was divided by its sum."
            )

    def decision_lines(self) -> Iterator[str]:
        """Yield whose decisions are judged, which rows have none, and by what."""
        if self.unanswered:
            single = self.unanswered == 1
            yield (
                f"{self.unanswered:,} of {self.rows:,} rows "
                f"{'has' if single else 'have'} no answer: "
                f"{'it is' if single else 'they are'} rejected whatever the threshold, "
                f"and {'counts as an error' if single else 'count as errors'} "
                "that the gate rejects, in accuracy, AUROC and TRR, too."
            )
        if self.without_confidence:
            single = self.without_confidence == 1
            yield (
                f"{self.without_confidence:,} of {self.rows:,} answers "
                f"{'has' if single else 'have'} no confidence: "
                f"{'it is' if single else 'they are'} rejected whatever the threshold."
            )
        if self.decided_by:
            yield (
                f"The decisions judged are the system's own ({self.decided_by}); "
                f"{self.overruled:,} of {self.rows:,} differ from the most probable "
                "class. Doubt is that of the class decided on, by beta, msp or margin; "
                "scores of all classes at once, as alpha and entropy, do not apply."
            )
        if self.one_vs_rest:
            yield (
                "The probabilities are of one class against the rest: each row was "
                "divided by its sum."
            )


def _overruled(predictions: Predictions) -> int:
    """Count the decisions that are not the class of the largest logit."""
    if predictions.decisions is None:
        return 0
    differs = predictions.decisions != predictions.without_decisions().predicted
    return int((differs & ~predictions.abstained).sum())


NO_ROWS = Intake()
"""The counts of no rows, to which others are added."""
