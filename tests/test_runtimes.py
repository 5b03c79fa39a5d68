"""Rows that differ only by rounding are decided alike, in every runtime.

Logits of quantised models and rounded probabilities hold many rows that are equal in
exact arithmetic, such as a row and its permutation. Gates are calibrated on such rows
in double precision, some with a threshold exactly on a score; every other decider
then has to decide each row as they do.
"""

from functools import cache

import numpy as np
import polars as pl
import pytest
import torch
from exact_scores import SCORES, fitted, quiet
from test_deciders import guard, named

import trustdoctor as td
from trustdoctor.engines import Means, find_engine, screen
from trustdoctor.files import find_source
from trustdoctor.gates import CalibrationSketch
from trustdoctor.kernels import _native
from trustdoctor.scores import find_score, logit_scores

CLASSES, ROWS = 4, 300
GRIDS = ("int8", "permuted", "rounded")
TARGETS = ({"coverage": 0.5}, {"risk": 0.3}, {"trr": 0.8}, {"cost": 3.0})


def logits(grid, rng, rows=ROWS, classes=CLASSES):
    """Rows that single precision holds exactly, many of them equal to others."""
    z = 2 * rng.normal(size=(rows, classes))
    if grid == "int8":
        return np.round(4 * z) / 4
    if grid == "permuted":
        distinct = z[: rows // 8].astype(np.float32).astype(np.float64)
        return rng.permuted(distinct[rng.integers(len(distinct), size=rows)], axis=1)
    p = np.round(np.exp(z) / np.exp(z).sum(1, keepdims=True), 2)
    with np.errstate(divide="ignore"):
        return np.log(p).astype(np.float32).astype(np.float64)


def drawn_labels(z, rng):
    """Labels that are as probable as the softmax says."""
    p = np.exp(z - z.max(1, keepdims=True)).cumsum(1)
    return (p > rng.random((len(z), 1)) * p[:, -1:]).argmax(1)


@cache
def rows_and_gates(grid, score):
    """Rows, and gates made of them with what they decide in double precision."""
    rng = np.random.default_rng([GRIDS.index(grid), SCORES.index(score)])
    z = logits(grid, rng)
    p = td.Predictions.from_logits(z, drawn_labels(z, rng))
    scorer = find_score(score if score in logit_scores() else fitted(score))
    with quiet("rel_u"):
        doubts = np.unique(scorer(p))
        on_scores = [*rng.choice(doubts[np.isfinite(doubts)], 4), doubts[-1]]
        targets = [*TARGETS, *({"threshold": float(at)} for at in on_scores)]
        gates = [td.calibrate(p, score=scorer, **target) for target in targets]
        return z, [(gate, gate.screen(p).accepted) for gate in gates]


def check(grid, score, decide):
    """Compare decisions in single precision with the exact ones."""
    z, gates = rows_and_gates(grid, score)
    for gate, right in gates:
        with quiet("rel_u"):
            accepted = np.asarray(decide(gate, z.astype(np.float32)))
        off = np.flatnonzero(accepted != right)
        assert not len(off), f"{score} on {grid} rows, {gate}: rows {off[:5]}"


@pytest.mark.parametrize("kernel", ["numpy", *_native.ISAS])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.sampled(3)
def test_kernels(grid, kernel, monkeypatch):
    if kernel not in ("numpy", *_native.instruction_sets()):
        pytest.skip(f"this processor has no {kernel}")
    for score in SCORES:
        rows_and_gates(grid, score)
        with monkeypatch.context() as patch:
            if kernel == "numpy":
                patch.setattr(_native, "available", False)
            else:
                patch.setattr(_native, "isa", _native.ISAS.index(kernel))
            check(grid, score, lambda g, z: g.screen(z, kind="logits").accepted)


@pytest.mark.parametrize("grid", GRIDS)
def test_torch(grid):
    from trustdoctor.adapters.torch import Doctor

    for score in logit_scores():
        doctor = Doctor(torch.nn.Identity(), score=score)
        check(
            grid,
            score,
            lambda g, z, d=doctor: (
                d.screen(torch.from_numpy(z), g, quiet=True).accepted
            ),
        )


@pytest.mark.parametrize("grid", GRIDS)
def test_arrow(grid):
    pa = pytest.importorskip("pyarrow")
    from trustdoctor.adapters.arrow import Decider

    for score in SCORES:
        check(
            grid,
            score,
            lambda g, z: Decider(g)(pa.table(named(z)))["accepted"].to_numpy(),
        )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("grid", GRIDS)
def test_onnx(grid, score, tmp_path):
    check(grid, score, lambda g, z: guard("single", g, tmp_path)(z.astype(float))[1])


MEANS = Means(find_engine("local"), 10**9)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_streamed(suffix, grid, score, tmp_path):
    frame = pl.DataFrame(named(rows_and_gates(grid, score)[0].astype(np.float32)))
    path, output = tmp_path / f"rows{suffix}", tmp_path / "decided.parquet"
    frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)

    def decide(gate, _):
        screen(find_source(path), gate, output, means=MEANS)
        return pl.read_parquet(output)["accepted"].to_numpy()

    check(grid, score, decide)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.sampled(2)
def test_calibrated_from_sketches(grid, kind):
    """Counted in parts, and in single precision: the gate decides the same."""
    for score in SCORES:
        z, gates = rows_and_gates(grid, score)
        rng = np.random.default_rng([GRIDS.index(grid), SCORES.index(score)])
        labels = drawn_labels(logits(grid, rng), rng)
        p = td.Predictions.from_logits(z.astype(kind), labels)
        counted = CalibrationSketch(gates[0][0].score, needs_labels=True)
        with quiet("rel_u"):
            for rows in np.array_split(np.arange(len(z)), 3):
                counted.update(p[rows])
            for target, (_, right) in zip(TARGETS, gates, strict=False):
                gate = counted.calibrate(**target)
                is_accepted = gate.screen(z, kind="logits").accepted
                assert np.array_equal(is_accepted, right), f"{score}, {target}"


@pytest.mark.parametrize("grid", ["permuted", "rounded"])
def test_metrics_are_those_of_any_precision(grid):
    """Rows that are equal are tied, not in the order of their last bits."""
    rng = np.random.default_rng(5)
    z = logits(grid, rng, 2000)
    labels = drawn_labels(z, rng)
    double, single = (
        td.evaluate(td.Predictions.from_logits(z.astype(kind), labels))
        for kind in (np.float64, np.float32)
    )
    for score, metrics in double.scores.items():
        for name, values in metrics.items():
            other = single.scores[score][name]
            assert other.value == pytest.approx(values.value, abs=1e-12), (score, name)
            assert other.low == pytest.approx(values.low, abs=1e-9), (score, name)
