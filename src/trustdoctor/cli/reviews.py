"""Rows for people to review: written as a table, and read again with their labels."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trustdoctor.arrays import Array
from trustdoctor.atomic import write_text
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files import POLARS_ERRORS
from trustdoctor.gates import Gate, Screened
from trustdoctor.predictions import Predictions
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
    there = _table(path)
    ids = [] if there is None else there["id"].to_list()
    if ids != table["id"].cast(pl.String).to_list():
        message = (
            f"{path} is there, and has other rows to review. Name another file for "
            "--draw, or remove it."
        )
        raise OutputError(message)


def read_answers(path: Path, gate: Gate) -> Answered | None:
    """Read a file that `write_drawn` wrote and people filled; None if it is another."""
    table = _table(path)
    if table is None or "predicted" not in table.columns:
        return None
    labels = [(label or "").strip() for label in table["label"]]
    known = _classes(gate, table)
    for row, label in enumerate(labels):
        if label not in ("", UNSURE) and known and label not in known:
            message = (
                f"expected classes of the gate as labels in {path}, got {label!r} at "
                f"row {row}. Mend it, or write {UNSURE} where nobody can say."
            )
            raise FileError(message)
    return Answered(
        table["id"].to_list(),
        [
            None if label in ("", UNSURE) else label != said
            for label, said in zip(labels, table["predicted"], strict=True)
        ],
        [label == UNSURE for label in labels],
    )


def _classes(gate: Gate, table: pl.DataFrame) -> set[str]:
    """Return what a label may be; nothing where that is not known."""
    if gate.classes is None:
        return set()
    if isinstance(gate.classes, int):
        return {str(number) for number in range(gate.classes)}
    return {*gate.classes, *table["predicted"].drop_nulls()}


def _table(path: Path) -> pl.DataFrame | None:
    """Return the cells of a table of rows to review; None of anything else."""
    with suppress(*POLARS_ERRORS, OSError):
        if path.is_file():
            table = pl.read_csv(path, infer_schema=False)
            if set(table.columns) <= set(_COLUMNS) and {"id", "label"} <= set(
                table.columns
            ):
                return table
    return None
