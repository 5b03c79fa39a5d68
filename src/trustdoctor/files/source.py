"""Files of predictions as one table that is read in batches, never whole.

A source is a file, a glob or a folder of files of one format. Only the columns that
are asked for are read.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from trustdoctor.files.layout import Layout, find_layout
from trustdoctor.files.llm_responses import response_ids
from trustdoctor.predictions import (
    MIN_SIMPLEX_ROWS,
    NOT_LOGITS,
    Predictions,
    assume_logits,
    on_simplex,
)
from trustdoctor.scores import logit_scores

DRAW_COLUMN = "draw"
"""The column of a file to label that says how its rows were drawn."""

_DRAW_MARK = "trustdoctor-draw"
"""What that column holds, and no column of the user's own."""

_CHECKED_ROWS = 10_000
"""First rows of a file, of which at least one id must have a true label."""

_MOST_SHARED_COLUMNS = 20
"""Columns that are tested for rows that belong together."""

_LONGEST_NAME = 100
"""Bytes on average; longer values are texts, not names."""

BATCH = 1 << 16
"""Rows read at a time, to find the first bad one."""

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises; the second is a BaseException, which Exception does not catch."""

_DAMAGE_ERRORS = (OSError, EOFError, zlib.error)
"""What Python's readers of files and archives raise."""


@dataclass(frozen=True)
class Source:
    """Files of one format, in the order of their names.

    Attributes
    ----------
    files : tuple of Path
    columns : Columns
        What they hold under which name.
    root : Path or None
        The folder that they were found in, if a folder was given.
    step : int
        How many rows are read at a time, if pieces of the files are too large for the
        memory; 0 leaves it to the format.
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
        """Every file that is read: these, the arrays beside them, and named tables."""
        tables = (self.columns.truth, self.columns.names_file)
        inputs = [*self.files, *(Path(file) for file in tables if file is not None)]
        if suffix_of(self.files[0]) == ".npy":
            inputs += self.files[0].parent.glob("*.npy")
        return inputs

    def single(self) -> "Iterator[Source]":
        """Yield a source for each file."""
        for file in self.files:
            yield replace(self, files=(file,))

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns and their types."""
        with self.file_errors():
            schema = self.scan().collect_schema()
        # polars expands these names in `pl.col`: * to all columns, ^...$ as a pattern.
        patterns = [
            name
            for name in schema.names()
            if name == "*" or re.fullmatch(r"\^.*\$", name, re.S)
        ]
        if patterns:
            message = (
                f"{self.files[0]} has a column called {patterns[0]!r}, which would "
                "stand for others. Rename it."
            )
            raise FileError(message)
        return schema

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names()

    @cached_property
    def layout(self) -> Layout:
        """Where everything is, as in the first file."""
        try:
            return find_layout(self.names, self.columns, self._advise_columns)
        except InputError as error:
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error

    def _advise_columns(self) -> str:
        return advise_columns(self.head(self.names, 50))

    def require_labels(self, task: str) -> None:
        """Refuse files in which nothing tells what is right, naming what could."""
        if self.has_labels:
            return
        layout = self.layout
        try:  # bad values are reported first: without them labels help nobody
            self.predictions(self.head(self.needed, _CHECKED_ROWS))
        except InputError as error:
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error
        other_names = [name for name in self.names if name not in layout.needed]
        what = "a column of true labels, called label"
        option = "--labels NAME, or --truth FILE with --ids NAME"
        if layout.kind == "choices":
            what, option = "the true answers", "--truth FILE, a table of ids and labels"
        elif layout.holds_answers:
            what = "a column that says which answers are right"
            option = "--correct NAME, or --predicted NAME with --labels NAME"
        also = f" It also has {', '.join(other_names[:8])}." if other_names else ""
        message = (
            f"{self.files[0]}: {task} needs {what}, and there is none.{also} Name it: "
            f"{option}."
        )
        raise LabelsMissingError(message)

    @property
    def needed(self) -> list[str]:
        """The columns that predictions are made of."""
        return self.layout.needed

    @cached_property
    def shared_columns(self) -> list[str]:
        """Other columns whose values could say which rows belong together.

        These are names and whole numbers, of which some come again; no measurements.
        """
        candidates = [
            name
            for name in self.names
            if name not in self.needed and _may_be_shared(self.schema[name])
        ]
        if not candidates:
            return []
        head = self.head(candidates)  # of few rows: texts may be long
        named = [name for name in candidates if names_things(head[name])]
        return named[:_MOST_SHARED_COLUMNS]

    @property
    def has_labels(self) -> bool:
        """Whether something tells which rows are right, complete or not."""
        layout, truth = self.layout, self.columns.truth
        return not layout.label is layout.correct is truth is None

    @property
    def scores(self) -> list[str]:
        """The names of the scores that need no more than such values."""
        if self.layout.holds_answers:
            return ["doubt" if self.layout.kind == "doubt" else "confidence"]
        columns = self.columns
        decided = columns.predicted is not None or columns.cutoff is not None
        return logit_scores(logits=self.layout.kind == "logits", decided=decided)

    @cached_property
    def rows(self) -> int:
        """How many rows there are, from the files' headers if they say."""
        if self.format.rows is not None:
            return self.format.rows(self)
        return sum(
            int(source.collect(source.scan().select(pl.len())).item())
            for source in self.single()
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        if self.format.rows is not None:
            return self.rows == 0
        return len(self.head(self.needed[:1], 1)) == 0

    @cached_property
    def about_rows(self) -> int:
        """How many rows there are; an estimate if counting takes long."""
        estimate = self.format.about_rows
        return self.rows if estimate is None else estimate(self)

    def largest_piece(self, *, all_columns: bool = False) -> int:
        """Return the bytes of the largest piece that is read at once, unpacked.

        `all_columns` counts all columns, not just those that are needed.
        """
        measure = self.format.largest_piece
        return 0 if measure is None else measure(self, all_columns=all_columns)

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

    def row_size(self, *, all_columns: bool = False) -> int:
        """Return about how many bytes a row takes in memory."""
        return self._all_columns_bytes if all_columns else self.row_bytes

    @cached_property
    def row_bytes(self) -> int:
        """About how many bytes a row's needed values take in memory."""
        if not self.format.typed:
            return 24 * len(self.needed)
        if not self.format.is_table:
            return self._all_columns_bytes
        return self._bytes_per_row(self.needed)

    @cached_property
    def _all_columns_bytes(self) -> int:
        if self.format.row_bytes is not None:
            return max(1, self.format.row_bytes(self))
        on_disk = self.size // max(self.about_rows, 1)
        return max(on_disk, self._bytes_per_row(self.names))

    def _bytes_per_row(self, names: list[str]) -> int:
        head = self.head(names)
        return max(1, int(head.estimated_size()) // max(len(head), 1))

    def head(self, names: list[str], rows: int = 100) -> pl.DataFrame:
        """Return the first rows."""
        lazy = self.scan().select(names).head(rows)
        # polars' streaming engine keeps the batch size of its first use in a process,
        # so a glance at a file must not be its first use. Text goes through it all the
        # same: the other engine parses all of it (a million rows: 0.8 s, not 0.03).
        engine: Any = "in-memory" if self.format.typed else "streaming"
        with self.file_errors():
            return lazy.collect(engine=engine)

    def scan(self) -> pl.LazyFrame:
        """Return all rows, to be read in batches; CSV as text."""
        with self.file_errors():
            return self.format.scan(self)

    def check_columns(self, file: Path, columns: Any, expected: Any) -> None:
        """Refuse a file whose columns or their types are not those of the first."""
        if columns == expected:
            return
        differing = [
            name
            for name in {**expected, **columns}
            if columns.get(name) != expected.get(name)
        ]
        if differing:
            name = differing[0]
            difference = (
                f"the column {name!r}: {columns.get(name)} and not {expected.get(name)}"
            )
        else:
            difference = "another order of columns"
        message = (
            f"expected the columns of {file} to be those of {self.files[0]}, got "
            f"{difference}. Name the files one by one, or write them alike."
        )
        raise FileError(message)

    def check_schemas(self, read_schema: Callable[[Path], Any]) -> None:
        """Refuse files whose columns or types are not those of the first."""
        if len(self.files) > 1:
            expected = read_schema(self.files[0])
            for file in self.files[1:]:
                self.check_columns(file, read_schema(file), expected)

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The columns that folders name, as day=monday; the same for all files."""
        expected = tuple(self.partitions_of(self.files[0]))
        for file in self.files[1:]:
            partitions = tuple(self.partitions_of(file))
            if partitions != expected:
                message = (
                    "expected folders that name the same columns for every file, got "
                    f"{_partition_folders(expected)} for {self.files[0]} and "
                    f"{_partition_folders(partitions)} for "
                    f"{file}. Move the files that differ into folders like the others."
                )
                raise FileError(message)
        return expected

    def partitions_of(self, file: Path) -> dict[str, str]:
        """Return the columns that the folders of a file name, and their values."""
        if self.root is None or not file.is_relative_to(self.root):
            return {}
        folders = file.relative_to(self.root).parent.parts
        pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            message = (
                f"the folders of {file} say {repeated!r} twice. Name each column once, "
                "as day=1/hour=2."
            )
            raise FileError(message)
        return dict(pairs)

    def predictions(self, batch: pl.DataFrame) -> Predictions:
        """Build predictions from a batch of the needed columns."""
        return from_table(batch, self.columns, self.layout)

    def read(self) -> Predictions:
        """Read everything at once."""
        return self.load()[0]

    def load(self, *extra: str) -> tuple[Predictions, pl.DataFrame]:
        """Read everything at once, in one parse: predictions, and their table.

        The table holds the needed columns, and the `extra` ones.
        """
        absent = [name for name in extra if name not in self.names]
        if absent:
            present = ", ".join(self.names[:20])
            message = f"{self.files[0]} has no {absent[0]!r}; it has {present}."
            raise FileError(message)
        names = list(dict.fromkeys([*self.needed, *extra]))
        table = self.collect(self.scan().select(names))
        if len(table) == 0:
            message = (
                f"{self.files[0]} has a header but no rows. Expected one line per "
                "prediction."
            )
            raise FileError(message)
        try:
            with self.file_errors():
                predictions = self.predictions(table)
        except InputError as error:
            self.locate()
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error
        return replace(predictions, draw_design=self.draw_design), table

    @cached_property
    def draw_design(self) -> str:
        """How all rows were drawn to be labelled; "" if they were not.

        A column of that name without `trustdoctor draw`'s mark is the user's own.
        """
        if DRAW_COLUMN not in self.names or self.schema[DRAW_COLUMN] != pl.String:
            return ""
        column = pl.col(DRAW_COLUMN)
        values = self.collect(self.scan().select(column.unique()))[DRAW_COLUMN]
        designs = [text for text in values.to_list() if text and _DRAW_MARK in text]
        if designs and len(values) > 1:
            message = (
                f"{self.files[0]}: expected rows of one draw in the column "
                f"{DRAW_COLUMN!r}, got {len(values):,} different values. Calibrate on "
                "the rows of one draw, or remove the column: all rows then count as a "
                "plain sample."
            )
            raise InputError(message)
        return designs[0] if designs else ""

    def check_truth(self) -> None:
        """Refuse true labels that are about other rows."""
        layout = self.layout
        head = self.head(self.needed, _CHECKED_ROWS)
        if layout.kind == "choices":
            ids = response_ids(head[layout.values[0]])
        elif layout.ids is not None:
            ids = head[layout.ids]
        else:
            return  # refused when rows are read
        require_matches(ids, self.columns, str(self.files[0]))

    def require_logits(self) -> None:
        """Refuse logits if all rows are probabilities, whatever a batch holds."""
        if self.layout.kind != "logits":
            return
        # Most files end here: their first rows are no probabilities.
        if not self._all_on_simplex(self.head(self.needed)):
            return
        rows, lazy = 0, self.scan().select(self.needed)
        for batch in lazy.collect_batches(chunk_size=BATCH):
            if not self._all_on_simplex(batch):
                return
            rows += len(batch)
        if rows >= MIN_SIMPLEX_ROWS:
            message = f"{self.files[0]}: {NOT_LOGITS}"
            raise FileError(message)

    def _all_on_simplex(self, batch: pl.DataFrame) -> bool:
        """Tell whether all rows of a batch are probabilities; invalid ones are not."""
        try:
            with assume_logits():
                return on_simplex(self.predictions(batch).logits)
        except InputError:
            return False

    def locate(self) -> None:
        """Raise the error of the first row that is not as expected, with its file."""
        for source in self.single():
            with source.file_errors():
                source._raise_first_row_error()

    def _raise_first_row_error(self) -> None:
        n_before = 0
        lazy = self.scan().select(self.needed)
        for batch in lazy.collect_batches(chunk_size=BATCH, maintain_order=True):
            try:
                if len(batch):
                    with assume_logits():
                        self.predictions(batch)
            except InputError as error:
                reason = error.after(n_before) if isinstance(error, RowError) else error
                message = f"{self.files[0]}: {reason}"
                raise FileError(message) from error
            n_before += len(batch)

    def collect(self, lazy: pl.LazyFrame) -> pl.DataFrame:
        """Run a query on these files; what cannot be read raises a FileError."""
        with self.file_errors():
            return lazy.collect(engine="streaming")

    @contextmanager
    def file_errors(self) -> Iterator[None]:
        """Turn whatever readers raise within into a FileError that names the file."""
        try:
            yield
        except pl.exceptions.NoDataError as error:
            message = (
                f"{self.files[0]} is empty. Expected a header and one line per "
                "prediction."
            )
            raise FileError(message) from error
        except (*POLARS_ERRORS, *_DAMAGE_ERRORS, UnicodeDecodeError) as error:
            raise FileError(unreadable(self, error)) from error


def _partition_folders(partitions: tuple[str, ...]) -> str:
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
    mean_length: Any = text.str.len_bytes().mean()
    return float(mean_length or 0) <= _LONGEST_NAME


def first_line(error: BaseException) -> str:
    """Return the first line of a library's message, without its full stop."""
    lines = str(error).strip().splitlines() or ["unknown"]
    return lines[0].rstrip(".")


def unreadable(source: Source, error: BaseException) -> str:
    """Return the message that a library could not read the files."""
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
