"""What a gate promises, on what grounds, and what was seen."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trustdoctor.errors import FileError
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
        Of the calibration scores and errors.
    notes : tuple of str
        What else to know: which rows did what, what was paid for several promises.
    feasible : tuple of float, or None
        For FRR and TRR together: the least and the largest threshold that keep both.

    Examples
    --------
    >>> found = Certificate({"frr": 0.05}, "A rule.", "An assumption.", "confidence",
    ...     0.9, n=100)
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
        seen = self.observed
        good = (
            isinstance(self.target, dict)
            and bool(self.target)
            and all(map(_is_target, self.target, self.target.values()))
            and self.mode in MODES
            and _is_rate(self.confidence)
            and all(type(k) is int for k in (self.n, self.n_correct, self.n_errors))
            and self.n > 0
            and self.n_correct + self.n_errors in (self.n, -2)
            and isinstance(seen, dict)
            and all(map(_is_observed, seen, seen.values()))
            and (self.rows_needed is None or type(self.rows_needed) is int)
            and (self.feasible is None or _is_interval(self.feasible))
        )
        if good:  # a file keeps the numbers alone
            plain = {k: _observed((v.value, v.low, v.high)) for k, v in seen.items()}
            object.__setattr__(self, "observed", plain)
        texts = (
            self.rule,
            self.assumption,
            self.trivial,
            self.fingerprint,
            *self.notes,
        )
        if not (good and all(isinstance(text, str) for text in texts)):
            message = (
                f"the certificate is not as expected: {self.target!r}, {self.n!r} rows."
            )
            raise FileError(message)

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
            message = f"the certificate lacks or adds: {odd}."
            raise FileError(message)
        _check_known(content["target"])
        try:
            observed = {  # of a target that is not registered here, nothing is known
                name: _observed(cell)
                for name, cell in content["observed"].items()
                if name in TARGETS
            }
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


def _check_known(target: Any) -> None:
    named = target if isinstance(target, dict) else {}
    unknown = [name for name in named if name not in TARGETS]
    if unknown:
        message = (
            f"the certificate is for the target {unknown[0]!r}, which is not "
            "registered. Import the module that registers it."
        )
        raise FileError(message)


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_interval(ends: Any) -> bool:
    return len(ends) == 2 and all(type(end) is float for end in ends)


def _is_target(name: Any, value: Any) -> bool:
    known = isinstance(name, str) and name in TARGETS
    return known and type(value) in (int, float) and TARGETS[name].allows(value)


def _observed(cell: Any) -> Estimate:
    value, low, high = cell
    return Estimate(value, low, high)


def _is_observed(name: Any, seen: Any) -> bool:
    target = TARGETS.get(name)
    if target is None or target.counts is None or not isinstance(seen, Estimate):
        return False
    ends = (seen.low, seen.value, seen.high)
    return all(map(_is_rate, ends)) and list(ends) == sorted(ends)  # type: ignore[type-var]
