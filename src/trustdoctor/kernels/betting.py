"""Betting row by row: what a stake has become after each row."""

import math
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trustdoctor.kernels import _native

Floats = NDArray[np.float64]
_PIECE = 128  # rows that are multiplied at once, so that no float overflows


def bet(  # noqa: PLR0913 - arrays and numbers of one recursion
    sums: Floats,
    hit: Floats,
    miss: Floats,
    what: NDArray[np.uint8],
    left: float,
    starts: int,
    opposed: Floats | None = None,
) -> tuple[Floats, float, Floats]:
    """Bet on rows in order, a new bet starting with each.

    With the t-th row a part 1 / (t + 1) of what is left is staked on each alternative.
    Then the row multiplies what all bets on an alternative have become by its ratio.

    Parameters
    ----------
    sums : array (k,)
        Logarithms of what the bets on each alternative have become before.
    hit, miss : arrays (k,)
        Logarithms of the ratios of a row that counts, and of one that does not.
    what : array (n,)
        Of each row: 2 for one that counts, 1 for one that does not, and 0 for one that
        says nothing; 3 for one that has the ratio `opposed`.
    left, starts : float, int
        What is left of the stake, and how many rows there were.
    opposed : array (k,), optional
        Logarithms of a third ratio, which the compiled kernel does not have.

    Returns
    -------
    sums, left
        After all rows.
    evidence : array (n,)
        The logarithm of the mean over alternatives plus what is left, after each row.

    Examples
    --------
    >>> ratios = np.log([2.0]), np.log([0.5])
    >>> _, left, evidence = bet(np.array([-np.inf]), *ratios, np.uint8([2, 1]), 1.0, 0)
    >>> np.exp(evidence).round(4)  # 2/2 + 1/2, then (2/2 + 1/6)/2 + 1/3
    array([1.5   , 0.9167])
    """
    if not len(sums):  # nothing to bet on
        return sums, float(_lefts(left, starts, len(what))[-1]), np.zeros(len(what))
    third = np.zeros(len(sums)) if opposed is None else opposed
    steepest = max(1.0, *np.abs(hit), *np.abs(miss), *np.abs(third))
    piece = min(_PIECE, max(1, int(640 // steepest)))
    two = opposed is None and len(sums) <= _native.MOST_BETS
    if two and _native.available:
        return _native.bet(sums, hit, miss, what, left, starts, piece)
    lefts = _lefts(left, starts, len(what))
    stakes = lefts[:-1] / (starts + 2 + np.arange(len(what)))
    evidence = np.zeros(len(what))
    for at in range(0, len(what), piece):
        part = slice(at, at + piece)
        hits, misses = np.cumsum(what[part] == 2), np.cumsum(what[part] == 1)
        thirds = np.cumsum(what[part] == 3)[:, None]
        logs = hits[:, None] * hit + misses[:, None] * miss + thirds * third
        sums, won = _played(sums, logs, stakes[part])
        evidence[part] = np.logaddexp(won, np.log(lefts[1:][part]))
    return sums, float(lefts[-1]), evidence


def _lefts(left: float, starts: int, rows: int) -> Floats:
    """Return what is left of the stake: before, and after each of so many starts."""
    counts = range(starts + 2, starts + 2 + rows)
    after = accumulate(counts, lambda kept, count: kept - kept / count, initial=left)
    return np.fromiter(after, np.float64, rows + 1)


def _played(sums: Floats, logs: Floats, stakes: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of the sums after some rows, and of their mean after each.

    With the product P_t of the ratios up to row t, a sum is P_t times what it was, and
    all stakes s_i / P_(i-1) since.

    Parameters
    ----------
    sums : array (k,)
        Logarithms of the sums before.
    logs : array (m, k)
        Logarithms of the products, after each row.
    stakes : array (m,)
    """
    inverse = np.ones((len(logs) + 1, len(sums)))
    np.exp(-logs, out=inverse[1:])
    base = np.maximum(sums, math.log(stakes[0]))
    inside = np.add.accumulate(inverse[:-1] * stakes[:, None], axis=0)
    inside *= np.exp(-base)
    inside += np.exp(sums - base)
    top = base.max()
    won = (inside / inverse[1:] * np.exp(base - top)).sum(1)
    mean = top + np.log(won) - math.log(len(sums))
    return base + np.log(inside[-1]) + logs[-1], mean
