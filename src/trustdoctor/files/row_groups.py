"""How the rows of a Parquet file are grouped, from its footer.

A reader takes a row group as a whole, so the largest one says how much memory reading
needs. polars does not tell; the footer is a Thrift structure of a few kinds of fields,
of which four are wanted.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trustdoctor.errors import FileError

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    *(0, 1, 2, 3, 7, 8),
    *(9, 10, 11, 12),
)
_FILE_ROW_GROUPS, _GROUP_BYTES, _GROUP_ROWS = 4, 2, 3


@dataclass(frozen=True)
class RowGroup:
    """One row group.

    Attributes
    ----------
    rows : int
    size : int
        Its bytes when unpacked.
    """

    rows: int
    size: int


def read_row_groups(file: Path) -> list[RowGroup]:
    """Return the row groups of a Parquet file."""
    try:
        with file.open("rb") as content:
            end = content.seek(0, 2)
            content.seek(max(end - 8, 0))
            length, mark = struct.unpack("<I4s", content.read(8))
            if mark != b"PAR1" or length > end - 8:
                raise ValueError(mark)
            content.seek(end - 8 - length)
            fields = _Reader(content.read(length)).fields()
        groups = fields[_FILE_ROW_GROUPS]
        return [RowGroup(g[_GROUP_ROWS], g[_GROUP_BYTES]) for g in groups]
    except Exception as error:  # a damaged footer fails in many ways
        message = (
            f"cannot read {file} as PARQUET: it has no footer. The file may be cut "
            "short; write it again."
        )
        raise FileError(message) from error


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
            self._value(kinds >> 4)
            self._value(kinds & 15)

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
