"""Whatever is killed, every confirmed answer stays, exactly once."""

import json
import re
import shutil
import time
from bisect import bisect
from contextlib import ExitStack

import numpy as np
import pytest
from service.load import Load, ask, make_gate, running_postgres, serving, wait_until

from trustdoctor.service import monitor
from trustdoctor.service.store import open_database
from trustdoctor.service.versions import GateVersions, read_head
from trustdoctor.watch import to_state

pytestmark = pytest.mark.soak

KILLS = 20

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="there is no strace: apt install strace"
)


@pytest.fixture
def gate(tmp_path):
    return make_gate(tmp_path)


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as running:
        yield running


def check_answers(load, service, latest=3000):
    """Repeat the latest requests, or all: they get the same answers."""
    assert not load.wrong, load.wrong[:5]
    link = service.link()
    for names in batches(list(load.decided)[-latest:], 1000):
        repeated = decide(link, {name: load.decided[name][0] for name in names})
        assert repeated == [load.decided[name][1] for name in names]
    for names in batches(list(load.labels)[-latest:], 1000):
        labels = {name: load.labels[name] for name in names}
        assert set(label(link, labels)) == {"repeated"}
    for name, (answer_given, lease) in list(load.answers.items())[-50:]:
        assert answer(link, name, lease, answer_given) == "repeated"
    send_again(load, link)
    link.close()


def send_again(load, link):
    """Send unconfirmed requests again; nobody knows whether they were stored."""
    if load.unconfirmed_rows:
        answers = decide(link, load.unconfirmed_rows)
        for (name, row), decision in zip(
            load.unconfirmed_rows.items(), answers, strict=True
        ):
            load.decided[name] = row, decision
    labels = {
        name: klass for name, klass in load.unconfirmed_labels.items() if name[0] == "L"
    }
    if labels:
        assert set(label(link, labels)) <= {"counted", "kept", "repeated"}
        load.labels |= labels
    for name in set(load.unconfirmed_labels) - set(labels):
        answered, lease = load.unconfirmed_labels[name], load.leased[name]
        assert answer(link, name, lease, answered) in ("counted", "repeated")
        load.answers[name] = answered, lease
    load.unconfirmed_rows.clear()
    load.unconfirmed_labels.clear()


def good(link, path, content):
    status, response = ask(link, "POST", path, content)
    assert status == 200, response
    return response


def decide(link, rows):
    content = {"ids": list(rows), "logits": list(rows.values())}
    return good(link, "/v1/decide", content)["rows"]


def label(link, labels):
    content = {"ids": list(labels), "labels": list(labels.values())}
    return [row["result"] for row in good(link, "/v1/labels", content)["rows"]]


def answer(link, name, lease, label):
    content = {"id": name, "lease": lease, "label": label}
    return good(link, "/v1/review/answer", content)["result"]


def add_gate(load, service, folder):
    """Let two gates take turns."""
    other = json.loads(make_gate(folder, "other.json", frr=0.2).read_text())
    assert service.ask("POST", "/v1/gates", other)[0] == 201
    load.gates = 2


def batches(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]


def check_store(load, place, *, saved=False):
    """Check the store: nothing is lost, duplicated or counted differently.

    `saved` says that the service ended by itself, so that its watch is up to date.
    """
    database = open_database(str(place))
    session = database.open()
    alone = database.name == "sqlite"
    session.run("BEGIN" if alone else "BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        check_positions(session)
        check_rows(load, session)
        check_labels(load, session)
        check_counts(session)
        check_watches(session, saved=saved)
    finally:
        session.rollback()
        session.close()
        database.close()


def is_watched(place):
    """Tell whether the watch has counted all rows and labels."""
    session = open_database(place).open()
    watches = session.rows(
        "SELECT (SELECT max(position) FROM rows), (SELECT max(position) FROM labels "
        "WHERE counted = 1), position FROM watches"
    )
    session.close()
    return bool(watches) and max(watches[0][:2]) <= max(upto for *_, upto in watches)


def check_positions(session):
    """All who were given a position used it, and each was given once."""
    positions = [
        position
        for table in ("rows", "labels", "gate_changes")
        for (position,) in session.rows(f"SELECT position FROM {table}")
    ]
    assert sorted(positions) == list(range(1, read_head(session).position + 1))


def check_rows(load, session):
    """Every confirmed row is stored once; other rows must at least have been sent."""
    rows = session.rows("SELECT id, position, accepted, drawn FROM rows")
    stored = {name: (bool(accepted), bool(drawn)) for name, _, accepted, drawn in rows}
    assert len(stored) == len(rows)
    places = {name: position for name, position, _, _ in rows}
    assert dict(session.rows("SELECT id, position FROM ids")) == places
    decided = {
        name: (answer["accepted"], answer["review"])
        for name, (_, answer) in load.decided.items()
    }
    assert decided.items() <= stored.items()
    assert set(stored) <= set(decided) | set(load.unconfirmed_rows)


def check_labels(load, session):
    """The same for labels; leases still hold."""
    rows = session.rows(
        "SELECT r.id, l.label, l.lease FROM labels l "
        "JOIN rows r ON r.position = l.row_position"
    )
    labels = {name: (json.loads(label), lease) for name, label, lease in rows}
    assert len(labels) == len(rows)
    answered = {
        name: (label, None) for name, label in load.labels.items()
    } | load.answers
    assert answered.items() <= labels.items()
    assert set(labels) <= set(answered) | set(load.unconfirmed_labels)
    waiting = dict(session.rows("SELECT id, lease FROM review_queue"))
    drawn = session.rows("SELECT id FROM rows WHERE drawn = 1 AND judgement IS NULL")
    assert set(waiting) == {name for (name,) in drawn}
    for name in set(load.leased) & set(waiting):
        assert waiting[name] == load.leased[name]


def check_counts(session):
    """The aggregates on the page are sums over the stored rows."""

    def sums_of(statement):
        return tuple(int(value or 0) for value in session.rows(statement)[0])

    rows = sums_of("SELECT count(*), sum(accepted) FROM rows")
    labels = sums_of("SELECT count(*) FROM labels")
    for table in ("version_counts", "minute_counts"):
        sums = sums_of(f"SELECT sum(rows), sum(accepted), sum(labels) FROM {table}")
        assert (table, sums) == (table, (*rows, *labels))
    review_counts = dict(session.rows("SELECT name, rows FROM review_counts"))
    for audit, name in enumerate(("waiting rejected", "waiting accepted")):
        (waiting,) = sums_of(
            f"SELECT count(*) FROM review_queue WHERE accepted = {audit}"
        )
        assert review_counts.get(name, 0) == waiting


def check_watches(session, *, saved):
    """Each watch is the one that is computed anew, and counts all rows and labels."""
    versions = GateVersions()
    for version, *stored in session.rows("SELECT version, step, position FROM watches"):
        live = monitor.load_watch(session, versions, version)
        anew = monitor.load_watch(session, versions, version, from_checkpoint=True)
        assert to_state(live.watch) == to_state(anew.watch)
        assert [live.step, anew.step, anew.position] == [stored[0], *stored]
        assert (
            live.position >= anew.position
        )  # beyond it there is nothing of this version
        check_steps(session, version, anew.position)
        if saved:
            for table in ("rows", "labels"):
                (last,) = session.rows(
                    f"SELECT max(position) FROM {table} WHERE version = ?", version
                )[0]
                assert live.position >= last
            (text,) = session.rows(
                "SELECT state FROM watch_states WHERE version = ?", version
            )[0]
            assert text == to_state(anew.watch)


def check_steps(session, version, upto):
    """The steps have counted all rows stored up to there."""
    steps = session.rows("SELECT entry FROM watch_steps WHERE version = ?", version)
    entries = [json.loads(text) for (text,) in steps]
    for name, column, table in (
        ("rows", "count(*)", "rows"),
        ("accepted", "sum(accepted)", "rows"),
        ("labels", "sum(counted)", "labels"),
    ):
        counted = sum(entry[name] for entry in entries)
        (stored,) = session.rows(
            f"SELECT {column} FROM {table} WHERE position <= ? AND version = ?",
            upto,
            version,
        )[0]
        assert (name, counted) == (name, stored or 0)


def test_a_service_that_is_killed_loses_nothing_that_it_answered(gate, tmp_path):
    rng, store, load = np.random.default_rng(), tmp_path / "rows.db", Load()
    for _ in range(KILLS):
        with serving(gate, store) as service:
            check_answers(load, service)
            if load.gates == 1:
                add_gate(load, service, tmp_path)
            load.start(service)
            time.sleep(rng.uniform(0.1, 1.2))
            assert service.kill() == -9
            load.stop()
        check_store(load, store)
    with serving(gate, store) as service:
        check_answers(load, service, latest=0)
        service.stop()
    check_store(load, store, saved=True)
    assert min(map(len, (load.decided, load.labels, load.leased, load.answers))) > 100


def test_a_service_that_is_stopped_answers_all_that_it_stored(gate, tmp_path):
    for seed in range(3):
        store, load = tmp_path / f"{seed}.db", Load(seed)
        with serving(gate, store) as service:
            load.start(service)
            time.sleep(0.5)
            service.stop()
            load.stop()
        assert not load.wrong, load.wrong[:5]
        load.unconfirmed_rows.clear()  # those were never taken
        check_store(load, store, saved=True)


def test_a_replica_that_is_killed_loses_nothing_and_stops_nobody(
    gate, postgres, tmp_path
):
    rng, place, load = np.random.default_rng(), postgres.fresh(), Load()
    with ExitStack() as stack:
        pair = [stack.enter_context(serving(gate, place)) for _ in range(2)]
        add_gate(load, pair[0], tmp_path)
        for number in range(KILLS):
            load.start(*pair)
            time.sleep(rng.uniform(0.1, 1.2))
            killed = number % 2
            assert pair[killed].kill() == -9
            before = len(load.decided)
            pair[killed] = stack.enter_context(serving(gate, place))
            assert len(load.decided) > before
            load.stop()
            check_answers(load, pair[killed])
            check_store(load, place)
        check_answers(load, pair[0], latest=0)
        # Where the replica that watched was killed, another takes over.
        wait_until(lambda: is_watched(place))
        for service in pair:
            service.stop()
    check_store(load, place, saved=True)
    assert min(map(len, (load.decided, load.labels, load.leased, load.answers))) > 100


def test_a_database_that_crashes_and_recovers_has_every_confirmed_answer(
    gate, postgres
):
    rng, place, load = np.random.default_rng(), postgres.fresh(), Load()
    with ExitStack() as stack:
        pair = [stack.enter_context(serving(gate, place)) for _ in range(2)]
        for _ in range(3):
            load.start(*pair)
            time.sleep(rng.uniform(0.3, 1.0))
            postgres.crash()
            row = {"id": "while it is away", "logits": [1, 2, 3]}
            status, response = pair[0].ask("POST", "/v1/decide", row)
            assert (status, response["title"]) == (503, "Unavailable")
            assert pair[0].ask("GET", "/readyz")[0] == 503
            assert pair[0].ask("GET", "/healthz")[0] == 200
            time.sleep(1)
            postgres.start()
            before = len(load.decided)
            wait_until(lambda before=before: len(load.decided) > before + 100)
            load.stop()
            for service in pair:
                check_answers(load, service)
            check_store(load, place)
        assert load.away
        check_answers(load, pair[0], latest=0)
        # Where the replica that watched was killed, another takes over.
        wait_until(lambda: is_watched(place))
        for service in pair:
            service.stop()
    check_store(load, place, saved=True)


TRACED = "fdatasync,fsync,pwrite64,write,writev,sendto,sendmsg"


def traced(gate, folder, *options):
    """Return a load of two seconds, and what the service asked of the system."""
    path, load = folder / "trace", Load()
    strace_options = ["-f", "-y", "-s", "8192", "-o", path, "-e", f"trace={TRACED}"]
    before = ["strace", "-D", *map(str, strace_options)]
    with serving(gate, folder / "rows.db", *options, before=before) as service:
        load.start(service)
        time.sleep(2)
        load.stop()
        service.stop()
        exit_line = re.compile(rf"^{service.process.pid} +\+\+\+ ", re.M)
        wait_until(lambda: exit_line.search(path.read_text(errors="replace")[-1000:]))
    return load, path.read_text(errors="replace").splitlines()


def times_in(trace):
    """Return when texts were first written, when synced, and when sent to a socket.

    Times are numbers of lines. Of each id or lease only the first one counts.
    """
    written, synced, sent, begun = {}, [], {}, {}
    for now, line in enumerate(trace):
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.startswith("<..."):
            call = begun.pop(thread, "") + call.partition(">")[2]
        elif call.endswith("<unfinished ...>"):
            begun[thread] = call
            if "<socket:" not in call:  # which is done only when it returns
                continue
        target = call.partition("<")[2].partition(">")[0]
        if target.endswith("-wal") and "sync" in call[:9] and call.endswith("= 0"):
            synced.append(now)
        elif target.endswith("-wal") or target.startswith("socket:"):
            place = written if target.endswith("-wal") else sent
            for name in re.findall(r"(?=([LR]-\d+-\d{6}|[0-9a-f]{24}))", call):
                place.setdefault(name, now)
    return written, synced, sent


def is_early(name, written, synced, sent):
    """Tell whether anything was sent before it was on disk."""
    after = bisect(synced, written[name])
    return after == len(synced) or synced[after] > sent[name]


@needs_strace
def test_an_answer_is_sent_only_after_it_is_on_disk(gate, tmp_path):
    load, trace = traced(gate, tmp_path)
    times = times_in(trace)
    # Rows named by L may get their label, and leave the queue, in the same commit.
    leases = [lease for name, lease in load.leased.items() if name[0] == "R"]
    answered = [*load.decided, *leases]
    assert len(load.decided) > 100
    assert len(leases) > 10
    assert not load.wrong
    assert [name for name in answered if is_early(name, *times)] == []


@needs_strace
def test_a_fast_service_answers_before_the_disk_has_it(gate, tmp_path):
    load, trace = traced(gate, tmp_path, "--fast")
    times = times_in(trace)
    early = sum(is_early(name, *times) for name in load.decided)
    assert early > len(load.decided) / 2
