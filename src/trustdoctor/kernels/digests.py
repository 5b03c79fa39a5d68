"""Telling arrays apart by their content, at the speed of memory."""

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.kernels import _native
from trustdoctor.kernels.threads import map_threads

_BYTES = 1 << 24  # for a thread at a time


def digest(*arrays: NDArray[Any]) -> bytes:
    """Return bytes that are the same for arrays of the same content and type alone.

    They hold within this process: without its keys nobody can make two arrays meet.

    Examples
    --------
    >>> one = np.array([0.1, 0.2])
    >>> digest(one) == digest(one.copy()), digest(one) == digest(one[::-1])
    (True, False)
    """
    plain = [np.ascontiguousarray(array) for array in arrays]
    kinds = [f"{array.dtype.str}{array.shape}" for array in plain]
    parts = [
        octets[start : start + _BYTES]
        for octets in (array.reshape(-1).view(np.uint8) for array in plain)
        for start in range(0, len(octets), _BYTES)
    ]
    return "".join(kinds).encode() + b"".join(map_threads(_digest, parts))


def _digest(octets: NDArray[np.uint8]) -> bytes:
    if _native.available:
        return _native.digest(octets)
    return blake2b(octets.data, digest_size=16).digest()
