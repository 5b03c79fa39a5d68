"""What the model's own probabilities expect of rows without labels: no guarantee.

The estimate is the mean confidence after temperature scaling (Guo, Pleiss, Sun and
Weinberger 2017); NannyML calls it CBPE. Sums over rows are all it needs, so batches add
up.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array, Bools, describe, to_numpy
from trustdoctor.envelope import Count, Document
from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.metrics import (
    Estimate,
    check_confidence,
    matching_temperature,
    normal_quantile,
    share,
    top_probability,
)
from trustdoctor.predictions import Answers, Predictions, require_predictions

LOG_STEP = 0.01
"""The step in the logarithm of the temperature by which slopes are measured."""

ROUNDING = 1e-6
"""How far rounding may carry a sum beyond its bound, as a share of the rows."""

_Sum = Annotated[float, msgspec.Meta(ge=0, lt=1e300)]
_Slope = Annotated[float, msgspec.Meta(gt=-1e300, le=0)]
_Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e300)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0, lt=1e300)]


class ConfidenceSums(Document, frozen=True):
    """Sums over the confidences of some rows.

    Attributes
    ----------
    rows : int
    expected : float
        The expected number of correct rows: the sum of their confidences c.
    variance : float
        The variance of that number: the sum of c (1 - c).
    slope : float
        The derivative of `expected` by the logarithm of the temperature.
    correct : int
        The number of correct rows; 0 without labels.

    Examples
    --------
    >>> total = ConfidenceSums(1, 0.9, 0.09) + ConfidenceSums(1, 0.8, 0.16)
    >>> total.rows, round(total.expected, 6), total.variance
    (2, 1.7, 0.25)
    """

    rows: Count = 0
    expected: _Sum = 0.0
    variance: _Sum = 0.0
    slope: _Slope = 0.0
    correct: Count = 0

    def __post_init__(self) -> None:
        """Refuse sums that these rows cannot have."""
        bound = self.rows * (1 + ROUNDING)
        for name, largest in (
            ("expected", bound),
            ("variance", bound / 4),
            ("correct", self.rows),
        ):
            if getattr(self, name) > largest:
                message = (
                    f"expected {name} of at most {largest:g} for {self.rows} rows, got "
                    f"{getattr(self, name)!r}."
                )
                raise InputError(message)

    def __add__(self, other: "ConfidenceSums") -> "ConfidenceSums":
        """Return the sums over the rows of both."""
        names = self.__struct_fields__
        return ConfidenceSums(
            *(getattr(self, name) + getattr(other, name) for name in names)
        )


class TrafficSums(Document, frozen=True):
    """Confidence sums of the rows that came; batches add up, in any order.

    Attributes
    ----------
    rows : ConfidenceSums
        Over all rows.
    accepted : ConfidenceSums or None
        Over the accepted rows; None without a gate.
    labelled : ConfidenceSums
        Over the rows that have a label.
    labelled_accepted : ConfidenceSums or None
        Over the accepted rows that have a label.

    Examples
    --------
    >>> batches = [TrafficSums(ConfidenceSums(1, c, c * (1 - c))) for c in (0.9, 0.8)]
    >>> total = batches[0] + batches[1]
    >>> total.rows.rows, total.accepted
    (2, None)
    """

    rows: ConfidenceSums = ConfidenceSums()
    accepted: ConfidenceSums | None = None
    labelled: ConfidenceSums = ConfidenceSums()
    labelled_accepted: ConfidenceSums | None = None

    def __post_init__(self) -> None:
        """Refuse subsets that are larger than the set."""
        accepted = self.accepted or ConfidenceSums()
        labelled_accepted = self.labelled_accepted or ConfidenceSums()
        # Late labels may be of rows whose confidences were not counted here, so
        # `labelled` may exceed `rows`.
        if accepted.rows > self.rows.rows:
            message = "more accepted rows than rows"
            raise InputError(message)
        if (
            labelled_accepted.rows > self.labelled.rows
            or labelled_accepted.correct > self.labelled.correct
        ):
            message = "more labelled_accepted rows than labelled rows"
            raise InputError(message)

    def __add__(self, other: "TrafficSums") -> "TrafficSums":
        """Return the sums over the rows of both."""
        return TrafficSums(
            self.rows + other.rows,
            _add_optional(self.accepted, other.accepted),
            self.labelled + other.labelled,
            _add_optional(self.labelled_accepted, other.labelled_accepted),
        )

    def labels(self) -> "TrafficSums":
        """Return the sums over labelled rows alone, of rows that were counted before.

        Examples
        --------
        >>> earlier = TrafficSums(ConfidenceSums(2, 1.5, 0.25))
        >>> labelled = ConfidenceSums(1, 0.9, 0.09, correct=1)
        >>> late = TrafficSums(ConfidenceSums(1, 0.9, 0.09), labelled=labelled)
        >>> total = earlier + late.labels()
        >>> total.rows.rows, total.labelled.correct
        (2, 1)
        """
        return TrafficSums(
            labelled=self.labelled, labelled_accepted=self.labelled_accepted
        )


class Reference(Document, frozen=True):
    """A temperature fitted on labelled rows, with its standard error.

    Attributes
    ----------
    temperature : float
        At which the mean confidence of the reference rows is their accuracy.
    uncertainty : float
        The standard error of its logarithm.
    n, correct : int
        The labelled reference rows, and those that are correct.
    n_classes : int

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.7, 0.3]]
    >>> reference = Reference.fit(Predictions.from_probs(probs, [0, 0, 0, 1]))
    >>> reference.correct, reference.n, round(reference.temperature, 2)
    (3, 4, 1.46)
    """

    temperature: _Positive
    uncertainty: _NotNegative
    n: Count
    correct: Annotated[int, msgspec.Meta(gt=0)]
    n_classes: Annotated[int, msgspec.Meta(gt=1, lt=envelope.MOST_ROWS)]

    def __post_init__(self) -> None:
        """Refuse a reference without errors."""
        if not self.correct < self.n:
            message = (
                f"expected fewer correct rows than the {self.n} rows of a reference, "
                f"got {self.correct}."
            )
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions) -> "Reference":
        """Find the temperature at which the mean confidence is the accuracy.

        Parameters
        ----------
        predictions : Predictions
            With labels; rows without one are left out.
        """
        require_classes(predictions)
        labelled = predictions.labelled("an expectation's reference")
        n, n_errors = len(labelled), int(labelled.errors.sum())
        if not 0 < n_errors < n:
            message = (
                f"expected a reference with correct and wrong predictions, got "
                f"{n_errors} wrong of {n}. Give more rows, and check the order of the "
                "classes."
            )
            raise InputError(message)
        temperature = matching_temperature(labelled, (n - n_errors) / n)
        confidences, slopes = _confidences(labelled, temperature)
        residuals: Array = ~labelled.errors - confidences
        if not slopes.sum() < 0:
            message = (
                f"expected a reference whose confidences depend on the temperature, "
                f"got {n} rows that are certain or tied. Give other labelled rows."
            )
            raise InputError(message)
        # The temperature solves sum(residuals) = 0, so it is an M-estimate, and this is
        # its sandwich standard error (Huber 1967).
        uncertainty = math.sqrt(float((residuals**2).sum())) / -float(slopes.sum())
        return cls(temperature, uncertainty, n, n - n_errors, labelled.n_classes)

    def count(self, predictions: Predictions, accepted: Any = None) -> TrafficSums:
        """Return the confidence sums of these rows.

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
        confidences, slopes = _confidences(predictions, self.temperature)
        labelled = predictions.has_label
        correct = np.zeros(len(predictions), bool)
        if predictions.labels is not None:
            correct = predictions.predicted == predictions.labels

        def sums(rows: Bools, correct: Bools | None = None) -> ConfidenceSums:
            c = confidences[rows]
            return ConfidenceSums(
                len(c),
                float(c.sum()),
                float((c * (1 - c)).sum()),
                float(slopes[rows].sum()),
                0 if correct is None else int(correct[rows].sum()),
            )

        total = sums(np.ones(len(predictions), bool))
        if accepted is None:
            return TrafficSums(total, None, sums(labelled, correct), None)
        accepted_rows = _as_booleans(accepted, len(predictions))
        return TrafficSums(
            total,
            sums(accepted_rows),
            sums(labelled, correct),
            sums(accepted_rows & labelled, correct),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return msgspec.structs.asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> "Reference":
        """Read what `to_dict` wrote, refusing other fields and impossible values."""
        return envelope.convert(content, cls)


def require_classes(predictions: Any) -> None:
    """Refuse what does not have probabilities of all classes."""
    if isinstance(predictions, Answers):
        message = (
            "expected logits or probabilities of all classes, which a temperature can "
            f"correct, got {type(predictions).__name__}. Use Predictions.from_logits "
            "or from_probs."
        )
        raise InputError(message)
    require_predictions(predictions)


def _confidences(predictions: Predictions, temperature: float) -> tuple[Array, Array]:
    """Return the confidence of each row, and its slope in the log temperature."""
    confidences = top_probability(predictions, temperature=temperature)
    warmer = top_probability(predictions, temperature=temperature * math.exp(LOG_STEP))
    # A higher temperature never raises the largest probability; rounding may. A finite
    # difference serves all kinds of predictions, and needs no second formula.
    return confidences, np.minimum(warmer - confidences, 0.0) / LOG_STEP


def _as_booleans(accepted: Any, rows: int) -> Bools:
    mask = to_numpy(accepted)
    if mask.shape != (rows,) or mask.dtype != bool:
        message = (
            f"expected accepted as {rows} booleans, one per row, got {describe(mask)}. "
            "Take gate.screen(p).accepted."
        )
        raise InputError(message)
    return mask


def _add_optional(
    sums: ConfidenceSums | None, other: ConfidenceSums | None
) -> ConfidenceSums | None:
    if sums is None or other is None:
        return other if sums is None else sums
    return sums + other


@dataclass(frozen=True)
class ExpectationCheck:
    """An expected rate against the actual one, on the rows that have a label.

    Attributes
    ----------
    expected : Estimate
        The expectation for these rows alone, with its interval.
    actual : Estimate
        The actual rate, with its Clopper-Pearson interval.

    Examples
    --------
    >>> ExpectationCheck(Estimate(0.9, 0.88, 0.92), Estimate(0.85, 0.83, 0.87)).fits
    False
    """

    expected: Estimate
    actual: Estimate

    @property
    def error(self) -> float:
        """The expected rate minus the actual one."""
        assert self.expected.value is not None
        assert self.actual.value is not None
        return self.expected.value - self.actual.value

    @property
    def fits(self) -> bool:
        """Whether the actual rate lies in the interval of the expected one."""
        low, high = self.expected.low, self.expected.high
        assert low is not None
        assert high is not None
        assert self.actual.value is not None
        return low <= self.actual.value <= high

    def words(self) -> str:
        """Return the check as a line of text."""
        agreement = "they agree" if self.fits else "they do not agree"
        return (
            f"  of {self.actual.n:,} with labels: {_percent(self.actual)}; "
            f"expected: {self.expected.value:.2%}; {agreement}"
        )


@dataclass(frozen=True, repr=False)
class Expectation:
    """What the model's own probabilities expect; there is no guarantee.

    `expected` makes one. The intervals cover chance in these rows, and in the reference
    rows that set the temperature. They do not cover changes that the probabilities do
    not show: a model that is sure of its new errors expects none.

    Attributes
    ----------
    reference : Reference
    sums : TrafficSums
    confidence : float
        Of the intervals.

    Examples
    --------
    >>> reference = Reference(1.5, 0.01, n=1000, correct=900, n_classes=4)
    >>> Expectation(reference, TrafficSums(ConfidenceSums(400, 352.0, 30.0)))
    Expected by the model's own probabilities, no guarantee:
    accuracy 88.00% [85.32%, 90.68%] of 400 rows
    """

    reference: Reference
    sums: TrafficSums
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Refuse what is not a confidence."""
        check_confidence(self.confidence)

    @property
    def accuracy(self) -> Estimate:
        """The expected share of correct rows, with its interval."""
        return self._expected_accuracy(self.sums.rows)

    @property
    def risk(self) -> Estimate | None:
        """The expected share of errors among accepted rows; None without a gate."""
        accepted = self.sums.accepted
        if accepted is None:
            return None
        return _complement(self._expected_accuracy(accepted))

    @property
    def accuracy_check(self) -> ExpectationCheck | None:
        """The expected accuracy against the actual one; None without labels."""
        labelled = self.sums.labelled
        if not labelled.rows:
            return None
        actual = share(labelled.correct, labelled.rows, confidence=self.confidence)
        return ExpectationCheck(self._expected_accuracy(labelled), actual)

    @property
    def risk_check(self) -> ExpectationCheck | None:
        """The expected risk against the actual one; None without labels or a gate."""
        labelled = self.sums.labelled_accepted
        if labelled is None or not labelled.rows:
            return None
        n_errors = labelled.rows - labelled.correct
        actual = share(n_errors, labelled.rows, confidence=self.confidence)
        return ExpectationCheck(_complement(self._expected_accuracy(labelled)), actual)

    def _expected_accuracy(self, sums: ConfidenceSums) -> Estimate:
        """Return sum(c) / n with a normal interval.

        The variance of the number of correct rows is sum(c (1 - c)), plus that of the
        temperature by the delta method: (slope x standard error) squared.
        """
        if not sums.rows:
            return Estimate(None, note="no rows")
        variance = sums.variance + (sums.slope * self.reference.uncertainty) ** 2
        margin = normal_quantile(self.confidence) * math.sqrt(variance) / sums.rows
        value = min(sums.expected / sums.rows, 1.0)
        return Estimate(value, max(value - margin, 0.0), min(value + margin, 1.0))

    def __repr__(self) -> str:
        """Return the expectation, and its check on labelled rows, as text."""
        lines = [
            "Expected by the model's own probabilities, no guarantee:",
            f"accuracy {_percent(self.accuracy)} of {_rows(self.sums.rows)}",
        ]
        if self.accuracy_check is not None:
            lines.append(self.accuracy_check.words())
        accepted = self.sums.accepted
        if accepted is not None and self.risk is not None:
            lines.append(
                f"risk {_percent(self.risk)} of {_rows(accepted, 'accepted ')}"
            )
        if self.risk_check is not None:
            lines.append(self.risk_check.words())
        return "\n".join(lines)


def expected(
    p: Predictions,
    *,
    reference: Predictions | Reference,
    gate: Gate | None = None,
    confidence: float = 0.95,
) -> Expectation:
    """Expect the accuracy, and the risk behind a gate, of rows without labels.

    The expected accuracy is the mean of the model's confidences, at the temperature at
    which the mean confidence of labelled reference rows is their accuracy. NannyML
    calls such an estimate CBPE. There is no guarantee: it is right as long as a
    confidence means what it meant in the reference. If the rows have labels, the
    estimate is checked.

    Parameters
    ----------
    p : Predictions
        With or without labels.
    reference : Predictions or Reference
        Labelled rows, or a `Reference` that was fitted to them.
    gate : Gate, optional
        Adds the risk, the share of errors among the rows that it accepts.
    confidence : float
        Of the intervals, which cover chance in these rows and in the reference rows,
        and not changes that the probabilities do not show.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(3000, 4))
    >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    >>> rows = Predictions.from_logits(3 * logits, labels)
    >>> expected(rows[1000:], reference=rows[:1000])
    Expected by the model's own probabilities, no guarantee:
    accuracy 69.34% [66.11%, 72.57%] of 2,000 rows
      of 2,000 with labels: 69.70% [67.63%, 71.71%]; expected: 69.34%; they agree
    """
    if not isinstance(reference, Reference):
        reference = Reference.fit(reference)
    require_classes(p)
    if not (gate is None or isinstance(gate, Gate)):
        message = (
            f"expected gate as a Gate, got {type(gate).__name__}. Make one with "
            "calibrate, or load it with Gate.load."
        )
        raise InputError(message)
    accepted = None if gate is None else gate.screen(p).accepted
    return Expectation(reference, reference.count(p, accepted), confidence)


def _complement(estimate: Estimate) -> Estimate:
    """Return one minus a share."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if value is None or low is None or high is None:
        return estimate
    return Estimate(1 - value, 1 - high, 1 - low)


def _percent(estimate: Estimate) -> str:
    if estimate.value is None:
        return "unknown"
    return f"{estimate.value:.2%} [{estimate.low:.2%}, {estimate.high:.2%}]"


def _rows(sums: ConfidenceSums, kind: str = "") -> str:
    return f"{sums.rows:,} {kind}{'row' if sums.rows == 1 else 'rows'}"
