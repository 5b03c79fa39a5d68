"""The JSON that trustdoctor writes: a document says what it is, and which schema."""

import json
import math
from pathlib import Path
from typing import Any

from trustdoctor.errors import FileError


def dump(kind: str, schema: int, content: dict[str, Any], *, indent: int = 2) -> str:
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


def load(path: str | Path, kind: str, *, schemas: tuple[int, ...]) -> dict[str, Any]:
    """Read a document of that kind and one of these schemas.

    `schema` stays in the content, `trustdoctor` does not.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"cannot read the {kind} {path}: {reason}."
        raise FileError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"expected a {kind} as JSON in {path}, got something else: {error}."
        raise FileError(message) from error
    if not isinstance(content, dict) or content.pop("trustdoctor", None) != kind:
        message = f"{path} is JSON, but not a {kind} of trustdoctor. Name another file."
        raise FileError(message)
    if content.get("schema") not in schemas:
        known = " or ".join(map(str, schemas))
        message = (
            f"expected a {kind} of schema {known} in {path}, got "
            f"{content.get('schema')!r}. Use the version of trustdoctor that wrote it."
        )
        raise FileError(message)
    return content


def check_fields(content: Any, names: set[str], optional: set[str] = set()) -> None:  # noqa: B006
    """Refuse a part of a document that lacks a field or has an unknown one."""
    if not isinstance(content, dict):
        message = f"expected fields, got {content!r}."
        raise FileError(message)
    odd = (names - set(content)) | (set(content) - names - optional)
    if odd:
        message = f"it lacks or adds: {', '.join(sorted(map(str, odd)))}."
        raise FileError(message)


def number(value: float) -> float | str:
    """Return a number as JSON has it; infinities are words."""
    return value if math.isfinite(value) else str(value)


def read_number(value: Any) -> float:
    """Read what `number` wrote."""
    if value in ("inf", "-inf") or type(value) in (int, float):
        return float(value)
    message = f"expected numbers, got {value!r}."
    raise FileError(message)


def read_list(value: Any) -> list[Any]:
    """Return a list, or refuse what is not one."""
    if isinstance(value, list):
        return value
    message = f"expected a list, got {value!r}."
    raise FileError(message)
