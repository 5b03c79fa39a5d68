"""States of watches: files of JSON and databases of SQLite say the same."""

import json
import math
import os
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import tampered_documents
from watch.streams import ALL, busy, calibrated, decided, snapshot

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError, OutputError, TrustDoctorError
from trustdoctor.watch import require_state, state_file

GATE = calibrated()
SUFFIXES = [".json", ".db"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_state_comes_back_as_it_was(suffix, tmp_path):
    path = tmp_path / f"state{suffix}"
    for watch in (
        GATE.watch(),
        busy(GATE),
        busy(GATE, deadline=None, level=0.01, window=7),
    ):
        watch.save(path)
        loaded = td.Watch.load(path, GATE)
        assert snapshot(loaded) == snapshot(watch)
        assert [entry.time for entry in loaded.records()] == [
            entry.time for entry in watch.records()
        ]
        assert repr(loaded) == repr(watch)
        assert loaded.to_dict() == watch.to_dict()


def test_an_alarm_comes_back_with_its_words(tmp_path):
    watch = GATE.watch().update(decided([False] * 60), [False] * 60, at=12345.678)
    assert watch.alarm
    for suffix in SUFFIXES:
        watch.save(tmp_path / f"state{suffix}")
        loaded = td.Watch.load(tmp_path / f"state{suffix}", GATE)
        assert loaded.tests["frr"].alarm == watch.tests["frr"].alarm
        assert loaded.to_dict() == watch.to_dict()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_state_is_opened_changed_and_saved(suffix, tmp_path):
    path = tmp_path / f"state{suffix}"
    for n in (2, 4):
        with td.Watch.open(path, GATE, level=0.2) as watch:
            watch.update([0.1, 5.0])
            assert len(watch.history) == n / 2
        assert td.Watch.load(path, GATE).tests["accepted"].n == n
        assert len(watch.history) == n / 2
    with pytest.raises(InputError), td.Watch.open(path, GATE) as watch:
        watch.update([0.1]).update([np.nan])
    assert td.Watch.load(path, GATE).tests["accepted"].n == 4
    options = {"review": ALL, "deadline": 5}
    with pytest.raises(InputError), td.Watch.open(path, GATE, **options) as watch:
        watch.update([0.1], ids=["a"]).update([np.nan])
    stored = td.Watch.load(path, GATE)
    assert stored.tests["accepted"].n == 4
    assert stored.review is None
    assert dict(stored.ledger.items()) == {}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_options_of_an_existing_state(suffix, tmp_path):
    path = tmp_path / f"state{suffix}"

    def go_on(**options):
        with td.Watch.open(path, GATE, **options) as watch:
            return watch

    assert go_on(level=0.2, window=50).deadline == 30 * 86400
    for options, match in (
        ({"level": 0.1}, r"started with level 0\.2"),
        ({"window": 60}, "started with window 50"),
        ({"level": "0.2"}, "expected level"),
        ({"level": math.nan}, "expected level"),
        ({"deadline": -1}, "expected a deadline"),
        ({"review": 3}, "review rates"),
    ):
        with pytest.raises(InputError, match=match):
            go_on(**options)
        with pytest.raises(InputError, match=match):
            require_state(path, GATE, **options)
    with pytest.raises(TypeError):
        go_on(reviews=ALL)
    assert go_on(review=ALL, deadline=None).deadline is None
    assert go_on().review == td.Watch.load(path, GATE).review is not None
    assert go_on(deadline=60).deadline == 60
    assert go_on(level=0.2, window=50).level == 0.2


def test_a_watch_may_be_started_without_a_deadline(tmp_path):
    with td.Watch.open(tmp_path / "new.json", GATE, deadline=None) as watch:
        assert watch.deadline is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_closed_watch_can_still_be_read(suffix, tmp_path):
    with td.Watch.open(tmp_path / f"a{suffix}", GATE) as watch:
        watch.update([0.1], ids=["a"])
    assert watch.totals.rows == 1
    assert len(watch.history) == 1
    for other in SUFFIXES:
        watch.save(tmp_path / f"copy{other}")
        copy = td.Watch.load(tmp_path / f"copy{other}", GATE)
        assert snapshot(copy) == snapshot(watch)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_invalid_states_are_refused(suffix, tmp_path):
    path = tmp_path / f"state{suffix}"
    for text in (
        "",
        "{}",
        "[]",
        "SQLite format 3\0",
        "SQLite format 3\0" + "x" * 5000,
        json.dumps({"trustdoctor": "gate", "schema": 1}),
        json.dumps({"trustdoctor": "watch", "schema": 9}),
        json.dumps({"trustdoctor": "watch", "schema": 4, "tests": {}}),
        json.dumps({"trustdoctor": "watch", "schema": 3, "tests": {}}),
        json.dumps({"trustdoctor": "watch", "schema": 2, "bets": []}),
    ):
        path.write_text(text)
        for read in (
            lambda: td.Watch.load(path, GATE),
            lambda: td.Watch.open(path, GATE).__enter__(),
            lambda: require_state(path, GATE),
        ):
            if not text and suffix == ".db" and "load" not in read.__code__.co_names:
                continue  # a database without anything is begun
            with pytest.raises(FileError) as refused:
                read()
            assert "\n" not in str(refused.value)
        assert path.read_text() == text
    for odd in ("absent", "no/folder", "zero\0"):
        with pytest.raises(FileError, match="cannot"):
            td.Watch.load(tmp_path / f"{odd}{suffix}", GATE)
    with pytest.raises(FileError):
        td.Watch.load(tmp_path, GATE)


@pytest.mark.parametrize("schema", [1, 2])
def test_a_state_of_an_earlier_version_is_refused_with_a_remedy(schema, tmp_path):
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"trustdoctor": "watch", "schema": schema}))
    match = "Start a new watch, from a gate that was calibrated again"
    for read in (td.Watch.load, require_state):
        with pytest.raises(FileError, match=match):
            read(path, GATE)


def test_a_refusal_names_the_path_of_the_mistake(tmp_path):
    path = tmp_path / "state.json"
    busy(GATE).save(path)
    content = json.loads(path.read_text())
    settled = content["tests"]["frr"]["settled"][0]
    for change, match in (
        ({"n": -1}, r"tests.*settled\[0\]\.n: expected int >= 0"),
        ({"more": 1}, r"tests.*settled\[0\].*unknown field more"),
        ({"log_sums": []}, r"tests\.frr\.settled\[0\]\.log_sums: expected 1 lists"),
    ):
        content["tests"]["frr"]["settled"] = [settled | change]
        path.write_text(json.dumps(content))
        with pytest.raises(FileError, match=match):
            td.Watch.load(path, GATE)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pipe_is_not_waited_for(suffix, tmp_path):
    path = tmp_path / f"pipe{suffix}"
    os.mkfifo(path)
    for read in (
        lambda: td.Watch.load(path, GATE),
        lambda: td.Watch.open(path, GATE).__enter__(),
        lambda: require_state(path, GATE),
        lambda: GATE.watch().save(path),
    ):
        with pytest.raises(TrustDoctorError):
            read()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_state_belongs_to_one_gate(suffix, tmp_path):
    path = tmp_path / f"state{suffix}"
    GATE.watch().save(path)
    for other in (calibrated(trr=0.8), calibrated(n=2000), td.Gate(0.5)):
        for read in (td.Watch.load, require_state):
            with pytest.raises(TrustDoctorError, match=r"another gate|no certificate"):
                read(path, other)
        with pytest.raises(TrustDoctorError, match=r"another gate|no certificate"):
            td.Watch.open(path, other).__enter__()


def test_the_identity_is_in_the_same_types(tmp_path):
    path = tmp_path / "state.json"
    GATE.watch().save(path)
    text = path.read_text()
    assert '"temperature": 1.0' in text
    path.write_text(text.replace('"temperature": 1.0', '"temperature": true'))
    with pytest.raises(FileError, match="another gate"):
        td.Watch.load(path, GATE)


def test_the_suffix_does_not_matter_once_a_state_is_there(tmp_path):
    for path, other in (("state.json", "copy.db"), ("state.db", "copy.json")):
        busy(GATE).save(tmp_path / path)
        (tmp_path / path).rename(tmp_path / other)
        with td.Watch.open(tmp_path / other, GATE) as watch:
            watch.update([0.1])
        assert td.Watch.load(tmp_path / other, GATE).totals.rows == 61
        (tmp_path / other).unlink()


def test_a_state_of_json_may_become_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "LIMIT", 8000)
    path = tmp_path / "state.json"
    with td.Watch.open(path, GATE) as watch:
        watch.update([0.1])
    before = path.read_text()
    with (
        pytest.raises(OutputError, match=r"Keep it in a database: .* \.db"),
        td.Watch.open(path, GATE) as watch,
    ):
        watch.update(np.zeros(2000), ids=range(2000))
    assert path.read_text() == before


# --- tampering ---------------------------------------------------------------------


def refused_or_exact(load, text, change, tmp_path):
    """Return whether a changed state loads; then it is what its file says."""
    try:
        watch = load()
    except FileError as error:
        assert "\n" not in str(error), change  # noqa: PT017
        assert len(str(error)) < 600, change  # noqa: PT017
        return False
    assert change[-1] != "twice", change
    watch.save(tmp_path / "new.json")
    repeated = json.loads((tmp_path / "new.json").read_text())
    document = json.loads(text)
    if "history" not in document:  # of a database
        repeated = {name: repeated[name] for name in document}
    assert tampered_documents.same(repeated, document), change
    repr(watch), watch.to_dict(), watch.history
    watch.update([0.3], [True], at=5000)
    ledger_keys = [key[2:] for key, _ in watch.ledger.items() if key.startswith("r:")]
    names = [*ledger_keys, "new"]
    watch.update([0.3] * len(names), [True] * len(names), ids=names, at=10**9)
    assert all(math.isfinite(test.peak) for test in watch.tests.values()), change
    return True


@pytest.mark.parametrize(
    "remainder",
    [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 31))],
)
def test_a_tampered_state_is_refused_or_whole(remainder, tmp_path, monkeypatch):
    """Every 31st change here, all of them in the soak."""
    busy(GATE).save(tmp_path / "state.json")
    content = json.loads((tmp_path / "state.json").read_text())
    n_loaded = 0
    for number, (change, text) in enumerate(tampered_documents.mutants(content)):
        if number % 31 != remainder:
            continue
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=text: text)
        n_loaded += refused_or_exact(
            lambda: td.Watch.load("state.json", GATE), text, change, tmp_path
        )
    assert n_loaded


def test_a_tampered_database_is_refused_or_whole(tmp_path):
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    with closing(sqlite3.connect(path)) as store:
        (text,) = store.execute("SELECT value FROM state").fetchone()
    for number, (change, other) in enumerate(
        tampered_documents.mutants(json.loads(text))
    ):
        if number % 150:
            continue
        with closing(sqlite3.connect(path)) as store, store:
            store.execute("UPDATE state SET value = ?", (other,))
        refused_or_exact(lambda: td.Watch.load(path, GATE), other, change, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE state",
        "DROP TABLE history",
        "DROP TABLE ids",
        "DELETE FROM state",
        "UPDATE state SET value = NULL",
        "UPDATE state SET value = x'ff00'",
        "UPDATE state SET name = 'other'",
        "UPDATE history SET entry = '{}'",
        "UPDATE history SET entry = x'ff'",
        "UPDATE history SET entry = 'NaN'",
        "UPDATE ids SET status = 'x'",
        "UPDATE ids SET status = 99",
        "UPDATE ids SET status = 1.5",
        "UPDATE ids SET id = 'odd' WHERE id = 'r:1'",
        "UPDATE ids SET id = x'ff' WHERE id = 'r:1'",
        "CREATE TABLE more (x)",
    ],
)
def test_a_changed_database_is_refused_or_continues(change, tmp_path):
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    try:
        with closing(sqlite3.connect(path)) as store, store:
            store.execute(change)
    except sqlite3.IntegrityError:
        return
    for use in (
        lambda: td.Watch.load(path, GATE).save(tmp_path / "new.json"),
        lambda: td.Watch.load(path, GATE).update([0.1] * 60, ids=range(60)),
        lambda: reopened(path),
        lambda: require_state(path, GATE),
    ):
        try:
            use()
        except TrustDoctorError as error:
            assert "\n" not in str(error)  # noqa: PT017


def reopened(path):
    with td.Watch.open(path, GATE) as watch:
        watch.update([0.1] * 60, ids=range(60))
        repr(watch), watch.history, watch.to_dict()


@pytest.mark.parametrize("cut", [16, 100, 4096, 5000])
def test_a_cut_database_is_refused(cut, tmp_path):
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    path.write_bytes(path.read_bytes()[:cut])
    for use in (lambda: td.Watch.load(path, GATE), lambda: reopened(path)):
        with pytest.raises(FileError):
            use()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE history SET entry = '{}'",
        "UPDATE ids SET status = 99",
        "DELETE FROM state",
    ],
)
def test_a_refusal_that_is_kept_locks_nothing(change, tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "PATIENCE", 0.5)
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(change)
    with pytest.raises(FileError) as refusal:
        td.Watch.load(path, GATE)
    with closing(sqlite3.connect(path, timeout=0.5)) as store, store:
        store.execute("DROP TABLE state")
    assert refusal.value.__traceback__


def test_the_history_can_be_read_within_a_large_update(tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "PATIENCE", 1.0)
    with td.Watch.open(tmp_path / "state.db", GATE) as watch:
        watch.update([0.1])
    with td.Watch.open(tmp_path / "state.db", GATE) as watch:
        watch.update(np.zeros(60_000), ids=[f"{i:040}" for i in range(60_000)])
        assert len(watch.history) == 2
        watch.save(tmp_path / "copy.json")
    assert td.Watch.load(tmp_path / "copy.json", GATE).totals.rows == 60_001


FOREIGN = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON ids BEGIN DELETE FROM ids; END",
    "view": "CREATE VIEW v AS SELECT * FROM ids",
    "table": "CREATE TABLE other (x)",
    "index": "CREATE INDEX i ON ids (status)",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_databases_with_objects_of_others_are_refused(kind, tmp_path):
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(FOREIGN[kind])
    before = path.read_bytes()
    for work in (
        lambda: td.Watch.load(path, GATE),
        lambda: require_state(path, GATE),
        lambda: td.Watch.open(path, GATE).__enter__(),
    ):
        with pytest.raises(FileError, match=f"got the {kind} "):
            work()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "CREATE TABLE ids (id TEXT, status INTEGER DEFAULT 2)",
        "CREATE TABLE ids (id TEXT PRIMARY KEY, status INTEGER AS (2)) WITHOUT ROWID",
        "CREATE VIEW ids AS SELECT 'r:a' AS id, 2 AS status",
    ],
)
def test_tables_of_another_make_are_refused(line, tmp_path):
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("DROP TABLE ids")
        store.execute(line)
    with pytest.raises(FileError, match="state of a watch alone"):
        td.Watch.load(path, GATE)


def test_a_full_disk_is_reported_for_a_new_state(tmp_path, monkeypatch):
    """The first page of a new database does not fit."""
    path = tmp_path / "state.db"
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    def no_room(_):
        raise full

    monkeypatch.setattr(state_file, "_is_empty", no_room)
    with (
        pytest.raises(OutputError, match=r"cannot write the state .* disk is full"),
        td.Watch.open(path, GATE),
    ):
        pass


def test_a_text_that_is_not_utf_8_is_reported(tmp_path):
    """The error is that of Python's module, and has no code of SQLite."""
    path = tmp_path / "state.db"
    busy(GATE).save(path)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("UPDATE state SET value = CAST(x'ff00ff' AS TEXT)")
    with pytest.raises(FileError, match="cannot read the state"):
        td.Watch.load(path, GATE)
