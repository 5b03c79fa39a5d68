"""Predictions from files.

NPZ: arrays `logits` or `probs`, and `labels`. CSV and Parquet: columns `logit_0..`
or `prob_0..` (or one list column `logits` or `probs`, in Parquet), and `label`. The
original DOCTOR layout, columns `0..C-1, label, true_label`, where `label` is the
prediction, is read as probabilities. Other names are given by `logits=`, `probs=`
and `labels=`.
"""

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.errors import FileError, InputError, RowError
from trustdoctor.predictions import Predictions, as_labels

SUFFIXES = (".npz", ".csv", ".parquet")


@dataclass(frozen=True)
class Columns:
    """Which columns or arrays to read, where they have names of their own.

    Attributes
    ----------
    logits, probs : str, optional
        An array, a list column, or the prefix of numbered columns. At most one.
    labels : str, optional
        The array or column of true labels.
    need_labels : bool
        Whether labels that cannot be used are a mistake.
    """

    logits: str | None = None
    probs: str | None = None
    labels: str | None = None
    need_labels: bool = True

    def __post_init__(self) -> None:
        """Refuse two meanings for the same numbers."""
        if self.logits is not None and self.probs is not None:
            message = "expected logits or probs to be named, got both. Name one."
            raise InputError(message)


def read_predictions(
    path: str | Path,
    *,
    logits: str | None = None,
    probs: str | None = None,
    labels: str | None = None,
    need_labels: bool = True,
) -> Predictions:
    """Read predictions from an NPZ, CSV or Parquet file.

    Parameters
    ----------
    path : str or Path
        The file; its suffix says what it is.
    logits, probs : str, optional
        The array, list column or column prefix that holds them, if it is not
        called `logits` / `logit_` or `probs` / `prob_`.
    labels : str, optional
        The array or column of true labels, if not `labels` / `label`.
    need_labels : bool
        False takes a file whose labels are missing in part, or no numbers, as one
        without labels.
    """
    columns = Columns(logits, probs, labels, need_labels)
    file = _existing(path)
    try:
        if suffix_of(file) == ".npz":
            return _from_npz(file, columns)
        return from_table(read_table(file), columns)
    except (InputError, pl.exceptions.PolarsError) as error:
        message = f"{file}: {error}"
        raise FileError(message) from error


def read_known_labels(
    path: str | Path, predictions: Predictions, *, labels: str | None = None
) -> NDArray[np.float64] | None:
    """Read labels that may be missing in part, as NaN; None where there are none.

    Labels that are there but are no classes of these predictions are refused.
    """
    if predictions.labels is not None:
        return predictions.labels.astype(np.float64)
    file = _existing(path)
    try:
        found = _raw_labels(file, Columns(labels=labels))
        if found is not None:
            known = ~np.isnan(found)
            as_labels(found[known], int(known.sum()), predictions.n_classes)
    except InputError as error:
        message = f"{file}: {error}"
        raise FileError(message) from error
    return found


def read_matrix(path: str | Path, name: str) -> NDArray[Any]:
    """Read numbers (n, d) beside predictions: an array, a list column, or a prefix."""
    file = _existing(path)
    try:
        if suffix_of(file) == ".npz":
            with np.load(file, allow_pickle=False) as archive:
                if name not in archive.files:
                    raise InputError(_missing("the file", name, archive.files))
                return np.asarray(archive[name])
        table = read_table(file)
        names = _named(table.columns, name, name)
        if not names:
            raise InputError(_missing("the file", name, table.columns))
        return _values(table, names)
    except InputError as error:
        message = f"{file}: {error}"
        raise FileError(message) from error


def _raw_labels(file: Path, columns: Columns) -> NDArray[np.float64] | None:
    """Return the labels as they are, NaN where one is missing."""
    if suffix_of(file) == ".npz":
        with np.load(file, allow_pickle=False) as archive:
            name = label_name(archive.files, columns)
            found = None if name is None else archive[name]
        if found is None or found.dtype.kind in "iuf":
            return None if found is None else found.astype(np.float64)
        message = f"expected labels as numbers, got {found.dtype}."
        raise InputError(message)
    table = read_table(file)
    name = label_name(table.columns, columns)
    if name is None:
        return None
    known = table[name].is_not_null().to_numpy()
    out = np.full(len(table), np.nan)
    if known.any():
        out[known] = _numbers(table[name].drop_nulls(), name)
    return out


def read_table(path: str | Path) -> pl.DataFrame:
    """Read a CSV or Parquet file as it is, but for white space around CSV's names."""
    file = _existing(path)
    try:
        if suffix_of(file) == ".csv":
            table = tidy(pl.read_csv(file, infer_schema_length=None, glob=False), file)
        else:
            table = pl.read_parquet(file, glob=False)
    except pl.exceptions.NoDataError as error:
        message = f"{file} is empty. Expected a header and one line a prediction."
        raise FileError(message) from error
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        kind = suffix_of(file)[1:].upper()
        message = (
            f"cannot read {file} as {kind}: {first_line(error)}. "
            "The file may be cut short or its rows ragged; write it again."
        )
        raise FileError(message) from error
    if len(table) == 0:
        message = f"{file} has a header but no rows. Expected one line a prediction."
        raise FileError(message)
    return table


def tidy(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """Strip names, drop blank lines, and refuse a column that stands twice."""
    for name in table.columns:
        base, mark, _ = name.rpartition("_duplicated_")
        if mark and base in table.columns:
            message = f"{file} has the column {base!r} twice. Name every column once."
            raise FileError(message)
    table = table.rename({name: name.strip() for name in table.columns})
    return table.filter(~pl.all_horizontal(pl.all().is_null()))


def _existing(path: str | Path) -> Path:
    file = Path(path)
    if suffix_of(file) not in SUFFIXES:
        message = f"expected a file in {', '.join(SUFFIXES)}, got {file.name!r}."
        raise FileError(message)
    try:
        if file.is_dir():
            message = f"{file} is a folder, not a file. Name a file in it."
            raise FileError(message)
        if not file.is_file():
            message = f"there is no file {file}. Check the path."
            raise FileError(message)
    except OSError as error:  # no access to the folder, or too long a name
        message = f"cannot look at {file}: {(error.strerror or '').lower()}."
        raise FileError(message) from error
    return file


def suffix_of(file: Path) -> str:
    """Return what kind of file it is."""
    return file.suffix.lower()


def _from_npz(file: Path, columns: Columns) -> Predictions:
    try:
        with zipfile.ZipFile(file):  # numpy would take any other file for a pickle
            pass
        with np.load(file, allow_pickle=False) as archive:
            kind, name = _values_name(archive.files, columns, file)
            values = archive[name]
            label = label_name(archive.files, columns)
            labels = None if label is None else np.asarray(archive[label])
    except (FileError, InputError):
        raise
    except Exception as error:
        raise FileError(_npz_message(file, error)) from error
    return _build(kind, values, lambda: labels, columns)


def label_name(names: list[str], columns: Columns) -> str | None:
    """Return the name of the labels, None where there are none."""
    if columns.labels is not None:
        if columns.labels not in names:
            raise InputError(_missing("the file", columns.labels, names))
        return columns.labels
    present = [
        n for n in ("label", "labels", "true_label", "true_labels") if n in names
    ]
    if len(present) > 1:
        message = (
            f"both {present[0]!r} and {present[1]!r} are there. Name one: --labels."
        )
        raise InputError(message)
    return present[0] if present else None


def _npz_message(file: Path, error: Exception) -> str:
    if "allow_pickle" in str(error):
        return (
            f"{file} holds pickled objects, which can run code when read, so they are "
            "refused. Save plain numeric arrays."
        )
    return (
        f"cannot read {file} as NPZ: {first_line(error)}. The file may be cut short; "
        "write it again."
    )


def array_names(names: list[str], columns: Columns, file: Path) -> list[str]:
    """Return the names of the arrays that predictions are made of."""
    label = label_name(names, columns)
    return [_values_name(names, columns, file)[1], *([label] if label else [])]


def _values_name(names: list[str], columns: Columns, file: Path) -> tuple[str, str]:
    """Return what the values are, and the name of their array."""
    for kind in ("logits", "probs"):
        given = getattr(columns, kind)
        if given is not None:
            if given not in names:
                raise FileError(_missing(file, given, names))
            return kind, given
    present = [kind for kind in ("logits", "probs") if kind in names]
    if len(present) == 1:
        return present[0], present[0]
    if present:
        message = f"{file} holds both logits and probs. Say which: --logits or --probs."
        raise FileError(message)
    message = (
        f"expected an array 'logits' or 'probs' in {file}, got {', '.join(names)}. "
        "Name it with --logits NAME or --probs NAME."
    )
    raise FileError(message)


def from_table(table: pl.DataFrame, columns: Columns) -> Predictions:
    """Build predictions from the columns of a table."""
    if _is_doctor_layout(table.columns, columns):
        return _from_doctor_layout(table)
    kind, names = _value_columns(table.columns, columns)
    label = label_name(table.columns, columns)

    def labels() -> NDArray[Any] | None:
        return None if label is None else _column(table, label)

    return _build(kind, _values(table, names), labels, columns)


def needed_columns(names: list[str], columns: Columns) -> list[str]:
    """Return the columns that predictions are made of."""
    if _is_doctor_layout(names, columns):
        return [*_named(names, "", "probs"), "label", "true_label"]
    label = label_name(names, columns)
    return [*_value_columns(names, columns)[1], *([label] if label else [])]


def _value_columns(every: list[str], columns: Columns) -> tuple[str, list[str]]:
    """Return what the values are, and the columns that hold them."""
    wanted = [
        (kind, names)
        for kind in ("logits", "probs")
        for given in [getattr(columns, kind)]
        for names in [_named(every, given, kind)]
        if names and (given is not None or columns.logits is columns.probs is None)
    ]
    if len(wanted) == 1:
        return wanted[0]
    seen = ", ".join(every[:6]) + (", ..." if len(every) > 6 else "")
    if wanted:
        message = "the file has both logits and probs. Say which: --logits or --probs."
        raise InputError(message)
    message = (
        f"expected columns logit_0.. or prob_0.. (or a list column logits or probs), "
        f"got {seen}. Name them with --logits NAME or --probs NAME."
    )
    raise InputError(message)


def _named(names: list[str], given: str | None, kind: str) -> list[str]:
    """Return the list column, or the numbered columns, of that name."""
    whole = kind if given is None else given
    if whole in names:
        return [whole]
    prefix = given if given is not None else kind[:-1] + "_"
    pattern = re.compile(re.escape(prefix) + r"_?(0|[1-9][0-9]*)")
    found = {int(m[1]): n for n in names if (m := pattern.fullmatch(n))}
    missing = sorted(set(range(len(found))) - set(found))
    if missing:
        message = (
            f"expected columns {prefix}0 to {prefix}{max(found)} without a gap, "
            f"but {prefix}{missing[0]} is missing."
        )
        raise InputError(message)
    return [found[i] for i in range(len(found))]


def _values(table: pl.DataFrame, names: list[str]) -> NDArray[Any]:
    if len(names) == 1 and table[names[0]].dtype in (pl.List, pl.Array):
        return _list_column(table[names[0]])
    arrays = [_column(table, name) for name in names]
    return np.column_stack(arrays)


def _list_column(column: pl.Series) -> NDArray[Any]:
    if column.dtype == pl.List:
        lengths = column.list.len().fill_null(0).to_numpy()
        width = int(lengths[0])
        if width == 0 or (lengths != width).any():
            message = (
                f"expected lists of one length in column {column.name!r}, got "
                f"{lengths.min()} to {lengths.max()} entries. Give every row one "
                "number a class."
            )
            raise InputError(message)
    else:
        width = int(column.dtype.shape[0])  # type: ignore[attr-defined]
    flat = _numbers(column.explode(), column.name, width=width)
    return flat.reshape(len(column), width)


def _column(table: pl.DataFrame, name: str) -> NDArray[Any]:
    return _numbers(table[name], name)


def _numbers(column: pl.Series, name: str, *, width: int = 1) -> NDArray[Any]:
    """Return a column's numbers; `width` of them make a row."""
    if column.null_count():
        at = int(column.is_null().arg_max() or 0) // width
        message = (
            f"column {name!r} has no value at row {{row}}. Fill or drop such rows."
        )
        raise RowError(message, at)
    if column.dtype == pl.String:  # as CSV is scanned
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


def _is_doctor_layout(names: list[str], columns: Columns) -> bool:
    named = (columns.logits, columns.probs, columns.labels)
    return named == (None, None, None) and {"0", "1", "label", "true_label"} <= set(
        names
    )


def _from_doctor_layout(table: pl.DataFrame) -> Predictions:
    probs = _values(table, _named(table.columns, "", "probs"))
    predictions = Predictions.from_probs(probs, _column(table, "true_label"))
    said = Predictions.from_probs(probs, _column(table, "label")).require_labels("")
    agrees = probs[np.arange(len(said)), said] == probs.max(1)
    if not agrees.all():
        at = int((~agrees).argmax())
        message = (
            "in the DOCTOR layout column 'label' is the prediction, but at row {row} "
            f"it is {int(said[at])} where the largest probability is of class "
            f"{predictions.predicted[at]}. Check which column is which."
        )
        raise RowError(message, at)
    return predictions


def _build(
    kind: str, values: Any, labels: Callable[[], Any], columns: Columns
) -> Predictions:
    """Build predictions; labels that cannot be used matter only where needed."""
    make = Predictions.from_logits if kind == "logits" else Predictions.from_probs
    bare = make(values)
    try:
        known = as_labels(labels(), *bare.logits.shape)
    except InputError:
        if columns.need_labels:
            raise
        known = None
    return Predictions(bare.logits, known, bare.from_probabilities)


def _missing(where: str | Path, name: str, names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"there is no {name!r} in {where}; it has {shown}."


def first_line(error: Exception) -> str:
    """Return the first line of what a library complains of."""
    lines = str(error).strip().splitlines() or ["unknown"]
    return lines[0].rstrip(".")
