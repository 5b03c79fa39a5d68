"""Files of predictions as one table that is read in batches, never whole.

A source is a file, a glob or a folder of files of one format. Only the columns that
are asked for are read.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from trustdoctor.errors import FileError, InputError, LabelsMissingError, RowError
from trustdoctor.files.column_advice import advise_columns
from trustdoctor.files.columns import Columns
from trustdoctor.files.formats import Format, find_format, suffix_of
from trustdoctor.files.frames import from_table
from trustdoctor.files.labels import require_matches
from trustdoctor.files.layout import NAME_THEM, NOTHING, Layout, find_layout
from trustdoctor.files.llm_responses import response_ids
from trustdoctor.predictions import (
    MIN_SIMPLEX_ROWS,
    NOT_LOGITS,
    Predictions,
    assume_logits,
    on_simplex,
)
from trustdoctor.scores import logit_scores

_HEAD = 10_000  # rows in which at least one true label must be found

_MOST_SHARED = 20  # columns that are looked at for rows that belong together

_LONGEST_NAME = 100  # bytes; longer values are texts, not names

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
    step : int
        How many rows are read at a time, where pieces of the files are too large for
        the memory; 0 leaves it to the format.
    for_spreadsheets : bool
        Whether text that is written beside decisions must not be a formula.
    """

    files: tuple[Path, ...]
    columns: Columns = field(default_factory=Columns)
    root: Path | None = None
    step: int = 0
    for_spreadsheets: bool = False

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

    @property
    def inputs(self) -> list[Path]:
        """Every file that is read: these, those beside them, and what was named."""
        named = (self.columns.truth, self.columns.names_file)
        found = [*self.files, *(Path(file) for file in named if file is not None)]
        if suffix_of(self.files[0]) == ".npy":  # the arrays beside it belong to it
            found += self.files[0].parent.glob("*.npy")
        return found

    def single(self) -> "Iterator[Source]":
        """Yield a source for each file."""
        for file in self.files:
            yield replace(self, files=(file,))

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns and their types."""
        found = self._read(lambda: self.scan().collect_schema())
        odd = [n for n in found.names() if n == "*" or re.fullmatch(r"\^.*\$", n, re.S)]
        if odd:
            message = (
                f"{self.files[0]} has a column called {odd[0]!r}, which would stand "
                "for others. Rename it."
            )
            raise FileError(message)
        return found

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
                better = advise_columns(self.head(self.names, 50))
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
            self.predictions(self.head(self.needed, _HEAD))
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

    @cached_property
    def shared_columns(self) -> list[str]:
        """The columns beside these whose values could say which rows belong together.

        Texts and whole numbers of which some come again; no measured numbers.
        """
        rest = [name for name in self.names if name not in self.needed]
        plain = [name for name in rest if _may_be_shared(self.schema[name])]
        if not plain:
            return []
        head = self.head(plain)  # of few rows: texts may be long
        found = [name for name in plain if names_things(head[name])]
        return found[:_MOST_SHARED]

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
        columns = self.columns
        decided = columns.predicted is not None or columns.cutoff is not None
        return logit_scores(logits=self.layout.kind == "logits", decided=decided)

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
        return len(self.head(self.needed[:1], 1)) == 0

    @cached_property
    def about_rows(self) -> int:
        """How many rows there are; guessed, where counting takes long."""
        guess = self.format.about_rows
        return self.rows if guess is None else guess(self)

    def largest_piece(self, *, whole: bool = False) -> int:
        """Return the bytes of the largest piece that is read at once, unpacked.

        `whole` counts all columns, not just those that are needed.
        """
        measure = self.format.largest_piece
        return 0 if measure is None else measure(self, whole=whole)

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

    def row_size(self, *, whole: bool = False) -> int:
        """Return about how many bytes a row takes in memory; `whole` as above."""
        return self._whole_row if whole else self.row_bytes

    @cached_property
    def row_bytes(self) -> int:
        """About how many bytes a row's needed values take in memory."""
        if not self.format.typed:
            return 24 * len(self.needed)
        if not self.format.is_table:
            return self.row_size(whole=True)
        return self._row_bytes(self.needed)

    @cached_property
    def _whole_row(self) -> int:
        if self.format.row_bytes is not None:
            return max(1, self.format.row_bytes(self))
        on_disk = self.size // max(self.about_rows, 1)
        return max(on_disk, self._row_bytes(self.names))

    def _row_bytes(self, names: list[str]) -> int:
        head = self.head(names)
        return max(1, int(head.estimated_size()) // max(len(head), 1))

    def head(self, names: list[str], rows: int = 100) -> pl.DataFrame:
        """Return the first rows.

        Where columns have types not by the streaming engine, which keeps the size of
        batches that it has when it is first used.
        """
        lazy = self.scan().select(names).head(rows)
        engine: Any = "in-memory" if self.format.typed else "streaming"
        return self._read(lambda: lazy.collect(engine=engine))

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
        """The columns that folders' names hold, as day=monday, alike for all files."""
        first = tuple(self.partitions_of(self.files[0]))
        for file in self.files[1:]:
            own = tuple(self.partitions_of(file))
            if own != first:
                message = (
                    f"expected folders that say the same of every file, got "
                    f"{_named(first)} for {self.files[0]} and {_named(own)} for "
                    f"{file}. Move the files that differ into folders like the others."
                )
                raise FileError(message)
        return first

    def partitions_of(self, file: Path) -> dict[str, str]:
        """Return what the folders that a file is in say of it."""
        if self.root is None or not file.is_relative_to(self.root):
            return {}
        inner = file.relative_to(self.root).parent.parts
        pairs = [part.split("=", 1) for part in inner if "=" in part]
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            again = next(name for name in names if names.count(name) > 1)
            message = (
                f"the folders of {file} say {again!r} twice. Name each column once, "
                "as day=1/hour=2."
            )
            raise FileError(message)
        return dict(pairs)

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
            return self._read(lambda: self.predictions(table)), table
        except InputError as error:
            self.locate()
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error

    def _check_truth(self) -> None:
        """Refuse true labels that are about other rows."""
        layout = self.layout
        head = self.head(self.needed, _HEAD)
        if layout.kind == "choices":
            ids = response_ids(head[layout.values[0]])
        elif layout.ids is not None:
            ids = head[layout.ids]
        else:
            return  # which is told where rows are read
        require_matches(ids, self.columns, str(self.files[0]))

    def require_logits(self) -> None:
        """Refuse logits of which all rows are probabilities, whatever a batch holds."""
        if self.layout.kind != "logits" or not self._looks_likely(
            self.head(self.needed)
        ):
            return
        rows, lazy = 0, self.scan().select(self.needed)
        for batch in lazy.collect_batches(chunk_size=BATCH):
            if not self._looks_likely(batch):
                return
            rows += len(batch)
        if rows >= MIN_SIMPLEX_ROWS:
            message = f"{self.files[0]}: {NOT_LOGITS}"
            raise FileError(message)

    def _looks_likely(self, batch: pl.DataFrame) -> bool:
        """Tell whether all rows of a batch are probabilities; bad ones are not."""
        try:
            with assume_logits():
                return on_simplex(self.predictions(batch).logits)
        except InputError:
            return False

    def locate(self) -> None:
        """Raise the error of the first row that is not as expected, with its file."""
        for one in self.single():
            one._read(one._locate)

    def _locate(self) -> None:
        first = 0
        lazy = self.scan().select(self.needed)
        for batch in lazy.collect_batches(chunk_size=BATCH, maintain_order=True):
            try:
                if len(batch):
                    with assume_logits():
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


def _named(partitions: tuple[str, ...]) -> str:
    """Return how folders' names tell columns, for a message."""
    return "/".join(f"{name}=..." for name in partitions) or "none"


def _may_be_shared(dtype: pl.DataType) -> bool:
    """Tell whether values of a type may name what several rows share."""
    if dtype.is_nested() or dtype.is_temporal():
        return False
    return dtype.is_numeric() or dtype in (pl.String, pl.Categorical, pl.Enum)


def names_things(column: pl.Series) -> bool:
    """Tell whether a column's values may be names: short texts, or whole numbers.

    Examples
    --------
    >>> [names_things(pl.Series(v)) for v in (["7", "8"], [0.5, 1.0], ["a", None])]
    [True, False, True]
    """
    text = column.cast(pl.String).drop_nulls()
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() == 0:
        return bool((numbers == numbers.floor()).all())
    return float(text.str.len_bytes().mean() or 0) <= _LONGEST_NAME  # type: ignore[arg-type]


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
