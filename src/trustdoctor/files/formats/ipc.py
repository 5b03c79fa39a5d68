"""Arrow files, which Feather files of version 2 are, too."""

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from trustdoctor.errors import FileError
from trustdoctor.files.formats.registry import Format, register_format

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

_MOST = 1 << 46  # bytes of an unpacked column that can be meant
_FOOTER_BATCHES, _MESSAGE_HEADER = 3, 2
_BATCH_ROWS, _BATCH_BUFFERS, _BATCH_PACKING = 0, 2, 3


@dataclass(frozen=True)
class RecordBatch:
    """One record batch.

    Attributes
    ----------
    rows : int
    size : int
        Its bytes when unpacked.
    """

    rows: int
    size: int


def _scan(source: "Source") -> pl.LazyFrame:
    for file in source.files:
        read_batches(file)  # the same files are refused, however they are read
    source.check_schemas(pl.read_ipc_schema)
    hive = bool(source.partitions)
    return pl.scan_ipc(list(source.files), glob=False, hive_partitioning=hive)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    del source
    rows.sink_ipc(path, engine="streaming")


def read_batches(file: Path) -> list[RecordBatch]:
    """Return the record batches of an Arrow file, which a reader takes as a whole."""
    state = file.stat()
    return _read_batches(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_batches(file: Path, size: int, changed: int) -> list[RecordBatch]:
    del size, changed
    try:
        with file.open("rb") as content:
            end = content.seek(0, 2)
            length = _unpack("<i", content, end - 10)
            footer = _Table.root(_bytes(content, end - 10 - length, length))
            places = footer.pairs(_FOOTER_BATCHES, step=24)
            return [_batch(content, end, at, meta) for at, meta in places]
    except (OSError, ValueError, struct.error) as error:
        message = (
            f"cannot read {file} as Arrow: its footer or a batch is damaged. The file "
            "may be cut short, or hold a stream; write it again as a file."
        )
        raise FileError(message) from error


def _batch(content: BinaryIO, end: int, at: int, meta: int) -> RecordBatch:
    size = _unpack("<i", content, at + 4)  # behind a mark of four bytes
    batch = _Table.root(_bytes(content, at + 8, size)).table(_MESSAGE_HEADER)
    body = at + (meta & 0xFFFFFFFF)  # the upper half is padding
    sizes = []
    for offset, length in batch.pairs(_BATCH_BUFFERS, step=16):
        packed = batch.has(_BATCH_PACKING) and length >= 8
        unpacked = _unpack("<q", content, body + offset) if packed else -1
        if min(offset, length) < 0 or body + offset + length > end:
            raise ValueError(length)
        sizes.append(max(length, unpacked))
    rows = batch.number(_BATCH_ROWS)
    if rows < 0 or max(sizes, default=0) > _MOST:
        raise ValueError(rows)
    return RecordBatch(rows, sum(sizes))


def _bytes(content: BinaryIO, at: int, size: int) -> bytes:
    content.seek(at)
    found = content.read(size) if size >= 0 else b""
    if not size == len(found) > 0:
        raise ValueError(size)
    return found


def _unpack(kind: str, content: BinaryIO, at: int) -> Any:
    return struct.unpack(kind, _bytes(content, at, struct.calcsize(kind)))[0]


class _Table:
    """A table of FlatBuffers: where its fields are stands before it."""

    def __init__(self, content: bytes, at: int) -> None:
        self.content, self.at = content, at

    @classmethod
    def root(cls, content: bytes) -> "_Table":
        return cls(content, struct.unpack_from("<I", content)[0])

    def _get(self, kind: str, at: int) -> Any:
        if at < 0:
            raise ValueError(at)
        return struct.unpack_from(kind, self.content, at)[0]

    def _field(self, number: int) -> int:
        places = self.at - self._get("<i", self.at)
        inside = 4 + 2 * number < self._get("<H", places)
        offset = self._get("<H", places + 4 + 2 * number) if inside else 0
        return self.at + offset if offset else 0

    def number(self, number: int) -> int:
        at = self._field(number)
        return int(self._get("<q", at)) if at else 0

    def has(self, number: int) -> bool:
        return self._field(number) > 0

    def table(self, number: int) -> "_Table":
        at = self._field(number)
        return _Table(self.content, at + self._get("<I", at))

    def pairs(self, number: int, *, step: int) -> list[tuple[int, int]]:
        """Return the first two numbers of each entry of a list."""
        at = self._field(number)
        if not at:
            return []
        at += self._get("<I", at)
        count = self._get("<I", at)
        if step * count > len(self.content):
            raise ValueError(count)
        places = (at + 4 + step * i for i in range(count))
        return [(self._get("<q", at), self._get("<q", at + 8)) for at in places]


def _largest(source: "Source", *, whole: bool) -> int:
    if whole:
        return max((batch.size for batch in _batches(source)), default=0)
    rows = max((batch.rows for batch in _batches(source)), default=0)
    return rows * source.row_bytes


def _batches(source: "Source") -> list[RecordBatch]:
    return [batch for file in source.files for batch in read_batches(file)]


def _row_bytes(source: "Source") -> int:
    batches = _batches(source)
    return sum(b.size for b in batches) // max(sum(b.rows for b in batches), 1)


IPC = register_format(
    Format(
        "Arrow",
        (".arrow", ".feather", ".ipc"),
        _scan,
        _sink,
        rows=lambda source: sum(batch.rows for batch in _batches(source)),
        row_bytes=_row_bytes,
        largest_piece=_largest,
    )
)
