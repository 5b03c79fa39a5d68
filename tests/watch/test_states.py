"""States of watches as files: tampered ones, and several processes at one."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tampering

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.watch import Bet

OLD = Path(__file__).parents[1] / "samples" / "v0.1"


@pytest.fixture
def gate(rng):
    errors = rng.random(2000) < 0.1
    scores = rng.normal(size=2000) + 2 * errors
    return td.calibrate_scores(scores, errors, frr=0.1)


def saved(watch, tmp_path):
    watch.save(tmp_path / "new.json")
    return json.loads((tmp_path / "new.json").read_text())


@pytest.mark.parametrize("old", [False, True])
def test_a_tampered_state_is_refused_or_whole(old, gate, tmp_path, monkeypatch):
    if old:
        gate = td.Gate.load(OLD / "gate-frr.json")
        content = json.loads((OLD / "watch-frr.json").read_text())
    else:
        content = saved(gate.watch().update([0.1, 5.0], [False, True]), tmp_path)
    kept = 0
    for what, text in tampering.mutants(content):
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=text: text)
        try:
            watch = td.Watch.load("state.json", gate)
        except FileError as error:
            assert "\n" not in str(error), what  # noqa: PT017
            assert len(str(error)) < 600, what  # noqa: PT017
            continue
        assert what[-1] != "twice", what
        again = saved(watch, tmp_path)
        if not old:
            assert tampering.same(again, json.loads(text)), what
        if watch.gate.score is None:
            watch.update([0.3], [True])
        assert all(math.isfinite(bet.peak) for bet in watch.bets.values()), what
        kept += 1
    assert kept


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ('"peak": 1e400', "too large"),
        ('"peak": Infinity', "no number of JSON"),
        ('"peak": NaN', "no number of JSON"),
        ('"peak": "inf"', "changed or damaged"),
        (f'"peak": {"[" * 5000}', "deep"),
        ('"peak": true', "changed or damaged"),
        ('"peak": 1.0, "more": 1', "changed or damaged: it lacks or adds: more"),
    ],
    ids=["1e400", "Infinity", "NaN", "inf", "deep", "true", "more"],
)
def test_a_peak_is_a_finite_number(change, match, gate, tmp_path):
    path = tmp_path / "state.json"
    gate.watch().save(path)
    path.write_text(path.read_text().replace('"peak": 1.0', change))
    with pytest.raises(FileError, match=match):
        td.Watch.load(path, gate)


def test_a_certain_alarm_can_be_saved():
    """Where no row may count, one that does is evidence beyond any number."""
    for bet in (Bet(0.0, 0.0, 0.1).add(10, 1), Bet(1.0, 1.0, 0.1).add(10, 9)):
        assert bet.alarm
        assert math.isfinite(bet.peak)
    assert not Bet(1.0, 1.0, 0.1).add(10, 10).alarm
    assert Bet(5e-324, 1.0, 0.1).add(10, 0).peak == 1.0


@pytest.mark.parametrize("level", [0, 1, -1, 1e-300, 5e-324, math.nan, math.inf])
def test_a_level_is_a_probability_that_can_be_split(level, gate):
    with pytest.raises(InputError, match="expected level between 1e-09 and 1"):
        gate.watch(level=level)
    assert not gate.watch(level=1e-9).alarm


def test_a_state_is_opened_changed_and_saved(gate, tmp_path):
    path = tmp_path / "state.json"
    for n in (2, 4):
        with td.Watch.open(path, gate, level=0.2) as watch:
            watch.update([0.1, 5.0])
        assert td.Watch.load(path, gate).bets["accepted"].n == n
    with pytest.raises(InputError), td.Watch.open(path, gate) as watch:
        watch.update([0.1]).update([np.nan])
    assert td.Watch.load(path, gate).bets["accepted"].n == 4
    with pytest.raises(InputError, match=r"begun at level 0\.2"):
        td.Watch.open(path, gate, level=0.1).__enter__()
    assert list(tmp_path.iterdir()) == [path]


UPDATE = """
import os, sys
import trustdoctor as td
state, gate = sys.argv[1], td.Gate.load(sys.argv[2])
go, start = os.pipe()
jobs = []
for k in range(8):
    job = os.fork()
    if job == 0:
        os.close(start)
        os.read(go, 1)  # all at once, when the other end is closed
        for _ in range(5):
            with td.Watch.open(state, gate) as watch:
                watch.update([0.1] * (k + 1), [False] * (k + 1))
        os._exit(0)
    jobs.append(job)
os.close(start)
sys.exit(sum(os.waitpid(job, 0)[1] for job in jobs))
"""


def test_eight_processes_update_one_state_and_no_row_is_lost(gate, tmp_path):
    state, path = tmp_path / "state.json", tmp_path / "gate.json"
    gate.save(path)
    subprocess.run([sys.executable, "-c", UPDATE, state, path], check=True)
    whole = gate.watch()
    for k in range(8):
        for _ in range(5):
            whole.update([0.1] * (k + 1), [False] * (k + 1))
    watch = td.Watch.load(state, gate)
    assert {n: (b.n, b.counted) for n, b in watch.bets.items()} == {
        n: (b.n, b.counted) for n, b in whole.bets.items()
    }
    assert watch.bets["accepted"].n == 5 * 36
    assert sorted(tmp_path.iterdir()) == [path, state]


def test_the_identity_is_in_the_same_types(gate, tmp_path):
    path = tmp_path / "state.json"
    gate.watch().save(path)
    path.write_text(
        path.read_text().replace('"temperature": 1.0', '"temperature": true')
    )
    with pytest.raises(FileError, match="another gate"):
        td.Watch.load(path, gate)
    with pytest.raises(FileError, match="another gate"):
        td.Watch.load(path, td.Gate(np.float64(0.5)))
