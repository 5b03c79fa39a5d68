"""Requests as JSON: the types, and rows to decide on, read into arrays and checked."""

import base64
import binascii
import math
import re
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import msgspec
import numpy as np

from trustdoctor.service.problems import ProblemError
from trustdoctor.service.settings import Limits

KINDS = ("logits", "probs", "topk", "confidence", "doubt")
"""What a row may hold."""

LONGEST_NOTE = 2000
LONGEST_LINK = 2000
"""Characters."""

# C0 and C1 controls, line and paragraph separators, unpaired surrogates.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_IMAGE = re.compile(r"data:image/(png|jpeg|webp);base64,([A-Za-z0-9+/=]+)\Z")
_SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}


def described(description: str = "", **schema: Any) -> msgspec.Meta:
    """Return what OpenAPI says of a field; msgspec itself checks nothing of it.

    Many limits are settings, and our messages say more than msgspec's.
    """
    return msgspec.Meta(description=description or None, extra_json_schema=schema)


Name = Annotated[str | int, described(minLength=1, maxLength=200)]


class Payload(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a reviewer sees: any of these."""

    text: str | None = None
    image: Annotated[
        str | None, described("A data URL of a PNG, JPEG or WebP in base64.")
    ] = None
    link: Annotated[str | None, described("A URL of http or https.")] = None


class RowTopClasses(msgspec.Struct, forbid_unknown_fields=True):
    """The best classes of a row, and their probabilities."""

    classes: list[Name]
    probs: list[float]


class DecideRow(msgspec.Struct, forbid_unknown_fields=True):
    """One row."""

    id: Annotated[
        Name | None,
        described("Sent again with the same content, it gets the same answer."),
    ] = None
    logits: list[float] | None = None
    probs: list[float] | None = None
    topk: RowTopClasses | None = None
    confidence: float | None = None
    doubt: float | None = None
    predicted: Annotated[
        Name | None, described("The class, with a confidence or a doubt only.")
    ] = None
    group: Name | None = None
    features: list[float] | None = None
    payload: Payload | None = None


class TopClassColumns(msgspec.Struct, forbid_unknown_fields=True):
    """The same of many rows."""

    classes: list[list[Name]]
    probs: list[list[float]]


class DecideColumns(msgspec.Struct, forbid_unknown_fields=True):
    """Many rows, by columns of one length."""

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
    """Many rows of one kind, one after the other."""

    rows: Annotated[list[DecideRow], described(minItems=1)]


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to promote a gate that rejects or accepts every row, too."""

    anyway: bool | None = None


class AddGateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A gate's JSON, and a note."""

    gate: dict[str, Any]
    note: Annotated[str, described(maxLength=LONGEST_NOTE)] = ""


_row_decoder = msgspec.json.Decoder(DecideRow)
_rows_decoder = msgspec.json.Decoder(DecideRows)
_columns_decoder = msgspec.json.Decoder(DecideColumns)
encode = msgspec.json.Encoder().encode


class DecideRequest(msgspec.Struct):
    """Rows of one kind, as they came.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    values : list of lists, list of float, or array
        One entry per row, of one length. Several rows are an array, which takes a
        quarter of the memory.
    ids : list of str, or None
        None if the service shall make them.
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
        By which a repetition is recognised, if that is computed already.
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
    >>> request = read_decide_request(b'{"id": 7, "logits": [2.0, 0.5]}', Limits())
    >>> request.kind, request.ids, request.values
    ('logits', ['7'], [[2.0, 0.5]])
    """
    # msgspec has no union of structs without a tag. Trying one form after the other
    # is quick: the wrong ones fail at their first field.
    try:
        return _from_row(_row_decoder.decode(body), limits)
    except msgspec.ValidationError as error:
        row_error = error
    try:
        return _from_columns(_columns_decoder.decode(body), limits)
    except msgspec.ValidationError as error:
        columns_error = error
    content = msgspec.json.decode(body)
    if not isinstance(content, dict):
        message = (
            'expected one row, {"id": "r1", "logits": [...]}, or many, {"rows": '
            f"[...]}}, got {type(content).__name__}."
        )
        raise ProblemError(400, message)
    if "rows" in content:
        return _from_rows(_rows_decoder.decode(body).rows, limits)
    raise columns_error if _looks_like_columns(content) else row_error


def _looks_like_columns(content: dict[str, Any]) -> bool:
    """Tell whether JSON of no form was meant as columns: it decides on the message."""
    if any(name in content for name in ("ids", "groups", "payloads")):
        return True
    if any(name in content for name in ("id", "group", "payload")):
        return False
    topk = content.get("topk")
    fields = [*content.values(), *(topk.values() if isinstance(topk, dict) else ())]
    return any(
        isinstance(field, list) and field and isinstance(field[0], list)
        for field in fields
    )


def _from_row(row: DecideRow, limits: Limits) -> DecideRequest:
    kind = _kind(row)
    value = getattr(row, kind)
    ids = None if row.id is None else [checked_name(row.id, "id", limits)]
    payload = row.payload
    features = row.features
    return DecideRequest(
        kind,
        _row_values(kind, [value], limits),
        ids,
        [value.classes] if kind == "topk" else None,
        None if row.predicted is None else [checked_class(row.predicted, limits)],
        None if row.group is None else [checked_class(row.group, limits)],
        None if features is None else _matrix([features], limits.features, "features"),
        None if payload is None else [encoded_payload(payload, limits)],
        single=True,
    )


def _from_rows(rows: list[DecideRow], limits: Limits) -> DecideRequest:
    _check_row_count(rows, limits)
    kinds = {_kind(row) for row in rows}
    if len(kinds) > 1:
        message = f"expected rows of one kind, got {', '.join(sorted(kinds))}."
        raise ProblemError(400, f"{message} Send each kind in its own request.")
    kind = kinds.pop()
    values = [getattr(row, kind) for row in rows]
    features = _all_or_none([row.features for row in rows], "features")
    ids = _all_or_none([row.id for row in rows], "id")
    groups = _all_or_none([row.group for row in rows], "group")
    predicted = _all_or_none([row.predicted for row in rows], "predicted")
    payloads = [
        None if row.payload is None else encoded_payload(row.payload, limits)
        for row in rows
    ]
    return DecideRequest(
        kind,
        _row_values(kind, values, limits),
        _checked_ids(ids, limits),
        [value.classes for value in values] if kind == "topk" else None,
        _checked_classes(predicted, limits),
        _checked_classes(groups, limits),
        None if features is None else _matrix(features, limits.features, "features"),
        payloads if any(payload is not None for payload in payloads) else None,
    )


def _from_columns(columns: DecideColumns, limits: Limits) -> DecideRequest:
    kind = _kind(columns)
    value = getattr(columns, kind)
    rows = value.probs if kind == "topk" else value
    _check_row_count(rows, limits)
    for name in ("ids", "predicted", "groups", "features", "payloads"):
        column = getattr(columns, name)
        if column is not None and len(column) != len(rows):
            message = (
                f"expected {len(rows):,} {name}, one per row, got {len(column):,}."
            )
            raise ProblemError(400, message)
    if kind == "topk":
        if len(value.classes) != len(rows):
            message = (
                f"expected classes for {len(rows):,} rows, got {len(value.classes):,}."
            )
            raise ProblemError(400, message)
        pairs = zip(value.classes, value.probs, strict=True)
        values = _row_values(kind, [RowTopClasses(*pair) for pair in pairs], limits)
    else:
        values = _row_values(kind, rows, limits)
    features, payloads = columns.features, columns.payloads
    return DecideRequest(
        kind,
        values,
        _checked_ids(columns.ids, limits),
        value.classes if kind == "topk" else None,
        _checked_classes(columns.predicted, limits),
        _checked_classes(columns.groups, limits),
        None if features is None else _matrix(features, limits.features, "features"),
        None
        if payloads is None
        else [None if p is None else encoded_payload(p, limits) for p in payloads],
    )


def _checked_ids(ids: list[Name] | None, limits: Limits) -> list[str] | None:
    if ids is None:
        return None
    if {*map(type, ids)} == {str}:
        # Ids of most requests: three passes in C instead of a call per id.
        texts = cast("list[str]", ids)
        lengths = {*map(len, texts)}
        if (
            max(lengths) <= limits.name
            and min(lengths)
            and "".join(texts).isprintable()
        ):
            return texts
    return [checked_name(name, "id", limits) for name in ids]


def _checked_classes(names: list[Name] | None, limits: Limits) -> list[Name] | None:
    if names is None:
        return None
    if len({type(name) for name in names}) > 1:
        message = "expected all groups or classes as text, or as numbers, got both."
        raise ProblemError(400, message)
    return [checked_class(name, limits) for name in names]


def _kind(content: DecideRow | DecideColumns) -> str:
    """Return the name of the one thing that a row holds."""
    if (  # most rows: without a loop over names
        content.logits is not None
        and content.probs is None
        and content.topk is None
        and content.confidence is None
        and content.doubt is None
        and content.predicted is None
    ):
        return "logits"
    kinds = [name for name in KINDS if getattr(content, name) is not None]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none of them"
        message = f"expected one of {', '.join(KINDS)}, got {got}. Send one."
        raise ProblemError(400, message)
    if content.predicted is not None and kinds[0] not in ("confidence", "doubt"):
        message = f"expected predicted beside confidence alone, got {kinds[0]}."
        raise ProblemError(400, message)
    return kinds[0]


def _check_row_count(rows: Sequence[Any], limits: Limits) -> None:
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


def _matrix(rows: list[list[float]], widest: int, name: str) -> Any:
    """Return rows of one width: one as it is, several as an array."""
    width = len(rows[0])
    if not 1 <= width <= widest:
        message = f"expected 1 to {widest:,} {name} per row, got {width:,}."
        raise ProblemError(400, message)
    widths = list(map(len, rows))
    if widths.count(width) < len(rows):
        row = next(row for row, other in enumerate(widths) if other != width)
        message = (
            f"expected {width:,} {name} in every row, got {widths[row]:,} in row "
            f"{row}. Send rows of one length."
        )
        raise ProblemError(400, message)
    if len(rows) == 1:
        return rows
    # Of 1,000 rows of 10 numbers: 127 us, where np.array takes 165.
    flat = np.fromiter(chain.from_iterable(rows), np.float64, width * len(rows))
    return flat.reshape(len(rows), width)


def _all_or_none(values: list[Any], name: str) -> list[Any] | None:
    """Return a field of all rows; None if none has it."""
    missing = sum(value is None for value in values)
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
            f"{text[:40]!a}. Remove them."
        )
        raise ProblemError(400, message)
    return text


def checked_note(note: str) -> str:
    """Return a note, or refuse one that is too long or cannot be shown."""
    if len(note) > LONGEST_NOTE or (not note.isprintable() and _CONTROL.search(note)):
        message = (
            f"expected a note of {LONGEST_NOTE:,} characters at most, without control "
            "characters, got another. Shorten it, or remove them."
        )
        raise ProblemError(400, message)
    return note


def checked_class(value: Name, limits: Limits) -> Name:
    """Return a class or a group, or refuse one that cannot be stored."""
    if type(value) is str:
        return checked_name(value, "entry", limits)
    if not -(1 << 63) <= int(value) < 1 << 63:
        message = "expected numbers of 64 bits at most, got a larger one."
        raise ProblemError(400, message)
    return value


def encoded_payload(payload: Payload, limits: Limits) -> bytes:
    """Return a payload as JSON, or refuse one that reviewers cannot be shown."""
    content = encode(payload)
    if len(content) > limits.payload:
        message = (
            f"expected a payload of {limits.payload:,} bytes at most, got "
            f"{len(content):,}. Send a smaller image, or a link."
        )
        raise ProblemError(413, message)
    if payload.image is not None:
        _check_image(payload.image)
    if payload.link is not None:
        _check_link(payload.link)
    if payload.text is not None and _has_unpaired_surrogate(payload.text):
        message = "expected text, got an unpaired surrogate. Remove it."
        raise ProblemError(400, message)
    return content


def _has_unpaired_surrogate(text: str) -> bool:
    """Tell whether text cannot be encoded: JSON may escape half a pair (RFC 8259, 8.2).

    Python reads the two halves of a pair as one character.
    """
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _check_image(image: str) -> None:
    """Refuse all but three formats without scripts; SVG has them.

    The content has to begin as its type says, so no browser guesses another.
    """
    url = _IMAGE.match(image)
    content = b""
    if url:
        try:
            content = base64.b64decode(url[2], validate=True)
        except binascii.Error:
            url = None
    if not url or not content.startswith(_SIGNATURES[url[1]]):
        message = (
            "expected an image as data:image/png;base64,..., or jpeg or webp, got "
            f"{image[:30]!a}. Send one of these, or a link."
        )
        raise ProblemError(400, message)


def _check_link(link: str) -> None:
    try:
        parts = urlsplit(link)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if not is_url or len(link) > LONGEST_LINK or _CONTROL.search(link) or " " in link:
        message = (
            f"expected a link as https://..., of {LONGEST_LINK:,} characters at most, "
            f"got {link[:40]!a}."
        )
        raise ProblemError(400, message)


def json_number(doubt: float) -> float | str:
    """Return a doubt as JSON: infinities are words, which JSON has no numbers for."""
    return doubt if math.isfinite(doubt) else str(doubt)
