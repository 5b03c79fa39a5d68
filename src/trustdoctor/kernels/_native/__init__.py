"""The compiled kernels, if the installation could build them.

The library is plain C behind ctypes: 250 kB, no start-up cost, nothing to compile at
run time. It holds the kernels for several instruction sets and takes the widest one
that the processor supports; ``TRUSTDOCTOR_ISA=avx2`` forces another. If there was no
compiler, ``available`` is False, and `rows` does the same work with numpy, slower.
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
"""The scores of rows that were divided by their p-norms."""

_NUMBERS = {kind: number for number, kind in enumerate((*KINDS, "pnorm"))}
VERSION = 3
"""The version of the library's functions, which `td_version` returns."""

MAX_BETS = 128
"""The most alternatives of `td_bet`."""

ISAS = ("baseline", "avx2", "avx512", "neon")
"""Instruction sets, in the order in which the library numbers them."""


def _find() -> Path | None:
    """Return the library's path: beside this file, or where it was installed."""
    # An editable install imports the sources from the working tree, and has put the
    # library into site-packages.
    beside = Path(__file__).with_name("kernels.so")
    relative = beside.relative_to(beside.parents[3])
    return next(
        filter(Path.is_file, (beside, *(Path(p, relative) for p in sys.path))), None
    )


def _load() -> ctypes.CDLL | None:
    """Return the library; None if it is absent or switched off."""
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
    integer = ctypes.c_int
    double = ctypes.c_double
    score = [
        integer,
        pointer,
        size,
        size,
        double,
        double,
        pointer,
        integer,
        pointer,
        pointer,
    ]
    order = [pointer, size, double, double, size, pointer, pointer]
    tally = [pointer, size, pointer, size, ctypes.c_int, pointer, pointer, size]
    for name, result, arguments in (
        ("td_score", size, score),
        ("td_argmax", None, [integer, pointer, size, size, pointer]),
        ("td_sort", pointer, [pointer, pointer, size]),
        ("td_order", None, order),
        ("td_place", None, [pointer, size, pointer, size, pointer, pointer]),
        ("td_split", None, [pointer, pointer, size, pointer, pointer]),
        ("td_tally", size, tally),
        ("td_calibration", None, [integer, *[pointer] * 4, size, pointer]),
    ):
        for suffix in ("f32", "f64"):
            function = getattr(library, f"{name}_{suffix}")
            function.restype, function.argtypes = result, arguments
    library.td_bet.restype = double
    library.td_bet.argtypes = (
        *(pointer, size, pointer, pointer, double, size),
        *(pointer, size, size, pointer),
    )
    return library


_LIBRARY = _load()
available = _LIBRARY is not None


def instruction_sets() -> list[str]:
    """Return the instruction sets that this processor supports, narrowest first."""
    if _LIBRARY is None:
        return []
    return [name for number, name in enumerate(ISAS) if _LIBRARY.td_has(number)]


def _choose() -> int:
    """Return the number of the instruction set to use."""
    supported, wanted = instruction_sets(), os.environ.get("TRUSTDOCTOR_ISA")
    if not supported:
        return 0
    if wanted and wanted not in supported:
        message = (
            f"expected TRUSTDOCTOR_ISA out of {', '.join(supported)}, which this "
            f"processor supports, got {wanted!r}."
        )
        raise InputError(message)
    return ISAS.index(wanted or supported[-1])


isa = _choose()
"""The number of the instruction set in use."""


def cell_type(scores: np.dtype[Any]) -> np.dtype[Any]:
    """Return the record of a sketch's cell, as tally_body.h has it, for `tally`."""
    bounds = [("low", scores), ("high", scores)]
    return np.dtype([("key", "u8"), ("correct", "u4"), ("errors", "u4"), *bounds])


def score(
    logits: NDArray[Any],
    kinds: Sequence[str],
    *,
    temperature: float,
    out: NDArray[Any],
    p: float = 0.0,
) -> int:
    """Score contiguous float32 or float64 rows into `out` (kinds, rows).

    If `p` is not 0, rows are centred and divided by their p-norms first. Returns -1, or
    the first row that holds NaN, +inf or nothing but -inf.
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
    """Sort contiguous float32 or float64 values without NaN; they are overwritten."""
    buffer = np.empty_like(values)
    function = _function("td_sort", values)
    sorted_at = function(values.ctypes.data, buffer.ctypes.data, len(values))
    return values if sorted_at == values.ctypes.data else buffer


def order(
    values: NDArray[Any], low: float, high: float, out: NDArray[np.int64]
) -> None:
    """Write the row numbers of the values in [low, high) to `out`, in ascending order.

    A `high` of NaN means no upper bound. There are fewer than 2^32 values, contiguous
    float32 or float64 without NaN, and `out` has one entry for each in the range. Equal
    values keep their order.
    """
    scratch = np.empty(2 * (len(out) + 1) * (values.itemsize + 4), np.uint8)
    _function("td_order", values)(
        values.ctypes.data,
        len(values),
        low,
        high,
        len(out),
        scratch.ctypes.data,
        out.ctypes.data,
    )


def place(
    scores: NDArray[Any],
    reference: NDArray[Any],
    below: NDArray[np.int64],
    through: NDArray[np.int64],
) -> None:
    """Count the reference scores below, and at most, each score.

    Both arrays are sorted and of one type.
    """
    _function("td_place", scores)(
        scores.ctypes.data,
        len(scores),
        reference.ctypes.data,
        len(reference),
        below.ctypes.data,
        through.ctypes.data,
    )


def split(
    values: NDArray[Any], marked: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the unmarked and the marked ones of contiguous values."""
    marked_count = int(np.count_nonzero(marked))
    unmarked_count = len(values) - marked_count
    halves = (
        np.empty(unmarked_count + 1, values.dtype),
        np.empty(marked_count + 1, values.dtype),
    )
    _function("td_split", values)(
        values.ctypes.data,
        marked.ctypes.data,
        len(values),
        *(half.ctypes.data for half in halves),
    )
    return halves[0][:unmarked_count], halves[1][:marked_count]


def bet(  # noqa: PLR0913 - the C function's arguments
    log_wealth: NDArray[np.float64],
    log_hit: NDArray[np.float64],
    log_miss: NDArray[np.float64],
    outcomes: NDArray[np.uint8],
    reserve: float,
    rows_before: int,
    block: int,
) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
    """Bet as `wealth.bet` does, taking logarithms every `block` rows."""
    assert _LIBRARY is not None
    wealth_after, evidence = log_wealth.copy(), np.empty(len(outcomes))
    reserve = _LIBRARY.td_bet(
        wealth_after.ctypes.data,
        len(wealth_after),
        log_hit.ctypes.data,
        log_miss.ctypes.data,
        reserve,
        rows_before,
        outcomes.ctypes.data,
        len(outcomes),
        block,
        evidence.ctypes.data,
    )
    return wealth_after, reserve, evidence


def tally(  # noqa: PLR0913 - the C function's arguments
    table: NDArray[Any],
    used: NDArray[np.int64],
    limit: int,
    shift: int,
    scores: NDArray[Any],
    errors: NDArray[np.bool_],
) -> int:
    """Count scores in a table of cells; return how many fit in."""
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
    label_gaps: NDArray[np.float64],
) -> tuple[NDArray[np.int64], list[int]]:
    """Sum up rows for the calibration of the softmax, as calibration_body.h says.

    Returns (4, 15) sums by bin of confidence, and seven sums over all rows.
    """
    out = np.zeros(69, np.int64)
    _function("td_calibration", alpha)(
        isa,
        alpha.ctypes.data,
        beta.ctypes.data,
        wrong.ctypes.data,
        label_gaps.ctypes.data,
        len(alpha),
        out.ctypes.data,
    )
    # Confidence, Brier score and their squares; then nll and its square, which may need
    # more than 64 bits and come in two halves; then the rows of infinite nll.
    *sums, high, low, square_high, square_low, infinite_rows = out[60:].tolist()
    nll, nll_square = (high << 62) + low, (square_high << 62) + square_low
    return out[:60].reshape(4, 15), [*sums, nll, nll_square, infinite_rows]


def _function(name: str, array: NDArray[Any]) -> Any:
    suffix = "f32" if array.dtype == np.float32 else "f64"
    return getattr(_LIBRARY, f"{name}_{suffix}")
