"""Which rows and batches were counted, so that each counts once."""

import sqlite3
from collections.abc import Iterable, Iterator

from trustdoctor.errors import FileError

OPEN, DRAWN, DONE, PASSED, GONE = range(5)
"""Of a row: counted, and its label may come; drawn for review, and its label is waited
for; settled; not drawn for review, so that its label does not count; given up, because
its label did not come in time."""


class Ledger:
    """What became of each row and batch, in memory."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self.known = known or {}

    def find(self, keys: Iterable[str]) -> list[int | None]:
        """Return what became of each; None of those that never came."""
        return [self.known.get(key) for key in keys]

    def note(self, keys: Iterable[str], status: int) -> None:
        """Say what became of rows."""
        self.known.update(dict.fromkeys(keys, status))

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all that is known."""
        yield from self.known.items()


class StoredLedger(Ledger):
    """The same, in a database: of an id that comes again it asks there.

    What is new is written with the transaction that the database is in.
    """

    def __init__(self, store: sqlite3.Connection) -> None:
        super().__init__()
        self.store = store

    def find(self, keys: Iterable[str]) -> list[int | None]:
        """Return what became of each; None of those that never came."""
        ask = "SELECT status FROM ids WHERE id = ?"
        found = [self.store.execute(ask, (key,)).fetchone() for key in keys]
        return [None if row is None else _status(row[0]) for row in found]

    def note(self, keys: Iterable[str], status: int) -> None:
        """Say what became of rows."""
        self.store.executemany(
            "INSERT INTO ids VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET status = ?",
            ((key, status, status) for key in keys),
        )

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all that is known."""
        yield from self.store.execute("SELECT id, status FROM ids").fetchall()


def _status(value: object) -> int:
    if type(value) is int and OPEN <= value <= GONE:
        return value
    message = f"the state was changed or damaged: it says {value!r} of a row."
    raise FileError(message)
