"""A few cells of benchmarks/watch.py, which fills docs/watching.md.

Its cells also compare the evidence of a watch with the same sums, computed for all
streams at once.
"""

import math

import pytest

STREAMS = 200
MOST = 0.1 + 3 * math.sqrt(0.1 * 0.9 / STREAMS)


@pytest.fixture(scope="module")
def bench(benchmark_of):
    return benchmark_of("watch")


@pytest.mark.parametrize("name", ["frr", "trr", "risk", "joint"])
@pytest.mark.parametrize("reviewed", ["all rows", "1, 0.02", "changing"])
def test_alarms_at_the_edge_are_few(name, reviewed, bench):
    assert bench.edge_cell((name, 0.05, reviewed, STREAMS, 5000, 0)) <= MOST


@pytest.mark.parametrize("name", ["frr", "joint"])
@pytest.mark.parametrize("order", ["late", "first"])
def test_late_labels_count_as_if_they_had_come_at_once(name, order, bench):
    alarms, lost = bench.late_stream((name, 0.05, order, 5000, 0))
    assert not any(alarms.values())
    assert (lost > 0.05) == (order == "first")


def test_counted_wrongly_the_same_streams_alarm(bench):
    arrived, dropped, _ = bench.wrong_cell(("risk", 0.05, 50, 10_000, 0))
    assert min(arrived, dropped) > 0.5
    assert bench.wrong_cell(("frr", 0.05, 50, 10_000, 0))[2] == 1


@pytest.mark.parametrize("name", ["frr", "trr", "risk", "joint"])
@pytest.mark.parametrize("reviewed", ["all rows", "1, 0.2"])
def test_wrong_labels_alarm_unless_allowed_for(name, reviewed, bench):
    unaware, *allowed = bench.noise_cell((name, reviewed, 100, 20_000, 0))
    assert max(allowed) <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 100)
    assert unaware > 0.9 or (name, reviewed) not in {
        ("trr", "all rows"), ("risk", "all rows"), ("joint", "all rows")
    }  # fmt: skip


@pytest.mark.parametrize("audit", ["doubtful ones first", "easy ones first"])
@pytest.mark.parametrize("risk", [0.05, 0.1])
def test_audits_that_prefer_some_rows_cannot_tell(audit, risk, bench):
    for shares in bench.preference_cell((audit, risk, 4, 30, 0)).values():
        assert shares["cannot tell"] == 1


def test_audits_at_random_tell(bench):
    for risk in (0.05, 0.1):
        shares = bench.preference_cell(("at random", risk, 10, 60, 0))["risk"]
        assert shares["cannot tell"] == 0
        assert (shares["alarm"] > 0.5) == (risk == 0.1)


@pytest.mark.parametrize("age", [0, 20_000])
def test_a_rise_is_found_soon_at_any_age(age, bench):
    soon, by_lifetime, _ = bench.delays(((0.045, 0.1), age, 50, 100, 0))
    assert soon <= 2000
    assert by_lifetime >= soon


def test_labels_of_rejected_rows_alone_are_inconclusive(bench):
    for outcome in bench.blind_stream(("the rejected rows only", 3000, 0)).values():
        assert outcome == (1, True, False)


def test_a_broken_group_is_found_and_named(bench):
    (rows, blamed), pooled = bench.group_stream((5, 12, 0))
    assert 0 < rows <= 3000
    assert blamed == ("g3",)
    assert pooled is None


@pytest.mark.soak
@pytest.mark.parametrize("name", ["state.json", "state.db"])
def test_processes_that_are_killed_count_each_row_once(name, bench, tmp_path):
    gate = bench.watched_gate()
    bench.kill_at_random(tmp_path / name, gate, 100, 5, 0.1)
    bench.check_state(tmp_path / name, gate, 100, 5)


@pytest.mark.parametrize("setting", ["FRR, all rows", "risk, reviewed 1, 0.02"])
def test_estimates_cover_where_the_rate_jumps(setting, bench):
    task = ("jumps between 0.02 and 0.2", setting, 5000)
    covered = [bench.covered_stream((*task, seed))[0] for seed in range(20)]
    assert sum(covered) >= 18
