"""Groups with separate promises: each is tested, and the alarm names them."""

import math

import numpy as np
import pytest
from watch.streams import ALL, AUDIT, calibrated, decided, evidence, rows

import trustdoctor as td
from trustdoctor.watch import Bet

RNG = np.random.default_rng(7)
NAMES = np.array(["north", "south", "east", "west"])
GROUPS = NAMES[RNG.integers(0, 4, 3000)]
GATE = calibrated(groups=GROUPS)


def batches(watch, groups, frr, seed=0, count=20, n=100):
    """Count correct rows of groups, rejected at these rates."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        row_groups = rng.choice(groups, n)
        rates = np.vectorize(dict(zip(groups, frr, strict=True)).get)(row_groups)
        accepted = rng.random(n) >= rates
        watch.update(decided(accepted), np.zeros(n, bool), groups=row_groups)
    return watch


def test_evidence_is_the_mean_over_all_promised_groups():
    watch = GATE.watch()
    watch.update(decided([False, True]), [False, False], groups=["north", "south"])
    watch.update(decided([False]), [False], groups=["north"])
    test = watch.tests["frr"]
    assert set(test.groups) == set(NAMES)
    assert set(test.settled) == {"north", "south"}  # made as they come
    struck = Bet(0.0, 0.1).add(1, 1).add(1, 1)
    two = Bet(0.0, 0.1).add(1, 0)
    mean = (math.exp(struck.evidence) + math.exp(two.evidence) + 2) / 4
    assert test.evidence == pytest.approx(math.log(mean), abs=1e-12)


def test_one_group_that_breaks_its_promise_is_found_and_named():
    """Pooled, the others hide it."""
    frr = [0.35, 0.03, 0.03, 0.03]
    watch = batches(GATE.watch(), NAMES, frr, count=30)
    assert watch.verdict("frr") == "alarm"
    assert watch.tests["frr"].alarm.groups == ("north",)
    assert "north" in repr(watch)
    pooled = calibrated()
    rng = np.random.default_rng(0)
    plain = pooled.watch()
    for _ in range(30):
        accepted = rng.random(100) >= np.mean(frr)
        plain.update(decided(accepted), np.zeros(100, bool))
    assert plain.verdict("frr") == "holds"


def test_all_groups_that_are_broken_are_named():
    watch = batches(GATE.watch(), NAMES, [0.5, 0.5, 0.02, 0.02], count=30)
    assert set(watch.tests["frr"].alarm.groups) <= {"north", "south"}
    assert {"north", "south"} == set(watch.tests["frr"].alarm_groups())


@pytest.mark.parametrize("review", [None, ALL, AUDIT], ids=str)
def test_at_the_edge_groups_alarm_at_most_at_the_level(review):
    alarms, rng = 0, np.random.default_rng(0)
    for _ in range(40):
        watch = GATE.watch(level=0.4, review=review)
        for _ in range(6):
            row_groups = rng.choice(NAMES, 80)
            accepted = rng.random(80) >= 0.1
            drawn = np.ones(80, bool)
            if review is not None:
                share = np.where(accepted, review["accepted"], review["rejected"])
                drawn = rng.random(80) < share
            label = np.where(drawn, 0.0, np.nan)
            watch.update(decided(accepted), label, groups=row_groups)
        alarms += watch.tests["frr"].peak >= watch.tests["frr"].limit
    assert alarms <= 14  # of 40, at level 0.18: beyond with probability 0.001


def test_rows_of_groups_without_a_promise_do_not_count():
    rng = np.random.default_rng(0)
    doubts, errors = rows(rng, 3000)
    groups = rng.integers(0, 2, 3000)
    groups[:10] = 2  # too few rows for a promise
    gate = td.calibrate_scores(doubts, errors, frr=0.1, groups=groups)
    watch = gate.watch().update(doubts, errors, groups=groups)
    assert watch.tests["frr"].groups == (0, 1)
    assert watch.tests["frr"].n == (~errors[10:]).sum()
    assert watch.tests["accepted"].n == 3000
    watch.update(doubts[:5], errors[:5], groups=np.full(5, 99))  # never seen before
    assert watch.tests["frr"].n == (~errors[10:]).sum()
    assert watch.tests["accepted"].n == 3005


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
def test_groups_may_come_in_narrow_types(dtype):
    rng = np.random.default_rng(0)
    doubts, errors = rows(rng, 3000)
    gate = td.calibrate_scores(
        doubts, errors, frr=0.1, groups=rng.choice([0, 300], 3000)
    )
    watch = gate.watch().update(doubts[:50], errors[:50], groups=np.zeros(50, dtype))
    assert watch.tests["frr"].n == (~errors[:50]).sum()


def test_short_names_are_not_the_beginnings_of_long_ones():
    doubts, errors = rows(np.random.default_rng(0), 50)
    watch = GATE.watch().update(doubts, errors, groups=np.full(50, "n"))
    assert watch.tests["frr"].n == 0
    assert not watch.queue.batches


def test_names_of_another_kind_are_refused():
    doubts, errors = rows(np.random.default_rng(0), 5)
    for data in (doubts, decided([True] * 5)):
        with pytest.raises(td.errors.InputError, match="expected groups like"):
            GATE.watch().update(data, errors, groups=[1] * 5)


def test_on_average_promises_of_groups_are_tested_together():
    gate = td.calibrate_scores(
        *rows(np.random.default_rng(7), 3000),
        frr=0.1,
        mode="expectation",
        groups=GROUPS,
    )
    watch = batches(gate.watch(), NAMES, [0.1] * 4, count=3)
    assert watch.tests["frr"].groups is None
    assert watch.tests["frr"].n == 300


def test_groups_may_come_late_and_be_saved(tmp_path):
    doubts, errors = rows(np.random.default_rng(3), 200)
    row_groups = RNG.choice([*NAMES, "else"], 200)
    at_once = GATE.watch(review=ALL).update(doubts, errors, groups=row_groups)
    late = GATE.watch(review=ALL)
    late.update(doubts, groups=row_groups, ids=range(200), reviewed=np.ones(200, bool))
    for batch in np.array_split(np.random.default_rng(1).permutation(200), 5):
        late.save(tmp_path / "state.json")
        late = td.Watch.load(tmp_path / "state.json", GATE)
        late.label(errors=errors[batch], ids=batch)
    assert evidence(late) == pytest.approx(evidence(at_once), abs=1e-9)
    for group in NAMES:
        ours, theirs = (w.tests["frr"].estimate(group) for w in (late, at_once))
        assert ours == pytest.approx(theirs)


def test_the_worst_groups_are_shown():
    names = np.array([f"g{i:02}" for i in range(30)])
    groups = names[np.random.default_rng(1).integers(0, 30, 20_000)]
    gate = td.calibrate_scores(
        *rows(np.random.default_rng(7), 20_000), frr=0.2, groups=groups
    )
    frr = [0.3, *[0.1] * 29]
    watch = batches(gate.watch(), names, frr, count=1, n=1000)
    assert watch.verdict("frr") == "holds"
    assert "worst of 30 groups: g00: " in repr(watch)
    entry = watch.records()[-1]
    assert len([name for name in entry.estimates if name.startswith("frr[")]) == 20
    assert "frr[g00]" in entry.estimates
    assert len(watch.to_dict()["tests"]["frr"]["groups"]) == 30
