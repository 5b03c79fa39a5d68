"""An evaluation in pieces: what batches of rows add up to.

A tally takes batches of predictions, merges with other tallies, and becomes an
`Evaluation`. Everything in it is a whole number or a least or largest score, so the
order of batches and merges changes nothing, to the bit.
"""

import math
from collections.abc import Sequence

from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.evaluation.calibration_table import SaidSums
from trustdoctor.evaluation.differences import unpaired_differences
from trustdoctor.evaluation.evaluations import (
    DEFAULT_SCORES,
    SOFTMAX,
    Evaluation,
    Settings,
    default_scores,
    measure_sketch,
)
from trustdoctor.evaluation.label_checks import (
    Ends,
    confidence_ends,
    constant_scores,
    count_labels,
    count_neighbours,
    reversed_scores,
    say_beyond,
)
from trustdoctor.evaluation.label_counts import LabelCounts
from trustdoctor.metrics import CELLS, Estimate, Points, Sketch, share
from trustdoctor.predictions import NO_ROWS, Answers, Intake, Predictions
from trustdoctor.scores import Score, available_scores, score_all


class Tally:
    """Counts from which every metric of several scores follows.

    Parameters
    ----------
    scores : sequence of str or Score, optional
        As in `evaluate`.
    temperature : float
        Divides the logits.
    cells : int
        Of the sketch of each score.

    Examples
    --------
    >>> tally = Tally(["alpha"])
    >>> tally.update(Predictions.from_logits([[4.0, 0], [3, 0]], [0, 0]))
    >>> tally.update(Predictions.from_logits([[1.0, 0], [0, 1]], [1, 1]))
    >>> round(tally.evaluate().scores["alpha"]["auroc"].value, 3)
    0.833
    """

    def __init__(
        self,
        scores: Sequence[str | Score] | None = None,
        *,
        temperature: float = 1.0,
        cells: int = CELLS,
    ) -> None:
        self.asked = None if scores is None else default_scores(scores, ())
        self.temperature = temperature
        self.cells = cells
        self.ready: list[Score] = []
        self.n_classes = 0
        self.row_kind = ""
        self.class_names: tuple[str, ...] | None = None
        self.intake = NO_ROWS
        self.labels = LabelCounts()
        self.sketches: dict[str, Sketch] = {}
        self._said = SaidSums(temperature)
        self._stated = True  # whether every confidence could be a probability
        self._ends = (math.inf, -math.inf)  # of the confidences

    def fresh(self) -> "Tally":
        """Return the same, without rows."""
        return Tally(self.asked, temperature=self.temperature, cells=self.cells)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; those without a label are left out."""
        self.intake += Intake.of(predictions)
        if not predictions.has_label.any():
            return
        every_row, predictions = predictions, predictions.labelled("an evaluation")
        self._meet(predictions)
        wrong = predictions.errors
        more = [name for name in SOFTMAX if name in available_scores(predictions)]
        asked: list[str | Score] = [*self.ready, *more]
        found = score_all(predictions, asked, temperature=self.temperature)
        for name, sketch in self.sketches.items():
            sketch.update(found[name], wrong)
        count_labels(self.labels, predictions, found)
        count_neighbours(self.labels, every_row, found)
        self._widen(confidence_ends(predictions))
        if isinstance(predictions, Answers) and predictions.confidence is None:
            self._stated = False
        else:
            self._said.update(predictions, found)

    def _widen(self, ends: Ends) -> None:
        self._ends = min(self._ends[0], ends[0]), max(self._ends[1], ends[1])

    def _meet(self, rows: "Predictions | Tally") -> None:
        """Take the first rows as a measure, and refuse others of another kind."""
        if not self.sketches:
            self.n_classes, self.row_kind = rows.n_classes, rows.row_kind
            self.class_names = rows.class_names
            if isinstance(rows, Tally):
                self.ready = rows.ready
            else:
                self.ready = default_scores(self.asked, available_scores(rows))
            self.sketches = {s.name: Sketch(cells=self.cells) for s in self.ready}
        if rows.row_kind != self.row_kind:
            message = (
                f"expected {self.row_kind} everywhere, got {rows.row_kind} in later "
                "rows."
            )
            raise InputError(message)

    def merge(self, other: "Tally") -> None:
        """Count the rows of another tally, too."""
        if (self._names, self.temperature) != (other._names, other.temperature):
            message = "expected a tally of the same scores and temperature, got others."
            raise InputError(message)
        self.intake += other.intake
        if not other.sketches:
            return
        self._meet(other)
        self._stated &= other._stated
        self._widen(other._ends)
        self.labels.merge(other.labels)
        for name, sketch in other.sketches.items():
            self.sketches[name].merge(sketch)
        self._said.merge(other._said)

    @property
    def weight(self) -> int:
        """How many scores are counted."""
        return len(self.asked or DEFAULT_SCORES)

    @property
    def _names(self) -> list[str] | None:
        return None if self.asked is None else [score.name for score in self.asked]

    def __len__(self) -> int:
        """Return the number of rows with a label."""
        return self.intake.rows - self.intake.unlabelled

    def evaluate(
        self,
        *,
        points: Points | None = None,
        confidence: float = 0.95,
    ) -> Evaluation:
        """Measure; parameters as in `trustdoctor.evaluate`."""
        if not self.intake.rows:
            message = "expected at least one row, got none."
            raise InputError(message)
        if not self.sketches:
            message = "an evaluation needs the true labels, and no row has one."
            raise LabelsMissingError(message)
        settings = Settings(points or Points(), self.temperature, confidence)
        tied = {s.name: self.sketches[s.name].tied(s.rounding) for s in self.ready}
        scores = {n: measure_sketch(s, settings) for n, s in tied.items()}
        calibration = self._calibration(settings)
        n, wrong = len(self), next(iter(self.sketches.values())).n_errors
        turned = reversed_scores(scores, probable=bool(calibration))
        odd = (*self.labels.odd(), *turned)
        return Evaluation(
            n=n,
            n_classes=self.n_classes,
            described=self.row_kind,
            n_errors=wrong,
            accuracy=share(n - wrong, n, confidence=confidence),
            calibration=calibration,
            scores=scores,
            differences=unpaired_differences(self.ready, scores),
            settings=settings,
            odd_labels=odd,
            warnings=(
                *odd,
                *self._notes(),
                *constant_scores({n: s.counts for n, s in tied.items()}),
            ),
            counted=True,
        )

    def _notes(self) -> tuple[str, ...]:
        """Return what else to check of the rows."""
        return (
            *self.intake.lines(),
            *say_beyond(self._ends),
            *self.labels.warnings(self.class_names)[len(self.labels.odd()) :],
        )

    def _calibration(self, settings: Settings) -> dict[str, Estimate]:
        if not self._stated:
            return {}
        return self._said.said().estimates(confidence=settings.confidence)
