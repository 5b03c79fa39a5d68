"""Commands around a model: predict, export."""

from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    GateOption,
    LastLineOption,
    QuietOption,
)
from trustdoctor.cli.printing import wrote
from trustdoctor.files import check_output, read_rows, read_values, write_logits
from trustdoctor.gates import Gate
from trustdoctor.progress import bar
from trustdoctor.report import make_console

ColumnOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="The column of texts, or of encoded images."),
]
WhereOption = Annotated[
    str | None, typer.Option(metavar="COLUMN=VALUE", help="Only these rows.")
]
RowsOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="At most this many, drawn at random."),
]
LengthOption = Annotated[
    int | None, typer.Option(metavar="N", help="At most this many tokens per text.")
]
ModelOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="A local folder, Hugging Face layout.")
]
DataOption = Annotated[
    Path, typer.Option(metavar="FILE", help="Rows to classify: .parquet or .csv.")
]
RowsOutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The rows with logits added.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
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


def predict(  # noqa: PLR0913 - one parameter per option
    *,
    model: ModelOption,
    data: DataOption,
    output: RowsOutputOption,
    column: ColumnOption = "text",
    where: WhereOption = None,
    rows: RowsOption = None,
    max_length: LengthOption = None,
    batch_size: Annotated[int, typer.Option(help="Rows per pass.")] = 32,
    seed: Annotated[int, typer.Option(help="Of --rows.")] = 0,
    last_line: LastLineOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run a local model over a table and write its predictions beside the rows."""
    check_output(output, data, *model.glob("*"))
    table = read_rows(
        data, column, where=where, rows=rows, seed=seed, last_line=last_line
    )
    values = read_values(table, column)
    from trustdoctor.adapters import transformers as adapter

    with bar(quiet=quiet) as tell:
        tell(0.0, "loading the model")
        loaded, processor = adapter.load_folder(model)
        found = adapter.predict(
            loaded,
            values,
            processor=processor,
            max_length=max_length,
            batch_size=batch_size,
            progress=tell,
        )
    write_logits(output, table, found.logits, adapter.class_names(loaded))
    console = make_console(quiet=quiet)
    line = f"{len(found):,} rows over {found.n_classes} classes."
    console.print(line, highlight=False)
    wrote(console, output)


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
