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
                _refuse_repeated(names)
            else:
                names = array_names(file)
                columns = _columns_for(file, columns)
            layout = find_layout(names, columns)
            self.names = layout.needed
            with self.open() as arrays:
                self.shapes = {n: (a.shape, a.dtype) for n, a in arrays.items()}
                self.indivisible_bytes = sum(
                    a.size for a in arrays.values() if a.is_indivisible
                )
        except FileError:
            raise
        except InputError as error:
            message = f"{file}: {error}"
            raise FileError(message) from error
        except Exception as error:  # a damaged archive fails in many ways
            raise FileError(_unreadable(file, error)) from error
        self._check(layout, columns)

    def _check(self, layout: Layout, columns: Columns) -> None:
        """Refuse arrays that are not one entry per row; drop labels not needed."""
        values = layout.values[0]
        shape, dtype = self.shapes[values]
        if layout.holds_answers or columns.positive is not None:
            valid, wanted = len(shape) == 1 and _is_numeric(dtype), "(n,)"
        else:
            valid = len(layout.values) == 1 and _is_matrix(shape, dtype)
            wanted = "(n, C)"
        if not valid:
            message = (
                f"{self.file}: expected {values} as numbers of shape {wanted}, got "
                f"{dtype} of shape {shape}."
            )
            raise FileError(message)
        n_rows = shape[0]
        for name in self.names[1:]:
            shape, dtype = self.shapes[name]
            has_all_rows = shape[:1] == (n_rows,)
            if name in layout.features:
                valid = has_all_rows and _is_matrix(shape, dtype)
            else:  # labels that are not needed are checked only when they are used
                valid = shape == (n_rows,) and dtype.kind in "iufbU"
            if valid:
                continue
            if name == layout.label and not columns.need_labels and has_all_rows:
                self.names = [other for other in self.names if other != name]
                del self.shapes[name]
                continue
            what = "labels as" if name == layout.label else f"{name!r} as"
            message = (
                f"{self.file}: expected {what} {n_rows} entries, one per row, got "
                f"{dtype} of shape {shape}."
            )
            raise FileError(message)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(next(iter(self.shapes.values()))[0][0])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(
            math.prod(shape[1:]) * _polars_dtype(dtype).itemsize
            for shape, dtype in self.shapes.values()
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The columns that the arrays become, and their types."""
        schema: dict[str, Any] = {}
        for name, (shape, dtype) in self.shapes.items():
            entry = pl.Series(np.zeros(1, _polars_dtype(dtype))).dtype
            schema[name] = pl.Array(entry, shape[1]) if len(shape) == 2 else entry
        return schema

    def open(self) -> "OpenArrays":
        """Open the arrays; they give rows in order."""
        return OpenArrays(self.file, self.names)


def array_names(file: Path) -> list[str]:
    """Return the names of the arrays in an NPZ file, or beside an NPY file."""
    if suffix_of(file) == ".npy":
        return sorted(other.stem for other in file.parent.glob("*.npy"))
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    return [name.removesuffix(".npy") for name in names if name.endswith(".npy")]


def _refuse_repeated(names: list[str]) -> None:
    """Refuse an archive in which one name stands for two arrays."""
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        message = f"it has the array {repeated[0]!r} twice"
        raise ValueError(message)


def _is_numeric(dtype: Any) -> bool:
    return dtype.kind in "iuf" and dtype.itemsize <= 8


def _is_matrix(shape: tuple[int, ...], dtype: Any) -> bool:
    return len(shape) == 2 and _is_numeric(dtype)


def _unreadable(file: Path, error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["unknown"]
    return (
        f"cannot read {file} as {file.suffix[1:].upper()}: {lines[0].rstrip('.')}. The "
        "file may be cut short, or hold pickled objects, which can run code when read, "
        "so they are refused. Write plain numeric arrays."
    )


def _columns_for(file: Path, columns: Columns) -> Columns:
    """Return columns that name the NPY file itself as the values."""
    if columns.logits is None and columns.probs is None and file.stem == "probs":
        return replace(columns, probs="probs")
    if columns.probs is not None:
        return columns
    if columns.logits is None and file.stem != "logits":
        message = (
            f"an NPY file does not say what it holds. Call it logits.npy or "
            f"probs.npy, or give --logits {file.stem} or --probs {file.stem}."
        )
        raise FileError(message)
    return replace(columns, logits=file.stem)


class OpenArrays(ExitStack):
    """Open arrays that give rows as they are asked for, in order."""

    def __init__(self, file: Path, names: list[str]) -> None:
        super().__init__()
        self.file, self.names = file, names

    def __enter__(self) -> "dict[str, ArrayReader]":  # type: ignore[override]
        """Open all arrays, or none."""
        super().__enter__()
        try:
            return {name: self._open(name) for name in self.names}
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> "ArrayReader":
        if suffix_of(self.file) == ".npy":
            path = self.file.with_name(f"{name}.npy")
            stream: Any = self.enter_context(path.open("rb"))
            return ArrayReader(name, stream, path.stat().st_size)
        archive = self.enter_context(zipfile.ZipFile(self.file))
        entry = archive.getinfo(f"{name}.npy")
        stream = self.enter_context(archive.open(entry))
        return ArrayReader(name, stream, entry.file_size)


class ArrayReader:
    """Rows of one array, from a file or a zipped stream of `length` bytes.

    The length that its header announces must be there: nothing is filled up.
    """

    def __init__(self, name: str, stream: Any, length: int) -> None:
        self.name, self.stream, self.next_row = name, stream, 0
        version = np.lib.format.read_magic(stream)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            message = f"{name!r} is of the version {version[0]}.{version[1]}"
            raise ValueError(message)
        self.shape, is_fortran, self.dtype = readers[version](stream)
        if self.dtype.hasobject:
            message = "it holds pickled objects"
            raise ValueError(message)
        if min(self.shape, default=0) < 0:
            message = f"{name!r} has the shape {self.shape}"
            raise ValueError(message)
        self.size = math.prod(self.shape) * self.dtype.itemsize
        self._require_bytes(length - stream.tell(), self.size)
        self.array: Any = None
        # In Fortran's order the entries of a row lie apart: a file can be mapped, but a
        # zipped stream must be read to its end for the first row.
        self.is_indivisible = is_fortran and len(self.shape) > 1
        if self.is_indivisible and not isinstance(stream, zipfile.ZipExtFile):
            self.array = np.memmap(
                stream, self.dtype, "r", stream.tell(), self.shape, "F"
            )
            self.is_indivisible = False

    def _require_bytes(self, present: int, announced: int) -> None:
        if present != announced:
            message = (
                f"the header of {self.name!r} announces {announced:,} bytes, and there "
                f"are {present:,}"
            )
            raise ValueError(message)

    def _read(self, size: int) -> Any:
        content = self.stream.read(size)
        self._require_bytes(len(content), size)
        if self.dtype.kind == "U":
            # Code points that are no characters crash the process later; decoding them
            # raises an error.
            content.decode(f"utf-32-{'be' if self.dtype.str[0] == '>' else 'le'}")
        return np.frombuffer(content, self.dtype)

    def read_rows(self, n_rows: int) -> Any:
        """Return the next rows."""
        if self.is_indivisible and self.array is None:
            self.array = self._read(self.size).reshape(self.shape, order="F")
        if self.array is not None:
            rows = self.array[self.next_row : self.next_row + n_rows]
            self.next_row += n_rows
        else:
            row_size = math.prod(self.shape[1:])
            rows = self._read(n_rows * row_size * self.dtype.itemsize)
            rows = rows.reshape(n_rows, *self.shape[1:])
        return np.ascontiguousarray(rows, _polars_dtype(self.dtype))


def _polars_dtype(dtype: Any) -> Any:
    """Return the type that polars has for it: no half floats, native byte order."""
    if dtype == np.float16:
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


def array_batches(
    files: list[Arrays],
    columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """Yield rows of arrays as frames, as polars asks an io source for them."""
    n_left = math.inf if n_rows is None else n_rows
    for arrays in files:
        n_read = 0
        fitting = max(1, _BATCH_BYTES // max(arrays.row_bytes, 1))
        most = min(batch_size or BATCH, fitting)
        with arrays.open() as readers:
            while n_read < arrays.rows and n_left > 0:
                n_next = int(min(most, arrays.rows - n_read, n_left))
                frame = _next_frame(arrays, readers, n_next)
                n_read, n_left = n_read + n_next, n_left - n_next
                frame = frame if columns is None else frame.select(columns)
                yield frame if predicate is None else frame.filter(predicate)


def _next_frame(
    arrays: Arrays, readers: dict[str, ArrayReader], n_rows: int
) -> pl.DataFrame:
    try:
        return pl.DataFrame(
            {n: reader.read_rows(n_rows) for n, reader in readers.items()}
        )
    except Exception as error:  # a damaged archive fails in many ways
        raise FileError(_unreadable(arrays.file, error)) from error


def _scan(source: "Source") -> pl.LazyFrame:
    files = [Arrays(file, source.columns) for file in source.files]
    first, *others = files
    for arrays in others:
        if arrays.schema != first.schema:
            message = (
                f"expected arrays in {arrays.file} as in {first.file}, {first.schema}, "
                f"got {arrays.schema}."
            )
            raise FileError(message)
    return register_io_source(
        lambda *pushdown: array_batches(files, *pushdown), schema=first.schema
    )


def _rows(source: "Source") -> int:
    return sum(Arrays(file, source.columns).rows for file in source.files)


def _row_bytes(source: "Source") -> int:
    return Arrays(source.files[0], source.columns).row_bytes


def _largest_piece(source: "Source", *, all_columns: bool) -> int:
    del all_columns  # only needed arrays are read at all
    return max(Arrays(file, source.columns).indivisible_bytes for file in source.files)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    """Write each column as an array, through a file of its own, into the archive."""
    names = rows.collect_schema().names()
    paths = {name: path.with_name(f"{path.name}.{name}") for name in names}
    try:
        _write_columns(rows, paths, source)
        with zipfile.ZipFile(path, "w") as archive:
            for name, column_path in paths.items():
                _add_array(archive, name, column_path)
    finally:
        for column_path in paths.values():
            column_path.unlink(missing_ok=True)


def _write_columns(
    rows: pl.LazyFrame, paths: dict[str, Path], source: "Source"
) -> None:
    """Write each column into its file, and check that every row came."""
    arrays: dict[str, Any] = {}
    end = 0
    for batch in rows.collect_batches(maintain_order=True, engine="streaming"):
        start, end = end, end + len(batch)
        if end > source.rows:
            break
        for name, path in paths.items():
            values = batch[name].to_numpy()
            if values.dtype == object:
                values = _fixed_width(values, source, name)
            array = arrays.get(name)
            if array is None:
                array = np.lib.format.open_memmap(
                    path, "w+", values.dtype, (source.rows,)
                )
            elif array.dtype.itemsize < values.dtype.itemsize:
                array = _widen(path, array, values.dtype, start)
            array[start:end] = values
            arrays[name] = array
    if end != source.rows:
        message = f"expected {source.rows:,} rows in {source.name}, got {end:,}."
        raise FileError(message)


def _widen(path: Path, array: Any, dtype: Any, n_written: int) -> Any:
    """Replace an array in a file by one of longer texts; keep the rows so far."""
    wider_path = path.with_name(f"{path.name}.wider")
    try:
        wider = np.lib.format.open_memmap(wider_path, "w+", dtype, array.shape)
        wider[:n_written] = array[:n_written]
        wider_path.replace(path)
    finally:
        wider_path.unlink(missing_ok=True)
    return wider


def _fixed_width(texts: Any, source: "Source", column: str) -> Any:
    """Return texts of one width, which arrays need; answers may be of any length."""
    names = source.layout.class_names
    if column == "shortlist":
        return texts.astype(f"<U{max(1, *map(len, texts))}")
    if names is None:
        message = "answers of any length do not fit into NPZ. Choose .csv or .parquet."
        raise OutputError(message)
    return texts.astype(f"<U{max(map(len, names))}")


def _add_array(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    # Without a time stamp, so that the same decisions are the same bytes.
    entry = zipfile.ZipInfo(f"{name}.npy")
    entry.compress_type = zipfile.ZIP_DEFLATED
    # zipfile must know in advance whether an entry needs 64-bit sizes.
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
        largest_piece=_largest_piece,
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
