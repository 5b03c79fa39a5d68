"""Digests of arrays, at the speed of memory."""

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.kernels import _native
from trustdoctor.kernels.threads import map_threads

_BLOCK_BYTES = 1 << 24  # digested by a thread at a time


def digest(*arrays: NDArray[Any]) -> bytes:
    """Return bytes that are equal only for arrays of equal content and type.

    They are valid within this process: its random keys keep anybody from constructing
    two arrays with one digest.

    Examples
    --------
    >>> scores = np.array([0.1, 0.2])
    >>> digest(scores) == digest(scores.copy()), digest(scores) == digest(scores[::-1])
    (True, False)
    """
    plain = [np.ascontiguousarray(array) for array in arrays]
    shapes = [f"{array.dtype.str}{array.shape}" for array in plain]
    blocks = [
        octets[start : start + _BLOCK_BYTES]
        for octets in (array.reshape(-1).view(np.uint8) for array in plain)
        for start in range(0, len(octets), _BLOCK_BYTES)
    ]
    return "".join(shapes).encode() + b"".join(map_threads(_digest, blocks))


def _digest(octets: NDArray[np.uint8]) -> bytes:
    if _native.available:
        return _native.digest(octets)
    return blake2b(octets.data, digest_size=16).digest()
