"""Parquet, as polars reads and writes it, and what a file says of its row groups.

A reader takes a row group as a whole, so the largest one says how much memory reading
needs. polars does not tell. The footer is a Thrift structure, of which a few fields are
needed (apache/parquet-format, parquet.thrift).

Nor does polars doubt how many values a page announces: a negative number becomes a huge
allocation, which aborts the process. So all page headers are read before polars sees
the file.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from trustdoctor.errors import FileError
from trustdoctor.files.formats.registry import Format, register_format

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

ROW_GROUP = 1 << 18
"""Rows of an output's row group at most."""

GROUP_BYTES = 32 << 20
"""Bytes of an output's row group at most."""

# Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 0, 1, 2, 3, 7, 8
_LIST, _SET, _MAP, _STRUCT = 9, 10, 11, 12

# Numbers of fields in FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, PageHeader.
_FILE_ROW_GROUPS, _GROUP_COLUMNS, _GROUP_ROWS = 4, 1, 3
_CHUNK_METADATA, _COLUMN_PATH, _COLUMN_VALUES, _COLUMN_BYTES = 3, 3, 5, 6
_COLUMN_FIRST_PAGE, _COLUMN_DICTIONARY = 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3
_PAGE_DATA_V1, _PAGE_DICTIONARY, _PAGE_DATA_V2 = 5, 7, 8

# Numbers of fields in the headers of the three kinds of pages.
_VALUES = 1
_V2_NULLS, _V2_ROWS, _V2_DEFINITION_BYTES, _V2_REPETITION_BYTES = 2, 3, 5, 6

_HEADER_BYTES = (1 << 9, 1 << 20)
"""Bytes to read for a page's header; with long statistics it may need the second."""


@dataclass(frozen=True)
class RowGroup:
    """One row group.

    Attributes
    ----------
    rows : int
    sizes : dict of str to int
        The bytes of each column when unpacked.
    """

    rows: int
    sizes: dict[str, int]

    @property
    def size(self) -> int:
        """Its bytes when unpacked."""
        return sum(self.sizes.values())


def read_row_groups(file: Path) -> list[RowGroup]:
    """Return the row groups of a Parquet file."""
    state = file.stat()
    return _read_row_groups(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_row_groups(file: Path, size: int, changed_ns: int) -> list[RowGroup]:
    del size, changed_ns
    try:
        with file.open("rb") as content:
            end = content.seek(0, 2)
            content.seek(max(end - 8, 0))
            length, mark = struct.unpack("<I4s", content.read(8))
            if mark != b"PAR1" or length > end - 8:
                raise ValueError(mark)
            content.seek(end - 8 - length)
            footer = _ThriftReader(content.read(length)).fields()
            groups = footer[_FILE_ROW_GROUPS]
            for group in groups:
                for chunk in group[_GROUP_COLUMNS]:
                    _check_pages(content, chunk[_CHUNK_METADATA], end)
        return [
            RowGroup(group[_GROUP_ROWS], _unpacked_sizes(group[_GROUP_COLUMNS]))
            for group in groups
        ]
    except Exception as error:  # a damaged footer fails in many ways
        message = (
            f"cannot read {file} as Parquet: its footer or a page is damaged. The file "
            "may be cut short; write it again."
        )
        raise FileError(message) from error


def _unpacked_sizes(chunks: list[dict[int, Any]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for column in (chunk[_CHUNK_METADATA] for chunk in chunks):
        name = column[_COLUMN_PATH][0].decode()  # of a nested column the outermost
        sizes[name] = sizes.get(name, 0) + column[_COLUMN_BYTES]
    return sizes


def _check_pages(content: BinaryIO, column: dict[int, Any], end: int) -> None:
    """Refuse pages that do not make up their column."""
    starts = (column[_COLUMN_FIRST_PAGE], column.get(_COLUMN_DICTIONARY))
    offset = min(filter(None, starts), default=0)
    n_missing = column[_COLUMN_VALUES]
    while n_missing > 0:
        page, header_bytes = _read_page_header(content, offset)
        dictionary, v2 = page.get(_PAGE_DICTIONARY), page.get(_PAGE_DATA_V2, {})
        n_values = (dictionary or page.get(_PAGE_DATA_V1) or v2)[_VALUES]
        counts = [n_values, page[_PAGE_UNPACKED], page[_PAGE_PACKED]]
        if v2:
            levels = (_V2_DEFINITION_BYTES, _V2_REPETITION_BYTES)
            counts += [v2[field] for field in (_V2_NULLS, _V2_ROWS, *levels)]
            if max(v2[_V2_NULLS], v2[_V2_ROWS]) > n_values:
                raise ValueError(counts)
        offset += header_bytes + page[_PAGE_PACKED]
        if min(counts) < 0 or offset > end:
            raise ValueError(counts)
        if dictionary and n_values > page[_PAGE_UNPACKED] + 1:
            raise ValueError(n_values)
        n_missing -= 0 if dictionary else n_values
    if n_missing:
        raise ValueError(n_missing)


def _read_page_header(content: BinaryIO, offset: int) -> tuple[dict[int, Any], int]:
    """Return the header of a page, and how many bytes it takes."""
    for size in _HEADER_BYTES:
        content.seek(offset)
        reader = _ThriftReader(content.read(size))
        with suppress(IndexError):
            return reader.fields(), reader.offset
    raise ValueError(offset)


class _ThriftReader:
    """Thrift's compact protocol."""

    def __init__(self, content: bytes) -> None:
        self.content, self.offset = content, 0

    def fields(self) -> dict[int, Any]:
        """Return a struct's fields by their numbers."""
        fields, number = {}, 0
        while (head := self._byte()) != _STOP:
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            fields[number] = self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind in (_LIST, _SET):
            return self._list()
        if kind == _MAP:
            return self._skip_map()
        return self.fields() if kind == _STRUCT else self._signed()

    def _list(self) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._unsigned() if size == 15 else size
        if kind in (_TRUE, _FALSE):
            return list(self._bytes(size))
        return [self._value(kind) for _ in range(size)]

    def _skip_map(self) -> None:
        size = self._unsigned()
        kinds = self._byte() if size else 0
        for _ in range(size):
            for kind in (kinds >> 4, kinds & 15):
                self._byte() if kind in (_TRUE, _FALSE) else self._value(kind)

    def _signed(self) -> int:
        """Read an integer in zigzag encoding: 0, -1, 1, -2, ... are 0, 1, 2, 3, ..."""
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def _unsigned(self) -> int:
        """Read a varint: seven bits per byte, the lowest first."""
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _byte(self) -> int:
        self.offset += 1
        return self.content[self.offset - 1]

    def _bytes(self, size: int) -> bytes:
        if self.offset + size > len(self.content):  # a slice would just be shorter
            raise IndexError(size)
        self.offset += size
        return self.content[self.offset - size : self.offset]


def _scan(source: "Source") -> pl.LazyFrame:
    for file in source.files:
        read_row_groups(file)  # refuses pages that would abort the process
    source.check_schemas(pl.read_parquet_schema)
    lazy = _polars_scan(source)
    if not source.step:
        return lazy
    return register_io_source(
        lambda *pushdown: _slices(source, *pushdown), schema=lazy.collect_schema()
    )


def _polars_scan(source: "Source") -> pl.LazyFrame:
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
    end = source.rows if n_rows is None else min(source.rows, n_rows)
    lazy = _polars_scan(source)
    lazy = lazy if columns is None else lazy.select(columns)
    for start in range(0, end, source.step):
        frame = lazy.slice(start, min(source.step, end - start)).collect()
        yield frame if predicate is None else frame.filter(predicate)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    row_bytes = source.row_size(all_columns=True)
    size = int(np.clip(GROUP_BYTES // row_bytes, 1, ROW_GROUP))
    rows.sink_parquet(path, row_group_size=size, engine="streaming")


def _row_groups(source: "Source") -> list[RowGroup]:
    return [group for file in source.files for group in read_row_groups(file)]


def _largest_group(source: "Source", *, all_columns: bool) -> int:
    """Return the bytes of the largest row group, or of its columns that are needed."""
    row_bytes = source.row_size(all_columns=all_columns)
    names = set(source.needed)
    sizes = []
    for group in _row_groups(source):
        size = sum(s for n, s in group.sizes.items() if all_columns or n in names)
        # A dictionary holds each value once, so rows may take more than their pages.
        sizes.append(max(group.rows * row_bytes, size))
    return max(sizes, default=0)


PARQUET = register_format(
    Format(
        "Parquet",
        (".parquet",),
        _scan,
        _sink,
        rows=lambda source: sum(group.rows for group in _row_groups(source)),
        largest_piece=_largest_group,
        sliced=True,
    )
)
