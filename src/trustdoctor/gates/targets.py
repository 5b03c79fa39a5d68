"""What a gate can be asked to keep: one record per target, and two targets at once.

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
from trustdoctor.gates.rules import Cut, Mode, cut_accepting, threshold_of
from trustdoctor.gates.sample import Sample
from trustdoctor.metrics import Confusion, normal_quantile


@dataclass(frozen=True)
class RuleOptions:
    """What a rule is told besides the target's value.

    Attributes
    ----------
    mode : str
        "confidence" or "expectation".
    delta : float
        The probability that the promise may be broken.
    """

    mode: Mode = "confidence"
    delta: float = 0.1


@dataclass(frozen=True)
class Rule:
    """A way to find the cut.

    Attributes
    ----------
    words : str
        What it does, in one sentence, for the certificate.
    cut : callable
        From the sample, the target's value and the options to a `Cut`.
    words_on_average : str
        The same if the promise is on average, where that is another rule.
    """

    words: str
    cut: Callable[[Sample, float, RuleOptions], Cut]
    words_on_average: str = ""


@dataclass(frozen=True)
class ExpectedCounts:
    """What a model expects of itself at each threshold, ascending.

    Attributes
    ----------
    accepted, correct, errors : arrays (k,)
        The rows accepted, and how many of them are expected to be right and wrong.
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
    rule : Rule
        How the cut is found.
    low, high : float
        The value lies strictly between them.
    low_allowed : bool
        Whether the value may also be `low` itself.
    fraction : callable, or None
        From a `Confusion` to the numerator and the denominator of the rate. None if the
        target is not a rate.
    at_least : bool
        Whether the rate is to be at least the value; else at most.
    safe_side : str
        "accept" if accepting more keeps the promise (FRR, coverage), else "reject".
    rests_on : str
        The rows whose scores set the cut: "correct", "errors" or "all".
    needs_labels : bool
        Whether the rule needs to know which rows are wrong.
    promised : bool
        Whether the rule makes a promise about rows to come.
    in_expectation : bool
        Whether there is a rule that holds on average over calibrations.
    per_group : bool
        Whether groups may have separate thresholds.
    assumes_exchangeable : bool
        Whether rows to come must be exchangeable with the calibration rows.
    note : callable, or None
        Another sentence for the certificate, from (confusion, value, confidence).
    expected_to_hold : callable, or None
        For calibration without labels: from (`ExpectedCounts`, value) to a mask of the
        thresholds whose expected rate meets the value.
    review_effect : str
        What the rate is among rows drawn for review, if accepted and rejected rows are
        drawn at different rates: "odds" if it compares rejected with accepted rows,
        "plain" if it is about accepted rows alone, "share" if it is the share of
        accepted rows of a kind among all rows; "even" for others, which are tested only
        if both rates are equal.
    scaled_by_noise : bool
        Whether wrong labels can hide errors that it counts, so that the value is tested
        at (1 - noise) of itself; other targets only become more careful.
    by_rank : bool
        Whether the threshold lies next to the k-th score of a kind of rows, with k set
        by their number, or is chosen by hand: the same rows may then set a shortlist.

    Examples
    --------
    >>> TARGETS["frr"].promise(0.05)
    'at most 5% of the correct predictions rejected'
    """

    name: str
    words: str
    help: str
    rule: Rule
    low: float = 0.0
    high: float = 1.0
    low_allowed: bool = False
    fraction: Callable[[Confusion], tuple[int, int]] | None = None
    at_least: bool = False
    safe_side: Literal["accept", "reject"] = "reject"
    rests_on: Literal["correct", "errors", "all"] = "all"
    needs_labels: bool = True
    promised: bool = True
    in_expectation: bool = True
    per_group: bool = True
    assumes_exchangeable: bool = True
    note: Callable[[Confusion, float, float], str] | None = None
    expected_to_hold: Callable[[ExpectedCounts, float], Array] | None = None
    review_effect: Literal["odds", "plain", "share", "even"] = "even"
    scaled_by_noise: bool = False
    by_rank: bool = False

    def __reduce__(self) -> Any:
        """Cross to another process by name: functions cannot be pickled."""
        return find_target, (self.name,)

    def check(self, value: Any) -> float:
        """Return the value as a number; refuse one outside the limits."""
        number = as_real(value, self.name)
        if type(value) is bool or not self.allows(number):
            got = shown_number(value)
            message = f"expected {self.name} {self._limits()}, got {got}."
            raise InputError(message)
        return number

    def allows(self, value: Any) -> bool:
        """Return whether a number may be the target's value."""
        at_low = self.low_allowed and value == self.low
        return type(value) is not bool and (at_low or self.low < value < self.high)

    def _limits(self) -> str:
        if (self.low, self.high) == (0.0, 1.0):
            return "between 0 and 1 (0.05 means 5%)"
        if self.high == math.inf:
            relation = "at least" if self.low_allowed else "above"
            return "finite" if self.low == -math.inf else f"{relation} {self.low:g}"
        return f"between {self.low:g} and {self.high:g}"

    def promise(self, value: float) -> str:
        """Return what is promised, in words."""
        shown = value if self.fraction is None else round(100 * value, 10)
        return self.words.format(f"{shown:g}")


TARGETS: dict[str, Target] = {}
"""Every target by its name."""


def register_target(target: Target) -> Target:
    """Add a target; from then on `calibrate` and the command line take it.

    Examples
    --------
    >>> def median(sample, value, options):
    ...     return Cut(score=sample.of_kind("all").kth(len(sample) // 2)[1])
    >>> rule = Rule("The threshold is the median.", median)
    >>> half = Target("half", "half accepted, {} times", "Accept half.", rule)
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
    """Return the target of that name; if there is none, name those that there are."""
    try:
        return TARGETS[name]
    except KeyError:
        names = ", ".join(TARGETS)
        message = f"expected a target out of {names}, got {name!r}."
        raise InputError(message) from None


def rate_fractions(
    confusion: Confusion, *, labelled: bool = True
) -> dict[str, tuple[int, int]]:
    """Return numerator and denominator of every target's rate.

    Without labels only of rates that need none.
    """
    without_labels_first = sorted(
        TARGETS.values(), key=lambda target: target.needs_labels
    )
    return {
        target.name: target.fraction(confusion)
        for target in without_labels_first
        if target.fraction is not None and (labelled or not target.needs_labels)
    }


PAIRS = (("frr", "trr"), ("risk", "coverage"), ("risk", "frr"), ("risk", "trr"))
"""Targets that may be requested together."""

PAIRS_IN_WORDS = "frr with trr, or risk with coverage, frr or trr"

_SCORES_OF = {
    "all": "all rows' scores",
    "correct": "the correct rows' scores",
    "errors": "the errors' scores",
}


def is_pair(names: Mapping[str, object]) -> bool:
    """Return whether these two targets may be requested together.

    Examples
    --------
    >>> is_pair({"trr": 0.9, "risk": 0.1}), is_pair({"frr": 0.1, "joint": 0.1})
    (True, False)
    """
    return any(set(names) == set(pair) for pair in PAIRS)


def pair_rule_words(targets: list[Target]) -> str:
    """Return what the rules of two targets do, in one sentence."""
    scores = {target.name: _SCORES_OF[target.rests_on] for target in targets}
    if "risk" not in scores:
        return (
            "Order statistics of the correct rows' and of the errors' scores bound it."
        )
    (other,) = set(scores) - {"risk"}
    return (
        "Exact binomial tests of every threshold bound the risk, and an "
        f"order statistic of {scores[other]} the {_short_name(other)}."
    )


def pair_delta(names: Mapping[str, object], delta: float) -> float:
    """Return the probability with which each of two promises may be broken.

    Both then hold with probability 1 - delta. Correct rows and errors are independent,
    so FRR and TRR multiply: 1 - sqrt(1 - delta) for each (Šidák 1967). Other pairs
    rest on the same rows: delta / 2 for each (Bonferroni).

    Examples
    --------
    >>> round(pair_delta({"frr": 0, "trr": 0}, 0.1), 6)
    0.051317
    >>> pair_delta({"risk": 0, "frr": 0}, 0.1)
    0.05
    """
    return delta / 2 if "risk" in names else 1 - math.sqrt(1 - delta)


def pair_cut(sample: Sample, cuts: dict[str, Cut]) -> Cut:
    """Return a cut between the thresholds that keep both promises."""
    passed = tuple(range_ for cut in cuts.values() for range_ in cut.passed)
    if passed and all(cut.state == "accept-all" for cut in cuts.values()):
        return cuts["risk"]
    # Accepting all rows always keeps FRR and coverage, rejecting all the other targets:
    # a cut in that state means that no threshold was found.
    failed = {name: cut for name, cut in cuts.items() if _fails(TARGETS[name], cut)}
    if failed:
        return _failed_pair(failed)
    first, second = (
        _safe_ranges(TARGETS[name], cut, sample) for name, cut in cuts.items()
    )
    overlaps = [
        (max(low, other_low), min(high, other_high))
        for low, high in first
        for other_low, other_high in second
    ]
    # The overlap that accepts most; if there is none, the pair that comes nearest.
    least, most = max(
        overlaps, key=lambda ends: (ends[0] <= ends[1], ends[1], -ends[0])
    )
    if least > most:
        return _disjoint_pair(sample, cuts, least, most)
    if most == math.inf:
        why = "even accepting every row keeps the promise"
        return Cut("accept-all", trivial=why, passed=passed)
    middle = least + (most - least) / 2 if math.isfinite(least) else most
    if not sample.exact:  # half way may be within a range of scores
        middle = least if math.isfinite(least) else most
    feasible = (least, most) if math.isfinite(least) else None
    return Cut(score=middle, side="exact", feasible=feasible, passed=passed)


def _short_name(name: str) -> str:
    return name.upper() if len(name) == 3 else name


def _fails(target: Target, cut: Cut) -> bool:
    return cut.state == ("accept-all" if target.safe_side == "accept" else "reject-all")


def _safe_ranges(target: Target, cut: Cut, sample: Sample) -> list[tuple[float, float]]:
    """Return the ranges of thresholds that keep a promise.

    Risk need not fall with the threshold: it is kept only where a test passed.
    """
    if cut.passed:
        return [
            (_accepting(first, sample), _accepting(last, sample))
            for first, last, _ in cut.passed
        ]
    threshold = threshold_of(cut, sample)
    if target.safe_side == "accept":
        return [(threshold, math.inf)]
    return [(-math.inf, threshold)]


def _accepting(accepted: int, sample: Sample) -> float:
    """Return the threshold that accepts this number of rows."""
    return threshold_of(cut_accepting(sample, accepted), sample)


def _disjoint_pair(
    sample: Sample, cuts: dict[str, Cut], least: float, most: float
) -> Cut:
    """Say that no threshold keeps both, and what each rate is at the other's end."""
    low = next((name for name in cuts if TARGETS[name].safe_side == "accept"), "risk")
    (high,) = set(cuts) - {low}
    why = (
        f"no threshold does both: {_short_name(low)} needs at least {least:.6g}"
        f"{_observed(sample, high, least)}, {_short_name(high)} at most {most:.6g}"
        f"{_observed(sample, low, most)}; both are doubts"
    )
    return Cut("reject-all", trivial=why, promised=False)


def _observed(sample: Sample, name: str, threshold: float) -> str:
    """Return a target's rate on these rows at a threshold, in words, if it is known."""
    confusion, fraction = sample.confusion(threshold), TARGETS[name].fraction
    if confusion is None or fraction is None:
        return ""
    numerator, denominator = fraction(confusion)
    if not denominator:
        return ""
    return f" ({_short_name(name)} {numerator / denominator:.1%} on these rows)"


def _failed_pair(failed: dict[str, Cut]) -> Cut:
    """Say why one or both of two targets cannot be promised."""
    impossible = [(name, cut) for name, cut in failed.items() if not cut.too_few_rows]
    if impossible:
        name, cut = impossible[0]
        why = f"{_short_name(name)} cannot be promised: {cut.trivial}"
        return Cut("reject-all", trivial=why, promised=False)
    why = "the rows are too few to promise both: "
    why += ", and ".join(cut.trivial for cut in reversed(failed.values()))
    return Cut("reject-all", trivial=why, too_few_rows=True, promised=False)


def _coverage(sample: Sample, value: float, options: RuleOptions) -> Cut:
    # A coverage of 1 - a is an FRR of a over all rows, right or wrong: no label counts.
    rejected = float(1 - rules.as_fraction(value))
    rows = sample.of_kind("all")
    return rules.frr_cut(rows, rejected, mode=options.mode, delta=options.delta)


def _frr(sample: Sample, value: float, options: RuleOptions) -> Cut:
    correct = sample.of_kind("correct")
    return rules.frr_cut(correct, value, mode=options.mode, delta=options.delta)


def _trr(sample: Sample, value: float, options: RuleOptions) -> Cut:
    errors = sample.of_kind("errors")
    return rules.trr_cut(errors, value, mode=options.mode, delta=options.delta)


def _joint(sample: Sample, value: float, options: RuleOptions) -> Cut:
    return rules.joint_cut(sample, value, mode=options.mode, delta=options.delta)


def _risk(sample: Sample, value: float, options: RuleOptions) -> Cut:
    return risk.risk_cut(sample, value, mode=options.mode, delta=options.delta)


def _cost_note(confusion: Confusion, cost: float, confidence: float) -> str:
    """Say what the gate costs on these rows, in rejections per row.

    With the normal interval of a mean: mean +- z * spread / sqrt(n).
    """
    rows = np.array(
        [confusion.accepted_correct, confusion.n_rejected, confusion.accepted_errors]
    )
    costs = np.array([0.0, 1.0, cost])[rows > 0]
    shares = rows[rows > 0] / confusion.n
    mean = float(shares @ costs)
    unit = max(1.0, float(costs.max()))  # squares of a large cost overflow
    spread = unit * math.sqrt(shares @ ((costs - mean) / unit) ** 2)
    half = normal_quantile(confidence) * spread / math.sqrt(confusion.n)
    return (
        f"On these rows it costs {mean:.4f} rejections per row "
        f"[{max(0.0, mean - half):.4f}, {mean + half:.4f}], which is optimistic: they "
        "chose it."
    )


register_target(
    Target(
        "frr",
        "at most {}% of the correct predictions rejected",
        "At most this share of the correct predictions is rejected.",
        Rule("The threshold is an order statistic of the correct rows' scores.", _frr),
        fraction=lambda c: (c.rejected_correct, c.n_correct),
        safe_side="accept",
        rests_on="correct",
        expected_to_hold=lambda e, frr: e.correct >= (1 - frr) * e.correct[-1],
        review_effect="odds",
        by_rank=True,
    )
)
register_target(
    Target(
        "trr",
        "at least {}% of the errors rejected",
        "At least this share of the errors is rejected.",
        Rule(
            "The threshold is just below an order statistic of the errors' scores.",
            _trr,
        ),
        fraction=lambda c: (c.rejected_errors, c.n_errors),
        at_least=True,
        rests_on="errors",
        expected_to_hold=lambda e, trr: e.errors <= (1 - trr) * e.errors[-1],
        review_effect="odds",
        by_rank=True,
    )
)
register_target(
    Target(
        "risk",
        "at most {}% errors among the accepted",
        "At most this share of the accepted predictions is wrong.",
        Rule(
            "Every threshold is tested with an exact binomial test, at a level that "
            "allows for all of them (up to 2,000 rows; beyond, at rising coverage in "
            "two sequences).",
            _risk,
            "The last threshold at which one more error among one more row would keep "
            "the risk.",
        ),
        fraction=lambda c: (c.accepted_errors, c.n_accepted),
        expected_to_hold=lambda e, risk: e.errors <= risk * e.accepted,
        review_effect="plain",
        scaled_by_noise=True,
    )
)
register_target(
    Target(
        "joint",
        "at most {}% of all predictions both wrong and accepted",
        "At most this share of all predictions is both wrong and accepted.",
        Rule(
            "The threshold is just below an order statistic of the errors' scores.",
            _joint,
        ),
        fraction=lambda c: (c.accepted_errors, c.n),
        expected_to_hold=lambda e, joint: e.errors <= joint * e.rows,
        review_effect="share",
        scaled_by_noise=True,
        by_rank=True,
    )
)
register_target(
    Target(
        "coverage",
        "at least {}% of the predictions accepted",
        "At least this share of the predictions is accepted; needs no labels.",
        Rule("The threshold is an order statistic of all rows' scores.", _coverage),
        fraction=lambda c: (c.n_accepted, c.n),
        at_least=True,
        safe_side="accept",
        needs_labels=False,
        expected_to_hold=lambda e, coverage: (
            e.accepted >= float(rules.as_fraction(coverage)) * e.rows
        ),
        by_rank=True,
    )
)
register_target(
    Target(
        "cost",
        "least cost where an error costs {} rejections",
        "An error that is let through costs this many rejections: no promise.",
        Rule(
            "The threshold has the least cost on the calibration rows.",
            lambda sample, cost, _: rules.least_cost(sample, cost),
        ),
        low=1.0,
        high=math.inf,
        low_allowed=True,
        promised=False,
        note=_cost_note,
    )
)
register_target(
    Target(
        "threshold",
        "the threshold {} was chosen by hand",
        "The threshold itself, chosen by hand: no promise.",
        Rule(
            "The threshold was chosen by hand, not calibrated.",
            lambda _sample, threshold, _: Cut(score=threshold, side="exact"),
        ),
        low=-math.inf,
        high=math.inf,
        needs_labels=False,
        promised=False,
        per_group=False,
        assumes_exchangeable=False,
        by_rank=True,
    )
)
