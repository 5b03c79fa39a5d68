"""The database's clock, against one that never jumps."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustdoctor.service.background import DISTRUST, MAX_CLOCK_JUMP, Clock

START = 1.8e9


@pytest.fixture
def passing(monkeypatch):
    """A function by which time passes for this process."""
    process_time = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: process_time[0])

    def wait(seconds):
        process_time[0] += seconds
        return process_time[0] - 100.0

    return wait


def test_a_regular_clock_is_trusted(passing):
    clock = Clock()
    for _ in range(200):
        now = START + passing(600.0)
        assert clock.tell(now) == now
        assert clock.is_trusted


@given(st.lists(st.floats(-MAX_CLOCK_JUMP / 2, MAX_CLOCK_JUMP / 2), max_size=20))
def test_small_corrections_are_believed(shifts):
    clock = Clock()
    for shift in shifts:
        assert clock.tell(START + shift) == START + shift
        assert clock.is_trusted or abs(shift) > MAX_CLOCK_JUMP / 2


def test_a_jump_is_not(passing):
    clock = Clock()
    clock.tell(START)
    ahead = 365 * 86400.0
    for _ in range(20):
        passed = passing(600.0)
        assert clock.tell(START + ahead + passed) == pytest.approx(START + passed)
        assert not clock.is_trusted
    passed = passing(60.0)
    assert clock.tell(START + passed) == START + passed  # it jumped back
    assert clock.is_trusted


def test_a_jump_that_lasts_is_believed_in_the_end(passing):
    clock = Clock()
    clock.tell(START)
    ahead = 365 * 86400.0
    clock.tell(START + ahead)
    passed = passing(DISTRUST + 1)
    assert clock.tell(START + ahead + passed) == START + ahead + passed
    assert clock.is_trusted


def test_back_is_believed(passing):
    clock = Clock()
    clock.tell(START)
    passing(1.0)
    assert clock.tell(START - 1e6) == START - 1e6
    assert clock.is_trusted


def test_it_is_reported_once(passing, caplog):
    clock = Clock()
    clock.tell(START)
    for _ in range(5):
        passing(1.0)
        clock.tell(START + 1e7)
    assert len(caplog.records) == 1
    assert "the clock jumped ahead" in caplog.text


def test_a_quiet_night_is_not_a_clock_jump(serve, gate):
    """A start long after the last row: steps bear the time at which they are taken."""
    served = serve(gate, review=(1.0, 1.0))
    served.decide({"id": "friday", "logits": [0.1, 0, 0, 0]})
    served.change("UPDATE rows SET decided_at = decided_at - 259200")
    served.close()
    served = serve(gate)
    served.background.tick()
    served.decide({"id": "monday", "logits": [0.1, 0, 0, 0]})
    served.check_watch()
    (last,) = served.read("SELECT max(taken_at) FROM watch_steps")[0]
    assert last == pytest.approx(time.time(), abs=60)
