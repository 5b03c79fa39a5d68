"""An evaluation in pieces: what batches of rows add up to.

A tally takes batches of predictions, merges with other tallies, and becomes an
`Evaluation`. Everything in it is a whole number or a least or largest score, so the
order of batches and merges changes nothing, to the bit.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.evaluation.cautions import BEYOND, reversed_scores
from trustdoctor.evaluation.estimates import FEW, Settings, around, measure_sketch
from trustdoctor.evaluation.evaluations import (
    DEFAULT_SCORES,
    SOFTMAX,
    Difference,
    Evaluation,
    default_scores,
    difference,
)
from trustdoctor.evaluation.suspect_rows import count_labels
from trustdoctor.evaluation.suspicions import LabelCounts
from trustdoctor.kernels import _native
from trustdoctor.metrics import (
    CELLS,
    ECE_BINS,
    FEW_ERRORS,
    Estimate,
    Points,
    Sketch,
    calibration_rows,
    missed,
    resampling,
    share,
)
from trustdoctor.predictions import NO_ROWS, Answers, Intake, Predictions
from trustdoctor.scores import Score, allowed_scores, score_all

_UNIT = 2.0**30  # sums are kept in whole steps of 1 / _UNIT


_LARGEST = 2.0**105  # more, as of logits beyond 1e15, is not told apart


_EXACT = 1 << 22


_SUMS = ("said", "brier", "nll")


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
        self.described = ""
        self.class_names: tuple[str, ...] | None = None
        self.intake = NO_ROWS
        self.labels = LabelCounts()
        self.sketches: dict[str, Sketch] = {}
        self._bins = np.zeros((3, ECE_BINS), object)  # sums of 1, gap and gap^2
        self._sums = np.zeros((2, len(_SUMS)), object)  # of the terms and their squares
        self._infinite = 0
        self._stated = True  # whether every confidence could be a probability

    def fresh(self) -> "Tally":
        """Return the same, without rows."""
        return Tally(self.asked, temperature=self.temperature, cells=self.cells)

    def update(self, predictions: Predictions) -> None:
        """Count more rows; those without a label are left out."""
        self.intake += Intake.of(predictions)
        if not predictions.known.any():
            return
        predictions = predictions.labelled("an evaluation")
        self._meet(predictions)
        wrong = predictions.errors
        plain = not isinstance(predictions, Answers)
        asked: list[str | Score] = [*self.ready, *(SOFTMAX if plain else ())]
        found = score_all(predictions, asked, temperature=self.temperature)
        for name, sketch in self.sketches.items():
            sketch.update(found[name], wrong)
        count_labels(self.labels, predictions, found)
        if isinstance(predictions, Answers) and predictions.confidence is None:
            self._stated = False
        elif _native.available and plain:
            self._sum_up(predictions, found)
        else:
            self._sum_rows(predictions, found)

    def _sum_rows(self, predictions: Predictions, found: dict[str, Array]) -> None:
        """Add what the rows say of the softmax, or of the confidence given."""
        wrong = predictions.errors
        rows = calibration_rows(predictions, temperature=self.temperature, doubts=found)
        bins = (np.ones(len(wrong)), rows.gap, rows.gap**2)
        for i, values in enumerate(bins):
            self._bins[i] += _binned(rows.bins, values)
        infinite = np.isinf(rows.nll)
        self._infinite += int(infinite.sum())
        terms = (~wrong - rows.gap, rows.brier, np.where(infinite, 0.0, rows.nll))
        for j, values in enumerate(terms):
            self._sums[0, j] += _whole(values)
            self._sums[1, j] += _whole(values**2)

    def _sum_up(self, predictions: Predictions, found: dict[str, Array]) -> None:
        """Add what the C kernel sums up."""
        apart = missed(predictions, temperature=self.temperature)
        alpha, beta = (np.ascontiguousarray(found[name]) for name in ("alpha", "beta"))
        bins, rest = _native.calibration(alpha, beta, predictions.errors, apart)
        bins[0] <<= 30
        self._bins += bins.astype(object)
        self._sums += np.array(rest[:6], object).reshape(3, 2).T
        self._infinite += rest[6]

    def _meet(self, rows: "Predictions | Tally") -> None:
        """Take the first rows as a measure, and refuse others of another kind."""
        if not self.sketches:
            self.n_classes, self.described = rows.n_classes, rows.described
            self.class_names = rows.class_names
            if isinstance(rows, Tally):
                self.ready = rows.ready
            else:
                self.ready = default_scores(self.asked, allowed_scores(rows))
            self.sketches = {s.name: Sketch(cells=self.cells) for s in self.ready}
        if rows.described != self.described:
            message = (
                f"expected {self.described} everywhere, got {rows.described} in later "
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
        self.labels.merge(other.labels)
        for name, sketch in other.sketches.items():
            self.sketches[name].merge(sketch)
        self._bins = self._bins + other._bins
        self._sums = self._sums + other._sums
        self._infinite += other._infinite

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
        seed: int = 0,
    ) -> Evaluation:
        """Measure; parameters as in `trustdoctor.evaluate`."""
        if not self.intake.rows:
            message = "expected at least one row, got none."
            raise InputError(message)
        if not self.sketches:
            message = "an evaluation needs the true labels, and no row has one."
            raise LabelsMissingError(message)
        settings = Settings(points or Points(), self.temperature, confidence, seed)
        scores = {n: measure_sketch(s, settings) for n, s in self.sketches.items()}
        n, wrong = len(self), next(iter(self.sketches.values())).n_errors
        return Evaluation(
            n=n,
            n_classes=self.n_classes,
            n_errors=wrong,
            accuracy=share(n - wrong, n, confidence=confidence),
            calibration=self._calibration(settings, min(wrong, n - wrong)),
            scores=scores,
            differences=_differences(scores),
            settings=settings,
            warnings=(*self._warnings(), *reversed_scores(scores)),
            counted=True,
        )

    def _warnings(self) -> tuple[str, ...]:
        stated = not self._stated and self.described == "confidence"
        return (
            *self.intake.lines(),
            *((BEYOND,) if stated else ()),
            *self.labels.warnings(self.class_names),
        )

    def _calibration(self, settings: Settings, fewest: int) -> dict[str, Estimate]:
        """Return what `evaluate` gives, the means drawn from their normal law."""
        if not self._stated:
            return {}
        n = len(self)
        means, squares = self._sums.astype(float) / _UNIT / n
        spread = np.sqrt(np.maximum(squares - means**2, 0) / n)
        rng = np.random.default_rng(settings.seed)
        drawn = rng.normal(size=(resampling.REPLICATES, len(_SUMS))) * spread
        gap, square = self._bins[1:].astype(float) / _UNIT / n
        covariance = (np.diag(square) - np.outer(gap, gap)) / n
        moved = rng.multivariate_normal(
            np.zeros(ECE_BINS), covariance, resampling.REPLICATES
        )
        ece = np.abs(gap + moved).sum(1)
        few = FEW if fewest < FEW_ERRORS else ""
        out = {
            name: around(float(means[j]), drawn[:, j], settings, few)
            for j, name in enumerate(("confidence", "brier", "nll"))
        }
        out["confidence"] = replace(out["confidence"], note="")
        if self._infinite:
            note = f"infinite: {self._infinite} labels had probability 0"
            out["nll"] = Estimate(None, note=note)
        out["ece"] = around(float(np.abs(gap).sum()), ece - ece.mean(), settings, few)
        return {name: out[name] for name in ("confidence", "ece", "brier", "nll")}


def _binned(bins: Array, values: Array) -> Array:
    """Sum whole steps within each bin."""
    out = np.zeros(ECE_BINS, object)
    for start in range(0, len(values), _EXACT):  # so many add up exactly in a float
        part = slice(start, start + _EXACT)
        steps = np.rint(values[part] * _UNIT)
        out += np.bincount(bins[part], steps, ECE_BINS).astype(np.int64)
    return out


def _whole(values: Array) -> int:
    """Sum whole steps, without overflow."""
    scaled = np.rint(values * _UNIT)
    if len(values) * float(scaled.max(initial=0.0)) < 2.0**52:  # exact in a float
        return int(scaled.sum())
    return sum(map(int, np.minimum(scaled, _LARGEST)))


def _differences(scores: dict[str, dict[str, Estimate]]) -> tuple[Difference, ...]:
    """Return differences whose intervals hold whatever two scores share."""
    out = []
    for a, b in combinations(scores, 2):
        for metric in ("auroc", "frr_at_trr"):
            first, second = scores[a][metric], scores[b][metric]
            if first.value is None or second.value is None:
                return ()
            change = first.value - second.value
            half = sum((e.high or 0) - (e.low or 0) for e in (first, second)) / 2
            ends = (change - half, change + half)
            out.append(difference(metric, a, b, Estimate(change, *ends)))
    return tuple(out)
