"""Files read without the package: how many rows there are, and which logits.

None if that is uncertain, as for a text with quotes.
"""

import gzip
import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from fuzz.seeds import NAMES, Seed

PLAIN = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,20})?")
KINDS = {
    "logits": [f"logit_{i}" for i in range(4)],
    "probs": [f"prob_{name}" for name in NAMES],
}
Values = tuple[str, Any]
"""What the numbers are, logits or probs, and the numbers of every row."""


def rows_of(path: Path, kind: Seed) -> int | None:
    """Return how many rows a file has, or None if that is uncertain."""
    if path.is_dir() and kind.format != "npy":
        counts = [_count(file) for file in sorted(path.iterdir())]
        return (
            None
            if None in counts
            else sum(count for count in counts if count is not None)
        )
    return _count(path)


def _count(path: Path) -> int | None:
    values = _array(path)
    if values is not None:
        return len(values) if values.ndim else None
    table = _table(path)
    if table is not None:
        return table.num_rows
    text: Any
    if path.suffix == ".jsonl":
        text = path.read_bytes()
        odd = b"\r" in text or b"\0" in text or text[:3] == b"\xef\xbb\xbf"
        return None if odd else sum(bool(line.strip()) for line in text.split(b"\n"))
    text = _text(path)
    return None if text is None or not text else len(text) - 1


def _text(path: Path) -> list[list[str]] | None:
    """Return the cells of a text without quotes; lines without any value left out."""
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        text = data.decode()
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    odd = '"' in text or "\r" in text or "sep=" in text or "\ufeff" in text
    lines = text.split("\n")
    if odd or not path.name.endswith((".csv", ".tsv", ".csv.gz")):
        return None
    header = next((line for line in lines if line), "")
    separator = max(",;\t|", key=header.count)
    return [row for row in (line.split(separator) for line in lines) if any(row)]


def cut_or_endless(path: Path) -> str:
    """Return what is wrong with the lines of a text, or an empty string."""
    if not path.name.endswith((".csv", ".tsv", ".csv.gz")):
        return ""
    data = path.read_bytes()
    try:
        while data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        wide = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
        wider = data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff"))
        text = data.decode("utf-32" if wider else wide)
    except (OSError, EOFError, ValueError, zlib.error):
        return ""
    if text.strip("\r\n") and not text.endswith("\n"):
        return "the last line has no end"
    if '"' not in text and max(map(len, text.encode().split(b"\n"))) > 1 << 24:
        return "a line is endless"
    rows = _text(path)
    if rows and len(rows[-1]) < len(rows[0]) and any(map(str.strip, rows[-1])):
        return "the last line has too few values"
    return ""


def _table(path: Path) -> Any:
    """Return a Parquet or an Arrow file, or None."""
    readers = {".parquet": _parquet, ".arrow": pa.feather.read_table}
    readers[".feather"] = readers[".arrow"]
    if path.suffix not in readers:
        return None
    try:
        table = readers[path.suffix](path)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, LookupError):
        return None
    return table


def _parquet(path: Path) -> Any:
    return pq.ParquetFile(path).read()


def _array(path: Path, expected: tuple[str, ...] = ("logits.npy", "probs.npy")) -> Any:
    """Return the values of an NPZ or NPY file, or None."""
    try:
        if path.is_dir() or path.suffix == ".npy":
            place = path / "logits.npy" if path.is_dir() else path
            return _load(place.read_bytes())
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                names = [n for n in archive.namelist() if n in expected]
                return _load(archive.read(names[0])) if len(names) == 1 else None
    except Exception:  # numpy and zipfile fail in many ways
        return None
    return None


def _load(data: bytes) -> Any:
    """Read an array, refusing one whose header announces another length."""
    array = np.load(io.BytesIO(data), allow_pickle=False)
    return np.asarray(array)


def values_of(path: Path) -> Values | None:
    """Return the four numbers of every row, or None if they are uncertain."""
    if path.is_dir() and not (path / "logits.npy").exists():
        return None
    if path.is_dir() or path.suffix in (".npz", ".npy"):
        read = ("logits", _array(path, ("logits.npy",)))
    elif path.suffix == ".jsonl":
        read = _from_lines(path)
    elif path.suffix in (".parquet", ".arrow", ".feather"):
        read = _from_table(path)
    else:
        read = _from_text(path)
    kind, values = read or ("", None)
    good = values is not None and values.ndim == 2 and values.dtype.kind == "f"
    return (kind, values) if good and np.isfinite(values).all() else None


def _kind(names: list[str]) -> str:
    """Return what the columns hold; empty if there are other such columns."""
    value_names = sorted(
        n for n in names if "logit" in n.lower() or "prob" in n.lower()
    )
    return next((kind for kind, columns in KINDS.items() if columns == value_names), "")


def _from_text(path: Path) -> Values | None:
    text = _text(path)
    kind = _kind(text[0]) if text else ""
    if not text or not kind or any(len(row) != len(text[0]) for row in text):
        return None
    positions = [text[0].index(name) for name in KINDS[kind]]
    cells = [[row[i] for i in positions] for row in text[1:]]
    if not cells or not all(PLAIN.fullmatch(cell) for row in cells for cell in row):
        return None
    return kind, np.array(cells, np.float64)


def repeats_a_key(path: Path) -> bool:
    """Say whether a key comes twice in an object of JSON lines."""
    repetitions = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repetitions.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    if path.suffix != ".jsonl":
        return False
    for line in path.read_bytes().split(b"\n"):
        try:
            json.loads(line, object_pairs_hook=once)
        except (ValueError, RecursionError):
            continue
    return any(repetitions)


def _from_lines(path: Path) -> Values | None:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        rows = [json.loads(line) for line in lines if line.strip()]
        kind = _kind(list(rows[0]))
        if not kind and all(_kind(list(row)) == "" for row in rows):
            kind, values = "logits", [row["logits"] for row in rows]
        else:
            values = [[row[name] for name in KINDS[kind]] for row in rows]
        good = all(type(v) is float and abs(v) < 1e15 for row in values for v in row)
        return (kind, np.array(values, np.float64)) if good else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _from_table(path: Path) -> Values | None:
    table = _table(path)
    if table is None:
        return None
    kind = _kind(table.schema.names)
    if table.schema.names.count("logits") == 1 and "logits" in table.schema.names[0]:
        rows = table.column("logits").to_pylist()
        widths = {0 if row is None else len(row) for row in rows}
        complete = len(widths) == 1 and all(None not in row for row in rows if row)
        return ("logits", np.array(rows)) if complete and widths != {0} else None
    value_columns = [table.column(name) for name in KINDS.get(kind, ())]
    if not value_columns or any(
        c.null_count or not pa.types.is_floating(c.type) for c in value_columns
    ):
        return None
    return kind, np.column_stack(
        [c.to_numpy().astype(np.float64) for c in value_columns]
    )
