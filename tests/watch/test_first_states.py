"""States that version 0.1 wrote enter as a first update."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tampering
from watch.streams import decided

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.watch.bets import ODDS

OLD = Path(__file__).parents[1] / "samples" / "v0.1"
GATE = td.Gate.load(OLD / "gate-frr.json")


def changed(tmp_path, change):
    content = json.loads((OLD / "watch-frr.json").read_text())
    change(content)
    (tmp_path / "old.json").write_text(json.dumps(content))
    return tmp_path / "old.json"


def test_its_rows_are_the_first_update():
    """Of each alternative S = LR / 2, and a half of the stake is left."""
    watch = td.Watch.load(OLD / "watch-frr.json", GATE)
    bet = watch.tests["frr"].parts[None].bet
    assert (bet.n, bet.counted, bet.starts, bet.left) == (263, 14, 1, 0.5)
    odds = 0.05 / 0.95 * ODDS
    q = odds / (1 + odds)
    ratio = (q / 0.05) ** 14 * ((1 - q) / 0.95) ** 249
    assert np.allclose(np.exp(bet.sums[0]), ratio / 2)
    assert math.exp(bet.evidence) == pytest.approx(ratio.mean() / 2 + 0.5)
    assert watch.tests["accepted"].n == 300
    assert watch.tests["accepted"].counted == 281
    assert watch.level == 0.1


def test_it_says_where_it_comes_from_and_goes_on(tmp_path):
    watch = td.Watch.load(OLD / "watch-frr.json", GATE)
    assert "Begun by version 0.1" in repr(watch)
    assert "add up" in repr(watch)
    assert watch.totals.rows == 300
    assert watch.records()[0].what == "begin"
    for suffix in (".json", ".db"):
        watch.save(tmp_path / f"state{suffix}")
        again = td.Watch.load(tmp_path / f"state{suffix}", GATE)
        assert repr(again) == repr(watch)
    again.update(decided([True] * 5), [False] * 5)
    assert again.tests["frr"].n == 268
    path = tmp_path / "old.json"
    path.write_text((OLD / "watch-frr.json").read_text())
    with td.Watch.open(path, GATE) as opened:
        opened.update(decided([True] * 5), [False] * 5)
    assert json.loads(path.read_text())["schema"] == 3
    assert td.Watch.load(path, GATE).tests["frr"].n == 268


def test_its_peak_is_kept(tmp_path):
    def peaked(content):
        content["tallies"]["frr"]["peak"] = 15.0

    watch = td.Watch.load(changed(tmp_path, peaked), GATE)
    assert watch.tests["frr"].peak == pytest.approx(math.log(15))
    assert not watch.alarm

    def alarmed(content):
        content["tallies"]["frr"]["peak"] = 1e300

    watch = td.Watch.load(changed(tmp_path, alarmed), GATE)
    assert watch.verdict("frr") == "alarm"
    assert "version 0.1" in watch.tests["frr"].alarm.words
    watch.save(tmp_path / "new.json")
    assert td.Watch.load(tmp_path / "new.json", GATE).verdict("frr") == "alarm"


def test_of_groups_the_peak_is_kept():
    gate = td.Gate.load(OLD / "gate-per-class.json")
    watch = td.Watch.load(OLD / "watch-per-class.json", gate)
    assert watch.tests["frr"].groups
    assert watch.tests["frr"].parts == {}
    assert watch.tests["frr"].peak == 0
    assert watch.tests["accepted"].n == 300
    assert watch.level == 0.2


def test_two_that_go_on_from_one_are_not_merged():
    one, two = (td.Watch.load(OLD / "watch-frr.json", GATE) for _ in range(2))
    with pytest.raises(InputError, match="go on from one earlier state"):
        one + two


def test_states_of_schema_2_are_read(tmp_path):
    content = json.loads((OLD / "watch-frr.json").read_text()) | {"schema": 2}
    content["bets"] = {
        name: {"counted" if key == "hits" else key: value for key, value in one.items()}
        for name, one in content.pop("tallies").items()
    }
    content["gate"]["fitted"] = None
    (tmp_path / "old.json").write_text(json.dumps(content))
    watch = td.Watch.load(tmp_path / "old.json", GATE)
    assert watch.tests["frr"].counted == 14


def test_a_gate_that_is_watched_less_now_still_goes_on(tmp_path):
    """Version 0.1 tested the accept rate of a gate that accepts all."""
    rng = np.random.default_rng(0)
    gate = td.calibrate_scores(rng.normal(size=300), np.zeros(300, bool), risk=0.05)
    assert gate.state == "accept-all"
    known = {"n": 10, "counted": 0, "peak": 1.0}
    content = {
        "trustdoctor": "watch",
        "schema": 2,
        "gate": {
            "score": None,
            "temperature": 1.0,
            "state": "accept-all",
            "threshold": str(gate.threshold),
            "fingerprint": gate.certificate.fingerprint,
            "fitted": None,
        },
        "level": 0.1,
        "bets": {
            "accepted": {"low": 0.98, "high": 1.0, "level": 0.045, **known},
            "risk": {"low": 0.0, "high": 0.05, "level": 0.045, **known},
        },
    }
    content["bets"]["accepted"]["counted"] = 10
    (tmp_path / "old.json").write_text(json.dumps(content))
    watch = td.Watch.load(tmp_path / "old.json", gate)
    assert watch.tests["risk"].n == 10


def test_a_tampered_one_is_refused_or_whole(tmp_path, monkeypatch):
    content = json.loads((OLD / "watch-frr.json").read_text())
    kept = 0
    for number, (what, text) in enumerate(tampering.mutants(content)):
        if number % 3:
            continue
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=text: text)
        try:
            watch = td.Watch.load("state.json", GATE)
        except FileError as error:
            assert "\n" not in str(error), what  # noqa: PT017
            assert len(str(error)) < 600, what  # noqa: PT017
            continue
        assert what[-1] != "twice", what
        watch.update(decided([True]), [True])
        assert all(math.isfinite(test.peak) for test in watch.tests.values()), what
        watch.save(tmp_path / "new.json")
        kept += 1
    assert kept


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ('"peak": 1e400', "too large"),
        ('"peak": Infinity', "no number of JSON"),
        ('"peak": NaN', "no number of JSON"),
        ('"peak": "inf"', "changed or damaged"),
        (f'"peak": {"[" * 10**6}', "deep"),
        ('"peak": true', "changed or damaged"),
        ('"peak": 0.5', "changed or damaged"),
        ('"peak": 1.0, "more": 1', "changed or damaged: it lacks or adds: more"),
    ],
    ids=["1e400", "Infinity", "NaN", "inf", "deep", "true", "small", "more"],
)
def test_a_peak_is_a_finite_number(change, match, tmp_path):
    text = (OLD / "watch-frr.json").read_text()
    assert '"peak": 1.0' in text
    (tmp_path / "old.json").write_text(text.replace('"peak": 1.0', change))
    with pytest.raises(FileError, match=match):
        td.Watch.load(tmp_path / "old.json", GATE)
