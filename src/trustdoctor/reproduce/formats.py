"""Readers of the file formats in which data sets are published.

Each checks what it finds: a wrong or partial download is named as such, nothing in a
file is run, and none takes more memory than the largest of these data sets.
"""

import gzip
import io
import json
import math
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trustdoctor.errors import FileError, missing_package
from trustdoctor.files import IMAGE_SUFFIXES, POLARS_ERRORS, pillow
from trustdoctor.files.formats.parquet import read_row_groups
from trustdoctor.files.images import decode
from trustdoctor.reproduce.matlab import read_matlab
from trustdoctor.reproduce.pickles import read_pickle

LIMIT = 1 << 30
"""Bytes that a file has at most, unpacked."""

LINE = 1 << 24
"""Bytes that a review has at most."""

ROWS = 1 << 22
"""Rows that a table has at most."""

_EXAMPLES = ("text", "image", "img")
"""What data hubs call the column of texts or pictures."""


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


def _broken(path: Path, why: object) -> FileError:
    why = f"it has no {why}" if isinstance(why, KeyError) else why
    return FileError(
        f"{path} is damaged, cut short or another file: {why}. Download it again."
    )


def _check_file(path: Path, most: int = LIMIT) -> None:
    """Refuse a path that is not a regular file, and a file that is too large."""
    try:
        info = path.stat()
    except OSError as error:
        message = f"cannot read {path}: {(error.strerror or str(error)).lower()}."
        raise FileError(message) from error
    if not stat.S_ISREG(info.st_mode):  # a pipe would be waited for
        message = f"expected a file at {path}, got a folder, a pipe or a device."
        raise FileError(message)
    if info.st_size > most:
        raise _broken(path, f"it has more than {most:,} bytes")


def _read_bytes(path: Path, most: int = LIMIT) -> bytes:
    _check_file(path, most)
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {(error.strerror or str(error)).lower()}."
        raise FileError(message) from error


def _read_text(path: Path, most: int = LIMIT) -> str:
    try:
        return _read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise _broken(path, "it is not a text") from error


def cifar_pickles(names: dict[str, list[str]], label: bytes) -> Reader:
    """Return a reader of CIFAR's pickles: the files of each split, the labels' key."""

    def read(folder: Path, split: str) -> Examples:
        batches = [_cifar_pickle(folder / name, label) for name in names[split]]
        pixels, labels = zip(*batches, strict=True)
        return Examples(np.concatenate(pixels), np.concatenate(labels))

    return read


def _cifar_pickle(path: Path, label: bytes) -> tuple[Any, Any]:
    raw = _read_bytes(path)
    try:
        content = read_pickle(raw)
        pixels, labels = content[b"data"], content[label]
    except Exception as error:
        raise _broken(path, error) from error
    integers = type(labels) is list and all(type(k) is int for k in labels)
    if not integers or not 0 <= min(labels, default=-1) <= max(labels) < 100:
        raise _broken(path, f"expected classes from 0 in a list {label.decode()!r}")
    shape = (len(labels), 3072)
    if getattr(pixels, "shape", None) != shape or pixels.dtype != np.uint8:
        raise _broken(path, f"expected bytes of the shape {shape} as 'data'")
    planes = pixels.reshape(-1, 3, 32, 32)  # red, then green, then blue
    return planes.transpose(0, 2, 3, 1), np.array(labels, np.int64)


def cifar_binary(names: dict[str, list[str]], label: int, head: int) -> Reader:
    """Read records of `head` label bytes and 3,072 of pixels; `label` is which byte."""

    def read_batch(path: Path) -> tuple[Any, Any]:
        raw = np.frombuffer(_read_bytes(path), np.uint8)
        if not len(raw) or len(raw) % (head + 3072):
            raise _broken(
                path, f"{len(raw):,} bytes do not make records of {head + 3072:,}"
            )
        records = raw.reshape(-1, head + 3072)
        planes = records[:, head:].reshape(-1, 3, 32, 32)
        return planes.transpose(0, 2, 3, 1), records[:, label].astype(np.int64)

    def read(folder: Path, split: str) -> Examples:
        batches = [read_batch(folder / name) for name in names[split]]
        pixels, labels = zip(*batches, strict=True)
        return Examples(np.concatenate(pixels), np.concatenate(labels))

    return read


def read_svhn(path: Path, split: str) -> Examples:
    """Read test_32x32.mat; its class 10 is the digit 0."""
    del split
    raw = _read_bytes(path)
    try:
        content = read_matlab(raw, most=LIMIT)
        pixels, labels = content["X"], content["y"].ravel()
    except Exception as error:
        raise _broken(path, error) from error
    shape = (32, 32, 3, len(labels))
    if pixels.shape != shape or pixels.dtype != np.uint8:
        raise _broken(path, f"expected bytes of the shape {shape}, got {pixels.shape}")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise _broken(path, "expected digits from 1 to 10 as labels")
    images = np.ascontiguousarray(pixels.transpose(3, 0, 1, 2))
    # MATLAB counts from 1, and the digit 0 comes last.
    return Examples(images, labels.astype(np.int64) % 10)


def read_house_numbers(path: Path, split: str) -> Examples:
    """Cut the digits out of SVHN's full numbers: digitStruct.mat beside its pictures.

    A box is widened to a square about its centre; pixels beyond the picture repeat its
    edge, and the square becomes 32 x 32. The cropped set of the data set's authors was
    made likewise, but not by this code: pixels differ.
    """
    del split
    pictures = _read_boxes(path)
    if sum(len(boxes) for _, boxes in pictures) > ROWS:
        raise _broken(path, f"it has more than {ROWS:,} digits")
    cut = [
        (_cut_square(picture, box), int(box[0]) % 10)
        for name, boxes in pictures
        for picture in [_house(path, name)]
        for box in boxes
    ]
    digits, labels = zip(*cut, strict=True)
    return Examples(np.stack(digits), np.array(labels, np.int64))


_BOX = ("label", "left", "top", "width", "height")
_LARGEST_BOX = 1 << 12
"""Pixels of a box's side at most; the data set's largest has a few hundred."""


def _read_boxes(path: Path) -> list[tuple[str, NDArray[np.float64]]]:
    """Return each picture's name and boxes (digits, 5) out of a MATLAB file of 7.3."""
    try:
        import h5py  # MATLAB 7.3 is HDF5
    except ImportError as error:
        raise missing_package(
            what="SVHN's full numbers", package="h5py", extra="reproduce"
        ) from error
    _check_file(path)
    try:
        with h5py.File(path, "r") as file:
            struct = file["digitStruct"]
            names = [
                "".join(map(chr, file[reference][()].ravel()))
                for reference in struct["name"][()].ravel()
            ]
            boxes = [
                np.stack([_box_field(file, file[group][name]) for name in _BOX], 1)
                for group in struct["bbox"][()].ravel()
            ]
            pictures = list(zip(names, boxes, strict=True))
    except Exception as error:
        raise _broken(path, error) from error
    for name, box in pictures:
        if not name or Path(name).name != name:
            raise _broken(path, "a picture in it lies outside its folder")
        sides = box[:, 3:]
        digits = np.isin(box[:, 0], np.arange(1, 11)).all()
        if not digits or not (np.abs(box) < _LARGEST_BOX).all() or (sides < 1).any():
            raise _broken(path, f"expected digits from 1 to 10 in boxes, see {name}")
    if not pictures:
        raise _broken(path, "it names no picture")
    return pictures


def _box_field(file: Any, stored: Any) -> NDArray[np.float64]:
    """Return one number for each digit; several are stored as references."""
    values = stored[()].ravel()
    if values.dtype.kind != "O":
        return values.astype(np.float64)
    return np.array([file[reference][()].item() for reference in values], np.float64)


def _house(path: Path, name: str) -> NDArray[np.uint8]:
    file = path.parent / name
    return np.asarray(decode(_read_bytes(file), file))


def _cut_square(
    picture: NDArray[np.uint8], box: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return the square about a box, 32 x 32."""
    _, left, top, width, height = box
    side = round(max(width, height))
    first_row = round(top + (height - side) / 2)
    first_column = round(left + (width - side) / 2)
    rows = np.arange(first_row, first_row + side).clip(0, picture.shape[0] - 1)
    columns = np.arange(first_column, first_column + side).clip(0, picture.shape[1] - 1)
    image = pillow()
    square = image.fromarray(picture[np.ix_(rows, columns)])
    return np.asarray(square.resize((32, 32), image.Resampling.BICUBIC))


def read_tiny_imagenet(folder: Path, split: str) -> Examples:
    """Read the training rows, or those of validation; classes in order of wnid.

    The test rows have no labels, so `test` names those of validation.
    """
    wnids = sorted(_read_text(folder / "wnids.txt").split())
    number = {wnid: i for i, wnid in enumerate(wnids)}
    if split == "train":
        return _tiny_imagenet_train(folder, number)
    path = folder / "val" / "val_annotations.txt"
    lines = [line.split("\t") for line in _read_text(path).splitlines()]
    try:
        labels = np.array([number[line[1]] for line in lines], np.int64)
    except (IndexError, KeyError) as error:
        raise _broken(path, f"no class {error}") from error
    if any(Path(line[0]).name != line[0] for line in lines):
        raise _broken(path, "a picture in it lies outside its folder")
    files = [folder / "val" / "images" / line[0] for line in lines]
    return Examples(_pictures(files), labels)


def _tiny_imagenet_train(folder: Path, number: dict[str, int]) -> Examples:
    files: list[Path] = []
    labels: list[int] = []
    for wnid, label in number.items():
        if Path(wnid).name != wnid:
            raise _broken(folder / "wnids.txt", "a class in it lies outside its folder")
        class_files = sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
        files += class_files
        labels += [label] * len(class_files)
    if not files:
        message = f"{folder / 'train'} holds no WNID/images/*.JPEG."
        raise FileError(message)
    return Examples(_pictures(files), np.array(labels, np.int64))


def read_imdb(folder: Path, split: str) -> Examples:
    """Read aclImdb: the negative reviews, then the positive ones, by file number."""
    texts: list[str] = []
    labels: list[int] = []
    remaining = LIMIT
    for label, kind in enumerate(("neg", "pos")):
        try:
            files = sorted(
                (folder / split / kind).glob("*_*.txt"),
                key=lambda file: int(file.stem.split("_")[0]),
            )
        except (OSError, ValueError) as error:
            raise _broken(folder / split / kind, error) from error
        for file in files:
            texts.append(_read_text(file, remaining))
            remaining -= len(texts[-1])
        labels += [label] * len(files)
    return Examples(texts, np.array(labels, np.int64))


def read_amazon(path: Path, split: str) -> Examples:
    """Read one review per line (JSON, gzipped or not); labels are stars less 1."""
    del split
    texts: list[str] = []
    stars: list[int] = []
    with _opened(path) as stream:
        try:
            for line in _lines(stream):
                review = json.loads(line)
                stars.append(_stars(review["overall"]))
                texts.append(str(review.get("reviewText", "")))
        except Exception as error:
            why = f"expected reviews of 1 to 5 stars, line {len(texts) + 1:,} is none"
            raise _broken(path, why) from error
    if not stars:
        raise _broken(path, "expected reviews of 1 to 5 stars, got none")
    return Examples(texts, np.array(stars, np.int64) - 1)


def _stars(number: Any) -> int:
    if type(number) not in (int, float) or number not in range(1, 6):
        raise ValueError(number)
    return int(number)


def _opened(path: Path) -> BinaryIO:
    """Return a file's content as a stream, decompressed if it is gzipped."""
    raw = io.BytesIO(_read_bytes(path))
    packed = raw.getvalue().startswith(b"\x1f\x8b")
    return gzip.open(raw) if packed else raw  # type: ignore[return-value]


def _lines(stream: BinaryIO) -> Iterator[str]:
    """Yield lines that are not empty; refuse long ones, and too many."""
    remaining = LIMIT
    while line := stream.readline(LINE + 1):
        remaining -= len(line)
        if len(line) > LINE or remaining < 0:
            message = "it is too long"
            raise ValueError(message)
        if line.strip():
            yield line.decode()


def read_parquet(path: Path, split: str) -> Examples:
    """Read images (encoded) or texts with labels, as data hubs store them."""
    _check_file(path)
    try:
        table = _table(path, split)
        values = _column(table, *_EXAMPLES)
        labels = _column(table, "label", "fine_label")
    except FileError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise _broken(path, (str(error).splitlines() or ["unknown"])[0]) from error
    if values is None:
        message = f"{path} has no column image, img or text."
        raise FileError(message)
    if not len(values):
        raise _broken(path, f"it has no rows of the split {split!r}")
    if labels is not None and (labels.null_count() or not labels.dtype.is_integer()):
        message = f"{path}: expected whole numbers in the column {labels.name!r}."
        raise FileError(message)
    numbers = None if labels is None else labels.cast(pl.Int64).to_numpy()
    return Examples(_texts_or_pictures(path, values), numbers)


def holds_examples(path: Path) -> bool:
    """Return whether a CSV or Parquet file has pictures or texts, no model output."""
    scan = pl.scan_csv if path.suffix == ".csv" else pl.scan_parquet
    try:
        schema = scan(path, glob=False).collect_schema()
    except (OSError, *POLARS_ERRORS):
        return False  # a damaged file is named by what reads it
    other_types = [schema[name] for name in schema if name not in _EXAMPLES]
    # A model's output is one list, or one number per class: a single number, as the
    # stars of a review, is none.
    numbers = sum(dtype.is_float() for dtype in other_types)
    output = numbers > 1 or any(isinstance(d, (pl.List, pl.Array)) for d in other_types)
    return len(other_types) < len(schema) and not output


def _table(path: Path, split: str) -> pl.DataFrame:
    """Return the columns that a data set may have, and the rows of the split."""
    wanted = ("split", *_EXAMPLES, "label", "fine_label")
    names = [name for name in pl.read_parquet_schema(path) if name in wanted]
    groups = read_row_groups(path)
    if sum(g.rows for g in groups) > ROWS or sum(g.size for g in groups) > LIMIT:
        message = f"it announces more than {ROWS:,} rows or {LIMIT:,} bytes"
        raise ValueError(message)
    table = pl.scan_parquet(path, glob=False).select(names).collect()
    return table.filter(pl.col("split") == split) if "split" in names else table


def _column(table: pl.DataFrame, *names: str) -> pl.Series | None:
    name = next((name for name in names if name in table.columns), None)
    if name is None:
        return None
    column = table[name]
    nested = isinstance(column.dtype, pl.Struct)
    return column.struct.field("bytes").alias(name) if nested else column


def _texts_or_pictures(path: Path, values: pl.Series) -> Any:
    text = values.name == "text"
    if values.dtype != (pl.String if text else pl.Binary) or values.null_count():
        expected = "a text" if text else "an encoded picture"
        message = f"{path}: expected {expected} in every row of {values.name!r}."
        raise FileError(message)
    size = values.str.len_bytes() if text else values.bin.size()
    if int(size.sum()) > LIMIT:  # one value, repeated by its number in a dictionary
        raise _broken(path, f"{values.name!r} has more than {LIMIT:,} bytes")
    return values.to_list() if text else _pictures(values.to_list())


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
    places = [folder / f"{stem}{end}" for stem in spelled for end in ("", ".gz")]
    path = next((place for place in places if place.is_file()), places[0])
    with _opened(path) as stream:
        try:
            begin = stream.read(4)
            shape = struct.unpack(f">{ndim}I", stream.read(4 * ndim))
            size = math.prod(shape)
            content = stream.read(min(size, LIMIT) + 1)
        except Exception as error:
            raise _broken(path, error) from error
    if begin != bytes((0, 0, 8, ndim)):
        raise _broken(path, "it does not begin as an idx file of bytes does")
    if len(content) != size:
        fewer_or_more = "fewer" if len(content) < size else "more"
        raise _broken(
            path, f"it announces {size:,} bytes, and there are {fewer_or_more}"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_folder(folder: Path, split: str) -> Examples:
    """Read all pictures below a folder, in order of their paths, without labels."""
    del split
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        message = f"{folder} holds no pictures ({', '.join(IMAGE_SUFFIXES)})."
        raise FileError(message)
    return Examples(_pictures(files))


def _pictures(files: list[Any]) -> NDArray[np.uint8]:
    """Decode pictures (paths or bytes) to RGB, in the size of the first."""
    image = pillow()
    decoded: list[NDArray[np.uint8]] = []
    size = None
    for i, file in enumerate(files):
        name = file if isinstance(file, Path) else f"picture {i}"
        picture = decode(_read_bytes(file) if isinstance(file, Path) else file, name)
        size = size or picture.size
        if 3 * math.prod(size) * len(files) > 4 * LIMIT:
            message = (
                f"expected pictures of at most {4 * LIMIT:,} bytes in all, got "
                f"{len(files):,} of {size[0]:,} x {size[1]:,}. Make them smaller."
            )
            raise FileError(message)
        if picture.size != size:
            picture = picture.resize(size, image.Resampling.BILINEAR)
        decoded.append(np.asarray(picture))
    return np.stack(decoded)


def resize(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Resize images (n, h, w, 3), bilinearly."""
    if pixels.shape[1:3] == (height, width):
        return pixels
    image = pillow()
    return np.stack(
        [
            np.asarray(
                image.fromarray(picture).resize(
                    (width, height), image.Resampling.BILINEAR
                )
            )
            for picture in pixels
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
