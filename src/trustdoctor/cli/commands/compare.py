"""The command that compares scores: compare."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trustdoctor import evaluation
from trustdoctor.cli.commands.diagnose import (
    CalibrateOnOption,
    HtmlOption,
    PageOptions,
    describe_calibration_file,
)
from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    ColumnOptions,
    FileArgument,
    JsonOption,
    MemoryOption,
    QuietOption,
    level_group,
)
from trustdoctor.cli.output import print_written, write_result
from trustdoctor.engines import require_fitting
from trustdoctor.files import find_source, warn_of_answers
from trustdoctor.predictions import Intake
from trustdoctor.progress import bar
from trustdoctor.report import make_console, show_comparison
from trustdoctor.scores import FittedScore, Score

LevelOption = Annotated[
    float | None,
    level_group("that no comparison errs, all together (default: 0.95)"),
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Seed of the split into thirds.")
]
ScoreOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Where to write the recommended score, if it is a fitted one.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def compare(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    level: LevelOption,
    seed: SeedOption = 0,
    columns: ColumnOptions,
    html: HtmlOption = None,
    calibrate_on: CalibrateOnOption = None,
    output: ScoreOutputOption = None,
    json_path: JsonOption = None,
    quiet: QuietOption = False,
    memory: MemoryOption,
) -> None:
    """Say which score to use: all that the file allows, judged against softmax.

    Give calibrate other rows than these: --score NAME, or --score FILE of -o.
    """
    page = PageOptions(html, calibrate_on=calibrate_on)
    page.check()
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {file.name}")
        source = find_source(file, columns)
        require_fitting(source, memory, "compare")
        source.require_labels("compare")
        predictions = source.read()
        tell(0.3, "comparing scores")
        confidence = 0.95 if level is None else level
        comparison = evaluation.compare(predictions, confidence=confidence, seed=seed)
        best = comparison.score
        if output is not None and isinstance(best, FittedScore):
            best.save(output)
        if html is not None:
            page.find_calibration_source(source, columns)  # refuses what cannot be
            comparison.to_html(
                html,
                options=columns.options(),
                **page.describe(source, file),
                **describe_calibration_file(page),
            )
    write_result(comparison.to_json(), json_path)
    console = make_console(quiet=quiet or json_path == "-")
    show_comparison(console, comparison)
    for line in (*Intake.of(predictions).lines(), *warn_of_answers(source)):
        console.print(f"- {line}", highlight=False)
    _print_score_file(console, output, best)
    print_written(console, html)


def _print_score_file(console: Console, output: Path | None, best: Score) -> None:
    """Say where the recommended score is, or that it needs no file."""
    if output is None or isinstance(best, FittedScore):
        print_written(console, output)
        return
    line = (
        f"{output} was not written: {best.name} needs no file. Calibrate with "
        f"--score {best.name}."
    )
    console.print(line, highlight=False)
