"""Rows for people to review: written as a table, and read again with their labels."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.atomic import write_text
from trustdoctor.errors import FileError, OutputError, RowError
from trustdoctor.files import (
    CSV,
    FORMATS,
    POLARS_ERRORS,
    Columns,
    Layout,
    as_text,
    class_numbers,
    scan_table,
    suffix_of,
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

    def count(self, watch: Watch, batch: str | None, draw: Path | None) -> None:
        """Count the labels."""
        del draw
        watch.label(
            errors=self.errors, ids=self.ids, batch=batch, cannot_say=self.unsure
        )


def write_drawn(
    path: Path, screened: Screened, rows: Predictions, drawn: Array
) -> None:
    """Write the rows to review, with what the gate decided, and room for a label.

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
        write_text(path, table.write_csv())
        return
    with suppress(FileError, *POLARS_ERRORS):  # whatever it is, it is another
        there = _table(path, Columns(last_line="keep"))
        if there is not None and there["id"].equals(table["id"].cast(pl.String)):
            return
    message = (
        f"{path} is there, and has other rows to review. Name another file for "
        "--draw, or remove it."
    )
    raise OutputError(message)


def read_answers(path: Path, gate: Gate, columns: Columns) -> Answered | None:
    """Read a file that `write_drawn` wrote and people filled; None if it is another.

    Labels are compared as those of any file are: 3.0 is 3, and a name is one in every
    form of Unicode.
    """
    table = _table(path, columns)
    if table is None or "predicted" not in table.columns:
        return None
    unsure = (table["label"].str.strip_chars() == UNSURE).fill_null(value=False)
    label, said = table["label"].set(unsure, None), table["predicted"]
    if gate.classes is None:
        errors = as_text(label).ne(as_text(said).fill_null(""))
    else:
        count = gate.classes if isinstance(gate.classes, int) else len(gate.classes)
        names = None if isinstance(gate.classes, int) else gate.classes
        layout = Layout("probs", [], class_names=names)
        try:
            known = class_numbers(label, layout, count, strict=True)
        except RowError as error:
            message = f"{path}: {error} Or write {UNSURE} where nobody can say."
            raise FileError(message) from error
        own = class_numbers(said, layout, count, strict=False)
        errors = pl.Series(known != own).set(pl.Series(known == UNKNOWN), None)
    return Answered(table["id"].to_list(), errors.to_list(), unsure.to_list())


def _table(path: Path, columns: Columns) -> pl.DataFrame | None:
    """Return the cells of a table of rows to review; None of anything else."""
    kind = FORMATS.get(suffix_of(path), CSV)
    if not path.is_file() or kind.name not in ("CSV", "TSV"):
        return None
    lazy, names = scan_table(path, keep_last=columns.last_line == "keep")
    if not {"id", "label"} <= set(names) <= set(_COLUMNS):
        return None
    return lazy.collect()
