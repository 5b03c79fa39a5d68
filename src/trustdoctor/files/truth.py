"""True labels from a table of their own, found by id."""

from functools import lru_cache
from pathlib import Path

import polars as pl

from trustdoctor.errors import FileError, InputError
from trustdoctor.files.columns import LABELS, Columns
from trustdoctor.files.formats import find_format
from trustdoctor.files.labels import as_text

IDS = ("id", "ids", "custom_id")
_NAMES = (*LABELS, "truth", "answer")


def look_up(ids: pl.Series, columns: Columns) -> pl.Series:
    """Return the true label of each id; null where the table has none."""
    assert columns.truth is not None
    file = Path(columns.truth)
    try:
        str(file).encode()
        changed = file.stat().st_mtime_ns if file.is_file() else None
    except (OSError, UnicodeEncodeError):  # too long a name, or not in UTF-8
        changed = None
    if changed is None:
        message = f"there is no file {file} that can be read. Check --truth."
        raise FileError(message)
    table = _read_truth(file, columns.labels, columns.last_line, changed)
    return as_text(ids).replace_strict(table, default=None, return_dtype=pl.String)


@lru_cache(maxsize=4)
def _read_truth(
    file: Path, label: str | None, last_line: str | None, changed: int
) -> dict[str, str]:
    """Read ids and labels; again where the file was changed."""
    del changed
    from trustdoctor.files.source import Source  # which is made of what is here

    source = Source((file,), Columns(last_line=last_line))
    if not find_format(file).is_table:
        message = f"expected a table of ids and labels in {file}, as a CSV file."
        raise FileError(message)
    table = source.collect(source.scan().select(pl.all().cast(pl.String)))
    ids = [name for name in table.columns if name in IDS]
    labels = [n for n in table.columns if n == label or (not label and n in _NAMES)]
    if len(table.columns) == 2 and not (ids and labels):
        ids, labels = table.columns[:1], table.columns[1:]
    if len(ids) != 1 or len(labels) != 1:
        message = (
            f"expected the columns id and label in {file}, got "
            f"{', '.join(table.columns[:8])}. Rename them."
        )
        raise FileError(message)
    known = table.select(ids[0], labels[0]).drop_nulls()
    if known[ids[0]].n_unique() < len(known):
        again = known.filter(known[ids[0]].is_duplicated())[ids[0]][0]
        message = f"{file} has the id {again!r} twice. Give each id one label."
        raise InputError(message)
    return dict(zip(as_text(known[ids[0]]), known[labels[0]], strict=True))


def require_matches(ids: pl.Series, columns: Columns, where: str) -> None:
    """Refuse a table of labels that has none for the first rows of a file."""
    if not len(ids) or look_up(ids, columns).is_not_null().any():
        return
    shown = [one for one in ids.head(1) if one is not None]
    what = f"got {shown[0]!r} first" if shown else "got rows without ids"
    message = (
        f"none of the first {len(ids):,} ids of {where} is in {columns.truth}: {what}. "
        "Check --ids and --truth."
    )
    raise FileError(message)
