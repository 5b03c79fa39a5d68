"""Rules for selective risk: thresholds that pass a binomial test are kept."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from trustdoctor.envelope import Count, Rate
from trustdoctor.errors import InputError
from trustdoctor.gates.rules import (
    Cut,
    Stage,
    accepting,
    at_least_words,
    at_most,
    at_most_each,
    between,
    exact,
    last_holding,
    least_rows,
)
from trustdoctor.gates.sample import Sample, neighbouring_scores
from trustdoctor.metrics import Counts

LISTED = 20
"""Thresholds that passed, at most, in a list."""


class Passed(NamedTuple):
    """A threshold that passed the test of its risk.

    Attributes
    ----------
    threshold : float
        inf where every row is accepted.
    accepted, errors : int
        Calibration rows that it accepts, and the wrong ones among them.
    p : float
        The probability of so few errors if the risk were the target's.
    level : float
        What p had to be at most.
    """

    threshold: float
    accepted: Count
    errors: Count
    p: Rate
    level: Rate


def risk_sequence(
    rows: Sample, risk: float, *, delta: float, min_coverage: float
) -> Cut:
    """Bound selective risk by fixed-sequence testing, two sequences fixed in advance.

    One starts where a share `min_coverage` of the rows is accepted, and has nine tenths
    of delta. The other starts at a twentieth of the rows with the last tenth. The one
    that comes farther counts.

    References
    ----------
    Angelopoulos et al., Learn then Test, 2021.
    """
    c, n = rows.worst(), len(rows)
    stages, tried = list[Stage](), list[tuple[int, int]]()
    for share, level in ((min_coverage, 0.9 * delta), (0.05, 0.1 * delta)):
        from_share = math.ceil(exact(share) * n)
        tried.append(rows.start(from_share)[:2])
        start = max(least_rows(risk, level), from_share, 1)
        if start > n:
            continue
        accepted, wrong, fewest = rows.start(start)
        if at_most(min(wrong, fewest), fewest, risk) <= level:
            stages.append(Stage(accepted, _walk(c, accepted, risk, level), level))
    if not stages:
        return _no_risk(rows.counts, risk, tried, 0.9 * delta)
    return _kept(rows, stages)


def risk_sgr(rows: Sample, risk: float, *, delta: float) -> Cut:
    """Bound selective risk by binary search with Clopper-Pearson at every step.

    References
    ----------
    Geifman & El-Yaniv, Selective Classification for Deep Neural Networks, 2017.
    """
    c = _every_score(rows, "sgr")
    accepted, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    level = delta / math.ceil(math.log2(len(rows) + 1))
    low = last_holding(
        len(accepted),
        lambda j: at_most(int(wrong[j]), int(accepted[j]), risk) <= level,
    )
    if low == 0:  # what the search would end at with as many rows as one likes
        best = last_holding(len(accepted), lambda j: wrong[j] < risk * accepted[j])
        end = max(best - 1, 0)
        return _no_risk(c, risk, [(int(accepted[end]), int(wrong[end]))], level)
    kept = int(accepted[low - 1])
    return _kept(rows, [Stage(kept, kept, level)])


def risk_grid(rows: Sample, risk: float, *, delta: float, points: int = 20) -> Cut:
    """Bound selective risk on a grid of coverages fixed in advance, by Bonferroni.

    For scores whose risk does not fall with doubt: the grid's points are tested each by
    itself, and the largest coverage that passes is taken.
    """
    c = _every_score(rows, "grid")
    accepted, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    level, stages, tried = delta / points, [], []
    for i in range(1, points + 1):
        start = math.ceil(Fraction(i, points) * len(rows))
        j = int(np.searchsorted(accepted, start))
        kept = int(accepted[j])
        tried.append((kept, int(wrong[j])))
        if at_most(int(wrong[j]), kept, risk) <= level:
            stages.append(Stage(kept, kept, level))
    if not stages:
        return _no_risk(c, risk, tried, level)
    return _kept(rows, stages)


def list_passed(rows: Sample, cut: Cut, risk: float) -> tuple[Passed, ...]:
    """Return thresholds that passed, at most `LISTED`, by how many rows they accept.

    Between two errors p only falls as more rows are accepted, so of each run of correct
    rows the last threshold stands for all.
    """
    c = rows.worst()
    through, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    runs = np.append(np.flatnonzero(c.errors > 0) - 1, len(through) - 1)
    ends = through[runs]
    inside = np.zeros(len(ends), bool)
    for stage in cut.stages:
        inside |= (ends >= stage.first) & (ends <= stage.last)
    shown = [count for stage in cut.stages for count in stage[:2]]
    every = np.unique(np.append(ends[inside], shown)).astype(np.int64)
    some = np.unique(np.linspace(0, len(every) - 1, LISTED).round().astype(np.int64))
    kept = every[some]
    errors = wrong[np.searchsorted(through, kept)]
    p = at_most_each(errors, kept, risk)
    at = [
        between(low, high, low) if j < len(rows) else math.inf
        for (low, high), j in zip(neighbouring_scores(rows, kept), kept, strict=True)
    ]
    cells = zip(at, kept.tolist(), errors.tolist(), p.tolist(), strict=True)
    return tuple(Passed(*cell, _level(cut, cell[1])) for cell in cells)


def _level(cut: Cut, accepted: int) -> float:
    """Return the level at which a threshold passed that accepts so many rows."""
    return max(s.level for s in cut.stages if s.first <= accepted <= s.last)


def _kept(rows: Sample, stages: list[Stage]) -> Cut:
    farthest = max(stage.last for stage in stages)
    return replace(accepting(rows, farthest), stages=tuple(stages))


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
        p = at_most_each(wrong[part], through[part], risk)
        failed = np.flatnonzero(p > level)
        if len(failed):
            group = part[failed[0]]
            return int(through[group - 1])
    return int(through[-1])


def _no_risk(c: Counts, risk: float, tried: list[tuple[int, int]], level: float) -> Cut:
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
    why += at_least_words(least_rows(risk, level), n)
    return Cut("reject-all", trivial=why, short=True)
