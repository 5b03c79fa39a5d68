"""The command that compares scores: compare."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trustdoctor import evaluation
from trustdoctor.cli.commands.diagnose import CalibrateOnOption, HtmlOption, Page
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    FileArgument,
    JsonOption,
    QuietOption,
)
from trustdoctor.cli.output import check_outputs, write_result, wrote
from trustdoctor.engines import require_fitting
from trustdoctor.files import (
    Columns,
    find_source,
    warn_of_answers,
)
from trustdoctor.predictions import Intake
from trustdoctor.progress import bar
from trustdoctor.report import make_console, show_comparison
from trustdoctor.scores import FittedScore, Score

ScoreOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Where to write the recommended fitted score.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Of the split into thirds.")]


def compare(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    level: float | None,
    seed: SeedOption = 0,
    columns: Columns,
    html: HtmlOption = None,
    calibrate_on: CalibrateOnOption = None,
    output: ScoreOutputOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    memory: int,
) -> None:
    """Say which score to use: all that the file allows, judged against softmax.

    Give calibrate other rows than these: --score NAME, or --score FILE of -o.
    """
    page = Page(html, None, None, calibrate_on)
    page.check()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, columns)
        check_outputs(source, json_path, output, html)
        require_fitting(source, memory, "compare")
        source.require_labels("compare")
        predictions = source.read()
        tell(0.3, "comparing scores")
        sure = 0.95 if level is None else level
        found = evaluation.compare(predictions, confidence=sure, seed=seed)
        best = found.score
        if output is not None and isinstance(best, FittedScore):
            best.save(output)
        if html is not None:
            about = page.about(source, file)
            about |= page.other_rows(source, columns)
            found.to_html(html, options=columns.options(), **about)
    write_result(found.to_json(), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_comparison(console, found)
    for line in (*Intake.of(predictions).lines(), *warn_of_answers(source)):
        console.print(f"- {line}", highlight=False)
    _tell_score(console, output, best)
    wrote(console, html)


def _tell_score(console: Console, output: Path | None, best: Score) -> None:
    """Say where the recommended score is, or that it needs no file."""
    if output is None or isinstance(best, FittedScore):
        wrote(console, output)
        return
    line = (
        f"{output} was not written: {best.name} needs no file. Calibrate with "
        f"--score {best.name}."
    )
    console.print(line, highlight=False)
