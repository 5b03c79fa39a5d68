"""CSV and TSV, read as text: no type is guessed from the first rows.

The separator and the encoding are found in the file itself.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from trustdoctor.errors import FileError
from trustdoctor.files.formats.dialect import Dialect, opened, readable, sniff
from trustdoctor.files.formats.lines import line_memory, whole_table
from trustdoctor.files.formats.registry import Format, register_format
from trustdoctor.predictions import plain_name

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

Packed = Literal["uncompressed", "gzip"]

_HEAD = 1 << 22
_CELL_BYTES = 24  # which a cell takes beside its text
_COLUMN_BYTES = 15_000  # a quarter of what a column takes while it is parsed


def _scan(source: "Source") -> pl.LazyFrame:
    keep, named = source.columns.last_line == "keep", source.partitions
    _, first = scan_table(source.files[0], keep_last=keep)
    frames = []
    for file in source.files:
        lazy, names = scan_table(file, keep_last=keep)
        for name in named:
            value = source.partitions_of(file)[name]
            lazy = lazy.with_columns(pl.lit(value).alias(name))
        if set(names) != set(first):
            own, other = (dict.fromkeys(n, "text") for n in (names, first))
            source.check_columns(file, own, other)
        frames.append(lazy.select(*first, *named))
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def scan_table(file: Path, *, keep_last: bool) -> tuple[pl.LazyFrame, list[str]]:
    """Scan a file, its names stripped, blank lines left out."""
    path, dialect = whole_table(file, keep_last=keep_last)
    lazy = pl.scan_csv(
        path,
        separator=dialect.separator,
        skip_lines=dialect.skipped,
        infer_schema=False,
        glob=False,
    )
    names = lazy.collect_schema().names()
    for name in names:
        base, mark, _ = name.rpartition("_duplicated_")
        if mark and base in names:
            message = f"{file} has the column {base!r} twice. Name every column once."
            raise FileError(message)
    # polars leaves the quotes of a quoted name doubled.
    stripped = [plain_name(name.replace('""', '"')) for name in names]
    if len(set(stripped)) < len(stripped):
        base = next(name for name in stripped if stripped.count(name) > 1)
        message = (
            f"{file} has two columns whose names look alike, {base!r}. Rename one."
        )
        raise FileError(message)
    lazy = lazy.rename(dict(zip(names, stripped, strict=True)))
    # All columns are parsed, so that a line with too many values is always refused.
    lazy = lazy.map_batches(_without_blank, projection_pushdown=False, streamable=True)
    return lazy, stripped


def _without_blank(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out lines without a value; a column at a time, most often the first."""
    some = pl.repeat(value=False, n=len(rows), dtype=pl.Boolean, eager=True)
    for column in rows.iter_columns():
        some |= column.is_not_null()
        if some.all():
            return rows
    return rows.filter(some)


def _about_rows(source: "Source") -> int:
    """Guess from the size of the files and their first lines."""
    return source.size // _line_bytes(source.files[0])


def _line_bytes(file: Path) -> int:
    """Return the length of the lines that a file begins with, its header aside."""
    with opened(readable(file)) as content:
        head = content.read(_HEAD)
    start = head.find(b"\n") + 1
    lines = head.count(b"\n", start)
    rest = head.rfind(b"\n") + 1 - start if lines else len(head) - start
    return max(1, rest // max(lines, 1))


def _largest(source: "Source", *, whole: bool) -> int:
    columns = _COLUMN_BYTES * len(source.names)
    return max(columns, line_memory(source.files, whole=whole))


def _row_bytes(source: "Source") -> int:
    return _line_bytes(source.files[0]) + _CELL_BYTES * len(source.names)


def dialect_of(source: "Source") -> Dialect:
    """Return how the first file of a source is written, where it is text."""
    text = source.format.name in ("CSV", "TSV")
    return sniff(source.files[0]) if text else Dialect()


def _sink(separator: str | None, packed: Packed) -> Callable[..., None]:
    """Return what writes rows; a CSV file as the input was written."""

    def sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
        own = dialect_of(source)
        used = separator or ("," if own.separator == "\t" else own.separator)
        rows.sink_csv(
            path,
            engine="streaming",
            compression=packed,
            check_extension=False,
            separator=used,
            decimal_comma=own.decimal_comma and used != ",",
        )

    return sink


def _text(name: str, suffix: str, separator: str | None, packed: Packed) -> Format:
    return register_format(
        Format(
            name,
            (suffix,),
            _scan,
            _sink(separator, packed),
            about_rows=None if packed == "gzip" else _about_rows,
            row_bytes=_row_bytes,
            largest_piece=_largest,
            lines=True,
            typed=False,
            nested=False,
        )
    )


CSV = _text("CSV", ".csv", None, "uncompressed")
TSV = _text("TSV", ".tsv", "\t", "uncompressed")
CSV_GZ = _text("CSV", ".csv.gz", None, "gzip")
TSV_GZ = _text("TSV", ".tsv.gz", "\t", "gzip")
