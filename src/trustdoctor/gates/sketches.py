"""Rows counted for a calibration, of a gate or of its lists, all and by group.

States that engines fold: batches update them, and parts of the rows merge.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_groups
from trustdoctor.errors import InputError
from trustdoctor.evaluation import LabelCounts, count_labels, count_neighbours
from trustdoctor.gates.calibration import GIVEN, calibrate_sample, groups_of
from trustdoctor.gates.classes import Classes, check_classes, classes_of
from trustdoctor.gates.gate import Gate, is_unit
from trustdoctor.gates.listing import (
    above_ties,
    bare_lists,
    is_same,
    listing,
    needed_rank,
    refuse_part,
    true_strangeness,
)
from trustdoctor.gates.missing_labels import missing_label_notes
from trustdoctor.gates.outcome import known_errors, require_one_width
from trustdoctor.gates.sample import Fingerprint
from trustdoctor.gates.shortlists import ListRule, Shortlist, require_classes
from trustdoctor.gates.swaps import Swaps
from trustdoctor.metrics import CELLS, Sketch
from trustdoctor.predictions import NO_ROWS, Answers, Intake, Predictions
from trustdoctor.scores import ROUNDING, Score, score_all

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
    labels : LabelCounts
        What tells whether the labels can be right, where labels are needed.
    class_names : tuple of str, or None

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
    labels: LabelCounts = field(default_factory=LabelCounts)
    class_names: tuple[str, ...] | None = None

    def fresh(self) -> "Sketches":
        """Return the same, without rows."""
        return Sketches(self.score, self.grouped, needs_labels=self.needs_labels)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; those without a label apart, where labels are needed."""
        require_one_width(self.widths, predictions.n_classes)
        self.intake += Intake.of(predictions)
        self.unit &= is_unit(predictions)
        self.classes = self.classes or classes_of(predictions)
        self.class_names = predictions.class_names
        if self.needs_labels:
            predictions = self._count_labels(predictions)
            if not len(predictions):
                return
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

    def _count_labels(self, predictions: Predictions) -> Predictions:
        """Count labels, and rows without one apart; return the others."""
        every_row = predictions
        if not predictions.has_label.all():
            barred, without = predictions.always_rejected, ~predictions.has_label
            without = without if barred is None else without & ~barred
            if without.any():
                self.without.update(self.score(predictions[without]))
            predictions = predictions[predictions.has_label]
        if len(predictions):
            plain = not isinstance(predictions, Answers)
            doubts = score_all(predictions, ["beta"]) if plain else {}
            count_labels(self.labels, predictions, doubts)
            count_neighbours(self.labels, every_row, doubts)
        return predictions

    def merge(self, other: "Sketches") -> None:
        """Count the rows of another, too."""
        for width in other.widths:
            require_one_width(self.widths, width)
        self.intake += other.intake
        self.unit &= other.unit
        self.classes = self.classes or other.classes
        self.class_names = self.class_names or other.class_names
        self.labels.merge(other.labels)
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
        odd, lines = self.labels.odd(), self.labels.warnings(self.class_names)
        notes = missing_label_notes(self.pooled, self.without)
        rows = self.pooled if len(self.pooled) else self.without
        rounding = self.score.rounding
        groups = {name: own.tied(rounding) for name, own in self.groups.items()}
        gate = calibrate_sample(
            rows.tied(rounding),
            score=self.score,
            notes=(*self.intake.decision_lines(), *notes, *lines[len(odd) :]),
            odd_labels=odd,
            groups=groups if self.grouped else None,
            grouped_by=self.grouped,
            barred=self.intake.always_rejected,
            **options,
        )
        assert gate.certificate is not None
        certificate = replace(gate.certificate, fingerprint=self.fingerprint.digest)
        return replace(
            gate,
            unit=self.unit,
            classes=self.classes,
            certificate=certificate,
            decided_by=self.intake.decided_by,
        )


@dataclass
class Strange:
    """How strange the true class of rejected rows is.

    Attributes
    ----------
    correct : int
        Rows whose prediction is true: nothing is less strange.
    errors : Sketch
        Of the others.
    more : int
        Rows that count as stranger than any list allows.

    Examples
    --------
    >>> counted = Strange(correct=8)
    >>> counted.errors.update([0.5])
    >>> rule = counted.rule(0.9)
    >>> round(rule.threshold, 5), rule.rows
    (0.5, 9)
    """

    correct: int = 0
    errors: Sketch = field(default_factory=Sketch)
    more: int = 0

    def add(self, correct: int, strange: Array) -> None:
        """Count more rows: so many correct ones, and how strange others' truth is."""
        self.correct += correct
        if len(strange):
            self.errors.update(strange)

    def merge(self, other: "Strange") -> None:
        """Count the rows of another, too."""
        self.correct += other.correct
        self.errors.merge(other.errors)
        self.more += other.more

    def rule(self, level: float) -> ListRule:
        """Return the threshold of lists; in a range of strangeness its upper end."""
        rows = self.correct + len(self.errors)
        k = needed_rank(rows + self.more, level)
        at = math.inf if k > rows else -math.inf
        if self.correct < k <= rows:
            at = above_ties(self.errors.tied(ROUNDING), k - self.correct)
        return ListRule(at, rows)


@dataclass
class ListSketches:
    """What sets the lists of a gate, in all rows and in each of its groups.

    Attributes
    ----------
    gate : Gate
    options : dict
        Of `shortlist`: level, method and so on.
    swaps : Swaps or None
        Which rows count, where the gate's threshold is by the same rows.
    pooled : Strange
    groups : dict of group to Strange
    rows, every : Fingerprint
        Of the labelled rows, and of the doubts of all.

    Examples
    --------
    >>> from trustdoctor import calibrate
    >>> z = np.arange(1, 31)[:, None] / 10 * [1.0, 0.0]
    >>> p = Predictions.from_logits(z, z[:, 0] < 2)
    >>> counted = ListSketches(calibrate(p, threshold=-1.0), {"level": 0.5})
    >>> counted.update(p)
    >>> counted.pooled.correct, len(counted.pooled.errors)
    (0, 16)
    """

    gate: Gate
    options: dict[str, Any]
    swaps: Swaps | None = None
    pooled: Strange = field(default_factory=Strange)
    groups: dict[Any, Strange] = field(default_factory=dict)
    rows: Fingerprint = field(default_factory=Fingerprint)
    every: Fingerprint = field(default_factory=lambda: Fingerprint(labelled=False))
    widths: set[int] = field(default_factory=set)

    def fresh(self) -> "ListSketches":
        """Return the same, without rows."""
        return ListSketches(self.gate, self.options, self.swaps)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; those without a label have no part."""
        require_classes(predictions)
        require_one_width(self.widths, predictions.n_classes)
        check_classes(self.gate, predictions)
        doubts, known = np.asarray(self.gate.doubts(predictions)), predictions.has_label
        self.every += Fingerprint.of(doubts)
        if not known.any():
            return
        groups = None
        if self.gate.groups:
            given = self.gate.groups_of(predictions)
            groups = None if given is None else as_groups(given, rows=len(known))[known]
        self._count(predictions[known], doubts[known], groups)

    def _count(self, rows: Predictions, doubts: Array, groups: Any) -> None:
        wrong = rows.errors
        self.rows += Fingerprint.of(doubts, wrong)
        kept = ~np.asarray(self.gate.accept(doubts, groups=groups))
        if self.swaps is not None:
            kept, more = self.swaps.count(doubts, wrong, kept)
            self.pooled.more += more
        hard = np.flatnonzero(kept & wrong)
        strange = true_strangeness(self._bare(), rows, hard, rows.predicted)
        self.pooled.add(int((kept & ~wrong).sum()), strange)
        if groups is None:
            return
        for name in set(np.unique(groups).tolist()) & set(self.gate.groups):
            own = self.groups.setdefault(name, _of_group())
            mine = groups == name
            own.add(int((kept & ~wrong & mine).sum()), strange[mine[hard]])

    def merge(self, other: "ListSketches") -> None:
        """Count the rows of another, too."""
        for width in other.widths:
            require_one_width(self.widths, width)
        self.rows += other.rows
        self.every += other.every
        self.pooled.merge(other.pooled)
        for name, counted in other.groups.items():
            if name in self.groups:
                self.groups[name].merge(counted)
            else:
                self.groups[name] = counted

    def _bare(self) -> Shortlist:
        return bare_lists(next(iter(self.widths)), **self.options)

    @property
    def same(self) -> bool:
        """Whether these rows set the gate's threshold, which some gates refuse."""
        if self.rows.rows < self.every.rows:
            refuse_part(self.gate, self.every)
        return is_same(self.gate, self.rows)

    def listed(self) -> Gate:
        """Return the gate with its lists."""
        if not self.rows.rows:
            message = "a shortlist needs the true label of some rows, and none has one."
            raise InputError(message)
        short, same = self._bare(), self.swaps is not None
        every = replace(self.pooled, more=self.pooled.more + same)
        own = {
            name: self.groups.get(name, _of_group()).rule(short.level)
            for name in self.gate.groups
        }
        rule = every.rule(short.level)
        short = replace(short, rule=rule, groups=own, same_rows=same)
        return listing(self.gate, short)


def _of_group() -> Strange:
    return Strange(errors=Sketch(cells=LEAST_CELLS))
