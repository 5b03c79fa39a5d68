"""Row groups as pyarrow reads them."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trustdoctor.errors import FileError
from trustdoctor.files import read_row_groups


@pytest.mark.parametrize("writer", ["polars", "pyarrow"])
def test_row_groups_meet_pyarrow(tmp_path, writer):
    rng, path = np.random.default_rng(0), tmp_path / "a.parquet"
    columns = {f"c{i}": rng.normal(size=1000) for i in range(30)}
    columns |= {"text": [f"row {i}" for i in range(1000)], "list": [[1.0, 2.0]] * 1000}
    if writer == "polars":
        pl.DataFrame(columns).write_parquet(path, row_group_size=300)
    else:
        table = pa.table(columns).replace_schema_metadata({"a": "b" * 300})
        pq.write_table(table, path, row_group_size=300, write_page_index=True)
    known = pq.ParquetFile(path).metadata
    groups = [known.row_group(i) for i in range(known.num_row_groups)]
    found = read_row_groups(path)
    assert [(g.rows, g.size) for g in found] == [
        (g.num_rows, g.total_byte_size) for g in groups
    ]


def test_broken_footers_are_named(tmp_path):
    good = tmp_path / "a.parquet"
    pl.DataFrame({"a": [1, 2]}).write_parquet(good)
    content = good.read_bytes()
    for i, bad in enumerate([b"", b"PAR1", content[:-3], b"x" * 40 + content[-8:]]):
        path = tmp_path / f"{i}.parquet"
        path.write_bytes(bad)
        with pytest.raises(FileError, match="no footer"):
            read_row_groups(path)
