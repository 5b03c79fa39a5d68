import csv
import gzip
import io
import json
from datetime import time, timedelta

import numpy as np
import polars as pl
import pytest

from trustdoctor import Gate, engines
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files import Columns, find_source, read

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
LOGITS = np.log(PROBS) + 3
LABELS = np.array([0, 2, 0])


def write_decisions(path, source):
    files = find_source(source, Columns(need_labels=False))
    return engines.screen(files, Gate.from_gamma(1.0), path)


def columns(prefix, values):
    return {f"{prefix}{i}": values[:, i] for i in range(values.shape[1])}


def read_table(path):
    """Read all columns, with the types that polars finds; text stays text."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    return pl.read_csv(path)


def write(path, table):
    if path.suffix == ".csv":
        pl.DataFrame(table).write_csv(path)
    elif path.suffix == ".parquet":
        pl.DataFrame(table).write_parquet(path)
    else:
        np.savez(path, **table)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_decisions_keep_the_other_columns_and_their_order(suffix, tmp_path):
    source = write(
        tmp_path / f"p{suffix}", {"id": ["a", "b", "c"], **columns("prob_", PROBS)}
    )
    screened = Gate.from_gamma(1.0).screen(read(source))
    write_decisions(tmp_path / f"out{suffix}", source)
    before, after = read_table(source), read_table(tmp_path / f"out{suffix}")
    assert after.columns == [*before.columns, "predicted", "score", "accepted"]
    assert after.drop("predicted", "score", "accepted").equals(before)
    assert after["predicted"].to_list() == screened.predicted.tolist()
    assert after["accepted"].to_list() == [True, True, False]
    assert after["score"].to_numpy() == pytest.approx(screened.doubts)


def test_decisions_on_an_npz(tmp_path):
    source = write(tmp_path / "p.npz", {"probs": PROBS})
    screened = Gate.from_gamma(1.0).screen(read(source))
    for name in ("out.npz", "out.csv"):
        write_decisions(tmp_path / name, source)
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal(out["score"], screened.doubts)
        assert out["accepted"].tolist() == [True, True, False]
    assert read_table(tmp_path / "out.csv").columns == [
        "predicted",
        "score",
        "accepted",
    ]


def test_decisions_that_cannot_be_written_leave_the_old_file(tmp_path, request):
    rng = np.random.default_rng(0)
    source = write(tmp_path / "p.npz", {"logits": rng.normal(size=(50_000, 3))})
    request.getfixturevalue("full_disk")
    for suffix in (".csv", ".parquet", ".npz"):
        out = tmp_path / f"out{suffix}"
        out.write_text("old")
        with pytest.raises((OutputError, FileError), match="cannot write"):
            write_decisions(out, source)
        assert out.read_text() == "old"
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


def test_decisions_in_odd_places_are_refused(tmp_path):
    source = write(tmp_path / "p.csv", {"score": [1, 2, 3], **columns("prob_", PROBS)})
    with pytest.raises(FileError, match="already has a column 'score'"):
        write_decisions(tmp_path / "out.csv", source)
    with pytest.raises(FileError, match="expected an output"):
        write_decisions(tmp_path / "out.txt", source)
    lists = write(tmp_path / "l.parquet", {"probs": PROBS.tolist()})
    with pytest.raises(FileError, match="holds lists"):
        write_decisions(tmp_path / "out.csv", lists)
    assert not (tmp_path / "out.csv").exists()


def test_the_input_is_never_overwritten(tmp_path):
    path = write(tmp_path / "p.npz", {"probs": PROBS})
    before = path.read_bytes()
    with pytest.raises(OutputError, match="the input itself"):
        write_decisions(tmp_path / "." / "p.npz", path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_text_that_a_number_would_lose_is_kept(suffix, tmp_path):
    source = tmp_path / "p.csv"
    source.write_text("id,prob_0,prob_1\n007,0.50,5e-1\n012,1,0\n")
    write_decisions(tmp_path / f"out{suffix}", source)
    if suffix == ".csv":
        lines = (tmp_path / "out.csv").read_text().splitlines()
        assert lines[1].startswith("007,0.50,5e-1,")
    else:
        assert read_table(tmp_path / "out.parquet")["id"].to_list() == ["007", "012"]


QUOTED = ['a"b', '"', '""', 'say "no", twice', "plain", " spaced ", "semi;colon"]


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.csv.gz"])
def test_a_header_comes_out_as_it_went_in(name, tmp_path):
    """Python's own csv writes and reads it."""
    tab = "\t" if ".tsv" in name else ","
    header = [*QUOTED, "prob_0", "prob_1"]
    text = io.StringIO()
    rows = [[f'{i} "x" {quoted}' for quoted in QUOTED] for i in range(3)]
    table = csv.writer(text, delimiter=tab, lineterminator="\n")
    table.writerows([header, *([*row, "0.75", "0.25"] for row in rows)])
    source = tmp_path / name
    content = text.getvalue().encode()
    source.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    for out in (tmp_path / f"out{name[2:]}", tmp_path / "out.parquet"):
        write_decisions(out, source)
        if out.suffix == ".parquet":
            decisions = pl.read_parquet(out)
            names, cells = decisions.columns, decisions.select(QUOTED_OUT).rows()
            assert [list(row) for row in cells] == rows
        else:
            raw = out.read_bytes()
            raw = gzip.decompress(raw) if name.endswith("gz") else raw
            lines = list(csv.reader(io.StringIO(raw.decode()), delimiter=tab))
            names = lines[0]
            assert [line[: len(QUOTED)] for line in lines[1:]] == rows
        expected = [*QUOTED_OUT, "prob_0", "prob_1"]
        assert names == [*expected, "predicted", "score", "accepted"]


QUOTED_OUT = [name.strip() for name in QUOTED]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow", ".jsonl"])
def test_ids_keep_every_digit(suffix, tmp_path):
    lengths = [*range(15, 46), 60]
    ids = ["".join(str((i + k) % 10) for k in range(1, i + 1)) for i in lengths]
    header = ",".join(f"id{i}" for i in lengths)
    lines = [f"{header},signed,prob_0,prob_1", f"{','.join(ids)},-{ids[9]},0.5,0.5"]
    source = tmp_path / "p.csv"
    source.write_text("\n".join([*lines, lines[1]]) + "\n")
    out = tmp_path / f"out{suffix}"
    write_decisions(out, source)
    if suffix in (".csv", ".tsv"):
        separator = "," if suffix == ".csv" else "\t"
        cells = out.read_text().splitlines()[1].split(separator)
        assert cells[: len(ids) + 1] == [*ids, f"-{ids[9]}"]
        return
    read_all = {
        ".parquet": pl.read_parquet,
        ".arrow": pl.read_ipc,
        ".jsonl": lambda path: pl.DataFrame(
            json.loads(path.read_text().split("\n")[0])
        ),
    }
    row = read_all[suffix](out).row(0)
    written_ids = [str(cell) for cell in row[: len(ids) + 1]]
    assert written_ids == [*ids, f"-{ids[9]}"]


def of_many_kinds(rows=40):
    """Columns of every kind that is neither a number nor a text."""
    z = np.random.default_rng(0).normal(size=(rows, 3))
    turn = [i % 3 for i in range(rows)]
    kinds = {
        "span": [timedelta(seconds=i) for i in turn],
        "hour": [time(i) for i in turn],
        "raw": [bytes([i]) for i in turn],
        "list": [[i] for i in turn],
        "inner": [{"a": i} for i in turn],
        "nothing": [None] * rows,
    }
    table = pl.DataFrame(columns("logit_", z) | kinds | {"label": turn, "text": "x"})
    long = pl.Series("long", [10**30 + i for i in turn], dtype=pl.Int128)
    return table.with_columns(long)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "kind", ["span", "hour", "raw", "list", "inner", "nothing", "long"]
)
@pytest.mark.parametrize(
    "words",
    [
        "diagnose in.parquet --labels {0}",
        "diagnose in.parquet --ids {0} --texts {0} --html page.html",
        "diagnose in.parquet --confidence logit_0 --correct {0}",
        "calibrate in.parquet --groups {0} --frr 0.2 --allow-trivial -o gate.json",
        "screen in.parquet --groups {0} --gamma 1 -o out.parquet",
        "predict --data in.parquet --where {0}=x --model . -o out.csv",
    ],
)
def test_columns_of_any_kind_are_accepted_or_refused_in_one_line(
    words, kind, run, tmp_path
):
    of_many_kinds().write_parquet(tmp_path / "in.parquet")
    completed = run(*words.format(kind).split(), "-q", cwd=tmp_path)
    assert completed.returncode in (0, 2), completed.stderr
    assert completed.stderr.count("\n") == (completed.returncode == 2)
    compared = any(f"--{option}" in words for option in ("labels", "groups", "where"))
    if compared and kind in ("span", "raw", "list", "inner"):
        assert f"expected names or numbers in {kind!r}, got" in completed.stderr


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_groups_may_be_numbers_of_128_bits(suffix, run, tmp_path):
    table = of_many_kinds().select("^logit_.$", "label", "long")
    path, gate = tmp_path / f"in{suffix}", tmp_path / "gate.json"
    if suffix == ".parquet":
        table.write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_dicts()))
    predictions = read(path, groups="long")
    assert predictions.groups.tolist() == [str(number) for number in table["long"]]
    options = ["--groups", "long", "-q"]
    target = ["--frr", 0.2, "--allow-trivial", "-o", gate]
    assert run("calibrate", path, *target, *options).returncode == 0
    assert run("screen", path, "--gate", gate, *options).returncode == 0


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "jsonl"])
def test_bytes_are_refused_where_text_is_written(suffix, tmp_path):
    table = columns("logit_", LOGITS) | {"raw": [b"x", b"\xff", b""]}
    write(tmp_path / "a.parquet", table)
    with pytest.raises(OutputError, match="'raw' holds bytes"):
        write_decisions(tmp_path / f"o.{suffix}", tmp_path / "a.parquet")
    assert write_decisions(tmp_path / "o.parquet", tmp_path / "a.parquet").rows == 3
    assert not (tmp_path / f"o.{suffix}").exists()
