"""Counts of scores that merge: more rows than memory, more machines than one.

A sketch keeps how many correct and how many wrong rows fell into each cell of scores.
A cell is a range of floats that agree in their leading bits, so cells are ordered, and
each remembers its least and its largest score. Between -32 and 32, where doubts are,
cells are of like width; beyond, and near 0, their width goes with the score. As long
as the distinct scores are few enough, every cell is one score and the sketch is exact;
beyond that it drops trailing bits, one at a time, until the cells fit.

How many bits are dropped depends on the set of scores alone. So two sketches merge
into the very sketch of all their rows, bit for bit, in any order.
"""

import hashlib
import io
import math
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
from trustdoctor.metrics import counts
from trustdoctor.metrics.cells import (
    EMPTY,
    MOST_BITS,
    Cells,
    Table,
    cells_of_rows,
    fitted,
    join_tied,
    joined,
    make_cells,
)
from trustdoctor.metrics.counts import Counts
from trustdoctor.metrics.rank import RANK_METRICS, Confusion, Points, undefined

CELLS = 1 << 18
"""Cells of a sketch at most: 8.4 MB."""


_ROUNDING = 1e-11  # of sums in floats, on the way to a bound


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
        self._most = cells
        self.labelled, self.rounding = True, 0.0
        self._cells = EMPTY
        self._table: Table | None = None

    def update(self, scores: Any, errors: Any = None) -> None:
        """Count more rows; without errors only their scores, for `coverage`."""
        s = as_scores(scores)
        if errors is None:
            self.labelled, errors = False, np.zeros(len(s), bool)
        wrong = as_errors(errors, rows=len(s))
        if not _native.available:
            self._take(cells_of_rows(s, wrong))
            return
        wide = s.dtype in (np.float32, np.float64)
        s = np.ascontiguousarray(s if wide else s.astype(np.float64))
        wrong = np.ascontiguousarray(wrong)
        while len(s):
            if self._table is None or not self._table.takes(s):
                self._flush()
                self._table = Table(self._most, self._cells.bits, s.dtype)
            done = self._table.add(s, wrong)
            s, wrong = s[done:], wrong[done:]

    def merge(self, other: "Sketch") -> None:
        """Count the rows of another sketch, too."""
        if other._most != self._most:
            message = (
                f"expected a sketch of {self._most} cells, got one of {other._most}. "
                "Only sketches of one size merge."
            )
            raise InputError(message)
        self.labelled &= other.labelled
        self._take(other.cells)

    @property
    def cells(self) -> Cells:
        """The occupied cells; where some rows came without errors, none has any."""
        self._flush()
        c = self._cells
        if not self.labelled and c.errors.any():
            none = np.zeros_like(c.errors)
            self._cells = Cells(c.low, c.high, c.correct + c.errors, none, c.bits)
        return self._cells

    def _flush(self) -> None:
        if self._table is not None:
            table, self._table = self._table, None
            self._take(table.cells())

    def _take(self, more: Cells) -> None:
        self._flush()
        self._cells = fitted(joined(self._cells, more), self._most)

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
        """Return the same, with scores tied that only rounding tells apart.

        It is one to ask, and takes no more rows.
        """
        out = Sketch(cells=self._most)
        out.labelled, out._cells = self.labelled, join_tied(self.cells, rounding)
        out.rounding = rounding
        return out

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
        return self._parted(("correct", "errors"))

    def worst(self) -> Counts:
        """Return counts with every wrong row of a cell below every correct one."""
        return self._parted(("errors", "correct"))

    def _parted(self, order: tuple[str, str]) -> Counts:
        c = self.cells
        one = c.tied
        parts = np.zeros((2, len(c), 2), np.int64)
        for place, kind in enumerate(order):
            counts = getattr(c, kind)
            row = ("correct", "errors").index(kind)
            parts[row, :, place] = np.where(one, 0, counts)
            parts[row, one, 0] = counts[one]
        flat = parts.reshape(2, -1)
        kept = flat.any(0)
        return Counts(flat[0, kept], flat[1, kept])

    def bounds(
        self, metric: str, *, points: Points | None = None
    ) -> tuple[float, float]:
        """Return the least and the largest value that a metric of rank may have.

        The metric on the rows themselves lies between them, whatever the rows are.
        """
        if not self.labelled:
            message = f"{metric} needs errors, and some rows came without."
            raise LabelsMissingError(message)
        if metric == "aupr_correct":
            return self._swapped().bounds("aupr", points=points)
        if metric not in RANK_METRICS:
            known = ", ".join(RANK_METRICS)
            message = f"expected a metric out of {known}, got {metric!r}."
            raise InputError(message)
        if metric in undefined(self.counts):
            message = (
                f"{metric} needs rows of both kinds, got {self.n_errors} errors and "
                f"{self.n_correct} correct predictions. Give it more rows."
            )
            raise UndefinedMetricError(message)
        at = points or Points()
        if self.exact:
            value = float(RANK_METRICS[metric](self.counts, at))
            return value, value
        low, high = self._ends(metric, at)
        return max(0.0, low - _ROUNDING), min(1.0, high + _ROUNDING)

    def _ends(self, metric: str, at: Points) -> tuple[float, float]:
        if metric == "aupr":
            return _aupr_least(self), float(counts.aupr(self.best()))
        if metric == "coverage_at_risk":
            least = float(counts.coverage_at_risk(self.counts, risk=at.risk))
            return least, _coverage_most(self, at.risk)
        ends = [
            float(RANK_METRICS[metric](counts, at))
            for counts in (self.worst(), self.best())
        ]
        return min(ends), max(ends)

    def _swapped(self) -> "Sketch":
        """Return the same rows, doubt reversed, correct and wrong exchanged."""
        c, out = self.cells, Sketch(cells=self._most)
        parts = [-c.high, -c.low, c.errors, c.correct]
        out._cells = make_cells([part[::-1] for part in parts], c.bits)
        return out

    def confusion(self, threshold: float) -> Confusion | None:
        """Count what a threshold does; None where it parts a cell."""
        c = self.cells
        rejected = c.low > threshold
        if ((c.low <= threshold) & (threshold < c.high)).any():
            return None
        fr, tr = int(c.correct[rejected].sum()), int(c.errors[rejected].sum())
        return Confusion(fr, tr, self.n_errors - tr, self.n_correct - fr)

    def start(self, k: int) -> tuple[int, int, int]:
        """Return what the threshold at the k-th least score accepts.

        Rows and errors up to the end of its cell, and the fewest rows that it may
        accept itself.
        """
        c = self.cells
        through = np.cumsum(c.correct + c.errors)
        cell = int(np.searchsorted(through, k))
        wrong = int(c.errors[: cell + 1].sum())
        one = c.tied[cell]
        return int(through[cell]), wrong, int(through[cell]) if one else k

    def split(self, groups: Any) -> "dict[Any, Sketch]":
        """Return the sketch of each group: they are given, a sketch tells no rows."""
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
        """Return the sketch as bytes, the same for the same rows."""
        c, out = self.cells, io.BytesIO()
        head = [_VERSION, self._most, c.bits, len(c), self.labelled]
        np.save(out, np.array(head, np.int64))
        for part in (c.low, c.high, c.correct, c.errors):
            np.save(out, part)
        return out.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Sketch":
        """Read what `to_bytes` gave."""
        stream = io.BytesIO(content)
        try:
            head = np.load(stream, allow_pickle=False)
            parts = [np.load(stream, allow_pickle=False) for _ in range(4)]
            version, most, bits, size, labelled = map(int, head)
            kinds = [part.dtype for part in parts]
            if (
                version != _VERSION
                or any(part.shape != (size,) for part in parts)
                or kinds != [np.float64, np.float64, np.int64, np.int64]
                or not 0 <= bits <= MOST_BITS
            ):
                raise ValueError(version)
        except Exception as error:  # bytes of any kind fail in many ways
            message = f"expected a sketch's bytes, got something else: {error}."
            raise FileError(message) from error
        sketch = cls(cells=most)
        sketch.labelled = bool(labelled)
        sketch._cells = make_cells(parts, bits)
        return sketch

    def __reduce__(self) -> Any:
        """Cross to another process as bytes."""
        return Sketch.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        """Say how many rows in how many cells."""
        kind = "exact" if self.exact else f"{self.cells.bits} bits dropped"
        return f"Sketch({len(self):,} rows in {len(self.cells):,} cells, {kind})"


_VERSION = 1


class CellScores:
    """The scores of one kind of rows, in cells: what the threshold rules ask for."""

    def __init__(self, low: Array, high: Array, counts: Array) -> None:
        held = counts > 0
        if not held.all():
            low, high, counts = low[held], high[held], counts[held]
        self.low, self.high, self._through = low, high, np.cumsum(counts)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._through[-1]) if len(self._through) else 0

    def kth(self, k: int) -> tuple[float, float]:
        """Return between what the k-th least score lies."""
        cell = int(np.searchsorted(self._through, k))
        return float(self.low[cell]), float(self.high[cell])

    def above(self, score: float) -> float:
        """Return the least score above; inf where there is none."""
        cell = int(np.searchsorted(self.low, score, "right"))
        return float(self.low[cell]) if cell < len(self.low) else math.inf

    def below(self, score: float) -> float:
        """Return the largest score below; -inf where there is none."""
        cell = int(np.searchsorted(self.high, score, "left"))
        return float(self.high[cell - 1]) if cell else -math.inf

    def just_below(self, score: float) -> float:
        """Return the next number below a score, in their type."""
        return float(np.nextafter(self.low.dtype.type(score), -np.inf))


def _before(counts: Array) -> Array:
    return np.cumsum(counts) - counts


def _aupr_least(sketch: Sketch) -> float:
    """Return average precision with the correct rows of each cell found first.

    Within a cell that is one score the rows are tied; in any other every error may
    have a score of its own, and then the i-th has the precision (r + i) / (t + i).
    """
    c = sketch.cells
    correct, errors = c.correct[::-1].astype(float), c.errors[::-1].astype(float)
    r, t = _before(errors), _before(correct + errors)
    total = t + correct
    apart = errors + (r - total) * (
        counts.harmonic(total + errors) - counts.harmonic(total)
    )
    tied = errors * (r + errors) / np.maximum(total + errors, 1)
    one = c.tied[::-1]
    return float(np.where(one, tied, apart).sum() / errors.sum())


def _coverage_most(sketch: Sketch, risk: float) -> float:
    """Return the largest coverage at a risk that any order within cells allows."""
    c, n = sketch.cells, len(sketch)
    wrong, accepted = _before(c.errors), _before(c.correct + c.errors)
    least = float(counts.coverage_at_risk(sketch.counts, risk=risk)) * n
    loose = ~c.tied & (c.correct + c.errors > 0)
    most = accepted + c.correct  # all correct rows of the cell, and none or more errors
    room = counts.exact_product(risk, most) - wrong
    share = 1 - risk
    more = np.minimum(np.floor(room / share + 1e-9), c.errors) if share else c.errors
    reached = np.where(loose & (room >= 0), most + more, 0)
    return min(1.0, max(least, float(reached.max())) / n)
