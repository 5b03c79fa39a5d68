"""The command that runs the paper's experiments again."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import OUTPUT_PANEL, QuietOption
from trustdoctor.progress import bar
from trustdoctor.report import make_console

PredictionsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Softmax outputs or logits, and labels."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="A folder of data sets and prediction files."),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        help="The data set of --predictions or --model, or all those to take of "
        "--data: cifar10, ..."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="FILE.py:NAME", help="NAME() builds a torch model."),
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="The model's weights, as safetensors.")
]
LayersOption = Annotated[
    str, typer.Option(help="Layers for Mahalanobis, separated by commas.")
]
OodOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Out-of-distribution rows: a data set, folder or prediction file. "
        "Repeatable."
    ),
]
RowsOption = Annotated[
    int | None, typer.Option(help="At most N rows, drawn at random.")
]
DrawsOption = Annotated[int, typer.Option(help="How many times each mixture is drawn.")]
FineOption = Annotated[
    bool,
    typer.Option("--fine", help="Sweep all of the paper's settings."),
]
ProtocolOption = Annotated[
    str, typer.Option(help="exact, or grid: evaluated as published.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of all random draws.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="A folder for Markdown, JSON and pictures. A run that was stopped goes on "
        "from what it left there.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ListOption = Annotated[bool, typer.Option("--list", help="List the experiments.")]


def reproduce(  # noqa: PLR0913 - one parameter per option
    name: Annotated[str | None, typer.Argument(help="The experiment.")] = None,
    *,
    listing: ListOption = False,
    predictions: PredictionsOption = None,
    data: DataOption = None,
    dataset: DatasetOption = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    layers: LayersOption = "",
    ood: OodOption = None,
    rows: RowsOption = None,
    draws: DrawsOption = 10,
    fine: FineOption = False,
    protocol: ProtocolOption = "exact",
    out: OutOption = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Run an experiment of the DOCTOR paper again, beside its own numbers.

    Every experiment takes every option; its notes name those that change nothing.
    """
    from trustdoctor import reproduce as room

    console = make_console(quiet=quiet)
    if listing or name is None:
        for experiment, entry in room.EXPERIMENTS.items():
            console.print(f"{experiment:<12}{entry.title}", highlight=False)
        return
    started = time.monotonic()
    steps = room.Steps(None if out is None else room.make_folder(out) / "cache")
    with bar(quiet=quiet) as tell:
        options = room.Options(
            seed, protocol, predictions, data, dataset, model, weights,
            ood=tuple(ood or ()),
            layers=tuple(layer for layer in layers.split(",") if layer),
            rows=rows, draws=draws, fine=fine, steps=steps, tell=tell,
        )  # fmt: skip
        report = room.reproduce(name, options)
    written = []
    if out is not None:
        written += report.write(out)
        command = shlex.join(["trustdoctor", *sys.argv[1:]])
        seconds = time.monotonic() - started
        written.append(room.write_readme(out, report, command, seconds))
    room.show_report(console, report, written)
