"""Rows drawn for review, which count in the order of the draw.

If errors are labelled sooner than correct rows, counting labels as they come alarms
falsely (docs/watching.md measures how often). So a row without a label holds back all
later rows until its label comes or its deadline passes. A row that will never get a
label (expired, or nobody can decide) counts in the promise's favour.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.watch.rate_tests import (
    N_KINDS,
    REJECTED_UNLABELLED,
    UNDRAWN,
    Group,
    KindCounts,
    RateTest,
)
from trustdoctor.watch.review import Review

WAITING, CORRECT, WRONG, UNDECIDED = -1, 0, 1, 2
"""Labels of rows: not there yet; the prediction is correct; it is wrong; nobody can
decide, or the deadline passed."""

# A longer stream segment costs more whenever labels come for it, and more segments cost
# more whenever a row is looked up; these sizes make both cheap.
_MOST_DRAWN = 8192
_MOST_ROWS = 1 << 17


def row_kinds(accepted: Array, labels: Array) -> Array:
    """Return for each row FR, TR, FA, TA, or one of the two unlabelled kinds."""
    # FR, TR, FA, TA = 0 to 3: rejected rows are 0 or 1 by their label, accepted 3 or 2.
    labelled_kind = np.where(accepted, 3 - labels, labels)
    has_label = (labels == CORRECT) | (labels == WRONG)
    return np.where(has_label, labelled_kind, REJECTED_UNLABELLED + accepted)


@dataclass
class WaitingBatch:
    """The rows that were drawn for review in one update.

    Attributes
    ----------
    time : float
        When they were drawn.
    review : Review or None
        The rates at which they were drawn.
    totals : dict of group to int
        All rows of the update, drawn or not.
    keys : list of str
        The names of the rows; empty for a row without one.
    accepted : bool array (n,)
    labels : integer array (n,)
        WAITING, CORRECT, WRONG or UNDECIDED.
    groups : list of group, or None
        One per row.
    n_counted : int
        Rows that the tests have counted.
    started : bool
        Whether bets have started with this batch.
    """

    time: float
    review: Review | None
    totals: dict[Group, int]
    keys: list[str]
    accepted: Array
    labels: Array
    groups: list[Group] | None = None
    n_counted: int = 0
    started: bool = False

    def kind_counts(self, first: int, last: int) -> dict[Group, KindCounts]:
        """Return the number of rows of each kind from `first` to `last`, by group."""
        kinds = row_kinds(self.accepted[first:last], self.labels[first:last])
        if self.groups is None:
            return {None: np.bincount(kinds, minlength=N_KINDS)}
        row_groups = self.groups[first:last]
        names = list(dict.fromkeys(row_groups))
        code_of = {name: code for code, name in enumerate(names)}
        codes = np.fromiter((code_of[name] for name in row_groups), int, last - first)
        table = np.bincount(codes * N_KINDS + kinds, minlength=len(names) * N_KINDS)
        return dict(zip(names, table.reshape(-1, N_KINDS), strict=True))

    @property
    def next_row(self) -> int:
        """The first row that was not counted."""
        return self.n_counted

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.labels)

    @property
    def waiting_since(self) -> float:
        """When the first row that waits was drawn."""
        return self.time

    def advance(self) -> int:
        """Pass the rows before the first that waits for a label; return its index."""
        waiting = np.flatnonzero(self.labels == WAITING)
        self.n_counted = int(waiting[0]) if len(waiting) else len(self.labels)
        return self.n_counted

    def count_in(self, test: RateTest, first: int, last: int) -> None:
        """Count rows from `first` to `last` in a test."""
        test.count_batch(self, first, last, final=last == len(self.labels))

    def count_rest_in(self, test: RateTest, room: int) -> int:  # noqa: ARG002 - as in WaitingStream
        """Count all rows left in a test; return the rows of the room that it took."""
        self.count_in(test, self.n_counted, len(self.labels))
        return 0


@dataclass
class WaitingStream:
    """A segment of a stream: rows that came one by one, each an update of its own.

    Of rows that were not drawn for review it holds only their number, and their groups
    if a test needs them.

    Attributes
    ----------
    time : float
        When the first row came.
    review : Review
        The rates at which rows were drawn.
    size : int
        The number of rows, drawn or not.
    indices : integer array (k,)
        The index of each drawn row among all rows.
    keys : integer array (k,)
        The names of the drawn rows: positions, which increase.
    times : array (k,)
        When they were drawn.
    accepted : bool array (k,)
    labels : integer array (k,)
        WAITING, CORRECT, WRONG or UNDECIDED.
    group_names : list of group, or None
    group_codes : integer array (size,), or None
        For each row, drawn or not, the index of its group in `group_names`.
    n_counted : int
        Drawn rows that the tests have counted.
    started : bool
        Whether the tests have come to this segment.
    """

    time: float
    review: Review
    size: int
    indices: Array
    keys: Array
    times: Array
    accepted: Array
    labels: Array
    group_names: list[Group] | None = None
    group_codes: Array | None = None
    n_counted: int = 0
    started: bool = False

    @property
    def next_row(self) -> int:
        """The first row that was not counted."""
        return int(self.indices[self.n_counted]) if self.started else 0

    @property
    def waiting_since(self) -> float:
        """When the first row that waits was drawn."""
        return float(self.times[self.n_counted])

    def can_append(self, other: "WaitingStream") -> bool:
        """Return whether another segment can be appended to this one."""
        alike = self.review == other.review
        alike &= (self.group_names is None) == (other.group_names is None)
        short = len(self.keys) + len(other.keys) <= _MOST_DRAWN
        return alike and short and self.size + other.size <= _MOST_ROWS

    def __add__(self, other: "WaitingStream") -> "WaitingStream":
        """Return one segment: the rows of this one, then those of the other."""
        names, codes = self.group_names, self.group_codes
        if names is not None and codes is not None:
            assert other.group_names is not None
            assert other.group_codes is not None
            code_of = {name: code for code, name in enumerate(names)}
            for name in other.group_names:
                code_of.setdefault(name, len(code_of))
            recoded = np.array([code_of[name] for name in other.group_names], np.int64)
            names = list(code_of)
            codes = np.append(codes, recoded[other.group_codes])
            codes = codes.astype(np.min_scalar_type(len(names)))
        return replace(
            self,
            size=self.size + other.size,
            indices=np.append(self.indices, self.size + other.indices),
            keys=np.append(self.keys, other.keys),
            times=np.append(self.times, other.times),
            accepted=np.append(self.accepted, other.accepted),
            labels=np.append(self.labels, other.labels),
            group_names=names,
            group_codes=codes,
        )

    def advance(self) -> int:
        """Pass the rows before the first that waits for a label; return its index."""
        waits = self.labels[self.n_counted :] == WAITING
        if not waits.any():
            self.n_counted = len(self.labels)
            return self.size
        self.n_counted += int(waits.argmax())
        return int(self.indices[self.n_counted])

    def count_in(self, test: RateTest, first: int, last: int) -> None:
        """Count rows from `first` to `last` in a test."""
        start, stop = np.searchsorted(self.indices, (first, last)).tolist()
        kinds = row_kinds(self.accepted[start:stop], self.labels[start:stop])
        indices, codes = self.indices[start:stop], self.group_codes
        if test.needs_whole_batch(self.review):
            all_kinds = np.full(last - first, UNDRAWN)
            all_kinds[indices - first] = kinds
            kinds, codes = all_kinds, None if codes is None else codes[first:last]
        else:
            codes = None if codes is None else codes[indices]
            if self.group_names is None and stop - start < last - first:
                test.count({None: np.zeros(N_KINDS, np.int64)}, self.review)
        test.count_each(kinds, self.review, self.group_names, codes)

    def count_rest_in(self, test: RateTest, room: int) -> int:
        """Count rows left, up to `room`, in a test; return the room that they took."""
        first = self.next_row
        if test.needs_whole_batch(self.review):
            last = min(self.size, first + room)
            used = last - first
        else:
            used = min(room, len(self.labels) - self.n_counted)
            drawn = self.n_counted + used
            last = self.size if drawn == len(self.labels) else int(self.indices[drawn])
        self.count_in(test, first, last)
        return used

    def label(self, keys: Array, labels: Array) -> Array:
        """Set labels of these sorted keys; return those that rows waited for."""
        indices = np.searchsorted(self.keys, keys)
        indices[indices == len(self.keys)] = 0
        expected = (self.keys[indices] == keys) & (self.labels[indices] == WAITING)
        self.labels[indices[expected]] = labels[expected]
        return labels[expected]


@dataclass
class Queue:
    """Batches in the order of the draw; rows of the first ones may wait for labels.

    Attributes
    ----------
    batches : deque of WaitingBatch or WaitingStream
    """

    batches: deque[WaitingBatch | WaitingStream] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Index the rows that wait."""
        self._row_of: dict[str, tuple[WaitingBatch, int]] = {}
        self._n_streamed = 0  # rows of stream segments that wait
        self._oldest_time = math.inf  # no row that waits was drawn earlier
        for batch in self.batches:
            self._index(batch)

    def _index(self, batch: WaitingBatch | WaitingStream) -> None:
        waiting = np.flatnonzero(batch.labels == WAITING)
        if not len(waiting):
            return
        self._oldest_time = min(self._oldest_time, batch.time)
        if isinstance(batch, WaitingStream):
            self._n_streamed += len(waiting)
            return
        for row in waiting:
            self._row_of[batch.keys[row]] = batch, int(row)

    @property
    def streams(self) -> list[WaitingStream]:
        """The batches that are stream segments."""
        return [batch for batch in self.batches if isinstance(batch, WaitingStream)]

    @property
    def positions(self) -> Array:
        """The positions of streamed rows that wait."""
        waiting = [stream.keys[stream.labels == WAITING] for stream in self.streams]
        return np.concatenate([np.zeros(0, np.int64), *waiting])

    def __len__(self) -> int:
        """Return the number of rows that wait for a label."""
        return len(self._row_of) + self._n_streamed

    def __contains__(self, key: object) -> bool:
        """Return whether the row of that name waits for its label."""
        return key in self._row_of

    def add(self, batch: WaitingBatch) -> None:
        """Add the rows that an update drew."""
        self.batches.append(batch)
        self._index(batch)

    def add_stream(self, stream: WaitingStream) -> None:
        """Add rows that came one by one."""
        last = self.batches[-1] if self.batches else None
        if isinstance(last, WaitingStream) and last.can_append(stream):
            self.batches[-1] = last + stream
        else:
            self.batches.append(stream)
        self._index(stream)

    def label_stream(self, keys: Array, labels: Array) -> Array:
        """Set labels of streamed rows; of several for one row the first counts.

        Returns the labels that rows waited for.
        """
        keys, first = np.unique(keys, return_index=True)
        labels, counted, key_list = labels[first], [labels[:0]], keys.tolist()
        for stream in self.streams if key_list else []:
            if len(stream.keys):
                start = bisect_left(key_list, stream.keys[0])
                stop = bisect_right(key_list, stream.keys[-1])
                counted.append(stream.label(keys[start:stop], labels[start:stop]))
        all_counted = np.concatenate(counted)
        self._n_streamed -= len(all_counted)
        return all_counted

    def label(self, key: str, label: int) -> None:
        """Set the label of the row of that name."""
        batch, row = self._row_of.pop(key)
        batch.labels[row] = label

    def expire(self, before: float) -> list[str]:
        """Set rows that were drawn before a time to UNDECIDED; return their names."""
        if before <= self._oldest_time:
            return []
        expired = [
            key for key, (batch, _) in self._row_of.items() if batch.time < before
        ]
        for key in expired:
            self.label(key, UNDECIDED)
        times = [batch.time for batch, _ in self._row_of.values()]
        for stream in self.streams:
            late = (stream.labels == WAITING) & (stream.times < before)
            stream.labels[late] = UNDECIDED
            expired += map(str, stream.keys[late].tolist())
            self._n_streamed -= int(late.sum())
            times.append(stream.times[stream.labels == WAITING].min(initial=math.inf))
        self._oldest_time = min(times, default=math.inf)
        return expired

    def release(self) -> Iterator[tuple[WaitingBatch | WaitingStream, int, int]]:
        """Yield (batch, first, last) of rows that can count, in their order."""
        while self.batches:
            batch = self.batches[0]
            first, last = batch.next_row, batch.advance()
            yield batch, first, last
            if last < batch.size:
                return
            self.batches.popleft()

    @property
    def oldest(self) -> float | None:
        """When the row was drawn that all others wait for; None if no row waits."""
        return self.batches[0].waiting_since if len(self) else None
