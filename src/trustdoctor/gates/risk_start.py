"""Where the main sequence of the risk rule starts, by an accuracy or by other rows.

A start is fixed in advance, so the promise holds wherever it is; a good one lets more
calibrations pass. It never rests on the rows that are tested.
"""

import math
from functools import lru_cache

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates.rules import at_most_each

SEPARATIONS = (2.0, 2.5, 3.0, 3.5)
"""How far errors lie above correct rows on a good score, in standard deviations."""

MISLABELLED = 0.006
"""Rows that count as errors, and look like correct ones: labels are wrong, too."""

MOST_MISLABELLED = 0.2
"""Of all errors."""

STARTS = tuple(k / 20 for k in (6, *range(1, 6), *range(7, 20)))
"""Shares accepted where a sequence may start; the usual one first."""

DRAWS = 100
"""How often rows are drawn to try them."""

_CANDIDATES = 200
_SCORES = np.linspace(-8.0, 12.0, 2001)


def least_rows(risk: float, level: float) -> int:
    """Return how many rows without an error pass the test.

    Examples
    --------
    >>> least_rows(0.02, 0.09)
    120
    """
    return math.ceil(math.log(level) / math.log1p(-risk))


@lru_cache(maxsize=1024)
def best_start(n: int, risk: float, level: float, accuracy: float) -> int:
    """Return the count of accepted rows whose test passes most probably.

    The test of j rows allows some k errors. Between counts where k grows, more rows
    only make it harder: the candidates are the least j for each k.

    Examples
    --------
    >>> best_start(500, 0.02, 0.09, 0.94), best_start(500, 0.1, 0.09, 0.6)
    (341, 105)
    """
    from scipy.special import bdtrik, bdtrin

    least = least_rows(risk, level)
    if least >= n:
        return least
    most = int(bdtrik(level, n, risk))
    allowed = np.unique(np.linspace(0, most, _CANDIDATES).astype(np.int64))
    counts = np.ceil(bdtrin(allowed, level, risk)).astype(np.int64)
    inside = counts <= n
    counts, allowed = counts[inside], allowed[inside]
    risks = [_risk_at(counts / n, accuracy, d) for d in SEPARATIONS]
    power = np.mean([at_most_each(allowed, counts, own) for own in risks], axis=0)
    return int(counts[int(np.argmax(power))])


def start_seen(n: int, risk: float, level: float, doubts: Array, wrong: Array) -> float:
    """Return the share accepted from which tests come farthest, by other rows.

    These rows are drawn again and again, as many as will be tested, and the sequence is
    walked from each start.

    Parameters
    ----------
    n : int
        Rows that will be tested.
    risk, level : float
    doubts, wrong : arrays
        Of rows that will not be.

    Examples
    --------
    >>> wrong = np.arange(1000) % 100 > np.linspace(100, 90, 1000)
    >>> start_seen(2000, 0.02, 0.09, np.arange(1000.0), wrong)
    0.25
    """
    in_order = wrong[np.argsort(doubts, kind="stable")]
    rng, starts = np.random.default_rng(0), np.ceil(np.array(STARTS) * n)
    reached = np.zeros(len(starts))
    for _ in range(DRAWS):
        often = rng.multinomial(n, np.full(len(in_order), 1 / len(in_order)))
        drawn = np.repeat(in_order, often)
        reached += _reached(np.flatnonzero(drawn) + 1, n, starts, risk, level)
    return STARTS[int(np.argmax(reached))]


def _reached(errors: Array, n: int, starts: Array, risk: float, level: float) -> Array:
    """Return how many rows each start comes to accept; errors stand at these places."""
    among = np.searchsorted(errors, starts, side="right")
    passed = at_most_each(among, starts, risk) <= level
    failed = errors[at_most_each(np.arange(1, len(errors) + 1), errors, risk) > level]
    stops = np.append(failed, n + 1)
    return np.where(passed, stops[np.searchsorted(failed, starts, side="right")] - 1, 0)


def _risk_at(coverage: Array, accuracy: float, separation: float) -> Array:
    """Return the risk at each coverage, of normal scores with some errors hidden."""
    from scipy.special import ndtr

    hidden = min(MISLABELLED / (1 - accuracy), MOST_MISLABELLED)
    right, apart = ndtr(_SCORES), ndtr(_SCORES - separation)
    wrong = (1 - accuracy) * (hidden * right + (1 - hidden) * apart)
    accepted = accuracy * right + wrong
    return np.asarray(np.interp(coverage, accepted, wrong) / coverage)
