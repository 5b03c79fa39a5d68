"""Decisions to files: the rows as they were, with a score and a decision added."""

from pathlib import Path

import numpy as np
import polars as pl

from trustdoctor.adapters.files import (
    SUFFIXES,
    first_line,
    read_table,
    suffix_of,
    tidy,
)
from trustdoctor.errors import FileError, OutputError
from trustdoctor.gate import Screened
from trustdoctor.output import replacing, require_writable


def write_decisions(path: str | Path, source: str | Path, screened: Screened) -> None:
    """Write the rows of `source` with the columns `score` and `accepted` added.

    From a table all columns are kept in their order; from NPZ the two alone are
    written. The suffix of `path` says the format.
    """
    target = check_output(path, source)
    added = {"score": screened.scores, "accepted": screened.accepted}
    if suffix_of(target) == ".npz":
        with replacing(target) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **added)  # type: ignore[arg-type]
        return
    table = pl.DataFrame(added)
    if suffix_of(Path(source)) != ".npz":
        table = _with_added(_kept(Path(source), target), table, source)
    with replacing(target) as temporary:
        _write_table(table, temporary, target)


def check_output(path: str | Path, source: str | Path) -> Path:
    """Say before any work why decisions cannot be written there."""
    target = Path(path)
    if suffix_of(target) not in SUFFIXES:
        message = f"expected an output in {', '.join(SUFFIXES)}, got {target.name!r}."
        raise FileError(message)
    if require_writable(target) == Path(source).resolve():
        message = f"the output {target} is the input itself. Name another file."
        raise OutputError(message)
    return target


def _kept(source: Path, target: Path) -> pl.DataFrame:
    """Return the source's columns; CSV text that a number would lose stays text."""
    table = read_table(source)
    if suffix_of(source) != ".csv":
        return table
    text = tidy(pl.read_csv(source, infer_schema=False, glob=False), source)
    if suffix_of(target) == ".csv":
        return text
    whole = [name for name in table.columns if table[name].dtype.is_integer()]
    lossy = [n for n in whole if (table[n].cast(pl.String) != text[n]).any()]
    return table.with_columns(text[name] for name in lossy)


def _write_table(table: pl.DataFrame, temporary: Path, target: Path) -> None:
    nested = [name for name in table.columns if table[name].dtype.is_nested()]
    if suffix_of(target) == ".csv" and nested:
        message = (
            f"cannot write {target}: column {nested[0]!r} holds lists, and a CSV holds "
            "none. Choose .parquet."
        )
        raise OutputError(message)
    try:
        if suffix_of(target) == ".csv":
            table.write_csv(temporary)
        else:
            table.write_parquet(temporary)
    except pl.exceptions.PolarsError as error:
        message = f"cannot write {target}: {first_line(error)}. Nothing was changed."
        raise OutputError(message) from error


def _with_added(
    table: pl.DataFrame, added: pl.DataFrame, source: str | Path
) -> pl.DataFrame:
    taken = sorted(set(table.columns) & set(added.columns))
    if taken:
        message = (
            f"{source} already has a column {taken[0]!r}, which the decisions would "
            "overwrite. Rename it."
        )
        raise FileError(message)
    return table.hstack(added)
