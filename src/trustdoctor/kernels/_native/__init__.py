"""The compiled kernels, where the installation could build one.

The library is plain C behind ctypes: 90 kB, no start-up cost, nothing to compile at
run time. It holds the kernels for several instruction sets and takes the widest that
the processor has; ``TRUSTDOCTOR_ISA=avx2`` forces another. Where no compiler was found,
``available`` is False and ``rows.py`` does the same work with numpy, more slowly.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError

KINDS = ("beta", "alpha", "msp", "entropy", "margin", "max_logit", "energy")
ISAS = ("baseline", "avx2", "avx512", "neon")
"""Instruction sets, as the library numbers them."""


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
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    number = ctypes.c_int
    score = [number, pointer, size, size, ctypes.c_double, pointer, number, pointer]
    tally = [pointer, size, pointer, size, ctypes.c_int, pointer, pointer, size]
    for name, result, arguments in (
        ("td_score", size, score),
        ("td_argmax", None, [number, pointer, size, size, pointer]),
        ("td_sort", pointer, [pointer, pointer, size]),
        ("td_tally", size, tally),
        ("td_calibration", None, [number, *[pointer] * 4, size, pointer]),
    ):
        for kind in ("f32", "f64"):
            function = getattr(library, f"{name}_{kind}")
            function.restype, function.argtypes = result, arguments
    return library


_LIBRARY = _load()
available = _LIBRARY is not None


def instruction_sets() -> list[str]:
    """Return those that this processor has, the narrowest first."""
    if _LIBRARY is None:
        return []
    return [name for number, name in enumerate(ISAS) if _LIBRARY.td_has(number)]


def _choose() -> int:
    """Return the number of the instruction set to use."""
    here, asked = instruction_sets(), os.environ.get("TRUSTDOCTOR_ISA")
    if not here:
        return 0
    if asked and asked not in here:
        message = (
            f"expected TRUSTDOCTOR_ISA out of {', '.join(here)}, which this processor "
            f"has, got {asked!r}."
        )
        raise InputError(message)
    return ISAS.index(asked or here[-1])


isa = _choose()
"""The number of the instruction set that is used."""


def cell_type(scores: np.dtype[Any]) -> np.dtype[Any]:
    """Return a cell of a sketch of float32 or float64 scores, for `tally`."""
    ends = [("low", scores), ("high", scores)]
    return np.dtype([("key", "u8"), ("correct", "u4"), ("errors", "u4"), *ends])


def score(
    logits: NDArray[Any],
    kinds: Sequence[str],
    *,
    temperature: float,
    out: NDArray[Any],
) -> int:
    """Score contiguous float32 or float64 rows into `out` (kinds, rows).

    Returns -1, or the first row that holds NaN, +inf or nothing but -inf.
    """
    rows, classes = logits.shape
    numbers = np.array([KINDS.index(kind) for kind in kinds], np.int32)
    return int(
        _function("td_score", logits)(
            isa,
            logits.ctypes.data,
            rows,
            classes,
            temperature,
            numbers.ctypes.data,
            len(numbers),
            out.ctypes.data,
        )
    )


def argmax(logits: NDArray[Any], out: NDArray[np.int64]) -> None:
    """Find the first largest entry of contiguous float32 or float64 rows."""
    rows, classes = logits.shape
    function = _function("td_argmax", logits)
    function(isa, logits.ctypes.data, rows, classes, out.ctypes.data)


def sort(values: NDArray[Any]) -> NDArray[Any]:
    """Sort contiguous float32 or float64 values without NaN, using them up."""
    other = np.empty_like(values)
    function = _function("td_sort", values)
    result = function(values.ctypes.data, other.ctypes.data, len(values))
    return values if result == values.ctypes.data else other


def tally(  # noqa: PLR0913 - the C function's arguments
    table: NDArray[Any],
    used: NDArray[np.int64],
    limit: int,
    shift: int,
    scores: NDArray[Any],
    errors: NDArray[np.bool_],
) -> int:
    """Count scores in a table of cells; return how many before it was full."""
    return int(
        _function("td_tally", scores)(
            table.ctypes.data,
            len(table),
            used.ctypes.data,
            limit,
            shift,
            scores.ctypes.data,
            errors.ctypes.data,
            len(scores),
        )
    )


def calibration(
    alpha: NDArray[Any],
    beta: NDArray[Any],
    wrong: NDArray[np.bool_],
    missed: NDArray[np.float64],
) -> tuple[NDArray[np.int64], list[int]]:
    """Sum up rows as calibration_body.h says: (3, 15) sums, and seven more."""
    out = np.zeros(54, np.int64)
    _function("td_calibration", alpha)(
        isa,
        alpha.ctypes.data,
        beta.ctypes.data,
        wrong.ctypes.data,
        missed.ctypes.data,
        len(alpha),
        out.ctypes.data,
    )
    said, said2, brier, brier2, high, low, high2, low2, infinite = out[45:].tolist()
    nll, nll2 = (high << 62) + low, (high2 << 62) + low2
    return out[:45].reshape(3, 15), [said, said2, brier, brier2, nll, nll2, infinite]


def _function(name: str, array: NDArray[Any]) -> Any:
    kind = "f32" if array.dtype == np.float32 else "f64"
    return getattr(_LIBRARY, f"{name}_{kind}")
