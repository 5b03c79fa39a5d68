"""Estimates of a rate over windows, with intervals that hold at all times.

For every odds w, w^counted / prod_i (1 - p_i + p_i w) is a martingale whatever the true
rates p_i are. The logarithm is concave, so by Jensen's inequality it is at least
w^counted / (1 - m + m w)^n, where m is the mean of the p_i. By Ville's inequality the
means m at which a mixture of these over w stays below 1 / level contain the true mean
at all times with probability 1 - level, also if the rate drifts: a confidence sequence
(Darling and Robbins 1967; Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform,
nonparametric, nonasymptotic confidence sequences").
"""

import math
from functools import lru_cache
from typing import Annotated

import msgspec
import numpy as np
from msgspec.structs import replace

from trustdoctor.arrays import Array
from trustdoctor.envelope import Count, Document
from trustdoctor.errors import InputError

LEVEL = 0.05
"""The probability that the interval of any window of a rate ever misses its mean.

Window k may err with probability LEVEL / (k (k + 1)), and these add up to LEVEL over
all windows (the union bound).
"""

_ODDS = np.geomspace(1.005, 200, 80)
_LOG_ODDS = np.log(_ODDS)
# The mixture may be flat far from the root, so the bound is bracketed on a grid. Each
# of the five rounds narrows the bracket to 1/32, all to 3e-8. The lower end of the last
# bracket is returned, which errs on the wide side.
_GRID = np.linspace(0.0, 1.0, 33)
_ROUNDS = 5


class Window(Document, frozen=True):
    """Counts of one window.

    A row that never gets a label is counted twice: as the label that makes the rate
    lowest, and as the one that makes it highest (worst-case bounds, Manski 1990).

    Attributes
    ----------
    number : int
        From 1.
    n_low, counted_low : int
        Rows, and those that count towards the rate, at the lowest rate.
    n_high, counted_high : int
        The same at the highest rate.

    Examples
    --------
    >>> low, high = Window(1, 1000, 50, 1000, 50).interval()
    >>> f"{low:.3f} {high:.3f}"
    '0.028 0.080'
    """

    number: Annotated[int, msgspec.Meta(ge=1)] = 1
    n_low: Count = 0
    counted_low: Count = 0
    n_high: Count = 0
    counted_high: Count = 0

    def __post_init__(self) -> None:
        """Refuse rates above 1."""
        if self.counted_low > self.n_low or self.counted_high > self.n_high:
            message = f"expected no more counted rows than rows, got {self}."
            raise InputError(message)

    def add(
        self, n_low: int, counted_low: int, n_high: int, counted_high: int
    ) -> "Window":
        """Count more rows."""
        return replace(
            self,
            n_low=self.n_low + n_low,
            counted_low=self.counted_low + counted_low,
            n_high=self.n_high + n_high,
            counted_high=self.counted_high + counted_high,
        )

    def add_each(self, rows: Array, size: int) -> "Window":
        """Count rows one by one; a window ends when it has `size` rows.

        Parameters
        ----------
        rows : array (m, 4)
            What each row adds to `counted_low`, `n_low`, `counted_high` and `n_high`.
        size : int
        """
        sums = np.zeros((4, len(rows) + 1), np.int64)
        np.cumsum(rows.T, axis=1, out=sums[:, 1:])
        window, first = self, 0
        while first < len(rows):
            if window.size >= size:
                window = window.next_window()
            last = min(
                int(np.searchsorted(sums[1], sums[1, first] + size - window.n_low)),
                int(np.searchsorted(sums[3], sums[3, first] + size - window.n_high)),
                len(rows),
            )
            counted_low, n_low, counted_high, n_high = (
                sums[:, last] - sums[:, first]
            ).tolist()
            window = window.add(n_low, counted_low, n_high, counted_high)
            first = last
        return window

    def next_window(self) -> "Window":
        """Return the next window, without rows."""
        return Window(self.number + 1)

    @property
    def size(self) -> int:
        """The rows that it has, at the lowest or the highest rate."""
        return max(self.n_low, self.n_high)

    @property
    def labelled(self) -> int:
        """The rows that have a label."""
        return self.n_high - (self.counted_high - self.counted_low)

    @property
    def width(self) -> float:
        """The width of the interval."""
        low, high = self.interval()
        return high - low

    @property
    def level(self) -> float:
        """The probability that its interval ever misses its mean."""
        return LEVEL / (self.number * (self.number + 1))

    def interval(self) -> tuple[float, float]:
        """Return the confidence interval of the mean: low, high."""
        level = self.level / 2  # half for each side
        low = lower_bound(self.n_low, self.counted_low, level)
        high = 1 - lower_bound(self.n_high, self.n_high - self.counted_high, level)
        return low, high


# Every entry of the history and every page asks for the same few intervals again.
@lru_cache(maxsize=4096)
def lower_bound(n: int, counted: int, level: float) -> float:
    """Return the smallest mean that a mixture of bets does not exclude."""
    if not counted:
        return 0.0
    low, high = 0.0, counted / n
    for _ in range(_ROUNDS):
        means = low + (high - low) * _GRID
        included = np.flatnonzero(_log_mixture(n, counted, means) < -math.log(level))
        first = int(included[0]) if len(included) else len(means) - 1
        low, high = float(means[max(first - 1, 0)]), float(means[first])
    return low


def _log_mixture(n: int, counted: int, means: Array) -> Array:
    """Return the logarithm of the mean over odds, for each candidate mean."""
    logs = counted * _LOG_ODDS - n * np.log1p(means[:, None] * (_ODDS - 1))
    largest = logs.max(1)
    return np.asarray(largest + np.log(np.exp(logs - largest[:, None]).mean(1)))
