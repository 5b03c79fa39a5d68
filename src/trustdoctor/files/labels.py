"""Labels as class numbers, and true labels from a table of their own, found by id."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.errors import FileError, InputError, RowError
from trustdoctor.files.columns import Columns
from trustdoctor.files.formats import find_format
from trustdoctor.files.layout import LABELS, Layout
from trustdoctor.predictions import UNKNOWN, comparable_name, unknown_class_message

MISSING = ("", "nan", "NaN", "NA", "N/A", "null", "None")
_OPPOSITES = {"yes": "no", "true": "false", "1": "0", "y": "n", "t": "f"}
_OPPOSITES |= {"positive": "negative", "pos": "neg"}
_BINARY_PAIRS = ({"0", "1"}, {"false", "true"})
_NEGATIVE = tuple(_OPPOSITES.values())
"""Labels that, as the positive one, 1 and true cannot stand for."""

IDS = ("id", "ids", "custom_id")
_TRUTH_LABELS = (*LABELS, "truth", "answer")


def to_text(column: pl.Series) -> pl.Series:
    """Return a column as text, refusing lists, bytes and durations."""
    dtype = column.dtype
    if dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object):
        message = f"expected names or numbers in {column.name!r}, got {dtype}."
        raise InputError(message)
    return column.cast(pl.String)


def as_text(column: pl.Series) -> pl.Series:
    """Return names as `comparable_name` does; null for blanks and NaN."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
    if column.dtype == pl.Boolean:
        return column.cast(pl.String).str.to_lowercase()
    text = to_text(column).str.normalize("NFC").str.strip_chars()
    text = text.str.replace(r"^([+-]?[0-9]+)\.0+$", "${1}").replace("", None)
    for word in ("true", "false"):
        text = text.str.replace(rf"(?i)^{word}$", word)
    return text


def class_numbers(
    column: pl.Series, layout: Layout, n_classes: int, *, strict: bool
) -> NDArray[np.int64]:
    """Return labels as numbers of classes, `UNKNOWN` if missing.

    A label is the name of a class, or its number unless a class is called by a number.
    Any other label is refused, or without `strict` counts as missing.
    """
    if column.dtype == pl.String and layout.class_names is None:
        # Labels of most CSV files are whole numbers, for which one cast does.
        integers = column.cast(pl.Int64, strict=False)
        column = column if integers.null_count() > column.null_count() else integers
    if layout.class_names:
        return _numbers_of_names(column, layout, n_classes, strict=strict)
    if column.dtype.is_integer():
        numbers, shown, missing = column.cast(pl.Float64), column, column.is_null()
    else:
        shown = as_text(column)
        digits = shown.replace({"false": "0", "true": "1"})
        numbers = digits.cast(pl.Float64, strict=False).fill_nan(None)
        missing = shown.is_null() | (numbers.is_null() & shown.is_in(MISSING))
    classes = numbers - layout.first_class
    valid = _are_classes(classes, n_classes)
    invalid = ~missing & ~valid
    if strict and invalid.any():
        row = int(invalid.arg_max() or 0)
        message = _invalid_number_message(shown, numbers, row, layout, n_classes)
        raise RowError(message, row)
    return _class_array(classes, valid & ~missing)


def _numbers_of_names(
    column: pl.Series, layout: Layout, n_classes: int, *, strict: bool
) -> NDArray[np.int64]:
    names = layout.class_names
    assert names is not None
    text = as_text(column)
    classes = text.replace_strict(
        _class_by_name(names, layout), default=None, return_dtype=pl.Float64
    )
    if not any(_is_number(name) for name in names):  # then a number is a position
        numbers = text.cast(pl.Float64, strict=False).fill_nan(None)
        classes = classes.fill_null(numbers - layout.first_class)
    missing = text.is_null() | (classes.is_null() & text.is_in(MISSING))
    valid = _are_classes(classes, n_classes)
    invalid = ~missing & ~valid
    if strict and invalid.any():
        row = int(invalid.arg_max() or 0)
        raise RowError(unknown_class_message(text[row], names), row)
    return _class_array(classes, valid & ~missing)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _are_classes(classes: pl.Series, n_classes: int) -> pl.Series:
    """Return which entries are whole numbers from 0 to `n_classes` - 1."""
    valid = (classes >= 0) & (classes < n_classes) & (classes == classes.floor())
    return valid.fill_null(value=False)


def _invalid_number_message(
    shown: pl.Series, numbers: pl.Series, row: int, layout: Layout, n_classes: int
) -> str:
    first, last = layout.first_class, layout.first_class + n_classes - 1
    number = numbers[row]
    if number is None:
        return (
            f"expected numbers from {first} to {last} in column {shown.name!r}, got "
            f"{shown[row]!r} at row {{row}}. "
            "Name the columns of the classes, --probs A,B,C, or their names, "
            "--class-names FILE."
        )
    if not np.isfinite(number) or number != int(number):
        return f"the label is not a whole number: {number:g} at row {{row}}."
    advice = "Number the classes from 0, or leave a missing label blank."
    if number == last + 1 and not first and not (numbers == 0).any():
        advice = "If labels count from 1, give --first-class 1."
    return (
        f"expected labels from {first} to {last} for {n_classes} classes, got "
        f"{number:g} at row {{row}}. {advice}"
    )


def _class_array(classes: pl.Series, known: pl.Series) -> NDArray[np.int64]:
    """Return classes as an array, `UNKNOWN` where they are not known."""
    values = classes.fill_null(UNKNOWN).to_numpy()
    filled = np.where(known.to_numpy(), np.nan_to_num(values), UNKNOWN)
    return filled.astype(np.int64)


def _class_by_name(names: Sequence[str], layout: Layout) -> dict[str, float]:
    """Return the class of each name; the name of its column stands for it, too."""
    by_name = {comparable_name(name): float(i) for i, name in enumerate(names)}
    if len(by_name) < len(names):
        message = (
            f"two of the class names {', '.join(map(repr, names[:8]))} could mean the "
            "same class. Rename one of them."
        )
        raise InputError(message)
    by_column = {}
    if len(layout.values) == len(names):
        by_column = {
            comparable_name(name): float(i) for i, name in enumerate(layout.values)
        }
    return by_column | by_name


def binary_names(positive: str, labels: Sequence[str]) -> tuple[str, str]:
    """Return the names of both classes, from the positive one and the file's labels."""
    name = comparable_name(positive)
    opposite = _OPPOSITES.get(name.lower(), f"not {name}")
    present = [label for label in labels if label not in MISSING]
    others = [label for label in present if label != name]
    if not others:
        return opposite, name
    shown = " and ".join(map(repr, others[:2]))
    if name in present and len(others) > 1:
        message = (
            f"expected two labels, {name!r} and another, got {shown} as well. A binary "
            "model has two classes."
        )
        raise InputError(message)
    is_coded = name not in present and any(set(others) <= p for p in _BINARY_PAIRS)
    if is_coded and name.lower() not in _NEGATIVE:  # 1 and true stand for it
        return opposite, name
    differs_in_case = any(other.casefold() == name.casefold() for other in others)
    if is_coded or differs_in_case or len(others) > 1:
        message = (
            f"expected the label {name!r} of --positive among the labels, got {shown}. "
            "Give one of these."
        )
        raise InputError(message)
    return others[0], name


def as_correct(column: pl.Series) -> NDArray[Any]:
    """Return 1 for right answers, 0 for wrong ones, NaN for unknown ones."""
    text = as_text(column).str.to_lowercase()
    words = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "yes": 1.0, "no": 0.0}
    words |= {"correct": 1.0, "wrong": 0.0, "right": 1.0, "incorrect": 0.0}
    words |= {"t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0}
    correct = text.replace_strict(words, default=None, return_dtype=pl.Float64)
    invalid = correct.is_null() & text.is_not_null()
    invalid &= ~text.is_in([word.lower() for word in MISSING])
    if invalid.any():
        row = int(invalid.arg_max() or 0)
        message = (
            f"expected true or false in column {column.name!r}, got {column[row]!r} at "
            "row {row}. Write 1 where the answer is right and 0 where it is wrong."
        )
        raise RowError(message, row)
    return correct.fill_null(float("nan")).to_numpy()


def look_up(ids: pl.Series, columns: Columns) -> pl.Series:
    """Return the true label of each id in `columns.truth`; null for other ids."""
    assert columns.truth is not None
    file = Path(columns.truth)
    try:
        str(file).encode()
        changed_ns = file.stat().st_mtime_ns if file.is_file() else None
    except (OSError, UnicodeEncodeError):  # the name is too long, or not in UTF-8
        changed_ns = None
    if changed_ns is None:
        message = f"there is no file {file} that can be read. Check --truth."
        raise FileError(message)
    labels = _read_truth(file, columns.labels, columns.last_line, changed_ns)
    return as_text(ids).replace_strict(labels, default=None, return_dtype=pl.String)


@lru_cache(maxsize=4)
def _read_truth(
    file: Path, label: str | None, last_line: str | None, changed_ns: int
) -> dict[str, str]:
    """Return the label of each id. Batches ask again and again; only changes reread."""
    del changed_ns
    from trustdoctor.files.source import Source  # which imports this module

    source = Source((file,), Columns(last_line=last_line))
    if not find_format(file).is_table:
        message = f"expected a table of ids and labels in {file}, as a CSV file."
        raise FileError(message)
    table = source.collect(source.scan().select(pl.all().cast(pl.String)))
    names = table.columns
    ids = [name for name in names if name in IDS]
    labels = [n for n in names if n == label or (not label and n in _TRUTH_LABELS)]
    if len(names) == 2 and not (ids and labels):
        ids, labels = names[:1], names[1:]
    if len(ids) != 1 or len(labels) != 1:
        message = (
            f"expected the columns id and label in {file}, got "
            f"{', '.join(names[:8])}. Rename them."
        )
        raise FileError(message)
    complete = table.select(ids[0], labels[0]).drop_nulls()
    id_column = complete[ids[0]]
    if id_column.n_unique() < len(complete):
        repeated = id_column.filter(id_column.is_duplicated())[0]
        message = f"{file} has the id {repeated!r} twice. Give each id one label."
        raise InputError(message)
    return dict(zip(as_text(id_column), complete[labels[0]], strict=True))


def require_matches(ids: pl.Series, columns: Columns, where: str) -> None:
    """Refuse a table of labels that has none for the first rows of a file."""
    if not len(ids) or look_up(ids, columns).is_not_null().any():
        return
    first = ids[0]
    shown = "got rows without ids" if first is None else f"got {first!r} first"
    message = (
        f"none of the first {len(ids):,} ids of {where} is in {columns.truth}: "
        f"{shown}. Check --ids and --truth."
    )
    raise FileError(message)
