"""Where results may go: over no input, into folders that exist."""

from collections.abc import Iterable
from pathlib import Path

from trustdoctor.atomic import require_apart, require_writable, resolved
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files.formats import output_suffixes, suffix_of
from trustdoctor.files.source import Source


def check_output(path: str | Path, *sources: str | Path) -> Path:
    """Say before any work why decisions cannot be written there."""
    target = Path(path)
    known = output_suffixes()
    if suffix_of(target) not in known:
        message = f"expected an output in {', '.join(known)}, got {target.name!r}."
        raise FileError(message)
    require_writable(target)
    require_apart([target], map(Path, sources))
    return target


def plan_targets(source: Source, folder: Path) -> dict[Path, Path]:
    """Say where each file's decisions go in a folder, before any work."""
    if folder.exists() and not folder.is_dir():
        message = f"cannot write into {folder}: it is not a folder. Name a folder."
        raise OutputError(message)
    if not folder.parent.is_dir():
        message = f"cannot write into {folder}: there is no folder {folder.parent}."
        raise OutputError(message)
    root = source.root or source.files[0].parent
    out = {}
    for file in source.files:
        inner = file.relative_to(root) if file.is_relative_to(root) else file.name
        target = folder / inner
        suffix = source.format.output or target.suffix
        out[file] = target.with_suffix(suffix)
    if len(set(out.values())) < len(out):
        message = "two files have the same name. Name the folder that they are in."
        raise FileError(message)
    check_outside(source, folder, *out.values())
    _check_inside(folder, {target.parent for target in out.values()})
    return out


def check_outside(source: Source, output: Path, *targets: Path) -> None:
    """Refuse an output among the inputs, where the next run would read it.

    `targets` are the files that go into a folder.
    """
    place, inputs = output.resolve(), {file.resolve() for file in source.files}
    within = source.root is not None and place.is_relative_to(source.root.resolve())
    same = {place / file.name for file in inputs} & inputs
    if place in inputs or within or same:
        message = f"the output {output} lies among the inputs. Name another place."
        raise OutputError(message)
    require_apart(targets or [output], source.inputs)


def _check_inside(folder: Path, places: Iterable[Path]) -> None:
    """Refuse folders within a folder of outputs that are links to other places."""
    for place in places:
        if resolved(place) != resolved(folder) / place.relative_to(folder):
            message = (
                f"cannot write into {place}: a link leads out of the folder {folder}. "
                "Remove the link."
            )
            raise OutputError(message)
