"""Where the main sequence of the risk rule starts, for a model of known accuracy.

A start is fixed in advance, so the promise holds wherever it is; a good one lets more
calibrations pass. It rests on the accuracy alone, never on the rows that are tested.
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


def _risk_at(coverage: Array, accuracy: float, separation: float) -> Array:
    """Return the risk at each coverage, of normal scores with some errors hidden."""
    from scipy.special import ndtr

    hidden = min(MISLABELLED / (1 - accuracy), MOST_MISLABELLED)
    right, apart = ndtr(_SCORES), ndtr(_SCORES - separation)
    wrong = (1 - accuracy) * (hidden * right + (1 - hidden) * apart)
    accepted = accuracy * right + wrong
    return np.asarray(np.interp(coverage, accepted, wrong) / coverage)
