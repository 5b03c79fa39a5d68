"""The rows that a rule rests on: scores and errors, or counts of them.

`Rows` holds them; a `Sketch` of `trustdoctor.metrics` counts them in ranges. Both
answer every question of `Sample`, so the rules never ask which of the two they have.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_groups, as_scores
from trustdoctor.errors import InputError
from trustdoctor.metrics import CellScores, Confusion, Counts, Sketch, confusion, count


class Ordered(Protocol):
    """Scores of one kind of rows, in order; each is known to lie in a range."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def kth(self, k: int) -> tuple[float, float]:
        """Return between what the k-th least score lies."""

    def above(self, score: float) -> float:
        """Return the least score above; inf where there is none."""

    def below(self, score: float) -> float:
        """Return the largest score below; -inf where there is none."""

    def just_below(self, score: float) -> float:
        """Return the next number below a score, in their type."""


class Sample(Protocol):
    """Rows to calibrate on."""

    @property
    def labelled(self) -> bool:
        """Whether it is known where they are wrong."""

    @property
    def exact(self) -> bool:
        """Whether the order of all rows is known, ties included."""

    @property
    def rounding(self) -> float:
        """How far another runtime's rounding may move a score, for its size."""

    @property
    def n_errors(self) -> int:
        """Wrong rows."""

    @property
    def counts(self) -> Counts:
        """Rows in each group of tied scores."""

    @property
    def fingerprint(self) -> str:
        """A short digest of the rows."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def of_kind(self, kind: str) -> Ordered:
        """Return the scores of "correct", of "errors" or of "all" rows."""

    def worst(self) -> Counts:
        """Return counts in the worst order that the ranges allow."""

    def start(self, k: int) -> tuple[int, int, int]:
        """Return what the threshold at the k-th least score accepts.

        Rows and errors, and the fewest rows that it may accept.
        """

    def confusion(self, threshold: float) -> Confusion | None:
        """Count what a threshold does; None where that is not known."""

    def split(self, groups: Any) -> "dict[Any, Any]":
        """Return the sample of each group, in the order of their names."""


class _Counted:
    """Rows in groups of tied scores: what is the same of `Rows` and `CountedRows`."""

    counts: Counts
    exact = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.counts.n_correct + self.counts.n_errors)

    @property
    def n_errors(self) -> int:
        """Wrong rows."""
        return int(self.counts.n_errors)

    def worst(self) -> Counts:
        """Return the counts: nothing is unknown of the order of the rows."""
        return self.counts

    def of_kind(self, kind: str) -> CellScores:
        """Return the scores of "correct", of "errors" or of "all" rows."""
        c = self.counts
        sizes = {"correct": c.correct, "errors": c.errors, "all": c.correct + c.errors}
        assert c.highest is not None
        return CellScores(
            c.highest if c.lowest is None else c.lowest, c.highest, sizes[kind]
        )

    def start(self, k: int) -> tuple[int, int, int]:
        """Return rows and errors that the threshold at the k-th score accepts."""
        through = np.cumsum(self.counts.correct + self.counts.errors)
        group = int(np.searchsorted(through, k))
        accepted = int(through[group])
        return accepted, int(self.counts.errors[: group + 1].sum()), accepted


@dataclass(frozen=True, eq=False)
class Rows(_Counted):
    """Scores of rows, and where they are wrong.

    Attributes
    ----------
    scores : array (n,)
    errors : bool array (n,), or None
    rounding : float
        Scores that rounding alone tells apart are tied, as in `count`.
    """

    scores: Array
    errors: Array | None = None
    rounding: float = 0.0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.scores)

    @property
    def labelled(self) -> bool:
        """Whether it is known where they are wrong."""
        return self.errors is not None

    @cached_property
    def _wrong(self) -> Array:
        return np.zeros(len(self), bool) if self.errors is None else self.errors

    @property
    def n_errors(self) -> int:
        """Wrong rows."""
        return int(self._wrong.sum())

    @cached_property
    def counts(self) -> Counts:  # type: ignore[override]
        """Rows in each group of tied scores."""
        return count(self.scores, self._wrong, rounding=self.rounding)

    def confusion(self, threshold: float) -> Confusion | None:
        """Count what a threshold does."""
        return confusion(self.scores, self._wrong, threshold=threshold)

    def __getitem__(self, rows: Array) -> "Rows":
        """Return some of the rows, by a mask or by their numbers."""
        errors = None if self.errors is None else self.errors[rows]
        return Rows(self.scores[rows], errors, self.rounding)

    def split(self, groups: Any) -> "dict[Any, Rows]":
        """Return the rows of each group, in the order of their names."""
        given = as_groups(groups, rows=len(self))
        return {name: self[given == name] for name in np.unique(given).tolist()}

    @property
    def fingerprint(self) -> str:
        """A short digest of the rows."""
        return Fingerprint.of(self.scores, self.errors).digest


@dataclass(frozen=True, eq=False)
class CountedRows(_Counted):
    """A sample that is known by its counts at every distinct score."""

    counts: Counts
    rounding: float = 0.0
    fingerprint = ""
    labelled = True

    def confusion(self, threshold: float) -> Confusion:
        """Count what a threshold does."""
        c = self.counts
        assert c.highest is not None
        accepted = int(np.searchsorted(c.highest, threshold, side="right"))
        fa, ta = int(c.errors[:accepted].sum()), int(c.correct[:accepted].sum())
        return Confusion(int(c.n_correct) - ta, int(c.n_errors) - fa, fa, ta)

    def split(self, groups: Any) -> dict[Any, Any]:  # noqa: ARG002
        """Return the sample as the only group."""
        return {"": self}


@dataclass(frozen=True)
class Fingerprint:
    """A digest of rows, scores and errors, in whatever order and parts they come.

    It tells samples apart; it is no proof against somebody who forges one.

    Attributes
    ----------
    rows : int
    scores, wrong : int
        Sums over all rows and over the wrong ones, of a mix of each score's bits.
    labelled : bool
        Whether it is known where rows are wrong.

    Examples
    --------
    >>> both = Fingerprint.of(np.array([1.0, 2.0]), np.array([True, False]))
    >>> one, two = Fingerprint.of([2.0], [False]), Fingerprint.of([1.0], [True])
    >>> (one + two).digest == both.digest
    True
    """

    rows: int = 0
    scores: int = 0
    wrong: int = 0
    labelled: bool = True

    @classmethod
    def of(cls, scores: Any, errors: Any = None) -> "Fingerprint":
        """Return that of some rows."""
        every = wrong = 0
        for start in range(0, len(scores), _BLOCK):
            part = slice(start, start + _BLOCK)
            mixed = _mixed(np.asarray(scores[part], np.float64))
            every += int(mixed.sum(dtype=np.uint64))
            if errors is not None:
                wrong += int(mixed[np.asarray(errors[part])].sum(dtype=np.uint64))
        return cls(len(scores), every % _SIZE, wrong % _SIZE, errors is not None)

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        """Return that of the rows of both."""
        return Fingerprint(
            self.rows + other.rows,
            (self.scores + other.scores) % _SIZE,
            (self.wrong + other.wrong) % _SIZE,
            self.labelled and other.labelled,
        )

    @property
    def digest(self) -> str:
        """The digest as text; errors have a part in it where all are known."""
        wrong = self.wrong if self.labelled else None
        words = f"{self.rows} {self.scores} {wrong}".encode()
        return hashlib.blake2b(words, digest_size=12).hexdigest()


_SIZE = 1 << 64
_BLOCK = 1 << 15  # rows that stay in the cache


def _mixed(scores: Array) -> Array:
    """Return the bits of each score, well mixed (splitmix64); there is one zero."""
    bits = (scores + 0.0).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return np.asarray(bits)


def between_scores(rows: Sample, accepted: Array) -> list[tuple[float, float]]:
    """Return between which scores a threshold accepts so many rows, for each number.

    The largest that is accepted, and the least that is not: inf where there is none.

    Examples
    --------
    >>> between_scores(Rows(np.array([3.0, 1.0, 2.0])), np.array([1, 3]))
    [(1.0, 2.0), (3.0, inf)]
    """
    scores = rows.of_kind("all")
    ends = [scores.kth(int(k))[1] for k in accepted]
    return [(end, scores.above(end)) for end in ends]


def cdf(sample: Sample, scores: Array) -> Array:
    """Return the share of a sample's rows with at most each of these scores.

    Examples
    --------
    >>> cdf(Rows(np.array([3.0, 1.0, 2.0, 1.0])), np.array([0.0, 1.0, 2.5]))
    array([0.  , 0.5 , 0.75])
    """
    counts = sample.counts
    cumulative = np.append(0, np.cumsum(counts.correct + counts.errors) / len(sample))
    groups = np.searchsorted(np.asarray(counts.highest, float), scores, side="right")
    return np.asarray(cumulative[groups])


def as_sample(scores: Any, errors: Any = None, *, rounding: float = 0.0) -> Sample:
    """Check rows to calibrate on: scores and errors, or a sketch, which knows both."""
    if isinstance(scores, Sketch):
        if errors is not None:
            message = "a sketch knows its errors. Leave errors out."
            raise InputError(message)
        if len(scores) == 0:
            message = "expected at least one score, got an empty sketch."
            raise InputError(message)
        return scores.tied(rounding)
    s = as_scores(scores)
    wrong = None if errors is None else as_errors(errors, rows=len(s))
    return Rows(s, wrong, rounding)
