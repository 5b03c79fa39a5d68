"""Betting against a promise: evidence that may be looked at at any time.

A mixture of likelihood ratios against the edge of the null is a non-negative
supermartingale under every rate of the null, so it may be looked at after every batch,
forever, and exceeds 1 / level with probability at most `level` (Ville's inequality).
For rows that are one thing or the other it depends on their counts alone, which is all
that has to be remembered.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

_ODDS = np.geomspace(1.02, 50, 60)  # how far from the null the alternatives are
_MOST = 690.0  # the largest logarithm of evidence, so that a state can say it


@dataclass(frozen=True)
class Bet:
    """One test: a null on a rate, and the rows counted so far.

    Attributes
    ----------
    low, high : float
        The null: the rate is between them. 0 and 1 leave a side open.
    level : float
        The probability of a false alarm, over the whole future.
    n, counted : int
        Rows counted, and those that count towards the rate.
    peak : float
        The largest evidence so far; an alarm stays.
    """

    low: float
    high: float
    level: float
    n: int = 0
    counted: int = 0
    peak: float = 1.0

    def add(self, n: int, counted: int) -> "Bet":
        """Count more rows."""
        new = replace(self, n=self.n + n, counted=self.counted + counted)
        return replace(new, peak=max(self.peak, new.evidence))

    @property
    def evidence(self) -> float:
        """The wealth of betting against the null, starting from 1."""
        sides = []
        if self.high < 1:
            sides.append(wealth(self.counted, self.n, self.high))
        if 1 - self.low < 1:
            sides.append(wealth(self.n - self.counted, self.n, 1 - self.low))
        return float(np.mean(sides)) if sides else 1.0

    @property
    def alarm(self) -> bool:
        """Whether the null was rejected at some time."""
        return self.peak >= 1 / self.level

    def words(self, name: str) -> str:
        """Say in one line how the test stands."""
        rate = f"{self.counted / self.n:.2%} of {self.n:,}" if self.n else "no rows yet"
        null = f"{self.low:.2%} to {self.high:.2%}"
        said = "ALARM" if self.alarm else "holds"
        odds = f"evidence {self.peak:.3g} of {1 / self.level:.3g} for an alarm"
        return f"{name}: {said}; {rate}, expected {null}; {odds}"


def wealth(counted: int, n: int, null: float) -> float:
    """Bet that the rate is above `null`, by a mixture over alternatives."""
    if null <= 0:
        return math.exp(_MOST) if counted else 1.0
    odds = _ODDS * null / (1 - null)
    q = odds / (1 + odds)
    log_ratio = counted * np.log(q / null) + (n - counted) * np.log(
        (1 - q) / (1 - null)
    )
    return float(np.exp(np.minimum(log_ratio, _MOST)).mean())
