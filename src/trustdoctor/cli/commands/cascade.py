"""The command that makes a cascade: cascade."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trustdoctor.cli.exit_codes import TRIVIAL
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    TARGETS_PANEL,
    OddLabelsOption,
    QuietOption,
    as_rate,
)
from trustdoctor.cli.output import (
    one_line,
    refusing_odd_labels,
    wrote,
)
from trustdoctor.cli.stages import Asking, Given, read_stages
from trustdoctor.errors import InputError, NoPolicyError
from trustdoctor.files import (
    Columns,
)
from trustdoctor.opinion import (
    Cascade,
    name_files,
)
from trustdoctor.progress import bar
from trustdoctor.report import (
    make_console,
    show_cascade,
)

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="What each model says of the same rows, the cheapest model first; or a "
        "language model's endpoint (.json).",
    ),
]
CostsOption = Annotated[
    str,
    typer.Option(
        metavar="A,B,C",
        help="What asking each model about a row costs, and last a person: 0,1,10.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
NamesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="What the models are called (default: the names of the files).",
    ),
]
ScoreNameOption = Annotated[
    str, typer.Option("--score", metavar="NAME", help="The score that doubts.")
]
CombineOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="average: a stage answers with the mean of all models asked so far. own: "
        "with its own answer.",
    ),
]
ShortlistOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Also lists of classes for the rows that go to a person, which hold the "
        "true one so often.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Of the draw that parts the rows.")
]
CascadeOutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="CASCADE",
        help="Where to write the cascade (JSON).",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Write the picture of cost against risk as a page.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def cascade(  # noqa: PLR0913 - one parameter per option
    files: FilesArgument,
    *,
    costs: CostsOption,
    target: dict[str, float],
    level: float | None,
    names: NamesOption = None,
    score: ScoreNameOption = "alpha",
    combine: CombineOption = "average",
    shortlist: ShortlistOption = None,
    seed: SeedOption = 0,
    asking: Asking,
    columns: Columns,
    output: CascadeOutputOption,
    html: HtmlOption = None,
    allow_odd_labels: OddLabelsOption = False,
    quiet: QuietOption = False,
    memory: int,
) -> None:
    """Ask a small model first, a larger one where it doubts, and then a person.

    Picks the thresholds that cost least under one promise for the whole: --risk,
    --joint or --trr. Rows of the FILEs are matched by id. Where no policy keeps the
    promise, or labels cannot be right, nothing is written, and the exit code is 3.
    """
    options: dict[str, Any] = {"costs": _costs(costs), "confidence": level or 0.9}
    options |= {"score": score, "combine": combine, "seed": seed, **target}
    if shortlist is not None:
        options["shortlist"] = as_rate(shortlist, "shortlist")
    named = None if names is None else [name.strip() for name in names.split(",")]
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {files[0].name}")
        given = read_stages(files, columns, asking, memory, output, html)
        tell(0.5, "calibrating")
        options |= {"names": named or name_files(files), "progress": tell}
        with refusing_odd_labels(output, allow=allow_odd_labels):
            found = _calibrated(given, options, output)
    if html is not None:
        found.to_html(html)
    found.save(output)
    show_cascade(make_console(quiet=quiet), found, output)
    wrote(make_console(quiet=quiet), html)


def _calibrated(given: Given, options: dict[str, Any], output: Path) -> Cascade:
    """Calibrate, or say that no policy keeps the promise, and end."""
    try:
        return Cascade.calibrate(given.stages, **given.options, **options)
    except NoPolicyError as error:
        line = f"{output} was not written: {error}"
        typer.echo(f"trustdoctor: {one_line(line)}", err=True)
        raise typer.Exit(TRIVIAL) from None


def _costs(text: str) -> list[float]:
    """Read costs with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        message = (
            f"expected --costs as numbers, one per model and one for a person, as "
            f"0,1,10, got {text!r}."
        )
        raise InputError(message) from None
