"""What a watch says: true, in plain words, in every state."""

import json
import math

import numpy as np
import pytest
from watch.streams import ALL, AUDIT, TARGETS, calibrated, decided, rows

import trustdoctor as td
from trustdoctor.watch import wording

GATE = calibrated()


def lines(watch):
    return [line.strip() for line in repr(watch).splitlines()]


def test_a_fresh_watch_has_nothing_to_say():
    text = repr(GATE.watch())
    assert text.startswith("Watch: no rows yet")
    assert "0 updates, 0 rows" in text
    assert text.count(": no rows yet") == 3
    assert "at most 10% of the correct predictions rejected" in text


def test_one_row_is_one_row():
    text = repr(GATE.watch().update([0.1], [False]))
    assert "1 update, 1 row, 100.00% accepted, 1 label" in text
    assert "1 rows" not in text
    assert "labels\n" not in text.replace("1 label\n", "")


@pytest.mark.parametrize("target", [*TARGETS, {"coverage": 0.8}], ids=str)
def test_lines_are_short_and_whole(target):
    watch, rng = calibrated(**target).watch(), np.random.default_rng(0)
    for shift in (0.0, 1.0, 2.0):
        for _ in range(5):
            watch.update(*rows(rng, 100, shift=shift))
        for line in lines(watch):
            assert line
            assert not any(
                odd in line for odd in ("nan", "None", "inf%", "array(", "$")
            )
            assert "e-" not in line


def test_a_rate_beyond_the_bound_but_within_chance_is_called_that():
    watch = GATE.watch()
    watch.update(decided([False] * 3 + [True] * 20), [False] * 23)
    line = next(line for line in lines(watch) if line.startswith("observed: 13.04%"))
    assert "above what was promised, but within chance" in line
    assert watch.verdict("frr") == "holds"
    watch.update(decided([False] * 60), [False] * 60)
    assert watch.verdict("frr") == "alarm"
    assert "within chance" not in repr(watch).split("frr: ALARM")[1]


def test_how_probable_it_is_and_how_far_from_an_alarm():
    """Ville: evidence E comes with probability 1 / E at most."""
    watch = GATE.watch()
    watch.update(decided([False] * 4 + [True] * 6), [False] * 10)
    test = watch.tests["frr"]
    chance = math.exp(-test.peak)
    assert 0.045 < chance < 0.9
    assert wording.p_value(test) == pytest.approx(chance)
    assert f"at most {chance:.1%}; an alarm comes at 4.5%" in repr(watch)
    watch.update(decided([False] * 50), [False] * 50)
    words = wording.evidence_words(watch.tests["frr"])
    assert "below 1 in 1 billion" in words
    assert wording.p_value(GATE.watch().tests["frr"]) == 1.0
    assert "nothing speaks against it" in wording.evidence_words(
        GATE.watch().tests["frr"]
    )


def test_an_alarm_names_the_promise_and_the_observation_and_stays():
    watch = GATE.watch().update(decided([False] * 60), [False] * 60, at=86400.0)
    alarm = watch.tests["frr"].alarm
    assert "100.00%" in alarm.reason
    assert alarm.time == 86400
    assert alarm.reason in repr(watch)
    for _ in range(20):
        watch.update(decided([True] * 300 + [False] * 20), [False] * 320)
    assert watch.tests["frr"].alarm == alarm
    assert watch.alarm
    assert watch.records()[0].alarms
    assert not any(entry.alarms for entry in watch.records()[1:])


def test_headlines():
    broken = decided([False] * 100)
    assert wording.headline(GATE.watch()) == "no rows yet"
    quiet = GATE.watch().update([0.1, 0.2], [False, False])
    assert wording.headline(quiet) == "nothing to report"
    watch = GATE.watch().update(np.full(500, 9.0))
    assert "accept rate has changed" in wording.headline(watch)
    watch.update(broken, [False] * 100)
    assert wording.headline(watch) == "the promise no longer holds"
    blind = GATE.watch(review={"rejected": 1.0, "accepted": 0.0})
    assert "cannot show" in wording.headline(blind.update([0.1, 9.0], [np.nan, 0]))


def test_rows_without_labels_are_reported_as_a_share():
    watch = GATE.watch(review=ALL, deadline=10)
    watch.update(decided([True] * 4), [False] * 3 + [None], ids=range(4),
                 reviewed=[True] * 4, at=100)  # fmt: skip
    watch.update(decided([True]), [False], ids=["a"], at=200)
    assert "1 reviewed row (20.0%) got no label" in repr(watch)


def everything():
    """Yield watches in all their states."""
    rng = np.random.default_rng(0)
    yield GATE.watch()
    yield GATE.watch().update(*rows(rng, 50))
    yield GATE.watch(review=AUDIT).update(*rows(rng, 500))
    yield GATE.watch().update(decided([False] * 60), [False] * 60)
    waiting = GATE.watch(review=ALL, deadline=None)
    yield waiting.update([0.1, 0.2], ids=["a", "b"], reviewed=[True, True])
    groups = np.array(["<b>", "\N{GRINNING FACE}"])[rng.integers(0, 2, 3000)]
    gate = calibrated(groups=groups)
    yield gate.watch().update(*rows(rng, 100), groups=groups[:100])
    yield td.calibrate_scores([1.0, 2.0], coverage=0.99).watch().update([0.1])


@pytest.mark.parametrize("watch", list(everything()), ids=range(7))
def test_plain_values_are_json_and_say_the_same(watch):
    content = watch.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["alarm"] == watch.alarm
    assert content["rows"] == watch.totals.rows
    assert set(content["tests"]) == set(watch.tests)
    for name, test in content["tests"].items():
        assert test["verdict"] == watch.verdict(name)
        assert test["n"] == watch.tests[name].n
        assert 0 < test["p_value"] <= 1
        assert (test["alarm"] is None) == (test["verdict"] != "alarm")
        assert bool(test["reason"]) == (test["verdict"] == "cannot tell")


@pytest.mark.parametrize("watch", list(everything()), ids=range(7))
def test_the_history_is_a_table(watch):
    table = watch.history
    assert len(table) == len(watch.records())
    for name in watch.tests if len(table) else ():
        last = table[f"{name}_evidence"][-1]
        assert last == pytest.approx(watch.tests[name].evidence)
    updates = table.filter(table["kind"] == "update") if len(table) else table
    if len(updates):
        assert updates["rows"].sum() == watch.totals.rows
        assert updates["accepted"].sum() == watch.totals.accepted
        assert updates["time"].dtype.time_zone == "UTC"


def test_the_history_keeps_estimates_and_alarms():
    watch = GATE.watch()
    for lost in (0, 2, 60):
        accepted = [True] * (10 - lost) + [False] * lost
        watch.update(decided(accepted), [False] * len(accepted))
    table = watch.history
    assert table["alarms"].to_list()[:2] == ["", ""]
    assert "frr" in table["alarms"][2]
    assert table["frr"].to_list() == pytest.approx([0.0, 0.1, 62 / 80])
    assert (table["frr_low"] <= table["frr"]).all()
    assert (table["frr"] <= table["frr_high"]).all()
    assert table["accepted_rate"].to_list() == pytest.approx([1.0, 0.9, 18 / 80])


def test_a_new_window_begins_when_one_is_full():
    watch, rng = GATE.watch(window=100), np.random.default_rng(0)
    numbers = []
    for _ in range(6):
        watch.update(*rows(rng, 60))
        numbers.append(watch.tests["accepted"].estimate()[3:])
    assert numbers == [(60, 1), (120, 1), (60, 2), (120, 2), (60, 3), (120, 3)]
