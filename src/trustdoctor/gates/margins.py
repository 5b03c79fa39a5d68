"""When a second opinion stops asking."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError

if TYPE_CHECKING:
    from trustdoctor.gates.gate import Gate


@dataclass(frozen=True)
class Margins:
    """When a second opinion stops asking.

    With s_k the doubt after k passes, K of them in all, a row is accepted early if
    s_k <= t - accept_k, rejected early if s_k > t + reject_k. That decides as R > t
    does, where R_K = s_K and R_k = clip(R_(k+1), s_k - reject_k, s_k + accept_k).

    Attributes
    ----------
    views : tuple of str
        The views that are asked after the clean input, in their order.
    accept, reject : tuple of float
        After the first pass, the second, ...; one fewer than passes.
    """

    views: tuple[str, ...]
    accept: tuple[float, ...]
    reject: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is not a sequential rule."""
        sizes = {len(self.views), len(self.accept), len(self.reject)}
        whole = [a + r for a, r in zip(self.accept, self.reject, strict=False)]
        once = len(set(self.views)) == len(self.views)
        if len(sizes) > 1 or not (self.views and once and all(w >= 0 for w in whole)):
            message = (
                "expected views, each once, with a margin for accepting and one for "
                "rejecting, their sums not negative."
            )
            raise InputError(message)

    def sequential(self, doubts: Any) -> NDArray[Any]:
        """Return the one score (n,) that the procedure decides by, from (n, K)."""
        s = np.asarray(doubts, np.float64)
        if s.ndim != 2 or s.shape[1] != len(self.views) + 1:
            message = (
                f"expected doubts (n, {len(self.views) + 1}), got shape {s.shape}."
            )
            raise InputError(message)
        if np.isnan(s).any():
            message = "expected doubts without NaN, got one. Fix or remove that row."
            raise InputError(message)
        result = s[:, -1]
        for k in reversed(range(len(self.views))):
            result = np.clip(result, s[:, k] - self.reject[k], s[:, k] + self.accept[k])
        return result

    def stopped(self, doubts: NDArray[Any], k: int, gate: "Gate") -> NDArray[np.bool_]:
        """Say which rows are settled after pass k + 1, whose doubts are given."""
        if k == len(self.views) or gate.state != "threshold":
            return np.ones(len(doubts), bool)
        low, high = doubts - self.reject[k], doubts + self.accept[k]
        return (high <= gate.threshold) | (low > gate.threshold)

    def moved(self, doubts: NDArray[Any], k: int, gate: "Gate") -> NDArray[Any]:
        """Return doubts moved to where their rows are settled, if they are."""
        if k == len(self.views) or gate.state != "threshold":
            return doubts
        low, high = doubts - self.reject[k], doubts + self.accept[k]
        return np.where(
            high <= gate.threshold, high, np.where(low > gate.threshold, low, doubts)
        )
