"""Text files of many columns, of blank lines, and of lines that are too long."""

import gzip
import io
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from file_kinds import IN_MEMORY, STREAMED

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import FileError
from trustdoctor.files import Columns, find_source

GATE = td.Gate(-0.5, score="alpha")
ROOM = 4 << 30


LIMITED = f"""
import resource, runpy
resource.setrlimit(resource.RLIMIT_AS, ({ROOM}, {ROOM}))
runpy.run_module("trustdoctor", run_name="__main__", alter_sys=True)
"""
"""Limits itself: with a `preexec_fn` this process forks, of which JAX warns."""


@pytest.mark.soak
def test_thousands_of_classes_take_little_memory(tmp_path, rng):
    classes = 4000
    z = rng.normal(size=(3, classes))
    table = pl.DataFrame(z, schema=[f"logit_{i}" for i in range(classes)])
    table = table.with_columns(label=pl.Series(z.argmax(1)))
    path = tmp_path / "wide.csv"
    table.write_csv(path)
    for command in (["diagnose"], ["screen", "--gamma", "1", "-o", "d.parquet"]):
        completed = subprocess.run(
            [sys.executable, "-c", LIMITED, *command, path, "--memory", "1GB"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
    decisions = pl.read_parquet(tmp_path / "d.parquet")
    assert decisions.columns == [*table.columns, "predicted", "score", "accepted"]
    assert decisions["predicted"].to_list() == z.argmax(1).tolist()
    assert decisions["logit_3999"].to_list() == z[:, -1].tolist()
    assert decisions["score"].to_numpy() == pytest.approx(td.alpha(z), rel=1e-12)


def lines(rows=300):
    """Return a header, and rows with a column that predictions are not made of."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, 3)).round(3)
    cells = [f"{a},{b},{c},{i % 3},n{i}" for i, (a, b, c) in enumerate(z.tolist())]
    return ["logit_0,logit_1,logit_2,label,note", *cells]


def write(folder, content, *, packed=False, end="\n"):
    path = folder / ("a.csv.gz" if packed else "a.csv")
    text = (end.join(content) + end).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


@pytest.mark.parametrize(
    ("at", "more", "packed"), [(1, ",5", False), (300, ",", False), (300, ",5", True)]
)
def test_a_line_of_too_many_values_is_refused_by_all(at, more, packed, tmp_path, run):
    content = lines()
    content[at] += more
    path, out = write(tmp_path, content, packed=packed), tmp_path / "d.parquet"
    for means in (IN_MEMORY, STREAMED):
        with pytest.raises(FileError, match="cannot read"):
            engines.diagnose(find_source(path), means=means)
        with pytest.raises(FileError, match="cannot read"):
            engines.screen(find_source(path), GATE, out, means=means)
    with pytest.raises(FileError, match="cannot read"):
        engines.screen(find_source(path), GATE, None)
    completed = run("screen", path, "--gamma", 1, "-o", out)
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert list(tmp_path.iterdir()) == [path]


def blank(content, kind):
    """Return lines, some of them without a value."""
    line = {"empty": "", "separators": ",,,,"}[kind]
    header, rows = content[0], content[1:]
    return [header, line, line, *rows[:100], line, *rows[100:], line, line, line]


@pytest.mark.parametrize(
    ("kind", "end", "packed"),
    [("empty", "\n", False), ("separators", "\r\n", False), ("separators", "\n", True)],
)
def test_blank_lines_are_left_out(kind, end, packed, tmp_path):
    (tmp_path / "whole").mkdir()
    full_path = write(tmp_path / "whole", lines())
    path = write(tmp_path, blank(lines(), kind), packed=packed, end=end)
    source, full_source = find_source(path), find_source(full_path)
    assert len(source.read()) == source.rows == 300
    for means in (IN_MEMORY, STREAMED):
        evaluation, expected = (
            engines.diagnose(files, scores=["alpha"], means=means)
            for files in (source, full_source)
        )
        assert evaluation.to_json() == expected.to_json()
        for name in ("d.csv", "d.npz"):
            out, other = tmp_path / name, tmp_path / "whole" / name
            outcome = engines.screen(source, GATE, out, means=means)
            assert outcome == engines.screen(full_source, GATE, other, means=means)
            assert outcome.rows == 300
            assert out.read_bytes() == other.read_bytes()


def test_a_file_of_blank_lines_has_no_rows(tmp_path, run):
    path = write(tmp_path, [lines()[0], "", ",,,,", ""])
    for command in (("diagnose", path), ("screen", path, "--gamma", 1)):
        completed = run(*command)
        assert completed.returncode == 2
        assert "rows" in completed.stderr
        assert completed.stderr.count("\n") == 1


def test_blank_lines_of_a_binary_model_are_left_out(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(200).round(3)
    words = np.where(rng.random(200) < p, "yes", "no")
    text = ["p,label", *(f"{a},{b}" for a, b in zip(p, words, strict=True))]
    with_blanks = [*text[:50], "", ",", *text[50:], ",", ""]
    columns = Columns(probs="p", positive="yes")
    path = write(tmp_path, with_blanks)
    source = find_source(path, columns)
    assert source.read().labels.tolist() == (words == "yes").astype(int).tolist()
    for means in (IN_MEMORY, STREAMED):
        out = tmp_path / "d.csv"
        assert engines.screen(source, GATE, out, means=means).rows == 200
        decisions = pl.read_csv(io.StringIO(out.read_text()))
        assert decisions["p"].to_list() == p.tolist()
        assert (
            decisions["predicted"].to_list() == np.where(p > 0.5, "yes", "no").tolist()
        )
