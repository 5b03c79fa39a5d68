"""The published evaluation: a grid of thresholds, repeated exactly.

The ratio (1 - g) / g or (1 - p) / p, or the largest softmax probability, is computed
naively in float64 from the stored softmax. Thresholds are evenly spaced between its
ends. DOCTOR rejects where the ratio is above the threshold, softmax response and ODIN
where the probability is at or below it. No end point is added to the curve; its area is
taken by trapezoids, and FRR at 95% TRR by linear interpolation along it.

Rows saturated to p = 1 tie at beta's smallest ratio and are never rejected, so its
curve stops early and its area is lost. Alpha escapes because rounding breaks that tie.

The other scores (energy, Mahalanobis) are rejected above the threshold here.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError

METHODS = ("alpha", "beta", "sr")
CHUNK = 1_000_000
"""Thresholds at a time."""


@dataclass(frozen=True, eq=False)
class GridResult:
    """The result of the published evaluation.

    Attributes
    ----------
    auroc, frr : float
        The area, and FRR at 95% TRR.
    thresholds : int
        How many were tried.
    curve : tuple of arrays
        FRR and TRR along the curve; it ends at (1, 1) if nothing is lost.
    """

    auroc: float
    frr: float
    thresholds: int
    curve: tuple[Array, Array] = field(repr=False)

    @property
    def reach(self) -> tuple[float, float]:
        """FRR and TRR where the curve ends."""
        return float(self.curve[0][-1]), float(self.curve[1][-1])


def published_values(probs: Any, method: str, predicted: Any = None) -> Array:
    """Return the values that the published code puts thresholds on.

    `predicted` are the classes that beta and SR doubt, if those are not the most
    probable ones: the clean predictions, at a perturbed input.
    """
    p = np.asarray(probs).astype(np.float64)
    # Naive on purpose: log odds would break the ties that the published numbers show.
    if method == "alpha":
        g = (p**2).sum(1)
        return np.asarray((1 - g) / g)
    top = p.max(1) if predicted is None else p[np.arange(len(p)), predicted]
    if method == "beta":
        return np.asarray((1 - top) / top)
    if method == "sr":
        return np.asarray(top)
    message = f"expected a method out of {', '.join(METHODS)}, got {method!r}."
    raise InputError(message)


def evaluate_grid(
    values: Array, errors: Array, *, below: bool = False, size: int | None = None
) -> GridResult:
    """Evaluate as published; by default with (max - min) 10,000 thresholds.

    Parameters
    ----------
    values : array (n,)
        What the threshold is put on.
    errors : bool array (n,)
    below : bool
        Reject at or below the threshold, as for softmax response; else above it.
    size : int, optional
        The number of thresholds.
    """
    low, high = float(values.min()), float(values.max())
    size = max(2, int((high - low) * 10_000)) if size is None else size
    n = np.array([(~errors).sum(), errors.sum()])
    if not (n > 0).all():
        message = "the evaluation needs rows of both kinds, right and wrong."
        raise InputError(message)
    by_kind = [np.sort(values[kind]) for kind in (~errors, errors)]
    step, chunks = (high - low) / (size - 1), []
    # The ratio of a doubtful row of a thousand classes makes ten million thresholds:
    # the same numbers as np.linspace, a chunk at a time.
    for start in range(0, size, CHUNK):
        thresholds = low + step * np.arange(start, min(start + CHUNK, size))
        if start + CHUNK >= size:
            thresholds[-1] = high
        counts = [np.searchsorted(kind, thresholds, "right") for kind in by_kind]
        chunks.append(_distinct(np.stack(counts, 1)))
    not_above = _distinct(np.concatenate(chunks))
    frr, trr = np.sort((not_above if below else n - not_above) / n, axis=0).T
    area = float(np.trapezoid(trr, frr))
    frr_at_95 = float(np.interp(0.95, trr, frr))
    return GridResult(area, frr_at_95, size, (frr, trr))


def _distinct(counts: Array) -> Array:
    """Drop rows that repeat the one before: most thresholds change nothing."""
    new = (np.diff(counts, axis=0) != 0).any(1)
    return counts[np.append(True, new)]
