"""Rows of groups that a gate does not know are counted and reported."""

import numpy as np
import polars as pl
import pytest
from file_kinds import IN_MEMORY, STREAMED

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.files import Columns, find_source

GROUPS = Columns(groups="region")


def rows(regions, seed=0):
    rng = np.random.default_rng(seed)
    n = len(regions)
    z = 2 * rng.normal(size=(n, 3))
    labels = np.where(rng.random(n) < 0.8, z.argmax(1), rng.integers(0, 3, n))
    named = {f"logit_{j}": z[:, j] for j in range(3)}
    return pl.DataFrame(named | {"label": labels, "region": regions})


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "known.csv"
    rows([f"r{i % 3}" for i in range(600)]).write_csv(path)
    calibrated = engines.calibrate_files(
        find_source(path, GROUPS), groups="given", frr=0.2
    )
    calibrated.save(tmp_path / "gate.json")
    return calibrated


REGIONS = [f"r{i % 5}" for i in range(1000)]
STRANGE = int(np.isin(REGIONS, ["r3", "r4"]).sum())


@pytest.mark.parametrize("means", [IN_MEMORY, STREAMED])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_unknown_groups_are_counted_in_every_batch(suffix, means, gate, tmp_path):
    table, path = rows(REGIONS, seed=1), tmp_path / f"new{suffix}"
    if suffix == ".csv":
        table.write_csv(path)
    else:
        table.write_parquet(path, row_group_size=90)
    source = find_source(path, GROUPS)
    for out in (None, tmp_path / "out.parquet"):
        outcome = engines.screen(source, gate, out, means=means)
        assert outcome.intake.unknown_groups == STRANGE == 400
        assert outcome.intake.rows == outcome.rows == 1000
    decided = pl.read_parquet(tmp_path / "out.parquet")
    strange = decided.filter(pl.col("region").is_in(["r3", "r4"]))
    accepted = strange["score"] <= gate.threshold  # that of all
    assert strange["accepted"].equals(accepted, check_names=False)


def test_a_journal_keeps_them(gate, tmp_path):
    (tmp_path / "in").mkdir()
    table = rows(REGIONS, seed=1)
    for i in range(4):
        table[i * 250 : (i + 1) * 250].write_parquet(tmp_path / "in" / f"{i}.parquet")
    source, out = find_source(tmp_path / "in", GROUPS), tmp_path / "out"
    first = engines.screen(source, gate, out)
    assert first.intake.unknown_groups == STRANGE
    (out / "2.parquet").unlink()
    repeated = engines.screen(source, gate, out, resume=True)
    assert repeated == first
    resumed = engines.screen(source, gate, out, resume=True)
    assert resumed == first


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        (REGIONS, "400 of 1,000 rows are of groups that the gate does not know"),
        (
            ["r0"] * 99 + ["x"],
            "1 of 100 rows is of a group that the gate does not know",
        ),
        (["r0"] * 99 + ["r1"], None),
    ],
)
@pytest.mark.usefixtures("gate")
def test_screen_says_it(regions, words, run, tmp_path):
    rows(regions, seed=1).write_csv(tmp_path / "new.csv")
    for output in ((), ("-o", "out.csv"), ("-o", "-")):
        options = ("--gate", "gate.json", "--groups", "region", *output)
        completed = run("screen", "new.csv", *options, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        text = " ".join((completed.stdout + completed.stderr).split())
        assert ("that the gate does not know" in text) is bool(words)
        assert words is None or words in text


def test_classes_that_a_gate_has_not_seen_are_strange():
    p = td.Predictions.from_logits(
        rows(REGIONS).select("^logit_.$").to_numpy(), rows(REGIONS)["label"].to_numpy()
    )
    known_classes = p[p.predicted != 2]
    gate = td.calibrate(known_classes, groups="predicted", frr=0.2)
    assert set(gate.groups) == {0, 1}
    _, outcome = engines.BatchScreen(gate)(p)
    assert outcome.intake.unknown_groups == int((p.predicted == 2).sum()) > 0
    _, outcome = engines.BatchScreen(gate)(known_classes)
    assert outcome.intake.unknown_groups == 0
