"""The rows that a rule rests on: scores and errors, or counts of them.

`Rows` holds every score; a `Sketch` of `trustdoctor.metrics` counts them in ranges.
Both implement `Sample` completely, so the rules never ask which of the two they have.

References
----------
Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_groups, as_scores
from trustdoctor.errors import InputError
from trustdoctor.metrics import CellScores, Confusion, Counts, Sketch, confusion, counts


class OrderedScores(Protocol):
    """The scores of one kind of rows, in order; each is known to be in an interval."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def kth(self, k: int) -> tuple[float, float]:
        """Return an interval that contains the k-th smallest score."""

    def above(self, score: float) -> float:
        """Return the smallest score above this one; inf without any."""

    def below(self, score: float) -> float:
        """Return the largest score below this one; -inf without any."""

    def just_below(self, score: float) -> float:
        """Return the largest number of the scores' type that is below this score."""


class Sample(Protocol):
    """Rows to calibrate on."""

    @property
    def labelled(self) -> bool:
        """Whether the errors are known."""

    @property
    def exact(self) -> bool:
        """Whether the order of all rows is known, ties included."""

    @property
    def rounding(self) -> float:
        """The relative error that another runtime's rounding may add to a score."""

    @property
    def n_errors(self) -> int:
        """The number of errors."""

    @property
    def counts(self) -> Counts:
        """Correct rows and errors in each group of tied scores."""

    @property
    def fingerprint(self) -> str:
        """A short digest of the rows."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def of_kind(self, kind: str) -> OrderedScores:
        """Return the scores of "correct", of "errors" or of "all" rows."""

    def worst(self) -> Counts:
        """Return the counts in the least favourable order of the rows of each range."""

    def accepted_by_kth(self, k: int) -> tuple[int, int, int]:
        """Return rows and errors that a threshold at the k-th smallest score accepts.

        The third number is the fewest rows that it may accept: within a range of scores
        the order of the rows is unknown.
        """

    def confusion(self, threshold: float) -> Confusion | None:
        """Count the decisions of a threshold; None within a range of scores."""

    def split(self, groups: Any) -> "dict[Any, Any]":
        """Return the sample of each group, in the order of their names."""


class _TiedGroups:
    """Rows in groups of tied scores: what `Rows` and `CountedRows` share."""

    counts: Counts
    exact = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.counts.n_correct + self.counts.n_errors)

    @property
    def n_errors(self) -> int:
        """The number of errors."""
        return int(self.counts.n_errors)

    def worst(self) -> Counts:
        """Return the counts themselves: the order of the rows is known."""
        return self.counts

    def of_kind(self, kind: str) -> CellScores:
        """Return the scores of "correct", of "errors" or of "all" rows."""
        c = self.counts
        sizes = {"correct": c.correct, "errors": c.errors, "all": c.correct + c.errors}
        assert c.scores is not None
        return CellScores(
            c.scores if c.lowest is None else c.lowest, c.scores, sizes[kind]
        )

    def accepted_by_kth(self, k: int) -> tuple[int, int, int]:
        """Return rows and errors accepted at the k-th score, and the rows again."""
        cumulative = np.cumsum(self.counts.correct + self.counts.errors)
        group = int(np.searchsorted(cumulative, k))
        accepted = int(cumulative[group])
        return accepted, int(self.counts.errors[: group + 1].sum()), accepted


@dataclass(frozen=True, eq=False)
class Rows(_TiedGroups):
    """The scores of rows and, if known, their errors.

    Attributes
    ----------
    scores : array (n,)
    errors : bool array (n,), or None
    rounding : float
        Scores that differ by no more than rounding are tied, as in `counts`.
    """

    scores: Array
    errors: Array | None = None
    rounding: float = 0.0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.scores)

    @property
    def labelled(self) -> bool:
        """Whether the errors are known."""
        return self.errors is not None

    @cached_property
    def _errors(self) -> Array:
        return np.zeros(len(self), bool) if self.errors is None else self.errors

    @property
    def n_errors(self) -> int:
        """The number of errors."""
        return int(self._errors.sum())

    @cached_property
    def counts(self) -> Counts:  # type: ignore[override]
        """Correct rows and errors in each group of tied scores."""
        return counts(self.scores, self._errors, rounding=self.rounding)

    def confusion(self, threshold: float) -> Confusion | None:
        """Count the decisions of a threshold."""
        return confusion(self.scores, self._errors, threshold=threshold)

    def __getitem__(self, rows: Array) -> "Rows":
        """Return the rows of a mask or of row numbers."""
        errors = None if self.errors is None else self.errors[rows]
        return Rows(self.scores[rows], errors, self.rounding)

    def split(self, groups: Any) -> "dict[Any, Rows]":
        """Return the rows of each group, in the order of their names."""
        group_of_row = as_groups(groups, rows=len(self))
        return {
            name: self[group_of_row == name]
            for name in np.unique(group_of_row).tolist()
        }

    @property
    def fingerprint(self) -> str:
        """A short digest of the rows."""
        return Fingerprint.of(self.scores, self.errors).digest


@dataclass(frozen=True, eq=False)
class CountedRows(_TiedGroups):
    """A sample in the form of its exact counts at every distinct score."""

    counts: Counts
    rounding: float = 0.0
    fingerprint = ""
    labelled = True

    def confusion(self, threshold: float) -> Confusion:
        """Count the decisions of a threshold."""
        c = self.counts
        assert c.scores is not None
        accepted = int(np.searchsorted(c.scores, threshold, side="right"))
        fa, ta = int(c.errors[:accepted].sum()), int(c.correct[:accepted].sum())
        return Confusion(int(c.n_correct) - ta, int(c.n_errors) - fa, fa, ta)

    def split(self, groups: Any) -> dict[Any, Any]:  # noqa: ARG002
        """Return the sample as the only group."""
        return {"": self}


@dataclass(frozen=True)
class Fingerprint:
    """A digest of scores and errors that depends on neither order nor batches.

    It tells samples apart, but is no protection against forged ones.

    Attributes
    ----------
    rows : int
    score_sum, error_sum : int
        Sums of the scores' mixed bits, modulo 2^64, over all rows and over the errors.
    labelled : bool
        Whether the errors are known.

    Examples
    --------
    >>> whole = Fingerprint.of(np.array([1.0, 2.0]), np.array([True, False]))
    >>> batches = [Fingerprint.of([2.0], [False]), Fingerprint.of([1.0], [True])]
    >>> (batches[0] + batches[1]).digest == whole.digest
    True
    """

    rows: int = 0
    score_sum: int = 0
    error_sum: int = 0
    labelled: bool = True

    @classmethod
    def of(cls, scores: Any, errors: Any = None) -> "Fingerprint":
        """Return the fingerprint of these rows."""
        score_sum = error_sum = 0
        for start in range(0, len(scores), _BLOCK):
            block = slice(start, start + _BLOCK)
            bits = _mixed_bits(np.asarray(scores[block], np.float64))
            score_sum += int(bits.sum(dtype=np.uint64))
            if errors is not None:
                error_sum += int(bits[np.asarray(errors[block])].sum(dtype=np.uint64))
        labelled = errors is not None
        return cls(len(scores), score_sum % _MODULUS, error_sum % _MODULUS, labelled)

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        """Return the fingerprint of the rows of both."""
        return Fingerprint(
            self.rows + other.rows,
            (self.score_sum + other.score_sum) % _MODULUS,
            (self.error_sum + other.error_sum) % _MODULUS,
            self.labelled and other.labelled,
        )

    @property
    def digest(self) -> str:
        """The digest as text; it depends on the errors if all are known."""
        error_sum = self.error_sum if self.labelled else None
        text = f"{self.rows} {self.score_sum} {error_sum}".encode()
        return hashlib.blake2b(text, digest_size=12).hexdigest()


_MODULUS = 1 << 64
_BLOCK = 1 << 15  # rows that stay in the cache


def _mixed_bits(scores: Array) -> Array:
    """Return the bits of each score, mixed by splitmix64 (Steele et al. 2014)."""
    # A sum of plain bits would not tell samples apart that differ in opposite ways.
    # Adding 0.0 turns -0.0 into 0.0: the two are equal, and so must their bits be.
    bits = (scores + 0.0).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return np.asarray(bits)


def neighbouring_scores(rows: Sample, accepted: Array) -> list[tuple[float, float]]:
    """Return the largest accepted and the smallest rejected score, for each count.

    A threshold between the two accepts that many rows; without a rejected row the
    second is inf.

    Examples
    --------
    >>> neighbouring_scores(Rows(np.array([3.0, 1.0, 2.0])), np.array([1, 3]))
    [(1.0, 2.0), (3.0, inf)]
    """
    scores = rows.of_kind("all")
    largest_accepted = [scores.kth(int(k))[1] for k in accepted]
    return [(score, scores.above(score)) for score in largest_accepted]


def cdf(sample: Sample, scores: Array) -> Array:
    """Return the share of a sample's rows with at most each of these scores.

    Examples
    --------
    >>> cdf(Rows(np.array([3.0, 1.0, 2.0, 1.0])), np.array([0.0, 1.0, 2.5]))
    array([0.  , 0.5 , 0.75])
    """
    counts = sample.counts
    cumulative = np.append(0, np.cumsum(counts.correct + counts.errors) / len(sample))
    groups = np.searchsorted(np.asarray(counts.scores, float), scores, side="right")
    return np.asarray(cumulative[groups])


def as_sample(scores: Any, errors: Any = None, *, rounding: float = 0.0) -> Sample:
    """Check the scores and errors of calibration rows, or a sketch that counts both."""
    if isinstance(scores, Sketch):
        if errors is not None:
            message = "a sketch counts errors itself. Leave errors out."
            raise InputError(message)
        if len(scores) == 0:
            message = "expected at least one score, got an empty sketch."
            raise InputError(message)
        return scores.tied(rounding)
    checked_scores = as_scores(scores)
    checked_errors = (
        None if errors is None else as_errors(errors, rows=len(checked_scores))
    )
    return Rows(checked_scores, checked_errors, rounding)
