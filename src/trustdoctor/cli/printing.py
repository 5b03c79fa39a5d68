"""What every command says at its end."""

import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from trustdoctor.atomic import write_text
from trustdoctor.cli.exit_codes import TRIVIAL
from trustdoctor.errors import InputError, OddLabelsWarning
from trustdoctor.files import CSV, FORMATS, STDIN, Source, suffix_of
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
