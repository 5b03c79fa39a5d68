"""CSV and TSV, read as text: no type is guessed from the first rows.

The separator and the encoding are found in the file itself.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from trustdoctor.errors import FileError
from trustdoctor.files.formats.dialect import Dialect, as_utf8, open_unpacked, sniff
from trustdoctor.files.formats.lines import complete_table, line_memory
from trustdoctor.files.formats.registry import Format, register_format
from trustdoctor.predictions import plain_name

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

Compression = Literal["uncompressed", "gzip"]

_HEAD = 1 << 22
_CELL_BYTES = 24  # memory of a cell beside its text
_COLUMN_BYTES = 15_000  # a quarter of the memory of a column while it is parsed


def _scan(source: "Source") -> pl.LazyFrame:
    keep_last, partitions = source.columns.last_line == "keep", source.partitions
    _, expected = scan_table(source.files[0], keep_last=keep_last)
    frames = []
    for file in source.files:
        lazy, names = scan_table(file, keep_last=keep_last)
        for name in partitions:
            value = source.partitions_of(file)[name]
            lazy = lazy.with_columns(pl.lit(value).alias(name))
        if set(names) != set(expected):
            types, expected_types = (
                dict.fromkeys(n, "text") for n in (names, expected)
            )
            source.check_columns(file, types, expected_types)
        frames.append(lazy.select(*expected, *partitions))
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def scan_table(file: Path, *, keep_last: bool) -> tuple[pl.LazyFrame, list[str]]:
    """Scan a file without its blank lines; its names are stripped."""
    path, dialect = complete_table(file, keep_last=keep_last)
    lazy = pl.scan_csv(
        path,
        separator=dialect.separator,
        skip_lines=dialect.skipped,
        infer_schema=False,
        glob=False,
    )
    names = lazy.collect_schema().names()
    for name in names:
        original, mark, _ = name.rpartition("_duplicated_")  # as polars renames them
        if mark and original in names:
            message = (
                f"{file} has the column {original!r} twice. Name every column once."
            )
            raise FileError(message)
    # polars leaves the quotes of a quoted name doubled.
    stripped = [plain_name(name.replace('""', '"')) for name in names]
    if len(set(stripped)) < len(stripped):
        repeated = next(name for name in stripped if stripped.count(name) > 1)
        message = (
            f"{file} has two columns whose names look alike, {repeated!r}. Rename one."
        )
        raise FileError(message)
    lazy = lazy.rename(dict(zip(names, stripped, strict=True)))
    # All columns are parsed, so that a line with too many values is always refused.
    lazy = lazy.map_batches(
        _drop_blank_lines, projection_pushdown=False, streamable=True
    )
    return lazy, stripped


def _drop_blank_lines(rows: pl.DataFrame) -> pl.DataFrame:
    # A column at a time: most often the first has a value in every line.
    has_value = pl.repeat(value=False, n=len(rows), dtype=pl.Boolean, eager=True)
    for column in rows.iter_columns():
        has_value |= column.is_not_null()
        if has_value.all():
            return rows
    return rows.filter(has_value)


def _about_rows(source: "Source") -> int:
    """Estimate the number of rows from the size of the files and their first lines."""
    return source.size // _line_bytes(source.files[0])


def _line_bytes(file: Path) -> int:
    """Return the mean length of a file's first lines, without its header."""
    with open_unpacked(as_utf8(file)) as content:
        head = content.read(_HEAD)
    start = head.find(b"\n") + 1
    n_lines = head.count(b"\n", start)
    n_bytes = head.rfind(b"\n") + 1 - start if n_lines else len(head) - start
    return max(1, n_bytes // max(n_lines, 1))


def _largest_piece(source: "Source", *, all_columns: bool) -> int:
    columns = _COLUMN_BYTES * len(source.names)
    return max(columns, line_memory(source.files, are_written=all_columns))


def _row_bytes(source: "Source") -> int:
    return _line_bytes(source.files[0]) + _CELL_BYTES * len(source.names)


def dialect_of(source: "Source") -> Dialect:
    """Return how the first file of a source is written, if it is CSV or TSV."""
    is_text = source.format.name in ("CSV", "TSV")
    return sniff(source.files[0]) if is_text else Dialect()


def _make_sink(separator: str | None, compression: Compression) -> Callable[..., None]:
    """Return what writes rows; a CSV file in the dialect of the input."""

    def sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
        dialect = dialect_of(source)
        # A file called .csv does not hold tabs.
        same = "," if dialect.separator == "\t" else dialect.separator
        rows.sink_csv(
            path,
            engine="streaming",
            compression=compression,
            check_extension=False,  # a temporary file may have none
            separator=separator or same,
            decimal_comma=dialect.decimal_comma and (separator or same) != ",",
        )

    return sink


def _register(
    name: str, suffix: str, separator: str | None, compression: Compression
) -> Format:
    return register_format(
        Format(
            name,
            (suffix,),
            _scan,
            _make_sink(separator, compression),
            about_rows=None if compression == "gzip" else _about_rows,
            row_bytes=_row_bytes,
            largest_piece=_largest_piece,
            lines=True,
            typed=False,
            nested=False,
        )
    )


CSV = _register("CSV", ".csv", None, "uncompressed")
TSV = _register("TSV", ".tsv", "\t", "uncompressed")
CSV_GZ = _register("CSV", ".csv.gz", None, "gzip")
TSV_GZ = _register("TSV", ".tsv.gz", "\t", "gzip")
