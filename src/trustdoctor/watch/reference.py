"""Sums of the model's own confidences, at a temperature that labelled rows set."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array, Bools, describe, to_numpy
from trustdoctor.errors import FileError, InputError
from trustdoctor.metrics import matching_temperature, top_probability
from trustdoctor.predictions import Answers, Predictions, TopK, require_predictions

STEP = 0.01
"""By how much the logarithm of the temperature moves, to see what it does."""

ROUNDING = 1e-6
"""How far rounding may carry a sum beyond its limits, as a share of the rows."""


@dataclass(frozen=True)
class Part:
    """Sums over some rows; they add up.

    Attributes
    ----------
    rows : int
    expected : float
        How many of them are expected to be correct: the sum of their confidences c.
    variance : float
        The sum of c (1 - c).
    slope : float
        By how much `expected` changes per unit of the temperature's logarithm.
    correct : int
        How many are correct; 0 where no labels tell.

    Examples
    --------
    >>> Part(1, 0.9, 0.09) + Part(1, 0.8, 0.16)
    Part(rows=2, expected=1.7000000000000002, variance=0.25, slope=0.0, correct=0)
    """

    rows: int = 0
    expected: float = 0.0
    variance: float = 0.0
    slope: float = 0.0
    correct: int = 0

    def __post_init__(self) -> None:
        """Refuse what no rows can add up to."""
        _refuse(self, self._wrong())

    def _wrong(self) -> Iterator[str]:
        """Say which fields cannot be; each is looked at after those before it."""
        if not _is_count(self.rows, envelope.MOST_ROWS):
            yield "rows"
        most = self.rows * (1 + ROUNDING)
        if not _is_between(self.expected, 0, most):
            yield "expected"
        if not _is_between(self.variance, 0, most / 4):
            yield "variance"
        if not _is_between(self.slope, -math.inf, 0):
            yield "slope"
        if not _is_count(self.correct, self.rows):
            yield "correct"

    def __add__(self, other: "Part") -> "Part":
        """Return the sums over the rows of both."""
        names = [one.name for one in fields(self)]
        return Part(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True)
class Sums:
    """What is counted of rows; batches add up, in any order.

    Attributes
    ----------
    rows : Part
        Over all rows.
    accepted : Part or None
        Over the accepted ones; None where nothing decided.
    labelled : Part
        Over the rows that have a label.
    labelled_accepted : Part or None
        Over those that have a label and are accepted.

    Examples
    --------
    >>> total = Sums(Part(1, 0.9, 0.09)) + Sums(Part(1, 0.8, 0.16))
    >>> total.rows.rows, total.accepted
    (2, None)
    """

    rows: Part = field(default_factory=Part)
    accepted: Part | None = None
    labelled: Part = field(default_factory=Part)
    labelled_accepted: Part | None = None

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums over the rows of both."""
        return Sums(
            self.rows + other.rows,
            _added(self.accepted, other.accepted),
            self.labelled + other.labelled,
            _added(self.labelled_accepted, other.labelled_accepted),
        )

    def labels(self) -> "Sums":
        """Return what is known by labels alone: of rows that were counted before.

        Examples
        --------
        >>> first = Sums(Part(2, 1.5, 0.25))
        >>> late = Sums(Part(1, 0.9, 0.09), labelled=Part(1, 0.9, 0.09, correct=1))
        >>> both = first + late.labels()
        >>> both.rows.rows, both.labelled.correct
        (2, 1)
        """
        return Sums(labelled=self.labelled, labelled_accepted=self.labelled_accepted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> "Sums":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        envelope.check_fields(content, {one.name for one in fields(cls)})
        found = cls(
            _read_part(content["rows"]),
            _read_optional(content["accepted"]),
            _read_part(content["labelled"]),
            _read_optional(content["labelled_accepted"]),
        )
        _refuse(found, found._wrong())
        return found

    def _wrong(self) -> Iterator[str]:
        """Say which parts are larger than the whole."""
        kept, both = self.accepted or Part(), self.labelled_accepted or Part()
        known = self.labelled  # late labels may be of rows that were not counted here
        if kept.rows > self.rows.rows:
            yield "accepted"
        if both.rows > known.rows or both.correct > known.correct:
            yield "labelled_accepted"


@dataclass(frozen=True)
class Reference:
    """What labelled rows say of the confidences: one temperature, and how sure it is.

    Attributes
    ----------
    temperature : float
        At which the mean confidence of the reference rows is their accuracy.
    uncertainty : float
        The standard error of its logarithm.
    n, correct : int
        The reference rows that have a label, and the correct ones.
    n_classes : int

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.7, 0.3]]
    >>> found = Reference.fit(Predictions.from_probs(probs, [0, 0, 0, 1]))
    >>> found.correct, found.n, round(found.temperature, 2)
    (3, 4, 1.46)
    """

    temperature: float
    uncertainty: float
    n: int
    correct: int
    n_classes: int

    def __post_init__(self) -> None:
        """Refuse what no reference can be."""
        _refuse(self, self._wrong())

    def _wrong(self) -> Iterator[str]:
        """Say which fields cannot be; each is looked at after those before it."""
        if not _is_between(self.temperature, math.ulp(0), math.inf):
            yield "temperature"
        if not _is_between(self.uncertainty, 0, math.inf):
            yield "uncertainty"
        if not _is_count(self.n, envelope.MOST_ROWS):
            yield "n"
        if not (_is_count(self.correct, self.n) and 0 < self.correct < self.n):
            yield "correct"
        if not (_is_count(self.n_classes, envelope.MOST_ROWS) and self.n_classes > 1):
            yield "n_classes"

    @classmethod
    def fit(cls, predictions: Predictions) -> "Reference":
        """Find the temperature at which the mean confidence is the accuracy.

        Parameters
        ----------
        predictions : Predictions
            With labels; rows without one are left out.
        """
        require_classes(predictions)
        known = predictions.labelled("an expectation's reference")
        n, wrong = len(known), int(known.errors.sum())
        if not 0 < wrong < n:
            message = (
                f"expected a reference with correct and wrong predictions, got {wrong} "
                f"wrong of {n}. Give more rows, and check the order of the classes."
            )
            raise InputError(message)
        temperature = matching_temperature(known, (n - wrong) / n)
        said, slope = _confidences(known, temperature)
        gaps: Array = ~known.errors - said
        if not slope.sum() < 0:
            message = (
                f"expected a reference whose confidences depend on the temperature, "
                f"got {n} rows that are certain or tied. Give other labelled rows."
            )
            raise InputError(message)
        uncertainty = math.sqrt(float((gaps**2).sum())) / -float(slope.sum())
        return cls(temperature, uncertainty, n, n - wrong, known.n_classes)

    def count(self, predictions: Predictions, accepted: Any = None) -> Sums:
        """Return what these rows add to the sums.

        Parameters
        ----------
        predictions : Predictions
            With or without labels.
        accepted : bool array (n,), optional
            Which rows a gate accepted.
        """
        require_classes(predictions)
        if predictions.n_classes != self.n_classes:
            message = (
                f"expected {self.n_classes} classes, as in the reference, got "
                f"{predictions.n_classes}. Give rows of the same model."
            )
            raise InputError(message)
        said, slope = _confidences(predictions, self.temperature)
        known = predictions.has_label
        right = np.zeros(len(predictions), bool)
        if predictions.labels is not None:
            right = predictions.predicted == predictions.labels
        every = np.ones(len(predictions), bool)
        whole = _part(said, slope, every), _part(said, slope, known, right)
        if accepted is None:
            return Sums(whole[0], None, whole[1], None)
        kept = _mask(accepted, len(predictions))
        inner = _part(said, slope, kept), _part(said, slope, kept & known, right)
        return Sums(whole[0], inner[0], whole[1], inner[1])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> "Reference":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        envelope.check_fields(content, {one.name for one in fields(cls)})
        return cls(**content)


def require_classes(given: Any) -> None:
    """Refuse what has no probabilities of all classes."""
    if isinstance(given, (Answers, TopK)):
        message = (
            "expected logits or probabilities of all classes, which a temperature can "
            f"correct, got {type(given).__name__}. Use Predictions.from_logits or "
            "from_probs."
        )
        raise InputError(message)
    require_predictions(given)


def _confidences(predictions: Predictions, temperature: float) -> tuple[Array, Array]:
    """Return the confidence of each row, and its slope in the log temperature."""
    said = top_probability(predictions, temperature=temperature)
    warmer = top_probability(predictions, temperature=temperature * math.exp(STEP))
    return said, np.minimum(warmer - said, 0.0) / STEP


def _part(said: Array, slope: Array, rows: Bools, right: Bools | None = None) -> Part:
    """Return the sums over some rows; `right` tells which are correct."""
    c = said[rows]
    correct = 0 if right is None else int(right[rows].sum())
    return Part(
        len(c),
        float(c.sum()),
        float((c * (1 - c)).sum()),
        float(slope[rows].sum()),
        correct,
    )


def _mask(accepted: Any, rows: int) -> Bools:
    mask = to_numpy(accepted)
    if mask.shape != (rows,) or mask.dtype != bool:
        message = (
            f"expected accepted as {rows} booleans, one per row, got {describe(mask)}. "
            "Take gate.screen(p).accepted."
        )
        raise InputError(message)
    return mask


def _added(ours: Part | None, theirs: Part | None) -> Part | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    return ours + theirs


def _read_part(content: Any) -> Part:
    envelope.check_fields(content, {one.name for one in fields(Part)})
    return Part(**content)


def _read_optional(content: Any) -> Part | None:
    return None if content is None else _read_part(content)


def _is_count(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_between(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and low <= value <= high


def _refuse(given: Any, wrong: Iterator[str]) -> None:
    """Refuse numbers that cannot be, by the first of their names."""
    name = next(wrong, "")
    if name:
        message = (
            f"the expectation is not as expected: its {name} cannot be "
            f"{envelope.shown(getattr(given, name))}."
        )
        raise FileError(message)
