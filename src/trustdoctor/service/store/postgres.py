"""Rows in PostgreSQL, for any number of replicas of the service.

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
_PATIENCE = 10
_CUT = (  # who has the counter, and hangs while it sends rows
    "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_locks l "
    "ON l.pid = a.pid WHERE l.relation = 'head'::regclass AND l.mode = 'RowShareLock' "
    "AND l.granted AND a.pid <> pg_backend_pid() AND a.wait_event = 'ClientRead' "
    "AND a.xact_start < now() - interval '5 s'"
)
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


@cache
def _translated(statement: str) -> str:
    return statement.replace("?", "%s")


class PostgresSession:
    """A connection to the server; after a failure it is closed."""

    def __init__(self, place: str, *, fast: bool) -> None:
        driver = _driver()
        self._known_types: dict[str, dict[str, str]] = {}
        with _told():
            try:
                self.store = driver.connect(
                    place,
                    autocommit=True,
                    connect_timeout=_PATIENCE,
                    application_name="trustdoctor",
                    keepalives_idle=10,
                    tcp_user_timeout=30_000,
                )
            except driver.ProgrammingError as error:
                message = "expected a store as postgresql://USER@HOST/NAME. Mend it."
                raise InputError(message) from error
            # A replica that hangs does not keep the others waiting.
            self.store.execute("SET idle_in_transaction_session_timeout TO '5s'")
            self.store.execute("SET lock_timeout TO '10s'")
            self.store.execute("SET timezone TO 'UTC'")
            # Tables of its own, whatever else the database holds; unless the address
            # says where they are to be: ?options=-csearch_path%3DNAME.
            (path,) = self.rows("SHOW search_path")[0]
            if path == _DEFAULT_PATH:
                self.store.execute(f"SET search_path TO {SCHEMA}")
            if fast:
                self.store.execute("SET synchronous_commit TO off")
            elif self.rows("SHOW synchronous_commit")[0][0] == "off":
                self.store.execute("SET synchronous_commit TO on")

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return what a query finds."""
        with _told():
            return self.store.execute(_translated(statement), values).fetchall()

    def run(self, statement: str, *values: Any) -> int:
        """Change something; return how many rows."""
        with _told():
            return self.store.execute(_translated(statement), values).rowcount

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        same: dict[str, Any] | None = None,
    ) -> None:
        """Add many rows; `same` are columns that have one value in all of them."""
        shared = same or {}
        names = (*shared, *columns)
        first = tuple(shared.values())
        types = self._types(table)
        into = f"COPY {table} ({', '.join(names)}) FROM STDIN WITH (FORMAT BINARY)"
        with _told(), self.store.cursor() as cursor, cursor.copy(into) as copy:
            copy.set_types([types[name] for name in names])
            for row in rows:
                copy.write_row(first + row)

    def _types(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns."""
        if table not in self._known_types:
            found = self.rows(
                "SELECT column_name, udt_name FROM information_schema.columns "
                "WHERE table_name = ? AND table_schema = current_schema()",
                table,
            )
            self._known_types[table] = {name: kind for name, kind in found}  # noqa: C416
        return self._known_types[table]

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Change something for each of many values."""
        with _told(), self.store.cursor() as cursor:
            cursor.executemany(_translated(statement), rows)

    def listed(self, values: Sequence[Any]) -> tuple[str, Any]:
        """Return what stands after IN for values of one type, and its one value."""
        kind = "bigint" if values and type(values[0]) is int else "text"
        return f"(SELECT unnest(?::{kind}[]))", list(values)

    def idle(self, table: str) -> bool:
        """Tell whether nobody uses a table, within a transaction, and lock it."""
        self.run("SAVEPOINT idle")
        try:
            self.store.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT")
        except _driver().Error:
            self.run("ROLLBACK TO SAVEPOINT idle")
            return False
        return True

    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        return self.rows("SELECT to_regclass(?)", name)[0][0] is not None

    def now(self) -> float:
        """Return the server's clock, in seconds since 1970."""
        return float(self.rows(_NOW)[0][0])

    def scrub(self) -> None:
        """Leave it to the server, which overwrites what was deleted in its time."""

    def lock(self) -> None:
        """Wait for the counter: positions are given out in the order of commits."""
        try:
            self.rows("SELECT last_position FROM head FOR UPDATE")
        except UnavailableError as error:
            if isinstance(error.__cause__, _driver().errors.LockNotAvailable):
                self.rollback()
                self.rows(_CUT)
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self.run("BEGIN")

    def commit(self) -> None:
        """Make it durable."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Undo it."""
        with suppress(UnavailableError):
            self.run("ROLLBACK")

    def close(self) -> None:
        """End the connection."""
        self.store.close()


class PostgresDatabase:
    """A server that several replicas share."""

    name = "postgresql"
    types = {  # noqa: RUF012
        "integer": "BIGINT",
        "real": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "id": 'TEXT COLLATE "C"',
    }

    def __init__(self, place: str, *, fast: bool) -> None:
        self.place, self.fast = place, fast
        self._made = -1

    def open(self, *, writer: bool = False) -> PostgresSession:
        """Connect."""
        del writer
        return PostgresSession(self.place, fast=self.fast)

    def prepare(self, session: Any, first: int, last: int) -> None:
        """Make the partitions of these positions, and the next one."""
        start, end = first // PARTITION, last // PARTITION + 1
        if end <= self._made:
            return
        for part in range(max(start, self._made), end + 1):
            session.run(
                f"CREATE TABLE IF NOT EXISTS rows_{part} PARTITION OF rows FOR VALUES "
                f"FROM ({part * PARTITION}) TO ({(part + 1) * PARTITION})"
            )
        self._made = end

    def forget(self) -> None:
        """Look for partitions anew: the transaction that made some was undone."""
        self._made = -1

    def piece(self, first: int, last: int) -> int:
        """Return up to which position rows from `first` on are deleted at once."""
        end = (first // PARTITION + 1) * PARTITION - 1
        return min(last, end, first + DELETED - 1)

    def discard(self, session: Any, upto: int, goal: int) -> None:
        """Delete rows up to a position: a partition at its end, as a whole."""
        part = upto // PARTITION
        end = (part + 1) * PARTITION - 1
        if end > goal:
            session.run("DELETE FROM rows WHERE position <= ?", upto)
        elif upto == end:
            # Whoever reads it for long is not waited for.
            if session.idle("rows"):  # a partition is dropped with a lock on all
                session.run(f"DROP TABLE IF EXISTS rows_{part}")
            else:
                session.run("DELETE FROM rows WHERE position <= ?", upto)

    def close(self) -> None:
        """Nothing to let go."""


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        what = "a store in PostgreSQL"
        raise missing_package(what=what, package="psycopg", extra="serve") from error
    return psycopg


@contextmanager
def _told() -> Iterator[None]:
    """Say what is wrong with the server, without its address."""
    driver = _driver()
    try:
        yield
    except (driver.OperationalError, driver.InterfaceError) as error:
        first = str(error).splitlines()[0]
        # Whatever a driver says, a password in an address is not repeated.
        said = re.sub(r"postgres(ql)?://\S+", "postgresql://...", first)
        message = f"cannot use the store in PostgreSQL: {said}."
        raise UnavailableError(message) from error
