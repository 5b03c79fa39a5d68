"""The program itself: exit codes, version and help."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trustdoctor as td
from trustdoctor import cli
from trustdoctor.cli.guide import EXAMPLES, STEPS

COMMANDS = (
    *("demo", "diagnose", "calibrate", "screen", "check", "compare"),
    *("cascade", "predict", "export", "reproduce", "split"),
)
PROGRAM = str(Path(sys.executable).with_name("trustdoctor"))


@pytest.mark.parametrize("arguments", [["nonsense"], ["diagnose"], ["demo", "--what"]])
def test_wrong_usage_is_exit_code_2(arguments, run):
    assert run(*arguments).returncode == 2


def test_a_failure_of_ours_is_exit_code_70(monkeypatch, capsys):
    def fail():
        message = "a bug\nin two lines"
        raise RuntimeError(message)

    monkeypatch.setattr("trustdoctor.cli.app.make_app", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 70
    error = capsys.readouterr().err
    assert "internal error, RuntimeError: a bug in two lines" in error
    assert error.count("\n") == 1


def test_version_and_help(run):
    assert run("--version").stdout == f"trustdoctor {td.__version__}\n"
    for command in ([], *([name] for name in COMMANDS)):
        completed = run(*command, "--help", columns=80)
        assert completed.returncode == 0
        assert max(map(len, completed.stdout.splitlines())) <= 80


def test_a_full_disk_behind_the_output_is_the_users_to_fix(probs):
    with Path("/dev/full").open("w") as full:
        completed = subprocess.run(
            [PROGRAM, "diagnose", probs],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert completed.returncode == 2
    assert b"cannot write the output" in completed.stderr


def test_the_program_and_the_module_are_the_same(probs):
    for program in ([PROGRAM], [sys.executable, "-m", "trustdoctor"]):
        completed = subprocess.run(
            [*program, "diagnose", probs, "--labels", "truth"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (completed.returncode, completed.stdout) == (2, "")
        assert completed.stderr.startswith("trustdoctor: ")


def test_ctrl_c_is_exit_code_130_and_one_line(monkeypatch, run, probs):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("trustdoctor.cli.commands.diagnose.find_source", stop)
    completed = run("diagnose", probs)
    assert (completed.returncode, completed.stdout) == (130, "")
    assert completed.stderr == "trustdoctor: stopped.\n"


SLOW = """
import sys, time
import trustdoctor as td
from trustdoctor import cli

def slow(logits, *, temperature=1.0):
    print("at work", file=sys.stderr, flush=True)
    time.sleep(60)

td.register(td.LogitScore("slow", slow, frozenset({"probs"}), frozenset()))
cli.main()
"""


def test_a_signal_stops_the_program_without_a_traceback(probs, tmp_path):
    command = ["calibrate", probs, "--frr", "5%", "--score", "slow", "-q"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *command, "-o", tmp_path / "gate.json"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read()
    assert process.returncode == 130
    assert stderr == "trustdoctor: stopped.\n"
    assert not (tmp_path / "gate.json").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [[], ["--json", "-"]], ids=str)
def test_a_closed_pipe_is_not_an_error(probs, options):
    out, into = os.pipe()
    os.close(out)
    completed = subprocess.run(
        [PROGRAM, "diagnose", probs, *options],
        stdout=into,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(into)
    assert (completed.returncode, completed.stderr) == (141, b"")


def lines_of(text):
    return [line.strip() for line in text.splitlines()]


def test_the_help_shows_the_four_steps_and_the_exit_codes(run):
    help_text = run("--help", columns=80).stdout
    shown = lines_of(help_text)
    assert [example for _, example in STEPS] == [
        line for line in shown if line.startswith("trustdoctor ")
    ]
    names = [example.split()[1] for _, example in STEPS]
    assert names == ["diagnose", "calibrate", "screen", "check"]
    codes = [int(m[1]) for m in map(re.compile(r"(\d+)  \w").match, shown) if m]
    assert codes == [0, 1, 2, 3, 70, 130]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_has_two_examples(command, run):
    shown = lines_of(run(command, "--help", columns=80).stdout)
    examples = [line for line in shown if line.startswith("trustdoctor ")]
    assert examples == list(EXAMPLES[command])
    assert len(examples) == (3 if command == "calibrate" else 2)
    assert all(example.split()[1] == command for example in examples)


def test_options_are_grouped(run):
    help_text = run("calibrate", "--help", columns=80).stdout
    panels = re.findall(r"╭─ (\w+) ─", help_text)
    assert panels[:3] == ["Arguments", "Options", "Targets"]
    assert sorted(panels[3:]) == ["Columns", "Engine", "Output", "Score"]
    for panel, option in (("Targets", "frr"), ("Columns", "labels"), ("Output", "-o")):
        _, _, inside = help_text.partition(f"╭─ {panel} ─")
        assert option in inside.partition("╰")[0]


def test_brackets_in_help_are_shown_as_they_are(monkeypatch, run):
    from trustdoctor.cli import guide

    odd = ("trustdoctor demo --save [red]rows", "trustdoctor demo --save [/]rows")
    monkeypatch.setitem(guide.EXAMPLES, "demo", odd)
    shown = lines_of(run("demo", "--help", columns=80).stdout)
    assert set(odd) <= set(shown)


NEED_MORE = ("predict", "export")
"""Commands whose examples need a model."""


@pytest.mark.more
def test_the_examples_of_the_help_run(run, tmp_path):
    """On the rows that the first of them writes, in this order."""
    steps = [example for _, example in STEPS]
    listed = [example for name in COMMANDS for example in EXAMPLES[name]]
    for line in [listed[0], *steps, *listed[1:]]:
        program, command, *arguments = shlex.split(line)
        assert program == "trustdoctor"
        if command not in NEED_MORE:
            completed = run(command, *arguments, cwd=tmp_path)
            assert completed.returncode == 0, (line, completed.stderr)
    assert {"gate.json", "g2.json", "list.json", "decided.csv", "page.html"} <= {
        path.name for path in tmp_path.iterdir()
    }


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trustdoctor cal", ["calibrate"]),
        ("trustdoctor spl", ["split"]),
        ("trustdoctor split --cl", ["--clusters"]),
        ("trustdoctor calibrate --shortlist-", ["--shortlist-method"]),
        ("trustdoctor diagnose --score en", ["entropy", "energy"]),
    ],
)
def test_a_shell_completes_commands_options_and_scores(line, offered, run, monkeypatch):
    monkeypatch.setenv("_TRUSTDOCTOR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    completed = run()
    assert completed.stderr == ""
    assert set(offered) <= set(completed.stdout.split())
