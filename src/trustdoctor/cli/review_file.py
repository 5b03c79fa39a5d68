"""Rows for people to review: written as a table, and read again with their labels."""

import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.atomic import write_text
from trustdoctor.errors import FileError, OutputError, RowError
from trustdoctor.files import (
    CSV,
    FORMATS,
    POLARS_ERRORS,
    Layout,
    as_text,
    class_numbers,
    escaped,
    scan_table,
    suffix_of,
    unescaped,
)
from trustdoctor.gates import Gate, Screened
from trustdoctor.predictions import UNKNOWN, Predictions

UNDECIDED = "?"
"""What a reviewer writes who cannot say."""

_COLUMNS = ("id", "predicted", "score", "accepted", "label")


@dataclass(frozen=True)
class ReviewedRows:
    """Rows that people have labelled.

    Attributes
    ----------
    ids : list of str
    errors : list of bool or None
        None if there is no label.
    undecided : list of bool
        Whether the reviewer could not say.
    """

    ids: list[str]
    errors: list[bool | None]
    undecided: list[bool]

    def odd_labels(self) -> tuple[str, ...]:
        """Return nothing: people judged these rows one by one."""
        return ()


@dataclass(frozen=True)
class ReviewFile:
    """How a file of rows to review is written, and read again.

    Attributes
    ----------
    for_spreadsheets : bool
        Whether its text must not be a formula.
    last_line : str or None
        As in `Columns`.
    """

    for_spreadsheets: bool = False
    last_line: str | None = None

    def write(
        self, path: Path, screened: Screened, rows: Predictions, drawn: Array
    ) -> None:
        """Write the drawn rows with what the gate decided, and room for a label.

        A file of the same rows is kept as it is: somebody may have filled it.
        """
        names = rows.predicted_names
        content = {
            "id": rows.ids,
            **({} if names is None else {"predicted": names}),
            "score": screened.doubts,
            "accepted": screened.accepted,
            "label": [None] * len(rows),
        }
        table = pl.DataFrame(content, strict=False).filter(drawn)
        if not path.exists():
            lazy = table.lazy()
            lazy = escaped(lazy) if self.for_spreadsheets else lazy
            write_text(path, lazy.collect().write_csv())
            return
        with suppress(FileError):  # then it is another file
            existing = replace(self, last_line="keep")._read_cells(path)
            ids = table["id"].cast(pl.String)
            if existing is not None and existing["id"].equals(ids):
                return
        message = (
            f"{path} is there, and has other rows to review. Name another file for "
            "--draw, or remove it."
        )
        raise OutputError(message)

    def read(self, path: Path, gate: Gate) -> ReviewedRows | None:
        """Read a file that people filled; None if it is another.

        Labels are compared as those of any file are: 3.0 is 3, and a name is one in
        every form of Unicode.
        """
        table = self._read_cells(path)
        if table is None or "predicted" not in table.columns:
            return None
        undecided = table["label"].str.strip_chars() == UNDECIDED
        undecided = undecided.fill_null(value=False)
        labels = table["label"].set(undecided, None)
        try:
            errors = _errors(labels, table["predicted"], gate)
        except RowError as error:
            message = f"{path}: {error} Or write {UNDECIDED} where nobody can say."
            raise FileError(message) from error
        return ReviewedRows(
            table["id"].to_list(), errors.to_list(), undecided.to_list()
        )

    def _read_cells(self, path: Path) -> pl.DataFrame | None:
        """Return the cells of a table of rows to review; None of anything else."""
        file_format = FORMATS.get(suffix_of(path), CSV)
        if not path.is_file() or file_format.name not in ("CSV", "TSV"):
            return None
        with suppress(*POLARS_ERRORS, OSError, EOFError, zlib.error, UnicodeError):
            lazy, names = scan_table(path, keep_last=self.last_line == "keep")
            if {"id", "label"} <= set(names) <= set(_COLUMNS):
                table = lazy.collect()
                return unescaped(table) if self.for_spreadsheets else table
        return None


def _errors(labels: pl.Series, predicted: pl.Series, gate: Gate) -> pl.Series:
    """Return whether answers are wrong; null if there is no label."""
    if gate.classes is None:
        return as_text(labels).ne(as_text(predicted).fill_null(""))
    names = None if isinstance(gate.classes, int) else gate.classes
    n_classes = gate.classes if isinstance(gate.classes, int) else len(gate.classes)
    layout = Layout("probs", [], class_names=names)
    true = class_numbers(labels, layout, n_classes, strict=True)
    answered = class_numbers(predicted, layout, n_classes, strict=False)
    return pl.Series(true != answered).set(pl.Series(true == UNKNOWN), None)
