"""Sorting scores, ordering them, parting them, and placing some among others.

Radix sorts and a merge in C; numpy's sorts and binary searches for few rows, for other
types, and without the library. Either way the results are the same.
"""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.kernels import _native
from trustdoctor.kernels.threads import cores, map_threads

_RADIX_ROWS = 1 << 16  # from here on a radix sort beats a comparison sort


_SPLIT_ROWS = 1 << 19  # from here on several threads are worth their start


_MOST_ORDERED = 1 << 32  # places are numbered in 32 bits


_SEARCH_SHARE = 16  # a merge walks through all others; so few are searched for instead


_SAMPLE = 1 << 12  # scores that show where about halves and thirds lie


Ints = NDArray[np.int64]


def sort(values: NDArray[Any]) -> NDArray[Any]:
    """Sort a fresh array of scores without NaN; its memory may be used up.

    Examples
    --------
    >>> sort(np.array([0.3, 0.1, 0.2]))
    array([0.1, 0.2, 0.3])
    """
    if _is_native(values.dtype) and len(values) >= _RADIX_ROWS:
        return _native.sort(values)
    values.sort()
    return values


def order(values: NDArray[Any]) -> Ints:
    """Return the places of scores without NaN, the least first, equals as they stand.

    This is ``np.argsort(values, kind="stable")``. Each thread orders the scores of a
    range of its own, so nothing needs to be merged.

    Examples
    --------
    >>> order(np.array([0.3, 0.1, 0.2, 0.1]))
    array([1, 3, 2, 0])
    """
    n = len(values)
    if not (_is_native(values.dtype) and _RADIX_ROWS <= n < _MOST_ORDERED):
        return np.argsort(values, kind="stable")
    values = np.ascontiguousarray(values)
    cuts = _cuts(values, cores() if n >= _SPLIT_ROWS else 1)
    ends = [0, *(int(np.count_nonzero(values < cut)) for cut in cuts), n]
    out = np.empty(n, np.int64)

    def order_range(part: int) -> None:
        low, high = ([-math.inf, *cuts, math.nan][part + k] for k in (0, 1))
        _native.order(values, low, high, out[ends[part] : ends[part + 1]])

    map_threads(order_range, list(range(len(cuts) + 1)))
    return out


def split(
    values: NDArray[Any], marked: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return fresh arrays of the values that are not marked, and of those that are.

    Examples
    --------
    >>> split(np.array([0.3, 0.1, 0.2]), np.array([False, True, False]))
    (array([0.3, 0.2]), array([0.1]))
    """
    if not _is_native(values.dtype):
        return values[~marked], values[marked]
    return _native.split(np.ascontiguousarray(values), np.ascontiguousarray(marked))


def place(own: NDArray[Any], others: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return how many of the others are below, and at most, each of `own`.

    Both are sorted and free of NaN.

    Examples
    --------
    >>> below, through = place(np.array([1.0, 2.0]), np.array([0.0, 2.0, 2.0, 3.0]))
    >>> below, through
    (array([1, 1]), array([1, 3]))
    """
    dtype = np.result_type(own, others)
    if not _is_native(dtype) or len(own) * _SEARCH_SHARE < len(others):
        below = np.searchsorted(others, own, "left")
        return below, np.searchsorted(others, own, "right")
    own, others = (np.ascontiguousarray(values, dtype) for values in (own, others))
    below, through = np.empty((2, len(own)), np.int64)

    def place_part(part: slice) -> None:
        _native.place(own[part], others, below[part], through[part])

    parts = cores() if len(own) >= _SPLIT_ROWS else 1
    ends = np.linspace(0, len(own), parts + 1).astype(int).tolist()
    map_threads(place_part, [slice(*pair) for pair in itertools.pairwise(ends)])
    return below, through


def _cuts(values: NDArray[Any], parts: int) -> list[float]:
    """Return scores that part the values in about as many on each side."""
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE)])
    at = [len(sample) * part // parts for part in range(1, parts)]
    return sorted({float(cut) for cut in sample[at]})


def _is_native(dtype: np.dtype[Any]) -> bool:
    return _native.available and dtype in (np.float32, np.float64)
