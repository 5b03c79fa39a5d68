"""Rules for selective risk: thresholds that pass a binomial test keep the promise.

The p-value of a threshold that accepts k rows, e of them wrong, is
P[Bin(k, risk) <= e]: the probability of e errors or fewer if the risk there were the
target's. The rules differ in which thresholds they test and at which level; each passes
a threshold whose risk is too high with probability delta at most.

References
----------
Angelopoulos et al., Learn then Test: Calibrating Predictive Algorithms to Achieve Risk
Control, 2021.
Geifman and El-Yaniv, Selective Classification for Deep Neural Networks, NeurIPS 2017.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from trustdoctor.envelope import Count, Rate
from trustdoctor.errors import InputError
from trustdoctor.gates.rules import (
    Cut,
    PassedRange,
    as_fraction,
    binomial_cdf,
    binomial_cdfs,
    cut_accepting,
    least_rows,
    midpoint,
    needed_words,
    true_prefix,
)
from trustdoctor.gates.sample import Sample, neighbouring_scores
from trustdoctor.metrics import Counts

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


def risk_sequence(
    sample: Sample, risk: float, *, delta: float, min_coverage: float
) -> Cut:
    """Bound selective risk by fixed-sequence testing, in two sequences.

    A sequence tests thresholds at rising coverage until one fails. The first sequence
    starts where a share `min_coverage` of the rows is accepted, and has nine tenths of
    delta. The second starts at a twentieth of the rows, with the last tenth. The one
    that accepts more counts.
    """
    # Each sequence keeps its level without a correction for the number of its tests,
    # because their order is fixed before a label is seen, and it ends at the first
    # failure (Learn then Test, algorithm 1). The two share delta by Bonferroni's
    # inequality. The second is for models that are right about few rows alone: with an
    # accuracy of 0.6 and a risk of 0.02 a sequence from 0.3 of 50,000 rows never passes
    # a test, and with the second 0.22 of them are accepted.
    c, n = sample.worst(), len(sample)
    passed, tested_first = list[PassedRange](), list[tuple[int, int]]()
    for share, level in ((min_coverage, 0.9 * delta), (0.05, 0.1 * delta)):
        least_accepted = math.ceil(as_fraction(share) * n)
        tested_first.append(sample.accepted_by_kth(least_accepted)[:2])
        # Fewer rows cannot pass, even without an error.
        start = max(least_rows(risk, level), least_accepted, 1)
        if start > n:
            continue
        accepted, errors, fewest = sample.accepted_by_kth(start)
        if binomial_cdf(min(errors, fewest), fewest, risk) <= level:
            last = _last_passing(c, accepted, risk, level)
            passed.append(PassedRange(accepted, last, level))
    if not passed:
        return _risk_not_proved(sample.counts, risk, tested_first, 0.9 * delta)
    return _farthest_cut(sample, passed)


def risk_sgr(sample: Sample, risk: float, *, delta: float) -> Cut:
    """Bound selective risk by a binary search with Clopper-Pearson bounds.

    Each of at most ceil(log2(n + 1)) steps tests at an equal share of delta
    (Bonferroni): Selection with Guaranteed Risk, algorithm 2 of Geifman and El-Yaniv.
    """
    c = _exact_counts(sample, "sgr")
    accepted, errors = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    level = delta / math.ceil(math.log2(len(sample) + 1))
    n_passed = true_prefix(
        len(accepted),
        lambda j: binomial_cdf(int(errors[j]), int(accepted[j]), risk) <= level,
    )
    if n_passed == 0:
        # Where the search would end if there were no lack of rows.
        best = true_prefix(len(accepted), lambda j: errors[j] < risk * accepted[j])
        end = max(best - 1, 0)
        tested = (int(accepted[end]), int(errors[end]))
        return _risk_not_proved(c, risk, [tested], level)
    farthest = int(accepted[n_passed - 1])
    return _farthest_cut(sample, [PassedRange(farthest, farthest, level)])


def risk_grid(sample: Sample, risk: float, *, delta: float, points: int = 20) -> Cut:
    """Bound selective risk on a grid of coverages fixed in advance.

    For scores whose risk does not fall with doubt: every point is tested separately, at
    an equal share of delta (Bonferroni), and the largest coverage that passes counts.
    """
    c = _exact_counts(sample, "grid")
    accepted, errors = np.cumsum(c.correct + c.errors), np.cumsum(c.errors)
    level, passed, tested = delta / points, [], []
    for point in range(1, points + 1):
        least_accepted = math.ceil(Fraction(point, points) * len(sample))
        group = int(np.searchsorted(accepted, least_accepted))
        n_accepted, n_errors = int(accepted[group]), int(errors[group])
        tested.append((n_accepted, n_errors))
        if binomial_cdf(n_errors, n_accepted, risk) <= level:
            passed.append(PassedRange(n_accepted, n_accepted, level))
    if not passed:
        return _risk_not_proved(c, risk, tested, level)
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


def _exact_counts(sample: Sample, method: str) -> Counts:
    """Return the counts of a sample whose scores are all known."""
    if not sample.exact:
        message = (
            f"the method {method} needs every score, and a sketch keeps ranges of "
            "them. Use method='sequence', or give it all rows (more --memory)."
        )
        raise InputError(message)
    return sample.counts


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
