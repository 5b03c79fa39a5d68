"""Every command parses a file only once."""

import numpy as np
import polars as pl
import pytest

from trustdoctor.files import Columns, find_source
from trustdoctor.kernels import _native

N = 500
RUN = ("collect", "sink", "fetch", "profile", "describe", "show", "remote")
"""How the names of what runs a query begin."""


@pytest.fixture
def path(tmp_path, rng):
    labels = rng.integers(0, 3, N)
    z = rng.normal(size=(N, 3))
    z[np.arange(N), labels] += 1
    columns = {f"logit_{j}": z[:, j] for j in range(3)} | {"label": labels}
    texts = {"id": [f"row {i}" for i in range(N)], "text": ["words"] * N}
    pl.DataFrame(columns | texts).write_csv(tmp_path / "a.csv")
    return tmp_path / "a.csv"


@pytest.fixture
def parses(monkeypatch):
    """Queries that read all rows of a CSV file, however polars is asked to run them.

    A query of a few rows, as of the first one, is a peek and not a parse.
    """
    calls, within = [], []

    def watch(name):
        original = getattr(pl.LazyFrame, name)

        def noted(self, *arguments, **options):
            plan = self.explain()
            if (
                "csv scan" in plan.lower()
                and "slice" not in plan.lower()
                and not within
            ):
                calls.append(name)
            within.append(name)  # some of them call others
            try:
                return original(self, *arguments, **options)
            finally:
                within.pop()

        monkeypatch.setattr(pl.LazyFrame, name, noted)

    for name in dir(pl.LazyFrame):
        if name.startswith(RUN) and name != "collect_schema":
            watch(name)
    for name in dir(pl):
        if name.startswith("read_csv"):
            monkeypatch.setattr(pl, name, lambda *_, **__: calls.append("read"))
    return calls


def test_the_counter_counts(path, parses):
    source = find_source(path)
    source.collect(source.scan().select("label").head(1))
    _ = source.schema, source.is_empty, source.row_bytes, source.about_rows
    assert parses == []
    source.read()
    source.read()
    assert parses == ["collect", "collect"]
    source.locate()
    assert parses == ["collect", "collect", "collect_batches"]


def test_a_page_with_ids_and_texts_needs_one_parse(path, parses, run, tmp_path):
    page = tmp_path / "page.html"
    completed = run(
        *("diagnose", path, "--html", page, "--json", tmp_path / "r.json"),
        *("--ids", "id", "--texts", "text"),
    )
    assert completed.returncode == 0, completed.stderr
    html = page.read_text()
    assert "row 1" in html
    assert "words" in html
    assert parses == ["collect"]


@pytest.mark.parametrize(
    "command",
    [
        ("diagnose", "{path}"),
        ("calibrate", "{path}", "--frr", 0.1, "-o", "{folder}/g.json"),
        ("calibrate", "{path}", "--risk", 0.1, "--no-labels", "-o", "{folder}/g.json"),
        ("screen", "{path}", "--gamma", 1, "-o", "{folder}/out.csv"),
        ("compare", "{path}"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_needs_one_parse(command, path, parses, run, tmp_path):
    command = (str(word).format(path=path, folder=tmp_path) for word in command)
    completed = run(*command)
    assert completed.returncode == 0, completed.stderr
    assert len(parses) == 1


def test_check_needs_one_parse(path, parses, run, tmp_path):
    gate = ("--gate", tmp_path / "gate.json")
    assert run("calibrate", path, "--frr", 0.1, "-o", gate[1]).returncode == 0
    parses.clear()
    completed = run("check", path, *gate, "--state", tmp_path / "state.json")
    assert completed.returncode == 0, completed.stderr
    assert len(parses) == 1


@pytest.mark.skipif(not _native.available, reason="no compiler built the kernels")
def test_a_page_needs_one_native_pass(path, run, tmp_path, monkeypatch):
    calls, score = [], _native.score
    monkeypatch.setattr(
        _native, "score", lambda *a, **o: calls.append(a) or score(*a, **o)
    )
    completed = run("diagnose", path, "--html", tmp_path / "page.html")
    assert completed.returncode == 0, completed.stderr
    assert len(calls) == 1


def test_additional_columns_are_read_in_the_same_parse(path, parses):
    source = find_source(path, Columns(ids="id", groups="id", texts="text"))
    loaded, table = source.load("label")
    assert loaded.ids[7] == loaded.groups[7] == "row 7"
    assert table["text"].to_list() == ["words"] * N
    assert parses == ["collect"]
