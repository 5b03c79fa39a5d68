"""Files of fitted scores: arrays in safetensors, plain values as JSON in the header."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor import envelope
from trustdoctor.atomic import replacing
from trustdoctor.envelope import Document, convert
from trustdoctor.errors import FileError, missing_package

SCHEMA = 2

MAX_HEADER_BYTES = 1 << 24


class Header(Document, frozen=True):
    """What the header of a file says: the score's name and its plain values."""

    schema: int
    name: str
    plain: dict[str, Any]


def save(
    path: str | Path, name: str, arrays: dict[str, NDArray[Any]], plain: dict[str, Any]
) -> None:
    """Write a score's arrays and plain values, whole or not at all."""
    header = envelope.dump("score", SCHEMA, {"name": name, "plain": plain}, indent=None)
    contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    with replacing(path) as temporary:
        _safetensors().save_file(contiguous, temporary, {"json": header})


def load(path: str | Path) -> tuple[str, dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `save` wrote: the score's name, its arrays and its plain values."""
    if not Path(path).is_file():
        message = f"there is no file {path}. Check the path."
        raise FileError(message)
    library = _safetensors()
    try:
        _check_header(path)
        with library.safe_open(path, "np") as file:
            text = (file.metadata() or {}).get("json", "null")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        # Not only OSError and ValueError: safetensors passes on what numpy raises for
        # types that numpy does not have (bfloat16, float8).
        reason = (str(error).splitlines() or ["unknown"])[0]
        message = (
            f"cannot read {path} as a fitted score (safetensors): {reason}. Name the "
            "file that save or compare -o wrote."
        )
        raise FileError(message) from error
    content = envelope.check(text, path, "score", schemas=(SCHEMA,))
    with naming_path(path):
        header = convert(content, Header)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            message = f"expected numbers in {name!r} of {path}, got {array.dtype}."
            raise FileError(message)
    return header.name, arrays, header.plain


def _check_header(path: str | Path) -> None:
    """Refuse a header that names an array twice, or is too large."""
    with Path(path).open("rb") as file:
        # safetensors: the header's length in 8 bytes, the header as JSON, the arrays.
        # The library itself would take the last of two arrays of one name.
        (size,) = struct.unpack("<Q", file.read(8))
        if size > MAX_HEADER_BYTES:
            message = f"it announces a header of {size:,} bytes"
            raise ValueError(message)
        envelope.parse(file.read(size).decode())


@contextmanager
def naming_path(path: str | Path) -> Iterator[None]:
    """Turn errors about a score's state into errors that name its file."""
    try:
        yield
    except Exception as error:
        # A changed file may hold a plain value in an array's place: any error of numpy.
        message = f"{path} does not hold a valid score: {error}"
        raise FileError(message) from error


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise missing_package(
            what="saving and loading fitted scores",
            package="safetensors",
            extra="sklearn",
        ) from error

    return SimpleNamespace(
        save_file=safetensors.numpy.save_file,
        safe_open=safetensors.safe_open,
    )
