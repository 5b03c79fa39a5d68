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
from trustdoctor.files.columns import Columns, Layout, find_layout
from trustdoctor.files.formats import Format, register_format, suffix_of

if TYPE_CHECKING:
    from trustdoctor.files.source import Source

BATCH = 1 << 16
"""Rows read at a time."""


class Arrays:
    """The arrays of an NPZ file, or an NPY file with its neighbours."""

    def __init__(self, file: Path, columns: Columns) -> None:
        self.file = file
        try:
            if suffix_of(file) == ".npz":
                with zipfile.ZipFile(file) as archive:
                    names = [n.removesuffix(".npy") for n in archive.namelist()]
            else:
                names = [other.stem for other in sorted(file.parent.glob("*.npy"))]
                columns = _about(file, columns)
            layout = find_layout(names, columns)
            self.names = layout.needed
            with self.open() as arrays:
                self.shapes = {n: (a.shape, a.dtype) for n, a in arrays.items()}
                sizes = [a.mapped.nbytes for a in arrays.values() if a.whole]
            self.whole = sum(sizes)
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
            if other in layout.features:
                fits = fits and _is_matrix(found, kind)
            else:  # labels that are not needed are looked at where they are used
                fits = fits and found == rows and kind.kind in "iufbU"
            if fits:
                continue
            if other != layout.label or need_labels:
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
            return _Array(np.load(path, mmap_mode="r", allow_pickle=False))
        archive = self.enter_context(zipfile.ZipFile(self.file))
        stream = self.enter_context(archive.open(f"{name}.npy"))
        return _Array(None, stream)


class _Array:
    """Rows of one array: mapped into memory, or out of a zipped stream."""

    def __init__(self, mapped: Any, stream: Any = None) -> None:
        self.mapped, self.stream, self.at = mapped, stream, 0
        self.whole = False
        if stream is None:
            self.shape, self.dtype = mapped.shape, mapped.dtype
            return
        version = np.lib.format.read_magic(stream)
        read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        self.shape, by_column, self.dtype = read(stream)
        if self.dtype.hasobject:
            message = "it holds pickled objects"
            raise ValueError(message)
        if by_column and len(self.shape) > 1:  # such rows do not lie together
            self.whole = True
            size = math.prod(self.shape) * self.dtype.itemsize
            self.mapped = _Later(stream, self.shape, self.dtype, size)

    def next(self, rows: int) -> Any:
        if self.mapped is not None:
            part = self.mapped[self.at : self.at + rows]
            self.at += rows
            return np.ascontiguousarray(part, _plain(self.dtype))
        width = math.prod(self.shape[1:])
        content = self.stream.read(rows * width * self.dtype.itemsize)
        part = np.frombuffer(content, self.dtype).reshape(-1, *self.shape[1:])
        return np.ascontiguousarray(part, _plain(self.dtype))


class _Later:
    """An array of a zipped stream that is read as a whole, when it is asked for."""

    def __init__(self, stream: Any, shape: Any, dtype: Any, size: int) -> None:
        self.stream, self.shape, self.dtype, self.nbytes = stream, shape, dtype, size
        self.array: Any = None

    def __getitem__(self, rows: slice) -> Any:
        if self.array is None:
            content = np.frombuffer(self.stream.read(), self.dtype)
            self.array = content.reshape(self.shape, order="F")
        return self.array[rows]


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
        with one.open() as opened:
            while done < one.rows and left > 0:
                rows = int(min(batch_size or BATCH, one.rows - done, left))
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


def _largest(source: "Source") -> int:
    return max(Arrays(file, source.columns).whole for file in source.files)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    """Write each column as an array, through a file of its own, into the archive."""
    names = rows.collect_schema().names()
    paths = {name: path.with_name(f"{path.name}.{name}") for name in names}
    try:
        mapped: dict[str, Any] = {}
        at = 0
        for batch in rows.collect_batches(maintain_order=True, engine="streaming"):
            for name, beside in paths.items():
                values = batch[name].to_numpy()
                if values.dtype == object:
                    values = _fixed(values, source)
                if name not in mapped:
                    mapped[name] = np.lib.format.open_memmap(
                        beside, "w+", values.dtype, (source.rows,)
                    )
                mapped[name][at : at + len(values)] = values
            at += len(batch)
        mapped.clear()
        with zipfile.ZipFile(path, "w") as archive:
            for name, beside in paths.items():
                _add(archive, name, beside)
    finally:
        for beside in paths.values():
            beside.unlink(missing_ok=True)


def _fixed(values: Any, source: "Source") -> Any:
    """Return names of classes as text of one width, which arrays need."""
    names = source.layout.class_names
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
        largest_piece=_largest,
        is_table=False,
    )
)
NPY = register_format(
    Format("NPY", (".npy",), _scan, rows=_rows, is_table=False, output=".npz")
)
