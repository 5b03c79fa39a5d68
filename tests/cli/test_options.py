"""Options shared by several commands, and the messages for invalid values."""

import pytest

import trustdoctor as td
from trustdoctor.cli.options import as_rate


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
        (
            ["calibrate", "{probs}", "--frr", "5", "-o", "g.json"],
            "between 0 and 1, got '5'. Did you mean 0.05 or 5%?",
        ),
        (
            ["calibrate", "{probs}", "--trr", "99.5", "-o", "g.json"],
            "Did you mean 0.995 or 99.5%?",
        ),
        (["calibrate", "{probs}", "--frr", "1", "-o", "g.json"], "as 0.05 or 5%"),
        (["calibrate", "{probs}", "--frr", "nan", "-o", "g.json"], "as 0.05 or 5%"),
        (["calibrate", "{probs}", "--frr", "few", "-o", "g.json"], "got 'few'"),
        (["calibrate", "{probs}", "--frr", "500%", "-o", "g.json"], "got '500%'"),
        (
            ["calibrate", "{probs}", "--frr", ".1", "--confidence", "90", "-o", "g"],
            "expected --confidence between 0 and 1, got '90'. Did you mean 0.9 or 90%?",
        ),
        (["compare", "{probs}", "--confidence", "95"], "Did you mean 0.95 or 95%?"),
        (["diagnose", "{probs}", "--score", ""], "got an empty --score"),
        (
            ["calibrate", "{probs}", "--frr", ".1", "--score", " ", "-o", "g.json"],
            "got an empty --score",
        ),
        (["calibrate", "{probs}", "--frr", "0.1", "-o", "{probs}"], "input itself"),
        (
            [
                "calibrate",
                "{probs}",
                "--risk",
                "0.1",
                "--coverage",
                "0.5",
                "--on-average",
                "-o",
                "g.json",
            ],
            "risk and coverage together have no rule on average",
        ),
        (
            ["calibrate", "{probs}", "--no-labels", "--cost", "5", "-o", "g.json"],
            "The others need labels",
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
def test_mistakes_end_in_one_line_and_exit_code_2(
    arguments, match, probs, tmp_path, run
):
    completed = run(*[a.format(probs=probs) for a in arguments], cwd=tmp_path)
    assert completed.returncode == 2
    assert match in completed.stderr
    assert completed.stderr.startswith("trustdoctor: ")
    assert completed.stderr.count("\n") == 1
    assert completed.stdout == ""
    assert list(tmp_path.iterdir()) == [probs]


def test_nothing_is_written_when_one_of_two_outputs_cannot_be(probs, tmp_path, run):
    completed = run(
        "screen", probs, "--gamma", 1, "-o", tmp_path / "o.csv", "--json", "/no/x.json"
    )
    assert completed.returncode == 2
    assert not (tmp_path / "o.csv").exists()


def test_paths_are_printed_as_they_are(probs, tmp_path, run):
    completed = run("screen", probs, "--gamma", 1, "-o", "[red]o.csv", cwd=tmp_path)
    assert completed.stdout.endswith("Wrote [red]o.csv\n")


@pytest.mark.parametrize("rate", ["0.1", "10%", " 10 %", "1e-1", ".1"])
def test_rates_are_shares_or_percentages(rate, probs, tmp_path, run):
    gate = tmp_path / "gate.json"
    completed = run(
        "calibrate", probs, "--frr", rate, "--confidence", "95%", "-o", gate
    )
    assert completed.returncode == 0, completed.stderr
    expected = td.calibrate(td.read(probs), frr=0.1, confidence=0.95)
    assert td.Gate.load(gate) == expected


def test_percentages_are_exact():
    for tenths in range(1, 1000):
        assert as_rate(f"{tenths / 10}%", "risk") == float(f"{tenths}e-3")


@pytest.mark.parametrize("command", [["diagnose"], ["calibrate", "--frr", "5%"]])
def test_patterns_without_quotes_get_a_hint(command, probs, tmp_path, run):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(probs.read_bytes())
    more = ["-o", "g.json"] if command[0] == "calibrate" else []
    completed = run(*command, "a.csv", "b.csv", "preds.csv", *more, cwd=tmp_path)
    assert completed.returncode == 2
    assert completed.stderr == (
        "trustdoctor: expected one FILE, got 3: the shell expanded a pattern. Quote "
        "it, as '*.csv', or name the folder.\n"
    )
    completed = run(*command, "a.csv", "surplus", *more, cwd=tmp_path)
    assert completed.returncode == 2
    assert "unexpected extra argument" in completed.stderr
