"""Rows given twice: copies of ids, texts, features and the model's numbers."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array, as_features, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.evaluation.label_counts import RARE
from trustdoctor.predictions import Predictions

if TYPE_CHECKING:
    import polars as pl

_FEWEST_COPIES = 5
"""Fewer groups of equal rows are not spoken of."""


_JUDGED = 100_000
"""About so many rows are enough to judge all groups by."""


_AGREEING = 0.99
"""Labels of copies agree; those of rows that merely look alike err as others do."""


_BLOCK = 1 << 14  # rows hashed at a time


_LONG = 40  # characters of a text that a message shows


def repeats(
    ids: Any = None, texts: Any = None, features: Any = None
) -> tuple[str, ...]:
    """Say in one line each how many ids, texts and rows of features come again.

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
    out = []
    for what, values in (("id", ids), ("text", texts)):
        if values is not None:
            series = _series(values)
            if series.null_count() == len(series):
                continue
            again = (~series.is_first_distinct() & series.is_not_null()).to_numpy()
            if again.any():
                *before, own = series.head(int(again.argmax()) + 1).to_list()
                out.append(_again(what, again, before.index(own), f" {_short(own)}"))
    if features is not None:
        x = as_features(features) + 0.0  # -0 equals 0, and has other bits
        again = _again_rows(x)
        if again.any():
            first = int((x == x[again.argmax()]).all(1).argmax())
            out.append(_again("features", again, first, ""))
    return tuple(out)


def repeated_rows(predictions: Predictions) -> tuple[str, ...]:
    """Say how many rows repeat an earlier one, where these cannot be chance.

    Rows repeat that have all numbers and the label of an earlier row. Rounded
    probabilities and decision trees give equal rows that are independent all the same;
    nothing is said of those. Copies give themselves away in one of two ways: their
    errors go together more than those of rows with a confidence next to theirs (a
    binomial test at 0.001), or numbers with many digits agree in a few rows, and so do
    their labels.

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
    hashes = _hashed(rows.logits)
    alike = _duplicated(hashes)
    if len(alike) < 2 * _FEWEST_COPIES:
        return ()
    parts = -(-len(alike) // _JUDGED)  # whole groups, as their hash decides
    judged = alike[hashes[alike] % np.uint64(parts) == 0]
    copies, single = _Copies.among(rows[judged]), (len(rows) - len(alike)) // parts
    if not (copies.err_together() or copies.agree_by_digits(single)):
        return ()
    labelled = np.column_stack([rows.logits[alike], rows.labels[alike]])
    again = np.zeros(len(rows), bool)
    again[alike] = _again_rows(labelled.astype(np.float64) + 0.0)
    at = int(again.argmax())
    same = (rows.logits[:at] == rows.logits[at]).all(1)
    first = int((same & (rows.labels[:at] == rows.labels[at])).argmax())
    n = int(again.sum())
    where = np.flatnonzero(predictions.has_label)[[first, at]]
    return (
        f"{n:,} of {len(rows):,} rows repeat an earlier one in the model's numbers and "
        f"the label, the first at rows {where[0]} and {where[1]}: intervals and "
        "promises are for rows that are drawn one by one. If they are copies, keep one "
        "of each.",
    )


class _Copies(NamedTuple):
    """Rows with equal numbers, in groups of two and more.

    Attributes
    ----------
    rows : Predictions
    first, second : integer arrays (groups,)
        The first two rows of each group.
    first_of : integer array (n,)
        The first row of each row's group.
    """

    rows: Predictions
    first: Array
    second: Array
    first_of: Array

    @classmethod
    def among(cls, rows: Predictions) -> "_Copies":
        """Group rows that are equal, hashes of which are."""
        import polars as pl

        bits = [row.tobytes() for row in rows.logits + 0.0]
        table = pl.DataFrame({"row": np.arange(len(bits))}).with_columns(
            pl.Series("bits", bits, dtype=pl.Binary)
        )
        first = table.select(pl.col("row").first().over("bits")).to_series()
        groups = table.group_by("bits").agg(
            first=pl.col("row").min(), second=pl.col("row").sort().slice(1, 1).first()
        )
        groups = groups.drop_nulls().sort("first")
        one, two = groups["first"].to_numpy(), groups["second"].to_numpy()
        return cls(rows, one, two, first.to_numpy())

    def err_together(self) -> bool:
        """Tell whether copies err together more than rows of like confidence do."""
        from scipy.special import bdtr

        confidence = _top_probability(self.rows[self.first])
        order = np.argsort(confidence, kind="stable")
        wrong = self.rows.errors
        first, second = wrong[self.first][order], wrong[self.second][order]
        within = np.count_nonzero(first != second)
        across = np.count_nonzero(first != np.roll(second, 1))
        apart = 2 * within < across
        return bool(apart and bdtr(within, within + across, 0.5) < RARE)

    def agree_by_digits(self, single: int) -> bool:
        """Tell whether numbers with many digits agree in a few rows, and labels too.

        `single` rows are in no group. Where groups are large, as the leaves of a tree
        are, equal numbers are how the model answers.
        """
        labels = self.rows.labels
        assert labels is not None
        repeats = self.first_of != np.arange(len(self.first_of))
        agreeing = labels[repeats] == labels[self.first_of[repeats]]
        answers, n = single + len(self.first), single + len(self.first_of)
        if 4 * answers < n or agreeing.mean() < _AGREEING:
            return False
        fine = _has_digits(self.rows[self.first])
        return bool(np.count_nonzero(fine) >= max(_FEWEST_COPIES, len(fine) / 2))


def _has_digits(rows: Predictions) -> Array:
    """Tell in which rows numbers have so many digits that none meet by chance.

    One of ten digits, or two of six, as in float32; of two classes there is one number,
    so that in float32 no row has enough.
    """
    values = rows.logits.astype(np.float64)
    plain = np.abs(values) < 1e9  # not a masked class
    if rows.from_probabilities:
        values = np.exp(values)
        plain = (values > 1e-3) & (values < 1 - 1e-3)
    shown = np.where(plain, values, 0)
    long, short = (
        np.abs(shown * unit - np.rint(shown * unit)) > 0.1 for unit in (1e9, 1e5)
    )
    single = (values.astype(np.float32) == values).all(1)
    if rows.logits.dtype == np.float32:
        single[:] = True
    enough = (short.sum(1) >= 2) & (rows.n_classes > 2)
    return np.where(single, enough, long.any(1))


def _top_probability(rows: Predictions) -> Array:
    """Return the largest probability of each row."""
    z = rows.logits.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return 1 / np.exp(z - z.max(1, keepdims=True)).sum(1)


def _again(what: str, again: Array, first: int, which: str) -> str:
    n = int(again.sum())
    rows = "1 row repeats" if n == 1 else f"{n:,} rows repeat"
    return (
        f"{rows} the {what} of an earlier row, the first{which} at rows {first} and "
        f"{int(again.argmax())}: check that no row is counted twice."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


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
    plain = [
        None if type(v).__name__ in missing or v != v else v for v in array.tolist()
    ]
    return pl.Series(plain, strict=False)


def _again_rows(x: Array) -> Array:
    """Tell which rows are equal to an earlier one: by hashes, then exactly."""
    import polars as pl

    again = np.zeros(len(x), bool)
    if not x.shape[1]:
        return again
    alike = _duplicated(_hashed(x))
    exact = pl.Series([row.tobytes() for row in x[alike]], dtype=pl.Binary)
    again[alike] = ~exact.is_first_distinct().to_numpy()
    return again


def _duplicated(hashes: Array) -> Array:
    """Return the rows whose hash another row has, too."""
    import polars as pl

    return np.flatnonzero(pl.Series(hashes).is_duplicated().to_numpy())


def _hashed(x: Array) -> Array:
    """Return a hash of each row (n,); rows that are equal have the same."""
    wide = np.ascontiguousarray(x)
    draw = np.random.default_rng(0)
    odd = draw.integers(1 << 63, size=x.shape[1], dtype=np.uint64) * 2 + 1
    hashes = np.empty(len(x), np.uint64)
    for start in range(0, len(x), _BLOCK):
        part = wide[start : start + _BLOCK] + 0.0  # -0 equals 0, and has other bits
        bits = part.astype(np.float64, copy=False).view(np.uint64)
        # The low bits of numbers with few digits are 0, and would stay so.
        hashes[start : start + _BLOCK] = (bits ^ (bits >> np.uint64(32))) @ odd
    return hashes
