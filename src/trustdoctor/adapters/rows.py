"""What a file holds about its rows beside predictions: ids, texts, pictures."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.adapters.files import read_table, suffix_of, tidy
from trustdoctor.adapters.formats import PICTURES, pillow
from trustdoctor.errors import FileError, InputError

SIDE = 64
"""The longer side of a thumbnail, in pixels."""


def read_column(path: Path, name: str) -> Sequence[Any]:
    """Return a column of a table, or an array of an NPZ file, one entry a row.

    A CSV's column is read as text, so that an id of 00541 stays one.
    """
    suffix = suffix_of(path)
    if suffix == ".npz":
        return _array(path, name)
    table = read_table(path)
    if name not in table.columns:
        message = f"{path} has no {name!r}; it has {', '.join(table.columns[:20])}."
        raise FileError(message)
    if suffix == ".csv":
        text = pl.read_csv(path, infer_schema=False, glob=False)
        table = tidy(text, path)
    return table[name].to_list()


def _array(path: Path, name: str) -> Sequence[Any]:
    with np.load(path, allow_pickle=False) as archive:
        if name not in archive.files:
            message = f"{path} has no {name!r}; it has {', '.join(archive.files[:20])}."
            raise FileError(message)
        try:
            found = archive[name]
        except ValueError as error:  # an array of Python objects would be unpickled
            message = f"the array {name!r} of {path} holds objects. Save it as text."
            raise FileError(message) from error
    if not found.ndim:
        message = f"expected one entry a row in {name!r} of {path}, got a single value."
        raise FileError(message)
    return found


_NUMBER = r"\d+(?:\.\d+)?"
SETTING = (
    rf"(?P<score>alpha|beta|odin)[-_]T(?P<t>{_NUMBER})(?:[-_]eps(?P<eps>{_NUMBER}))?"
)
"""How a name says at which setting perturbed logits were made."""

_PERTURBED = re.compile(rf"pbb_{SETTING}")


def read_perturbed(path: Path) -> dict[tuple[str, float, float], Any]:
    """Return an NPZ's arrays `pbb_SCORE_T1_eps0.00035`, by score, T and epsilon."""
    if path.suffix.lower() != ".npz":
        return {}
    with np.load(path, allow_pickle=False) as archive:
        parsed = {name: _PERTURBED.fullmatch(name) for name in archive.files}
        return {
            (m["score"], float(m["t"]), float(m["eps"] or 0)): archive[name]
            for name, m in parsed.items()
            if m
        }


def read_class_names(path: Path) -> list[str]:
    """Return a text file's lines, one a class in the order of the columns."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read class names from {path}, one a line: {error}."
        raise FileError(message) from error


def thumbnails(
    source: str, path: Path, n: int, ids: Sequence[Any] | None
) -> Callable[[int], bytes | None]:
    """Return what makes a small picture of a row.

    `source` is a folder of pictures (named by the rows' ids, or as many as rows, in
    order of their names), a Parquet file with a column of them, or the name of a
    column or array of the predictions' own file.
    """
    where = Path(source)
    if where.is_dir():
        return _from_folder(where, n, ids)
    if where.suffix == ".parquet" and where.is_file():
        rows = _pictures_of(where)
    else:
        rows = read_column(path, source)
    if len(rows) != n:
        message = f"expected {n:,} pictures, one a row, got {len(rows):,} in {source}."
        raise InputError(message)
    return lambda row: shrink(rows[row])


def _from_folder(
    folder: Path, n: int, ids: Sequence[Any] | None
) -> Callable[[int], bytes | None]:
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES)
    if ids is not None:
        by_name = {p.stem: p for p in files} | {p.name: p for p in files}
        if not any(str(one) in by_name for one in ids):
            message = (
                f"no picture in {folder} is called as any row's id, as {ids[0]!r}."
            )
            raise InputError(message)

        def named(row: int) -> bytes | None:
            file = by_name.get(str(ids[row]))
            return None if file is None else shrink(file.read_bytes())

        return named
    if len(files) != n:
        message = (
            f"expected {n:,} pictures in {folder}, one a row, got {len(files):,}. Name "
            "them by the rows' ids and give --ids."
        )
        raise InputError(message)
    return lambda row: shrink(files[row].read_bytes())


def _pictures_of(path: Path) -> Sequence[Any]:
    schema = pl.read_parquet_schema(path)
    for name in ("image", "img"):
        if name in schema:
            return pl.read_parquet(path).get_column(name).to_list()
    message = f"{path} has no column image or img."
    raise FileError(message)


def shrink(picture: Any) -> bytes | None:
    """Return a JPEG of at most 64 pixels a side; None for what is no picture."""
    image = pillow()
    if isinstance(picture, dict):
        picture = picture.get("bytes")
    try:
        if isinstance(picture, bytes):
            opened = image.open(io.BytesIO(picture))
        else:
            opened = image.fromarray(_pixels(np.asarray(picture)))
        small = opened.convert("RGB")
    except Exception:
        return None
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=75)
    return buffer.getvalue()


def _pixels(array: Any) -> Any:
    """Return bytes (height, width[, 3]) of pixels of any usual kind."""
    if array.dtype.kind == "f" and array.max(initial=0) <= 1:
        array = array * 255
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)  # channels come first
    return np.ascontiguousarray(array.astype(np.uint8).squeeze())
