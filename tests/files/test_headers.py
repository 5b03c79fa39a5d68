"""Headers announce lengths, but only bytes that are present are allocated."""

import io
import signal
import zipfile

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pytest

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import FileError
from trustdoctor.files import Columns, Source, find_source, read

ROWS = 200
GATE = td.Gate(-0.5, score="alpha")


class HeaderTimeoutError(BaseException):
    """Nothing takes it for a mistake in a file."""


@pytest.fixture(autouse=True)
def _in_time():
    """What would go on for ever fails."""

    def late(*_):
        raise HeaderTimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def values(rows=ROWS):
    return np.random.default_rng(0).normal(size=(rows, 3))


def labels(rows=ROWS):
    return np.random.default_rng(1).integers(0, 3, rows)


def npy(array, version=1, **announced):
    """Return an array's file whose header announces another length."""
    out = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array) | announced
    np.lib.format.write_array_header_1_0(out, header)
    start = out.getvalue()
    return b"\x93NUMPY" + bytes([version]) + start[7:] + array.tobytes("A")


def archive(path, **arrays):
    """Write an archive; its checksums are of the bytes that are there."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in arrays.items():
            out.writestr(f"{name}.npy", content)
    return path


def folder(path, **arrays):
    """Write each array into a separate file."""
    path.mkdir()
    for name, content in arrays.items():
        (path / f"{name}.npy").write_bytes(content)
    return path


def one_line(completed):
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert completed.stderr.startswith("trustdoctor: ")
    assert completed.stderr.count("\n") == 1
    assert "internal error" not in completed.stderr
    return completed.stderr


def refused_by_all(path, run, tmp_path, word):
    """Have every command that reads rows refuse a file, and write nothing."""
    gate, out = tmp_path / "gate.json", tmp_path / "out.npz"
    p = td.Predictions.from_logits(values(), labels())
    td.calibrate(p, frr=0.1).save(gate)
    commands = {
        "diagnose": (),
        "screen": ("--gate", gate, "-o", out),
        "check": ("--gate", gate, "--state", tmp_path / "state.json"),
    }
    before = set(tmp_path.iterdir())
    for command, options in commands.items():
        assert word in one_line(run(command, path, *options)), command
    assert set(tmp_path.iterdir()) == before


WRONG = {
    "twice the rows": (npy(values(), shape=(2 * ROWS, 3)), "announces 9,600 bytes"),
    "10^12 rows": (npy(values(), shape=(10**12, 3)), "and there are 4,800"),
    "one row more": (npy(values(), shape=(ROWS + 1, 3)), "announces 4,824 bytes"),
    "fewer rows": (npy(values(), shape=(ROWS - 1, 3)), "announces 4,776 bytes"),
    "half a row more": (npy(values()) + bytes(12), "and there are 4,812"),
    "no row": (npy(values(), shape=(0, 3)), "announces 0 bytes"),
    "a negative number of rows": (npy(values(), shape=(-ROWS, 3)), "(-200, 3)"),
    "two negative numbers": (npy(values(), shape=(-ROWS, -3)), "(-200, -3)"),
    "by columns, short": (
        npy(np.asfortranarray(values()), shape=(400, 3)),
        "announces 9,600 bytes",
    ),
    "another version": (npy(values(), version=9), "of the version 9.0"),
}


@pytest.mark.parametrize("write", [archive, folder])
@pytest.mark.parametrize("case", WRONG)
def test_what_a_header_announces_must_be_there(case, write, run, tmp_path):
    content, word = WRONG[case]
    path = write(tmp_path / "wrong.npz", logits=content, labels=npy(labels()))
    refused_by_all(path, run, tmp_path, word)


@pytest.mark.parametrize("write", [archive, folder])
@pytest.mark.parametrize(
    "wrong",
    [
        npy(labels(ROWS - 1)),
        npy(labels(ROWS + 1)),
        npy(labels(), shape=(2 * ROWS,)),
        npy(labels(), shape=(-ROWS,)),
        npy(labels(ROWS - 1), shape=(ROWS,)),
    ],
)
def test_labels_are_as_many_as_rows(wrong, write, run, tmp_path):
    path = write(tmp_path / "wrong.npz", logits=npy(values()), labels=wrong)
    refused_by_all(path, run, tmp_path, "labels")


@pytest.mark.parametrize("second", ["logits.npy", "logits"])
def test_a_name_stands_for_one_array(second, run, tmp_path):
    path = archive(tmp_path / "twice.npz", logits=npy(values()), labels=npy(labels()))
    with zipfile.ZipFile(path, "a") as out:
        if second == "logits.npy":
            with pytest.warns(UserWarning, match="Duplicate name"):
                out.writestr(second, npy(-values()))
        else:
            out.writestr(second, npy(-values()))
    refused_by_all(path, run, tmp_path, "'logits' twice")


@pytest.mark.parametrize("write", [archive, folder])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [">f8", ">f4", ">f2", ">i2", "<f8", "<f2"])
def test_arrays_of_any_byte_order_are_read_as_numpy_reads_them(
    kind, order, write, tmp_path
):
    z = np.array(8 * values(), dtype=kind, order=order)
    truth = labels().astype(">i4")
    path = write(tmp_path / "in.npz", logits=npy(z), labels=npy(truth))
    predictions = read(path)
    assert np.array_equal(predictions.logits, z.astype(float))
    assert np.array_equal(predictions.labels, truth.astype(int))
    out = tmp_path / "out.npz"
    engines.screen(find_source(path), GATE, out)
    with np.load(out) as decided:
        assert np.array_equal(decided["score"], td.alpha(predictions))
        assert decided["accepted"].shape == (ROWS,)


@pytest.mark.parametrize("more", [-50, -1, 1, 200])
@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_decisions_in_arrays_are_as_many_as_rows(suffix, more, tmp_path, monkeypatch):
    path, out = tmp_path / f"in{suffix}", tmp_path / "out.npz"
    if suffix == ".npz":
        archive(path, logits=npy(values()))
    else:
        pl.DataFrame(values(), schema=[f"logit_{i}" for i in range(3)]).write_csv(path)
    columns = Columns(need_labels=False)
    engines.screen(find_source(path, columns), GATE, out)
    with np.load(out) as decided:
        assert {decided[name].shape for name in decided.files} == {(ROWS,)}
    out.unlink()
    monkeypatch.setattr(Source, "rows", ROWS + more)
    with pytest.raises(FileError, match=f"expected {ROWS + more} rows in in{suffix}"):
        engines.screen(find_source(path, columns), GATE, out)
    assert list(tmp_path.iterdir()) == [path]


def arrow_table(rows=1000):
    rng = np.random.default_rng(0)
    texts = [None if i % 7 == 0 else f"row {i} " * (i % 5) for i in range(rows)]
    return pa.table(
        {
            "number": rng.normal(size=rows),
            "text": texts,
            "list": [[0.5] * (i % 4) for i in range(rows)],
            "flag": [None if i % 5 == 0 else i % 2 == 0 for i in range(rows)],
            "none": pa.nulls(rows),
        }
    )


def by_pyarrow(path, packing, rows):
    options = pa.ipc.IpcWriteOptions(compression=packing)
    table = arrow_table()
    with pa.ipc.new_file(path, table.schema, options=options) as out:
        out.write_table(table, max_chunksize=rows)


def by_polars(path, packing, rows):
    table = pl.from_arrow(arrow_table()).drop("none")
    table.write_ipc(path, compression=packing, record_batch_size=rows)


@pytest.mark.parametrize("write", [by_pyarrow, by_polars])
@pytest.mark.parametrize("packing", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("rows", [1000, 300, 7])
def test_record_batches_are_those_of_pyarrow(rows, packing, write, tmp_path):
    from trustdoctor.files.formats.ipc import read_batches

    path = tmp_path / "a.arrow"
    none = packing == "uncompressed" and write is by_pyarrow
    write(path, None if none else packing, rows)
    with pa.ipc.open_file(path) as reader:
        arrow_batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    batches = read_batches(path)
    assert [batch.rows for batch in batches] == [
        batch.num_rows for batch in arrow_batches
    ]
    for batch, arrow_batch in zip(batches, arrow_batches, strict=True):
        exact = arrow_batch.get_total_buffer_size()
        # Of few bytes packing makes more, at most a frame for each buffer.
        room = 0 if packing == "uncompressed" else 32 * 12
        assert exact <= batch.size <= exact + room
    assert find_source(path).rows == 1000


def test_an_arrow_file_may_have_no_batch(tmp_path):
    from trustdoctor.files.formats.ipc import read_batches

    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, arrow_table().schema):
        pass
    assert read_batches(path) == []
    assert find_source(path).rows == 0


def test_damaged_arrow_files_are_refused(tmp_path, rng):
    from trustdoctor.files.formats.ipc import read_batches

    path, damaged = tmp_path / "a.arrow", tmp_path / "bad.arrow"
    by_pyarrow(path, "lz4", 300)
    intact_batches = read_batches(path)
    content = path.read_bytes()
    for cut in (0, 1, 6, 10, 40, len(content) // 2, len(content) - 1):
        damaged.write_bytes(content[:cut])
        with pytest.raises(FileError, match="as Arrow"):
            read_batches(damaged)
    refused = 0
    for _ in range(500):
        changed = bytearray(content)
        first = len(content) - 1200  # of the footer, and the last batch's head
        for at in rng.integers(first, len(content), 3):
            changed[at] ^= 1 << rng.integers(0, 8)
        damaged.write_bytes(changed)
        try:
            batches = read_batches(damaged)
        except FileError:
            refused += 1
            continue
        assert all(batch.rows >= 0 and batch.size >= 0 for batch in batches)
        assert len(batches) <= len(content) // 24
    assert 0 < refused < 500
    assert [batch.rows for batch in intact_batches] == [300, 300, 300, 100]
