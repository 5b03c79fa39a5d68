"""The compiled kernels, where the installation could build one.

The library is plain C behind ctypes: 250 kB, no start-up cost, nothing to compile at
run time. It holds the kernels for several instruction sets and takes the widest that
the processor has; ``TRUSTDOCTOR_ISA=avx2`` forces another. Where no compiler was found,
``available`` is False and ``rows.py`` does the same work with numpy, more slowly.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError

KINDS = ("beta", "alpha", "msp", "entropy", "margin", "max_logit", "energy")
NORMED = ("beta", "alpha", "msp", "margin", "pnorm")
"""What rows are scored by whose lengths were taken out."""

_NUMBERS = {kind: number for number, kind in enumerate((*KINDS, "pnorm"))}
VERSION = 3
"""Of the library's functions, as it says itself."""

MOST_BETS = 128
"""Alternatives that the library bets on at once."""

ISAS = ("baseline", "avx2", "avx512", "neon")
"""Instruction sets, as the library numbers them."""


def _find() -> Path | None:
    """Return the library: beside this file, or where an editable install has it."""
    own = Path(__file__).with_name("kernels.so")
    place = own.relative_to(own.parents[3])
    return next(filter(Path.is_file, (own, *(Path(p, place) for p in sys.path))), None)


def _load() -> ctypes.CDLL | None:
    """Return the library, or None where it is absent or switched off."""
    if os.environ.get("TRUSTDOCTOR_NATIVE") == "0":
        return None
    path = _find()
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # built for another machine
        return None
    if not hasattr(library, "td_version") or library.td_version() != VERSION:
        return None  # built from another version of the sources
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    number = ctypes.c_int
    real = ctypes.c_double
    score = [number, pointer, size, size, real, real, pointer, number, pointer, pointer]
    order = [pointer, size, real, real, size, pointer, pointer]
    tally = [pointer, size, pointer, size, ctypes.c_int, pointer, pointer, size]
    for name, result, arguments in (
        ("td_score", size, score),
        ("td_argmax", None, [number, pointer, size, size, pointer]),
        ("td_sort", pointer, [pointer, pointer, size]),
        ("td_order", None, order),
        ("td_place", None, [pointer, size, pointer, size, pointer, pointer]),
        ("td_split", None, [pointer, pointer, size, pointer, pointer]),
        ("td_tally", size, tally),
        ("td_calibration", None, [number, *[pointer] * 4, size, pointer]),
    ):
        for kind in ("f32", "f64"):
            function = getattr(library, f"{name}_{kind}")
            function.restype, function.argtypes = result, arguments
    library.td_bet.restype = real
    library.td_bet.argtypes = (
        *(pointer, size, pointer, pointer, real, size),
        *(pointer, size, size, pointer),
    )
    library.td_digest.restype = None
    library.td_digest.argtypes = [pointer, size, pointer, pointer]
    return library


_LIBRARY = _load()
available = _LIBRARY is not None


_KEYS = np.frombuffer(os.urandom(64), np.uint64)


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
    p: float = 0.0,
) -> int:
    """Score contiguous float32 or float64 rows into `out` (kinds, rows).

    Where `p` is not 0, rows are centred and their p-norms taken out first. Returns -1,
    or the first row that holds NaN, +inf or nothing but -inf.
    """
    rows, classes = logits.shape
    numbers = np.array([_NUMBERS[kind] for kind in kinds], np.int32)
    scratch = np.empty(classes if p else 0, logits.dtype)
    return int(
        _function("td_score", logits)(
            isa,
            logits.ctypes.data,
            rows,
            classes,
            temperature,
            p,
            numbers.ctypes.data,
            len(numbers),
            scratch.ctypes.data,
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


def order(
    values: NDArray[Any], low: float, high: float, out: NDArray[np.int64]
) -> None:
    """Put the order of the values from `low` to below `high` (NaN: no end) in `out`.

    The values are contiguous float32 or float64 without NaN, fewer than 2^32, and
    `out` has one place for each that lies there. Equal values keep their order.
    """
    space = np.empty(2 * (len(out) + 1) * (values.itemsize + 4), np.uint8)
    _function("td_order", values)(
        values.ctypes.data,
        len(values),
        low,
        high,
        len(out),
        space.ctypes.data,
        out.ctypes.data,
    )


def place(
    own: NDArray[Any],
    others: NDArray[Any],
    below: NDArray[np.int64],
    through: NDArray[np.int64],
) -> None:
    """Count the others below, and at most, each of `own`: all sorted, of one type."""
    _function("td_place", own)(
        own.ctypes.data,
        len(own),
        others.ctypes.data,
        len(others),
        below.ctypes.data,
        through.ctypes.data,
    )


def split(
    values: NDArray[Any], marked: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the contiguous values that are not marked, and those that are."""
    yes = int(np.count_nonzero(marked))
    no = len(values) - yes
    parts = np.empty(no + 1, values.dtype), np.empty(yes + 1, values.dtype)
    _function("td_split", values)(
        values.ctypes.data,
        marked.ctypes.data,
        len(values),
        *(part.ctypes.data for part in parts),
    )
    return parts[0][:no], parts[1][:yes]


def digest(values: NDArray[Any]) -> bytes:
    """Return 16 bytes that tell contiguous arrays apart, in this process alone."""
    assert _LIBRARY is not None
    out = np.empty(2, np.uint64)
    _LIBRARY.td_digest(
        values.ctypes.data, values.nbytes, _KEYS.ctypes.data, out.ctypes.data
    )
    return out.tobytes()


def bet(  # noqa: PLR0913 - the C function's arguments
    sums: NDArray[np.float64],
    hit: NDArray[np.float64],
    miss: NDArray[np.float64],
    what: NDArray[np.uint8],
    left: float,
    starts: int,
    piece: int,
) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
    """Bet as `betting.bet` says, `piece` rows between looks at the logarithms."""
    assert _LIBRARY is not None
    after, evidence = sums.copy(), np.empty(len(what))
    left = _LIBRARY.td_bet(
        after.ctypes.data,
        len(after),
        hit.ctypes.data,
        miss.ctypes.data,
        left,
        starts,
        what.ctypes.data,
        len(what),
        piece,
        evidence.ctypes.data,
    )
    return after, left, evidence


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
    """Sum up rows as calibration_body.h says: (4, 15) sums, and seven more."""
    out = np.zeros(69, np.int64)
    _function("td_calibration", alpha)(
        isa,
        alpha.ctypes.data,
        beta.ctypes.data,
        wrong.ctypes.data,
        missed.ctypes.data,
        len(alpha),
        out.ctypes.data,
    )
    said, said2, brier, brier2, high, low, high2, low2, infinite = out[60:].tolist()
    nll, nll2 = (high << 62) + low, (high2 << 62) + low2
    return out[:60].reshape(4, 15), [said, said2, brier, brier2, nll, nll2, infinite]


def _function(name: str, array: NDArray[Any]) -> Any:
    kind = "f32" if array.dtype == np.float32 else "f64"
    return getattr(_LIBRARY, f"{name}_{kind}")
