"""A file split at random in two: one part to look at, and one that nobody has seen."""

import os
import zipfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.files.formats import find_format, suffix_of
from trustdoctor.files.output import kept_columns, sink
from trustdoctor.files.output_paths import check_output
from trustdoctor.files.source import POLARS_ERRORS, Source, first_line

_FIRST = "trustdoctor first part"
"""A temporary column: whether a row goes into the first file."""

_ROW = "trustdoctor row"
"""A temporary column: the number of a row."""


def split_file(  # noqa: PLR0913 - options, by keyword only
    source: Source,
    first: Path,
    second: Path,
    *,
    share: float | None = None,
    rows: int | None = None,
    together: str | None = None,
    seed: int = 0,
) -> tuple[int, int]:
    """Write a random part of the rows into one file, and all others into another.

    Rows keep their order and their columns. Both files appear complete, or neither.

    Parameters
    ----------
    source : Source
        One file, or several that are read one after another.
    first, second : Path
        Where the two parts go; of the kind of the source, or another table.
    share, rows : float, int
        How much goes into the first: a share of the rows, or a number of them. With
        `together` it counts the different values of that column.
    together : str, optional
        A column (a document, a patient, an id): rows of equal values stay together.
        A row without a value is drawn by itself.
    seed : int
        The same seed gives the same parts.

    Returns
    -------
    n_first, n_second : int
        The number of rows in each file.
    """
    for path in (first, second):
        check_output(path, *source.files)
    if type(seed) is not int or seed < 0:
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    if not source.format.is_table:
        return _split_arrays(source, (first, second), share, rows, together, seed)
    for path in (first, second):
        if not find_format(path).is_table:
            message = f"expected a table as {path.name}, such as .csv or .parquet."
            raise FileError(message)
    in_first = _draw_rows(_table_units(source, together), share, rows, seed)
    with ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path)) for path in (first, second)]
        marks = pl.LazyFrame({_FIRST: in_first})
        for path, temporary, is_first in zip(
            (first, second), temporaries, (True, False), strict=True
        ):
            table = pl.concat([kept_columns(source, path), marks], how="horizontal")
            lazy = table.filter(pl.col(_FIRST) == is_first).drop(_FIRST)
            try:
                sink(lazy, source, path, temporary)
            except POLARS_ERRORS as error:
                # If the input is damaged, this raises an error that names it.
                source.collect(source.scan().select(pl.all().null_count()))
                why = first_line(error)
                message = f"cannot write {path}: {why}. Nothing was changed."
                raise OutputError(message) from error
    return int(in_first.sum()), int((~in_first).sum())


def _table_units(source: Source, together: str | None) -> Array:
    """Return the unit of each row, by which it is drawn; equal values are one unit."""
    if together is not None and together not in source.names:
        message = f"{source.files[0]} has no column {together!r}; it has "
        message += f"{', '.join(source.names[:20])}."
        raise FileError(message)
    column = source.names[0] if together is None else together
    values = source.collect(source.scan().select(column))[column]
    return np.arange(len(values)) if together is None else _value_units(values)


def _value_units(values: pl.Series) -> Array:
    """Return the unit of each row by its value; a row without a value is one alone.

    Blank texts and NaN count as missing: other tools write missing ids so.
    """
    name = values.name
    if values.dtype == pl.String:
        values = values.set(values.str.strip_chars() == "", None)
    elif values.dtype.is_float():
        values = values.fill_nan(None)
    rows = values.to_frame().with_row_index(_ROW)
    first_row = pl.col(_ROW).min().over(name)
    is_missing = pl.col(name).is_null()
    first_rows = rows.select(pl.when(is_missing).then(_ROW).otherwise(first_row))
    return np.unique(first_rows.to_series().to_numpy(), return_inverse=True)[1]


def _draw_rows(units: Array, share: float | None, rows: int | None, seed: int) -> Array:
    """Return which rows go into the first file, given each row's unit."""
    n = int(units.max(initial=-1)) + 1
    size = round(n * share) if share is not None else rows or 0
    if not 0 < size < n:
        what = "rows" if n == len(units) else "groups of rows that stay together"
        message = (
            f"expected each part to get at least 1 of {n:,} {what}, got {size:,} for "
            "the first. Give another --part, or a file with more."
        )
        raise InputError(message)
    drawn = np.zeros(n, bool)
    drawn[np.random.default_rng(seed).permutation(n)[:size]] = True
    return drawn[units]


def _split_arrays(  # noqa: PLR0913 - what `split_file` was given
    source: Source,
    paths: tuple[Path, Path],
    share: float | None,
    rows: int | None,
    together: str | None,
    seed: int,
) -> tuple[int, int]:
    """Split the arrays of an NPZ file that have one entry per row."""
    file, n_rows = source.files[0], source.rows
    if len(source.files) > 1 or suffix_of(file) != ".npz":
        message = f"expected a table or one .npz file to split, got {source.name}."
        raise FileError(message)
    if {suffix_of(path) for path in paths} != {".npz"}:
        message = f"expected two .npz files as parts of {file.name}."
        raise FileError(message)
    try:
        with np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except Exception as error:  # a damaged archive fails in many ways
        message = f"cannot read the arrays of {file}: {first_line(error)}."
        raise FileError(message) from error
    # As many classes as rows would make the names of classes look like entries of rows.
    per_row = {k for k, v in arrays.items() if v.shape[:1] == (n_rows,)}
    per_row -= {"class_names"}
    units = np.arange(n_rows)
    if together is not None:
        if together not in per_row or arrays[together].ndim != 1:
            columns = ", ".join(sorted(k for k in per_row if arrays[k].ndim == 1))
            message = f"expected an array of one value per row as {together!r}"
            message += f"; {file} has {columns or 'none'}."
            raise FileError(message)
        units = _value_units(pl.Series(together, arrays[together]))
    in_first = _draw_rows(units, share, rows, seed)
    with ExitStack() as stack:
        for path, mask in zip(paths, (in_first, ~in_first), strict=True):
            temporary = stack.enter_context(replacing(path))
            drawn = {k: v[mask] if k in per_row else v for k, v in arrays.items()}
            _write_arrays(temporary, drawn)
    return int(in_first.sum()), int((~in_first).sum())


def _write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write an NPZ file; `np.savez` takes an array called "file" for its own option."""
    with path.open("wb") as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        out.flush()
        os.fsync(out.fileno())
