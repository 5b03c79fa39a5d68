"""The command that puts a gate into an ONNX model: export."""

from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    GateOption,
    QuietOption,
)
from trustdoctor.cli.output import wrote
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
    from trustdoctor.adapters.onnx import export as run_export

    gate = Gate.load(gate_path)
    taken = run_export(model, gate, output, logits=logits, probs=probs)
    console = make_console(quiet=quiet)
    what = "probabilities" if taken.probs else "logits"
    for line in (
        f"Took {taken.why}: {what} in the tensor {taken.tensor}.",
        f"Added {_added(gate)}; {_grown(model, output)}.",
    ):
        console.print(line, highlight=False)
    wrote(console, output)


def _added(gate: Gate) -> str:
    doubt, short = f"doubt ({gate.score})", gate.shortlist
    if short is None:
        return f"{doubt} and accepted"
    return f"{doubt}, accepted and shortlist ({short.method}, {100 * short.level:g}%)"


def _grown(before: Path, after: Path) -> str:
    grown = after.stat().st_size - before.stat().st_size
    return f"the file grew by {grown / 1000:.1f} kB"
