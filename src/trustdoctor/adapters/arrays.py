"""Arrays of NPZ and NPY files, row by row: from the archive, or mapped into memory."""

import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.adapters.files import Columns, array_names, first_line, suffix_of
from trustdoctor.errors import FileError, InputError

BATCH = 1 << 16
"""Rows read at a time."""


class Arrays:
    """The arrays of an NPZ file, or an NPY file with its neighbours."""

    def __init__(self, file: Path, columns: Columns) -> None:
        self.file, self.need_labels = file, columns.need_labels
        try:
            if suffix_of(file) == ".npz":
                with zipfile.ZipFile(file) as archive:
                    names = [n.removesuffix(".npy") for n in archive.namelist()]
            else:
                names = [other.stem for other in sorted(file.parent.glob("*.npy"))]
                columns = _about(file, columns)
            self.names = array_names(names, columns, file)
            with self.open() as arrays:
                self.shapes = {n: (a.shape, a.dtype) for n, a in arrays.items()}
                sizes = [a.mapped.nbytes for a in arrays.values() if a.whole]
            self.whole = sum(sizes)
        except (FileError, InputError):
            raise
        except Exception as error:
            message = (
                f"cannot read {file} as {file.suffix[1:].upper()}: "
                f"{first_line(error)}. The file may be cut short, or hold pickled "
                "objects, which are refused; write plain numeric arrays."
            )
            raise FileError(message) from error
        self._check()

    def _check(self) -> None:
        (shape, dtype), *rest = self.shapes.values()
        if len(shape) != 2 or dtype.kind not in "fiu" or dtype.itemsize > 8:
            message = (
                f"{self.file}: expected {self.names[0]} as numbers of shape (n, C), "
                f"got {dtype} of shape {shape}."
            )
            raise FileError(message)
        for other, kind in rest:
            if other == shape[:1] and kind.kind in "iuf" and kind.itemsize <= 8:
                continue
            if self.need_labels:
                message = (
                    f"{self.file}: expected labels as {shape[0]} integers, one a row, "
                    f"got {kind} of shape {other}."
                )
                raise FileError(message)
            self.names = self.names[:1]
            self.shapes = {self.names[0]: (shape, dtype)}

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


def _about(file: Path, columns: Columns) -> Columns:
    """Say that the values are in the file that was named."""
    if columns.logits is None and columns.probs is None and file.stem == "probs":
        return Columns(None, "probs", columns.labels, columns.need_labels)
    if columns.probs is not None:
        return columns
    if columns.logits is None and file.stem != "logits":
        message = (
            f"an array of its own does not say what it holds. Call it logits.npy or "
            f"probs.npy, or give --logits {file.stem} or --probs {file.stem}."
        )
        raise FileError(message)
    return Columns(file.stem, None, columns.labels, columns.need_labels)


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
        message = (
            f"cannot read {one.file}: {first_line(error)}. The file may be damaged; "
            "write it again."
        )
        raise FileError(message) from error
