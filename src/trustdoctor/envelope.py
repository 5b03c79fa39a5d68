"""The JSON that trustdoctor writes: a document says what it is, and which schema.

Documents are read with suspicion: they are regular files of a bounded size, and what
JSON leaves open (a key twice, NaN, numbers beyond 64 bits) is refused.
"""

import json
import math
import os
import re
import reprlib
import stat
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from trustdoctor.errors import FileError

LIMIT = 64_000_000
"""Bytes that a document has at most: a gate may have 100,000 groups."""

DEEPEST = 32
"""Lists and objects within each other, at most."""

MOST_ROWS = 1 << 53
"""A document counts fewer rows, so that floats hold their number."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST_ROWS)]
"""The type of a number of rows in a document."""

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""The type of a share or a probability in a document."""

Number = float | Literal["inf", "-inf"]
"""The type of what `number` writes; `read_number` gives the float."""

T = TypeVar("T")

_FIRST, _LAST = -(1 << 63), (1 << 64) - 1  # of whole numbers that arrays can hold


def dump(
    kind: str, schema: int, content: dict[str, Any], *, indent: int | None = 2
) -> str:
    """Return a document as JSON; numbers must be finite.

    Examples
    --------
    >>> print(dump("gate", 2, {"score": "alpha"}), end="")
    {
      "trustdoctor": "gate",
      "schema": 2,
      "score": "alpha"
    }
    """
    whole = {"trustdoctor": kind, "schema": schema, **content}
    return json.dumps(whole, indent=indent, allow_nan=False) + "\n"


RENEWAL = "Make it again."
"""What to do with a document of an earlier version."""


class ParsedFile(os.PathLike[str]):
    """A document whose JSON was read, for `load` to take instead of its path.

    Attributes
    ----------
    path : str or Path
    content : object
    kind : str or None
        What the document says it is.
    """

    def __init__(self, path: str | os.PathLike[str], content: Any) -> None:
        self.path, self.content = path, content
        kind = content.get("trustdoctor") if isinstance(content, dict) else None
        self.kind = kind if isinstance(kind, str) else None

    def __fspath__(self) -> str:
        """Return the path."""
        return os.fspath(self.path)

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)


def parse_file(
    path: str | os.PathLike[str], kind: str, limit: int = LIMIT
) -> ParsedFile:
    """Read the JSON of a document that should be of that kind, but may be another."""
    return ParsedFile(
        path, _parse_document(read_bounded(path, kind, limit), path, kind)
    )


def load(
    path: str | os.PathLike[str],
    kind: str,
    *,
    schemas: tuple[int, ...],
    limit: int = LIMIT,
    renewal: str = RENEWAL,
) -> dict[str, Any]:
    """Read a document of that kind and one of these schemas.

    `schema` stays in the content, `trustdoctor` does not. `renewal` says what to do
    with a document of an earlier version.
    """
    file = path if isinstance(path, ParsedFile) else parse_file(path, kind, limit)
    return _require_schema(file.content, path, kind, schemas, renewal)


def check(
    text: str,
    path: str | os.PathLike[str],
    kind: str,
    *,
    schemas: tuple[int, ...],
    renewal: str = RENEWAL,
) -> dict[str, Any]:
    """Return the content of a document that was read from a path; as `load`."""
    content = _parse_document(text, path, kind)
    return _require_schema(content, path, kind, schemas, renewal)


def _parse_document(text: str, path: str | os.PathLike[str], kind: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        message = f"expected {_a(kind)} as JSON in {path}, got something else: {error}."
        raise FileError(message) from error


def _require_schema(
    content: Any,
    path: str | os.PathLike[str],
    kind: str,
    schemas: tuple[int, ...],
    renewal: str,
) -> dict[str, Any]:
    content = dict(content) if isinstance(content, dict) else {}
    document_kind = content.pop("trustdoctor", None)
    if document_kind != kind:
        plain = isinstance(document_kind, str) and document_kind.isidentifier()
        what = f"a {document_kind}" if plain else "JSON"
        message = (
            f"expected {_a(kind)} of trustdoctor in {path}, got {what}. Name another "
            "file."
        )
        raise FileError(message)
    schema = content.get("schema")
    if type(schema) is not int or schema not in schemas:
        known = " or ".join(map(str, schemas))
        earlier = type(schema) is int and schema < min(schemas)
        message = (
            f"expected {_a(kind)} of schema {known} in {path}, got {shown(schema)}"
            + (
                f", which an earlier version of trustdoctor wrote. {renewal}"
                if earlier
                else ". Use the version of trustdoctor that wrote it."
            )
        )
        raise FileError(message)
    return content


def _a(kind: str) -> str:
    """Return a kind with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def read_bounded(path: str | os.PathLike[str], kind: str, limit: int = LIMIT) -> str:
    """Return the text of a regular file of at most `limit` bytes.

    A folder, a pipe, a device or a larger file is refused; nothing is waited for.
    """
    try:
        _require_regular(path, kind, Path(path).stat().st_mode)
        # Without waiting: it may have become a pipe since.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            _require_regular(path, kind, os.fstat(handle).st_mode)
            content = file.read(limit + 1)
    except FileError:
        raise
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        message = f"cannot read the {kind} {path}: {reason}. Name another file."
        raise FileError(message) from error
    if len(content) > limit:
        message = (
            f"expected {_a(kind)} of at most {limit:,} bytes, got more in {path}. Name "
            "another file."
        )
        raise FileError(message)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = (
            f"expected {_a(kind)} as UTF-8 in {path}, got the byte "
            f"0x{content[error.start]:02x} at {error.start:,}. Save it as UTF-8."
        )
        raise FileError(message) from error


def _require_regular(path: str | os.PathLike[str], kind: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    got = kinds.get(stat.S_IFMT(mode), "a device or a socket")
    message = f"expected {_a(kind)} in a file, got {got}, {path}. Name a regular file."
    raise FileError(message)


def parse(text: str) -> Any:
    """Read JSON; refuse what readers of JSON understand in different ways.

    Examples
    --------
    >>> parse('{"n": 1, "n": 2}')
    Traceback (most recent call last):
    ValueError: it has 'n' twice
    """
    try:
        content = json.loads(
            text,
            object_pairs_hook=once,
            parse_constant=_refuse_constant,
            parse_float=_float,
            parse_int=_int,
        )
        deep = _is_deep(content)
    except RecursionError:
        deep = True
    if deep:
        message = f"it is nested more than {DEEPEST} deep"
        raise ValueError(message)
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        message = "it has half a character, which nothing can print"
        raise ValueError(message) from None
    return content


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, refusing one that says something twice."""
    out: dict[str, Any] = {}
    for name, value in pairs:
        if name in out:
            message = f"it has {shown(name)} twice"
            raise ValueError(message)
        out[name] = value
    return out


def _refuse_constant(word: str) -> Any:
    message = f"it has {word}, which is no number of JSON"
    raise ValueError(message)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        message = f"it has the number {shown(digits)}, which is too large"
        raise ValueError(message)
    return value


def _int(digits: str) -> int:
    value = int(digits) if len(digits) <= len(str(_FIRST)) else _LAST + 1
    if not _FIRST <= value <= _LAST:
        message = f"it has a whole number beyond 64 bits, {shown(digits)}"
        raise ValueError(message)
    return value


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, (dict, list)):
                inner += one.values() if isinstance(one, dict) else one
        level = inner
    return bool(level)


def shown(value: Any) -> str:
    """Return a value for a message, cut short."""
    return reprlib.repr(value)


def check_fields(content: Any, names: set[str], optional: set[str] = set()) -> None:  # noqa: B006
    """Refuse a part of a document that lacks a field or has an unknown one."""
    if not isinstance(content, dict):
        message = f"expected fields, got {shown(content)}."
        raise FileError(message)
    odd = (names - set(content)) | (set(content) - names - optional)
    if odd:
        message = f"it lacks or adds: {', '.join(sorted(map(_word, odd)))}."
        raise FileError(message)


def _word(name: Any) -> str:
    """Return the name of a field, as it is where it is a plain one."""
    plain = isinstance(name, str) and name.isidentifier() and len(name) <= 30
    return name if plain else shown(name)


def number(value: float) -> Number:
    """Return a number as JSON has it; infinities are words."""
    if math.isfinite(value):
        return value
    return "inf" if value > 0 else "-inf"


def read_number(value: Any) -> float:
    """Read what `number` wrote."""
    if type(value) in (int, float) or value in ("inf", "-inf"):
        return float(value)
    message = f"expected numbers, got {shown(value)}."
    raise FileError(message)


def read_list(value: Any) -> list[Any]:
    """Return a list, or refuse what is not one."""
    if isinstance(value, list):
        return value
    message = f"expected a list, got {shown(value)}."
    raise FileError(message)


def read_text(value: Any) -> str:
    """Return text, or refuse what is none."""
    if isinstance(value, str):
        return value
    message = f"expected text, got {shown(value)}."
    raise FileError(message)


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of what a document holds: typed fields, by keyword, and no others."""


def convert(content: Any, kind: type[T], path: str = "") -> T:
    """Return a parsed document, or a part of one, as a value of this type.

    Types are strict: true is not 1, 1.0 is not an integer, and a field that the type
    does not declare is refused. `path` is the part's place in the document.

    Examples
    --------
    >>> class Line(Document):
    ...     n: Count
    >>> convert({"n": 3}, Line)
    Line(n=3)
    >>> convert([{"n": 3}, {"n": -3}], list[Line])
    Traceback (most recent call last):
    trustdoctor.errors.FileError: [1].n: expected int >= 0.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise FileError(_sentence(str(error), path)) from error


def _sentence(message: str, parent: str) -> str:
    """Return msgspec's message with the path in front, and what the file says quoted.

    A document's own words (an unknown field's name) may be anything, of any length.
    """
    text, _, path = message.partition(" - at `$")
    path = (parent + path.removesuffix("`")).removeprefix(".")
    field = re.fullmatch(
        "Object (?:contains )?(unknown|missing)(?: required)? field `(.*)`",
        text,
        re.DOTALL,
    )
    text = f"{field[1]} field {_word(field[2])}" if field else text.replace("`", "")
    place = shown(path)[1:-1] + ": " if path else ""
    return f"{place}{text[:1].lower()}{text[1:]}."
