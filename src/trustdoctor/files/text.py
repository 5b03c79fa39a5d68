"""CSV, read as text: no type is guessed from the first rows."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from trustdoctor.errors import FileError
from trustdoctor.files.formats import Format, register_format

if TYPE_CHECKING:
    from trustdoctor.files.source import Source


def _scan(source: "Source") -> pl.LazyFrame:
    _, first = _scan_one(source.files[0])
    frames = []
    for file in source.files:
        lazy, names = _scan_one(file)
        for name, value in source.partitions_of(file).items():
            lazy = lazy.with_columns(pl.lit(value).alias(name))
        if set(names) != set(first):
            own, other = (dict.fromkeys(n, "text") for n in (names, first))
            source.check_columns(file, own, other)
        frames.append(lazy.select(*first, *source.partitions))
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _scan_one(file: Path) -> tuple[pl.LazyFrame, list[str]]:
    """Scan a file, its names stripped, blank lines left out."""
    lazy = pl.scan_csv(file, infer_schema=False, glob=False)
    names = lazy.collect_schema().names()
    for name in names:
        base, mark, _ = name.rpartition("_duplicated_")
        if mark and base in names:
            message = f"{file} has the column {base!r} twice. Name every column once."
            raise FileError(message)
    stripped = [name.strip() for name in names]
    lazy = lazy.rename(dict(zip(names, stripped, strict=True)))
    return lazy.filter(~pl.all_horizontal(pl.all().is_null())), stripped


def _about_rows(source: "Source") -> int:
    """Guess from the size of the files and their first lines."""
    with source.files[0].open("rb") as file:
        lines = file.readlines(1 << 16)
    line = sum(map(len, lines[1:])) / max(len(lines) - 1, 1)
    return int(source.size / line) if line else 0


CSV = register_format(
    Format(
        "CSV",
        (".csv",),
        _scan,
        lambda rows, path, _: rows.sink_csv(path, engine="streaming"),
        about_rows=_about_rows,
        typed=False,
        nested=False,
    )
)
