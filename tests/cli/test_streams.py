"""The three streams: closed, full, and kept from what others would print there."""

import os
import re
import signal
import subprocess
import sys
import time
import unicodedata
from ast import literal_eval

import numpy as np
import polars as pl
import pytest

from trustdoctor import Gate

CONTROL = {"\x1b": "ESC", "\x00": "NUL", "\x7f": "DEL", "\x9b": "CSI", "\u202e": "RLO"}
"""What steers a terminal, one of each kind."""

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shell(words, cwd, **options):
    """Run the command line in a shell, with what it does to the streams."""
    command = f'exec "{sys.executable}" -m trustdoctor {words}'
    return subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
        **options,
    )


def one_line(completed, code=2):
    assert completed.returncode == code, completed.stderr
    assert completed.stderr.startswith("trustdoctor: ")
    assert completed.stderr.count("\n") == 1
    assert "internal error" not in completed.stderr
    return completed.stderr


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("words", "redirection"),
    [
        ("diagnose {} --json -", ">&-"),
        ("screen {} --gamma 1 -o -", ">&-"),
        ("--help", ">&-"),
        ("screen {} --gamma 1 -o -", ">/dev/full"),
        ("--help", ">/dev/full"),
    ],
)
def test_output_that_goes_nowhere_is_reported(words, redirection, probs, tmp_path):
    completed = shell(f"{words.format(probs.name)} {redirection}", tmp_path)
    assert "cannot write the output" in one_line(completed)
    assert list(tmp_path.iterdir()) == [probs]


def test_standard_input_may_be_closed(probs, tmp_path):
    assert "standard input is empty" in one_line(shell("diagnose - <&-", tmp_path))
    words = f"screen {probs.name} --gamma 1 -o"
    assert shell(f"{words} one.csv <&-", tmp_path).returncode == 0
    # Files that are opened next would have the numbers of the streams.
    completed = shell(f"{words} two.csv -q <&- >&- 2>&-", tmp_path)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


def test_standard_error_may_be_closed(probs, tmp_path):
    before = probs.read_bytes()
    completed = shell("diagnose absent.csv 2>&-", tmp_path)
    assert (completed.returncode, completed.stdout, completed.stderr) == (2, "", "")
    completed = shell(f"diagnose {probs.name} --json - 2>&-", tmp_path)
    assert completed.returncode == 0
    assert completed.stdout.startswith("{")
    assert probs.read_bytes() == before


def test_ctrl_c_while_the_program_is_imported(tmp_path):
    stub = tmp_path / "polars"
    stub.mkdir()
    (stub / "__init__.py").write_text("raise KeyboardInterrupt\n")
    python_path = os.environ.get("PYTHONPATH", "")
    completed = subprocess.run(
        [sys.executable, "-c", "import _trustdoctor; _trustdoctor.main()"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), python_path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (130, "trustdoctor: stopped.\n")


FLIPS = """
import random, sys
from pathlib import Path
from trustdoctor.cli import main

content, suffix = Path(sys.argv[1]).read_bytes(), Path(sys.argv[1]).suffix
chance, codes = random.Random(4), []
for i in range(40):
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(changed) - 2000, len(changed))  # in the footer
        changed[at] = chance.randrange(256)
    path = Path(sys.argv[1]).with_name(f"bad{i}{suffix}")
    path.write_bytes(changed)
    words = ["diagnose"] if i % 4 == 0 else ["screen", "--gamma", "1"]
    sys.argv[1:] = [*words, str(path), "-q"]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code or 0)
    sys.argv[1] = str(path)
print(*codes)
"""


@pytest.mark.soak
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_libraries_print_nothing_of_damaged_files(suffix, tmp_path, rng):
    z = rng.normal(size=(200, 2)).round(2)
    table = pl.DataFrame({"logit_0": z[:, 0], "logit_1": z[:, 1]})
    labels = pl.Series("label", rng.integers(0, 2, 200))
    texts = pl.Series("text", [f"row {i % 7}" for i in range(200)])
    table = table.with_columns(labels, texts)
    path = tmp_path / f"good{suffix}"
    if suffix == ".parquet":
        table.write_parquet(path, row_group_size=20, statistics=False)
    else:
        table.write_ipc(path)
    completed = subprocess.run(
        [sys.executable, "-c", FLIPS, path],
        capture_output=True,
        text=True,
        env=os.environ | {"RUST_BACKTRACE": "1"},
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    codes = [int(code) for code in completed.stdout.split()]
    assert len(codes) == 40
    assert set(codes) == {0, 2}
    lines = completed.stderr.splitlines()
    assert len(lines) == codes.count(2) > 5
    assert [line for line in lines if not line.startswith("trustdoctor: ")] == []
    assert "internal error" not in completed.stderr


def test_a_long_word_is_cut_and_takes_no_time(tmp_path, run):
    path = tmp_path / "a.csv"
    for cell in ("a", "a" * 70_000, "/standard-input." * 5_000):
        path.write_text(f"prob_0,prob_1,label\n0.5,{cell},0\n")
        began = time.thread_time()
        message = one_line(run("diagnose", path))
        seconds = time.thread_time() - began
        assert seconds < 1 or cell == "a"  # the first run imports what it needs
        assert len(message) < 1000


def test_displayed_text_is_escaped():
    from trustdoctor.visible import visible

    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        steers = (
            unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n"
        )
        steers |= unicodedata.bidirectional(character) in turning
        shown = visible(f"a{character}b")
        assert (shown == f"a{character}b") is not steers, hex(number)
        if steers:
            assert shown.isascii()
            assert literal_eval(f"'{shown}'") == f"a{character}b"


def clean(completed):
    for text in (completed.stdout, completed.stderr):
        assert not STEERING.search(text), text
        text.encode()  # no half characters
    return completed.stdout + completed.stderr


def hostile(character):
    """Return a word with a character inside that a terminal must not see."""
    return f"a{character}[31mb"


@pytest.mark.parametrize("character", [*CONTROL], ids=[*CONTROL.values()])
def test_names_in_files_cannot_control_the_terminal(character, run, tmp_path, rng):
    word = hostile(character)
    shown = ascii(character)[1:-1]
    p = rng.dirichlet([1, 1], 300)
    labels = np.where(rng.random(300) < 0.7, p.argmax(1), 0)
    names = (f"x{character}[2J", "dog")
    table = pl.DataFrame({f"prob_{name}": p[:, i] for i, name in enumerate(names)})
    table = table.with_columns(
        pl.Series("label", [names[i] for i in labels]),
        pl.Series(word, [word] * 300),
    )
    path, gate = tmp_path / "rows.parquet", tmp_path / "gate.json"
    table.write_parquet(path)
    words = ["calibrate", path, "--frr", 0.2, "--per-class", "-o", gate]
    assert shown in clean(run(*words, "--allow-trivial"))
    clean(run("screen", path, "--gate", gate, "-o", tmp_path / "d.parquet"))
    clean(run("check", path, "--gate", gate, "--state", tmp_path / "s.json"))
    clean(run("diagnose", path))
    clean(run("compare", path))
    assert shown in clean(run("diagnose", path, "--ids", f"no{character}ne"))
    odd = table.with_columns(pl.lit(f"z{word}").alias("label"))
    odd.write_parquet(tmp_path / "odd.parquet")
    completed = run("diagnose", tmp_path / "odd.parquet")
    assert shown in clean(completed)
    one_line(completed)


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x9b", "\u202e", "\udcff"])
def test_names_of_files_cannot_control_the_terminal(character, run, tmp_path, probs):
    name = f"a{character}[31m.csv"
    for command in (
        ("diagnose", name),
        ("screen", probs, "--gate", name),
        ("diagnose", probs, "--class-names", name),
        ("diagnose", probs, "--ids", "id", "--truth", name),
        ("diagnose", probs, "--score", name),
        ("diagnose", probs, "--json", f"no/{name}"),
        ("export", name, "--gate", name, "-o", "b.onnx"),
    ):
        completed = run(*command, cwd=tmp_path)
        clean(completed)
        one_line(completed)
    completed = run("screen", probs, "--gamma", 1, "-o", name, cwd=tmp_path)
    assert ascii(character)[1:-1] in clean(completed)


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\u202e"])
def test_cells_cannot_control_the_terminal(character, run, tmp_path):
    path = tmp_path / "a.csv"
    cells = {
        "a number": f"prob_0,prob_1,label\n0.5,{hostile(character)},0\n",
        "a label": f"prob_0,prob_1,label\n0.5,0.5,{hostile(character)}\n",
        "a name": f"{hostile(character)},x,label\n0.5,0.5,0\n",
    }
    for content in cells.values():
        path.write_text(content)
        completed = run("diagnose", path)
        assert ascii(character)[1:-1] in clean(completed)
        one_line(completed)
    (tmp_path / "gate.json").write_text(f'{{"trustdoctor": "{hostile(character)}"}}')
    clean(run("screen", path, "--gate", tmp_path / "gate.json"))


class PipeTimeoutError(BaseException):
    """Nothing takes it for a mistake in a file."""


def test_pipes_are_not_waited_for(run, tmp_path, probs):
    gate, pipe = tmp_path / "gate.json", tmp_path / "pipe.csv"
    Gate(-0.5, score="alpha").save(gate)
    os.mkfifo(pipe)

    def late(*_):
        raise PipeTimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    try:
        for command in (
            ("diagnose", pipe),
            ("diagnose", probs, "--class-names", pipe),
            ("diagnose", probs, "--ids", "id", "--truth", pipe),
            ("diagnose", probs, "--score", pipe),
            ("diagnose", probs, "--html", tmp_path / "a.html", "--thumbnails", pipe),
            ("screen", probs, "--gate", pipe),
            ("screen", probs, "--gate", gate, "-o", pipe),
            ("predict", "--model", tmp_path, "--data", pipe, "-o", tmp_path / "a.csv"),
            ("export", pipe, "--gate", gate, "-o", tmp_path / "a.onnx"),
        ):
            one_line(run(*command))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert set(tmp_path.iterdir()) == {probs, gate, pipe}
