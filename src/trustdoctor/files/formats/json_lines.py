"""JSON, one object per line: rows, or a language model's responses."""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from trustdoctor import envelope
from trustdoctor.errors import FileError
from trustdoctor.files.formats.dialect import open_unpacked
from trustdoctor.files.formats.lines import (
    check_cells,
    line_memory,
    readable_lines,
)
from trustdoctor.files.formats.registry import Format, register_format
from trustdoctor.files.layout import LINE

if TYPE_CHECKING:
    from trustdoctor.files.source import Source


def _scan(source: "Source") -> pl.LazyFrame:
    for file in source.files:
        _refuse_list(file)
    frames, expected = [], None
    partitions = source.partitions
    for file in source.files:
        lazy = _scan_file(readable_lines(file, json=True), source)
        for name in partitions:
            value = source.partitions_of(file)[name]
            lazy = lazy.with_columns(pl.lit(value).alias(name))
        names = dict.fromkeys(sorted(lazy.collect_schema().names()), "a value")
        expected = expected or names
        source.check_columns(file, names, expected)
        frames.append(lazy)
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")


def _scan_file(file: Path, source: "Source") -> pl.LazyFrame:
    if source.columns.choices is not None:
        lines = pl.scan_lines(file, name=LINE, glob=False)
        return lines.filter(pl.col(LINE).str.strip_chars() != "")
    state = file.stat()
    schema = _find_schema(file, state.st_size, state.st_mtime_ns)
    check_cells(file, file, len(schema))
    return pl.scan_ndjson(file, schema=schema)


@lru_cache(maxsize=256)
def _find_schema(file: Path, size: int, changed_ns: int) -> pl.Schema:
    """Return the types, from all rows: 0, 1, ... may be followed by 0.5."""
    del size, changed_ns
    schema = pl.scan_ndjson(file, infer_schema_length=None).collect_schema()
    _refuse_repeated_names(file, schema.names())
    return schema


def _refuse_repeated_names(file: Path, names: list[str]) -> None:
    """Refuse objects that give a name two values, of which polars takes the first."""
    # Python parses JSON 5 to 8 times slower than polars, so only suspects are parsed:
    # lines that hold a name twice (perhaps in a text, or further in), or a letter that
    # is escaped as a number.
    spellings = {json.dumps(n, ensure_ascii=a) for n in names for a in (True, False)}
    matches = pl.col(LINE).str.extract_many(sorted(spellings))
    suspect = matches.list.len() > matches.list.n_unique()
    suspect |= pl.col(LINE).str.contains(r"\\u00[2-7]")
    lines = pl.scan_lines(file, name=LINE, glob=False).filter(suspect)
    for line in lines.collect(engine="streaming")[LINE]:
        try:
            json.loads(line, object_pairs_hook=envelope.unique_keys)
        except ValueError as error:
            message = f"expected each name once in an object of {file}: {error}."
            raise FileError(message) from error


def _refuse_list(file: Path) -> None:
    """Refuse a list of objects, which is not one object per line."""
    with open_unpacked(readable_lines(file, json=True)) as content:
        if content.read(64).lstrip().startswith(b"["):
            message = (
                f"expected one JSON object per line in {file}, got a list. Write its "
                "objects one per line (pandas: to_json(orient='records', lines=True))."
            )
            raise FileError(message)


def _sink(rows: pl.LazyFrame, path: Path, source: "Source") -> None:
    del source
    rows.sink_ndjson(path, engine="streaming")


def _largest_line(source: "Source", *, all_columns: bool) -> int:
    return line_memory(source.files, are_written=all_columns)


JSON_LINES = register_format(
    Format(
        "JSON lines",
        (".jsonl", ".ndjson"),
        _scan,
        _sink,
        largest_piece=_largest_line,
        lines=True,
    )
)
