"""Updates of a watch: what they bring is read, planned, and only then counted.

`read_rows` checks what comes and lets the gate decide; `plan` says what each row counts
for, or refuses the update; `carry_out` changes the watch, and nothing of it fails. So a
refused update changes nothing.
"""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from trustdoctor.arrays import (
    Array,
    as_groups,
    as_real,
    as_scores,
    shown_number,
    to_numpy,
)
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.gates import Gate, Screened
from trustdoctor.predictions import Predictions, TopK
from trustdoctor.watch import wording
from trustdoctor.watch.expectation import Expectation, TrafficSums
from trustdoctor.watch.history import (
    COUNTED,
    DRAWN,
    EXPIRED,
    NOT_DRAWN,
    SETTLED,
    HistoryEntry,
)
from trustdoctor.watch.queue import (
    CORRECT,
    UNDECIDED,
    WAITING,
    WRONG,
    WaitingBatch,
)
from trustdoctor.watch.rate_tests import (
    FR,
    LATEST,
    N_KINDS,
    TA,
    Alarm,
    Group,
    KindCounts,
    RateEstimate,
    RateTest,
)
from trustdoctor.watch.review import Review

if TYPE_CHECKING:
    from trustdoctor.watch.watch import Watch

SMALLEST_LEVEL = 1e-9
"""Smaller probabilities of a false alarm are lost to rounding."""

MOST_GROUPS = 20
"""Groups whose estimates an entry keeps: those with the largest evidence."""

MOST_BATCHES_AHEAD = 200
"""Batches that are counted ahead of their labels, at most."""

_LABEL_TYPES = (bool, int, float, np.bool_)
_NEW, _DUPLICATE = -1, -2  # of a key: not in the ledger; twice in the batch


@dataclass(frozen=True)
class UpdateRows:
    """The rows of an update as the gate decided on them, with their labels.

    Attributes
    ----------
    accepted : bool array (n,)
    labels : integer array (n,)
        CORRECT, WRONG, UNDECIDED, or WAITING if there is no label yet.
    groups : array (n,), or None
    ids : list of str, or None
    reviewed : bool array (n,), or None
        Which rows were drawn for review, if the update says it.
    predictions : Predictions or None
    doubts : array (n,), or None
    has_decisions : bool
        False for labels that came by name alone; `accepted` means nothing then.
    """

    accepted: Array
    labels: Array
    groups: Array | None = None
    ids: list[str] | None = None
    reviewed: Array | None = None
    predictions: Any = None
    doubts: Array | None = None
    has_decisions: bool = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.accepted)

    @property
    def has_label(self) -> Array:
        """Which rows have a label, or never will."""
        return np.asarray(self.labels != WAITING)

    @property
    def drawn(self) -> Array:
        """Which rows were drawn for review; without `reviewed`, those with a label."""
        return self.has_label if self.reviewed is None else self.reviewed


def read_rows(  # noqa: PLR0913 - what an update is called with
    gate: Gate,
    rows: Any,
    errors: Any,
    *,
    groups: Any,
    ids: Any,
    reviewed: Any,
    undecided: Any,
) -> UpdateRows:
    """Decide on rows, and check what comes with them."""
    (accepted, doubts), errors, groups, predictions = _decide(
        gate, rows, errors, groups
    )
    n = len(accepted)
    labels = _read_labels(errors, undecided, n)
    drawn = None if reviewed is None else as_mask(reviewed, n, "reviewed")
    row_groups = None if groups is None else as_groups(groups, rows=n)
    row_ids = None if ids is None else as_ids(ids, n)
    _share_labels(row_ids, labels)
    return UpdateRows(
        np.asarray(accepted, bool),
        labels,
        row_groups,
        row_ids,
        drawn,
        predictions,
        doubts,
    )


def read_named_labels(errors: Any, ids: Any, batch: Any, undecided: Any) -> UpdateRows:
    """Return labels of rows that are identified by their names alone."""
    if ids is None and batch is None:
        message = (
            "labels without rows need names: pass ids=, or batch= with its rows in "
            "order."
        )
        raise InputError(message)
    one_per_row = undecided if errors is None else errors
    if one_per_row is None:
        message = "late labels are missing: pass errors, or undecided."
        raise LabelsMissingError(message)
    shape = to_numpy(one_per_row).shape
    if len(shape) != 1:
        message = f"expected one label per row, got {one_per_row!r}. Pass a list."
        raise InputError(message)
    (n,) = shape
    labels = _read_labels(errors, undecided, n)
    row_ids = None if ids is None else as_ids(ids, n)
    _share_labels(row_ids, labels)
    return UpdateRows(np.zeros(n, bool), labels, ids=row_ids, has_decisions=False)


def _read_labels(errors: Any, undecided: Any, rows: int) -> Array:
    labels = np.full(rows, WAITING) if errors is None else as_labels(errors, rows)
    if undecided is not None:
        labels[as_mask(undecided, rows, "undecided")] = UNDECIDED
    return labels


def _share_labels(ids: list[str] | None, labels: Array) -> None:
    """Give the first row of an id that occurs twice the label of the others."""
    first_row: dict[str, int] = {}
    for row, row_id in enumerate(ids or ()):
        first = first_row.setdefault(row_id, row)
        if labels[first] == WAITING:
            labels[first] = labels[row]


def _decide(
    gate: Gate, rows: Any, errors: Any, groups: Any
) -> tuple[tuple[Array, Array], Any, Any, Any]:
    """Return (accepted rows, doubts), errors, groups and predictions."""
    if isinstance(rows, Screened):
        if gate.groups and groups is None:
            message = "this gate has groups: pass groups=, one per row."
            raise InputError(message)
        if gate.groups:
            gate.accept(rows.scores, groups=groups)  # refuses unknown groups
        return _decisions_and_doubts(rows), errors, groups, rows.predictions
    if not isinstance(rows, (Predictions, TopK)):
        doubts = as_scores(rows)
        accepted = gate.accept(doubts, groups=groups)
        return (np.asarray(accepted), to_numpy(doubts)), errors, groups, None
    if errors is None and rows.labels is not None:
        errors = partial_errors(rows)
    if groups is None and gate.groups:
        groups = gate.groups_of(rows)
    screened = gate.screen(rows, groups=groups)
    return _decisions_and_doubts(screened), errors, groups, rows


def _decisions_and_doubts(screened: Screened) -> tuple[Array, Array]:
    return np.asarray(screened.accepted), to_numpy(screened.scores)


def as_labels(errors: Any, rows: int) -> Array:
    """Return the label of each row: CORRECT, WRONG, or WAITING."""
    array = to_numpy(errors)
    if array.ndim != 1:
        array = np.zeros(0)  # refused below
    if array.dtype == object and all(
        error is None or type(error) in _LABEL_TYPES for error in array
    ):
        array = np.array([np.nan if error is None else float(error) for error in array])
    values = array.astype(np.float64) if array.dtype.kind in "biuf" else np.zeros(0)
    missing = np.isnan(values)
    if values.shape != (rows,) or not np.isin(values[~missing], (0, 1)).all():
        message = (
            f"expected errors as {rows} entries, one per row: True, False, or NaN "
            "where unknown."
        )
        raise LabelsMissingError(message)
    return np.where(missing, WAITING, np.where(values == 1, WRONG, CORRECT))


def partial_errors(rows: Predictions | TopK) -> Array:
    """Return where predictions are wrong, NaN for rows without a label."""
    if isinstance(rows, TopK):
        return rows.errors
    assert rows.labels is not None
    return np.where(rows.has_label, rows.predicted != rows.labels, np.nan)


def as_mask(values: Any, rows: int, name: str) -> Array:
    """Return booleans, one per row."""
    array = to_numpy(values)
    if array.shape != (rows,) or not np.isin(array, (0, 1)).all():
        message = f"expected {name} as {rows} entries, True or False, one per row."
        raise InputError(message)
    return array.astype(bool)


def as_ids(ids: Any, rows: int) -> list[str]:
    """Return ids as text, or refuse them if a row has none.

    Examples
    --------
    >>> as_ids(np.array([7, 8]), 2)
    ['7', '8']
    """
    values = list(ids) if isinstance(ids, (list, tuple)) else to_numpy(ids).tolist()
    if not isinstance(values, list) or len(values) != rows:
        got = len(values) if isinstance(values, list) else "one value"
        message = f"expected {rows:,} ids, one per row, got {got}."
        raise InputError(message)
    texts = [_id_text(value) for value in values]
    if "" in texts:
        message = (
            f"row {texts.index('')} has no id. Give every row an id, or leave ids out."
        )
        raise InputError(message)
    if not is_text("".join(texts)):
        message = (
            "an id contains an unpaired surrogate, which no file can hold; remove it."
        )
        raise InputError(message)
    return texts


def _id_text(value: Any) -> str:
    """Return an id as text; empty if it is missing."""
    if isinstance(value, str):
        return str(value)
    is_missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if is_missing or (isinstance(value, float) and value != value):
        return ""
    # Columns of integers with missing values come as floats: 7.0 is the id 7.
    is_integer = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_integer else value)


def is_text(value: str) -> bool:
    """Return whether a text has no unpaired surrogates, so that a file can hold it.

    Examples
    --------
    >>> is_text("a"), is_text(chr(0xD800))
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_time(at: Any) -> float:
    """Return a time in seconds since 1970; now for None."""
    if at is None:
        return time.time()
    seconds = at
    if isinstance(at, datetime):
        with suppress(OverflowError, OSError, ValueError):
            seconds = at.timestamp()
    if type(seconds) in (int, float) and 0 < seconds < LATEST:
        return float(seconds)
    message = (
        f"expected a time as a datetime or seconds since 1970, got {at!r}. Leave it "
        "out for the current time."
    )
    raise InputError(message)


def as_deadline(deadline: Any) -> float | None:
    """Return the seconds that a label may take; None for any time."""
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        deadline = deadline.total_seconds()
    if type(deadline) in (int, float) and 0 < deadline < LATEST:
        return float(deadline)
    message = (
        f"expected a deadline as a timedelta or seconds above 0, got "
        f"{shown_number(deadline)}. timedelta(days=30) gives a label 30 days to come."
    )
    raise InputError(message)


def check_level(level: float) -> float:
    """Return a probability of a false alarm, or refuse what is not one."""
    is_number = type(level) in (int, float) or isinstance(level, np.floating)
    if not is_number or not SMALLEST_LEVEL <= level < 1:
        got = shown_number(level)
        message = f"expected level between {SMALLEST_LEVEL:g} and 1, got {got}."
        raise InputError(message)
    return float(level)


def check_noise(noise: Any) -> float:
    """Return the share of labels that may be wrong, or refuse what is not one."""
    if isinstance(noise, Real) and 0 <= as_real(noise, "label_noise") < 0.5:
        return float(noise)
    message = (
        "expected label_noise from 0 to below 0.5, the share of labels that may be "
        f"wrong, got {shown_number(noise)}."
    )
    raise InputError(message)


def as_batch_name(batch: Any) -> str:
    """Return the name of a batch; empty if it has none."""
    if batch is None:
        return ""
    if isinstance(batch, str) and batch and is_text(batch):
        return batch
    message = f"expected the name of a batch as text, got {batch!r}."
    raise InputError(message)


@dataclass
class UpdatePlan:
    """What to do with each row of an update.

    Attributes
    ----------
    kind, batch : str
        As in `HistoryEntry`.
    review : Review or None
        The rates at which its rows were drawn.
    new : bool array (n,)
        Rows that were never counted.
    drawn : bool array (n,)
        Rows that enter the queue now.
    labelled : bool array (n,)
        Rows in the queue whose labels came.
    counted_before : bool array (n,)
        Rows counted before, of which some enter the queue only now, with their labels.
    keys : list of str
        The names of the rows in the ledger and the queue; empty without names.
    repeated, ignored_labels : int
        As in `HistoryEntry`.
    statuses : dict of int to list of str
        New statuses, for the ledger, with their keys.
    sums : TrafficSums or None
        What the model expects of the rows, if there is a reference.
    """

    kind: Any
    batch: str
    review: Review | None
    new: Array
    drawn: Array
    labelled: Array
    counted_before: Array
    keys: list[str] = field(default_factory=list)
    repeated: int = 0
    ignored_labels: int = 0
    statuses: dict[int, list[str]] = field(default_factory=dict)
    sums: TrafficSums | None = None

    def set_status(self, status: int, rows: Array) -> None:
        """Give rows a new status."""
        self.statuses[status] = [self.keys[row] for row in np.flatnonzero(rows)]


def require_open(watch: "Watch") -> None:
    """Refuse a watch that lives in a file and was closed."""
    if watch.closed:
        message = "this watch was saved and closed; open it again to count rows."
        raise InputError(message)


def plan(
    watch: "Watch", rows: UpdateRows, batch: str, review: Review | None, *, late: bool
) -> UpdatePlan:
    """Decide what each row counts for, or refuse the update."""
    no_rows = np.zeros(len(rows), bool)
    kind = "labels" if late else "update"
    todo = UpdatePlan(kind, batch, review, no_rows, no_rows, no_rows, no_rows)
    if rows.ids is not None:
        _plan_by_id(watch, rows, rows.ids, todo, late=late)
    elif batch:
        _plan_batch(watch, rows, todo, late=late)
    else:
        _plan_unnamed(rows, todo, late=late)
    _require_names(rows, todo)
    if (todo.drawn | todo.labelled).any() and not todo.new.any():
        todo.kind = "labels"
    if watch.reference is not None and rows.predictions is not None:
        counted = todo.new if not late else todo.drawn | todo.labelled
        sums = watch.reference.count(rows.predictions[counted], rows.accepted[counted])
        todo.sums = sums.labels() if late else sums
    return todo


def _plan_by_id(
    watch: "Watch", rows: UpdateRows, ids: list[str], todo: UpdatePlan, *, late: bool
) -> None:
    """Count each row once per id."""
    todo.keys = [f"r:{row_id}" for row_id in ids]
    status = _find_statuses(watch, todo.keys)
    if (status == _DUPLICATE).sum() > len(status) / 2:
        message = (
            f"expected a different id for each row, got {len(set(todo.keys)):,} ids "
            f"for {len(status):,} rows. Name another column, or leave ids out."
        )
        raise InputError(message)
    has_label, is_new = rows.has_label, status == _NEW
    if late and is_new.any():
        message = (
            f"the label of row {ids[int(is_new.argmax())]!r} came, and the row was "
            "never counted. Count it first, by update or by check without --late."
        )
        raise InputError(message)
    _refuse_late_draw(rows, ids, status)
    # Without review rates and marks a row counts as drawn when its label comes.
    draws_unknown = todo.review is None and rows.reviewed is None
    drawn_by_label = (status == COUNTED) & has_label & draws_unknown
    if drawn_by_label.any() and not rows.has_decisions:
        message = (
            f"row {ids[int(drawn_by_label.argmax())]!r} was not drawn for review, so "
            "its label alone does not say how the gate decided. Pass the rows, too."
        )
        raise InputError(message)
    todo.new, todo.drawn = is_new, drawn_by_label | (is_new & rows.drawn)
    todo.counted_before = (status == COUNTED) & draws_unknown
    todo.labelled = (status == DRAWN) & has_label
    repeated = (status == SETTLED) | (status == _DUPLICATE)
    todo.repeated = int((repeated & has_label if late else ~is_new).sum())
    not_in_queue = (
        is_new
        | (status == NOT_DRAWN)
        | (status == EXPIRED)
        | ((status == COUNTED) & ~drawn_by_label)
    )
    todo.ignored_labels = int((not_in_queue & has_label & ~todo.drawn).sum())
    todo.set_status(SETTLED, (todo.drawn & has_label) | todo.labelled)
    todo.set_status(DRAWN, todo.drawn & ~has_label)
    todo.set_status(COUNTED if draws_unknown else NOT_DRAWN, is_new & ~todo.drawn)


def _refuse_late_draw(rows: UpdateRows, ids: list[str], status: Array) -> None:
    """Refuse rows that are marked as drawn only after they were counted."""
    if rows.reviewed is None:
        return
    late_draw = rows.reviewed & ((status == COUNTED) | (status == NOT_DRAWN))
    if late_draw.any():
        message = (
            f"row {ids[int(late_draw.argmax())]!r} is drawn for review, and was "
            "counted before without being drawn, so its label would not count. Draw "
            "rows when they are counted first."
        )
        raise InputError(message)


def _find_statuses(watch: "Watch", keys: list[str]) -> Array:
    """Return the status of each key; of a key that occurs twice, for its first row."""
    statuses = np.array(
        [_NEW if status is None else status for status in watch.ledger.find(keys)],
        int,
    )
    first_row = {key: row for row, key in reversed(list(enumerate(keys)))}
    statuses[[first_row[key] != row for row, key in enumerate(keys)]] = _DUPLICATE
    return statuses


def _plan_batch(
    watch: "Watch", rows: UpdateRows, todo: UpdatePlan, *, late: bool
) -> None:
    """Count a batch without ids once; its rows are identified by their order."""
    rows_key, labels_key = f"b:{todo.batch}", f"l:{todo.batch}"
    rows_status, labels_status = watch.ledger.find([rows_key, labels_key])
    todo.keys = [f"p:{todo.batch}\0{row}" for row in range(len(rows))]
    waiting = np.array([key in watch.queue for key in todo.keys], bool)
    todo.labelled = waiting & rows.has_label
    if late and rows_status is None:
        message = (
            f"labels of the batch {todo.batch!r} came, and it was never counted. Count "
            "it first, by update or by check without --late."
        )
        raise InputError(message)
    if late and labels_status is None:
        if todo.review is not None or not rows.has_decisions:
            message = (
                f"the rows of the batch {todo.batch!r} that were drawn for review are "
                "unknown. Pass reviewed= with update, and the labels later."
            )
            raise InputError(message)
        todo.drawn, todo.counted_before = rows.has_label, np.ones(len(rows), bool)
        todo.statuses[SETTLED] = [labels_key]
    elif late or rows_status is not None:
        todo.repeated = len(rows) - int(todo.labelled.sum()) * late
    else:
        todo.new, todo.drawn = np.ones(len(rows), bool), rows.drawn
        draws_known = rows.reviewed is not None or bool(todo.drawn.any())
        todo.ignored_labels = int((rows.has_label & ~todo.drawn).sum())
        todo.statuses[SETTLED] = [rows_key, *([labels_key] if draws_known else [])]


def _plan_unnamed(rows: UpdateRows, todo: UpdatePlan, *, late: bool) -> None:
    """Count rows without names each time they come."""
    if late and todo.review is not None:
        message = (
            "with known review rates late labels belong to rows that were drawn. Name "
            "the rows, here and where they were drawn: ids= with reviewed=; on the "
            "command line --ids NAME with --draw or --reviewed."
        )
        raise InputError(message)
    if late:
        todo.drawn, todo.counted_before = rows.has_label, np.ones(len(rows), bool)
        return
    todo.new, todo.drawn = np.ones(len(rows), bool), rows.drawn
    todo.ignored_labels = int((rows.has_label & ~todo.drawn).sum())


def _require_names(rows: UpdateRows, todo: UpdatePlan) -> None:
    if todo.keys or not (todo.drawn & ~rows.has_label).any():
        return
    message = (
        "rows were drawn for review, and their labels come later: pass ids= or batch=, "
        "so that the labels can be assigned."
    )
    raise InputError(message)


def carry_out(watch: "Watch", rows: UpdateRows, todo: UpdatePlan, at: float) -> None:
    """Count what was planned; nothing of it fails."""
    _count_traffic(watch, rows, todo)
    for status, keys in todo.statuses.items():
        watch.ledger.note(keys, status)
    expired = expire(watch, at)
    queue_labels = _label_queue(watch, rows, todo)
    all_labels = [*rows.labels[todo.drawn].tolist(), *queue_labels]
    _enqueue(watch, rows, todo, at)
    release(watch)
    undecided = all_labels.count(UNDECIDED)
    entry = HistoryEntry(
        at,
        todo.kind,
        todo.batch,
        int(todo.new.sum()),
        int(rows.accepted[todo.new].sum()),
        todo.repeated,
        len(all_labels) - all_labels.count(WAITING) - undecided,
        expired + undecided,
        # Labels of rows that expired just now are too late.
        ignored_labels=todo.ignored_labels
        + int(todo.labelled.sum())
        - len(queue_labels),
        expected=_expected_rates(watch, todo),
    )
    record(watch, entry)
    if todo.sums is not None:
        watch.confidence_sums += todo.sums


def record(watch: "Watch", entry: HistoryEntry) -> HistoryEntry:
    """Add an entry to the history, with how every test stands now."""
    complete = replace(
        entry,
        waiting=len(watch.queue),
        evidence={name: test.evidence for name, test in watch.tests.items()},
        estimates=estimates(watch),
        alarms=_raise_alarms(watch, entry.time),
    )
    watch.entries.append(complete)
    watch.totals = watch.totals.add(complete)
    return complete


def _label_queue(watch: "Watch", rows: UpdateRows, todo: UpdatePlan) -> list[int]:
    """Set labels of rows that were drawn before, and return them."""
    labels = []
    for row in np.flatnonzero(todo.labelled):
        if todo.keys[row] in watch.queue:  # it may have expired
            labels.append(int(rows.labels[row]))
            watch.queue.label(todo.keys[row], labels[-1])
    return labels


def _expected_rates(
    watch: "Watch", todo: UpdatePlan
) -> dict[str, tuple[float, float, float]]:
    """Return what the model expects of the rows of one update."""
    if watch.reference is None or todo.sums is None:
        return {}
    expectation = Expectation(watch.reference, todo.sums)
    rates = {"accuracy": expectation.accuracy, "risk": expectation.risk}
    return {
        name: (rate.value, rate.low, rate.high)
        for name, rate in rates.items()
        if rate is not None
        and not (rate.value is None or rate.low is None or rate.high is None)
    }


def _count_traffic(watch: "Watch", rows: UpdateRows, todo: UpdatePlan) -> None:
    """Count decisions and draws, and test what needs no labels."""
    new, drawn, accepted = todo.new, todo.drawn, rows.accepted
    watch.sampling = watch.sampling.add(
        todo.review,
        int(new.sum()),
        int(accepted[new].sum()),
        int(drawn.sum()),
        int(accepted[drawn].sum()),
        late=bool((drawn & ~new).any()),
    )
    if rows.doubts is not None:
        # Late rows are compared at once: they did not come with those that follow.
        for compared, pool in ((new, True), (todo.counted_before, False)):
            watch.sampling = watch.sampling.compare(
                todo.review,
                rows.doubts[compared],
                accepted[compared],
                drawn[compared],
                pool=pool,
            )
    if not new.any():
        return
    kinds = _decisions_by_group(rows, new)
    for test in watch.tests.values():
        if not test.needs_labels:
            test.start_bets(kinds, None)
            test.count(kinds, None)


def _decisions_by_group(rows: UpdateRows, chosen: Array) -> dict[Group, KindCounts]:
    """Return accepted and rejected rows by group, as if all were correct."""
    if rows.groups is None:
        return {None: _as_correct(rows.accepted[chosen])}
    groups, accepted = rows.groups[chosen], rows.accepted[chosen]
    names = np.unique(groups).tolist()
    return {name: _as_correct(accepted[groups == name]) for name in names}


def _as_correct(accepted: Array) -> KindCounts:
    counts = np.zeros(N_KINDS, np.int64)
    counts[TA] = accepted.sum()
    counts[FR] = len(accepted) - counts[TA]
    return counts


def expire(watch: "Watch", at: float) -> int:
    """Give up labels that did not come in time; return their number."""
    if watch.deadline is None:
        return 0
    expired = watch.queue.expire(at - watch.deadline)
    watch.ledger.note((key for key in expired if key.startswith("r:")), EXPIRED)
    return len(expired)


def _enqueue(watch: "Watch", rows: UpdateRows, todo: UpdatePlan, at: float) -> None:
    """Put drawn rows at the end of the queue."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    if not tests:
        return
    drawn, new, groups = todo.drawn, todo.new, rows.groups
    counted_groups = groups_that_count(tests)
    if groups is not None and counted_groups is not None:
        names, codes = np.unique(groups, return_inverse=True)
        counts = np.array([name in counted_groups for name in names.tolist()], bool)
        drawn, new = drawn & counts[codes], new & counts[codes]
    if not drawn.any() and (todo.review is None or not new.any()):
        return
    indices = np.flatnonzero(drawn)
    watch.queue.add(
        WaitingBatch(
            at,
            todo.review,
            _rows_per_group(groups, new),
            [todo.keys[row] if todo.keys else "" for row in indices],
            rows.accepted[indices],
            rows.labels[indices].copy(),
            None if groups is None else groups[indices].tolist(),
        )
    )


def groups_that_count(tests: list[RateTest]) -> set[Group] | None:
    """Return the groups whose rows any test counts; None if a test counts all."""
    counted: set[Group] = set()
    for test in tests:
        if test.counted_groups is None:
            return None
        counted |= test.counted_groups
    return counted


def _rows_per_group(groups: Array | None, rows: Array) -> dict[Group, int]:
    if groups is None:
        return {None: int(rows.sum())}
    names, counts = np.unique(groups[rows], return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def release(watch: "Watch") -> None:
    """Count rows whose labels came, in the order of the draw."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    for test in tests:
        test.provisional = None  # its rows are about to be counted for good
    for batch, first, last in watch.queue.release():
        for test in tests:
            batch.count_in(test, first, last)
        batch.started = True
    count_ahead(watch)


def count_ahead(watch: "Watch") -> None:
    """Count rows that wait for labels provisionally, in every test."""
    waiting = list(islice(watch.queue.batches, MOST_BATCHES_AHEAD))
    for test in watch.tests.values():
        test.provisional = None
        if test.needs_labels and waiting:
            test.count_ahead(waiting)


def _raise_alarms(watch: "Watch", at: float) -> tuple[str, ...]:
    """Note which tests alarm now, and why; return their names."""
    alarmed = []
    for name, test in watch.tests.items():
        delayed = test.needs_labels and watch.sampling.delays_alarm(test.target)
        below_limit = test.peak < test.limit
        if test.alarm or below_limit or delayed or watch.untestable(name):
            continue
        test.alarm = Alarm(at, wording.alarm_reason(test), test.blamed())
        alarmed.append(name)
    return tuple(alarmed)


def estimates(watch: "Watch") -> dict[str, RateEstimate]:
    """Return the estimates of all tests; of groups, those with the most evidence."""
    by_name: dict[str, RateEstimate] = {}
    for name, test in watch.tests.items():
        for group in [None] if test.groups is None else test.worst(MOST_GROUPS):
            estimate = test.estimate(group)
            if estimate is not None:
                by_name[name if test.groups is None else f"{name}[{group}]"] = estimate
    return by_name
