"""Calibration on a stream: batches are counted in sketches, and sketches merge.

A gate and its lists are calibrated on counts of scores, of all rows and of each group,
so memory does not grow with the rows. Engines fold these sketches over files.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from msgspec import structs

from trustdoctor.arrays import Array, as_groups
from trustdoctor.errors import InputError
from trustdoctor.evaluation import LabelCounts, count_labels
from trustdoctor.gates.calibration import Calibration, calibrate_sample
from trustdoctor.gates.calibration_rows import missing_label_notes
from trustdoctor.gates.classes import Classes, check_classes, classes_of
from trustdoctor.gates.gate import Gate, on_confidences
from trustdoctor.gates.groups import GIVEN, groups_of
from trustdoctor.gates.outcome import add_width, known_errors
from trustdoctor.gates.request import Request, make_requests
from trustdoctor.gates.sample import Fingerprint
from trustdoctor.gates.shortlist_calibration import (
    ReferenceSet,
    are_gate_rows,
    conformal_rank,
    refuse_labelled_subset,
    threshold_above_ties,
    true_class_nonconformity,
    uncalibrated_shortlist,
    with_shortlist,
)
from trustdoctor.gates.shortlists import ListRule, Shortlist, require_classes
from trustdoctor.metrics import CELLS, Sketch
from trustdoctor.predictions import NO_ROWS, Answers, Intake, Predictions
from trustdoctor.scores import ROUNDING, Score, score_all

MIN_GROUP_CELLS = 1 << 13
"""The fewest cells of a group's sketch."""


@dataclass
class CalibrationSketch:
    """Counts of the rows that calibrate a gate: of all, and of each group.

    Attributes
    ----------
    score : Score
    grouped_by : str
        "", "predicted" for the predicted class, or "given" for `predictions.groups`.
    pooled : Sketch
    groups : dict of group to Sketch
    widths : set of int
        The number of classes of each batch; more than one number is refused.
    needs_labels : bool
        Whether rows without a label are counted separately.
    unlabelled : Sketch
        Counts of those rows.
    intake : Intake
        Counts of missing labels, rounded probabilities and the like.
    unit : bool
        Whether every row has a confidence from 0 to 1.
    classes : int, tuple of str, or None
        The classes of the rows, as in `Gate`.
    fingerprint : Fingerprint
        The same as of all pooled rows at once.
    labels : LabelCounts
        Evidence of whether the labels can be right, if labels are needed.
    class_names : tuple of str, or None

    Examples
    --------
    >>> from trustdoctor.scores import find_score
    >>> sketch = CalibrationSketch(find_score("alpha"))
    >>> sketch.update(Predictions.from_logits([[4.0, 0.0], [0.5, 0.0]], [0, 1]))
    >>> sketch.calibrate(threshold=-1.0).certificate.n
    2
    """

    score: Score
    grouped_by: str = ""
    pooled: Sketch = field(default_factory=Sketch)
    groups: dict[Any, Sketch] = field(default_factory=dict)
    widths: set[int] = field(default_factory=set)
    needs_labels: bool = False
    unlabelled: Sketch = field(default_factory=Sketch)
    intake: Intake = NO_ROWS
    on_confidences: bool = True
    classes: Classes | None = None
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    labels: LabelCounts = field(default_factory=LabelCounts)
    class_names: tuple[str, ...] | None = None

    def fresh(self) -> "CalibrationSketch":
        """Return an empty sketch for the same calibration."""
        return CalibrationSketch(
            self.score, self.grouped_by, needs_labels=self.needs_labels
        )

    def update(self, predictions: Predictions) -> None:
        """Count more rows; if labels are needed, unlabelled rows separately."""
        add_width(self.widths, predictions.n_classes)
        self.intake += Intake.of(predictions)
        self.on_confidences &= on_confidences(predictions)
        self.classes = self.classes or classes_of(predictions)
        self.class_names = predictions.class_names
        if self.needs_labels:
            predictions = self._count_labels(predictions)
            if not len(predictions):
                return
        scores, errors = self.score(predictions), known_errors(predictions)
        self.pooled.update(scores, errors)
        self.fingerprint += Fingerprint.of(scores, errors)
        if not self.grouped_by:
            return
        group_of_row = groups_of(predictions, self.grouped_by)
        # All predicted classes share the cells of one sketch, so memory stays bounded.
        # The number of the rows' own groups is not known before the last batch.
        cells = MIN_GROUP_CELLS
        if self.grouped_by != GIVEN and predictions.n_classes:
            cells = max(MIN_GROUP_CELLS, CELLS // predictions.n_classes)
        for name in np.unique(group_of_row).tolist():
            members = group_of_row == name
            sketch = self.groups.setdefault(name, Sketch(cells=cells))
            sketch.update(scores[members], None if errors is None else errors[members])

    def _count_labels(self, predictions: Predictions) -> Predictions:
        """Count labels, and doubts of unlabelled rows; return the labelled rows."""
        all_rows = predictions
        if not predictions.has_label.all():
            always_rejected = predictions.always_rejected
            unlabelled = ~predictions.has_label
            if always_rejected is not None:  # their score is inf in any case
                unlabelled = unlabelled & ~always_rejected
            if unlabelled.any():
                self.unlabelled.update(self.score(predictions[unlabelled]))
            predictions = predictions[predictions.has_label]
        if len(predictions):
            has_classes = not isinstance(predictions, Answers)
            doubts = score_all(predictions, ["beta"]) if has_classes else {}
            count_labels(self.labels, all_rows, doubts)
        return predictions

    def merge(self, other: "CalibrationSketch") -> None:
        """Count the rows of another sketch, too."""
        for width in other.widths:
            add_width(self.widths, width)
        self.intake += other.intake
        self.on_confidences &= other.on_confidences
        self.classes = self.classes or other.classes
        self.class_names = self.class_names or other.class_names
        self.labels.merge(other.labels)
        self.unlabelled.merge(other.unlabelled)
        self.pooled.merge(other.pooled)
        self.fingerprint += other.fingerprint
        for name, sketch in other.groups.items():
            if name in self.groups:
                self.groups[name].merge(sketch)
            else:
                self.groups[name] = sketch

    def calibrate(self, **options: Any) -> Gate:
        """Calibrate on the counted rows; targets and options as in `calibrate`."""
        return self.run_calibration(make_requests(**options)).gate

    def run_calibration(self, requests: list[Request]) -> Calibration:
        """Cut the counted rows and certify, as `run_calibration` does with rows."""
        labels = self.labels.report(self.class_names)
        notes = missing_label_notes(self.pooled, self.unlabelled)
        rows = self.pooled if len(self.pooled) else self.unlabelled
        rounding = self.score.rounding
        groups = {name: sketch.tied(rounding) for name, sketch in self.groups.items()}
        sample = rows.tied(rounding)
        gate = calibrate_sample(
            sample,
            requests,
            score=self.score,
            notes=(*self.intake.decision_lines(), *notes, *labels.notes),
            odd_labels=labels.odd,
            groups=groups if self.grouped_by else None,
            grouped_by=self.grouped_by,
            n_always_rejected=self.intake.always_rejected,
        )
        assert gate.certificate is not None
        certificate = structs.replace(
            gate.certificate, fingerprint=self.fingerprint.digest
        )
        gate = replace(
            gate,
            on_confidences=self.on_confidences,
            classes=self.classes,
            certificate=certificate,
            decided_by=self.intake.decided_by,
        )
        return Calibration(gate, requests, sample)


@dataclass
class NonconformitySketch:
    """Counts of the true classes' nonconformity in a reference set.

    Attributes
    ----------
    correct : int
        Rows whose prediction is true, of nonconformity -inf.
    errors : Sketch
        The nonconformities of the other rows.
    uncovered : int
        Rows that count as of infinite nonconformity.

    Examples
    --------
    >>> sketch = NonconformitySketch(correct=8)
    >>> sketch.errors.update([0.5])
    >>> rule = sketch.rule(0.9)
    >>> round(rule.threshold, 5), rule.rows
    (0.5, 9)
    """

    correct: int = 0
    errors: Sketch = field(default_factory=Sketch)
    uncovered: int = 0

    def add(self, correct: int, nonconformities: Array) -> None:
        """Count more rows: the correct ones, and the nonconformities of the errors."""
        self.correct += correct
        if len(nonconformities):
            self.errors.update(nonconformities)

    def merge(self, other: "NonconformitySketch") -> None:
        """Count the rows of another sketch, too."""
        self.correct += other.correct
        self.errors.merge(other.errors)
        self.uncovered += other.uncovered

    def rule(self, level: float) -> ListRule:
        """Return the threshold of lists; within a range of scores, its upper end."""
        # Correct rows come first in the order: their nonconformity is -inf.
        rows = self.correct + len(self.errors)
        k = conformal_rank(rows + self.uncovered, level)
        threshold = math.inf if k > rows else -math.inf
        if self.correct < k <= rows:
            errors = self.errors.tied(ROUNDING)
            threshold = threshold_above_ties(errors, k - self.correct)
        return ListRule(threshold, rows)


@dataclass
class ShortlistSketch:
    """Counts of the rows that calibrate a gate's lists: of all, and of each group.

    Attributes
    ----------
    gate : Gate
    options : dict
        The options of `shortlist`: level, method and so on.
    reference_set : ReferenceSet or None
        Which rows count, if the same rows set the gate's threshold.
    pooled : NonconformitySketch
    groups : dict of group to NonconformitySketch
    labelled_rows, all_rows : Fingerprint
        Of the labelled rows with their errors, and of the doubts of all rows.
    widths : set of int
        The number of classes of each batch; more than one number is refused.

    Examples
    --------
    >>> from trustdoctor import calibrate
    >>> z = np.arange(1, 31)[:, None] / 10 * [1.0, 0.0]
    >>> p = Predictions.from_logits(z, z[:, 0] < 2)
    >>> sketch = ShortlistSketch(calibrate(p, threshold=-1.0), {"level": 0.5})
    >>> sketch.update(p)
    >>> sketch.pooled.correct, len(sketch.pooled.errors)
    (0, 16)
    """

    gate: Gate
    options: dict[str, Any]
    reference_set: ReferenceSet | None = None
    pooled: NonconformitySketch = field(default_factory=NonconformitySketch)
    groups: dict[Any, NonconformitySketch] = field(default_factory=dict)
    labelled_rows: Fingerprint = field(default_factory=Fingerprint)
    all_rows: Fingerprint = field(default_factory=lambda: Fingerprint(labelled=False))
    widths: set[int] = field(default_factory=set)

    def fresh(self) -> "ShortlistSketch":
        """Return an empty sketch for the same calibration."""
        return ShortlistSketch(self.gate, self.options, self.reference_set)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; of unlabelled ones only the fingerprint."""
        require_classes(predictions)
        add_width(self.widths, predictions.n_classes)
        check_classes(self.gate, predictions)
        doubts, labelled = (
            np.asarray(self.gate.doubts(predictions)),
            predictions.has_label,
        )
        self.all_rows += Fingerprint.of(doubts)
        if not labelled.any():
            return
        groups = self.gate.groups_of(predictions) if self.gate.groups else None
        if groups is not None:
            groups = as_groups(groups, rows=len(labelled))[labelled]
        self._count(predictions[labelled], doubts[labelled], groups)

    def _count(self, rows: Predictions, doubts: Array, groups: Any) -> None:
        """Count labelled rows."""
        errors = rows.errors
        self.labelled_rows += Fingerprint.of(doubts, errors)
        reference = ~np.asarray(self.gate.accept(doubts, groups=groups))
        if self.reference_set is not None:
            reference, uncertain = self.reference_set.members(doubts, errors, reference)
            self.pooled.uncovered += uncertain
        # The nonconformity of correct rows is -inf.
        wrong_rows = np.flatnonzero(reference & errors)
        nonconformities = true_class_nonconformity(
            self._uncalibrated(), rows, wrong_rows, rows.predicted
        )
        correct = reference & ~errors
        self.pooled.add(int(correct.sum()), nonconformities)
        if groups is None:
            return
        for name in set(np.unique(groups).tolist()) & set(self.gate.groups):
            members = groups == name
            sketch = self.groups.setdefault(name, _group_sketch())
            sketch.add(
                int((correct & members).sum()), nonconformities[members[wrong_rows]]
            )

    def merge(self, other: "ShortlistSketch") -> None:
        """Count the rows of another sketch, too."""
        for width in other.widths:
            add_width(self.widths, width)
        self.labelled_rows += other.labelled_rows
        self.all_rows += other.all_rows
        self.pooled.merge(other.pooled)
        for name, sketch in other.groups.items():
            if name in self.groups:
                self.groups[name].merge(sketch)
            else:
                self.groups[name] = sketch

    def _uncalibrated(self) -> Shortlist:
        return uncalibrated_shortlist(next(iter(self.widths)), **self.options)

    @property
    def are_gate_rows(self) -> bool:
        """Whether these rows set the gate's threshold; some gates refuse them."""
        if self.labelled_rows.rows < self.all_rows.rows:
            refuse_labelled_subset(self.gate, self.all_rows)
        return are_gate_rows(self.gate, self.labelled_rows)

    def calibrate(self) -> Gate:
        """Return the gate with its lists."""
        if not self.labelled_rows.rows:
            message = "a shortlist needs the true label of some rows, and none has one."
            raise InputError(message)
        uncalibrated = self._uncalibrated()
        same_rows = self.reference_set is not None
        # The place of the new row itself, whose membership depends on it.
        uncovered = self.pooled.uncovered + same_rows
        level = uncalibrated.level
        calibrated = replace(
            uncalibrated,
            rule=replace(self.pooled, uncovered=uncovered).rule(level),
            groups={
                name: self.groups.get(name, _group_sketch()).rule(level)
                for name in self.gate.groups
            },
            same_rows=same_rows,
        )
        return with_shortlist(self.gate, calibrated)


def _group_sketch() -> NonconformitySketch:
    return NonconformitySketch(errors=Sketch(cells=MIN_GROUP_CELLS))
