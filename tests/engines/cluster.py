"""The job of test_ray.py, in a process of its own: Ray reads its token when imported.

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
from trustdoctor.adapters.scan import find_source
from trustdoctor.adapters.torch import Doctor
from trustdoctor.engines import local
from trustdoctor.engines import ray as engine
from trustdoctor.errors import FileError
from trustdoctor.tally import Sketches, Tally

GATE = td.Gate(-0.5, score="alpha")


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
    expected = local.screen(source, GATE, folder / "local.parquet")
    engine.SCREEN_BYTES, before = 1 << 20, engine.SCREEN_BYTES  # many small tasks
    killed = []
    killer = threading.Thread(target=kill_a_worker, args=(cluster, killed))
    killer.start()
    assert engine.screen(source, GATE, folder / "ray.parquet") == expected
    killer.join()
    engine.SCREEN_BYTES = before
    assert killed, "no worker was seen at work"
    ours = pl.read_parquet(folder / "ray.parquet")
    assert ours.equals(pl.read_parquet(folder / "local.parquet"))
    print("screen: nothing lost or doubled after worker", killed[0], "was killed")
    return source


def check_counts(source):
    one = local.diagnose(source, Tally(["alpha", "energy"])).evaluate()
    two = engine.diagnose(source, Tally(["alpha", "energy"])).evaluate()
    assert one.to_json() == two.to_json()
    sketches = [Sketches.of("alpha", temperature=1.0, per_class=True) for _ in "ab"]
    local.sketch(source, sketches[0])
    engine.sketch(source, sketches[1])
    assert sketches[0].pooled.to_bytes() == sketches[1].pooled.to_bytes()
    for name, own in sketches[0].classes.items():
        assert sketches[1].classes[name].to_bytes() == own.to_bytes()
    print("diagnose, calibrate: the same to the bit")


def check_folder(folder):
    inner = folder / "in" / "day=1"
    inner.mkdir(parents=True)
    for i in range(3):
        rows(5_000, seed=i).write_parquet(inner / f"{i}.parquet")
    many = find_source(folder / "in")
    first = local.screen(many, GATE, folder / "one")
    assert engine.screen(many, GATE, folder / "two") == first
    assert engine.screen(many, GATE, folder / "two", resume=True) == first
    files = list((folder / "one").rglob("*.parquet"))
    assert len(files) == 3
    for file in files:
        other = folder / "two" / file.relative_to(folder / "one")
        assert other.read_bytes() == file.read_bytes()
    local.screen(many, GATE, folder / "one.parquet")
    engine.screen(many, GATE, folder / "two.parquet")
    both = [pl.read_parquet(folder / f"{name}.parquet") for name in ("one", "two")]
    assert both[0].equals(both[1])
    assert "day" in both[0].columns
    print("folders: the same bytes")


def check_mistakes(folder):
    rows(100).with_columns(logit_1=float("nan")).write_parquet(folder / "bad.parquet")
    with pytest.raises(FileError, match="NaN at row 0"):
        engine.screen(find_source(folder / "bad.parquet"), GATE, None)


def check_model():
    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 4))

    inputs = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    options = {"score": "alpha", "temperature": 1.3, "epsilon": 0.01}
    here = Doctor(build(), **options)(torch.from_numpy(inputs), quiet=True)
    gate = td.Gate(float(np.median(here.scores)))
    data = ray.data.from_items([{"row": i, "x": x} for i, x in enumerate(inputs)])
    found = engine.examine(
        data, build, column="x", gate=gate, workers=2, batch_size=64, **options
    ).take_all()
    found.sort(key=lambda row: row["row"])
    scores = np.array([row["score"] for row in found])
    logits = np.array([row["logits"] for row in found])
    np.testing.assert_allclose(logits, here.predictions.logits, atol=1e-4)
    np.testing.assert_allclose(scores, here.scores, atol=1e-4)
    clear = np.abs(here.scores - gate.threshold) > 1e-4
    accepted = np.array([row["accepted"] for row in found])
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
        check_counts(check_screen(cluster, folder, n))
        check_folder(folder)
        check_mistakes(folder)
        check_model()
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 400_000)
