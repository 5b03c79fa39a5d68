"""Columns of a file whose values rows share, and within which errors go together."""

import shlex
from typing import NamedTuple

import numpy as np
import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.evaluation import ClusteredErrors
from trustdoctor.files import Source
from trustdoctor.predictions import Predictions

SAMPLE = 100_000
"""Rows that are enough: the first of files that are streamed, else some values' own."""

MOST_LOADED = 2_000_000
"""Of more rows the other columns are not held in memory."""

_SAMPLE_BYTES = 100_000_000
_MOST_COMPARED = 32  # columns of a row


class ErrorClusters(NamedTuple):
    """The column within whose values errors go together most, and what to say of it.

    Attributes
    ----------
    column : str
        Empty where there is none.
    lines : tuple of str
    """

    column: str = ""
    lines: tuple[str, ...] = ()


def load_checked(
    source: Source, *more: str
) -> tuple[Predictions, pl.DataFrame, ErrorClusters]:
    """Read all rows at once, and say within which column their errors go together.

    The table has the columns that predictions are made of, and those that are named.
    """
    if source.about_rows > MOST_LOADED:
        return *source.load(*more), ErrorClusters(lines=sampled_warnings(source))
    predictions, table = source.load(*more, *source.shared_columns)
    return predictions, table, find_clusters(source, predictions, table)


def find_clusters(
    source: Source, predictions: Predictions, table: pl.DataFrame, *, where: str = ""
) -> ErrorClusters:
    """Find the column within which errors go together, of those that nothing names.

    Parameters
    ----------
    source : Source
    predictions : Predictions
        Of all rows of the table; those without a label are left out.
    table : DataFrame
        With the source's shared columns.
    where : str
        Which rows these are, if not all.
    """
    if predictions.labels is None:
        return ErrorClusters()
    tests = {
        name: test
        for name in source.shared_columns
        if (test := _tested(table[name], predictions)) is not None
    }
    clear = {name: test for name, test in tests.items() if test.clear(len(tests))}
    if not clear:
        return ErrorClusters()
    name, *others = sorted(clear, key=lambda name: -clear[name].inflation)
    test = clear[name]
    likewise = f" So do those of {', '.join(map(repr, others))}." if others else ""
    line = (
        f"Errors go together in rows with the same {name!r} ({test.values:,} values, "
        f"{test.n / test.values:.1f} rows each{where}): intervals for rows that are "
        f"drawn one by one are about {np.sqrt(test.inflation):.1f} times too narrow, "
        f"and a promise may break. Calibrate with --clusters {shlex.quote(name)}."
        f"{likewise}"
    )
    return ErrorClusters(name, (line,))


def sampled_warnings(source: Source) -> tuple[str, ...]:
    """Say the same of the first rows, of files that are not read at once."""
    names = source.shared_columns
    if not names:
        return ()
    rows = min(SAMPLE, _SAMPLE_BYTES // source.row_bytes)
    table = source.head([*source.needed, *names], rows)
    where = f" in the first {len(table):,} rows"
    return find_clusters(source, source.predictions(table), table, where=where).lines


def count_shared_rows(first: Source, second: Source) -> int:
    """Count rows of the second file that the first has, too; 0 where chance does it.

    The first rows of both are compared, by plain columns that both have. Where many
    rows of one file are equal to one another, such as short numbers alone, equal rows
    need not be the same.
    """
    both = [name for name in first.names if name in second.names]
    plain = [
        name
        for name in both
        if not any(_holds_parts(source.schema[name]) for source in (first, second))
    ]
    if not plain:
        return 0
    columns = plain[:_MOST_COMPARED]
    hashes = [
        source.head(columns, SAMPLE).cast(pl.String).hash_rows(seed=0)
        for source in (first, second)
    ]
    shared = int(hashes[1].is_in(hashes[0].unique().implode()).sum())
    by_chance = hashes[0].is_duplicated().sum() / max(1, len(hashes[0]))
    return shared if shared > 2 * by_chance * len(hashes[1]) else 0


def _holds_parts(kind: pl.DataType) -> bool:
    """Tell lists and bytes, such as pictures, from what is one value of a row."""
    return kind.is_nested() or kind in (pl.Binary, pl.Object)


def _tested(column: pl.Series, predictions: Predictions) -> ClusteredErrors | None:
    """Test a column; None where it says what labels or predictions say."""
    labels = predictions.labels
    assert labels is not None
    eligible = predictions.has_label & column.is_not_null().to_numpy()
    if len(column) > SAMPLE:  # all rows of some values
        share = -(-len(column) // SAMPLE)
        eligible &= (column.hash() % share == 0).to_numpy()
    rows = np.flatnonzero(eligible)
    values, ordered = _numbered(column.gather(rows))
    of_rows = predictions[rows]
    judged = predictions.correctness_only
    for classes in () if judged else (of_rows.labels, of_rows.predicted):
        if _follows(values, classes):
            return None
    return ClusteredErrors.test(values, of_rows.errors, ordered=ordered)


def _numbered(column: pl.Series) -> tuple[Array, bool]:
    """Return each row's value as its rank from 0, and whether values are numbers."""
    if column.dtype == pl.String:
        numbers = column.cast(pl.Int64, strict=False)
        column = column if numbers.null_count() else numbers
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    ranks = column.rank("dense").cast(pl.Int64).to_numpy() - 1
    return ranks, column.dtype.is_numeric()


def _follows(values: Array, classes: Array | None) -> bool:
    """Tell whether each class has one value, as a class's other name has."""
    if classes is None or not len(values):
        return True
    pairs = pl.DataFrame({"value": values, "class": classes}).unique()
    return len(pairs) == pairs["class"].n_unique()
