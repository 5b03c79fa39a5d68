"""An evaluation of streamed rows: what batches add up to.

A tally takes batches of predictions, merges with other tallies, and becomes an
`Evaluation`. Everything in it is a whole number or a least or largest score, so the
order of batches and merges changes nothing, to the bit.
"""

import math

from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.evaluation.calibration_sums import CalibrationSums
from trustdoctor.evaluation.differences import unpaired_differences
from trustdoctor.evaluation.evaluations import (
    DEFAULT_SCORES,
    SOFTMAX,
    Evaluation,
    EvaluationSettings,
    ScoreSelection,
    named_scores,
    sketch_estimates,
)
from trustdoctor.evaluation.label_checks import (
    Range,
    confidence_range,
    constant_scores,
    count_labels,
    no_probability_note,
    reversed_scores,
)
from trustdoctor.evaluation.label_counts import LabelCounts
from trustdoctor.metrics import CELLS, Points, Sketch, share
from trustdoctor.predictions import NO_ROWS, Answers, Intake, Predictions
from trustdoctor.scores import (
    Score,
    available_scores,
    find_score,
    score_together,
)


class Tally:
    """Counts from which every metric of several scores follows.

    Parameters
    ----------
    scores : sequence of str or Score, dict, or "all", optional
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
        scores: ScoreSelection = None,
        *,
        temperature: float = 1.0,
        cells: int = CELLS,
    ) -> None:
        self.requested = None if scores is None else named_scores(scores, ())
        self.temperature = temperature
        self.cells = cells
        # Set by the first rows: which scores they allow, and of which form they are.
        self.scores: dict[str, Score] = {}
        self.n_classes = 0
        self.row_kind = ""
        self.class_names: tuple[str, ...] | None = None
        self.intake = NO_ROWS
        self.labels = LabelCounts()
        self.sketches: dict[str, Sketch] = {}
        self._calibration = CalibrationSums(temperature)
        self._all_probable = True  # whether every confidence could be a probability
        self._confidence_range = (math.inf, -math.inf)

    def fresh(self) -> "Tally":
        """Return the same, without rows."""
        return Tally(self.requested, temperature=self.temperature, cells=self.cells)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; those without a label are left out."""
        self.intake += Intake.of(predictions)
        if not predictions.has_label.any():
            return
        labelled = predictions.labelled("an evaluation")
        self._check_form(labelled)
        softmax = {
            name: find_score(name, temperature=self.temperature)
            for name in SOFTMAX
            if name in available_scores(labelled)
        }
        scored = score_together(labelled, [*self.scores.values(), *softmax.values()])
        for sketch, values in zip(self.sketches.values(), scored, strict=False):
            sketch.update(values, labelled.errors)
        doubts = dict(zip(softmax, scored[len(self.scores) :], strict=True))
        count_labels(self.labels, predictions, doubts)
        self._extend_range(confidence_range(labelled))
        # One batch beyond 0 to 1 shows that no confidence is a probability.
        if isinstance(labelled, Answers) and labelled.confidence is None:
            self._all_probable = False
        else:
            self._calibration.update(labelled, doubts)

    def _extend_range(self, confidences: Range) -> None:
        low, high = self._confidence_range
        self._confidence_range = min(low, confidences[0]), max(high, confidences[1])

    def _check_form(self, rows: "Predictions | Tally") -> None:
        """Adopt the form of the first rows, and refuse later ones of another form."""
        if not self.sketches:
            self.n_classes, self.row_kind = rows.n_classes, rows.row_kind
            self.class_names = rows.class_names
            if isinstance(rows, Tally):
                self.scores = rows.scores
            else:
                self.scores = named_scores(
                    self.requested,
                    available_scores(rows),
                    temperature=self.temperature,
                )
            self.sketches = {name: Sketch(cells=self.cells) for name in self.scores}
        if rows.row_kind != self.row_kind:
            message = (
                f"expected {self.row_kind} everywhere, got {rows.row_kind} in later "
                "rows."
            )
            raise InputError(message)

    def merge(self, other: "Tally") -> None:
        """Add the rows of another tally."""
        if (self._score_names, self.temperature) != (
            other._score_names,
            other.temperature,
        ):
            message = "expected a tally of the same scores and temperature, got others."
            raise InputError(message)
        self.intake += other.intake
        if not other.sketches:
            return
        self._check_form(other)
        self._all_probable &= other._all_probable
        self._extend_range(other._confidence_range)
        self.labels.merge(other.labels)
        for name, sketch in other.sketches.items():
            self.sketches[name].merge(sketch)
        self._calibration.merge(other._calibration)

    @property
    def _score_names(self) -> list[str] | None:
        return None if self.requested is None else list(self.requested)

    @property
    def weight(self) -> int:
        """How many scores are counted."""
        return len(self.requested or DEFAULT_SCORES)

    def __len__(self) -> int:
        """Return the number of rows with a label."""
        return self.intake.rows - self.intake.unlabelled

    def evaluate(
        self,
        *,
        points: Points | None = None,
        confidence: float = 0.95,
    ) -> Evaluation:
        """Measure the counted rows; parameters as in `trustdoctor.evaluate`."""
        if not self.intake.rows:
            message = "expected at least one row, got none."
            raise InputError(message)
        if not self.sketches:
            message = "an evaluation needs the true labels, and no row has one."
            raise LabelsMissingError(message)
        settings = EvaluationSettings(points or Points(), self.temperature, confidence)
        sketches = {
            name: self.sketches[name].tied(score.rounding)
            for name, score in self.scores.items()
        }
        estimates = {
            name: sketch_estimates(sketch, settings)
            for name, sketch in sketches.items()
        }
        calibration = {}
        if self._all_probable:
            summary = self._calibration.summary()
            calibration = summary.estimates(confidence=confidence)
        # Every sketch has the same rows, so any of them counts the errors.
        n, n_errors = len(self), next(iter(sketches.values())).n_errors
        labels = self.labels.report(self.class_names)
        odd = (*labels.odd, *reversed_scores(estimates, probable=bool(calibration)))
        return Evaluation(
            n=n,
            n_classes=self.n_classes,
            row_kind=self.row_kind,
            n_errors=n_errors,
            accuracy=share(n - n_errors, n, confidence=confidence),
            calibration=calibration,
            scores=estimates,
            differences=unpaired_differences(self.scores, estimates),
            settings=settings,
            odd_labels=odd,
            warnings=(
                *odd,
                *self.intake.lines(),
                *no_probability_note(self._confidence_range),
                *labels.notes,
                *constant_scores({name: s.counts for name, s in sketches.items()}),
            ),
            streamed=True,
        )
