"""Images: decoded with suspicion, and thumbnails of rows."""

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

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

PIXELS = 1 << 26
"""Pixels of a picture at most; a file of some kilobytes can announce billions."""

_PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that Pillow decodes itself; for others, as EPS, it starts programs."""


def thumbnails(
    where: str, source: Source, table: pl.DataFrame, ids: Any = None
) -> Callable[[int], bytes | None]:
    """Return a function that makes the thumbnail of a row.

    `where` is a folder of pictures (named by the rows' ids, or one for each row, in the
    order of their names), a Parquet file with a column of them, or the name of a
    column or array of the predictions' own file.
    """
    path, n_rows = Path(where), len(table)
    if path.is_dir():
        return _folder_thumbnails(path, n_rows, ids)
    pictures: Any
    if suffix_of(path) == ".parquet" and path.is_file():
        pictures = _read_parquet_column(path)
    elif where in table.columns:
        pictures = table[where].to_list()
    else:
        pictures = read_array(source, where)
    if len(pictures) != n_rows:
        message = (
            f"expected {n_rows:,} pictures, one per row, got {len(pictures):,} in "
            f"{where}."
        )
        raise InputError(message)
    return lambda row: shrink(pictures[row])


def _folder_thumbnails(
    folder: Path, n_rows: int, ids: Sequence[Any] | None
) -> Callable[[int], bytes | None]:
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    if ids is not None:
        by_name = {p.stem: p for p in files} | {p.name: p for p in files}
        if not any(str(row_id) in by_name for row_id in ids):
            message = (
                f"no picture in {folder} is called as any row's id, as {ids[0]!r}."
            )
            raise InputError(message)

        def thumbnail(row: int) -> bytes | None:
            file = by_name.get(str(ids[row]))
            return None if file is None else shrink(_read_bytes(file), file)

        return thumbnail
    if len(files) != n_rows:
        message = (
            f"expected {n_rows:,} pictures in {folder}, one per row, got "
            f"{len(files):,}. Name them by the rows' ids and give --ids."
        )
        raise InputError(message)
    return lambda row: shrink(_read_bytes(files[row]), files[row])


def _read_bytes(file: Path) -> bytes:
    try:
        if file.is_file():  # reading a pipe would wait for a writer
            return file.read_bytes()
        why = "it is not a regular file"
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    message = f"cannot read the picture {file}: {why}. Remove it."
    raise FileError(message)


def _read_parquet_column(path: Path) -> Sequence[Any]:
    try:
        read_row_groups(path)  # refuses damaged pages, on which polars aborts
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
    size = "far more"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = image.open(io.BytesIO(raw), formats=_PILLOW_FORMATS)
            width, height = picture.size  # from the header; nothing is decoded yet
            if width * height <= PIXELS:
                return picture.convert("RGB")
            size = f"{width:,} x {height:,}"
    except image.DecompressionBombError:
        pass  # Pillow refuses more than 179 million pixels itself
    except Exception as error:
        message = f"{name} is not a picture that can be read."
        raise FileError(message) from error
    message = (
        f"expected at most {PIXELS:,} pixels in {name}, got {size}. Make it smaller."
    )
    raise LargePictureError(message)


def shrink(picture: Any, name: object = "a picture") -> bytes | None:
    """Return a JPEG of at most 64 pixels per side; None for what is not a picture."""
    image = pillow()
    if isinstance(picture, dict):  # of Hugging Face's datasets
        picture = picture.get("bytes")
    try:
        if isinstance(picture, bytes):
            thumbnail = decode(picture, name)
        else:
            thumbnail = image.fromarray(_as_pixels(np.asarray(picture))).convert("RGB")
    except LargePictureError:
        raise
    except Exception:
        return None
    thumbnail.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    thumbnail.save(buffer, "JPEG", quality=75)
    return buffer.getvalue()


def _as_pixels(array: Any) -> Any:
    """Return pixels of any usual kind as bytes (height, width[, 3])."""
    if array.dtype.kind == "f" and array.max(initial=0) <= 1:
        array = array * 255
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)  # torch puts channels first
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
