"""How a text file is written: its encoding, its separator, its decimal sign."""

import atexit
import codecs
import glob
import gzip
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from trustdoctor.errors import FileError
from trustdoctor.files.formats.registry import suffix_of

SEPARATORS = (",", ";", "\t", "|")
_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HEAD = 1 << 16
_GZIP = b"\x1f\x8b"
_OTHERWISE_PACKED = (b"(\xb5/\xfd", b"x\x01", b"x\x9c", b"x\xda")
"""How files begin that polars would unpack, too: by zstd, or by zlib."""
_DECIMAL_COMMA = re.compile(r"(?:^|[;\t|])\s*[+-]?[0-9]+,[0-9]+\s*(?=[;\t|]|$)", re.M)


@dataclass(frozen=True)
class Dialect:
    """How a text file is written.

    Attributes
    ----------
    separator : str
    decimal_comma : bool
    skipped : int
        Lines before the header: Excel's sep=; is one.
    """

    separator: str = ","
    decimal_comma: bool = False
    skipped: int = 0


@lru_cache(maxsize=64)
def _sniffed(file: Path, size: int, changed: int) -> Dialect:
    del size, changed
    with opened(file) as content:
        head = content.read(_HEAD)
    if head.startswith(b"PK\x03\x04"):
        message = f"{file} is a spreadsheet or an archive, not text. Save it as CSV."
        raise FileError(message)
    # The head may end within a character, so it is not final.
    text = codecs.getincrementaldecoder(_encoding(file) or "utf-8")().decode(head)
    lines = text.lstrip("\ufeff").splitlines()
    said = re.fullmatch(r'"?sep=([\t -~])"?', lines[0].strip()) if lines else None
    if said:
        lines = lines[1:]
    header = re.sub(r'"[^"]*"', "", lines[0]) if lines else ""
    found = said[1] if said else max(SEPARATORS, key=header.count)
    commas = found != "," and bool(_DECIMAL_COMMA.search("\n".join(lines[1:-1])))
    return Dialect(found if header.count(found) else ",", commas, 1 if said else 0)


def sniff(file: Path) -> Dialect:
    """Return how a file is written, from its first lines."""
    state = file.stat()
    return _sniffed(file, state.st_size, state.st_mtime_ns)


def opened(file: Path) -> BinaryIO:
    """Open a file to read its bytes, unpacked where it is packed."""
    with file.open("rb") as content:
        head = content.read(4)
    if head.startswith(_OTHERWISE_PACKED):
        message = (
            f"{file} is packed, and not by gzip, so its lines cannot be looked at. "
            "Unpack it, or pack it with gzip."
        )
        raise FileError(message)
    packed = head.startswith(_GZIP)
    return gzip.open(file) if packed else file.open("rb")  # type: ignore[return-value]


def _encoding(file: Path) -> str | None:
    """Return the encoding that a byte-order mark tells; None for UTF-8."""
    with opened(file) as content:
        head = content.read(4)
    return next((name for bom, name in _BOMS.items() if head.startswith(bom)), None)


def readable(file: Path, *, json: bool = False) -> Path:
    """Return the file, or a copy of it in UTF-8 where it is in another encoding.

    JSON is copied also where polars would not open it: with a byte-order mark, or with
    a name that looks like a pattern.
    """
    state = file.stat()
    return _readable(file, state.st_size, state.st_mtime_ns, json=json)


def _marked(file: Path) -> bool:
    with opened(file) as content:
        return content.read(3) == codecs.BOM_UTF8


@lru_cache(maxsize=64)
def _readable(file: Path, size: int, changed: int, *, json: bool) -> Path:
    del size, changed
    encoding = _encoding(file)
    if encoding is None and not (json and (_marked(file) or glob.has_magic(str(file)))):
        return file
    target = _place() / f"{len(list(_place().iterdir()))}{suffix_of(file)}"
    reader = codecs.getreader(encoding or "utf-8-sig")
    with opened(file) as content, target.open("w", encoding="utf-8") as out:
        shutil.copyfileobj(reader(content), out)
    return target


@lru_cache(maxsize=1)
def _place() -> Path:
    """Return a folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="trustdoctor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


STDIN = "standard-input"
_MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"PK\x03\x04": ".npz"}
_MAGIC |= {_GZIP: ".csv.gz"}


def spool_stdin() -> Path:
    """Return standard input as a file whose suffix says what it holds."""
    stream = sys.stdin and sys.stdin.buffer  # None where it was closed
    head = stream.read(_HEAD) if stream else b""
    if not head.strip():
        message = (
            "standard input is empty. Expected a header and a line per prediction."
        )
        raise FileError(message)
    known = [suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)]
    plain = ".jsonl" if head.lstrip()[:1] in (b"{", b"[") else ".csv"
    suffix = known[0] if known else plain
    target = _place() / f"{STDIN}{suffix}"
    with target.open("wb") as out:
        out.write(head)
        shutil.copyfileobj(stream, out)
    return target
