"""The command that draws the rows to label: draw."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    FileArgument,
    MemoryOption,
    PoolColumnOptions,
    QuietOption,
    as_rate,
    named_score,
)
from trustdoctor.engines import require_fitting
from trustdoctor.errors import InputError
from trustdoctor.files import DRAW_COLUMN, Columns, find_source, write_label_file
from trustdoctor.gates import TARGETS, Gate, LabelDraw
from trustdoctor.gates import draw as draw_labels
from trustdoctor.report import make_console

ForOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TARGET=RATE",
        help="What will be promised: risk=5%, frr=2%, ...",
    ),
]
LabelsOption = Annotated[
    int, typer.Option("--labels", metavar="N", help="How many rows to label.")
]
GateOption = Annotated[
    Path | None,
    typer.Option(
        "--gate",
        metavar="GATE",
        help="Instead of --for: draw among the rows that this gate rejects, for its "
        "shortlist.",
    ),
]
ScoreOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The gate's score (default: alpha)."),
]
AccuracyOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="The model's accuracy, if it is known: the draw is then better aimed.",
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Seed of the random draw.")]
LooksOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="How many calibrations are planned, on more and more rows of this draw; "
        "they share the level.",
    ),
]
AfterOption = Annotated[
    Path | None,
    typer.Option(
        "--after",
        metavar="FILE",
        help="An earlier file to label, of the same rows: --labels counts both, and "
        "its labels are copied.",
    ),
]
LabelFileOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where the rows to label go.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def draw(  # noqa: PLR0913 - one parameter per option
    file: FileArgument,
    *,
    target: ForOption = None,
    labels: LabelsOption,
    gate_path: GateOption = None,
    score: ScoreOption = None,
    accuracy: AccuracyOption = None,
    columns: PoolColumnOptions,
    seed: SeedOption = 0,
    looks: LooksOption = 1,
    after: AfterOption = None,
    output: LabelFileOption,
    quiet: QuietOption = False,
    memory: MemoryOption,
) -> None:
    """Draw the rows to label, where labels count.

    A promise of risk is about the rows that a gate accepts, so rows are drawn among
    those that it could accept. Fill in their labels, leave blank those that nobody
    knows, and give the file to calibrate: it reads how its rows were drawn.
    """
    source = find_source(file, replace(columns, need_labels=False))
    require_fitting(source, memory, "draw")
    pool = source.read()
    earlier = None if after is None else find_source(after, Columns(need_labels=False))
    before = None
    if earlier is not None:
        design = earlier.draw_design
        if not design:
            message = f"{after} was not written by trustdoctor draw. Leave --after out."
            raise InputError(message)
        before = LabelDraw.from_text(design)
    if (target is None) == (gate_path is None):
        message = "expected --for TARGET=RATE, such as risk=5%, or --gate: one of them."
        raise InputError(message)
    name, value = _as_target(target)
    drawn = draw_labels(
        pool,
        labels=labels,
        target=None if name is None else {name: value},
        score=None if score is None else named_score(score),
        accuracy=None if accuracy is None else as_rate(accuracy, "accuracy"),
        gate=None if gate_path is None else Gate.load(gate_path),
        seed=seed,
        looks=looks,
        after=before,
    )
    carried = {} if drawn.target == "shortlist" else {DRAW_COLUMN: drawn.to_text()}
    label = write_label_file(source, drawn.rows, output, carried, earlier=earlier)
    console = make_console(quiet=quiet)
    console.print(drawn.words(), highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"Wrote {output}: fill in the column {label}, and keep every row.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _as_target(text: str | None) -> tuple[str | None, float]:
    """Read what will be promised, as risk=5%."""
    if text is None:
        return None, 0.0
    name, equals, value = text.partition("=")
    if not equals or name not in TARGETS:
        message = f"expected --for as TARGET=RATE, such as risk=5%, got {text!r}."
        raise InputError(message)
    return name, as_rate(value, "for")
