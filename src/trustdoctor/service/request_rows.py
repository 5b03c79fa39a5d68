"""What a row holds, as bytes: to be kept, and to tell a repetition by."""

import struct
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.service.schemas import DecideRequest, encode

MOST_PREPARED = 1 << 18
"""Numbers of a request that is made ready before its turn."""


def as_array(rows: Any) -> Array:
    """Return rows of one length as an array (n, C), or numbers as one (n,).

    Examples
    --------
    >>> as_array([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 2.],
           [3., 4.]])
    """
    if isinstance(rows, np.ndarray):
        return rows
    if not isinstance(rows[0], list):
        return np.array(rows, np.float64)
    n, width = len(rows), len(rows[0])
    flat = np.fromiter(chain.from_iterable(rows), np.float64, n * width)
    return flat.reshape(n, width)


def answers_of(rows: DecideRequest) -> list[bytes]:
    """Return what each row holds, as bytes."""
    if rows.kind == "topk":
        assert rows.classes is not None
        pairs = zip(rows.classes, rows.values, strict=True)
        return [encode([own, _plain_row(probs)]) for own, probs in pairs]
    if len(rows) == 1:  # which is most requests, and numpy is slow to start
        first = rows.values[0]
        own = first if hasattr(first, "__len__") else [first]
        return [struct.pack(f"={len(own)}d", *own)]
    whole = as_array(rows.values).tobytes()
    step = len(whole) // len(rows)
    return [whole[at : at + step] for at in range(0, len(whole), step)]


def prepare(rows: DecideRequest) -> None:
    """Do what needs no store: it is work less for the one thread that writes.

    Not for one row, which is taken together with others, nor for a request that would
    hold much memory while it waits.
    """
    first = rows.values[0]
    wide = len(first) if hasattr(first, "__len__") else 1
    if len(rows) > 1 and len(rows) * wide <= MOST_PREPARED:
        rows.answers = answers_of(rows)
        rows.digests = digests_of(rows)


def digests_of(rows: DecideRequest) -> list[bytes]:
    """Return 16 bytes of each row, by which a repetition is told from other content."""
    if rows.digests is not None:
        return rows.digests
    answers = rows.answers or answers_of(rows)
    begun = blake2b(rows.kind.encode(), digest_size=16)  # copied at half the cost

    def digest(content: bytes) -> bytes:
        own = begun.copy()
        own.update(content)
        return own.digest()

    beside = [rows.predicted, rows.groups, rows.features, rows.payloads]
    if all(one is None for one in beside):
        return [*map(digest, answers)]
    out = []
    for at, answer in enumerate(answers):
        own = [None if one is None else _plain_row(one[at]) for one in beside]
        # Alike, whatever the rows beside it have.
        some = own != [None] * len(own)
        out.append(digest(b"\0".join((answer, encode(own))) if some else answer))
    return out


def _plain_row(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
