"""What `screen` wrote, read without the package: decisions, and rows as they were."""

import csv
import gzip
import io
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fuzz.verdicts import report

ADDED = ("id", "predicted", "score", "accepted")
csv.field_size_limit(10**9)


def reread(output: Path) -> tuple[Any, Any]:
    """Return scores and decisions."""
    if output.suffix == ".npz":
        with np.load(output) as arrays:
            return arrays["score"], arrays["accepted"]
    table = _text(output)[1] if _is_text(output) else _table(output)
    if not isinstance(table, list):
        return table["score"], table["accepted"]
    scores = [float(row[-2].replace(",", ".")) for row in table]
    return np.array(scores), np.array([row[-1] == "true" for row in table])


def _is_text(path: Path) -> bool:
    return path.name.endswith((".csv", ".tsv", ".csv.gz"))


def _table(path: Path) -> pl.DataFrame:
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    if path.suffix == ".jsonl":
        return pl.read_ndjson(path, infer_schema_length=None)
    return pl.read_ipc(path)


def _text(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of what was written, by Python's own reader."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    separator = re.search(r"(.)accepted\n", text)
    assert separator is not None
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator[1]))
    return rows[0], rows[1:]


def check_kept(rows: Path, output: Path) -> None:
    """Report a column of the input that is another in the output."""
    if _is_text(rows) and _is_text(output):
        _check_text(rows, output)
    elif rows.suffix == output.suffix and rows.suffix in (".parquet", ".arrow"):
        before, after = _table(rows), _table(output)
        kept_names = [name for name in before.columns if name in after.columns]
        if len(kept_names) < len(before.columns):
            report("a column is lost", str(set(before.columns) - set(kept_names)))
        if not before.equals(after.select(kept_names)):
            odd = [n for n in kept_names if not before[n].equals(after[n])]
            report("a column is changed", str(odd))
    elif rows.suffix == output.suffix == ".jsonl":
        _check_lines(rows, output)


def _check_text(rows: Path, output: Path) -> None:
    data = rows.read_bytes()
    try:
        text = (gzip.decompress(data) if rows.suffix == ".gz" else data).decode()
        separator = max(",;\t|", key=text.split("\n", 1)[0].count)
        stream = io.StringIO(text, newline="")
        read = csv.reader(stream, delimiter=separator, strict=True)
        before = [row for row in read if any(row)]
    except (ValueError, OSError, csv.Error):
        return  # not a text that Python's reader takes as it is
    plain = all(len(row) == len(before[0]) for row in before)
    odd = any(mark in text for mark in ("\r", "\ufeff", "sep=", '\n""\n'))
    if not before or not plain or odd:
        return
    header, after = _text(output)
    names = [unicodedata.normalize("NFC", name).strip() for name in before[0]]
    if header[: len(names)] != names:
        report("the header is changed", f"{names} and {header}"[:300])
    for at, (cells, written_cells) in enumerate(zip(before[1:], after, strict=False)):
        if cells != written_cells[: len(cells)]:
            report("a cell is changed", f"row {at}: {cells} and {written_cells}"[:300])


def _check_lines(rows: Path, output: Path) -> None:
    try:
        before = [json.loads(row) for row in rows.read_bytes().split(b"\n") if row]
    except (ValueError, RecursionError):
        return
    after = [json.loads(row) for row in output.read_bytes().split(b"\n") if row]
    for at, (row, written) in enumerate(zip(before, after, strict=False)):
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
        odd = [n for n, v in texts.items() if written.get(n, v) != v and n not in ADDED]
        if odd:
            report("a text is changed", f"row {at}, {odd[0]}"[:300])
