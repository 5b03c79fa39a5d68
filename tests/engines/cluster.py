"""The job of test_ray.py, in a separate process: Ray reads its token when imported.

Two nodes are started here and ended by what started them; a worker is killed in the
middle, and the results are compared with those of the local engine.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import ray
import torch
from ray.cluster_utils import Cluster

import trustdoctor as td
from trustdoctor.adapters.torch import Doctor
from trustdoctor.engines import Means, calibrate_files, find_engine, list_files, screen
from trustdoctor.engines import ray as engine
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import Columns, find_source
from trustdoctor.gates import CalibrationSketch
from trustdoctor.progress import Pace
from trustdoctor.scores import find_score

GATE = td.Gate(-0.5, score="alpha")
LOCAL, RAY = (Means(find_engine(name), 4 * 10**9) for name in ("local", "ray"))


def fold(source, state, means):
    """Count all rows batch by batch, whether or not they would fit."""
    source = means.engine.check(source)
    pace = Pace(None, "", 1)
    return means.engine.fold(source, state, memory=means.memory, pace=pace)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 8, n)
    z = rng.normal(size=(n, 8)).astype(np.float32)
    z[np.arange(n), labels] += 2
    named = {f"logit_{j}": z[:, j] for j in range(8)}
    return pl.DataFrame(named | {"label": labels, "id": np.arange(n)})


def kill_a_worker(cluster, killed):
    """Kill the first worker of these nodes that is seen at work on a batch."""
    nodes = {
        info.process.pid
        for node in cluster.list_all_nodes()
        for info in node.all_processes["raylet"]
    }
    end = time.monotonic() + 60
    while time.monotonic() < end and not killed:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                title = (process / "cmdline").read_bytes()
                stat = (process / "stat").read_text()
                parent = int(stat.rsplit(") ", maxsplit=1)[-1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent in nodes and b"ray::MapBatches" in title:
                os.kill(int(process.name), signal.SIGKILL)
                killed.append(int(process.name))
                break


def check_screen(cluster, folder, n):
    path = folder / "rows.parquet"
    rows(n).write_parquet(path, row_group_size=10_000)
    source = find_source(path)
    expected = screen(source, GATE, folder / "local.parquet", means=LOCAL)
    engine.SCREEN_BYTES, before = 1 << 20, engine.SCREEN_BYTES  # many small tasks
    killed = []
    killer = threading.Thread(target=kill_a_worker, args=(cluster, killed))
    killer.start()
    assert screen(source, GATE, folder / "ray.parquet", means=RAY) == expected
    killer.join()
    engine.SCREEN_BYTES = before
    assert killed, "no worker was seen at work"
    ours = pl.read_parquet(folder / "ray.parquet")
    assert ours.equals(pl.read_parquet(folder / "local.parquet"))
    print("screen: nothing lost or doubled after worker", killed[0], "was killed")
    return source


def check_counts(source):
    locally, on_cluster = (
        fold(source, td.Tally(["alpha", "energy"]), means).evaluate()
        for means in (LOCAL, RAY)
    )
    assert locally.to_json() == on_cluster.to_json()
    locally, on_cluster = (
        fold(source, CalibrationSketch(find_score("alpha"), "predicted"), means)
        for means in (LOCAL, RAY)
    )
    assert locally.pooled.to_bytes() == on_cluster.pooled.to_bytes()
    assert set(locally.groups) == set(on_cluster.groups) == set(range(8))
    for name, group in locally.groups.items():
        assert on_cluster.groups[name].to_bytes() == group.to_bytes()
    print("diagnose, calibrate: the same to the bit")


def check_folder(folder):
    inner = folder / "in" / "day=1"
    inner.mkdir(parents=True)
    for i in range(3):
        rows(5_000, seed=i).write_parquet(inner / f"{i}.parquet")
    source = find_source(folder / "in")
    first = screen(source, GATE, folder / "one", means=LOCAL)
    assert screen(source, GATE, folder / "two", means=RAY) == first
    assert screen(source, GATE, folder / "two", resume=True, means=RAY) == first
    files = list((folder / "one").rglob("*.parquet"))
    assert len(files) == 3
    for file in files:
        other = folder / "two" / file.relative_to(folder / "one")
        assert other.read_bytes() == file.read_bytes()
    screen(source, GATE, folder / "one.parquet", means=LOCAL)
    screen(source, GATE, folder / "two.parquet", means=RAY)
    tables = [pl.read_parquet(folder / f"{name}.parquet") for name in ("one", "two")]
    assert tables[0].equals(tables[1])
    assert "day" in tables[0].columns
    print("folders: the same bytes")


def check_columns(folder):
    table = rows(20_000).with_columns(region=pl.format("r{}", pl.col("id") % 3))
    table.write_parquet(folder / "regions.parquet", row_group_size=3_000)
    source = find_source(folder / "regions.parquet", Columns(groups="region"))
    p = source.read()
    gate = td.calibrate(p, score=td.RelU.fit(p[:2000]), groups="given", risk=0.15)
    assert len({rule.threshold for rule in gate.groups.values()}) == 3
    outcomes = [
        screen(
            source, gate, folder / f"regions {means.engine.name}.parquet", means=means
        )
        for means in (LOCAL, RAY)
    ]
    assert (
        outcomes[0]
        == outcomes[1]
        == td.Outcome.of_predictions(p, gate.screen(p).accepted)
    )
    tables = [
        pl.read_parquet(folder / f"regions {name}.parquet") for name in ("local", "ray")
    ]
    assert tables[0].equals(tables[1])
    print("groups, fitted scores: the same decisions")


def check_lists(folder, source):
    """Shortlists calibrated on counted rows and written files agree on both engines."""
    gates = []
    for means in (LOCAL, RAY):
        means.engine.in_memory = False
        gates.append(calibrate_files(source, frr=0.1, shortlist=0.9, means=means))
    LOCAL.engine.in_memory = True
    assert gates[0] == gates[1]
    assert gates[0].shortlist.same_rows
    rows(5_000, seed=5).write_parquet(folder / "others.parquet")
    other_rows = find_source(folder / "others.parquet")
    alone = calibrate_files(source, risk=0.2, means=RAY)
    listed = list_files(other_rows, alone, 0.9, means=RAY)
    assert listed == list_files(other_rows, alone, 0.9, means=LOCAL)
    outcomes = [
        screen(
            other_rows,
            listed,
            folder / f"lists {engine_means.engine.name}.parquet",
            means=engine_means,
        )
        for engine_means in (LOCAL, RAY)
    ]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].lists.rows == 5_000 - outcomes[0].accepted > 0
    tables = [
        pl.read_parquet(folder / f"lists {name}.parquet") for name in ("local", "ray")
    ]
    assert tables[0].equals(tables[1])
    for name in ("in lists", "out lists"):
        (folder / name).mkdir()
    rows(300).write_parquet(folder / "in lists" / "a.parquet")
    folder_source = find_source(folder / "in lists")
    assert screen(folder_source, listed, folder / "out lists", means=RAY) == (
        screen(folder_source, listed, None, means=LOCAL)
    )
    tables[0].drop("score", "accepted").write_parquet(folder / "taken.parquet")
    with pytest.raises(FileError, match="already has a column 'shortlist'"):
        screen(find_source(folder / "taken.parquet"), listed, None, means=RAY)
    with pytest.raises(InputError, match="--shortlist for risk needs all rows"):
        calibrate_files(source, risk=0.2, shortlist=0.9, means=RAY)
    print("lists: the same, set and written")


def check_mistakes(folder):
    rows(100).with_columns(logit_1=float("nan")).write_parquet(folder / "bad.parquet")
    with pytest.raises(FileError, match="NaN at row 0"):
        screen(find_source(folder / "bad.parquet"), GATE, None, means=RAY)


def check_whole_file(folder):
    """All rows decide whether values are probabilities or logits."""
    probs = np.random.default_rng(0).dirichlet(np.ones(8), 4000).astype(np.float32)
    likely = rows(4000).with_columns(
        pl.Series(f"logit_{j}", probs[:, j]) for j in range(8)
    )
    table = pl.concat([likely[:2000], rows(2000)])
    engine.SCREEN_BYTES, before = 1 << 14, engine.SCREEN_BYTES
    for name, file_rows in (("some", table), ("all", likely)):
        file_rows.write_parquet(folder / f"{name}.parquet", row_group_size=200)
    source = find_source(folder / "some.parquet")
    outcomes = [
        screen(
            source,
            GATE,
            folder / f"some {engine_means.engine.name}.parquet",
            means=engine_means,
        )
        for engine_means in (LOCAL, RAY)
    ]
    engine.SCREEN_BYTES = before
    assert outcomes[0] == outcomes[1]
    tables = [
        pl.read_parquet(folder / f"some {name}.parquet") for name in ("local", "ray")
    ]
    assert tables[0].equals(tables[1])
    with pytest.raises(FileError, match="all rows are probabilities"):
        screen(find_source(folder / "all.parquet"), GATE, None, means=RAY)
    print("whole file: a stretch of likely rows is taken, and no more")


def check_model():
    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 4))

    inputs = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    options = {"score": "alpha", "temperature": 1.3, "epsilon": 0.01}
    here = Doctor(build(), **options)(torch.from_numpy(inputs), quiet=True)
    gate = td.Gate(float(np.median(here.scores)))
    data = ray.data.from_items([{"row": i, "x": x} for i, x in enumerate(inputs)])
    rows = engine.examine(
        data, build, column="x", gate=gate, workers=2, batch_size=64, **options
    ).take_all()
    rows.sort(key=lambda row: row["row"])
    scores = np.array([row["score"] for row in rows])
    logits = np.array([row["logits"] for row in rows])
    np.testing.assert_allclose(logits, here.predictions.logits, atol=1e-4)
    np.testing.assert_allclose(scores, here.scores, atol=1e-4)
    clear = np.abs(here.scores - gate.threshold) > 1e-4
    accepted = np.array([row["accepted"] for row in rows])
    assert (accepted == gate.accept(here.scores))[clear].all()
    print("model: within 1e-4, the same decisions")


def main(folder, n):
    options = {"num_cpus": 1, "object_store_memory": 200 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    try:
        cluster.add_node(**options)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        assert sum(node["Alive"] for node in ray.nodes()) == 2
        source = check_screen(cluster, folder, n)
        check_counts(source)
        check_lists(folder, source)
        check_folder(folder)
        check_columns(folder)
        check_mistakes(folder)
        check_whole_file(folder)
        check_model()
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 400_000)
