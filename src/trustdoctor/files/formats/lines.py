"""The lines of a text file: of a bounded length, and the last one whole.

A line that never ends fills the memory of whatever parses it, and a file that was cut
short ends in a number that nobody wrote. Both are looked for in one pass over the
bytes, unpacked where they are packed, before a parser sees them.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from trustdoctor.errors import FileError
from trustdoctor.files.formats.dialect import Dialect, opened, readable, sniff

LONGEST = 1 << 24
"""Bytes that a line has at most, with the line ends within its quotes."""

MOST_COLUMNS = 1 << 15
"""Columns that a table of text has at most: parsing takes about 10 kB for each."""

MOST_UNWRITTEN = 1 << 21
"""Cells of lines that are short or blank in 1 MB of text, at most: a parser makes them
all, which takes 16 bytes for each."""

_BLOCK = 1 << 20
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16 and UTF-32

Ends = tuple[int, int, int] | None
"""Where a block's first and last line end are, outside of quotes, and how many."""


@dataclass(frozen=True)
class _End:
    """What one pass over a file's bytes finds."""

    last: bytes
    """The last line that is not empty."""
    ended: bool
    """Whether it ends."""
    longest: int
    """About how many bytes the longest line has; 0 where all have less than 1 MB."""
    densest: int
    """Lines in a block, at most."""


def bounded(file: Path, *, json: bool = False) -> Path:
    """Return a readable file, as `dialect.readable`, refusing one of endless lines."""
    _passed(file)
    return readable(file, json=json)


def check_cells(file: Path, path: Path, columns: int) -> None:
    """Refuse lines that are mostly blank, or shorter than the header, by millions."""
    lines = _passed(path).densest
    if lines * columns - _BLOCK > MOST_UNWRITTEN:
        message = (
            f"expected lines of {columns:,} values in {file}, got {lines:,} lines in "
            "1 MB of it: most are blank or short. Leave these out."
        )
        raise FileError(message)


def line_memory(files: Iterable[Path], *, whole: bool) -> int:
    """Return the bytes that polars holds at once of the longest lines of files.

    Measured with lines of 15 MB: a quarter of what the process took beside them.
    `whole` says that they are written, too.
    """
    return (75 if whole else 20) * max(_passed(file).longest for file in files)


def _passed(file: Path) -> _End:
    state = file.stat()
    return _pass(file, state.st_size, state.st_mtime_ns)


def whole_table(file: Path, *, keep_last: bool) -> tuple[Path, Dialect]:
    """Return a readable table of text and how it is written, refusing a cut one.

    Its last line must end, and have as many values as the header; `keep_last` takes it
    as it stands.
    """
    path, dialect = bounded(file), sniff(file)
    state = path.stat()
    version = state.st_size, state.st_mtime_ns
    separator = dialect.separator.encode()
    columns = _count(_read_header(path, *version, dialect.skipped), separator)
    if columns > MOST_COLUMNS:
        message = (
            f"expected a table of at most {MOST_COLUMNS:,} columns in {file}, got "
            f"{columns:,}. Write more as arrays (.npz), or as lists (.parquet)."
        )
        raise FileError(message)
    check_cells(file, path, columns)
    last, ended = _passed(path).last, _passed(path).ended
    values = _count(last, separator)
    blank = not last.strip(separator + b" ")
    if keep_last or not last or (ended and (blank or values >= columns)):
        return path, dialect
    what = f"has {values:,} of {columns:,} values" if ended else "has no line end"
    message = (
        f"the last line of {file} {what}, so the file may be cut short. Write it "
        "again, or give --last-line keep if nothing is missing."
    )
    raise FileError(message)


@lru_cache(maxsize=256)
def _pass(file: Path, size: int, changed: int) -> _End:
    del size, changed
    length = longest = densest = 0
    tail: deque[bytes] = deque(maxlen=LONGEST // _BLOCK + 2)
    with opened(file) as content:
        for block, ends in _walk(content):
            length += len(block) if ends is None else ends[0]
            if length > LONGEST:
                message = (
                    f"expected lines of at most {LONGEST:,} bytes in {file}, got a "
                    "longer one. Its line ends may be lost, or a quote left open."
                )
                raise FileError(message)
            longest = max(longest, length)
            if ends is not None:
                length = len(block) - ends[1] - 1
                densest = max(densest, ends[2])
            tail.append(block)
    text = b"".join(tail)
    whole = text.rstrip(b"\r\n")
    last = whole[_last_begins(whole) :]
    longest = longest if longest >= _BLOCK else 0
    return _End(last, text.endswith(b"\n"), longest, densest)


@lru_cache(maxsize=256)
def _read_header(file: Path, size: int, changed: int, skipped: int) -> bytes:
    """Return the first line, behind those that are skipped."""
    del size, changed
    header = b""
    with opened(file) as content:
        for _ in range(skipped):
            content.readline()
        for block, ends in _walk(content):
            header += block if ends is None else block[: ends[0]]
            if ends is not None:
                break
    return header


def _walk(content: BinaryIO) -> Iterator[tuple[bytes, Ends]]:
    """Yield blocks, and where lines end in them."""
    inside, quoted = False, True
    block = content.read(_BLOCK)
    if block.startswith(_WIDE_MARKS):  # of which a byte is no sign
        quoted = False
    while block:
        if quoted and b'"' in block:
            signs = np.frombuffer(block, np.uint8)
            within = np.bitwise_xor.accumulate(signs == ord('"')) ^ inside
            ends = np.flatnonzero((signs == ord("\n")) & ~within)
            found = (int(ends[0]), int(ends[-1]), len(ends)) if len(ends) else None
            yield block, found
            inside = bool(within[-1])
        else:
            first, last = block.find(b"\n"), block.rfind(b"\n")
            none = inside or first < 0
            yield block, None if none else (first, last, block.count(b"\n"))
        block = content.read(_BLOCK)


def _last_begins(text: bytes) -> int:
    """Return where the last line begins: no quote of it is open there."""
    begin = text.rfind(b"\n") + 1
    if not text.count(b'"', begin) % 2:
        return begin
    signs = np.frombuffer(text, np.uint8)
    after = np.bitwise_xor.accumulate((signs == ord('"'))[::-1])[::-1]
    ends = np.flatnonzero((signs == ord("\n")) & ~after)
    return int(ends[-1]) + 1 if len(ends) else 0


def _count(line: bytes, separator: bytes) -> int:
    """Return how many values a line has."""
    quoted = rb'(^|%b)\s*"(?:[^"]|"")*"' % re.escape(separator)
    return re.sub(quoted, rb"\1", line).count(separator) + 1
