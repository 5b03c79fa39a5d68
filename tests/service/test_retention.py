"""Expired rows are deleted, and the watch does not notice."""

import time

import numpy as np
import psycopg
import pytest
from service.house import draw_rows

from trustdoctor.service import background
from trustdoctor.service.store import base, postgres
from trustdoctor.service.versions import last_position_before

DAY = 86400.0


@pytest.fixture
def aged(serve, gate, monkeypatch):
    """A service that keeps rows for 10 days, deleted in small pieces."""
    monkeypatch.setattr(background, "DELETED", 7)
    monkeypatch.setattr(base, "DELETED", 7)
    monkeypatch.setattr(postgres, "DELETED", 7)
    monkeypatch.setattr(background, "RETENTION_INTERVAL", 0.0)
    monkeypatch.setattr(postgres, "PARTITION", 20)
    served = serve(gate, review=(1.0, 0.5), keep=10 * DAY, deadline=5 * DAY)
    served.background.tick()  # from now on its clock is known
    return served


def decide(served, n, start):
    logits = np.asarray(draw_rows(n, start).logits, float).tolist()
    ids = [f"{start}/{at}" for at in range(n)]
    body = {"ids": ids, "logits": logits, "payloads": [{"text": "a"}] * n}
    return [
        decision["id"] for decision in served.decide(body)["rows"] if decision["review"]
    ]


def age(served, days):
    """Let time pass: make all that is stored `days` days older."""
    for table, column in (
        ("rows", "decided_at"),
        ("labels", "labelled_at"),
        ("review_queue", "decided_at"),
    ):
        served.change(f"UPDATE {table} SET {column} = {column} - ?", days * DAY)


def label(served, ids):
    served.label(*({"id": name, "correct": True} for name in ids))


def tick(served):
    served.background.retention._next = 0.0
    served.background.tick()


def ids(served):
    return [name for (name,) in served.read("SELECT id FROM rows ORDER BY position")]


def check_counts(served):
    """The kept counts are those of the tables."""
    waiting = dict(
        served.read("SELECT accepted, count(*) FROM review_queue GROUP BY accepted")
    )
    review = served.service.read_now(
        lambda s: dict(s.rows("SELECT name, rows FROM review_counts"))
    )
    assert review.get("waiting rejected", 0) == waiting.get(0, 0)
    assert review.get("waiting accepted", 0) == waiting.get(1, 0)
    (n_ids,) = served.read("SELECT count(*) FROM ids")
    (stored,) = served.read("SELECT count(*) FROM rows WHERE id IS NOT NULL")
    assert n_ids == stored
    lost = "SELECT count(*) FROM {} WHERE {} NOT IN (SELECT position FROM rows)"
    for table in (("review_queue", "position"), ("labels", "row_position")):
        assert served.read(lost.format(*table)) == [(0,)]


def test_old_rows_go_and_the_watch_stays(aged):
    open_ = decide(aged, 50, 1)
    label(aged, open_[::2])
    aged.check_watch()
    age(aged, 11)
    decide(aged, 30, 2)
    before = aged.check_watch()
    rows = before.totals.rows
    tick(aged)
    assert {name.split("/")[0] for name in ids(aged)} == {"2"}
    check_counts(aged)
    watch = aged.check_watch()
    assert watch.totals.rows == rows == 80
    decide(aged, 20, 3)
    aged.check_watch()
    traffic = aged.get("/v1/status").json["traffic"]
    assert traffic["rows"] == 100  # counts stay


def test_a_crash_after_deletion(aged, serve):
    label(aged, decide(aged, 40, 1)[::2])
    for _ in range(3):
        aged.background.tick()
        decide(aged, 3, 10 + _)
    age(aged, 11)
    decide(aged, 5, 2)
    tick(aged)
    live = aged.watch(anew=True)
    aged.die()
    restarted = serve(aged.gate).lead()
    assert restarted.watch() == live
    assert restarted.watch(anew=True) == live
    decide(restarted, 5, 3)
    restarted.check_watch()


def test_deleted_ids_may_come_again(aged):
    row = {"id": "x", "logits": [1.0, 0, 0, 0]}
    aged.decide(row)
    age(aged, 11)
    tick(aged)
    assert aged.get("/v1/rows/x").status == 404
    assert aged.decide(row | {"logits": [0.0, 1, 0, 0]})["predicted"] == 1
    assert aged.label({"id": "x", "label": 1})["counted"] == 1


def test_young_rows_stay(aged):
    decide(aged, 30, 1)
    age(aged, 9)
    tick(aged)
    assert len(ids(aged)) == 30


def test_half_of_a_partition(aged):
    for start in range(1, 6):
        decide(aged, 13, start)
        age(aged, 3)
    tick(aged)
    assert {name.split("/")[0] for name in ids(aged)} == {"3", "4", "5"}
    check_counts(aged)
    aged.check_watch()


def test_payloads_go_earlier(serve, gate, monkeypatch):
    monkeypatch.setattr(background, "DELETED", 7)
    served = serve(gate, review=(1.0, 1.0), keep_payloads=2 * DAY)
    served.background.tick()
    decide(served, 20, 1)
    age(served, 3)
    decide(served, 20, 2)
    tick(served)
    with_payload = served.read("SELECT id FROM rows WHERE payload IS NOT NULL")
    assert {name.split("/")[0] for (name,) in with_payload} == {"2"}
    assert served.get("/v1/rows/1/0").json["payload"] is None
    logits = np.asarray(draw_rows(20, 1).logits, float).tolist()
    same_row = {"id": "1/0", "logits": logits[0], "payload": {"text": "a"}}
    assert served.post("/v1/decide", same_row).status == 200  # the digest stays
    assert len(served.lease(count=100)) == 40
    age(served, 3)
    tick(served)
    assert served.read("SELECT count(*) FROM rows WHERE payload IS NOT NULL") == [(0,)]


def test_the_binary_search(served):
    rng = np.random.default_rng(0)
    for start in range(8):
        decide(served, int(rng.integers(1, 9)), start)
        label(served, [f"{start}/0"])
        age(served, float(rng.integers(1, 5)))
    stored = served.read("SELECT position, decided_at FROM rows ORDER BY position")
    for at in {at + shift for _, at in stored for shift in (-1.0, 0.0, 1.0)}:
        expected = max((p for p, when in stored if when < at), default=0)
        last = served.service.read_now(lambda s, at=at: last_position_before(s, at))
        assert last == expected


def test_an_empty_store(aged):
    tick(aged)
    assert aged.service.read_now(lambda s: last_position_before(s, 1e12)) == 0


def test_a_clock_that_jumps_deletes_nothing(aged):
    decide(aged, 30, 1)
    aged.background.retention._next = 0.0
    real = aged.background.session.now

    def ahead():
        return real() + 365 * DAY

    aged.background.session.now = ahead
    try:
        aged.background.tick()
    finally:
        del aged.background.session.now
    assert len(ids(aged)) == 30
    assert len(aged.check_watch().queue) > 0  # nothing has expired either


@pytest.mark.parametrize(
    "condition", ["", "WHERE position > 65"], ids=["all", "the last"]
)
def test_a_slow_reader_is_not_waited_for(aged, place, condition):
    """Decisions go on while somebody reads for long."""
    if not place.startswith("postgresql"):
        pytest.skip("SQLite has no partitions")
    decide(aged, 60, 1)
    age(aged, 11)
    decide(aged, 5, 2)
    with psycopg.connect(place) as reader:
        reader.execute(f"SELECT count(*) FROM rows {condition}").fetchall()
        reader.execute("SET LOCAL idle_in_transaction_session_timeout = '15s'")
        began = time.monotonic()
        tick(aged)
        assert aged.decide({"logits": [1.0, 0, 0, 0]})["version"] == 1
        assert time.monotonic() - began < 10
    tick(aged)
    assert len(ids(aged)) == 6
    check_counts(aged)
    aged.check_watch()


def test_partitions_are_made_in_time(aged, place):
    for start in range(6):
        decide(aged, 33, start)
    assert len(ids(aged)) == 198
    if place.startswith("postgresql"):
        counts = aged.read(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'rows'::regclass"
        )
        assert counts[0][0] >= 10
