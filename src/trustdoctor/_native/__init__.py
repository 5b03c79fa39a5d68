"""The compiled kernels, where the installation could build one.

The library is plain C behind ctypes: 180 kB, no start-up cost, nothing to
compile at run time. Where no compiler was found, ``available`` is False and
``kernels.py`` does the same work with numpy, more slowly.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("beta", "alpha", "msp", "entropy", "margin", "max_logit", "energy")


def _load() -> ctypes.CDLL | None:
    """Return the library, or None where it is absent or switched off."""
    if os.environ.get("TRUSTDOCTOR_NATIVE") == "0":
        return None
    path = Path(__file__).with_name("kernels.so")
    if not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # built for another machine
        return None
    for function in (library.td_score_f32, library.td_score_f64):
        function.restype = ctypes.c_int64
        function.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_double,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
    for function in (library.td_sort_f32, library.td_sort_f64):
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return library


_LIBRARY = _load()
available = _LIBRARY is not None


def score(
    logits: NDArray[Any], kind: str, *, temperature: float, out: NDArray[Any]
) -> int:
    """Score contiguous float32 or float64 rows into `out`.

    Returns -1, or the first row that holds NaN, +inf or nothing but -inf.
    """
    assert _LIBRARY is not None
    single = logits.dtype == np.float32
    function = _LIBRARY.td_score_f32 if single else _LIBRARY.td_score_f64
    rows, classes = logits.shape
    return int(
        function(
            logits.ctypes.data,
            rows,
            classes,
            temperature,
            KINDS.index(kind),
            out.ctypes.data,
        )
    )


def sort(values: NDArray[Any]) -> NDArray[Any]:
    """Sort contiguous float32 or float64 values without NaN, using them up."""
    assert _LIBRARY is not None
    single = values.dtype == np.float32
    function = _LIBRARY.td_sort_f32 if single else _LIBRARY.td_sort_f64
    other = np.empty_like(values)
    result = function(values.ctypes.data, other.ctypes.data, len(values))
    return values if result == values.ctypes.data else other
