"""What a gate promises, on what grounds, and what was seen."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trustdoctor.errors import FileError

Rates = dict[str, tuple[float, float, float]]
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
    observed : dict of str to (rate, low, high)
        FRR, TRR, risk and coverage on the calibration rows at the threshold, with
        Clopper-Pearson intervals at `confidence`. They describe these rows; the
        promise is the target.
    trivial : str
        Why the gate accepts or rejects everything; empty where it does not.
    rows_needed : int or None
        How many calibration rows would give a gate that is not trivial.
    fingerprint : str
        Of the calibration scores and errors.
    notes : tuple of str
        What else to know: which rows did what, what was paid for several promises.
    feasible : tuple of float, or None
        For FRR and TRR together: the least and the largest threshold that keep both.
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
        good = (
            isinstance(self.target, dict)
            and bool(self.target)
            and all(map(_is_target, self.target, self.target.values()))
            and self.mode in MODES
            and _is_rate(self.confidence)
            and all(type(k) is int for k in (self.n, self.n_correct, self.n_errors))
            and self.n > 0
            and self.n_correct + self.n_errors in (self.n, -2)
            and isinstance(self.observed, dict)
            and all(map(_is_observed, self.observed, self.observed.values()))
            and (self.rows_needed is None or type(self.rows_needed) is int)
            and (self.feasible is None or _is_interval(self.feasible))
        )
        texts = (
            self.rule,
            self.assumption,
            self.trivial,
            self.fingerprint,
            *self.notes,
        )
        if not (good and all(isinstance(text, str) for text in texts)):
            message = f"the certificate is not as expected: {self.to_dict()}."
            raise FileError(message)

    @property
    def guarantee(self) -> bool:
        """Whether anything is promised."""
        return self.mode != "none"

    def promise(self) -> str:
        """Say what is promised, in one sentence."""
        asked = " and ".join(_words(name, value) for name, value in self.target.items())
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
        content["observed"] = {k: list(v) for k, v in dict(self.observed).items()}
        content["notes"] = list(self.notes)
        content["feasible"] = None if self.feasible is None else list(self.feasible)
        return content

    @classmethod
    def from_dict(cls, content: Any) -> "Certificate":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        names = {f.name for f in fields(cls)}
        if not isinstance(content, dict) or set(content) != names:
            odd = sorted(set(content) ^ names) if isinstance(content, dict) else content
            message = f"the certificate lacks or adds: {odd}."
            raise FileError(message)
        try:
            observed = {k: tuple(v) for k, v in content["observed"].items()}
            notes, feasible = tuple(content["notes"]), content["feasible"]
            feasible = None if feasible is None else tuple(feasible)
            return cls(
                **{
                    **content,
                    "observed": observed,
                    "notes": notes,
                    "feasible": feasible,
                }
            )
        except (TypeError, ValueError, AttributeError) as error:
            message = f"the certificate is not as expected: {error}."
            raise FileError(message) from error


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_interval(ends: Any) -> bool:
    return len(ends) == 2 and all(type(end) is float for end in ends)


def _is_target(name: Any, value: Any) -> bool:
    if name == "cost":
        return type(value) in (int, float) and 1 <= value < math.inf
    if name == "threshold":
        return type(value) in (int, float) and math.isfinite(value)
    return name in _WORDS and _is_rate(value)


def _is_observed(name: Any, cell: Any) -> bool:
    known = name in _WORDS and isinstance(cell, tuple) and len(cell) == 3
    return known and all(map(_is_rate, cell)) and cell[1] <= cell[0] <= cell[2]


_WORDS = {
    "frr": "at most {:g}% of the correct predictions rejected",
    "trr": "at least {:g}% of the errors rejected",
    "risk": "at most {:g}% errors among the accepted",
    "joint": "at most {:g}% of all predictions both wrong and accepted",
    "coverage": "at least {:g}% of the predictions accepted",
}


def _words(name: str, value: float) -> str:
    if name == "cost":
        return f"least cost where an error costs {value:g} rejections"
    if name == "threshold":
        return f"the threshold {value:g} was chosen by hand"
    return _WORDS[name].format(round(100 * value, 10))
