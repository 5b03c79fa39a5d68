"""Margins: when a second opinion needs no further pass of the model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError

if TYPE_CHECKING:
    from trustdoctor.gates.gate import Gate


@dataclass(frozen=True)
class Margins:
    """How far from the threshold a doubt must be to settle a row before its last pass.

    With s_k the doubt after k of K passes and t the threshold, a row is accepted early
    if s_k <= t - accept_k, and rejected early if s_k > t + reject_k. The decision is
    that of R_1 > t, where R_K = s_K and
    R_k = clip(R_(k+1), s_k - reject_k, s_k + accept_k).

    Attributes
    ----------
    views : tuple of str
        The views scored after the clean input, in this order.
    accept, reject : tuple of float
        The margins after the first pass, the second, ...; one fewer than passes.
    """

    views: tuple[str, ...]
    accept: tuple[float, ...]
    reject: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse margins that do not define a sequential rule."""
        lengths = {len(self.views), len(self.accept), len(self.reject)}
        sums = [a + r for a, r in zip(self.accept, self.reject, strict=False)]
        distinct = len(set(self.views)) == len(self.views)
        if len(lengths) > 1 or not (self.views and distinct and min(sums) >= 0):
            message = (
                "expected distinct views, each with a margin for accepting and one for "
                "rejecting, whose sum is not negative."
            )
            raise InputError(message)

    def sequential(self, doubts: Any) -> NDArray[Any]:
        """Return R_1, the score (n,) that the procedure decides by, from (n, K)."""
        s = np.asarray(doubts, np.float64)
        if s.ndim != 2 or s.shape[1] != len(self.views) + 1:
            message = (
                f"expected doubts (n, {len(self.views) + 1}), got shape {s.shape}."
            )
            raise InputError(message)
        if np.isnan(s).any():
            message = "expected doubts without NaN, got NaN. Fix or remove that row."
            raise InputError(message)
        # One score for the whole procedure, so that one threshold on it can be
        # calibrated like any other: the promise needs no correction for stopping early.
        score = s[:, -1]
        for k in reversed(range(len(self.views))):
            score = np.clip(score, s[:, k] - self.reject[k], s[:, k] + self.accept[k])
        return score

    def settled(self, doubts: NDArray[Any], k: int, gate: "Gate") -> NDArray[np.bool_]:
        """Return which rows are settled by their doubts after pass k + 1."""
        if k == len(self.views) or gate.state != "threshold":
            return np.ones(len(doubts), bool)
        low, high = doubts - self.reject[k], doubts + self.accept[k]
        return (high <= gate.threshold) | (low > gate.threshold)

    def settled_doubts(
        self, doubts: NDArray[Any], k: int, gate: "Gate"
    ) -> NDArray[Any]:
        """Return the doubts after pass k + 1, moved where their rows are settled.

        A settled row gets the doubt nearest to the threshold that its margin allows.
        """
        if k == len(self.views) or gate.state != "threshold":
            return doubts
        low, high = doubts - self.reject[k], doubts + self.accept[k]
        return np.where(
            high <= gate.threshold, high, np.where(low > gate.threshold, low, doubts)
        )
