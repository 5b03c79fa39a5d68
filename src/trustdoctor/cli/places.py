"""That no result is written over something that the same command reads or writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trustdoctor.atomic import require_apart, require_writable, resolved, same_file
from trustdoctor.errors import OutputError
from trustdoctor.files import Source, output_suffixes, suffix_of

OUTPUTS = ("output", "json_path", "html", "state", "save", "out")
"""The parameters of commands that say where results go."""


def check_places(given: dict[str, Any]) -> None:
    """Refuse an output that is an input or another output, before any work.

    Whatever else a command was given and is a file counts as an input.
    """
    named = [(name, path) for name in OUTPUTS for path in _paths(given.get(name))]
    rest = (value for name, value in given.items() if name not in OUTPUTS)
    inputs = [path for value in rest for path in _paths(value) if _is_file(path)]
    for name, path in named:
        if _is_folder(name, path):
            _refuse_inside(path, [*inputs, *(other for _, other in named)])
        else:
            require_writable(path)
            require_apart(path, inputs)
    for at, (_, path) in enumerate(named):
        if same_file(path) in {same_file(other) for _, other in named[:at]}:
            message = f"two outputs go to one file, {path}. Name another for one."
            raise OutputError(message)


def check_outputs(source: Source, *outputs: str | Path | None) -> None:
    """Refuse to write over a file of a folder or of a pattern."""
    files = list(source.files)
    if suffix_of(files[0]) == ".npy":  # the arrays beside it belong to it
        files += files[0].parent.glob("*.npy")
    for output in outputs:
        for path in _paths(output):
            require_apart(path, files)


def _paths(value: Any) -> Iterator[Path]:
    """Yield what may be paths in the value of a parameter; - is none."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _paths(one)
    elif isinstance(value, (str, Path)) and str(value) not in ("", "-"):
        yield Path(value)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long to be one, or with a zero byte
        return False


def _is_folder(name: str, path: Path) -> bool:
    return name in ("save", "out") or (name == "output" and not path.suffix)


def _refuse_inside(folder: Path, others: list[Path]) -> None:
    """Refuse a folder of outputs that another file lies in and could be replaced."""
    place = resolved(folder)
    for other in others:
        if suffix_of(other) in output_suffixes() and place in resolved(other).parents:
            message = (
                f"{other} lies in the folder of outputs {folder}. Name another folder."
            )
            raise OutputError(message)
