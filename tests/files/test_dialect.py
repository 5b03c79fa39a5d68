"""How text files are written: separators, decimal signs, encodings, standard input."""

import gzip
import io
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from file_kinds import (
    KINDS,
    STREAMED,
    arrow,
    by_name,
    held_out,
    lines,
    parquet,
    plain_probs,
    text,
)

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import FileError
from trustdoctor.files import find_source
from trustdoctor.files.formats.dialect import sniff

HEAD = "prob_cat,prob_dog,label"
BODY = [("0.75", "0.25", "cat"), ("1.25e-1", "8.75E-1", "cat"), ("0.5", "0.5", "dog")]


def write(path, separator=",", *, comma=False, encoding="utf-8", end="\n"):
    rows = [[v.replace(".", ",") if comma else v for v in row] for row in BODY]
    all_lines = [HEAD.replace(",", separator), *map(separator.join, rows)]
    path.write_bytes((end.join(all_lines) + end).encode(encoding))
    return path


def expect(p):
    assert (
        p.logits.tolist() == np.log([[0.75, 0.25], [0.125, 0.875], [0.5, 0.5]]).tolist()
    )
    assert p.labels.tolist() == [0, 0, 1]
    assert p.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("encoding", "end"),
    [("utf-8", "\r\n"), ("utf-8-sig", "\n"), ("utf-16", "\r\n"), ("utf-32", "\n")],
)
@pytest.mark.parametrize(
    ("separator", "comma"),
    [(",", False), (";", False), (";", True), ("\t", False), ("\t", True), ("|", True)],
)
def test_every_way_to_write_the_same_rows(separator, comma, end, encoding, tmp_path):
    path = write(tmp_path / "p.csv", separator, comma=comma, encoding=encoding, end=end)
    expect(td.read(path))
    assert sniff(path).separator == separator


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_byte_order_marks_are_recognised(encoding, tmp_path):
    path = write(tmp_path / "p.csv", encoding=encoding)
    mark = "\ufeff".encode(encoding)
    path.write_bytes(mark + path.read_bytes())
    expect(td.read(path))


def test_a_byte_order_mark_before_json(tmp_path):
    path = tmp_path / "p.jsonl"
    lines(by_name("prob_"), path)
    expected = td.read(path).labels.tolist()
    for encoding in ("utf-8-sig", "utf-16"):
        other = tmp_path / f"{encoding}.jsonl"
        other.write_bytes(path.read_text().encode(encoding))
        assert td.read(other).labels.tolist() == expected


def test_quoted_names_may_hold_separators(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('"cat; small","dog; big","label"\n0.7,0.3,"cat; small"\n')
    p = td.read(path, probs=["cat; small", "dog; big"])
    assert p.labels.tolist() == [0]


def test_a_file_of_one_row_has_its_decimal_commas(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("prob_0;prob_1;label\n0,75;0,25;0\n")
    assert td.read(path).logits.tolist() == np.log([[0.75, 0.25]]).tolist()


def test_a_decimal_comma_in_quotes_is_not_read_in_a_file_of_commas(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('prob_0,prob_1,label\n"0,75","0,25",0\n')
    with pytest.raises(
        FileError, match="Decimal commas are read in files separated by"
    ):
        td.read(path)


def test_decisions_are_written_as_the_input_was(tmp_path):
    path = tmp_path / "p.csv"
    text(by_name("prob_"), path, separator=";", comma=True)
    gate = td.Gate(-1.0, score="alpha")
    for means in (None, STREAMED):
        engines.screen(find_source(path), gate, tmp_path / "out.csv", means=means)
        out = (tmp_path / "out.csv").read_text().splitlines()
        assert out[0].endswith(";label;predicted;score;accepted")
        assert all("." not in line for line in out[1:])
        before = path.read_text().splitlines()
        assert all(b.startswith(a) for a, b in zip(before, out, strict=True))
        loaded = td.read(tmp_path / "out.csv")
        assert loaded.logits.tobytes() == td.read(path).logits.tobytes()
        stored = [float(line.split(";")[-2].replace(",", ".")) for line in out[1:]]
        assert stored == td.alpha(loaded).tolist()


@pytest.mark.parametrize("suffix", [".tsv", ".csv.gz", ".tsv.gz", ".jsonl", ".arrow"])
def test_decisions_in_other_formats_can_be_read_again(suffix, tmp_path):
    path = tmp_path / "p.csv"
    text(by_name("prob_"), path)
    out = tmp_path / f"out{suffix}"
    engines.screen(find_source(path), td.Gate(-1.0, score="alpha"), out)
    loaded = td.read(out)
    assert loaded.logits.tobytes() == td.read(path).logits.tobytes()
    assert loaded.labels.tolist() == held_out().labels.tolist()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".arrow", ".parquet"])
def test_folders_that_say_something_of_their_files(suffix, tmp_path):
    """A column of the folders' names, and the same folders with decisions."""
    kind = {".csv": text, ".jsonl": lines, ".arrow": arrow, ".parquet": parquet}[suffix]
    table = by_name("prob_")
    for day, day_rows in (("day=1", table[:100]), ("day=2", table[100:])):
        (tmp_path / "in" / day).mkdir(parents=True)
        kind(day_rows, tmp_path / "in" / day / f"rows{suffix}")
    source = find_source(tmp_path / "in")
    assert source.read().labels.tolist() == held_out().labels.tolist()
    outcome = engines.screen(source, td.Gate(-1.0, score="alpha"), tmp_path / "out")
    assert outcome.rows == len(table)
    assert (tmp_path / "out" / "day=2" / f"rows{suffix}").is_file()


@pytest.mark.parametrize("name", ["run[12].jsonl", "a*.jsonl", "run[12].arrow"])
def test_names_are_not_patterns(name, tmp_path):
    (lines if name.endswith("l") else arrow)(by_name("prob_"), tmp_path / name)
    assert len(td.read(tmp_path / name)) == len(held_out().labels)


def test_parts_whose_names_differ_in_their_normal_form_are_one(tmp_path):
    """A folder that a Mac and another machine wrote into."""
    for i, name in enumerate(("caf\u00e9", "cafe\u0301")):
        path = tmp_path / f"{i}.csv"
        path.write_text(f"prob_{name},prob_b,label\n0.75,0.25,caf\u00e9\n")
    assert td.read(tmp_path).labels.tolist() == [0, 0]


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_compressed_files_are_refused(damage, tmp_path):
    content = bytearray(gzip.compress(plain_probs().write_csv().encode()))
    if damage == "cut":
        content = content[:-40]
    else:
        content[15:25] = b"\xff" * 10
    path = tmp_path / "p.csv.gz"
    path.write_bytes(content)
    with pytest.raises(FileError, match="cannot read"):
        td.read(path)


def test_a_changed_file_is_looked_at_again(tmp_path):
    path = write(tmp_path / "p.csv", ",")
    expect(td.read(path))
    write(path, ";", comma=True)
    expect(td.read(path))
    write(path, "\t", encoding="utf-16")
    expect(td.read(path))


# Standard input.


class Piped:
    """Standard input with bytes in it."""

    def __init__(self, content):
        self.buffer = io.BytesIO(content)


def content_of(kind, tmp_path):
    return kind.alone(tmp_path).read_bytes()


STANDARD = (
    *("prob_ and a name", "semicolons", "decimal commas", "tabs in .tsv", "packed"),
    *("JSON lines", "Arrow", "categoricals", "arrays", "UTF-16", "a byte-order mark"),
)


@pytest.mark.parametrize("name", STANDARD)
def test_standard_input_says_itself_what_it_is(name, tmp_path, monkeypatch):
    kind = KINDS[name]
    content = content_of(kind, tmp_path)
    monkeypatch.setattr(sys, "stdin", Piped(content))
    p = td.read("-", **kind.options)
    expected = td.read(tmp_path / f"rows{kind.suffix}", **kind.options)
    assert p.logits.tobytes() == expected.logits.tobytes()
    assert p.labels.tolist() == expected.labels.tolist()


def test_standard_input_is_read_again_each_time(monkeypatch):
    for label in ("cat", "dog"):
        content = f"{HEAD}\n0.5,0.5,{label}\n".encode()
        monkeypatch.setattr(sys, "stdin", Piped(content))
        p = td.read("-")
        assert p.class_names[p.labels[0]] == label


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "standard input is empty"),
        (b" \n\n", "standard input is empty"),
        (b'[{"prob_cat": 0.5, "prob_dog": 0.5}]', "one JSON object per line"),
        (b"PK\x03\x04xl/workbook.xml", "cannot read"),
    ],
)
def test_standard_input_that_is_not_rows_is_refused(content, match, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Piped(content))
    with pytest.raises(FileError, match=match):
        td.read("-")


def test_a_pipe_into_the_command_line(tmp_path):
    path = tmp_path / "p.csv"
    text(by_name(), path, separator=";")
    command = [sys.executable, "-m", "trustdoctor", "diagnose", "-", "--quiet"]
    command += ["--probs", "cat,dog,horse,ship", "--score", "alpha", "--json", "-"]
    completed = subprocess.run(
        command, input=path.read_bytes(), capture_output=True, check=False
    )
    assert completed.returncode == 0, completed.stderr.decode()
    report = json.loads(completed.stdout)
    wrong = held_out().probs.argmax(1) != held_out().labels
    assert report["n"] == len(wrong)
    assert report["n_errors"] == wrong.sum()


def test_text_stays_text_and_numbers_stay_numbers(tmp_path):
    """Columns that are not asked for are kept as they were written."""
    path = tmp_path / "p.csv"
    path.write_text("code;prob_a;prob_b;label\n007;0,5;0,5;a\n010;0,25;0,75;b\n")
    out = tmp_path / "out.csv"
    engines.screen(find_source(path), td.Gate(0.0, score="alpha"), out)
    decisions = pl.read_csv(out, separator=";", infer_schema=False)
    assert decisions["code"].to_list() == ["007", "010"]
    assert decisions["prob_a"].to_list() == ["0,5", "0,25"]
