"""How much memory there is, what fits into it, and how polars is kept within it."""

import ctypes
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trustdoctor.errors import FileError, InputError
from trustdoctor.files import Source
from trustdoctor.kernels import cores

BASE_MEMORY = 500_000_000
"""Bytes that the libraries take, and polars' buffers of the files it reads."""

LEAST_MEMORY = 1_000_000_000
"""Bytes that the libraries and a few batches need."""


def parse_memory(text: str | None) -> int:
    """Read a memory limit, as 1GB or 4GB; by default half of what is free.

    Examples
    --------
    >>> parse_memory("1.5GB"), parse_memory("1GiB")
    (1500000000, 1073741824)
    """
    if text is None:
        return _free_memory() // 2
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if not match or not 0 < number < 1e15:
        message = f"expected a memory limit as 1GB or 4GB, got {text!r}."
        raise InputError(message)
    base = 1024 if match[3] else 1000
    limit = int(number * base ** " kmgt".index(match[2].lower() or " "))
    if limit < LEAST_MEMORY:
        message = (
            f"expected a memory limit of {LEAST_MEMORY // 10**6}MB or more, got "
            f"{text!r}: the libraries and the batches in work take that much."
        )
        raise InputError(message)
    return limit


def _free_memory() -> int:
    try:  # Linux alone has this file
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 4 << 30


def fits(source: Source, memory: int, *, n_scores: int = 0) -> bool:
    """Tell whether all rows may be read at once, and evaluated by `n_scores` scores."""
    if source.size > memory:
        return False
    if source.format.lines and 4 * source.largest_piece() > memory - BASE_MEMORY:
        return False
    bytes_per_row = 3 * source.row_bytes + 60 + 110 * n_scores
    return source.about_rows * bytes_per_row <= memory


def require_fitting(source: Source, memory: int, task: str, advice: str = "") -> None:
    """Refuse files that cannot be read at once, for a task that has to.

    `advice` says what else can be done.
    """
    if not fits(source, memory):
        message = (
            f"{task} needs all rows at once, which here take more than "
            f"{memory / 1e9:.1f} GB. Raise --memory, or give it a sample of the rows."
            f"{advice}"
        )
        raise InputError(message)


def with_room(source: Source, memory: int, *, all_columns: bool = False) -> Source:
    """Return the files, to be read a few rows at a time if their pieces are too large.

    Files whose pieces cannot be divided are refused.
    """
    # A piece is in memory about four times: as read, unpacked, as columns in the
    # functions of a batch, and on its way out.
    piece, room = source.largest_piece(all_columns=all_columns), memory - BASE_MEMORY
    if 4 * piece <= room:
        return source
    if source.format.sliced:
        return replace(source, step=_batch_rows(source, room, all_columns=all_columns))
    least = math.ceil((4 * piece + BASE_MEMORY) / 1e8) / 10
    message = (
        f"{source.name} has pieces of {piece / 1e6:,.0f} MB that are read as a "
        f"whole, which need about {least} GB of memory. Give --memory "
        f"{least}GB, or write smaller record batches, shorter lines, fewer "
        "columns, or arrays in C order."
    )
    raise FileError(message)


def _batch_rows(source: Source, room: int, *, all_columns: bool) -> int:
    """Return the rows of a batch, so that 16 batches per core fit into the room."""
    size = 16 * cores() * source.row_size(all_columns=all_columns)
    return int(min(max(room // size, 1 << 6), 1 << 17))


@contextmanager
def tuned(source: Source, memory: int, *, all_columns: bool = False) -> Iterator[None]:
    """Limit the batches of polars, and tune the allocator, for this memory.

    `all_columns` says that all columns pass through. This changes the whole process, so
    the command line and a cluster's workers do it, and a library call does not.
    """
    room = memory - BASE_MEMORY
    if source.format.lines:  # long lines are refused before any is parsed
        with_room(source, memory, all_columns=all_columns)
    piece = max(source.largest_piece(all_columns=all_columns), 1)
    ahead = min(max(room // (8 * piece), 1), 2 * cores())
    rows = _batch_rows(source, room, all_columns=all_columns)
    _keep_freed_memory()
    # polars' own names for the row groups it reads ahead, and the rows of a batch.
    settings = {
        "POLARS_ROW_GROUP_PREFETCH_SIZE": str(ahead),
        "POLARS_IDEAL_MORSEL_SIZE": str(rows),
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update({n: v for n, v in settings.items() if before[n] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _keep_freed_memory() -> None:
    """Tell glibc to keep the memory that threads free: the next batch needs it again.

    Otherwise the arrays of every batch are returned to the system, and the pages of the
    next ones are cleared anew, which takes as long as all scoring does.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        trim_threshold, top_pad, mmap_threshold, arenas = -1, -2, -3, -8  # malloc.h
        set_option(mmap_threshold, 32 << 20)
        set_option(trim_threshold, 64 << 20)
        set_option(top_pad, 4 << 20)
        set_option(arenas, min(cores(), 8))
