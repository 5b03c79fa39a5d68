"""Rows given twice: copies of ids, texts, features and the model's numbers."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array, as_features, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.evaluation.label_counts import LEVEL
from trustdoctor.predictions import Predictions

if TYPE_CHECKING:
    import polars as pl

# Fewer groups of equal rows are not reported.
_LEAST_GROUPS = 5

# Of more rows with equal numbers, a sample of about this size decides.
_SAMPLE_ROWS = 100_000

# Labels of copies agree; those of rows that merely look alike err as others do.
_LEAST_AGREEMENT = 0.99

_BLOCK_ROWS = 1 << 14  # hashed at a time: rows and their bits stay in the cache
_LONGEST_TEXT = 40  # characters of a text that a message shows


def repeats(
    ids: Any = None, texts: Any = None, features: Any = None
) -> tuple[str, ...]:
    """Return how many ids, texts and rows of features repeat, in a sentence each.

    Parameters
    ----------
    ids, texts : arrays (n,), optional
        None and NaN are missing, and do not count.
    features : array (n, d), optional
        Rows are the same where all their numbers are equal.

    Examples
    --------
    >>> print(*repeats(ids=["a", "b", "a"]))
    1 row repeats the id of an earlier row, the first 'a' at rows 0 and 2: check that \
no row is counted twice.
    >>> repeats(features=[[1.0, 2.0], [2.0, 1.0]])
    ()
    """
    sentences = []
    for kind, values in (("id", ids), ("text", texts)):
        if values is None:
            continue
        series = _series(values)
        if series.null_count() == len(series):
            continue
        repeated = (~series.is_first_distinct() & series.is_not_null()).to_numpy()
        if repeated.any():
            *before, value = series.head(int(repeated.argmax()) + 1).to_list()
            first = before.index(value)
            sentences.append(_sentence(kind, repeated, first, f" {_shorten(value)}"))
    if features is not None:
        matrix = as_features(features) + 0.0  # -0 equals 0, and has other bits
        repeated = _repeats_earlier(matrix)
        if repeated.any():
            first = int((matrix == matrix[repeated.argmax()]).all(1).argmax())
            sentences.append(_sentence("features", repeated, first, ""))
    return tuple(sentences)


def repeated_rows(predictions: Predictions) -> tuple[str, ...]:
    """Return how many rows repeat an earlier one, where these cannot be chance.

    A row repeats an earlier one if all numbers and the label are equal. Rounded
    probabilities and decision trees give equal rows that are independent all the same;
    these are not reported. Copies are recognised in one of two ways: their errors go
    together more than those of rows with a confidence next to theirs (a binomial test
    at 0.001), or numbers with many digits agree in a few rows, and so do their labels.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(200, 3))
    >>> p = Predictions.from_logits(z, z.argmax(1))
    >>> repeated_rows(p)
    ()
    >>> repeated_rows(p[np.arange(300) % 200])[0][:46]
    '100 of 300 rows repeat an earlier one in the m'
    """
    if not predictions.n_classes or not predictions.has_label.any():
        return ()
    rows = predictions.labelled("looking for rows that repeat")
    assert rows.labels is not None
    hashes = _row_hashes(rows.logits)
    equal = _shared_hashes(hashes)
    if len(equal) < 2 * _LEAST_GROUPS:
        return ()
    # A sample keeps whole groups, because their hash decides.
    n_samples = -(-len(equal) // _SAMPLE_ROWS)
    sample = equal[hashes[equal] % np.uint64(n_samples) == 0]
    groups = _EqualRows.of(rows[sample])
    n_single = (len(rows) - len(equal)) // n_samples
    if not (groups.err_together() or groups.agree_in_digits(n_single)):
        return ()
    with_label = np.column_stack([rows.logits[equal], rows.labels[equal]])
    repeated = np.zeros(len(rows), bool)
    repeated[equal] = _repeats_earlier(with_label.astype(np.float64) + 0.0)
    second = int(repeated.argmax())
    same = (rows.logits[:second] == rows.logits[second]).all(1)
    first = int((same & (rows.labels[:second] == rows.labels[second])).argmax())
    numbers = np.flatnonzero(predictions.has_label)[[first, second]]
    return (
        f"{int(repeated.sum()):,} of {len(rows):,} rows repeat an earlier one in the "
        f"model's numbers and the label, the first at rows {numbers[0]} and "
        f"{numbers[1]}: intervals and promises are for rows that are drawn one by one. "
        "If they are copies, keep one of each.",
    )


class _EqualRows(NamedTuple):
    """Rows with equal numbers, in groups of two and more.

    Attributes
    ----------
    rows : Predictions
    first, second : integer arrays (groups,)
        The first two rows of each group.
    group_start : integer array (n,)
        The first row of each row's group.
    """

    rows: Predictions
    first: Array
    second: Array
    group_start: Array

    @classmethod
    def of(cls, rows: Predictions) -> "_EqualRows":
        """Group rows whose hashes are shared by those that are really equal."""
        import polars as pl

        bits = [row.tobytes() for row in rows.logits + 0.0]
        table = pl.DataFrame({"row": np.arange(len(bits))}).with_columns(
            pl.Series("bits", bits, dtype=pl.Binary)
        )
        start = table.select(pl.col("row").first().over("bits")).to_series()
        groups = table.group_by("bits").agg(
            first=pl.col("row").min(), second=pl.col("row").sort().slice(1, 1).first()
        )
        groups = groups.drop_nulls().sort("first")
        first, second = groups["first"].to_numpy(), groups["second"].to_numpy()
        return cls(rows, first, second, start.to_numpy())

    def err_together(self) -> bool:
        """Test whether copies err together more than rows of like confidence do.

        A sign test: of two rows with independent errors, the second of a group is as
        likely to differ as that of the group with the next confidence.
        """
        from scipy.special import bdtr

        confidence = _top_probability(self.rows[self.first])
        order = np.argsort(confidence, kind="stable")
        errors = self.rows.errors
        first, second = errors[self.first][order], errors[self.second][order]
        n_within = np.count_nonzero(first != second)
        n_across = np.count_nonzero(first != np.roll(second, 1))
        fewer = 2 * n_within < n_across
        return bool(fewer and bdtr(n_within, n_within + n_across, 0.5) < LEVEL)

    def agree_in_digits(self, n_single: int) -> bool:
        """Return whether numbers with many digits agree in a few rows, and labels too.

        `n_single` rows are in no group. Where groups are large, as the leaves of a tree
        are, equal numbers are how the model answers.
        """
        labels = self.rows.labels
        assert labels is not None
        n_rows, n_groups = len(self.group_start), len(self.first)
        repeats_start = self.group_start != np.arange(n_rows)
        agreeing = labels[repeats_start] == labels[self.group_start[repeats_start]]
        few_answers = 4 * (n_single + n_groups) < n_single + n_rows
        if few_answers or agreeing.mean() < _LEAST_AGREEMENT:
            return False
        precise = _has_many_digits(self.rows[self.first])
        return bool(np.count_nonzero(precise) >= max(_LEAST_GROUPS, n_groups / 2))


def _has_many_digits(rows: Predictions) -> Array:
    """Return in which rows numbers have too many digits to be equal by chance.

    One of ten digits, or two of six, as in float32; of two classes there is one number,
    so that in float32 no row has enough.
    """
    values = rows.logits.astype(np.float64)
    usual = np.abs(values) < 1e9  # not a masked class
    if rows.from_probabilities:
        values = np.exp(values)
        usual = (values > 1e-3) & (values < 1 - 1e-3)
    numbers = np.where(usual, values, 0)
    ten_digits, six_digits = (
        np.abs(numbers * unit - np.rint(numbers * unit)) > 0.1 for unit in (1e9, 1e5)
    )
    is_float32 = (values.astype(np.float32) == values).all(1)
    if rows.logits.dtype == np.float32:
        is_float32[:] = True
    enough = (six_digits.sum(1) >= 2) & (rows.n_classes > 2)
    return np.where(is_float32, enough, ten_digits.any(1))


def _top_probability(rows: Predictions) -> Array:
    """Return the largest probability of each row."""
    z = rows.logits.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return 1 / np.exp(z - z.max(1, keepdims=True)).sum(1)


def _sentence(kind: str, repeated: Array, first: int, value: str) -> str:
    n = int(repeated.sum())
    rows = "1 row repeats" if n == 1 else f"{n:,} rows repeat"
    return (
        f"{rows} the {kind} of an earlier row, the first{value} at rows {first} and "
        f"{int(repeated.argmax())}: check that no row is counted twice."
    )


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _series(values: Any) -> "pl.Series":
    """Return values that polars compares fast; null where one is missing."""
    import polars as pl

    array = to_numpy(values)
    if array.ndim != 1:
        message = f"expected one id or text per row, got an array {array.shape}."
        raise InputError(message)
    if array.dtype.kind in "biu":
        return pl.Series(array)
    if array.dtype.kind == "f":
        return pl.Series(array).fill_nan(None)
    missing = ("NoneType", "NAType", "NaTType")
    objects = [
        None if type(v).__name__ in missing or v != v else v for v in array.tolist()
    ]
    return pl.Series(objects, strict=False)


def _repeats_earlier(matrix: Array) -> Array:
    """Return which rows are equal to an earlier one: by hashes, then exactly."""
    import polars as pl

    repeated = np.zeros(len(matrix), bool)
    if not matrix.shape[1]:
        return repeated
    equal = _shared_hashes(_row_hashes(matrix))
    bits = pl.Series([row.tobytes() for row in matrix[equal]], dtype=pl.Binary)
    repeated[equal] = ~bits.is_first_distinct().to_numpy()
    return repeated


def _shared_hashes(hashes: Array) -> Array:
    """Return the rows whose hash another row has, too."""
    import polars as pl

    # numpy sorts integers several times faster than polars counts them, and mostly
    # there is no pair: 5 ms instead of 50 for 1,000,000 rows.
    in_order = np.sort(hashes)
    if not (in_order[1:] == in_order[:-1]).any():
        return np.zeros(0, np.int64)
    return np.flatnonzero(pl.Series(hashes).is_duplicated().to_numpy())


def _row_hashes(matrix: Array) -> Array:
    """Return a hash of each row (n,); rows that are equal have the same.

    Multiply-shift hashing with odd random factors (Dietzfelbinger et al., Journal of
    Algorithms, 1997): one matrix product, where hashing bytes takes a loop of Python.
    """
    contiguous = np.ascontiguousarray(matrix)
    random = np.random.default_rng(0)
    factors = random.integers(1 << 63, size=matrix.shape[1], dtype=np.uint64) * 2 + 1
    hashes = np.empty(len(matrix), np.uint64)
    for start in range(0, len(matrix), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        rows = contiguous[block] + 0.0  # -0 equals 0, and has other bits
        bits = rows.astype(np.float64, copy=False).view(np.uint64)
        # The low bits of numbers with few digits are 0, and would stay so.
        hashes[block] = (bits ^ (bits >> np.uint64(32))) @ factors
    return hashes
