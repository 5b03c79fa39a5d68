"""Rows drawn for review, which count in the order of the draw.

If errors are labelled sooner than correct rows, counting labels as they come alarms
falsely. So a row whose label has not come holds the later ones back, until it comes or
its deadline passes. Without a label for good (late, or "cannot say") it counts in the
promise's favour.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.watch.rate_tests import UNDRAWN, Cells, Group, RateTest
from trustdoctor.watch.review import Review

WAITING, RIGHT, WRONG, UNSAID = -1, 0, 1, 2
"""What is known of a row that was drawn."""

_KINDS = 6
_RUN = 8192  # rows drawn, after which another run begins
_LINE = 1 << 17  # rows of any kind, after which it does


def kinds_of(accepted: Array, known: Array) -> Array:
    """Return the kinds of rows: FR, TR, FA, TA; then those without a label."""
    right_wrong = np.where(accepted, 3 - known, known)
    said = (known == RIGHT) | (known == WRONG)
    return np.where(said, right_wrong, 4 + accepted)


@dataclass
class Batch:
    """The rows that were drawn in one update.

    Attributes
    ----------
    time : float
        When they were drawn.
    review : Review or None
        The rates at which they were.
    totals : dict of group to int
        All rows of the update, drawn or not.
    keys : list of str
        What the rows are called; empty where a row has no name.
    accepted : bool array (n,)
    known : integer array (n,)
        WAITING, RIGHT, WRONG or UNSAID.
    groups : list of group, or None
        One per row.
    done : int
        So many of them have been counted.
    started : bool
        Whether bets have started with it.
    """

    time: float
    review: Review | None
    totals: dict[Group, int]
    keys: list[str]
    accepted: Array
    known: Array
    groups: list[Group] | None = None
    done: int = 0
    started: bool = False

    def cells(self, first: int, last: int) -> dict[Group, Cells]:
        """Return how many rows of each kind there are in a part, by group."""
        kinds = kinds_of(self.accepted[first:last], self.known[first:last])
        if self.groups is None:
            return {None: np.bincount(kinds, minlength=_KINDS)}
        names = self.groups[first:last]
        every = list(dict.fromkeys(names))
        place = {name: at for at, name in enumerate(every)}
        at = np.fromiter((place[name] for name in names), int, len(names))
        table = np.bincount(at * _KINDS + kinds, minlength=len(every) * _KINDS)
        return dict(zip(every, table.reshape(-1, _KINDS), strict=True))

    @property
    def first(self) -> int:
        """Where the part begins that was not counted."""
        return self.done

    @property
    def size(self) -> int:
        """How many rows there are to count."""
        return len(self.known)

    @property
    def since(self) -> float:
        """When the first row that waits was drawn."""
        return self.time

    def pass_known(self) -> int:
        """Pass the rows that wait for nothing; return where they end."""
        waiting = np.flatnonzero(self.known == WAITING)
        self.done = int(waiting[0]) if len(waiting) else len(self.known)
        return self.done

    def tell(self, test: RateTest, first: int, last: int) -> None:
        """Have a test count a part."""
        test.take(self, first, last, final=last == len(self.known))

    def tell_rest(self, test: RateTest, room: int) -> int:  # noqa: ARG002 - as in `Run`
        """Have a test count all that is left; return how many rows of the room."""
        self.tell(test, self.done, len(self.known))
        return 0


@dataclass
class Run:
    """Rows that came one by one, each an update of its own.

    Of those that were not drawn for review it keeps no more than how many there are,
    and their groups where a test needs them.

    Attributes
    ----------
    time : float
        When the first came.
    review : Review
        The rates at which they were drawn.
    size : int
        How many rows there are, drawn or not.
    places : integer array (k,)
        Of each drawn row, which row it is.
    keys : integer array (k,)
        Positions, which increase: what the drawn rows are called.
    times : array (k,)
        When they were drawn.
    accepted : bool array (k,)
    known : integer array (k,)
        WAITING, RIGHT, WRONG or UNSAID.
    names : list of group, or None
        The groups that there are.
    codes : integer array (size,), or None
        Of each row, which of these it is in.
    done : int
        So many drawn rows have been counted.
    started : bool
        Whether it has been come to.
    """

    time: float
    review: Review
    size: int
    places: Array
    keys: Array
    times: Array
    accepted: Array
    known: Array
    names: list[Group] | None = None
    codes: Array | None = None
    done: int = 0
    started: bool = False

    @property
    def first(self) -> int:
        """Where the part begins that was not counted."""
        return int(self.places[self.done]) if self.started else 0

    @property
    def since(self) -> float:
        """When the first row that waits was drawn."""
        return float(self.times[self.done])

    def takes(self, other: "Run") -> bool:
        """Tell whether it can go on with another."""
        alike = self.review == other.review
        alike &= (self.names is None) == (other.names is None)
        small = len(self.keys) + len(other.keys) <= _RUN
        return alike and small and self.size + other.size <= _LINE

    def __add__(self, other: "Run") -> "Run":
        """Return the rows of both, those of the other after its own."""
        names, codes = self.names, self.codes
        if names is not None and codes is not None:
            assert other.names is not None
            assert other.codes is not None
            table = {name: code for code, name in enumerate(names)}
            for name in other.names:
                table.setdefault(name, len(table))
            new = np.array([table[name] for name in other.names], np.int64)
            names, codes = list(table), np.append(codes, new[other.codes])
            codes = codes.astype(np.min_scalar_type(len(names)))
        return replace(
            self,
            size=self.size + other.size,
            places=np.append(self.places, self.size + other.places),
            keys=np.append(self.keys, other.keys),
            times=np.append(self.times, other.times),
            accepted=np.append(self.accepted, other.accepted),
            known=np.append(self.known, other.known),
            names=names,
            codes=codes,
        )

    def pass_known(self) -> int:
        """Pass the rows that wait for nothing; return where they end."""
        waits = self.known[self.done :] == WAITING
        if not waits.any():
            self.done = len(self.known)
            return self.size
        self.done += int(waits.argmax())
        return int(self.places[self.done])

    def tell(self, test: RateTest, first: int, last: int) -> None:
        """Have a test count rows from one place to another."""
        start, stop = np.searchsorted(self.places, (first, last)).tolist()
        kinds = kinds_of(self.accepted[start:stop], self.known[start:stop])
        places, codes = self.places[start:stop], self.codes
        if test.waits(self.review):
            every = np.full(last - first, UNDRAWN)
            every[places - first] = kinds
            kinds, codes = every, None if codes is None else codes[first:last]
        else:
            codes = None if codes is None else codes[places]
            if self.names is None and stop - start < last - first:
                test.count({None: np.zeros(_KINDS, np.int64)}, self.review)
        test.take_each(kinds, self.review, self.names, codes)

    def tell_rest(self, test: RateTest, room: int) -> int:
        """Have a test count what is left; return how many rows of the room."""
        first = self.first
        if test.waits(self.review):
            last = min(self.size, first + room)
            used = last - first
        else:
            used = min(room, len(self.known) - self.done)
            end = self.done + used
            last = self.size if end == len(self.known) else int(self.places[end])
        self.tell(test, first, last)
        return used

    def answer(self, keys: Array, known: Array) -> Array:
        """Take labels of these keys, which are sorted; return those that counted."""
        at = np.searchsorted(self.keys, keys)
        at[at == len(self.keys)] = 0
        fits = (self.keys[at] == keys) & (self.known[at] == WAITING)
        self.known[at[fits]] = known[fits]
        return known[fits]


@dataclass
class Queue:
    """Batches in the order of the draw, of which the first may wait for labels.

    Attributes
    ----------
    batches : deque of Batch or Run
    """

    batches: deque[Batch | Run] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Find the rows that wait."""
        self._places: dict[str, tuple[Batch, int]] = {}
        self._followed = 0  # rows of runs that wait
        self._oldest = math.inf  # none that waits was drawn before
        for batch in self.batches:
            self._note(batch)

    def _note(self, batch: Batch | Run) -> None:
        waiting = np.flatnonzero(batch.known == WAITING)
        if not len(waiting):
            return
        self._oldest = min(self._oldest, batch.time)
        if isinstance(batch, Run):
            self._followed += len(waiting)
            return
        for at in waiting:
            self._places[batch.keys[at]] = batch, int(at)

    @property
    def runs(self) -> list[Run]:
        """Those of the batches whose rows came one by one."""
        return [batch for batch in self.batches if isinstance(batch, Run)]

    @property
    def positions(self) -> Array:
        """What the rows of runs are called that wait."""
        waiting = [run.keys[run.known == WAITING] for run in self.runs]
        return np.concatenate([np.zeros(0, np.int64), *waiting])

    def __len__(self) -> int:
        """Return how many rows wait for a label."""
        return len(self._places) + self._followed

    def __contains__(self, key: object) -> bool:
        """Tell whether the row of that name waits for its label."""
        return key in self._places

    def add(self, batch: Batch) -> None:
        """Draw rows."""
        self.batches.append(batch)
        self._note(batch)

    def follow(self, run: Run) -> None:
        """Draw rows that came one by one."""
        last = self.batches[-1] if self.batches else None
        if isinstance(last, Run) and last.takes(run):
            self.batches[-1] = last + run
        else:
            self.batches.append(run)
        self._note(run)

    def answer(self, keys: Array, known: Array) -> Array:
        """Take labels of rows that came one by one, the first of each.

        Returns those that rows waited for.
        """
        keys, first = np.unique(keys, return_index=True)
        known, told, every = known[first], [known[:0]], keys.tolist()
        for run in self.runs if every else []:
            if len(run.keys):
                start = bisect_left(every, run.keys[0])
                stop = bisect_right(every, run.keys[-1])
                told.append(run.answer(keys[start:stop], known[start:stop]))
        counted = np.concatenate(told)
        self._followed -= len(counted)
        return counted

    def settle(self, key: str, known: int) -> None:
        """Take a label, or that there will be none."""
        batch, at = self._places.pop(key)
        batch.known[at] = known

    def expire(self, before: float) -> list[str]:
        """Give up on rows that were drawn before a time; return their names."""
        if before <= self._oldest:
            return []
        late = [key for key, (batch, _) in self._places.items() if batch.time < before]
        for key in late:
            self.settle(key, UNSAID)
        times = [batch.time for batch, _ in self._places.values()]
        for run in self.runs:
            gone = (run.known == WAITING) & (run.times < before)
            run.known[gone] = UNSAID
            late += map(str, run.keys[gone].tolist())
            self._followed -= int(gone.sum())
            times.append(run.times[run.known == WAITING].min(initial=math.inf))
        self._oldest = min(times, default=math.inf)
        return late

    def release(self) -> Iterator[tuple[Batch | Run, int, int]]:
        """Yield parts of batches whose labels have come, in the order of the draw."""
        while self.batches:
            batch = self.batches[0]
            first, last = batch.first, batch.pass_known()
            yield batch, first, last
            if last < batch.size:
                return
            self.batches.popleft()

    @property
    def oldest(self) -> float | None:
        """When the row was drawn that all others wait for; None where none waits."""
        return self.batches[0].since if len(self) else None
