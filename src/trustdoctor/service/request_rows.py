"""Rows of requests: as arrays, joined to one request, and as bytes to be stored."""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.service.schemas import DecideRequest, encode
from trustdoctor.service.times import new_ids

MOST_PREPARED = 1 << 18
"""Numbers of a request, at most, whose bytes are made before its turn."""


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


def batch_key(request: DecideRequest) -> tuple[Any, ...]:
    """Return what requests must share to be scored together."""
    first = request.values[0]
    groups, features = request.groups, request.features
    return (
        request.kind,
        len(first) if hasattr(first, "__len__") else 0,
        None if features is None else len(features[0]),
        None if groups is None else {type(group) for group in groups} == {int},
        request.predicted is None,
    )


def join_requests(requests: Sequence[DecideRequest]) -> DecideRequest:
    """Return the rows of several requests as one."""
    first = requests[0]
    if len(requests) == 1:
        return first

    def joined_lists(name: str) -> Any:
        if getattr(first, name) is None:
            return None
        return [value for request in requests for value in getattr(request, name)]

    values = (
        np.concatenate([as_array(request.values) for request in requests])
        if any(isinstance(request.values, np.ndarray) for request in requests)
        else joined_lists("values")
    )
    outputs = digests = payloads = None
    if all(request.outputs is not None for request in requests):
        outputs = [out for request in requests for out in request.outputs or ()]
    if any(request.digests is not None for request in requests):
        digests = [*chain.from_iterable(map(row_digests, requests))]
    if any(request.payloads for request in requests):
        payloads = [
            payload
            for request in requests
            for payload in request.payloads or [None] * len(request)
        ]
    return DecideRequest(
        first.kind,
        values,
        [name for request in requests for name in request.ids or new_ids(len(request))],
        joined_lists("classes"),
        joined_lists("predicted"),
        joined_lists("groups"),
        joined_lists("features"),
        payloads,
        outputs=outputs,
        digests=digests,
    )


def row_outputs(request: DecideRequest) -> list[bytes]:
    """Return the model's output for each row as it is stored."""
    if request.outputs is not None:
        return request.outputs
    if request.kind == "topk":
        assert request.classes is not None
        pairs = zip(request.classes, request.values, strict=True)
        return [encode([classes, _as_list(probs)]) for classes, probs in pairs]
    if len(request) == 1:  # most requests, for which a call of numpy takes long
        first = request.values[0]
        numbers = first if hasattr(first, "__len__") else [first]
        return [struct.pack(f"={len(numbers)}d", *numbers)]
    content = as_array(request.values).tobytes()
    width = len(content) // len(request)
    return [content[start : start + width] for start in range(0, len(content), width)]


def precompute_bytes(request: DecideRequest) -> None:
    """Make the bytes of a request in its own thread: less to do for the only writer.

    Not those of one row, which is joined with others first, nor those of a request that
    would hold much memory while it waits.
    """
    first = request.values[0]
    width = len(first) if hasattr(first, "__len__") else 1
    if len(request) > 1 and len(request) * width <= MOST_PREPARED:
        request.outputs = row_outputs(request)
        request.digests = row_digests(request)


def row_digests(request: DecideRequest) -> list[bytes]:
    """Return 16 bytes for each row, which tell a repetition from other content."""
    if request.digests is not None:
        return request.digests
    outputs = row_outputs(request)
    # To copy a hash takes half the time of making one.
    kind_hash = blake2b(request.kind.encode(), digest_size=16)

    def digest(content: bytes) -> bytes:
        row_hash = kind_hash.copy()
        row_hash.update(content)
        return row_hash.digest()

    columns = [request.predicted, request.groups, request.features, request.payloads]
    if all(column is None for column in columns):
        return [*map(digest, outputs)]
    digests = []
    for row, output in enumerate(outputs):
        fields = [
            None if column is None else _as_list(column[row]) for column in columns
        ]
        # A row without any has the same digest whether or not its neighbours have some.
        has_fields = fields != [None] * len(fields)
        content = b"\0".join((output, encode(fields))) if has_fields else output
        digests.append(digest(content))
    return digests


def _as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
