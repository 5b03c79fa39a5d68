"""Cells of scores: ranges of floats that agree in their leading bits."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.kernels import _native
from trustdoctor.metrics.counts import last_of_each

_ROWS = 1 << 31  # counted in a table before its cells might overflow


MOST_BITS = 52  # of the mantissa: an infinity keeps a cell of its own


_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class Cells:
    """What a sketch holds: occupied cells, least doubtful first.

    Attributes
    ----------
    low, high : float array (cells,)
        The least and the largest score in each cell.
    correct, errors : int array (cells,)
        How many correct and wrong rows.
    bits : int
        How many trailing bits of scores near 0 do not count; 0 where all do.
    joined : bool array (cells,), or None
        Which cells are scores that only rounding tells apart, and so tied.
    """

    low: Array
    high: Array
    correct: Array
    errors: Array
    bits: int
    joined: Array | None = None

    @property
    def tied(self) -> Array:
        """Whether the rows of a cell are tied; else nothing is known of their order."""
        alike = self.low == self.high
        return alike if self.joined is None else alike | self.joined

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.low)


class Table:
    """A hash table of cells, filled by the C kernel."""

    def __init__(self, most: int, bits: int, dtype: np.dtype[Any]) -> None:
        slots = 1 << (2 * most - 1).bit_length()
        self.slots = np.zeros(slots, _native.cell_type(dtype))
        self.used = np.zeros(1, np.int64)
        self.limit = 3 * most // 2
        self.bits, self.dtype = bits, dtype
        self.full, self.rows = False, 0

    def takes(self, scores: Array) -> bool:
        """Say whether there is room for at least one more score of its type."""
        return not self.full and scores.dtype == self.dtype and self.rows < _ROWS

    def add(self, scores: Array, errors: Array) -> int:
        """Count as many scores as there is room for; return how many."""
        scores, errors = scores[:_ROWS], errors[:_ROWS]
        done = _native.tally(
            self.slots, self.used, self.limit, self.bits, scores, errors
        )
        self.full, self.rows = done < len(scores), self.rows + done
        return done

    def cells(self) -> Cells:
        """Return what was counted, in order."""
        used = self.slots[(self.slots["correct"] | self.slots["errors"]) != 0]
        order = np.argsort(used["key"])
        ends = [used[name][order].astype(np.float64) for name in ("low", "high")]
        counts = [used[name][order].astype(np.int64) for name in ("correct", "errors")]
        return make_cells([*ends, *counts], self.bits)


_NONE = np.zeros(0)


EMPTY = Cells(_NONE, _NONE, _NONE.astype(np.int64), _NONE.astype(np.int64), 0)


def make_cells(parts: list[Array], bits: int) -> Cells:
    """Return cells from low, high, correct and errors."""
    low, high, correct, errors = parts
    return Cells(low, high, correct, errors, bits)


def cells_of_rows(scores: Array, wrong: Array) -> Cells:
    """Return one cell per row."""
    s = scores.astype(np.float64) + 0.0  # one zero
    return Cells(s, s, (~wrong).astype(np.int64), wrong.astype(np.int64), 0)


def joined(first: Cells, second: Cells) -> Cells:
    """Put cells together, in order, at the coarser of the two resolutions."""
    bits = max(first.bits, second.bits)
    order = np.argsort(np.concatenate([first.low, second.low]), kind="stable")
    parts = [
        np.concatenate([getattr(first, name), getattr(second, name)])[order]
        for name in ("low", "high", "correct", "errors")
    ]
    return _coarser(make_cells(parts, bits), bits)


def fitted(cells: Cells, most: int) -> Cells:
    """Drop as few bits as leave at most so many cells."""
    if len(cells) <= most:
        return cells
    for bits in range(cells.bits + 1, MOST_BITS):
        keys = _keys(cells.low, bits)
        if 1 + int((keys[1:] != keys[:-1]).sum()) <= most:
            return _coarser(cells, bits)
    return _coarser(cells, MOST_BITS)


def _coarser(cells: Cells, bits: int) -> Cells:
    """Merge the ordered cells that agree but for the last bits."""
    if len(cells) == 0:
        return Cells(cells.low, cells.high, cells.correct, cells.errors, bits)
    keys = _keys(cells.low, bits)
    return _merged(cells, np.append(True, keys[1:] != keys[:-1]), bits)


def _merged(cells: Cells, starts: Array, bits: int) -> Cells:
    """Merge each cell that does not start a new one into the one before it."""
    first = np.flatnonzero(starts)
    return Cells(
        cells.low[first],
        np.maximum.reduceat(cells.high, first),
        np.add.reduceat(cells.correct, first),
        np.add.reduceat(cells.errors, first),
        bits,
    )


def join_tied(cells: Cells, rounding: float) -> Cells:
    """Join cells of one score each that only rounding tells apart, as in `count`."""
    alike = cells.low == cells.high
    if rounding == 0 or not alike.any():
        return cells
    last = np.zeros(len(cells), bool)
    last[last_of_each(cells.high, rounding)] = True
    # A cell of several scores stays what it is.
    starts = np.append(True, (last | ~alike)[:-1]) | ~alike
    merged = _merged(cells, starts, cells.bits)
    return replace(merged, joined=alike[np.flatnonzero(starts)])


def _keys(scores: Array, dropped: int) -> Array:
    """Return integers in the order of the scores, but for bits that do not count."""
    bits = np.ascontiguousarray(scores, np.float64).view(np.uint64)
    keys = np.where(bits >> np.uint64(63) != 0, ~bits, bits | _SIGN)
    exponent = (bits >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64) - 1022
    fewer = np.clip(exponent, 0, 5)
    shift = np.maximum(dropped - fewer, 0).astype(np.uint64)
    return keys >> shift << shift
