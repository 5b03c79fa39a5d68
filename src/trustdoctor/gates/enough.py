"""How many rows would be enough: a rule on the same rows, repeated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.gates.sample import Ordered, Sample
from trustdoctor.metrics import Confusion, Counts

MOST_TIMES = 10_000
"""Rows repeated so often stand for as many rows as one likes."""


def enough(
    rows: Sample, holds: Callable[[Sample], bool], *, first: int | None = None
) -> int | None:
    """Return about how many rows like these a condition needs; None for none.

    The number is always larger than that of the rows, and the condition holds on so
    many rows in the same proportions.

    Parameters
    ----------
    rows : Sample
    holds : callable
        From a sample to whether it is enough; more rows keep it true.
    first : int, optional
        The least number that could be enough.
    """
    n = len(rows)
    least = max(first or 0, n + 1)
    low, high = n, least
    while not holds(Grown(rows, high)):
        low, high = high, 2 * high
        if high > MOST_TIMES * max(n, 100):
            return None
    while high > least and high - low > max(1, high // 64):
        middle = (low + high) // 2
        if holds(Grown(rows, middle)):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, eq=False)
class Grown:
    """A sample of `size` rows like those of another, in the same proportions.

    Where `size` is not a multiple of the rows, errors are rounded up and correct rows
    down.
    """

    rows: Sample
    size: int
    fingerprint = ""

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.size

    @property
    def labelled(self) -> bool:
        """Whether it is known where they are wrong."""
        return self.rows.labelled

    @property
    def exact(self) -> bool:
        """Whether every score is known."""
        return self.rows.exact

    @property
    def n_errors(self) -> int:
        """Wrong rows."""
        return self._more(self.rows.n_errors, up=True)

    @property
    def counts(self) -> Counts:
        """Rows at every distinct score."""
        return self._grown(self.rows.counts)

    def worst(self) -> Counts:
        """Return counts in the worst order that the ranges allow."""
        return self._grown(self.rows.worst())

    def of_kind(self, kind: str) -> Ordered:
        """Return the scores of "correct", of "errors" or of "all" rows."""
        wrong = self.n_errors
        size = {"all": self.size, "errors": wrong, "correct": self.size - wrong}[kind]
        return GrownScores(self.rows.of_kind(kind), size)

    def start(self, k: int) -> tuple[int, int, int]:
        """Return what the threshold at the k-th least score accepts."""
        own = -(-k * len(self.rows) // self.size)
        accepted, wrong, fewest = self.rows.start(own)
        return self._more(accepted), self._more(wrong, up=True), self._more(fewest)

    def confusion(self, threshold: float) -> Confusion | None:  # noqa: ARG002
        """Return None: these rows were never seen."""
        return None

    def split(self, groups: Any) -> dict[Any, Any]:
        """Return the sample of each group, grown alike."""
        return {
            name: Grown(own, self._more(len(own), up=True))
            for name, own in self.rows.split(groups).items()
        }

    def _more(self, counted: Any, *, up: bool = False) -> Any:
        times = counted * self.size
        return -(-times // len(self.rows)) if up else times // len(self.rows)

    def _grown(self, c: Counts) -> Counts:
        correct = self._more(np.cumsum(c.correct))
        errors = self._more(np.cumsum(c.errors), up=True)
        return Counts(np.diff(correct, prepend=0), np.diff(errors, prepend=0))


@dataclass(frozen=True, eq=False)
class GrownScores:
    """Scores of one kind, as if there were `size` of them."""

    scores: Ordered
    size: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.size

    def kth(self, k: int) -> tuple[float, float]:
        """Return between what the k-th least score lies."""
        return self.scores.kth(-(-k * len(self.scores) // self.size))

    def above(self, score: float) -> float:
        """Return the least score above; inf where there is none."""
        return self.scores.above(score)

    def below(self, score: float) -> float:
        """Return the largest score below; -inf where there is none."""
        return self.scores.below(score)

    def just_below(self, score: float) -> float:
        """Return the largest threshold that rejects the score."""
        return self.scores.just_below(score)
