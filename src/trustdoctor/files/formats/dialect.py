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
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_ENCODING_BY_BOM = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HEAD = 1 << 16
_GZIP = b"\x1f\x8b"
_OTHER_COMPRESSION = (b"(\xb5/\xfd", b"x\x01", b"x\x9c", b"x\xda")
"""First bytes of zstd and zlib, which polars would unpack without being asked."""
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


def sniff(file: Path) -> Dialect:
    """Return how a file is written, from its first lines."""
    state = file.stat()
    return _sniff(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _sniff(file: Path, size: int, changed_ns: int) -> Dialect:
    del size, changed_ns
    with open_unpacked(file) as content:
        head = content.read(_HEAD)
    if head.startswith(b"PK\x03\x04"):
        message = f"{file} is a spreadsheet or an archive, not text. Save it as CSV."
        raise FileError(message)
    # The head may end within a character, which an incremental decoder waits for.
    text = codecs.getincrementaldecoder(_bom_encoding(file) or "utf-8")().decode(head)
    lines = text.lstrip("\ufeff").splitlines()
    sep_line = re.fullmatch(r'"?sep=([\t -~])"?', lines[0].strip()) if lines else None
    if sep_line:
        lines = lines[1:]
    header = re.sub(r'"[^"]*"', "", lines[0]) if lines else ""
    separator = sep_line[1] if sep_line else max(SEPARATORS, key=header.count)
    decimal_comma = separator != "," and bool(
        _DECIMAL_COMMA.search("\n".join(lines[1:-1]))  # the last line may be cut off
    )
    if not header.count(separator):
        separator = ","
    return Dialect(separator, decimal_comma, 1 if sep_line else 0)


def open_unpacked(file: Path) -> BinaryIO:
    """Open a file to read its bytes, unpacked if it is gzipped."""
    with file.open("rb") as content:
        head = content.read(4)
    if head.startswith(_OTHER_COMPRESSION):
        message = (
            f"{file} is compressed, but not by gzip, so its lines cannot be checked. "
            "Decompress it, or use gzip."
        )
        raise FileError(message)
    # By its first bytes, whatever it is called: so does polars.
    gzipped = head.startswith(_GZIP)
    return gzip.open(file) if gzipped else file.open("rb")  # type: ignore[return-value]


def _bom_encoding(file: Path) -> str | None:
    """Return the encoding that a byte-order mark tells; None for UTF-8."""
    with open_unpacked(file) as content:
        head = content.read(4)
    encodings = _ENCODING_BY_BOM.items()
    return next((name for bom, name in encodings if head.startswith(bom)), None)


def as_utf8(file: Path, *, json: bool = False) -> Path:
    """Return the file if it is in UTF-8, else a temporary copy that is.

    JSON is also copied if polars would not open it: with a byte-order mark, or with a
    name that looks like a pattern.
    """
    state = file.stat()
    return _as_utf8(file, state.st_size, state.st_mtime_ns, json=json)


@lru_cache(maxsize=64)
def _as_utf8(file: Path, size: int, changed_ns: int, *, json: bool) -> Path:
    del size, changed_ns
    encoding = _bom_encoding(file)
    fits_polars = not json or not (_has_utf8_bom(file) or glob.has_magic(str(file)))
    if encoding is None and fits_polars:
        return file
    folder = _temporary_folder()
    copy = folder / f"{len(list(folder.iterdir()))}{suffix_of(file)}"
    reader = codecs.getreader(encoding or "utf-8-sig")
    with open_unpacked(file) as content, copy.open("w", encoding="utf-8") as out:
        shutil.copyfileobj(reader(content), out)
    return copy


def _has_utf8_bom(file: Path) -> bool:
    with open_unpacked(file) as content:
        return content.read(3) == codecs.BOM_UTF8


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    """Return a folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="trustdoctor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


STDIN = "standard-input"
"""The name, without its suffix, of the file that standard input is copied into."""

_SUFFIX_BY_MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"PK\x03\x04": ".npz"}
_SUFFIX_BY_MAGIC |= {_GZIP: ".csv.gz"}


def spool_stdin() -> Path:
    """Return standard input as a file whose suffix says what it holds."""
    stream = sys.stdin and sys.stdin.buffer  # None if it was closed
    head = stream.read(_HEAD) if stream else b""
    if not head.strip():
        message = (
            "standard input is empty. Expected a header and a line per prediction."
        )
        raise FileError(message)
    text_suffix = ".jsonl" if head.lstrip()[:1] in (b"{", b"[") else ".csv"
    suffixes = _SUFFIX_BY_MAGIC.items()
    suffix = next((s for magic, s in suffixes if head.startswith(magic)), text_suffix)
    target = _temporary_folder() / f"{STDIN}{suffix}"
    with target.open("wb") as out:
        out.write(head)
        shutil.copyfileobj(stream, out)
    return target
