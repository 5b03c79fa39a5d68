"""The threshold rules: from a target to a cut, with a finite-sample promise.

Rates are read as exact decimals and counts stay integers; P[Bin(n, p) <= k] comes from
the incomplete beta function. Each rule takes the rows that it rests on, or a sketch of
them, and returns a `Cut`; `calibration.py` turns it into a gate. In a sketch a score is
known to lie in a cell: the cut then goes to the end of the cell on the safe side.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates.sample import Ordered, Sample
from trustdoctor.metrics import Counts

Mode = Literal["confidence", "expectation"]


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
    needed : int or None
        Rows of the kind that the rule rests on that would be enough.
    short : bool
        Whether too few rows are why.
    broken : bool
        Whether the answer keeps no promise: FRR and TRR that exclude each other.
    feasible : tuple of float, or None
        For both together: the thresholds between which both are kept.
    """

    state: Literal["threshold", "accept-all", "reject-all"] = "threshold"
    at: float = math.nan
    side: Literal["above", "below", "exact"] = "above"
    trivial: str = ""
    needed: int | None = None
    short: bool = False
    broken: bool = False
    feasible: tuple[float, float] | None = None


def frr_cut(scores: Ordered, frr: float, *, mode: Mode, delta: float) -> Cut:
    """Reject at most a share `frr` of rows like these (correct ones, or all)."""
    n, keep = len(scores), 1 - exact(frr)
    if mode == "expectation":
        k = math.ceil((n + 1) * keep)
        needed = math.ceil(keep / exact(frr)) if frr else None
    else:
        k = _first(n, lambda k: _at_least(k, n, float(keep)) <= delta)
        needed = _rows_for(float(keep), delta)
    if k > n:
        why = f"{n:,} rows of the kind that it protects are too few to reject any"
        return Cut("accept-all", trivial=why, needed=needed, short=True)
    return Cut(at=scores.kth(k)[1])


def trr_cut(scores: Ordered, trr: float, *, mode: Mode, delta: float) -> Cut:
    """Reject at least a share `trr` of rows like these (errors)."""
    n, lose = len(scores), 1 - exact(trr)
    if mode == "expectation":
        k = math.floor((n + 1) * lose)
        needed = math.ceil(1 / lose) - 1 if lose else None
    else:
        k = _first(n, lambda k: _at_most(k, n, float(lose)) > delta)
        needed = _rows_for(float(exact(trr)), delta)
    if k == 0:
        why = f"{n:,} errors are too few to accept any row"
        if n == 0 and needed is not None:
            why += f"; {needed:,} would be enough"
        return Cut("reject-all", trivial=why, needed=needed, short=True)
    return _below(scores.kth(k)[0])


def joint_cut(rows: Sample, joint: float, *, mode: Mode, delta: float) -> Cut:
    """Let at most a share `joint` of all rows be wrong and accepted."""
    n, wrong = len(rows), rows.of_kind("errors")
    rate = exact(joint)
    if mode == "expectation":
        allowed = math.floor(rate * (n + 1) - 1)
        needed = math.ceil(1 / rate) - 1 if rate else None
    else:
        allowed = _first(n, lambda k: _at_most(k, n, float(rate)) > delta) - 1
        needed = _rows_for(1 - float(rate), delta)
    if allowed < 0:
        why = f"{n:,} rows are too few to accept any and keep the promise"
        return Cut("reject-all", trivial=why, needed=needed, short=True)
    if allowed >= len(wrong):
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why)
    return _below(wrong.kth(allowed + 1)[0])


def risk_sequence(
    rows: Sample, risk: float, *, delta: float, min_coverage: float
) -> Cut:
    """Bound selective risk by fixed-sequence testing, two sequences fixed in advance.

    One starts where a share `min_coverage` of the rows is accepted and has nine tenths
    of delta, the other at a twentieth of the rows with the last tenth. The one that
    comes farther counts.

    References
    ----------
    Angelopoulos et al., Learn then Test, 2021.
    """
    c, n = rows.worst(), len(rows)
    found = []
    shares = (min_coverage, 0.9 * delta), (0.05, 0.1 * delta)
    for share, level in shares:
        least = math.ceil(math.log(level) / math.log1p(-risk)) if risk < 1 else 1
        start = max(least, math.ceil(exact(share) * n), 1)
        if start > n:
            continue
        accepted, wrong, fewest = rows.start(start)
        passed = _at_most(min(wrong, fewest), fewest, risk) <= level
        found.append(_walk(c, accepted, risk, level) if passed else 0)
    farthest = max(found, default=0)
    if farthest == 0:
        tried = [rows.start(math.ceil(exact(share) * n))[:2] for share, _ in shares]
        return _no_risk(rows.counts, risk, tried)
    return _accepting(rows, farthest)


def risk_sgr(rows: Sample, risk: float, *, delta: float) -> Cut:
    """Bound selective risk by binary search with Clopper-Pearson at every step.

    References
    ----------
    Geifman & El-Yaniv, Selective Classification for Deep Neural Networks, 2017.
    """
    c = _every_score(rows, "sgr")
    accepted, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    level = delta / math.ceil(math.log2(len(rows) + 1))
    low = _last(
        len(accepted),
        lambda j: _at_most(int(wrong[j]), int(accepted[j]), risk) <= level,
    )
    if low == 0:  # what the search would end at with as many rows as one likes
        best = _last(len(accepted), lambda j: wrong[j] < risk * accepted[j])
        end = max(best - 1, 0)
        return _no_risk(c, risk, [(int(accepted[end]), int(wrong[end]))])
    return _accepting(rows, int(accepted[low - 1]))


def risk_grid(rows: Sample, risk: float, *, delta: float, points: int = 20) -> Cut:
    """Bound selective risk on a grid of coverages fixed in advance, by Bonferroni.

    For scores whose risk does not fall with doubt: the grid's points are tested each by
    itself, and the largest coverage that passes is taken.
    """
    c = _every_score(rows, "grid")
    accepted, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    best, tried = 0, []
    for i in range(1, points + 1):
        start = math.ceil(Fraction(i, points) * len(rows))
        j = int(np.searchsorted(accepted, start))
        tried.append((int(accepted[j]), int(wrong[j])))
        if _at_most(int(wrong[j]), int(accepted[j]), risk) <= delta / points:
            best = max(best, int(accepted[j]))
    if best == 0:
        return _no_risk(c, risk, tried)
    return _accepting(rows, best)


def both_cut(rows: Sample, frr: float, trr: float, *, mode: Mode, delta: float) -> Cut:
    """Meet FRR and TRR at once: each at the square root of the confidence."""
    delta = 1 - math.sqrt(1 - delta)
    share = rows.n_errors / len(rows)
    low = frr_cut(rows.of_kind("correct"), frr, mode=mode, delta=delta)
    high = trr_cut(rows.of_kind("errors"), trr, mode=mode, delta=delta)
    low, high = scaled(low, 1 - share), scaled(high, share)
    least, most = place(low, rows), place(high, rows)
    if low.state == "accept-all" or high.state == "reject-all":
        return _not_both(low, high)
    if least > most:
        why = (
            f"no threshold does both: FRR needs at least {least:.6g}, TRR at most "
            f"{most:.6g}"
        )
        return Cut("reject-all", trivial=why, broken=True)
    middle = least + (most - least) / 2 if math.isfinite(least) else most
    if not rows.exact:
        middle = least if math.isfinite(least) else most  # parts no cell
    ends = (least, most) if math.isfinite(least) else None
    return Cut(at=middle, side="exact", feasible=ends)


def _not_both(low: Cut, high: Cut) -> Cut:
    """Say why FRR and TRR cannot both be promised, where one of them cannot."""
    if high.state == "reject-all" and not high.short:
        why = f"TRR cannot be promised: {high.trivial}"
        return Cut("reject-all", trivial=why, broken=True)
    failed = [cut for cut in (high, low) if cut.short]
    why = "the rows are too few to promise both: "
    why += ", and ".join(cut.trivial for cut in failed)
    known = [cut.needed for cut in failed if cut.needed is not None]
    return Cut(
        "reject-all",
        trivial=why,
        needed=max(known) if len(known) == len(failed) else None,
        short=True,
        broken=True,
    )


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
    return _accepting(rows, int(accepted[best]))


def place(cut: Cut, rows: Sample) -> float:
    """Return the threshold: half way to the neighbouring score where there is one.

    It decides every calibration row as the cut does, and leaves room for the rounding
    of other runtimes on both sides.
    """
    if cut.state != "threshold":
        return math.inf if cut.state == "accept-all" else -math.inf
    if cut.side == "exact":
        return cut.at
    scores = rows.of_kind("all")
    if cut.side == "above":
        return _between(cut.at, scores.above(cut.at), cut.at)
    return _between(scores.below(cut.at), cut.at, scores.just_below(cut.at))


def exact(rate: float) -> Fraction:
    """Read a rate as the decimal that it was written as."""
    return Fraction(repr(float(rate)))


def _between(low: float, high: float, otherwise: float) -> float:
    if math.isinf(low) or math.isinf(high):
        return otherwise
    middle = low + (high - low) / 2
    return middle if low < middle < high else otherwise


def _below(score: float) -> Cut:
    if score == -math.inf:
        why = "rows that must be rejected are fully certain, so no threshold parts them"
        return Cut("reject-all", trivial=why)
    return Cut(at=score, side="below")


def _accepting(rows: Sample, accepted: int) -> Cut:
    if accepted == len(rows):
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why)
    return Cut(at=rows.of_kind("all").kth(accepted)[1])


def _every_score(rows: Sample, method: str) -> Counts:
    """Return the counts, where each score is known."""
    if not rows.exact:
        message = (
            f"the method {method} asks for every score, and a sketch keeps ranges of "
            "them. Use method='sequence', or give it all rows (more --memory)."
        )
        raise InputError(message)
    return rows.counts


def _walk(c: Counts, j: int, risk: float, level: float) -> int:
    """Return how many rows the last threshold that passes accepts, from j rows on.

    Between two errors more rows only lower the p-value, so only thresholds that let an
    error in can fail.
    """
    through, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    later = np.flatnonzero((c.errors > 0) & (through > j))
    for part in np.array_split(later, max(1, len(later) // 4096)):
        p = _at_most_each(wrong[part], through[part], risk)
        failed = np.flatnonzero(p > level)
        if len(failed):
            group = part[failed[0]]
            return int(through[group - 1])
    return int(through[-1])


def _no_risk(c: Counts, risk: float, tried: list[tuple[int, int]]) -> Cut:
    """Say why no risk could be proved: too few rows, or no threshold is good enough.

    `tried` are rows and errors accepted where the method looks first, whatever the
    number of rows: more rows help only where one of these has a risk below the target.
    Beside them thresholds are looked at that accept a twentieth of the rows, and 20,
    or more.
    """
    accepted, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    n = int(accepted[-1])
    enough = accepted >= min(n, max(math.ceil(n / 20), 20))
    best = float((wrong[enough] / accepted[enough]).min())
    if best >= risk:
        why = (
            f"no threshold that accepts {int(accepted[enough][0]):,} of these rows or "
            f"more has a risk below {best:.2%}"
        )
        return Cut("reject-all", trivial=why)
    seen = min(errors / kept for kept, errors in tried)
    if seen >= risk:
        why = (
            f"where the method looks first the risk is {seen:.2%} or more; {best:.2%} "
            "was seen at another threshold, but risk does not fall with this score"
        )
        return Cut("reject-all", trivial=why)
    why = f"{n:,} rows are too few to prove the risk, though {seen:.2%} was seen"
    return Cut("reject-all", trivial=why, short=True)


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


def _last(n: int, holds: Callable[[int], bool]) -> int:
    """Return where a binary search ends for what holds below and fails above."""
    return _first(n - 1, lambda j: not holds(j))


def _at_most(k: int, n: int, p: float) -> float:
    """P[Bin(n, p) <= k]."""
    return float(_at_most_each(np.array([k]), np.array([n]), p)[0])


def _at_most_each(k: Array, n: Array, p: float) -> Array:
    from scipy.special import betainc

    k, n = np.asarray(k, np.float64), np.asarray(n, np.float64)
    inside = (k >= 0) & (k < n)
    tail = betainc(np.where(inside, n - k, 1), np.where(inside, k + 1, 1), 1 - p)
    return np.where(inside, tail, np.where(k < 0, 0.0, 1.0))


def _at_least(k: int, n: int, p: float) -> float:
    """P[Bin(n, p) >= k]."""
    return _at_most(n - k, n, 1 - p)


def _rows_for(keep: float, delta: float) -> int | None:
    """Return the least n with keep^n <= delta, as the rules compute the power."""
    if not 0 < keep < 1:
        return None
    n = max(math.ceil(math.log(delta) / math.log(keep)) - 1, 1)
    while _at_least(n, n, keep) > delta:  # logarithms may be one off
        n += 1
    return n


def scaled(cut: Cut, share: float) -> Cut:
    """Turn rows needed of one kind into rows needed in all."""
    if cut.needed is None:
        return cut
    if share <= 0:
        return replace(cut, needed=None)
    return replace(cut, needed=math.ceil(cut.needed / share))
