"""Random files by every way in, and promises of exported gates: hundreds of gates."""

import gzip

import numpy as np
import polars as pl
import pytest
import torch
from test_deciders import guard, named
from test_runtimes import GRIDS, drawn_labels, logits

import trustdoctor as td
from trustdoctor.adapters.arrow import Decider
from trustdoctor.adapters.torch import Doctor
from trustdoctor.engines import Means, find_engine, screen
from trustdoctor.files import find_source
from trustdoctor.kernels import _native
from trustdoctor.scores import find_score, logit_scores

pytestmark = pytest.mark.soak
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".jsonl", ".arrow", ".feather", ".parquet")
FILES, PARTS = 300, 10


def write(path, z, labels):
    """Rows in a file of the kind that its name says."""
    if path.suffix == ".npz":
        return np.savez(path, logits=z, labels=labels)
    table = pl.DataFrame(named(z) | {"label": labels})
    if path.suffix == ".gz":
        return path.write_bytes(gzip.compress(table.write_csv().encode()))
    if path.suffix == ".parquet":
        return table.write_parquet(path)
    if path.suffix in (".arrow", ".feather"):
        return table.write_ipc(path)
    if path.suffix == ".jsonl":
        return table.write_ndjson(path)
    return table.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")


def by_every_kernel(gate, rows, monkeypatch):
    """Decide as each kernel does."""
    for kernel in ("numpy", *_native.instruction_sets()):
        with monkeypatch.context() as patch:
            if kernel == "numpy":
                patch.setattr(_native, "available", False)
            else:
                patch.setattr(_native, "isa", _native.ISAS.index(kernel))
            for kind in (np.float32, np.float64):
                decisions = gate.screen(rows.astype(kind), kind="logits")
                yield f"{kernel}, {kind.__name__}", decisions.accepted


def by_every_decider(path, gate_file, z, run):
    """Decide as the command line, the streams, Arrow, torch and ONNX Runtime do."""
    gate, folder = td.Gate.load(gate_file), path.parent
    single, output = z.astype(np.float32), folder / "decided.parquet"
    completed = run("screen", path, "--gate", gate_file, "-o", output)
    assert completed.returncode == 0, completed.stderr
    yield "command line", pl.read_parquet(output)["accepted"].to_numpy()
    means = Means(find_engine("local"), 10**9)
    screen(find_source(path), gate, output, means=means)
    yield "streamed", pl.read_parquet(output)["accepted"].to_numpy()
    table = pl.DataFrame(named(single)).to_arrow()
    yield "Arrow", Decider(gate)(table)["accepted"].to_numpy()
    doctor = Doctor(torch.nn.Identity(), score=gate.score)
    yield "torch", doctor.screen(torch.from_numpy(single), gate, quiet=True).accepted
    yield "ONNX", guard("single", gate, folder)(z)[1]


@pytest.mark.parametrize("first", range(PARTS))
def test_random_files_are_decided_alike_by_all(first, tmp_path, run, monkeypatch):
    """Thresholds are exactly on scores; every decision of every row is the same."""
    suffixes, scores = (*SUFFIXES, ".npz"), logit_scores()
    for number in range(first, FILES, PARTS):
        rng = np.random.default_rng([35, number])
        path = tmp_path / f"rows{number}{suffixes[number % len(suffixes)]}"
        z = logits(GRIDS[number % 3], rng, int(rng.integers(40, 400)))
        if path.suffix == ".jsonl":
            z = np.maximum(z, -8)  # JSON has no infinity
        kind = np.float32 if rng.random() < 0.5 else np.float64
        write(path, z.astype(kind), drawn_labels(z, rng))
        p, score = td.read(path), scores[number % len(scores)]
        doubts = find_score(score)(p)
        at = rng.choice(doubts[np.isfinite(doubts)])
        gate_file = tmp_path / f"gate{number}.json"
        td.calibrate(p, score=score, threshold=float(at)).save(gate_file)
        right = td.Gate.load(gate_file).screen(p).accepted
        decided = dict(by_every_decider(path, gate_file, z, run))
        gate = td.Gate.load(gate_file)
        decided |= dict(by_every_kernel(gate, z, monkeypatch))
        off = [
            who
            for who, decisions in decided.items()
            if not np.array_equal(decisions, right)
        ]
        assert not off, f"file {number}, {path.suffix}, {score}: {off} decide otherwise"


@pytest.mark.parametrize("score", ["msp", "alpha", "entropy", "gen"])
def test_exports_keep_promises_as_often_as_gates(score, tmp_path):
    """200 gates on quantised rows, judged on as many as make their rates known."""
    risk, delta, gates = 0.16, 0.1, 200
    broken = {"gate": 0, "export": 0}
    rng = np.random.default_rng(len(score))
    distinct = logits("int8", rng, 3000)
    rows_of_z = rng.permuted(np.repeat(distinct, 5, 0), axis=1)
    truth, wide = (
        drawn_labels(rows_of_z, rng),
        rows_of_z.astype(np.float32).astype(float),
    )
    wrong = truth != rows_of_z.argmax(1)
    for _ in range(gates):
        rows = rng.integers(len(rows_of_z), size=800)
        p = td.Predictions.from_logits(rows_of_z[rows], truth[rows])
        gate = td.calibrate(p, score=score, risk=risk, confidence=1 - delta)
        accepted_by_gate = gate.screen(rows_of_z, kind="logits").accepted
        exported = guard("single", gate, tmp_path)(wide)[1]
        assert np.array_equal(accepted_by_gate, exported)
        for name, accepted in (("gate", accepted_by_gate), ("export", exported)):
            broken[name] += wrong[accepted].mean() > risk if accepted.any() else 0
    assert broken["gate"] == broken["export"] <= 1.5 * delta * gates
