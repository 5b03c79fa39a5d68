"""Parquet, as polars reads and writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from trustdoctor.files.formats import Format, register_format
from trustdoctor.files.row_groups import RowGroup, read_row_groups

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

ROW_GROUP = 1 << 18
"""Rows of an output's row group at most."""

GROUP_BYTES = 32 << 20
"""Bytes of an output's row group at most."""


def _scan(source: "Source") -> pl.LazyFrame:
    for file in source.files:
        read_row_groups(file)  # which refuses what would end the process
    source.check_schemas(pl.read_parquet_schema)
    lazy = _lazy(source)
    if not source.step:
        return lazy
    return register_io_source(
        lambda *asked: _slices(source, *asked), schema=lazy.collect_schema()
    )


def _lazy(source: "Source") -> pl.LazyFrame:
    hive = bool(source.partitions)
    return pl.scan_parquet(list(source.files), glob=False, hive_partitioning=hive)


def _slices(
    source: "Source",
    columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """Yield a few rows at a time: of a row group just the pages that hold them."""
    del batch_size
    last = source.rows if n_rows is None else min(source.rows, n_rows)
    lazy = _lazy(source)
    lazy = lazy if columns is None else lazy.select(columns)
    for first in range(0, last, source.step):
        frame = lazy.slice(first, min(source.step, last - first)).collect()
        yield frame if predicate is None else frame.filter(predicate)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    size = int(np.clip(GROUP_BYTES // source.row_size(whole=True), 1, ROW_GROUP))
    rows.sink_parquet(path, row_group_size=size, engine="streaming")


def _groups(source: "Source") -> list[RowGroup]:
    return [group for file in source.files for group in read_row_groups(file)]


def _largest(source: "Source", *, whole: bool) -> int:
    """Return the bytes of the largest row group, or of the columns that are needed.

    Of a column that repeats itself the file holds each value once.
    """
    row, names = source.row_size(whole=whole), set(source.needed)
    return max(
        (
            max(g.rows * row, sum(s for n, s in g.sizes.items() if whole or n in names))
            for g in _groups(source)
        ),
        default=0,
    )


PARQUET = register_format(
    Format(
        "Parquet",
        (".parquet",),
        _scan,
        _sink,
        rows=lambda source: sum(group.rows for group in _groups(source)),
        largest_piece=_largest,
        sliced=True,
    )
)
