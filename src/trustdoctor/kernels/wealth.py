"""Testing by betting: the wealth of a gambler who bets against a hypothesis.

Under the hypothesis the wealth is a nonnegative martingale with mean 1, so by Ville's
inequality it exceeds 1 / delta with a probability of at most delta, however long one
looks (Ville 1939; Shafer, Testing by betting, JRSS A 2021).
"""

import math
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trustdoctor.kernels import _native

Floats = NDArray[np.float64]

# Rows whose ratios are multiplied before a logarithm is taken. `bet` makes it smaller
# where ratios are so steep that a product could leave the range of floats: 640 is below
# log(2^1024) = 709.8.
_BLOCK = 128


def bet(  # noqa: PLR0913 - arrays and numbers of one recursion
    log_wealth: Floats,
    log_hit: Floats,
    log_miss: Floats,
    outcomes: NDArray[np.uint8],
    reserve: float,
    rows_before: int,
    log_opposed: Floats | None = None,
) -> tuple[Floats, float, Floats]:
    """Bet on rows in order; a new bet on each alternative starts at every row.

    At row t, 1 / (t + 1) of the reserve is spread over the alternatives. The row then
    multiplies the wealth on each alternative by that alternative's likelihood ratio. So
    a change that sets in late still finds money to bet with.

    Parameters
    ----------
    log_wealth : array (k,)
        Logarithm of the wealth on each alternative before these rows.
    log_hit, log_miss : arrays (k,)
        Logarithm of each alternative's likelihood ratio for a row that is a hit (what
        is counted, as an error) and for one that is a miss.
    outcomes : array (n,)
        2 for a hit, 1 for a miss, 0 for a row without information (ratio 1), and 3
        for a row with the ratio `log_opposed`.
    reserve, rows_before : float, int
        The part of the initial 1 that has not been bet, and the number of rows before
        these.
    log_opposed : array (k,), optional
        Logarithm of a third ratio; the compiled kernel has only two.

    Returns
    -------
    log_wealth, reserve
        After all rows.
    evidence : array (n,)
        Logarithm of the total wealth after each row: the mean over the alternatives
        plus the reserve.

    Examples
    --------
    >>> ratios = np.log([2.0]), np.log([0.5])
    >>> _, _, evidence = bet(np.array([-np.inf]), *ratios, np.uint8([2, 1]), 1.0, 0)
    >>> np.exp(evidence).round(4)  # 2/2 + 1/2, then (2/2 + 1/6)/2 + 1/3
    array([1.5   , 0.9167])
    """
    if not len(log_wealth):  # no alternative to bet on
        return (
            log_wealth,
            float(_reserves(reserve, rows_before, len(outcomes))[-1]),
            np.zeros(len(outcomes)),
        )
    log_third = np.zeros(len(log_wealth)) if log_opposed is None else log_opposed
    steepest = max(1.0, *np.abs(log_hit), *np.abs(log_miss), *np.abs(log_third))
    block = min(_BLOCK, max(1, int(640 // steepest)))
    compiled = log_opposed is None and len(log_wealth) <= _native.MAX_BETS
    if compiled and _native.available:
        return _native.bet(
            log_wealth, log_hit, log_miss, outcomes, reserve, rows_before, block
        )
    reserves = _reserves(reserve, rows_before, len(outcomes))
    stakes = reserves[:-1] / (rows_before + 2 + np.arange(len(outcomes)))
    evidence = np.zeros(len(outcomes))
    for start in range(0, len(outcomes), block):
        rows = slice(start, start + block)
        hits, misses = np.cumsum(outcomes[rows] == 2), np.cumsum(outcomes[rows] == 1)
        thirds = np.cumsum(outcomes[rows] == 3)[:, None]
        log_products = (
            hits[:, None] * log_hit + misses[:, None] * log_miss + thirds * log_third
        )
        log_wealth, log_mean = _block_wealth(log_wealth, log_products, stakes[rows])
        evidence[rows] = np.logaddexp(log_mean, np.log(reserves[1:][rows]))
    return log_wealth, float(reserves[-1]), evidence


def _reserves(reserve: float, rows_before: int, rows: int) -> Floats:
    """Return the reserve before, and after each of the next `rows` rows.

    Subtracted row by row, as in C: a closed form would round differently.
    """
    bets = range(rows_before + 2, rows_before + 2 + rows)
    reserves = accumulate(
        bets, lambda before, count: before - before / count, initial=reserve
    )
    return np.fromiter(reserves, np.float64, rows + 1)


def _block_wealth(
    log_wealth: Floats, log_products: Floats, stakes: Floats
) -> tuple[Floats, Floats]:
    """Return the log wealth on each alternative, and the log mean after each row.

    With P_t the product of the ratios up to row t and s_i the stake of row i,

        wealth_t = P_t (wealth_0 + sum over i <= t of s_i / P_(i-1)),

    a cumulative sum instead of a loop over rows.

    Parameters
    ----------
    log_wealth : array (k,)
        Before these rows.
    log_products : array (m, k)
        log(P_t) after each row.
    stakes : array (m,)
    """
    inverse = np.ones((len(log_products) + 1, len(log_wealth)))
    np.exp(-log_products, out=inverse[1:])
    base = np.maximum(log_wealth, math.log(stakes[0]))
    scaled = np.add.accumulate(inverse[:-1] * stakes[:, None], axis=0)
    scaled *= np.exp(-base)
    scaled += np.exp(log_wealth - base)
    top = base.max()
    wealth = (scaled / inverse[1:] * np.exp(base - top)).sum(1)
    log_mean = top + np.log(wealth) - math.log(len(log_wealth))
    return base + np.log(scaled[-1]) + log_products[-1], log_mean
