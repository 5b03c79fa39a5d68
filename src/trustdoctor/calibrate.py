"""From labelled scores and a target to a gate with a certificate."""

import hashlib
import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np

from trustdoctor import rules
from trustdoctor.certificate import Certificate, Rates
from trustdoctor.errors import InputError
from trustdoctor.gate import Gate, GroupRule, as_groups
from trustdoctor.intervals import clopper_pearson, normal_quantile
from trustdoctor.metrics import Confusion, confusion
from trustdoctor.predictions import as_errors, as_scores
from trustdoctor.rules import Cut, Mode, Rows, Sample
from trustdoctor.sketch import Sketch

Method = Literal["sequence", "sgr", "grid"]
METHODS = ("sequence", "sgr", "grid")
EXCHANGEABLE = (
    "Future rows are exchangeable with the calibration rows, which did not choose the "
    "score or its temperature."
)
UNSEEN = (
    "The rows were counted in ranges of scores, and this threshold lies within one: "
    "what it does to them was not counted."
)
NOTHING = "Nothing is promised, so nothing is assumed."
RULES = {
    "frr": "The threshold is an order statistic of the correct rows' scores.",
    "trr": "The threshold is just below an order statistic of the errors' scores.",
    "joint": "The threshold is just below an order statistic of the errors' scores.",
    "coverage": "The threshold is an order statistic of all rows' scores.",
    "both": "Order statistics of the correct rows' and of the errors' scores bound it.",
    "sequence": "Two fixed sequences of binomial tests over accepted counts bound it.",
    "sgr": "A binary search with Clopper-Pearson bounds at every step found it.",
    "grid": "Binomial tests on a grid of 20 coverages, Bonferroni-corrected, bound it.",
    "cost": "The threshold has the least cost on the calibration rows.",
    "threshold": "The threshold was given, not calibrated.",
}
PROMISED = ("frr", "trr", "risk", "joint", "coverage")
"""The targets that carry a promise."""


def calibrate(  # noqa: PLR0913 - options, by keyword only
    scores: Any,
    errors: Any = None,
    *,
    frr: float | None = None,
    trr: float | None = None,
    risk: float | None = None,
    joint: float | None = None,
    coverage: float | None = None,
    cost: float | None = None,
    threshold: float | None = None,
    score: str | None = None,
    temperature: float = 1.0,
    confidence: float = 0.9,
    mode: Mode | None = None,
    method: Method = "sequence",
    min_coverage: float = 0.3,
    groups: Any = None,
    grouped_by: str = "given",
) -> Gate:
    """Choose the threshold that keeps a promise on rows to come.

    Give one target, or frr and trr together.

    Parameters
    ----------
    scores : array (n,), or Sketch
        Doubts of calibration rows that had no part in choosing the score; or a sketch
        of them, which knows the errors. Its threshold lies on the safe side of that of
        the rows themselves.
    errors : bool array (n,), optional
        Where the prediction is wrong; not needed for `coverage`.
    frr : float
        At most this share of the correct predictions is rejected.
    trr : float
        At least this share of the errors is rejected.
    risk : float
        At most this share of the accepted predictions is wrong.
    joint : float
        At most this share of all predictions is both wrong and accepted.
    coverage : float
        At least this share of the predictions is accepted.
    cost : float
        An error let through costs as much as so many rejections. No promise.
    threshold : float
        The threshold itself, chosen otherwise (by eye, say). No promise; `errors` may
        be left out.
    score, temperature
        What was calibrated, so that the gate can score by itself.
    confidence : float
        The probability, over calibrations, that the promise holds.
    mode : str, optional
        "confidence" (the default), or "expectation": the promised rate holds on average
        over calibrations. Not for `risk`, nor for frr with trr; `cost` has neither.
    method : str
        For `risk`: "sequence", "sgr" or "grid" (for scores whose risk is not monotone).
    min_coverage : float
        For `risk` by sequence: the coverage where the main sequence starts.
    groups : array (n,), optional
        Each row's group (its predicted class, say): a threshold and a promise for each
        group with enough rows, all promises together at `confidence`.
    grouped_by : str
        What the groups are. With "predicted", the predicted class, `Gate.screen` and
        the command line find a row's group by themselves.

    Returns
    -------
    Gate
        With its certificate. Where the rows are too few, the gate accepts or rejects
        everything and its certificate says how many would be needed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(2000) < 0.1
    >>> gate = calibrate(rng.normal(size=2000) + 2 * errors, errors, frr=0.05)
    >>> gate.certificate.promise()
    'at most 5% of the correct predictions rejected, with confidence 0.9'
    """
    asked = {
        "frr": frr,
        "trr": trr,
        "risk": risk,
        "joint": joint,
        "coverage": coverage,
        "cost": cost,
        "threshold": threshold,
    }
    target = _check_target({k: v for k, v in asked.items() if v is not None})
    rows = _sample(scores, errors)
    labelled = rows.labelled
    if not labelled and not {"coverage", "threshold"} & set(target):
        message = f"{next(iter(target))} needs errors; coverage alone does without."
        raise InputError(message)
    ask = Ask(target, mode, method, confidence, min_coverage)
    delta, notes = 1 - confidence, list[str]()
    own: dict[Any, GroupRule] = {}
    given = _groups(rows, groups)
    if given is not None:
        if threshold is not None:
            message = "a threshold that is given is for all rows: leave groups out."
            raise InputError(message)
        delta = _shared_delta(delta, len(given), ask, notes)
    pooled = _cut(rows, ask, delta)
    at = _threshold(pooled, rows)
    if given is not None:
        own = _group_rules(given, ask, delta, GroupRule(at, pooled.state))
        notes += _bare_note(own)
    gate = Gate(at, score, temperature, pooled.state, groups=own)
    if own:
        gate = replace(gate, grouped_by=grouped_by)
    seen = _seen(gate, rows, given)
    if seen is None:
        notes.append(UNSEEN)
    if "cost" in target and seen is not None:
        notes.append(_cost_note(seen, target["cost"], confidence))
    certificate = Certificate(
        target=target,
        rule=RULES[ask.rule],
        assumption=NOTHING if threshold is not None else EXCHANGEABLE,
        mode=ask.how if ask.promised and not pooled.broken else "none",
        confidence=confidence,
        n=len(rows),
        n_correct=len(rows) - rows.n_errors if labelled else -1,
        n_errors=rows.n_errors if labelled else -1,
        observed=observed_rates(seen, confidence, labelled=labelled) if seen else {},
        trivial=pooled.trivial,
        rows_needed=pooled.needed,
        fingerprint=fingerprint(rows),
        notes=tuple(notes),
        feasible=pooled.feasible,
    )
    return replace(gate, certificate=certificate)


def _sample(scores: Any, errors: Any) -> Sample:
    if isinstance(scores, Sketch):
        if errors is not None:
            message = "a sketch knows its errors. Leave errors out."
            raise InputError(message)
        if len(scores) == 0:
            message = "expected at least one score, got an empty sketch."
            raise InputError(message)
        return scores
    s = as_scores(scores)
    return Rows(s, None if errors is None else as_errors(errors, rows=len(s)))


def _groups(rows: Sample, groups: Any) -> dict[Any, Sample] | None:
    """Return the rows of each group, in the order of their names."""
    if groups is None:
        return None
    if isinstance(rows, Sketch):
        if not (isinstance(groups, dict) and groups):
            message = "expected groups as sketches by name, for a sketch of all rows."
            raise InputError(message)
        return {name: groups[name] for name in sorted(groups)}
    given = as_groups(groups, rows=len(rows))
    wrong = rows.errors
    out: dict[Any, Sample] = {}
    for name in np.unique(given).tolist():
        own = given == name
        out[name] = Rows(rows.scores[own], None if wrong is None else wrong[own])
    return out


@dataclass(frozen=True)
class Ask:
    """What is asked of a calibration."""

    target: dict[str, float]
    mode: Mode | None
    method: Method
    confidence: float
    min_coverage: float

    def __post_init__(self) -> None:
        """Refuse what no rule gives."""
        if self.mode not in (None, "confidence", "expectation"):
            message = f"expected mode 'confidence' or 'expectation', got {self.mode!r}."
            raise InputError(message)
        if self.mode is not None and not self.promised:
            message = f"{next(iter(self.target))} carries no promise: leave mode out."
            raise InputError(message)
        if self.mode == "expectation" and "risk" in self.target:
            message = "there is no rule for risk in expectation. Use mode='confidence'."
            raise InputError(message)
        if self.mode == "expectation" and len(self.target) == 2:
            message = (
                "frr and trr together have no rule in expectation. Leave mode out."
            )
            raise InputError(message)
        bad = self.method != "sequence" and "risk" not in self.target
        if self.method not in METHODS or bad:
            message = (
                f"expected method out of {', '.join(METHODS)}, for risk alone; got "
                f"{self.method!r} for {', '.join(self.target)}."
            )
            raise InputError(message)
        for name in ("confidence", "min_coverage"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < 1):
                message = f"expected {name} between 0 and 1, got {value!r}."
                raise InputError(message)

    @property
    def promised(self) -> bool:
        """Whether the target carries a promise."""
        return all(name in PROMISED for name in self.target)

    @property
    def rule(self) -> str:
        """The rule's name in `RULES`."""
        if len(self.target) == 2:
            return "both"
        (name,) = self.target
        return self.method if name == "risk" else name

    @property
    def how(self) -> Mode:
        """The mode, "confidence" where none was named."""
        return self.mode or "confidence"


def _shared_delta(delta: float, groups: int, ask: Ask, notes: list[str]) -> float:
    """Share the risk of a broken promise among the groups and the pooled threshold."""
    if ask.how == "expectation" or "cost" in ask.target:
        return delta
    notes.append(
        "The promise holds in each group that has one, not for all rows together. "
        f"{groups} groups and the pooled threshold share the risk of a broken promise: "
        f"each is calibrated at confidence {1 - delta / (groups + 1):.6g}."
    )
    return delta / (groups + 1)


def _group_rules(
    given: dict[Any, Sample], ask: Ask, delta: float, pooled: GroupRule
) -> dict[Any, GroupRule]:
    """Return each group's rule; the pooled one, bare, where its rows are too few."""
    out: dict[Any, GroupRule] = {}
    for name, rows in given.items():
        cut = _cut(rows, ask, delta)
        rule = GroupRule(_threshold(cut, rows), cut.state, promised=not cut.broken)
        rule = replace(pooled, promised=False) if cut.short else rule
        out[name] = replace(rule, n=len(rows))
    return out


def _bare_note(own: dict[Any, GroupRule]) -> list[str]:
    bare = [str(name) for name, rule in own.items() if not rule.promised]
    if not bare:
        return []
    named = ", ".join(bare[:20]) + (" ..." if len(bare) > 20 else "")
    return [f"Too few rows for a promise; pooled threshold without one: {named}."]


def _cut(rows: Sample, ask: Ask, delta: float) -> Cut:
    target, mode = ask.target, ask.how
    if "threshold" in target:
        return Cut(at=target["threshold"], side="exact")
    if "coverage" in target:
        share = float(1 - rules.exact(target["coverage"]))
        return rules.frr_cut(rows.of_kind("all"), share, mode=mode, delta=delta)
    if "cost" in target:
        return rules.least_cost(rows, target["cost"])
    if "joint" in target:
        return rules.joint_cut(rows, target["joint"], mode=mode, delta=delta)
    if "risk" in target:
        return _risk_cut(rows, ask, delta)
    if len(target) == 2:
        return _both_cut(rows, ask, delta)
    return _kind_cut(rows, ask, delta, *target)


def _kind_cut(rows: Sample, ask: Ask, delta: float, target: str) -> Cut:
    """Bound FRR by the correct rows, or TRR by the errors."""
    rate, share = ask.target[target], rows.n_errors / len(rows)
    if target == "frr":
        scores = rows.of_kind("correct")
        cut = rules.frr_cut(scores, rate, mode=ask.how, delta=delta)
        return rules.scaled(cut, 1 - share)
    cut = rules.trr_cut(rows.of_kind("errors"), rate, mode=ask.how, delta=delta)
    return rules.scaled(cut, share)


def _risk_cut(rows: Sample, ask: Ask, delta: float) -> Cut:
    risk = ask.target["risk"]
    if ask.method == "sgr":
        return rules.risk_sgr(rows, risk, delta=delta)
    if ask.method == "grid":
        return rules.risk_grid(rows, risk, delta=delta)
    start = ask.min_coverage
    return rules.risk_sequence(rows, risk, delta=delta, min_coverage=start)


def _both_cut(rows: Sample, ask: Ask, delta: float) -> Cut:
    """Meet FRR and TRR at once: each at the square root of the confidence."""
    delta = 1 - math.sqrt(1 - delta)
    low = _kind_cut(rows, ask, delta, "frr")
    high = _kind_cut(rows, ask, delta, "trr")
    least, most = _threshold(low, rows), _threshold(high, rows)
    if low.state == "accept-all" or high.state == "reject-all":
        short = high if high.state == "reject-all" else low
        why = f"the rows are too few to promise both: {short.trivial}"
        return replace(short, state="reject-all", trivial=why, broken=True)
    if least > most:
        why = (
            f"no threshold does both: FRR needs at least {least:.6g}, TRR at most "
            f"{most:.6g}"
        )
        return Cut("reject-all", trivial=why, broken=True)
    middle = least + (most - least) / 2 if math.isfinite(least) else most
    if isinstance(rows, Sketch) and not rows.exact:
        middle = least if math.isfinite(least) else most  # parts no cell
    ends = (least, most) if math.isfinite(least) else None
    return Cut(at=middle, side="exact", feasible=ends)


def _threshold(cut: Cut, rows: Sample) -> float:
    if cut.state != "threshold":
        return math.inf if cut.state == "accept-all" else -math.inf
    return cut.at if cut.side == "exact" else rules.place(cut, rows)


def _seen(
    gate: Gate, rows: Sample, given: dict[Any, Sample] | None
) -> Confusion | None:
    """Count what the gate does to the calibration rows, where that is known."""
    if given is None:
        return _decided(rows, gate.state, gate.threshold)
    parts = [
        _decided(own, gate.groups[name].state, gate.groups[name].threshold)
        for name, own in given.items()
    ]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Confusion(*(sum(getattr(p, k) for p in known) for k in _COUNTED))


_COUNTED = ("fr", "tr", "fa", "ta")


def _decided(rows: Sample, state: str, threshold: float) -> Confusion | None:
    if isinstance(rows, Sketch):
        wrong, right = rows.n_errors, len(rows) - rows.n_errors
        if state == "threshold":
            return rows.confusion(threshold)
    else:
        errors = np.zeros(len(rows), bool) if rows.errors is None else rows.errors
        wrong, right = int(errors.sum()), int((~errors).sum())
        if state == "threshold":
            return confusion(rows.scores, errors, threshold=threshold)
    if state == "accept-all":
        return Confusion(fr=0, tr=0, fa=wrong, ta=right)
    return Confusion(fr=right, tr=wrong, fa=0, ta=0)


def observed_rates(at: Confusion, confidence: float, *, labelled: bool) -> Rates:
    """Return rates with Clopper-Pearson intervals; those without rows are left out."""
    parts = {"coverage": (at.fa + at.ta, at.n)}
    if labelled:
        parts |= {
            "frr": (at.fr, at.fr + at.ta),
            "trr": (at.tr, at.tr + at.fa),
            "risk": (at.fa, at.fa + at.ta),
            "joint": (at.fa, at.n),
        }
    return {
        name: (part / whole, *clopper_pearson(part, whole, confidence=confidence))
        for name, (part, whole) in parts.items()
        if whole
    }


def _cost_note(seen: Confusion, cost: float, confidence: float) -> str:
    """Say what the gate costs on these rows, in rejections a row."""
    spent = np.array([0.0, 1.0, cost])
    rows = np.array([seen.ta, seen.fr + seen.tr, seen.fa])
    mean = float(rows @ spent / seen.n)
    variance = float(rows @ (spent - mean) ** 2 / seen.n)
    half = normal_quantile(confidence) * math.sqrt(variance / seen.n)
    return (
        f"On these rows it costs {mean:.4f} rejections a row "
        f"[{max(0.0, mean - half):.4f}, {mean + half:.4f}], which is optimistic: they "
        "chose it."
    )


def fingerprint(rows: Sample) -> str:
    """Return a short digest of the calibration rows."""
    if isinstance(rows, Sketch):
        return rows.fingerprint
    digest = hashlib.blake2b(digest_size=12)
    digest.update(np.ascontiguousarray(rows.scores, np.float64).data)
    if rows.errors is not None:
        digest.update(np.packbits(rows.errors).tobytes())
    return digest.hexdigest()


def _check_target(target: dict[str, float]) -> dict[str, float]:
    if len(target) != 1 and set(target) != {"frr", "trr"}:
        got = ", ".join(target) or "none"
        message = (
            f"expected one target out of frr, trr, risk, joint, coverage, cost and "
            f"threshold, or frr with trr; got {got}."
        )
        raise InputError(message)
    for name, value in target.items():
        least, most = _LIMITS.get(name, (0, 1))
        if not isinstance(value, Real):
            message = f"expected a number as {name}, got {value!r}."
            raise InputError(message)
        inside = least < value < most or (name == "cost" and value == 1)
        if not inside:
            what = {"cost": "at least 1", "threshold": "finite"}.get(
                name, "between 0 and 1 (0.05 means 5%)"
            )
            message = f"expected {name} {what}, got {value!r}."
            raise InputError(message)
    return {name: float(value) for name, value in target.items()}


_LIMITS = {"cost": (1, math.inf), "threshold": (-math.inf, math.inf)}
