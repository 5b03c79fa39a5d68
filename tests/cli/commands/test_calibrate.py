"""Commands around a gate: calibrate, screen."""

import json
import re

import numpy as np
import polars as pl
import pytest

import trustdoctor as td


def test_screen_adds_columns_and_counts(probs, tmp_path, run):
    out = tmp_path / "out.parquet"
    done = run(
        "screen", probs, "--gamma", 0.8, "-o", out, "--json", tmp_path / "s.json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    table = pl.read_parquet(out)
    assert table.columns[0] == "id"
    assert (
        table["accepted"].sum()
        == summary["accepted"]
        == summary["accepted_errors"] + summary["accepted_correct"]
    )
    assert f"Accepted {summary['accepted']} of 400" in done.stdout
    assert "errors caught (TRR)" in done.stdout
    assert np.array_equal(table["accepted"], table["score"] <= np.log(0.8))


def test_screen_without_labels_and_by_threshold(tmp_path, run):
    path = tmp_path / "p.csv"
    path.write_text("logit_0,logit_1\n5,0\n0.1,0\n")
    done = run("screen", path, "--threshold", "-2", "--score", "margin")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Accepted 1 of 2 predictions (50.0%) by margin at threshold -2.\n"
    )


def test_an_infinite_threshold_is_valid_json(probs, run):
    done = run("screen", probs, "--threshold", "inf", "--json", "-")
    content = json.loads(done.stdout, parse_constant=pytest.fail)
    assert content["accepted"] == 400


def test_calibrate_and_screen_work_together(probs, tmp_path, run):
    gate = tmp_path / "gate.json"
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
    loaded = td.Gate.load(gate)
    assert table["accepted"].to_list() == (table["score"] <= loaded.threshold).to_list()
    assert table.columns[:1] == ["id"]


def test_calibrate_for_classes_and_without_labels(probs, tmp_path, run):
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
    assert "the gate promises nothing" in done.stdout


def test_screen_takes_labels_in_part(probs, tmp_path, run):
    gate, half = tmp_path / "gate.json", tmp_path / "half.csv"
    run("calibrate", probs, "--frr", 0.1, "-o", gate)
    known = pl.when(pl.int_range(400) % 2 == 0).then("label")
    pl.read_csv(probs).with_columns(known.alias("label")).write_csv(half)
    done = run("screen", half, "--gate", gate)
    assert done.returncode == 0, done.stderr
    known = td.read(half).labelled("the test")
    rate = td.Gate.load(gate).screen(known).accepted[known.errors].mean()
    assert f"errors caught (TRR)              {100 * (1 - rate):.2f} [" in done.stdout


def test_groups_of_the_rows_have_thresholds_of_their_own(probs, run, tmp_path):
    gate, out = tmp_path / "gate.json", tmp_path / "out.parquet"
    table = pl.read_csv(probs).with_columns(region=pl.format("r{}", pl.col("id") % 2))
    table.write_csv(probs)
    done = run("calibrate", probs, "--frr", 0.1, "--groups", "region", "-o", gate)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 groups have their own promise" in done.stdout
    rules = td.Gate.load(gate).groups
    done = run("screen", probs, "--gate", gate, "--groups", "region", "-o", out)
    assert done.returncode == 0, done.stderr
    decided = pl.read_parquet(out)
    for name, own in decided.group_by("region"):
        expected = own["score"] <= rules[name[0]].threshold
        assert own["accepted"].to_list() == expected.to_list()
    assert rules["r0"].threshold != rules["r1"].threshold
    check = ["check", "--state", tmp_path / "w.json"]
    done = run(*check, probs, "--gate", gate, "--groups", "region")
    assert done.returncode == 0, done.stderr
    for command in (["screen"], check):
        done = run(*command, probs, "--gate", gate)
        assert done.returncode == 2
        assert "no groups were given" in done.stderr
        assert "--groups NAME" in done.stderr
    done = run(
        *("calibrate", probs, "--frr", 0.1, "-o", gate),
        *("--groups", "region", "--per-class"),
    )
    assert done.returncode == 2
    assert "--per-class or --groups" in done.stderr


@pytest.mark.parametrize("target", ["--frr", "--trr", "--risk", "--joint"])
@pytest.mark.parametrize("label", [0, 1])
def test_calibrating_on_three_rows_gives_the_plain_answer(target, label, tmp_path, run):
    path = tmp_path / "p.csv"
    rows = "".join(f"0.{k},0.{10 - k},{label}\n" for k in (9, 8, 7))
    path.write_text("prob_0,prob_1,label\n" + rows)
    rate = 0.95 if target == "--trr" else 0.05
    given = ("calibrate", path, target, rate, "-o", tmp_path / "gate.json")
    done = run(*given)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.search(r"would (accept|reject) all: ", done.stderr)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "gate.json").exists()
    done = run(*given, "--allow-trivial")
    assert done.returncode == 0, done.stderr
    assert re.search(r"(accept|reject) all: ", done.stdout)
    assert run("screen", path, "--gate", tmp_path / "gate.json").returncode == 0


@pytest.mark.parametrize("quiet", [(), ("--quiet",)], ids=str)
def test_a_gate_that_decides_nothing_says_what_would_do_better(
    quiet, tmp_path, run, rng
):
    gate, path = tmp_path / "gate.json", tmp_path / "p.npz"
    gate.write_text("what was there before")
    z = rng.normal(size=(400, 3)) * 2
    odds = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (odds.cumsum(1) > rng.random((400, 1))).argmax(1)
    np.savez(path, logits=z, labels=labels)
    done = run("calibrate", path, "--risk", "0.1%", "-o", gate, *quiet)
    assert (done.returncode, done.stdout) == (3, "")
    assert gate.read_text() == "what was there before"
    told = re.search(
        r"Tried on these rows, so optimistic: --risk (\S+) would accept (\d+)% of them",
        done.stderr,
    )
    p = td.read(path)
    better = td.calibrate(p, risk=float(told[1]))
    assert round(100 * better.screen(p).accepted.mean()) == int(told[2])
    assert done.stderr.endswith("--allow-trivial writes it.\n")
    done = run("calibrate", path, "--risk", "0.1%", "-o", gate, "--allow-trivial")
    assert done.returncode == 0
    assert "Tried on these rows, so optimistic" in done.stdout
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
    done = run("calibrate", path, *options, "-o", gate)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "tried on these rows" in done.stderr.lower()
    assert not gate.exists()
    done = run("calibrate", path, *options, "-o", gate, "--allow-trivial")
    assert done.returncode == 0, done.stderr


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
    given = ("calibrate", path, "--risk", "12%", "-o", gate)
    assert run(*given).returncode == 3
    done = run(*given, "--groups", "region")
    assert done.returncode == 0, done.stderr
    found = td.Gate.load(gate)
    assert found.state == "accept-all"
    assert {rule.state for rule in found.groups.values()} == {"threshold", "accept-all"}


def test_calibrate_says_which_score_ranks_errors_better(tmp_path, run, rng):
    z = rng.normal(size=(3000, 3)) * 3
    labels = np.where(z.max(1) > 1, z.argmax(1), (z.argmax(1) + 1) % 3)
    np.savez(tmp_path / "p.npz", logits=z, labels=labels)
    gate = tmp_path / "gate.json"
    done = run("calibrate", tmp_path / "p.npz", "--frr", "10%", "-o", gate)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Careful: on these rows max_logit ranks errors better than alpha" in said
    p = td.Predictions.from_logits(z, labels)
    assert td.Gate.load(gate) == td.calibrate(p, frr=0.1)
    given = ("--score", "max_logit", "--frr", "10%", "-o", gate)
    assert "Careful" not in run("calibrate", tmp_path / "p.npz", *given).stdout
    done = run("calibrate", tmp_path / "p.npz", *given[2:], "--score", "auto")
    assert "1,000 rows with" in done.stdout
    assert "errors chose the mean rank by max_logit" in done.stdout
    assert "Careful" not in done.stdout
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
        done = run(*words)
        assert done.returncode == 2
        assert match in done.stderr
    big = tmp_path / "big.csv"
    big.write_text("logit_0,logit_1,label\n" + 5_000_000 * "1,0,0\n")
    given = ("calibrate", big, "--frr", "5%", "--score", "auto", *out)
    done = run(*given, "--memory", "1GB")
    assert done.returncode == 2
    assert "--score auto needs all rows at once" in done.stderr


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
    given = (tmp_path / "rows.csv", "--gate", tmp_path / "gate.json")
    assert run("screen", *given).returncode == 0
    assert run("check", *given, "--state", tmp_path / "state.json").returncode == 0
    watch = td.Watch.load(tmp_path / "state.json", gate)
    assert watch.tests["frr"].n == (probs.argmax(1) == true).sum()
