"""What a store of rows does: sessions with transactions, and the databases they open.

Statements are written once, with `?` for values. A session belongs to one thread.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from trustdoctor.errors import InputError, TrustDoctorError

Row = tuple[Any, ...]

DELETED = 20_000
"""Rows that one transaction deletes at most: decisions wait for it."""


class UnavailableError(TrustDoctorError):
    """The store does not answer, or could not keep what it was given."""


class Session(Protocol):
    """One connection, in or out of a transaction."""

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return the rows of a query."""
        ...

    def run(self, statement: str, *values: Any) -> int:
        """Execute a statement; return the number of rows that it changed."""
        ...

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        shared: dict[str, Any] | None = None,
    ) -> None:
        """Add rows; `shared` are columns with one value in all of them."""
        ...

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values."""
        ...

    def in_list(self, values: Sequence[Any]) -> tuple[str, Any]:
        """Return the SQL behind IN for values of one type, and its single parameter."""
        ...

    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        ...

    def now(self) -> float:
        """Return the database's clock, in seconds since 1970."""
        ...

    def scrub(self) -> None:
        """Remove deleted content from the files, too."""
        ...

    def lock(self) -> None:
        """Lock the position counter until the transaction ends."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def commit(self) -> None:
        """Make the transaction durable."""
        ...

    def rollback(self) -> None:
        """Undo the transaction."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Database(Protocol):
    """A file or a server that keeps rows, and opens sessions."""

    name: str
    column_types: dict[str, str]
    """What the dialect calls the types of the schema."""

    def open(self, *, writer: bool = False) -> Session:
        """Connect; one session writes, others read."""
        ...

    def make_partitions(self, session: Session, first: int, last: int) -> None:
        """Create the partitions that rows of these positions need, if any."""
        ...

    def forget_partitions(self) -> None:
        """Look for partitions anew: the transaction that made some was undone."""
        ...

    def deletion_end(self, first: int, last: int) -> int:
        """Return the last position that a deletion from `first` on takes at once."""
        ...

    def delete_rows(self, session: Session, last: int, goal: int) -> None:
        """Delete rows up to a position; those up to `goal` will follow."""
        ...

    def close(self) -> None:
        """Let other processes use it."""
        ...


@contextmanager
def transaction(session: Session) -> Iterator[Session]:
    """Commit what happens inside, or undo all of it."""
    session.begin()
    try:
        yield session
    except BaseException:
        session.rollback()
        raise
    session.commit()


def attempt(session: Session, job: Callable[[Session], Any]) -> Any:
    """Run a job inside a transaction; if it fails, only its own changes are undone."""
    session.run("SAVEPOINT job")
    try:
        result = job(session)
    except UnavailableError:
        raise
    except BaseException:
        session.run("ROLLBACK TO SAVEPOINT job")
        session.run("RELEASE SAVEPOINT job")
        raise
    session.run("RELEASE SAVEPOINT job")
    return result


def open_database(address: str, *, fast: bool = False) -> Database:
    """Return the database at an address: a file, or postgresql://...

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     database = open_database(f"{folder}/rows.db")
    ...     session = database.open()
    ...     print(session.rows("SELECT 1 + ?", 1))
    ...     session.close()
    ...     database.close()
    [(2,)]
    """
    if address.startswith(("postgresql://", "postgres://")):
        from trustdoctor.service.store.postgres import PostgresDatabase

        return PostgresDatabase(address, fast=fast)
    if "://" in address or not address:
        message = (
            f"expected a store as a file or postgresql://..., got "
            f"{json.dumps(address.split('://')[0])}. Name one of these."
        )
        raise InputError(message)
    from trustdoctor.service.store.sqlite import SqliteDatabase

    return SqliteDatabase(address, fast=fast)
