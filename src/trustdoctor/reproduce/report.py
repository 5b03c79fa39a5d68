"""What an experiment reports: tables beside the paper's own, and what to make of it."""

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from trustdoctor import envelope
from trustdoctor.atomic import write_text
from trustdoctor.errors import OutputError, missing_package
from trustdoctor.metrics import Estimate
from trustdoctor.report import Picture, save_picture

Cell = str | float | int | None | Estimate


@dataclass(frozen=True)
class Table:
    """A table: numbers are shown to two decimals, None as a dash.

    Estimates are in the unit of the table, as numbers are: in percent if it says so.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def cells(self) -> list[list[str]]:
        """Return the rows as they are shown."""
        return [[_shown(cell) for cell in row] for row in self.rows]

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"**{self.title}**", "", f"| {' | '.join(self.columns)} |"]
        lines[-1] = lines[-1].replace("\n", " ")
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
    pictures : tuple of Picture
    notes : tuple of str
        What could not be run, and what it needs.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    words: str
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """Return the report in Markdown."""
        paragraphs = [
            f"# {self.title}",
            *(t.to_markdown() for t in self.tables),
            self.words,
        ]
        if self.notes:
            paragraphs.append("\n".join(f"- {note}" for note in self.notes))
        if can_draw():
            paragraphs += [
                f"![{p.title}]({self._file(p, '.svg')})" for p in self.pictures
            ]
        return "\n\n".join(paragraphs) + "\n"

    def to_json(self) -> str:
        """Return the report as JSON, numbers in full, the pictures as their curves."""
        return envelope.dump("reproduction", 1, asdict(self), indent=1)

    def write(self, folder: str | Path) -> list[Path]:
        """Write NAME.md, NAME.json and the pictures (SVG and PNG) into a folder.

        The pictures need matplotlib, and are left out if it is not installed.
        """
        directory = make_folder(folder)
        written = []
        for picture in self.pictures if can_draw() else ():
            for suffix in (".svg", ".png"):
                written.append(directory / self._file(picture, suffix))
                save_picture(picture, written[-1])
        texts = {".md": self.to_markdown(), ".json": self.to_json()}
        for suffix, text in texts.items():
            write_text(directory / f"{self.name}{suffix}", text)
        return [directory / f"{self.name}{suffix}" for suffix in texts] + written

    def _file(self, picture: Picture, suffix: str) -> str:
        return f"{self.name}-{picture.name}{suffix}"


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def make_folder(folder: str | Path) -> Path:
    """Make a folder that is not there yet."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder {path}: {error.strerror}."
        raise OutputError(message) from error
    return path


def in_percent(estimate: Estimate) -> Estimate:
    """Return the estimate times 100, for a table in percent."""
    value, low, high = (
        None if number is None else 100 * number
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return Estimate(value, low, high, note=estimate.note)


def _shown(cell: Cell) -> str:
    if isinstance(cell, Estimate):
        ends = "" if cell.low is None else f" [{cell.low:.2f}, {cell.high:.2f}]"
        return f"{_shown(cell.value)}{ends}"
    if cell is None:
        return "-"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def show_report(console: Console, report: Report, written: list[Path]) -> None:
    """Print a reproduced experiment: its tables, and what to make of them."""
    console.print(report.title, highlight=False, style="bold")
    for table in report.tables:
        shown = RichTable(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for column in table.columns:
            shown.add_column(column, overflow="fold")
        for row in table.cells():
            shown.add_row(*row)
        console.print(f"\n{table.title}", highlight=False)
        console.print(shown)
    console.print(f"\n{report.words}", highlight=False)
    for note in report.notes:
        console.print(f"- {note}", highlight=False)
    for path in written:
        console.print(f"Wrote {path}", highlight=False, soft_wrap=True)
    if written and report.pictures and not can_draw():
        lacks = missing_package(what="a picture", package="matplotlib", extra="plot")
        console.print(str(lacks), highlight=False, markup=False)
