"""The same calls give the same watch: in memory, in JSON, in a database."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from watch.streams import AUDIT, calibrated, snapshot

import trustdoctor as td
from trustdoctor.errors import InputError

GATE = calibrated()
IDS = st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=4)
REVIEWS = st.sampled_from([None, AUDIT, {"rejected": 0.5, "accepted": 0.5}])


def of(key):
    """Return the doubt of a row, and whether it is wrong, by its name."""
    rng = np.random.default_rng(ord(key))
    wrong = rng.random() < 0.3
    return float(rng.normal() + 2 * wrong), bool(wrong)


class Watches(RuleBasedStateMachine):
    """One watch in memory, one through JSON, one through SQLite, and each reloaded."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.paths = [self.folder / "state.json", self.folder / "state.db"]
        self.memory = GATE.watch(deadline=100)
        self.time = 1000.0
        for path in self.paths:
            self.memory.save(path)

    def teardown(self):
        shutil.rmtree(self.folder)

    def call(self, act):
        """Do the same everywhere; what one refuses all refuse."""
        self.time += 7
        messages = []
        try:
            act(self.memory)
        except InputError as error:
            messages.append(str(error))
        for path in self.paths:
            try:
                with td.Watch.open(path, GATE) as watch:
                    act(watch)
            except InputError as error:
                messages.append(str(error))
        assert len(messages) in (0, 3)
        assert len(set(messages)) <= 1

    @rule(ids=IDS, label_bits=st.integers(0, 15), named=st.booleans())
    def update(self, ids, label_bits, named):
        doubts, errors = zip(*map(of, ids), strict=True)
        label = [e if label_bits >> at & 1 else None for at, e in enumerate(errors)]
        names = ids if named else None
        self.call(lambda w: w.update(doubts, label, ids=names, at=self.time))

    @rule(ids=IDS, mask=st.integers(0, 15), review=REVIEWS)
    def draw(self, ids, mask, review):
        doubts, _ = zip(*map(of, ids), strict=True)
        drawn = [bool(mask >> at & 1) for at in range(len(ids))]
        self.call(
            lambda w: w.update(
                doubts, ids=ids, reviewed=drawn, review=review, at=self.time
            )
        )

    @rule(ids=IDS, whole_rows=st.booleans(), unsaid=st.booleans())
    def label(self, ids, whole_rows, unsaid):
        doubts, errors = zip(*map(of, ids), strict=True)
        more = {"undecided": [unsaid] * len(ids)}
        doubts_again = doubts if whole_rows else None
        self.call(
            lambda w: w.label(doubts_again, errors, ids=ids, at=self.time, **more)
        )

    @rule(name=st.sampled_from(["x", "y"]), ids=IDS, late=st.booleans())
    def batch(self, name, ids, late):
        doubts, errors = zip(*map(of, ids), strict=True)
        if late:
            self.call(lambda w: w.label(doubts, errors, batch=name, at=self.time))
        else:
            every = [True] * len(ids)
            self.call(
                lambda w: w.update(doubts, batch=name, reviewed=every, at=self.time)
            )

    @rule(days=st.integers(1, 60))
    def wait(self, days):
        self.time += days

    @rule()
    def reload(self):
        """Write each as the other, and go on from there."""
        json, database = (td.Watch.load(path, GATE) for path in self.paths)
        json.save(self.paths[1])
        database.save(self.paths[0])

    @invariant()
    def all_are_one(self):
        expected = snapshot(self.memory)
        for path in self.paths:
            assert snapshot(td.Watch.load(path, GATE)) == expected
        waiting = sum(
            int((batch.labels < 0).sum()) for batch in self.memory.queue.batches
        )
        assert waiting == len(self.memory.queue)
        for test in self.memory.tests.values():
            assert 0 <= test.counted <= test.n
            assert test.peak >= test.evidence - 1e-9


Watches.TestCase.settings = settings(
    max_examples=6, stateful_step_count=12, deadline=None, derandomize=True
)
TestWatches = Watches.TestCase


def test_a_test_that_is_not_there_is_named():
    watch = calibrated().watch()
    assert watch.verdict("frr") == "no rows yet"
    with pytest.raises(InputError, match=r"out of accepted, frr, got 'risk'"):
        watch.verdict("risk")
