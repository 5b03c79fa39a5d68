"""What files of arrays hold beside predictions."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError
from trustdoctor.files.formats import suffix_of
from trustdoctor.files.source import Source

_NUMBER = r"\d+(?:\.\d+)?"
SETTING = (
    rf"(?P<score>alpha|beta|odin)[-_]T(?P<t>{_NUMBER})(?:[-_]eps(?P<eps>{_NUMBER}))?"
)
"""How a name says at which setting perturbed logits were made."""

_PERTURBED = re.compile(rf"pbb_{SETTING}")


def read_array(source: Source, name: str) -> NDArray[Any]:
    """Return an array beside the predictions, one entry per row of all files."""
    parts = [_array(file, name) for file in source.files]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _array(file: Path, name: str) -> NDArray[Any]:
    try:
        found, known = _load(file, name)
    except ValueError as error:  # an array of Python objects would be unpickled
        message = f"the array {name!r} of {file} holds objects. Save it as text."
        raise FileError(message) from error
    if found is None:
        message = f"{file} has no {name!r}; it has {', '.join(known[:20])}."
        raise FileError(message)
    if not found.ndim:
        message = f"expected one entry per row in {name!r} of {file}, got one value."
        raise FileError(message)
    return found


def _load(file: Path, name: str) -> tuple[NDArray[Any] | None, list[str]]:
    """Return an array of that name, None where there is none, and the names known."""
    if suffix_of(file) == ".npz":
        with np.load(file, allow_pickle=False) as archive:
            known = list(archive.files)
            return (archive[name] if name in known else None), known
    if suffix_of(file) == ".npy":
        known = sorted(other.stem for other in file.parent.glob("*.npy"))
        beside = file.with_name(f"{name}.npy")
        found = np.load(beside, allow_pickle=False) if name in known else None
        return found, known
    return None, Source((file,)).names


def read_perturbed(path: Path) -> dict[tuple[str, float, float], Any]:
    """Return an NPZ's arrays `pbb_SCORE_T1_eps0.00035`, by score, T and epsilon."""
    if suffix_of(path) != ".npz":
        return {}
    with np.load(path, allow_pickle=False) as archive:
        parsed = {name: _PERTURBED.fullmatch(name) for name in archive.files}
        return {
            (m["score"], float(m["t"]), float(m["eps"] or 0)): archive[name]
            for name, m in parsed.items()
            if m
        }
