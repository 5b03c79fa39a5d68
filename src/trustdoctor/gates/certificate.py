"""What a gate promises, on what grounds, and what it did to the calibration rows."""

from collections.abc import Iterator
from dataclasses import astuple
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trustdoctor import envelope
from trustdoctor.envelope import MOST_ROWS, Count, Document
from trustdoctor.errors import FileError
from trustdoctor.gates.outcome import Outcome
from trustdoctor.gates.outlook import Outlook
from trustdoctor.gates.risk import PassedThreshold
from trustdoctor.gates.targets import TARGETS, is_pair
from trustdoctor.metrics import Confusion, Estimate

PromiseMode = Literal["confidence", "expectation", "none"]
Rates = dict[str, Estimate]

ODD_LABELS = "The labels are odd, and the promise may rest on nothing:"
"""Begins a note of a certificate whose labels were allowed all the same."""


class Certificate(Document, frozen=True, omit_defaults=True):
    """The promise of a calibrated gate.

    The counts of the calibration rows are kept, not rates, so that intervals at any
    confidence can be had from a gate's file, as the watch needs them.

    Attributes
    ----------
    target : dict of str to float
        What was requested, e.g. ``{"frr": 0.05}``.
    rule : str
        The rule that set the threshold, in one sentence.
    assumption : str
        What the promise rests on, in one sentence.
    mode : str
        "confidence": the promise holds with probability `confidence` over the
        calibration rows. "expectation": it holds on average over them. "none": there is
        no promise.
    confidence : float
    n : int
        Calibration rows.
    n_errors : int or None
        The errors among them; None without labels.
    accepted, accepted_errors : int or None
        What the gate does to them: rows that it accepts, and errors among these. None
        if that was not counted, or if there are no labels.
    trivial : str
        Why the gate accepts or rejects everything; empty if it does not.
    fingerprint : str
        Of the calibration scores and errors, in whatever order they came; of a
        `Sketch` that was handed to `calibrate_scores`, of its cells.
    notes : tuple of str
        What else to know: which rows did what, what was paid for several promises.
    feasible : tuple of float, or None
        For two targets: the least and the largest threshold that keep both.
    passed : tuple of PassedThreshold
        For risk: thresholds that passed their test, at most 20, with p-values. Any of
        them keeps the promise at `confidence`, and all of them together.
    passed_by_chance : bool
        For risk: whether it passed only because one error would have been too many, and
        seeing none was not to be expected.
    outlook : tuple of Outlook
        If the rows do not allow the promise: how often calibrations on as many rows
        like these do, simulated, and with how many rows most do.
    label_noise : float
        The share of the labels that may be wrong.
    candidates : int
        Values fixed in advance that shared the level, of which the target is one.
    drawn_share : float
        The share of the pool, the least doubtful one, that the calibration rows were
        drawn from; all other rows are rejected. `observed` is about the drawn rows.

    Examples
    --------
    >>> certificate = Certificate(target={"frr": 0.05}, rule="A rule.",
    ...     assumption="An assumption.", mode="confidence", confidence=0.9,
    ...     n=100, n_errors=10, accepted=90, accepted_errors=4)
    >>> certificate.promise()
    'at most 5% of the correct predictions rejected, with confidence 0.9'
    >>> certificate.observed["trr"].value
    0.6
    """

    target: dict[str, float]
    rule: str
    assumption: str
    mode: PromiseMode
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    n: Annotated[int, Meta(gt=0, lt=MOST_ROWS)]
    n_errors: Count | None = None
    accepted: Count | None = None
    accepted_errors: Count | None = None
    trivial: str = ""
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    feasible: tuple[float, float] | None = None
    passed: tuple[PassedThreshold, ...] = ()
    passed_by_chance: bool = False
    outlook: tuple[Outlook, ...] = ()
    label_noise: Annotated[float, Meta(ge=0, lt=0.5)] = 0.0
    candidates: Annotated[int, Meta(gt=0, lt=1 << 20)] = 1
    drawn_share: Annotated[float, Meta(gt=0, le=1)] = 1.0

    def __post_init__(self) -> None:
        """Refuse what no certificate can be, whatever its types."""
        _require_registered(self.target)
        field = next(self._contradictions(), "")
        if field:
            message = (
                f"the certificate contradicts itself: its {field} cannot be "
                f"{envelope.shown(getattr(self, field))}."
            )
            raise FileError(message)

    def _contradictions(self) -> Iterator[str]:
        """Yield the names of fields that no calibration gives."""
        if not _is_target(self.target):
            yield "target"
        yield from self._impossible_counts()
        if self.feasible is not None and self.feasible[0] > self.feasible[1]:
            yield "feasible"
        if not all(row.errors <= row.accepted for row in self.passed):
            yield "passed"
        if not all(look.low <= look.median <= look.high for look in self.outlook):
            yield "outlook"
        if not self._has_rule():
            yield "mode"

    def _impossible_counts(self) -> Iterator[str]:
        """Yield the names of counts that no rows give."""
        if self.n_errors is not None and self.n_errors > self.n:
            yield "n_errors"
        if self.accepted is not None and self.accepted > self.n:
            yield "accepted"
        is_counted = None not in (self.accepted, self.n_errors)
        if is_counted != (self.accepted_errors is not None):
            yield "accepted_errors"
        outcome = self.outcome
        if outcome and outcome.counts and min(astuple(outcome.counts)) < 0:
            yield "accepted_errors"

    def _has_rule(self) -> bool:
        """Tell whether there is a rule that promises such a target in this mode."""
        if self.mode == "none":
            return True
        targets = [TARGETS[name] for name in self.target]
        return (self.mode == "confidence" or len(targets) == 1) and all(
            target.promised
            and (self.n_errors is not None or not target.needs_labels)
            and (target.in_expectation or self.mode == "confidence")
            for target in targets
        )

    def __hash__(self) -> int:
        """Return the same for certificates that are equal."""
        return hash((self.rule, self.mode, self.confidence, self.n, self.fingerprint))

    @property
    def outcome(self) -> Outcome | None:
        """What the gate does to the calibration rows; None if that was not counted."""
        if self.accepted is None:
            return None
        if self.n_errors is None or self.accepted_errors is None:
            return Outcome(self.n, self.accepted)
        accepted_correct = self.accepted - self.accepted_errors
        counts = Confusion(
            rejected_correct=self.n - self.n_errors - accepted_correct,
            rejected_errors=self.n_errors - self.accepted_errors,
            accepted_errors=self.accepted_errors,
            accepted_correct=accepted_correct,
        )
        return Outcome(self.n, self.accepted, counts)

    @property
    def observed(self) -> Rates:
        """Coverage, FRR, TRR, risk and joint rate on the calibration rows.

        With Clopper-Pearson intervals at `confidence`. They describe these rows; the
        promise is the target.
        """
        outcome = self.outcome
        return {} if outcome is None else outcome.rates(confidence=self.confidence)

    @property
    def guarantee(self) -> bool:
        """Whether anything is promised."""
        return self.mode != "none"

    @property
    def odd_labels(self) -> tuple[str, ...]:
        """Notes on why the labels cannot be right that the promise rests on."""
        return tuple(note for note in self.notes if note.startswith(ODD_LABELS))

    def promise(self) -> str:
        """Say what is promised, in one sentence."""
        target = " and ".join(TARGETS[k].promise(v) for k, v in self.target.items())
        if self.mode == "none":
            return f"no guarantee: {target}"
        validity = (
            f"with confidence {self.confidence:g}"
            if self.mode == "confidence"
            else "on average over calibrations"
        )
        return f"{target}, {validity}"

    def passed_lines(self, score: str | None = None) -> list[str]:
        r"""Return the thresholds that passed as lines of a table; none where none did.

        For the score "confidence", whose doubt is minus the confidence, as confidences.

        Examples
        --------
        >>> import numpy as np
        >>> from trustdoctor import calibrate_scores
        >>> gate = calibrate_scores(np.arange(99.0), np.arange(99) >= 95, risk=0.1)
        >>> print(*gate.certificate.passed_lines(), sep="\n")
        Thresholds that passed, and the p-value of a risk above the target:
            threshold  accepted  errors   p-value  at most
                 30.5        31       0    0.0382   0.0424
                 94.5        95       0   4.5e-05   0.0424
                 95.5        96       1  0.000472   0.0424
                 96.5        97       2   0.00252   0.0424
                 97.5        98       3   0.00916   0.0424
                  inf        99       4    0.0254   0.0424
        """
        if not self.passed:
            return []
        stated = score == "confidence"
        title = score if stated else "threshold"
        names = f"{title:>13}{'accepted':>10}{'errors':>8}{'p-value':>10}"
        return [
            "Thresholds that passed, and the p-value of a risk above the target:",
            f"{names}{'at most':>9}",
            *(
                f"{0 - row.threshold if stated else row.threshold:>13.6g}"
                f"{row.accepted:>10,}{row.errors:>8,}"
                f"{row.p_value:>10.3g}{row.level:>9.3g}"
                for row in self.passed
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a gate's file."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        if self.passed:  # JSON has no number for inf, where every row is accepted
            content["passed"] = [[envelope.number(p[0]), *p[1:]] for p in self.passed]
        return content

    @classmethod
    def from_dict(cls, content: Any) -> "Certificate":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        passed = content.get("passed") if isinstance(content, dict) else None
        if isinstance(passed, list):
            content = content | {"passed": list(map(_with_float, passed))}
        return envelope.convert(content, cls, "certificate")


def _with_float(row: Any) -> Any:
    """Return a threshold that passed with "inf" as a float."""
    if not isinstance(row, list) or not row:
        return row
    return [envelope.read_number(row[0]), *row[1:]]


def _require_registered(target: dict[str, float]) -> None:
    unknown = [name for name in target if name not in TARGETS]
    if unknown:
        message = (
            f"the certificate is for the target {envelope.shown(unknown[0])}, which is "
            "not registered. Import the module that registers it."
        )
        raise FileError(message)


def _is_target(target: dict[str, float]) -> bool:
    """Tell whether a target is one that may be requested."""
    return (len(target) == 1 or is_pair(target)) and all(
        TARGETS[name].allows(value) for name, value in target.items()
    )
