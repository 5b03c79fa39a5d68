"""Scores counted for a calibration, all rows and by group.

A state that engines fold: batches update it, and parts of the rows merge.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trustdoctor.gates.calibration import GIVEN, calibrate_sample, groups_of
from trustdoctor.gates.classes import Classes, classes_of
from trustdoctor.gates.gate import Gate, is_unit
from trustdoctor.gates.missing import missing_notes
from trustdoctor.gates.outcome import known_errors, require_one_width
from trustdoctor.gates.sample import Fingerprint
from trustdoctor.metrics import CELLS, Sketch
from trustdoctor.predictions import NO_ROWS, Intake, Predictions
from trustdoctor.scores import Score

LEAST_CELLS = 1 << 13
"""Of the sketch of a group."""


@dataclass
class Sketches:
    """The sketch of all rows, and of each group where that is asked.

    Attributes
    ----------
    score : Score
        Ready to call.
    grouped : str
        "", "predicted" for the predicted class, or "given" for the rows' own groups.
    pooled : Sketch
    groups : dict of group to Sketch
    needs_labels : bool
        Whether rows without a label are counted apart.
    without : Sketch
        Of those rows.
    intake : Intake
        What came in.
    unit : bool
        Whether every row has a confidence from 0 to 1.
    classes : int, tuple of str, or None
        Of the rows, as in `Gate`.
    fingerprint : Fingerprint
        Of the pooled rows, as of rows that are held at once.

    Examples
    --------
    >>> from trustdoctor.scores import find_score
    >>> counted = Sketches(find_score("alpha"))
    >>> counted.update(Predictions.from_logits([[4.0, 0.0], [0.5, 0.0]], [0, 1]))
    >>> counted.calibrate(threshold=-1.0).certificate.n
    2
    """

    score: Score
    grouped: str = ""
    pooled: Sketch = field(default_factory=Sketch)
    groups: dict[Any, Sketch] = field(default_factory=dict)
    widths: set[int] = field(default_factory=set)
    needs_labels: bool = False
    without: Sketch = field(default_factory=Sketch)
    intake: Intake = NO_ROWS
    unit: bool = True
    classes: Classes | None = None
    fingerprint: Fingerprint = field(default_factory=Fingerprint)

    def fresh(self) -> "Sketches":
        """Return the same, without rows."""
        return Sketches(self.score, self.grouped, needs_labels=self.needs_labels)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; those without a label apart, where labels are needed."""
        require_one_width(self.widths, predictions.n_classes)
        self.intake += Intake.of(predictions)
        self.unit &= is_unit(predictions)
        self.classes = self.classes or classes_of(predictions)
        if self.needs_labels and not predictions.known.all():
            self.without.update(self.score(predictions[~predictions.known]))
            if not predictions.known.any():
                return
            predictions = predictions[predictions.known]
        scores, wrong = self.score(predictions), known_errors(predictions)
        self.pooled.update(scores, wrong)
        self.fingerprint += Fingerprint.of(scores, wrong)
        if not self.grouped:
            return
        groups = groups_of(predictions, self.grouped)
        size = LEAST_CELLS  # how many there will be is not known
        if self.grouped != GIVEN and predictions.n_classes:
            size = max(LEAST_CELLS, CELLS // predictions.n_classes)
        for name in np.unique(groups).tolist():
            own = groups == name
            sketch = self.groups.setdefault(name, Sketch(cells=size))
            sketch.update(scores[own], None if wrong is None else wrong[own])

    def merge(self, other: "Sketches") -> None:
        """Count the rows of another, too."""
        for width in other.widths:
            require_one_width(self.widths, width)
        self.intake += other.intake
        self.unit &= other.unit
        self.classes = self.classes or other.classes
        self.without.merge(other.without)
        self.pooled.merge(other.pooled)
        self.fingerprint += other.fingerprint
        for name, sketch in other.groups.items():
            if name in self.groups:
                self.groups[name].merge(sketch)
            else:
                self.groups[name] = sketch

    def calibrate(self, **options: Any) -> Gate:
        """Calibrate on the counted rows; targets and options as in `calibrate`."""
        gate = calibrate_sample(
            self.pooled if len(self.pooled) else self.without,
            score=self.score,
            notes=missing_notes(self.pooled, self.without),
            groups=self.groups if self.grouped else None,
            grouped_by=self.grouped,
            barred=self.intake.ambiguous,
            **options,
        )
        assert gate.certificate is not None
        certificate = replace(gate.certificate, fingerprint=self.fingerprint.digest)
        return replace(
            gate, unit=self.unit, classes=self.classes, certificate=certificate
        )
