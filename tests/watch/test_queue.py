"""Late labels: in the order of the draw, given up after a deadline, by any pattern."""

import math
from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch.streams import ALL, AUDIT, TARGETS, calibrated, decided, evidence, rows

from trustdoctor.errors import InputError, LabelsMissingError

DAY = 86400
NAMES = [name for target in TARGETS for name in target]
GATES = {name: calibrated(**target) for target in TARGETS for name in target}
KINDS = {"FR": (False, False), "TR": (False, True), "FA": (True, True),
         "TA": (True, False)}  # fmt: skip
"""Whether a row is accepted, and whether it is wrong."""

STREAMS = st.lists(
    st.lists(st.sampled_from(list(KINDS.values())), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)
REVIEWS = st.sampled_from([None, ALL, {"rejected": 1.0, "accepted": 0.5}])


def drawn(watch, stream, has_label=lambda _: True):
    """Count batches whose rows are all drawn; where not `known`, labels come later."""
    number = 0
    for at, batch in enumerate(stream):
        ids = [f"{number + row}" for row in range(len(batch))]
        accepted, wrong = (np.array(side) for side in zip(*batch, strict=True))
        label = [
            wrong[row] if has_label(number + row) else None for row in range(len(ids))
        ]
        every = np.ones(len(ids), bool)
        watch.update(decided(accepted), label, ids=ids, reviewed=every, at=1 + at)
        number += len(batch)
    return watch


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data(), stream=STREAMS, review=REVIEWS)
@pytest.mark.sampled(2)
def test_late_labels_in_any_order_are_labels_at_once(name, data, stream, review):
    at_once = drawn(GATES[name].watch(review=review), stream)
    late = drawn(GATES[name].watch(review=review), stream, lambda _: False)
    flat = [row for batch in stream for row in batch]
    remaining = data.draw(st.permutations(range(len(flat))))
    while remaining:
        size = data.draw(st.integers(1, len(remaining)))
        chosen, remaining = remaining[:size], remaining[size:]
        labels = [flat[row][1] for row in chosen]
        late.label(errors=labels, ids=list(map(str, chosen)), at=10)
    assert evidence(late) == pytest.approx(evidence(at_once), abs=1e-9)
    for ours, theirs in zip(late.tests.values(), at_once.tests.values(), strict=True):
        assert ours.estimate() == pytest.approx(theirs.estimate(), abs=1e-12)
        assert (ours.n, ours.counted) == (theirs.n, theirs.counted)
        assert ours.peak >= theirs.peak - 1e-9
    assert late.totals.labels == at_once.totals.labels == len(flat)
    assert not late.queue.batches


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(
    stream=STREAMS,
    review=REVIEWS,
    pattern=st.lists(st.sampled_from(["known", "late", "unsaid", "lost"])),
)
def test_any_pattern_of_missing_labels_is_in_the_promises_favour(
    name, stream, review, pattern
):
    """Evidence is at most that of all labels, after every update: it stays valid."""
    fates = dict(enumerate(pattern))
    full, gate = GATES[name].watch(review=review), GATES[name]
    partial = drawn(
        gate.watch(review=review, deadline=100.0),
        stream,
        lambda row: fates.get(row, "known") == "known",
    )
    flat = [row for batch in stream for row in batch]
    for row, (_, wrong) in enumerate(flat):
        if fates.get(row) == "late":
            partial.label(errors=[wrong], ids=[str(row)], at=50)
        elif fates.get(row) == "unsaid":
            partial.label(undecided=[True], ids=[str(row)], at=50)
    partial.update(decided([True]), ids=["last"], reviewed=[False], at=1000)
    drawn(full, stream)
    full.update(decided([True]), ids=["last"], reviewed=[False], at=1000)
    assert partial.tests[name].evidence <= full.tests[name].evidence + 1e-9
    lost = [row for row in range(len(flat)) if fates.get(row) in ("unsaid", "lost")]
    assert partial.totals.unresolved == len(lost)
    assert partial.totals.labels == len(flat) - len(lost)
    ours, theirs = partial.tests[name].estimate(), full.tests[name].estimate()
    if ours and theirs:
        assert ours.low <= theirs.low + 1e-12
        assert ours.high >= theirs.high - 1e-12
    if not lost:
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("name", "bound", "kinds"),
    [
        ("frr", 0.1, {"FR": 0.06, "TR": 0.2, "FA": 0.2, "TA": 0.54}),
        ("trr", 0.8, {"FR": 0.1, "TR": 0.32, "FA": 0.08, "TA": 0.5}),
        ("risk", 0.05, {"FR": 0.1, "TR": 0.1, "FA": 0.04, "TA": 0.76}),
        ("joint", 0.04, {"FR": 0.3, "TR": 0.06, "FA": 0.04, "TA": 0.6}),
    ],
)
def test_at_the_edge_the_mean_evidence_of_all_outcomes_is_1(name, bound, kinds):
    """Every outcome of two batches, whose rows have the promised rate itself."""
    test = GATES[name].watch().tests[name]
    assert bound == (test.low if test.target.at_least else test.high)
    total = 0.0
    for outcome in product(kinds, repeat=3):
        stream = [
            [KINDS[kind] for kind in batch] for batch in (outcome[:2], outcome[2:])
        ]
        watch = drawn(GATES[name].watch(), stream)
        chance = math.prod(kinds[kind] for kind in outcome)
        total += chance * math.exp(watch.tests[name].evidence)
    assert total == pytest.approx(1, abs=1e-9)


FAVOUR = {
    # What a row without a label counts as: (rejected, accepted), each (part, whole).
    "frr": ((0, 0), (0, 1)),
    "trr": ((1, 1), (0, 0)),
    "risk": ((0, 0), (0, 1)),
    "joint": ((0, 1), (0, 1)),
}


@pytest.mark.parametrize("why", ["lost", "cannot say"])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_a_label_counts_as_the_table_says(name, why):
    for accepted, (counted, every) in zip((False, True), FAVOUR[name], strict=True):
        watch = GATES[name].watch(deadline=timedelta(days=1))
        watch.update(decided([accepted]), ids=["a"], reviewed=[True], at=DAY)
        if why == "cannot say":
            watch.label(ids=["a"], undecided=[True], at=DAY + 1)
        else:
            watch.update(decided([True]), ids=["b"], reviewed=[False], at=2 * DAY)
            assert watch.totals.unresolved == 0  # a day has not passed
            watch.update(decided([True]), ids=["c"], reviewed=[False], at=2 * DAY + 1)
        test = watch.tests[name]
        assert (test.counted, test.n) == (counted, every)
        assert watch.totals.unresolved == 1
        assert "got no label" in repr(watch)
        low, high = test.estimate()[1:3] if test.estimate() else (0.0, 1.0)
        assert (low, high) == (0.0, 1.0)  # it may have been either


def definite(watch, name):
    """Return the rows that count for good."""
    return sum(bets.bet.n for bets in watch.tests[name].settled.values())


def test_rows_count_for_good_in_the_order_of_the_draw():
    watch = GATES["frr"].watch(review=ALL)
    watch.update(decided([True] * 2), ids=["a", "b"], reviewed=[True] * 2)
    watch.update(decided([True] * 3), [False] * 3, ids=["c", "d", "e"])
    assert definite(watch, "frr") == 0
    assert len(watch.queue) == 2
    assert "2 rows" in repr(watch)
    watch.label(errors=[False], ids=["b"])
    assert definite(watch, "frr") == 0
    watch.label(errors=[False], ids=["a"])
    assert definite(watch, "frr") == watch.tests["frr"].n == 5
    assert watch.tests["frr"].provisional is None
    assert "without a label" not in repr(watch)


def test_a_waiting_row_does_not_hide_later_evidence():
    """One label never comes; the rows after it alarm all the same."""
    watch = GATES["frr"].watch(review=ALL)
    watch.update(decided([True]), ids=["first"], reviewed=[True])
    watch.update(decided([False] * 60), [False] * 60, ids=range(60))
    assert definite(watch, "frr") == 0
    assert watch.verdict("frr") == "alarm"


@settings(max_examples=40)
@given(
    stream=STREAMS,
    name=st.sampled_from(NAMES),
    review=REVIEWS,
    label_bits=st.integers(0),
)
def test_at_every_look_evidence_is_at_most_that_of_all_labels(
    stream, name, review, label_bits
):
    """So late labels never cause an alarm that all labels would not."""
    partial, full = (GATES[name].watch(review=review) for _ in range(2))
    number, most = 0, 0.0
    for at, batch in enumerate(stream):
        for row in range(1, len(batch) + 1):  # after each row of the draw
            prefix = drawn(
                GATES[name].watch(review=review), [*stream[:at], batch[:row]]
            )
            most = max(most, prefix.tests[name].evidence)
        accepted, wrong = (np.array(side) for side in zip(*batch, strict=True))
        ids = [str(number + row) for row in range(len(batch))]
        every = np.ones(len(ids), bool)
        partial_labels = [
            e if label_bits >> (number + row) & 1 else None
            for row, e in enumerate(wrong)
        ]
        partial.update(
            decided(accepted), partial_labels, ids=ids, reviewed=every, at=1 + at
        )
        full.update(decided(accepted), wrong, ids=ids, reviewed=every, at=1 + at)
        number += len(batch)
        assert partial.tests[name].evidence <= full.tests[name].evidence + 1e-9
        assert partial.tests[name].peak <= most + 1e-9
        ours, theirs = partial.tests[name].estimate(), full.tests[name].estimate()
        if ours and theirs:
            assert ours.low <= theirs.low + 1e-12
            assert ours.high >= theirs.high - 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_while_labels_are_waited_for_nothing_is_claimed(name):
    """No label is known: the interval is all there is, and nothing alarms."""
    accepted = np.random.default_rng(0).random(1000) < 0.8
    watch = GATES[name].watch(review=ALL)
    watch.update(decided(accepted), ids=range(1000), reviewed=np.ones(1000, bool))
    assert watch.verdict(name) != "alarm"
    estimate = watch.tests[name].estimate()
    if estimate is not None:
        assert estimate.low == 0.0
        most = {"frr": 1.0, "trr": 1.0, "risk": 1.0, "joint": 0.8}[name]
        assert estimate.high >= most - 1e-3
    assert watch.tests[name].peak == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_cover_while_labels_come(name):
    """Errors come first; after every label the interval holds the true rate."""
    gate, rng = GATES[name], np.random.default_rng(2)
    doubts, errors = rows(rng, 200_000)
    rate = _rate(name, gate.accept(doubts), errors)
    for _ in range(5):
        watch = gate.watch(review=AUDIT)
        doubts, errors = rows(rng, 400)
        accepted = gate.accept(doubts)
        mask = rng.random(400) < np.where(accepted, 0.2, 1.0)
        watch.update(decided(accepted), ids=range(400), reviewed=mask)
        order = sorted(np.flatnonzero(mask), key=lambda row: not errors[row])
        for batch in np.array_split(order, 8):
            watch.label(errors=errors[batch], ids=batch)
            estimate = watch.tests[name].estimate()
            assert estimate is None or estimate.low <= rate <= estimate.high


def _rate(name, accepted, wrong):
    return {
        "frr": (~accepted[~wrong]).mean(),
        "trr": (~accepted[wrong]).mean(),
        "risk": wrong[accepted].mean(),
        "joint": (accepted & wrong).mean(),
    }[name]


def test_errors_that_come_first_alarm_by_arrival_and_not_in_order():
    """100 rows whose errors are labelled first: 5% of the accepted are wrong."""
    gate, rng = GATES["risk"], np.random.default_rng(0)
    in_order = by_arrival = 0
    for _ in range(20):
        wrong = rng.random(400) < 0.05
        all_accepted, ids = decided(np.ones(400, bool)), np.arange(400)
        first = np.argsort(~wrong, kind="stable")[:100]
        watch = gate.watch(review=ALL)
        watch.update(all_accepted, ids=ids, reviewed=np.ones(400, bool))
        watch.label(errors=wrong[first], ids=ids[first])
        in_order += watch.verdict("risk") == "alarm"
        plain = gate.watch().update(all_accepted, ids=ids)
        first_hundred = decided(np.ones(100, bool))
        plain.label(first_hundred, wrong[first], ids=ids[first])
        by_arrival += plain.verdict("risk") == "alarm"
    assert in_order == 0
    assert by_arrival >= 18


def test_an_expired_label_that_comes_is_not_counted():
    watch = GATES["risk"].watch(review=ALL, deadline=10)
    watch.update(decided([True]), ids=["a"], reviewed=[True], at=100)
    watch.update(decided([True]), ids=["b"], reviewed=[True], at=111)
    assert definite(watch, "risk") == 1
    watch.label(errors=[True], ids=["a"], at=112)
    assert watch.tests["risk"].counted == 0
    assert watch.totals.labels == 0
    assert watch.records()[-1].ignored_labels == 1


def test_without_a_deadline_it_waits_for_ever():
    watch = GATES["risk"].watch(review=ALL, deadline=None)
    watch.update(decided([True]), ids=["a"], reviewed=[True], at=1)
    watch.update(decided([True]), [False], ids=["b"], at=10**10)
    assert definite(watch, "risk") == 0
    assert watch.totals.unresolved == 0
    assert "for ever" in repr(watch) or "no deadline" in repr(watch)
    watch.label(errors=[False], ids=["a"], at=10**10)
    assert definite(watch, "risk") == 2


def test_batches_without_ids_take_labels_in_their_order():
    gate, rng = GATES["frr"], np.random.default_rng(1)
    doubts, errors = rows(rng, 50)
    mask = rng.random(50) < 0.5
    watch = gate.watch(review={"rejected": 0.5, "accepted": 0.5})
    watch.update(doubts, batch="monday", reviewed=mask)
    half = np.where(np.arange(50) < 25, errors.astype(float), np.nan)
    watch.label(errors=half, batch="monday")
    assert len(watch.queue) == mask[25:].sum()
    watch.label(errors=errors, batch="monday")
    assert len(watch.queue) == 0
    at_once = gate.watch(review={"rejected": 0.5, "accepted": 0.5})
    at_once.update(doubts, errors, batch="monday", reviewed=mask)
    assert evidence(watch) == pytest.approx(evidence(at_once), abs=1e-9)
    before = evidence(watch)
    assert evidence(watch.label(errors=errors, batch="monday")) == before
    assert watch.records()[-1].repeated == 50


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"errors": [True]}, InputError, "pass ids=, or batch="),
        ({"ids": ["a"]}, LabelsMissingError, "late labels are missing"),
        ({"ids": ["a"], "errors": [None]}, LabelsMissingError, "are missing"),
        ({"ids": ["x"], "errors": [True]}, InputError, "'x' came"),
        ({"ids": ["b"], "errors": [True]}, InputError, "Pass the rows, too"),
        ({"batch": "x", "errors": [True]}, InputError, "'x' came"),
        ({"ids": ["a"], "errors": [True, False]}, InputError, "expected 2 ids"),
        ({"ids": ["a"], "errors": True}, InputError, "per row"),
        ({"ids": ["a"], "errors": {True}}, InputError, "per row"),
        ({"ids": ["a"], "undecided": True}, InputError, "per row"),
        ({"ids": ["a"], "undecided": [0.5]}, InputError, "expected undecided"),
    ],
    ids=str,
)
def test_late_labels_that_fit_nothing_are_refused(arguments, error, match):
    watch = GATES["frr"].watch()
    watch.update(decided([True, False]), ids=["a", "b"], reviewed=None)
    watch.update(decided([True]), ids=["c"], reviewed=[True])
    with pytest.raises(error, match=match):
        watch.label(**arguments)
    assert watch.totals.updates == 2


def test_labels_of_rows_that_were_not_drawn_are_left_out():
    watch = GATES["frr"].watch(review=AUDIT)
    watch.update(decided([True, False]), ids=["a", "b"], reviewed=[False, True])
    watch.label(errors=[True, False], ids=["a", "b"])
    assert watch.tests["frr"].n == 1
    assert watch.totals.ignored_labels == 1
    assert "1 label left out, of rows that were not drawn" in repr(watch)


@pytest.mark.parametrize("at", [0, -1, math.nan, math.inf, "now", True, 1e12, 1e300])
def test_invalid_times_are_refused(at):
    watch = GATES["frr"].watch()
    with pytest.raises(InputError, match="expected a time"):
        watch.update([0.1], at=at)
    assert watch.totals.rows == 0


@pytest.mark.parametrize("year", [1960, 1970, 9999])
def test_years_that_no_file_contains_are_refused(year):
    watch = GATES["frr"].watch()
    with pytest.raises(InputError, match="expected a time"):
        watch.update([0.1], at=datetime(year, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "deadline", [0, -1, math.nan, math.inf, "30 days", True, 1e200, timedelta.max]
)
def test_invalid_deadlines_are_refused(deadline):
    with pytest.raises(InputError, match="expected a deadline"):
        GATES["frr"].watch(deadline=deadline)


def test_a_label_that_arrives_as_its_row_expires_is_left_out_and_reported():
    watch = GATES["risk"].watch(review=ALL, deadline=10)
    watch.update(decided([True]), ids=["a"], reviewed=[True], at=100)
    watch.label(errors=[True], ids=["a"], at=200)
    entry = watch.records()[-1]
    assert (entry.labels, entry.unresolved, entry.ignored_labels) == (0, 1, 1)
