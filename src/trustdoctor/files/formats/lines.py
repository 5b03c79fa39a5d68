"""The lines of a text file: of a bounded length, and the last one complete.

A line that never ends fills the memory of whatever parses it, and a file that was cut
short ends in a number that nobody wrote. Both are looked for in one pass over the
bytes, unpacked if they are gzipped, before a parser sees them.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from trustdoctor.errors import FileError
from trustdoctor.files.formats.dialect import Dialect, as_utf8, open_unpacked, sniff

LONGEST = 1 << 24
"""Bytes that a line has at most, with the line ends within its quotes."""

MOST_COLUMNS = 1 << 15
"""Columns that a table of text has at most: parsing takes about 10 kB for each."""

MOST_UNWRITTEN = 1 << 21
"""Cells of short or blank lines in 1 MB of text, at most: a parser makes them all,
which takes 16 bytes for each."""

_BLOCK = 1 << 20
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16 and UTF-32


class BlockEnds(NamedTuple):
    """Where the first and the last line of a block end, outside of quotes."""

    first: int
    last: int
    n_lines: int


@dataclass(frozen=True)
class LineStatistics:
    """What one pass over a file's bytes finds."""

    last: bytes
    """The last line that is not empty."""
    is_ended: bool
    """Whether it has a line end."""
    longest: int
    """About how many bytes the longest line has; 0 if all have less than 1 MB."""
    densest: int
    """Lines in a block, at most."""


def readable_lines(file: Path, *, json: bool = False) -> Path:
    """Return the file in UTF-8, as `as_utf8`, refusing one of endless lines."""
    line_statistics(file)
    return as_utf8(file, json=json)


def check_cells(file: Path, utf8: Path, n_columns: int) -> None:
    """Refuse lines that are mostly blank, or shorter than the header, by millions."""
    n_lines = line_statistics(utf8).densest
    if n_lines * n_columns - _BLOCK > MOST_UNWRITTEN:
        message = (
            f"expected lines of {n_columns:,} values in {file}, got {n_lines:,} lines "
            "in 1 MB of it: most are blank or short. Leave these out."
        )
        raise FileError(message)


def line_memory(files: Iterable[Path], *, are_written: bool) -> int:
    """Return the bytes that polars holds at once of the longest lines of files."""
    # Measured with lines of 15 MB: a quarter of what the process took beside them,
    # since `engines.memory.with_room` multiplies all pieces by 4.
    factor = 75 if are_written else 20
    return factor * max(line_statistics(file).longest for file in files)


def complete_table(file: Path, *, keep_last: bool) -> tuple[Path, Dialect]:
    """Return a table of text in UTF-8 and its dialect, refusing one that was cut.

    Its last line must end, and have as many values as the header; `keep_last` takes it
    as it is.
    """
    utf8, dialect = readable_lines(file), sniff(file)
    state = utf8.stat()
    header = _read_header(utf8, state.st_size, state.st_mtime_ns, dialect.skipped)
    separator = dialect.separator.encode()
    n_columns = _count_values(header, separator)
    if n_columns > MOST_COLUMNS:
        message = (
            f"expected a table of at most {MOST_COLUMNS:,} columns in {file}, got "
            f"{n_columns:,}. Write more as arrays (.npz), or as lists (.parquet)."
        )
        raise FileError(message)
    check_cells(file, utf8, n_columns)
    statistics = line_statistics(utf8)
    n_values = _count_values(statistics.last, separator)
    is_blank = not statistics.last.strip(separator + b" ")
    is_complete = statistics.is_ended and (is_blank or n_values >= n_columns)
    if keep_last or not statistics.last or is_complete:
        return utf8, dialect
    defect = "has no line end"
    if statistics.is_ended:
        defect = f"has {n_values:,} of {n_columns:,} values"
    message = (
        f"the last line of {file} {defect}, so the file may be cut short. Write it "
        "again, or give --last-line keep if nothing is missing."
    )
    raise FileError(message)


def line_statistics(file: Path) -> LineStatistics:
    """Pass over a file's bytes, once as long as it does not change."""
    state = file.stat()
    return _line_statistics(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _line_statistics(file: Path, size: int, changed_ns: int) -> LineStatistics:
    del size, changed_ns
    length = longest = densest = 0
    tail: deque[bytes] = deque(maxlen=LONGEST // _BLOCK + 2)
    with open_unpacked(file) as content:
        for block, ends in _blocks_with_ends(content):
            length += len(block) if ends is None else ends.first
            if length > LONGEST:
                message = (
                    f"expected lines of at most {LONGEST:,} bytes in {file}, got a "
                    "longer one. Its line ends may be lost, or a quote left open."
                )
                raise FileError(message)
            longest = max(longest, length)
            if ends is not None:
                length = len(block) - ends.last - 1
                densest = max(densest, ends.n_lines)
            tail.append(block)
    text = b"".join(tail)
    stripped = text.rstrip(b"\r\n")
    last = stripped[_last_line_start(stripped) :]
    longest = longest if longest >= _BLOCK else 0
    return LineStatistics(last, text.endswith(b"\n"), longest, densest)


@lru_cache(maxsize=256)
def _read_header(file: Path, size: int, changed_ns: int, skipped: int) -> bytes:
    """Return the first line after those that are skipped."""
    del size, changed_ns
    header = b""
    with open_unpacked(file) as content:
        for _ in range(skipped):
            content.readline()
        for block, ends in _blocks_with_ends(content):
            header += block if ends is None else block[: ends.first]
            if ends is not None:
                break
    return header


def _blocks_with_ends(content: BinaryIO) -> Iterator[tuple[bytes, BlockEnds | None]]:
    """Yield blocks, and where lines end in them: not at line ends within quotes."""
    in_quotes, has_quotes = False, True
    block = content.read(_BLOCK)
    if block.startswith(_WIDE_BOMS):  # a byte is no character there
        has_quotes = False
    while block:
        if has_quotes and b'"' in block:
            # A character is within quotes if the number of quotes before it is odd.
            characters = np.frombuffer(block, np.uint8)
            quoted = np.bitwise_xor.accumulate(characters == ord('"')) ^ in_quotes
            at = np.flatnonzero((characters == ord("\n")) & ~quoted)
            yield (
                block,
                BlockEnds(int(at[0]), int(at[-1]), len(at)) if len(at) else None,
            )
            in_quotes = bool(quoted[-1])
        else:  # bytes.find is 15 times faster than arrays
            first, last = block.find(b"\n"), block.rfind(b"\n")
            has_end = not in_quotes and first >= 0
            yield block, BlockEnds(first, last, block.count(b"\n")) if has_end else None
        block = content.read(_BLOCK)


def _last_line_start(text: bytes) -> int:
    """Return where the last line begins: no quote of it is open there."""
    start = text.rfind(b"\n") + 1
    if not text.count(b'"', start) % 2:
        return start
    # Quotes are counted from the end, where none is open.
    characters = np.frombuffer(text, np.uint8)
    quoted = np.bitwise_xor.accumulate((characters == ord('"'))[::-1])[::-1]
    ends = np.flatnonzero((characters == ord("\n")) & ~quoted)
    return int(ends[-1]) + 1 if len(ends) else 0


def _count_values(line: bytes, separator: bytes) -> int:
    quoted = rb'(^|%b)\s*"(?:[^"]|"")*"' % re.escape(separator)
    return re.sub(quoted, rb"\1", line).count(separator) + 1
