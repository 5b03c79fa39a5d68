"""An update of a watch: first a plan, which may refuse it, then the change.

`make_plan` decides what each row counts for, or refuses the update; `carry_out` changes
the watch, and nothing of it fails. So a refused update changes nothing.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
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
from trustdoctor.watch.queue import UNDECIDED, WAITING, WaitingBatch
from trustdoctor.watch.rate_tests import (
    FR,
    N_KINDS,
    TA,
    Alarm,
    Group,
    KindCounts,
    RateEstimate,
    RateTest,
)
from trustdoctor.watch.review import Review
from trustdoctor.watch.update_rows import UpdateRows

if TYPE_CHECKING:
    from trustdoctor.watch.watch import Watch

MOST_GROUPS = 20
"""Groups whose estimates an entry keeps: those with the largest evidence."""

MOST_BATCHES_AHEAD = 200
"""Batches that are counted ahead of their labels, at most."""

_NEW, _DUPLICATE = -1, -2  # of a key: not in the ledger; twice in the batch


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


def make_plan(
    watch: "Watch", rows: UpdateRows, batch: str, review: Review | None, *, late: bool
) -> UpdatePlan:
    """Decide what each row counts for, or refuse the update."""
    no_rows = np.zeros(len(rows), bool)
    kind = "labels" if late else "update"
    plan = UpdatePlan(kind, batch, review, no_rows, no_rows, no_rows, no_rows)
    if rows.ids is not None:
        _plan_by_id(watch, rows, rows.ids, plan, late=late)
    elif batch:
        _plan_batch(watch, rows, plan, late=late)
    else:
        _plan_unnamed(rows, plan, late=late)
    _require_names(rows, plan)
    if (plan.drawn | plan.labelled).any() and not plan.new.any():
        plan.kind = "labels"
    if watch.reference is not None and rows.predictions is not None:
        counted = plan.new if not late else plan.drawn | plan.labelled
        sums = watch.reference.count(rows.predictions[counted], rows.accepted[counted])
        plan.sums = sums.labels() if late else sums
    return plan


def _plan_by_id(
    watch: "Watch", rows: UpdateRows, ids: list[str], plan: UpdatePlan, *, late: bool
) -> None:
    """Count each row once per id."""
    plan.keys = [f"r:{row_id}" for row_id in ids]
    status = _find_statuses(watch, plan.keys)
    # A column of classes or dates taken for ids would drop most rows silently.
    if (status == _DUPLICATE).sum() > len(status) / 2:
        message = (
            f"expected a different id for each row, got {len(set(plan.keys)):,} ids "
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
    draws_unknown = plan.review is None and rows.reviewed is None
    drawn_by_label = (status == COUNTED) & has_label & draws_unknown
    if drawn_by_label.any() and not rows.has_decisions:
        message = (
            f"row {ids[int(drawn_by_label.argmax())]!r} was not drawn for review, so "
            "its label alone does not say how the gate decided. Pass the rows, too."
        )
        raise InputError(message)
    plan.new, plan.drawn = is_new, drawn_by_label | (is_new & rows.drawn)
    plan.counted_before = (status == COUNTED) & draws_unknown
    plan.labelled = (status == DRAWN) & has_label
    repeated = (status == SETTLED) | (status == _DUPLICATE)
    plan.repeated = int((repeated & has_label if late else ~is_new).sum())
    not_in_queue = (
        is_new
        | (status == NOT_DRAWN)
        | (status == EXPIRED)
        | ((status == COUNTED) & ~drawn_by_label)
    )
    plan.ignored_labels = int((not_in_queue & has_label & ~plan.drawn).sum())
    plan.set_status(SETTLED, (plan.drawn & has_label) | plan.labelled)
    plan.set_status(DRAWN, plan.drawn & ~has_label)
    plan.set_status(COUNTED if draws_unknown else NOT_DRAWN, is_new & ~plan.drawn)


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
    watch: "Watch", rows: UpdateRows, plan: UpdatePlan, *, late: bool
) -> None:
    """Count a batch without ids once; its rows are identified by their order."""
    rows_key, labels_key = f"b:{plan.batch}", f"l:{plan.batch}"
    rows_status, labels_status = watch.ledger.find([rows_key, labels_key])
    plan.keys = [f"p:{plan.batch}\0{row}" for row in range(len(rows))]
    waiting = np.array([key in watch.queue for key in plan.keys], bool)
    plan.labelled = waiting & rows.has_label
    if late and rows_status is None:
        message = (
            f"labels of the batch {plan.batch!r} came, and it was never counted. Count "
            "it first, by update or by check without --late."
        )
        raise InputError(message)
    if late and labels_status is None:
        if plan.review is not None or not rows.has_decisions:
            message = (
                f"the rows of the batch {plan.batch!r} that were drawn for review are "
                "unknown. Pass reviewed= with update, and the labels later."
            )
            raise InputError(message)
        plan.drawn, plan.counted_before = rows.has_label, np.ones(len(rows), bool)
        plan.statuses[SETTLED] = [labels_key]
    elif late or rows_status is not None:
        plan.repeated = len(rows) - int(plan.labelled.sum()) * late
    else:
        plan.new, plan.drawn = np.ones(len(rows), bool), rows.drawn
        draws_known = rows.reviewed is not None or bool(plan.drawn.any())
        plan.ignored_labels = int((rows.has_label & ~plan.drawn).sum())
        plan.statuses[SETTLED] = [rows_key, *([labels_key] if draws_known else [])]


def _plan_unnamed(rows: UpdateRows, plan: UpdatePlan, *, late: bool) -> None:
    """Count rows without names each time they come."""
    if late and plan.review is not None:
        message = (
            "with known review rates late labels belong to rows that were drawn. Name "
            "the rows, here and where they were drawn: ids= with reviewed=; on the "
            "command line --ids NAME with --draw or --reviewed."
        )
        raise InputError(message)
    if late:
        plan.drawn, plan.counted_before = rows.has_label, np.ones(len(rows), bool)
        return
    plan.new, plan.drawn = np.ones(len(rows), bool), rows.drawn
    plan.ignored_labels = int((rows.has_label & ~plan.drawn).sum())


def _require_names(rows: UpdateRows, plan: UpdatePlan) -> None:
    if plan.keys or not (plan.drawn & ~rows.has_label).any():
        return
    message = (
        "rows were drawn for review, and their labels come later: pass ids= or batch=, "
        "so that the labels can be assigned."
    )
    raise InputError(message)


def carry_out(watch: "Watch", rows: UpdateRows, plan: UpdatePlan, now: float) -> None:
    """Count what was planned; nothing of it fails."""
    # Labels that came after their deadline must not count, whatever update notices
    # it: so rows expire before labels are set.
    _count_traffic(watch, rows, plan)
    for status, keys in plan.statuses.items():
        watch.ledger.note(keys, status)
    expired = expire(watch, now)
    queue_labels = _label_queue(watch, rows, plan)
    all_labels = [*rows.labels[plan.drawn].tolist(), *queue_labels]
    _enqueue(watch, rows, plan, now)
    release(watch)
    undecided = all_labels.count(UNDECIDED)
    entry = HistoryEntry(
        now,
        plan.kind,
        plan.batch,
        int(plan.new.sum()),
        int(rows.accepted[plan.new].sum()),
        plan.repeated,
        len(all_labels) - all_labels.count(WAITING) - undecided,
        expired + undecided,
        # Labels of rows that expired just now are too late.
        ignored_labels=plan.ignored_labels
        + int(plan.labelled.sum())
        - len(queue_labels),
        expected=_expected_rates(watch, plan),
    )
    record(watch, entry)
    if plan.sums is not None:
        watch.confidence_sums += plan.sums


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


def _label_queue(watch: "Watch", rows: UpdateRows, plan: UpdatePlan) -> list[int]:
    """Set labels of rows that were drawn before, and return them."""
    labels = []
    for row in np.flatnonzero(plan.labelled):
        if plan.keys[row] in watch.queue:  # it may have expired
            labels.append(int(rows.labels[row]))
            watch.queue.label(plan.keys[row], labels[-1])
    return labels


def _expected_rates(
    watch: "Watch", plan: UpdatePlan
) -> dict[str, tuple[float, float, float]]:
    """Return what the model expects of the rows of one update."""
    if watch.reference is None or plan.sums is None:
        return {}
    expectation = Expectation(watch.reference, plan.sums)
    rates = {"accuracy": expectation.accuracy, "risk": expectation.risk}
    return {
        name: (rate.value, rate.low, rate.high)
        for name, rate in rates.items()
        if rate is not None
        and not (rate.value is None or rate.low is None or rate.high is None)
    }


def _count_traffic(watch: "Watch", rows: UpdateRows, plan: UpdatePlan) -> None:
    """Count decisions and draws, and test what needs no labels."""
    new, drawn, accepted = plan.new, plan.drawn, rows.accepted
    watch.sampling = watch.sampling.add(
        plan.review,
        int(new.sum()),
        int(accepted[new].sum()),
        int(drawn.sum()),
        int(accepted[drawn].sum()),
        late=bool((drawn & ~new).any()),
    )
    if rows.doubts is not None:
        # Late rows are compared at once: they did not come with those that follow.
        for compared, pool in ((new, True), (plan.counted_before, False)):
            watch.sampling = watch.sampling.compare(
                plan.review,
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


def expire(watch: "Watch", now: float) -> int:
    """Give up labels that did not come in time; return their number."""
    if watch.deadline is None:
        return 0
    expired = watch.queue.expire(now - watch.deadline)
    watch.ledger.note((key for key in expired if key.startswith("r:")), EXPIRED)
    return len(expired)


def _enqueue(watch: "Watch", rows: UpdateRows, plan: UpdatePlan, now: float) -> None:
    """Put drawn rows at the end of the queue."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    if not tests:
        return
    drawn, new, groups = plan.drawn, plan.new, rows.groups
    counted_groups = groups_that_count(tests)
    if groups is not None and counted_groups is not None:
        names, codes = np.unique(groups, return_inverse=True)
        counts = np.array([name in counted_groups for name in names.tolist()], bool)
        drawn, new = drawn & counts[codes], new & counts[codes]
    if not drawn.any() and (plan.review is None or not new.any()):
        return
    indices = np.flatnonzero(drawn)
    watch.queue.add(
        WaitingBatch(
            now,
            plan.review,
            _rows_per_group(groups, new),
            [plan.keys[row] if plan.keys else "" for row in indices],
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
    # While an earlier row waits nothing behind it counts: which rows count, and when
    # their bets start, must not depend on labels (see `queue`).
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


def _raise_alarms(watch: "Watch", now: float) -> tuple[str, ...]:
    """Note which tests alarm now, and why; return their names."""
    alarmed = []
    for name, test in watch.tests.items():
        delayed = test.needs_labels and watch.sampling.delays_alarm(test.target)
        below_limit = test.peak < test.limit
        if test.alarm or below_limit or delayed or watch.untestable(name):
            continue
        test.alarm = Alarm(now, wording.alarm_reason(test), test.alarm_groups())
        alarmed.append(name)
    return tuple(alarmed)


def estimates(watch: "Watch") -> dict[str, RateEstimate]:
    """Return the estimates of all tests; of groups, those with the most evidence."""
    by_name: dict[str, RateEstimate] = {}
    for name, test in watch.tests.items():
        for group in [None] if test.groups is None else test.worst_groups(MOST_GROUPS):
            estimate = test.estimate(group)
            if estimate is not None:
                by_name[name if test.groups is None else f"{name}[{group}]"] = estimate
    return by_name
