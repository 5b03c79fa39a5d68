"""The command that splits a file in two: split."""

from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    COLUMNS_PANEL,
    OUTPUT_PANEL,
    FileArgument,
    LastLineOption,
    QuietOption,
    as_rate,
)
from trustdoctor.envelope import shown
from trustdoctor.errors import InputError
from trustdoctor.files import Columns, find_source, split_file
from trustdoctor.report import make_console

_MOST_DIGITS = 19  # Python refuses to read a number of thousands of digits

PartOption = Annotated[
    str,
    typer.Option(
        metavar="RATE|N",
        help="How much goes into the first part: 50%, 0.5, or a number of rows; with "
        "--ids or --clusters, of their values.",
    ),
]
TogetherOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A column (document, patient, id) whose equal values stay together.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Seed of the random draw.")]
OutputOption = Annotated[
    tuple[Path, Path],
    typer.Option(
        "--output",
        "-o",
        metavar="FIRST SECOND",
        help="Where the two parts go.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def split(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    part: PartOption = "50%",
    clusters: TogetherOption = None,
    ids: TogetherOption = None,
    seed: SeedOption = 0,
    last_line: LastLineOption = None,
    output: OutputOption,
    quiet: QuietOption = False,
) -> None:
    """Split a file at random: one part to look at, one to calibrate on.

    A promise holds for rows that had no part in choosing the score or the value that is
    promised. Look at the first part as you like, and calibrate on the second.
    """
    if clusters is not None and ids is not None:
        message = "expected --clusters or --ids, got both. Leave one out."
        raise InputError(message)
    source = find_source(file, Columns(last_line=last_line))
    share, n_rows = _as_share_or_rows(part)
    sizes = split_file(
        source,
        *output,
        share=share,
        rows=n_rows,
        together=clusters or ids,
        seed=seed,
    )
    console = make_console(quiet=quiet)
    for path, size in zip(output, sizes, strict=True):
        console.print(f"Wrote {path}: {size:,} rows", highlight=False, soft_wrap=True)


def _as_share_or_rows(text: str) -> tuple[float | None, int | None]:
    """Read a share or a number of rows; the other one is None."""
    if text.strip().isdecimal() and len(text) < _MOST_DIGITS:
        return None, int(text)
    try:
        return as_rate(text, "part"), None
    except InputError:
        message = (
            "expected --part as a share between 0 and 1, as 0.5 or 50%, or a number of "
            f"rows, got {shown(text)}."
        )
        raise InputError(message) from None
