"""The JSON that trustdoctor writes: each document names its kind and its schema.

A document may have been tampered with, so it must be a regular file of bounded size,
and what JSON leaves open (a key twice, NaN, numbers beyond 64 bits) is refused: two
readers could understand it differently (RFC 8259, sections 4 and 6).
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
"""The most bytes of a document: a gate may have 100,000 groups."""

MAX_DEPTH = 32
"""The most lists and objects within each other."""

MOST_ROWS = 1 << 53
"""Counts of rows in a document are below it, so that floats hold them exactly."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST_ROWS)]
"""The type of a number of rows in a document."""

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""The type of a share or a probability in a document."""

Number = float | Literal["inf", "-inf"]
"""The type of what `number` writes; `read_number` gives the float."""

T = TypeVar("T")

_LEAST_INT, _LARGEST_INT = -(1 << 63), (1 << 64) - 1  # that arrays can hold


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
    document = {"trustdoctor": kind, "schema": schema, **content}
    return json.dumps(document, indent=indent, allow_nan=False) + "\n"


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
    """Return the content of a document whose text was read from a path, as `load`."""
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
        got = "JSON"
        if isinstance(document_kind, str) and document_kind.isidentifier():
            got = _a(document_kind)
        message = (
            f"expected {_a(kind)} of trustdoctor in {path}, got {got}. Name another "
            "file."
        )
        raise FileError(message)
    schema = content.get("schema")
    if type(schema) is not int or schema not in schemas:
        readable = " or ".join(map(str, schemas))
        message = f"expected {_a(kind)} of schema {readable} in {path}, got "
        if type(schema) is int and schema < min(schemas):
            message += f"{schema}, which an earlier version of trustdoctor wrote. "
            message += renewal
        else:
            message += f"{shown(schema)}. Use the version of trustdoctor that wrote it."
        raise FileError(message)
    return content


def _a(kind: str) -> str:
    """Return a kind with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def read_bounded(path: str | os.PathLike[str], kind: str, limit: int = LIMIT) -> str:
    """Return the text of a regular file of at most `limit` bytes.

    A folder, a pipe, a device or a larger file is refused.
    """
    try:
        _require_regular(path, kind, Path(path).stat().st_mode)
        # The file may have become a pipe since, for which open would wait.
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
    """Return the content of JSON; refuse what readers understand differently.

    Examples
    --------
    >>> parse('{"n": 1, "n": 2}')
    Traceback (most recent call last):
    ValueError: it has 'n' twice
    """
    try:
        content = json.loads(
            text,
            object_pairs_hook=unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_bounded_int,
        )
        too_deep = _is_too_deep(content)
    except RecursionError:
        too_deep = True
    if too_deep:
        message = f"it is nested more than {MAX_DEPTH} deep"
        raise ValueError(message)
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        message = "it contains an unpaired surrogate, which no text file can hold"
        raise ValueError(message) from None
    return content


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; refuse one that has a key twice."""
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            message = f"it has {shown(key)} twice"
            raise ValueError(message)
        entries[key] = value
    return entries


def _refuse_constant(name: str) -> Any:
    message = f"{name} is not valid JSON"
    raise ValueError(message)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        message = f"it has the number {shown(digits)}, which is too large"
        raise ValueError(message)
    return value


def _bounded_int(digits: str) -> int:
    # Python refuses to read integers of more than 4,300 digits, with another message.
    is_short = len(digits) <= len(str(_LEAST_INT))
    value = int(digits) if is_short else _LARGEST_INT + 1
    if not _LEAST_INT <= value <= _LARGEST_INT:
        message = f"it has a whole number beyond 64 bits, {shown(digits)}"
        raise ValueError(message)
    return value


def _is_too_deep(content: Any) -> bool:
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        next_level: list[Any] = []
        for value in level:
            if isinstance(value, (dict, list)):
                next_level += value.values() if isinstance(value, dict) else value
        level = next_level
    return bool(level)


def shown(value: Any) -> str:
    """Return a value as text for a message, shortened."""
    return reprlib.repr(value)


def check_fields(content: Any, names: set[str], optional: set[str] = set()) -> None:  # noqa: B006
    """Refuse a part of a document with a missing or an unknown field."""
    if not isinstance(content, dict):
        message = f"expected fields, got {shown(content)}."
        raise FileError(message)
    odd = (names - set(content)) | (set(content) - names - optional)
    if odd:
        names_in_words = ", ".join(sorted(map(_field_name, odd)))
        message = f"missing or unknown fields: {names_in_words}."
        raise FileError(message)


def _field_name(name: Any) -> str:
    """Return the name of a field as it is, or quoted if a message could not hold it."""
    is_plain = isinstance(name, str) and name.isidentifier() and len(name) <= 30
    return name if is_plain else shown(name)


def number(value: float) -> Number:
    """Return a number as JSON can hold it: infinities as "inf" and "-inf"."""
    if math.isfinite(value):
        return value
    return "inf" if value > 0 else "-inf"


def read_number(value: Any) -> float:
    """Return the float that `number` wrote."""
    if type(value) in (int, float) or value in ("inf", "-inf"):
        return float(value)
    message = f"expected numbers, got {shown(value)}."
    raise FileError(message)


def read_list(value: Any) -> list[Any]:
    """Return a list, or refuse any other value."""
    if isinstance(value, list):
        return value
    message = f"expected a list, got {shown(value)}."
    raise FileError(message)


def read_text(value: Any) -> str:
    """Return text, or refuse any other value."""
    if isinstance(value, str):
        return value
    message = f"expected text, got {shown(value)}."
    raise FileError(message)


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of documents and their parts: typed fields, and no others."""


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
    """Return msgspec's message, with the path in front and unknown names quoted."""
    # The name of an unknown field may hold anything, control characters included.
    text, _, path = message.partition(" - at `$")
    path = (parent + path.removesuffix("`")).removeprefix(".")
    field = re.fullmatch(
        "Object (?:contains )?(unknown|missing)(?: required)? field `(.*)`",
        text,
        re.DOTALL,
    )
    text = text.replace("`", "")
    if field:
        text = f"{field[1]} field {_field_name(field[2])}"
    place = shown(path)[1:-1] + ": " if path else ""
    return f"{place}{text[:1].lower()}{text[1:]}."
