"""Arrays of NPZ and NPY files, row by row: from the archive, or mapped into memory."""

import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.files.columns import Columns
from trustdoctor.files.formats.registry import Format, register_format, suffix_of
from trustdoctor.files.layout import Layout, find_layout

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

BATCH = 1 << 16
"""Rows read at a time, and fewer of wide ones."""

_BATCH_BYTES = 1 << 26


class Arrays:
    """The arrays of an NPZ file, or an NPY file with its neighbours."""

    def __init__(self, file: Path, columns: Columns) -> None:
        self.file = file
        try:
            if suffix_of(file) == ".npz":
                with zipfile.ZipFile(file) as archive:
                    names = [n.removesuffix(".npy") for n in archive.namelist()]
                _refuse_twice(names)
            else:
                names = [other.stem for other in sorted(file.parent.glob("*.npy"))]
                columns = _about(file, columns)
            layout = find_layout(names, columns)
            self.names = layout.needed
            with self.open() as arrays:
                self.shapes = {n: (a.shape, a.dtype) for n, a in arrays.items()}
                self.whole = sum(a.size for a in arrays.values() if a.whole)
        except FileError:
            raise
        except InputError as error:
            message = f"{file}: {error}"
            raise FileError(message) from error
        except Exception as error:
            raise FileError(_unreadable(file, error)) from error
        self._check(layout, columns)

    def _check(self, layout: Layout, columns: Columns) -> None:
        """Refuse arrays that are not one entry per row; drop labels not needed."""
        name = layout.values[0]
        shape, dtype = self.shapes[name]
        good = len(layout.values) == 1 and _is_matrix(shape, dtype)
        wanted = "(n, C)"
        if layout.answers or columns.positive is not None:
            good, wanted = len(shape) == 1 and _is_number(dtype), "(n,)"
        if not good:
            message = (
                f"{self.file}: expected {name} as numbers of shape {wanted}, got "
                f"{dtype} of shape {shape}."
            )
            raise FileError(message)
        rows, need_labels = shape[:1], columns.need_labels
        for other in self.names[1:]:
            found, kind = self.shapes[other]
            fits = found[:1] == rows
            long = not fits
            if other in layout.features:
                fits = fits and _is_matrix(found, kind)
            else:  # labels that are not needed are looked at where they are used
                fits = fits and found == rows and kind.kind in "iufbU"
            if fits:
                continue
            if other != layout.label or need_labels or long:
                what = "labels as" if other == layout.label else f"{other!r} as"
                message = (
                    f"{self.file}: expected {what} {rows[0]} entries, one per row, got "
                    f"{kind} of shape {found}."
                )
                raise FileError(message)
            self.names = [kept for kept in self.names if kept != other]
            del self.shapes[other]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(next(iter(self.shapes.values()))[0][0])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(
            math.prod(shape[1:]) * _plain(dtype).itemsize
            for shape, dtype in self.shapes.values()
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The columns that the arrays become, and their types."""
        out: dict[str, Any] = {}
        for name, (shape, dtype) in self.shapes.items():
            kind = pl.Series(np.zeros(1, _plain(dtype))).dtype
            out[name] = pl.Array(kind, shape[1]) if len(shape) == 2 else kind
        return out

    def open(self) -> "_Open":
        """Open the arrays; they give rows in order."""
        return _Open(self.file, self.names)


def _refuse_twice(names: list[str]) -> None:
    """Refuse an archive in which one name stands for two arrays."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        message = f"it has the array {twice[0]!r} twice"
        raise ValueError(message)


def _is_number(dtype: Any) -> bool:
    return dtype.kind in "iuf" and dtype.itemsize <= 8


def _is_matrix(shape: tuple[int, ...], dtype: Any) -> bool:
    return len(shape) == 2 and _is_number(dtype)


def _unreadable(file: Path, error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["unknown"]
    return (
        f"cannot read {file} as {file.suffix[1:].upper()}: {lines[0].rstrip('.')}. The "
        "file may be cut short, or hold pickled objects, which can run code when read, "
        "so they are refused. Write plain numeric arrays."
    )


def _about(file: Path, columns: Columns) -> Columns:
    """Say that the values are in the file that was named."""
    if columns.logits is None and columns.probs is None and file.stem == "probs":
        return replace(columns, probs="probs")
    if columns.probs is not None:
        return columns
    if columns.logits is None and file.stem != "logits":
        message = (
            f"an array of its own does not say what it holds. Call it logits.npy or "
            f"probs.npy, or give --logits {file.stem} or --probs {file.stem}."
        )
        raise FileError(message)
    return replace(columns, logits=file.stem)


class _Open(ExitStack):
    """Open arrays that give rows as they are asked for, in order."""

    def __init__(self, file: Path, names: list[str]) -> None:
        super().__init__()
        self.file, self.names = file, names

    def __enter__(self) -> "dict[str, _Array]":  # type: ignore[override]
        super().__enter__()
        try:
            return {name: self._open(name) for name in self.names}
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> "_Array":
        if suffix_of(self.file) == ".npy":
            path = self.file.with_name(f"{name}.npy")
            stream: Any = self.enter_context(path.open("rb"))
            return _Array(name, stream, path.stat().st_size)
        archive = self.enter_context(zipfile.ZipFile(self.file))
        entry = archive.getinfo(f"{name}.npy")
        stream = self.enter_context(archive.open(entry))
        return _Array(name, stream, entry.file_size)


class _Array:
    """Rows of one array, out of a file or a zipped stream of so many bytes.

    What its header announces is checked against what is there: nothing is filled up.
    """

    def __init__(self, name: str, stream: Any, length: int) -> None:
        self.name, self.stream, self.at = name, stream, 0
        version = np.lib.format.read_magic(stream)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            message = f"{name!r} is of the version {version[0]}.{version[1]}"
            raise ValueError(message)
        self.shape, by_column, self.dtype = readers[version](stream)
        if self.dtype.hasobject:
            message = "it holds pickled objects"
            raise ValueError(message)
        if min(self.shape, default=0) < 0:
            message = f"{name!r} has the shape {self.shape}"
            raise ValueError(message)
        self.size = math.prod(self.shape) * self.dtype.itemsize
        self._require(length - stream.tell(), self.size)
        self.array: Any = None
        self.whole = by_column and len(self.shape) > 1  # rows do not lie together
        if self.whole and not isinstance(stream, zipfile.ZipExtFile):
            self.array = np.memmap(
                stream, self.dtype, "r", stream.tell(), self.shape, "F"
            )
            self.whole = False

    def _require(self, got: int, announced: int) -> None:
        if got != announced:
            message = (
                f"the header of {self.name!r} announces {announced:,} bytes, and there "
                f"are {got:,}"
            )
            raise ValueError(message)

    def _read(self, size: int) -> Any:
        content = self.stream.read(size)
        self._require(len(content), size)
        if self.dtype.kind == "U":  # numbers that are no characters would end us
            content.decode(f"utf-32-{'be' if self.dtype.str[0] == '>' else 'le'}")
        return np.frombuffer(content, self.dtype)

    def next(self, rows: int) -> Any:
        """Return the next rows."""
        if self.whole and self.array is None:
            self.array = self._read(self.size).reshape(self.shape, order="F")
        if self.array is not None:
            part = self.array[self.at : self.at + rows]
            self.at += rows
        else:
            width = math.prod(self.shape[1:])
            part = self._read(rows * width * self.dtype.itemsize)
            part = part.reshape(rows, *self.shape[1:])
        return np.ascontiguousarray(part, _plain(self.dtype))


def _plain(dtype: Any) -> Any:
    """Return the type as polars has it: numbers of this machine's byte order."""
    if dtype == np.float16:
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


def array_batches(
    arrays: list[Arrays],
    columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """Yield rows of arrays as frames, as polars asks an io source for them."""
    left = math.inf if n_rows is None else n_rows
    for one in arrays:
        done = 0
        most = min(batch_size or BATCH, max(1, _BATCH_BYTES // max(one.row_bytes, 1)))
        with one.open() as opened:
            while done < one.rows and left > 0:
                rows = int(min(most, one.rows - done, left))
                frame = _next_frame(one, opened, rows)
                done, left = done + rows, left - rows
                frame = frame if columns is None else frame.select(columns)
                yield frame if predicate is None else frame.filter(predicate)


def _next_frame(one: Arrays, opened: "dict[str, _Array]", rows: int) -> pl.DataFrame:
    try:
        return pl.DataFrame({n: a.next(rows) for n, a in opened.items()})
    except Exception as error:  # a damaged archive fails in many ways
        raise FileError(_unreadable(one.file, error)) from error


def _scan(source: "Source") -> pl.LazyFrame:
    arrays = [Arrays(file, source.columns) for file in source.files]
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


def _rows(source: "Source") -> int:
    return sum(Arrays(file, source.columns).rows for file in source.files)


def _row_bytes(source: "Source") -> int:
    return Arrays(source.files[0], source.columns).row_bytes


def _largest(source: "Source", *, whole: bool) -> int:
    del whole  # all that are read are needed
    return max(Arrays(file, source.columns).whole for file in source.files)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    """Write each column as an array, through a file of its own, into the archive."""
    names = rows.collect_schema().names()
    paths = {name: path.with_name(f"{path.name}.{name}") for name in names}
    try:
        _fill(rows, paths, source)
        with zipfile.ZipFile(path, "w") as archive:
            for name, beside in paths.items():
                _add(archive, name, beside)
    finally:
        for beside in paths.values():
            beside.unlink(missing_ok=True)


def _fill(rows: pl.LazyFrame, paths: dict[str, Path], source: "Source") -> None:
    """Write each column into its file, and see that every row came."""
    mapped: dict[str, Any] = {}
    at = 0
    for batch in rows.collect_batches(maintain_order=True, engine="streaming"):
        at += len(batch)
        if at > source.rows:
            break
        for name, beside in paths.items():
            values, first = batch[name].to_numpy(), at - len(batch)
            if values.dtype == object:
                values = _fixed(values, source, name)
            held = mapped.get(name)
            if held is None or held.dtype.itemsize < values.dtype.itemsize:
                mapped[name] = _opened(beside, values.dtype, source.rows, held, first)
            mapped[name][first:at] = values
    if at != source.rows:
        message = f"expected {source.rows:,} rows in {source.name}, got {at:,}."
        raise FileError(message)


def _opened(path: Path, kind: Any, rows: int, held: Any, done: int) -> Any:
    """Return an array in a file; what an array of shorter texts holds goes into it."""
    if held is None:
        return np.lib.format.open_memmap(path, "w+", kind, (rows,))
    wider = path.with_name(f"{path.name}.wider")
    try:
        out = np.lib.format.open_memmap(wider, "w+", kind, (rows,))
        out[:done] = held[:done]
        wider.replace(path)
    finally:
        wider.unlink(missing_ok=True)
    return out


def _fixed(values: Any, source: "Source", column: str) -> Any:
    """Return texts of one width, which arrays need; answers may be of any length."""
    names = source.layout.class_names
    if column == "shortlist":
        return values.astype(f"<U{max(1, *map(len, values))}")
    if names is None:
        message = "answers of any length do not fit into NPZ. Choose .csv or .parquet."
        raise OutputError(message)
    return values.astype(f"<U{max(map(len, names))}")


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")  # without a time: the same bytes again
    entry.compress_type = zipfile.ZIP_DEFLATED
    with path.open("rb") as content, archive.open(entry, "w", force_zip64=True) as out:
        while chunk := content.read(1 << 20):
            out.write(chunk)


NPZ = register_format(
    Format(
        "NPZ",
        (".npz",),
        _scan,
        _sink,
        rows=_rows,
        row_bytes=_row_bytes,
        largest_piece=_largest,
        is_table=False,
    )
)
NPY = register_format(
    Format(
        "NPY",
        (".npy",),
        _scan,
        rows=_rows,
        row_bytes=_row_bytes,
        is_table=False,
        output=".npz",
    )
)
