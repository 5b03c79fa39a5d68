"""A store in one file of SQLite, which one process serves at a time."""

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

BUSY_TIMEOUT = 30.0
"""Seconds that a session waits for the lock of another one."""

WRITER_CACHE, READER_CACHE = 64 << 10, 8 << 10
"""KiB of pages that a connection keeps in memory."""

ROWS_PER_INSERT = 128
"""Rows of one INSERT: many in one statement take half the time of one each."""

_NOW = "SELECT (julianday('now') - 2440587.5) * 86400.0"

encode = msgspec.json.Encoder().encode


@lru_cache(1024)
def _insert_statement(
    table: str, columns: tuple[str, ...], shared: tuple[str, ...], rows: int
) -> str:
    """Return an INSERT of several rows.

    Numbered parameters let all rows refer to a shared value, which is bound once.
    """
    shared_parameters = [f"?{number}" for number in range(1, len(shared) + 1)]
    first, width = len(shared) + 1, len(columns)
    tuples = []
    for row in range(rows):
        start = first + row * width
        parameters = [f"?{number}" for number in range(start, start + width)]
        tuples.append(f"({', '.join(shared_parameters + parameters)})")
    names = ", ".join((*shared, *columns))
    return f"INSERT INTO {table} ({names}) VALUES {', '.join(tuples)}"


class SqliteSession:
    """A connection to the file."""

    def __init__(self, path: Path, *, fast: bool, cache: int) -> None:
        self._unavailable = _RaiseUnavailable(path)
        with self._unavailable:
            self.connection = sqlite3.connect(
                path,
                timeout=BUSY_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=512,
            )
            for pragma in (
                # Readers do not wait for the writer, nor it for them.
                "journal_mode = WAL",
                # FULL waits for the disk at every commit; NORMAL at checkpoints only.
                f"synchronous = {'NORMAL' if fast else 'FULL'}",
                "foreign_keys = OFF",
                f"cache_size = -{cache}",
                "temp_store = MEMORY",
                # Rarer than one commit in a hundred, so that few requests wait for it.
                "wal_autocheckpoint = 10000",
                # Forgotten rows are about persons: their bytes are overwritten.
                "secure_delete = ON",
            ):
                self._set(pragma)

    def _set(self, pragma: str) -> None:
        try:
            self.connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error:  # not a database, or not ours to read
            self.connection.close()
            raise

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return the rows of a query."""
        with self._unavailable:
            return self.connection.execute(statement, values).fetchall()

    def run(self, statement: str, *values: Any) -> int:
        """Execute a statement; return the number of rows that it changed."""
        with self._unavailable:
            return self.connection.execute(statement, values).rowcount

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        shared: dict[str, Any] | None = None,
    ) -> None:
        """Add rows; `shared` are columns with one value in all of them."""
        shared = shared or {}
        with self._unavailable:
            for first in range(0, len(rows), ROWS_PER_INSERT):
                batch = rows[first : first + ROWS_PER_INSERT]
                statement = _insert_statement(
                    table, tuple(columns), tuple(shared), len(batch)
                )
                values = [*shared.values(), *chain.from_iterable(batch)]
                self.connection.execute(statement, values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values."""
        with self._unavailable:
            self.connection.executemany(statement, rows)

    def in_list(self, values: Sequence[Any]) -> tuple[str, Any]:
        """Return the SQL behind IN for values of one type, and its single parameter."""
        # One parameter for any number of values keeps the statement in the cache.
        return "(SELECT value FROM json_each(?))", encode(values).decode()

    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self.rows(query, name))

    def now(self) -> float:
        """Return the clock, in seconds since 1970."""
        return float(self.rows(_NOW)[0][0])

    def scrub(self) -> None:
        """Write the log into the file and empty it: it may hold deleted content."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def lock(self) -> None:
        """Do nothing: BEGIN IMMEDIATE has the only lock."""

    def begin(self) -> None:
        """Begin a transaction that writes."""
        # A deferred one fails (SQLITE_BUSY) if another writes after its first read.
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the transaction durable."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction."""
        if self.connection.in_transaction:
            with suppress(UnavailableError):
                self.run("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class SqliteDatabase:
    """A file, and a lock file beside it that the process that serves it holds."""

    name = "sqlite"
    column_types = {  # noqa: RUF012
        "integer": "INTEGER",
        "real": "REAL",
        "bytes": "BLOB",
        "id": "TEXT",
    }

    def __init__(self, path: str, *, fast: bool) -> None:
        self.path, self.fast = Path(path), fast
        if self.path.is_dir() or not self.path.name:
            message = f"expected a file to keep rows in, got the folder {path}."
            raise InputError(message)
        self._lock = _lock_file(self.path)
        # Rows may be about persons: nobody else reads the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def open(self, *, writer: bool = False) -> SqliteSession:
        """Connect; the writer keeps more pages in memory."""
        cache = WRITER_CACHE if writer else READER_CACHE
        return SqliteSession(self.path, fast=self.fast, cache=cache)

    def make_partitions(self, session: Any, first: int, last: int) -> None:
        """Do nothing: one table holds all rows."""

    def forget_partitions(self) -> None:
        """Do nothing: there are none."""

    def deletion_end(self, first: int, last: int) -> int:
        """Return the last position that a deletion from `first` on takes at once."""
        return min(last, first + DELETED - 1)

    def delete_rows(self, session: Any, last: int, goal: int) -> None:
        """Delete rows up to a position."""
        del goal
        session.run("DELETE FROM rows WHERE position <= ?", last)

    def close(self) -> None:
        """Let another process serve the file."""
        os.close(self._lock)


def _lock_file(path: Path) -> int:
    """Take the file for this process, or say that another has it."""
    import fcntl

    # A file beside it, since SQLite takes locks on the database itself.
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = (
            f"cannot keep rows in {path}: {(error.strerror or str(error)).lower()}. "
            "Name another place by --store."
        )
        raise FileError(message) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        message = (
            f"{path} is served by another process, and SQLite has one writer. Stop "
            "that one, or name a database for several: --store postgresql://..."
        )
        raise InputError(message) from error
    return lock


class _RaiseUnavailable:
    """Turns what SQLite raises into UnavailableError.

    It is entered at every statement: a class costs 0.2 us, @contextmanager 1.4 us.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Raise in its place what the service answers by 503."""
        if error is None or not isinstance(error, sqlite3.DatabaseError):
            return
        # A violated constraint or wrong SQL is a bug, not a store that is away.
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
            return
        message = f"cannot use the store {self.path.name}: {error}."
        raise UnavailableError(message) from error
