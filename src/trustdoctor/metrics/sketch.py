"""Counts of scores that merge: more rows than memory, more machines than one.

A sketch counts the correct and wrong rows in each cell of scores. A cell is a range of
floats that agree in their leading bits, so cells are ordered, and each remembers its
smallest and its largest score. Between -32 and 32, where doubts are, cells have similar
widths; beyond, and near 0, their width grows with the score. As long as there are few
enough distinct scores, every cell is one score and the sketch is exact; beyond that it
drops trailing bits, one at a time, until the cells fit.

How many bits are dropped depends on the set of scores alone. So two sketches merge
into the very sketch of all their rows, bit for bit, in any order. (Quantile sketches
such as KLL or t-digest are smaller, but depend on the order of merges.)
"""

import hashlib
import io
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import (
    FileError,
    InputError,
    LabelsMissingError,
    UndefinedMetricError,
)
from trustdoctor.kernels import _native
from trustdoctor.metrics import score_counts
from trustdoctor.metrics.rank import RANK_METRICS, Confusion, Points, undefined
from trustdoctor.metrics.score_counts import Counts, last_of_each

CELLS = 1 << 18
"""The most cells of a sketch: 8.4 MB."""


_ROUNDING = 1e-11  # of sums in floats, on the way to a bound


_TABLE_ROWS = 1 << 31  # the cells of a table count in 32 bits


MOST_BITS = 52  # of the mantissa: an infinity keeps a cell of its own


_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class Cells:
    """The occupied cells of a sketch, least doubtful first.

    Attributes
    ----------
    low, high : float array (cells,)
        The smallest and the largest score in each cell.
    correct, errors : int array (cells,)
        Correct and wrong rows.
    bits : int
        The number of trailing bits dropped from scores near 0; 0 if none.
    rounded : bool array (cells,), or None
        Which cells hold scores that only rounding tells apart, and so are tied.
    """

    low: Array
    high: Array
    correct: Array
    errors: Array
    bits: int
    rounded: Array | None = None

    @property
    def tied(self) -> Array:
        """Whether the rows of a cell are tied; if not, their order is unknown."""
        single = self.low == self.high
        return single if self.rounded is None else single | self.rounded

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.low)


class CellTable:
    """A hash table of cells, filled by the C kernel."""

    def __init__(self, max_cells: int, bits: int, dtype: np.dtype[Any]) -> None:
        slots = 1 << (2 * max_cells - 1).bit_length()
        self.slots = np.zeros(slots, _native.cell_type(dtype))
        self.used = np.zeros(1, np.int64)
        self.limit = 3 * max_cells // 2
        self.bits, self.dtype = bits, dtype
        self.full, self.rows = False, 0

    def takes(self, scores: Array) -> bool:
        """Tell whether there is room for at least one more score of this type."""
        return not self.full and scores.dtype == self.dtype and self.rows < _TABLE_ROWS

    def add(self, scores: Array, errors: Array) -> int:
        """Count as many scores as there is room for; return that number."""
        scores, errors = scores[:_TABLE_ROWS], errors[:_TABLE_ROWS]
        counted = _native.tally(
            self.slots, self.used, self.limit, self.bits, scores, errors
        )
        self.full, self.rows = counted < len(scores), self.rows + counted
        return counted

    def cells(self) -> Cells:
        """Return what was counted, in order."""
        used = self.slots[(self.slots["correct"] | self.slots["errors"]) != 0]
        order = np.argsort(used["key"])
        limits = [used[name][order].astype(np.float64) for name in ("low", "high")]
        counts = [used[name][order].astype(np.int64) for name in ("correct", "errors")]
        return make_cells([*limits, *counts], self.bits)


_NO_SCORES, _NO_ROWS = np.zeros(0), np.zeros(0, np.int64)


EMPTY = Cells(_NO_SCORES, _NO_SCORES, _NO_ROWS, _NO_ROWS, 0)


def make_cells(columns: list[Array], bits: int) -> Cells:
    """Return cells from low, high, correct and errors."""
    low, high, correct, errors = columns
    return Cells(low, high, correct, errors, bits)


def cells_of_rows(scores: Array, wrong: Array) -> Cells:
    """Return one cell per row."""
    s = scores.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    return Cells(s, s, (~wrong).astype(np.int64), wrong.astype(np.int64), 0)


def join_cells(first: Cells, second: Cells) -> Cells:
    """Merge the cells of two sketches, at the coarser of the two resolutions."""
    bits = max(first.bits, second.bits)
    order = np.argsort(np.concatenate([first.low, second.low]), kind="stable")
    columns = [
        np.concatenate([getattr(first, name), getattr(second, name)])[order]
        for name in ("low", "high", "correct", "errors")
    ]
    return _drop_bits(make_cells(columns, bits), bits)


def fit_cells(cells: Cells, max_cells: int) -> Cells:
    """Drop the fewest bits that leave at most `max_cells` cells."""
    if len(cells) <= max_cells:
        return cells
    for bits in range(cells.bits + 1, MOST_BITS):
        keys = _keys(cells.low, bits)
        if 1 + int((keys[1:] != keys[:-1]).sum()) <= max_cells:
            return _drop_bits(cells, bits)
    return _drop_bits(cells, MOST_BITS)


def _drop_bits(cells: Cells, bits: int) -> Cells:
    """Merge the ordered cells that agree in all but the last bits."""
    if len(cells) == 0:
        return Cells(cells.low, cells.high, cells.correct, cells.errors, bits)
    keys = _keys(cells.low, bits)
    return _merge_runs(cells, np.append(True, keys[1:] != keys[:-1]), bits)


def _merge_runs(cells: Cells, starts: Array, bits: int) -> Cells:
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
    """Join cells of one score each that only rounding tells apart, as in `counts`."""
    single = cells.low == cells.high
    if rounding == 0 or not single.any():
        return cells
    last = np.zeros(len(cells), bool)
    last[last_of_each(cells.high, rounding)] = True
    # A cell of several scores stays what it is.
    starts = np.append(True, (last | ~single)[:-1]) | ~single
    merged = _merge_runs(cells, starts, cells.bits)
    return replace(merged, rounded=single[np.flatnonzero(starts)])


def _keys(scores: Array, dropped: int) -> Array:
    """Return integers in the order of the scores, without the dropped bits."""
    # The bits of positive floats, read as integers, have the order of the numbers;
    # those of negative ones the reverse order, so they are complemented.
    bits = np.ascontiguousarray(scores, np.float64).view(np.uint64)
    keys = np.where(bits >> np.uint64(63) != 0, ~bits, bits | _SIGN)
    exponent = (bits >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64) - 1022
    # One bit fewer is dropped for each power of two up to 32: cells keep their width.
    spared = np.clip(exponent, 0, 5)
    shift = np.maximum(dropped - spared, 0).astype(np.uint64)
    return keys >> shift << shift


class Sketch:
    """Scores of any number of rows, counted in at most `cells` cells.

    Parameters
    ----------
    cells : int
        Each takes 32 bytes.

    Examples
    --------
    >>> a, b = Sketch(), Sketch()
    >>> a.update([0.1, 0.4], [False, True])
    >>> b.update([0.6, 0.9], [False, True])
    >>> a.merge(b)
    >>> a.bounds("auroc")
    (0.75, 0.75)
    """

    def __init__(self, *, cells: int = CELLS) -> None:
        if not (isinstance(cells, int) and cells >= 1 << 13):
            message = f"expected at least {1 << 13} cells, got {cells!r}."
            raise InputError(message)
        self._max_cells = cells
        self.labelled, self.rounding = True, 0.0
        self._cells = EMPTY
        self._table: CellTable | None = None

    def update(self, scores: Any, errors: Any = None) -> None:
        """Count more rows; without errors, only their scores, for `coverage`."""
        s = as_scores(scores)
        if errors is None:
            self.labelled, errors = False, np.zeros(len(s), bool)
        wrong = as_errors(errors, rows=len(s))
        if not _native.available:
            self._add(cells_of_rows(s, wrong))
            return
        wide = s.dtype in (np.float32, np.float64)
        s = np.ascontiguousarray(s if wide else s.astype(np.float64))
        wrong = np.ascontiguousarray(wrong)
        while len(s):
            if self._table is None or not self._table.takes(s):
                self._flush()
                self._table = CellTable(self._max_cells, self._cells.bits, s.dtype)
            counted = self._table.add(s, wrong)
            s, wrong = s[counted:], wrong[counted:]

    def merge(self, other: "Sketch") -> None:
        """Count the rows of another sketch as well."""
        if other._max_cells != self._max_cells:
            message = (
                f"expected a sketch of {self._max_cells} cells, got one of "
                f"{other._max_cells}. Only sketches of one size merge."
            )
            raise InputError(message)
        self.labelled &= other.labelled
        self._add(other.cells)

    @property
    def cells(self) -> Cells:
        """The occupied cells, without errors if some rows came without them."""
        self._flush()
        c = self._cells
        if not self.labelled and c.errors.any():
            no_errors = np.zeros_like(c.errors)
            rows = c.correct + c.errors
            self._cells = Cells(c.low, c.high, rows, no_errors, c.bits)
        return self._cells

    def _flush(self) -> None:
        if self._table is not None:
            table, self._table = self._table, None
            self._add(table.cells())

    def _add(self, more: Cells) -> None:
        self._flush()
        self._cells = fit_cells(join_cells(self._cells, more), self._max_cells)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_correct + self.n_errors

    @property
    def n_correct(self) -> int:
        """Correct rows."""
        return int(self.cells.correct.sum())

    @property
    def n_errors(self) -> int:
        """Wrong rows."""
        return int(self.cells.errors.sum())

    def tied(self, rounding: float) -> "Sketch":
        """Return a copy in which scores that only rounding tells apart are tied.

        Do not update it: its cells no longer depend on the set of scores alone.
        """
        sketch = Sketch(cells=self._max_cells)
        sketch.labelled, sketch._cells = self.labelled, join_tied(self.cells, rounding)
        sketch.rounding = rounding
        return sketch

    @property
    def exact(self) -> bool:
        """Whether all rows in one cell are tied, so that nothing was lost."""
        return bool(self.cells.tied.all())

    @property
    def counts(self) -> Counts:
        """Rows in each cell, as if its scores were tied."""
        c = self.cells
        return Counts(c.correct, c.errors, c.high, c.low)

    def best(self) -> Counts:
        """Return counts with every correct row of a cell below every wrong one."""
        return self._ordered(("correct", "errors"))

    def worst(self) -> Counts:
        """Return counts with every wrong row of a cell below every correct one."""
        return self._ordered(("errors", "correct"))

    def _ordered(self, kinds: tuple[str, str]) -> Counts:
        """Return counts with the rows of each cell that is not tied in this order."""
        c = self.cells
        tied = c.tied
        halves = np.zeros((2, len(c), 2), np.int64)
        for half, kind in enumerate(kinds):
            counts = getattr(c, kind)
            row = ("correct", "errors").index(kind)
            halves[row, :, half] = np.where(tied, 0, counts)
            halves[row, tied, 0] = counts[tied]
        groups = halves.reshape(2, -1)
        occupied = groups.any(0)
        return Counts(groups[0, occupied], groups[1, occupied])

    def bounds(
        self, metric: str, *, points: Points | None = None
    ) -> tuple[float, float]:
        """Return bounds of a rank metric on the rows themselves.

        They hold for every order of the rows within the cells.
        """
        if not self.labelled:
            message = f"{metric} needs errors, and some rows came without."
            raise LabelsMissingError(message)
        if metric == "aupr_correct":
            return self._swapped().bounds("aupr", points=points)
        if metric not in RANK_METRICS:
            names = ", ".join(RANK_METRICS)
            message = f"expected a metric out of {names}, got {metric!r}."
            raise InputError(message)
        if metric in undefined(self.counts):
            message = (
                f"{metric} needs rows of both kinds, got {self.n_errors} errors and "
                f"{self.n_correct} correct predictions. Give it more rows."
            )
            raise UndefinedMetricError(message)
        points = points or Points()
        if self.exact:
            value = float(RANK_METRICS[metric](self.counts, points))
            return value, value
        low, high = self._bounds(metric, points)
        return max(0.0, low - _ROUNDING), min(1.0, high + _ROUNDING)

    def _bounds(self, metric: str, points: Points) -> tuple[float, float]:
        if metric == "aupr":
            return _lowest_aupr(self), float(score_counts.aupr(self.best()))
        if metric == "coverage_at_risk":
            least = score_counts.coverage_at_risk(self.counts, risk=points.risk)
            return float(least), _largest_coverage(self, points.risk)
        values = [
            float(RANK_METRICS[metric](counts, points))
            for counts in (self.worst(), self.best())
        ]
        return min(values), max(values)

    def _swapped(self) -> "Sketch":
        """Return the same rows with doubt reversed, and correct and wrong exchanged."""
        c, sketch = self.cells, Sketch(cells=self._max_cells)
        columns = [-c.high, -c.low, c.errors, c.correct]
        sketch._cells = make_cells([column[::-1] for column in columns], c.bits)
        return sketch

    def confusion(self, threshold: float) -> Confusion | None:
        """Count the decisions of a threshold; None where it lies within a cell."""
        c = self.cells
        rejected = c.low > threshold
        if ((c.low <= threshold) & (threshold < c.high)).any():
            return None
        correct, errors = int(c.correct[rejected].sum()), int(c.errors[rejected].sum())
        return Confusion(
            correct, errors, self.n_errors - errors, self.n_correct - correct
        )

    def accepted_by_kth(self, k: int) -> tuple[int, int, int]:
        """Return what the threshold at the k-th smallest score accepts.

        Rows and errors up to the end of its cell, and the fewest rows that it may
        accept itself.
        """
        c = self.cells
        through = np.cumsum(c.correct + c.errors)
        cell = int(np.searchsorted(through, k))
        rows, errors = int(through[cell]), int(c.errors[: cell + 1].sum())
        return rows, errors, rows if c.tied[cell] else k

    def split(self, groups: Any) -> "dict[Any, Sketch]":
        """Return the sketches of groups, in the order of their names.

        Groups come as sketches themselves: a sketch cannot tell rows apart.
        """
        if not (isinstance(groups, dict) and groups):
            message = "expected groups as sketches by name, for a sketch of all rows."
            raise InputError(message)
        return {name: groups[name] for name in sorted(groups)}

    def of_kind(self, kind: str) -> "CellScores":
        """Return the scores of "correct", of "errors" or of "all" rows."""
        c = self.cells
        counts = c.correct + c.errors if kind == "all" else getattr(c, kind)
        return CellScores(c.low, c.high, counts)

    @property
    def fingerprint(self) -> str:
        """A short digest of the rows."""
        return hashlib.blake2b(self.to_bytes(), digest_size=12).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes, the same for the same rows in any order."""
        c, stream = self.cells, io.BytesIO()
        header = [_VERSION, self._max_cells, c.bits, len(c), self.labelled]
        np.save(stream, np.array(header, np.int64))
        for column in (c.low, c.high, c.correct, c.errors):
            np.save(stream, column)
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Sketch":
        """Read the bytes of `to_bytes`."""
        stream = io.BytesIO(content)
        try:
            header = np.load(stream, allow_pickle=False)
            columns = [np.load(stream, allow_pickle=False) for _ in range(4)]
            version, max_cells, bits, size, labelled = map(int, header)
            dtypes = [column.dtype for column in columns]
            if (
                version != _VERSION
                or any(column.shape != (size,) for column in columns)
                or dtypes != [np.float64, np.float64, np.int64, np.int64]
                or not 0 <= bits <= MOST_BITS
            ):
                raise ValueError(version)
        except Exception as error:  # arbitrary bytes raise anything in np.load
            message = f"expected a sketch's bytes, got something else: {error}."
            raise FileError(message) from error
        sketch = cls(cells=max_cells)
        sketch.labelled = bool(labelled)
        sketch._cells = make_cells(columns, bits)
        return sketch

    def __reduce__(self) -> Any:
        """Pickle as bytes, for other processes."""
        return Sketch.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        """Show rows, cells and dropped bits."""
        kind = "exact" if self.exact else f"{self.cells.bits} bits dropped"
        return f"Sketch({len(self):,} rows in {len(self.cells):,} cells, {kind})"


_VERSION = 1


class CellScores:
    """The scores of one kind of rows, in cells: what the threshold rules need."""

    def __init__(self, low: Array, high: Array, counts: Array) -> None:
        occupied = counts > 0
        if not occupied.all():
            low, high, counts = low[occupied], high[occupied], counts[occupied]
        self.low, self.high, self._through = low, high, np.cumsum(counts)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._through[-1]) if len(self._through) else 0

    def kth(self, k: int) -> tuple[float, float]:
        """Return the range in which the k-th smallest score lies."""
        cell = int(np.searchsorted(self._through, k))
        return float(self.low[cell]), float(self.high[cell])

    def above(self, score: float) -> float:
        """Return the smallest score above; inf if there is none."""
        cell = int(np.searchsorted(self.low, score, "right"))
        return float(self.low[cell]) if cell < len(self.low) else math.inf

    def below(self, score: float) -> float:
        """Return the largest score below; -inf if there is none."""
        cell = int(np.searchsorted(self.high, score, "left"))
        return float(self.high[cell - 1]) if cell else -math.inf

    def just_below(self, score: float) -> float:
        """Return the next number below a score, in the type of the scores."""
        return float(np.nextafter(self.low.dtype.type(score), -np.inf))


def _before(counts: Array) -> Array:
    return np.cumsum(counts) - counts


def _lowest_aupr(sketch: Sketch) -> float:
    """Return average precision with the correct rows of each cell rejected first.

    In a cell of one score the rows are tied; in any other every error may have a score
    of its own, and then the i-th has the precision (r + i) / (t + i), with r errors and
    t rows rejected before it.
    """
    c = sketch.cells
    correct, errors = c.correct[::-1].astype(float), c.errors[::-1].astype(float)
    r, t = _before(errors), _before(correct + errors)
    total = t + correct
    apart = errors + (r - total) * (
        score_counts.harmonic(total + errors) - score_counts.harmonic(total)
    )
    tied = errors * (r + errors) / np.maximum(total + errors, 1)
    return float(np.where(c.tied[::-1], tied, apart).sum() / errors.sum())


def _largest_coverage(sketch: Sketch, risk: float) -> float:
    """Return the largest coverage at a risk that any order within cells allows."""
    c, n = sketch.cells, len(sketch)
    errors, accepted = _before(c.errors), _before(c.correct + c.errors)
    least = float(score_counts.coverage_at_risk(sketch.counts, risk=risk)) * n
    divisible = ~c.tied & (c.correct + c.errors > 0)
    # All correct rows of the cell come first, then as many of its errors as the risk
    # allows: (errors + more) / (most + more) <= risk.
    most = accepted + c.correct
    room = score_counts.exact_product(risk, most) - errors
    share = 1 - risk
    more = np.minimum(np.floor(room / share + 1e-9), c.errors) if share else c.errors
    reached = np.where(divisible & (room >= 0), most + more, 0)
    return min(1.0, max(least, float(reached.max())) / n)
