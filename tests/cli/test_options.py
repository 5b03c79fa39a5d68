"""Options that commands share, and what is told of wrong ones."""

import pytest


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
    done = run(*[a.format(probs=probs) for a in arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert match in done.stderr
    assert done.stderr.startswith("trustdoctor: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == [probs]


def test_nothing_is_written_when_one_of_two_outputs_cannot_be(probs, tmp_path, run):
    done = run(
        "screen", probs, "--gamma", 1, "-o", tmp_path / "o.csv", "--json", "/no/x.json"
    )
    assert done.returncode == 2
    assert not (tmp_path / "o.csv").exists()


def test_paths_are_printed_as_they_are(probs, tmp_path, run):
    done = run("screen", probs, "--gamma", 1, "-o", "[red]o.csv", cwd=tmp_path)
    assert done.stdout.endswith("Wrote [red]o.csv\n")
