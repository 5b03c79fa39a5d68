"""Scores counted for a calibration, all rows and by group.

A state that engines fold: batches update it, and parts of the rows merge.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trustdoctor.gates.calibration import GIVEN, calibrate_sample, groups_of
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.outcome import require_one_width
from trustdoctor.metrics import CELLS, Sketch
from trustdoctor.predictions import Predictions
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

    def fresh(self) -> "Sketches":
        """Return the same, without rows."""
        return Sketches(self.score, self.grouped)

    def update(self, predictions: Predictions) -> None:
        """Count more rows, with labels or without."""
        require_one_width(self.widths, predictions.n_classes)
        scores = self.score(predictions)
        wrong = None if predictions.labels is None else predictions.errors
        self.pooled.update(scores, wrong)
        if not self.grouped:
            return
        groups = groups_of(predictions, self.grouped)
        size = max(LEAST_CELLS, CELLS // predictions.n_classes)
        if self.grouped == GIVEN:  # how many there will be is not known
            size = LEAST_CELLS
        for name in np.unique(groups).tolist():
            own = groups == name
            sketch = self.groups.setdefault(name, Sketch(cells=size))
            sketch.update(scores[own], None if wrong is None else wrong[own])

    def merge(self, other: "Sketches") -> None:
        """Count the rows of another, too."""
        for width in other.widths:
            require_one_width(self.widths, width)
        self.pooled.merge(other.pooled)
        for name, sketch in other.groups.items():
            if name in self.groups:
                self.groups[name].merge(sketch)
            else:
                self.groups[name] = sketch

    def calibrate(self, **options: Any) -> Gate:
        """Calibrate on the counted rows; targets and options as in `calibrate`."""
        return calibrate_sample(
            self.pooled,
            score=self.score,
            groups=self.groups if self.grouped else None,
            grouped_by=self.grouped,
            **options,
        )
