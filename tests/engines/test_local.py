"""The local engine: what the core gives, in batches, whole files or none."""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import Means, find_engine, screen
from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.files import find_source
from trustdoctor.files.journal import JOURNAL
from trustdoctor.gates import CalibrationSketch
from trustdoctor.metrics import CELLS
from trustdoctor.progress import Pace
from trustdoctor.scores import find_score

GATE = td.Gate(-0.5, score="alpha")


def rows(n=300_000, seed=0, classes=4):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    z = rng.normal(size=(n, classes)).astype(np.float32)
    z[np.arange(n), labels] += 2
    named = {"id": [f"{i:07}" for i in range(n)]}
    named |= {f"logit_{j}": z[:, j] for j in range(classes)}
    return pl.DataFrame(named | {"label": labels.astype(np.int32), "x": rng.random(n)})


def predictions(table):
    z = table.select(pl.col("^logit_.*$")).to_numpy()
    return td.Predictions.from_logits(z, table["label"].to_numpy())


def within(memory):
    return Means(find_engine("local"), memory)


def fold(source, state, memory=10**9):
    """Count all rows batch by batch, whether or not they would fit."""
    engine = find_engine("local")
    return engine.fold(source, state, memory=memory, pace=Pace(None, "", 1))


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = tmp_path_factory.mktemp("big") / "rows.parquet"
    rows().write_parquet(path, row_group_size=20_000)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_rows_are_kept_in_order_with_all_columns(big, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    outcome = screen(find_source(big), GATE, out, means=within(10**9))
    table = rows()
    expected = GATE.screen(predictions(table))
    types = {"id": pl.String, "score": pl.Float32}
    decisions = pl.read_parquet(out) if suffix == ".parquet" else None
    if decisions is None:
        decisions = pl.read_csv(out, schema_overrides=types)
    assert decisions.columns == [*table.columns, "predicted", "score", "accepted"]
    assert decisions["id"].equals(table["id"])
    assert (decisions["score"].to_numpy() == expected.doubts).all()
    assert (decisions["accepted"].to_numpy() == expected.accepted).all()
    if suffix == ".parquet":
        assert decisions.drop("predicted", "score", "accepted").equals(table)
    wrong = predictions(table).errors
    assert outcome.counts.accepted_errors == (expected.accepted & wrong).sum()
    assert outcome.rows == len(table)


def test_csv_text_stays_as_it_was(tmp_path):
    table = rows(2000)
    table.write_csv(tmp_path / "a.csv")
    source = find_source(tmp_path / "a.csv")
    screen(source, GATE, tmp_path / "out.csv")
    first = (tmp_path / "a.csv").read_text().splitlines()
    second = (tmp_path / "out.csv").read_text().splitlines()
    assert all(b.startswith(a + ",") for a, b in zip(first, second, strict=True))
    screen(source, GATE, tmp_path / "out.parquet")
    decisions = pl.read_parquet(tmp_path / "out.parquet")
    assert decisions["id"].to_list() == table["id"].to_list()
    assert decisions["x"].dtype == pl.Float64


def test_diagnosis_and_calibration_count_what_the_rows_hold(big):
    source, p = find_source(big), predictions(rows())
    evaluation = fold(source, td.Tally(["alpha", "energy"])).evaluate()
    exact = td.measure(td.alpha(p), p.errors)
    for name, value in exact.items():
        ours = evaluation.scores["alpha"][name]
        assert ours.value == pytest.approx(value, abs=ours.within + 1e-11)
    repeated = fold(source, td.Tally(["alpha", "energy"]), memory=10**10).evaluate()
    assert repeated.to_json() == evaluation.to_json()
    sketches = fold(source, CalibrationSketch(find_score("alpha"), "predicted"))
    score_sketch = td.Sketch()
    score_sketch.update(td.alpha(p), p.errors)
    assert sketches.pooled.to_bytes() == score_sketch.to_bytes()
    for label, sketch in sketches.groups.items():
        rows_of = p[p.predicted == label]
        coarse = td.Sketch(cells=CELLS // 4)
        coarse.update(td.alpha(rows_of), rows_of.errors)
        assert sketch.to_bytes() == coarse.to_bytes()
    assert sum(map(len, sketches.groups.values())) == len(p)


def test_rows_without_a_label_are_left_out_of_the_rates(tmp_path):
    table = rows(1000).with_columns(
        pl.when(pl.col("x") < 0.5).then("label").alias("label")
    )
    table.write_parquet(tmp_path / "a.parquet")
    source = find_source(tmp_path / "a.parquet")
    labelled = table.filter(pl.col("label").is_not_null())
    labelled.write_parquet(tmp_path / "known.parquet")
    alone = find_source(tmp_path / "known.parquet")
    outcome = screen(source, GATE, None)
    assert outcome.rows == 1000
    assert outcome.counts == screen(alone, GATE, None).counts
    assert outcome.intake.unlabelled == 1000 - len(labelled)
    evaluation, expected = (fold(s, td.Tally()).evaluate() for s in (source, alone))
    assert evaluation.scores == expected.scores
    assert "of 1,000 rows have no label" in evaluation.warnings[0]


def test_a_column_that_is_taken_is_not_overwritten(tmp_path):
    rows(10).with_columns(score=1.0).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileError, match="already has a column 'score'"):
        screen(find_source(tmp_path / "a.parquet"), GATE, tmp_path / "b.parquet")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [20_000, 1_000])
def test_row_groups_may_be_larger_than_the_memory(size, tmp_path):
    z = np.random.default_rng(0).normal(size=(20_000, 500)).astype(np.float32)
    path, out = tmp_path / "a.parquet", tmp_path / "out.npz"
    pl.DataFrame({"logits": z}).write_parquet(path, row_group_size=size)
    outcome = screen(find_source(path), GATE, out, means=within(6 * 10**8))
    assert outcome.rows == 20_000
    with np.load(out) as decisions:
        assert np.array_equal(decisions["score"], td.alpha(z))


def test_engines_are_found_by_name():
    assert find_engine("local").name == "local"
    for name in ("spark", "ray=", "spark=1", ""):
        with pytest.raises(InputError, match="expected an engine out of local, ray"):
            find_engine(name)
    with pytest.raises(InputError, match="the engine local has no address"):
        find_engine("local=1")


def split(folder, n_files=4):
    """Write rows as a partitioned folder of files."""
    table = rows(80_000)
    for i in range(n_files):
        inner = folder / f"day={i // 2}"
        inner.mkdir(parents=True, exist_ok=True)
        table[i * 20_000 : (i + 1) * 20_000].write_parquet(inner / f"{i}.parquet")
    return table


def content(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*.parquet"))
    }


def test_a_folder_resumes_where_it_stopped(tmp_path):
    table = split(tmp_path / "in")
    source = find_source(tmp_path / "in")
    once = screen(source, GATE, tmp_path / "once")
    assert list(content(tmp_path / "once")) == list(content(tmp_path / "in"))
    out = tmp_path / "out"
    screen(source, GATE, out)
    removed = out / "day=1" / "2.parquet"
    removed.unlink()
    finished = out / "day=0" / "1.parquet"
    before = finished.stat().st_mtime_ns
    resumed = screen(source, GATE, out, resume=True)
    assert content(out) == content(tmp_path / "once")
    assert finished.stat().st_mtime_ns == before
    assert resumed == once
    assert once.rows == len(table)
    changed = tmp_path / "in" / "day=0" / "0.parquet"
    rows(20_000, seed=9).write_parquet(changed)
    screen(find_source(tmp_path / "in"), GATE, out, resume=True)
    assert content(out) != content(tmp_path / "once")
    with pytest.raises(FileError, match="another gate"):
        screen(source, td.Gate(0.1, score="alpha"), out, resume=True)
    (out / JOURNAL).write_text("nonsense")
    with pytest.raises(FileError, match="cannot read the journal"):
        screen(source, GATE, out, resume=True)


def test_outputs_that_cannot_be_are_refused_before_any_work(tmp_path):
    split(tmp_path / "in")
    source = find_source(tmp_path / "in")
    for inside in ("in", "in/out", "in/out.parquet"):
        with pytest.raises(OutputError, match="lies among the inputs"):
            screen(source, GATE, tmp_path / inside)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="it is not a folder"):
        screen(source, GATE, tmp_path / "file")
    with pytest.raises(InputError, match="--resume"):
        screen(source, GATE, tmp_path / "a.parquet", resume=True)


def test_a_journal_of_another_run_is_forgotten(tmp_path):
    split(tmp_path / "in")
    source, out = find_source(tmp_path / "in"), tmp_path / "out"
    screen(source, GATE, out)
    first = content(out)
    other = td.Gate(2.0, score="alpha")
    (tmp_path / "in" / "day=1" / "2.parquet").rename(tmp_path / "away")
    (tmp_path / "in" / "day=1" / "2.parquet").write_bytes(b"damaged")
    with pytest.raises(FileError):
        screen(find_source(tmp_path / "in"), other, out)
    (tmp_path / "away").rename(tmp_path / "in" / "day=1" / "2.parquet")
    screen(source, GATE, out, resume=True)
    assert content(out) == first


def test_an_empty_file_of_a_folder_is_screened_as_well(tmp_path):
    (tmp_path / "in").mkdir()
    rows(10).write_parquet(tmp_path / "in" / "a.parquet")
    rows(10)[:0].write_parquet(tmp_path / "in" / "b.parquet")
    outcome = screen(find_source(tmp_path / "in"), GATE, tmp_path / "out")
    assert outcome.rows == 10
    tables = [pl.read_parquet(tmp_path / "out" / f"{n}.parquet") for n in "ab"]
    assert tables[0].schema == tables[1].schema
    assert len(tables[1]) == 0


def test_labels_next_to_an_array_belong_to_it(tmp_path):
    (tmp_path / "in").mkdir()
    z = np.random.default_rng(0).normal(size=(50, 3))
    np.save(tmp_path / "in" / "logits.npy", z)
    np.save(tmp_path / "in" / "labels.npy", z.argmax(1))
    source = find_source(tmp_path / "in")
    right = screen(source, GATE, tmp_path / "out")
    np.save(tmp_path / "in" / "labels.npy", z.argmin(1))
    wrong = screen(source, GATE, tmp_path / "out", resume=True)
    assert right.counts.accepted_errors == 0
    assert wrong.counts.accepted_correct == 0


def run_screen(*arguments):
    command = [sys.executable, "-m", "trustdoctor", "screen", *map(str, arguments)]
    return subprocess.Popen([*command, "--threshold", "-0.5", "--quiet"])


@pytest.mark.soak
def test_kill_9_leaves_no_file_or_the_finished_one(big, tmp_path):
    finished = tmp_path / "whole.parquet"
    assert run_screen(big, "-o", finished).wait() == 0
    chance, outcomes, leftovers = random.Random(0), [], []
    for i in range(20):
        out, before = tmp_path / f"{i}.parquet", set(tmp_path.iterdir())
        job = run_screen(big, "-o", out)
        while job.poll() is None and set(tmp_path.iterdir()) == before:
            time.sleep(0.002)  # until it has begun to write
        time.sleep(chance.uniform(0, 0.12))
        job.kill()
        job.wait()
        outcomes.append(out.exists())
        leftovers.append(set(tmp_path.iterdir()) - before - {out})
        if out.exists():
            assert out.read_bytes() == finished.read_bytes()
    assert not all(outcomes)
    stopped = outcomes.index(False)
    assert leftovers[stopped]
    assert run_screen(big, "-o", tmp_path / f"{stopped}.parquet").wait() == 0
    assert not leftovers[stopped] & set(
        tmp_path.iterdir()
    )  # what the kill left is gone


@pytest.mark.soak
def test_a_killed_run_over_a_folder_resumes_to_the_same_bytes(tmp_path):
    split(tmp_path / "in", 4)
    assert run_screen(tmp_path / "in", "-o", tmp_path / "once").wait() == 0
    chance = random.Random(1)
    for _ in range(4):
        job = run_screen(tmp_path / "in", "-o", tmp_path / "out", "--resume")
        time.sleep(chance.uniform(0.4, 1.0))
        job.kill()
        job.wait()
        for name, bytes_ in (
            content(tmp_path / "out").items() if (tmp_path / "out").exists() else ()
        ):
            assert Path(name).name.startswith(".") or (
                content(tmp_path / "once")[name] == bytes_
            )
    assert run_screen(tmp_path / "in", "-o", tmp_path / "out", "--resume").wait() == 0
    finished = {
        n: b
        for n, b in content(tmp_path / "out").items()
        if not Path(n).name.startswith(".")
    }
    assert finished == content(tmp_path / "once")
