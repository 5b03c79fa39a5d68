"""Decisions to files: the rows as they were, with a score and a decision added."""

import os
from pathlib import Path

import polars as pl

from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files.formats import dialect_of, find_format
from trustdoctor.files.source import POLARS_ERRORS, Source, first_line

ADDED = "trustdoctor"
"""The column that holds both decisions before they are told apart."""

_NO_NUMBER = r"^[+-]?(0[0-9]|[0-9]{16,}$)"
"""An id, with leading zeros or more digits than a float holds."""

_TOGETHER = 1 << 12  # columns whose types are looked for in one pass


def with_decisions(
    source: Source,
    decided: pl.Expr,
    output: Path,
    *more: str,
    alone: bool = False,
    only: str | None = None,
) -> pl.LazyFrame:
    """Return what is to be written: a table's columns and the decisions.

    Of arrays, and into arrays, the decisions alone are written, and of a language
    model's responses with their ids. A file that is written `alone`, one per input
    file, has no columns from folders' names: its own folder tells. `only` keeps the
    accepted or the rejected rows. `more` are columns beside score and accepted.
    """
    bare = source.columns.choices is not None
    if bare or not (source.format.is_table and find_format(output).is_table):
        rows = source.scan().select(decided).unnest(ADDED)
    else:
        check_names(source, *more)
        rows = kept_columns(source, output).with_columns(decided)
        rows = rows.drop(source.partitions if alone else []).unnest(ADDED)
    if only is None:
        return rows
    return rows.filter(pl.col("accepted") == (only == "accepted"))


def check_names(source: Source, *more: str) -> None:
    """Refuse rows that have columns which the decisions would overwrite."""
    taken = sorted({"score", "accepted", ADDED, *more} & set(source.names))
    if taken:
        message = (
            f"{source.files[0]} already has a column {taken[0]!r}, which the decisions "
            "would overwrite. Rename it."
        )
        raise FileError(message)


def sink(rows: pl.LazyFrame, source: Source, output: Path, temporary: Path) -> None:
    """Write all rows in their order, batch by batch, and have them on the disk."""
    write = find_format(output).sink
    assert write is not None
    if any("\ud800" <= one <= "\udfff" for one in str(temporary)):
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
    raw = [name for name, dtype in source.schema.items() if dtype == pl.Binary]
    if raw and target.lines:
        message = (
            f"cannot write {output}: column {raw[0]!r} holds bytes, and {target.name} "
            "holds none. Choose .parquet."
        )
        raise OutputError(message)
    return typed(source) if target.typed else source.scan()


def typed(source: Source) -> pl.LazyFrame:
    """Return all rows, text columns cast to the type that keeps them as they are."""
    lazy = source.scan()
    return lazy if source.format.typed else lazy.with_columns(_casts(source, lazy))


def _casts(source: Source, lazy: pl.LazyFrame) -> list[pl.Expr]:
    """Return casts of the text columns that a type keeps as they are."""
    found: dict[str, bool] = {}
    for first in range(0, len(source.names), _TOGETHER):
        names = source.names[first : first + _TOGETHER]
        tests = _kinds(source, names)
        found |= source.collect(lazy.select(tests)).row(0, named=True)
    casts = []
    for name in source.names:
        text = _pointed(source, name)
        if found[f"{name} none"]:
            continue
        if found[f"{name} int"]:
            casts.append(text.cast(pl.Int64))
        elif found[f"{name} bool"]:
            casts.append(text == "true")
        elif found[f"{name} float"]:
            casts.append(text.str.strip_chars().cast(pl.Float64))
    return casts


def _kinds(source: Source, names: list[str]) -> list[pl.Expr]:
    """Return which types would keep each column as it is."""
    tests = []
    for name in names:
        text = _pointed(source, name)
        plain = text.str.strip_chars()
        whole = text.cast(pl.Int64, strict=False).cast(pl.String).eq_missing(text)
        number = plain.cast(pl.Float64, strict=False).is_null() == text.is_null()
        padded = plain.str.contains(_NO_NUMBER).fill_null(value=False)
        truth = text.is_null() | text.is_in(["true", "false"])
        tests += [
            whole.all().alias(f"{name} int"),
            (number & ~padded).all().alias(f"{name} float"),
            truth.all().alias(f"{name} bool"),
            text.is_null().all().alias(f"{name} none"),
        ]
    return tests


def _pointed(source: Source, name: str) -> pl.Expr:
    """Return a column of text, a decimal comma as a point where the file has those."""
    text = pl.col(name)
    if not dialect_of(source).decimal_comma:
        return text
    return text.str.replace(r"^([+-]?[0-9]*),([0-9]+)$", "${1}.${2}")


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


_FORMULA = r"^'*[=+\-@\t\r]"
_ESCAPED = r"^'('*[=+\-@\t\r])"
_NUMBER = r"(?i)^[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)(e[+-]?[0-9]+)?$"


def escaped(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return a table in which no name and no text is a formula.

    Examples
    --------
    >>> rows = pl.LazyFrame({"=a": ["=1+1", "-2.5", "b-c", "'@x"]})
    >>> escaped(rows).collect().to_dict(as_series=False)
    {"'=a": ["'=1+1", '-2.5', 'b-c', "''@x"]}
    """
    names = pl.Series(rows.collect_schema().names(), dtype=pl.String)
    text = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    plain = text.str.contains(_NUMBER) | ~text.str.contains(_FORMULA)
    marked = pl.when(plain).then(text).otherwise(pl.lit("'") + text)
    own = names.to_frame("own").select(plain=_quoted("own")).to_series()
    return rows.with_columns(marked).rename(dict(zip(names, own, strict=True)))


def _quoted(name: str) -> pl.Expr:
    return pl.col(name).str.replace(_FORMULA, "'${0}")


def unescaped(table: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that `escaped` was given, of a table of text."""
    return table.with_columns(pl.col(pl.String).str.replace(_ESCAPED, "${1}"))
