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
_NUMBERS = ({"0", "1"}, {"false", "true"})
_NEGATIVE = tuple(_OPPOSITES.values())
"""Positive labels that 1 and true cannot stand for."""


def to_text(column: pl.Series) -> pl.Series:
    """Return what a column holds as text, refusing lists, bytes and spans of time."""
    dtype = column.dtype
    if dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object):
        message = f"expected names or numbers in {column.name!r}, got {dtype}."
        raise InputError(message)
    return column.cast(pl.String)


def as_text(column: pl.Series) -> pl.Series:
    """Return names as `comparable_name` does; null where there is none."""
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
    column: pl.Series, layout: Layout, classes: int, *, strict: bool
) -> NDArray[np.int64]:
    """Return labels as numbers of classes, `UNKNOWN` where one is missing.

    A label is the name of a class, or its number where no class is called by a number.
    One that is neither is refused, or without `strict` counts as missing.
    """
    if column.dtype == pl.String and layout.class_names is None:
        whole = column.cast(pl.Int64, strict=False)  # most files, at little cost
        column = column if whole.null_count() > column.null_count() else whole
    if column.dtype.is_integer() and layout.class_names is None:
        return _in_range(
            column, column.cast(pl.Float64), layout, classes, strict=strict
        )
    text = as_text(column)
    names = layout.class_names or ()
    if not names:
        found = text.replace({"false": "0", "true": "1"}).cast(pl.Float64, strict=False)
        found = found.fill_nan(None)
        return _in_range(column, found, layout, classes, strict=strict, text=text)
    found = text.replace_strict(
        _table(names, layout), default=None, return_dtype=pl.Float64
    )
    if not any(_is_number(name) for name in names):  # then a number is a place
        places = text.cast(pl.Float64, strict=False).fill_nan(None) - layout.first
        found = found.fill_null(places)
    missing = text.is_null() | (found.is_null() & text.is_in(MISSING))
    good = (found >= 0) & (found < classes) & (found == found.floor())
    bad = ~missing & ~good.fill_null(value=False)
    if strict and bad.any():
        at = int(bad.arg_max() or 0)
        raise RowError(unknown_class_message(text[at], names), at)
    return _filled(found, missing | bad)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _in_range(  # noqa: PLR0913 - what there is to say of a bad one
    column: pl.Series,
    found: pl.Series,
    layout: Layout,
    classes: int,
    *,
    strict: bool,
    text: pl.Series | None = None,
) -> NDArray[np.int64]:
    """Return whole numbers of classes, counted from the first."""
    shown = column if text is None else text
    missing = shown.is_null()
    if text is not None:
        missing |= found.is_null() & text.is_in(MISSING)
    moved = found - layout.first
    good = (moved >= 0) & (moved < classes) & (moved == moved.floor())
    bad = ~missing & ~good.fill_null(value=False)
    if strict and bad.any():
        at = int(bad.arg_max() or 0)
        raise RowError(_not_a_number(shown, found, at, layout, classes), at)
    return _filled(moved, missing | bad)


def _not_a_number(
    shown: pl.Series, found: pl.Series, at: int, layout: Layout, classes: int
) -> str:
    first, last = layout.first, layout.first + classes - 1
    got = f"got {shown[at]!r} at row {{row}}" if found[at] is None else ""
    if got:
        return (
            f"expected numbers from {first} to {last} in column {shown.name!r}, {got}. "
            "Name the columns of the classes, --probs A,B,C, or their names, "
            "--class-names FILE."
        )
    if not np.isfinite(found[at]) or found[at] != int(found[at]):
        return f"the label is not a whole number: {found[at]:g} at row {{row}}."
    advice = "Number the classes from 0, or leave a missing label blank."
    if found[at] == last + 1 and not first and not (found == 0).any():
        advice = "If labels count from 1, give --first-class 1."
    return (
        f"expected labels from {first} to {last} for {classes} classes, got "
        f"{found[at]:g} at row {{row}}. {advice}"
    )


def _filled(found: pl.Series, missing: pl.Series) -> NDArray[np.int64]:
    known = (~missing).to_numpy()
    values = found.fill_null(UNKNOWN).to_numpy()
    return np.where(known, np.nan_to_num(values), UNKNOWN).astype(np.int64)


def _table(names: Sequence[str], layout: Layout) -> dict[str, float]:
    """Return the class of each name; a column's own name is one, too."""
    own = {comparable_name(name): float(i) for i, name in enumerate(names)}
    if len(own) < len(names):
        message = (
            f"two of the class names {', '.join(map(repr, names[:8]))} could mean the "
            "same class. Rename one of them."
        )
        raise InputError(message)
    beside = {}
    if len(layout.values) == len(names):
        beside = {
            comparable_name(name): float(i) for i, name in enumerate(layout.values)
        }
    return beside | own


def binary_names(positive: str, labels: Sequence[str]) -> tuple[str, str]:
    """Return the names of both classes, from the positive one and the labels seen."""
    name = comparable_name(positive)
    usual = _OPPOSITES.get(name.lower(), f"not {name}")
    seen = [label for label in labels if label not in MISSING]
    others = [label for label in seen if label != name]
    if not others:
        return usual, name
    shown = " and ".join(map(repr, others[:2]))
    if name in seen and len(others) > 1:
        message = (
            f"expected two labels, {name!r} and another, got {shown} as well. A binary "
            "model has two classes."
        )
        raise InputError(message)
    numbers = name not in seen and any(set(others) <= pair for pair in _NUMBERS)
    if numbers and name.lower() not in _NEGATIVE:  # 1 and true stand for it
        return usual, name
    alike = any(other.casefold() == name.casefold() for other in others)
    if numbers or alike or len(others) > 1:
        message = (
            f"expected the label {name!r} of --positive among the labels, got {shown}. "
            "Give one of these."
        )
        raise InputError(message)
    return others[0], name


def as_correct(column: pl.Series) -> NDArray[Any]:
    """Return 1 where an answer is right, 0 where it is wrong, NaN where unknown."""
    text = as_text(column).str.to_lowercase()
    words = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "yes": 1.0, "no": 0.0}
    words |= {"correct": 1.0, "wrong": 0.0, "right": 1.0, "incorrect": 0.0}
    words |= {"t": 1.0, "f": 0.0, "y": 1.0, "n": 0.0}
    found = text.replace_strict(words, default=None, return_dtype=pl.Float64)
    odd = found.is_null() & text.is_not_null()
    odd &= ~text.is_in([word.lower() for word in MISSING])
    if odd.any():
        at = int(odd.arg_max() or 0)
        message = (
            f"expected true or false in column {column.name!r}, got {column[at]!r} at "
            "row {row}. Write 1 where the answer is right and 0 where it is wrong."
        )
        raise RowError(message, at)
    return found.fill_null(float("nan")).to_numpy()


IDS = ("id", "ids", "custom_id")
_NAMES = (*LABELS, "truth", "answer")


def look_up(ids: pl.Series, columns: Columns) -> pl.Series:
    """Return the true label of each id; null where the table has none."""
    assert columns.truth is not None
    file = Path(columns.truth)
    try:
        str(file).encode()
        changed = file.stat().st_mtime_ns if file.is_file() else None
    except (OSError, UnicodeEncodeError):  # too long a name, or not in UTF-8
        changed = None
    if changed is None:
        message = f"there is no file {file} that can be read. Check --truth."
        raise FileError(message)
    table = _read_truth(file, columns.labels, columns.last_line, changed)
    return as_text(ids).replace_strict(table, default=None, return_dtype=pl.String)


@lru_cache(maxsize=4)
def _read_truth(
    file: Path, label: str | None, last_line: str | None, changed: int
) -> dict[str, str]:
    """Read ids and labels; again where the file was changed."""
    del changed
    from trustdoctor.files.source import Source  # which is made of what is here

    source = Source((file,), Columns(last_line=last_line))
    if not find_format(file).is_table:
        message = f"expected a table of ids and labels in {file}, as a CSV file."
        raise FileError(message)
    table = source.collect(source.scan().select(pl.all().cast(pl.String)))
    ids = [name for name in table.columns if name in IDS]
    labels = [n for n in table.columns if n == label or (not label and n in _NAMES)]
    if len(table.columns) == 2 and not (ids and labels):
        ids, labels = table.columns[:1], table.columns[1:]
    if len(ids) != 1 or len(labels) != 1:
        message = (
            f"expected the columns id and label in {file}, got "
            f"{', '.join(table.columns[:8])}. Rename them."
        )
        raise FileError(message)
    known = table.select(ids[0], labels[0]).drop_nulls()
    if known[ids[0]].n_unique() < len(known):
        again = known.filter(known[ids[0]].is_duplicated())[ids[0]][0]
        message = f"{file} has the id {again!r} twice. Give each id one label."
        raise InputError(message)
    return dict(zip(as_text(known[ids[0]]), known[labels[0]], strict=True))


def require_matches(ids: pl.Series, columns: Columns, where: str) -> None:
    """Refuse a table of labels that has none for the first rows of a file."""
    if not len(ids) or look_up(ids, columns).is_not_null().any():
        return
    shown = [one for one in ids.head(1) if one is not None]
    what = f"got {shown[0]!r} first" if shown else "got rows without ids"
    message = (
        f"none of the first {len(ids):,} ids of {where} is in {columns.truth}: {what}. "
        "Check --ids and --truth."
    )
    raise FileError(message)
