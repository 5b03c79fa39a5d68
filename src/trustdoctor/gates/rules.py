"""The threshold rules: from a target to a cut, with a finite-sample promise.

Rates are read as exact decimals and counts stay integers; P[Bin(n, p) <= k] comes from
the incomplete beta function. Each rule takes the rows that it rests on, or a sketch of
them, and returns a `Cut`; `calibration.py` turns it into a gate. In a sketch a score is
known to lie in a cell: the cut then goes to the end of the cell on the safe side.

References
----------
Wilks, Determination of Sample Sizes for Setting Tolerance Limits, Annals of
Mathematical Statistics 1941.
Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005.
Bates et al., Distribution-Free, Risk-Controlling Prediction Sets, Journal of the ACM
2021.
Angelopoulos et al., Conformal Risk Control, ICLR 2024.
Chow, On Optimum Recognition Error and Reject Tradeoff, IEEE Transactions on Information
Theory 1970.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates.sample import OrderedScores, Sample

Mode = Literal["confidence", "expectation"]

MOST_ROWS = 10**12
"""Numbers of rows from here on are neither stated nor searched for."""


class PassedRange(NamedTuple):
    """Thresholds that passed a test of the risk, by the number of rows they accept.

    Attributes
    ----------
    first, last : int
        Every threshold that accepts between `first` and `last` rows passed.
    level : float
        Their p-values are at most this.
    """

    first: int
    last: int
    level: float


@dataclass(frozen=True)
class Cut:
    """The score next to which the threshold lies, or why there is none.

    Attributes
    ----------
    state : str
        "threshold", "accept-all" or "reject-all".
    score : float
        The score that the threshold lies next to.
    side : str
        "above": the threshold is above `score`, which is accepted. "below": it is below
        `score`, which is rejected. "exact": it is `score` itself.
    trivial : str
        Why everything is accepted or rejected.
    too_few_rows : bool
        Whether the number of rows is the reason.
    promised : bool
        Whether the cut keeps a promise; it keeps none if two targets exclude each
        other.
    feasible : tuple of float, or None
        For two targets: the least and the largest threshold that keep both.
    passed : tuple of PassedRange
        For risk: the thresholds that passed a test.
    """

    state: Literal["threshold", "accept-all", "reject-all"] = "threshold"
    score: float = math.nan
    side: Literal["above", "below", "exact"] = "above"
    trivial: str = ""
    too_few_rows: bool = False
    promised: bool = True
    feasible: tuple[float, float] | None = None
    passed: tuple[PassedRange, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the calibration could not promise what was requested."""
        return self.too_few_rows or not self.promised or self.state == "reject-all"


def frr_cut(scores: OrderedScores, frr: float, *, mode: Mode, delta: float) -> Cut:
    """Reject at most a share `frr` of rows like these (correct ones, or all).

    The threshold is the k-th smallest of the n scores. In expectation k is
    ceil((n + 1) (1 - frr)); with confidence it is the least k with
    P[Bin(n, 1 - frr) >= k] <= delta; all rows are accepted if k > n.
    """
    # Expectation: split conformal prediction (Vovk et al. 2005, chapter 4), since the
    # new score has each rank among n + 1 equally often. Confidence: a one-sided
    # tolerance limit (Wilks 1941), since the share of rows up to the k-th score is
    # below 1 - frr iff k or more of the n scores are among the lowest share 1 - frr.
    n, keep = len(scores), 1 - as_fraction(frr)
    if mode == "expectation":
        k = math.ceil((n + 1) * keep)
        needed = math.ceil(keep / as_fraction(frr)) if frr else None
    else:
        k = _first_true(n, lambda k: binomial_upper_tail(k, n, float(keep)) <= delta)
        needed = _rows_for(float(keep), delta)
    if k > n:
        why = f"{n:,} rows of the kind that it protects are too few to reject any"
        return Cut(
            "accept-all", trivial=why + needed_words(needed, n), too_few_rows=True
        )
    return Cut(score=scores.kth(k)[1])


def trr_cut(scores: OrderedScores, trr: float, *, mode: Mode, delta: float) -> Cut:
    """Reject at least a share `trr` of rows like these (errors).

    The threshold is just below the k-th smallest of the n scores. In expectation k is
    floor((n + 1) (1 - trr)); with confidence it is the largest k with
    P[Bin(n, 1 - trr) <= k - 1] <= delta; all rows are rejected if k = 0.
    """
    # The rules of `frr_cut`, with the order of the scores reversed.
    n, lose = len(scores), 1 - as_fraction(trr)
    if mode == "expectation":
        k = math.floor((n + 1) * lose)
        needed = math.ceil(1 / lose) - 1 if lose else None
    else:
        k = _first_true(n, lambda k: binomial_cdf(k, n, float(lose)) > delta)
        needed = _rows_for(float(as_fraction(trr)), delta)
    if k == 0:
        why = f"{n:,} errors are too few to accept any row"
        return Cut(
            "reject-all", trivial=why + needed_words(needed, n), too_few_rows=True
        )
    return _cut_below(scores.kth(k)[0])


def joint_cut(sample: Sample, joint: float, *, mode: Mode, delta: float) -> Cut:
    """Let at most a share `joint` of all rows be wrong and accepted.

    K errors may be accepted, so the threshold is just below the (K + 1)-th smallest
    score of an error. In expectation K is floor(joint (n + 1) - 1); with confidence it
    is the largest K with P[Bin(n, joint) <= K] <= delta.
    """
    # The loss (wrong and accepted) is 0 or 1 and only rises with the threshold. In
    # expectation: conformal risk control (Angelopoulos et al. 2024, theorem 1), with
    # (errors accepted + 1) / (n + 1) <= joint. With confidence: an upper confidence
    # bound of each risk suffices for a monotone one, without a correction for the
    # choice of the threshold (Bates et al. 2021, theorem 1).
    n, errors = len(sample), sample.of_kind("errors")
    rate = as_fraction(joint)
    if mode == "expectation":
        allowed = math.floor(rate * (n + 1) - 1)
        needed = math.ceil(1 / rate) - 1 if rate else None
    else:
        allowed = _first_true(n, lambda k: binomial_cdf(k, n, float(rate)) > delta) - 1
        needed = _rows_for(1 - float(rate), delta)
    if allowed < 0:
        why = f"{n:,} rows are too few to accept any and keep the promise"
        return Cut(
            "reject-all", trivial=why + needed_words(needed, n), too_few_rows=True
        )
    if allowed >= len(errors):
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why)
    return _cut_below(errors.kth(allowed + 1)[0])


def least_cost(sample: Sample, cost: float) -> Cut:
    """Minimise `cost` times the errors accepted plus the rows rejected, on these rows.

    On rows to come Chow's rule (1970) is best: reject iff the probability of an error
    is above 1 / cost. The scores need not be probabilities, so the minimum on the
    calibration rows takes its place, and promises nothing.
    """
    c = sample.counts
    accepted = np.cumsum(c.correct + c.errors)
    with np.errstate(over="ignore"):  # an infinite cost times any error is infinite
        costs = cost * np.cumsum(c.errors) + (len(sample) - accepted)
    best = int(np.argmin(costs))
    if len(sample) <= costs[best]:
        return Cut("reject-all", trivial="no threshold costs less than rejecting all")
    if best == len(accepted) - 1:
        return Cut("accept-all", trivial="no threshold costs less than accepting all")
    return cut_accepting(sample, int(accepted[best]))


def threshold_of(cut: Cut, sample: Sample) -> float:
    """Return the threshold: half way to the neighbouring score, if there is one.

    It decides every calibration row as the cut does, and leaves room for the rounding
    of other runtimes on both sides.
    """
    if cut.state != "threshold":
        return math.inf if cut.state == "accept-all" else -math.inf
    scores = sample.of_kind("all")
    if cut.side == "exact":
        return _clear_of_ties(cut.score, sample, scores)
    if cut.side == "above":
        return _threshold_above(cut.score, sample, scores)
    low, high = scores.below(cut.score), cut.score
    margin = _rounding_margin(high, sample) if low == -math.inf else 0.0
    return midpoint(low, high, high - margin if margin else scores.just_below(high))


def _threshold_above(accepted: float, sample: Sample, scores: OrderedScores) -> float:
    """Return a threshold between a score and the next one."""
    high = scores.above(accepted)
    margin = _rounding_margin(accepted, sample) if high == math.inf else 0.0
    return midpoint(accepted, high, accepted + margin)


def _rounding_margin(score: float, sample: Sample) -> float:
    """Return how far rounding may move a score; 0 if it is infinite."""
    return sample.rounding * max(1.0, abs(score)) if math.isfinite(score) else 0.0


def _clear_of_ties(threshold: float, sample: Sample, scores: OrderedScores) -> float:
    """Return a threshold chosen by hand; one above the scores that it lies on, if any.

    If only rounding tells scores from a threshold, one runtime accepts what another
    rejects.
    """
    near = 2 * _rounding_margin(threshold, sample)
    if not near or not sample.exact or threshold + near == math.inf:
        return threshold
    beyond = scores.above(threshold + near)
    last = scores.kth(len(scores))[1] if beyond == math.inf else scores.below(beyond)
    if last < threshold - near:
        return threshold
    return _threshold_above(last, sample, scores)


def as_fraction(rate: float) -> Fraction:
    """Return a rate exactly as the decimal that it was written as.

    Examples
    --------
    >>> math.floor(100 * (1 - 0.9)), math.floor(100 * (1 - as_fraction(0.9)))
    (9, 10)
    """
    return Fraction(repr(float(rate)))


def midpoint(low: float, high: float, otherwise: float) -> float:
    """Return a threshold half way between two scores; `otherwise` if there is none."""
    if math.isinf(low) or math.isinf(high):
        return otherwise
    middle = low + (high - low) / 2
    return middle if low < middle < high else otherwise


def _cut_below(score: float) -> Cut:
    if score == -math.inf:
        why = "no threshold rejects fully certain rows, and some must be rejected"
        return Cut("reject-all", trivial=why)
    return Cut(score=score, side="below")


def cut_accepting(sample: Sample, accepted: int) -> Cut:
    """Return the cut that accepts this number of rows, the least doubtful ones."""
    if accepted == len(sample):
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why)
    return Cut(score=sample.of_kind("all").kth(accepted)[1])


def _first_true(n: int, condition: Callable[[int], bool]) -> int:
    """Return the least k in 0..n for which a condition is true, and stays so; or n + 1.

    Examples
    --------
    >>> _first_true(10, lambda k: k * k > 30), _first_true(5, lambda k: k > 9)
    (6, 6)
    """
    return bisect_left(range(n + 1), 1, key=condition)


def true_prefix(n: int, condition: Callable[[int], bool]) -> int:
    """Return the length of the prefix of 0..n - 1 where a condition is true.

    By binary search: if the condition is not true on a prefix alone, one such prefix.
    """
    return _first_true(n - 1, lambda k: not condition(k))


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return P[Bin(n, p) <= k]."""
    from scipy.special import betainc

    # One number at a time: arrays of one would take ten times as long.
    return float(betainc(n - k, k + 1, 1 - p)) if 0 <= k < n else float(k >= n)


def binomial_cdfs(k: Array, n: Array, p: Array | float) -> Array:
    """Return P[Bin(n, p) <= k] for each element."""
    from scipy.special import betainc

    k, n = np.asarray(k, np.float64), np.asarray(n, np.float64)
    inside = (k >= 0) & (k < n)
    tail = betainc(np.where(inside, n - k, 1), np.where(inside, k + 1, 1), 1 - p)
    return np.where(inside, tail, np.where(k < 0, 0.0, 1.0))


def binomial_upper_tail(k: int, n: int, p: float) -> float:
    """Return P[Bin(n, p) >= k]."""
    return binomial_cdf(n - k, n, 1 - p)


def _rows_for(keep: float, delta: float) -> int | None:
    """Return the least n with keep^n <= delta, as the rules compute the power."""
    if not 0 < keep < 1:
        return None
    n = max(_rounded_up(math.log(delta) / math.log(keep)) - 1, 1)
    # Logarithms may be one row off.
    while n < MOST_ROWS and binomial_upper_tail(n, n, keep) > delta:
        n += 1
    return n


def least_rows(risk: float, level: float) -> int:
    """Return how many rows without an error pass the test of a risk.

    That is ceil(log(level) / log(1 - risk)).

    Examples
    --------
    >>> least_rows(0.02, 0.09)
    120
    """
    return _rounded_up(math.log(level) / math.log1p(-risk))


def _rounded_up(rows: float) -> int:
    """Return a number of rows rounded up, at most `MOST_ROWS`."""
    return math.ceil(min(rows, MOST_ROWS))


def needed_words(needed: int | None, rows: int) -> str:
    """Say how many rows of that kind the rule needs in any case, if there are fewer."""
    if needed is None or not rows < needed < MOST_ROWS:
        return ""
    return f" (at least {needed:,} are needed)"
