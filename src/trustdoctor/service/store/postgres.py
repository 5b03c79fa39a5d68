"""A store in PostgreSQL, for any number of replicas of the service.

Rows are partitioned by position. Positions rise with time, so a partition is a stretch
of time, and retention drops whole ones that nobody reads just then.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from trustdoctor.errors import InputError, missing_package
from trustdoctor.service.store.base import DELETED, Row, UnavailableError

PARTITION = 10_000_000
"""Positions of one partition."""

SCHEMA = "trustdoctor"
"""Where the tables are."""

_DEFAULT_PATH = '"$user", public'
_CONNECT_TIMEOUT = 10
# `idle_in_transaction_session_timeout` does not end a replica that hangs in the middle
# of a COPY: to the server it is not idle. It waits for the client, with the counter
# locked, and every replica would wait with it (tests/service/test_stress.py).
_END_HANGING_WRITERS = (
    "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_locks l "
    "ON l.pid = a.pid WHERE l.relation = 'head'::regclass AND l.mode = 'RowShareLock' "
    "AND l.granted AND a.pid <> pg_backend_pid() AND a.wait_event = 'ClientRead' "
    "AND a.xact_start < now() - interval '5 s'"
)
# now() stands still within a transaction, so it would not show how long one waited.
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


@cache
def _with_placeholders(statement: str) -> str:
    return statement.replace("?", "%s")


class PostgresSession:
    """A connection to the server; after a failure it is closed."""

    def __init__(self, address: str, *, fast: bool) -> None:
        driver = _driver()
        self._column_types: dict[str, dict[str, str]] = {}
        with _raise_unavailable():
            try:
                self.connection = driver.connect(
                    address,
                    autocommit=True,
                    connect_timeout=_CONNECT_TIMEOUT,
                    application_name="trustdoctor",
                    keepalives_idle=10,
                    tcp_user_timeout=30_000,
                )
            except driver.ProgrammingError as error:
                message = (
                    "expected a store as postgresql://USER@HOST/NAME, got an address "
                    "that cannot be read as one. Correct --store."
                )
                raise InputError(message) from error
            # A replica that hangs does not keep the others waiting.
            self.connection.execute("SET idle_in_transaction_session_timeout TO '5s'")
            self.connection.execute("SET lock_timeout TO '10s'")
            self.connection.execute("SET timezone TO 'UTC'")
            # Our tables do not mix with what else the database holds, unless the
            # address names a place for them: ?options=-csearch_path%3DNAME.
            (path,) = self.rows("SHOW search_path")[0]
            if path == _DEFAULT_PATH:
                self.connection.execute(f"SET search_path TO {SCHEMA}")
            if fast:
                self.connection.execute("SET synchronous_commit TO off")
            elif self.rows("SHOW synchronous_commit")[0][0] == "off":
                # An answer promises that the disk has it, whatever the default.
                self.connection.execute("SET synchronous_commit TO on")

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return the rows of a query."""
        with _raise_unavailable():
            cursor = self.connection.execute(_with_placeholders(statement), values)
            return cursor.fetchall()

    def run(self, statement: str, *values: Any) -> int:
        """Execute a statement; return the number of rows that it changed."""
        with _raise_unavailable():
            cursor = self.connection.execute(_with_placeholders(statement), values)
            return cursor.rowcount

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        shared: dict[str, Any] | None = None,
    ) -> None:
        """Add rows; `shared` are columns with one value in all of them."""
        shared = shared or {}
        names = (*shared, *columns)
        shared_values = tuple(shared.values())
        types = self._types(table)
        # Binary COPY: the server has nothing to parse or to plan for each row.
        statement = f"COPY {table} ({', '.join(names)}) FROM STDIN WITH (FORMAT BINARY)"
        with (
            _raise_unavailable(),
            self.connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            copy.set_types([types[name] for name in names])
            for row in rows:
                copy.write_row(shared_values + row)

    def _types(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns: binary COPY converts nothing."""
        if table not in self._column_types:
            columns = self.rows(
                "SELECT column_name, udt_name FROM information_schema.columns "
                "WHERE table_name = ? AND table_schema = current_schema()",
                table,
            )
            self._column_types[table] = {name: kind for name, kind in columns}  # noqa: C416
        return self._column_types[table]

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values."""
        with _raise_unavailable(), self.connection.cursor() as cursor:
            cursor.executemany(_with_placeholders(statement), rows)

    def in_list(self, values: Sequence[Any]) -> tuple[str, Any]:
        """Return the SQL behind IN for values of one type, and its single parameter."""
        array = "bigint[]" if values and type(values[0]) is int else "text[]"
        return f"(SELECT unnest(?::{array}))", list(values)

    def lock_if_unused(self, table: str) -> bool:
        """Lock a table for this transaction, unless somebody uses it."""
        self.run("SAVEPOINT unused")
        try:
            self.connection.execute(
                f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT"
            )
        except _driver().Error:
            self.run("ROLLBACK TO SAVEPOINT unused")
            return False
        return True

    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        return self.rows("SELECT to_regclass(?)", name)[0][0] is not None

    def now(self) -> float:
        """Return the server's clock, in seconds since 1970."""
        return float(self.rows(_NOW)[0][0])

    def scrub(self) -> None:
        """Do nothing: the server overwrites what was deleted in its own time."""

    def lock(self) -> None:
        """Lock the position counter until the transaction ends."""
        # Positions are given out in the order of commits because of this lock. Numbers
        # of a sequence are not: a reader could pass one that is committed later.
        try:
            self.rows("SELECT last_position FROM head FOR UPDATE")
        except UnavailableError as error:
            if isinstance(error.__cause__, _driver().errors.LockNotAvailable):
                self.rollback()
                self.rows(_END_HANGING_WRITERS)
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self.run("BEGIN")

    def commit(self) -> None:
        """Make the transaction durable."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction."""
        with suppress(UnavailableError):
            self.run("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class PostgresDatabase:
    """A server that several replicas share."""

    name = "postgresql"
    column_types = {  # noqa: RUF012
        "integer": "BIGINT",
        "real": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        # By bytes, as in SQLite: a locale's order is slower, and may change with libc.
        "id": 'TEXT COLLATE "C"',
    }

    def __init__(self, address: str, *, fast: bool) -> None:
        self.address, self.fast = address, fast
        self._last_partition = -1  # of those that are known to exist

    def open(self, *, writer: bool = False) -> PostgresSession:
        """Connect."""
        del writer
        return PostgresSession(self.address, fast=self.fast)

    def make_partitions(self, session: Any, first: int, last: int) -> None:
        """Create the partitions that rows of these positions need, and the next one."""
        start, end = first // PARTITION, last // PARTITION + 1
        if end <= self._last_partition:
            return
        for number in range(max(start, self._last_partition), end + 1):
            session.run(
                f"CREATE TABLE IF NOT EXISTS rows_{number} PARTITION OF rows "
                f"FOR VALUES FROM ({number * PARTITION}) "
                f"TO ({(number + 1) * PARTITION})"
            )
        self._last_partition = end

    def forget_partitions(self) -> None:
        """Look for partitions anew: the transaction that made some was undone."""
        self._last_partition = -1

    def deletion_end(self, first: int, last: int) -> int:
        """Return the last position that a deletion from `first` on takes at once."""
        partition_end = (first // PARTITION + 1) * PARTITION - 1
        return min(last, partition_end, first + DELETED - 1)

    def delete_rows(self, session: Any, last: int, goal: int) -> None:
        """Delete rows up to a position; a partition at its end, as a whole."""
        number = last // PARTITION
        partition_end = (number + 1) * PARTITION - 1
        if partition_end > goal:
            session.run("DELETE FROM rows WHERE position <= ?", last)
        elif last == partition_end:
            # To drop a partition takes a lock on all of `rows`. It would wait for a
            # reader that takes long, and all decisions would wait behind it.
            if session.lock_if_unused("rows"):
                session.run(f"DROP TABLE IF EXISTS rows_{number}")
            else:
                session.run("DELETE FROM rows WHERE position <= ?", last)

    def close(self) -> None:
        """Do nothing: the server stays."""


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        what = "a store in PostgreSQL"
        raise missing_package(what=what, package="psycopg", extra="serve") from error
    return psycopg


@contextmanager
def _raise_unavailable() -> Iterator[None]:
    """Turn what the driver raises into UnavailableError, without the address."""
    driver = _driver()
    try:
        yield
    except (driver.OperationalError, driver.InterfaceError) as error:
        first_line = str(error).splitlines()[0]
        # The driver may quote the address, and with it a password.
        reason = re.sub(r"postgres(ql)?://\S+", "postgresql://...", first_line)
        message = f"cannot use the store in PostgreSQL: {reason}."
        raise UnavailableError(message) from error
