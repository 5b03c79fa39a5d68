"""Mutations of databases of SQLite: the documents in them, their rows and tables."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fuzz import mutate_bytes, mutate_json

VALUES: tuple[Any, ...] = (
    None, 0, 1, -1, 7, 0.5, 2**62, "", "x", "r:1", "b:x", b"", b"\xff\x00", "\0", "{}",
    "[]", "1e999", "NaN", "😀",
)  # fmt: skip
PLACES = (
    *(("state", "name"), ("state", "value"), ("history", "number")),
    *(("history", "entry"), ("ids", "id"), ("ids", "status")),
)


def _changed(data: bytes, change: Callable[[sqlite3.Connection], None]) -> bytes:
    """Return a database after a change, or unchanged if the change fails."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        path.write_bytes(data)
        try:
            with closing(sqlite3.connect(path)) as store, store:
                change(store)
        except sqlite3.Error:
            return data
        return path.read_bytes()


def document(rng: Random, data: bytes) -> bytes:
    """Mutate the state, or an update of the history."""
    table, column = rng.choice((("state", "value"), ("history", "entry")))
    mutate = rng.choice(mutate_json.DOCUMENT)

    def change(store: sqlite3.Connection) -> None:
        ask = f"SELECT rowid, {column} FROM {table} ORDER BY rowid"
        rows = store.execute(ask).fetchall()
        row, text = rng.choice(rows) if rows else (0, "{}")
        new = mutate(rng, str(text).encode()).decode("utf-8", "replace")
        set_to = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
        store.execute(set_to, (new, row))

    return _changed(data, change)


def value(rng: Random, data: bytes) -> bytes:
    """Set a value of one row, or of all, to another."""
    table, column = rng.choice(PLACES)
    only_first = rng.random() < 0.8
    new = rng.choice(VALUES)

    def change(store: sqlite3.Connection) -> None:
        first = f" WHERE {column} = (SELECT min({column}) FROM {table})"
        every = f"UPDATE OR REPLACE {table} SET {column} = ?"
        store.execute(every + (first if only_first else ""), (new,))

    return _changed(data, change)


def table(rng: Random, data: bytes) -> bytes:
    """Drop, empty or add a table."""
    name = rng.choice(("state", "history", "ids"))
    line = rng.choice(
        (
            f"DROP TABLE {name}",
            f"DELETE FROM {name}",
            "CREATE TABLE more (x)",
            f"ALTER TABLE {name} ADD COLUMN more",
            f"ALTER TABLE {name} RENAME TO other",
        )
    )
    return _changed(data, lambda store: store.execute(line) and None)


def foreign(rng: Random, data: bytes) -> bytes:
    """Add foreign objects, which could change what is written or read."""
    table = rng.choice(("state", "history", "ids"))
    line = rng.choice(
        (
            f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
            f"CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN DELETE FROM ids; END",
            f"CREATE VIEW v AS SELECT * FROM {table}",
            "CREATE TABLE other (x)",
            "CREATE TABLE sequence (x INTEGER PRIMARY KEY AUTOINCREMENT)",
            "CREATE INDEX i ON ids (status)",
            "ANALYZE",
        )
    )
    return _changed(data, lambda store: store.execute(line) and None)


def objects(data: bytes) -> set[str]:
    """Return the objects of a database beside the tables of a watch."""
    out: set[str] = set()

    def look(store: sqlite3.Connection) -> None:
        for kind, name in store.execute("SELECT type, name FROM sqlite_master"):
            if (kind, name) not in OWN and not name.startswith("sqlite_autoindex_"):
                out.add(f"{kind} {name}")

    _changed(data, look)
    return out


OWN = {("table", name) for name in ("state", "history", "ids")}

STORE: tuple[mutate_bytes.Mutator, ...] = (document, document, value, table, foreign)
