import json
import math

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.watch import Bet


def draw(rng, n, rate=0.1, shift=0.0):
    errors = rng.random(n) < rate
    return rng.normal(size=n) + 2 * errors + shift, errors


def calibrated(rng, n=3000, **target):
    return td.calibrate_scores(*draw(rng, n), **(target or {"frr": 0.1}))


@pytest.mark.parametrize(
    "target",
    [
        {"frr": 0.1},
        {"risk": 0.05},
        *(
            pytest.param(target, marks=pytest.mark.soak)
            for target in (
                {"trr": 0.9},
                {"joint": 0.04},
                {"coverage": 0.9},
                {"frr": 0.1, "mode": "expectation"},
                {"trr": 0.9, "mode": "expectation"},
            )
        ),
    ],
    ids=str,
)
def test_nothing_changed_seldom_alarms(target):
    """400 calibrations, each watched over 40 batches, at level 0.1.

    An alarm of a gate whose promise the calibration broke is not a false one; in
    confidence mode another tenth may.
    """
    alarms = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        watch = td.calibrate_scores(*draw(rng, 1000), **target).watch(level=0.1)
        for _ in range(40):
            watch.update(*draw(rng, 50))
        alarms += watch.alarm
    assert alarms / 400 <= 0.1 + 3 * math.sqrt(0.09 / 400)


def test_at_the_edge_of_the_null_it_alarms_at_most_at_its_level():
    """2,000 streams of rows at the promised rate itself, looked at 30 times."""
    alarms = 0
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        bet = Bet(0.0, 0.05, 0.1)
        for _ in range(30):
            bet = bet.add(100, rng.binomial(100, 0.05))
        alarms += bet.alarm
    assert alarms / 2000 <= 0.1


def test_twice_the_promised_risk_is_found_within_a_thousand_accepted_rows():
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        bet = Bet(0.0, 0.05, 0.045)
        for _ in range(20):
            bet = bet.add(50, rng.binomial(50, 0.10))
        found += bet.alarm
    assert found / 300 >= 0.9


def test_drift_is_found_without_labels(rng):
    watch = calibrated(rng).watch()
    for _ in range(20):
        watch.update(draw(rng, 100, shift=1.0)[0])
    assert watch.bets["accepted"].alarm
    assert "ALARM" in repr(watch)
    assert "the accept rate is not what it was" in repr(watch)


def test_more_acceptance_is_drift_too(rng):
    watch = calibrated(rng, frr=0.3).watch()
    for _ in range(20):
        watch.update(draw(rng, 200, shift=-1.0)[0])
    assert watch.bets["accepted"].alarm


@pytest.mark.parametrize("target", [{"risk": 0.05}, {"trr": 0.9}, {"joint": 0.04}])
def test_a_broken_promise_is_found_with_labels(target, rng):
    gate = calibrated(rng, **target)
    watch = gate.watch()
    for _ in range(30):
        scores, errors = draw(rng, 200, rate=0.1)
        scores[errors] -= 1.5  # errors that look like correct predictions
        watch.update(scores, errors)
    (name,) = target
    assert watch.bets[name].alarm


def test_an_alarm_stays():
    bet = Bet(0.0, 0.05, 0.1).add(200, 60)
    assert bet.alarm
    assert bet.add(100_000, 0).alarm


def test_the_state_carries_over(rng, tmp_path):
    gate = calibrated(rng)
    whole, parts = gate.watch(), gate.watch()
    for i in range(6):
        scores, errors = draw(rng, 100)
        whole.update(scores, errors)
        parts.update(scores, errors)
        parts.save(tmp_path / "watch.json")
        parts = td.Watch.load(tmp_path / "watch.json", gate)
        assert parts.bets == whole.bets, i


def test_labels_may_come_late_and_in_part(rng):
    gate = calibrated(rng)
    scores, errors = draw(rng, 400)
    at_once, late = gate.watch(), gate.watch()
    some = errors.astype(float)
    some[::2] = np.nan
    at_once.update(scores, some)
    late.update(scores)
    late.label(scores[1::2], errors[1::2])
    assert at_once.bets == late.bets
    assert at_once.bets["accepted"].n == 400
    assert at_once.bets["frr"].n == (~errors[1::2]).sum()
    listed = gate.watch().update(
        scores, [None if np.isnan(x) else bool(x) for x in some]
    )
    assert listed.bets == at_once.bets


def test_a_promised_coverage_is_tested_by_itself(rng):
    gate = td.calibrate_scores(rng.normal(size=2000), coverage=0.9)
    more = gate.watch().update(np.full(3000, -9.0))
    assert more.bets["accepted"].alarm
    assert not more.bets["coverage"].alarm
    assert "does not hold" not in repr(more)
    less = gate.watch()
    for _ in range(20):
        less.update(rng.normal(size=200) + 0.5)
    assert less.bets["coverage"].alarm
    assert "the promise does not hold any more" in repr(less)


def test_gates_that_promise_nothing_are_watched_for_drift_alone(rng):
    gate = td.calibrate_unlabelled(
        td.Predictions.from_logits(rng.normal(size=(500, 3)) * 3), frr=0.1
    )
    assert list(gate.watch().bets) == ["accepted"]


@pytest.mark.parametrize(
    "change",
    [
        {"n": "x"},
        {"n": -5},
        {"counted": 10**9},
        {"level": 0},
        {"high": 0.9},
        {"peak": 0},
    ],
)
def test_states_that_were_changed_are_refused(change, rng, tmp_path):
    gate, path = calibrated(rng), tmp_path / "watch.json"
    gate.watch().update(*draw(rng, 50)).save(path)
    content = json.loads(path.read_text())
    content["bets"]["frr"] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="changed or damaged"):
        td.Watch.load(path, gate)
    content["bets"] = {}
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="changed or damaged"):
        td.Watch.load(path, gate)


def test_group_gates_are_watched(rng):
    scores, errors = draw(rng, 3000)
    groups = rng.integers(0, 2, 3000)
    gate = td.calibrate_scores(scores, errors, frr=0.1, groups=groups)
    watch = gate.watch().update(scores, errors, groups=groups)
    assert watch.bets["frr"].n == (~errors).sum()
    groups[:10] = 2  # too few rows for a promise
    gate = td.calibrate_scores(scores, errors, frr=0.1, groups=groups)
    watch = gate.watch().update(scores, errors, groups=groups)
    assert watch.bets["frr"].n == (~errors[10:]).sum()
    assert watch.bets["accepted"].n == 3000


def test_mistakes_are_refused(rng, tmp_path):
    gate = calibrated(rng)
    with pytest.raises(InputError, match="no certificate"):
        td.Gate(0.0).watch()
    with pytest.raises(InputError, match="level"):
        gate.watch(level=2)
    odd = np.array(["a", None], object)
    for errors in ([0.5, 1.0], [True], ["a", "b"], odd):
        with pytest.raises(InputError, match="expected errors"):
            gate.watch().update([0.1, 0.2], errors)
    path = tmp_path / "watch.json"
    gate.watch().save(path)
    with pytest.raises(FileError, match="another gate"):
        td.Watch.load(path, calibrated(rng, trr=0.9))
    for text in ("", "{}", "[]", json.dumps({"trustdoctor": "gate", "schema": 1})):
        path.write_text(text)
        with pytest.raises(FileError, match=r"expected a watch|not a watch"):
            td.Watch.load(path, gate)
    path.write_text(json.dumps({"trustdoctor": "watch", "schema": 2, "bets": []}))
    with pytest.raises(FileError, match="lacks or adds: gate, level"):
        td.Watch.load(path, gate)
    with pytest.raises(FileError, match="cannot read"):
        td.Watch.load(tmp_path / "absent.json", gate)


def test_predictions_are_watched_as_their_scores_are(rng):
    """`update` scores by itself; the labels are the predictions' own."""
    z = 2 * rng.normal(size=(3000, 4))
    labels = np.where(rng.random(3000) < 0.8, z.argmax(1), 0)
    p = td.Predictions.from_logits(z, labels)
    for options in ({}, {"groups": "predicted"}):
        gate = td.calibrate(p[:2000], frr=0.1, **options)
        whole, new = gate.watch(), p[2000:]
        groups = new.predicted if options else None
        by_scores = gate.watch().update(td.alpha(new), new.errors, groups=groups)
        assert whole.update(new).bets == by_scores.bets
        bare = td.Predictions.from_logits(new.logits)
        late = gate.watch().update(bare).label(new)
        assert late.bets == by_scores.bets
        some = np.where(np.arange(1000) % 2, new.errors, np.nan)
        part = gate.watch().update(bare, some)
        assert part.bets["frr"].n == (~new.errors[1::2]).sum()
    with pytest.raises(td.errors.LabelsMissingError, match="late labels are missing"):
        gate.watch().label(bare)


def test_scoreless_gates_watch_scores_alone(rng):
    gate = calibrated(rng)
    with pytest.raises(InputError, match="names no score"):
        gate.watch().update(td.Predictions.from_logits([[1.0, 0.0]]))
