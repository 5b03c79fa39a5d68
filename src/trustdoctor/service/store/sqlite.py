"""Rows in one file of SQLite, of which one process at a time is the master."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from trustdoctor.errors import FileError, InputError
from trustdoctor.service.store.base import DELETED, Row, UnavailableError

PATIENCE = 30.0
"""Seconds that a session waits for another one."""

WRITER_CACHE, READER_CACHE = 64 << 10, 8 << 10
"""KiB of pages that a connection keeps."""

_NOW = "SELECT (julianday('now') - 2440587.5) * 86400.0"


encode = msgspec.json.Encoder().encode
_PIECE = 128  # rows of one statement


@lru_cache(1024)
def _insertion(
    table: str, columns: tuple[str, ...], same: tuple[str, ...], rows: int
) -> str:
    """Return a statement of so many rows, with the shared values first."""
    shared = [f"?{at}" for at in range(1, len(same) + 1)]
    start, width = len(same) + 1, len(columns)
    lines = []
    for row in range(rows):
        own = [f"?{start + row * width + at}" for at in range(width)]
        lines.append(f"({', '.join(shared + own)})")
    names = ", ".join((*same, *columns))
    return f"INSERT INTO {table} ({names}) VALUES {', '.join(lines)}"


class SqliteSession:
    """A connection to the file."""

    def __init__(self, path: Path, *, fast: bool, cache: int) -> None:
        self._told = _Told(path)
        with self._told:
            self.store = sqlite3.connect(
                path,
                timeout=PATIENCE,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=512,
            )
            for setting in (
                "journal_mode = WAL",
                # FULL waits for the disk at every commit; NORMAL at checkpoints only.
                f"synchronous = {'NORMAL' if fast else 'FULL'}",
                "foreign_keys = OFF",
                f"cache_size = -{cache}",
                "temp_store = MEMORY",
                # Rarer than one commit in a hundred, so that few requests wait for it.
                "wal_autocheckpoint = 10000",
                "secure_delete = ON",
            ):
                self._set(setting)

    def _set(self, setting: str) -> None:
        try:
            self.store.execute(f"PRAGMA {setting}")
        except sqlite3.Error:  # not a database, or not ours to read
            self.store.close()
            raise

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return what a query finds."""
        with self._told:
            return self.store.execute(statement, values).fetchall()

    def run(self, statement: str, *values: Any) -> int:
        """Change something; return how many rows."""
        with self._told:
            return self.store.execute(statement, values).rowcount

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        same: dict[str, Any] | None = None,
    ) -> None:
        """Add many rows; `same` are columns that have one value in all of them.

        One statement for many rows takes half the time of one statement for each.
        """
        shared = same or {}
        with self._told:
            for first in range(0, len(rows), _PIECE):
                part = rows[first : first + _PIECE]
                text = _insertion(table, tuple(columns), tuple(shared), len(part))
                values = [*shared.values(), *chain.from_iterable(part)]
                self.store.execute(text, values)

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Change something for each of many values."""
        with self._told:
            self.store.executemany(statement, rows)

    def listed(self, values: Sequence[Any]) -> tuple[str, Any]:
        """Return what stands after IN for values of one type, and its one value."""
        return "(SELECT value FROM json_each(?))", encode(values).decode()

    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self.rows(query, name))

    def now(self) -> float:
        """Return the clock, in seconds since 1970."""
        return float(self.rows(_NOW)[0][0])

    def scrub(self) -> None:
        """Write the log into the file, which overwrites what was deleted there."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def lock(self) -> None:
        """Nothing to wait for: a transaction that writes is alone."""

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make it durable."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Undo it."""
        if self.store.in_transaction:
            with suppress(UnavailableError):
                self.run("ROLLBACK")

    def close(self) -> None:
        """End the connection."""
        self.store.close()


class SqliteDatabase:
    """A file, and a lock beside it that says who serves it."""

    name = "sqlite"
    types = {"integer": "INTEGER", "real": "REAL", "bytes": "BLOB", "id": "TEXT"}  # noqa: RUF012

    def __init__(self, path: str, *, fast: bool) -> None:
        self.path, self.fast = Path(path), fast
        if self.path.is_dir() or not self.path.name:
            message = f"expected a file to keep rows in, got the folder {path}."
            raise InputError(message)
        self._lock = _lock_file(self.path)
        # Rows may be about persons: nobody else reads the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def open(self, *, writer: bool = False) -> SqliteSession:
        """Connect; who writes keeps more pages in memory."""
        cache = WRITER_CACHE if writer else READER_CACHE
        return SqliteSession(self.path, fast=self.fast, cache=cache)

    def prepare(self, session: Any, first: int, last: int) -> None:
        """Nothing to make: one table holds all rows."""

    def forget(self) -> None:
        """Nothing was made."""

    def piece(self, first: int, last: int) -> int:
        """Return up to which position rows from `first` on are deleted at once."""
        return min(last, first + DELETED - 1)

    def discard(self, session: Any, upto: int, goal: int) -> None:
        """Delete rows up to a position."""
        del goal
        session.run("DELETE FROM rows WHERE position <= ?", upto)

    def close(self) -> None:
        """Let another process serve the file."""
        os.close(self._lock)


def _lock_file(path: Path) -> int:
    """Take the file for this process, or say that another has it."""
    import fcntl

    beside = path.with_name(f"{path.name}.lock")
    try:
        opened = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = (
            f"cannot keep rows in {path}: {(error.strerror or str(error)).lower()}. "
            "Name another place by --store."
        )
        raise FileError(message) from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(opened)
        message = (
            f"{path} is served by another process, and SQLite has one writer. Stop "
            "that one, or name a database for several: --store postgresql://..."
        )
        raise InputError(message) from error
    return opened


class _Told:
    """Says what is wrong with the file; it is entered at every statement."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Name what went wrong."""
        if error is None or not isinstance(error, sqlite3.DatabaseError):
            return
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
            return
        message = f"cannot use the store {self.path.name}: {error}."
        raise UnavailableError(message) from error
