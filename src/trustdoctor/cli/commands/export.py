"""The command that puts a gate into an ONNX model: export."""

from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    GateOption,
    QuietOption,
)
from trustdoctor.cli.output import print_written
from trustdoctor.gates import Gate
from trustdoctor.report import make_console

GuardedOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Where to write the guarded model.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


def export(  # noqa: PLR0913 - one parameter per option
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.")],
    *,
    gate_path: GateOption,
    output: GuardedOption,
    logits: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tensor of logits.")
    ] = None,
    probs: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tensor of probabilities.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Put a gate into an ONNX model, as two more outputs: doubt and accepted.

    A gate with a shortlist adds a third: the classes of a rejected row, as a mask.
    """
    from trustdoctor.adapters.onnx import export as export_gate

    gate = Gate.load(gate_path)
    source = export_gate(model, gate, output, logits=logits, probs=probs)
    console = make_console(quiet=quiet)
    kind = "probabilities" if source.probs else "logits"
    growth = (output.stat().st_size - model.stat().st_size) / 1000
    for line in (
        f"Took {source.why}: {kind} in the tensor {source.tensor}.",
        f"Added {_added_outputs(gate)}; the file grew by {growth:.1f} kB.",
    ):
        console.print(line, highlight=False)
    print_written(console, output)


def _added_outputs(gate: Gate) -> str:
    doubt, shortlist = f"doubt ({gate.score_name})", gate.shortlist
    if shortlist is None:
        return f"{doubt} and accepted"
    lists = f"shortlist ({shortlist.method}, {100 * shortlist.level:g}%)"
    return f"{doubt}, accepted and {lists}"
