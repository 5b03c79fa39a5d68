"""Decisions to files: the rows as they were, with a score and a decision added."""

import os
from pathlib import Path

import polars as pl

from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files.formats import dialect_of, find_format
from trustdoctor.files.source import POLARS_ERRORS, Source, first_line

ADDED = "trustdoctor"
"""The struct column of all that is added to the rows, before it becomes columns."""

_ID_DIGITS = r"^[+-]?(0[0-9]|[0-9]{16,}$)"
"""Numbers that may be ids: leading zeros, or more digits than a float holds."""

_COLUMNS_PER_PASS = 1 << 12
"""Columns whose types are looked for in one query."""


def with_decisions(
    source: Source,
    decided: pl.Expr,
    output: Path,
    *added: str,
    alone: bool = False,
    only: str | None = None,
) -> pl.LazyFrame:
    """Return what is to be written: a table's columns and the decisions.

    For arrays only the decisions are written, and for a language model's responses the
    decisions with their ids. A file that is written `alone`, one per input file, has no
    columns from folders' names: its own folder tells. `only` keeps the accepted or the
    rejected rows. `added` are columns beside score and accepted.
    """
    are_tables = source.format.is_table and find_format(output).is_table
    if source.columns.choices is not None or not are_tables:
        rows = source.scan().select(decided).unnest(ADDED)
    else:
        check_names(source, *added)
        rows = kept_columns(source, output).with_columns(decided)
        rows = rows.drop(source.partitions if alone else []).unnest(ADDED)
    return rows if only is None else _rows_of(rows, only)


def _rows_of(rows: pl.LazyFrame, only: str) -> pl.LazyFrame:
    return rows.filter(pl.col("accepted") == (only == "accepted"))


def check_names(source: Source, *added: str) -> None:
    """Refuse rows that have columns which the decisions would overwrite."""
    overwritten = sorted({"score", "accepted", ADDED, *added} & set(source.names))
    if overwritten:
        message = (
            f"{source.files[0]} already has a column {overwritten[0]!r}, which the "
            "decisions would overwrite. Rename it."
        )
        raise FileError(message)


def write_decided(
    source: Source, added: pl.DataFrame, output: Path, *, only: str | None = None
) -> None:
    """Write a table's columns beside the added ones; for arrays only the added ones.

    `only` keeps the accepted or the rejected rows.
    """
    rows = added.lazy()
    if source.format.is_table and find_format(output).is_table:
        check_names(source, *added.columns)
        rows = source.collect(kept_columns(source, output)).hstack(added).lazy()
    if only is not None:
        rows = _rows_of(rows, only)
    try:
        with replacing(output) as temporary:
            sink(rows, source, output, temporary)
    except POLARS_ERRORS as error:
        message = f"cannot write {output}: {first_line(error)}. Nothing was changed."
        raise OutputError(message) from error


def sink(rows: pl.LazyFrame, source: Source, output: Path, temporary: Path) -> None:
    """Write all rows in their order, batch by batch, and flush them to the disk."""
    write = find_format(output).sink
    assert write is not None
    # polars takes paths in UTF-8 alone; Python shows other bytes as surrogates.
    if any("\ud800" <= character <= "\udfff" for character in str(temporary)):
        message = f"cannot write {output}: its folder has no name in UTF-8. Rename it."
        raise OutputError(message)
    write(escaped(rows) if source.for_spreadsheets else rows, temporary, source)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())


def kept_columns(source: Source, output: Path) -> pl.LazyFrame:
    """Return all columns; text that a number would lose stays text."""
    target = find_format(output)
    nested = [name for name, dtype in source.schema.items() if dtype.is_nested()]
    if nested and not target.nested:
        message = (
            f"cannot write {output}: column {nested[0]!r} holds lists, and "
            f"{target.name} holds none. Choose .parquet."
        )
        raise OutputError(message)
    binary = [name for name, dtype in source.schema.items() if dtype == pl.Binary]
    if binary and target.lines:
        message = (
            f"cannot write {output}: column {binary[0]!r} holds bytes, and "
            f"{target.name} holds none. Choose .parquet."
        )
        raise OutputError(message)
    return typed(source) if target.typed else source.scan()


def typed(source: Source) -> pl.LazyFrame:
    """Return all rows, text columns cast to the type that keeps them as they are."""
    lazy = source.scan()
    return lazy if source.format.typed else lazy.with_columns(_casts(source, lazy))


def _casts(source: Source, lazy: pl.LazyFrame) -> list[pl.Expr]:
    """Return casts of the text columns that a type keeps as they are."""
    fits: dict[str, bool] = {}
    for start in range(0, len(source.names), _COLUMNS_PER_PASS):
        names = source.names[start : start + _COLUMNS_PER_PASS]
        tests = _type_tests(source, names)
        fits |= source.collect(lazy.select(tests)).row(0, named=True)
    casts = []
    for name in source.names:
        text = _with_decimal_points(source, name)
        if fits[f"{name} none"]:
            continue
        if fits[f"{name} int"]:
            casts.append(text.cast(pl.Int64))
        elif fits[f"{name} bool"]:
            casts.append(text == "true")
        elif fits[f"{name} float"]:
            casts.append(text.str.strip_chars().cast(pl.Float64))
    return casts


def _type_tests(source: Source, names: list[str]) -> list[pl.Expr]:
    """Return queries of which types would keep each column as it is."""
    tests = []
    for name in names:
        text = _with_decimal_points(source, name)
        stripped = text.str.strip_chars()
        is_int = text.cast(pl.Int64, strict=False).cast(pl.String).eq_missing(text)
        is_float = stripped.cast(pl.Float64, strict=False).is_null() == text.is_null()
        is_id = stripped.str.contains(_ID_DIGITS).fill_null(value=False)
        is_bool = text.is_null() | text.is_in(["true", "false"])
        tests += [
            is_int.all().alias(f"{name} int"),
            (is_float & ~is_id).all().alias(f"{name} float"),
            is_bool.all().alias(f"{name} bool"),
            text.is_null().all().alias(f"{name} none"),
        ]
    return tests


def _with_decimal_points(source: Source, name: str) -> pl.Expr:
    """Return a column of text with points for the decimal commas that its file has."""
    text = pl.col(name)
    if not dialect_of(source).decimal_comma:
        return text
    return text.str.replace(r"^([+-]?[0-9]*),([0-9]+)$", "${1}.${2}")


# Spreadsheets take a cell that begins with one of these for a formula, which may run
# programs (OWASP: CSV injection). An apostrophe makes it text. A cell that begins with
# apostrophes before such a sign gets one more, so that each can be restored.
_FORMULA = r"^'*[=+\-@\t\r]"
_ESCAPED = r"^'('*[=+\-@\t\r])"
_NUMBER = r"(?i)^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)(e[+-]?[0-9]+)?$"


def escaped(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return a table in which no name and no text is a formula; numbers stay.

    Examples
    --------
    >>> rows = pl.LazyFrame({"=a": ["=1+1", "-2.5", "b-c", "'@x"]})
    >>> escaped(rows).collect().to_dict(as_series=False)
    {"'=a": ["'=1+1", '-2.5', 'b-c', "''@x"]}
    """
    names = pl.Series("name", rows.collect_schema().names(), dtype=pl.String)
    text = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    is_harmless = text.str.contains(_NUMBER) | ~text.str.contains(_FORMULA)
    cells = pl.when(is_harmless).then(text).otherwise(pl.lit("'") + text)
    escaped_names = names.str.replace(_FORMULA, "'${0}")
    return rows.with_columns(cells).rename(dict(zip(names, escaped_names, strict=True)))


def unescaped(table: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that `escaped` was given, of a table of text."""
    return table.with_columns(pl.col(pl.String).str.replace(_ESCAPED, "${1}"))
