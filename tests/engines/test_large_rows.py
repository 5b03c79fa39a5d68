"""Files whose pieces are too large for the memory are read a few rows at a time."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.engines import Means, find_engine, tuned
from trustdoctor.engines.memory import BASE_MEMORY
from trustdoctor.errors import FileError
from trustdoctor.files import find_source
from trustdoctor.files.formats import parquet
from trustdoctor.gates import CalibrationSketch
from trustdoctor.progress import Pace
from trustdoctor.scores import find_score

ROWS, CLASSES = 6000, 20
NARROW = BASE_MEMORY + 500_000
"""Leaves half a megabyte: any row group below takes a third of that, four times."""


def rows(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n)
    z = rng.normal(size=(n, CLASSES)).astype(np.float32)
    z[np.arange(n), labels] += 2
    named = {"id": [f"{i:06}" for i in range(n)]}
    named |= {f"logit_{j}": z[:, j] for j in range(CLASSES)}
    return pl.DataFrame(named | {"label": labels, "text": ["x" * 900] * n})


def predictions(table):
    z = table.select(pl.col("^logit_.*$")).to_numpy()
    return td.Predictions.from_logits(z, table["label"].to_numpy())


class StreamingLocal(type(find_engine("local"))):
    in_memory = False


def within(memory):
    return Means(StreamingLocal(), memory)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("fat") / "rows.parquet"
    rows().write_parquet(path, row_group_size=ROWS)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    return path


@pytest.fixture
def partitions(tmp_path):
    """The same rows in a partitioned folder, a row group each."""
    table = rows()
    for i, day in enumerate(("mon", "tue", "tue")):
        folder = tmp_path / "in" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        file_rows = table[i * 2000 : (i + 1) * 2000]
        file_rows.write_parquet(folder / f"{i}.parquet")
    return tmp_path / "in"


@pytest.fixture
def batches(monkeypatch):
    """The sizes of the batches that predictions are made of."""
    sizes, read_slices = [], parquet._slices

    def noted(*arguments):
        for frame in read_slices(*arguments):
            sizes.append(len(frame))
            yield frame

    monkeypatch.setattr(parquet, "_slices", noted)
    return sizes


def folded(path, state, memory):
    engine = find_engine("local")
    pace = Pace(None, "", 1)
    counted = engine.fold(find_source(path), state, memory=memory, pace=pace)
    assert pace.rows == ROWS
    return counted


@pytest.mark.parametrize("files_fixture", ["path", "partitions"])
def test_a_diagnosis_is_that_of_all_rows(files_fixture, request, batches):
    source = request.getfixturevalue(files_fixture)
    evaluation = folded(source, td.Tally(["alpha"]), NARROW).evaluate()
    assert sum(batches) == ROWS
    assert 64 <= max(batches) < 1000
    at_once = td.Tally(["alpha"])
    at_once.update(predictions(rows()))
    assert evaluation.to_json() == at_once.evaluate().to_json()


def test_a_gate_is_that_of_all_rows(path, batches):
    at_once = CalibrationSketch(find_score("alpha"), "predicted")
    at_once.update(predictions(rows()))
    sketch = folded(path, CalibrationSketch(find_score("alpha"), "predicted"), NARROW)
    assert len(batches) > 5
    assert sketch.pooled.to_bytes() == at_once.pooled.to_bytes()
    gates = [
        engines.calibrate_files(find_source(path), frr=0.1, means=within(memory))
        for memory in (NARROW, 2 * 10**9)
    ]
    assert gates[0].to_json() == gates[1].to_json()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow", ".npz", ""])
@pytest.mark.parametrize("files_fixture", ["path", "partitions"])
def test_decisions_come_in_the_order_of_the_rows(
    files_fixture, suffix, request, batches, tmp_path
):
    table, out = rows(), tmp_path / f"out{suffix}"
    source = request.getfixturevalue(files_fixture)
    gate = td.calibrate(predictions(table), frr=0.2)
    expected = gate.screen(predictions(table))
    outcome = engines.screen(find_source(source), gate, out, means=within(NARROW))
    assert sum(batches) >= ROWS
    assert max(batches) < 1000
    assert outcome == td.Outcome.of_predictions(predictions(table), expected.accepted)
    if suffix == ".npz":
        with np.load(out) as decisions:
            assert np.array_equal(decisions["score"], expected.doubts)
        return
    read = {".csv": pl.read_csv, ".arrow": pl.read_ipc}.get(suffix, pl.read_parquet)
    files = [out] if suffix else sorted(out.rglob("*.parquet"))
    decisions = pl.concat([read(file) for file in files], how="diagonal")
    if suffix != ".csv":
        assert decisions.select(table.columns).equals(table)
    assert decisions["id"].cast(pl.Int64).to_list() == list(range(ROWS))
    assert decisions["score"].cast(pl.Float32).to_numpy() == pytest.approx(
        expected.doubts
    )
    assert decisions["accepted"].to_list() == expected.accepted.tolist()


def test_a_bad_row_is_reported_with_its_number(tmp_path, batches):
    z = rows()["logit_3"].to_numpy().copy()
    z[4321] = np.nan
    table = rows().with_columns(logit_3=pl.Series(z))
    path, out = tmp_path / "bad.parquet", tmp_path / "out.parquet"
    table.write_parquet(path, row_group_size=ROWS)
    gate = td.Gate(-0.5, score="alpha")
    with pytest.raises(FileError, match=r"bad\.parquet: .*row 4321"):
        engines.screen(find_source(path), gate, out, means=within(NARROW))
    assert batches
    assert list(tmp_path.iterdir()) == [path]


def test_only_needed_columns_count_when_nothing_is_written(path, batches):
    """A column that repeats itself takes little of the file, and much when read."""
    source = find_source(path)
    needed, complete = (
        source.largest_piece(all_columns=every) for every in (False, True)
    )
    assert 4 * CLASSES * ROWS <= needed < 2 * 4 * CLASSES * ROWS
    assert 900 * ROWS <= complete < 1.5 * 1000 * ROWS
    enough = BASE_MEMORY + 4 * needed
    gate = td.Gate(-0.5, score="alpha")
    engines.screen(source, gate, None, means=within(enough))
    assert batches == []
    engines.screen(source, gate, None, means=within(enough - 4))
    assert sum(batches) == ROWS + 1  # one to learn the types


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ".jsonl", ".npz"])
def test_rows_are_as_large_as_all_their_columns(suffix, tmp_path):
    table, path = rows(500), tmp_path / f"a{suffix}"
    write = {
        ".parquet": table.write_parquet,
        ".arrow": table.write_ipc,
        ".csv": table.write_csv,
        ".jsonl": table.write_ndjson,
        ".npz": lambda at: np.savez(at, logits=predictions(table).logits),
    }
    write[suffix](path)
    source = find_source(path)
    numbers = 4 * CLASSES
    assert source.rows == 500
    if suffix == ".npz":
        assert source.row_size() == source.row_size(all_columns=True) == numbers
        return
    assert numbers <= source.row_size() < 600
    assert 900 <= source.row_size(all_columns=True) < 2000
    head = source.head(["id", "text"], 7)
    assert head.rows() == table.select("id", "text").head(7).rows()


def test_batches_are_smaller_where_all_columns_pass(path):
    sizes = []
    for every in (False, True):
        with tuned(find_source(path), 10**9, all_columns=every):
            sizes.append(int(os.environ["POLARS_IDEAL_MORSEL_SIZE"]))
    assert sizes[0] > 5 * sizes[1]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_row_groups_are_sized_by_all_columns(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1 << 20, raising=False)
    table = rows()
    path, out = tmp_path / f"in{suffix}", tmp_path / "out.parquet"
    (table.write_csv if suffix == ".csv" else table.write_parquet)(path)
    gate = td.Gate(-0.5, score="alpha")
    engines.screen(find_source(path), gate, out)
    groups = pq.ParquetFile(out).metadata
    counts = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert sum(counts) == ROWS
    assert max(counts) <= (1 << 20) / 900
    assert len(counts) < 20
    assert pl.read_parquet(out)["text"].equals(table["text"])


def test_record_batches_that_do_not_fit_are_refused(tmp_path, run):
    table = rows()
    path, out = tmp_path / "in.arrow", tmp_path / "out.arrow"
    table.write_ipc(path, record_batch_size=ROWS, compression="zstd")
    gate = td.Gate(-0.5, score="alpha")
    say = r"pieces of .* MB .* Give --memory 0\.6GB, or write smaller record batches"
    with pytest.raises(FileError, match=say):
        engines.screen(find_source(path), gate, out, means=within(NARROW))
    with pytest.raises(FileError, match=say):
        engines.diagnose(find_source(path), means=within(NARROW))
    assert not out.exists()
    small = tmp_path / "small.arrow"
    table.write_ipc(small, record_batch_size=100)
    outcome = engines.screen(find_source(small), gate, out, means=within(NARROW))
    assert outcome.rows == ROWS
    assert pl.read_ipc(out)["id"].equals(table["id"])
    assert run("screen", path, "--gamma", 1, "--memory", "1GB").returncode == 0


RUN = """
import atexit, pathlib, re
from trustdoctor.cli import main

def tell():
    status = pathlib.Path("/proc/self/status").read_text()
    print(re.search(r"VmHWM:\\s+([0-9]+) kB", status)[1])

atexit.register(tell)
main()
"""


def peak(arguments, cwd):
    """Run the command line, and return the most memory that it had."""
    command = [sys.executable, "-c", RUN, *map(str, arguments), "-q"]
    completed = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=True
    )
    return int(completed.stdout) * 1024


@pytest.mark.soak
def test_fat_rows_stay_within_the_memory(tmp_path):
    n, size = 10_000, 20_000
    rng = np.random.default_rng(0)
    path = tmp_path / "fat.parquet"
    with pq.ParquetWriter(path, _schema(), compression="zstd") as out:
        for number in range(10):
            z = rng.normal(size=(n, 3))
            labels = z.argmax(1)
            labels[::7] = 0
            texts = [f"{number} {i} ".ljust(size, "x") for i in range(n)]
            columns = [*(z[:, j] for j in range(3)), labels, texts]
            out.write_table(pa.table(columns, schema=_schema()), row_group_size=n)
    assert path.stat().st_size < 10**7
    assert peak(["screen", path, "--gamma", 1, "--memory", "1GB"], tmp_path) < 1.2e9
    options = ["--gamma", 1, "--memory", "1GB", "-o", "d.parquet"]
    assert peak(["screen", path, *options], tmp_path) < 1.2e9
    written_metadata = pq.ParquetFile(tmp_path / "d.parquet").metadata
    assert written_metadata.num_rows == 10 * n
    assert (
        max(
            written_metadata.row_group(i).num_rows
            for i in range(written_metadata.num_row_groups)
        )
        < n
    )


def _schema():
    numbers = [(f"logit_{j}", pa.float64()) for j in range(3)]
    return pa.schema([*numbers, ("label", pa.int64()), ("text", pa.string())])
