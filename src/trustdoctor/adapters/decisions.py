"""Decisions to files: the rows as they were, with a score and a decision added.

A file is written under a temporary name and renamed when it is complete. Over a folder
a journal says which files are done, so that a stopped run can go on.
"""

import json
import os
import zipfile
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trustdoctor.adapters.files import SUFFIXES, suffix_of
from trustdoctor.adapters.scan import Source
from trustdoctor.errors import FileError, OutputError
from trustdoctor.gate import Gate
from trustdoctor.metrics import Confusion
from trustdoctor.output import require_writable, write_text
from trustdoctor.summary import Summary

ADDED = "trustdoctor"
"""The column that holds both decisions before they are told apart."""

ROW_GROUP = 1 << 18
"""Rows of an output's row group at most."""

JOURNAL = ".trustdoctor-screen.json"
"""In an output folder: which files are done, and what was counted in them."""


def check_output(path: str | Path, *sources: str | Path) -> Path:
    """Say before any work why decisions cannot be written there."""
    target = Path(path)
    if suffix_of(target) not in SUFFIXES:
        message = f"expected an output in {', '.join(SUFFIXES)}, got {target.name!r}."
        raise FileError(message)
    if require_writable(target) in [Path(source).resolve() for source in sources]:
        message = f"the output {target} is the input itself. Name another file."
        raise OutputError(message)
    return target


def with_decisions(
    source: Source, decided: pl.Expr, output: Path, *, alone: bool = False
) -> pl.LazyFrame:
    """Return what is to be written: a table's columns and the decisions.

    Of arrays, and into NPZ, the decisions alone are written. A file that is written
    `alone`, for each input file one, has no columns from folders' names: its own
    folder tells.
    """
    kind = suffix_of(output)
    if not source.is_table or kind == ".npz":
        return source.scan().select(decided).unnest(ADDED)
    check_names(source)
    rows = _kept(source, output).with_columns(decided)
    return rows.drop(source.partitions if alone else []).unnest(ADDED)


def check_names(source: Source, *more: str) -> None:
    """Refuse rows that have columns which the decisions would overwrite."""
    taken = sorted({"score", "accepted", ADDED, *more} & set(source.names))
    if taken:
        message = (
            f"{source.files[0]} already has a column {taken[0]!r}, which the decisions "
            "would overwrite. Rename it."
        )
        raise FileError(message)


def sink(lazy: pl.LazyFrame, source: Source, output: Path, temporary: Path) -> None:
    """Write all rows in their order, batch by batch, and have them on the disk."""
    kind = suffix_of(output)
    if kind == ".parquet":
        rows = int(np.clip((64 << 20) // source.row_bytes, 1 << 10, ROW_GROUP))
        lazy.sink_parquet(temporary, row_group_size=rows, engine="streaming")
    elif kind == ".csv":
        lazy.sink_csv(temporary, engine="streaming")
    else:
        _sink_npz(lazy, source.rows, temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())


def _kept(source: Source, output: Path) -> pl.LazyFrame:
    """Return all columns; CSV text that a number would lose stays text."""
    lazy, schema = source.scan(), source.schema
    nested = [name for name, dtype in schema.items() if dtype.is_nested()]
    if suffix_of(output) == ".csv" and nested:
        message = (
            f"cannot write {output}: column {nested[0]!r} holds lists, and a CSV holds "
            "none. Choose .parquet."
        )
        raise OutputError(message)
    if source.kind != ".csv" or suffix_of(output) == ".csv":
        return lazy
    return lazy.with_columns(_typed(source, lazy))


def _typed(source: Source, lazy: pl.LazyFrame) -> list[pl.Expr]:
    """Return casts of the text columns that a type keeps as they are, from one pass."""
    tests = []
    for name in source.names:
        text = pl.col(name)
        plain = text.str.strip_chars()
        whole = text.cast(pl.Int64, strict=False).cast(pl.String).eq_missing(text)
        number = plain.cast(pl.Float64, strict=False).is_null() == text.is_null()
        padded = plain.str.contains(r"^[+-]?0[0-9]").fill_null(value=False)
        truth = text.is_null() | text.is_in(["true", "false"])
        tests += [
            whole.all().alias(f"{name} int"),
            (number & ~padded).all().alias(f"{name} float"),
            truth.all().alias(f"{name} bool"),
            text.is_null().all().alias(f"{name} none"),
        ]
    found = source.collect(lazy.select(tests)).row(0, named=True)
    casts = []
    for name in source.names:
        text = pl.col(name)
        if found[f"{name} none"]:
            continue
        if found[f"{name} int"]:
            casts.append(text.cast(pl.Int64))
        elif found[f"{name} bool"]:
            casts.append(text == "true")
        elif found[f"{name} float"]:
            casts.append(text.str.strip_chars().cast(pl.Float64))
    return casts


def _sink_npz(lazy: pl.LazyFrame, rows: int, temporary: Path) -> None:
    """Write the two arrays through files of their own into the archive."""
    paths = {n: temporary.with_name(f"{temporary.name}.{n}") for n in _OUTPUTS}
    try:
        mapped: dict[str, Any] = {}
        at = 0
        for batch in lazy.collect_batches(maintain_order=True, engine="streaming"):
            for name, path in paths.items():
                values = batch[name].to_numpy()
                if name not in mapped:
                    shape = (rows,)
                    kind = values.dtype
                    mapped[name] = np.lib.format.open_memmap(path, "w+", kind, shape)
                mapped[name][at : at + len(values)] = values
            at += len(batch)
        mapped.clear()
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, path in paths.items():
                _add(archive, name, path)
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


_OUTPUTS = ("score", "accepted")


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")  # without a time: the same bytes again
    entry.compress_type = zipfile.ZIP_DEFLATED
    with path.open("rb") as content, archive.open(entry, "w", force_zip64=True) as out:
        while chunk := content.read(1 << 20):
            out.write(chunk)


def plan_targets(source: Source, folder: Path) -> dict[Path, Path]:
    """Say where each file's decisions go in a folder, before any work."""
    if folder.exists() and not folder.is_dir():
        message = f"cannot write into {folder}: it is no folder. Name a folder."
        raise OutputError(message)
    if not folder.parent.is_dir():
        message = f"cannot write into {folder}: there is no folder {folder.parent}."
        raise OutputError(message)
    root = source.root or source.files[0].parent
    out = {}
    for file in source.files:
        inner = file.relative_to(root) if file.is_relative_to(root) else file.name
        target = folder / inner
        out[file] = target if source.is_table else target.with_suffix(".npz")
    if len(set(out.values())) < len(out):
        message = "two files have the same name. Name the folder that they are in."
        raise FileError(message)
    check_outside(source, folder)
    return out


def check_outside(source: Source, output: Path) -> None:
    """Refuse an output among the inputs, where the next run would read it."""
    place, inputs = output.resolve(), {file.resolve() for file in source.files}
    within = source.root is not None and place.is_relative_to(source.root.resolve())
    same = {place / file.name for file in inputs} & inputs
    if place in inputs or within or same:
        message = f"the output {output} lies among the inputs. Name another place."
        raise OutputError(message)


class Journal:
    """Which files of a folder are done, and what was counted in them."""

    def __init__(self, folder: Path, gate: Gate, source: Source) -> None:
        self.path = folder / JOURNAL
        job = gate.to_json() + repr(source.columns)
        self.job = blake2b(job.encode(), digest_size=12).hexdigest()
        self.done: dict[str, Summary] = {}

    def begin(self, *, resume: bool) -> None:
        """Take over what an earlier run of the same job noted, or forget it."""
        if not resume:
            self.path.unlink(missing_ok=True)
        elif self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            job, entries = content["job"], content["done"]
            self.done = {stamp: _summary(*entry) for stamp, entry in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"cannot read the journal {self.path}. Remove it, and run without "
                "--resume."
            )
            raise FileError(message) from error
        if job != self.job:
            message = (
                f"{self.path.parent} was written with another gate or other columns. "
                "Choose another folder, or leave --resume out to write it anew."
            )
            raise FileError(message)

    def find(self, file: Path) -> Summary | None:
        """Return what was counted in a file, unless it changed or is not done."""
        return self.done.get(_stamp(file))

    def note(self, file: Path, summary: Summary) -> None:
        """Note that a file is done."""
        self.done[_stamp(file)] = summary
        entries = {stamp: _entry(known) for stamp, known in self.done.items()}
        write_text(self.path, json.dumps({"job": self.job, "done": entries}) + "\n")


def _stamp(file: Path) -> str:
    beside = [file]
    if suffix_of(file) == ".npy":
        beside += sorted(other for other in file.parent.glob("*.npy") if other != file)
    states = [one.stat() for one in beside]
    sizes = [f"{state.st_size} {state.st_mtime_ns}" for state in states]
    return " ".join([str(file.resolve()), *sizes])


def _entry(summary: Summary) -> list[Any]:
    counts = summary.counts and list(asdict(summary.counts).values())
    return [summary.rows, summary.accepted, counts]


def _summary(rows: int, accepted: int, counts: list[int] | None) -> Summary:
    return Summary(rows, accepted, None if counts is None else Confusion(*counts))
