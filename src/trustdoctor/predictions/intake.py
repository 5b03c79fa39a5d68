"""What came in, in numbers that add up: rows, missing labels, rounded sums."""

from collections.abc import Iterator
from dataclasses import dataclass

from trustdoctor.predictions.logits import Predictions

SAID = 1e-3
"""Sums that miss 1 by no more are not worth a word: half precision does that."""


@dataclass(frozen=True)
class Intake:
    """What came in.

    Attributes
    ----------
    rows, unlabelled : int
        All rows, and those without a label.
    miss : float
        How far the farthest row of probabilities was from summing to 1.
    ambiguous : int
        Answers that the rest of the mass could change.
    strangers : int
        Rows of groups that a gate with groups has no threshold for.
    silent, unstated : int
        Rows without an answer, and answers without a confidence.
    overruled : int
        Rows whose decision, the system's own, is not the most probable class.
    decided_by : str
        What made the decisions, where they are the system's own.
    one_vs_rest : bool
        Whether rows of probabilities against the rest were divided by their sums.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.5, 0.5], [0.9, 0.1]], [0, None])
    >>> list(Intake.of(p).lines())
    ['1 of 2 rows has no label and is left out of every rate.']
    """

    rows: int = 0
    unlabelled: int = 0
    miss: float = 0.0
    ambiguous: int = 0
    strangers: int = 0
    silent: int = 0
    unstated: int = 0
    overruled: int = 0
    decided_by: str = ""
    one_vs_rest: bool = False

    @classmethod
    def of(cls, predictions: Predictions) -> "Intake":
        """Return what these predictions are."""
        missing = len(predictions) - int(predictions.known.sum())
        unsure = getattr(predictions, "ambiguous", None)
        ambiguous = 0 if unsure is None else int(unsure.sum())
        silent = int(predictions.abstained.sum())
        barred = 0 if predictions.barred is None else int(predictions.barred.sum())
        return cls(
            rows=len(predictions),
            unlabelled=missing,
            miss=predictions.miss,
            ambiguous=ambiguous,
            silent=silent,
            unstated=barred - silent - ambiguous,
            overruled=_overruled(predictions),
            decided_by=predictions.decided_by,
            one_vs_rest=predictions.one_vs_rest,
        )

    @property
    def barred(self) -> int:
        """Rows that are rejected whatever the threshold."""
        return self.ambiguous + self.silent + self.unstated

    def __add__(self, other: "Intake") -> "Intake":
        """Return what both are together."""
        return Intake(
            self.rows + other.rows,
            self.unlabelled + other.unlabelled,
            max(self.miss, other.miss),
            self.ambiguous + other.ambiguous,
            self.strangers + other.strangers,
            self.silent + other.silent,
            self.unstated + other.unstated,
            self.overruled + other.overruled,
            self.decided_by or other.decided_by,
            self.one_vs_rest or other.one_vs_rest,
        )

    def lines(self) -> Iterator[str]:
        """Say what a reader of the figures has to know."""
        if 0 < self.unlabelled < self.rows:
            one = self.unlabelled == 1
            yield (
                f"{self.unlabelled:,} of {self.rows:,} rows "
                f"{'has' if one else 'have'} no label and "
                f"{'is' if one else 'are'} left out of every rate."
            )
        yield from self.decision_lines()
        if self.ambiguous:
            one = self.ambiguous == 1
            yield (
                f"{self.ambiguous:,} of {self.rows:,} answers "
                f"{'is' if one else 'are'} ambiguous: what the model left out could "
                f"change {'it' if one else 'them'}. {'It is' if one else 'They are'} "
                "always rejected, and count as confidence 0."
            )
        if self.strangers:
            one = self.strangers == 1
            yield (
                f"{self.strangers:,} of {self.rows:,} rows "
                f"{'is of a group' if one else 'are of groups'} that the gate does not "
                f"know: {'it has' if one else 'they have'} the threshold of all, and "
                f"no promise of {'its' if one else 'their'} own."
            )
        if self.miss > SAID:
            yield (
                "The probabilities are rounded: rows miss the sum 1 by up to "
                f"{self.miss:.2g}, and each was divided by its sum."
            )

    def decision_lines(self) -> Iterator[str]:
        """Say whose decisions are judged, which rows have none, and on what."""
        if self.silent:
            one = self.silent == 1
            yield (
                f"{self.silent:,} of {self.rows:,} rows {'has' if one else 'have'} no "
                f"answer: {'it is' if one else 'they are'} rejected whatever the "
                f"threshold, and {'counts as an error' if one else 'count as errors'} "
                "that the gate rejects, in accuracy, AUROC and TRR, too."
            )
        if self.unstated:
            one = self.unstated == 1
            yield (
                f"{self.unstated:,} of {self.rows:,} answers "
                f"{'has' if one else 'have'} no confidence: "
                f"{'it is' if one else 'they are'} rejected whatever the threshold."
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
    """Return how many decisions are not the class of the largest logit."""
    if predictions.decisions is None:
        return 0
    other = predictions.decisions != predictions.without_decisions().predicted
    return int((other & ~predictions.abstained).sum())


NO_ROWS = Intake()
"""Nothing came in yet."""
