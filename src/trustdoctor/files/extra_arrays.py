"""What files of arrays hold beside predictions."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError
from trustdoctor.files.formats import suffix_of
from trustdoctor.files.formats.arrays import _Open
from trustdoctor.files.source import Source

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
SETTING = (
    rf"(?P<score>alpha|beta|odin)[-_]T(?P<t>{_NUMBER})(?:[-_]eps(?P<eps>{_NUMBER}))?"
)
"""How a name says at which setting perturbed logits were made."""

_PERTURBED = re.compile(rf"pbb_{SETTING}")


def read_array(source: Source, name: str) -> NDArray[Any]:
    """Return an array beside the predictions, one entry per row of all files."""
    parts = [_array(one, name) for one in source.single()]
    for file, part in zip(source.files, parts, strict=True):
        if part.shape[1:] != parts[0].shape[1:]:
            message = (
                f"expected {name!r} of {file} in rows of the shape "
                f"{parts[0].shape[1:]}, as in {source.files[0]}, got {part.shape[1:]}."
            )
            raise FileError(message)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _array(source: Source, name: str) -> NDArray[Any]:
    (file,) = source.files
    known = _names(file)
    if known is None:
        known = source.names
    elif name in known:
        return _read(file, [name])[name]
    message = f"{file} has no {name!r}; it has {', '.join(known[:20])}."
    raise FileError(message)


def _names(file: Path) -> list[str] | None:
    """Return the names of arrays in a file or beside it; None for a table."""
    if suffix_of(file) == ".npy":
        return sorted(other.stem for other in file.parent.glob("*.npy"))
    if suffix_of(file) != ".npz":
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            inside = archive.namelist()
    except Exception as error:
        raise _unreadable(file, error) from error
    return [name.removesuffix(".npy") for name in inside if name.endswith(".npy")]


def _read(file: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return arrays, one entry per row and as many as their headers announce."""
    try:
        with _Open(file, names) as arrays:
            for name, array in arrays.items():
                if not array.shape:
                    message = f"expected one entry per row in {name!r}, got one value"
                    raise ValueError(message)
            return {name: array.next(array.shape[0]) for name, array in arrays.items()}
    except Exception as error:  # a damaged archive fails in many ways
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> FileError:
    why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return FileError(
        f"cannot read the arrays of {file}: {why}. Save plain numbers or text."
    )


def read_perturbed(path: Path) -> dict[tuple[str, float, float], Any]:
    """Return an NPZ's arrays `pbb_SCORE_T1_eps0.00035`, by score, T and epsilon.

    Each has the shape of another array, which is that of the clean logits.
    """
    if suffix_of(path) != ".npz":
        return {}
    parsed = {name: _PERTURBED.fullmatch(name) for name in _names(path) or ()}
    settings = {
        name: (m["score"], float(m["t"]), float(m["eps"] or 0))
        for name, m in parsed.items()
        if m
    }
    if not settings:
        return {}
    _check_shapes(path, list(settings), [name for name, m in parsed.items() if not m])
    if len(set(settings.values())) < len(settings):
        message = f"{path} has perturbed logits of one setting twice. Leave one out."
        raise FileError(message)
    arrays = _read(path, list(settings))
    return {setting: arrays[name] for name, setting in settings.items()}


def _check_shapes(path: Path, perturbed: list[str], others: list[str]) -> None:
    """Refuse perturbed logits of a shape that no other array has, before reading."""
    try:
        with zipfile.ZipFile(path) as archive:
            shapes = {name: _shape(archive, name) for name in (*perturbed, *others)}
    except Exception as error:
        raise _unreadable(path, error) from error
    known = [shapes[name] for name in others]
    for name in perturbed:
        if len(shapes[name]) != 2 or shapes[name] not in known:
            message = (
                f"expected {name!r} of {path} in the shape of the clean logits, got "
                f"{shapes[name]}. Leave it out."
            )
            raise FileError(message)


def _shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """Return the shape that an array's header announces."""
    with archive.open(f"{name}.npy") as stream:
        first = np.lib.format.read_magic(stream) == (1, 0)
        header = np.lib.format.read_array_header_1_0
        header = header if first else np.lib.format.read_array_header_2_0
        return header(stream)[0]
