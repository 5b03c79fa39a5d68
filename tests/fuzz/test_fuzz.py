"""Some mutated files of every kind, and that the fuzzer finds what is wrong."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fuzz import capture, cases, check_documents, kinds, oracle, pool
from fuzz.verdicts import EQUAL, REFUSED
from trustdoctor.cli import app
from trustdoctor.engines import local, run
from trustdoctor.files import Source, frames
from trustdoctor.gates import Gate
from trustdoctor.scores import SCORES
from trustdoctor.watch import Watch

CASES, PARTS = 200, 4


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", range(PARTS))
def test_mutated_files_are_refused_or_read_alike(first):
    verdicts = [pool.run_one(0, i) for i in range(first, CASES, PARTS)]
    odd = [verdict for verdict in verdicts if not verdict.good]
    assert not odd, "\n".join(map(str, odd))
    assert {verdict.outcome for verdict in verdicts} == {REFUSED, EQUAL}


def number_of(name):
    return list(kinds.SEEDS).index(name)


@pytest.fixture
def untouched(tmp_path, monkeypatch):
    """A case of a kind, its files as they were."""
    monkeypatch.setattr(cases, "mutated", lambda _rng, _kind, data: (data, ()))

    def make(name, verb="screen", suffix=".parquet"):
        case = cases.make(0, number_of(name), tmp_path / f"{number_of(name)} {verb}")
        return replace(case, verb=verb, suffix=suffix)

    return make


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", kinds.SEEDS)
def test_every_kind_is_taken_as_it_is(untouched, name):
    verbs = {"state": "check", "database": "check"}
    verbs |= {"truth": "diagnose", "dataset": "read"}
    verb = verbs.get(kinds.SEEDS[name].format, "screen")
    assert oracle.judge(untouched(name, verb)).outcome == EQUAL


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", ["diagnose", "calibrate", "check"])
@pytest.mark.parametrize("name", ["csv", "parquet, lists", "npz", "jsonl, answers"])
def test_every_verb_takes_it(untouched, name, verb):
    assert oracle.judge(untouched(name, verb)).outcome == EQUAL


def test_a_case_is_made_of_its_seed_and_number_alone(tmp_path):
    for i in range(len(kinds.SEEDS)):
        first, second = (cases.make(3, i, tmp_path / f"{i}{n}") for n in "ab")
        assert first.target.read_bytes() == second.target.read_bytes()
        assert str(first) == str(second)


def test_cases_differ_and_every_format_has_its_turn(tmp_path):
    all_cases = [
        cases.make(0, i, tmp_path / str(i)) for i in range(2 * len(kinds.SEEDS))
    ]
    all_cases = [case for case in all_cases if case.kind.format != "journal"]
    unchanged = Counter(
        case.target.read_bytes() == kinds.content(case.name)[case.kind.target]
        for case in all_cases
    )
    assert unchanged[True] < len(all_cases) / 10
    assert {case.kind.format for case in all_cases} == {*kinds.formats()} - {"journal"}


def invent_rows(monkeypatch):
    original_scan = Source.scan
    rows = lambda self: pl.concat([original_scan(self), original_scan(self).head(2)])  # noqa: E731
    monkeypatch.setattr(Source, "scan", rows)


def lose_batches(monkeypatch):
    """Score the rows of a batch by another temperature than rows at once."""
    decide = run.BatchScreen.__call__
    other = Gate(-0.4, SCORES["alpha"].with_temperature(3.0))
    changed = lambda self, p: decide(replace(self, gate=other), p)  # noqa: E731
    monkeypatch.setattr(run.BatchScreen, "__call__", changed)


def fail(monkeypatch):
    def broken(_):
        message = "planted"
        raise RuntimeError(message)

    monkeypatch.setattr(Source, "scan", broken)


def panic(monkeypatch):
    """Let a library write past the command line, which leads its words away."""
    loud = lambda: os.write(2, b"thread 'x' panicked at somewhere\n")  # noqa: E731
    monkeypatch.setattr(app, "prepare_streams", loud)


def hang(monkeypatch):
    monkeypatch.setattr(capture, "LIMIT", 0.3)
    monkeypatch.setattr(Source, "scan", lambda _: time.sleep(30))


def misread(monkeypatch):
    """Read other numbers than the file holds, in memory and streamed alike."""
    matrix = frames._matrix
    other = lambda *arguments: matrix(*arguments)[:, ::-1] ** 3  # noqa: E731
    monkeypatch.setattr(frames, "_matrix", other)


def write_backwards(monkeypatch):
    original_sink = local.sink
    other = lambda rows, *arguments: original_sink(rows.reverse(), *arguments)  # noqa: E731
    monkeypatch.setattr(local, "sink", other)


def change_cells(monkeypatch):
    sink, region = local.sink, pl.col("region").str.to_uppercase()
    other = lambda rows, *beside: sink(rows.with_columns(region), *beside)  # noqa: E731
    monkeypatch.setattr(local, "sink", other)


@pytest.mark.parametrize(
    ("plant", "outcome"),
    [
        (invent_rows, "rows lost or made"),
        (misread, "scores of other numbers"),
        (write_backwards, "other scores"),
        (change_cells, "a cell is changed"),
        (lose_batches, "other scores"),
        (fail, "internal error"),
        (panic, "panicked at"),
        (hang, "hang"),
    ],
)
def test_a_planted_defect_is_found(untouched, monkeypatch, plant, outcome):
    case = untouched("csv, plain", suffix=".csv")
    plant(monkeypatch)
    verdict = oracle.judge(case)
    assert outcome in verdict.outcome, verdict


@pytest.mark.parametrize(
    ("kind", "loaded", "change"),
    [
        ("gate", Gate, lambda gate: replace(gate, threshold=0.25)),
        ("state", Watch, lambda watch: replace(watch, level=0.25)),
    ],
)
def test_what_is_read_otherwise_is_found(untouched, monkeypatch, kind, loaded, change):
    case = untouched(f"{kind}, plain", "check")
    original_load = loaded.load
    monkeypatch.setattr(
        loaded, "load", lambda *arguments: change(original_load(*arguments))
    )
    assert oracle.judge(case).outcome in (
        "saved again, it is another",
        "what was saved is refused",
    )


def test_a_file_that_a_refusal_leaves_is_found(untouched, monkeypatch):
    case = untouched("csv")
    case.target.write_text("nothing\n")
    original_command = capture.command

    def leaving(*arguments):
        (case.folder / "left.tmp").write_text("half")
        return original_command(*arguments)

    monkeypatch.setattr(capture, "command", leaving)
    assert oracle.judge(case).outcome == "a refusal leaves or changes files"


def test_a_crash_is_found_and_the_next_case_runs():
    worker = pool.Worker(None)
    worker.arguments = [sys.executable, "-c", "import os; input(); os.abort()"]
    assert worker.run(0, 5).outcome == "crash"
    assert worker.run(0, 6).case.startswith("0:6 ")


def test_memory_that_a_case_uses_is_measured():
    """In a process of its own: here other tests' memory may shrink meanwhile."""
    code = (
        "import numpy as np; from fuzz import pool; memory = pool.Memory(); "
        "np.ones(25_000_000); print(memory.grown())"
    )
    tests = Path(__file__).parents[1]
    completed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(tests)},
    )
    assert 150e6 < int(completed.stdout) < 400e6


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": None}, {}, True),
    ],
)
def test_documents_are_compared_as_values(first, second, alike):
    assert check_documents.same(first, second) is alike
