"""Files of predictions as one table that is read in batches, never whole.

A source is a file, a glob or a folder of files of one format. Only the columns that
are asked for are read.
"""

import glob
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from trustdoctor.errors import FileError, InputError, LabelsMissingError, RowError
from trustdoctor.files.building import from_table, with_binary_names
from trustdoctor.files.columns import (
    NAME_THEM,
    NOTHING,
    Columns,
    Layout,
    find_layout,
)
from trustdoctor.files.dialect import sniff, spool_stdin
from trustdoctor.files.formats import FORMATS, Format, find_format, suffix_of
from trustdoctor.files.hints import advise_columns
from trustdoctor.files.responses import response_ids
from trustdoctor.files.truth import require_matches
from trustdoctor.predictions import Predictions
from trustdoctor.scores import plain_scores

_HEAD = 10_000  # rows in which at least one true label must be found

BATCH = 1 << 16
"""Rows looked at at a time, to find a bad one."""


@dataclass(frozen=True)
class Source:
    """Files of one format, in the order of their names.

    Attributes
    ----------
    files : tuple of Path
    columns : Columns
        What they hold under which name.
    root : Path or None
        The folder that they were found in, where one was named.
    """

    files: tuple[Path, ...]
    columns: Columns = field(default_factory=Columns)
    root: Path | None = None

    @property
    def format(self) -> Format:
        """The files' format."""
        return find_format(self.files[0])

    @property
    def name(self) -> str:
        """What to call it in messages."""
        if len(self.files) == 1:
            return self.files[0].name
        return f"{len(self.files):,} files"

    def single(self) -> "Iterator[Source]":
        """Yield a source for each file."""
        for file in self.files:
            yield Source((file,), self.columns, self.root)

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns and their types."""
        return self._read(lambda: self.scan().collect_schema())

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names()

    @cached_property
    def layout(self) -> Layout:
        """Where everything is, as in the first file."""
        try:
            return find_layout(self.names, self.columns)
        except InputError as error:
            told = str(error)
            if told.startswith(NOTHING):  # the rows may tell more than the names
                better = advise_columns(self.collect(self.scan().head(50)))
                first = told.partition(NAME_THEM)[0]
                told = f"{first}{NAME_THEM} {better}." if better else told
            message = f"{self.files[0]}: {told}"
            raise FileError(message) from error

    def require_labels(self, task: str) -> None:
        """Refuse files in which nothing tells what is right, naming what could."""
        if self.has_labels:
            return
        layout = self.layout
        try:  # values that are no good come first
            self.predictions(self.collect(self.scan().select(self.needed).head(_HEAD)))
        except InputError as error:
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error
        rest = [name for name in self.names if name not in layout.needed]
        how = "a column of true labels, called label"
        option = "--labels NAME, or --truth FILE with --ids NAME"
        if layout.kind == "choices":
            how, option = "the true answers", "--truth FILE, a table of ids and labels"
        elif layout.answers:
            how = "a column that says which answers are right"
            option = "--correct NAME, or --predicted NAME with --labels NAME"
        left = f" It also has {', '.join(rest[:8])}." if rest else ""
        message = (
            f"{self.files[0]}: {task} needs {how}, and there is none.{left} Name it: "
            f"{option}."
        )
        raise LabelsMissingError(message)

    @property
    def needed(self) -> list[str]:
        """The columns that predictions are made of."""
        return self.layout.needed

    @property
    def has_labels(self) -> bool:
        """Whether something tells which rows are right, complete or not."""
        layout, truth = self.layout, self.columns.truth
        return not layout.label is layout.correct is truth is None

    @property
    def scores(self) -> list[str]:
        """The names of the scores that need no more than such values."""
        if self.layout.answers:
            return ["doubt" if self.layout.kind == "doubt" else "confidence"]
        return plain_scores(logits=self.layout.kind == "logits")

    @cached_property
    def rows(self) -> int:
        """How many rows there are, from the files' heads where they say."""
        if self.format.rows is not None:
            return self.format.rows(self)
        return sum(
            int(one.collect(one.scan().select(pl.len())).item())
            for one in self.single()
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        if self.format.rows is not None:
            return self.rows == 0
        return len(self.collect(self.scan().select(self.names[0]).head(1))) == 0

    @cached_property
    def about_rows(self) -> int:
        """How many rows there are; guessed, where counting takes long."""
        guess = self.format.about_rows
        return self.rows if guess is None else guess(self)

    @cached_property
    def largest_piece(self) -> int:
        """Bytes of the largest piece that can only be read as a whole, unpacked."""
        measure = self.format.largest_piece
        return 0 if measure is None else measure(self)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def digest(self) -> str:
        """The SHA-256 of the file, or of the digests of all files in their order."""
        digests = []
        for file in self.files:
            with file.open("rb") as content:
                digests.append(hashlib.file_digest(content, "sha256").hexdigest())
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    @cached_property
    def row_bytes(self) -> int:
        """About how many bytes a row's values take in memory."""
        if not self.format.typed:
            return 24 * len(self.needed)
        head = self.collect(self.scan().select(self.needed).head(1))
        return max(1, int(head.estimated_size()))

    def scan(self) -> pl.LazyFrame:
        """Return all rows, to be read in batches; CSV as text."""
        return self._read(lambda: self.format.scan(self))

    def check_columns(self, file: Path, own: Any, first: Any) -> None:
        """Refuse a file whose columns are not those of the first."""
        if own == first:
            return
        odd = [n for n in {**first, **own} if own.get(n) != first.get(n)]
        what = f"the column {odd[0]!r}" if odd else "another order of columns"
        message = (
            f"expected the columns of {file} to be those of {self.files[0]}, got "
            f"{what}: {own.get(odd[0]) if odd else 'moved'} and not "
            f"{first.get(odd[0]) if odd else 'in place'}. Name the files one by one, "
            "or write them alike."
        )
        raise FileError(message)

    def check_schemas(self, read: Callable[[Path], Any]) -> None:
        """Refuse files whose columns or types are not those of the first."""
        if len(self.files) > 1:
            first = read(self.files[0])
            for file in self.files[1:]:
                self.check_columns(file, read(file), first)

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The columns that folders' names hold, as day=monday."""
        return tuple(self.partitions_of(self.files[0]))

    def partitions_of(self, file: Path) -> dict[str, str]:
        """Return what the folders that a file is in say of it."""
        if self.root is None or not file.is_relative_to(self.root):
            return {}
        inner = file.relative_to(self.root).parent.parts
        return dict(part.split("=", 1) for part in inner if "=" in part)

    def predictions(self, batch: pl.DataFrame) -> Predictions:
        """Build predictions from a batch of the needed columns."""
        return from_table(batch, self.columns)

    def read(self) -> Predictions:
        """Read everything at once."""
        return self.load()[0]

    def load(self, *more: str) -> tuple[Predictions, pl.DataFrame]:
        """Read everything at once, in one parse: predictions, and their table.

        The table holds the needed columns, and those that are named.
        """
        absent = [name for name in more if name not in self.names]
        if absent:
            known = ", ".join(self.names[:20])
            message = f"{self.files[0]} has no {absent[0]!r}; it has {known}."
            raise FileError(message)
        names = list(dict.fromkeys([*self.needed, *more]))
        table = self.collect(self.scan().select(names))
        if len(table) == 0:
            message = (
                f"{self.files[0]} has a header but no rows. Expected one line per "
                "prediction."
            )
            raise FileError(message)
        try:
            return self.predictions(table), table
        except InputError as error:
            self.locate()
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error

    def _check_truth(self) -> None:
        """Refuse true labels that are about other rows."""
        layout = self.layout
        head = self.collect(self.scan().select(self.needed).head(_HEAD))
        if layout.kind == "choices":
            ids = response_ids(head[layout.values[0]])
        elif layout.ids is not None:
            ids = head[layout.ids]
        else:
            return  # which is told where rows are read
        require_matches(ids, self.columns, str(self.files[0]))

    def locate(self) -> None:
        """Raise the error of the first row that is not as expected, with its file."""
        for one in self.single():
            one._read(one._locate)

    def _locate(self) -> None:
        first = 0
        lazy = self.scan().select(self.needed)
        for batch in lazy.collect_batches(chunk_size=BATCH, maintain_order=True):
            try:
                self.predictions(batch)
            except InputError as error:
                moved = error.after(first) if isinstance(error, RowError) else error
                message = f"{self.files[0]}: {moved}"
                raise FileError(message) from error
            first += len(batch)

    def collect(self, lazy: pl.LazyFrame) -> pl.DataFrame:
        """Run a query on these files; what cannot be read is the user's mistake."""
        return self._read(lambda: lazy.collect(engine="streaming"))

    def _read(self, work: Any) -> Any:
        try:
            return work()
        except pl.exceptions.NoDataError as error:
            message = (
                f"{self.files[0]} is empty. Expected a header and one line per "
                "prediction."
            )
            raise FileError(message) from error
        except (*POLARS_ERRORS, *_BROKEN, UnicodeDecodeError) as error:
            raise FileError(unreadable(self, error)) from error


_BROKEN = (OSError, EOFError, zlib.error)

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises; the second is not an Exception to Python."""


def first_line(error: BaseException) -> str:
    """Return the first line of what a library complains of."""
    lines = str(error).strip().splitlines() or ["unknown"]
    return lines[0].rstrip(".")


def unreadable(source: Source, error: BaseException) -> str:
    """Say that a library could not read the files."""
    where = source.files[0] if len(source.files) == 1 else source.name
    if isinstance(error, UnicodeDecodeError) or "utf-8" in str(error).lower():
        return (
            f"expected {where} in UTF-8, or in UTF-16 with a byte-order mark, got "
            "another encoding. Save it as UTF-8 (Excel: CSV UTF-8)."
        )
    return (
        f"cannot read {where} as {source.format.name}: {first_line(error)}. "
        "The file may be cut short or its rows ragged; write it again."
    )


def find_source(path: str | Path, columns: Columns | None = None) -> Source:
    """Find the files behind a path: a file, a glob, or a folder and what is in it.

    - stands for standard input.
    """
    if str(path) == "-":
        return _settled(Source((spool_stdin(),), columns or Columns()))
    return _settled(_find_files(path, columns or Columns()))


def _settled(source: Source) -> Source:
    """Return a source whose columns say what only the files can tell."""
    columns, kind = source.columns, source.format.name
    if columns.choices is not None and kind != "JSON lines":
        message = (
            f"--choices reads a language model's responses as .jsonl, one per line, "
            f"got {source.files[0].name!r}."
        )
        raise FileError(message)
    if kind in ("CSV", "TSV"):
        comma = source._read(lambda: sniff(source.files[0]).separator != ",")
        columns = replace(columns, comma=comma)
    if columns.positive is not None and columns.class_names is None:
        layout = source.layout
        names = [] if layout.label is None else [layout.label]
        table = source.collect(source.scan().select(names).unique())
        try:
            columns = with_binary_names(columns, layout, table)
        except InputError as error:
            message = f"{source.files[0]}: {error}"
            raise FileError(message) from error
    settled = Source(source.files, columns, source.root)
    if columns.truth is not None:
        settled._check_truth()
    return settled


def _find_files(path: str | Path, columns: Columns) -> Source:
    given = Path(path)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        message = "expected a file name in UTF-8, got another. Rename the file."
        raise FileError(message) from error
    try:
        if given.is_dir():
            return _in_folder(given, columns)
        if given.is_file():
            return _one_file(given, columns)
        if glob.has_magic(str(path)):
            named = glob.glob(str(path), recursive=True)  # noqa: PTH207 - absolute, too
            found = sorted(map(Path, named))
            files = [file for file in found if file.is_file()]
            if any(suffix_of(file) == ".npy" for file in files):
                message = "arrays in files of their own are named by their folder."
                raise FileError(message)
            if files:
                return _of_one_kind(files, columns, None)
            message = f"no file matches {path}. Check the pattern."
            raise FileError(message)
    except OSError as error:  # no access to the folder, or too long a name
        message = f"cannot look at {path}: {(error.strerror or '').lower()}."
        raise FileError(message) from error
    find_format(given)
    message = f"there is no file {path}. Check the path."
    raise FileError(message)


def _in_folder(folder: Path, columns: Columns) -> Source:
    inside = [
        file
        for file in sorted(folder.rglob("*"))
        if suffix_of(file) in FORMATS
        and not any(p.startswith((".", "_")) for p in file.relative_to(folder).parts)
        and file.is_file()
    ]
    if not inside:
        message = f"the folder {folder} holds no file in {', '.join(FORMATS)}."
        raise FileError(message)
    if {suffix_of(file) for file in inside} == {".npy"}:
        return _unpacked(folder, inside, columns)
    return _of_one_kind(inside, columns, folder)


def _unpacked(folder: Path, inside: list[Path], columns: Columns) -> Source:
    """Take a folder of NPY files for an NPZ file that was unpacked."""
    names = [file.stem for file in inside if file.parent == folder]
    try:
        values = find_layout(names, columns).values[0]
    except InputError as error:
        message = f"{folder}: {error}"
        raise FileError(message) from error
    return Source((folder / f"{values}.npy",), columns, folder)


def _of_one_kind(files: list[Path], columns: Columns, root: Path | None) -> Source:
    formats = {find_format(file).name: suffix_of(file) for file in files}
    if len(formats) > 1:
        kinds = " and ".join(sorted(formats.values()))
        message = (
            f"expected files of one kind, got {kinds}. "
            "Name those of one kind with a pattern, as 'folder/*.parquet'."
        )
        raise FileError(message)
    return Source(tuple(files), columns, root)


def _one_file(file: Path, columns: Columns) -> Source:
    find_format(file)
    return Source((file,), columns)
