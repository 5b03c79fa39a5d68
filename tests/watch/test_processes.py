"""Several processes at one state: nothing is lost, whoever is killed."""

import subprocess
import sys

import numpy as np
import pytest
from watch.streams import busy, calibrated, snapshot

import trustdoctor as td
from trustdoctor.watch import require_state

GATE = calibrated()
SUFFIXES = [".json", ".db"]

UPDATE = """
import os, sys
import trustdoctor as td
state, gate = sys.argv[1], td.Gate.load(sys.argv[2])
go, start = os.pipe()
jobs = []
for k in range(8):
    job = os.fork()
    if job == 0:
        os.close(start)
        os.read(go, 1)  # all at once, when the other end is closed
        for i in range(2):
            with td.Watch.open(state, gate) as watch:
                watch.update([0.1] * (k + 1), [False] * (k + 1))
                watch.update([0.1], ids=[f"{i} of all"])
        os._exit(0)
    jobs.append(job)
os.close(start)
sys.exit(sum(os.waitpid(job, 0)[1] for job in jobs))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_eight_processes_update_one_state_and_no_row_is_lost(suffix, tmp_path):
    state, path = tmp_path / f"state{suffix}", tmp_path / "gate.json"
    GATE.save(path)
    subprocess.run([sys.executable, "-c", UPDATE, state, path], check=True)
    watch = td.Watch.load(state, GATE)
    assert watch.tests["frr"].n == 2 * 36
    assert watch.tests["accepted"].n == 2 * 36 + 2
    assert watch.totals.repeated == 14
    assert len(watch.history) == 32
    assert sorted(tmp_path.iterdir()) == sorted([path, state])


KILLED = """
import os, sys
import numpy as np
import trustdoctor as td
with td.Watch.open(sys.argv[1], td.Gate.load(sys.argv[2])) as watch:
    watch.update(np.zeros(60_000), ids=[f"{i:040}" for i in range(60_000)])
    os.kill(os.getpid(), 9)
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_process_killed_in_a_large_update_leaves_the_state_as_it_was(
    suffix, begun, tmp_path
):
    """A database is so large by then that parts of it were written."""
    state, path = tmp_path / f"state{suffix}", tmp_path / "gate.json"
    GATE.save(path)
    if begun:
        busy(GATE).save(state)
    killed = subprocess.run([sys.executable, "-c", KILLED, state, path], check=False)
    assert killed.returncode == -9
    require_state(state, GATE)
    if begun:
        assert snapshot(td.Watch.load(state, GATE)) == snapshot(busy(GATE))
    with td.Watch.open(state, GATE) as watch:
        watch.update([0.1], ids=["new"])
    assert td.Watch.load(state, GATE).totals.rows == (61 if begun else 1)


RETRY = """
import os, random, sys, time
import trustdoctor as td
state, gate, k = sys.argv[1], td.Gate.load(sys.argv[2]), int(sys.argv[3])
for batch in range(50):
    ids = [f"{k}-{batch}-{row}" for row in range(4)]
    with td.Watch.open(state, gate) as watch:
        watch.update([0.1, 0.2, 0.3, 9.0], [False] * 4, ids=ids)
"""


@pytest.mark.soak
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_processes_that_are_killed_and_tried_again_lose_nothing(suffix, tmp_path):
    """Four of them, 200 batches, kill -9 at random moments, until all is counted."""
    rng = np.random.default_rng(0)
    state, path = tmp_path / f"state{suffix}", tmp_path / "gate.json"
    GATE.save(path)

    def start(k):
        return subprocess.Popen([sys.executable, "-c", RETRY, state, path, str(k)])

    jobs = {k: start(k) for k in range(4)}
    kills = 0
    while jobs:
        for k, job in list(jobs.items()):
            try:
                returncode = job.wait(timeout=float(rng.uniform(0.05, 1)))
            except subprocess.TimeoutExpired:
                if kills < 20:
                    kills += 1
                    job.kill()
                    job.wait()
                    jobs[k] = start(k)
                continue
            assert returncode == 0
            del jobs[k]
    assert kills
    watch = td.Watch.load(state, GATE)
    assert watch.totals.rows == watch.totals.labels == 4 * 50 * 4
    assert watch.tests["frr"].n == 800
    assert watch.tests["frr"].counted == 200
    assert len(dict(watch.ledger.items())) == 800
