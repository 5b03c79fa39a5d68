"""Decisions on rows that were read at once, written beside those rows."""

from pathlib import Path

import polars as pl

from trustdoctor.atomic import replacing
from trustdoctor.errors import OutputError
from trustdoctor.files.formats import find_format
from trustdoctor.files.source import POLARS_ERRORS, Source, first_line
from trustdoctor.files.writing import check_names, kept_columns, sink


def write_decided(
    source: Source, added: pl.DataFrame, output: Path, *, only: str | None = None
) -> None:
    """Write a table's columns and those that are added; of arrays the latter alone.

    `only` keeps the accepted or the rejected rows.
    """
    rows = added.lazy()
    if source.format.is_table and find_format(output).is_table:
        check_names(source, *added.columns)
        rows = source.collect(kept_columns(source, output)).hstack(added).lazy()
    if only is not None:
        rows = rows.filter(pl.col("accepted") == (only == "accepted"))
    try:
        with replacing(output) as temporary:
            sink(rows, source, output, temporary)
    except POLARS_ERRORS as error:
        message = f"cannot write {output}: {first_line(error)}. Nothing was changed."
        raise OutputError(message) from error
