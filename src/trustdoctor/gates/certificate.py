"""What a gate promises, on what grounds, and what was seen."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trustdoctor import envelope
from trustdoctor.errors import FileError
from trustdoctor.gates.outlook import Outlook
from trustdoctor.gates.pairs import is_pair
from trustdoctor.gates.risk import Passed
from trustdoctor.gates.targets import TARGETS
from trustdoctor.metrics import Estimate

Rates = dict[str, Estimate]
# What a file leaves out where it is so.
_USUAL = {"passed": [], "luck": False, "outlook": [], "label_noise": 0.0, "choices": 1}
_MOST_CHOICES = 1 << 20
MODES = ("confidence", "expectation", "none")


ODD_LABELS = "The labels are odd, and the promise may rest on nothing:"
"""Begins a note of a certificate whose labels were allowed all the same."""


@dataclass(frozen=True)
class Certificate:
    """The promise of a calibrated gate.

    Attributes
    ----------
    target : dict of str to float
        What was asked for, e.g. ``{"frr": 0.05}``.
    rule : str
        The rule that set the threshold, in one sentence.
    assumption : str
        What the promise rests on, in one sentence.
    mode : str
        "confidence": the promise holds with probability `confidence` over the
        calibration rows. "expectation": it holds on average over them. "none": there is
        no promise.
    confidence : float
    n, n_correct, n_errors : int
        Calibration rows; the last two are -1 where there were no labels.
    observed : dict of str to Estimate
        Coverage, FRR, TRR, risk and joint rate on the calibration rows at the
        threshold, with Clopper-Pearson intervals at `confidence`. They describe these
        rows; the promise is the target.
    trivial : str
        Why the gate accepts or rejects everything; empty where it does not.
    outlook : tuple of Outlook
        Where the rows do not allow the promise: how often calibrations on as many rows
        like these do, simulated, and with how many rows most do.
    label_noise : float
        The share of the labels that may be wrong.
    choices : int
        Values fixed in advance that shared the level, of which the target is one.
    fingerprint : str
        Of the calibration scores and errors, in whatever order they came; of a
        `Sketch` that was handed to `calibrate_scores`, of its cells.
    notes : tuple of str
        What else to know: which rows did what, what was paid for several promises.
    feasible : tuple of float, or None
        For two targets: the least and the largest threshold that keep both.
    passed : tuple of Passed
        For risk: thresholds that passed their test, at most 20, with p-values. Any of
        them keeps the promise at `confidence`, and all of them together.
    luck : bool
        For risk: whether it passed only because one error would have been too many, and
        seeing none was not to be expected.

    Examples
    --------
    >>> found = Certificate({"frr": 0.05}, "A rule.", "An assumption.", "confidence",
    ...     0.9, n=100, n_correct=90, n_errors=10)
    >>> found.promise()
    'at most 5% of the correct predictions rejected, with confidence 0.9'
    """

    target: dict[str, float]
    rule: str
    assumption: str
    mode: str
    confidence: float
    n: int
    n_correct: int = -1
    n_errors: int = -1
    observed: Rates = field(default_factory=dict)
    trivial: str = ""
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    feasible: tuple[float, float] | None = None
    passed: tuple[Passed, ...] = ()
    luck: bool = False
    outlook: tuple[Outlook, ...] = ()
    label_noise: float = 0.0
    choices: int = 1

    def __post_init__(self) -> None:
        """Refuse what no certificate can be."""
        wrong = next(self._wrong(), "")
        if wrong:
            message = (
                f"the certificate is not as expected: its {wrong} cannot be "
                f"{envelope.shown(getattr(self, wrong))}."
            )
            raise FileError(message)
        plain = {  # a file keeps the numbers alone
            k: _observed((v.value, v.low, v.high)) for k, v in self.observed.items()
        }
        object.__setattr__(self, "observed", plain)

    def _wrong(self) -> Iterator[str]:
        """Say which fields cannot be."""
        counts = (self.n, self.n_correct, self.n_errors)
        tests = {
            "target": _is_target(self.target),
            "mode": self.mode in MODES,
            "confidence": _is_rate(self.confidence)
            and (self.mode == "none" or 0 < self.confidence < 1),
            "n": all(type(k) is int for k in counts)
            and 0 < self.n < envelope.MOST_ROWS,
            "observed": isinstance(self.observed, dict)
            and all(map(_is_observed, self.observed, self.observed.values())),
            "label_noise": _is_rate(self.label_noise) and self.label_noise < 0.5,
            "choices": type(self.choices) is int and 0 < self.choices < _MOST_CHOICES,
            "outlook": isinstance(self.outlook, tuple)
            and all(map(_is_outlook, self.outlook)),
            "feasible": self.feasible is None or _is_interval(self.feasible),
            "notes": isinstance(self.notes, tuple) and all(map(_is_text, self.notes)),
            "passed": isinstance(self.passed, tuple)
            and all(map(_is_passed, self.passed)),
            "luck": type(self.luck) is bool,
        }
        yield from (name for name, good in tests.items() if not good)
        for name in ("rule", "assumption", "trivial", "fingerprint"):
            if not _is_text(getattr(self, name)):
                yield name
        unlabelled = self.n_correct == self.n_errors == -1
        if not unlabelled and (
            min(self.n_correct, self.n_errors) < 0
            or self.n_correct + self.n_errors != self.n
        ):
            yield "n_errors"
        if not self._can_promise(labels=not unlabelled):
            yield "mode"

    def _can_promise(self, *, labels: bool) -> bool:
        """Whether there is a rule that promises such a target in this mode."""
        asked = [TARGETS[name] for name in self.target]
        if self.mode == "none":
            return True
        alone = self.mode == "confidence" or len(asked) == 1
        return alone and all(
            target.promised
            and (labels or not target.needs_labels)
            and (target.in_expectation or self.mode == "confidence")
            for target in asked
        )

    def __hash__(self) -> int:
        """Return the same for certificates that are equal."""
        return hash((self.rule, self.mode, self.confidence, self.n, self.fingerprint))

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
        asked = " and ".join(TARGETS[k].promise(v) for k, v in self.target.items())
        if self.mode == "none":
            return f"no guarantee: {asked}"
        how = (
            f"with confidence {self.confidence:g}"
            if self.mode == "confidence"
            else "on average over calibrations"
        )
        return f"{asked}, {how}"

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
                 29.5        30       0    0.0424     0.09
                 43.5        44       0    0.0097     0.09
                 94.5        95       0   4.5e-05     0.09
                 95.5        96       1  0.000472     0.09
                 96.5        97       2   0.00252     0.09
                 97.5        98       3   0.00916     0.09
                  inf        99       4    0.0254     0.09
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
                f"{0 - one.threshold if stated else one.threshold:>13.6g}"
                f"{one.accepted:>10,}{one.errors:>8,}"
                f"{one.p:>10.3g}{one.level:>9.3g}"
                for one in self.passed
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a gate's file."""
        content = asdict(self)
        content["observed"] = {
            name: [seen.value, seen.low, seen.high]
            for name, seen in self.observed.items()
        }
        content["notes"] = list(self.notes)
        content["feasible"] = None if self.feasible is None else list(self.feasible)
        content["passed"] = [[envelope.number(p[0]), *p[1:]] for p in self.passed]
        content["outlook"] = [list(look) for look in self.outlook]
        return {k: v for k, v in content.items() if v != _USUAL.get(k, ...)}

    @classmethod
    def from_dict(cls, content: Any) -> "Certificate":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        names = {f.name for f in fields(cls)}
        if isinstance(content, dict):
            content = _USUAL | content
        if not isinstance(content, dict) or set(content) != names:
            odd = sorted(set(content) ^ names) if isinstance(content, dict) else content
            message = f"the certificate lacks or adds: {envelope.shown(odd)}."
            raise FileError(message)
        _check_known(content["target"])
        seen, feasible = content["observed"], content["feasible"]
        envelope.check_fields(
            seen, set(), set(seen) if isinstance(seen, dict) else set()
        )
        observed = {
            name: _observed(envelope.read_list(cell)) for name, cell in seen.items()
        }
        return cls(
            **{
                **content,
                "observed": observed,
                "notes": tuple(envelope.read_list(content["notes"])),
                "passed": tuple(
                    map(_read_passed, envelope.read_list(content["passed"]))
                ),
                "outlook": tuple(
                    map(_read_outlook, envelope.read_list(content["outlook"]))
                ),
                "feasible": feasible
                if feasible is None
                else tuple(envelope.read_list(feasible)),
            }
        )


def _check_known(target: Any) -> None:
    named = target if isinstance(target, dict) else {}
    unknown = [name for name in named if name not in TARGETS]
    if unknown:
        message = (
            f"the certificate is for the target {envelope.shown(unknown[0])}, which is "
            "not registered. Import the module that registers it."
        )
        raise FileError(message)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_interval(ends: Any) -> bool:
    if not isinstance(ends, tuple) or len(ends) != 2:
        return False
    finite = all(type(end) is float and math.isfinite(end) for end in ends)
    return finite and ends[0] <= ends[1]


def _read_passed(cell: Any) -> Passed:
    values = envelope.read_list(cell)
    if len(values) != len(Passed._fields):
        message = f"expected a threshold that passed, got {envelope.shown(cell)}."
        raise FileError(message)
    return Passed(envelope.read_number(values[0]), *values[1:])


def _read_outlook(cell: Any) -> Outlook:
    values = envelope.read_list(cell)
    if len(values) != len(Outlook._fields):
        message = f"expected an outlook of five numbers, got {envelope.shown(cell)}."
        raise FileError(message)
    return Outlook(*values)


def _is_outlook(look: Any) -> bool:
    if not isinstance(look, Outlook) or type(look.rows) is not int:
        return False
    coverages = [look.low, look.median, look.high]
    rates = all(map(_is_rate, look[1:])) and coverages == sorted(coverages)
    return 0 < look.rows < envelope.MOST_ROWS and rates


def _is_passed(one: Any) -> bool:
    if not isinstance(one, Passed):
        return False
    counts = type(one.accepted) is type(one.errors) is int
    known = type(one.threshold) is float and not math.isnan(one.threshold)
    fits = counts and 0 <= one.errors <= one.accepted
    return known and fits and _is_rate(one.p) and _is_rate(one.level)


def _is_target(target: Any) -> bool:
    """Whether a target is one that may be asked for."""
    if not isinstance(target, dict):
        return False
    return (len(target) == 1 or is_pair(target)) and all(
        name in TARGETS and type(value) in (int, float) and TARGETS[name].allows(value)
        for name, value in target.items()
    )


def _observed(cell: Any) -> Estimate:
    if len(cell) != 3:
        message = f"expected a rate and its interval, got {envelope.shown(cell)}."
        raise FileError(message)
    value, low, high = cell
    return Estimate(value, low, high)


def _is_observed(name: Any, seen: Any) -> bool:
    target = TARGETS.get(name)  # None of one that is not registered here
    named = isinstance(name, str) and name.isidentifier()
    counted = target is None or target.counts is not None
    if not (named and counted and isinstance(seen, Estimate)):
        return False
    ends = (seen.low, seen.value, seen.high)
    return all(map(_is_rate, ends)) and list(ends) == sorted(ends)  # type: ignore[type-var]
