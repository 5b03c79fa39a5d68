"""The command that makes a cascade: cascade."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    TARGETS_PANEL,
    MemoryOption,
    OddLabelsOption,
    OptionGroup,
    QuietOption,
    as_rate,
    as_target,
    option,
    target_options,
)
from trustdoctor.cli.output import print_written, refuse_to_write, refusing_odd_labels
from trustdoctor.cli.stages import StageColumnOptions, StageInputOptions, read_stages
from trustdoctor.errors import InputError, NoPolicyError
from trustdoctor.opinion import CASCADE_TARGETS, Cascade, name_files
from trustdoctor.progress import bar
from trustdoctor.report import make_console, show_cascade

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Each model's predictions of the same rows, the cheapest model first; or "
        "a language model's endpoint (.json).",
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
        metavar="A,B", help="The models' names (default: the names of the files)."
    ),
]
ScoreNameOption = Annotated[
    str, typer.Option("--score", metavar="NAME", help="The score that measures doubt.")
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
        "true class at this rate.",
        rich_help_panel=TARGETS_PANEL,
    ),
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Seed of the split of the rows.")
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


def _level_options() -> list[inspect.Parameter]:
    text = "The probability that the promise holds (default: 0.9)."
    level = option("confidence", str | None, text, panel=TARGETS_PANEL, metavar="RATE")
    return [level]


def _as_level(*, confidence: str | None) -> float:
    return 0.9 if confidence is None else as_rate(confidence, "confidence")


def _target_options() -> list[inspect.Parameter]:
    return [target for target in target_options() if target.name in CASCADE_TARGETS]


LevelOption = Annotated[float, OptionGroup(_level_options, _as_level)]
CascadeTargetOptions = Annotated[
    dict[str, float], OptionGroup(_target_options, as_target)
]


def cascade(  # noqa: PLR0913 - one parameter per option
    files: FilesArgument,
    *,
    costs: CostsOption,
    target: CascadeTargetOptions,
    level: LevelOption,
    names: NamesOption = None,
    score: ScoreNameOption = "alpha",
    combine: CombineOption = "average",
    shortlist: ShortlistOption = None,
    seed: SeedOption = 0,
    inputs: StageInputOptions,
    columns: StageColumnOptions,
    output: CascadeOutputOption,
    html: HtmlOption = None,
    allow_odd_labels: OddLabelsOption = False,
    quiet: QuietOption = False,
    memory: MemoryOption,
) -> None:
    """Ask a small model first, a larger one where it doubts, and then a person.

    Picks the thresholds that cost least under one promise for the whole: --risk,
    --joint or --trr. Rows of the FILEs are matched by id. If no policy keeps the
    promise, or the labels cannot be right, nothing is written and the exit code is 3.
    """
    options: dict[str, Any] = {
        "costs": _as_costs(costs),
        "confidence": level,
        "score": score,
        "combine": combine,
        "seed": seed,
        "target": target,
    }
    if shortlist is not None:
        options["shortlist"] = as_rate(shortlist, "shortlist")
    with bar(quiet=quiet) as tell:
        tell(0.0, f"reading {files[0].name}")
        stage_inputs = read_stages(files, columns, inputs, memory)
        tell(0.5, "calibrating")
        options["names"] = (
            name_files(files)
            if names is None
            else [name.strip() for name in names.split(",")]
        )
        try:
            with refusing_odd_labels(output, allow=allow_odd_labels):
                calibrated = Cascade.calibrate(
                    stage_inputs.stages,
                    progress=tell,
                    **stage_inputs.options,
                    **options,
                )
        except NoPolicyError as error:
            refuse_to_write(f"{output} was not written: {error}")
    if html is not None:
        calibrated.to_html(html)
    calibrated.save(output)
    console = make_console(quiet=quiet)
    show_cascade(console, calibrated, output)
    print_written(console, html)


def _as_costs(text: str) -> list[float]:
    """Read costs with commas between them."""
    try:
        return [float(cost) for cost in text.split(",")]
    except ValueError:
        message = (
            f"expected --costs as numbers, one per model and one for a person, as "
            f"0,1,10, got {text!r}."
        )
        raise InputError(message) from None
