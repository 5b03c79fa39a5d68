"""What an experiment reports: tables beside the paper's own, and what to make of it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trustdoctor.errors import OutputError
from trustdoctor.output import write_text

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """A table: numbers are shown to two decimals, None as a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def cells(self) -> list[list[str]]:
        """Return the rows as they are shown."""
        return [[_shown(cell) for cell in row] for row in self.rows]

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"**{self.title}**", "", f"| {' | '.join(self.columns)} |"]
        lines.append("|" + "---|" * len(self.columns))
        lines += [f"| {' | '.join(row)} |" for row in self.cells()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """One experiment of the paper, run again.

    Attributes
    ----------
    name : str
        The name on the command line.
    title : str
        What it is in the paper.
    tables : tuple of Table
    words : str
        One paragraph on what to make of it.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    words: str

    def to_markdown(self) -> str:
        """Return the report in Markdown."""
        parts = [f"# {self.title}", *(t.to_markdown() for t in self.tables), self.words]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return the report as JSON, numbers in full."""
        content: dict[str, Any] = {"trustdoctor": "reproduction", "schema": 1}
        return json.dumps(content | asdict(self), indent=2, allow_nan=False) + "\n"

    def write(self, folder: str | Path) -> list[Path]:
        """Write NAME.md and NAME.json into a folder, made if it is not there."""
        where = Path(folder)
        try:
            where.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot make the folder {where}: {error.strerror}."
            raise OutputError(message) from error
        texts = {".md": self.to_markdown(), ".json": self.to_json()}
        for suffix, text in texts.items():
            write_text(where / f"{self.name}{suffix}", text)
        return [where / f"{self.name}{suffix}" for suffix in texts]


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
