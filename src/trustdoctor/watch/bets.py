"""Bets against a promise: evidence that stays valid however often it is looked at.

A bet multiplies its stake by a likelihood ratio for every row (Wald 1945). Under every
rate of the null that is a non-negative supermartingale, so with probability
1 - `level` it never reaches 1 / level, at any of infinitely many looks: Ville's
inequality (Ville 1939; Ramdas, Gruenwald, Vovk and Shafer 2023, "Game-theoretic
statistics and safe anytime-valid inference"; Waudby-Smith and Ramdas 2024, "Estimating
means of bounded random variables by betting").

A single bet on all rows since the beginning detects a late change ever more slowly:
what good rows took from it must first be won back. So a new bet starts with every
batch t, with the stake 1 / (t (t + 1)). The stakes add up to 1, and a sum of
supermartingales is one (mixtures over start times: Shin, Ramdas and Rinaldo 2024,
"E-detectors"). All bets on an alternative see the same ratios from their start on, so
one number per alternative is enough: the sum of its bets.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.kernels import bet as bet_on_rows

ODDS = np.geomspace(1.02, 50, 60)
"""The alternatives: odds of a counted row, relative to the odds under the null.

A mixture over a grid needs no guess of how bad a rate may become (the method of
mixtures: Robbins 1970). docs/watching.md measures the delay of an alarm that it costs.
"""

_LOG_ODDS = np.log(ODDS)
# The log evidence of a row that the null excludes: infinite by right, but finite so
# that sums stay finite and files can hold them; e^690 is near the largest float.
_LOG_IMPOSSIBLE = 690.0
# The largest share of the evidence that one opposed row may take. It bounds the null
# from below, where rows labelled wrongly would otherwise cost everything.
_LARGEST_LOSS = 0.5


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

    For odds w it is log(w^counted / (1 + null (w - 1))^n).

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
    """Return log ratios where labels may be wrong: of a hit, a miss, an opposed row.

    A wrong label moves a row from one kind to another, and a rate is a share within one
    kind, so how far labels move it depends on how common errors are. Opposed rows bound
    that without knowing it. For FRR: let rejected rows be drawn at a rate b and
    accepted ones at a, and labels be wrong with a probability u of correct rows and v
    of errors, both at most e and the same for rejected and accepted rows. Then a drawn
    row is

        a hit      (rejected, labelled correct)  with H  = b (FR (1-u) + TR v),
        a miss     (accepted, labelled correct)  with M >= a TA (1-u),
        or opposed (rejected, labelled wrong)    with T >= b TR (1-v).

    The promise says b FR <= odds(null) a TA, and v <= e says v <= (1-v) e / (1-e). So
    H <= odds(null) M + T e / (1-e), and with w = odds - 1 and D = 1 + null w

        H odds / D + M / D + T (1 - e / (1-e) (1 - null) w / D) + (1 - H - M - T) <= 1.

    TRR likewise: a hit is accepted and labelled wrong, an opposed row accepted and
    labelled correct. The ratio for a larger null is valid, too, as a larger null holds
    whenever the smaller one does; it is used for odds at which an opposed row would
    otherwise take more than half of the evidence.

    Examples
    --------
    >>> hit, miss, opposed = noisy_ratios(0.2, 0.02)
    >>> means = 0.2 * np.exp(hit) + 0.8 * np.exp(miss)
    >>> bool(abs(means - 1).max() < 1e-12 and (opposed < 0).all())
    True
    """
    excess_odds, noise_odds = ODDS - 1, noise / (1 - noise)
    raised_null = (noise_odds * excess_odds - _LARGEST_LOSS) / (
        excess_odds * (noise_odds + _LARGEST_LOSS)
    )
    nulls = np.maximum(null, raised_null)
    denominator = 1 + nulls * excess_odds
    opposed = np.log1p(-noise_odds * (1 - nulls) * excess_odds / denominator)
    return _LOG_ODDS - np.log(denominator), -np.log(denominator), opposed


def _no_bets() -> Array:
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
        Batches so far; each has started a bet.
    unstaked : float
        The part of the stake that no bet has yet.
    log_sums : array (2, k)
        Logarithms of the sum of the bets on each alternative: that the rate is above
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
    unstaked: float = 1.0
    log_sums: Array = field(default_factory=_no_bets, repr=False, compare=False)
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
            batches begin must not depend on the labels of their rows.
        null : Null, optional
            The null of these rows, where it is not (`low`, `high`).
        opposed : int
            Rows decided as those that break the promise are, with the other label. They
            carry evidence where labels may be wrong.
        """
        low, high, noise = self._null_or_own(null)
        log_sums, unstaked, starts = self.log_sums, self.unstaked, self.starts
        if start:
            starts += 1
            # 1 / (t + 1) of what is left: after t batches 1 / (t + 1) of the stake is
            # left, so batch t got 1 / (t (t + 1)).
            stake = unstaked / (starts + 1)
            log_sums = np.logaddexp(log_sums, math.log(stake))
            unstaked -= stake
        if n or counted or (noise and opposed):
            above, below = (
                _log_ratios(n, towards, bound, noise, opposed)
                for towards, bound in ((counted, high), (n - counted, 1 - low))
            )
            log_sums = log_sums + np.array((above, below))
        bet = replace(
            self,
            n=self.n + n,
            counted=self.counted + counted,
            starts=starts,
            unstaked=unstaked,
            log_sums=log_sums,
        )
        return bet if bet.evidence <= self.peak else replace(bet, peak=bet.evidence)

    def add_each(
        self,
        n: Array,
        counted: Array,
        *,
        null: Null | None = None,
        opposed: Array | None = None,
    ) -> tuple["Bet", Array]:
        """Bet on rows that each are a batch of their own.

        The result is that of `add` row by row, by one call of the compiled kernel.
        Returns the bet after all rows, and the evidence after each.

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
        >>> row_by_row = Bet(0.0, 0.05).add(1, 0).add(1, 0).add(1, 1)
        >>> bool(abs(evidence[2] - row_by_row.evidence) < 1e-12)
        True
        """
        low, high, noise = self._null_or_own(null)
        sides, log_sums = self.sides, self.log_sums.copy()
        # The kernel's codes: 0 says nothing, 1 is a miss, 2 a hit, 3 an opposed row.
        codes, opposed_ratios = (n + counted).astype(np.uint8), None

        def ratios(above: tuple[int, int, int], below: tuple[int, int, int]) -> Array:
            """Return the log ratios of one (n, counted, opposed) row on each side."""
            bounds = zip((above, below), (high, 1 - low), strict=True)
            by_side = [
                _log_ratios(n_rows, n_counted, bound, noise, n_opposed)
                for (n_rows, n_counted, n_opposed), bound in bounds
            ]
            return np.array(by_side)[sides].ravel()

        if noise and opposed is not None and opposed.any():
            codes = codes + 3 * opposed.astype(np.uint8)
            opposed_ratios = ratios((0, 0, 1), (0, 0, 1))
        tested_sums, unstaked, evidence = bet_on_rows(
            log_sums[sides].ravel(),
            ratios((1, 1, 0), (1, 0, 0)),
            ratios((1, 0, 0), (1, 1, 0)),
            codes,
            self.unstaked,
            self.starts,
            opposed_ratios,
        )
        log_sums[sides] = tested_sums.reshape(-1, len(ODDS))
        bet = replace(
            self,
            n=self.n + int(n.sum()),
            counted=self.counted + int(counted.sum()),
            starts=self.starts + len(n),
            unstaked=unstaked,
            log_sums=log_sums,
            peak=max(self.peak, float(evidence.max(initial=0.0))),
        )
        return bet, evidence

    def _null_or_own(self, null: Null | None) -> Null:
        return Null(self.low, self.high) if null is None else Null(*null)

    @property
    def sides(self) -> list[bool]:
        """Whether the null has an upper bound, and whether it has a lower one."""
        return [self.high < 1, self.low > 0]

    @cached_property
    def evidence(self) -> float:
        """The logarithm of what the stake has become: 0 at the beginning."""
        log_sums = self.log_sums[self.sides]
        if not log_sums.size:
            return 0.0
        won = np.logaddexp.reduce(log_sums, axis=None) - math.log(log_sums.size)
        return float(np.logaddexp(won, math.log(self.unstaked)))


def _log_ratios(
    n: int, counted: int, null: float, noise: float = 0.0, opposed: int = 0
) -> Array:
    """Return the log likelihood ratios of these rows, of each alternative."""
    if null >= 1:  # no rate breaks it
        return np.zeros(len(ODDS))
    if null <= 0:  # one counted row disproves it
        return np.full(len(ODDS), _LOG_IMPOSSIBLE if counted else 0.0)
    if not noise:
        return log_ratio(n, counted, null)
    hit, miss, opposed_row = noisy_ratios(null, noise)
    return counted * hit + (n - counted) * miss + opposed * opposed_row
