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

    @classmethod
    def of(cls, predictions: Predictions) -> "Intake":
        """Return what these predictions are."""
        missing = len(predictions) - int(predictions.known.sum())
        unsure = getattr(predictions, "ambiguous", None)
        ambiguous = 0 if unsure is None else int(unsure.sum())
        return cls(len(predictions), missing, predictions.miss, ambiguous)

    def __add__(self, other: "Intake") -> "Intake":
        """Return what both are together."""
        return Intake(
            self.rows + other.rows,
            self.unlabelled + other.unlabelled,
            max(self.miss, other.miss),
            self.ambiguous + other.ambiguous,
            self.strangers + other.strangers,
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


NO_ROWS = Intake()
"""Nothing came in yet."""
