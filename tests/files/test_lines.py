"""Text files that were cut, lines without an end, and what a limit leaves of both."""

import gzip
import subprocess
import sys
import zlib

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor.engines.memory import fits, tuned, with_room
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import Columns, find_source, read_rows
from trustdoctor.files.formats import lines

HEADER = "logit_0,logit_1,label\n"
WHOLE = HEADER + "2.5,0.5,0\n0.25,-2.0643,1\n"
GB = 10**9


def write(path, text):
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.txt.csv"])
@pytest.mark.parametrize("size", range(len(HEADER) + 10, len(WHOLE)))
def test_every_cut_of_the_last_line_is_refused(name, size, tmp_path):
    text = WHOLE.replace(",", "\t") if "tsv" in name else WHOLE
    assert len(td.read(write(tmp_path / name, text))) == 2
    (tmp_path / "cut").mkdir()
    path = write(tmp_path / "cut" / name, text[:size])
    if text[:size].endswith("\n"):
        assert len(td.read(path)) == 1
        return
    with pytest.raises(FileError, match=r"has no line end.* --last-line keep"):
        td.read(path)


def test_a_last_line_is_kept_on_request(tmp_path):
    path = write(tmp_path / "a.csv", WHOLE[:-1])
    assert td.read(path, last_line="keep").labels.tolist() == [0, 1]
    path = write(tmp_path / "a.csv", WHOLE + "1,2\n")
    with pytest.raises(FileError, match="has 2 of 3 values"):
        td.read(path)
    assert td.read(path, last_line="keep").has_label.tolist() == [True, True, False]
    with pytest.raises(InputError, match="--last-line keep, or nothing, got 'drop'"):
        td.read(path, last_line="drop")


@pytest.mark.parametrize(
    "end",
    [
        "",
        "\n\n\n",
        "\r\n",
        ",,\n",
        '1,2,"1"\n',
        '1,2,"1"\r\n\r\n',
        ' 1, 2,"\n1"\n',
    ],
)
def test_whole_last_lines_are_taken(end, tmp_path):
    rows = 2 + ("1" in end)
    assert len(td.read(write(tmp_path / "a.csv", WHOLE + end))) == rows
    wide = write(tmp_path / "b.csv", (WHOLE + end).encode("utf-16"))
    assert len(td.read(wide)) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logit_0,logit_1,la", "has no line end"),
        (WHOLE + '1,2,"a\nb', "has no line end"),
        (WHOLE + '1,"2\n3"\n', "has 2 of 3 values"),
        (WHOLE + '"1,2,0"\n', "has 1 of 3 values"),
        (WHOLE + "1,2,0\r", "has no line end"),
        (WHOLE + "5\n\n\n", "has 1 of 3 values"),
        ("sep=,\n" + WHOLE + "1,2\n", "has 2 of 3 values"),
    ],
)
def test_cut_lines_are_refused_however_they_look(text, message, tmp_path):
    with pytest.raises(FileError, match=message):
        td.read(write(tmp_path / "a.csv", text))
    with pytest.raises(FileError, match=message):
        td.read(write(tmp_path / "b.csv", text.encode("utf-16")))


def test_every_cut_of_a_packed_file_is_refused(tmp_path, run):
    packed = gzip.compress(WHOLE.encode() * 30)
    for size in range(2, len(packed), 7):
        (tmp_path / "a.csv.gz").write_bytes(packed[:size])
        completed = run("screen", tmp_path / "a.csv.gz", "--gamma", 1)
        assert completed.returncode == 2, size
        assert "cut short" in completed.stderr or "is empty" in completed.stderr
        assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("kind", ["zstd", "zlib"])
def test_other_packers_are_refused(kind, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(zlib.compress(WHOLE.encode()))
    if kind == "zstd":
        rows = pl.LazyFrame({"logit_0": [1.0], "logit_1": [2.0]})
        rows.sink_csv(path, compression="zstd", check_extension=False)
    with pytest.raises(FileError, match="compressed, but not by gzip"):
        td.read(path)


def test_every_command_refuses_a_truncated_file_and_accepts_an_intact_one(
    tmp_path, run
):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(300, 2))
    table = pl.DataFrame({"id": np.arange(300), "logit_0": z[:, 0], "logit_1": z[:, 1]})
    table = table.with_columns(
        label=pl.Series((z + rng.gumbel(size=z.shape)).argmax(1))
    )
    cut, complete, truth = (tmp_path / f"{n}.csv" for n in ("cut", "whole", "truth"))
    table.write_csv(complete)
    cut.write_text(complete.read_text()[:-1])
    truth.write_text(table.select("id", "label").write_csv()[:-1])
    table.drop("label").write_csv(tmp_path / "bare.csv")
    gate, state, out = (tmp_path / n for n in ("gate.json", "state.json", "o.csv"))
    assert run("calibrate", complete, "--frr", "0.2", "-o", gate).returncode == 0
    new = ("-o", tmp_path / "new.json")
    commands = (
        ("diagnose", cut),
        ("diagnose", tmp_path / "bare.csv", "--ids", "id", "--truth", truth),
        ("calibrate", cut, "--frr", "0.2", *new),
        ("screen", cut, "--gate", gate, "-o", out),
        ("check", cut, "--gate", gate, "--state", state),
        ("check", complete, "--gate", gate, "--state", state, "--reference", cut),
        ("compare", cut),
        ("split", cut, "-o", out, tmp_path / "p.csv"),
        ("cascade", cut, complete, *("--costs", "0,1,9"), "--risk", "0.4", *new),
    )
    for command in commands:
        before = sorted(tmp_path.iterdir())
        completed = run(*command)
        assert completed.returncode == 2, command
        assert "has no line end" in completed.stderr
        assert completed.stderr.count("\n") == 1
        assert sorted(tmp_path.iterdir()) == before
        accepted = run(*command, "--last-line", "keep")
        assert accepted.returncode in (0, 3), (command, accepted.stderr)
    completed = run("diagnose", cut, "--last-line", "drop")
    assert "expected --last-line keep" in completed.stderr


def test_rows_to_classify_are_whole(tmp_path):
    path = write(tmp_path / "a.csv", "text,n\ngood,1\nba")
    options = {"where": None, "rows": None, "seed": 0}
    with pytest.raises(FileError, match="no line end"):
        read_rows(path, "text", **options)
    table = read_rows(path, "text", **options, last_line="keep")
    assert table["text"].to_list() == ["good", "ba"]


# Lines without an end


@pytest.fixture
def parser(monkeypatch):
    """No parser: whoever calls one has not looked at the lines."""

    def late(*_, **__):
        raise AssertionError

    for name in ("scan_csv", "scan_ndjson", "scan_lines", "read_csv"):
        monkeypatch.setattr(pl, name, late)


ENDLESS = {
    "in a row": b"logit_0,logit_1,label\n1,2,0\n" + b"1" * (lines.LONGEST + 9),
    "in the header": b"logit_0," * (lines.LONGEST // 8 + 2) + b"label\n1,2\n",
    "in quotes": b'logit_0,logit_1,t\n1,2,"' + b"1\n" * (lines.LONGEST // 2 + 9),
    "first of many": b"1" * (lines.LONGEST + 9) + b"\n" + b"1,2\n" * 100,
}


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("kind", ENDLESS)
def test_oversized_lines_are_refused_before_they_are_parsed(kind, name, tmp_path, run):
    path = write(tmp_path / name, ENDLESS[kind])
    completed = run("screen", path, "--gamma", 1)
    assert completed.returncode == 2
    assert "expected lines of at most 16,777,216 bytes" in completed.stderr
    assert completed.stderr.count("\n") == 1


@pytest.mark.usefixtures("parser")
def test_packed_lines_are_bounded_whatever_the_file_is_called(tmp_path, run):
    endless = gzip.compress(ENDLESS["in a row"])
    for name in ("a.csv", "a.jsonl"):
        (tmp_path / name).write_bytes(endless)
        completed = run("diagnose", tmp_path / name)
        assert "expected lines of at most" in completed.stderr, name


@pytest.mark.usefixtures("parser")
def test_columns_are_bounded_before_they_are_parsed(tmp_path, run):
    columns = [f"logit_{i}" for i in range(lines.MOST_COLUMNS + 1)]
    text = ",".join(columns) + "\n" + ",".join(["1"] * len(columns)) + "\n"
    for name in ("a.csv", "a.csv.gz"):
        completed = run("screen", write(tmp_path / name, text), "--gamma", 1)
        assert completed.returncode == 2
        assert "at most 32,768 columns" in completed.stderr
        assert "got 32,769" in completed.stderr


def test_wide_tables_say_which_memory_they_need(tmp_path, run):
    columns = [f"logit_{i}" for i in range(9_000)]
    text = ",".join(columns) + "\n" + ",".join(["1"] * len(columns)) + "\n"
    path = write(tmp_path / "a.csv", text)
    completed = run("screen", path, "--gamma", 1, "--memory", "1GB")
    assert completed.returncode == 2
    assert "Give --memory 1.1GB" in completed.stderr
    source = find_source(path)
    assert not fits(source, GB)
    assert fits(source, 1_100_000_000)
    assert with_room(source, 1_100_000_000) is source


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl"])
def test_long_lines_say_which_memory_they_need(name, tmp_path):
    long = "x" * 8_000_000
    rows = {"csv": f"logit_0,logit_1,t\n1,2,{long}\n"}
    rows["jsonl"] = f'{{"logit_0": 1, "logit_1": 2, "t": "{long}"}}\n'
    source = find_source(write(tmp_path / name, rows[name.split(".")[1]]))
    for are_written, least in ((False, 1.2 * GB), (True, 3 * GB)):
        with (
            pytest.raises(FileError, match=r"Give --memory [\d.]+GB"),
            tuned(source, GB, all_columns=are_written),
        ):
            pass
        with tuned(source, int(least), all_columns=are_written):
            pass
    assert not fits(source, GB)


PEAK = """
import sys
from trustdoctor.cli import main
try:
    main()
finally:
    status = open("/proc/self/status").read()  # ru_maxrss counts the parent, too
    print(status.split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    ["diagnose FILE", "calibrate FILE --frr 0.1 -o gate.json", "compare FILE"],
)
def test_long_lines_are_refused_before_any_is_parsed(words, tmp_path):
    line = f'{{"logit_0": 1, "logit_1": 2, "label": 0, "t": "{"x" * 15_000_000}"}}\n'
    path = write(tmp_path / "a.jsonl", line * 8)
    arguments = [*words.replace("FILE", str(path)).split(), "--memory", "1GB"]
    command = [sys.executable, "-c", PEAK, *arguments]
    completed = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert completed.returncode == 2, completed.stderr
    message, peak = completed.stderr.splitlines()
    assert "memory" in message
    assert int(peak) < 300_000  # kB; 430,000 where the lines are parsed


@given(st.text(alphabet='a",\n', max_size=60), st.integers(1, 9))
def test_lines_end_outside_of_quotes(text, block):
    import io
    from unittest.mock import patch

    ends, inside = [], False
    for at, sign in enumerate(text):
        inside ^= sign == '"'
        if sign == "\n" and not inside:
            ends.append(at)
    with patch.object(lines, "_BLOCK", block):
        walked = list(lines._blocks_with_ends(io.BytesIO(text.encode())))
    assert b"".join(block_text for block_text, _ in walked).decode() == text
    first = 0
    for block_text, block_ends in walked:
        expected_ends = [
            at - first for at in ends if first <= at < first + len(block_text)
        ]
        assert block_ends == (
            (expected_ends[0], expected_ends[-1], len(expected_ends))
            if expected_ends
            else None
        )
        first += len(block_text)


def test_columns_say_how_a_last_line_is_read():
    assert Columns(last_line="keep").options() == ["--last-line", "keep"]


@pytest.mark.parametrize("line", ["", "1", "1,2"])
def test_unwritten_cells_are_bounded(line, tmp_path, run):
    """200 columns and a megabyte of short lines are millions of cells."""
    columns = [f"logit_{i}" for i in range(200)]
    rows = ",".join(["1"] * 200) + "\n"
    text = ",".join(columns) + "\n" + rows + (line + "\n") * 400_000 + rows
    for name in ("a.csv", "a.csv.gz"):
        completed = run("screen", write(tmp_path / name, text), "--gamma", 1)
        assert completed.returncode == 2
        assert "most are blank or short" in completed.stderr
    some_blank = ",".join(columns) + "\n" + rows + "\n" * 4_000 + rows
    assert len(td.read(write(tmp_path / "a.csv", some_blank))) == 2


def test_values_that_no_object_has_are_bounded(tmp_path):
    full_line = "{" + ", ".join(f'"logit_{i}": 1.5' for i in range(200)) + "}\n"
    path = write(tmp_path / "a.jsonl", full_line + "{}\n" * 400_000 + full_line)
    with pytest.raises(FileError, match="most are blank or short"):
        td.read(path)
