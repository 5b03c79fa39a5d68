"""The command that runs a local model: predict."""

from pathlib import Path
from typing import Annotated

import typer

from trustdoctor.cli.options import (
    OUTPUT_PANEL,
    LastLineOption,
    QuietOption,
)
from trustdoctor.cli.output import print_written
from trustdoctor.files import check_output, read_rows, read_values, write_logits
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
    typer.Option(metavar="N", help="At most N rows, drawn at random."),
]
LengthOption = Annotated[
    int | None, typer.Option(metavar="N", help="At most N tokens per text.")
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
    seed: Annotated[int, typer.Option(help="Seed of the draw of --rows.")] = 0,
    last_line: LastLineOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run a local model over a table and write its predictions beside the rows."""
    check_output(output)
    table = read_rows(
        data, column, where=where, rows=rows, seed=seed, last_line=last_line
    )
    values = read_values(table, column)
    from trustdoctor.adapters import transformers as adapter

    with bar(quiet=quiet) as tell:
        tell(0.0, "loading the model")
        network, processor = adapter.load_folder(model)
        predictions = adapter.predict(
            network,
            values,
            processor=processor,
            max_length=max_length,
            batch_size=batch_size,
            progress=tell,
        )
    write_logits(output, table, predictions.logits, adapter.class_names(network))
    console = make_console(quiet=quiet)
    line = f"{len(predictions):,} rows over {predictions.n_classes} classes."
    console.print(line, highlight=False)
    print_written(console, output)
