"""Arrow files, which Feather files of version 2 are, too."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from trustdoctor.files.formats import Format, register_format

if TYPE_CHECKING:
    from trustdoctor.files.source import Source


def _scan(source: "Source") -> pl.LazyFrame:
    source.check_schemas(pl.read_ipc_schema)
    hive = bool(source.partitions)
    return pl.scan_ipc(list(source.files), glob=False, hive_partitioning=hive)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    del source
    rows.sink_ipc(path, engine="streaming")


IPC = register_format(Format("Arrow", (".arrow", ".feather", ".ipc"), _scan, _sink))
