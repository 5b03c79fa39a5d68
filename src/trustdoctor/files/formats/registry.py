"""File formats: one record each.

To add one, write a `Format` and `register_format` it; a single file, a folder and a
pattern of such files then work for every command.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trustdoctor.errors import FileError, InputError

if TYPE_CHECKING:
    import polars as pl

    from trustdoctor.files.source import Source


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    name : str
        What to call it in messages.
    suffixes : tuple of str
        Which files are of it, as ``(".parquet",)``.
    scan : callable
        From a `Source` to all its rows, as a lazy table that is read in batches.
    sink : callable, or None
        Writes a lazy table into a file, batch by batch: (table, path, source). None
        where decisions cannot be written so.
    rows : callable, or None
        How many rows a source has, from the files' heads. None counts them.
    about_rows : callable, or None
        The same, guessed; for formats whose rows take long to count.
    row_bytes : callable, or None
        About how many bytes a row with all its columns takes, from the files' heads.
        None looks at the first rows.
    largest_piece : callable, or None
        Bytes of the largest piece that is read as a whole, unpacked, of all columns
        (``whole=True``) or of those that are needed.
    sliced : bool
        Whether `scan` can read `Source.step` rows at a time, whatever the pieces.
    lines : bool
        Whether it is text with a row per line, whose lines are its pieces.
    is_table : bool
        Whether rows have columns of their own, which are to be kept.
    typed : bool
        Whether columns have types; text has none.
    nested : bool
        Whether a column may hold lists.
    output : str
        The suffix of decisions on such a file; by default its own.
    """

    name: str
    suffixes: tuple[str, ...]
    scan: "Callable[[Source], pl.LazyFrame]"
    sink: "Callable[[pl.LazyFrame, Path, Source], None] | None" = None
    rows: "Callable[[Source], int] | None" = None
    about_rows: "Callable[[Source], int] | None" = None
    row_bytes: "Callable[[Source], int] | None" = None
    largest_piece: "Callable[..., int] | None" = None
    sliced: bool = False
    lines: bool = False
    is_table: bool = True
    typed: bool = True
    nested: bool = True
    output: str = ""


SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")

FORMATS: dict[str, Format] = {}
"""Every format by each of its suffixes."""


def register_format(entry: Format) -> Format:
    """Add a format; from then on every command takes such files."""
    for suffix in entry.suffixes:
        if not suffix.startswith(".") or suffix in FORMATS:
            message = f"expected new suffixes as '.csv', got {suffix!r}."
            raise InputError(message)
    FORMATS.update(dict.fromkeys(entry.suffixes, entry))
    return entry


def suffix_of(file: str | Path) -> str:
    """Return what kind of file it is; of a packed one both suffixes."""
    path = Path(file)
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() + last if last == ".gz" else last


def find_format(file: str | Path) -> Format:
    """Return the format of a file, by its suffix."""
    entry = FORMATS.get(suffix_of(file))
    if entry is None:
        known, name = ", ".join(FORMATS), Path(file).name
        message = f"expected a file in {known}, got {name!r}."
        if suffix_of(file) in SHEETS:
            message += " Save the sheet as CSV, and give that."
        if suffix_of(file) == ".json":  # beside predictions it is a gate or a result
            message += " Write rows one object per line, and call the file .jsonl."
        raise FileError(message)
    return entry


def output_suffixes() -> list[str]:
    """Return the suffixes of files that decisions can be written into."""
    return [suffix for suffix, entry in FORMATS.items() if entry.sink is not None]
