"""States of watches in files: one of JSON, or one database of SQLite."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

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
from trustdoctor.watch import coding
from trustdoctor.watch.ledger import Ledger, StoredLedger
from trustdoctor.watch.promised import identify
from trustdoctor.watch.records import Entry
from trustdoctor.watch.watching import Watch

SCHEMA = 4
"""Schema 4 has `label_noise` and comparisons of doubts; earlier ones are refused."""

DATABASES = (".db", ".sqlite", ".sqlite3")
"""Suffixes of states that are databases."""

LIMIT = 256_000_000
"""Bytes of a state of JSON at most."""

PATIENCE = 600.0
"""Seconds that a process waits for others at a database."""

_TEXT = "the text given"
_HEAD = b"SQLite format 3\0"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_TABLES = (
    "CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE history (number INTEGER PRIMARY KEY, entry TEXT NOT NULL)",
    "CREATE TABLE ids (id TEXT PRIMARY KEY, status INTEGER NOT NULL) WITHOUT ROWID",
)


def is_database(path: str | Path) -> bool:
    """Tell whether a state is a database: by its name, unless it is JSON."""
    named = Path(path).suffix.lower() in DATABASES
    if not Path(path).is_file():  # a pipe would be waited for
        return named
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(64)
        # One that was killed in its first update has no head yet.
        return head.startswith(_HEAD) or (named and head.lstrip(_BLANK)[:1] != b"{")
    return named


class _FiledLedger(Ledger):
    """Of a watch that was closed: what its database has."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = path

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all that is known."""
        with _connected(self.path, write=False) as store, _reading(self.path):
            yield from list(StoredLedger(store).items())


def save(watch: Watch, path: str | Path) -> None:
    """Write a state, whole or not at all."""
    if not is_database(path):
        write_text(path, _as_json(watch))
        return
    with replacing(path) as temporary:
        temporary.unlink()
        try:
            with closing(sqlite3.connect(temporary)) as store:
                _make_tables(store)
                _store(store, watch, watch.records(), 0)
                store.executemany("INSERT INTO ids VALUES (?, ?)", watch.ledger.items())
                store.commit()
        except sqlite3.Error as error:
            raise OutputError(_trouble("write", path, error)) from error


def load(path: str | Path, gate: Gate) -> Watch:
    """Read a state with its history, refusing one that belongs to another gate."""
    if not is_database(path):
        return _from_json(path, gate)
    with _connected(path, write=False) as store, _reading(path):
        watch = _from_store(store, path, gate)
        try:
            watch.entries = _entries(store)
            watch.ledger = Ledger(_checked(StoredLedger(store).items()))
        except FileError as error:
            raise FileError(_damaged(path, error)) from error
        return watch


@contextmanager
def opened(
    path: str | Path, gate: Gate, *, level: float | None = None, **options: Any
) -> Iterator[Watch]:
    """Go on with a state, or begin one; nobody else changes it meanwhile."""
    require_no_link(path, "the state")
    asked = options if level is None else {"level": level, **options}
    kept = _in_database if is_database(path) else _in_json
    with kept(path, gate, asked) as watch:
        try:
            yield watch
        finally:
            watch.closed = True


@contextmanager
def _in_json(path: str | Path, gate: Gate, options: dict[str, Any]) -> Iterator[Watch]:
    with locked(path) as place:
        watch = _from_json(path, gate) if place.exists() else None
        watch = _going_on(watch, gate, options)
        yield watch
        write_text(place, _as_json(watch))


@contextmanager
def _in_database(
    path: str | Path, gate: Gate, options: dict[str, Any]
) -> Iterator[Watch]:
    require_writable(path)
    with _connected(path) as store:
        with _reading(path):
            store.execute("BEGIN IMMEDIATE")
            empty = _is_empty(store)
            watch = None if empty else _from_store(store, path, gate)
        watch = _going_on(watch, gate, options)
        try:
            if empty:
                _make_tables(store)
            (number,) = store.execute("SELECT count(*) FROM history").fetchone()
            watch.ledger = StoredLedger(store)
            watch.earlier = lambda: _entries(store, number)
            yield watch
            _store(store, watch, watch.entries, number)
            store.execute("COMMIT")
        except sqlite3.Error as error:
            raise OutputError(_trouble("write", path, error)) from error
        finally:
            watch.ledger = _FiledLedger(path)
            watch.earlier = lambda: _earlier(path, number)


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
        return envelope.dump("watch", SCHEMA, _content(watch), indent=None)


def from_state(text: str, gate: Gate) -> Watch:
    """Read what `to_state` wrote, refusing the state of another gate."""
    content = envelope.check(text, _TEXT, "watch", schemas=(SCHEMA,))
    return _read(content, _TEXT, gate)


def require_state(path: str | Path, gate: Gate, **options: Any) -> None:
    """Refuse, before any work, a state that cannot go on as it is asked to."""
    require_no_link(path, "the state")
    watch = None
    if Path(path).exists():
        if is_database(path):
            with _connected(path, write=False) as store, _reading(path):
                watch = None if _is_empty(store) else _from_store(store, path, gate)
        else:
            watch = _from_json(path, gate)
    _going_on(watch, gate, options)


def _going_on(watch: Watch | None, gate: Gate, options: dict[str, Any]) -> Watch:
    """Return a watch that goes on as it is asked to, or begins."""
    if watch is None:
        return Watch.start(gate, **options)
    fixed = ("level", "window", "label_noise")
    asked = Watch.start(
        gate, **{name: getattr(watch, name) for name in fixed} | options
    )
    for name in fixed:
        kept, new = getattr(watch, name), getattr(asked, name)
        if new != kept:
            message = (
                f"the state was begun at {name} {kept:g}, got {new:g}. Leave {name} "
                "out, or begin another state."
            )
            raise InputError(message)
    for name in ("review", "deadline", "reference"):
        if name in options and (name == "deadline" or options[name] is not None):
            setattr(watch, name, getattr(asked, name))
    return watch


@contextmanager
def _connected(path: str | Path, *, write: bool = True) -> Iterator[sqlite3.Connection]:
    """Yield a connection; what was not committed is undone at its end."""
    if not _may_be_one(Path(path)):
        message = (
            f"expected a database of SQLite in {path}, got another file. Name another."
        )
        raise FileError(message)
    try:
        able = write or os.access(path, os.W_OK)  # to undo what a killed process left
        name = Path(path).resolve().as_uri() + ("" if able else "?mode=ro")
        store = sqlite3.connect(
            name,
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
    except (sqlite3.Error, OSError, ValueError) as error:
        raise FileError(_trouble("open", path, error)) from error
    with closing(store):
        yield store


def _may_be_one(path: Path) -> bool:
    """Tell whether a file is a database, or one that was killed as it was made."""
    if not path.is_file():
        return True  # or what opening it will say
    head = b""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(len(_HEAD))
    return head in (b"", _HEAD) or path.with_name(f"{path.name}-journal").exists()


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:  # at its start
            raise OutputError(_trouble("write", path, error)) from error
        raise FileError(_trouble("read", path, error)) from error


def _trouble(what: str, path: str | Path, error: Exception) -> str:
    told = "Name another file, or restore it from a copy."
    if what == "write":
        told = "Nothing was changed; make room, and run again."
    return f"cannot {what} the state {path}: {error}. {told}"


def _is_empty(store: sqlite3.Connection) -> bool:
    return store.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _make_tables(store: sqlite3.Connection) -> None:
    for line in _TABLES:
        store.execute(line)


def _store(
    store: sqlite3.Connection, watch: Watch, entries: list[Entry], number: int
) -> None:
    """Write the state, and updates after so many that are there."""
    store.execute(
        "INSERT OR REPLACE INTO state VALUES ('watch', ?)",
        (envelope.dump("watch", SCHEMA, _content(watch), indent=None),),
    )
    store.executemany(
        "INSERT INTO history VALUES (?, ?)",
        (
            (number + at, json.dumps(coding.write_entry(entry), allow_nan=False))
            for at, entry in enumerate(entries, 1)
        ),
    )


def _require_own_tables(store: sqlite3.Connection, path: str | Path) -> None:
    """Refuse triggers, views and tables of others, which change what is written."""
    found = store.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    own = {line.split()[2]: line for line in _TABLES}
    for kind, name, sql in found:
        index = kind == "index" and str(name).startswith("sqlite_autoindex_")
        if not index and (kind != "table" or own.get(name) != sql):
            message = (
                f"expected the state of a watch alone in {path}, got the {kind} "
                f"{envelope.shown(name)}. Name another file, or restore it from a copy."
            )
            raise FileError(message)


def _from_store(store: sqlite3.Connection, path: str | Path, gate: Gate) -> Watch:
    _require_own_tables(store, path)
    found = store.execute("SELECT value FROM state WHERE name = 'watch'").fetchone()
    text = "" if found is None else str(found[0])
    content = envelope.check(text, path, "watch", schemas=(SCHEMA,))
    return _read(content, path, gate)


def _entries(store: sqlite3.Connection, most: int | None = None) -> list[Entry]:
    ask = "SELECT entry FROM history ORDER BY number LIMIT ?"
    rows = store.execute(ask, (-1 if most is None else most,)).fetchall()
    return [coding.read_entry(_parsed(text)) for (text,) in rows]


def _parsed(text: Any) -> Any:
    try:
        return envelope.parse(str(text))
    except ValueError as error:
        message = f"an update is no JSON: {error}."
        raise FileError(message) from error


def _earlier(path: str | Path, number: int) -> list[Entry]:
    if not number:
        return []
    with _connected(path, write=False) as store, _reading(path):
        return _entries(store, number)


def _content(watch: Watch) -> dict[str, Any]:
    return {"gate": identify(watch.gate), **coding.write_state(watch)}


def _as_json(watch: Watch) -> str:
    ids: dict[str, list[str]] = {name: [] for name in coding.STATUSES}
    names = {status: name for name, status in coding.STATUSES.items()}
    for key, status in watch.ledger.items():
        ids[names[status]].append(key)
    more = {
        "ids": ids,
        "history": [coding.write_entry(entry) for entry in watch.records()],
    }
    text = envelope.dump("watch", SCHEMA, _content(watch) | more, indent=None)
    if len(text) > LIMIT:
        message = (
            f"expected a state of at most {LIMIT:,} bytes, got {len(text):,}. Keep it "
            "in a database: give it the suffix .db."
        )
        raise OutputError(message)
    return text


def _from_json(path: str | Path, gate: Gate) -> Watch:
    content = envelope.load(path, "watch", schemas=(SCHEMA,), limit=LIMIT)
    ids, history = content.pop("ids", None), content.pop("history", None)
    watch = _read(content, path, gate)
    try:
        watch.entries = [coding.read_entry(one) for one in envelope.read_list(history)]
        watch.ledger = Ledger(_read_ids(ids))
    except FileError as error:
        raise FileError(_damaged(path, error)) from error
    return watch


def _read(content: dict[str, Any], path: str | Path, gate: Gate) -> Watch:
    _require_gate(content, path, gate)
    try:
        return coding.read_state(content, gate)
    except FileError as error:
        raise FileError(_damaged(path, error)) from error


def _require_gate(content: dict[str, Any], path: str | Path, gate: Gate) -> None:
    try:
        envelope.check_fields(content, {"schema", *coding.FIELDS})
    except FileError as error:
        message = f"cannot read {path} as the state of a watch: {error}"
        raise FileError(message) from error
    ours, theirs = (
        json.dumps(one, sort_keys=True) for one in (identify(gate), content["gate"])
    )
    if ours != theirs:
        message = f"the state in {path} belongs to another gate. Name another file."
        raise FileError(message)


def _damaged(path: str | Path, error: Exception) -> str:
    return f"the state in {path} was changed or damaged: {error} Start a new one."


def _read_ids(content: Any) -> dict[str, int]:
    envelope.check_fields(content, set(coding.STATUSES))
    return _checked(
        (key, coding.STATUSES[name])
        for name, keys in content.items()
        for key in envelope.read_list(keys)
    )


def _checked(items: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    """Return what became of rows and batches, or refuse what cannot be."""
    known: dict[str, int] = {}
    able = set(coding.STATUSES.values())
    for key, status in items:
        if not isinstance(key, str) or key[:2] not in ("r:", "b:", "l:"):
            message = f"expected ids, got {envelope.shown(key)}."
            raise FileError(message)
        if key in known or type(status) is not int or status not in able:
            message = f"it has an id twice or otherwise, {envelope.shown(key)}."
            raise FileError(message)
        known[key] = status
    return known
