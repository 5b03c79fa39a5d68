"""calibrate: a known accuracy, two targets, clusters, and what it says of promises."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td


@pytest.fixture
def table(tmp_path, rng):
    """3,000 rows of 600 patients, as CSV and Parquet."""
    logits = rng.normal(size=(3000, 2)) * 3
    margin = np.abs(logits[:, 0] - logits[:, 1])
    wrong = rng.random(3000) < 0.4 * np.exp(-margin)
    labels = np.where(wrong, 1 - logits.argmax(1), logits.argmax(1))
    frame = pl.DataFrame(
        {
            "logit_0": logits[:, 0],
            "logit_1": logits[:, 1],
            "label": labels,
            "patient": [f"p{k // 5}" for k in range(3000)],
            "video": np.arange(3000) // 3,
            "gap": [None if k == 9 else "x" for k in range(3000)],
        }
    )
    frame.write_parquet(tmp_path / "rows.parquet")
    frame.write_csv(tmp_path / "rows.csv")
    return tmp_path / "rows.csv"


def test_clusters_are_a_column(table, run, tmp_path):
    for name, clusters in (("patient", 600), ("video", 1000)):
        for path in (table, table.with_suffix(".parquet")):
            out = tmp_path / "gate.json"
            options = ("--clusters", name, "--seed", 3, "-o", out)
            completed = run("calibrate", path, "--frr", "10%", *options)
            assert completed.returncode == 0, completed.stderr
            assert f"Calibrated on {clusters:,} rows" in completed.stdout
            assert f"each of {clusters:,} clusters, of 3,000 rows (seed 3)" in (
                " ".join(completed.stdout.split())
            )
            p = td.read(path)
            video_ids = pl.read_csv(table)[name].to_numpy()
            video_ids = video_ids if name == "video" else video_ids.astype(str)
            gate = td.calibrate(p, frr=0.1, clusters=video_ids, seed=3)
            assert td.Gate.load(out).threshold == gate.threshold


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--clusters", "nobody"), "has no 'nobody'; it has logit_0"),
        (("--clusters", "gap"), "column 'gap' has no cluster at row 9"),
        (
            ("--clusters", "patient", "--no-labels"),
            "has no groups, clusters, --on-average",
        ),
        (("--clusters", "patient", "--seed", "-1"), "a seed of 0 or more"),
        (("--accuracy", "0.9"), "--accuracy goes with --no-labels"),
        (("--no-labels", "--accuracy", "90"), "Did you mean 0.9 or 90%?"),
        (("--label-noise", "60%"), "expected label_noise from 0 to below 0.5"),
        (("--passed",), "--passed lists thresholds of --risk without groups"),
        (("--coverage", "0.5"), "or two: frr with trr, or risk with coverage"),
    ],
)
def test_conflicting_options_are_refused(options, match, table, run, tmp_path):
    out = tmp_path / "gate.json"
    completed = run("calibrate", table, "--frr", "10%", *options, "-o", out)
    assert completed.returncode == 2
    assert match in completed.stderr
    assert len(completed.stderr.splitlines()) == 1
    assert not out.exists()


def test_clusters_need_all_rows_at_once(run, tmp_path):
    big = tmp_path / "big.csv"
    big.write_text("logit_0,logit_1,label,patient\n" + 5_000_000 * "1,0,0,a\n")
    options = ("calibrate", big, "--frr", "5%", "--clusters", "patient")
    completed = run(*options, "--memory", "1GB", "-o", tmp_path / "gate.json")
    assert completed.returncode == 2
    assert "--clusters needs all rows at once" in completed.stderr


def test_labels_that_may_be_wrong_tighten_the_test(table, run, tmp_path):
    out = tmp_path / "gate.json"
    completed = run(
        "calibrate", table, "--risk", "5%", "--label-noise", "5%", "-o", out
    )
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert "Up to 5% of the labels may be wrong" in text
    assert "risk was tested at 4.75% instead of 5%" in text
    gate = td.calibrate(td.read(table), risk=0.05, label_noise=0.05)
    assert td.Gate.load(out) == gate
    assert gate.threshold == td.calibrate(td.read(table), risk=0.0475).threshold


def test_an_external_accuracy_replaces_labels(table, run, tmp_path):
    out = tmp_path / "gate.json"
    command = ("calibrate", table, "--no-labels", "--risk", "5%", "--accuracy", "0.8")
    completed = run(*command, "-o", out)
    assert "to match the accuracy" in " ".join(completed.stdout.split())


def test_two_targets_and_the_thresholds_that_passed(table, run, tmp_path):
    out = tmp_path / "gate.json"
    options = ("--risk", "5%", "--coverage", "40%", "--passed", "-o", out)
    completed = run("calibrate", table, *options)
    assert completed.returncode == 0, completed.stderr
    assert (
        "at most 5% errors among the accepted and at least 40% of" in completed.stdout
    )
    assert "Thresholds that passed" in completed.stdout
    assert "p-value  at most" in completed.stdout
    assert (
        "over calibrations: repeated on new rows, at least 90 of 100"
        in completed.stdout
    )
    completed = run("calibrate", table, "--risk", "1%", "--frr", "1%", "-o", out)
    assert completed.returncode == 3
    assert "no threshold does both: FRR needs at least" in completed.stderr


def test_luck_and_duplicate_rows_are_reported(run, tmp_path):
    doubt = np.arange(500.0)
    right = ~((doubt >= 250) & (doubt % 3 == 0))
    path = tmp_path / "rows.csv"
    frame = {"id": np.arange(500) // 2, "doubt": doubt, "correct": right}
    pl.DataFrame(frame).write_csv(path)
    out = tmp_path / "gate.json"
    named = ("--doubt", "doubt", "--correct", "correct", "--ids", "id", "-o", out)
    completed = run("calibrate", path, "--risk", "1%", *named)
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert "it passed with no error among 252 accepted rows" in text
    assert "250 rows repeat the id of an earlier row" in text
    assert "--clusters NAME" in text
    assert td.Gate.load(out).certificate.passed_by_chance


def test_groups_that_are_too_small_promise_nothing(table, run, tmp_path):
    out = tmp_path / "gate.json"
    completed = run("calibrate", table, "--frr", "5%", "--groups", "patient", "-o", out)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("NO GUARANTEE: at most 5%")
    assert "No group has enough rows for a promise" in completed.stdout
