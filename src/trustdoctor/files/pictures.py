"""Small pictures of rows."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.errors import FileError, InputError, missing_package
from trustdoctor.files.annotations import read_array
from trustdoctor.files.formats import suffix_of
from trustdoctor.files.source import Source

SIDE = 64
"""The longer side of a thumbnail, in pixels."""


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
            return None if file is None else shrink(file.read_bytes())

        return named
    if len(files) != n:
        message = (
            f"expected {n:,} pictures in {folder}, one per row, got {len(files):,}. "
            "Name them by the rows' ids and give --ids."
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
    """Return a JPEG of at most 64 pixels per side; None for what is not a picture."""
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


PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def pillow() -> Any:
    """Return Pillow's Image module, or say how to install it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package(
            what="reading pictures", package="Pillow", extra="images"
        ) from error
    return Image
