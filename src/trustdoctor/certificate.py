"""What a gate promises, on what grounds, and what was seen."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trustdoctor.errors import FileError

Rates = dict[str, tuple[float, float, float]]


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
        content["observed"] = {k: list(v) for k, v in self.observed.items()}
        content["notes"] = list(self.notes)
        return content

    @classmethod
    def from_dict(cls, content: Any) -> "Certificate":
        """Read what `to_dict` wrote, refusing whatever is not understood."""
        names = {f.name for f in fields(cls)}
        if not isinstance(content, dict) or set(content) != names:
            odd = sorted(set(content) ^ names) if isinstance(content, dict) else content
            message = f"the certificate lacks or adds: {odd}."
            raise FileError(message)
        plain = {
            "target": (dict, (int, float)),
            "observed": (dict, list),
            "notes": (list, str),
        }
        for name, (kind, inner) in plain.items():
            value = content[name]
            entries = value.values() if isinstance(value, dict) else value
            if not isinstance(value, kind) or not all(
                isinstance(entry, inner) for entry in entries
            ):
                message = f"the certificate's {name} is not as expected: {value!r}."
                raise FileError(message)
        observed = {k: tuple(v) for k, v in content["observed"].items()}
        notes = tuple(content["notes"])
        return cls(**{**content, "observed": observed, "notes": notes})


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
    return _WORDS[name].format(round(100 * value, 10))
