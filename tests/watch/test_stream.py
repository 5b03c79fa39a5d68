"""Rows followed in any chunks are rows counted one at a time."""

import json
import math

import numpy as np
import pytest
from msgspec.structs import asdict
from watch.streams import AUDIT, calibrated, decided, rows

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.watch import (
    CORRECT,
    UNDECIDED,
    WRONG,
    Review,
    StreamLabels,
    StreamRows,
    follow,
    from_state,
    to_state,
)
from trustdoctor.watch.queue import WAITING, WaitingStream

NAMES = np.array(["north", "south", "east", "west"])
GROUPS = NAMES[np.random.default_rng(7).integers(0, 4, 3000)]
GATES = {
    "frr": calibrated(frr=0.1),
    "trr": calibrated(trr=0.8),
    "risk": calibrated(risk=0.05),
    "joint": calibrated(joint=0.04),
    "frr by group": calibrated(frr=0.1, groups=GROUPS),
    "joint by group": calibrated(joint=0.04, groups=GROUPS),
    "frr on average": td.calibrate_scores(
        *rows(np.random.default_rng(7), 3000),
        frr=0.1,
        mode="expectation",
        groups=GROUPS,
    ),
}
DEADLINE = 100.0
REVIEWS = [Review(**AUDIT), Review(1.0, 0.5), Review(1.0, 0.0)]


class Stream:
    """Rows, draws and labels of some calls, for one gate."""

    def __init__(self, gate, seed, calls=6, most=12, outside="else"):
        self.gate, self.rng = gate, np.random.default_rng(seed)
        self.names = [*NAMES, outside]
        self.key, self.wrong, self.time, self.since = 0, {}, 1000.0, {}
        self.calls = [self.call(most) for _ in range(calls)]

    def arrived(self, n):
        rng, review = self.rng, REVIEWS[int(self.rng.integers(len(REVIEWS)))]
        accepted = rng.random(n) < 0.7
        rates = np.where(accepted, review.accepted, review.rejected)
        drawn = rng.random(n) < rates
        keys = self.key + 1 + np.flatnonzero(drawn)
        self.key += n
        self.wrong |= {k: int(rng.random() < 0.4) for k in keys.tolist()}
        self.since |= dict.fromkeys(keys.tolist(), self.time)
        groups = rng.choice(self.names, n) if self.gate.groups else None
        return StreamRows(accepted, drawn, keys, review, groups)

    def call(self, most):
        """Return rows, labels of some that came by now in any order, and the time."""
        self.time += 30
        arrivals = [self.arrived(int(n)) for n in self.rng.integers(1, most, 2)]
        waiting_keys = [
            key for key in self.wrong if self.time - self.since[key] < DEADLINE
        ]
        shuffled = self.rng.permutation(waiting_keys)
        keys = shuffled[: int(self.rng.integers(0, len(shuffled) + 1))].tolist()
        labels = [self.wrong.pop(key) for key in keys]
        labels = [UNDECIDED if self.rng.random() < 0.1 else label for label in labels]
        return arrivals, StreamLabels(keys, labels), self.time


def split(stream_rows, at):
    """Return the rows before and from `at`."""
    out = []
    for side in (slice(None, at), slice(at, None)):
        drawn = stream_rows.drawn[side]
        start = int(stream_rows.drawn[:at].sum()) if side.start else 0
        keys = stream_rows.keys[start : start + int(drawn.sum())]
        groups = None if stream_rows.groups is None else stream_rows.groups[side]
        out.append(
            StreamRows(
                stream_rows.accepted[side], drawn, keys, stream_rows.review, groups
            )
        )
    return out


def one_by_one(watch, arrivals, stream_labels, at, labels=None):
    """Count rows as updates; the errors are known at once where `labels` has them."""
    for arrival in arrivals:
        keys = iter(arrival.keys)
        for row, accepted in enumerate(arrival.accepted):
            drawn = bool(arrival.drawn[row])
            key = int(next(keys)) if drawn else None
            watch.update(
                decided([accepted]),
                None if labels is None or not drawn else [labels[key]],
                ids=[key] if drawn else None,
                groups=None if arrival.groups is None else [arrival.groups[row]],
                reviewed=[drawn],
                review=arrival.review,
                at=at,
            )
    for key, label in zip(stream_labels.keys, stream_labels.labels, strict=True):
        if f"r:{key}" in watch.queue:
            mute = label == UNDECIDED
            error = [None if mute else label]
            watch.label(errors=error, undecided=[mute], ids=[key], at=at)
    return watch


def waiting(watch):
    """Return the rows that wait or come later: key, time, decision and label."""
    out = []
    for batch in watch.queue.batches:
        keys = [str(key).removeprefix("r:") for key in batch.keys]
        times = (
            batch.times
            if isinstance(batch, WaitingStream)
            else [batch.time] * len(keys)
        )
        rows = zip(keys, times, batch.accepted, batch.labels, strict=True)
        out += list(rows)[batch.n_counted :]
    return [row for row in out if row[0]]


def bets(group_bets):
    """Return the exact and the rounded quantities of each group."""
    exact, close = {}, {}
    for group, settled in sorted(group_bets.items(), key=str):
        bet = settled.bet
        exact[group] = (
            bet.n,
            bet.counted,
            bet.starts,
            bet.unstaked,
            settled.window,
            settled.review,
        )
        close[group] = [*bet.log_sums[bet.sides].ravel(), bet.peak, bet.evidence]
    return exact, close


def require_same_bets(our_groups, their_groups, *, windows=True):
    ours, theirs = bets(our_groups), bets(their_groups)
    if windows:
        assert ours[0] == theirs[0]
    for group, values in ours[1].items():
        assert values == pytest.approx(theirs[1][group], rel=1e-9, abs=1e-9)


def require_same(ours, theirs):
    for name, test in ours.tests.items():
        other = theirs.tests[name]
        # Without labels followed rows have longer windows.
        require_same_bets(test.current, other.current, windows=test.needs_labels)
        assert test.evidence == pytest.approx(other.evidence, rel=1e-9, abs=1e-9)
        # While a row waits, `settled` may be one start behind.
        if test.needs_labels and not len(ours.queue):
            assert test.estimate() == pytest.approx(other.estimate(), abs=1e-12)
    assert waiting(ours) == waiting(theirs)
    assert len(ours.queue) == len(theirs.queue)
    assert ours.queue.oldest == theirs.queue.oldest
    for side in ("accepted", "rejected"):
        our_side, their_side = (
            asdict(getattr(w.sampling, side)) for w in (ours, theirs)
        )
        assert our_side == pytest.approx(their_side, rel=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("seed", range(3))
def test_rows_in_any_chunks_are_rows_one_at_a_time(name, seed):
    """Review rates change, labels come in any order or never, windows end."""
    gate, rng = GATES[name], np.random.default_rng(seed)
    at_once, cut, slow = (gate.watch(window=5, deadline=DEADLINE) for _ in range(3))
    stream = Stream(gate, seed)
    for arrivals, stream_labels, at in stream.calls:
        follow(at_once, arrivals, stream_labels, at)
        for arrival in arrivals:
            for chunk in split(arrival, int(rng.integers(len(arrival.accepted) + 1))):
                follow(cut, [chunk], StreamLabels(), at)
        follow(cut, [], stream_labels, at)
        one_by_one(slow, arrivals, stream_labels, at)
        for fast in (at_once, cut):
            require_same(fast, slow)
            for count in ("rows", "accepted", "labels", "unresolved"):
                assert getattr(fast.totals, count) == getattr(slow.totals, count)
    last = [stream.arrived(1)], StreamLabels(), stream.time + 200
    require_same_after(at_once, slow, last)


def require_same_after(ours, theirs, last):
    """Give up on all that waits: then nothing is looked ahead at."""
    follow(ours, *last)
    one_by_one(theirs, *last)
    require_same(ours, theirs)
    key = last[0][0].keys
    if len(key):
        stream_labels = StreamLabels(key, [CORRECT])
        follow(ours, [], stream_labels, last[2])
        one_by_one(theirs, [], stream_labels, last[2])
    assert not ours.queue.batches
    for name, test in ours.tests.items():
        require_same_bets(
            test.settled, theirs.tests[name].settled, windows=test.needs_labels
        )


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sampled(3)
def test_labels_that_come_at_once_give_the_same_peaks(name, seed):
    """Of groups the mean is looked at after every row of any group."""
    gate = GATES[name]
    fast, slow = gate.watch(window=50), gate.watch(window=50)
    stream = Stream(gate, seed, calls=0)
    for at in range(1, 4):
        arrivals = [stream.arrived(25) for _ in range(2)]
        stream_labels = StreamLabels(list(stream.wrong), list(stream.wrong.values()))
        follow(fast, arrivals, stream_labels, at)
        one_by_one(slow, arrivals, StreamLabels(), at, stream.wrong)
        stream.wrong = {}
    require_same(fast, slow)
    for key, test in fast.tests.items():
        other = slow.tests[key]
        require_same_bets(test.settled, other.settled, windows=test.needs_labels)
        assert test.peak == pytest.approx(other.peak, rel=1e-9, abs=1e-9)


def state(watch):
    return json.loads(to_state(watch))


@pytest.mark.parametrize("name", GATES)
def test_the_same_calls_give_the_same_bits_and_so_does_a_state(name):
    gate = GATES[name]
    once, twice, stored = (gate.watch(deadline=DEADLINE) for _ in range(3))
    for arrivals, stream_labels, at in Stream(gate, 3, calls=8).calls:
        entries = [
            follow(watch, arrivals, stream_labels, at)
            for watch in (once, twice, stored)
        ]
        assert entries[0] == entries[1] == entries[2]
        stored = from_state(to_state(stored), gate)
        assert not stored.entries
        assert state(once) == state(twice) == state(stored)
        for key, test in once.tests.items():
            assert test.evidence == stored.tests[key].evidence
    assert any(run.started for run in once.queue.streams)


def test_a_followed_watch_is_saved_and_continues(tmp_path):
    gate = GATES["joint"]
    watch = gate.watch(deadline=None)
    for call in Stream(gate, 1).calls:
        follow(watch, *call)
    for name in ("state.json", "state.db"):
        watch.save(tmp_path / name)
        loaded = td.Watch.load(tmp_path / name, gate)
        assert state(loaded) == state(watch)
        assert loaded.records() == watch.records()
    waiting = loaded.queue.positions
    assert len(loaded.queue) == len(waiting) > 0
    follow(loaded, [], StreamLabels(waiting, [WRONG] * len(waiting)), 6000.0)
    assert len(loaded.queue) == 0
    assert len(watch.queue) > 0


def test_updates_and_followed_rows_wait_in_one_queue():
    gate = GATES["risk"]
    watch, review = gate.watch(review=AUDIT), Review(**AUDIT)
    watch.update(decided([True]), ids=["a"], reviewed=[True], at=1.0)
    follow(
        watch,
        [StreamRows([True], [True], [7], review)],
        StreamLabels([7], [WRONG]),
        2.0,
    )
    watch.update(decided([True]), [True], ids=["b"], reviewed=[True], at=3.0)
    assert not watch.tests["risk"].settled[None].bet.n
    watch.label(errors=[True], ids=["a"], at=4.0)
    assert (watch.tests["risk"].n, watch.tests["risk"].counted) == (3, 3)
    assert not watch.queue.batches


def test_the_first_label_counts_and_others_are_ignored():
    gate, review = GATES["risk"], Review(**AUDIT)
    watch = gate.watch(review=review)
    stream_rows = StreamRows([True, True], [True, True], ["5", "9"], review)
    entry = follow(
        watch,
        [stream_rows],
        StreamLabels(["5", "5", "77"], [WRONG, CORRECT, WRONG]),
        1.0,
    )
    assert (entry.labels, entry.waiting, entry.rows) == (1, 1, 2)
    entry = follow(
        watch, [], StreamLabels([5, 9, 9], [CORRECT, UNDECIDED, CORRECT]), 2.0
    )
    assert (entry.kind, entry.labels, entry.unresolved, entry.waiting) == (
        "labels",
        0,
        1,
        0,
    )
    test = watch.tests["risk"]
    assert (test.n, test.counted) == (2, 1)
    assert watch.totals.labels == 1


def test_a_label_that_comes_with_the_deadline_counts():
    watch, review = GATES["risk"].watch(deadline=10), Review(**AUDIT)
    follow(
        watch,
        [StreamRows([True] * 3, [True] * 3, [1, 2, 3], review)],
        StreamLabels(),
        1.0,
    )
    entry = follow(watch, [], StreamLabels([1], [WRONG]), 20.0)
    assert (entry.labels, entry.unresolved, entry.waiting) == (1, 2, 0)
    assert watch.tests["risk"].counted == 1


def test_an_idle_gate_counts_rows():
    gate = td.calibrate_scores(*rows(np.random.default_rng(7), 20), risk=0.001)
    watch, review = gate.watch(), Review(**AUDIT)
    assert not watch.tests
    entry = follow(
        watch, [StreamRows([False], [True], [1], review)], StreamLabels([1], [0]), 1.0
    )
    assert (entry.rows, entry.accepted, entry.waiting) == (1, 0, 0)
    assert not from_state(to_state(watch), gate).tests


def test_rows_that_are_not_drawn_cost_nothing_while_they_wait():
    gate, review, n = GATES["joint"], Review(1.0, 0.02), 50_000
    watch, rng = gate.watch(), np.random.default_rng(0)
    accepted = rng.random(n) < 0.95
    drawn = ~accepted | (rng.random(n) < 0.02)
    keys = 1 + np.flatnonzero(drawn)
    follow(watch, [StreamRows(accepted, drawn, keys, review)], StreamLabels(), 1.0)
    (run,) = watch.queue.streams
    arrays = (run.indices, run.keys, run.times, run.accepted, run.labels)
    assert sum(array.nbytes for array in arrays) == 22 * len(keys)
    assert len(to_state(watch)) < 30 * len(keys)
    test = watch.tests["joint"]
    assert test.n - test.settled[None].bet.n == 20_000
    follow(watch, [], StreamLabels(keys, np.zeros(len(keys), int)), 2.0)
    assert watch.tests["joint"].settled[None].bet.n == n


def test_many_small_calls_wait_in_few_runs():
    watch, review = GATES["frr"].watch(), Review(1.0, 1.0)
    for key in range(300):
        follow(
            watch,
            [StreamRows([True], [True], [key], review)],
            StreamLabels(),
            1.0 + key,
        )
    assert len(watch.queue.streams) == 1
    assert watch.queue.oldest == 1.0
    follow(watch, [], StreamLabels(range(100), [CORRECT] * 100), 400.0)
    assert watch.queue.oldest == 101.0
    assert len(watch.queue) == 200


REVIEW = Review(**AUDIT)


@pytest.mark.parametrize(
    ("arrivals", "stream_labels", "match"),
    [
        ([StreamRows([True], [True], [], REVIEW)], StreamLabels(), "expected 1 keys"),
        ([StreamRows([True], [False], [1], REVIEW)], StreamLabels(), "expected 0 keys"),
        (
            [StreamRows([True], [True, False], [1], REVIEW)],
            StreamLabels(),
            "drawn as 1 entries",
        ),
        (
            [StreamRows([[True]], [True], [1], REVIEW)],
            StreamLabels(),
            "accepted as 1 entries",
        ),
        (
            [StreamRows([0.5], [True], [1], REVIEW)],
            StreamLabels(),
            "accepted as 1 entries",
        ),
        (
            [StreamRows([True], [True], ["x"], REVIEW)],
            StreamLabels(),
            "positions of rows",
        ),
        (
            [StreamRows([True], [True], [1.5], REVIEW)],
            StreamLabels(),
            "positions of rows",
        ),
        (
            [StreamRows([True], [True], [-1], REVIEW)],
            StreamLabels(),
            "positions of rows",
        ),
        (
            [StreamRows([True], [True], [2**60], REVIEW)],
            StreamLabels(),
            "positions of rows",
        ),
        ([StreamRows([True], [True], [1], AUDIT)], StreamLabels(), "as a Review"),
        ([StreamRows([True], [True], [4], REVIEW)], StreamLabels(), "got 4 after 5"),
        ([StreamRows([1, 1], [1, 1], [9, 9], REVIEW)], StreamLabels(), "got 9 after 9"),
        ([], StreamLabels([5], [3]), "expected 1 labels"),
        ([], StreamLabels([5], [WAITING]), "expected 1 labels"),
        ([], StreamLabels([5], []), "expected 1 labels"),
        ([], StreamLabels([5], [math.nan]), "expected 1 labels"),
    ],
    ids=str,
)
def test_invalid_stream_rows_are_refused_before_anything_counts(
    arrivals, stream_labels, match
):
    watch = GATES["risk"].watch(review=REVIEW)
    follow(watch, [StreamRows([True], [True], [5], REVIEW)], StreamLabels(), 1.0)
    before = to_state(watch)
    fine = StreamRows([True], [True], [8], REVIEW)
    with pytest.raises(InputError, match=match):
        follow(
            watch,
            [fine, *arrivals] if stream_labels.keys else [*arrivals, fine],
            stream_labels,
            2.0,
        )
    assert to_state(watch) == before
    assert len(watch.entries) == 1


def test_groups_that_cannot_be_are_refused():
    watch = GATES["frr by group"].watch()
    for groups, match in ((None, "pass groups="), ([1], "expected groups like")):
        with pytest.raises(InputError, match=match):
            follow(
                watch,
                [StreamRows([True], [True], [1], REVIEW, groups)],
                StreamLabels(),
                1.0,
            )
    assert not watch.totals.rows


def test_a_state_of_another_gate_or_a_damaged_one_is_refused():
    gate = GATES["joint by group"]
    watch = gate.watch(deadline=None)
    for call in Stream(gate, 0).calls:
        follow(watch, *call)
    text = to_state(watch)
    with pytest.raises(FileError, match="belongs to another gate"):
        from_state(text, GATES["frr"])
    with pytest.raises(FileError, match="as JSON"):
        from_state(text[:-9], gate)
    sound = json.loads(text)
    (at,) = [i for i, run in enumerate(sound["queue"]) if run["started"]]
    run = sound["queue"][at]
    worse = {
        "size": 3,
        "review": None,
        "index_steps": [*run["index_steps"][:-1], 10**6],
        "key_steps": [0, *run["key_steps"][1:]],
        "times": [*run["times"], [5.0, 1]],
        "accepted": [2, *run["accepted"][1:]],
        "labels": run["labels"][:-1],
        "group_names": [*run["group_names"], run["group_names"][0]],
        "group_codes": [99, *run["group_codes"][1:]],
        "n_counted": run["n_counted"] + 1,
        "started": False if run["n_counted"] else 0,
    }
    for name, value in worse.items():
        sound["queue"][at] = run | {name: value}
        with pytest.raises(FileError, match="was changed or damaged"):
            from_state(json.dumps(sound), gate)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["frr", "risk"])
def test_at_the_edge_of_the_null_it_alarms_at_most_at_its_level(name):
    """300 streams of 4,000 rows, in calls of 500; the labels come a call later."""
    review, rng, alarms = Review(1.0, 0.1), np.random.default_rng(0), 0
    for _ in range(300):
        watch = GATES[name].watch(level=0.1, review=review)
        test, late_labels = watch.tests[name], StreamLabels()
        for call in range(8):
            wrong = rng.random(500) < (0.1 if name == "frr" else 0.05)
            accepted = np.ones(500, bool)
            if name == "frr":
                accepted = np.where(
                    wrong, rng.random(500) < 0.5, rng.random(500) >= 0.1
                )
            rates = np.where(accepted, review.accepted, review.rejected)
            drawn = rng.random(500) < rates
            keys = 1 + 500 * call + np.flatnonzero(drawn)
            stream_rows = StreamRows(accepted, drawn, keys, review)
            follow(watch, [stream_rows], late_labels, 1.0 + call)
            late_labels = StreamLabels(keys, wrong[drawn].astype(int))
        alarms += test.peak >= math.log(10)
    assert alarms / 300 <= 0.1


def test_estimates_rest_on_labelled_rows_while_others_wait():
    gate = calibrated(risk=0.3)
    watch = gate.watch(review={"rejected": 1.0, "accepted": 1.0}, window=100)
    accepted = np.ones(300, bool)
    rows = StreamRows(accepted, accepted, np.arange(1, 301), watch.review)
    wrong = (np.arange(150) % 5 == 0).astype(int)
    follow(watch, [rows], StreamLabels(np.arange(1, 151), wrong), 1.0)
    estimate = watch.tests["risk"].estimate()
    assert estimate.n == 50  # the window of 101 to 150
    assert estimate.value == pytest.approx(0.2)
    assert watch.tests["risk"].settled_evidence >= watch.tests["risk"].evidence
