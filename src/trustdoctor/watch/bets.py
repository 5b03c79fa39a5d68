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
from typing import NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.kernels import bet

ODDS = np.geomspace(1.02, 50, 60)
"""The alternatives: the odds of a counted row, in units of those of the null."""

_LOG_ODDS = np.log(ODDS)
_CERTAIN = 690.0  # logarithm of the evidence of a row that cannot be
_MOST_LOST = 0.5  # of the evidence, to one opposed row


class Null(NamedTuple):
    """What a rate is tested against, among labelled rows.

    Attributes
    ----------
    low, high : float
        The rate is between them. 0 and 1 leave a side open.
    noise : float
        The share of labels that may be wrong, which opposed rows (`Bet.add`) bound.
    """

    low: float
    high: float
    noise: float = 0.0


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


def noisy_ratios(null: float, noise: float) -> tuple[Array, Array, Array]:
    """Return logarithms of ratios where labels may be wrong: hit, miss, opposed row.

    Wrong labels move rows between the kinds that a rate is conditional on, in numbers
    that depend on how many errors there are. Opposed rows bound them without knowing
    that. For FRR: let rejected rows be drawn at a rate b and accepted ones at a, and
    labels be wrong with a probability u of correct rows and v of errors, both at most e
    and the same for rejected and accepted rows. Then a drawn row is

        a hit      (rejected, labelled correct)  with H  = b (FR (1-u) + TR v),
        a miss     (accepted, labelled correct)  with M >= a TA (1-u),
        or opposed (rejected, labelled wrong)    with T >= b TR (1-v).

    The promise says b FR <= odds(null) a TA, and v <= e says v <= (1-v) e / (1-e). So
    H <= odds(null) M + T e / (1-e), and with w = odds - 1 and D = 1 + null w

        H odds / D + M / D + T (1 - e / (1-e) (1 - null) w / D) + (1 - H - M - T) <= 1.

    TRR likewise: a hit is accepted and labelled wrong, an opposed row accepted and
    labelled correct. A larger null holds, too; it is taken for odds at which an opposed
    row would take more than half of the evidence.

    Examples
    --------
    >>> hit, miss, opposed = noisy_ratios(0.2, 0.02)
    >>> means = 0.2 * np.exp(hit) + 0.8 * np.exp(miss)
    >>> bool(abs(means - 1).max() < 1e-12 and (opposed < 0).all())
    True
    """
    more, share = ODDS - 1, noise / (1 - noise)
    raised = (share * more - _MOST_LOST) / (more * (share + _MOST_LOST))
    nulls = np.maximum(null, raised)
    whole = 1 + nulls * more
    opposed = np.log1p(-share * (1 - nulls) * more / whole)
    return _LOG_ODDS - np.log(whole), -np.log(whole), opposed


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
        null: Null | None = None,
        opposed: int = 0,
    ) -> "Bet":
        """Bet on more rows.

        Parameters
        ----------
        n, counted : int
            Rows, and those that count towards the rate.
        start : bool
            Whether they are the first of a batch, with which a new bet starts. Where
            batches begin must not depend on what their rows turn out to be.
        null : Null, optional
            The null of these rows, where it is not (`low`, `high`).
        opposed : int
            Rows decided as those that speak against the promise are, with the other
            label; they say something where labels may be wrong.
        """
        low, high, noise = self._null(null)
        sums, left, starts = self.sums, self.left, self.starts
        if start:
            starts += 1
            stake = left / (starts + 1)
            sums, left = np.logaddexp(sums, math.log(stake)), left - stake
        if n or counted or (noise and opposed):
            above, below = (
                _added(n, part, end, noise, opposed)
                for part, end in ((counted, high), (n - counted, 1 - low))
            )
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
        self,
        n: Array,
        counted: Array,
        *,
        null: Null | None = None,
        opposed: Array | None = None,
    ) -> tuple["Bet", Array]:
        """Bet on rows that each are a batch of their own.

        As `add` row by row, but fast. Returns the bet after all rows, and the evidence
        after each.

        Parameters
        ----------
        n, counted : arrays (m,) of 0 and 1
            Of each row: whether it says something, and whether it counts.
        null : Null, optional
            As in `add`.
        opposed : array (m,) of 0 and 1, optional
            Of each row: whether it is opposed, as in `add`; it has an `n` of 0 then.

        Examples
        --------
        >>> rows, counted = np.array([1, 1, 1]), np.array([0, 0, 1])
        >>> bet, evidence = Bet(0.0, 0.05).add_each(rows, counted)
        >>> one_by_one = Bet(0.0, 0.05).add(1, 0).add(1, 0).add(1, 1)
        >>> bool(abs(evidence[2] - one_by_one.evidence) < 1e-12)
        True
        """
        low, high, noise = self._null(null)
        sides, sums = self.sides, self.sums.copy()
        what, third = (n + counted).astype(np.uint8), None

        def ratios(above: tuple[int, int, int], below: tuple[int, int, int]) -> Array:
            ends = zip((above, below), (high, 1 - low), strict=True)
            both = [_added(k, m, end, noise, t) for (k, m, t), end in ends]
            return np.array(both)[sides].ravel()

        if noise and opposed is not None and opposed.any():
            what, third = what + 3 * opposed.astype(np.uint8), ratios(*2 * [(0, 0, 1)])
        own, left, evidence = bet(
            sums[sides].ravel(),
            ratios((1, 1, 0), (1, 0, 0)),
            ratios((1, 0, 0), (1, 1, 0)),
            what,
            self.left,
            self.starts,
            third,
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

    def _null(self, null: Null | None) -> Null:
        return Null(self.low, self.high) if null is None else Null(*null)

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


def _added(
    n: int, counted: int, null: float, noise: float = 0.0, opposed: int = 0
) -> Array:
    if null >= 1:
        return np.zeros(len(ODDS))
    if null <= 0:
        return np.full(len(ODDS), _CERTAIN if counted else 0.0)
    if not noise:
        return log_ratio(n, counted, null)
    hit, miss, third = noisy_ratios(null, noise)
    return counted * hit + (n - counted) * miss + opposed * third
