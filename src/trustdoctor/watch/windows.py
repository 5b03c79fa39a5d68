"""Estimates of a rate over windows, with intervals that hold at all times.

For every odds w, w^counted / prod_i (1 - p_i + p_i w) is a martingale whatever the true
rates p_i are, and by concavity at least w^counted / (1 - m + m w)^n, where m is the
mean of the p_i. So the means m at which a mixture of these stays below 1 / level hold
the true mean at all times with probability 1 - level, also where the rate drifts.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trustdoctor.arrays import Array

LEVEL = 0.05
"""The probability that any window of a rate ever misses its mean."""

_ODDS = np.geomspace(1.005, 200, 80)
_LOG_ODDS = np.log(_ODDS)
_GRID = np.linspace(0.0, 1.0, 33)
_ROUNDS = 5  # each narrows the place of an end to a sixteenth


@dataclass(frozen=True)
class Window:
    """Counts of one window.

    Where labels are missing for good, rows count so as to make the rate as low as it
    can be, and as high as it can be.

    Attributes
    ----------
    number : int
        From 1: window k may err with probability 0.05 / (k (k + 1)).
    n, counted : int
        Rows, and those that count towards the rate, at the least rate.
    more, most : int
        The same at the greatest rate.

    Examples
    --------
    >>> low, high = Window(n=1000, counted=50, more=1000, most=50).interval()
    >>> f"{low:.3f} {high:.3f}"
    '0.028 0.080'
    """

    number: int = 1
    n: int = 0
    counted: int = 0
    more: int = 0
    most: int = 0

    def add(self, n: int, counted: int, more: int, most: int) -> "Window":
        """Count more rows."""
        return replace(
            self,
            n=self.n + n,
            counted=self.counted + counted,
            more=self.more + more,
            most=self.most + most,
        )

    def add_each(self, rows: Array, size: int) -> "Window":
        """Count rows one by one; a window ends where it has `size` rows.

        Parameters
        ----------
        rows : array (m, 4)
            Of each row, what it adds to `counted`, `n`, `most` and `more`.
        size : int
        """
        sums = np.zeros((4, len(rows) + 1), np.int64)
        np.cumsum(rows.T, axis=1, out=sums[:, 1:])
        window, first = self, 0
        while first < len(rows):
            if max(window.n, window.more) >= size:
                window = window.following()
            last = min(
                int(np.searchsorted(sums[1], sums[1, first] + size - window.n)),
                int(np.searchsorted(sums[3], sums[3, first] + size - window.more)),
                len(rows),
            )
            counted, n, most, more = (sums[:, last] - sums[:, first]).tolist()
            window, first = window.add(n, counted, more, most), last
        return window

    def following(self) -> "Window":
        """Return the next window, without rows."""
        return Window(self.number + 1)

    @property
    def known(self) -> int:
        """The rows whose labels are known."""
        return self.more - (self.most - self.counted)

    @property
    def width(self) -> float:
        """How far the ends of the interval are apart."""
        low, high = self.interval()
        return high - low

    @property
    def level(self) -> float:
        """The probability that it ever misses its mean."""
        return LEVEL / (self.number * (self.number + 1))

    def interval(self) -> tuple[float, float]:
        """Return the ends between which the mean is."""
        low = lower_end(self.n, self.counted, self.level / 2)
        high = 1 - lower_end(self.more, self.more - self.most, self.level / 2)
        return low, high


@lru_cache(maxsize=4096)
def lower_end(n: int, counted: int, level: float) -> float:
    """Return the least mean that a mixture of bets does not exclude."""
    if not counted:
        return 0.0
    low, high = 0.0, counted / n
    for _ in range(_ROUNDS):
        means = low + (high - low) * _GRID
        inside = np.flatnonzero(_mixture(n, counted, means) < -math.log(level))
        first = int(inside[0]) if len(inside) else len(means) - 1
        low, high = float(means[max(first - 1, 0)]), float(means[first])
    return low


def _mixture(n: int, counted: int, means: Array) -> Array:
    """Return the logarithm of the mean over odds, for each candidate."""
    logs = counted * _LOG_ODDS - n * np.log1p(means[:, None] * (_ODDS - 1))
    top = logs.max(1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).mean(1)))
