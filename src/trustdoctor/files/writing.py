"""Decisions to files: the rows as they were, with a score and a decision added.

A file is written under a temporary name and renamed when it is complete. Over a folder
a journal says which files are done, so that a stopped run can go on.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from trustdoctor.atomic import require_apart, require_writable, resolved
from trustdoctor.errors import FileError, OutputError
from trustdoctor.files.formats import find_format, output_suffixes, suffix_of
from trustdoctor.files.source import Source
from trustdoctor.files.spreadsheets import escaped
from trustdoctor.files.text import dialect_of

ADDED = "trustdoctor"
"""The column that holds both decisions before they are told apart."""

_NO_NUMBER = r"^[+-]?(0[0-9]|[0-9]{16,}$)"
"""An id, with leading zeros or more digits than a float holds."""

_TOGETHER = 1 << 12  # columns whose types are looked for in one pass


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


def with_decisions(
    source: Source,
    decided: pl.Expr,
    output: Path,
    *more: str,
    alone: bool = False,
    only: str | None = None,
) -> pl.LazyFrame:
    """Return what is to be written: a table's columns and the decisions.

    Of arrays, and into arrays, the decisions alone are written, and of a language
    model's responses with their ids. A file that is written `alone`, one per input
    file, has no columns from folders' names: its own folder tells. `only` keeps the
    accepted or the rejected rows. `more` are columns beside score and accepted.
    """
    bare = source.columns.choices is not None
    if bare or not (source.format.is_table and find_format(output).is_table):
        rows = source.scan().select(decided).unnest(ADDED)
    else:
        check_names(source, *more)
        rows = kept_columns(source, output).with_columns(decided)
        rows = rows.drop(source.partitions if alone else []).unnest(ADDED)
    if only is None:
        return rows
    return rows.filter(pl.col("accepted") == (only == "accepted"))


def check_names(source: Source, *more: str) -> None:
    """Refuse rows that have columns which the decisions would overwrite."""
    taken = sorted({"score", "accepted", ADDED, *more} & set(source.names))
    if taken:
        message = (
            f"{source.files[0]} already has a column {taken[0]!r}, which the decisions "
            "would overwrite. Rename it."
        )
        raise FileError(message)


def sink(rows: pl.LazyFrame, source: Source, output: Path, temporary: Path) -> None:
    """Write all rows in their order, batch by batch, and have them on the disk."""
    write = find_format(output).sink
    assert write is not None
    if any("\ud800" <= one <= "\udfff" for one in str(temporary)):
        message = f"cannot write {output}: its folder has no name in UTF-8. Rename it."
        raise OutputError(message)
    write(escaped(rows) if source.for_spreadsheets else rows, temporary, source)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())


def kept_columns(source: Source, output: Path) -> pl.LazyFrame:
    """Return all columns; text that a number would lose stays text."""
    target = find_format(output)
    nested = [name for name, dtype in source.schema.items() if dtype.is_nested()]
    if nested and not target.nested:
        message = (
            f"cannot write {output}: column {nested[0]!r} holds lists, and "
            f"{target.name} holds none. Choose .parquet."
        )
        raise OutputError(message)
    raw = [name for name, dtype in source.schema.items() if dtype == pl.Binary]
    if raw and target.lines:
        message = (
            f"cannot write {output}: column {raw[0]!r} holds bytes, and {target.name} "
            "holds none. Choose .parquet."
        )
        raise OutputError(message)
    return typed(source) if target.typed else source.scan()


def typed(source: Source) -> pl.LazyFrame:
    """Return all rows, text columns cast to the type that keeps them as they are."""
    lazy = source.scan()
    return lazy if source.format.typed else lazy.with_columns(_casts(source, lazy))


def _casts(source: Source, lazy: pl.LazyFrame) -> list[pl.Expr]:
    """Return casts of the text columns that a type keeps as they are."""
    found: dict[str, bool] = {}
    for first in range(0, len(source.names), _TOGETHER):
        names = source.names[first : first + _TOGETHER]
        tests = _kinds(source, names)
        found |= source.collect(lazy.select(tests)).row(0, named=True)
    casts = []
    for name in source.names:
        text = _pointed(source, name)
        if found[f"{name} none"]:
            continue
        if found[f"{name} int"]:
            casts.append(text.cast(pl.Int64))
        elif found[f"{name} bool"]:
            casts.append(text == "true")
        elif found[f"{name} float"]:
            casts.append(text.str.strip_chars().cast(pl.Float64))
    return casts


def _kinds(source: Source, names: list[str]) -> list[pl.Expr]:
    """Return which types would keep each column as it is."""
    tests = []
    for name in names:
        text = _pointed(source, name)
        plain = text.str.strip_chars()
        whole = text.cast(pl.Int64, strict=False).cast(pl.String).eq_missing(text)
        number = plain.cast(pl.Float64, strict=False).is_null() == text.is_null()
        padded = plain.str.contains(_NO_NUMBER).fill_null(value=False)
        truth = text.is_null() | text.is_in(["true", "false"])
        tests += [
            whole.all().alias(f"{name} int"),
            (number & ~padded).all().alias(f"{name} float"),
            truth.all().alias(f"{name} bool"),
            text.is_null().all().alias(f"{name} none"),
        ]
    return tests


def _pointed(source: Source, name: str) -> pl.Expr:
    """Return a column of text, a decimal comma as a point where the file has those."""
    text = pl.col(name)
    if not dialect_of(source).decimal_comma:
        return text
    return text.str.replace(r"^([+-]?[0-9]*),([0-9]+)$", "${1}.${2}")


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
