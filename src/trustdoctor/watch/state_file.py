"""States of watches in files: one of JSON, or one database of SQLite."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trustdoctor import envelope
from trustdoctor.atomic import (
    locked,
    replacing,
    require_no_link,
    require_writable,
    write_text,
)
from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.gates import Gate
from trustdoctor.watch.history import (
    COUNTED,
    DRAWN,
    EXPIRED,
    NOT_DRAWN,
    SETTLED,
    HistoryEntry,
    Ledger,
)
from trustdoctor.watch.rate_tests import identify
from trustdoctor.watch.state import (
    LedgerDocument,
    StateDocument,
    WatchDocument,
    read_document,
    read_state,
    write_state,
)
from trustdoctor.watch.watch import Watch

SCHEMA = 3

_StateT = TypeVar("_StateT", bound=StateDocument)

STATUSES = {
    "counted": COUNTED,
    "drawn": DRAWN,
    "settled": SETTLED,
    "not_drawn": NOT_DRAWN,
    "expired": EXPIRED,
}
"""The statuses of a ledger by their names in JSON; a database holds the numbers."""

RENEWAL = "Start a new watch, from a gate that was calibrated again."

DATABASES = (".db", ".sqlite", ".sqlite3")
"""Suffixes of states that are databases."""

LIMIT = 256_000_000
"""The most bytes of a state in JSON."""

PATIENCE = 600.0
"""The seconds that a process waits for others at a database."""

_TEXT_PATH = "the given text"  # in messages, instead of a path
_MAGIC = b"SQLite format 3\0"
_WHITESPACE = b"\xef\xbb\xbf \t\r\n"  # with the byte order mark of UTF-8
_TABLES = (
    "CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE history (number INTEGER PRIMARY KEY, entry TEXT NOT NULL)",
    # WITHOUT ROWID stores an id once, not in the table and in an index.
    "CREATE TABLE ids (id TEXT PRIMARY KEY, status INTEGER NOT NULL) WITHOUT ROWID",
)


def is_database(path: str | Path) -> bool:
    """Return whether a state is a database: by its name, unless it is JSON."""
    has_suffix = Path(path).suffix.lower() in DATABASES
    if not Path(path).is_file():  # opening a pipe would wait
        return has_suffix
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(64)
        # A process that was killed in its first update leaves a file without a header.
        is_json = head.lstrip(_WHITESPACE)[:1] == b"{"
        return head.startswith(_MAGIC) or (has_suffix and not is_json)
    return has_suffix


class StoredLedger(Ledger):
    """A ledger in a database, which looks up each id there.

    Changes are written with the transaction of the connection.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self.connection = connection

    def find(self, keys: Iterable[str]) -> list[int | None]:
        """Return the status of each key; None of those that are new."""
        query = "SELECT status FROM ids WHERE id = ?"
        rows = [self.connection.execute(query, (key,)).fetchone() for key in keys]
        return [None if row is None else _check_status(row[0]) for row in rows]

    def note(self, keys: Iterable[str], status: int) -> None:
        """Set the status of keys."""
        self.connection.executemany(
            "INSERT INTO ids VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET status = ?",
            ((key, status, status) for key in keys),
        )

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all keys with their statuses."""
        query = "SELECT id, status FROM ids"
        yield from self.connection.execute(query).fetchall()


class _ClosedLedger(Ledger):
    """The ledger of a watch that was closed: it reads the database again."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = path

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all keys with their statuses."""
        with (
            _connect(self.path, write=False) as connection,
            _translate_errors(self.path),
        ):
            yield from list(StoredLedger(connection).items())


def _check_status(status: object) -> int:
    if type(status) is int and status in STATUSES.values():
        return status
    message = f"the state was changed or damaged: a row has the status {status!r}."
    raise FileError(message)


def save(watch: Watch, path: str | Path) -> None:
    """Write a state, whole or not at all."""
    if not is_database(path):
        write_text(path, _to_json(watch))
        return
    with replacing(path) as temporary:
        temporary.unlink()
        try:
            with closing(sqlite3.connect(temporary)) as connection:
                _make_tables(connection)
                _write_state(connection, watch, watch.records(), 0)
                connection.executemany(
                    "INSERT INTO ids VALUES (?, ?)", watch.ledger.items()
                )
                connection.commit()
        except sqlite3.Error as error:
            raise OutputError(_sqlite_message("write", path, error)) from error


def load(path: str | Path, gate: Gate) -> Watch:
    """Read a state with its history, or refuse one that belongs to another gate."""
    if not is_database(path):
        return _read_json(path, gate)
    with _connect(path, write=False) as connection, _translate_errors(path):
        watch = _read_database(connection, path, gate)
        with _name_file_in_errors(path):
            watch.entries = _read_history(connection)
            watch.ledger = Ledger(_check_ids(StoredLedger(connection).items()))
        return watch


@contextmanager
def open_state(
    path: str | Path, gate: Gate, *, level: float | None = None, **options: Any
) -> Iterator[Watch]:
    """Continue a state, or start one; other processes wait meanwhile."""
    require_no_link(path, "the state")
    start_options = options if level is None else {"level": level, **options}
    open_stored = _open_database if is_database(path) else _open_json
    with open_stored(path, gate, start_options) as watch:
        try:
            yield watch
        finally:
            watch.closed = True


@contextmanager
def _open_json(
    path: str | Path, gate: Gate, options: dict[str, Any]
) -> Iterator[Watch]:
    with locked(path) as file:
        stored = _read_json(path, gate) if file.exists() else None
        watch = _continue_or_start(stored, gate, options)
        yield watch
        write_text(file, _to_json(watch))


@contextmanager
def _open_database(
    path: str | Path, gate: Gate, options: dict[str, Any]
) -> Iterator[Watch]:
    require_writable(path)
    with _connect(path) as connection:
        with _translate_errors(path):
            # The write lock from the start: two processes that both read first would
            # both wait for the other's lock (sqlite.org/lang_transaction.html).
            connection.execute("BEGIN IMMEDIATE")
            is_new = _is_empty(connection)
            stored = None if is_new else _read_database(connection, path, gate)
        watch = _continue_or_start(stored, gate, options)
        try:
            if is_new:
                _make_tables(connection)
            (n_entries,) = connection.execute("SELECT count(*) FROM history").fetchone()
            watch.ledger = StoredLedger(connection)
            watch.earlier_entries = lambda: _read_history(connection, n_entries)
            yield watch
            _write_state(connection, watch, watch.entries, n_entries)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise OutputError(_sqlite_message("write", path, error)) from error
        finally:
            watch.ledger = _ClosedLedger(path)
            watch.earlier_entries = lambda: _read_earlier(path, n_entries)


def to_state(watch: Watch) -> str:
    """Return a watch as JSON: all but its history and its ids.

    Examples
    --------
    >>> from trustdoctor import calibrate_scores
    >>> gate = calibrate_scores([0.1, 0.2, 0.3, 0.4], coverage=0.5)
    >>> text = to_state(gate.watch().update([0.1, 0.2, 0.3]))
    >>> from_state(text, gate).tests["accepted"].n
    3
    """
    with watch.locked():
        return envelope.dump("watch", SCHEMA, write_state(watch), indent=None)


def from_state(text: str, gate: Gate) -> Watch:
    """Read what `to_state` wrote, or refuse the state of another gate."""
    content = envelope.check(
        text, _TEXT_PATH, "watch", schemas=(SCHEMA,), renewal=RENEWAL
    )
    return _read_content(content, _TEXT_PATH, gate)


def require_state(path: str | Path, gate: Gate, **options: Any) -> None:
    """Refuse, before any work, a state that cannot be continued with these options."""
    require_no_link(path, "the state")
    watch = None
    if Path(path).exists():
        if is_database(path):
            with _connect(path, write=False) as connection, _translate_errors(path):
                if not _is_empty(connection):
                    watch = _read_database(connection, path, gate)
        else:
            watch = _read_json(path, gate)
    _continue_or_start(watch, gate, options)


def _continue_or_start(
    watch: Watch | None, gate: Gate, options: dict[str, Any]
) -> Watch:
    """Return the watch with its new options, or start one."""
    if watch is None:
        return Watch.start(gate, **options)
    fixed = ("level", "window", "label_noise")
    current = {name: getattr(watch, name) for name in fixed}
    requested = Watch.start(gate, **current | options)
    for name in fixed:
        before, after = getattr(watch, name), getattr(requested, name)
        if before != after:
            message = (
                f"the state was started with {name} {before:g}, got {after:g}. Leave "
                f"{name} out, or start another state."
            )
            raise InputError(message)
    for name in ("review", "deadline", "reference"):
        # None is a deadline (any time), but no change of the other two.
        if name in options and (name == "deadline" or options[name] is not None):
            setattr(watch, name, getattr(requested, name))
    return watch


@contextmanager
def _connect(path: str | Path, *, write: bool = True) -> Iterator[sqlite3.Connection]:
    """Yield a connection; what was not committed is rolled back at its end."""
    if not _may_be_database(Path(path)):
        message = (
            f"expected a database of SQLite in {path}, got another file. Name another."
        )
        raise FileError(message)
    try:
        # Even a reader must be able to roll back what a killed process left.
        writable = write or os.access(path, os.W_OK)
        uri = Path(path).resolve().as_uri() + ("" if writable else "?mode=ro")
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,  # Python begins no transactions of its own
            check_same_thread=False,  # the watch has a lock
        )
    except (sqlite3.Error, OSError, ValueError) as error:
        raise FileError(_sqlite_message("open", path, error)) from error
    with closing(connection):
        yield connection


def _may_be_database(path: Path) -> bool:
    """Return whether a file is a database, or was left by a process killed at once."""
    if not path.is_file():
        return True  # opening it will say what it is
    head = b""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(len(_MAGIC))
    return head in (b"", _MAGIC) or path.with_name(f"{path.name}-journal").exists()


@contextmanager
def _translate_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        # Beginning a transaction writes the first page of a new database.
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            raise OutputError(_sqlite_message("write", path, error)) from error
        raise FileError(_sqlite_message("read", path, error)) from error


def _sqlite_message(verb: str, path: str | Path, error: Exception) -> str:
    advice = "Name another file, or restore it from a copy."
    if verb == "write":
        advice = "Nothing was changed; make room, and run again."
    return f"cannot {verb} the state {path}: {error}. {advice}"


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _make_tables(connection: sqlite3.Connection) -> None:
    for line in _TABLES:
        connection.execute(line)


def _write_state(
    connection: sqlite3.Connection,
    watch: Watch,
    entries: list[HistoryEntry],
    n_entries: int,
) -> None:
    """Write the state, and new entries after the `n_entries` of the history."""
    connection.execute(
        "INSERT OR REPLACE INTO state VALUES ('watch', ?)",
        (envelope.dump("watch", SCHEMA, write_state(watch), indent=None),),
    )
    connection.executemany(
        "INSERT INTO history VALUES (?, ?)",
        (
            (number, json.dumps(entry.to_dict(), allow_nan=False))
            for number, entry in enumerate(entries, n_entries + 1)
        ),
    )


def _require_own_tables(connection: sqlite3.Connection, path: str | Path) -> None:
    """Refuse foreign triggers, views and tables, which may change what is written."""
    query = "SELECT type, name, sql FROM sqlite_master"
    definitions = {line.split()[2]: line for line in _TABLES}
    for kind, name, sql in connection.execute(query).fetchall():
        is_own_index = kind == "index" and str(name).startswith("sqlite_autoindex_")
        is_own_table = kind == "table" and definitions.get(name) == sql
        if not is_own_index and not is_own_table:
            message = (
                f"expected the state of a watch alone in {path}, got the {kind} "
                f"{envelope.shown(name)}. Name another file, or restore it from a copy."
            )
            raise FileError(message)


def _read_database(
    connection: sqlite3.Connection, path: str | Path, gate: Gate
) -> Watch:
    _require_own_tables(connection, path)
    query = "SELECT value FROM state WHERE name = 'watch'"
    row = connection.execute(query).fetchone()
    text = "" if row is None else str(row[0])
    content = envelope.check(text, path, "watch", schemas=(SCHEMA,), renewal=RENEWAL)
    return _read_content(content, path, gate)


def _read_history(
    connection: sqlite3.Connection, n_entries: int | None = None
) -> list[HistoryEntry]:
    query = "SELECT entry FROM history ORDER BY number LIMIT ?"
    rows = connection.execute(query, (-1 if n_entries is None else n_entries,))
    return [_read_entry(text) for (text,) in rows.fetchall()]


def _read_entry(text: Any) -> HistoryEntry:
    try:
        content = envelope.parse(str(text))
    except ValueError as error:
        message = f"expected an entry of the history as JSON: {error}."
        raise FileError(message) from error
    return read_document(content, HistoryEntry)


def _read_earlier(path: str | Path, n_entries: int) -> list[HistoryEntry]:
    if not n_entries:
        return []
    with _connect(path, write=False) as connection, _translate_errors(path):
        return _read_history(connection, n_entries)


def _to_json(watch: Watch) -> str:
    keys: dict[int, list[str]] = {status: [] for status in STATUSES.values()}
    for key, status in watch.ledger.items():
        keys[status].append(key)
    content = write_state(watch) | {
        "ids": {name: keys[status] for name, status in STATUSES.items()},
        "history": [entry.to_dict() for entry in watch.records()],
    }
    text = envelope.dump("watch", SCHEMA, content, indent=None)
    if len(text) > LIMIT:
        message = (
            f"expected a state of at most {LIMIT:,} bytes, got {len(text):,}. Keep it "
            "in a database: give it the suffix .db."
        )
        raise OutputError(message)
    return text


def _read_json(path: str | Path, gate: Gate) -> Watch:
    content = envelope.load(
        path, "watch", schemas=(SCHEMA,), limit=LIMIT, renewal=RENEWAL
    )
    document = _convert(content, path, gate, WatchDocument)
    with _name_file_in_errors(path):
        watch = read_state(document, gate)
        watch.entries = document.history
        watch.ledger = Ledger(_read_ids(document.ids))
    return watch


def _read_content(content: dict[str, Any], path: str | Path, gate: Gate) -> Watch:
    document = _convert(content, path, gate, StateDocument)
    with _name_file_in_errors(path):
        return read_state(document, gate)


def _convert(
    content: dict[str, Any], path: str | Path, gate: Gate, kind: type[_StateT]
) -> _StateT:
    """Return the document, or refuse one of another gate."""
    identity, stored_identity = (
        json.dumps(gate_identity, sort_keys=True)
        for gate_identity in (identify(gate), content.get("gate"))
    )
    if "gate" in content and identity != stored_identity:
        message = f"the state in {path} belongs to another gate. Name another file."
        raise FileError(message)
    fields = {name: value for name, value in content.items() if name != "schema"}
    with _name_file_in_errors(path):
        return read_document(fields, kind)


@contextmanager
def _name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Say of what cannot be read which file it is in."""
    try:
        yield
    except (InputError, FileError) as error:
        message = (
            f"the state in {path} was changed or damaged: {error} Restore it from a "
            "copy, or start a new one."
        )
        raise FileError(message) from error


def _read_ids(document: LedgerDocument) -> dict[str, int]:
    return _check_ids(
        (key, STATUSES[name])
        for name, keys in msgspec.structs.asdict(document).items()
        for key in keys
    )


def _check_ids(items: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    """Return the statuses of keys, or refuse impossible ones."""
    statuses: dict[str, int] = {}
    for key, status in items:
        if not isinstance(key, str) or key[:2] not in ("r:", "b:", "l:"):
            message = (
                f"ids: expected keys of rows or batches, got {envelope.shown(key)}."
            )
            raise FileError(message)
        if key in statuses:
            message = f"ids: expected each key once, got {envelope.shown(key)} twice."
            raise FileError(message)
        if type(status) is not int or status not in STATUSES.values():
            message = f"ids: expected a status, got {envelope.shown(status)}."
            raise FileError(message)
        statuses[key] = status
    return statuses
