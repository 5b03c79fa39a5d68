"""Where the service keeps its rows: SQLite or PostgreSQL, asked in one dialect.

Statements are written once, with `?` for values. A session belongs to one thread.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from trustdoctor.errors import InputError, TrustDoctorError

Row = tuple[Any, ...]

DELETED = 20_000
"""Rows that one transaction deletes."""


class UnavailableError(TrustDoctorError):
    """The store cannot be asked now, or could not keep what it was given."""


class Session(Protocol):
    """One connection, in or out of a transaction."""

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return what a query finds."""
        ...

    def run(self, statement: str, *values: Any) -> int:
        """Change something; return how many rows."""
        ...

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        same: dict[str, Any] | None = None,
    ) -> None:
        """Add many rows; `same` are columns that have one value in all of them."""
        ...

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Change something for each of many values."""
        ...

    def listed(self, values: Sequence[Any]) -> tuple[str, Any]:
        """Return what stands after IN for values of one type, and its one value."""
        ...

    def has_table(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        ...

    def now(self) -> float:
        """Return the database's clock, in seconds since 1970."""
        ...

    def scrub(self) -> None:
        """Let nothing of what was deleted stay in the files."""
        ...

    def lock(self) -> None:
        """Wait until no other replica changes anything, within a transaction."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def commit(self) -> None:
        """Make it durable."""
        ...

    def rollback(self) -> None:
        """Undo it."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Database(Protocol):
    """A place to keep rows, which sessions open."""

    name: str
    types: dict[str, str]
    """What the dialect calls the types of the schema."""

    def open(self, *, writer: bool = False) -> Session:
        """Connect; one session writes, others read."""
        ...

    def prepare(self, session: Session, first: int, last: int) -> None:
        """Make room for rows of these positions, where that has to be made."""
        ...

    def forget(self) -> None:
        """Trust nothing that was made: the transaction was undone."""
        ...

    def piece(self, first: int, last: int) -> int:
        """Return up to which position rows from `first` on are deleted at once."""
        ...

    def discard(self, session: Session, upto: int, goal: int) -> None:
        """Delete rows up to a position; those up to `goal` will follow."""
        ...

    def close(self) -> None:
        """Let others have it."""
        ...


@contextmanager
def transaction(session: Session) -> Iterator[Session]:
    """Do something whole or not at all."""
    session.begin()
    try:
        yield session
    except BaseException:
        session.rollback()
        raise
    session.commit()


def attempt(session: Session, job: Callable[[Session], Any]) -> Any:
    """Do something within a transaction; what fails is undone, and no more."""
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


def open_database(place: str, *, fast: bool = False) -> Database:
    """Return the database at a place: a file, or postgresql://...

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
    if place.startswith(("postgresql://", "postgres://")):
        from trustdoctor.service.store.postgres import PostgresDatabase

        return PostgresDatabase(place, fast=fast)
    if "://" in place or not place:
        message = (
            f"expected a store as a file or postgresql://..., got "
            f"{json.dumps(place.split('://')[0])}. Name one of these."
        )
        raise InputError(message)
    from trustdoctor.service.store.sqlite import SqliteDatabase

    return SqliteDatabase(place, fast=fast)
