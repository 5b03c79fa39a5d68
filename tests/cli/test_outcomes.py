"""What screen writes, and where: columns, parts of the rows, standard output."""

import io

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor import engines, files

NAMES = ["cat", "dog", "horse"]


@pytest.fixture
def rows(tmp_path, rng):
    z = rng.normal(size=(400, 3)) * 2
    labels = np.where(rng.random(400) < 0.8, z.argmax(1), rng.integers(0, 3, 400))
    table = pl.DataFrame(
        {f"logit_{name}": z[:, i] for i, name in enumerate(NAMES)}
    ).with_columns(pl.Series("label", [NAMES[i] for i in labels]))
    table.write_csv(tmp_path / "rows.csv")
    return table


def decided(rows):
    z = rows.select(pl.exclude("label")).to_numpy()
    return z.argmax(1), td.alpha(z), td.alpha(z) <= np.log(0.5)


def test_predicted_has_the_names_of_classes(rows, run, tmp_path):
    completed = run("screen", "rows.csv", "--gamma", "0.5", "-o", "d.csv", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    predicted, scores, accepted = decided(rows)
    decisions = pl.read_csv(tmp_path / "d.csv")
    assert decisions.columns == [*rows.columns, "predicted", "score", "accepted"]
    assert decisions["predicted"].to_list() == [NAMES[i] for i in predicted]
    assert decisions["accepted"].to_list() == accepted.tolist()
    assert np.array_equal(decisions["score"].to_numpy(), scores)


def test_an_existing_column_predicted_is_kept(rows, run, tmp_path):
    rows_with_predicted = rows.with_columns(predicted=pl.lit("by me"))
    rows_with_predicted.write_parquet(tmp_path / "own.parquet")
    completed = run(
        "screen", "own.parquet", "--gamma", "1", "-o", "d.csv", cwd=tmp_path
    )
    assert completed.returncode == 0, completed.stderr
    decisions = pl.read_csv(tmp_path / "d.csv")
    assert decisions.columns == [*rows_with_predicted.columns, "score", "accepted"]
    assert set(decisions["predicted"]) == {"by me"}


@pytest.mark.parametrize("only", ["accepted", "rejected"])
def test_only_a_part_of_the_rows_is_written(only, rows, run, tmp_path):
    _, _, accepted = decided(rows)
    kept_rows = accepted if only == "accepted" else ~accepted
    options = ("--gamma", "0.5", "--only", only)
    for output in ("d.csv", "d.parquet", "d.jsonl", "d.arrow", "d.tsv", "d.csv.gz"):
        completed = run("screen", "rows.csv", *options, "-o", output, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert f"Accepted {accepted.sum()} of 400" in completed.stdout
        written = files.read(tmp_path / output)
        assert len(written) == kept_rows.sum()
        assert np.array_equal(
            written.logits, files.read(tmp_path / "rows.csv")[kept_rows].logits
        )


def test_only_over_a_folder_and_its_journal(rows, tmp_path):
    (tmp_path / "in").mkdir()
    rows[:250].write_parquet(tmp_path / "in" / "a.parquet")
    rows[250:].write_parquet(tmp_path / "in" / "b.parquet")
    source = files.find_source(tmp_path / "in")
    gate, out = td.Gate.from_gamma(0.5), tmp_path / "out"
    _, _, accepted = decided(rows)
    counts = engines.screen(source, gate, out, only="rejected")
    assert (counts.rows, counts.accepted) == (400, accepted.sum())
    decisions = pl.concat([pl.read_parquet(out / f"{n}.parquet") for n in "ab"])
    assert len(decisions) == (~accepted).sum()
    resumed = engines.screen(source, gate, out, only="rejected", resume=True)
    assert resumed == counts
    with pytest.raises(td.errors.FileError, match="another gate or other columns"):
        engines.screen(source, gate, out, only="accepted", resume=True)


def test_decisions_go_to_standard_output_alone(rows, run, tmp_path):
    _, _, accepted = decided(rows)
    options = ("--gamma", "0.5", "--only", "rejected", "-o", "-")
    completed = run("screen", "rows.csv", *options, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    decisions = pl.read_csv(io.StringIO(completed.stdout))
    assert len(decisions) == (~accepted).sum()
    assert "Accepted" in completed.stderr
    assert run("screen", "rows.csv", *options, "-q", cwd=tmp_path).stderr == ""


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--only", "some", "-o", "d.csv"), "accepted or rejected"),
        (("--only", "rejected"), "Give -o FILE"),
        (("--only", "rejected", "-o", "d.npz"), "Choose .csv or .parquet"),
        (("-o", "-", "--json", "-"), "one result on standard output"),
    ],
)
@pytest.mark.usefixtures("rows")
def test_parts_that_cannot_be_written_are_refused(options, word, run, tmp_path):
    completed = run("screen", "rows.csv", "--gamma", "1", *options, cwd=tmp_path)
    assert completed.returncode == 2
    assert word in completed.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"rows.csv"}


def test_a_threshold_on_a_confidence_is_the_least_one_accepted(run, tmp_path, rng):
    confidence = rng.random(300).round(3)
    table = pl.DataFrame({"c": confidence, "correct": rng.random(300) < confidence})
    table.write_csv(tmp_path / "c.csv")
    column = ("--confidence", "c")
    options = ("--threshold", "0.8", *column)
    completed = run("screen", "c.csv", *options, "-o", "d.csv", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "by confidence of 0.8 or more" in completed.stdout
    decisions = pl.read_csv(tmp_path / "d.csv")
    assert decisions["accepted"].to_list() == (confidence >= 0.8).tolist()
    completed = run("calibrate", "c.csv", *options, "-o", "g.json", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "reject where confidence < 0.8" in completed.stdout
    gate = td.Gate.load(tmp_path / "g.json")
    accepted = gate.screen(td.Predictions.from_confidence(confidence)).accepted
    assert np.array_equal(accepted, confidence >= 0.8)
