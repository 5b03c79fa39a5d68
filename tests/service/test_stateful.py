"""Everything that people and programs do, in any order, against a plain model."""

import random
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from service.house import Served, draw_rows, new_schema

ROWS = draw_rows(60, 11).logits.astype(float).tolist()
numbers = st.integers(0, len(ROWS) - 1)
labels = st.sampled_from([0, 1, 2, 3, "right", "wrong", "unsaid"])


class Row:
    """What the model knows of a row."""

    def __init__(self, answer, place):
        self.answer, self.place, self.history, self.lease = answer, place, [], None

    @property
    def waits(self):
        return self.answer["review"] and not self.history

    def says(self, label):
        """What a label means: the label itself, and whether the answer is right."""
        if label in ("right", "wrong", "unsaid"):
            return None, {"right": True, "wrong": False}.get(label)
        return label, label == self.answer["predicted"]


def label_request(name, label):
    kinds = {"right": ("correct", True), "wrong": ("correct", False)}
    kinds["unsaid"] = ("cannot_say", True)
    key, value = kinds.get(label, ("label", label))
    return {"id": name, key: value}


class Machine(RuleBasedStateMachine):
    """A service beside a model of it; `start` begins one on a new store."""

    start = None

    def __init__(self):
        super().__init__()
        self.served, self.begin = type(self).start()
        self.rows, self.order, self.labels, self.decided = {}, count(), 0, 0
        self.old = []  # leases that are over

    def teardown(self):
        for row in self.rows.values():
            labels = self.served.get(f"/v1/rows/{row.answer['id']}").json["labels"]
            assert [
                (label["label"], label["correct"]) for label in labels
            ] == row.history
        if self.decided:
            self.served.check_watch()
        self.served.close()

    @rule(chosen=st.lists(numbers, min_size=1, max_size=6))
    def decide(self, chosen):
        body = [{"id": f"r{at}", "logits": ROWS[at]} for at in chosen]
        for answer in self.served.decide({"rows": body})["rows"]:
            row = self.rows.get(answer["id"])
            if row is None:
                self.rows[answer["id"]] = Row(answer, next(self.order))
                self.decided += 1
            else:
                assert answer == row.answer

    @rule(at=numbers, other=numbers)
    def decide_otherwise(self, at, other):
        name = f"r{at}"
        if at == other or name not in self.rows:
            return
        body = {"rows": [{"logits": ROWS[0], "id": "new"}, {"id": name}]}
        body["rows"][1]["logits"] = ROWS[other]
        assert self.served.post("/v1/decide", body).status == 409

    def take(self, name, label):
        """Label a row of the model; return what the service has to say."""
        row = self.rows.get(name)
        if row is None:
            return "refused"
        judged = row.says(label)
        if row.history and row.history[-1] == judged:
            return "repeated"
        first = not row.history
        row.history.append(judged)
        if row.lease is not None:
            self.old.append((name, row.lease))
            row.lease = None
        self.labels += first
        return ("counted" if row.answer["review"] else "kept") if first else "corrected"

    @rule(labels=st.lists(st.tuples(numbers, labels), min_size=1, max_size=5))
    def label(self, labels):
        named = [(f"r{at}", label) for at, label in labels]
        response = self.served.label(*(label_request(*pair) for pair in named))
        expected = [self.take(*pair) for pair in named]
        assert [pair["result"] for pair in response["rows"]] == expected

    def free(self):
        rows = [r for r in self.rows.values() if r.waits and r.lease is None]
        return sorted(rows, key=lambda row: row.place)

    @rule(n=st.integers(1, 4), order=st.sampled_from(["oldest", "doubt", "audit"]))
    def lease(self, n, order):
        keys = {
            "oldest": lambda _: 0,
            "doubt": lambda row: -float(row.answer["doubt"]),
            "audit": lambda row: not row.answer["accepted"],
        }
        expected = sorted(self.free(), key=keys[order])[:n]
        leased = self.served.lease(count=n, order=order)
        assert [leased_row["id"] for leased_row in leased] == [
            row.answer["id"] for row in expected
        ]
        for leased_row, row in zip(leased, expected, strict=True):
            row.lease = leased_row["lease"]

    @rule()
    def time_passes(self):
        """All leases end."""
        self.served.change(
            "UPDATE review_queue SET leased_until = 1 WHERE leased_until > 0"
        )
        for name, row in self.rows.items():
            if row.lease is not None:
                self.old.append((name, row.lease))
                row.lease = None

    @precondition(lambda self: any(row.lease for row in self.rows.values()))
    @rule(data=st.data(), label=labels)
    def answer(self, data, label):
        leased_names = sorted(name for name, row in self.rows.items() if row.lease)
        name = data.draw(st.sampled_from(leased_names))
        lease = {"id": name, "lease": self.rows[name].lease}
        content = label_request(name, label)
        response = self.served.post("/v1/review/answer", lease | content)
        assert response.json["result"] == self.take(name, label) == "counted"
        repeated = self.served.post("/v1/review/answer", lease | content)
        assert repeated.json["result"] == "repeated"

    @precondition(lambda self: any(row.lease for row in self.rows.values()))
    @rule(data=st.data())
    def release(self, data):
        leased_names = sorted(name for name, row in self.rows.items() if row.lease)
        name = data.draw(st.sampled_from(leased_names))
        row = self.rows[name]
        body = {"id": name, "lease": row.lease, "release": True}
        response = self.served.post("/v1/review/answer", body)
        assert response.json["result"] == "released"
        assert self.served.post("/v1/review/answer", body).status == 409
        row.lease = None

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def release_too_late(self, data):
        name, lease = data.draw(st.sampled_from(self.old))
        row = self.rows.get(name)
        body = {"id": name, "lease": lease, "release": True}
        response = self.served.post("/v1/review/answer", body)
        if row is None:
            assert response.status == 404
        elif row.waits and row.lease is None:
            assert response.status in (200, 409)  # nobody took it meanwhile
        else:
            assert response.status == 409

    @rule(at=numbers)
    def forget(self, at):
        name = f"r{at}"
        response = self.served.ask("DELETE", f"/v1/rows/{name}")
        row = self.rows.pop(name, None)
        assert response.status == (404 if row is None else 200)

    @rule()
    def tick(self):
        self.served.background.tick()

    @rule(kindly=st.booleans())
    def restart(self, kindly):
        self.served.close() if kindly else self.served.die()
        self.served = self.begin()

    @invariant()
    def counts_are_right(self):
        status = self.served.get("/v1/status").json
        waiting = [row for row in self.rows.values() if row.waits]
        assert status["traffic"]["rows"] == self.decided
        assert status["traffic"]["labels"] == self.labels
        assert status["review"]["waiting"] == len(waiting)
        audits = sum(row.answer["accepted"] for row in waiting)
        assert status["review"]["audit"] == audits
        n_leased = sum(row.lease is not None for row in waiting)
        assert status["review"]["leased"] == n_leased


def check(gate, loop, new_place, examples):
    def start():
        place = new_place()

        def begin():
            served = Served(gate, place, loop, review=(1.0, 0.5)).lead()
            # Hypothesis wants the same draws each time.
            served.service.writer.decider.random = random.Random(0)
            return served

        return begin(), begin

    machine = type("Started", (Machine,), {"start": staticmethod(start)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sqlite(gate, loop, tmp_path):
    numbered = count()
    check(gate, loop, lambda: str(tmp_path / f"{next(numbered)}.db"), 10)


@pytest.mark.soak
def test_postgresql(gate, loop, postgres):
    check(gate, loop, lambda: new_schema(postgres), 5)


@pytest.mark.soak
def test_sqlite_for_long(gate, loop, tmp_path):
    numbered = count()
    check(gate, loop, lambda: str(tmp_path / f"{next(numbered)}.db"), 150)
