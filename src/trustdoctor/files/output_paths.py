"""Where decisions may go: over no input, and into folders that exist."""

from collections.abc import Iterable
from pathlib import Path

from trustdoctor.atomic import require_apart, require_writable, resolved
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files.formats import output_suffixes, suffix_of
from trustdoctor.files.source import Source


def check_output(path: str | Path, *inputs: str | Path) -> Path:
    """Say before any work why decisions cannot be written there."""
    output = Path(path)
    suffixes = output_suffixes()
    if suffix_of(output) not in suffixes:
        message = f"expected an output in {', '.join(suffixes)}, got {output.name!r}."
        raise FileError(message)
    require_writable(output)
    require_apart([output], map(Path, inputs))
    return output


def plan_targets(source: Source, folder: Path) -> dict[Path, Path]:
    """Return where each file's decisions go in a folder, checked before any work."""
    if folder.exists() and not folder.is_dir():
        message = f"cannot write into {folder}: it is not a folder. Name a folder."
        raise OutputError(message)
    if not folder.parent.is_dir():
        message = f"cannot write into {folder}: there is no folder {folder.parent}."
        raise OutputError(message)
    root = source.root or source.files[0].parent
    targets = {}
    for file in source.files:
        relative = file.relative_to(root) if file.is_relative_to(root) else file.name
        target = folder / relative
        targets[file] = target.with_suffix(source.format.output or target.suffix)
    if len(set(targets.values())) < len(targets):
        message = "two files have the same name. Name the folder that they are in."
        raise FileError(message)
    check_outside(source, folder, *targets.values())
    _refuse_links_out(folder, {target.parent for target in targets.values()})
    return targets


def check_outside(source: Source, output: Path, *targets: Path) -> None:
    """Refuse an output among the inputs, where the next run would read it.

    `targets` are the files that go into a folder.
    """
    place, inputs = output.resolve(), {file.resolve() for file in source.files}
    is_below_root = source.root is not None and place.is_relative_to(
        source.root.resolve()
    )
    would_replace_input = {place / file.name for file in inputs} & inputs
    if place in inputs or is_below_root or would_replace_input:
        message = f"the output {output} lies among the inputs. Choose another path."
        raise OutputError(message)
    require_apart(targets or [output], source.inputs)


def _refuse_links_out(folder: Path, subfolders: Iterable[Path]) -> None:
    """Refuse folders within a folder of outputs that are links to other places."""
    for subfolder in subfolders:
        if resolved(subfolder) != resolved(folder) / subfolder.relative_to(folder):
            message = (
                f"cannot write into {subfolder}: a link leads out of the folder "
                f"{folder}. Remove the link."
            )
            raise OutputError(message)
