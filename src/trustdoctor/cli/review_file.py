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
from trustdoctor.watch import Watch

UNSURE = "?"
"""What a reviewer writes who cannot say."""

_COLUMNS = ("id", "predicted", "score", "accepted", "label")


@dataclass(frozen=True)
class Answered:
    """Rows that people have labelled.

    Attributes
    ----------
    ids : list of str
    errors : list of bool or None
        None where there is no label.
    unsure : list of bool
        Where the reviewer cannot say.
    """

    ids: list[str]
    errors: list[bool | None]
    unsure: list[bool]

    def count(
        self, watch: Watch, batch: str | None, draw: Path | None, file: "ReviewFile"
    ) -> None:
        """Count the labels."""
        del draw, file
        watch.label(
            errors=self.errors, ids=self.ids, batch=batch, undecided=self.unsure
        )


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
        """Write rows with what the gate decided, and room for a label.

        A file of the same rows is kept as it is: somebody may have filled it.
        """
        names = rows.predicted_names
        content = {
            "id": rows.ids,
            **({} if names is None else {"predicted": names}),
            "score": screened.scores,
            "accepted": screened.accepted,
            "label": [None] * len(rows),
        }
        table = pl.DataFrame(content, strict=False).filter(drawn)
        if not path.exists():
            lazy = table.lazy()
            lazy = escaped(lazy) if self.for_spreadsheets else lazy
            write_text(path, lazy.collect().write_csv())
            return
        with suppress(FileError):  # whatever it is, it is another
            there = replace(self, last_line="keep")._table(path)
            if there is not None and there["id"].equals(table["id"].cast(pl.String)):
                return
        message = (
            f"{path} is there, and has other rows to review. Name another file for "
            "--draw, or remove it."
        )
        raise OutputError(message)

    def read(self, path: Path, gate: Gate) -> Answered | None:
        """Read a file that people filled; None if it is another.

        Labels are compared as those of any file are: 3.0 is 3, and a name is one in
        every form of Unicode.
        """
        table = self._table(path)
        if table is None or "predicted" not in table.columns:
            return None
        unsure = (table["label"].str.strip_chars() == UNSURE).fill_null(value=False)
        label = table["label"].set(unsure, None)
        try:
            errors = _errors(label, table["predicted"], gate)
        except RowError as error:
            message = f"{path}: {error} Or write {UNSURE} where nobody can say."
            raise FileError(message) from error
        return Answered(table["id"].to_list(), errors.to_list(), unsure.to_list())

    def _table(self, path: Path) -> pl.DataFrame | None:
        """Return the cells of a table of rows to review; None of anything else."""
        kind = FORMATS.get(suffix_of(path), CSV)
        if not path.is_file() or kind.name not in ("CSV", "TSV"):
            return None
        with suppress(*POLARS_ERRORS, OSError, EOFError, zlib.error, UnicodeError):
            lazy, names = scan_table(path, keep_last=self.last_line == "keep")
            if {"id", "label"} <= set(names) <= set(_COLUMNS):
                table = lazy.collect()
                return unescaped(table) if self.for_spreadsheets else table
        return None


def _errors(label: pl.Series, said: pl.Series, gate: Gate) -> pl.Series:
    """Return whether answers are wrong; null where there is no label."""
    if gate.classes is None:
        return as_text(label).ne(as_text(said).fill_null(""))
    names = None if isinstance(gate.classes, int) else gate.classes
    count = gate.classes if isinstance(gate.classes, int) else len(gate.classes)
    layout = Layout("probs", [], class_names=names)
    known = class_numbers(label, layout, count, strict=True)
    own = class_numbers(said, layout, count, strict=False)
    return pl.Series(known != own).set(pl.Series(known == UNKNOWN), None)
