"""What may be asked of a gate: one record per target.

The record holds all that calibration, certificates, the watch, the command line and
the page know of a target. To add one, write a `Target` and `register_target` it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trustdoctor.arrays import Array, as_real, shown_number
from trustdoctor.errors import InputError
from trustdoctor.gates import risk, rules
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Sample
from trustdoctor.metrics import Confusion, normal_quantile


@dataclass(frozen=True)
class Terms:
    """How a cut is asked for.

    Attributes
    ----------
    mode : str
        "confidence" or "expectation".
    delta : float
        The probability that the promise may be broken.
    min_coverage : float
        Where the main sequence of the risk rule starts.
    """

    mode: Mode = "confidence"
    delta: float = 0.1
    min_coverage: float = 0.3


@dataclass(frozen=True)
class Rule:
    """A way to find the cut.

    Attributes
    ----------
    words : str
        What it does, in one sentence, for the certificate.
    cut : callable
        From the rows, the target's value and the terms to a `Cut`.
    """

    words: str
    cut: Callable[[Sample, float, Terms], Cut]


@dataclass(frozen=True)
class Expected:
    """What a model expects of itself at each threshold, ascending.

    Attributes
    ----------
    accepted, correct, errors : arrays (k,)
        Rows accepted, and how many of them are expected to be right and wrong.
    rows : int
        All rows.
    """

    accepted: Array
    correct: Array
    errors: Array
    rows: int


@dataclass(frozen=True)
class Target:
    """A target.

    Attributes
    ----------
    name : str
        Its keyword in `calibrate`, and its option on the command line.
    words : str
        What is promised; ``{}`` stands for the value (in percent, for a rate).
    help : str
        For the command line.
    rules : dict of str to Rule
        By the name of the method; the first is the default.
    low, high : float
        The value lies between them, without the ends.
    closed : bool
        Whether `low` itself may be the value.
    counts : callable, or None
        Which rows of a `Confusion` make the rate: (part, whole). None where the target
        is not a rate.
    at_least : bool
        Whether the rate is to be at least the value, or at most.
    safe : str
        "accept" where accepting more keeps the promise (FRR, coverage), else "reject".
    rests_on : str
        The rows whose scores set the cut: "correct", "errors" or "all".
    needs_labels : bool
        Whether the rule needs to know where rows are wrong.
    promised : bool
        Whether the rule makes a promise on rows to come.
    in_expectation : bool
        Whether there is a rule that holds on average over calibrations.
    per_group : bool
        Whether groups may have thresholds of their own.
    assumes : bool
        Whether rows to come must be like the calibration rows.
    note : callable, or None
        What else to say in the certificate: (counts, value, confidence) to a sentence.
    expected : callable, or None
        For calibration without labels: where the expected rates meet the value.
    reviewed : str
        What it is among rows drawn for review, where accepted and rejected rows are
        drawn at different rates: "odds" where it compares the rejected with the
        accepted rows, "plain" where it is about accepted rows alone, "share" where it
        is the share of accepted rows of a kind among all rows; "even" for others,
        which are tested only where both rates are equal.
    scaled_by_noise : bool
        Whether wrong labels can hide errors that it counts, so that the value is tested
        at (1 - noise) of itself; of other targets they only move the cut to the safe
        side.
    by_rank : bool
        Whether the cut is next to the k-th score of a kind of rows, with k known from
        how many there are, or given: a shortlist may then be set by the same rows.

    Examples
    --------
    >>> TARGETS["frr"].promise(0.05)
    'at most 5% of the correct predictions rejected'
    """

    name: str
    words: str
    help: str
    rules: Mapping[str, Rule]
    low: float = 0.0
    high: float = 1.0
    closed: bool = False
    counts: Callable[[Confusion], tuple[int, int]] | None = None
    at_least: bool = False
    safe: Literal["accept", "reject"] = "reject"
    rests_on: Literal["correct", "errors", "all"] = "all"
    needs_labels: bool = True
    promised: bool = True
    in_expectation: bool = True
    per_group: bool = True
    assumes: bool = True
    note: Callable[[Confusion, float, float], str] | None = None
    expected: Callable[[Expected, float], Array] | None = None
    reviewed: Literal["odds", "plain", "share", "even"] = "even"
    scaled_by_noise: bool = False
    by_rank: bool = False

    def __reduce__(self) -> Any:
        """Cross to another process by name: some of its fields are functions."""
        return find_target, (self.name,)

    def check(self, value: Any) -> float:
        """Return the value as a number, or say what was expected."""
        number = as_real(value, self.name)
        if type(value) is bool or not self.allows(number):
            got = shown_number(value)
            message = f"expected {self.name} {self._limits()}, got {got}."
            raise InputError(message)
        return number

    def allows(self, value: Any) -> bool:
        """Tell whether a number may be the target's value."""
        at_end = self.closed and value == self.low
        return type(value) is not bool and (at_end or self.low < value < self.high)

    def _limits(self) -> str:
        if (self.low, self.high) == (0.0, 1.0):
            return "between 0 and 1 (0.05 means 5%)"
        if self.high == math.inf:
            word = "at least" if self.closed else "above"
            return "finite" if self.low == -math.inf else f"{word} {self.low:g}"
        return f"between {self.low:g} and {self.high:g}"

    def promise(self, value: float) -> str:
        """Say what is asked for, in words."""
        shown = value if self.counts is None else round(100 * value, 10)
        return self.words.format(f"{shown:g}")

    def rule(self, method: str | None) -> Rule:
        """Return the rule of a method, by default the first."""
        name = next(iter(self.rules)) if method is None else method
        if name not in self.rules:
            known = ", ".join(m for t in TARGETS.values() for m in t.rules if m)
            message = (
                f"expected method out of {known}, for risk alone; got {method!r} for "
                f"{self.name}."
            )
            raise InputError(message)
        return self.rules[name]


TARGETS: dict[str, Target] = {}
"""Every target by its name."""


def register_target(target: Target) -> Target:
    """Add a target; from then on `calibrate` and the command line take it.

    Examples
    --------
    >>> def median(rows, value, terms):
    ...     return Cut(at=rows.of_kind("all").kth(len(rows) // 2)[1])
    >>> rules = {"": Rule("The threshold is the median.", median)}
    >>> half = Target("half", "half accepted, {} times", "Accept half.", rules)
    >>> register_target(half).name in TARGETS
    True
    >>> del TARGETS["half"]
    """
    if target.name in TARGETS:
        message = f"the name {target.name!r} is taken by a target. Choose another."
        raise InputError(message)
    TARGETS[target.name] = target
    return target


def find_target(name: str) -> Target:
    """Return the target of that name, or name those that there are."""
    try:
        return TARGETS[name]
    except KeyError:
        known = ", ".join(TARGETS)
        message = f"expected a target out of {known}, or an option, got {name!r}."
        raise InputError(message) from None


def observe(seen: Confusion, *, labelled: bool = True) -> dict[str, tuple[int, int]]:
    """Return (part, whole) of every rate that the counts tell."""
    first = sorted(TARGETS.values(), key=lambda target: target.needs_labels)
    return {
        target.name: target.counts(seen)
        for target in first
        if target.counts is not None and (labelled or not target.needs_labels)
    }


def _coverage(rows: Sample, value: float, terms: Terms) -> Cut:
    lost = float(1 - rules.exact(value))
    every = rows.of_kind("all")
    return rules.frr_cut(every, lost, mode=terms.mode, delta=terms.delta)


def _frr(rows: Sample, value: float, terms: Terms) -> Cut:
    correct = rows.of_kind("correct")
    return rules.frr_cut(correct, value, mode=terms.mode, delta=terms.delta)


def _trr(rows: Sample, value: float, terms: Terms) -> Cut:
    errors = rows.of_kind("errors")
    return rules.trr_cut(errors, value, mode=terms.mode, delta=terms.delta)


def _joint(rows: Sample, value: float, terms: Terms) -> Cut:
    return rules.joint_cut(rows, value, mode=terms.mode, delta=terms.delta)


def _sequence(rows: Sample, value: float, terms: Terms) -> Cut:
    return risk.risk_sequence(
        rows,
        value,
        delta=terms.delta,
        min_coverage=terms.min_coverage,
    )


def _cost_note(seen: Confusion, cost: float, confidence: float) -> str:
    """Say what the gate costs on these rows, in rejections per row."""
    rows = np.array([seen.accepted_correct, seen.n_rejected, seen.accepted_errors])
    spent = np.array([0.0, 1.0, cost])[rows > 0]
    shares = rows[rows > 0] / seen.n
    mean = float(shares @ spent)
    unit = max(1.0, float(spent.max()))  # squares of a large cost overflow
    spread = unit * math.sqrt(shares @ ((spent - mean) / unit) ** 2)
    half = normal_quantile(confidence) * spread / math.sqrt(seen.n)
    return (
        f"On these rows it costs {mean:.4f} rejections per row "
        f"[{max(0.0, mean - half):.4f}, {mean + half:.4f}], which is optimistic: they "
        "chose it."
    )


def _one(words: str, cut: Callable[[Sample, float, Terms], Cut]) -> dict[str, Rule]:
    """Return the only rule of a target: its method has no name."""
    return {"": Rule(words, cut)}


register_target(
    Target(
        "frr",
        "at most {}% of the correct predictions rejected",
        "At most this share of the correct predictions is rejected.",
        _one("The threshold is an order statistic of the correct rows' scores.", _frr),
        counts=lambda at: (at.rejected_correct, at.n_correct),
        safe="accept",
        rests_on="correct",
        expected=lambda e, value: e.correct >= (1 - value) * e.correct[-1],
        reviewed="odds",
        by_rank=True,
    )
)
register_target(
    Target(
        "trr",
        "at least {}% of the errors rejected",
        "At least this share of the errors is rejected.",
        _one(
            "The threshold is just below an order statistic of the errors' scores.",
            _trr,
        ),
        counts=lambda at: (at.rejected_errors, at.n_errors),
        at_least=True,
        rests_on="errors",
        expected=lambda e, value: e.errors <= (1 - value) * e.errors[-1],
        reviewed="odds",
        by_rank=True,
    )
)
register_target(
    Target(
        "risk",
        "at most {}% errors among the accepted",
        "At most this share of the accepted predictions is wrong.",
        {
            "sequence": Rule(
                "Tested at rising coverage with exact binomial tests (two sequences "
                "that share the level).",
                _sequence,
            ),
            "sgr": Rule(
                "A binary search with Clopper-Pearson bounds at every step found it.",
                lambda rows, value, terms: risk.risk_sgr(
                    rows, value, delta=terms.delta
                ),
            ),
            "grid": Rule(
                "Binomial tests on a grid of 20 coverages, Bonferroni-corrected, bound "
                "it.",
                lambda rows, value, terms: risk.risk_grid(
                    rows, value, delta=terms.delta
                ),
            ),
        },
        counts=lambda at: (at.accepted_errors, at.n_accepted),
        in_expectation=False,
        expected=lambda e, value: e.errors <= value * e.accepted,
        reviewed="plain",
        scaled_by_noise=True,
    )
)
register_target(
    Target(
        "joint",
        "at most {}% of all predictions both wrong and accepted",
        "At most this share of all predictions is both wrong and accepted.",
        _one(
            "The threshold is just below an order statistic of the errors' scores.",
            _joint,
        ),
        counts=lambda at: (at.accepted_errors, at.n),
        expected=lambda e, value: e.errors <= value * e.rows,
        reviewed="share",
        scaled_by_noise=True,
        by_rank=True,
    )
)
register_target(
    Target(
        "coverage",
        "at least {}% of the predictions accepted",
        "At least this share of the predictions is accepted; needs no labels.",
        _one("The threshold is an order statistic of all rows' scores.", _coverage),
        counts=lambda at: (at.n_accepted, at.n),
        at_least=True,
        safe="accept",
        needs_labels=False,
        expected=lambda e, value: e.accepted >= float(rules.exact(value)) * e.rows,
        by_rank=True,
    )
)
register_target(
    Target(
        "cost",
        "least cost where an error costs {} rejections",
        "An error that is let through costs so many rejections: no promise.",
        _one(
            "The threshold has the least cost on the calibration rows.",
            lambda rows, value, _: rules.least_cost(rows, value),
        ),
        low=1.0,
        high=math.inf,
        closed=True,
        promised=False,
        note=_cost_note,
    )
)
register_target(
    Target(
        "threshold",
        "the threshold {} was chosen by hand",
        "The threshold itself, chosen by hand: no promise.",
        _one(
            "The threshold was given, not calibrated.",
            lambda _rows, value, _terms: Cut(at=value, side="exact"),
        ),
        low=-math.inf,
        high=math.inf,
        needs_labels=False,
        promised=False,
        per_group=False,
        assumes=False,
        by_rank=True,
    )
)
