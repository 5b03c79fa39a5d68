"""Parquet, as polars reads and writes it, and what a file says of its row groups.

A reader takes a row group as a whole, so the largest one says how much memory reading
needs. polars does not tell; the footer is a Thrift structure of a few kinds of fields,
of which a few are wanted. Nor does polars doubt how many values a page announces: it
asks for memory for a number of them that is negative, which ends the process.
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


_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    *(0, 1, 2, 3, 7, 8),
    *(9, 10, 11, 12),
)
_FILE_ROW_GROUPS, _GROUP_COLUMNS, _GROUP_ROWS = 4, 1, 3
_COLUMN_DATA, _DATA_PATH, _DATA_VALUES, _DATA_BYTES = 3, 3, 5, 6
_DATA_FIRST_PAGE, _DATA_DICTIONARY = 9, 11
_PAGE_UNPACKED, _PAGE_PACKED, _PAGE_1, _PAGE_OF_WORDS, _PAGE_2 = 2, 3, 5, 7, 8
_HEADS = (1 << 9, 1 << 20)  # bytes of a page's head, and of one that is very large


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
def _read_row_groups(file: Path, size: int, changed: int) -> list[RowGroup]:
    del size, changed
    try:
        with file.open("rb") as content:
            end = content.seek(0, 2)
            content.seek(max(end - 8, 0))
            length, mark = struct.unpack("<I4s", content.read(8))
            if mark != b"PAR1" or length > end - 8:
                raise ValueError(mark)
            content.seek(end - 8 - length)
            groups = _Reader(content.read(length)).fields()[_FILE_ROW_GROUPS]
            for group in groups:
                for column in group[_GROUP_COLUMNS]:
                    _check_pages(content, column[_COLUMN_DATA], end)
        return [RowGroup(g[_GROUP_ROWS], _sizes(g[_GROUP_COLUMNS])) for g in groups]
    except Exception as error:  # a damaged footer fails in many ways
        message = (
            f"cannot read {file} as Parquet: its footer or a page is damaged. The file "
            "may be cut short; write it again."
        )
        raise FileError(message) from error


def _sizes(columns: list[dict[int, Any]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for column in columns:
        data = column[_COLUMN_DATA]
        name = data[_DATA_PATH][0].decode()  # of a nested one the outermost
        out[name] = out.get(name, 0) + data[_DATA_BYTES]
    return out


def _check_pages(content: BinaryIO, data: dict[int, Any], end: int) -> None:
    """Refuse pages that do not make up their column."""
    places = (data[_DATA_FIRST_PAGE], data.get(_DATA_DICTIONARY))
    at, left = min(filter(None, places), default=0), data[_DATA_VALUES]
    while left > 0:
        page, size = _page(content, at)
        words, second = page.get(_PAGE_OF_WORDS), page.get(_PAGE_2, {})
        head = page.get(_PAGE_1) or second
        count = (words or head)[1]
        # Of the second version also its nulls, rows, and the bytes of its levels.
        numbers = [count, page[_PAGE_UNPACKED], page[_PAGE_PACKED]]
        numbers += [second[field] for field in (2, 3, 5, 6) if second]
        beyond = second and max(second[2], second[3]) > count
        at += size + page[_PAGE_PACKED]
        if min(numbers) < 0 or at > end or beyond:
            raise ValueError(numbers)
        if words and count > page[_PAGE_UNPACKED] + 1:
            raise ValueError(count)
        left -= 0 if words else count
    if left:
        raise ValueError(left)


def _page(content: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """Return the head of a page, and how many bytes it takes."""
    for size in _HEADS:
        content.seek(at)
        reader = _Reader(content.read(size))
        with suppress(IndexError):
            return reader.fields(), reader.at
    raise ValueError(at)


class _Reader:
    """Thrift's compact protocol."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def fields(self) -> dict[int, Any]:
        out, number = {}, 0
        while (head := self._byte()) != _STOP:
            kind, step = head & 15, head >> 4
            number = number + step if step else self._integer()
            out[number] = self._value(kind)
        return out

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._number())
        if kind in (_LIST, _SET):
            return self._list()
        if kind == _MAP:
            return self._map()
        return self.fields() if kind == _STRUCT else self._integer()

    def _list(self) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._number() if size == 15 else size
        if kind in (_TRUE, _FALSE):
            return list(self._take(size))
        return [self._value(kind) for _ in range(size)]

    def _map(self) -> None:
        size = self._number()
        kinds = self._byte() if size else 0
        for _ in range(size):
            for kind in (kinds >> 4, kinds & 15):
                self._byte() if kind in (_TRUE, _FALSE) else self._value(kind)

    def _integer(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)

    def _number(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _take(self, size: int) -> bytes:
        if self.at + size > len(self.content):
            raise IndexError(size)
        self.at += size
        return self.content[self.at - size : self.at]


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
