"""Background jobs: steps, alarms, webhooks, several replicas."""

import hmac
import json
import logging
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from service.house import draw_rows

import trustdoctor as td
from trustdoctor.service import background, monitor, webhook
from trustdoctor.service.store import UnavailableError
from trustdoctor.watch import to_state


class _Hook(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == "garbage":
            self.wfile.write(b"hello\r\n\r\n")
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def receiving(*answers):
    """A webhook that answers so, and then by 200."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.requests, server.answers = [], list(answers)
    server.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def decide(served, n, seed=0, start=""):
    logits = np.asarray(draw_rows(n, seed).logits, float).tolist()
    ids = [f"{start}{at}" for at in range(n)]
    return served.decide({"ids": ids, "logits": logits})["rows"]


def go_wrong(served, n=200, start=""):
    """Rows whose labels call every accepted one wrong."""
    decisions = decide(served, n, start=start)
    served.label(*({"id": decision["id"], "correct": False} for decision in decisions))
    served.background.tick()


@pytest.fixture(scope="module")
def risky():
    return td.calibrate(draw_rows(2000, 1), score="alpha", risk=0.15)


def alarms(served):
    return served.get("/v1/status").json["alarms"]


def test_an_alarm_is_stored_shown_and_counted(serve, risky, caplog):
    served = serve(risky, review=(1.0, 1.0))
    decide(served, 50, start="a")
    served.background.tick()
    with caplog.at_level(logging.WARNING, "trustdoctor.service"):
        go_wrong(served)
    (alarm,) = alarms(served)
    assert (alarm["version"], alarm["test"], alarm["sent"]) == (1, "risk", None)
    assert "risk" in caplog.text
    text = served.get("/metrics").content.decode()
    assert 'trustdoctor_alarms_total{test="risk"} 1' in text
    go_wrong(served, start="b")
    assert len(alarms(served)) == 1  # once
    response = served.post("/v1/recalibrate", {})
    assert response.status == 409
    assert "expected since=" in response.detail
    served.close()
    restarted = serve(risky)
    restarted.check_watch()
    assert len(alarms(restarted)) == 1


def test_webhooks_are_signed_and_retried(serve, risky):
    with receiving(500, 302, "garbage", 204) as hook:
        served = serve(
            risky, review=(1.0, 1.0), webhook=hook.url, webhook_secret="secret"
        )
        served.background.send_alarms()
        assert hook.requests == []
        go_wrong(served)
        for tries in range(1, 5):
            served.background.send_alarms()
            assert len(hook.requests) == tries
            ((due, sent),) = served.read("SELECT retry_at, sent_at FROM alarms")
            served.background.send_alarms()
            assert len(hook.requests) == tries  # not before its time
            served.change("UPDATE alarms SET retry_at = 0")
        assert sent is not None
        assert due > 0
        served.background.send_alarms()
        assert len(hook.requests) == 4
        assert {path for path, *_ in hook.requests} == {"/hook"}
        _, headers, body = hook.requests[-1]
        stamp, mark = (
            field.split("=")[1] for field in headers["Trustdoctor-Signature"].split(",")
        )
        expected = hmac.new(
            b"secret", stamp.encode() + b"." + body, "sha256"
        ).hexdigest()
        assert mark == expected
        assert abs(int(stamp) - time.time()) < 60
        content = json.loads(body)
        assert content["type"] == "trustdoctor.alarm"
        assert content["alarm"]["test"] == "risk"
        (shown,) = alarms(served)
        assert shown["sent"] is not None


def test_a_webhook_that_is_away_for_long(serve, risky):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        served = serve(risky, review=(1.0, 1.0), webhook=url)
        go_wrong(served)
        served.change("UPDATE alarms SET attempts = 5000")
        served.background.send_alarms()
        ((tries, due),) = served.read("SELECT attempts, retry_at FROM alarms")
        assert tries == 5001
        assert 3000 < due - time.time() < 3700


def test_without_a_secret_nothing_is_signed():
    with receiving() as hook:
        assert webhook.send_alarm(hook.url, {"test": "x"}, None)
        assert "Trustdoctor-Signature" not in hook.requests[0][1]


def test_the_watch_goes_on_while_a_webhook_hangs(serve, risky, monkeypatch):
    entered, leave = threading.Event(), threading.Event()

    def hang(*_):
        entered.set()
        leave.wait(30)
        return True

    monkeypatch.setattr(background, "send_alarm", hang)
    served = serve(risky, review=(1.0, 1.0), webhook="http://127.0.0.1:1/")
    go_wrong(served)
    thread = threading.Thread(target=served.background.send_alarms)
    thread.start()
    assert entered.wait(10)
    decide(served, 20, start="more")
    served.check_watch()
    leave.set()
    thread.join()


class Failing:
    """Makes the writer fail at a job, once or often."""

    def __init__(self, monkeypatch, name, times=1):
        self.remaining, real = times, getattr(monitor, name)

        def failing(*args):
            if self.remaining:
                self.remaining -= 1
                message = "the store is away."
                raise UnavailableError(message)
            return real(*args)

        monkeypatch.setattr(monitor, name, failing)


@pytest.mark.parametrize("name", ["store_step", "store_new_watch", "read_events"])
def test_a_store_that_goes_away_and_comes_back(serve, risky, monkeypatch, name):
    served = serve(risky, review=(1.0, 0.5))
    decide(served, 20)
    if name != "store_new_watch":
        served.check_watch()
        decide(served, 20, start="b")
    Failing(monkeypatch, name)
    with pytest.raises(UnavailableError):
        served.background.tick()
    watch = served.check_watch()
    assert watch.totals.rows == (20 if name == "store_new_watch" else 40)


def test_a_step_that_failed_in_retention(serve, risky, monkeypatch):
    served = serve(risky, review=(1.0, 0.5), keep=864000.0, deadline=432000.0)
    decide(served, 20)
    served.check_watch()
    served.change("UPDATE rows SET decided_at = decided_at - 1000000")
    served.background.retention._next = 0.0
    real = served.background.monitor.follow_all

    def late(*args):
        decide(served, 5, start="late")
        Failing(monkeypatch, "store_step")
        return real(*args)

    monkeypatch.setattr(served.background.monitor, "follow_all", late)
    with pytest.raises(UnavailableError):
        served.background.tick()
    monkeypatch.setattr(served.background.monitor, "follow_all", real)
    served.close()
    restarted = serve(risky)
    decide(restarted, 5, start="b")
    watch = restarted.check_watch()
    assert watch.totals.rows == 30


def test_a_version_that_cannot_be_watched_does_not_stop_others(serve, risky):
    served = serve(risky, review=(1.0, 0.5))
    decide(served, 10)
    served.background.tick()
    served.post_ok("/v1/gates", json.loads(risky.to_json()))
    served.post_ok("/v1/gates/2/promote")
    decide(served, 10, start="b")
    served.change("UPDATE watch_states SET state = '{}' WHERE version = 1")
    served.background.monitor.forget()
    served.background.tick()
    watch = served.background.monitor.watches[2].watch
    assert watch.totals.rows == 10
    assert 1 not in served.background.monitor.watches
    assert served.get("/v1/status").status == 200
    served.close()


def test_closing_counts_the_remaining_rows(serve, risky):
    served = serve(risky, review=(1.0, 0.5))
    decide(served, 30)
    served.close()
    restarted = serve(risky)
    assert restarted.watch() == restarted.watch(anew=True)
    assert restarted.get("/v1/status").json["watch"]["upto"] > 0
    steps = restarted.read("SELECT step FROM watch_steps")
    assert steps == [(1,)]
    watch = restarted.check_watch()
    assert watch.totals.rows == 30
    assert restarted.read("SELECT step FROM watch_steps") == [(1,)]  # nothing new


def test_checkpoints_thin_the_history(serve, risky, monkeypatch):
    """One step per minute stays, for the charts; the watch is the same."""
    served = serve(risky, review=(1.0, 0.5))

    def steps(numbers):
        for at in numbers:
            decide(served, 5, start=f"{at}/")
            served.background.tick()

    steps(range(3))
    followed = served.background.monitor.watches[1]
    followed.minute = -1  # a minute later
    steps(range(3, 8))
    stored = served.read("SELECT step, charted FROM watch_steps ORDER BY step")
    shown = [number for number, shown_entry in stored if shown_entry]
    assert [number for number, _ in stored] == list(range(1, 9))
    assert {1, 4} <= set(shown)
    assert len(shown) < 5
    monkeypatch.setattr(monitor, "CHECKPOINT_INTERVAL", -1.0)
    served.background.monitor.save_all()
    remaining = [
        n for (n,) in served.read("SELECT step FROM watch_steps ORDER BY step")
    ]
    assert remaining == shown
    steps(range(8, 10))
    served.check_watch()
    history = served.get("/v1/status").json["watch"]["history"]
    assert [entry["number"] for entry in history] == [*shown, 10]


@pytest.fixture
def replicas(serve, risky, place):
    if not place.startswith("postgresql"):
        pytest.skip("a file of SQLite has one process")
    return [serve(risky, review=(1.0, 0.5)) for _ in range(2)]


def test_one_of_two_replicas_keeps(replicas):
    first, second = replicas
    for at in range(3):
        decide(first, 5, start=f"a{at}/")
        decide(second, 5, start=f"b{at}/")
        first.background.tick()
        second.background.tick()
    assert set(first.background.monitor.watches) == {1}
    assert second.background.monitor.watches == {}
    watch = first.check_watch()
    assert watch.totals.rows == 30
    assert second.watch() == to_state(watch)
    first.close()
    decide(second, 5, start="c")
    assert second.check_watch().totals.rows == 35


def test_a_replica_takes_over_from_one_that_died(replicas):
    first, second = replicas
    decide(first, 10)
    first.background.tick()
    first.die()
    decide(second, 10, start="b")
    second.background.tick()
    assert second.background.monitor.watches == {}
    second.lead()
    assert second.check_watch().totals.rows == 20


def test_a_replica_that_was_asleep_spoils_nothing(replicas, monkeypatch):
    first, second = replicas
    decide(first, 10)
    first.check_watch()
    asleep = first.background.monitor.watches[1]
    second.lead()
    for at in range(3):
        decide(second, 5, start=f"{at}/")
        second.background.tick()
    monkeypatch.setattr(monitor, "CHECKPOINT_INTERVAL", -1.0)
    second.background.monitor.save_all()  # and the steps before are thinned
    text = second.watch(anew=True)
    first.background.monitor.watches[1] = asleep
    first.background.monitor.save(asleep)
    first.service.writer.call(
        lambda s: monitor.save_checkpoint(s, asleep, to_state(asleep.watch))
    )
    assert second.watch() == second.watch(anew=True) == text
    position = first.service.read_now(
        lambda s: s.rows("SELECT last_position FROM head")
    )
    session = first.background.session
    first.background.monitor.follow(session, 1, position[0][0], session.now())
    assert second.watch(anew=True) == text
    assert second.check_watch().totals.rows == 25


def test_two_replicas_decide_at_once(replicas):
    def send(served, start):
        for at in range(10):
            decide(served, 5, start=f"{start}{at}/")
            served.label({"id": f"{start}{at}/0", "correct": True})

    threads = [
        threading.Thread(target=send, args=(served, name))
        for served, name in zip(replicas, "ab", strict=True)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        replicas[0].background.tick()
    for thread in threads:
        thread.join()
    watch = replicas[0].check_watch()
    assert watch.totals.rows == 100
    rows = replicas[0].read(
        "SELECT position FROM rows UNION ALL SELECT position FROM labels "
        "UNION ALL SELECT position FROM gate_changes ORDER BY position"
    )
    assert [at for (at,) in rows] == list(range(1, 122))


def test_the_same_id_at_two_replicas(replicas):
    row = {"id": "x", "logits": [0.5, 0.4, 0, 0]}
    first, second = (served.post("/v1/decide", row) for served in replicas)
    assert first.content == second.content
    other = replicas[1].post("/v1/decide", row | {"logits": [0.0] * 4})
    assert other.status == 409


def test_a_promotion_reaches_the_other_replica(replicas, risky):
    first, second = replicas
    first.post_ok("/v1/gates", json.loads(risky.to_json()))
    first.post_ok("/v1/gates/2/promote")
    assert second.decide({"logits": [1.0, 0, 0, 0]})["version"] == 2
