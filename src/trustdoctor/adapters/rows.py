"""What a file holds about its rows beside predictions: ids, texts, pictures."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.adapters.datasets import PICTURES, pillow
from trustdoctor.adapters.files import read_table, suffix_of
from trustdoctor.errors import FileError, InputError

SIDE = 64
"""The longer side of a thumbnail, in pixels."""


def read_column(path: Path, name: str) -> Sequence[Any]:
    """Return a column of a table, or an array of an NPZ file, one entry a row."""
    if suffix_of(path) == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            if name in names:
                return archive[name]
    else:
        table = read_table(path)
        names = table.columns
        if name in names:
            return table[name].to_list()
    message = f"{path} has no {name!r}; it has {', '.join(names[:20])}."
    raise FileError(message)


SETTING = r"(?P<score>alpha|beta|odin)[-_]T(?P<t>[\d.]+?)(?:[-_]eps(?P<eps>[\d.]+))?"
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
            opened = image.fromarray(np.asarray(picture, np.uint8).squeeze())
        small = opened.convert("RGB")
    except Exception:
        return None
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=75)
    return buffer.getvalue()
