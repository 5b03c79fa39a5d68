"""Arrays of numbers in MATLAB files of version 5.

Cells, structures and functions are passed over.
"""

# Why not `scipy.io.loadmat`: it follows cells however deep they are nested, until the
# process ends, and unpacks as many bytes as a compressed element announces.

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MATRIX, _COMPRESSED = 14, 15

_STORED = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "bBhHiIfdqQ", strict=True))
"""Types in which numbers are stored, by numpy's letters."""

_NUMBERS = range(6, 16)
"""Classes of arrays that hold numbers."""


def read_matlab(content: bytes, *, most: int) -> dict[str, NDArray[Any]]:
    """Return the real arrays of numbers by name, of `most` bytes unpacked in all.

    Numbers are of the type that they are stored in, which may be smaller than that of
    the array. What is not such a file raises a ValueError or another plain exception.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or struct.unpack(f"{order}H", content[124:126]) != (0x100,):
        message = "it is no MATLAB file of version 5"
        raise ValueError(message)
    arrays: dict[str, NDArray[Any]] = {}
    for kind, stored in _elements(content[128:], order):
        body = _unpacked(stored, order, most) if kind == _COMPRESSED else stored
        most -= len(body)
        if most < 0:
            message = "it holds more than a data set does"
            raise ValueError(message)
        name, array = _matrix(body, order)
        if name in arrays:
            message = f"it has the array {name[:80]!r} twice"
            raise ValueError(message)
        if array is not None:
            arrays[name] = array
    return arrays


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each element in turn."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        at += 8
        if kind >> 16:  # a small one: its content lies in the place of the size
            body = content[at - 4 : at][: kind >> 16]
            kind, size = kind & 0xFFFF, kind >> 16
        else:
            body = content[at : at + size]
            at += size + (0 if kind == _COMPRESSED else -size % 8)
        if len(body) != size:
            message = f"an element announces {size:,} bytes, and there are fewer"
            raise ValueError(message)
        yield kind, body


def _unpacked(body: bytes, order: str, most: int) -> bytes:
    """Decompress a matrix, which must have as many bytes as it announces."""
    packed = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", packed.decompress(body, 8))
    if kind != _MATRIX or size > most:
        message = f"{size:,} packed bytes are more than a data set has"
        raise ValueError(message)
    matrix = packed.decompress(packed.unconsumed_tail, size + 1)
    if len(matrix) != size or not packed.eof:
        message = f"an element announces {size:,} bytes, and others are there"
        raise ValueError(message)
    return matrix


def _matrix(body: bytes, order: str) -> tuple[str, NDArray[Any] | None]:
    """Return a matrix's name and its numbers, or None if they are not real."""
    elements = list(islice(_elements(body, order), 4))
    (_, flags), (_, shape), (_, name) = elements[:3]
    (flag,) = struct.unpack_from(f"{order}I", flags)
    named = name.decode("latin-1")
    if flag & 0xFF not in _NUMBERS or flag & 0x800:  # or complex ones
        return named, None
    dims = tuple(np.frombuffer(shape, f"{order}i4").tolist())
    kind, raw = elements[-1]
    wrong = len(elements) < 4 or kind not in _STORED
    if wrong or min(dims, default=-1) < 0 or len(dims) > 32:
        message = f"the array {named[:80]!r} is not made as MATLAB makes one"
        raise ValueError(message)
    stored = np.dtype(order + _STORED[kind])
    if math.prod(dims) * stored.itemsize != len(raw):
        message = f"{len(raw):,} bytes do not fill an array of the shape {dims}"
        raise ValueError(message)
    return named, np.frombuffer(raw, stored).reshape(dims, order="F")
