"""Two stores, one dialect; and the schema that both have."""

import threading
import time

import pytest

from trustdoctor.errors import InputError
from trustdoctor.service.store import (
    UnavailableError,
    attempt,
    open_database,
    schema,
    transaction,
)
from trustdoctor.service.store.schema import MIGRATIONS, TABLES, migrate


@pytest.fixture
def database(place):
    opened = open_database(place)
    yield opened
    opened.close()


@pytest.fixture
def session(database):
    opened = database.open()
    opened.run("CREATE TABLE things (number BIGINT, name TEXT, value DOUBLE PRECISION)")
    yield opened
    opened.close()


VALUES = [
    (-(1 << 63), "é", float("-inf")),
    ((1 << 63) - 1, "", float("inf")),
    (0, "a'b\"c\\?%s", 1e-308),
    (1, None, None),
    (2, "日本\t", 0.1 + 0.2),
]


def test_values_come_back(session):
    session.insert("things", ("number", "name", "value"), VALUES)
    key = repr
    assert sorted(session.rows("SELECT * FROM things"), key=key) == sorted(
        VALUES, key=key
    )
    for number, name, value in VALUES:
        rows = session.rows("SELECT name, value FROM things WHERE number = ?", number)
        assert rows == [(name, value)]


def test_many_rows_and_shared_values(session):
    rows = [(at, f"n{at}") for at in range(1000)]
    session.insert("things", ("number", "name"), rows, {"value": 0.5})
    assert session.rows("SELECT count(*), sum(value) FROM things") == [(1000, 500.0)]
    session.run_many(
        "UPDATE things SET name = ? WHERE number = ?", [("x", 1), ("y", 2)]
    )
    names = session.rows(
        "SELECT name FROM things WHERE number IN (1, 2) ORDER BY number"
    )
    assert names == [("x",), ("y",)]
    assert session.run("DELETE FROM things WHERE number < ?", 10) == 10


def test_lists(session):
    session.insert("things", ("number", "name"), [(at, f"n{at}") for at in range(9)])
    among, value = session.in_list(["n1", "n7", "nobody", "a'b"])
    matches = session.rows(f"SELECT number FROM things WHERE name IN {among}", value)
    assert sorted(matches) == [(1,), (7,)]
    among, value = session.in_list([3, 8, 99])
    matches = session.rows(f"SELECT name FROM things WHERE number IN {among}", value)
    assert sorted(matches) == [("n3",), ("n8",)]


def put(session, number, *, fail=False):
    session.run("INSERT INTO things (number) VALUES (?)", number)
    if fail:
        raise ZeroDivisionError


def numbers(session):
    return [n for (n,) in session.rows("SELECT number FROM things ORDER BY number")]


def test_whole_or_not_at_all(session):
    def spoil():
        with transaction(session):
            put(session, 1)
            put(session, 2, fail=True)

    with pytest.raises(ZeroDivisionError):
        spoil()
    assert numbers(session) == []
    with transaction(session):
        put(session, 1)
        with pytest.raises(ZeroDivisionError):
            attempt(session, lambda inner: put(inner, 2, fail=True))
        attempt(session, lambda inner: put(inner, 3))
    assert numbers(session) == [1, 3]


def test_the_clock(session):
    assert abs(session.now() - time.time()) < 60
    first = session.now()
    time.sleep(0.02)
    assert session.now() > first


def test_writers_wait_for_each_other(database):
    first, second = database.open(), database.open()
    migrate(first, database)
    order = []
    first.begin()
    first.lock()

    def wait():
        with transaction(second):
            second.lock()
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    order.append("first")
    first.commit()
    thread.join()
    assert order == ["first", "second"]
    first.close()
    second.close()


def test_a_migration_makes_all_tables_once(database):
    session = database.open()
    migrate(session, database)
    (secret,) = session.rows("SELECT value FROM meta WHERE name = 'cookie secret'")[0]
    assert len(secret) == 64
    for line in TABLES.split("CREATE TABLE ")[1:]:
        session.rows(f"SELECT count(*) FROM {line.split()[0]}")
    migrate(session, database)
    assert session.rows("SELECT value FROM meta WHERE name = 'cookie secret'") == [
        (secret,)
    ]
    assert session.rows("SELECT version FROM schema_version") == [(len(MIGRATIONS),)]
    session.close()


def test_a_later_migration(database, monkeypatch):
    session = database.open()
    migrate(session, database)

    def fail(session, _database):
        session.run("ALTER TABLE gates ADD COLUMN colour TEXT")
        message = "no."
        raise ZeroDivisionError(message)

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", [*MIGRATIONS, fail])
        with pytest.raises(ZeroDivisionError):
            migrate(session, database)
    assert session.rows("SELECT version FROM schema_version") == [(len(MIGRATIONS),)]

    def add(session, _database):
        session.run("ALTER TABLE gates ADD COLUMN colour TEXT")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", [*MIGRATIONS, add])
        migrate(session, database)
        migrate(session, database)
    assert session.rows("SELECT colour FROM gates") == []
    with pytest.raises(InputError, match="a later version of trustdoctor wrote it"):
        migrate(session, database)
    session.close()


def test_a_store_of_version_02_is_refused(database):
    session = database.open()
    session.run("CREATE TABLE schema (version BIGINT NOT NULL)")
    session.run("INSERT INTO schema VALUES (1)")
    with pytest.raises(InputError, match=r"got one of 0\.2: export its rows"):
        migrate(session, database)
    assert session.rows("SELECT version FROM schema") == [(1,)]
    assert not session.has_table("rows")
    session.close()


def test_two_replicas_start_at_once(place, gate, loop):
    from service.house import Served

    if not place.startswith("postgresql"):
        pytest.skip("a file of SQLite has one process")
    started, errors = [], []

    def start():
        try:
            started.append(Served(gate, place, loop))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert started[0].read("SELECT count(*) FROM gates") == [(1,)]
    assert started[0].read("SELECT count(*) FROM review_rates") == [(1,)]
    for served in started:
        served.close()


def test_one_process_serves_a_file(tmp_path):
    path = str(tmp_path / "rows.db")
    first = open_database(path)
    with pytest.raises(InputError, match="is served by another process"):
        open_database(path)
    first.close()
    open_database(path).close()


@pytest.mark.parametrize("fast", [False, True], ids=["durable", "fast"])
def test_durability_is_as_requested(tmp_path, fast):
    database = open_database(str(tmp_path / "rows.db"), fast=fast)
    session = database.open()
    assert session.rows("PRAGMA journal_mode") == [("wal",)]
    assert session.rows("PRAGMA synchronous") == [(1 if fast else 2,)]
    session.close()
    database.close()


@pytest.mark.parametrize("fast", [False, True], ids=["durable", "fast"])
def test_durability_of_postgresql(postgres, fast):
    session = open_database(postgres, fast=fast).open()
    setting = session.rows("SHOW synchronous_commit")
    assert setting == [("off" if fast else "on",)]
    session.close()


def test_tables_of_others_do_not_matter(postgres, gate, loop):
    import psycopg
    from service.house import Served

    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("CREATE TABLE IF NOT EXISTS public.schema (x int)")
        other.execute("CREATE TABLE IF NOT EXISTS public.labels (x int)")
        other.execute("DROP SCHEMA IF EXISTS trustdoctor CASCADE")
    served = Served(gate, postgres, loop)
    assert served.decide({"logits": [1.0, 0, 0, 0]})["version"] == 1
    served.close()


def test_a_server_that_goes_away(postgres, place):
    import psycopg

    if not place.startswith("postgresql"):
        pytest.skip("a file does not go away")
    session = open_database(place).open()
    (number,) = session.rows("SELECT pg_backend_pid()")[0]
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [number])
    with pytest.raises(UnavailableError, match="cannot use the store in PostgreSQL"):
        _ask_for_long(session)
    session.close()


def _ask_for_long(session):
    for _ in range(50):
        session.rows("SELECT 1")
        time.sleep(0.02)
