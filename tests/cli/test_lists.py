"""Lists on the command line: calibrate --shortlist, and what screen does with them."""

import io
import json
import math
import re

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.gates import describe_lists
from trustdoctor.gates.outcome import ListCounts

NAMES = ["cat", "dog", "horse", "ox"]


def table(n, seed):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    named = {f"logit_{name}": z[:, k] for k, name in enumerate(NAMES)}
    columns = {"label": [NAMES[k] for k in labels], "region": np.arange(n) % 2}
    return pl.DataFrame(named | columns)


@pytest.fixture
def files(tmp_path):
    """Rows to calibrate on, others, and new ones."""
    for seed, name in enumerate(("first", "other", "new")):
        table(1500, seed).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def successful_output(run, *arguments, cwd):
    """Return what a command prints, in one line."""
    completed = run(*arguments, cwd=cwd)
    assert completed.returncode == 0, completed.stderr
    assert max(map(len, completed.stdout.splitlines())) <= 80
    return " ".join(completed.stdout.split())


def test_calibrate_gives_a_gate_lists_and_says_what_they_are(files, run):
    arguments = ("calibrate", "first.csv", "--frr", "10%", "-o", "gate.json")
    out = successful_output(run, *arguments, "--shortlist", "90%", cwd=files)
    p, gate = td.read(files / "first.csv"), td.Gate.load(files / "gate.json")
    assert gate == td.calibrate(p, frr=0.1, shortlist=0.9)
    rule = gate.shortlist.rule
    assert (
        f"Lists: every class of probability {math.exp(-rule.threshold):.3g} or more "
        f"(set by {rule.rows} rejected rows)." in out
    )
    counts = ListCounts.of(p, gate.screen(p).shortlist)
    assert counts.rows == rule.rows
    mean = f"{counts.classes / counts.rows:.2f}"
    assert f"- Lists for {rule.rows} rejected rows of this file: {mean} classes" in out
    assert "- Shortlist: a rejected row's list holds the true class" in out
    options = ("--shortlist-method", "raps", "--shortlist-size", 3)
    out = successful_output(run, *arguments, "--shortlist", 0.9, *options, cwd=files)
    short = td.Gate.load(files / "gate.json").shortlist
    assert (short.method, short.max_size) == ("raps", 3)
    mass = f"{1 + short.rule.threshold:.6g}"
    assert (
        f"Lists: the most probable classes until they sum to over {mass}, each rank "
        "beyond 2 counting 0.05, 3 at most (set by " in out
    )


def test_shortlists_are_reported_group_by_group(files, run):
    options = ("--frr", "20%", "--groups", "region", "-o", "gate.json")
    out = successful_output(
        run, "calibrate", "first.csv", *options, "--shortlist", 0.8, cwd=files
    )
    gate = td.Gate.load(files / "gate.json")
    for name, rule in gate.shortlist.groups.items():
        least = f"{math.exp(-rule.threshold):.3g}"
        line = f"lists in group {name}: every class of probability {least} or more"
        assert f"{line} ({rule.rows} rows)" in out
    assert "Rows of other groups get a full review." in out


def test_lists_without_a_finite_threshold_are_reported(files, run):
    arguments = ("calibrate", "first.csv", "--threshold", "1.05", "-o", "gate.json")
    out = successful_output(run, *arguments, "--shortlist", "99.9%", cwd=files)
    assert "Lists: every rejected row gets a full review (set by " in out
    assert "Too few rejected rows for a list" in out
    sure = td.Predictions.from_logits(np.eye(60, 3), np.eye(60, 3).argmax(1))
    gate = td.shortlist(td.Gate(-9.0, score="alpha"), sure, level=0.9)
    assert gate.shortlist.rule.threshold == -math.inf


def test_screen_writes_lists_and_counts_them(files, run):
    options = ("--frr", 0.1, "--shortlist", 0.9, "-o", "gate.json")
    successful_output(run, "calibrate", "first.csv", *options, cwd=files)
    arguments = ("screen", "new.csv", "--gate", "gate.json")
    out = successful_output(
        run, *arguments, "-o", "out.csv", "--json", "out.json", cwd=files
    )
    gate, p = td.Gate.load(files / "gate.json"), td.read(files / "new.csv")
    screened = gate.screen(p)
    texts = describe_lists(screened.shortlist, p).tolist()
    table_out = pl.read_csv(files / "out.csv")
    assert table_out["shortlist"].fill_null("").to_list() == texts
    assert table_out.columns[-3:] == ["score", "accepted", "shortlist"]
    sizes = screened.shortlist.sum(1)[~screened.accepted]
    with_true_class = screened.shortlist[np.arange(1500), p.labels][~screened.accepted]
    assert json.loads((files / "out.json").read_text())["lists"] == {
        "level": 0.9,
        "rows": len(sizes),
        "classes": sizes.sum(),
        "full_reviews": (sizes == 4).sum(),
        "labelled": len(sizes),
        "with_true_class": with_true_class.sum(),
    }
    rate = td.gates.outcome.share(
        int(with_true_class.sum()), len(with_true_class), confidence=0.95
    )
    line = re.escape(
        f"Lists for {len(sizes)} rejected rows: {sizes.mean():.2f} classes on average, "
        f"{(sizes == 4).sum()} full reviews"
    )
    line += ".*; " + re.escape(
        f"they hold the true class in {rate.percent()} % (promised: 90%)."
    )
    assert re.search(line, out)
    printed = run(*arguments, "-o", "-", "--only", "rejected", cwd=files)
    only = pl.read_csv(io.StringIO(printed.stdout))
    assert only["shortlist"].to_list() == [text for text in texts if text]
    assert re.search(line, " ".join(printed.stderr.split()))


def test_screen_without_labels_says_how_long_lists_are(files, run):
    options = ("--frr", 0.1, "--shortlist", 0.9, "-o", "gate.json")
    successful_output(run, "calibrate", "first.csv", *options, cwd=files)
    pl.read_csv(files / "new.csv").drop("label").write_csv(files / "bare.csv")
    out = successful_output(run, "screen", "bare.csv", "--gate", "gate.json", cwd=files)
    assert "classes on average" in out
    assert "hold the true class" not in out
    out = successful_output(
        run, "screen", "new.csv", "--threshold", 0, "--json", "-", cwd=files
    )
    assert "lists" not in json.loads(out)


@pytest.mark.parametrize("options", [(), ("--groups", "region")], ids=str)
def test_other_rows_give_a_gate_lists(options, files, run):
    target = ("--risk", "30%", *options, "-o", "gate.json")
    successful_output(run, "calibrate", "first.csv", *target, cwd=files)
    arguments = (
        "--gate",
        "gate.json",
        "--shortlist",
        "90%",
        *options,
        "-o",
        "listed.json",
    )
    out = successful_output(run, "calibrate", "other.csv", *arguments, cwd=files)
    gate, listed = (td.Gate.load(files / f"{name}.json") for name in ("gate", "listed"))
    p = td.read(files / "other.csv", groups="region") if options else None
    p = p or td.read(files / "other.csv")
    assert listed == td.shortlist(gate, p, level=0.9)
    assert "of rows that had no part in the gate" in out
    assert "at most 30% errors among the accepted" in out
    assert out.endswith("Wrote listed.json")


def refused(run, files, *arguments):
    completed = run("calibrate", *arguments, "-o", "bad.json", cwd=files)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr.count("\n") == 1
    assert not (files / "bad.json").exists()
    return completed.stderr


def test_misuse_is_refused_in_one_line(files, run):
    successful_output(
        run, "calibrate", "first.csv", "--risk", "30%", "-o", "g.json", cwd=files
    )
    rows, lists = ("first.csv", "--frr", 0.1), ("--shortlist", 0.9)
    add = ("other.csv", "--gate", "g.json", *lists)
    pl.DataFrame({"confidence": [0.1, 0.9] * 50, "ok": [0, 1] * 50}).write_csv(
        files / "stated.csv"
    )
    stated = ("--confidence", "confidence", "--correct", "ok", "--coverage", 0.5)
    for arguments, message in (
        ((*rows, *lists, "--no-labels"), "--no-labels has no .* shortlist or label"),
        ((*rows, "--shortlist", 95), "Did you mean 0.95 or 95%"),
        ((*rows, "--shortlist", "5%"), "level of a shortlist from 0.5"),
        ((*rows, *lists, "--shortlist-method", "x"), "out of lac, aps, raps"),
        ((*rows, *lists, "--shortlist-size", 0), "max size"),
        ((*rows, "--shortlist-size", 3), "Give --shortlist RATE"),
        ((*rows, "--shortlist-method", "aps"), "Give --shortlist RATE"),
        (("other.csv", "--gate", "g.json"), "Give --shortlist RATE"),
        ((*add, "--frr", 0.1), "leave out targets"),
        ((*add, "--on-average"), "leave out targets"),
        ((*add, "--score", "msp"), "leave out targets"),
        ((*add, "-T", 2), "leave out targets"),
        ((*add, "--per-class"), "leave out targets"),
        ((*add, "--confidence", 0.8), "leave out targets"),
        ((*add, "--no-labels"), "--no-labels has no .* shortlist or label noise"),
        (("first.csv", *add[1:]), "these rows set the threshold for risk"),
        (("stated.csv", *stated, *lists), "logits or probabilities of every class"),
        (("other.csv", "--gate", "no.json", *lists), "no.json"),
    ):
        assert re.search(message, refused(run, files, *arguments)), arguments


def test_rows_that_do_not_fit_are_counted(files, run, monkeypatch):
    monkeypatch.setattr("trustdoctor.engines.run.fits", lambda *_, **__: False)
    lists = ("--shortlist", 0.9)
    successful_output(
        run, "calibrate", "first.csv", "--trr", "60%", *lists, "-o", "g", cwd=files
    )
    p = td.read(files / "first.csv")
    assert td.Gate.load(files / "g") == td.calibrate(p, trr=0.6, shortlist=0.9)
    monkeypatch.setattr("trustdoctor.engines.memory.fits", lambda *_, **__: False)
    message = refused(run, files, "first.csv", "--risk", 0.3, *lists)
    assert "--shortlist for risk needs all rows at once" in message
    assert "calibrate OTHER --gate GATE --shortlist RATE" in message


def test_a_folder_resumes_with_its_lists(files, run):
    options = ("--frr", 0.1, "--shortlist", 0.9, "-o", "gate.json")
    successful_output(run, "calibrate", "first.csv", *options, cwd=files)
    (files / "in").mkdir()
    for name in ("other", "new"):
        (files / f"{name}.csv").rename(files / "in" / f"{name}.csv")
    arguments = ("screen", "in", "--gate", "gate.json", "-o", "out")
    first = successful_output(run, *arguments, cwd=files)
    (files / "out" / "new.csv").unlink()
    assert successful_output(run, *arguments, "--resume", cwd=files) == first
    assert "Lists for " in first
