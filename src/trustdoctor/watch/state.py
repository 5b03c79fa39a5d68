"""The state of a watch as a document, and back.

The types say which values are possible; what they cannot say (lists of equal length,
labels that fit how far rows were counted) is checked beside them. So a document that
was changed is refused, or is one that some watch could have written.
"""

from collections import deque
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.envelope import Count, Document
from trustdoctor.errors import FileError
from trustdoctor.gates import Gate
from trustdoctor.watch import update_rows, updates
from trustdoctor.watch.bets import ODDS, Bet
from trustdoctor.watch.expectation import Reference, TrafficSums
from trustdoctor.watch.history import HistoryEntry, Totals
from trustdoctor.watch.queue import WAITING, Queue, WaitingBatch, WaitingStream
from trustdoctor.watch.rate_tests import (
    Alarm,
    Group,
    GroupTest,
    RateTest,
    Time,
    identify,
    make_tests,
)
from trustdoctor.watch.review import (
    PREFERENCE_ODDS,
    SHARES,
    DrawCounts,
    LabelledTraffic,
    Preference,
    Review,
    Sampling,
)
from trustdoctor.watch.watch import Watch
from trustdoctor.watch.windows import Window

_DocumentT = TypeVar("_DocumentT", bound=Document)

_MOST_STREAM_ROWS = 1 << 31  # so that the index of a row fits 32 bits

_Positive = Annotated[int, msgspec.Meta(ge=1, lt=envelope.MOST_ROWS)]
_Bit = Annotated[int, msgspec.Meta(ge=0, le=1)]
_Label = Annotated[int, msgspec.Meta(ge=-1, le=2)]
_Peak = Annotated[float, msgspec.Meta(ge=0, lt=1e300)]
_Unstaked = Annotated[float, msgspec.Meta(ge=1e-300, le=1)]  # its logarithm is finite
_LogSum = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)] | Literal["-inf"]
_BetSums = Annotated[
    list[_LogSum], msgspec.Meta(min_length=len(ODDS), max_length=len(ODDS))
]
_N_PREFERENCES = len(SHARES) * len(PREFERENCE_ODDS)
_PreferenceSums = Annotated[
    list[_LogSum], msgspec.Meta(min_length=_N_PREFERENCES, max_length=_N_PREFERENCES)
]


class GroupTestDocument(Document, frozen=True):
    """A `GroupTest`; `log_sums` has one list per tested side."""

    group: Group
    n: Count
    counted: Count
    starts: Count
    unstaked: _Unstaked
    peak: _Peak
    log_sums: Annotated[list[_BetSums], msgspec.Meta(max_length=2)]
    window: Window
    review: Review | None

    def __post_init__(self) -> None:
        """Refuse rates above 1."""
        if self.counted > self.n:
            message = f"expected counted of at most {self.n}, got {self.counted}"
            raise ValueError(message)


class RateTestDocument(Document, frozen=True):
    """What a `RateTest` has learned; its limits come from the certificate."""

    peak: _Peak
    alarm: Alarm | None
    settled: list[GroupTestDocument]


class PreferenceDocument(Document, frozen=True):
    """A `Preference`; `log_sums` is its array row by row."""

    starts: Count
    unstaked: _Unstaked
    log_sums: _PreferenceSums
    peak: _Peak
    review: Review | None
    doubts: list[envelope.Number]
    drawn: list[_Bit]

    def __post_init__(self) -> None:
        """Refuse lists of different lengths."""
        _require_one_length(doubts=self.doubts, drawn=self.drawn)


class SamplingDocument(Document, frozen=True):
    """A `Sampling`."""

    traffic: LabelledTraffic
    accepted: DrawCounts
    rejected: DrawCounts
    among_accepted: PreferenceDocument
    among_rejected: PreferenceDocument


class BatchDocument(Document, frozen=True, tag_field="kind", tag="batch"):
    """A `WaitingBatch`."""

    time: Time
    review: Review | None
    totals: list[tuple[Group, Count]]
    keys: list[str]
    accepted: list[_Bit]
    labels: list[_Label]
    groups: list[Group] | None
    n_counted: Count
    started: bool

    def __post_init__(self) -> None:
        """Refuse rows that no update can have drawn."""
        _require_one_length(
            keys=self.keys,
            accepted=self.accepted,
            labels=self.labels,
            groups=self.keys if self.groups is None else self.groups,
        )
        if len({group for group, _ in self.totals}) < len(self.totals):
            message = "expected each group in totals once"
            raise ValueError(message)
        _require_counted_labels(self.labels, self.n_counted)
        pairs = zip(self.keys, self.labels, strict=True)
        if any(label == WAITING and not key for key, label in pairs):
            message = "expected a key for each row that waits"
            raise ValueError(message)


class StreamDocument(Document, frozen=True, tag_field="kind", tag="stream"):
    """A `WaitingStream`, which may have a million rows.

    What increases is written as steps, and times as (time, number of rows).
    """

    time: Time
    review: Review
    size: Annotated[int, msgspec.Meta(ge=0, lt=_MOST_STREAM_ROWS)]
    index_steps: list[_Positive]
    key_steps: list[_Positive]
    times: list[tuple[Time, _Positive]]
    accepted: list[_Bit]
    labels: list[_Label]
    group_names: list[Group] | None
    group_codes: list[Count] | None
    n_counted: Count
    started: bool

    def __post_init__(self) -> None:
        """Refuse rows that no stream can have brought."""
        _require_one_length(
            index_steps=self.index_steps,
            key_steps=self.key_steps,
            accepted=self.accepted,
            labels=self.labels,
        )
        if sum(rows for _, rows in self.times) != len(self.labels):
            message = f"expected times of {len(self.labels)} rows"
            raise ValueError(message)
        if sum(self.index_steps) > self.size:  # the first step is index 0 plus 1
            message = f"expected rows within the {self.size} of the stream"
            raise ValueError(message)
        if sum(self.key_steps) >= envelope.MOST_ROWS:
            message = "expected smaller key_steps"
            raise ValueError(message)
        self._require_groups()
        _require_counted_labels(self.labels, self.n_counted)
        waits = self.n_counted < len(self.labels) and (
            self.labels[self.n_counted] == WAITING
        )
        # Counting stops at a row that waits, and at no other.
        if not (waits if self.started else self.n_counted == 0):
            message = "expected n_counted to end at a row that waits"
            raise ValueError(message)

    def _require_groups(self) -> None:
        names, codes = self.group_names, self.group_codes
        if names is None and codes is None:
            return
        if (
            names is None
            or codes is None
            or len(set(names)) < len(names)
            or len(codes) != self.size
            or max(codes, default=-1) >= len(names)
        ):
            message = f"expected a group for each of the {self.size} rows"
            raise ValueError(message)


class StateDocument(Document, frozen=True):
    """The state of a watch, without its history and its ids."""

    gate: dict[str, Any]
    level: Annotated[float, msgspec.Meta(ge=update_rows.SMALLEST_LEVEL, lt=1)]
    review: Review | None
    deadline: Time | None
    window: _Positive
    label_noise: Annotated[float, msgspec.Meta(ge=0, lt=0.5)]
    notes: list[str]
    totals: Totals
    sampling: SamplingDocument
    tests: dict[str, RateTestDocument]
    queue: list[BatchDocument | StreamDocument]
    reference: Reference | None
    confidence_sums: TrafficSums


class LedgerDocument(Document, frozen=True):
    """The keys of a `Ledger` by status."""

    counted: list[str]
    drawn: list[str]
    settled: list[str]
    not_drawn: list[str]
    expired: list[str]


class WatchDocument(StateDocument, frozen=True):
    """The state of a watch with its history and its ids."""

    ids: LedgerDocument
    history: list[HistoryEntry]


def read_document(content: Any, kind: type[_DocumentT]) -> _DocumentT:
    """Return content as a document that has every field.

    The types of a watch have defaults, so `envelope.convert` alone would take a missing
    field for one.
    """
    document = envelope.convert(content, kind)
    _require_fields(content, msgspec.to_builtins(document), "")
    return document


def _require_fields(content: Any, complete: Any, path: str) -> None:
    if isinstance(complete, dict):
        for name, value in complete.items():
            if name not in content:
                message = f"{path}missing field {name}."
                raise FileError(message)
            _require_fields(content[name], value, f"{path}{name}: ")
    elif isinstance(complete, (list, tuple)):
        # Lists of numbers may be long, and have no fields.
        has_fields = bool(complete) and isinstance(complete[0], (dict, list, tuple))
        for index, value in enumerate(complete if has_fields else ()):
            _require_fields(content[index], value, f"{path}[{index}]: ")


def _require_one_length(**lists: list[Any]) -> None:
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{length} {name}" for name, length in lengths.items())
        message = f"expected lists of one length, got {described}"
        raise ValueError(message)


def _require_counted_labels(labels: list[int], n_counted: int) -> None:
    if n_counted > len(labels) or WAITING in labels[:n_counted]:
        message = f"expected labels of the {n_counted} rows that were counted"
        raise ValueError(message)


def write_state(watch: Watch) -> dict[str, Any]:
    """Return the state of a watch as plain values."""
    document = StateDocument(
        gate=identify(watch.gate),
        level=watch.level,
        review=watch.review,
        deadline=watch.deadline,
        window=watch.window,
        label_noise=watch.label_noise,
        notes=watch.notes,
        totals=watch.totals,
        sampling=_write_sampling(watch.sampling),
        tests={name: _write_test(test) for name, test in watch.tests.items()},
        queue=[_write_waiting(batch) for batch in watch.queue.batches],
        reference=watch.reference,
        confidence_sums=watch.confidence_sums,
    )
    return dict(msgspec.to_builtins(document))


def read_state(document: StateDocument, gate: Gate) -> Watch:
    """Return the watch of a document that `write_state` wrote."""
    tests = make_tests(gate, document.level, document.window, document.label_noise)
    if set(tests) != set(document.tests):
        message = (
            f"tests: expected {', '.join(tests) or 'none'}, got "
            f"{envelope.shown(list(document.tests))}."
        )
        raise FileError(message)
    for name, test in tests.items():
        _read_test(test, document.tests[name], f"tests.{name}")
    watch = Watch(
        gate,
        document.level,
        document.review,
        document.deadline,
        document.window,
        document.label_noise,
        tests,
        _read_sampling(document.sampling),
        Queue(deque(map(_read_waiting, document.queue))),
        document.totals,
        notes=document.notes,
        reference=document.reference,
        confidence_sums=document.confidence_sums,
    )
    updates.count_ahead(watch)
    for name, test in watch.tests.items():
        test.peak = document.tests[name].peak  # it was known before counting ahead
    return watch


def _write_test(test: RateTest) -> RateTestDocument:
    settled = [
        _write_group_test(group, group_test)
        for group, group_test in test.settled.items()
    ]
    return RateTestDocument(peak=test.peak, alarm=test.alarm, settled=settled)


def _read_test(test: RateTest, document: RateTestDocument, path: str) -> None:
    test.peak, test.alarm = document.peak, document.alarm
    groups = {None} if test.groups is None else set(test.groups)
    for index, entry in enumerate(document.settled):
        if entry.group not in groups or entry.group in test.settled:
            message = (
                f"{path}.settled[{index}].group: expected each group of the gate at "
                f"most once, got {envelope.shown(entry.group)}."
            )
            raise FileError(message)
        bet = Bet(
            test.low,
            test.high,
            entry.n,
            entry.counted,
            entry.starts,
            entry.unstaked,
            peak=entry.peak,
        )
        sides = np.flatnonzero(bet.sides)
        if len(entry.log_sums) != len(sides):
            message = (
                f"{path}.settled[{index}].log_sums: expected {len(sides)} lists, got "
                f"{len(entry.log_sums)}."
            )
            raise FileError(message)
        for side, log_sums in zip(sides, entry.log_sums, strict=True):
            bet.log_sums[side] = _as_array(log_sums)
        test.settled[entry.group] = GroupTest(bet, entry.window, entry.review)


def _write_group_test(group: Group, group_test: GroupTest) -> GroupTestDocument:
    bet = group_test.bet
    return GroupTestDocument(
        group=group,
        n=bet.n,
        counted=bet.counted,
        starts=bet.starts,
        unstaked=bet.unstaked,
        peak=bet.peak,
        log_sums=[_as_numbers(log_sums) for log_sums in bet.log_sums[bet.sides]],
        window=group_test.window,
        review=group_test.review,
    )


def _as_numbers(values: Array) -> list[Any]:
    return [envelope.number(value) for value in values.ravel().tolist()]


def _as_array(numbers: list[Any]) -> Array:
    return np.array([float(number) for number in numbers], np.float64)


def _write_sampling(sampling: Sampling) -> SamplingDocument:
    return SamplingDocument(
        traffic=sampling.traffic,
        accepted=sampling.accepted,
        rejected=sampling.rejected,
        among_accepted=_write_preference(sampling.among_accepted),
        among_rejected=_write_preference(sampling.among_rejected),
    )


def _read_sampling(document: SamplingDocument) -> Sampling:
    return Sampling(
        document.traffic,
        document.accepted,
        document.rejected,
        _read_preference(document.among_accepted),
        _read_preference(document.among_rejected),
    )


def _write_preference(preference: Preference) -> PreferenceDocument:
    return PreferenceDocument(
        starts=preference.starts,
        unstaked=preference.unstaked,
        log_sums=_as_numbers(preference.log_sums),
        peak=preference.peak,
        review=preference.review,
        doubts=_as_numbers(preference.doubts),
        drawn=preference.drawn.astype(int).tolist(),
    )


def _read_preference(document: PreferenceDocument) -> Preference:
    return Preference(
        document.starts,
        document.unstaked,
        _as_array(document.log_sums).reshape(len(SHARES), len(PREFERENCE_ODDS)),
        document.peak,
        document.review,
        _as_array(document.doubts),
        np.array(document.drawn, bool),
    )


def _write_waiting(
    batch: WaitingBatch | WaitingStream,
) -> BatchDocument | StreamDocument:
    if isinstance(batch, WaitingStream):
        return _write_stream(batch)
    return BatchDocument(
        time=batch.time,
        review=batch.review,
        totals=list(batch.totals.items()),
        keys=batch.keys,
        accepted=batch.accepted.astype(int).tolist(),
        labels=batch.labels.tolist(),
        groups=batch.groups,
        n_counted=batch.n_counted,
        started=batch.started,
    )


def _write_stream(stream: WaitingStream) -> StreamDocument:
    starts = np.flatnonzero(np.diff(stream.times, prepend=-1.0))
    rows = np.diff(starts, append=len(stream.times))
    times = zip(stream.times[starts].tolist(), rows.tolist(), strict=True)
    codes = stream.group_codes
    return StreamDocument(
        time=stream.time,
        review=stream.review,
        size=stream.size,
        index_steps=np.diff(stream.indices, prepend=-1).tolist(),
        key_steps=np.diff(stream.keys, prepend=-1).tolist(),
        times=list(times),
        accepted=stream.accepted.astype(int).tolist(),
        labels=stream.labels.tolist(),
        group_names=stream.group_names,
        group_codes=None if codes is None else codes.tolist(),
        n_counted=stream.n_counted,
        started=stream.started,
    )


def _read_waiting(
    document: BatchDocument | StreamDocument,
) -> WaitingBatch | WaitingStream:
    if isinstance(document, StreamDocument):
        return _read_stream(document)
    return WaitingBatch(
        document.time,
        document.review,
        dict(document.totals),
        document.keys,
        np.array(document.accepted, bool),
        np.array(document.labels, np.int64),
        document.groups,
        document.n_counted,
        document.started,
    )


def _read_stream(document: StreamDocument) -> WaitingStream:
    names, codes = document.group_names, None
    if names is not None:
        codes = np.array(document.group_codes, np.min_scalar_type(len(names)))
    times = np.array([time for time, _ in document.times], np.float64)
    rows = np.array([rows for _, rows in document.times], np.int64)
    return WaitingStream(
        document.time,
        document.review,
        document.size,
        (np.cumsum(np.array(document.index_steps, np.int64)) - 1).astype(np.int32),
        np.cumsum(np.array(document.key_steps, np.int64)) - 1,
        np.repeat(times, rows),
        np.array(document.accepted, bool),
        np.array(document.labels, np.int8),
        names,
        codes,
        document.n_counted,
        document.started,
    )
