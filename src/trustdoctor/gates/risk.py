"""Rules for selective risk: thresholds that pass a binomial test keep the promise.

The p-value of a threshold that accepts k rows, e of them wrong, is
P[Bin(k, risk) <= e]: the probability of e errors or fewer if the risk there were the
target's. Up to 2,000 rows all thresholds are tested at once, at the level that the
exact boundary allows (`boundary`); beyond, in two sequences. A threshold whose risk is
too high passes with probability delta at most.

References
----------
Angelopoulos et al., Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
Control, 2021.
Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005 (exchangeable
rows, on which the rule on average rests).
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.envelope import Count, Rate
from trustdoctor.gates.boundary import (
    MOST_ROWS_TESTED,
    SEQUENCE_START,
    find_boundary,
)
from trustdoctor.gates.rules import (
    Cut,
    Mode,
    PassedRange,
    as_fraction,
    binomial_cdf,
    binomial_cdfs,
    cut_accepting,
    least_rows,
    midpoint,
    needed_words,
)
from trustdoctor.gates.sample import Sample, neighbouring_scores
from trustdoctor.metrics import Counts
from trustdoctor.metrics.score_counts import exact_product

MOST_LISTED = 20
"""Thresholds in a list of those that passed, at most."""

SEQUENCE_TESTS = 4096
"""Thresholds of a sequence that are tested at once."""


class PassedThreshold(NamedTuple):
    """A threshold that passed the test of its risk.

    Attributes
    ----------
    threshold : float
        inf if every row is accepted.
    accepted, errors : int
        Calibration rows that it accepts, and the wrong ones among them.
    p_value : float
        The probability of at most this many errors if the risk were the target's.
    level : float
        The largest p-value that passes.
    """

    threshold: float
    accepted: Count
    errors: Count
    p_value: Rate
    level: Rate


def risk_cut(sample: Sample, risk: float, *, mode: Mode, delta: float) -> Cut:
    """Accept rows of which at most a share `risk` is wrong, as many as can be shown.

    With confidence: by the exact boundary for all thresholds at once, with a sequence
    of tests beside it from 200 rows on; beyond 2,000 rows by two sequences. In
    expectation: see `average_risk_cut`.
    """
    if mode == "expectation":
        return average_risk_cut(sample, risk)
    if len(sample) > MOST_ROWS_TESTED:
        # The boundary's programme would take seconds, and gains nothing there.
        return _two_sequences(sample, risk, delta)
    boundary = find_boundary(len(sample), risk, delta)
    c = sample.worst()
    accepted, errors = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    passing = boundary.passes(accepted, errors)
    passed = _ranges(accepted, passing, boundary.level)
    start = math.ceil(as_fraction(SEQUENCE_START) * len(sample))
    if boundary.sequence_level:
        sequence = _sequence(sample, risk, start, boundary.sequence_level)
        passed += [] if sequence is None else [sequence]
    if not passed:
        # Every threshold was tested, so the best one tells whether more rows help.
        n = len(sample)
        enough = accepted >= min(n, max(math.ceil(n / 20), 20))
        best = np.argmin(np.where(enough, errors / accepted, np.inf))
        tested = [(int(accepted[best]), int(errors[best]))]
        return _risk_not_proved(sample.counts, risk, tested, boundary.level)
    return _farthest_cut(sample, passed)


def average_risk_cut(sample: Sample, risk: float) -> Cut:
    """Accept up to the last threshold with (errors + 1) / (rows + 1) at most `risk`.

    Proved, by exchangeability of the n + 1 rows: the probability that a new row is
    wrong and accepted is at most `risk` times that of being accepted by the same rule,
    had its label been known. Not proved: that the risk itself is at most `risk` on
    average; on real files and made-up populations it nearly always was
    (docs/few_labels.md).
    """
    c = sample.worst()
    accepted, errors = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    passing = np.flatnonzero(errors + 1 <= exact_product(risk, accepted + 1))
    if len(passing):
        return cut_accepting(sample, int(accepted[passing[-1]]))
    needed, n = math.ceil(1 / as_fraction(risk)) - 1, len(sample)
    if n < needed:
        why = f"{n:,} rows are too few to accept any{needed_words(needed, n)}"
        return Cut("reject-all", trivial=why, too_few_rows=True)
    why = (
        "no threshold accepts enough rows that one more error would keep the risk on "
        "these rows"
    )
    return Cut("reject-all", trivial=why, too_few_rows=True)


def _ranges(accepted: Array, passing: Array, level: float) -> list[PassedRange]:
    """Return the runs of neighbouring thresholds that passed."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], passing, [False]])))
    return [
        PassedRange(int(accepted[first]), int(accepted[last - 1]), level)
        for first, last in edges.reshape(-1, 2)
    ]


def _sequence(
    sample: Sample, risk: float, least_accepted: int, level: float
) -> PassedRange | None:
    """Test thresholds at rising coverage until one fails; None if the first does.

    Their order is fixed before a label is seen, so the sequence needs no correction
    for the number of its tests (Learn then Test, algorithm 1).
    """
    # Fewer rows cannot pass, even without an error.
    start = max(least_rows(risk, level), least_accepted, 1)
    if start > len(sample):
        return None
    accepted, errors, fewest = sample.accepted_by_kth(start)
    if binomial_cdf(min(errors, fewest), fewest, risk) > level:
        return None
    last = _last_passing(sample.worst(), accepted, risk, level)
    return PassedRange(accepted, last, level)


def _two_sequences(sample: Sample, risk: float, delta: float) -> Cut:
    """Test in two sequences that share delta; the one that accepts more counts."""
    # The second is for models that are right about few rows alone: with an accuracy of
    # 0.6 and a risk of 0.02 a sequence from 0.3 of 50,000 rows never passes a test, and
    # with the second 0.22 of them are accepted.
    n = len(sample)
    passed, tested_first = list[PassedRange](), list[tuple[int, int]]()
    for share, level in ((SEQUENCE_START, 0.9 * delta), (0.05, 0.1 * delta)):
        least_accepted = math.ceil(as_fraction(share) * n)
        tested_first.append(sample.accepted_by_kth(least_accepted)[:2])
        sequence = _sequence(sample, risk, least_accepted, level)
        if sequence is not None:
            passed.append(sequence)
    if not passed:
        return _risk_not_proved(sample.counts, risk, tested_first, 0.9 * delta)
    return _farthest_cut(sample, passed)


def passed_thresholds(
    sample: Sample, cut: Cut, risk: float
) -> tuple[PassedThreshold, ...]:
    """Return at most `MOST_LISTED` thresholds that passed, by rising coverage.

    Between two errors p-values only fall as more rows are accepted, so the last
    threshold of each run of correct rows stands for the run.
    """
    c = sample.worst()
    total, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    last_of_run = np.append(np.flatnonzero(c.errors > 0) - 1, len(total) - 1)
    run_ends = total[last_of_run]
    has_passed = np.zeros(len(run_ends), bool)
    for passed in cut.passed:
        has_passed |= (run_ends >= passed.first) & (run_ends <= passed.last)
    range_ends = [end for passed in cut.passed for end in (passed.first, passed.last)]
    listable = np.unique(np.append(run_ends[has_passed], range_ends)).astype(np.int64)
    evenly_spaced = np.linspace(0, len(listable) - 1, MOST_LISTED).round()
    accepted = listable[np.unique(evenly_spaced.astype(np.int64))]
    errors = wrong[np.searchsorted(total, accepted)]
    p_values = binomial_cdfs(errors, accepted, risk)
    neighbours = neighbouring_scores(sample, accepted)
    thresholds = [
        midpoint(low, high, low) if n_accepted < len(sample) else math.inf
        for (low, high), n_accepted in zip(neighbours, accepted, strict=True)
    ]
    columns = (accepted.tolist(), errors.tolist(), p_values.tolist())
    return tuple(
        PassedThreshold(threshold, n_accepted, n_errors, p, _level(cut, n_accepted))
        for threshold, n_accepted, n_errors, p in zip(thresholds, *columns, strict=True)
    )


def _level(cut: Cut, accepted: int) -> float:
    """Return the level at which the threshold that accepts this many rows passed."""
    return max(
        passed.level for passed in cut.passed if passed.first <= accepted <= passed.last
    )


def _farthest_cut(sample: Sample, passed: list[PassedRange]) -> Cut:
    """Return the cut at the threshold that accepts most, of those that passed."""
    farthest = max(passed_range.last for passed_range in passed)
    return replace(cut_accepting(sample, farthest), passed=tuple(passed))


def _last_passing(c: Counts, accepted: int, risk: float, level: float) -> int:
    """Return how many rows the last threshold accepts before the first that fails.

    The sequence starts at the threshold that accepts `accepted` rows, which passed.
    """
    total, wrong = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    # Between two errors p-values only fall, so only thresholds that let an error in can
    # fail; tests of a million rows in blocks end at the first failure.
    can_fail = np.flatnonzero((c.errors > 0) & (total > accepted))
    n_blocks = max(1, len(can_fail) // SEQUENCE_TESTS)
    for groups in np.array_split(can_fail, n_blocks):
        p_values = binomial_cdfs(wrong[groups], total[groups], risk)
        failed = np.flatnonzero(p_values > level)
        if len(failed):
            first_failed = groups[failed[0]]
            return int(total[first_failed - 1])
    return int(total[-1])


def _risk_not_proved(
    c: Counts, risk: float, tested: list[tuple[int, int]], level: float
) -> Cut:
    """Say why no threshold passed: too few rows, or a risk that is too high everywhere.

    `tested` holds the rows and errors accepted where the method looks first, whatever
    the number of rows: more rows help only if one of these has a risk below the
    target. Also looked at are thresholds that accept a twentieth of the rows or more,
    at least 20.
    """
    accepted, errors = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    n = int(accepted[-1])
    enough = accepted >= min(n, max(math.ceil(n / 20), 20))
    lowest = float((errors[enough] / accepted[enough]).min())
    if lowest >= risk:
        why = (
            f"no threshold that accepts {int(accepted[enough][0]):,} of these rows or "
            f"more has a risk below {lowest:.2%}"
        )
        return Cut("reject-all", trivial=why)
    observed = min(n_errors / n_accepted for n_accepted, n_errors in tested)
    if observed >= risk:
        why = (
            f"the method starts where the risk is {observed:.2%} or more; another "
            f"threshold has {lowest:.2%}, but risk does not fall with this score"
        )
        return Cut("reject-all", trivial=why)
    why = f"{n:,} rows are too few to prove the risk, though it is {observed:.2%} on "
    why += f"these rows{needed_words(least_rows(risk, level), n)}"
    return Cut("reject-all", trivial=why, too_few_rows=True)
