"""The numbers behind every chart: few points, and a bound on what they leave out."""

import math
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics.counts import count
from trustdoctor.metrics.intervals import Share, share
from trustdoctor.metrics.reliability import ECE_BINS, ece_parts
from trustdoctor.predictions import Predictions

STEP = 1 / 400
BINS = 50
RISKS = np.append(np.arange(0, 300) / 1000, 0.0005)
"""For these the threshold of greatest coverage is kept."""


@dataclass(frozen=True, eq=False)
class Positions:
    """Thresholds to choose from, and what each accepts: exact counts.

    Between two neighbours neither the share of the right rows accepted nor that of the
    wrong ones changes by more than `step` and one group of tied rows. For every risk of
    whole tenths of a percent below 30% the threshold of greatest coverage is kept.

    Attributes
    ----------
    thresholds : array (k,)
        Ascending. Each lies between two neighbouring distinct scores, and is written
        with few digits.
    correct, errors : array (k,)
        Right and wrong rows whose score is at most the threshold.
    distinct : int
        How many distinct scores there are.
    step : float
    """

    thresholds: Array
    correct: Array
    errors: Array
    distinct: int
    step: float = STEP

    @property
    def frr(self) -> Array:
        """The share of the right rows that each threshold rejects."""
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
        """The share of the accepted rows that is wrong; 0 where none is accepted."""
        return np.asarray(self.errors / np.maximum(1, self.correct + self.errors))


def positions(scores: Array, errors: Array, *, step: float = STEP) -> Positions:
    """Choose thresholds from all distinct scores, the two ends included."""
    c = count(scores, errors)
    assert c.highest is not None
    right, wrong = np.cumsum(c.correct), np.cumsum(c.errors)
    cell = [
        (part / max(1, part[-1]) / step).astype(np.int64) for part in (right, wrong)
    ]
    changes = (np.diff(cell[0]) != 0) | (np.diff(cell[1]) != 0)
    kept = np.append(np.flatnonzero(changes), len(right) - 1)
    kept = np.union1d(kept, _risk_crossings(right, wrong))
    values = c.highest.astype(np.float64)
    above = np.append(values, math.inf)[kept + 1]
    thresholds = [between(a, b) for a, b in zip(values[kept], above, strict=True)]
    counts = [right[kept], wrong[kept]]
    if math.isfinite(values[0]):  # a threshold below all scores rejects everything
        thresholds.insert(0, between(-math.inf, values[0]))
        counts = [np.insert(part, 0, 0) for part in counts]
    return Positions(np.array(thresholds), counts[0], counts[1], len(values), step)


def _risk_crossings(right: Array, wrong: Array) -> Array:
    """Return the last threshold whose risk is at most r, for r of 0.1%, 0.2%, ..."""
    risk = wrong / (right + wrong)
    least_after = np.minimum.accumulate(risk[::-1])[::-1]
    last = np.searchsorted(least_after, RISKS, "right") - 1
    return np.unique(last[last >= 0])


def between(low: float, high: float) -> float:
    """Return a number of few digits, at least `low` and below `high`."""
    if low == -math.inf and high == math.inf:
        return 0.0
    if low == -math.inf:
        low = high - max(1.0, abs(high))
    if high == math.inf:
        high = low + max(1.0, abs(low))
    middle = low + (high - low) / 2
    for digits in range(3, 18):
        found = float(f"{middle:.{digits}g}")
        if low <= found < high:
            return found
    return low


def histogram(
    values: Array, errors: Array, *, bins: int = BINS
) -> tuple[Array, Array, Array]:
    """Return edges, and how many right and wrong rows lie between each two.

    The edges span the 0.1% and 99.9% quantiles of the finite values; rows beyond are
    counted in the outermost bars.
    """
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.001, 0.999]) if len(finite) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    clipped = np.clip(values, edges[0], edges[-1])
    right, wrong = (np.histogram(clipped[kind], edges)[0] for kind in (~errors, errors))
    return edges, right, wrong


@dataclass(frozen=True)
class Bin:
    """Rows of about the same confidence: what was said, and what was right."""

    n: int
    confidence: float
    accuracy: Share


def reliability_bins(
    predictions: Predictions,
    *,
    temperature: float = 1.0,
    confidence: float = 0.95,
    doubts: dict[str, Array] | None = None,
) -> list[Bin]:
    """Return the bins of the largest probability that hold rows.

    `doubts` hold beta of the rows, where it is known already.
    """
    known = None if doubts is None else doubts.get("beta")
    bins, gap = ece_parts(predictions, temperature=temperature, doubt=known)
    right = ~predictions.errors
    n = np.bincount(bins, minlength=ECE_BINS)
    correct = np.bincount(bins, right, ECE_BINS)
    said = np.bincount(bins, right - gap, ECE_BINS)
    return [
        Bin(
            int(n[i]),
            float(said[i] / n[i]),
            share(int(correct[i]), int(n[i]), confidence=confidence),
        )
        for i in np.flatnonzero(n)
    ]


def thinned(x: Array, y: Array, points: int = 400) -> tuple[Array, Array]:
    """Return points on a rising curve in the unit square, at most 2 / `points` apart.

    They lie on the curve itself, in even steps of x + y.
    """
    way = x + y
    at = np.linspace(way[0], way[-1], points + 1)
    return np.interp(at, way, x), np.interp(at, way, y)
