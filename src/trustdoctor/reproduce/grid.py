"""The published evaluation: a grid of thresholds, repeated exactly.

The ratio (1 - g) / g or (1 - p) / p, or the largest softmax probability, is computed
naively in float64 from the stored softmax. Thresholds are evenly spaced between its
ends. DOCTOR rejects where the ratio is above the threshold, softmax response and ODIN
where the probability is at or below it. No end point is added to the curve; its area is
taken by trapezoids, and FRR at 95% TRR by linear interpolation along it.

Rows saturated to p = 1 tie at beta's smallest ratio and are never rejected, so its
curve stops early and its area is lost. Alpha escapes because rounding breaks that tie.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.curves import Array
from trustdoctor.errors import InputError

METHODS = ("alpha", "beta", "sr")


@dataclass(frozen=True)
class GridResult:
    """What the published evaluation finds.

    Attributes
    ----------
    auroc, frr : float
        The area, and FRR at 95% TRR.
    thresholds : int
        How many were tried.
    reach : tuple of float
        FRR and TRR where the curve ends; (1, 1) where nothing is lost.
    """

    auroc: float
    frr: float
    thresholds: int
    reach: tuple[float, float]


def published_values(probs: Any, method: str) -> Array:
    """Return what the published code puts a threshold on."""
    p = np.asarray(probs).astype(np.float64)
    if method == "alpha":
        g = (p**2).sum(1)
        return np.asarray((1 - g) / g)
    top = p.max(1)
    if method == "beta":
        return np.asarray((1 - top) / top)
    if method == "sr":
        return np.asarray(top)
    message = f"expected a method out of {', '.join(METHODS)}, got {method!r}."
    raise InputError(message)


def evaluate_grid(
    probs: Any, errors: Array, method: str, *, size: int | None = None
) -> GridResult:
    """Evaluate as published; by default with (max - min) 10,000 thresholds."""
    values = published_values(probs, method)
    low, high = float(values.min()), float(values.max())
    size = int((high - low) * 10_000) if size is None else size
    thresholds = np.linspace(low, high, size)
    counts = [
        np.searchsorted(np.sort(values[kind]), thresholds, "right")
        for kind in (~errors, errors)
    ]
    n = int((~errors).sum()), int(errors.sum())
    if method != "sr":  # DOCTOR rejects what is above, not what is at or below
        counts = [total - count for total, count in zip(n, counts, strict=True)]
    frr, trr = (np.sort(count / total) for total, count in zip(n, counts, strict=True))
    area = float(np.trapezoid(trr, frr))
    at = float(np.interp(0.95, trr, frr))
    return GridResult(area, at, size, (float(frr[-1]), float(trr[-1])))
