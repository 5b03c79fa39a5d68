"""That no result is written over something that the same command reads or writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trustdoctor.atomic import require_apart, require_writable, resolved, same_file
from trustdoctor.errors import OutputError
from trustdoctor.files import PICTURES, Source, output_suffixes, suffix_of

OUTPUTS = ("output", "json_path", "html", "state", "draw", "save", "out")
"""The parameters of commands that say where results go."""


def check_places(given: dict[str, Any]) -> None:
    """Refuse an output that is an input or another output, before any work.

    Whatever else a command was given and is a file counts as an input, and so do the
    pictures in a folder.
    """
    named = [(name, path) for name in OUTPUTS for path in _paths(given.get(name))]
    rest = (value for name, value in given.items() if name not in OUTPUTS)
    inputs = [file for value in rest for path in _paths(value) for file in _files(path)]
    for name, path in named:
        if _is_folder(name, path):
            _refuse_inside(path, [*inputs, *(other for _, other in named)])
        else:
            require_writable(path)
            require_apart([path], inputs)
    for at, (_, path) in enumerate(named):
        if same_file(path) in {same_file(other) for _, other in named[:at]}:
            message = f"two outputs go to one file, {path}. Name another for one."
            raise OutputError(message)


def check_outputs(source: Source, *outputs: str | Path | None) -> None:
    """Refuse to write over a file of a folder or of a pattern."""
    require_apart((path for one in outputs for path in _paths(one)), source.inputs)


def _paths(value: Any) -> Iterator[Path]:
    """Yield what may be paths in the value of a parameter; - is none."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _paths(one)
    elif isinstance(value, (str, Path)) and str(value) not in ("", "-"):
        yield Path(value)


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return [one for one in path.iterdir() if one.suffix.lower() in PICTURES]
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # too long to be one, or with a zero byte
        return []


def _is_folder(name: str, path: Path) -> bool:
    return name in ("save", "out") or (name == "output" and not path.suffix)


def _refuse_inside(folder: Path, others: list[Path]) -> None:
    """Refuse a folder of outputs that another file lies in and could be replaced."""
    place = resolved(folder)
    for other in others:
        taken = suffix_of(other) in (*output_suffixes(), ".txt")  # demo's class names
        if taken and place in resolved(other).parents:
            message = (
                f"{other} lies in the folder of outputs {folder}. Name another folder."
            )
            raise OutputError(message)
