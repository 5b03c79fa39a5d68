"""JSON, one object per line: rows, or a language model's responses."""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from trustdoctor import envelope
from trustdoctor.errors import FileError
from trustdoctor.files.formats.dialect import opened
from trustdoctor.files.formats.lines import bounded, check_cells, line_memory
from trustdoctor.files.formats.registry import Format, register_format
from trustdoctor.files.layout import LINE

if TYPE_CHECKING:
    from trustdoctor.files.source import Source


def _scan(source: "Source") -> pl.LazyFrame:
    for file in source.files:
        _check(file)
    frames, first = [], None
    named = source.partitions
    for file in source.files:
        lazy = _scan_one(bounded(file, json=True), source)
        for name in named:
            value = source.partitions_of(file)[name]
            lazy = lazy.with_columns(pl.lit(value).alias(name))
        names = dict.fromkeys(sorted(lazy.collect_schema().names()), "a value")
        first = first or names
        source.check_columns(file, names, first)
        frames.append(lazy)
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")


def _scan_one(file: Path, source: "Source") -> pl.LazyFrame:
    if source.columns.choices is not None:
        lines = pl.scan_lines(file, name=LINE, glob=False)
        return lines.filter(pl.col(LINE).str.strip_chars() != "")
    state = file.stat()
    schema = _find_schema(file, state.st_size, state.st_mtime_ns)
    check_cells(file, file, len(schema))
    return pl.scan_ndjson(file, schema=schema)


@lru_cache(maxsize=256)
def _find_schema(file: Path, size: int, changed: int) -> pl.Schema:
    """Return the types, from all rows: in a later one a whole number is a fraction.

    Objects that give a value twice, of which polars takes the first, are refused.
    """
    del size, changed
    schema = pl.scan_ndjson(file, infer_schema_length=None).collect_schema()
    _refuse_twice(file, schema.names())
    return schema


def _refuse_twice(file: Path, names: list[str]) -> None:
    spelled = {json.dumps(n, ensure_ascii=a) for n in names for a in (True, False)}
    found = pl.col(LINE).str.extract_many(sorted(spelled))
    often = found.list.len() > found.list.n_unique()
    # A name may come again further in, in a text, or with a letter written as a number:
    # such lines are read anew.
    often |= pl.col(LINE).str.contains(r"\\u00[2-7]")
    lines = pl.scan_lines(file, name=LINE, glob=False).filter(often)
    for line in lines.collect(engine="streaming")[LINE]:
        try:
            json.loads(line, object_pairs_hook=envelope.once)
        except ValueError as error:
            message = f"expected each name once in an object of {file}: {error}."
            raise FileError(message) from error


def _check(file: Path) -> None:
    """Refuse a list of objects, which is not one object per line."""
    with opened(bounded(file, json=True)) as content:
        if content.read(64).lstrip().startswith(b"["):
            message = (
                f"expected one JSON object per line in {file}, got a list. Write its "
                "objects one per line (pandas: to_json(orient='records', lines=True))."
            )
            raise FileError(message)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    del source
    rows.sink_ndjson(path, engine="streaming", check_extension=False)


def _largest(source: "Source", *, whole: bool) -> int:
    return line_memory(source.files, whole=whole)


JSON_LINES = register_format(
    Format(
        "JSON lines",
        (".jsonl", ".ndjson"),
        _scan,
        _sink,
        largest_piece=_largest,
        lines=True,
    )
)
