"""Readers of the file formats in which data sets are published.

Each checks what it finds: a wrong or partial download is named as such, and pickles may
hold plain arrays alone.
"""

import gzip
import io
import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.errors import FileError
from trustdoctor.files import PICTURES, pillow


@dataclass(frozen=True, eq=False)
class Examples:
    """What a data set holds, in the order of its files: images or texts, and labels.

    Attributes
    ----------
    values : array (n, height, width, 3) of uint8, or list of str
        Images, or texts.
    labels : array (n,), or None
    """

    values: Any
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.values)


Reader = Callable[[Path, str], Examples]


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, dicts, lists and strings; refuses whatever could run code."""

    ALLOWED = frozenset(
        {
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            message = f"it asks for {module}.{name}"
            raise pickle.UnpicklingError(message)
        return super().find_class(module, name)


def _broken(path: Path, why: object) -> FileError:
    return FileError(
        f"{path} is damaged, cut short or another file: {why}. Download it again."
    )


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {(error.strerror or str(error)).lower()}."
        raise FileError(message) from error


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise _broken(path, "it is not a text") from error


def cifar_pickles(names: dict[str, list[str]], label: bytes) -> Reader:
    """Return a reader of CIFAR's pickles: the files of each split, the labels' key."""

    def read(folder: Path, split: str) -> Examples:
        parts = [_cifar_pickle(folder / name, label) for name in names[split]]
        pixels, labels = zip(*parts, strict=True)
        return Examples(np.concatenate(pixels), np.concatenate(labels))

    return read


def _cifar_pickle(path: Path, label: bytes) -> tuple[Any, Any]:
    try:
        content = _PlainUnpickler(
            io.BytesIO(_read_bytes(path)), encoding="bytes"
        ).load()
        pixels, labels = content[b"data"], np.asarray(content[label], np.int64)
        planes = np.asarray(pixels, np.uint8).reshape(len(labels), 3, 32, 32)
    except FileError:
        raise
    except Exception as error:
        raise _broken(path, error) from error
    return planes.transpose(0, 2, 3, 1), labels


def cifar_binary(names: dict[str, list[str]], label: int, head: int) -> Reader:
    """Read records of `head` label bytes and 3,072 of pixels; `label` is which byte."""

    def one(path: Path) -> tuple[Any, Any]:
        raw = np.frombuffer(_read_bytes(path), np.uint8)
        if not len(raw) or len(raw) % (head + 3072):
            raise _broken(
                path, f"{len(raw):,} bytes do not make records of {head + 3072:,}"
            )
        records = raw.reshape(-1, head + 3072)
        planes = records[:, head:].reshape(-1, 3, 32, 32)
        return planes.transpose(0, 2, 3, 1), records[:, label].astype(np.int64)

    def read(folder: Path, split: str) -> Examples:
        pixels, labels = zip(*map(one, (folder / n for n in names[split])), strict=True)
        return Examples(np.concatenate(pixels), np.concatenate(labels))

    return read


def read_svhn(path: Path, split: str) -> Examples:
    """Read test_32x32.mat; its class 10 is the digit 0."""
    from scipy.io import loadmat

    del split
    raw = _read_bytes(path)
    try:
        content = loadmat(io.BytesIO(raw))
        labels = np.asarray(content["y"], np.int64).ravel() % 10
        pixels = np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2))
    except Exception as error:
        raise _broken(path, error) from error
    if pixels.shape[1:] != (32, 32, 3) or len(pixels) != len(labels):
        raise _broken(path, f"{pixels.shape} pixels and {len(labels)} labels")
    return Examples(pixels, labels)


def read_tiny_imagenet(folder: Path, split: str) -> Examples:
    """Read the validation rows, which alone have labels; classes in order of wnid."""
    del split
    wnids = sorted(_read_text(folder / "wnids.txt").split())
    number = {wnid: i for i, wnid in enumerate(wnids)}
    path = folder / "val" / "val_annotations.txt"
    lines = [line.split("\t") for line in _read_text(path).splitlines()]
    try:
        labels = np.array([number[line[1]] for line in lines], np.int64)
    except (IndexError, KeyError) as error:
        raise _broken(path, f"no class {error}") from error
    files = [folder / "val" / "images" / line[0] for line in lines]
    return Examples(_pictures(files), labels)


def read_imdb(folder: Path, split: str) -> Examples:
    """Read aclImdb: the negative reviews, then the positive ones, by file number."""
    texts: list[str] = []
    labels: list[int] = []
    for label, kind in enumerate(("neg", "pos")):
        try:
            files = sorted(
                (folder / split / kind).glob("*_*.txt"),
                key=lambda file: int(file.stem.split("_")[0]),
            )
            texts += [file.read_text(encoding="utf-8") for file in files]
        except (OSError, ValueError) as error:
            raise _broken(folder / split / kind, error) from error
        labels += [label] * len(files)
    return Examples(texts, np.array(labels, np.int64))


def read_amazon(path: Path, split: str) -> Examples:
    """Read one review per line (JSON, gzipped or not); labels are stars less 1."""
    del split
    raw = _read_bytes(path)
    try:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        rows = [json.loads(line) for line in text.decode().splitlines() if line.strip()]
        stars = np.array([row["overall"] for row in rows], np.int64)
        texts = [str(row.get("reviewText", "")) for row in rows]
    except Exception as error:
        raise _broken(path, error) from error
    if not len(stars) or stars.min() < 1 or stars.max() > 5:
        raise _broken(path, "expected reviews of 1 to 5 stars")
    return Examples(texts, stars - 1)


def read_parquet(path: Path, split: str) -> Examples:
    """Read images (encoded) or texts with labels, as data hubs store them."""
    try:
        table = pl.read_parquet(path)
    except Exception as error:
        raise _broken(path, str(error).splitlines()[0]) from error
    if "split" in table.columns:
        table = table.filter(pl.col("split") == split)
    if not len(table):
        raise _broken(path, f"it has no rows of the split {split!r}")
    label = next((n for n in ("label", "fine_label") if n in table.columns), None)
    try:
        labels = None if label is None else table[label].cast(pl.Int64).to_numpy()
    except pl.exceptions.PolarsError as error:
        message = f"{path}: expected whole numbers in the column {label!r}."
        raise FileError(message) from error
    if "text" in table.columns:
        return Examples(table["text"].to_list(), labels)
    name = next((n for n in ("image", "img") if n in table.columns), None)
    if name is None:
        message = f"{path} has no column image, img or text."
        raise FileError(message)
    column = table[name]
    if isinstance(column.dtype, pl.Struct):
        column = column.struct.field("bytes")
    return Examples(_pictures(column.to_list()), labels)


def read_idx(path: Path, split: str) -> Examples:
    """Read the idx files of MNIST and Fashion-MNIST, gzipped or not."""
    stem = {"test": "t10k", "train": "train"}[split]
    pixels = _idx(path, f"{stem}-images-idx3-ubyte", 3)
    labels = _idx(path, f"{stem}-labels-idx1-ubyte", 1).astype(np.int64)
    if len(pixels) != len(labels):
        raise _broken(path, f"{len(pixels)} images and {len(labels)} labels")
    return Examples(np.repeat(pixels[..., None], 3, axis=-1), labels)


def _idx(folder: Path, name: str, ndim: int) -> NDArray[np.uint8]:
    spelled = (name, name.replace("-idx", ".idx"))  # mirrors use either
    places = [folder / f"{one}{end}" for one in spelled for end in ("", ".gz")]
    path = next((place for place in places if place.is_file()), places[0])
    raw = _read_bytes(path)
    try:
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        shape = struct.unpack(f">{ndim}I", raw[4 : 4 + 4 * ndim])
        if raw[:4] != bytes((0, 0, 8, ndim)):
            raise _broken(path, "it does not begin as an idx file of bytes does")
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * ndim).reshape(shape)
    except FileError:
        raise
    except Exception as error:
        raise _broken(path, error) from error


def read_folder(folder: Path, split: str) -> Examples:
    """Read all pictures below a folder, in order of their paths, without labels."""
    del split
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in PICTURES)
    if not files:
        message = f"{folder} holds no pictures ({', '.join(PICTURES)})."
        raise FileError(message)
    return Examples(_pictures(files))


def _pictures(files: list[Any]) -> NDArray[np.uint8]:
    """Decode pictures (paths or bytes) to RGB, in the size of the first."""
    image = pillow()
    decoded: list[NDArray[np.uint8]] = []
    size = None
    for i, file in enumerate(files):
        raw = _read_bytes(file) if isinstance(file, Path) else file
        try:
            with image.open(io.BytesIO(raw)) as opened:
                picture = opened.convert("RGB")
        except Exception as error:
            name = file if isinstance(file, Path) else Path(f"picture {i}")
            raise _broken(name, "it is not a picture") from error
        size = size or picture.size
        if picture.size != size:
            picture = picture.resize(size, image.Resampling.BILINEAR)
        decoded.append(np.asarray(picture))
    return np.stack(decoded)


def resize(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Bring images (n, h, w, 3) to another size, bilinearly."""
    if pixels.shape[1:3] == (height, width):
        return pixels
    image = pillow()
    return np.stack(
        [
            np.asarray(
                image.fromarray(one).resize((width, height), image.Resampling.BILINEAR)
            )
            for one in pixels
        ]
    )


def read_images(path: Path) -> Examples:
    """Read a folder of pictures or of idx files, or a Parquet file of pictures."""
    if path.is_file():
        return read_parquet(path, "test")
    if not path.is_dir():
        message = f"there is no folder or file {path}."
        raise FileError(message)
    if any(path.glob("t10k-images?idx3-ubyte*")):
        return read_idx(path, "test")
    return read_folder(path, "test")
