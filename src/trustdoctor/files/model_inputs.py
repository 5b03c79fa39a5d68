"""Rows for a model to classify, and the same rows with its logits."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, InputError
from trustdoctor.files.columns import Columns
from trustdoctor.files.formats import suffix_of
from trustdoctor.files.images import decode
from trustdoctor.files.labels import to_text
from trustdoctor.files.output import typed
from trustdoctor.files.paths import find_source


def read_rows(  # noqa: PLR0913 - options, by keyword only
    path: Path,
    column: str,
    *,
    where: str | None,
    rows: int | None,
    seed: int,
    last_line: str | None = None,
) -> pl.DataFrame:
    """Read a table, or some of its rows.

    Parameters
    ----------
    path : Path
    column : str
        The column that the model classifies.
    where : str or None
        COLUMN=VALUE keeps the rows with this value.
    rows : int or None
        How many rows to draw at random; they stay in their order.
    seed : int
        Of the draw.
    last_line : str, optional
        As in `Columns`.
    """
    if seed < 0 or (rows is not None and rows < 1):
        message = (
            f"expected --rows of 1 or more and --seed of 0 or more, got {rows}, {seed}."
        )
        raise InputError(message)
    source = find_source(path, Columns(last_line=last_line))
    if not source.format.is_table:
        message = f"expected rows to classify in .parquet or .csv, got {path.name!r}."
        raise FileError(message)
    table = source.collect(typed(source))
    if column not in table.columns:
        message = f"{path} has no column {column!r}; it has {', '.join(table.columns)}."
        raise FileError(message)
    if where is not None:
        name, sign, value = where.partition("=")
        if not sign or name not in table.columns:
            message = (
                f"expected --where COLUMN=VALUE with a column of {path}, got {where!r}."
            )
            raise InputError(message)
        table = table.filter(to_text(table[name]) == value)
    if rows is not None and rows < len(table):
        drawn = np.random.default_rng(seed).permutation(len(table))[:rows]
        table = table[np.sort(drawn)]
    if not len(table):
        message = f"no row of {path} is left to classify."
        raise InputError(message)
    return table


def read_values(table: pl.DataFrame, column: str) -> list[Any]:
    """Return texts, or images if the column holds encoded ones."""
    values = table[column]
    # Hugging Face's datasets keep images as structs of bytes and path.
    if isinstance(values.dtype, pl.Struct) and "bytes" in values.struct.fields:
        values = values.struct.field("bytes")
    if values.dtype not in (pl.String, pl.Binary, pl.Categorical):
        message = f"expected texts or encoded images in {column!r}, got {values.dtype}."
        raise InputError(message)
    if values.null_count():
        row = int(values.is_null().to_numpy().argmax())
        message = f"expected a value in every row of {column!r}, row {row} has none."
        raise InputError(message)
    if values.dtype == pl.Binary:
        return [decode(raw, f"row {i} of {column!r}") for i, raw in enumerate(values)]
    return values.cast(pl.String).to_list()


def write_logits(
    path: Path, table: pl.DataFrame, logits: Any, class_names: list[str]
) -> None:
    """Write the rows with the columns logit_0, logit_1, ... added.

    Labels that are the model's names of classes become their numbers.
    """
    added = {f"logit_{j}": logits[:, j] for j in range(logits.shape[1])}
    replaced = [name for name in table.columns if re.fullmatch(r"logit_\d+", name)]
    rows = _with_numbered_labels(table.drop(replaced), class_names)
    rows = rows.with_columns(**{k: pl.Series(k, v) for k, v in added.items()})
    suffix = suffix_of(path)
    if suffix not in (".parquet", ".csv", ".npz"):
        message = f"predict writes .parquet, .csv or .npz, got {path.name!r}."
        raise FileError(message)
    with replacing(path) as temporary:
        if suffix == ".parquet":
            rows.write_parquet(temporary)
        elif suffix == ".csv":
            rows.write_csv(temporary)
        else:
            labels = {} if "label" not in rows.columns else {"labels": rows["label"]}
            with temporary.open("wb") as file:
                np.savez_compressed(file, logits=logits, **labels)  # type: ignore[arg-type]


def _with_numbered_labels(table: pl.DataFrame, class_names: list[str]) -> pl.DataFrame:
    if "label" not in table.columns or table["label"].dtype != pl.String:
        return table
    repeated = [name for name in class_names if class_names.count(name) > 1]
    if repeated:
        message = (
            f"the model calls two classes {repeated[0]!r}, so labels by name do not "
            "tell them apart. Number the classes."
        )
        raise InputError(message)
    number_by_name = {name: i for i, name in enumerate(class_names)}
    unknown = set(table["label"].drop_nulls()) - set(number_by_name)
    if unknown:
        message = (
            f"the label {sorted(unknown)[0]!r} is none of the model's classes "
            f"({', '.join(class_names[:5])}). Number the classes, or rename the column."
        )
        raise InputError(message)
    return table.with_columns(
        label=pl.col("label").replace_strict(number_by_name, return_dtype=pl.Int64)
    )
