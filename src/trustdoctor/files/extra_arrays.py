"""What files of arrays hold beside predictions."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError
from trustdoctor.files.formats.arrays import OpenArrays, array_names
from trustdoctor.files.formats.registry import suffix_of
from trustdoctor.files.source import Source

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
SETTING = (
    rf"(?P<score>alpha|beta|odin)[-_]T(?P<t>{_NUMBER})(?:[-_]eps(?P<eps>{_NUMBER}))?"
)
"""How a name says the score, the temperature and the epsilon of perturbed logits."""

_PERTURBED = re.compile(rf"pbb_{SETTING}")


def read_array(source: Source, name: str) -> NDArray[Any]:
    """Return an array beside the predictions, one entry per row of all files."""
    arrays = [_read_file_array(file_source, name) for file_source in source.single()]
    first = arrays[0]
    for file, array in zip(source.files, arrays, strict=True):
        if array.shape[1:] != first.shape[1:]:
            message = (
                f"expected {name!r} of {file} in rows of the shape "
                f"{first.shape[1:]}, as in {source.files[0]}, got {array.shape[1:]}."
            )
            raise FileError(message)
    return first if len(arrays) == 1 else np.concatenate(arrays)


def _read_file_array(source: Source, name: str) -> NDArray[Any]:
    (file,) = source.files
    if suffix_of(file) not in (".npy", ".npz"):
        names = source.names
    else:
        names = _array_names(file)
        if name in names:
            return _read_arrays(file, [name])[name]
    message = f"{file} has no {name!r}; it has {', '.join(names[:20])}."
    raise FileError(message)


def _array_names(file: Path) -> list[str]:
    try:
        return array_names(file)
    except Exception as error:  # a damaged archive fails in many ways
        raise _unreadable(file, error) from error


def _read_arrays(file: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return arrays, one entry per row and as many as their headers announce."""
    try:
        with OpenArrays(file, names) as readers:
            for name, reader in readers.items():
                if not reader.shape:
                    message = f"expected one entry per row in {name!r}, got one value"
                    raise ValueError(message)
            return {
                n: reader.read_rows(reader.shape[0]) for n, reader in readers.items()
            }
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
    names = _array_names(path)
    matches = {name: _PERTURBED.fullmatch(name) for name in names}
    settings = {
        name: (match["score"], float(match["t"]), float(match["eps"] or 0))
        for name, match in matches.items()
        if match
    }
    if not settings:
        return {}
    others = [name for name, match in matches.items() if not match]
    _check_shapes(path, list(settings), others)
    if len(set(settings.values())) < len(settings):
        message = f"{path} has perturbed logits of one setting twice. Leave one out."
        raise FileError(message)
    arrays = _read_arrays(path, list(settings))
    return {setting: arrays[name] for name, setting in settings.items()}


def _check_shapes(path: Path, perturbed: list[str], others: list[str]) -> None:
    """Refuse perturbed logits of a shape that no other array has, before reading."""
    try:
        with zipfile.ZipFile(path) as archive:
            shapes = {n: _announced_shape(archive, n) for n in (*perturbed, *others)}
    except Exception as error:
        raise _unreadable(path, error) from error
    other_shapes = [shapes[name] for name in others]
    for name in perturbed:
        if len(shapes[name]) != 2 or shapes[name] not in other_shapes:
            message = (
                f"expected {name!r} of {path} in the shape of the clean logits, got "
                f"{shapes[name]}. Leave it out."
            )
            raise FileError(message)


def _announced_shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """Return the shape that an array's header announces."""
    with archive.open(f"{name}.npy") as stream:
        if np.lib.format.read_magic(stream) == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)[0]
        return np.lib.format.read_array_header_2_0(stream)[0]
