"""Gates and states on the command line: pipes, links, folders and invalid contents."""

import json
import os
import signal
import subprocess
import sys

import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import OutputError


@pytest.fixture
def gate(probs, tmp_path, run):
    path = tmp_path / "gate.json"
    assert run("calibrate", probs, "--frr", 0.1, "-o", path).returncode == 0
    return path


@pytest.fixture(autouse=True)
def _in_time():
    """What would wait for ever fails."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(completed):
    assert completed.returncode == 2, completed.stderr
    assert completed.stderr.startswith("trustdoctor: ")
    assert completed.stderr.count("\n") == 1
    assert "internal error" not in completed.stderr
    return completed.stderr


def test_a_gate_that_is_not_a_regular_file_is_refused_at_once(probs, tmp_path, run):
    fifo, loop = tmp_path / "fifo", tmp_path / "loop"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    for path, match in (
        (fifo, "got a pipe"),
        (tmp_path, "got a folder"),
        ("/dev/zero", "got a device"),
        (loop, "cannot read the gate"),
    ):
        assert match in refused(run("screen", probs, "--gate", path))
        state = ["--state", tmp_path / "s"]
        assert match in refused(run("check", probs, "--gate", path, *state))
    assert not (tmp_path / "s").exists()


def test_states_that_cannot_be_are_refused_in_a_line(gate, probs, tmp_path, run):
    state = tmp_path / "state.json"
    arguments = ["check", probs, "--gate", gate, "--state", state]
    assert run(*arguments).returncode == 0
    text = state.read_text()
    content = json.loads(text)
    peak = f'"peak": {content["tests"]["frr"]["peak"]}'
    assert peak in text
    for other in (
        text.replace('"n": 400', f'"n": {10**400}'),
        text.replace(peak, '"peak": 1e400'),
        text.replace(peak, '"peak": Infinity'),
        text.replace(peak, f'"peak": {"[" * 10**5}'),
        text.replace('"level": 0.1', '"level": 0.1, "level": 0.1'),
        text.replace('"schema": 3', '"schema": true'),
        "",
    ):
        assert other != text
        state.write_text(other)
        refused(run(*arguments))
        assert state.read_text() == other
    state.unlink()
    os.mkfifo(state)
    refused(run(*arguments))
    state.unlink()
    state.symlink_to(state)
    refused(run(*arguments))


@pytest.mark.parametrize("suffix", [".json", ".db"])
@pytest.mark.parametrize("begun", [True, False])
def test_a_state_that_is_a_link_is_neither_followed_nor_replaced(
    suffix, begun, gate, probs, tmp_path, run
):
    far, link = tmp_path / f"far{suffix}", tmp_path / f"link{suffix}"
    if begun:
        assert run("check", probs, "--gate", gate, "--state", far).returncode == 0
    before = far.read_bytes() if begun else None
    link.symlink_to(far)
    message = refused(run("check", probs, "--gate", gate, "--state", link))
    assert f"got a link to {far}" in message
    with pytest.raises(OutputError, match="got a link"):
        td.Watch.open(link, td.Gate.load(gate)).__enter__()
    assert link.is_symlink()
    assert far.exists() == begun
    assert not begun or far.read_bytes() == before


def test_a_state_may_have_an_odd_name_and_lie_in_a_linked_folder(
    gate, probs, tmp_path, run
):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    state, odd = tmp_path / "near" / "s.json", tmp_path / os.fsdecode(b"\xff\xfe.json")
    for _ in range(2):
        assert run("check", probs, "--gate", gate, "--state", state).returncode == 0
        assert run("check", probs, "--gate", gate, "--state", odd).returncode == 0
    for path in (tmp_path / "far" / "s.json", odd):
        assert json.loads(path.read_text())["totals"]["rows"] == 800
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["s.json"]


def test_rows_of_other_classes_are_refused(gate, tmp_path, run):
    two = tmp_path / "two.csv"
    pl.DataFrame({"prob_0": [0.5, 0.9], "prob_1": [0.5, 0.1]}).write_csv(two)
    match = "expected rows of 3 classes, as in the gate's calibration, got 2"
    assert match in refused(run("screen", two, "--gate", gate))
    state = tmp_path / "state.json"
    assert match in refused(run("check", two, "--gate", gate, "--state", state))
    assert not state.exists()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.soak
def test_eight_checks_at_once_count_all_rows(gate, probs, tmp_path):
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "trustdoctor", "check", probs, "--gate", gate]
    jobs = [subprocess.Popen([*command, "--state", state, "-q"]) for _ in range(8)]
    assert [job.wait() for job in jobs] == [0] * 8
    assert json.loads(state.read_text())["totals"]["rows"] == 8 * 400
