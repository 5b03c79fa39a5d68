"""The file that people label: drawn rows, an empty column of labels, and the design."""

from pathlib import Path

import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files.formats import find_format
from trustdoctor.files.output import kept_columns, sink
from trustdoctor.files.output_paths import check_output
from trustdoctor.files.source import POLARS_ERRORS, Source, first_line


def write_label_file(
    source: Source,
    rows: Array,
    output: Path,
    design: dict[str, str],
    *,
    earlier: Source | None = None,
) -> str:
    """Write drawn rows with room for their labels, and return that column's name.

    Parameters
    ----------
    source : Source
    rows : integer array
        The numbers of the drawn rows.
    output : Path
    design : dict of str to str
        Columns that say how the rows were drawn, the same in every row.
    earlier : Source, optional
        A label file of the same pool: its labels are copied, by id.
    """
    check_output(output, *source.files, *(earlier.files if earlier else ()))
    if not (source.format.is_table and find_format(output).is_table):
        message = (
            f"expected a table, such as .csv or .parquet, to draw rows from, got "
            f"{source.name} and {output.name}."
        )
        raise FileError(message)
    table = source.collect(kept_columns(source, output))[rows]
    label = source.layout.label or source.layout.correct or _label_column(source)
    if label not in table.columns:
        table = table.with_columns(pl.lit(None, pl.String).alias(label))
    if earlier is not None:
        table = _with_earlier_labels(table, source, earlier, label)
    table = table.with_columns(
        pl.lit(text).alias(name) for name, text in design.items()
    )
    try:
        with replacing(output) as temporary:
            sink(table.lazy(), source, output, temporary)
    except POLARS_ERRORS as error:
        message = f"cannot write {output}: {first_line(error)}. Nothing was changed."
        raise OutputError(message) from error
    return label


def _label_column(source: Source) -> str:
    """Return what to call the new column: of answers without classes `correct`."""
    answers = source.layout.holds_answers and source.columns.predicted is None
    return source.columns.labels or ("correct" if answers else "label")


def _with_earlier_labels(
    table: pl.DataFrame, source: Source, earlier: Source, label: str
) -> pl.DataFrame:
    """Return the rows with the labels that an earlier file has for them."""
    ids = source.columns.ids or "id"
    lacking = [s.files[0] for s in (source, earlier) if ids not in s.names]
    if lacking or label not in earlier.names:
        missing = ids if lacking else label
        file = lacking[0] if lacking else earlier.files[0]
        message = (
            f"{file} has no column {missing!r}, by which earlier labels are copied. "
            "Name the ids: --ids NAME."
        )
        raise FileError(message)
    earlier_labels = earlier.collect(earlier.scan().select(ids, label)).drop_nulls(
        label
    )
    earlier_labels = earlier_labels.cast(pl.String).rename({label: f"{label} before"})
    joined = table.with_columns(pl.col(ids, label).cast(pl.String)).join(
        earlier_labels.unique(ids), on=ids, how="left", maintain_order="left"
    )
    before = f"{label} before"
    return joined.with_columns(pl.coalesce(label, before).alias(label)).drop(before)
