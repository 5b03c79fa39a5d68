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


def from_table(table: pl.DataFrame, columns: Columns, layout: Layout) -> Predictions:
    """Build predictions, with all that the columns name, from a table."""
    if layout.kind == "choices":
        return from_lines(table[layout.values[0]], columns)
    beside: dict[str, Any] = {
        "ids": None if layout.ids is None else _objects(table[layout.ids]),
        "groups": None if layout.groups is None else _groups(table[layout.groups]),
        "features": None
        if not layout.features
        else _matrix(table, layout.features, columns),
    }
    if layout.holds_answers:
        return _answers(table, layout, columns, beside)
    if columns.positive is not None and columns.class_names is None:
        columns = with_binary_names(columns, layout, table)
        layout = replace(layout, class_names=tuple(columns.class_names or ()))
    values = _class_values(table, layout, columns)
    # Predictions copy an array that others could change. Nobody else has this one.
    values.flags.writeable = False
    if layout.class_names is not None and len(layout.class_names) != values.shape[1]:
        message = (
            f"expected {values.shape[1]} class names, one per class, got "
            f"{len(layout.class_names)}."
        )
        raise InputError(message)
    beside["class_names"], beside["cutoff"] = layout.class_names, columns.cutoff
    if layout.kind == "logits":
        predictions = Predictions.from_logits(values, **beside)
    else:
        predictions = Predictions.from_probs(
            values, one_vs_rest=columns.one_vs_rest, **beside
        )
    if layout.predicted is not None:
        decisions = class_decisions(
            table[layout.predicted], layout, columns, predictions.n_classes
        )
        predictions = replace(predictions, decisions=decisions, decided_by=AS_PREDICTED)
    if layout.doctor_prediction is not None:
        _check_doctor_predictions(table, layout, values)
    labels = _labels(table, layout, columns, values.shape[1])
    has_labels = labels is not None and bool((labels != UNKNOWN).any())
    return replace(predictions, labels=labels if has_labels else None)


def from_frame(table: Any, **columns: Any) -> Predictions:
    """Build predictions from a pandas, polars or Arrow table.

    Examples
    --------
    >>> table = pl.DataFrame({"confidence": [0.9, 0.6], "correct": [True, False]})
    >>> from_frame(table, confidence="confidence", correct="correct")
    Answers(2 rows, confidence, accuracy 50.00%)
    """
    if columns.get("choices") is not None:
        message = "choices= reads responses from a file, one per line. Use td.read."
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
    try:
        named_columns = Columns(**columns)
    except TypeError as error:
        message = f"expected columns by name, as probs= or labels=: {error}."
        raise InputError(message) from error
    if not len(table):
        message = "expected at least one row, got an empty table."
        raise InputError(message)
    return from_table(table, named_columns, find_layout(table.columns, named_columns))


def _to_polars(table: Any) -> pl.DataFrame:
    """Return an Arrow or pandas table; columns of mixed types as text."""
    if hasattr(table, "dtypes") and hasattr(table, "iloc"):  # pandas
        return _pandas_to_polars(table)
    frame = pl.from_arrow(table)
    if not isinstance(frame, pl.DataFrame):
        message = "it is not a table"
        raise TypeError(message)
    return frame


def _pandas_to_polars(table: Any) -> pl.DataFrame:
    # polars.from_pandas needs pyarrow, which the core does not.
    names = [str(name) for name in table.columns]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        message = f"it has the column {repeated[0]!r} twice"
        raise ValueError(message)
    series: dict[str, Any] = {}
    for name in table.columns:
        column, dtype = table[name], table[name].dtype
        # pandas' own nullable types have no numpy array without losing their nulls.
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            series[str(name)] = column.to_numpy()
        else:
            entries = column.astype(object).where(column.notna(), None)
            series[str(name)] = _series_of_objects(list(entries))
    return pl.DataFrame(series)


def _series_of_objects(entries: list[Any]) -> pl.Series:
    try:
        return pl.Series(entries, strict=True)
    except (TypeError, pl.exceptions.PolarsError):  # of mixed types
        return pl.Series([None if v is None else str(v) for v in entries])


def with_binary_names(columns: Columns, layout: Layout, table: pl.DataFrame) -> Columns:
    """Return columns that name both classes of a binary model."""
    assert columns.positive is not None
    labels: list[str] = []
    if layout.label is not None:
        labels = as_text(table[layout.label]).drop_nulls().unique().sort().to_list()
    try:
        names = binary_names(columns.positive, labels)
    except InputError:
        if columns.need_labels:
            raise
        names = binary_names(columns.positive, ())
    return replace(columns, class_names=names)


def _class_values(
    table: pl.DataFrame, layout: Layout, columns: Columns
) -> NDArray[Any]:
    """Return one number per row and class."""
    values = _matrix(table, layout.values, columns)
    if columns.percent:
        values = _percentages_to_shares(values, layout)
    is_single = values.shape[1] == 1
    if columns.positive is None and not is_single:
        return values
    if columns.positive is None:
        message = (
            f"expected one number per class, at least 2 classes, got one number in "
            f"{layout.values[0]!r}. For a binary model, say which label it speaks for: "
            "--positive LABEL."
        )
        raise InputError(message)
    if not is_single:
        message = (
            "--positive goes with one column of numbers, got several. Leave it out."
        )
        raise InputError(message)
    positive = values.astype(np.float64)
    if layout.kind == "logits":
        return np.column_stack([np.zeros_like(positive), positive])
    _refuse_percentages(positive, layout.values[0])
    return np.column_stack([1 - positive, positive])


def _percentages_to_shares(values: NDArray[Any], layout: Layout) -> NDArray[Any]:
    if layout.kind not in ("probs", "confidence"):
        message = "--percent goes with --probs or --confidence. Leave it out."
        raise InputError(message)
    return values / 100


def _refuse_percentages(positive: NDArray[np.float64], name: str) -> None:
    """Refuse probabilities above 1 that look like percentages, or a few such errors."""
    highest = positive.max(initial=0.0)
    if not (1.01 < highest <= 100.5 and positive.min() >= 0):
        return
    n_above, row = int((positive > 1).sum()), int(positive.argmax())
    message = f"expected probabilities in {name!r}, got up to {highest:g}"
    if n_above >= 0.05 * len(positive):
        message += ", as percentages are. Give --percent."
        raise InputError(message)
    # A single typing error does not make percentages of the other rows.
    message += " at row {row}; "
    message += f"{n_above:,} of {len(positive):,} rows are above 1. Fix or remove them."
    raise RowError(message, row)


def _labels(
    table: pl.DataFrame, layout: Layout, columns: Columns, n_classes: int
) -> NDArray[np.int64] | None:
    """Return the labels; invalid ones are refused only if labels are needed."""
    if columns.truth is not None:
        column = look_up(_ids(table, layout), columns)
    elif layout.label is None:
        return None
    else:
        column = table[layout.label]
    if columns.positive is not None:
        column = _binary_labels(column, columns)
    return class_numbers(column, layout, n_classes, strict=columns.need_labels)


def class_decisions(
    column: pl.Series, layout: Layout, columns: Columns, n_classes: int
) -> NDArray[np.int64]:
    """Return the classes that the system answered, `UNKNOWN` for rows without one."""
    if columns.positive is not None:
        column = _binary_labels(column, columns)
    try:
        return class_numbers(column, layout, n_classes, strict=True)
    except InputError as error:
        raise as_prediction_error(error) from None


def _ids(table: pl.DataFrame, layout: Layout) -> pl.Series:
    if layout.ids is None:
        message = "--truth finds labels by id. Name the column of ids: --ids NAME."
        raise InputError(message)
    return table[layout.ids]


def _binary_labels(column: pl.Series, columns: Columns) -> pl.Series:
    """Return labels by name; 0, 1, false and true stand for the two classes."""
    negative, positive = columns.class_names or ()
    codes = {"0": negative, "1": positive, "false": negative, "true": positive}
    names = {negative: negative, positive: positive}  # a class may be called "1"
    return as_text(column).replace(codes | names)


def _answers(
    table: pl.DataFrame, layout: Layout, columns: Columns, beside: dict[str, Any]
) -> Answers:
    """Build answers with a confidence or a doubt."""
    name = layout.values[0]
    predicted = labels = None
    missing = table[name].is_null().to_numpy()
    if layout.predicted is not None:
        predicted = as_text(table[layout.predicted]).fill_null("").to_numpy()
        missing = missing | (predicted == "")
    signal = _signal(table[name], missing, columns)
    if columns.percent:
        signal = _percentages_to_shares(signal, layout)
    correct = None if layout.correct is None else as_correct(table[layout.correct])
    if columns.truth is not None and layout.predicted is not None:
        truth = look_up(_ids(table, layout), columns)
        labels = _true_answers(truth, predicted)
    elif layout.label is not None:
        labels = _true_answers(table[layout.label], predicted)
    kind: Any = layout.kind
    return make_answers(
        signal,
        correct,
        signal=kind,
        missing=missing,
        predicted=predicted,
        labels=labels,
        **beside,
    )


def _signal(
    column: pl.Series, missing: NDArray[np.bool_], columns: Columns
) -> NDArray[Any]:
    """Return confidences or doubts; NaN where one is missing."""
    if not missing.any():
        return _numbers(column, column.name, columns)
    signal, present = np.full(len(column), np.nan), np.flatnonzero(~missing)
    if not len(present):
        return signal
    try:
        numbers = _numbers(column.gather(present), column.name, columns)
    except RowError as error:  # whose row counts those that are present
        raise RowError(error.message, int(present[error.row])) from None
    signal = signal.astype(np.promote_types(numbers.dtype, np.float32))
    signal[present] = numbers
    return signal


def _true_answers(column: pl.Series, predicted: NDArray[Any] | None) -> NDArray[Any]:
    """Return true answers, "" if missing; "NA" is an answer if it was predicted."""
    text = as_text(column).fill_null("").to_numpy()
    return np.where(np.isin(text, MISSING) & (text != predicted), "", text)


def _matrix(table: pl.DataFrame, names: list[str], columns: Columns) -> NDArray[Any]:
    """Return the numbers of columns, or of one list column, as (rows, columns)."""
    if len(names) == 1 and table[names[0]].dtype in (pl.List, pl.Array):
        return _list_column(table[names[0]])
    frame = pl.DataFrame([table[name] for name in names])
    if set(frame.dtypes) == {pl.String}:  # polars casts many columns on all cores
        numbers = frame.select(_parse_numbers(pl.all(), columns))
        if not sum(numbers.null_count().row(0)):
            return numbers.to_numpy(order="c")
    return np.column_stack([_numbers(table[name], name, columns) for name in names])


def _parse_numbers(text: pl.Expr, columns: Columns | None) -> pl.Expr:
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
        row = int(column.is_null().arg_max() or 0) // width
        message = (
            f"column {name!r} has no value at row {{row}}. Give every row its numbers."
        )
        raise RowError(message, row)
    if column.dtype == pl.String:  # columns of CSV files are read as text
        numbers = pl.select(_parse_numbers(pl.lit(column), columns)).to_series()
        column = column if numbers.null_count() else numbers
    if column.dtype == pl.Boolean:
        column = column.cast(pl.Int64)
    # numpy has neither decimals nor integers of 128 bits.
    if column.dtype.is_decimal() or column.dtype in (pl.Int128, pl.UInt128):
        column = column.cast(pl.Float64)
    if not column.dtype.is_numeric():
        row = _first_non_number(column)
        message = (
            f"expected numbers in column {name!r}, got {column[row]!r} at row {{row}}."
            f"{_number_advice(column[row], row)}"
        )
        raise RowError(message, row)
    return column.to_numpy()


def _number_advice(value: Any, row: int) -> str:
    """Say what to do about an entry that is not a number."""
    text = str(value).strip()
    if text.endswith("%"):
        return " Give --percent."
    if text.count(",") == 1:
        return " Decimal commas are read in files separated by semicolons or tabs."
    if row == 0:
        return " If the column does not hold such numbers, do not name it."
    return " Fix or remove such rows."


def _first_non_number(column: pl.Series) -> int:
    if column.dtype.is_nested():
        return 0
    numbers = column.cast(pl.String, strict=False).cast(pl.Float64, strict=False)
    return int(numbers.is_null().arg_max() or 0)


def _groups(column: pl.Series) -> NDArray[Any]:
    """Return groups: integers that numpy can hold as they are, all else as text."""
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        message = f"column {column.name!r} has no group at row {{row}}."
        raise RowError(message, row)
    if column.dtype.is_integer() and column.dtype not in (pl.Int128, pl.UInt128):
        return column.to_numpy()
    return to_text(column).to_numpy().astype(str)


def _objects(column: pl.Series) -> NDArray[Any]:
    """Return a column's entries as they are; numpy would unpack lists into axes."""
    entries = np.empty(len(column), object)
    entries[:] = column.to_list()
    return entries


def _check_doctor_predictions(
    table: pl.DataFrame, layout: Layout, probs: NDArray[Any]
) -> None:
    """Refuse a DOCTOR layout whose predictions are not the largest probabilities."""
    assert layout.doctor_prediction is not None
    name = layout.doctor_prediction
    predicted = as_labels(_numbers(table[name], name), *probs.shape)
    assert predicted is not None
    agrees = probs[np.arange(len(predicted)), predicted] == probs.max(1)
    if not agrees.all():
        row = int((~agrees).argmax())
        message = (
            f"in the DOCTOR layout column {name!r} is the prediction, but at row "
            f"{{row}} it is {int(predicted[row])} where the largest probability is of "
            f"class {int(probs[row].argmax())}. Check which column is which; if it is "
            f"what the system answers, name it: --probs {','.join(layout.values)} "
            f"--predicted {name} --labels {layout.label}."
        )
        raise RowError(message, row)
