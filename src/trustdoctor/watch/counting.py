"""Counting an update: first a plan, which may refuse it, then the change."""

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.watch import words
from trustdoctor.watch.expectation import Expectation
from trustdoctor.watch.given import Rows
from trustdoctor.watch.ledger import DONE, DRAWN, GONE, OPEN, PASSED
from trustdoctor.watch.queue import UNSAID, WAITING, Batch
from trustdoctor.watch.rate_tests import FR, TA, Alarm, Cells, Group, RateTest, Seen
from trustdoctor.watch.records import Entry
from trustdoctor.watch.reference import Sums
from trustdoctor.watch.review import Review

if TYPE_CHECKING:
    from trustdoctor.watch.watching import Watch

MOST_GROUPS = 20
"""Groups whose estimates a record keeps: those with the largest evidence."""

MOST_AHEAD = 200
"""Batches that are looked ahead at: the first ones that wait."""

_NEW, _AGAIN = -1, -2  # of a row: it never came; its id stands twice in the batch


@dataclass
class Plan:
    """What is to be done with each row of an update.

    Attributes
    ----------
    what, batch : str
        As in `Entry`.
    review : Review or None
        The rates at which its rows were drawn.
    fresh : bool array (n,)
        Rows that were never counted.
    drawn : bool array (n,)
        Rows that are drawn now.
    keys : list of str
        What the rows are called; empty where there are no names.
    settled : bool array (n,)
        Rows drawn before whose labels came.
    late : bool array (n,)
        Rows counted before, of which some are drawn only now, as their labels come.
    repeated, undrawn : int
        As in `Entry`.
    notes : dict of int to list of str
        What becomes of rows and batches, for the ledger.
    sums : Sums or None
        What the model expects of the rows, where there is a reference.
    """

    what: str
    batch: str
    review: Review | None
    fresh: Array
    drawn: Array
    settled: Array
    late: Array
    keys: list[str] = field(default_factory=list)
    repeated: int = 0
    undrawn: int = 0
    notes: dict[int, list[str]] = field(default_factory=dict)
    sums: Sums | None = None


def require_open(watch: "Watch") -> None:
    """Refuse a watch that lives in a file and was closed."""
    if watch.closed:
        message = "this watch was saved and closed; open it again to count rows."
        raise InputError(message)


def plan(
    watch: "Watch", given: Rows, batch: str, review: Review | None, *, late: bool
) -> Plan:
    """Decide what each row counts for, or refuse the update."""
    none = np.zeros(len(given), bool)
    out = Plan("labels" if late else "update", batch, review, none, none, none, none)
    if given.keys is not None:
        _plan_named(watch, given, out, late=late)
    elif batch:
        _plan_batch(watch, given, out, late=late)
    else:
        _plan_nameless(given, out, late=late)
    _require_names(given, out)
    if (out.drawn | out.settled).any() and not out.fresh.any():
        out.what = "labels"
    if watch.reference is not None and given.predictions is not None:
        rows = out.fresh if not late else out.drawn | out.settled
        own = watch.reference.count(given.predictions[rows], given.accepted[rows])
        out.sums = own.labels() if late else own
    return out


def _plan_named(watch: "Watch", given: Rows, out: Plan, *, late: bool) -> None:
    """Each row counts once per id."""
    assert given.keys is not None
    out.keys = [f"r:{key}" for key in given.keys]
    status = _statuses(watch, out.keys)
    if (status == _AGAIN).sum() > len(status) / 2:
        message = (
            f"expected ids that tell rows apart, got {len(set(out.keys)):,} for "
            f"{len(status):,} rows. Name others, or leave them out."
        )
        raise InputError(message)
    labelled, new = given.known != WAITING, status == _NEW
    if late and new.any():
        row = int(new.argmax())
        message = (
            f"the label of row {given.keys[row]!r} came, and the row was never "
            "counted. Count it first, by update or by check without --late."
        )
        raise InputError(message)
    _refuse_late_draw(given, status)
    unasked = out.review is None and given.reviewed is None
    opened = (status == OPEN) & labelled & unasked
    if opened.any() and not given.decided:
        row = int(opened.argmax())
        message = (
            f"row {given.keys[row]!r} was not drawn for review, so its label alone "
            "does not say how the gate decided. Pass the rows, too."
        )
        raise InputError(message)
    out.fresh, out.drawn = new, opened | (new & _reviewed(given))
    out.late = (status == OPEN) & unasked
    out.settled = (status == DRAWN) & labelled
    again = (status == DONE) | (status == _AGAIN)
    out.repeated = int((again & labelled if late else ~new).sum())
    lost = new | (status == PASSED) | (status == GONE) | ((status == OPEN) & ~opened)
    out.undrawn = int((lost & labelled & ~out.drawn).sum())
    _note(out, DONE, (out.drawn & labelled) | out.settled)
    _note(out, DRAWN, out.drawn & ~labelled)
    _note(out, OPEN if unasked else PASSED, new & ~out.drawn)


def _refuse_late_draw(given: Rows, status: Array) -> None:
    """Refuse rows that are drawn only after they were counted."""
    if given.reviewed is None or given.keys is None:
        return
    odd = given.reviewed & ((status == OPEN) | (status == PASSED))
    if odd.any():
        message = (
            f"row {given.keys[int(odd.argmax())]!r} is drawn for review, and was "
            "counted before without being drawn, so its label would not count. Draw "
            "rows when they are counted first."
        )
        raise InputError(message)


def _statuses(watch: "Watch", keys: list[str]) -> Array:
    """Return what became of each row before; of an id that stands twice, the first."""
    found = watch.ledger.find(keys)
    status = np.array([_NEW if one is None else one for one in found], int)
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    status[[first[key] != row for row, key in enumerate(keys)]] = _AGAIN
    return status


def _note(out: Plan, status: int, rows: Array) -> None:
    out.notes[status] = [out.keys[row] for row in np.flatnonzero(rows)]


def _plan_batch(watch: "Watch", given: Rows, out: Plan, *, late: bool) -> None:
    """Count a batch without ids once; its rows are known by their order."""
    rows, labelled = f"b:{out.batch}", given.known != WAITING
    labels = f"l:{out.batch}"
    known, counted = watch.ledger.find([rows, labels])
    out.keys = [f"p:{out.batch}\0{row}" for row in range(len(given))]
    out.settled = np.array([key in watch.queue for key in out.keys], bool) & labelled
    if late and known is None:
        message = (
            f"labels of the batch {out.batch!r} came, and it was never counted. Count "
            "it first, by update or by check without --late."
        )
        raise InputError(message)
    if late and counted is None:
        if out.review is not None or not given.decided:
            message = (
                f"the rows of the batch {out.batch!r} that were drawn for review are "
                "not known. Pass reviewed= with update, and the labels later."
            )
            raise InputError(message)
        out.drawn, out.late = labelled, np.ones(len(given), bool)
        out.notes[DONE] = [labels]
    elif late or known is not None:
        out.repeated = len(given) - int(out.settled.sum()) * late
    else:
        out.fresh, out.drawn = np.ones(len(given), bool), _reviewed(given)
        told = given.reviewed is not None or bool(out.drawn.any())
        out.undrawn = int((labelled & ~out.drawn).sum())
        out.notes[DONE] = [rows, *([labels] if told else [])]


def _plan_nameless(given: Rows, out: Plan, *, late: bool) -> None:
    """Rows without names count each time."""
    labelled = given.known != WAITING
    if late and out.review is not None:
        message = (
            "with known review rates late labels belong to rows that were drawn. Name "
            "the rows, here and where they were drawn: ids= with reviewed=; on the "
            "command line --ids NAME with --draw or --reviewed."
        )
        raise InputError(message)
    if late:
        out.drawn, out.late = labelled, np.ones(len(given), bool)
        return
    out.fresh, out.drawn = np.ones(len(given), bool), _reviewed(given)
    out.undrawn = int((labelled & ~out.drawn).sum())


def _reviewed(given: Rows) -> Array:
    return given.known != WAITING if given.reviewed is None else given.reviewed


def _require_names(given: Rows, out: Plan) -> None:
    if out.keys or not (out.drawn & (given.known == WAITING)).any():
        return
    message = (
        "rows were drawn for review, and their labels come later: pass ids= or batch=, "
        "so that the labels find them."
    )
    raise InputError(message)


def carry_out(watch: "Watch", given: Rows, todo: Plan, at: float) -> None:
    """Count what was planned; nothing of it fails."""
    rows, kept = int(todo.fresh.sum()), int(given.accepted[todo.fresh].sum())
    _count_traffic(watch, given, todo)
    for kind, keys in todo.notes.items():
        watch.ledger.note(keys, kind)
    expired = expire(watch, at)
    settled = _settle(watch, given, todo)
    arrived = [*given.known[todo.drawn].tolist(), *settled]
    _draw(watch, given, todo, at)
    release(watch)
    unsaid = arrived.count(UNSAID)
    entry = Entry(
        at,
        todo.what,
        todo.batch,
        rows,
        kept,
        todo.repeated,
        len(arrived) - arrived.count(WAITING) - unsaid,
        expired + unsaid,
        undrawn=todo.undrawn + int(todo.settled.sum()) - len(settled),
        expected=_expected(watch, todo),
    )
    record(watch, entry)
    if todo.sums is not None:
        watch.sums += todo.sums


def record(watch: "Watch", entry: Entry) -> Entry:
    """Add a record to the history, with how every test stands now."""
    whole = replace(
        entry,
        waiting=len(watch.queue),
        evidence={name: test.evidence for name, test in watch.tests.items()},
        estimates=estimates(watch),
        alarms=_alarms(watch, entry.time),
    )
    watch.entries.append(whole)
    watch.totals = watch.totals.add(whole)
    return whole


def _settle(watch: "Watch", given: Rows, todo: Plan) -> list[int]:
    """Take labels of rows that were drawn before, and return them."""
    out = []
    for row in np.flatnonzero(todo.settled):
        if todo.keys[row] in watch.queue:  # it may be too late
            out.append(int(given.known[row]))
            watch.queue.settle(todo.keys[row], out[-1])
    return out


def _expected(watch: "Watch", todo: Plan) -> dict[str, tuple[float, float, float]]:
    """Return what the model expects of the rows of one update."""
    if watch.reference is None or todo.sums is None:
        return {}
    own = Expectation(watch.reference, todo.sums)
    rates = {"accuracy": own.accuracy, "risk": own.risk}
    return {
        name: (rate.value, rate.low, rate.high)
        for name, rate in rates.items()
        if rate is not None
        and not (rate.value is None or rate.low is None or rate.high is None)
    }


def _count_traffic(watch: "Watch", given: Rows, todo: Plan) -> None:
    """Count decisions and draws, and test what needs no labels."""
    fresh, drawn, accepted = todo.fresh, todo.drawn, given.accepted
    watch.sampling = watch.sampling.add(
        todo.review,
        int(fresh.sum()),
        int(accepted[fresh].sum()),
        int(drawn.sum()),
        int(accepted[drawn].sum()),
        late=bool((drawn & ~fresh).any()),
    )
    if given.doubts is not None:
        for rows, together in ((fresh, True), (todo.late, False)):
            watch.sampling = watch.sampling.compare(
                todo.review,
                given.doubts[rows],
                accepted[rows],
                drawn[rows],
                together=together,
            )
    if not fresh.any():
        return
    cells = _decisions(given, fresh)
    for test in watch.tests.values():
        if not test.needs_labels:
            test.begin(cells, None)
            test.count(cells, None)


def _decisions(given: Rows, rows: Array) -> dict[Group, Cells]:
    """Return accepted and rejected rows by group, as if all were correct."""
    if given.groups is None:
        return {None: _cells(given.accepted[rows])}
    own, kept = given.groups[rows], given.accepted[rows]
    return {name: _cells(kept[own == name]) for name in _names(own)}


def _names(groups: Array) -> list[Any]:
    return list(np.unique(groups).tolist())


def _cells(accepted: Array) -> Cells:
    out = np.zeros(6, np.int64)
    out[TA] = accepted.sum()
    out[FR] = len(accepted) - out[TA]
    return out


def expire(watch: "Watch", at: float) -> int:
    """Give up on labels that did not come in time."""
    if watch.deadline is None:
        return 0
    late = watch.queue.expire(at - watch.deadline)
    watch.ledger.note((key for key in late if key.startswith("r:")), GONE)
    return len(late)


def _draw(watch: "Watch", given: Rows, todo: Plan, at: float) -> None:
    """Put rows that were drawn behind those that wait."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    if not tests:
        return
    drawn, fresh = todo.drawn, todo.fresh
    own = given.groups
    kept = promised(tests)
    if own is not None and kept is not None:
        names, place = np.unique(own, return_inverse=True)
        inside = np.array([name in kept for name in names.tolist()], bool)[place]
        drawn, fresh = drawn & inside, fresh & inside
    if not drawn.any() and (todo.review is None or not fresh.any()):
        return
    rows = np.flatnonzero(drawn)
    watch.queue.add(
        Batch(
            at,
            todo.review,
            _totals(own, fresh),
            [todo.keys[row] if todo.keys else "" for row in rows],
            given.accepted[rows],
            given.known[rows].copy(),
            None if own is None else own[rows].tolist(),
        )
    )


def promised(tests: list[RateTest]) -> set[Group] | None:
    """Return the groups whose rows any test counts; None where all count."""
    only = [test.only for test in tests]
    return None if None in only else set[Group]().union(*(one or () for one in only))


def _totals(groups: Array | None, rows: Array) -> dict[Group, int]:
    if groups is None:
        return {None: int(rows.sum())}
    names, counts = np.unique(groups[rows], return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def release(watch: "Watch") -> None:
    """Count rows whose labels came, in the order of the draw."""
    tests = [test for test in watch.tests.values() if test.needs_labels]
    for test in tests:
        test.ahead = None  # it was a view of rows that count now
    for batch, first, last in watch.queue.release():
        for test in tests:
            batch.tell(test, first, last)
        batch.started = True
    look_ahead(watch)


def look_ahead(watch: "Watch") -> None:
    """Show what the rows that wait for labels say at least."""
    waiting = list(islice(watch.queue.batches, MOST_AHEAD))
    for test in watch.tests.values():
        test.ahead = None
        if test.needs_labels and waiting:
            test.look_ahead(waiting)


def _alarms(watch: "Watch", at: float) -> tuple[str, ...]:
    """Note which tests alarm now, and why."""
    new = []
    for name, test in watch.tests.items():
        waits = test.needs_labels and watch.sampling.hesitates(test.target)
        if test.alarm or test.peak < test.limit or waits or watch.blind(name):
            continue
        test.alarm = Alarm(at, words.why(test), test.blamed())
        new.append(name)
    return tuple(new)


def estimates(watch: "Watch") -> dict[str, Seen]:
    """Return the estimates of all tests; of groups those with the most evidence."""
    out: dict[str, Seen] = {}
    for name, test in watch.tests.items():
        for group in [None] if test.groups is None else test.worst(MOST_GROUPS):
            seen = test.estimate(group)
            if seen is not None:
                out[name if test.groups is None else f"{name}[{group}]"] = seen
    return out
