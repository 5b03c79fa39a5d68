"""Rows drawn for review, which count in the order of the draw.

If errors are labelled sooner than correct rows, counting labels as they come alarms
falsely. So a row whose label has not come holds the later ones back, until it comes or
its deadline passes. Without a label for good (late, or "cannot say") it counts in the
promise's favour.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.watch.rate_tests import Cells, Group
from trustdoctor.watch.review import Review

WAITING, RIGHT, WRONG, UNSAID = -1, 0, 1, 2
"""What is known of a row that was drawn."""

_KINDS = 6


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
        kept, known = self.accepted[first:last], self.known[first:last]
        # In the order FR, TR, FA, TA; then those without a label.
        right_wrong = np.where(kept, 3 - known, known)
        said = (known == RIGHT) | (known == WRONG)
        kinds = np.where(said, right_wrong, 4 + kept)
        if self.groups is None:
            return {None: np.bincount(kinds, minlength=_KINDS)}
        names = self.groups[first:last]
        every = list(dict.fromkeys(names))
        place = {name: at for at, name in enumerate(every)}
        at = np.fromiter((place[name] for name in names), int, len(names))
        table = np.bincount(at * _KINDS + kinds, minlength=len(every) * _KINDS)
        return dict(zip(every, table.reshape(-1, _KINDS), strict=True))


@dataclass
class Queue:
    """Batches in the order of the draw, of which the first may wait for labels.

    Attributes
    ----------
    batches : deque of Batch
    """

    batches: deque[Batch] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Find the rows that wait."""
        self._places: dict[str, tuple[Batch, int]] = {}
        for batch in self.batches:
            self._note(batch)

    def _note(self, batch: Batch) -> None:
        for at in np.flatnonzero(batch.known == WAITING):
            self._places[batch.keys[at]] = batch, int(at)

    def __len__(self) -> int:
        """Return how many rows wait for a label."""
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        """Tell whether the row of that name waits for its label."""
        return key in self._places

    def add(self, batch: Batch) -> None:
        """Draw rows."""
        self.batches.append(batch)
        self._note(batch)

    def settle(self, key: str, known: int) -> None:
        """Take a label, or that there will be none."""
        batch, at = self._places.pop(key)
        batch.known[at] = known

    def expire(self, before: float) -> list[str]:
        """Give up on rows that were drawn before a time; return their names."""
        late = [key for key, (batch, _) in self._places.items() if batch.time < before]
        for key in late:
            self.settle(key, UNSAID)
        return late

    def release(self) -> Iterator[tuple[Batch, int, int]]:
        """Yield parts of batches whose labels have come, in the order of the draw."""
        while self.batches:
            batch = self.batches[0]
            waiting = np.flatnonzero(batch.known == WAITING)
            last = int(waiting[0]) if len(waiting) else len(batch.known)
            first, batch.done = batch.done, last
            yield batch, first, last
            if len(waiting):
                return
            self.batches.popleft()

    @property
    def oldest(self) -> float | None:
        """When the row was drawn that all others wait for; None where none waits."""
        return self.batches[0].time if len(self) else None

    def __add__(self, other: "Queue") -> "Queue":
        """Return the rows of both, in the order of their draws."""
        both = sorted([*self.batches, *other.batches], key=lambda batch: batch.time)
        return Queue(deque(both))
