"""The program itself: exit codes, version and help."""

import subprocess
import sys
from pathlib import Path

import pytest

import trustdoctor as td
from trustdoctor import cli

COMMANDS = (
    *("demo", "diagnose", "calibrate", "check", "screen", "compare"),
    *("predict", "export", "reproduce"),
)
PROGRAM = str(Path(sys.executable).with_name("trustdoctor"))


@pytest.mark.parametrize("arguments", [["nonsense"], ["diagnose"], ["demo", "--what"]])
def test_wrong_usage_is_exit_code_2(arguments, run):
    assert run(*arguments).returncode == 2


def test_a_failure_of_ours_is_exit_code_1(monkeypatch, capsys):
    def fail():
        message = "a bug\nin two lines"
        raise RuntimeError(message)

    monkeypatch.setattr("trustdoctor.cli.app.make_app", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert "internal error, RuntimeError: a bug in two lines" in error
    assert error.count("\n") == 1


def test_version_and_help(run):
    assert run("--version").stdout == f"trustdoctor {td.__version__}\n"
    for command in ([], *([name] for name in COMMANDS)):
        done = run(*command, "--help", columns=80)
        assert done.returncode == 0
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_full_disk_behind_the_output_is_the_users_to_fix(probs):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, "diagnose", probs],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert b"cannot write the output" in done.stderr


def test_the_program_and_the_module_are_the_same(probs):
    for program in ([PROGRAM], [sys.executable, "-m", "trustdoctor"]):
        done = subprocess.run(
            [*program, "diagnose", probs, "--labels", "truth"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("trustdoctor: ")
