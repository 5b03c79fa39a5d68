"""Betting against a promise: evidence that may be looked at at any time.

A bet multiplies its stake by a likelihood ratio for every row. Under every rate of the
null that is a non-negative supermartingale, so it may be looked at after every batch,
forever, and exceeds 1 / level with probability at most `level` (Ville's inequality).

A bet on all rows since the beginning goes blind with age: what good rows took away must
first be won back. So a new bet starts with every batch t, with the stake
1 / (t (t + 1)); the stakes add up to 1, and so do the bets to a supermartingale. Of
each alternative one number is enough, the sum of all bets on it.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.kernels import bet

ODDS = np.geomspace(1.02, 50, 60)
"""The alternatives: the odds of a counted row, in units of those of the null."""

_LOG_ODDS = np.log(ODDS)
_CERTAIN = 690.0  # logarithm of the evidence of a row that cannot be


def log_ratio(n: Array | float, counted: Array | float, null: Array | float) -> Array:
    """Return the logarithm of the likelihood ratio of each alternative to the null.

    Parameters
    ----------
    n, counted : int, or arrays (..., 1)
        Rows, and those that count towards the rate.
    null : float, or array (..., 1)
        The edge of the null, above 0.

    Examples
    --------
    >>> round(float(log_ratio(1, 1, 0.5)[0]), 6)  # 1.02 to 1 are 1.02 in 2.02
    0.009852
    """
    return counted * _LOG_ODDS - n * np.log1p(null * (ODDS - 1))


def _nothing() -> Array:
    return np.full((2, len(ODDS)), -np.inf)


@dataclass(frozen=True)
class Bet:
    """One test: a null on a rate, and the evidence against it.

    Attributes
    ----------
    low, high : float
        The null: the rate is between them. 0 and 1 leave a side open.
    n, counted : int
        Rows so far, and those that count towards the rate.
    starts : int
        Batches so far: so many bets run.
    left : float
        The part of the stake that no bet has yet.
    sums : array (2, k)
        Logarithms of the sums of the bets on each alternative: that the rate is above
        `high`, and that it is below `low`.
    peak : float
        The logarithm of the largest evidence so far.

    Examples
    --------
    >>> bet = Bet(0.0, 0.05).add(100, 20)
    >>> bet.peak > math.log(10)  # an alarm at level 0.1
    True
    """

    low: float
    high: float
    n: int = 0
    counted: int = 0
    starts: int = 0
    left: float = 1.0
    sums: Array = field(default_factory=_nothing, repr=False, compare=False)
    peak: float = 0.0

    def add(
        self,
        n: int,
        counted: int,
        *,
        start: bool = True,
        null: tuple[float, float] | None = None,
    ) -> "Bet":
        """Bet on more rows.

        Parameters
        ----------
        n, counted : int
            Rows, and those that count towards the rate.
        start : bool
            Whether they are the first of a batch, with which a new bet starts. Where
            batches begin must not depend on what their rows turn out to be.
        null : (float, float), optional
            The null of these rows, where it is not (`low`, `high`).
        """
        low, high = (self.low, self.high) if null is None else null
        sums, left, starts = self.sums, self.left, self.starts
        if start:
            starts += 1
            stake = left / (starts + 1)
            sums, left = np.logaddexp(sums, math.log(stake)), left - stake
        if n or counted:
            above, below = _added(n, counted, high), _added(n, n - counted, 1 - low)
            sums = sums + np.array((above, below))
        new = replace(
            self,
            n=self.n + n,
            counted=self.counted + counted,
            starts=starts,
            left=left,
            sums=sums,
        )
        return new if new.evidence <= self.peak else replace(new, peak=new.evidence)

    def add_each(
        self, n: Array, counted: Array, *, null: tuple[float, float] | None = None
    ) -> tuple["Bet", Array]:
        """Bet on rows that each are a batch of their own.

        As `add` row by row, but fast. Returns the bet after all rows, and the evidence
        after each.

        Parameters
        ----------
        n, counted : arrays (m,) of 0 and 1
            Of each row: whether it says something, and whether it counts.
        null : (float, float), optional
            As in `add`.

        Examples
        --------
        >>> rows, counted = np.array([1, 1, 1]), np.array([0, 0, 1])
        >>> bet, evidence = Bet(0.0, 0.05).add_each(rows, counted)
        >>> one_by_one = Bet(0.0, 0.05).add(1, 0).add(1, 0).add(1, 1)
        >>> bool(abs(evidence[2] - one_by_one.evidence) < 1e-12)
        True
        """
        low, high = (self.low, self.high) if null is None else null
        sides, sums = self.sides, self.sums.copy()
        hit = np.array((_added(1, 1, high), _added(1, 0, 1 - low)))[sides].ravel()
        miss = np.array((_added(1, 0, high), _added(1, 1, 1 - low)))[sides].ravel()
        what = (n + counted).astype(np.uint8)
        own, left, evidence = bet(
            sums[sides].ravel(), hit, miss, what, self.left, self.starts
        )
        sums[sides] = own.reshape(-1, len(ODDS))
        new = replace(
            self,
            n=self.n + int(n.sum()),
            counted=self.counted + int(counted.sum()),
            starts=self.starts + len(n),
            left=left,
            sums=sums,
            peak=max(self.peak, float(evidence.max(initial=0.0))),
        )
        return new, evidence

    @property
    def sides(self) -> list[bool]:
        """Whether the null has an end above, and one below."""
        return [self.high < 1, self.low > 0]

    @cached_property
    def evidence(self) -> float:
        """The logarithm of what the stake has become: 0 at the beginning."""
        own = self.sums[self.sides]
        if not own.size:
            return 0.0
        won = np.logaddexp.reduce(own, axis=None) - math.log(own.size)
        return float(np.logaddexp(won, math.log(self.left)))

    def __add__(self, other: "Bet") -> "Bet":
        """Average the evidence of two streams, which is evidence, too."""
        half = math.log(2)
        both = replace(
            self,
            n=self.n + other.n,
            counted=self.counted + other.counted,
            starts=max(self.starts, other.starts),
            left=(self.left + other.left) / 2,
            sums=np.logaddexp(self.sums, other.sums) - half,
        )
        seen = max(both.evidence, self.peak - half, other.peak - half, 0.0)
        return replace(both, peak=seen)


def _added(n: int, counted: int, null: float) -> Array:
    if null >= 1:
        return np.zeros(len(ODDS))
    if null <= 0:
        return np.full(len(ODDS), _CERTAIN if counted else 0.0)
    return log_ratio(n, counted, null)
