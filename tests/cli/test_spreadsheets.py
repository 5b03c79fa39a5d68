"""Cells for spreadsheets are never formulas, and cells cannot control the terminal."""

import csv
import io
import os
import pty
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor.files import escaped, unescaped

EVIL = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "-"]
TAME = ["-2.5", "+3", "-1e-5", "-.5", "a=b", "it's", "'a", "-2,5"]
NAMES = ("=cat", "dog", "-fish")
SIGNS = tuple("=+-@\t\r")


@pytest.fixture
def place(tmp_path, run):
    rng = np.random.default_rng(0)
    z = (2 * rng.normal(size=(400, 3))).round(3)
    label = (z + rng.gumbel(size=z.shape)).argmax(1)
    notes = [(EVIL + TAME)[i % 16] for i in range(400)]
    ids = [f"{note}{i}" for i, note in enumerate(EVIL * 50)]
    columns = {"id": ids} | {name: z[:, j] for j, name in enumerate(NAMES)}
    table = pl.DataFrame(columns | {"label": [NAMES[j] for j in label], "=note": notes})
    table.write_csv(tmp_path / "rows.csv")
    table.write_parquet(tmp_path / "rows.parquet")
    words = ("calibrate", "rows.csv", "--logits", ",".join(NAMES), "--frr", "0.1")
    completed = run(*words, "-o", "gate.json", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    return tmp_path


LOGITS = ("--logits", ",".join(NAMES), "--gate", "gate.json")


def is_formula(cell):
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return cell.startswith(SIGNS)
    return cell.startswith(("\t", "\r"))


def cells(text):
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("rows", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize(
    ("output", "more"),
    [("o.csv", ()), ("o.csv", ("--only", "rejected")), ("-", ()), ("out", ())],
)
def test_no_cell_is_a_formula_on_request(rows, output, more, place, run):
    if (rows, output) == ("rows.parquet", "out"):
        pytest.skip("a folder is written as it was read")
    command = ("screen", rows, *LOGITS, "-o", output, *more)
    plain = run(*command, cwd=place)
    written = {"o.csv": "o.csv", "out": "out/rows.csv"}.get(output)
    before = cells(
        plain.stdout if written is None else (place / written).read_bytes().decode()
    )
    completed = run(*command, "--for-spreadsheets", cwd=place)
    assert completed.returncode == 0, completed.stderr
    after = cells(
        completed.stdout if written is None else (place / written).read_bytes().decode()
    )
    assert any(is_formula(cell) for row in before for cell in row)
    assert not any(is_formula(cell) for row in after for cell in row)
    for old, new in zip(before, after, strict=True):
        for old_cell, new_cell in zip(old, new, strict=True):
            assert new_cell in (old_cell, f"'{old_cell}")
            assert old_cell not in TAME or new_cell == old_cell


def test_other_outputs_have_no_such_cells(place, run):
    for more in ((), ("-o", "o.parquet"), ("-o", "o.npz")):
        command = ("screen", "rows.csv", *LOGITS, "--for-spreadsheets", *more)
        completed = run(*command, cwd=place)
        assert completed.returncode == 2
        assert "Give -o FILE.csv" in completed.stderr
    check = ("check", "rows.csv", *LOGITS, "--state", "s.json", "--for-spreadsheets")
    completed = run(*check, cwd=place)
    assert completed.returncode == 2
    assert "Give --draw or --late" in completed.stderr


def test_a_drawn_file_for_spreadsheets_is_read_again(place, run):
    state = ("--gate", "gate.json", "--state", "s.json", "--for-spreadsheets")
    drawn = ("--ids", "id", "--review-accepted", 0.3, "--draw", "drawn.csv")
    bare = pl.read_parquet(place / "rows.parquet").drop("label")
    bare.write_parquet(place / "bare.parquet")
    command = ("check", "bare.parquet", "--logits", ",".join(NAMES), *state, *drawn)
    for _ in range(2):  # a retry finds the rows drawn before
        completed = run(*command, cwd=place)
        assert completed.returncode == 0, completed.stderr
    rows = cells((place / "drawn.csv").read_bytes().decode())
    assert not any(is_formula(cell) for row in rows for cell in row)
    head, *data_rows = rows
    filled = [
        [*row[:-1], "'=cat" if i % 2 else "=cat"] for i, row in enumerate(data_rows)
    ]
    with (place / "drawn.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *filled])
    assert run("check", "drawn.csv", *state, "--late", cwd=place).returncode in (0, 1)
    watch = td.Watch.load(place / "s.json", td.Gate.load(place / "gate.json"))
    assert watch.totals.labels == len(data_rows)
    assert len(watch.queue) == 0


@given(st.lists(st.text(alphabet="'=+-@\t\ra1.", max_size=6), max_size=5))
def test_escaped_cells_can_be_restored(texts):
    table = pl.DataFrame({"a": texts}, schema={"a": pl.String})
    after = escaped(table.lazy()).collect()
    assert not any(is_formula(cell) for cell in after["a"])
    assert unescaped(after)["a"].to_list() == texts


CODE = "import sys; from trustdoctor.cli import main; sys.exit(main())"


def test_a_terminal_gets_escaped_cells_and_a_pipe_the_bytes(tmp_path):
    row = b"1,2,0,\x1b]0;owned\x07\x1b[31m\n"
    (tmp_path / "a.csv").write_bytes(b"logit_0,logit_1,label,note\n" + row * 3)
    command = [sys.executable, "-c", CODE, "screen", "a.csv", "--gamma", "1"]
    command += ["-o", "-", "-q"]
    piped = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert piped.stdout.count(b"\x1b[31m") == 3
    ours, theirs = pty.openpty()
    job = subprocess.Popen(command, stdout=theirs, cwd=tmp_path)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # the other end was closed
        pass
    assert job.wait() == 0
    os.close(ours)
    assert shown.count(rb"\x1b[31m") == 3
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert shown.count(b"\r\n") == 4
