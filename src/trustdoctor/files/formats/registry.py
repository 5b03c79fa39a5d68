"""What a file format is, and the registry of all.

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
        The suffixes of its files, as ``(".parquet",)``.
    scan : callable
        From a `Source` to all its rows, as a lazy table that is read in batches.
    sink : callable, or None
        Writes a lazy table into a file, batch by batch: (table, path, source). None
        if decisions cannot be written in this format.
    rows : callable, or None
        The number of rows of a source, from the files' headers. None counts them.
    about_rows : callable, or None
        An estimate of it, for formats whose rows take long to count.
    row_bytes : callable, or None
        About how many bytes a row with all its columns takes, from the files' headers.
        None looks at the first rows.
    largest_piece : callable, or None
        Bytes of the largest piece that can only be read at once, unpacked: of all
        columns (``all_columns=True``), or of those that are needed.
    sliced : bool
        Whether `scan` can read `Source.step` rows at a time, whatever the pieces.
    lines : bool
        Whether it is text with a row per line, whose lines are its pieces.
    is_table : bool
        Whether rows have other columns, which decisions are written beside.
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


SPREADSHEET_SUFFIXES = (".xlsx", ".xls", ".xlsm", ".ods")

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
    """Return the suffix that says a file's format; of gzipped files both suffixes."""
    path = Path(file)
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() + last if last == ".gz" else last


def find_format(file: str | Path) -> Format:
    """Return the format of a file, by its suffix."""
    suffix = suffix_of(file)
    if suffix in FORMATS:
        return FORMATS[suffix]
    message = f"expected a file in {', '.join(FORMATS)}, got {Path(file).name!r}."
    if suffix in SPREADSHEET_SUFFIXES:
        message += " Save the sheet as CSV, and give that."
    if suffix == ".json":
        # Among .csv and .parquet files a .json is usually a gate or a report, so it is
        # no format of rows.
        message += " Write rows one object per line, and call the file .jsonl."
    raise FileError(message)


def output_suffixes() -> list[str]:
    """Return the suffixes of files that decisions can be written into."""
    return [suffix for suffix, entry in FORMATS.items() if entry.sink is not None]
