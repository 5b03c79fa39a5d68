"""Pictures: decoded with suspicion, and small ones of rows."""

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.errors import FileError, InputError, missing_package
from trustdoctor.files.extra_arrays import read_array
from trustdoctor.files.formats import read_row_groups, suffix_of
from trustdoctor.files.source import Source

SIDE = 64
"""The longer side of a thumbnail, in pixels."""

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

PIXELS = 1 << 26
"""Pixels of a picture at most; a file of some kilobytes can announce billions."""

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others start programs


def thumbnails(
    where: str, source: Source, table: pl.DataFrame, ids: Any = None
) -> Callable[[int], bytes | None]:
    """Return what makes a small picture of a row.

    `where` is a folder of pictures (named by the rows' ids, or as many as rows, in
    order of their names), a Parquet file with a column of them, or the name of a
    column or array of the predictions' own file.
    """
    place, n = Path(where), len(table)
    if place.is_dir():
        return _from_folder(place, n, ids)
    rows: Any
    if suffix_of(place) == ".parquet" and place.is_file():
        rows = _pictures_of(place)
    elif where in table.columns:
        rows = table[where].to_list()
    else:
        rows = read_array(source, where)
    if len(rows) != n:
        message = f"expected {n:,} pictures, one per row, got {len(rows):,} in {where}."
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
            return None if file is None else shrink(_content(file), file)

        return named
    if len(files) != n:
        message = (
            f"expected {n:,} pictures in {folder}, one per row, got {len(files):,}. "
            "Name them by the rows' ids and give --ids."
        )
        raise InputError(message)
    return lambda row: shrink(_content(files[row]), files[row])


def _content(file: Path) -> bytes:
    try:
        if file.is_file():  # a pipe would be waited for
            return file.read_bytes()
        why = "it is not a regular file"
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    message = f"cannot read the picture {file}: {why}. Remove it."
    raise FileError(message)


def _pictures_of(path: Path) -> Sequence[Any]:
    try:
        read_row_groups(path)  # says where the file is cut short
        schema = pl.read_parquet_schema(path)
        for name in ("image", "img"):
            if name in schema:
                return pl.scan_parquet(path).select(name).collect()[name].to_list()
    except (Exception, pl.exceptions.PanicException) as error:
        message = f"cannot read the pictures in {path}: it is damaged or cut short."
        raise FileError(message) from error
    message = f"{path} has no column image or img."
    raise FileError(message)


class LargePictureError(FileError):
    """A picture has more pixels than are decoded."""


def decode(raw: bytes, name: object) -> Any:
    """Return an encoded picture in RGB; refuse what is none, and too large ones."""
    image = pillow()
    got = "far more"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = image.open(io.BytesIO(raw), formats=_FORMATS)
            width, height = opened.size
            if width * height <= PIXELS:
                return opened.convert("RGB")
            got = f"{width:,} x {height:,}"
    except image.DecompressionBombError:
        pass  # Pillow has a bound of its own
    except Exception as error:
        message = f"{name} is not a picture that can be read."
        raise FileError(message) from error
    message = (
        f"expected at most {PIXELS:,} pixels in {name}, got {got}. Make it smaller."
    )
    raise LargePictureError(message)


def shrink(picture: Any, name: object = "a picture") -> bytes | None:
    """Return a JPEG of at most 64 pixels per side; None for what is not a picture."""
    image = pillow()
    if isinstance(picture, dict):
        picture = picture.get("bytes")
    try:
        if isinstance(picture, bytes):
            small = decode(picture, name)
        else:
            small = image.fromarray(_pixels(np.asarray(picture))).convert("RGB")
    except LargePictureError:
        raise
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


def pillow() -> Any:
    """Return Pillow's Image module, or say how to install it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package(
            what="reading pictures", package="Pillow", extra="images"
        ) from error
    return Image
