"""Parquet, as polars reads and writes it."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from trustdoctor.files.formats import Format, register_format
from trustdoctor.files.row_groups import RowGroup, read_row_groups

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

ROW_GROUP = 1 << 18
"""Rows of an output's row group at most."""


def _scan(source: "Source") -> pl.LazyFrame:
    source.check_schemas(pl.read_parquet_schema)
    hive = bool(source.partitions)
    return pl.scan_parquet(list(source.files), glob=False, hive_partitioning=hive)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    size = int(np.clip((64 << 20) // source.row_bytes, 1 << 10, ROW_GROUP))
    rows.sink_parquet(path, row_group_size=size, engine="streaming")


def _groups(source: "Source") -> list[RowGroup]:
    return [group for file in source.files for group in read_row_groups(file)]


def _largest(source: "Source") -> int:
    groups = _groups(source)
    return max((max(g.size, g.rows * source.row_bytes) for g in groups), default=0)


PARQUET = register_format(
    Format(
        "Parquet",
        (".parquet",),
        _scan,
        _sink,
        rows=lambda source: sum(group.rows for group in _groups(source)),
        largest_piece=_largest,
    )
)
