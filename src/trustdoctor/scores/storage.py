"""Fitted scores as files: arrays in safetensors, the rest as JSON in its header."""

import json
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
from trustdoctor.errors import FileError, missing_package

SCHEMA = 1

HEADER = 1 << 24
"""Bytes of a header at most."""


def save(
    path: str | Path, kind: str, arrays: dict[str, NDArray[Any]], fields: dict[str, Any]
) -> None:
    """Write arrays and plain fields, whole or not at all."""
    content = {"trustdoctor": kind, "schema": SCHEMA, **fields}
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with replacing(path) as temporary:
        _safetensors().save_file(plain, temporary, {"json": json.dumps(content)})


def load(path: str | Path) -> tuple[str, dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `save` wrote: the score's name, its arrays and its fields."""
    if not Path(path).is_file():
        message = f"there is no file {path}. Check the path."
        raise FileError(message)
    library = _safetensors()
    try:
        _check_header(path)
        with library.safe_open(path, "np") as file:
            fields = envelope.parse((file.metadata() or {}).get("json", "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # the library lets through what numpy does not know
        why = (str(error).splitlines() or ["unknown"])[0]
        message = (
            f"cannot read {path} as a fitted score (safetensors): {why}. Name the file "
            "that save or compare -o wrote."
        )
        raise FileError(message) from error
    if not isinstance(fields, dict) or not isinstance(fields.get("trustdoctor"), str):
        message = f"{path} is not a score of trustdoctor. Name another file."
        raise FileError(message)
    schema = fields.pop("schema", None)
    if type(schema) is not int or schema != SCHEMA:
        message = f"{path} was written by another version of trustdoctor. Use that one."
        raise FileError(message)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            message = f"expected numbers in {name!r} of {path}, got {array.dtype}."
            raise FileError(message)
    return fields.pop("trustdoctor"), arrays, fields


def _check_header(path: str | Path) -> None:
    """Refuse a header that names an array twice: the library takes the last."""
    with Path(path).open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        if size > HEADER:
            message = f"it announces a header of {size:,} bytes"
            raise ValueError(message)
        envelope.parse(file.read(size).decode())


@contextmanager
def complaining(path: str | Path) -> Iterator[None]:
    """Turn a missing or wrong array or field into a message about the file."""
    try:
        yield
    except Exception as error:  # a plain value may stand where an array is expected
        message = f"{path} does not hold such a score: {error}"
        raise FileError(message) from error


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        what = "saving and loading fitted scores"
        raise missing_package(
            what=what, package="safetensors", extra="sklearn"
        ) from error

    return SimpleNamespace(
        save_file=safetensors.numpy.save_file,
        safe_open=safetensors.safe_open,
    )
