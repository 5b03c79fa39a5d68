"""What a gate promises, on what grounds, and what was seen."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trustdoctor import envelope
from trustdoctor.errors import FileError
from trustdoctor.gates.asked import TOGETHER
from trustdoctor.gates.targets import TARGETS
from trustdoctor.metrics import Estimate

Rates = dict[str, Estimate]
MODES = ("confidence", "expectation", "none")


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
    rows_needed : int or None
        How many calibration rows would give a gate that is not trivial.
    fingerprint : str
        Of the calibration scores and errors, in whatever order they came; of a
        `Sketch` that was handed to `calibrate_scores`, of its cells.
    notes : tuple of str
        What else to know: which rows did what, what was paid for several promises.
    feasible : tuple of float, or None
        For FRR and TRR together: the least and the largest threshold that keep both.

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
    rows_needed: int | None = None
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    feasible: tuple[float, float] | None = None

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
            "rows_needed": self.rows_needed is None
            or (type(self.rows_needed) is int and self.rows_needed > 0),
            "feasible": self.feasible is None or _is_interval(self.feasible),
            "notes": isinstance(self.notes, tuple) and all(map(_is_text, self.notes)),
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a gate's file."""
        content = asdict(self)
        content["observed"] = {
            name: [seen.value, seen.low, seen.high]
            for name, seen in self.observed.items()
        }
        content["notes"] = list(self.notes)
        content["feasible"] = None if self.feasible is None else list(self.feasible)
        return content

    @classmethod
    def from_dict(cls, content: Any) -> "Certificate":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        names = {f.name for f in fields(cls)}
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


def _is_target(target: Any) -> bool:
    """Whether a target is one that may be asked for."""
    if not isinstance(target, dict):
        return False
    return (len(target) == 1 or set(target) == TOGETHER) and all(
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
