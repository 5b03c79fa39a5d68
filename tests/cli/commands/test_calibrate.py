"""Commands around a gate: calibrate, screen."""

import json
import re

import numpy as np
import polars as pl
import pytest

import trustdoctor as td


def test_screen_adds_columns_and_counts(probs, tmp_path, run):
    out = tmp_path / "out.parquet"
    completed = run(
        "screen", probs, "--gamma", 0.8, "-o", out, "--json", tmp_path / "s.json"
    )
    assert completed.returncode == 0, completed.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    table = pl.read_parquet(out)
    assert table.columns[0] == "id"
    assert (
        table["accepted"].sum()
        == summary["accepted"]
        == summary["accepted_errors"] + summary["accepted_correct"]
    )
    assert f"Accepted {summary['accepted']} of 400" in completed.stdout
    assert "errors caught (TRR)" in completed.stdout
    assert np.array_equal(table["accepted"], table["score"] <= np.log(0.8))


def test_screen_without_labels_and_by_threshold(tmp_path, run):
    path = tmp_path / "p.csv"
    path.write_text("logit_0,logit_1\n5,0\n0.1,0\n")
    completed = run("screen", path, "--threshold", "-2", "--score", "margin")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == (
        "Accepted 1 of 2 predictions (50.0%) by margin at threshold -2.\n"
    )


def test_an_infinite_threshold_is_valid_json(probs, run):
    completed = run("screen", probs, "--threshold", "inf", "--json", "-")
    content = json.loads(completed.stdout, parse_constant=pytest.fail)
    assert content["accepted"] == 400


def test_calibrate_and_screen_work_together(probs, tmp_path, run):
    gate = tmp_path / "gate.json"
    completed = run("calibrate", probs, "--frr", 0.1, "--confidence", 0.95, "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert (
        "at most 10% of the correct predictions rejected, with confidence"
        in completed.stdout
    )
    assert max(map(len, completed.stdout.splitlines()[:-1])) <= 80  # the last is a path
    out = tmp_path / "decided.parquet"
    completed = run("screen", probs, "--gate", gate, "-o", out)
    assert completed.returncode == 0, completed.stderr
    table = pl.read_parquet(out)
    loaded = td.Gate.load(gate)
    assert table["accepted"].to_list() == (table["score"] <= loaded.threshold).to_list()
    assert table.columns[:1] == ["id"]


def test_calibrate_for_classes_and_without_labels(probs, tmp_path, run):
    gate = tmp_path / "gate.json"
    completed = run("calibrate", probs, "--coverage", 0.8, "--per-class", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert "3 of 3 groups have their own promise" in completed.stdout
    assert completed.stdout.startswith("Promise, in each group that has one: ")
    assert run("screen", probs, "--gate", gate).returncode == 0
    assert (
        run("check", probs, "--gate", gate, "--state", tmp_path / "w").returncode == 0
    )
    completed = run("calibrate", probs, "--risk", 0.2, "--no-labels", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(
        "NO GUARANTEE: at most 20% errors among the accepted"
    )
    completed = run("screen", probs, "--gate", gate)
    assert "the gate promises nothing" in completed.stdout


def test_screen_accepts_incomplete_labels(probs, tmp_path, run):
    gate, half = tmp_path / "gate.json", tmp_path / "half.csv"
    run("calibrate", probs, "--frr", 0.1, "-o", gate)
    half_labels = pl.when(pl.int_range(400) % 2 == 0).then("label")
    pl.read_csv(probs).with_columns(half_labels.alias("label")).write_csv(half)
    completed = run("screen", half, "--gate", gate)
    assert completed.returncode == 0, completed.stderr
    labelled = td.read(half).labelled("the test")
    rate = td.Gate.load(gate).screen(labelled).accepted[labelled.errors].mean()
    assert (
        f"errors caught (TRR)              {100 * (1 - rate):.2f} [" in completed.stdout
    )


def test_groups_of_rows_have_separate_thresholds(probs, run, tmp_path):
    gate, out = tmp_path / "gate.json", tmp_path / "out.parquet"
    table = pl.read_csv(probs).with_columns(region=pl.format("r{}", pl.col("id") % 2))
    table.write_csv(probs)
    completed = run("calibrate", probs, "--frr", 0.1, "--groups", "region", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert "2 of 2 groups have their own promise" in completed.stdout
    rules = td.Gate.load(gate).groups
    completed = run("screen", probs, "--gate", gate, "--groups", "region", "-o", out)
    assert completed.returncode == 0, completed.stderr
    decided = pl.read_parquet(out)
    for name, region_rows in decided.group_by("region"):
        expected = region_rows["score"] <= rules[name[0]].threshold
        assert region_rows["accepted"].to_list() == expected.to_list()
    assert rules["r0"].threshold != rules["r1"].threshold
    check = ["check", "--state", tmp_path / "w.json"]
    completed = run(*check, probs, "--gate", gate, "--groups", "region")
    assert completed.returncode == 0, completed.stderr
    for command in (["screen"], check):
        completed = run(*command, probs, "--gate", gate)
        assert completed.returncode == 2
        assert "no groups were given" in completed.stderr
        assert "--groups NAME" in completed.stderr
    completed = run(
        *("calibrate", probs, "--frr", 0.1, "-o", gate),
        *("--groups", "region", "--per-class"),
    )
    assert completed.returncode == 2
    assert "--per-class or --groups" in completed.stderr


@pytest.mark.parametrize("target", ["--frr", "--trr", "--risk", "--joint"])
@pytest.mark.parametrize("label", [0, 1])
def test_calibrating_on_three_rows_gives_the_plain_answer(target, label, tmp_path, run):
    path = tmp_path / "p.csv"
    rows = "".join(f"0.{k},0.{10 - k},{label}\n" for k in (9, 8, 7))
    path.write_text("prob_0,prob_1,label\n" + rows)
    rate = 0.95 if target == "--trr" else 0.05
    command = ("calibrate", path, target, rate, "-o", tmp_path / "gate.json")
    completed = run(*command)
    assert (completed.returncode, completed.stdout) == (3, "")
    assert re.search(r"would (accept|reject) all: ", completed.stderr)
    assert completed.stderr.count("\n") == 1
    assert not (tmp_path / "gate.json").exists()
    completed = run(*command, "--allow-trivial")
    assert completed.returncode == 0, completed.stderr
    assert re.search(r"(accept|reject) all: ", completed.stdout)
    assert run("screen", path, "--gate", tmp_path / "gate.json").returncode == 0


@pytest.mark.parametrize("quiet", [(), ("--quiet",)], ids=str)
def test_a_gate_that_decides_nothing_advises_a_better_target(quiet, tmp_path, run, rng):
    gate, path = tmp_path / "gate.json", tmp_path / "p.npz"
    gate.write_text("what was there before")
    z = rng.normal(size=(400, 3)) * 2
    odds = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (odds.cumsum(1) > rng.random((400, 1))).argmax(1)
    np.savez(path, logits=z, labels=labels)
    completed = run("calibrate", path, "--risk", "0.1%", "-o", gate, *quiet)
    assert (completed.returncode, completed.stdout) == (3, "")
    assert gate.read_text() == "what was there before"
    advice = re.search(
        r"Tried on these rows, so optimistic: --risk (\S+) would accept (\d+)% of them",
        completed.stderr,
    )
    p = td.read(path)
    better = td.calibrate(p, risk=float(advice[1]))
    assert round(100 * better.screen(p).accepted.mean()) == int(advice[2])
    assert completed.stderr.endswith("--allow-trivial writes it.\n")
    completed = run("calibrate", path, "--risk", "0.1%", "-o", gate, "--allow-trivial")
    assert completed.returncode == 0
    assert "Tried on these rows, so optimistic" in completed.stdout
    assert td.Gate.load(gate).state == "reject-all"


@pytest.mark.parametrize(
    "options",
    [
        ("--cost", 1),
        ("--coverage", 0.9999),
        ("--risk", 0.001, "--no-labels"),
        ("--trr", 0.9999, "--per-class"),
        ("--frr", "1%", "--trr", "99%"),
    ],
    ids=str,
)
def test_every_target_may_end_in_exit_code_3(options, tmp_path, run):
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], 90)
    label = np.where(rng.random(90) < 0.7, p.argmax(1), (p.argmax(1) + 1) % 3)
    columns = {f"prob_{i}": p[:, i] for i in range(3)} | {"label": label}
    path, gate = tmp_path / "p.csv", tmp_path / "gate.json"
    pl.DataFrame(columns).write_csv(path)
    completed = run("calibrate", path, *options, "-o", gate)
    assert completed.returncode == 3, (completed.stdout, completed.stderr)
    assert "tried on these rows" in completed.stderr.lower()
    assert not gate.exists()
    completed = run("calibrate", path, *options, "-o", gate, "--allow-trivial")
    assert completed.returncode == 0, completed.stderr


def test_groups_that_decide_are_written_though_the_pooled_rule_does_not(tmp_path, run):
    """All errors are in one group, where their rank is known; pooled they are few."""
    rng = np.random.default_rng(0)
    n = 2000
    z = np.stack([rng.exponential(3, n), np.zeros(n)], 1)
    region = np.where(np.arange(n) < 1000, "a", "b")
    labels = np.where((region == "a") & (z[:, 0] < 0.5), 1, 0)
    columns = {"logit_0": z[:, 0], "logit_1": z[:, 1], "label": labels}
    path, gate = tmp_path / "p.csv", tmp_path / "gate.json"
    pl.DataFrame(columns | {"region": region}).write_csv(path)
    command = ("calibrate", path, "--risk", "12%", "-o", gate)
    assert run(*command).returncode == 3
    completed = run(*command, "--groups", "region")
    assert completed.returncode == 0, completed.stderr
    loaded = td.Gate.load(gate)
    assert loaded.state == "accept-all"
    assert {rule.state for rule in loaded.groups.values()} == {
        "threshold",
        "accept-all",
    }


def test_calibrate_says_which_score_ranks_errors_better(tmp_path, run, rng):
    z = rng.normal(size=(3000, 3)) * 3
    labels = np.where(z.max(1) > 1, z.argmax(1), (z.argmax(1) + 1) % 3)
    np.savez(tmp_path / "p.npz", logits=z, labels=labels)
    gate = tmp_path / "gate.json"
    completed = run("calibrate", tmp_path / "p.npz", "--frr", "10%", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert "Careful: on these rows max_logit ranks errors better than alpha" in text
    p = td.Predictions.from_logits(z, labels)
    assert td.Gate.load(gate) == td.calibrate(p, frr=0.1)
    options = ("--score", "max_logit", "--frr", "10%", "-o", gate)
    assert "Careful" not in run("calibrate", tmp_path / "p.npz", *options).stdout
    completed = run("calibrate", tmp_path / "p.npz", *options[2:], "--score", "auto")
    assert "1,000 rows with" in completed.stdout
    assert "errors chose the mean rank by max_logit" in completed.stdout
    assert "Careful" not in completed.stdout
    assert td.Gate.load(gate) == td.calibrate(p, score="auto", frr=0.1)


def test_auto_is_for_calibrate_and_reads_all_rows(probs, run, tmp_path):
    out = ("-o", tmp_path / "gate.json")
    for words, match in (
        (("diagnose", probs, "--score", "auto"), "Use --score all"),
        (("screen", probs, "--threshold", 0, "--score", "auto"), "Name it: --score"),
        (("screen", probs, "--gamma", 1, "--score", "auto"), "Name it: --score"),
        (
            (
                "calibrate",
                probs,
                "--risk",
                "5%",
                "--no-labels",
                "--score",
                "auto",
                *out,
            ),
            "needs labels to choose by",
        ),
    ):
        completed = run(*words)
        assert completed.returncode == 2
        assert match in completed.stderr
    big = tmp_path / "big.csv"
    big.write_text("logit_0,logit_1,label\n" + 5_000_000 * "1,0,0\n")
    command = ("calibrate", big, "--frr", "5%", "--score", "auto", *out)
    completed = run(*command, "--memory", "1GB")
    assert completed.returncode == 2
    assert "--score auto needs all rows at once" in completed.stderr


def test_check_and_screen_take_the_original_layout(run, tmp_path):
    """Columns 0..C-1, label (the prediction) and true_label."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 500)
    true = np.where(rng.random(500) < 0.8, probs.argmax(1), 0)
    columns = {str(j): probs[:, j] for j in range(3)}
    columns |= {"label": probs.argmax(1), "true_label": true}
    pl.DataFrame(columns).write_csv(tmp_path / "rows.csv")
    gate = td.calibrate(td.Predictions.from_probs(probs, true), frr=0.1)
    gate.save(tmp_path / "gate.json")
    arguments = (tmp_path / "rows.csv", "--gate", tmp_path / "gate.json")
    assert run("screen", *arguments).returncode == 0
    assert run("check", *arguments, "--state", tmp_path / "state.json").returncode == 0
    watch = td.Watch.load(tmp_path / "state.json", gate)
    assert watch.tests["frr"].n == (probs.argmax(1) == true).sum()
