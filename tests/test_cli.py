import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import trustdoctor
from trustdoctor import cli

COMMAND = [str(Path(sys.executable).with_name("trustdoctor"))]


def run(*arguments, env=None, cwd=None):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
        cwd=cwd,
        check=False,
    )


@pytest.fixture
def probs(tmp_path, rng):
    p = rng.dirichlet([1, 1, 1], 400)
    label = np.where(rng.random(400) < 0.7, p.argmax(1), 0)
    path = tmp_path / "preds.csv"
    table = {"id": np.arange(400), **{f"prob_{i}": p[:, i] for i in range(3)}}
    pl.DataFrame({**table, "label": label}).write_csv(path)
    return path


def test_demo_prints_the_verdict_in_80_columns():
    done = run("demo")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "accuracy 89.93" in done.stdout
    assert re.search(r"alpha +91\.09 \[90\.34, 91\.85\] +30\.01", done.stdout)
    assert "instead of 10.1%" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_demo_writes_json(tmp_path):
    done = run("demo", "--quiet", "--json", tmp_path / "r.json")
    assert (done.returncode, done.stdout) == (0, "")
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["n_errors"] == 1007


def test_diagnose_reads_scores_temperature_and_prints_json(probs):
    done = run("diagnose", probs, "--score", "gen", "--temperature", 2, "--json", "-")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert list(content["scores"]) == ["gen"]
    assert content["settings"]["temperature"] == 2


def test_diagnose_compares_all_scores(probs):
    done = run("diagnose", probs, "--score", "all")
    assert done.returncode == 0, done.stderr
    assert "margin" in done.stdout
    assert "energy" not in done.stdout


@pytest.mark.parametrize("label", [0, 1])
def test_diagnose_speaks_plainly_of_one_kind_of_rows(label, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(f"prob_0,prob_1,label\n0.9,0.1,{label}\n0.8,0.2,{label}\n")
    done = run("diagnose", path)
    assert done.returncode == 0, done.stderr
    assert f"All 2 predictions are {'wrong' if label else 'correct'}" in done.stdout


def test_screen_adds_columns_and_counts(probs, tmp_path):
    out = tmp_path / "out.parquet"
    done = run(
        "screen", probs, "--gamma", 0.8, "-o", out, "--json", tmp_path / "s.json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    table = pl.read_parquet(out)
    assert table.columns[0] == "id"
    assert (
        table["accepted"].sum() == summary["accepted"] == summary["fa"] + summary["ta"]
    )
    assert f"Accepted {summary['accepted']} of 400" in done.stdout
    assert "errors caught (TRR)" in done.stdout
    assert np.array_equal(table["accepted"], table["score"] <= np.log(0.8))


def test_screen_without_labels_and_by_threshold(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("logit_0,logit_1\n5,0\n0.1,0\n")
    done = run("screen", path, "--threshold", "-2", "--score", "margin")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Accepted 1 of 2 predictions (50.0%) by margin at threshold -2.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["diagnose", "absent.csv"], "no file"),
        (["diagnose", "x.txt"], "expected a file in"),
        (["diagnose", "{probs}", "--score", "magic"], "magic"),
        (["diagnose", "{probs}", "--score", "energy"], "needs true logits"),
        (["diagnose", "{probs}", "--temperature", "0"], "temperature"),
        (["diagnose", "{probs}", "--logits", "prob_"], "all rows are probabilities"),
        (["diagnose", "{probs}", "--labels", "truth"], "no 'truth'"),
        (["diagnose", "{probs}", "--json", "no/folder/r.json"], "cannot write"),
        (["diagnose", "{probs}", "--json", "{probs}"], "the input itself"),
        (["screen", "{probs}", "--gamma", "1", "-o", "{probs}"], "the input itself"),
        (["screen", "{probs}", "--gamma", "1", "--json", "x" * 300], "cannot write"),
        (["screen", "{probs}"], "one of --gate, --gamma"),
        (["screen", "{probs}", "--gamma", "1", "--threshold", "1"], "Give one"),
        (["screen", "{probs}", "--gate", "absent.json"], "cannot read the gate"),
        (["screen", "{probs}", "--gate", "{probs}"], "expected a gate as JSON"),
        (["calibrate", "{probs}", "-o", "g.json"], "one target"),
        (["calibrate", "{probs}", "--frr", "5", "-o", "g.json"], "between 0 and 1"),
        (["calibrate", "{probs}", "--frr", "0.1", "-o", "{probs}"], "input itself"),
        (
            [
                "calibrate",
                "{probs}",
                "--risk",
                "0.1",
                "--mode",
                "expectation",
                "-o",
                "g.json",
            ],
            "no rule for risk",
        ),
        (
            ["calibrate", "{probs}", "--no-labels", "--joint", "0.1", "-o", "g.json"],
            "alone",
        ),
        (
            [
                "calibrate",
                "{probs}",
                "--frr",
                "0.1",
                "--accuracy",
                "0.9",
                "-o",
                "g.json",
            ],
            "--no-labels",
        ),
        (["check", "{probs}", "--gate", "absent.json", "--state", "w"], "cannot read"),
        (["screen", "{probs}", "--gamma", "-1"], "gamma"),
        (["screen", "{probs}", "--gamma", "1", "--score", "margin"], "--threshold"),
        (["screen", "{probs}", "--gamma", "1", "-o", "out.txt"], "expected an output"),
        (
            ["screen", "{probs}", "--gamma", "1", "-o", "no/folder/o.csv"],
            "cannot write",
        ),
    ],
)
def test_mistakes_end_in_one_line_and_exit_code_2(arguments, match, probs, tmp_path):
    done = run(*[a.format(probs=probs) for a in arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert match in done.stderr
    assert done.stderr.startswith("trustdoctor: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == [probs]


def test_nothing_is_written_when_one_of_two_outputs_cannot_be(probs, tmp_path):
    done = run(
        "screen", probs, "--gamma", 1, "-o", tmp_path / "o.csv", "--json", "/no/x.json"
    )
    assert done.returncode == 2
    assert not (tmp_path / "o.csv").exists()


def test_a_full_disk_behind_the_output_is_the_users_to_mend(probs):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "diagnose", probs],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert b"cannot write the output" in done.stderr


def test_an_infinite_threshold_is_valid_json(probs):
    done = run("screen", probs, "--threshold", "inf", "--json", "-")
    content = json.loads(done.stdout, parse_constant=pytest.fail)
    assert content["accepted"] == 400


def test_paths_are_printed_as_they_are(probs, tmp_path):
    done = run("screen", probs, "--gamma", 1, "-o", "[red]o.csv", cwd=tmp_path)
    assert done.stdout.endswith("Wrote [red]o.csv\n")


def test_demo_takes_scores_and_temperature():
    done = run("demo", "--score", "gen", "--score", "all", "-T", 2)
    assert done.returncode == 0
    assert done.stdout.index("gen ") < done.stdout.index("alpha ")


def test_calibrate_screen_and_check_work_together(probs, tmp_path):
    gate, state = tmp_path / "gate.json", tmp_path / "watch.json"
    done = run("calibrate", probs, "--frr", 0.1, "--confidence", 0.95, "-o", gate)
    assert done.returncode == 0, done.stderr
    assert (
        "at most 10% of the correct predictions rejected, with confidence"
        in done.stdout
    )
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80  # the last is a path
    out = tmp_path / "decided.parquet"
    done = run("screen", probs, "--gate", gate, "-o", out)
    assert done.returncode == 0, done.stderr
    table = pl.read_parquet(out)
    loaded = trustdoctor.Gate.load(gate)
    assert table["accepted"].to_list() == (table["score"] <= loaded.threshold).to_list()
    assert table.columns[:1] == ["id"]
    for n in (400, 800):
        done = run("check", probs, "--gate", gate, "--state", state)
        assert done.returncode == 0, done.stderr
        assert "nothing to report" in done.stdout
        assert json.loads(state.read_text())["tallies"]["accepted"]["n"] == n


def test_calibrate_for_classes_and_without_labels(probs, tmp_path):
    gate = tmp_path / "gate.json"
    done = run("calibrate", probs, "--coverage", 0.8, "--per-class", "-o", gate)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 groups have their own promise" in done.stdout
    assert done.stdout.startswith("Promise, in each group that has one: ")
    assert run("screen", probs, "--gate", gate).returncode == 0
    assert (
        run("check", probs, "--gate", gate, "--state", tmp_path / "w").returncode == 0
    )
    done = run("calibrate", probs, "--risk", 0.2, "--no-labels", "-o", gate)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NO GUARANTEE: at most 20% errors among the accepted")
    done = run("screen", probs, "--gate", gate)
    assert "no guarantee" in done.stdout


def test_check_takes_labels_late_and_in_part(probs, tmp_path):
    gate, state = tmp_path / "gate.json", tmp_path / "watch.json"
    run("calibrate", probs, "--frr", 0.1, "-o", gate)
    table = pl.read_csv(probs)
    half = tmp_path / "half.csv"
    known = pl.when(pl.int_range(400) % 2 == 0).then("label")
    table.with_columns(known.alias("label")).write_csv(half)

    def counted(*arguments):
        done = run("check", *arguments, "--gate", gate, "--state", state)
        assert done.returncode == 0, done.stderr
        tallies = json.loads(state.read_text())["tallies"]
        return tallies["accepted"]["n"], tallies["frr"]["n"]

    n, some = counted(half)
    assert n == 400
    assert 0 < some < 400
    n, all_of_them = counted(probs, "--late")
    assert n == 400
    assert all_of_them > some
    bad = tmp_path / "bad.csv"
    table.with_columns(pl.lit("cat").alias("label")).write_csv(bad)
    done = run("check", bad, "--gate", gate, "--state", state)
    assert done.returncode == 2
    assert "'cat'" in done.stderr
    none = tmp_path / "none.csv"
    table.drop("label").write_csv(none)
    assert run("check", none, "--gate", gate, "--state", state).returncode == 0
    done = run("check", none, "--gate", gate, "--state", state, "--late")
    assert done.returncode == 2
    done = run("check", probs, "--gate", gate, "--state", state, "--level", 0.5)
    assert done.returncode == 2
    assert "begun at level 0.1" in done.stderr
    done = run("screen", half, "--gate", gate)
    assert "some labels are missing or no classes" in done.stdout


def test_gates_for_other_groups_are_refused(probs, tmp_path, rng):
    scores = rng.normal(size=400)
    groups = np.arange(400) % 2
    gate = trustdoctor.calibrate(
        scores, rng.random(400) < 0.5, frr=0.1, groups=groups, score="alpha"
    )
    gate.save(tmp_path / "gate.json")
    for command in (["screen"], ["check", "--state", tmp_path / "w.json"]):
        done = run(*command, probs, "--gate", tmp_path / "gate.json")
        assert done.returncode == 2
        assert "groups of its own" in done.stderr


@pytest.mark.parametrize("target", ["--frr", "--trr", "--risk", "--joint"])
@pytest.mark.parametrize("label", [0, 1])
def test_calibrating_on_three_rows_gives_the_plain_answer(target, label, tmp_path):
    path = tmp_path / "p.csv"
    rows = "".join(f"0.{k},0.{10 - k},{label}\n" for k in (9, 8, 7))
    path.write_text("prob_0,prob_1,label\n" + rows)
    rate = 0.95 if target == "--trr" else 0.05
    done = run("calibrate", path, target, rate, "-o", tmp_path / "gate.json")
    assert done.returncode == 0, done.stderr
    assert re.search(r"(accept|reject) all: ", done.stdout)
    assert run("screen", path, "--gate", tmp_path / "gate.json").returncode == 0


def test_diagnose_needs_labels(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("prob_0,prob_1\n0.9,0.1\n")
    done = run("diagnose", path)
    assert done.returncode == 2
    assert "label" in done.stderr


@pytest.mark.parametrize("arguments", [["nonsense"], ["diagnose"], ["demo", "--what"]])
def test_wrong_usage_is_exit_code_2(arguments):
    assert run(*arguments).returncode == 2


def test_a_failure_of_ours_is_exit_code_1(monkeypatch, capsys):
    def fail():
        message = "a bug\nin two lines"
        raise RuntimeError(message)

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert "internal error, RuntimeError: a bug in two lines" in error
    assert error.count("\n") == 1


def test_version_and_help():
    assert run("--version").stdout == f"trustdoctor {trustdoctor.__version__}\n"
    for command in ([], ["demo"], ["diagnose"], ["screen"]):
        done = run(*command, "--help", env={"COLUMNS": "80"})
        assert done.returncode == 0
        assert max(map(len, done.stdout.splitlines())) <= 80
