"""Ranks of scores: sorting them, ordering rows by them, and placing some among others.

Radix sorts and a merge in C; numpy's sorts and binary searches for few rows, for other
types, and without the library. The results are the same. docs/scale.md and
benchmarks/core.py have the times.
"""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.kernels import _native
from trustdoctor.kernels.threads import cores, map_threads

# The first three were measured (benchmarks/core.py); the results do not depend on them.
_RADIX_ROWS = 1 << 16  # from here on a radix sort beats a comparison sort
_THREAD_ROWS = 1 << 19  # from here on several threads are worth starting
_SEARCH_RATIO = 16  # of reference to scores: beyond it, binary searches beat a merge

_MAX_ORDERED = 1 << 32  # the C code stores row numbers in 32 bits
_SAMPLE_SIZE = 1 << 12  # scores from which the ranges of the threads are estimated


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
    """Return the row numbers of scores without NaN in ascending, stable order.

    This is ``np.argsort(values, kind="stable")``. Each thread orders the scores of its
    own range, so nothing needs to be merged.

    Examples
    --------
    >>> order(np.array([0.3, 0.1, 0.2, 0.1]))
    array([1, 3, 2, 0])
    """
    n = len(values)
    if not (_is_native(values.dtype) and _RADIX_ROWS <= n < _MAX_ORDERED):
        return np.argsort(values, kind="stable")
    values = np.ascontiguousarray(values)
    bounds = _quantile_bounds(values, cores() if n >= _THREAD_ROWS else 1)
    offsets = [0, *(int(np.count_nonzero(values < bound)) for bound in bounds), n]
    out = np.empty(n, np.int64)

    def order_range(index: int) -> None:
        low, high = ([-math.inf, *bounds, math.nan][index + k] for k in (0, 1))
        _native.order(values, low, high, out[offsets[index] : offsets[index + 1]])

    map_threads(order_range, list(range(len(bounds) + 1)))
    return out


def split(
    values: NDArray[Any], marked: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return copies of the unmarked values and of the marked ones.

    Examples
    --------
    >>> split(np.array([0.3, 0.1, 0.2]), np.array([False, True, False]))
    (array([0.3, 0.2]), array([0.1]))
    """
    if not _is_native(values.dtype):
        return values[~marked], values[marked]
    return _native.split(np.ascontiguousarray(values), np.ascontiguousarray(marked))


def place(scores: NDArray[Any], reference: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return how many reference scores are below, and how many at most, each score.

    Both arrays are sorted and free of NaN. Half the sum of the two counts is DeLong's
    placement value.

    Examples
    --------
    >>> below, through = place(np.array([1.0, 2.0]), np.array([0.0, 2.0, 2.0, 3.0]))
    >>> below, through
    (array([1, 1]), array([1, 3]))
    """
    dtype = np.result_type(scores, reference)
    if not _is_native(dtype) or len(scores) * _SEARCH_RATIO < len(reference):
        below = np.searchsorted(reference, scores, "left")
        return below, np.searchsorted(reference, scores, "right")
    scores, reference = (
        np.ascontiguousarray(values, dtype) for values in (scores, reference)
    )
    below, through = np.empty((2, len(scores)), np.int64)

    def place_block(block: slice) -> None:
        _native.place(scores[block], reference, below[block], through[block])

    blocks = cores() if len(scores) >= _THREAD_ROWS else 1
    edges = np.linspace(0, len(scores), blocks + 1).astype(int).tolist()
    map_threads(place_block, [slice(*pair) for pair in itertools.pairwise(edges)])
    return below, through


def _quantile_bounds(values: NDArray[Any], count: int) -> list[float]:
    """Return bounds between which about equally many of the values lie."""
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE_SIZE)])
    quantiles = [len(sample) * index // count for index in range(1, count)]
    return sorted({float(bound) for bound in sample[quantiles]})


def _is_native(dtype: np.dtype[Any]) -> bool:
    return _native.available and dtype in (np.float32, np.float64)
