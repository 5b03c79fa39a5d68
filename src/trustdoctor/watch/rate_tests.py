"""One rate under test: a bet and an estimate for each group that has a promise."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates import Target
from trustdoctor.metrics import Confusion
from trustdoctor.watch.bets import Bet, Null
from trustdoctor.watch.review import Review
from trustdoctor.watch.windows import Window

if TYPE_CHECKING:
    from trustdoctor.watch.queue import Batch, Run

Group = int | str | None
"""The name of a group; None where all rows are one."""

TRAFFIC = 10
"""Windows of followed rows are so many times as long where no labels are needed."""

FR, TR, FA, TA, LOST, KEPT = range(6)
"""Kinds of rows; the last two are rejected and accepted without a label, for good."""

UNDRAWN = 6
"""The kind of a row that is not drawn for review."""

MOST_ROWS_AHEAD = 20_000
"""Rows that are looked ahead at, where each is an update of its own."""

Cells = Array
"""How many rows of each of the six kinds there are."""


class Seen(NamedTuple):
    """An estimate: a rate, its interval at all times, and rows.

    Attributes
    ----------
    value, low, high : float
    n : int
        Rows that it rests on: those whose labels are known.
    window : int
        The number of the window.
    """

    value: float
    low: float
    high: float
    n: int
    window: int


@dataclass(frozen=True)
class GroupTest:
    """The rows of one group: the bet, and the current window."""

    bet: Bet
    window: Window = field(default_factory=Window)
    review: Review | None = None


@dataclass(frozen=True)
class Alarm:
    """When a test alarmed, and why.

    Attributes
    ----------
    time : float
        In seconds since 1970.
    words : str
    groups : tuple
        Those that it is about, the worst first; empty where there are none.
    """

    time: float
    words: str
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
    size : int
        A window of the estimates ends with the batch in which it has so many rows.
    groups : tuple, or None
        The groups that each have a test of their own; None where all rows are one.
    only : frozenset, or None
        The groups whose rows count; None where all do.
    parts : dict of group to GroupTest
        Of the groups that had rows.
    ahead : dict of group to GroupTest, or None
        The same after all rows that wait for a label, or come after one that does, as
        if those without a label had none for good. What they show at least is shown.
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
    size: int
    groups: tuple[Group, ...] | None = None
    only: frozenset[Group] | None = None
    parts: dict[Group, GroupTest] = field(default_factory=dict)
    ahead: dict[Group, GroupTest] | None = None
    peak: float = 0.0
    alarm: Alarm | None = None
    noise: float = 0.0

    @property
    def needs_labels(self) -> bool:
        """Whether only labelled rows say something."""
        return self.target.needs_labels

    @property
    def shown(self) -> dict[Group, GroupTest]:
        """What is known by now of each group that had rows."""
        return self.parts if self.ahead is None else self.ahead

    @property
    def n(self) -> int:
        """Rows counted."""
        return sum(part.bet.n for part in self.shown.values())

    @property
    def counted(self) -> int:
        """Rows that count towards the rate."""
        return sum(part.bet.counted for part in self.shown.values())

    @property
    def limit(self) -> float:
        """The logarithm of the evidence that alarms."""
        return -math.log(self.level)

    @property
    def evidence(self) -> float:
        """The logarithm of the evidence: the mean over groups, which starts from 0."""
        return self._evidence(self.shown)

    @property
    def sure(self) -> float:
        """The same after the rows whose labels are there, without those that wait."""
        return self._evidence(self.parts)

    def _evidence(self, parts: dict[Group, GroupTest]) -> float:
        own = [part.bet.evidence for part in parts.values()]
        groups = 1 if self.groups is None else len(self.groups)
        waiting = [math.log(groups - len(own))] if groups > len(own) else []
        return float(np.logaddexp.reduce([*own, *waiting])) - math.log(groups)

    def begin(self, groups: Iterable[Group], review: Review | None) -> None:
        """Start a bet with a batch, for the groups that have rows in it.

        Whatever becomes of the rows: which of them count is not known yet.
        """
        if self.waits(review) or _is_blind(self.target, review):
            return
        for group in self._sorted(dict.fromkeys(groups, 0)):
            self._add(group, review, (0, 0, 0), (0, 0, 0, 0), start=True)

    def waits(self, review: Review | None) -> bool:
        """Tell whether a batch counts only when all of its labels are there.

        So does a share of all rows, most of which nobody reviews.
        """
        return review is not None and self.target.reviewed == "share"

    def count(self, cells: dict[Group, Cells], review: Review | None) -> None:
        """Count rows of a batch that has begun."""
        if _is_blind(self.target, review):
            return
        for group, own in self._sorted(cells).items():
            least, most = _least_and_most(self.target.counts, own)
            part, whole = most if self.target.at_least else least
            assert self.target.counts is not None
            opposed = _opposed(self.target.counts, own, at_least=self.target.at_least)
            bet = part, whole, opposed
            self._add(group, review, bet, (*least, *most), start=False)
        self.peak = max(self.peak, self.evidence)

    def count_all(
        self, cells: dict[Group, Cells], totals: dict[Group, int], review: Review
    ) -> None:
        """Count a batch, drawn rows and others, for a share of all rows."""
        if _is_blind(self.target, review):
            return
        drawn = self._sorted(cells)
        for group, rows in self._sorted(totals).items():
            own = drawn.get(group, np.zeros(6, np.int64))
            (few, _), (many, _) = _least_and_most(self.target.counts, own)
            part = many if self.target.at_least else few
            counts = (few, rows, many, rows)
            self._add(group, review, (part, rows, 0), counts, start=True)
        self.peak = max(self.peak, self.evidence)

    def look_ahead(self, batches: Iterable["Batch | Run"]) -> None:
        """Count rows that wait, or come after one that does, for now.

        A row without a label counts in the promise's favour, so this shows at most what
        the labels will: the evidence is no larger, and the intervals are wider.
        """
        later = replace(self, parts=dict(self.parts), ahead=None)
        room = MOST_ROWS_AHEAD
        for batch in batches:
            room -= batch.tell_rest(later, room)
            if room <= 0:
                break
        self.ahead = later.parts
        self.peak = max(self.peak, later.peak)

    def take(self, batch: "Batch", first: int, last: int, *, final: bool) -> None:
        """Count a part of a batch; the last one is final."""
        if not batch.started and len(batch.known):
            self.begin(batch.groups or [None], batch.review)
        if not self.waits(batch.review):
            self.count(batch.cells(first, last), batch.review)
        elif final and batch.review is not None:
            self.count_all(batch.cells(0, last), batch.totals, batch.review)

    def take_each(
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
            Of each row; UNDRAWN ones only where `waits` is true.
        review : Review or None
        names : list of group, or None
            The groups that there are.
        codes : integer array (m,), or None
            Of each row, which of these it is in.
        """
        if _is_blind(self.target, review):
            return
        target, share = self.target, self.waits(review)
        assert target.counts is not None
        rows = _each(target.counts, at_least=target.at_least, share=share)[kinds]
        before, steps = self.evidence, []
        for group, own in self._split(rows, names, codes):
            old = self.parts[group].bet.evidence if group in self.parts else 0.0
            steps.append((own, old, self._add_each(group, review, rows[own])))
        if steps:
            self.peak = max(self.peak, self._highest(before, steps, len(rows)))

    def _split(
        self, rows: Array, names: list[Group] | None, codes: Array | None
    ) -> list[tuple[Group, Array]]:
        """Return which rows are counted together: by groups, or all in one."""
        if names is None or codes is None:
            every = np.arange(len(rows))
            return [] if self.only is not None or not len(rows) else [(None, every)]
        inside = [self.only is None or name in self.only for name in names]
        if self.groups is None:
            own = np.flatnonzero(np.array(inside, bool)[codes])
            return [(None, own)] if len(own) else []
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
        return [
            (name, order[ends[at] : ends[at + 1]])
            for at, name in enumerate(names)
            if inside[at] and ends[at] < ends[at + 1]
        ]

    def _highest(
        self, before: float, steps: list[tuple[Array, float, Array]], rows: int
    ) -> float:
        """Return the largest evidence after any row: the mean over groups.

        Each step is of one group: its rows, its evidence before, and after each.
        """
        top = max(before, *(float(after.max()) for _, _, after in steps))
        if self.groups is None:
            return float(steps[0][2].max())
        change = np.zeros(rows)
        for own, old, after in steps:
            change[own] = np.diff(np.exp(after - top), prepend=math.exp(old - top))
        change[0] += math.exp(before - top) * len(self.groups)
        return top + math.log(np.cumsum(change).max() / len(self.groups))

    def _sorted(self, given: dict[Group, Any]) -> dict[Group, Any]:
        """Return what is counted together: by groups, or all in one."""
        kept = {g: v for g, v in given.items() if self.only is None or g in self.only}
        if self.groups is not None or not kept:
            return kept
        return {None: sum(kept.values())}

    def _add(
        self,
        group: Group,
        review: Review | None,
        bet: tuple[int, int, int],
        counts: tuple[int, int, int, int],
        *,
        start: bool,
    ) -> None:
        """Bet on (part, whole, opposed rows), and count the first two.

        They are counted at the least and at the greatest rate.
        """
        old, window = self._open(group, review)
        if start and max(window.n, window.more) >= self.size:
            window = window.following()
        counted, n, most, more = counts
        part, whole, opposed = bet
        null = self._null(review)
        self.parts[group] = GroupTest(
            old.add(whole, part, start=start, null=null, opposed=opposed),
            window.add(n, counted, more, most),
            review,
        )

    def _add_each(self, group: Group, review: Review | None, rows: Array) -> Array:
        """Bet on rows one by one; return the evidence after each."""
        old, window = self._open(group, review)
        part, whole = rows[:, 2:4].T if self.target.at_least else rows[:, :2].T
        null = self._null(review)
        bet, evidence = old.add_each(whole, part, null=null, opposed=rows[:, 4])
        size = self.size if self.needs_labels else TRAFFIC * self.size
        self.parts[group] = GroupTest(bet, window.add_each(rows[:, :4], size), review)
        return evidence

    def _open(self, group: Group, review: Review | None) -> tuple[Bet, Window]:
        """Return the bet of a group, and its window: another one at other rates."""
        old = self.parts.get(group)
        if old is None:
            return Bet(self.low, self.high), Window()
        used = max(old.window.n, old.window.more)
        other = used and old.review != review
        return old.bet, old.window.following() if other else old.window

    def _null(self, review: Review | None) -> Null | None:
        """Return the null of labelled rows drawn at such rates; None if it is its own.

        Labels are wrong with a probability of at most e, of errors and of correct rows,
        whatever their doubts. Where the share of errors in a kind of rows is r, that of
        rows labelled wrong is at most r + (1 - r) e: all errors are labelled as such,
        and e of the others. That is the null on risk, which is about accepted rows
        alone. (If errors are as often mislabelled as correct rows are, it is at most
        r (1 - e) + (1 - r) e, which is smaller by r e.) For joint the share is of all
        rows: at most 1 - j of them are accepted and correct. For FRR and TRR see
        `noisy_ratios`.
        """
        if review is None and not self.noise:
            return None
        drawn = Review(1.0, 1.0) if review is None else review
        odds = self.target.reviewed == "odds"
        e = 0.0 if odds or not self.needs_labels else self.noise
        low, high = self.low * (1 - e), self.high + (1 - self.high) * e
        low, high = (drawn.among(self.target, end) for end in (low, high))
        return Null(low, high, self.noise if odds else 0.0)

    def estimate(self, group: Group = None) -> Seen | None:
        """Return the estimate of the current window; None where no label is known."""
        # With the rows that wait, or without them: whichever says more.
        own = [parts[group] for parts in (self.shown, self.parts) if group in parts]
        able = [part for part in own if part.window.known > 0]
        if not able:
            return None
        part = min(able, key=lambda one: one.window.width)
        w, review = part.window, part.review
        values = (w.counted / w.known, *w.interval())
        if review is not None and not review.blind(self.target):
            values = tuple(review.whole(self.target, v) for v in values)  # type: ignore[assignment]
        return Seen(*values, n=w.known, window=w.number)

    def worst(self, most: int) -> list[Group]:
        """Return the groups with the largest evidence, in its order."""
        if self.groups is None:
            return []
        order = sorted(self.shown, key=lambda g: -self.shown[g].bet.evidence)
        return order[:most]

    def blamed(self) -> tuple[Group, ...]:
        """Return the groups that an alarm is about: five at most."""
        own = [g for g in self.worst(5) if self.shown[g].bet.peak >= self.limit]
        return tuple(own or self.worst(1))


def _is_blind(target: Target, review: Review | None) -> bool:
    return review is not None and bool(review.blind(target))


Counts = Callable[[Confusion], tuple[int, int]]
"""Of a target: (part, whole)."""


@cache
def _each(counts: Counts, *, at_least: bool, share: bool) -> Array:
    """Return what one row of each kind counts for: an array (7, 5).

    That is part and whole at the least rate, both at the greatest, and whether it is
    opposed. Of a share of all rows, each row is one of the whole.
    """
    out = np.zeros((UNDRAWN + 1, 5), np.int64)
    for kind, cells in enumerate(np.eye(UNDRAWN, dtype=np.int64)):
        out[kind, :4] = np.ravel(_least_and_most(counts, cells))
        out[kind, 4] = _opposed(counts, cells, at_least=at_least)
    if share:
        out[:, [1, 3]] = 1
    return out


def _opposed(counts: Counts, cells: Cells, *, at_least: bool) -> int:
    """Return how many rows are opposed, as `Bet.add` has it."""
    rows = _labelled(counts, cells, highest=at_least)
    return int(rows[_opposed_kinds(counts, at_least=at_least)].sum())


@cache
def _opposed_kinds(counts: Counts, *, at_least: bool) -> list[int]:
    """Return the kinds decided as those against the promise, with the other label."""
    each = [counts(Confusion(*row)) for row in np.eye(4, dtype=int).tolist()]
    against = [bool(whole) and bool(part) != at_least for part, whole in each]
    return [
        kind
        for kind, other in ((FR, TR), (TR, FR), (FA, TA), (TA, FA))
        if against[other] and not each[kind][1]
    ]


def _least_and_most(
    counts: Counts | None, cells: Cells
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (part, whole) at the least and at the greatest rate that there may be."""
    assert counts is not None
    least, most = (
        counts(Confusion(*_labelled(counts, cells, highest=highest).tolist()))
        for highest in (False, True)
    )
    return least, most


def _labelled(counts: Counts, cells: Cells, *, highest: bool) -> Array:
    """Return FR, TR, FA, TA; rows without a label as they make the rate low or high."""
    known = cells[:4].copy()
    for kind, likes in ((LOST, (FR, TR)), (KEPT, (FA, TA))):
        if cells[kind]:
            known[_choice(counts, likes, highest=highest)] += cells[kind]
    return known


@cache
def _choice(counts: Counts, likes: tuple[int, int], *, highest: bool) -> int:
    """Return which kind a row may have been that makes the rate low, or high."""

    def weight(kind: int) -> float:
        part, whole = counts(Confusion(*(int(kind == k) for k in range(4))))
        return (part - whole / 2) * (-1 if highest else 1)

    return min(likes, key=weight)
