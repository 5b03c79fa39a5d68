"""What the model's own probabilities expect of rows without labels: no guarantee."""

import math
from dataclasses import dataclass

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.metrics import (
    Estimate,
    Share,
    check_confidence,
    normal_quantile,
    share,
)
from trustdoctor.predictions import Predictions
from trustdoctor.watch.reference import Part, Reference, Sums, require_classes


@dataclass(frozen=True)
class Check:
    """An expected rate against the actual one, on the rows that have a label.

    Attributes
    ----------
    expected : Estimate
        The expectation for these rows alone, with its band.
    actual : Share
        The actual rate, with its Clopper-Pearson interval.

    Examples
    --------
    >>> Check(Estimate(0.9, 0.88, 0.92), Share(0.85, 0.83, 0.87)).fits
    False
    """

    expected: Estimate
    actual: Share

    @property
    def error(self) -> float:
        """The expected rate less the actual one."""
        assert self.expected.value is not None
        assert self.actual.value is not None
        return self.expected.value - self.actual.value

    @property
    def fits(self) -> bool:
        """Whether the actual rate lies in the band of the expected one."""
        low, high = self.expected.low, self.expected.high
        assert low is not None
        assert high is not None
        assert self.actual.value is not None
        return low <= self.actual.value <= high

    def words(self) -> str:
        """Return the check as a line."""
        fits = "they fit" if self.fits else "they do not fit"
        return (
            f"  labels of {self.actual.whole:,} say {_percent(self.actual)}; "
            f"expected of them {self.expected.value:.2%}: {fits}"
        )


@dataclass(frozen=True, repr=False)
class Expectation:
    """What the model's own probabilities expect; there is no guarantee.

    `expected` makes one. The band covers what chance does to these rows, and to the
    reference rows that set the temperature. It does not cover changes that the
    probabilities do not show: a model that is sure of its new errors expects none.

    Attributes
    ----------
    reference : Reference
    sums : Sums
    confidence : float
        Of the bands and intervals.

    Examples
    --------
    >>> reference = Reference(1.5, 0.01, n=1000, correct=900, n_classes=4)
    >>> Expectation(reference, Sums(Part(400, 352.0, 30.0)))
    Expected by the model's own probabilities, no guarantee:
    accuracy 88.00% [85.32%, 90.68%] of 400 rows
    """

    reference: Reference
    sums: Sums
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Refuse a confidence that is none."""
        check_confidence(self.confidence)

    @property
    def accuracy(self) -> Estimate:
        """The share of correct rows that is expected, with its band."""
        return self._band(self.sums.rows)

    @property
    def risk(self) -> Estimate | None:
        """The share of errors expected among accepted rows; None without a gate."""
        part = self.sums.accepted
        return None if part is None else _complement(self._band(part))

    @property
    def accuracy_check(self) -> Check | None:
        """The expected accuracy against the actual one; None without labels."""
        part = self.sums.labelled
        if not part.rows:
            return None
        actual = share(part.correct, part.rows, confidence=self.confidence)
        return Check(self._band(part), actual)

    @property
    def risk_check(self) -> Check | None:
        """The expected risk against the actual one; None without labels or a gate."""
        part = self.sums.labelled_accepted
        if part is None or not part.rows:
            return None
        wrong = part.rows - part.correct
        actual = share(wrong, part.rows, confidence=self.confidence)
        return Check(_complement(self._band(part)), actual)

    def _band(self, part: Part) -> Estimate:
        """Return the expected share of correct rows, with its band."""
        if not part.rows:
            return Estimate(None, note="no rows")
        drawn = part.variance + (part.slope * self.reference.uncertainty) ** 2
        reach = normal_quantile(self.confidence) * math.sqrt(drawn) / part.rows
        value = min(part.expected / part.rows, 1.0)
        return Estimate(value, max(value - reach, 0.0), min(value + reach, 1.0))

    def __repr__(self) -> str:
        """Say what is expected, and what the labelled rows say of that."""
        lines = [
            "Expected by the model's own probabilities, no guarantee:",
            f"accuracy {_percent(self.accuracy)} of {_rows(self.sums.rows)}",
        ]
        if self.accuracy_check is not None:
            lines.append(self.accuracy_check.words())
        kept = self.sums.accepted
        if kept is not None and self.risk is not None:
            rows = _rows(kept, "accepted ")
            lines.append(f"risk {_percent(self.risk)} of {rows}")
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

    The model's probabilities are taken at the temperature at which the mean confidence
    of labelled reference rows is their accuracy. Other libraries call such an estimate
    CBPE. There is no guarantee: it is right as long as a row's confidence means what
    it meant in the reference. Where the rows have labels, the estimate is checked.

    Parameters
    ----------
    p : Predictions
        With or without labels.
    reference : Predictions or Reference
        Labelled rows, or what `Reference.fit` found in them.
    gate : Gate, optional
        Adds the risk, the share of errors among the rows that it accepts.
    confidence : float
        Of the bands, which cover chance in these rows and in the reference rows, and
        not changes that the probabilities do not show.

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
      labels of 2,000 say 69.70% [67.63%, 71.71%]; expected of them 69.34%: they fit
    """
    known = reference if isinstance(reference, Reference) else Reference.fit(reference)
    require_classes(p)
    if not (gate is None or isinstance(gate, Gate)):
        message = (
            f"expected gate as a Gate, got {type(gate).__name__}. Make one with "
            "calibrate, or load it with Gate.load."
        )
        raise InputError(message)
    accepted = None if gate is None else gate.screen(p).accepted
    return Expectation(known, known.count(p, accepted), confidence)


def _complement(of: Estimate) -> Estimate:
    """Return one less a share."""
    if of.value is None or of.low is None or of.high is None:
        return of
    return Estimate(1 - of.value, 1 - of.high, 1 - of.low)


def _percent(of: Estimate) -> str:
    if of.value is None:
        return "unknown"
    return f"{of.value:.2%} [{of.low:.2%}, {of.high:.2%}]"


def _rows(part: Part, kind: str = "") -> str:
    return f"{part.rows:,} {kind}{'row' if part.rows == 1 else 'rows'}"
