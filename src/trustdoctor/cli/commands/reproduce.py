"""The command that runs the paper's experiments again."""

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

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
        help="What --predictions or --model is about, or all to take of --data: "
        "cifar10, ..."
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
    int | None, typer.Option(help="At most this many rows, drawn at random.")
]
DrawsOption = Annotated[int, typer.Option(help="How often each mixture is drawn.")]
FineOption = Annotated[
    bool,
    typer.Option("--fine", metavar="", help="Sweep all of the paper's settings."),
]
ProtocolOption = Annotated[
    str, typer.Option(help="exact, or grid: evaluated as published.")
]
SeedOption = Annotated[int, typer.Option(help="Of what is drawn at random.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="A folder for Markdown, JSON and pictures. A run that was stopped goes on "
        "from what it left there.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ListOption = Annotated[
    bool, typer.Option("--list", metavar="", help="Name the experiments there are.")
]


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
        _list(console)
        return
    options = room.Options(
        seed, protocol, predictions, data, dataset, model, weights,
        ood=tuple(ood or ()),
        layers=tuple(layer for layer in layers.split(",") if layer),
        rows=rows, draws=draws, fine=fine,
    )  # fmt: skip
    _run(console, name, options, out, quiet=quiet)


def _list(console: Console) -> None:
    from trustdoctor.reproduce import EXPERIMENTS

    for name, entry in EXPERIMENTS.items():
        console.print(f"{name:<12}{entry.what}", highlight=False)


def _run(
    console: Console, name: str, options: Any, out: Path | None, *, quiet: bool
) -> None:
    from trustdoctor import reproduce as room

    steps = room.Steps(None if out is None else room.make_folder(out) / "cache")
    begun = time.monotonic()
    with bar(quiet=quiet) as tell:
        report = room.reproduce(name, replace(options, steps=steps, tell=tell))
    written = [] if out is None else report.write(out)
    if out is not None:
        command = shlex.join(["trustdoctor", *sys.argv[1:]])
        seconds = time.monotonic() - begun
        written.append(room.write_readme(out, report, command, seconds))
    room.show_report(console, report, written)
