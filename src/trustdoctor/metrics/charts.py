"""The numbers behind every chart: few points, and a bound on what they leave out."""

import math
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics.intervals import Estimate, share
from trustdoctor.metrics.reliability import ECE_BINS, confidence_gaps
from trustdoctor.metrics.score_counts import counts
from trustdoctor.predictions import Predictions

STEP = 1 / 400
"""Between neighbouring thresholds, the largest change of a share of accepted rows."""

HISTOGRAM_BINS = 50

RISKS = np.append(np.arange(0, 300) / 1000, 0.0005)
"""For each of these, the threshold of greatest coverage is in the grid."""


@dataclass(frozen=True, eq=False)
class ThresholdGrid:
    """Thresholds to choose from, and the exact counts of rows that each accepts.

    Between two neighbours the share of the correct rows accepted and that of the wrong
    ones change by at most `step` and one group of tied rows. For every risk in whole
    tenths of a percent below 30%, the threshold of greatest coverage is in the grid.

    Attributes
    ----------
    thresholds : array (k,)
        Ascending. Each lies between two neighbouring distinct scores, and has few
        digits.
    correct, errors : array (k,)
        Correct and wrong rows whose score is at most the threshold.
    distinct : int
        The number of distinct scores.
    step : float
    """

    thresholds: Array
    correct: Array
    errors: Array
    distinct: int
    step: float = STEP

    @property
    def frr(self) -> Array:
        """The share of the correct rows that each threshold rejects."""
        return 1 - self.correct / max(1, self.correct[-1])

    @property
    def trr(self) -> Array:
        """The share of the wrong rows that each threshold rejects."""
        return 1 - self.errors / max(1, self.errors[-1])

    @property
    def coverage(self) -> Array:
        """The share of all rows that each threshold accepts."""
        accepted = self.correct + self.errors
        return np.asarray(accepted / accepted[-1])

    @property
    def risk(self) -> Array:
        """The share of errors among the accepted rows; 0 where none is accepted."""
        return np.asarray(self.errors / np.maximum(1, self.correct + self.errors))


def threshold_grid(
    scores: Array, errors: Array, *, step: float = STEP
) -> ThresholdGrid:
    """Choose thresholds between distinct scores, the two extremes included."""
    c = counts(scores, errors)
    assert c.scores is not None
    correct, wrong = np.cumsum(c.correct), np.cumsum(c.errors)
    cells = [
        (accepted / max(1, accepted[-1]) / step).astype(np.int64)
        for accepted in (correct, wrong)
    ]
    changes = (np.diff(cells[0]) != 0) | (np.diff(cells[1]) != 0)
    groups = np.append(np.flatnonzero(changes), len(correct) - 1)
    groups = np.union1d(groups, _risk_crossings(correct, wrong))
    values = c.scores.astype(np.float64)
    next_values = np.append(values, math.inf)[groups + 1]
    pairs = zip(values[groups], next_values, strict=True)
    thresholds = [short_number(*pair) for pair in pairs]
    accepted_correct, accepted_errors = correct[groups], wrong[groups]
    if math.isfinite(values[0]):  # a threshold below all scores rejects everything
        thresholds.insert(0, short_number(-math.inf, values[0]))
        accepted_correct = np.insert(accepted_correct, 0, 0)
        accepted_errors = np.insert(accepted_errors, 0, 0)
    return ThresholdGrid(
        np.array(thresholds), accepted_correct, accepted_errors, len(values), step
    )


def _risk_crossings(correct: Array, wrong: Array) -> Array:
    """Return the last threshold whose risk is at most r, for each r of `RISKS`."""
    risk = wrong / (correct + wrong)
    least_after = np.minimum.accumulate(risk[::-1])[::-1]
    last = np.searchsorted(least_after, RISKS, "right") - 1
    return np.unique(last[last >= 0])


def short_number(low: float, high: float) -> float:
    """Return a number of few digits, at least `low` and below `high`.

    Examples
    --------
    >>> short_number(0.123456, 0.1299)
    0.127
    """
    if low == -math.inf and high == math.inf:
        return 0.0
    if low == -math.inf:
        low = high - max(1.0, abs(high))
    if high == math.inf:
        high = low + max(1.0, abs(low))
    middle = low + (high - low) / 2
    for digits in range(3, 18):
        rounded = float(f"{middle:.{digits}g}")
        if low <= rounded < high:
            return rounded
    return low


def histogram(
    values: Array, errors: Array, *, bins: int = HISTOGRAM_BINS
) -> tuple[Array, Array, Array]:
    """Return edges, and the correct and wrong rows between each two.

    The edges span the 0.1% and 99.9% quantiles of the finite values; rows beyond are
    counted in the outermost bars.
    """
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.001, 0.999]) if len(finite) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    clipped = np.clip(values, edges[0], edges[-1])
    correct, wrong = (
        np.histogram(clipped[kind], edges)[0] for kind in (~errors, errors)
    )
    return edges, correct, wrong


@dataclass(frozen=True)
class ReliabilityBin:
    """Rows of similar confidence: their mean confidence, and their accuracy."""

    n: int
    confidence: float
    accuracy: Estimate


def reliability_bins(
    predictions: Predictions,
    *,
    temperature: float = 1.0,
    confidence: float = 0.95,
    doubts: dict[str, Array] | None = None,
) -> list[ReliabilityBin]:
    """Return the bins of the largest probability that hold rows.

    `doubts` holds beta of the rows, if it is known already.
    """
    doubt = None if doubts is None else doubts.get("beta")
    bins, gap = confidence_gaps(predictions, temperature=temperature, doubt=doubt)
    correct = ~predictions.errors
    n = np.bincount(bins, minlength=ECE_BINS)
    n_correct = np.bincount(bins, correct, ECE_BINS)
    confidences = np.bincount(bins, correct - gap, ECE_BINS)
    return [
        ReliabilityBin(
            int(n[i]),
            float(confidences[i] / n[i]),
            share(int(n_correct[i]), int(n[i]), confidence=confidence),
        )
        for i in np.flatnonzero(n)
    ]


def thin_curve(x: Array, y: Array, points: int = 400) -> tuple[Array, Array]:
    """Return points on a rising curve in the unit square, at most 2 / `points` apart.

    They lie on the curve itself, at even steps of x + y.
    """
    lengths = x + y
    steps = np.linspace(lengths[0], lengths[-1], points + 1)
    return np.interp(steps, lengths, x), np.interp(steps, lengths, y)
