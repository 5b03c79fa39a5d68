"""Arrow files, which Feather files of version 2 are, too.

A reader takes a record batch as a whole, and polars does not tell how large they are
when unpacked. The footer and the messages are FlatBuffers; the few fields that are
needed are read here (Arrow's format/File.fbs and Message.fbs).
"""

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

_MAX_BUFFER = 1 << 46
"""Bytes of an unpacked column; a damaged file may announce more."""

# Numbers of fields in FlatBuffers' tables.
_FOOTER_BATCHES, _MESSAGE_HEADER = 3, 2
_BATCH_ROWS, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 2, 3

_END_BYTES = 10
"""The length of the footer, 4 bytes, and ARROW1, 6 bytes."""


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
    """Return the record batches of an Arrow file, each of which is read as a whole."""
    state = file.stat()
    return _read_batches(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_batches(file: Path, size: int, changed_ns: int) -> list[RecordBatch]:
    del size, changed_ns
    try:
        with file.open("rb") as content:
            end = content.seek(0, 2)
            length = _unpack("<i", content, end - _END_BYTES)
            footer = _read_bytes(content, end - _END_BYTES - length, length)
            blocks = _FlatTable.root(footer).pairs(_FOOTER_BATCHES, step=24)
            return [
                _read_batch(content, end, offset, metadata)
                for offset, metadata in blocks
            ]
    except (OSError, ValueError, struct.error) as error:
        message = (
            f"cannot read {file} as Arrow: its footer or a batch is damaged. The file "
            "may be cut short, or hold a stream; write it again as a file."
        )
        raise FileError(message) from error


def _read_batch(content: BinaryIO, end: int, offset: int, metadata: int) -> RecordBatch:
    """Read the header of a batch; `metadata` is the header's length and padding."""
    size = _unpack("<i", content, offset + 4)  # after the continuation mark FFFFFFFF
    message = _FlatTable.root(_read_bytes(content, offset + 8, size))
    batch = message.table(_MESSAGE_HEADER)
    body = offset + (metadata & 0xFFFFFFFF)  # an int32; the upper half is padding
    sizes = []
    for start, length in batch.pairs(_BATCH_BUFFERS, step=16):
        # A compressed buffer begins with its unpacked length; -1 says it is not packed.
        packed = batch.has(_BATCH_COMPRESSION) and length >= 8
        unpacked = _unpack("<q", content, body + start) if packed else -1
        if min(start, length) < 0 or body + start + length > end:
            raise ValueError(length)
        sizes.append(max(length, unpacked))
    rows = batch.integer(_BATCH_ROWS)
    if rows < 0 or max(sizes, default=0) > _MAX_BUFFER:
        raise ValueError(rows)
    return RecordBatch(rows, sum(sizes))


def _read_bytes(content: BinaryIO, offset: int, size: int) -> bytes:
    content.seek(offset)
    read = content.read(size) if size >= 0 else b""
    if not size == len(read) > 0:
        raise ValueError(size)
    return read


def _unpack(kind: str, content: BinaryIO, offset: int) -> Any:
    return struct.unpack(kind, _read_bytes(content, offset, struct.calcsize(kind)))[0]


class _FlatTable:
    """A table of FlatBuffers. Its vtable says at which offset each field is, or 0."""

    def __init__(self, content: bytes, offset: int) -> None:
        self.content, self.offset = content, offset

    @classmethod
    def root(cls, content: bytes) -> "_FlatTable":
        return cls(content, struct.unpack_from("<I", content)[0])

    def _get(self, kind: str, offset: int) -> Any:
        if offset < 0:  # struct would count from the end
            raise ValueError(offset)
        return struct.unpack_from(kind, self.content, offset)[0]

    def _field(self, number: int) -> int:
        """Return the offset of a field; 0 if the table lacks it."""
        vtable = self.offset - self._get("<i", self.offset)
        entry = 4 + 2 * number
        if entry >= self._get("<H", vtable):
            return 0
        relative = self._get("<H", vtable + entry)
        return self.offset + relative if relative else 0

    def integer(self, number: int) -> int:
        offset = self._field(number)
        return int(self._get("<q", offset)) if offset else 0

    def has(self, number: int) -> bool:
        return self._field(number) > 0

    def table(self, number: int) -> "_FlatTable":
        offset = self._field(number)
        return _FlatTable(self.content, offset + self._get("<I", offset))

    def pairs(self, number: int, *, step: int) -> list[tuple[int, int]]:
        """Return the first two integers of each struct of `step` bytes in a vector."""
        offset = self._field(number)
        if not offset:
            return []
        offset += self._get("<I", offset)
        count = self._get("<I", offset)
        if step * count > len(self.content):
            raise ValueError(count)
        starts = (offset + 4 + step * i for i in range(count))
        return [(self._get("<q", at), self._get("<q", at + 8)) for at in starts]


def _largest_batch(source: "Source", *, all_columns: bool) -> int:
    batches = _batches(source)
    if all_columns:
        return max((batch.size for batch in batches), default=0)
    return max((batch.rows for batch in batches), default=0) * source.row_bytes


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
        largest_piece=_largest_batch,
    )
)
