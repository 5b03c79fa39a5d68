"""The watch of the store equals the library's, row by row, however it was built."""

import json

import numpy as np
import pytest
from service.house import draw_rows
from watch.streams import decided

import trustdoctor as td
from trustdoctor.service import monitor
from trustdoctor.service.store.postgres import PostgresSession
from trustdoctor.service.store.sqlite import SqliteSession
from trustdoctor.watch import UNDECIDED, Review, to_state

GATES = {
    "frr": {"frr": 0.1},
    "risk": {"risk": 0.15},
    "joint": {"joint": 0.1},
    "coverage": {"coverage": 0.7},
}
TEAMS = np.array(["north", "south"])[np.arange(2000) % 2]


def calibrated(name):
    rows = draw_rows(2000, 1)
    if name == "teams":
        return td.calibrate(rows, score="alpha", risk=0.15, groups=TEAMS)
    if name == "classes":
        return td.calibrate(rows, score="alpha", risk=0.15, groups="predicted")
    return td.calibrate(rows, score="alpha", **GATES[name])


class Traffic:
    """Rows and labels, in chunks of random size."""

    def __init__(self, served, seed=0):
        self.served, self.rng = served, np.random.default_rng(seed)
        self.rows, self.at, self.open = draw_rows(3000, 7), 0, []

    def decide(self, n):
        span = slice(self.at, self.at + n)
        body = {
            "ids": list(range(span.start, span.stop)),
            "logits": np.asarray(self.rows.logits, float)[span].tolist(),
        }
        if self.served.gate.grouped_by not in ("", "predicted"):
            body["groups"] = TEAMS[:n].tolist()
        decisions = self.served.decide(body)["rows"]
        self.open += [decision["id"] for decision in decisions if decision["review"]]
        self.at += n

    def label(self, share=0.7):
        chosen = [name for name in self.open if self.rng.random() < share]
        self.rng.shuffle(chosen)
        self.open = [name for name in self.open if name not in chosen]
        labels = [self._label_of(name) for name in chosen]
        if labels:
            self.served.label(*labels)

    def _label_of(self, name):
        if self.rng.random() < 0.1:
            return {"id": name, "cannot_say": True}
        return {"id": name, "label": int(self.rows.labels[int(name)])}

    def go(self, steps=3):
        for _ in range(steps):
            self.decide(int(self.rng.integers(1, 40)))
            self.label()
            if self.rng.random() < 0.7:
                self.served.background.tick()


def counted_one_by_one(served):
    """The library's watch of the stored rows: one row, one label at a time."""
    rates = {
        number: Review(*rates_pair)
        for number, *rates_pair in served.read(
            "SELECT number, rejected, accepted FROM review_rates"
        )
    }
    events = served.read(
        "SELECT position, 0, accepted, drawn, review_rates, group_name, predicted "
        "FROM rows UNION ALL "
        "SELECT position, 1, row_position, judgement, 0, NULL, NULL FROM labels "
        "WHERE counted = 1 ORDER BY position"
    )
    watch = served.gate.watch(level=0.1, deadline=None)
    for position, kind, *values in events:
        if kind:
            line, wrong = values[:2]
            mute = wrong == UNDECIDED
            error = [None if mute else bool(wrong)]
            watch.label(errors=error, undecided=[mute], ids=[line], at=1000.0)
            continue
        accepted, drawn, number, team, predicted = values
        group = team if served.gate.grouped_by != "predicted" else predicted
        watch.update(
            decided([accepted]),
            ids=[position] if drawn else None,
            reviewed=[bool(drawn)],
            review=rates[number],
            groups=[json.loads(group)] if served.gate.groups else None,
            at=1000.0,
        )
    return watch


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*GATES, "teams", "classes"])
def test_rows_count_as_in_the_library(serve, name):
    served = serve(calibrated(name), review=(1.0, 0.3))
    traffic = Traffic(served)
    traffic.go(3)
    traffic.decide(20)  # which are counted with rows of other rates
    served.die()
    served = traffic.served = serve(served.gate, review=(0.5, 0.8)).lead()
    traffic.decide(20)
    traffic.go(3)
    watch, by_hand = served.check_watch(), counted_one_by_one(served)
    assert watch.totals.rows == by_hand.totals.rows == traffic.at
    assert watch.totals.labels == by_hand.totals.labels
    assert len(watch.queue) == len(by_hand.queue)
    for test, expected in by_hand.tests.items():
        actual = watch.tests[test]
        assert actual.evidence == pytest.approx(expected.evidence, rel=1e-9, abs=1e-9)
        assert actual.estimate() == pytest.approx(expected.estimate(), abs=1e-12)
        assert watch.verdict(test) == by_hand.verdict(test)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*GATES, "teams", "classes"])
def test_live_stored_and_recomputed_watches_are_the_same(serve, name):
    served = serve(calibrated(name), review=(1.0, 0.3))
    traffic = Traffic(served)
    for _ in range(3):
        traffic.go()
        served.check_watch()


@pytest.mark.sampled(2)
def test_over_restarts_rates_and_versions(serve, gate):
    served = serve(gate, review=(1.0, 0.3))
    traffic = Traffic(served)
    traffic.go()
    served.check_watch()
    served.close()
    served = traffic.served = serve(gate, review=(0.5, 0.5))
    traffic.go()
    served.check_watch()
    other = td.calibrate(draw_rows(2000, 1), score="beta", risk=0.15)
    served.post_ok("/v1/gates", json.loads(other.to_json()))
    served.post_ok("/v1/gates/2/promote")
    traffic.go()
    for version in (1, 2):
        served.check_watch(version)
    served.die()
    served = traffic.served = serve(gate).lead()
    traffic.go()
    served.post_ok("/v1/gates/rollback")
    traffic.go()
    for version in (1, 2):
        served.check_watch(version)


@pytest.mark.sampled(2)
def test_over_clocks_that_jump(serve, gate, monkeypatch):
    shift = [0.0]
    for kind in (SqliteSession, PostgresSession):
        real = kind.now
        monkeypatch.setattr(kind, "now", lambda s, real=real: real(s) + shift[0])
    served = serve(gate, review=(1.0, 0.5), deadline=1000.0)
    traffic = Traffic(served)
    for shift[0] in (0.0, -5000.0, 10.0, 1e6, -1e6, 2000.0):
        traffic.go(2)
        served.check_watch()
        served.background.monitor.save_all()
        assert served.get("/v1/status").status == 200
    served.die()
    serve(gate).lead().check_watch()


@pytest.mark.sampled(2)
def test_with_rows_forgotten(serve, gate):
    served = serve(gate, review=(1.0, 0.5))
    traffic = Traffic(served)
    for _ in range(3):
        traffic.go()
        for name in traffic.rng.choice(traffic.at, 5, replace=False):
            served.ask("DELETE", f"/v1/rows/{name}")
            traffic.open = [other for other in traffic.open if other != str(name)]
        served.check_watch()
    served.die()
    served = serve(gate).lead()
    served.check_watch()


def test_steps_of_another_size_count_the_same_rows(serve, gate, monkeypatch):
    monkeypatch.setattr(monitor, "STEP_POSITIONS", 7)
    served = serve(gate, review=(1.0, 0.5))
    traffic = Traffic(served)
    traffic.decide(60)
    traffic.label()
    watch = served.check_watch()
    assert watch.totals.rows == 60
    assert served.read("SELECT count(*) FROM watch_steps")[0][0] >= 60 // 7


def test_labels_expire(serve, gate):
    served = serve(gate, review=(1.0, 1.0), deadline=100.0)
    traffic = Traffic(served)
    traffic.decide(30)
    watch = served.check_watch()
    assert len(watch.queue) == 30
    now = served.service.read_now(lambda session: session.now())
    progress = served.background.monitor.watches[1]
    assert not progress.is_overdue(now)
    assert progress.is_overdue(now + 101)


def test_labels_may_be_wrong(serve, gate, caplog):
    """The noise is that with which the watch began, also after another start."""
    served = serve(gate, review=(1.0, 0.5), label_noise=0.02)
    traffic = Traffic(served)
    traffic.go()
    assert served.check_watch().label_noise == 0.02
    assert served.get("/v1/status").json["watch"]["label_noise"] == 0.02
    served.background.monitor.save_all()
    served.close()
    with caplog.at_level("WARNING", "trustdoctor.service"):
        served = serve(gate).lead()
        assert served.check_watch().label_noise == 0.02
    assert "label noise that its watch began with" in caplog.text


def test_the_keys_of_the_watch_are_positions(serve, gate):
    served = serve(gate, review=(1.0, 1.0))
    secret = "patient-4711"
    served.decide({"id": secret, "logits": [0.1, 0, 0, 0]})
    served.check_watch()
    served.background.monitor.save_all()
    for table in ("watch_states", "watch_checkpoints", "watches", "watch_steps"):
        assert secret not in repr(served.read(f"SELECT * FROM {table}"))


def test_a_gate_without_a_promise_is_not_watched(serve):
    served = serve(td.Gate(0.0, score="alpha"))
    served.decide({"logits": [[1.0, 0, 0, 0]] * 3})
    served.background.tick()
    assert served.watch() is None
    status = served.get("/v1/status").json
    assert status["watch"]["tests"] == []
    assert status["gate"]["promise"] == "no promise: it has no certificate"


def test_a_missing_step_is_reported(serve, gate):
    served = serve(gate, review=(1.0, 1.0))
    traffic = Traffic(served)
    for _ in range(3):
        traffic.decide(5)
        served.background.tick()
    served.change("DELETE FROM watch_steps WHERE step = 2")
    with pytest.raises(
        td.errors.InputError, match="expected step 2 of version 1, got 3"
    ):
        served.watch(anew=True)


def test_states_survive_text(serve, gate):
    served = serve(gate, review=(1.0, 0.5))
    traffic = Traffic(served)
    traffic.go()
    watch = served.check_watch()
    text = to_state(watch)
    served.background.monitor.save_all()
    assert served.read("SELECT state FROM watch_states WHERE version = 1") == [(text,)]
