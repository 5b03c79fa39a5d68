"""What comes to be decided on: JSON, read into arrays and checked row by row."""

import base64
import binascii
import math
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import numpy as np

from trustdoctor.service.problems import ProblemError
from trustdoctor.service.settings import Limits

KINDS = ("logits", "probs", "topk", "confidence", "doubt")
"""What a row may hold."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_IMAGE = re.compile(r"data:image/(png|jpeg|webp);base64,([A-Za-z0-9+/=]+)\Z")
_MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}

Name = str | int


class Payload(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a reviewer should see."""

    text: str | None = None
    image: str | None = None
    link: str | None = None


class TopClasses(msgspec.Struct, forbid_unknown_fields=True):
    """The best classes of a row, and their probabilities."""

    classes: list[Name]
    probs: list[float]


class DecideRow(msgspec.Struct, forbid_unknown_fields=True):
    """One row."""

    id: Name | None = None
    logits: list[float] | None = None
    probs: list[float] | None = None
    topk: TopClasses | None = None
    confidence: float | None = None
    doubt: float | None = None
    predicted: Name | None = None
    group: Name | None = None
    features: list[float] | None = None
    payload: Payload | None = None


class TopClassColumns(msgspec.Struct, forbid_unknown_fields=True):
    """The same of many rows."""

    classes: list[list[Name]]
    probs: list[list[float]]


class DecideColumns(msgspec.Struct, forbid_unknown_fields=True):
    """Many rows, by columns."""

    ids: list[Name] | None = None
    logits: list[list[float]] | None = None
    probs: list[list[float]] | None = None
    topk: TopClassColumns | None = None
    confidence: list[float] | None = None
    doubt: list[float] | None = None
    predicted: list[Name] | None = None
    groups: list[Name] | None = None
    features: list[list[float]] | None = None
    payloads: list[Payload | None] | None = None


class DecideRows(msgspec.Struct, forbid_unknown_fields=True):
    """Many rows, one after the other."""

    rows: list[DecideRow]


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to promote a gate that rejects or accepts every row, too."""

    anyway: bool | None = None


class AddGateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A gate's JSON, and a note."""

    gate: dict[str, Any]
    note: str = ""


_one = msgspec.json.Decoder(DecideRow)
_many = msgspec.json.Decoder(DecideRows)
_columns = msgspec.json.Decoder(DecideColumns)
encode = msgspec.json.Encoder().encode


class DecideRequest(msgspec.Struct):
    """Rows of one kind, as they came.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    values : list of lists, list of float, or array
        One entry per row, of one length. Many rows are an array, which takes a quarter
        of the memory.
    ids : list of str, or None
        None where the service makes them.
    classes : list of lists, or None
        Of top-k answers.
    predicted, groups : lists, or None
    features : list of lists, array, or None
    payloads : list of bytes or None, or None
        As JSON.
    single : bool
        Whether it came as one object, and is answered by one.
    outputs : list of bytes, or None
        The model's output for each row, as it is stored.
    digests : list of bytes, or None
        What a repetition is told by, where that is known already.
    """

    kind: str
    values: Any
    ids: list[str] | None = None
    classes: list[list[Name]] | None = None
    predicted: list[Name] | None = None
    groups: list[Name] | None = None
    features: Any = None
    payloads: list[bytes | None] | None = None
    single: bool = False
    outputs: list[bytes] | None = None
    digests: list[bytes] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)


def read_decide_request(body: bytes, limits: Limits) -> DecideRequest:
    """Read a request to decide, in any of its three forms.

    Examples
    --------
    >>> rows = read_decide_request(b'{"id": 7, "logits": [2.0, 0.5]}', Limits())
    >>> rows.kind, rows.ids, rows.values
    ('logits', ['7'], [[2.0, 0.5]])
    """
    try:
        return _from_one(_one.decode(body), limits)
    except msgspec.ValidationError as error:  # each of the three fails at its start
        wrong = error
    try:
        return _from_columns(_columns.decode(body), limits)
    except msgspec.ValidationError as error:
        nested = error
    top = msgspec.json.decode(body)
    if not isinstance(top, dict):
        message = (
            'expected one row, {"id": "r1", "logits": [...]}, or many, {"rows": '
            f"[...]}}, got {type(top).__name__}."
        )
        raise ProblemError(400, message)
    if "rows" in top:
        return _from_many(_many.decode(body).rows, limits)
    raise nested if _is_table(top) else wrong


def _is_table(top: dict[str, Any]) -> bool:
    """Tell whether what fits no form was meant as columns."""
    if any(name in top for name in ("ids", "groups", "payloads")):
        return True
    if any(name in top for name in ("id", "group", "payload")):
        return False
    inner = top.get("topk")
    parts = [*top.values(), *(inner.values() if isinstance(inner, dict) else ())]
    return any(
        isinstance(own, list) and own and isinstance(own[0], list) for own in parts
    )


def _from_one(one: DecideRow, limits: Limits) -> DecideRequest:
    kind = _kind(one)
    value = getattr(one, kind)
    ids = None if one.id is None else [checked_name(one.id, "id", limits)]
    payload = one.payload
    features = one.features
    return DecideRequest(
        kind,
        _row_values(kind, [value], limits),
        ids,
        [value.classes] if kind == "topk" else None,
        None if one.predicted is None else [checked_class(one.predicted, limits)],
        None if one.group is None else [checked_class(one.group, limits)],
        None if features is None else _matrix([features], limits.features, "features"),
        None if payload is None else [encoded_payload(payload, limits)],
        single=True,
    )


def _from_many(rows: list[DecideRow], limits: Limits) -> DecideRequest:
    _count(rows, limits)
    kinds = {_kind(one) for one in rows}
    if len(kinds) > 1:
        message = f"expected rows of one kind, got {', '.join(sorted(kinds))}."
        raise ProblemError(400, f"{message} Send them in requests of their own.")
    kind = kinds.pop()
    values = [getattr(one, kind) for one in rows]
    features = _all_or_none([one.features for one in rows], "features")
    ids = _all_or_none([one.id for one in rows], "id")
    groups = _all_or_none([one.group for one in rows], "group")
    said = _all_or_none([one.predicted for one in rows], "predicted")
    payloads = [
        None if one.payload is None else encoded_payload(one.payload, limits)
        for one in rows
    ]
    return DecideRequest(
        kind,
        _row_values(kind, values, limits),
        _ids(ids, limits),
        [value.classes for value in values] if kind == "topk" else None,
        _names(said, limits),
        _names(groups, limits),
        None if features is None else _matrix(features, limits.features, "features"),
        payloads if any(one is not None for one in payloads) else None,
    )


def _from_columns(given: DecideColumns, limits: Limits) -> DecideRequest:
    kind = _kind(given)
    value = getattr(given, kind)
    rows = value.probs if kind == "topk" else value
    _count(rows, limits)
    for name in ("ids", "predicted", "groups", "features", "payloads"):
        own = getattr(given, name)
        if own is not None and len(own) != len(rows):
            message = f"expected {len(rows):,} {name}, one per row, got {len(own):,}."
            raise ProblemError(400, message)
    if kind == "topk":
        if len(value.classes) != len(rows):
            message = (
                f"expected classes for {len(rows):,} rows, got {len(value.classes):,}."
            )
            raise ProblemError(400, message)
        tops = zip(value.classes, value.probs, strict=True)
        values = _row_values(kind, [TopClasses(*top) for top in tops], limits)
    else:
        values = _row_values(kind, rows, limits)
    features, payloads = given.features, given.payloads
    return DecideRequest(
        kind,
        values,
        _ids(given.ids, limits),
        value.classes if kind == "topk" else None,
        _names(given.predicted, limits),
        _names(given.groups, limits),
        None if features is None else _matrix(features, limits.features, "features"),
        None
        if payloads is None
        else [None if p is None else encoded_payload(p, limits) for p in payloads],
    )


def _ids(given: list[Name] | None, limits: Limits) -> list[str] | None:
    if given is None:
        return None
    if {*map(type, given)} == {str}:  # most requests, told at once
        texts = cast("list[str]", given)
        lengths = {*map(len, texts)}
        if (
            max(lengths) <= limits.name
            and min(lengths)
            and "".join(texts).isprintable()
        ):
            return texts
    return [checked_name(one, "id", limits) for one in given]


def _names(given: list[Name] | None, limits: Limits) -> list[Name] | None:
    if given is None:
        return None
    if len({type(one) for one in given}) > 1:
        message = "expected all groups or classes as text, or as numbers, got both."
        raise ProblemError(400, message)
    return [checked_class(one, limits) for one in given]


def _kind(given: DecideRow | DecideColumns) -> str:
    """Return the one thing that a row holds."""
    if (  # most rows, told at once
        given.logits is not None
        and given.probs is None
        and given.topk is None
        and given.confidence is None
        and given.doubt is None
        and given.predicted is None
    ):
        return "logits"
    found = [name for name in KINDS if getattr(given, name) is not None]
    if len(found) != 1:
        got = " and ".join(found) or "none of them"
        message = f"expected one of {', '.join(KINDS)}, got {got}. Send one."
        raise ProblemError(400, message)
    if given.predicted is not None and found[0] not in ("confidence", "doubt"):
        message = f"expected predicted beside confidence alone, got {found[0]}."
        raise ProblemError(400, message)
    return found[0]


def _count(rows: Sequence[Any], limits: Limits) -> None:
    if not 1 <= len(rows) <= limits.rows:
        message = (
            f"expected 1 to {limits.rows:,} rows, got {len(rows):,}. Send them in "
            "several requests."
        )
        raise ProblemError(413 if rows else 400, message)


def _row_values(kind: str, values: list[Any], limits: Limits) -> Any:
    if kind in ("confidence", "doubt"):
        return values
    if kind != "topk":
        return _matrix(values, limits.classes, kind)
    for top in values:
        if len(top.classes) != len(top.probs):
            message = (
                f"expected as many classes as probs, got {len(top.classes)} and "
                f"{len(top.probs)}."
            )
            raise ProblemError(400, message)
    return _matrix([top.probs for top in values], limits.classes, "topk")


def _matrix(rows: list[list[float]], most: int, name: str) -> Any:
    width = len(rows[0])
    if not 1 <= width <= most:
        message = f"expected 1 to {most:,} {name} per row, got {width:,}."
        raise ProblemError(400, message)
    lengths = list(map(len, rows))
    if lengths.count(width) < len(rows):
        row = next(at for at, own in enumerate(lengths) if own != width)
        message = (
            f"expected {width:,} {name} in every row, got {lengths[row]:,} in row "
            f"{row}. Send rows of one length."
        )
        raise ProblemError(400, message)
    if len(rows) == 1:
        return rows
    flat = np.fromiter(chain.from_iterable(rows), np.float64, width * len(rows))
    return flat.reshape(len(rows), width)


def _all_or_none(values: list[Any], name: str) -> list[Any] | None:
    missing = sum(one is None for one in values)
    if missing == len(values):
        return None
    if missing:
        message = (
            f"expected {name} in every row or in none, got {missing:,} of "
            f"{len(values):,} rows without."
        )
        raise ProblemError(400, message)
    return values


def checked_name(value: Name, what: str, limits: Limits) -> str:
    """Return an id as text, or refuse one that a log or a page could not show."""
    text = value if type(value) is str else str(value)
    if not 0 < len(text) <= limits.name:
        message = f"expected an {what} of 1 to {limits.name} characters"
        raise ProblemError(400, f"{message}, got {len(text):,}.")
    if not text.isprintable() and _CONTROL.search(text):
        message = (
            f"expected an {what} without control characters, got "
            f"{text[:40]!a}. Take them out."
        )
        raise ProblemError(400, message)
    return text


def checked_note(note: str) -> str:
    """Return a note, or refuse one that is too long or cannot be shown."""
    if len(note) > 2000 or (not note.isprintable() and _CONTROL.search(note)):
        message = (
            "expected a note of 2,000 characters at most, without control characters, "
            "got another."
        )
        raise ProblemError(400, message)
    return note


def checked_class(value: Name, limits: Limits) -> Name:
    """Return a group or a class, or refuse one that cannot be kept."""
    if type(value) is str:
        return checked_name(value, "entry", limits)
    if not -(1 << 63) <= int(value) < 1 << 63:
        message = "expected numbers of 64 bits at most, got a larger one."
        raise ProblemError(400, message)
    return value


def encoded_payload(payload: Payload, limits: Limits) -> bytes:
    """Return what a reviewer will see, as JSON, or refuse what is not shown."""
    kept = encode(payload)
    if len(kept) > limits.payload:
        message = (
            f"expected a payload of {limits.payload:,} bytes at most, got "
            f"{len(kept):,}. Send a smaller image, or a link."
        )
        raise ProblemError(413, message)
    if payload.image is not None:
        _check_image(payload.image)
    if payload.link is not None:
        _check_link(payload.link)
    if payload.text is not None and _half(payload.text):
        message = "expected text, got half a character (a lone surrogate)."
        raise ProblemError(400, message)
    return kept


def _half(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text)


def _check_image(image: str) -> None:
    found = _IMAGE.match(image)
    content = b""
    if found:
        try:
            content = base64.b64decode(found[2], validate=True)
        except binascii.Error:
            found = None
    if not found or not content.startswith(_MAGIC[found[1]]):
        message = (
            "expected an image as data:image/png;base64,..., or jpeg or webp, got "
            f"{image[:30]!a}. Send one of these, or a link."
        )
        raise ProblemError(400, message)


def _check_link(link: str) -> None:
    try:
        parts = urlsplit(link)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good or len(link) > 2000 or _CONTROL.search(link) or " " in link:
        message = "expected a link as https://..., of 2,000 characters at most, got "
        raise ProblemError(400, f"{message}{link[:40]!a}.")


def json_number(doubt: float) -> float | str:
    """Return a doubt as JSON has it; infinities are words."""
    return doubt if math.isfinite(doubt) else str(doubt)
