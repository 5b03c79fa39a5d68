"""Watches of replicas as one, where the mathematics allows it."""

import math
from itertools import product

import numpy as np
import pytest
from watch.streams import ALL, AUDIT, calibrated, decided, evidence, rows, whole

import trustdoctor as td
from trustdoctor.errors import InputError

GATE = calibrated()


def replica(seed, *, named=True, gate=GATE, **options):
    watch, rng = gate.watch(**options), np.random.default_rng(seed)
    for at in range(3):
        doubts, errors = rows(rng, 50)
        ids = [f"{seed}-{at}-{row}" for row in range(50)] if named else None
        watch.update(doubts, errors, ids=ids)
    return watch


def definite(watch):
    """Return the correct rows that count for good."""
    return sum(part.bet.n for part in watch.tests["frr"].parts.values())


@pytest.mark.parametrize("review", [None, ALL], ids=str)
@pytest.mark.parametrize("named", [True, False])
def test_evidence_is_averaged_and_counts_add_up(named, review):
    a, b = (replica(seed, named=named, review=review) for seed in (1, 2))
    before = whole(a), whole(b)
    both = a + b
    for name, test in both.tests.items():
        ours, theirs = (math.exp(evidence(one)[name]) for one in (a, b))
        assert math.exp(test.evidence) == pytest.approx((ours + theirs) / 2)
        assert test.n == a.tests[name].n + b.tests[name].n
        assert test.counted == a.tests[name].counted + b.tests[name].counted
    assert both.totals.rows == 300
    assert both.totals.labels == 300
    assert len(both.history) == 7
    assert both.records()[-1].what == "merge"
    assert (whole(a), whole(b)) == before
    assert evidence(b + a) == pytest.approx(evidence(both))
    assert "Merged from several watches" in repr(both)
    both.update([0.1], ids=["new"])
    assert whole(a) == before[0]


def test_a_merged_watch_goes_on_and_is_saved(tmp_path):
    both = replica(1) + replica(2)
    for path in (tmp_path / "state.json", tmp_path / "state.db"):
        both.save(path)
        again = td.Watch.load(path, GATE)
        assert whole(again) == whole(both)
    again.update([0.1, 5.0], ids=["1-0-0", "new"])
    assert again.totals.rows == 301  # one of them was counted by a replica
    three = both + replica(3)
    assert three.totals.rows == 450


def test_estimates_begin_anew_in_a_window_of_their_own():
    both = replica(1) + replica(2)
    assert both.tests["frr"].estimate() is None
    both.update(*rows(np.random.default_rng(9), 100))
    assert both.tests["frr"].estimate().window == 2
    assert both.tests["frr"].estimate().n < 100


def test_an_alarm_of_one_stays():
    a, b = replica(1), replica(2)
    a.update(decided([False] * 100), [False] * 100)
    assert a.verdict("frr") == "alarm"
    for both in (a + b, b + a):
        assert both.verdict("frr") == "alarm"
        assert both.tests["frr"].alarm.words == a.tests["frr"].alarm.words


def test_the_peak_is_at_least_half_of_each():
    a, b = replica(1), replica(2)
    a.update(decided([False] * 12), [False] * 12)
    a.update(decided([True] * 300), [False] * 300)
    both = a + b
    assert both.tests["frr"].peak >= a.tests["frr"].peak - math.log(2) - 1e-12


def test_rows_that_wait_go_on_waiting():
    a, b = GATE.watch(review=ALL), GATE.watch(review=ALL)
    a.update(decided([True, False]), ids=["a", "b"], reviewed=[True] * 2, at=10)
    b.update(decided([True, False]), [None, False], ids=["c", "d"],
             reviewed=[True] * 2, at=5)  # fmt: skip
    both = a + b
    assert len(both.queue) == 3
    assert len(a.queue) == 2
    both.label(errors=[False], ids=["a"], at=11)
    assert definite(both) == 0  # c was drawn before
    both.label(errors=[False], ids=["c"], at=11)
    assert definite(both) == 3
    both.label(errors=[False], ids=["b"], at=11)
    assert definite(both) == both.tests["frr"].n == 4
    assert len(a.queue) == 2
    assert len(b.queue) == 1


def test_a_batch_in_the_middle_of_its_labels_is_merged():
    a, b = GATE.watch(review=ALL), GATE.watch(review=ALL)
    names = ["a", "b", "c"]
    a.update(decided([True, False, True]), ids=names, reviewed=[True] * 3, at=10)
    a.label(errors=[False], ids=["a"], at=10)
    b.update(decided([True]), ids=["d"], reviewed=[True], at=5)
    both = a + b
    assert definite(both) == 1
    both.label(errors=[False] * 3, ids=["d", "c", "b"], at=11)
    assert both.tests["frr"].n == 4
    assert not both.queue.batches


def test_merged_evidence_is_still_a_supermartingale():
    """All outcomes of two rows in each replica, and two after: the mean is 1."""
    total = 0.0
    for rejected in product((False, True), repeat=6):
        ours, theirs, later = (np.array(rejected[i : i + 2]) for i in (0, 2, 4))
        a = GATE.watch().update(decided(~ours), [False] * 2)
        b = GATE.watch().update(decided(~theirs), [False] * 2)
        both = (a + b).update(decided(~later), [False] * 2)
        chance = math.prod(0.1 if one else 0.9 for one in rejected)
        total += chance * math.exp(both.tests["frr"].evidence)
    assert total == pytest.approx(1, abs=1e-9)


def test_groups_are_merged_each():
    names = np.array(["a", "b", "c"])
    groups = names[np.random.default_rng(0).integers(0, 3, 3000)]
    gate = calibrated(groups=groups)
    one = gate.watch().update(decided([False, True]), [False] * 2, groups=["a", "b"])
    two = gate.watch().update(decided([False, True]), [False] * 2, groups=["a", "c"])
    both = one + two
    assert set(both.tests["frr"].parts) == {"a", "b", "c"}
    mean = (math.exp(evidence(one)["frr"]) + math.exp(evidence(two)["frr"])) / 2
    assert math.exp(evidence(both)["frr"]) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: replica(2, gate=calibrated(trr=0.8)), "watches of one gate"),
        (lambda: replica(2, level=0.2), "watches with the same level"),
        (lambda: replica(2, window=50), "watches with the same window"),
        (lambda: replica(2, label_noise=0.1), "watches with the same label_noise"),
        (lambda: replica(2, deadline=50), "watches with the same deadline"),
        (lambda: replica(2, review=AUDIT), "review"),
        (lambda: replica(1), "both watches counted the row '1-0-0'"),
    ],
    ids=["gate", "level", "window", "noise", "deadline", "review", "rows"],
)
def test_what_cannot_be_merged_is_refused(other, match):
    watch = replica(1)
    before = whole(watch)
    with pytest.raises(InputError, match=match):
        watch + other()
    assert whole(watch) == before


def test_a_batch_that_both_counted_is_refused():
    a, b = (GATE.watch().update([0.1], batch="monday") for _ in range(2))
    with pytest.raises(InputError, match="both watches counted the batch 'monday'"):
        a + b


def test_a_common_past_is_refused(tmp_path):
    first = replica(1, named=False)
    first.save(tmp_path / "state.json")
    one, two = (td.Watch.load(tmp_path / "state.json", GATE) for _ in range(2))
    one.update([0.1])
    match = "both watches go on from one earlier state"
    for ours, theirs in ((one, two), (first, first), (first + replica(2), one)):
        with pytest.raises(InputError, match=match):
            ours + theirs


def test_only_watches_are_added():
    with pytest.raises(TypeError):
        replica(1) + 1


def test_states_in_databases_are_merged(tmp_path):
    watches = []
    for seed in (1, 2):
        with td.Watch.open(tmp_path / f"{seed}.db", GATE) as watch:
            watch.update([0.1, 5.0], [False, True], ids=[f"{seed}a", f"{seed}b"])
        watches.append(watch)
    loaded = [td.Watch.load(tmp_path / f"{seed}.db", GATE) for seed in (1, 2)]
    for one, two in (watches, loaded, (watches[0], loaded[1])):
        assert (one + two).totals.rows == 4
    with pytest.raises(InputError, match="both watches"):
        watches[0] + loaded[0]
