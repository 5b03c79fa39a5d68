"""Files of predictions as one table that is read in batches, never whole.

A source is a file, a glob or a folder of Parquet, CSV, NPZ or NPY files. Parquet and
CSV are scanned by polars, arrays are mapped into memory; only the columns that are
asked for are read.
"""

import glob
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from trustdoctor.adapters.arrays import BATCH, Arrays, array_batches
from trustdoctor.adapters.files import (
    Columns,
    array_names,
    first_line,
    from_table,
    label_name,
    needed_columns,
    read_predictions,
    suffix_of,
)
from trustdoctor.adapters.footers import RowGroup, read_row_groups
from trustdoctor.errors import FileError, InputError, RowError
from trustdoctor.predictions import Predictions

KINDS = (".parquet", ".csv", ".npz", ".npy")


@dataclass(frozen=True)
class Source:
    """Files of one kind, in the order of their names.

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
    def kind(self) -> str:
        """The files' suffix."""
        return suffix_of(self.files[0])

    @property
    def is_table(self) -> bool:
        """Whether rows have columns of their own, which are to be kept."""
        return self.kind in (".parquet", ".csv")

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
    def needed(self) -> list[str]:
        """The columns that predictions are made of, as in the first file."""
        try:
            return needed_columns(self.names, self.columns)
        except InputError as error:
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error

    @property
    def has_labels(self) -> bool:
        """Whether there is a column of labels, complete or not."""
        return label_name(self.names, self.columns) is not None

    @cached_property
    def from_probabilities(self) -> bool:
        """Whether the values are probabilities, and no logits."""
        bare = replace(self.columns, need_labels=False)
        row = self.collect(self.scan().select(self.needed).head(1))
        try:
            return from_table(row, bare).from_probabilities
        except InputError as error:
            self.locate()
            message = f"{self.files[0]}: {error}"
            raise FileError(message) from error

    @cached_property
    def rows(self) -> int:
        """How many rows there are, from the files' heads where they say."""
        if self.kind == ".parquet":
            return sum(group.rows for group in self._groups)
        if not self.is_table:
            return sum(Arrays(file, self.columns).rows for file in self.files)
        return sum(
            int(one.collect(one.scan().select(pl.len())).item())
            for one in self.single()
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        if self.kind != ".csv":
            return self.rows == 0
        return len(self.collect(self.scan().select(self.names[0]).head(1))) == 0

    @cached_property
    def about_rows(self) -> int:
        """How many rows there are; of CSV, guessed from its size and first lines."""
        if self.kind != ".csv":
            return self.rows
        with self.files[0].open("rb") as file:
            lines = file.readlines(1 << 16)
        line = sum(map(len, lines[1:])) / max(len(lines) - 1, 1)
        return int(self.size / line) if line else 0

    @cached_property
    def _groups(self) -> list[RowGroup]:
        return [g for file in self.files for g in read_row_groups(file)]

    @property
    def largest_group(self) -> int:
        """Bytes of the largest piece that can only be read as a whole, unpacked."""
        if self.kind == ".npz":
            return max(Arrays(file, self.columns).whole for file in self.files)
        if self.kind != ".parquet":
            return 0
        sizes = (max(g.size, g.rows * self.row_bytes) for g in self._groups)
        return max(sizes, default=0)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.files)

    @cached_property
    def row_bytes(self) -> int:
        """About how many bytes a row's values take in memory."""
        if self.kind == ".csv":
            return 24 * len(self.needed)
        head = self.collect(self.scan().select(self.needed).head(1))
        return max(1, int(head.estimated_size()))

    def scan(self) -> pl.LazyFrame:
        """Return all rows, to be read in batches; CSV as text."""
        return self._read(self._scan)

    def _scan(self) -> pl.LazyFrame:
        if self.kind == ".parquet":
            self._check_schemas()
            return pl.scan_parquet(
                list(self.files), glob=False, hive_partitioning=bool(self.partitions)
            )
        if self.kind == ".csv":
            frames = [self._scan_csv(file) for file in self.files]
            return frames[0] if len(frames) == 1 else pl.concat(frames)
        arrays = [Arrays(file, self.columns) for file in self.files]
        for other in arrays[1:]:
            if other.schema != arrays[0].schema:
                message = (
                    f"expected arrays in {other.file} as in {arrays[0].file}, "
                    f"{arrays[0].schema}, got {other.schema}."
                )
                raise FileError(message)
        return register_io_source(
            lambda *asked: array_batches(arrays, *asked), schema=arrays[0].schema
        )

    def _check_schemas(self) -> None:
        """Refuse files whose columns are not those of the first."""
        if len(self.files) == 1:
            return
        first = pl.read_parquet_schema(self.files[0])
        for file in self.files[1:]:
            own = pl.read_parquet_schema(file)
            if own != first:
                _refuse_columns(file, own, self.files[0], first)

    def _scan_csv(self, file: Path) -> pl.LazyFrame:
        lazy, names = _scan_text(file)
        for name, value in self.partitions_of(file).items():
            lazy = lazy.with_columns(pl.lit(value).alias(name))
        if file != self.files[0]:
            _, first = _scan_text(self.files[0])
            if set(first) != set(names):
                kinds = [dict.fromkeys(n, "text") for n in (names, first)]
                _refuse_columns(file, kinds[0], self.files[0], kinds[1])
            lazy = lazy.select(*first, *self.partitions)
        return lazy

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
        if len(self.files) == 1 and self.kind != ".npy":
            c = self.columns
            return read_predictions(
                self.files[0],
                logits=c.logits,
                probs=c.probs,
                labels=c.labels,
                need_labels=c.need_labels,
            )
        table = self.collect(self.scan().select(self.needed))
        if len(table) == 0:
            raise FileError(_NO_ROWS.format(self.files[0]))
        try:
            return self.predictions(table)
        except InputError:
            self.locate()
            raise

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
                f"{self.files[0]} is empty. Expected a header and one line a "
                "prediction."
            )
            raise FileError(message) from error
        except (*POLARS_ERRORS, OSError, UnicodeDecodeError) as error:
            raise FileError(unreadable(self, error)) from error


POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises; the second is no Exception to Python."""

_NO_ROWS = "{} has a header but no rows. Expected one line a prediction."


def unreadable(source: Source, error: Exception) -> str:
    """Say that a library could not read the files."""
    where = source.files[0] if len(source.files) == 1 else source.name
    return (
        f"cannot read {where} as {source.kind[1:].upper()}: {first_line(error)}. "
        "The file may be cut short or its rows ragged; write it again."
    )


def find_source(path: str | Path, columns: Columns | None = None) -> Source:
    """Find the files behind a path: a file, a glob, or a folder and what is in it."""
    columns = columns or Columns()
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
            return Source((_known(given),), columns)
        if glob.has_magic(str(path)):
            named = glob.glob(str(path), recursive=True)  # noqa: PTH207 - absolute, too
            found = sorted(map(Path, named))
            files = [file for file in found if file.is_file()]
            if any(suffix_of(file) == ".npy" for file in files):
                message = "arrays in files of their own are named by their folder."
                raise FileError(message)
            if files:
                return _of_one_kind(files, columns, None)
            message = f"no file is like {path}. Check the pattern."
            raise FileError(message)
    except OSError as error:  # no access to the folder, or too long a name
        message = f"cannot look at {path}: {(error.strerror or '').lower()}."
        raise FileError(message) from error
    _known(given)
    message = f"there is no file {path}. Check the path."
    raise FileError(message)


def _in_folder(folder: Path, columns: Columns) -> Source:
    inside = [
        file
        for file in sorted(folder.rglob("*"))
        if suffix_of(file) in KINDS
        and not any(p.startswith((".", "_")) for p in file.relative_to(folder).parts)
        and file.is_file()
    ]
    if not inside:
        message = f"the folder {folder} holds no file in {', '.join(KINDS)}."
        raise FileError(message)
    if {suffix_of(file) for file in inside} == {".npy"}:
        return _unpacked(folder, inside, columns)
    return _of_one_kind(inside, columns, folder)


def _unpacked(folder: Path, inside: list[Path], columns: Columns) -> Source:
    """Take a folder of NPY files for an NPZ file that was unpacked."""
    names = [file.stem for file in inside if file.parent == folder]
    values = array_names(names, columns, folder)[0]
    return Source((folder / f"{values}.npy",), columns, folder)


def _of_one_kind(files: list[Path], columns: Columns, root: Path | None) -> Source:
    kinds = sorted({suffix_of(_known(file)) for file in files})
    if len(kinds) > 1:
        message = (
            f"expected files of one kind, got {' and '.join(kinds)}. Name those of one "
            "kind with a pattern, as 'folder/*.parquet'."
        )
        raise FileError(message)
    return Source(tuple(files), columns, root)


def _known(file: Path) -> Path:
    if suffix_of(file) not in KINDS:
        message = f"expected a file in {', '.join(KINDS)}, got {file.name!r}."
        raise FileError(message)
    return file


def _scan_text(file: Path) -> tuple[pl.LazyFrame, list[str]]:
    """Scan a CSV as text: no type is guessed from its first rows."""
    lazy = pl.scan_csv(file, infer_schema=False, glob=False)
    names = lazy.collect_schema().names()
    for name in names:
        base, mark, _ = name.rpartition("_duplicated_")
        if mark and base in names:
            message = f"{file} has the column {base!r} twice. Name every column once."
            raise FileError(message)
    stripped = [name.strip() for name in names]
    lazy = lazy.rename(dict(zip(names, stripped, strict=True)))
    return lazy.filter(~pl.all_horizontal(pl.all().is_null())), stripped


def _refuse_columns(file: Path, own: Any, other: Path, first: Any) -> None:
    odd = [n for n in {**first, **own} if own.get(n) != first.get(n)]
    what = f"the column {odd[0]!r}" if odd else "another order of columns"
    message = (
        f"expected the columns of {file} to be those of {other}, got {what}: "
        f"{own.get(odd[0]) if odd else 'moved'} and not "
        f"{first.get(odd[0]) if odd else 'in place'}. Screen the files one by one, "
        "into a folder, or write them alike."
    )
    raise FileError(message)
