"""Memory limits, and who changes the process to stay within them."""

import os
import sys
from contextlib import contextmanager

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor import cli, engines
from trustdoctor.engines import Means, find_engine, parse_memory, tuned
from trustdoctor.engines.memory import fits
from trustdoctor.errors import InputError
from trustdoctor.files import find_source

GATE = td.Gate(-0.5, score="alpha")
LISTENING: list[list[tuple[str, str]]] = []
"""Where Python's own audit is noted, while it is asked to."""


def _note(event, arguments):
    for events in LISTENING:
        if event in ("os.putenv", "os.unsetenv"):
            events.append(("environment", os.fsdecode(arguments[0])))
        if event == "ctypes.dlsym" and arguments[1] == "mallopt":
            events.append(("malloc", "mallopt"))


sys.addaudithook(_note)  # it stays for the life of the process, idle


@contextmanager
def audited():
    """Yield a list of every change to the environment, and of every mallopt."""
    LISTENING.append([])
    try:
        yield LISTENING[-1]
    finally:
        LISTENING.pop()


@pytest.fixture
def path(tmp_path, rng):
    z = rng.normal(size=(500, 3))
    table = {f"logit_{j}": z[:, j] for j in range(3)}
    path = tmp_path / "a.parquet"
    pl.DataFrame(table | {"label": rng.integers(0, 3, 500)}).write_parquet(path)
    return path


@pytest.mark.parametrize("text", ["1", "x", "1XB", "-3GB", "100MB", "0", "1.2.3GB"])
def test_an_invalid_memory_is_refused(text):
    with pytest.raises(InputError, match="memory limit"):
        parse_memory(text)


def test_memory_is_half_of_what_is_free_by_default():
    assert (
        0
        < parse_memory(None)
        < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )


def test_rows_fit_where_they_take_less_than_the_limit(path):
    source = find_source(path)
    assert fits(source, 10**6)
    assert not fits(source, 10**4)
    assert not fits(source, 10**6, n_scores=1000)
    with pytest.raises(InputError, match="compare needs all rows at once"):
        engines.require_fitting(source, 10**4, "compare")


def test_a_library_call_leaves_the_process_as_it_is(path, tmp_path):
    before = dict(os.environ)
    with audited() as events:
        p = td.read(path)
        GATE.screen(p)
        td.evaluate(p, scores=["alpha"])
        source = find_source(path)
        engines.diagnose(source, scores=["alpha"])
        small = Means(find_engine("local"), 10**9)
        engines.calibrate_files(source, frr=0.1, means=small)
        engines.screen(source, GATE, tmp_path / "out.parquet", means=small)
        engines.screen(source, GATE, tmp_path / "out")
    assert events == []
    assert dict(os.environ) == before


@pytest.mark.parametrize("command", ["diagnose", "calibrate", "screen"])
def test_the_command_line_tunes_and_restores(command, path, tmp_path, monkeypatch):
    options = {
        "diagnose": ["--score", "alpha"],
        "calibrate": ["--frr", "0.1", "-o", str(tmp_path / "gate.json")],
        "screen": ["--gamma", "1"],
    }
    arguments = ["trustdoctor", command, str(path), "--quiet", *options[command]]
    monkeypatch.setattr(sys, "argv", arguments)
    before = dict(os.environ)
    with audited() as events, pytest.raises(SystemExit) as exit_info:
        cli.main()
    assert exit_info.value.code == 0
    names = {"POLARS_ROW_GROUP_PREFETCH_SIZE", "POLARS_IDEAL_MORSEL_SIZE"}
    assert {("malloc", "mallopt"), *(("environment", n) for n in names)} <= set(events)
    assert dict(os.environ) == before


def test_existing_user_settings_are_left(path, monkeypatch):
    monkeypatch.setenv("POLARS_IDEAL_MORSEL_SIZE", "77")
    with tuned(find_source(path), 10**9):
        assert os.environ["POLARS_IDEAL_MORSEL_SIZE"] == "77"
        assert "POLARS_ROW_GROUP_PREFETCH_SIZE" in os.environ
    assert os.environ["POLARS_IDEAL_MORSEL_SIZE"] == "77"
    assert "POLARS_ROW_GROUP_PREFETCH_SIZE" not in os.environ


def test_batches_are_smaller_where_rows_are_wider(tmp_path):
    sizes = []
    for width in (10, 10_000):
        path = tmp_path / f"{width}.npz"
        np.savez(path, logits=np.zeros((20, width), np.float32))
        with tuned(find_source(path), 10**9):
            sizes.append(int(os.environ["POLARS_IDEAL_MORSEL_SIZE"]))
    assert sizes[0] > 10 * sizes[1]
