"""Row groups and pages as pyarrow reads them."""

import io
import subprocess
import sys
from datetime import datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trustdoctor.errors import FileError
from trustdoctor.files import find_source, read, read_row_groups

ROWS = 1000


def tables():
    """Tables of everything that a column may hold."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=ROWS)
    holes = [None if i % 3 == 0 else float(i) for i in range(ROWS)]
    long = ["x" * 4000 + str(i % 5) for i in range(ROWS)]
    repeated = ["red", "green", ""]
    return {
        "numbers": pa.table({f"c{i}": rng.normal(size=ROWS) for i in range(30)}),
        "nulls": pa.table({"a": holes, "none": pa.nulls(ROWS, pa.float64())}),
        "texts": pa.table({"a": [f"row {i}" for i in range(ROWS)], "long": long}),
        "words": pa.table(
            {"a": [repeated[i % 3] for i in range(ROWS)], "b": [""] * ROWS}
        ),
        "lists": pa.table(
            {
                "a": [[float(i)] * (i % 4) for i in range(ROWS)],
                "b": [None if i % 5 == 0 else [] for i in range(ROWS)],
                "c": [[["x"] * (i % 3)] * (i % 2) for i in range(ROWS)],
                "d": pa.FixedSizeListArray.from_arrays(numbers, 2)[:ROWS].take(
                    pa.array(np.arange(ROWS) // 2)
                ),
            }
        ),
        "structures": pa.table(
            {
                "a": [{"x": i, "y": {"z": str(i)}} for i in range(ROWS)],
                "m": pa.array(
                    [[(str(i), i)] for i in range(ROWS)],
                    pa.map_(pa.string(), pa.int64()),
                ),
            }
        ),
        "kinds": pa.table(
            {
                "flag": [i % 7 == 0 for i in range(ROWS)],
                "day": [datetime(2020, 1, 1 + i % 28) for i in range(ROWS)],
                "raw": [bytes([i % 256]) * (i % 9) for i in range(ROWS)],
                "half": pa.array(numbers.astype(np.float16)),
                "small": pa.array(np.arange(ROWS) % 3, pa.int8()),
            }
        ),
        "nothing": pa.table({"a": pa.array([], pa.float64())}),
        "no column": pa.table({}),
        "one row": pa.table({"a": [1.5], "b": ["x"]}),
    }


WRITERS = {
    "version 1": {"data_page_version": "1.0"},
    "version 2": {"data_page_version": "2.0"},
    "zstd": {"compression": "zstd", "data_page_version": "2.0"},
    "plain": {"compression": "none", "use_dictionary": False},
    "small pages": {"data_page_size": 100, "write_batch_size": 10},
    "small dictionaries": {"dictionary_pagesize_limit": 50, "write_batch_size": 10},
    "no statistics": {"write_statistics": False},
    "an index of pages": {"write_page_index": True, "write_page_checksum": True},
}


def by_polars(table, path, rows):
    pl.from_arrow(table).write_parquet(path, row_group_size=rows)


def check_meets_pyarrow(path):
    arrow_metadata = pq.ParquetFile(path).metadata
    groups = read_row_groups(path)
    assert len(groups) == arrow_metadata.num_row_groups
    for at, group in enumerate(groups):
        expected = arrow_metadata.row_group(at)
        sizes = {}
        for column in (expected.column(i) for i in range(expected.num_columns)):
            name = column.path_in_schema.split(".")[0]
            sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
        assert group.rows == expected.num_rows
        assert group.sizes == sizes
        assert group.size == expected.total_byte_size


@pytest.mark.parametrize("writer", [*WRITERS, "polars"])
@pytest.mark.parametrize("name", tables())
def test_row_groups_meet_pyarrow(name, writer, tmp_path):
    table, path = tables()[name], tmp_path / "a.parquet"
    for rows in (300, 5000):
        if writer == "polars":
            by_polars(table, path, rows)
        else:
            with_metadata = table.replace_schema_metadata({"a": "b" * 300})
            pq.write_table(with_metadata, path, row_group_size=rows, **WRITERS[writer])
        check_meets_pyarrow(path)
        path.unlink()


def test_delta_encodings_meet_pyarrow(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {"a": np.arange(ROWS), "b": [f"{i}" for i in range(ROWS)], "c": np.ones(ROWS)}
    )
    kinds = {"a": "DELTA_BINARY_PACKED", "b": "DELTA_BYTE_ARRAY"}
    kinds["c"] = "BYTE_STREAM_SPLIT"
    pq.write_table(table, path, use_dictionary=False, column_encoding=kinds)
    check_meets_pyarrow(path)


def test_broken_footers_are_named(tmp_path):
    good = tmp_path / "a.parquet"
    pl.DataFrame({"a": [1, 2]}).write_parquet(good)
    content = good.read_bytes()
    for i, damaged in enumerate([b"", b"PAR1", content[:-3], b"x" * 40 + content[-8:]]):
        path = tmp_path / f"{i}.parquet"
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="its footer or a page is damaged"):
            read_row_groups(path)


def test_a_footer_of_endless_maps_is_refused_at_once(tmp_path):
    path = tmp_path / "a.parquet"
    endless = bytes([0x1B]) + b"\xff" * 8 + b"\x7f" + bytes([0x11, 0])  # of booleans
    length = len(endless).to_bytes(4, "little")
    path.write_bytes(b"PAR1" + endless + length + b"PAR1")
    completed = subprocess.run(
        [sys.executable, "-m", "trustdoctor", "diagnose", path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1), (
        completed.stderr
    )


def test_a_file_that_changed_is_looked_at_again(tmp_path):
    path = tmp_path / "a.parquet"
    for rows in (10, 20):
        pl.DataFrame({"a": np.arange(rows)}).write_parquet(path)
        assert [group.rows for group in read_row_groups(path)] == [rows]


def rows_of_a_model():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(50, 2)).round(1)
    table = {"logit_0": z[:, 0], "logit_1": z[:, 1], "label": rng.integers(0, 2, 50)}
    out = io.BytesIO()
    pl.DataFrame(table).write_parquet(out)
    return out.getvalue()


def with_page_of(count):
    """Return a file whose first data page announces that many values."""
    content = rows_of_a_model()
    column = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0)
    zigzag, field = 50 << 1, 0x15  # an integer, one field after the last
    at = content.index(bytes([field, zigzag]), column.data_page_offset)
    coded = count << 1 if count >= 0 else (-count << 1) - 1
    return content[: at + 1] + bytes([coded]) + content[at + 2 :]


@pytest.mark.parametrize("count", [-1, -56, -64, 1, 49, 51])
def test_pages_make_up_their_column(count, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(with_page_of(50))
    assert len(read(path)) == 50
    path = tmp_path / "b.parquet"
    path.write_bytes(with_page_of(count))
    with pytest.raises(FileError, match="its footer or a page is damaged"):
        find_source(path).scan()


def test_a_page_of_less_than_nothing_does_not_end_the_process(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(with_page_of(-56))
    for command in (["diagnose"], ["screen", "--gamma", "1", "-o", "d.parquet"]):
        completed = subprocess.run(
            [sys.executable, "-m", "trustdoctor", *command, path],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert completed.returncode == 2, completed.returncode
        assert completed.stderr.startswith("trustdoctor: cannot read ")
        assert completed.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]
