"""Taking out the lengths of rows: what is left of logits when only directions count."""

from typing import Any

from array_api_compat import array_namespace


def normalise(logits: Any, p: float) -> tuple[Any, Any, Any]:
    r"""Return rows without their lengths, their leads, and how many classes they have.

    Logits are divided by :math:`\|z - \bar z\|_p`, and the top one is moved to 0, so
    that gaps are exact. The lead is how far it was above the mean. Logits of -inf are
    left out, and do not count as classes. Two classes are left as they are: without
    their length nothing would tell rows apart.

    Examples
    --------
    >>> import numpy as np
    >>> logits, lead, _ = normalise(np.array([[5.0, 2.0, 2.0]]), 2.0)
    >>> logits.round(3), lead.round(3)
    (array([[ 0.   , -1.225, -1.225]]), array([0.816]))
    """
    xp = array_namespace(logits)
    there = logits > -xp.inf
    zero = xp.zeros_like(logits)
    count = xp.sum(xp.where(there, zero + 1, zero), axis=-1)
    top = xp.max(logits, axis=-1, keepdims=True)
    below = _below(xp, xp.where(there, logits, top), top)
    mean = xp.sum(below, axis=-1) / count
    centred = xp.where(there, below - mean[..., None], zero)
    scale, flat = _scale(xp, xp.abs(centred))
    total = xp.sum(_raise(xp, centred / scale[..., None], p), axis=-1)
    total = xp.where(flat, xp.ones_like(total), total)  # no root of 0: no gradient
    length = scale * total ** (1 / p)
    kept = xp.where((count == 2)[..., None], logits, below / length[..., None])
    return xp.where(there, kept, logits), -mean / length, count


def _raise(xp: Any, centred: Any, p: float) -> Any:
    """Return what adds up to the sizes to the p; products are faster than powers."""
    if p == 1:  # what is above the mean is as much as what is below
        return 2 * xp.where(centred > 0, centred, xp.zeros_like(centred))
    sizes = xp.abs(centred)
    if p not in (2, 3, 4, 5, 6):
        return sizes**p
    out = sizes
    for _ in range(int(p) - 1):
        out = out * sizes
    return out


def _below(xp: Any, kept: Any, top: Any) -> Any:
    """Return how far logits are below the top, the farthest at -1."""
    # The difference of large numbers may be beyond the largest, or have a reciprocal
    # that is flushed to 0; subnormal numbers have no sixteenths.
    wide = xp.max(xp.abs(kept), axis=-1, keepdims=True) > 1
    below = xp.where(wide, kept / 16 - top / 16, kept - top)
    scale, _ = _scale(xp, xp.abs(below))
    return below / scale[..., None]


def _scale(xp: Any, sizes: Any) -> tuple[Any, Any]:
    """Return the largest of each row, 1 for 0, and where it is 0."""
    largest = xp.max(sizes, axis=-1)
    flat = largest == 0
    return xp.where(flat, xp.ones_like(largest), largest), flat
