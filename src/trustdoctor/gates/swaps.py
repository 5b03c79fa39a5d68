"""Which rows count for a list, where the rows that set the threshold set it, too.

A row counts if the gate would reject it with a new row, wrong and rejected, in its
place; `listing.py` says why. Where scores are known, the rejected errors do, but for
the one next to the threshold, and correct rows beyond where one error more puts it.

Where rows were counted in ranges of scores, the threshold is next to the end of a range
that its rows move. An error counts if it is beyond all ranges where the threshold could
then be; one that is within them counts as stranger than any list allows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.gates.asked import Ask
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.rules import Cut, place
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.metrics import CELLS, CellScores, Sketch, fitted


@dataclass(frozen=True)
class Swaps:
    """Which rows a gate would reject, were a new row in their place.

    Attributes
    ----------
    correct : float
        Correct rows above are rejected.
    errors : tuple of float, or None
        Errors above the second number are rejected, and those below the first are not;
        between them it is not known. None where those are that the gate rejects.
    """

    correct: float
    errors: tuple[float, float] | None = None

    def count(
        self, doubts: Array, wrong: Array, rejected: Array
    ) -> tuple[NDArray[np.bool_], int]:
        """Return which rows count, and how many errors as stranger than any list."""
        d = np.asarray(doubts, np.float64)
        sure, unsure = wrong & rejected, 0
        if self.errors is not None:
            low, high = self.errors
            sure = wrong & (d > high)
            unsure = int((wrong & (low <= d) & (d <= high)).sum())
        return sure | (~wrong & rejected & (d > self.correct)), unsure


def find_swaps(gate: Gate, rows: Sample) -> Swaps:
    """Return which of the rows that set a gate's threshold count for its lists."""
    known = gate.certificate
    assert known is not None
    mode: Any = None if known.mode == "none" else known.mode
    ask = Ask(
        known.target,
        mode,
        confidence=known.confidence,
        label_noise=known.label_noise,
    )

    def cut(some: Any) -> Cut:
        return ask.cut(some, 1 - known.confidence)

    found = cut(rows)
    made = (found.state, place(found, rows)) == (gate.state, gate.threshold)
    if made and _is_known(rows):
        swapped = _Ranges.of(rows).swapped("correct", -1, math.inf)
        return Swaps(math.inf if swapped is None else place(cut(swapped), swapped))
    if isinstance(rows, Rows):  # the gate is of ranges of their scores
        sketch = Sketch()
        sketch.update(rows.scores, rows.errors)
        rows = sketch.tied(rows.rounding)
    ranges = _Ranges.of(rows)
    return Swaps(ranges.band("correct", cut)[1], ranges.band("errors", cut))


def _is_known(rows: Sample) -> bool:
    """Tell whether every score is known, and would be with one more of them."""
    if isinstance(rows, Sketch):
        return rows.cells.bits == 0 and len(rows.cells) < CELLS
    return rows.exact


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Rows in ranges of scores: as much of a sample as rules by rank ask for."""

    low: Array
    high: Array
    correct: Array
    errors: Array
    rounding: float
    exact = True

    @classmethod
    def of(cls, rows: Sample) -> "_Ranges":
        """Return ranges as wide as one score more could make them."""
        if isinstance(rows, Sketch):
            c = fitted(rows.cells, CELLS - 1)
            return cls(c.low, c.high, c.correct, c.errors, rows.rounding)
        counts = rows.counts
        ends = (counts.lowest, counts.highest)
        low, high = (np.asarray(end, np.float64) for end in ends)
        return cls(low, high, counts.correct, counts.errors, rows.rounding)

    def __len__(self) -> int:
        return int((self.correct + self.errors).sum())

    @property
    def n_errors(self) -> int:
        return int(self.errors.sum())

    def of_kind(self, kind: str) -> CellScores:
        every = self.correct + self.errors if kind == "all" else getattr(self, kind)
        return CellScores(self.low, self.high, every)

    def swapped(self, kind: str, at: int, score: float) -> Any:
        """Return them with the first (0) or last (-1) of a kind an error of a score.

        None where there is none of the kind; the score is inf or -inf.
        """
        held = np.flatnonzero(getattr(self, kind))
        if not len(held):
            return None
        parts = {"correct": self.correct.copy(), "errors": self.errors.copy()}
        parts[kind][held[at]] -= 1
        end = 0 if score < 0 else len(self.low)
        return _Ranges(
            np.insert(self.low, end, score),
            np.insert(self.high, end, score),
            np.insert(parts["correct"], end, 0),
            np.insert(parts["errors"], end, 1),
            self.rounding,
        )

    def band(self, kind: str, cut: Callable[[Any], Cut]) -> tuple[float, float]:
        """Return from which to which score a threshold is, whatever is swapped.

        Both belong to it: a threshold half way to a score moves with it.
        """
        low, high = math.inf, -math.inf
        for at, score in ((0, math.inf), (-1, -math.inf)):
            some = self.swapped(kind, at, score)
            if some is None:
                return -math.inf, math.inf
            ends = some._around(cut(some))
            low, high = min(low, ends[0]), max(high, ends[1])
        return low, high

    def _around(self, cut: Cut) -> tuple[float, float]:
        """Return the scores next to the range that a cut is in."""
        if cut.state != "threshold":
            end = math.inf if cut.state == "accept-all" else -math.inf
            return end, end
        if cut.side == "exact":
            return math.inf, cut.at  # nothing is between them
        every, cell = self.of_kind("all"), int(np.searchsorted(self.high, cut.at))
        return every.below(float(self.low[cell])), every.above(float(self.high[cell]))
