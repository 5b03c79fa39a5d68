"""Fitted scores as files: arrays in safetensors, the rest as JSON in its header."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.atomic import replacing
from trustdoctor.errors import FileError, missing_package

SCHEMA = 1


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
        with library.safe_open(path, "np") as file:
            fields = json.loads((file.metadata() or {}).get("json", "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, library.SafetensorError) as error:
        message = (
            f"cannot read {path} as a fitted score (safetensors): {error}. Name the "
            "file that save or compare -o wrote."
        )
        raise FileError(message) from error
    if not isinstance(fields, dict) or not isinstance(fields.get("trustdoctor"), str):
        message = f"{path} is not a score of trustdoctor. Name another file."
        raise FileError(message)
    if fields.pop("schema", None) != SCHEMA:
        message = f"{path} was written by another version of trustdoctor. Use that one."
        raise FileError(message)
    return fields.pop("trustdoctor"), arrays, fields


@contextmanager
def complaining(path: str | Path) -> Iterator[None]:
    """Turn a missing array or field into a message about the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
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
        SafetensorError=safetensors.SafetensorError,
    )
