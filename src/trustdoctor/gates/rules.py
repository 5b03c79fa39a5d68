"""The threshold rules: from a target to a cut, with a finite-sample promise.

Rates are read as exact decimals and counts stay integers; P[Bin(n, p) <= k] comes from
the incomplete beta function. Each rule takes the rows that it rests on, or a sketch of
them, and returns a `Cut`; `calibration.py` turns it into a gate. In a sketch a score is
known to lie in a cell: the cut then goes to the end of the cell on the safe side.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates.sample import OrderedScores, Sample

Mode = Literal["confidence", "expectation"]

MOST_ROWS = 10**12
"""No number of rows is said, or searched for, from here on: nobody has as many."""


class Stage(NamedTuple):
    """Thresholds that passed a test of the risk: by how many rows they accept.

    Attributes
    ----------
    first, last : int
        All thresholds that accept so many rows, and from that to that many.
    level : float
        What their p-values are at most.
    """

    first: int
    last: int
    level: float


@dataclass(frozen=True)
class Cut:
    """Where to cut, or why not.

    Attributes
    ----------
    state : str
        "threshold", "accept-all" or "reject-all".
    at : float
        The score that the cut is next to.
    side : str
        "above": `at` is accepted. "below": `at` is rejected. "exact": `at` itself is
        the threshold.
    trivial : str
        Why everything is accepted or rejected.
    short : bool
        Whether too few rows are why.
    broken : bool
        Whether the answer keeps no promise: two targets that exclude each other.
    feasible : tuple of float, or None
        For two targets: the thresholds between which both are kept.
    stages : tuple of Stage
        For risk: which thresholds passed a test.
    """

    state: Literal["threshold", "accept-all", "reject-all"] = "threshold"
    at: float = math.nan
    side: Literal["above", "below", "exact"] = "above"
    trivial: str = ""
    short: bool = False
    broken: bool = False
    feasible: tuple[float, float] | None = None
    stages: tuple[Stage, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the calibration could not promise what was requested."""
        return self.short or self.broken or self.state == "reject-all"


def frr_cut(scores: OrderedScores, frr: float, *, mode: Mode, delta: float) -> Cut:
    """Reject at most a share `frr` of rows like these (correct ones, or all)."""
    n, keep = len(scores), 1 - exact(frr)
    if mode == "expectation":
        k = math.ceil((n + 1) * keep)
        least = math.ceil(keep / exact(frr)) if frr else None
    else:
        k = _first(n, lambda k: at_least(k, n, float(keep)) <= delta)
        least = _rows_for(float(keep), delta)
    if k > n:
        why = f"{n:,} rows of the kind that it protects are too few to reject any"
        return Cut("accept-all", trivial=why + at_least_words(least, n), short=True)
    return Cut(at=scores.kth(k)[1])


def trr_cut(scores: OrderedScores, trr: float, *, mode: Mode, delta: float) -> Cut:
    """Reject at least a share `trr` of rows like these (errors)."""
    n, lose = len(scores), 1 - exact(trr)
    if mode == "expectation":
        k = math.floor((n + 1) * lose)
        least = math.ceil(1 / lose) - 1 if lose else None
    else:
        k = _first(n, lambda k: at_most(k, n, float(lose)) > delta)
        least = _rows_for(float(exact(trr)), delta)
    if k == 0:
        why = f"{n:,} errors are too few to accept any row"
        return Cut("reject-all", trivial=why + at_least_words(least, n), short=True)
    return _below(scores.kth(k)[0])


def joint_cut(rows: Sample, joint: float, *, mode: Mode, delta: float) -> Cut:
    """Let at most a share `joint` of all rows be wrong and accepted."""
    n, wrong = len(rows), rows.of_kind("errors")
    rate = exact(joint)
    if mode == "expectation":
        allowed = math.floor(rate * (n + 1) - 1)
        least = math.ceil(1 / rate) - 1 if rate else None
    else:
        allowed = _first(n, lambda k: at_most(k, n, float(rate)) > delta) - 1
        least = _rows_for(1 - float(rate), delta)
    if allowed < 0:
        why = f"{n:,} rows are too few to accept any and keep the promise"
        return Cut("reject-all", trivial=why + at_least_words(least, n), short=True)
    if allowed >= len(wrong):
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why)
    return _below(wrong.kth(allowed + 1)[0])


def least_cost(rows: Sample, cost: float) -> Cut:
    """Minimise errors accepted times `cost` plus rows rejected, on these rows."""
    c = rows.counts
    accepted = np.cumsum(c.correct + c.errors)
    with np.errstate(over="ignore"):  # an endless cost is that of any error
        spent = cost * np.cumsum(c.errors) + (len(rows) - accepted)
    best = int(np.argmin(spent))
    if len(rows) <= spent[best]:
        return Cut("reject-all", trivial="no threshold costs less than rejecting all")
    if best == len(accepted) - 1:
        return Cut("accept-all", trivial="no threshold costs less than accepting all")
    return accepting(rows, int(accepted[best]))


def place(cut: Cut, rows: Sample) -> float:
    """Return the threshold: half way to the neighbouring score where there is one.

    It decides every calibration row as the cut does, and leaves room for the rounding
    of other runtimes on both sides.
    """
    if cut.state != "threshold":
        return math.inf if cut.state == "accept-all" else -math.inf
    scores = rows.of_kind("all")
    if cut.side == "exact":
        return _beside_ties(cut.at, rows, scores)
    if cut.side == "above":
        return _above(cut.at, rows, scores)
    low, high = scores.below(cut.at), cut.at
    room = _room(high, rows) if low == -math.inf else 0.0
    return between(low, high, high - room if room else scores.just_below(high))


def _above(accepted: float, rows: Sample, scores: OrderedScores) -> float:
    """Return a threshold between a score and the next one."""
    high = scores.above(accepted)
    room = _room(accepted, rows) if high == math.inf else 0.0
    return between(accepted, high, accepted + room)


def _room(score: float, rows: Sample) -> float:
    """Return how far rounding may move a score; nothing where it is infinite."""
    return rows.rounding * max(1.0, abs(score)) if math.isfinite(score) else 0.0


def _beside_ties(threshold: float, rows: Sample, scores: OrderedScores) -> float:
    """Return a given threshold; one that accepts the scores that it lies on, if any.

    Of scores that rounding alone tells from a threshold, one runtime would accept what
    another rejects.
    """
    near = 2 * _room(threshold, rows)
    if not near or not rows.exact or threshold + near == math.inf:
        return threshold
    beyond = scores.above(threshold + near)
    last = scores.kth(len(scores))[1] if beyond == math.inf else scores.below(beyond)
    return threshold if last < threshold - near else _above(last, rows, scores)


def exact(rate: float) -> Fraction:
    """Read a rate as the decimal that it was written as."""
    return Fraction(repr(float(rate)))


def between(low: float, high: float, otherwise: float) -> float:
    """Return a threshold half way between two scores, where there is one."""
    if math.isinf(low) or math.isinf(high):
        return otherwise
    middle = low + (high - low) / 2
    return middle if low < middle < high else otherwise


def _below(score: float) -> Cut:
    if score == -math.inf:
        why = "rows that must be rejected are fully certain, so no threshold parts them"
        return Cut("reject-all", trivial=why)
    return Cut(at=score, side="below")


def accepting(rows: Sample, accepted: int) -> Cut:
    """Return the cut that accepts so many rows, the least doubtful ones."""
    if accepted == len(rows):
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why)
    return Cut(at=rows.of_kind("all").kth(accepted)[1])


def _first(n: int, holds: Callable[[int], bool]) -> int:
    """Return the least k in 0..n+1 where a condition that then stays true holds."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def last_holding(n: int, holds: Callable[[int], bool]) -> int:
    """Return where a binary search ends for what holds below and fails above."""
    return _first(n - 1, lambda j: not holds(j))


def at_most(k: int, n: int, p: float) -> float:
    """P[Bin(n, p) <= k]."""
    from scipy.special import betainc

    # One number at a time: arrays of one would take ten times as long.
    return float(betainc(n - k, k + 1, 1 - p)) if 0 <= k < n else float(k >= n)


def at_most_each(k: Array, n: Array, p: Array | float) -> Array:
    """P[Bin(n, p) <= k] of each."""
    from scipy.special import betainc

    k, n = np.asarray(k, np.float64), np.asarray(n, np.float64)
    inside = (k >= 0) & (k < n)
    tail = betainc(np.where(inside, n - k, 1), np.where(inside, k + 1, 1), 1 - p)
    return np.where(inside, tail, np.where(k < 0, 0.0, 1.0))


def at_least(k: int, n: int, p: float) -> float:
    """P[Bin(n, p) >= k]."""
    return at_most(n - k, n, 1 - p)


def _rows_for(keep: float, delta: float) -> int | None:
    """Return the least n with keep^n <= delta, as the rules compute the power."""
    if not 0 < keep < 1:
        return None
    n = max(_whole(math.log(delta) / math.log(keep)) - 1, 1)
    while n < MOST_ROWS and at_least(n, n, keep) > delta:  # logarithms may be one off
        n += 1
    return n


def least_rows(risk: float, level: float) -> int:
    """Return how many rows without an error pass the test of a risk.

    Examples
    --------
    >>> least_rows(0.02, 0.09)
    120
    """
    return _whole(math.log(level) / math.log1p(-risk))


def _whole(rows: float) -> int:
    """Return a number of rows, rounded up; the largest for a promise next to never."""
    return math.ceil(min(rows, MOST_ROWS))


def at_least_words(least: int | None, rows: int) -> str:
    """Say how many rows of that kind the rule needs in any case, if there are fewer."""
    if least is None or not rows < least < MOST_ROWS:
        return ""
    return f" ({least:,} is the least that can be enough)"
