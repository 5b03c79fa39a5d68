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
"""Rows that are enough: the first ones of streamed files, else those of some values."""

MOST_LOADED = 2_000_000
"""With more rows, only the columns of predictions are held in memory."""

_SAMPLE_BYTES = 100_000_000
_MOST_COMPARED_COLUMNS = 32


class ErrorClusters(NamedTuple):
    """The column within whose values errors go together most, and what to say of it.

    Attributes
    ----------
    column : str
        "" if there is none.
    lines : tuple of str
        Warnings.
    """

    column: str = ""
    lines: tuple[str, ...] = ()


def load_checked(
    source: Source, *extra: str
) -> tuple[Predictions, pl.DataFrame, ErrorClusters]:
    """Read all rows at once, and find the column within which their errors go together.

    The table has the columns that predictions are made of, and the `extra` ones.
    """
    if source.about_rows > MOST_LOADED:
        return *source.load(*extra), ErrorClusters(lines=sampled_warnings(source))
    predictions, table = source.load(*extra, *source.shared_columns)
    return predictions, table, find_clusters(source, predictions, table)


def find_clusters(
    source: Source, predictions: Predictions, table: pl.DataFrame, *, where: str = ""
) -> ErrorClusters:
    """Find the column within which errors go together, among those that nobody named.

    Parameters
    ----------
    source : Source
    predictions : Predictions
        Of the rows of the table; those without a label are left out.
    table : DataFrame
        With the source's shared columns.
    where : str
        Which rows these are, as " in the first 100 rows", if not all.
    """
    if predictions.labels is None:
        return ErrorClusters()
    tests = {
        name: test
        for name in source.shared_columns
        if (test := _test_column(table[name], predictions)) is not None
    }
    clear = {name: test for name, test in tests.items() if test.clear(len(tests))}
    if not clear:
        return ErrorClusters()
    name, *others = sorted(clear, key=lambda name: -clear[name].inflation)
    test = clear[name]
    likewise = f" So do those of {', '.join(map(repr, others))}." if others else ""
    width = np.sqrt(test.inflation)  # of variances
    warning = (
        f"Errors go together in rows with the same {name!r} ({test.values:,} values, "
        f"{test.n / test.values:.1f} rows each{where}): intervals for rows that are "
        f"drawn one by one are about {width:.1f} times too narrow, "
        f"and a promise may break. Calibrate with --clusters {shlex.quote(name)}."
        f"{likewise}"
    )
    return ErrorClusters(name, (warning,))


def sampled_warnings(source: Source) -> tuple[str, ...]:
    """Return the warnings of `find_clusters` on the first rows, for streamed files."""
    names = source.shared_columns
    if not names:
        return ()
    rows = min(SAMPLE, _SAMPLE_BYTES // source.row_bytes)
    table = source.head([*source.needed, *names], rows)
    where = f" in the first {len(table):,} rows"
    return find_clusters(source, source.predictions(table), table, where=where).lines


def count_shared_rows(first: Source, second: Source) -> int:
    """Count rows of the second file that the first has, too; 0 if chance explains it.

    The first rows of both are compared, by the columns of single values that both have.
    """
    columns = [
        name
        for name in first.names
        if name in second.names
        and not any(_is_compound(source.schema[name]) for source in (first, second))
    ][:_MOST_COMPARED_COLUMNS]
    if not columns:
        return 0
    first_hashes, second_hashes = (
        source.head(columns, SAMPLE).cast(pl.String).hash_rows(seed=0)
        for source in (first, second)
    )
    shared = int(second_hashes.is_in(first_hashes.unique().implode()).sum())
    # If many rows of one file equal each other, as short numbers do, equal rows of two
    # files need not be the same ones.
    repeated_share = first_hashes.is_duplicated().sum() / max(1, len(first_hashes))
    return shared if shared > 2 * repeated_share * len(second_hashes) else 0


def _is_compound(dtype: pl.DataType) -> bool:
    """Tell lists and bytes, such as pictures, from single values."""
    return dtype.is_nested() or dtype in (pl.Binary, pl.Object)


def _test_column(column: pl.Series, predictions: Predictions) -> ClusteredErrors | None:
    """Test a column; None if its values follow from the labels or predictions."""
    labels = predictions.labels
    assert labels is not None
    eligible = predictions.has_label & column.is_not_null().to_numpy()
    if len(column) > SAMPLE:
        # All rows of some values, not some rows of all: pairs of rows are compared.
        every_nth = -(-len(column) // SAMPLE)
        eligible &= (column.hash() % every_nth == 0).to_numpy()
    rows = np.flatnonzero(eligible)
    values, ordered = _value_ranks(column.gather(rows))
    tested = predictions[rows]
    if not predictions.correctness_only:
        for classes in (tested.labels, tested.predicted):
            if _follows(values, classes):
                return None
    return ClusteredErrors.test(values, tested.errors, ordered=ordered)


def _value_ranks(column: pl.Series) -> tuple[Array, bool]:
    """Return each row's value as its rank from 0, and whether values are numbers."""
    if column.dtype == pl.String:
        numbers = column.cast(pl.Int64, strict=False)
        column = column if numbers.null_count() else numbers
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    ranks = column.rank("dense").cast(pl.Int64).to_numpy() - 1
    return ranks, column.dtype.is_numeric()


def _follows(values: Array, classes: Array | None) -> bool:
    """Tell whether each class has one value, as another name of the class would."""
    if classes is None or not len(values):
        return True
    pairs = pl.DataFrame({"value": values, "class": classes}).unique()
    return len(pairs) == pairs["class"].n_unique()
