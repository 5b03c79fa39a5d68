"""Predictions from the columns of a table."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.arrays import as_labels
from trustdoctor.errors import InputError, RowError
from trustdoctor.files.columns import Columns, Layout, find_layout
from trustdoctor.predictions import Predictions


def from_table(table: pl.DataFrame, columns: Columns) -> Predictions:
    """Build predictions, with all that the columns name, from a table."""
    layout = find_layout(table.columns, columns)
    values = _values(table, layout.values)
    make = (
        Predictions.from_logits if layout.kind == "logits" else Predictions.from_probs
    )
    found = make(
        values,
        _labels(table, layout, columns, values),
        ids=None if layout.ids is None else _plain(table[layout.ids]),
        groups=None if layout.groups is None else _groups(table[layout.groups]),
        features=_values(table, layout.features) if layout.features else None,
    )
    if layout.said is not None:
        _check_said(table, layout, values)
    return found


def partial_labels(
    table: pl.DataFrame, columns: Columns, n_classes: int
) -> NDArray[np.float64] | None:
    """Return labels that may be missing in part, as NaN; None where there are none.

    Labels that are there but are not classes of these predictions are refused.
    """
    name = find_layout(table.columns, columns).label
    if name is None:
        return None
    column = table[name]
    if column.dtype == pl.String:
        column = column.replace("", None)
    if column.dtype.is_float():
        column = column.fill_nan(None)
    known = column.is_not_null().to_numpy()
    out = np.full(len(table), np.nan)
    if known.any():
        out[known] = _numbers(column.drop_nulls(), name)
    as_labels(out[known], int(known.sum()), n_classes)
    return out


def _labels(
    table: pl.DataFrame, layout: Layout, columns: Columns, values: NDArray[Any]
) -> NDArray[Any] | None:
    """Return the labels; those that cannot be used matter only where needed."""
    if layout.label is None:
        return None
    try:
        labels = _numbers(table[layout.label], layout.label)
        if not columns.need_labels and values.ndim == 2:
            as_labels(labels, *values.shape)
    except InputError:
        if columns.need_labels:
            raise
        return None
    return labels


def _values(table: pl.DataFrame, names: list[str]) -> NDArray[Any]:
    if len(names) == 1 and table[names[0]].dtype in (pl.List, pl.Array):
        return _list_column(table[names[0]])
    return np.column_stack([_numbers(table[name], name) for name in names])


def _list_column(column: pl.Series) -> NDArray[Any]:
    if column.dtype == pl.List:
        lengths = column.list.len().fill_null(0).to_numpy()
        width = int(lengths[0])
        if width == 0 or (lengths != width).any():
            message = (
                f"expected lists of one length in column {column.name!r}, got "
                f"{lengths.min()} to {lengths.max()} entries. Give every row one "
                "number per class."
            )
            raise InputError(message)
    else:
        width = int(column.dtype.shape[0])  # type: ignore[attr-defined]
    flat = _numbers(column.explode(), column.name, width=width)
    return flat.reshape(len(column), width)


def _numbers(column: pl.Series, name: str, *, width: int = 1) -> NDArray[Any]:
    """Return a column's numbers; `width` of them make a row."""
    if column.null_count():
        at = int(column.is_null().arg_max() or 0) // width
        message = (
            f"column {name!r} has no value at row {{row}}. Fill or remove such rows."
        )
        raise RowError(message, at)
    if column.dtype == pl.String:  # as CSV is read
        text = column.str.strip_chars()
        cast = text.cast(pl.Float64, strict=False)
        if cast.null_count() and text.str.to_lowercase().is_in(["true", "false"]).all():
            cast = (text.str.to_lowercase() == "true").cast(pl.Float64)
        column = column if cast.null_count() else cast
    if column.dtype == pl.Boolean:
        column = column.cast(pl.Int64)
    if column.dtype.is_decimal() or column.dtype in (pl.Int128, pl.UInt128):
        column = column.cast(pl.Float64)
    if not column.dtype.is_numeric():
        at = _first_odd(column)
        message = (
            f"expected numbers in column {name!r}, got {column[at]!r} at row {{row}}. "
            "Classes are numbered from 0."
        )
        raise RowError(message, at)
    return column.to_numpy()


def _first_odd(column: pl.Series) -> int:
    if column.dtype.is_nested():
        return 0
    numbers = column.cast(pl.String, strict=False).cast(pl.Float64, strict=False)
    return int(numbers.is_null().arg_max() or 0)


def _groups(column: pl.Series) -> NDArray[Any]:
    """Return groups: whole numbers as they are, all else as text."""
    if column.null_count():
        at = int(column.is_null().arg_max() or 0)
        message = f"column {column.name!r} has no group at row {{row}}."
        raise RowError(message, at)
    if column.dtype.is_integer():
        return column.to_numpy()
    return column.cast(pl.String).to_numpy().astype(str)


def _plain(column: pl.Series) -> NDArray[Any]:
    """Return a column as it is, one entry per row."""
    out = np.empty(len(column), object)
    out[:] = column.to_list()
    return out


def _check_said(table: pl.DataFrame, layout: Layout, probs: NDArray[Any]) -> None:
    """Refuse a DOCTOR layout whose predictions are not the largest probabilities."""
    assert layout.said is not None
    said = as_labels(_numbers(table[layout.said], layout.said), *probs.shape)
    assert said is not None
    agrees = probs[np.arange(len(said)), said] == probs.max(1)
    if not agrees.all():
        at = int((~agrees).argmax())
        message = (
            f"in the DOCTOR layout column {layout.said!r} is the prediction, but at "
            f"row {{row}} it is {int(said[at])} where the largest probability is of "
            f"class {int(probs[at].argmax())}. Check which column is which."
        )
        raise RowError(message, at)
