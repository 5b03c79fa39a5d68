"""A file in two random parts: one to look at, and one that nobody looked at."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, InputError
from trustdoctor.files.formats import find_format, suffix_of
from trustdoctor.files.source import Source
from trustdoctor.files.writing import check_output, kept_columns, sink

_FIRST = "trustdoctor first part"  # a column, while rows are told apart


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
        How much goes into the first: a share of the rows, or how many. With `together`,
        of the different values of that column.
    together : str, optional
        A column (a document, a patient, an id): rows of equal values stay together.
    seed : int
        The same seed gives the same parts.

    Returns
    -------
    n_first, n_second : int
        How many rows each part has.
    """
    if not source.format.is_table:
        return _split_arrays(source, (first, second), share, rows, together, seed)
    for path in (first, second):
        check_output(path, *source.files)
        if not find_format(path).is_table:
            message = f"expected a table as {path.name}, such as .csv or .parquet."
            raise FileError(message)
    if together is not None and together not in source.names:
        message = f"{source.files[0]} has no column {together!r}; it has "
        message += f"{', '.join(source.names[:20])}."
        raise FileError(message)
    column = source.names[0] if together is None else together
    values = source.collect(source.scan().select(column))[column]
    chosen = _choose(
        None if together is None else values, len(values), share, rows, seed
    )
    with ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path)) for path in (first, second)]
        marks = pl.LazyFrame({_FIRST: chosen})
        for path, temporary, part in zip(
            (first, second), temporaries, (True, False), strict=True
        ):
            table = pl.concat([kept_columns(source, path), marks], how="horizontal")
            lazy = table.filter(pl.col(_FIRST) == part).drop(_FIRST)
            sink(lazy, source, path, temporary)
    return int(chosen.sum()), int((~chosen).sum())


def _choose(
    values: pl.Series | None,
    n: int,
    share: float | None,
    rows: int | None,
    seed: int,
) -> Array:
    """Mark the rows of the first part."""
    units = n if values is None else values.n_unique()
    size = round(units * share) if share is not None else rows or 0
    if not 0 < size < units:
        what = "rows" if values is None else f"values of {values.name!r}"
        message = (
            f"expected two parts with at least one of {units:,} {what} each, got "
            f"{size:,} for the first. Give another --part."
        )
        raise InputError(message)
    drawn = np.random.default_rng(seed).permutation(units)[:size]
    chosen = np.zeros(units, bool)
    chosen[drawn] = True
    if values is None:
        return chosen
    codes = values.to_frame().select(pl.all().rank("dense")).to_series()
    return chosen[codes.fill_null(units).to_numpy().astype(np.int64) - 1]


def _split_arrays(  # noqa: PLR0913 - what `split_file` was given
    source: Source,
    paths: tuple[Path, Path],
    share: float | None,
    rows: int | None,
    together: str | None,
    seed: int,
) -> tuple[int, int]:
    """Split the arrays of an NPZ file that have one entry per row."""
    (file,) = source.files
    if {suffix_of(path) for path in (file, *paths)} != {".npz"}:
        message = f"expected two .npz files as parts of {file.name}."
        raise FileError(message)
    with np.load(file, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    if together is not None and together not in arrays:
        message = f"{file} has no array {together!r}; it has {', '.join(arrays)}."
        raise FileError(message)
    n = source.rows
    values = None if together is None else pl.Series(together, arrays[together])
    chosen = _choose(values, n, share, rows, seed)
    with ExitStack() as stack:
        for path, mask in zip(paths, (chosen, ~chosen), strict=True):
            temporary = stack.enter_context(replacing(path))
            part = {k: v[mask] if len(v) == n else v for k, v in arrays.items()}
            with temporary.open("wb") as out:
                np.savez_compressed(out, **part)
    return int(chosen.sum()), int((~chosen).sum())
