"""The tests of a watch: one per rate, with a bet and an estimate for each group.

`make_tests` reads from a certificate which rates are tested, and between which limits.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.envelope import Count, Document, Rate
from trustdoctor.errors import InputError
from trustdoctor.gates import TARGETS, Certificate, Gate, Target
from trustdoctor.metrics import Confusion, clopper_pearson
from trustdoctor.scores import FittedScore
from trustdoctor.watch.bets import Bet, Null
from trustdoctor.watch.review import Review
from trustdoctor.watch.windows import Window

if TYPE_CHECKING:
    from trustdoctor.watch.queue import WaitingBatch, WaitingStream

ACCEPTED = "accepted"
"""The test that the accept rate is what it was at calibration."""

LATEST = 1e11
"""Seconds: all times and deadlines are below it."""

Time = Annotated[float, msgspec.Meta(gt=0, lt=LATEST)]
"""The type of a time in a document: seconds since 1970."""

Group = int | str | None
"""The name of a group; None if all rows are tested as one."""

STREAM_WINDOW_FACTOR = 10
"""Windows of streamed rows are longer by this factor for rates that need no labels."""

FR, TR, FA, TA, REJECTED_UNLABELLED, ACCEPTED_UNLABELLED = range(6)
"""Kinds of rows; the last two will never get a label."""

N_KINDS = 6

UNDRAWN = 6
"""The kind of a row that is not drawn for review."""

MOST_ROWS_AHEAD = 20_000
"""Streamed rows that are counted ahead of their labels, at most."""

KindCounts = Array
"""The number of rows of each of the six kinds: an array (6,)."""

RateCounts = Callable[[Confusion], tuple[int, int]]
"""Of a target: from a confusion to (counted, n), the numerator and the denominator."""


class RateEstimate(NamedTuple):
    """A rate, its interval that holds at all times, and the rows it rests on.

    Attributes
    ----------
    value, low, high : float
    n : int
        Labelled rows (or all rows, for a rate that needs no labels).
    window : int
        The number of the window.
    """

    value: Rate
    low: Rate
    high: Rate
    n: Count
    window: Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True)
class GroupTest:
    """The rows of one group: the bet, the current window, and its review rates."""

    bet: Bet
    window: Window = field(default_factory=Window)
    review: Review | None = None


class Alarm(Document, frozen=True):
    """When a test alarmed, and why.

    Attributes
    ----------
    time : float
        In seconds since 1970.
    reason : str
    groups : tuple
        The groups that it is about, the worst first; empty without groups.
    """

    time: Time
    reason: str
    groups: tuple[Group, ...] = ()


@dataclass
class RateTest:
    """Tests whether a rate is between `low` and `high`.

    Attributes
    ----------
    name : str
        Of the promised rate, or "accepted".
    target : Target
        What is counted.
    low, high : float
        The null.
    level : float
        The probability of a false alarm, over the whole future.
    window_size : int
        The rows after which the next batch begins a new window of the estimate.
    groups : tuple, or None
        The groups that are tested separately; None if all rows are tested as one.
    counted_groups : frozenset, or None
        The groups whose rows count; None if all do.
    settled : dict of group to GroupTest
        After the rows whose labels have come; groups without rows are absent.
    provisional : dict of group to GroupTest, or None
        After all rows, as if those that wait for a label never got one. It is a lower
        bound on what their labels will show.
    peak : float
        The logarithm of the largest evidence so far.
    alarm : Alarm or None
    noise : float
        The share of labels that may be wrong, independently of the doubt.
    """

    name: str
    target: Target
    low: float
    high: float
    level: float
    window_size: int
    groups: tuple[Group, ...] | None = None
    counted_groups: frozenset[Group] | None = None
    settled: dict[Group, GroupTest] = field(default_factory=dict)
    provisional: dict[Group, GroupTest] | None = None
    peak: float = 0.0
    alarm: Alarm | None = None
    noise: float = 0.0

    @property
    def needs_labels(self) -> bool:
        """Whether only labelled rows count."""
        return self.target.needs_labels

    @property
    def current(self) -> dict[Group, GroupTest]:
        """The provisional tests if there are any, else the settled ones."""
        return self.settled if self.provisional is None else self.provisional

    @property
    def n(self) -> int:
        """The rows that the rate is a share of."""
        return sum(group_test.bet.n for group_test in self.current.values())

    @property
    def counted(self) -> int:
        """The rows that count towards the rate."""
        return sum(group_test.bet.counted for group_test in self.current.values())

    @property
    def limit(self) -> float:
        """The logarithm of the evidence that alarms."""
        return -math.log(self.level)

    @property
    def evidence(self) -> float:
        """The logarithm of the evidence: the mean over groups, 0 at the beginning."""
        return self._mean_evidence(self.current)

    @property
    def settled_evidence(self) -> float:
        """The same without rows that wait for labels."""
        return self._mean_evidence(self.settled)

    def _mean_evidence(self, group_tests: dict[Group, GroupTest]) -> float:
        # The mean of e-values is one, whatever their dependence (Vovk and Wang 2021,
        # "E-values: calibration, combination and applications"). A group without rows
        # has an evidence of 1.
        logs = [group_test.bet.evidence for group_test in group_tests.values()]
        n_groups = 1 if self.groups is None else len(self.groups)
        without_rows = n_groups - len(logs)
        if without_rows > 0:
            logs.append(math.log(without_rows))
        return float(np.logaddexp.reduce(logs)) - math.log(n_groups)

    def start_bets(self, groups: Iterable[Group], review: Review | None) -> None:
        """Start a bet with a batch, for the groups that have rows in it.

        This happens before any label is known, as `Bet.add` requires.
        """
        if self.needs_whole_batch(review) or _is_untestable(self.target, review):
            return
        for group in self._by_tested_group(dict.fromkeys(groups, 0)):
            self._bet_on_batch(group, review, (0, 0, 0), (0, 0, 0, 0), start=True)

    def needs_whole_batch(self, review: Review | None) -> bool:
        """Return whether a batch counts only when all of its labels are there.

        A share of all rows does: most of these are not reviewed, and count, too.
        """
        return review is not None and self.target.review_effect == "share"

    def count(self, kinds: dict[Group, KindCounts], review: Review | None) -> None:
        """Count rows of a batch whose bets have started."""
        if _is_untestable(self.target, review):
            return
        counts_of, at_least = self.target.fraction, self.target.at_least
        assert counts_of is not None
        for group, kind_counts in self._by_tested_group(kinds).items():
            lowest, highest = _rate_bounds(counts_of, kind_counts)
            # Rows without a label count in the promise's favour.
            counted, n = highest if at_least else lowest
            opposed = _opposed_rows(counts_of, kind_counts, at_least=at_least)
            self._bet_on_batch(
                group, review, (counted, n, opposed), (*lowest, *highest), start=False
            )
        self.peak = max(self.peak, self.evidence)

    def count_share(
        self,
        kinds: dict[Group, KindCounts],
        totals: dict[Group, int],
        review: Review,
    ) -> None:
        """Count a whole batch, drawn rows and others, for a share of all rows."""
        if _is_untestable(self.target, review):
            return
        drawn_kinds = self._by_tested_group(kinds)
        for group, rows in self._by_tested_group(totals).items():
            kind_counts = drawn_kinds.get(group, np.zeros(N_KINDS, np.int64))
            (fewest, _), (most, _) = _rate_bounds(self.target.fraction, kind_counts)
            counted = most if self.target.at_least else fewest
            bounds = (fewest, rows, most, rows)
            self._bet_on_batch(group, review, (counted, rows, 0), bounds, start=True)
        self.peak = max(self.peak, self.evidence)

    def count_ahead(self, batches: Iterable["WaitingBatch | WaitingStream"]) -> None:
        """Count rows that wait for labels provisionally, and those behind them.

        A row without a label counts in the promise's favour, so the evidence is no
        larger and the interval no narrower than the labels will make them.
        """
        ahead = replace(self, settled=dict(self.settled), provisional=None)
        room = MOST_ROWS_AHEAD
        for batch in batches:
            room -= batch.count_rest_in(ahead, room)
            if room <= 0:
                break
        self.provisional = ahead.settled
        self.peak = max(self.peak, ahead.peak)

    def count_batch(
        self, batch: "WaitingBatch", first: int, last: int, *, final: bool
    ) -> None:
        """Count rows `first` to `last` of a batch; `final` if these end it."""
        if not batch.started and len(batch.labels):
            self.start_bets(batch.groups or [None], batch.review)
        if not self.needs_whole_batch(batch.review):
            self.count(batch.kind_counts(first, last), batch.review)
        elif final and batch.review is not None:
            self.count_share(batch.kind_counts(0, last), batch.totals, batch.review)

    def count_each(
        self,
        kinds: Array,
        review: Review | None,
        names: list[Group] | None = None,
        codes: Array | None = None,
    ) -> None:
        """Count rows in order, each an update of its own.

        Parameters
        ----------
        kinds : integer array (m,)
            Of each row; UNDRAWN only if `needs_whole_batch` is true.
        review : Review or None
        names : list of group, or None
            The groups.
        codes : integer array (m,), or None
            For each row the index of its group in `names`.
        """
        if _is_untestable(self.target, review):
            return
        target, share = self.target, self.needs_whole_batch(review)
        assert target.fraction is not None
        rows = _contributions(target.fraction, at_least=target.at_least, share=share)[
            kinds
        ]
        before, steps = self.evidence, []
        for group, indices in self._rows_by_group(rows, names, codes):
            earlier = self.settled.get(group)
            group_before = 0.0 if earlier is None else earlier.bet.evidence
            after = self._bet_on_each(group, review, rows[indices])
            steps.append((indices, group_before, after))
        if steps:
            self.peak = max(self.peak, self._largest_evidence(before, steps, len(rows)))

    def _rows_by_group(
        self, rows: Array, names: list[Group] | None, codes: Array | None
    ) -> list[tuple[Group, Array]]:
        """Return the indices of the rows of each tested group."""
        if names is None or codes is None:
            if self.counted_groups is not None or not len(rows):
                return []
            return [(None, np.arange(len(rows)))]
        counts = [
            self.counted_groups is None or name in self.counted_groups for name in names
        ]
        if self.groups is None:
            indices = np.flatnonzero(np.array(counts, bool)[codes])
            return [(None, indices)] if len(indices) else []
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
        return [
            (name, order[bounds[code] : bounds[code + 1]])
            for code, name in enumerate(names)
            if counts[code] and bounds[code] < bounds[code + 1]
        ]

    def _largest_evidence(
        self, before: float, steps: list[tuple[Array, float, Array]], rows: int
    ) -> float:
        """Return the largest mean evidence over groups after any row.

        Each step is of one group: the indices of its rows, its evidence before, and its
        evidence after each of them.
        """
        largest = max(before, *(float(after.max()) for _, _, after in steps))
        if self.groups is None:
            return float(steps[0][2].max())
        # A row changes the evidence of its group alone, so the mean after each row is a
        # cumulative sum of changes, scaled so that exp does not overflow.
        changes = np.zeros(rows)
        for indices, group_before, after in steps:
            changes[indices] = np.diff(
                np.exp(after - largest), prepend=math.exp(group_before - largest)
            )
        changes[0] += math.exp(before - largest) * len(self.groups)
        return largest + math.log(np.cumsum(changes).max() / len(self.groups))

    def _by_tested_group(self, values: dict[Group, Any]) -> dict[Group, Any]:
        """Return values of the counted groups, added up if all are tested as one."""
        counted = {
            group: value
            for group, value in values.items()
            if self.counted_groups is None or group in self.counted_groups
        }
        if self.groups is not None or not counted:
            return counted
        return {None: sum(counted.values())}

    def _bet_on_batch(
        self,
        group: Group,
        review: Review | None,
        favourable: tuple[int, int, int],
        bounds: tuple[int, int, int, int],
        *,
        start: bool,
    ) -> None:
        """Bet on (counted, n, opposed) rows, and add bounds to the window.

        The bounds are (counted, n) at the lowest rate, then at the highest.
        """
        bet, window = self._bet_and_window(group, review)
        if start and window.size >= self.window_size:
            window = window.next_window()
        counted_low, n_low, counted_high, n_high = bounds
        counted, n, opposed = favourable
        null = self._reviewed_null(review)
        self.settled[group] = GroupTest(
            bet.add(n, counted, start=start, null=null, opposed=opposed),
            window.add(n_low, counted_low, n_high, counted_high),
            review,
        )

    def _bet_on_each(self, group: Group, review: Review | None, rows: Array) -> Array:
        """Bet on rows one by one; return the evidence after each."""
        bet, window = self._bet_and_window(group, review)
        counted, n = rows[:, 2:4].T if self.target.at_least else rows[:, :2].T
        null = self._reviewed_null(review)
        bet, evidence = bet.add_each(n, counted, null=null, opposed=rows[:, 4])
        size = self.window_size
        if not self.needs_labels:
            size *= STREAM_WINDOW_FACTOR
        self.settled[group] = GroupTest(bet, window.add_each(rows[:, :4], size), review)
        return evidence

    def _bet_and_window(
        self, group: Group, review: Review | None
    ) -> tuple[Bet, Window]:
        """Return the bet of a group, and its window: a new one for new review rates."""
        group_test = self.settled.get(group)
        if group_test is None:
            return Bet(self.low, self.high), Window()
        bet, window = group_test.bet, group_test.window
        # Rates among reviewed rows mean something else once review rates change.
        changed = window.size and group_test.review != review
        return bet, window.next_window() if changed else window

    def _reviewed_null(self, review: Review | None) -> Null | None:
        """Return the null among labelled rows drawn at these rates; None if unchanged.

        Labels are wrong with a probability of at most e, of errors and of correct rows,
        whatever their doubts. If the share of errors in a kind of rows is r, that of
        rows labelled wrong is at most r + (1 - r) e: all errors are labelled as such,
        and e of the others. That is the null on risk, which is about accepted rows
        alone. (If errors are as often mislabelled as correct rows are, it is at most
        r (1 - e) + (1 - r) e, which is smaller by r e.) For joint the share is of all
        rows: at most 1 - j of them are accepted and correct. For FRR and TRR see
        `noisy_ratios`.
        """
        if review is None and not self.noise:
            return None
        rates = Review(1.0, 1.0) if review is None else review
        compares_decisions = self.target.review_effect == "odds"
        shift = 0.0 if compares_decisions or not self.needs_labels else self.noise
        low, high = self.low * (1 - shift), self.high + (1 - self.high) * shift
        return Null(
            rates.reviewed_rate(self.target, low),
            rates.reviewed_rate(self.target, high),
            self.noise if compares_decisions else 0.0,
        )

    def estimate(self, group: Group = None) -> RateEstimate | None:
        """Return the estimate of the current window; None without any label."""
        # With the rows that wait, or without them: whichever interval is narrower.
        candidates = [
            group_tests[group]
            for group_tests in (self.current, self.settled)
            if group in group_tests and group_tests[group].window.labelled > 0
        ]
        if not candidates:
            return None
        group_test = min(candidates, key=lambda candidate: candidate.window.width)
        window, review = group_test.window, group_test.review
        rates = (window.counted_low / window.labelled, *window.interval())
        if review is not None and not review.untestable(self.target):
            value, low, high = (review.overall_rate(self.target, r) for r in rates)
            rates = value, low, high
        return RateEstimate(*rates, n=window.labelled, window=window.number)

    def worst_groups(self, most: int) -> list[Group]:
        """Return the groups with the largest evidence, at most that many, in order."""
        if self.groups is None:
            return []
        current = self.current
        order = sorted(current, key=lambda group: -current[group].bet.evidence)
        return order[:most]

    def alarm_groups(self) -> tuple[Group, ...]:
        """Return the groups that an alarm is about: five at most."""
        above_limit = [
            group
            for group in self.worst_groups(5)
            if self.current[group].bet.peak >= self.limit
        ]
        return tuple(above_limit or self.worst_groups(1))


def _is_untestable(target: Target, review: Review | None) -> bool:
    return review is not None and bool(review.untestable(target))


@cache
def _contributions(counts_of: RateCounts, *, at_least: bool, share: bool) -> Array:
    """Return what one row of each kind adds: an array (7, 5).

    Columns: counted and n at the lowest rate, both at the highest, and whether the row
    is opposed. For a share of all rows every row adds one to n.
    """
    table = np.zeros((UNDRAWN + 1, 5), np.int64)
    for kind, kind_counts in enumerate(np.eye(N_KINDS, dtype=np.int64)):
        table[kind, :4] = np.ravel(_rate_bounds(counts_of, kind_counts))
        table[kind, 4] = _opposed_rows(counts_of, kind_counts, at_least=at_least)
    if share:
        table[:, [1, 3]] = 1
    return table


def _opposed_rows(
    counts_of: RateCounts, kind_counts: KindCounts, *, at_least: bool
) -> int:
    """Return the number of opposed rows; see `Bet.add`."""
    imputed = _impute_labels(counts_of, kind_counts, highest=at_least)
    return int(imputed[_opposed_kinds(counts_of, at_least=at_least)].sum())


@cache
def _opposed_kinds(counts_of: RateCounts, *, at_least: bool) -> list[int]:
    """Return the kinds decided as those that break the promise, otherwise labelled."""
    contributions = [
        counts_of(Confusion(*row)) for row in np.eye(4, dtype=int).tolist()
    ]
    breaks = [bool(n) and bool(counted) != at_least for counted, n in contributions]
    return [
        kind
        for kind, relabelled in ((FR, TR), (TR, FR), (FA, TA), (TA, FA))
        if breaks[relabelled] and not contributions[kind][1]
    ]


def _rate_bounds(
    counts_of: RateCounts | None, kind_counts: KindCounts
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (counted, n) at the lowest and at the highest possible rate."""
    assert counts_of is not None
    lowest, highest = (
        counts_of(
            Confusion(*_impute_labels(counts_of, kind_counts, highest=highest).tolist())
        )
        for highest in (False, True)
    )
    return lowest, highest


def _impute_labels(
    counts_of: RateCounts, kind_counts: KindCounts, *, highest: bool
) -> Array:
    """Return FR, TR, FA, TA with rows without a label as what makes a rate extreme."""
    imputed = kind_counts[:4].copy()
    for unlabelled, candidates in (
        (REJECTED_UNLABELLED, (FR, TR)),
        (ACCEPTED_UNLABELLED, (FA, TA)),
    ):
        if kind_counts[unlabelled]:
            kind = _extreme_kind(counts_of, candidates, highest=highest)
            imputed[kind] += kind_counts[unlabelled]
    return imputed


@cache
def _extreme_kind(
    counts_of: RateCounts, candidates: tuple[int, int], *, highest: bool
) -> int:
    """Return which of two kinds of a row makes the rate lowest, or highest."""

    def influence(kind: int) -> float:
        counted, n = counts_of(Confusion(*(int(kind == other) for other in range(4))))
        return (counted - n / 2) * (-1 if highest else 1)

    return min(candidates, key=influence)


def make_tests(
    gate: Gate, level: float, window_size: int, noise: float = 0.0
) -> dict[str, RateTest]:
    """Return the tests of a gate by name; none if it decides nothing.

    The level is shared equally among the tests (Bonferroni). A tenth of it covers the
    limits that the calibration rows only estimate.
    """
    certificate = require_certificate(gate)
    breakable = [
        target for target in _promises(certificate) if not _cannot_break(gate, target)
    ]
    decides = not _all_are(gate, "accept-all") and not _all_are(gate, "reject-all")
    n_tests = decides + len(breakable)
    if not n_tests:
        return {}
    limit_level, test_level = level / 10 / n_tests, 0.9 * level / n_tests
    tests: dict[str, RateTest] = {}
    if decides:
        coverage = TARGETS["coverage"]
        low, high = _calibrated_limits(certificate, coverage, limit_level)
        tests[ACCEPTED] = RateTest(
            ACCEPTED, coverage, low, high, test_level, window_size
        )
    for target in breakable:
        low, high = _null_of(certificate, target, limit_level)
        breakable_groups = _breakable_groups(gate, target) if gate.groups else None
        # In "expectation" mode groups have no promise of their own, so all are one.
        separate = breakable_groups if certificate.mode == "confidence" else None
        tests[target.name] = RateTest(
            target.name,
            target,
            low,
            high,
            test_level,
            window_size,
            separate,
            None if breakable_groups is None else frozenset(breakable_groups),
            noise=noise,
        )
    return tests


def require_certificate(gate: Gate) -> Certificate:
    """Return what a gate promises, or refuse a gate that was not calibrated."""
    if gate.certificate is None:
        message = (
            "this gate has no certificate, so it promises nothing that a watch could "
            "test. Make it with calibrate."
        )
        raise InputError(message)
    return gate.certificate


def find_test(tests: dict[str, RateTest], name: str) -> RateTest:
    """Return the test of that name, or refuse the name and list the tests."""
    if name in tests:
        return tests[name]
    names = ", ".join(tests) or "none"
    message = f"expected a test out of {names}, got {name!r}."
    raise InputError(message)


def why_no_tests(gate: Gate) -> str:
    """Return why a gate has no tests."""
    decision = "rejects" if _all_are(gate, "reject-all") else "accepts"
    promise = ""
    if require_certificate(gate).guarantee:
        promise = ", so no rows can break its promise"
    return f"nothing to watch: the gate {decision} every row{promise}"


def _promises(certificate: Certificate) -> list[Target]:
    if not certificate.guarantee:
        return []
    targets = [TARGETS[name] for name in certificate.target]
    return [target for target in targets if target.promised and target.fraction]


def _all_are(gate: Gate, state: str) -> bool:
    return {gate.state, *(rule.state for rule in gate.groups.values())} == {state}


def _cannot_break(gate: Gate, target: Target) -> bool:
    """Return whether no row can break the promise: nothing is accepted, or all is."""
    if gate.groups:
        return not _breakable_groups(gate, target)
    return gate.state == f"{target.safe_side}-all"


def _breakable_groups(gate: Gate, target: Target) -> tuple[Group, ...]:
    """Return the groups that have a promise which rows can break."""
    return tuple(
        name
        for name, rule in gate.groups.items()
        if rule.promised and rule.state != f"{target.safe_side}-all"
    )


def _null_of(
    certificate: Certificate, target: Target, level: float
) -> tuple[float, float]:
    """Return the limits that the promise sets."""
    value = certificate.target[target.name]
    low, high = (value, 1.0) if target.at_least else (0.0, value)
    if certificate.mode == "expectation":
        # On average the promise holds; this gate's own rate may lie beyond it.
        calibrated_low, calibrated_high = _calibrated_limits(certificate, target, level)
        if target.at_least:
            low = min(low, calibrated_low)
        else:
            high = max(high, calibrated_high)
    return low, high


def _calibrated_limits(
    certificate: Certificate, target: Target, level: float
) -> tuple[float, float]:
    """Return the exact interval of a rate on the calibration rows at that level."""
    outcome = certificate.outcome
    if outcome is None or target.name not in certificate.observed:
        return 0.0, 1.0
    assert target.fraction is not None
    counted, n = target.fraction(outcome.decisions)
    low, high = clopper_pearson(counted, n, confidence=1 - level)
    share = certificate.drawn_share
    if share == 1 or target.review_effect == "plain":
        return low, high
    # Of rows beyond the drawn share the calibration knows that they are rejected.
    return (low * share, high * share) if target.name == "coverage" else (0.0, 1.0)


def identify(gate: Gate) -> dict[str, Any]:
    """Return what tells a gate from others, as plain values."""
    certificate = gate.certificate
    return {
        "score": gate.score_name,
        "temperature": gate.temperature,
        "state": gate.state,
        "threshold": str(gate.threshold),
        "fingerprint": "" if certificate is None else certificate.fingerprint,
        "fitted": gate.score.digest if isinstance(gate.score, FittedScore) else None,
    }
