"""What a command writes: files, checked before any work, and the console."""

import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console

from trustdoctor.atomic import (
    require_apart,
    require_writable,
    resolved,
    same_file,
    write_text,
)
from trustdoctor.cli.exit_codes import TRIVIAL
from trustdoctor.errors import InputError, OddLabelsWarning, OutputError
from trustdoctor.files import (
    CSV,
    FORMATS,
    PICTURES,
    STDIN,
    Source,
    output_suffixes,
    suffix_of,
)
from trustdoctor.gates import Gate
from trustdoctor.report import needed_words, trivial_words
from trustdoctor.visible import visible

_LONGEST = 300
"""Characters of a word in a message: a path fits, a damaged cell does not."""


def one_line(message: str) -> str:
    """Return a message as it is shown: on one line, and of a bearable length."""
    return " ".join(_word(word) for word in visible(message).split())


def _word(word: str) -> str:
    if f"/{STDIN}." in word:
        tail = word.rpartition(STDIN)[2].lstrip(".abcdefghijklmnopqrstuvwxyz")
        return f"standard input{tail}"
    return word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..."


def write_result(text: str, path: str | None) -> None:
    """Write JSON where it was asked for; - prints it."""
    if path == "-":
        sys.stdout.write(text)
    elif path is not None:
        write_text(path, text)


def refuse_trivial(gate: Gate, output: Path, said: Sequence[str]) -> NoReturn:
    """Say why a gate that decides nothing was not written, and end."""
    lines = (
        f"{output} was not written, because the gate would {trivial_words(gate)}.",
        *needed_words(gate),
        *said,
        "--allow-trivial writes it.",
    )
    typer.echo(f"trustdoctor: {one_line(' '.join(lines))}", err=True)
    raise typer.Exit(TRIVIAL)


@contextmanager
def refusing_odd_labels(output: Path, *, allow: bool) -> Iterator[None]:
    """Write nothing where labels are odd, say why, and end; unless that is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if allow else "error", OddLabelsWarning)
        try:
            yield
        except OddLabelsWarning as odd:
            line = (
                f"{output} was not written, because the labels are odd. {odd} "
                "--allow-odd-labels writes it."
            )
            typer.echo(f"trustdoctor: {one_line(line)}", err=True)
            raise typer.Exit(TRIVIAL) from None


def spelled_for(source: Source, output: Path | None, spreadsheets: bool) -> Source:  # noqa: FBT001
    """Return a source whose rows are written for spreadsheets, if that was asked."""
    if not spreadsheets:
        return source
    kind = None if output is None else CSV if str(output) == "-" else source.format
    if output is not None and output.suffix:
        kind = FORMATS.get(suffix_of(output))
    if kind is None or kind.name not in ("CSV", "TSV"):
        message = (
            "--for-spreadsheets is about rows that are written as CSV. Give -o "
            "FILE.csv, or leave it out."
        )
        raise InputError(message)
    return replace(source, for_spreadsheets=True)


def print_file(path: Path) -> None:
    """Copy a file to standard output; what steers a terminal is spelled out there."""
    if sys.stdout.isatty():
        with path.open(encoding="utf-8", newline="") as text:
            for line in text:
                sys.stdout.write(visible(line))
        sys.stdout.flush()
        return
    with path.open("rb") as content:
        shutil.copyfileobj(content, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def wrote(console: Console, *paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


OUTPUTS = ("output", "json_path", "html", "state", "draw", "save", "out")
"""The parameters of commands that say where results go."""


def check_places(given: dict[str, Any]) -> None:
    """Refuse an output that is an input or another output, before any work.

    Whatever else a command was given and is a file counts as an input, and so do the
    pictures in a folder.
    """
    named = [(name, path) for name in OUTPUTS for path in _paths(given.get(name))]
    rest = (value for name, value in given.items() if name not in OUTPUTS)
    inputs = [file for value in rest for path in _paths(value) for file in _files(path)]
    for name, path in named:
        if _is_folder(name, path):
            _refuse_inside(path, [*inputs, *(other for _, other in named)])
        else:
            require_writable(path)
            require_apart([path], inputs)
    for at, (_, path) in enumerate(named):
        if same_file(path) in {same_file(other) for _, other in named[:at]}:
            message = f"two outputs go to one file, {path}. Name another for one."
            raise OutputError(message)


def check_outputs(source: Source, *outputs: str | Path | None) -> None:
    """Refuse to write over a file of a folder or of a pattern."""
    require_apart((path for one in outputs for path in _paths(one)), source.inputs)


def _paths(value: Any) -> Iterator[Path]:
    """Yield what may be paths in the value of a parameter; - is none."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _paths(one)
    elif isinstance(value, (str, Path)) and str(value) not in ("", "-"):
        yield Path(value)


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return [one for one in path.iterdir() if one.suffix.lower() in PICTURES]
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # too long to be one, or with a zero byte
        return []


def _is_folder(name: str, path: Path) -> bool:
    return name in ("save", "out") or (name == "output" and not path.suffix)


def _refuse_inside(folder: Path, others: list[Path]) -> None:
    """Refuse a folder of outputs that another file lies in and could be replaced."""
    place = resolved(folder)
    for other in others:
        taken = suffix_of(other) in (*output_suffixes(), ".txt")  # demo's class names
        if taken and place in resolved(other).parents:
            message = (
                f"{other} lies in the folder of outputs {folder}. Name another folder."
            )
            raise OutputError(message)
