"""Predictions from the columns of a table."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.arrays import as_labels
from trustdoctor.errors import InputError, RowError
from trustdoctor.files.columns import Columns
from trustdoctor.files.labels import (
    MISSING,
    as_correct,
    as_text,
    binary_names,
    class_numbers,
    look_up,
    to_text,
)
from trustdoctor.files.layout import Layout, find_layout
from trustdoctor.files.llm_responses import from_lines
from trustdoctor.predictions import (
    AS_PREDICTED,
    UNKNOWN,
    Answers,
    Predictions,
    as_prediction_error,
    make_answers,
)


def from_table(table: pl.DataFrame, columns: Columns) -> Predictions:
    """Build predictions, with all that the columns name, from a table."""
    layout = find_layout(table.columns, columns)
    beside = _beside(table, layout, columns)
    if layout.kind == "choices":
        return from_lines(table[layout.values[0]], columns)
    if layout.answers:
        return _answers(table, layout, columns, beside)
    if columns.positive is not None and columns.class_names is None:
        columns = with_binary_names(columns, layout, table)
        layout = replace(layout, class_names=tuple(columns.class_names or ()))
    values = _class_values(table, layout, columns)
    values.flags.writeable = False  # nobody else has them, so they need no copy
    if layout.class_names is not None and len(layout.class_names) != values.shape[1]:
        message = (
            f"expected {values.shape[1]} class names, one per class, got "
            f"{len(layout.class_names)}."
        )
        raise InputError(message)
    beside["class_names"], beside["cutoff"] = layout.class_names, columns.cutoff
    if layout.kind == "logits":
        found = Predictions.from_logits(values, **beside)
    else:
        against = columns.one_vs_rest
        found = Predictions.from_probs(values, one_vs_rest=against, **beside)
    if layout.predicted is not None:
        decisions = class_decisions(
            table[layout.predicted], layout, columns, found.n_classes
        )
        found = replace(found, decisions=decisions, decided_by=AS_PREDICTED)
    if layout.said is not None:
        _check_said(table, layout, values)
    labels = _labels(table, layout, columns, values.shape[1])
    known = labels is not None and bool((labels != UNKNOWN).any())
    return replace(found, labels=labels if known else None)


def from_frame(table: Any, **columns: Any) -> Predictions:
    """Build predictions from a pandas, polars or Arrow table.

    Examples
    --------
    >>> table = pl.DataFrame({"confidence": [0.9, 0.6], "correct": [True, False]})
    >>> from_frame(table, confidence="confidence", correct="correct")
    Answers(2 rows, confidence, accuracy 50.00%)
    """
    if columns.get("choices") is not None:
        message = "choices are of responses in a file, one per line. Use td.read."
        raise InputError(message)
    if isinstance(table, pl.LazyFrame):
        table = table.collect()
    if not isinstance(table, pl.DataFrame):
        try:
            table = _to_polars(table)
        except (TypeError, ValueError, ImportError, pl.exceptions.PolarsError) as error:
            message = (
                f"expected a pandas, polars or Arrow table, got "
                f"{type(table).__name__}: {str(error).splitlines()[0]}"
            )
            raise InputError(message) from error
    names = columns.pop("class_names", None)
    try:
        asked = Columns(**columns, class_names=names)
    except TypeError as error:
        message = f"expected columns by name, as probs= or labels=: {error}."
        raise InputError(message) from error
    if not len(table):
        message = "expected at least one row, got an empty table."
        raise InputError(message)
    return from_table(table, asked)


def _to_polars(table: Any) -> pl.DataFrame:
    """Return an Arrow or pandas table; columns of objects as text."""
    if hasattr(table, "dtypes") and hasattr(table, "iloc"):  # pandas
        own = {}
        names = [str(name) for name in table.columns]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            message = f"it has the column {twice[0]!r} twice"
            raise ValueError(message)
        for name in table.columns:
            column = table[name]
            values = column.astype(object).where(column.notna(), None)
            kind = column.dtype
            plain = getattr(kind, "kind", "O") in "biuf" and hasattr(kind, "type")
            numbers = plain and isinstance(kind, np.dtype)
            own[str(name)] = column.to_numpy() if numbers else _objects(list(values))
        return pl.DataFrame(own)
    found = pl.from_arrow(table)
    if not isinstance(found, pl.DataFrame):
        message = "it is not a table"
        raise TypeError(message)
    return found


def _objects(values: list[Any]) -> pl.Series:
    try:
        return pl.Series(values, strict=True)
    except (TypeError, pl.exceptions.PolarsError):  # of several types
        return pl.Series([None if v is None else str(v) for v in values])


def with_binary_names(columns: Columns, layout: Layout, table: pl.DataFrame) -> Columns:
    """Return columns that name both classes of a binary model."""
    assert columns.positive is not None
    seen: list[str] = []
    if layout.label is not None:
        seen = as_text(table[layout.label]).drop_nulls().unique().sort().to_list()
    try:
        names = binary_names(columns.positive, seen)
    except InputError:
        if columns.need_labels:
            raise
        names = binary_names(columns.positive, ())
    return replace(columns, class_names=names)


def _beside(table: pl.DataFrame, layout: Layout, columns: Columns) -> dict[str, Any]:
    """Return what is known of the rows beside the numbers."""
    return {
        "ids": None if layout.ids is None else _plain(table[layout.ids]),
        "groups": None if layout.groups is None else _groups(table[layout.groups]),
        "features": _values(table, layout.features, columns)
        if layout.features
        else None,
    }


def _class_values(
    table: pl.DataFrame, layout: Layout, columns: Columns
) -> NDArray[Any]:
    """Return one number per class and row."""
    values = _values(table, layout.values, columns)
    if columns.percent:
        if layout.kind == "logits":
            message = "--percent goes with --probs or --confidence. Leave it out."
            raise InputError(message)
        values = values / 100
    single = values.shape[1] == 1
    if columns.positive is None and not single:
        return values
    if columns.positive is None or not single:
        name = layout.values[0]
        message = (
            "--positive goes with one column of numbers, got several. Leave it out."
        )
        if single:
            message = (
                f"expected one number per class, at least 2 classes, got one number in "
                f"{name!r}. Of a binary model say which label it speaks for: "
                "--positive LABEL."
            )
        raise InputError(message)
    one = values.astype(np.float64)
    top = one.max(initial=0.0)
    if layout.kind == "probs" and 1.01 < top <= 100.5 and one.min() >= 0:
        above, at = int((one > 1).sum()), int(one.argmax())
        message = f"expected probabilities in {layout.values[0]!r}, got up to {top:g}"
        if above >= 0.05 * len(one):
            message += ", as percentages are. Give --percent."
            raise InputError(message)
        # One typing error does not make percentages of the other rows.
        message += " at row {row}; "
        message += f"{above:,} of {len(one):,} rows are above 1. Fix or remove them."
        raise RowError(message, at)
    other = np.zeros_like(one) if layout.kind == "logits" else 1 - one
    return np.column_stack([other, one])


def _labels(
    table: pl.DataFrame, layout: Layout, columns: Columns, classes: int
) -> NDArray[np.int64] | None:
    """Return the labels; those that cannot be used matter only where needed."""
    if columns.truth is not None:
        column = look_up(_ids(table, layout), columns)
    elif layout.label is None:
        return None
    else:
        column = table[layout.label]
    if columns.positive is not None:
        column = _binary_labels(column, columns)
    return class_numbers(column, layout, classes, strict=columns.need_labels)


def class_decisions(
    column: pl.Series, layout: Layout, columns: Columns, classes: int
) -> NDArray[np.int64]:
    """Return the classes that the system answered, `UNKNOWN` where it did not."""
    if columns.positive is not None:
        column = _binary_labels(column, columns)
    try:
        return class_numbers(column, layout, classes, strict=True)
    except InputError as error:
        raise as_prediction_error(error) from None


def _ids(table: pl.DataFrame, layout: Layout) -> pl.Series:
    if layout.ids is None:
        message = "--truth finds labels by id. Name the column of ids: --ids NAME."
        raise InputError(message)
    return table[layout.ids]


def _binary_labels(column: pl.Series, columns: Columns) -> pl.Series:
    """Return labels by name, where 0 and 1 stand for the two classes."""
    names = tuple(columns.class_names or ())
    text = as_text(column)
    table = {"0": names[0], "1": names[1], "false": names[0], "true": names[1]}
    taken = {name: name for name in names}
    return text.replace({**table, **taken})


def _answers(
    table: pl.DataFrame, layout: Layout, columns: Columns, beside: dict[str, Any]
) -> Answers:
    """Build answers with a confidence or a doubt."""
    name = layout.values[0]
    given: dict[str, Any] = dict.fromkeys(("predicted", "labels"))
    silent = np.zeros(len(table), bool)
    if layout.predicted is not None:
        given["predicted"] = as_text(table[layout.predicted]).fill_null("").to_numpy()
        silent = given["predicted"] == ""
    missing = silent | table[name].is_null().to_numpy()
    values = _stated(table[name], missing, columns)
    if columns.percent:
        if layout.kind == "doubt":
            message = "--percent goes with --probs or --confidence. Leave it out."
            raise InputError(message)
        values = values / 100
    correct = None if layout.correct is None else as_correct(table[layout.correct])
    if columns.truth is not None and layout.predicted is not None:
        truth = look_up(_ids(table, layout), columns)
        given["labels"] = _truth_text(truth, given["predicted"])
    elif layout.label is not None:
        given["labels"] = _truth_text(table[layout.label], given["predicted"])
    kind: Any = layout.kind
    return make_answers(
        values, correct, signal=kind, missing=missing, **given, **beside
    )


def _stated(
    column: pl.Series, missing: NDArray[np.bool_], columns: Columns
) -> NDArray[Any]:
    """Return confidences or doubts; NaN where one is missing."""
    if not missing.any():
        return _numbers(column, column.name, columns)
    out, there = np.full(len(column), np.nan), np.flatnonzero(~missing)
    if not len(there):
        return out
    try:
        numbers = _numbers(column.gather(there), column.name, columns)
    except RowError as error:  # its row is among those that have one
        raise RowError(error.message, int(there[error.row])) from None
    out = out.astype(np.promote_types(numbers.dtype, np.float32))
    out[there] = numbers
    return out


def _truth_text(column: pl.Series, answers: NDArray[Any]) -> NDArray[Any]:
    """Return true answers; a word that stands for none is one if it was answered."""
    text = as_text(column).fill_null("").to_numpy()
    return np.where(np.isin(text, MISSING) & (text != answers), "", text)


def _values(table: pl.DataFrame, names: list[str], columns: Columns) -> NDArray[Any]:
    if len(names) == 1 and table[names[0]].dtype in (pl.List, pl.Array):
        return _list_column(table[names[0]])
    own = pl.DataFrame([table[name] for name in names])
    if set(own.dtypes) == {pl.String}:  # many at a time
        cast = own.select(_read_text(pl.all(), columns))
        if not sum(cast.null_count().row(0)):
            return cast.to_numpy(order="c")
    return np.column_stack([_numbers(table[name], name, columns) for name in names])


def _read_text(text: pl.Expr, columns: Columns | None) -> pl.Expr:
    """Return numbers that are written as text; null where one is not a number."""
    text = text.str.strip_chars()
    if columns is not None and columns.percent:
        text = text.str.replace(r"\s*%$", "")
    if columns is not None and columns.comma:  # one comma and no point: 0,5
        text = text.str.replace(r"^([^,.]*),([^,.]*)$", "${1}.${2}")
    return text.cast(pl.Float64, strict=False)


def _list_column(column: pl.Series) -> NDArray[Any]:
    if column.dtype.inner.is_nested():  # type: ignore[attr-defined]
        message = (
            f"expected numbers in the lists of column {column.name!r}, got lists "
            "within lists. Give every row one number per class."
        )
        raise InputError(message)
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
        column = column.list.to_array(width)
    else:
        width = int(column.dtype.shape[0])  # type: ignore[attr-defined]
    flat = _numbers(column.reshape((-1,)), column.name, width=width)
    return flat.reshape(len(column), width)


def _numbers(
    column: pl.Series, name: str, columns: Columns | None = None, *, width: int = 1
) -> NDArray[Any]:
    """Return a column's numbers; `width` of them make a row."""
    if column.null_count():
        at = int(column.is_null().arg_max() or 0) // width
        message = (
            f"column {name!r} has no value at row {{row}}. Give every row its numbers."
        )
        raise RowError(message, at)
    if column.dtype == pl.String:  # as CSV is read
        cast = pl.select(_read_text(pl.lit(column), columns)).to_series()
        column = column if cast.null_count() else cast
    if column.dtype == pl.Boolean:
        column = column.cast(pl.Int64)
    if column.dtype.is_decimal() or column.dtype in (pl.Int128, pl.UInt128):
        column = column.cast(pl.Float64)
    if not column.dtype.is_numeric():
        at = _first_odd(column)
        message = (
            f"expected numbers in column {name!r}, got {column[at]!r} at row {{row}}."
            f"{_how(column[at], at)}"
        )
        raise RowError(message, at)
    return column.to_numpy()


def _how(value: Any, at: int) -> str:
    """Say what to do about a number that is written otherwise."""
    text = str(value).strip()
    if text.endswith("%"):
        return " Give --percent."
    if text.count(",") == 1:
        return " Decimal commas are read in files separated by semicolons or tabs."
    if at == 0:
        return " If the column does not hold such numbers, do not name it."
    return " Fix or remove such rows."


def _first_odd(column: pl.Series) -> int:
    if column.dtype.is_nested():
        return 0
    numbers = column.cast(pl.String, strict=False).cast(pl.Float64, strict=False)
    return int(numbers.is_null().arg_max() or 0)


def _groups(column: pl.Series) -> NDArray[Any]:
    """Return groups: whole numbers that numpy has as they are, all else as text."""
    if column.null_count():
        at = int(column.is_null().arg_max() or 0)
        message = f"column {column.name!r} has no group at row {{row}}."
        raise RowError(message, at)
    if column.dtype.is_integer() and column.dtype not in (pl.Int128, pl.UInt128):
        return column.to_numpy()
    return to_text(column).to_numpy().astype(str)


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
            f"class {int(probs[at].argmax())}. Check which column is which; if it is "
            f"what the system answers, name it: --probs {','.join(layout.values)} "
            f"--predicted {layout.said} --labels {layout.label}."
        )
        raise RowError(message, at)
