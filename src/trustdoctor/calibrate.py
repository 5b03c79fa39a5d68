"""From labelled scores and a target to a gate with a certificate."""

import hashlib
import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np

from trustdoctor import rules
from trustdoctor.certificate import Certificate, Rates
from trustdoctor.curves import Array
from trustdoctor.errors import InputError
from trustdoctor.gate import Gate, GroupRule, as_groups
from trustdoctor.intervals import bootstrap_means, clopper_pearson, quantiles
from trustdoctor.metrics import Confusion, confusion
from trustdoctor.predictions import as_errors, as_scores
from trustdoctor.rules import Cut, Mode

Method = Literal["sequence", "sgr", "grid"]
METHODS = ("sequence", "sgr", "grid")
EXCHANGEABLE = (
    "Future rows are exchangeable with the calibration rows, which did not choose the "
    "score or its temperature."
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
    scores : array (n,)
        Doubts of calibration rows that had no part in choosing the score.
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
    s = as_scores(scores)
    wrong = None if errors is None else as_errors(errors, rows=len(s))
    if wrong is None and not {"coverage", "threshold"} & set(target):
        message = f"{next(iter(target))} needs errors; coverage alone does without."
        raise InputError(message)
    ask = Ask(target, mode, method, confidence, min_coverage)
    delta, notes = 1 - confidence, list[str]()
    own: dict[Any, GroupRule] = {}
    given = None if groups is None else as_groups(groups, rows=len(s))
    if given is not None:
        if threshold is not None:
            message = "a threshold that is given is for all rows: leave groups out."
            raise InputError(message)
        delta = _shared_delta(delta, given, ask, notes)
    pooled = _cut(s, wrong, ask, delta)
    at = _threshold(pooled, s)
    if given is not None:
        found = _group_rules(s, wrong, given, ask, delta)
        own = {k: r or _bare(given == k, at, pooled) for k, r in found.items()}
        notes += _bare_note(own)
    gate = Gate(at, score, temperature, pooled.state, groups=own)
    if own:
        gate = replace(gate, grouped_by=grouped_by)
    accepted = gate.accept(s, groups=given)
    if "cost" in target and wrong is not None:
        notes.append(_cost_note(accepted, wrong, target["cost"], confidence))
    certificate = Certificate(
        target=target,
        rule=RULES[ask.rule],
        assumption=NOTHING if threshold is not None else EXCHANGEABLE,
        mode=ask.how if ask.promised and not pooled.broken else "none",
        confidence=confidence,
        n=len(s),
        n_correct=-1 if wrong is None else int((~wrong).sum()),
        n_errors=-1 if wrong is None else int(wrong.sum()),
        observed=_observed(accepted, wrong, confidence),
        trivial=pooled.trivial,
        rows_needed=pooled.needed,
        fingerprint=fingerprint(s, wrong),
        notes=tuple(notes),
        feasible=pooled.feasible,
    )
    return replace(gate, certificate=certificate)


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


def _shared_delta(delta: float, given: Array, ask: Ask, notes: list[str]) -> float:
    """Share the risk of a broken promise among the groups and the pooled threshold."""
    if ask.how == "expectation" or "cost" in ask.target:
        return delta
    groups = len(np.unique(given))
    notes.append(
        "The promise holds in each group that has one, not for all rows together. "
        f"{groups} groups and the pooled threshold share the risk of a broken promise: "
        f"each is calibrated at confidence {1 - delta / (groups + 1):.6g}."
    )
    return delta / (groups + 1)


def _group_rules(
    s: Array, wrong: Array | None, given: Array, ask: Ask, delta: float
) -> dict[Any, GroupRule | None]:
    """Return each group's rule, None for those with too few rows."""
    out: dict[Any, GroupRule | None] = {}
    for name in np.unique(given).tolist():
        rows = given == name
        cut = _cut(s[rows], None if wrong is None else wrong[rows], ask, delta)
        n = int(rows.sum())
        rule = GroupRule(_threshold(cut, s[rows]), cut.state, n, not cut.broken)
        out[name] = None if cut.short else rule
    return out


def _bare(rows: Array, threshold: float, pooled: Cut) -> GroupRule:
    return GroupRule(threshold, pooled.state, int(rows.sum()), promised=False)


def _bare_note(own: dict[Any, GroupRule]) -> list[str]:
    bare = [str(name) for name, rule in own.items() if not rule.promised]
    if not bare:
        return []
    named = ", ".join(bare[:20]) + (" ..." if len(bare) > 20 else "")
    return [f"Too few rows for a promise; pooled threshold without one: {named}."]


def _cut(s: Array, wrong: Array | None, ask: Ask, delta: float) -> Cut:
    target, mode = ask.target, ask.how
    if "threshold" in target:
        return Cut(at=target["threshold"], side="exact")
    if "coverage" in target:
        return rules.frr_cut(
            s, float(1 - rules.exact(target["coverage"])), mode=mode, delta=delta
        )
    assert wrong is not None
    if "cost" in target:
        return rules.least_cost(s, wrong, target["cost"])
    if "joint" in target:
        return rules.joint_cut(s, wrong, target["joint"], mode=mode, delta=delta)
    if "risk" in target:
        return _risk_cut(s, wrong, ask, delta)
    if len(target) == 2:
        return _both_cut(s, wrong, ask, delta)
    if "frr" in target:
        cut = rules.frr_cut(s[~wrong], target["frr"], mode=mode, delta=delta)
        return rules.scaled(cut, float((~wrong).mean()))
    cut = rules.trr_cut(s[wrong], target["trr"], mode=mode, delta=delta)
    return rules.scaled(cut, float(wrong.mean()))


def _risk_cut(s: Array, wrong: Array, ask: Ask, delta: float) -> Cut:
    risk = ask.target["risk"]
    if ask.method == "sgr":
        return rules.risk_sgr(s, wrong, risk, delta=delta)
    if ask.method == "grid":
        return rules.risk_grid(s, wrong, risk, delta=delta)
    start = ask.min_coverage
    return rules.risk_sequence(s, wrong, risk, delta=delta, min_coverage=start)


def _both_cut(s: Array, wrong: Array, ask: Ask, delta: float) -> Cut:
    """Meet FRR and TRR at once: each at the square root of the confidence."""
    delta = 1 - math.sqrt(1 - delta)
    mode, target = ask.how, ask.target
    low = rules.frr_cut(s[~wrong], target["frr"], mode=mode, delta=delta)
    high = rules.trr_cut(s[wrong], target["trr"], mode=mode, delta=delta)
    least, most = _threshold(low, s), _threshold(high, s)
    if low.state == "accept-all" or high.state == "reject-all":
        short = rules.scaled(low, float((~wrong).mean()))
        if high.state == "reject-all":
            short = rules.scaled(high, float(wrong.mean()))
        why = f"the rows are too few to promise both: {short.trivial}"
        return replace(short, state="reject-all", trivial=why, broken=True)
    if least > most:
        why = (
            f"no threshold does both: FRR needs at least {least:.6g}, TRR at most "
            f"{most:.6g}"
        )
        return Cut("reject-all", trivial=why, broken=True)
    middle = least + (most - least) / 2 if math.isfinite(least) else most
    ends = (least, most) if math.isfinite(least) else None
    return Cut(at=middle, side="exact", feasible=ends)


def _threshold(cut: Cut, s: Array) -> float:
    if cut.state != "threshold":
        return math.inf if cut.state == "accept-all" else -math.inf
    return cut.at if cut.side == "exact" else rules.place(cut, s)


def _observed(accepted: Array, wrong: Array | None, confidence: float) -> Rates:
    known = np.zeros(len(accepted), bool) if wrong is None else wrong
    at = confusion(np.where(accepted, 0.0, 1.0), known, threshold=0.5)
    return observed_rates(at, confidence, labelled=wrong is not None)


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


def _cost_note(accepted: Array, wrong: Array, cost: float, confidence: float) -> str:
    """Say what the gate costs on these rows, in rejections a row."""
    spent = np.where(accepted, cost * wrong, 1.0)
    mean = float(spent.mean())
    low, high = quantiles(bootstrap_means(spent[:, None])[:, 0], confidence)
    return (
        f"On these rows it costs {mean:.4f} rejections a row "
        f"[{max(0.0, mean + low):.4f}, {mean + high:.4f}], which is optimistic: they "
        "chose it."
    )


def fingerprint(s: Array, wrong: Array | None) -> str:
    """Return a short digest of the calibration rows."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(np.ascontiguousarray(s, np.float64).data)
    if wrong is not None:
        digest.update(np.packbits(wrong).tobytes())
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
