"""One row more than was seen: how much further the next error may lie.

With m errors, the next one lies below all of them with probability 1 / (m + 1), and a
few errors hardly show how far. So the cautious end of an interval counts one error
more, spread over three places beyond the least doubtful one, and one correct row more
beyond the most doubtful one. How far beyond is read off the ten outermost rows, on the
normal scale of the ranks of the other kind, as for an exponential tail. Ranks alone
count: no monotone change of the scores changes the result.
"""

import math
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics.counts import Counts

STEPS = np.array([-math.log(5 / 6), -math.log(1 / 2), -math.log(1 / 6)])
"""Quantiles of an exponential law: where the further row is, in thirds."""


OUTERMOST = 10


_LEAST_STEP = 0.5  # of a standard deviation, where ranks show no distance


_MANY = 100


_ALONE = 1.0  # of one row nobody knows how far the next is


@dataclass(frozen=True)
class Tail:
    """Where the least doubtful errors are among the correct rows.

    Attributes
    ----------
    first : float
        The least doubtful error's place, on the normal scale.
    step : float
        How far beyond it the next is on average.
    others : float
        Correct rows.
    """

    first: float
    step: float
    others: float

    def below(self, steps: Array) -> Array:
        """Return how many correct rows are below a place so many steps beyond."""
        return below(self.first - self.step * steps, self.others)


def below(z: Array, others: float) -> Array:
    """Return how many of the other rows are below a place on the normal scale."""
    from scipy.special import ndtr

    return np.asarray(np.clip(ndtr(z) * (others + 1) - 0.5, 0, others))


def tail(c: Counts) -> Tail:
    """Measure the tail of the errors among the correct rows."""
    z, step = outermost(c, min(OUTERMOST, int(c.n_errors) // 2))
    return Tail(float(z[0]), max(_LEAST_STEP, step), float(c.n_correct))


def outermost(c: Counts, k: int) -> tuple[Array, float]:
    """Return the places of the k + 1 least doubtful errors, and the step between them.

    Places are on the normal scale of the correct rows' ranks; the step is the mean
    distance of the first k from the last.
    """
    from scipy.special import ndtri

    at = np.flatnonzero(c.errors)
    through = np.cumsum(c.errors[at[: k + 1]])
    group = at[np.searchsorted(through, np.arange(1, k + 2))]
    correct = np.cumsum(c.correct)
    ranks = correct[group] - 0.5 * c.correct[group]
    z = np.asarray(ndtri((ranks + 0.5) / (float(correct[-1]) + 1)))
    return z, float((z[-1] - z[:-1]).mean()) if k else _ALONE


def with_further(c: Counts, *, errors: bool = True, correct: bool = True) -> Counts:
    """Count one row more of each kind, where it does a ranking most harm.

    Of many rows, less than one: see `weight`. `c` counts rows at every score.
    """
    more = weight(float(min(c.n_errors, c.n_correct)))
    worse = _with_error(c, more) if errors else c
    if not correct:
        return worse
    # Both are placed by the rows that were seen, not by each other.
    swapped = c.swapped()
    return Counts(_with_error(swapped, more).errors[::-1], worse.errors)


def _with_error(c: Counts, weight: float) -> Counts:
    """Add an error of this weight beyond the least doubtful one, spread over `STEPS`.

    It joins the rows that have the score there.
    """
    through = np.cumsum(c.correct)
    groups = np.searchsorted(through, tail(c).below(STEPS), "right")
    # Where rows are tied, the next score is beyond the whole group. To part the group,
    # its own errors above the new one, would make the cautious law look better than the
    # rows themselves, and the interval collapse to one side (confidences of two or four
    # values covered 45 to 60% instead of 95; METHODS 12).
    first = int(np.argmax(c.errors > 0))
    errors = c.errors.astype(np.float64)
    np.add.at(errors, np.minimum(groups, max(first - 1, 0)), weight / len(STEPS))
    return Counts(c.correct, errors)


def weight(n: float) -> float:
    """Return how much the further row counts beside n rows: past 100 less than one.

    With so many, the others show their spread.
    """
    return min(1.0, _MANY / n)


def beyond(values: Array, most: float) -> Array:
    """Return where a value larger than all may be, from the ten largest.

    It is `most` at most, and just that where these show no distance.
    """
    top = largest(values, OUTERMOST + 1)
    step = float((top[:-1] - top[-1]).mean()) if len(top) > 1 else 0.0
    if step == 0:
        return np.array([most])
    return np.minimum(top[0] + step * STEPS, most)


def largest(values: Array, k: int) -> Array:
    """Return the k largest values, the largest first.

    Of many values the largest of each 256 stand for all.
    """
    block = 256
    if len(values) >= 64 * block:
        whole = len(values) // block * block
        blocks = values[:whole].reshape(-1, block).max(1)
        values = np.append(blocks, values[whole:])
    k = min(k, len(values))
    return np.sort(np.partition(values, len(values) - k)[len(values) - k :])[::-1]
