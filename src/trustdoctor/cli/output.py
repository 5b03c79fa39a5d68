"""What a command writes: files, checked before any work, and the console."""

import glob
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console

from trustdoctor.atomic import (
    file_identity,
    require_apart,
    require_writable,
    resolved,
    write_text,
)
from trustdoctor.cli.exit_codes import TRIVIAL
from trustdoctor.errors import InputError, OddLabelsWarning, OutputError
from trustdoctor.files import (
    CSV,
    FORMATS,
    IMAGE_SUFFIXES,
    STDIN,
    Source,
    output_suffixes,
    suffix_of,
)
from trustdoctor.gates import Gate
from trustdoctor.report import needed_words, trivial_words
from trustdoctor.visible import visible

OUTPUTS = ("output", "json_path", "html", "state", "draw", "save", "out")
"""The parameters of commands that say where results go."""

_LONGEST = 300
"""Characters of a word in a message: a path fits, a damaged cell does not."""


def check_output_paths(values: dict[str, Any]) -> None:
    """Refuse an output that is an input or another output, before any work.

    `values` are those of a command's parameters. Whatever else names a file counts as
    an input, and so do the files of a folder or of a pattern.
    """
    outputs = [(name, path) for name in OUTPUTS for path in _paths(values.get(name))]
    named = [
        path
        for name, value in values.items()
        if name not in OUTPUTS
        for path in _paths(value)
    ]
    for name, path in outputs:
        if name in ("save", "out") or (name == "output" and not path.suffix):
            _refuse_inside(path, [*named, *(other for _, other in outputs)])
            continue
        require_writable(path)
        if path.exists():  # else no input can be that file
            require_apart([path], _input_files(named))
    for at, (_, path) in enumerate(outputs):
        if file_identity(path) in {
            file_identity(earlier) for _, earlier in outputs[:at]
        }:
            message = f"two outputs go to one file, {path}. Name another for one."
            raise OutputError(message)


def _paths(value: Any) -> Iterator[Path]:
    """Yield what may be paths in the value of a parameter; - is none."""
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _paths(element)
    elif isinstance(value, (str, Path)) and str(value) not in ("", "-"):
        yield Path(value)


def _input_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield every file behind some paths: folders, patterns, or names of anything."""
    for path in paths:
        try:
            if path.is_dir():
                suffixes = {*FORMATS, *IMAGE_SUFFIXES}
                yield from (f for f in path.rglob("*") if suffix_of(f) in suffixes)
            elif path.suffix == ".npy":  # the arrays beside it belong to it
                yield from path.parent.glob("*.npy")
            elif path.is_file():
                yield path
            elif glob.has_magic(str(path)):
                yield from map(Path, glob.glob(str(path), recursive=True))  # noqa: PTH207 - absolute, too
        except (OSError, ValueError):  # a name too long to be one, or a zero byte
            continue


def _refuse_inside(folder: Path, paths: list[Path]) -> None:
    """Refuse a folder of outputs that another file lies in and could be replaced."""
    replaceable = (*output_suffixes(), ".txt")  # demo writes class names as text
    for path in paths:
        if (
            suffix_of(path) in replaceable
            and resolved(folder) in resolved(path).parents
        ):
            message = (
                f"{path} lies in the folder of outputs {folder}. Name another folder."
            )
            raise OutputError(message)


def write_result(json_text: str, path: str | None) -> None:
    """Write a result where it was asked for; - prints it."""
    if path == "-":
        sys.stdout.write(json_text)
    elif path is not None:
        write_text(path, json_text)


def print_written(console: Console, *paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


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


def written_for_spreadsheets(source: Source, output: Path | None) -> Source:
    """Return a source whose rows are written so that no text is a formula."""
    output_format = source.format
    if str(output) == "-":
        output_format = CSV
    elif output is not None and output.suffix:
        output_format = FORMATS.get(suffix_of(output), output_format)
    if output is None or output_format.name not in ("CSV", "TSV"):
        message = (
            "--for-spreadsheets is about rows that are written as CSV. Give -o "
            "FILE.csv, or leave it out."
        )
        raise InputError(message)
    return replace(source, for_spreadsheets=True)


def one_line(message: str) -> str:
    """Return a message as it is shown: on one line, and of a bearable length."""
    return " ".join(_bearable(word) for word in visible(message).split())


def _bearable(word: str) -> str:
    """Return a word cut short; the file that holds standard input is called that."""
    if f"/{STDIN}." in word:
        rest = word.rpartition(STDIN)[2].lstrip(".abcdefghijklmnopqrstuvwxyz")
        return f"standard input{rest}"
    return word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..."


def refuse_to_write(*lines: str) -> NoReturn:
    """Say why a result was not written, and end."""
    typer.echo(f"trustdoctor: {one_line(' '.join(lines))}", err=True)
    raise typer.Exit(TRIVIAL) from None


def refuse_trivial(gate: Gate, output: Path, remarks: Sequence[str]) -> NoReturn:
    """Say why a gate that decides nothing was not written, and end."""
    refuse_to_write(
        f"{output} was not written, because the gate would {trivial_words(gate)}.",
        *needed_words(gate),
        *remarks,
        "--allow-trivial writes it.",
    )


@contextmanager
def refusing_odd_labels(output: Path, *, allow: bool) -> Iterator[None]:
    """Write nothing if labels are odd, say why, and end; unless that is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if allow else "error", OddLabelsWarning)
        try:
            yield
        except OddLabelsWarning as warning:
            refuse_to_write(
                f"{output} was not written, because the labels are odd. {warning}",
                "--allow-odd-labels writes it.",
            )
