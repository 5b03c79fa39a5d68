"""What a calibration is asked to promise: targets, confidence, mode, method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import as_real, shown_number
from trustdoctor.errors import InputError
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.targets import (
    PAIRS_IN_WORDS,
    TARGETS,
    RuleOptions,
    Target,
    find_target,
    is_pair,
    pair_cut,
    pair_delta,
    pair_rule_words,
)

IDEAL_ROWS = 100_000
"""Rows of an ideal sample, at most: if these are too few, no number suffices."""


TargetValue = float | Sequence[float] | None
"""A target's value, several candidate values, or None for a target not requested."""


@dataclass(frozen=True)
class Request:
    """What a calibration is asked to promise.

    Attributes
    ----------
    target : dict of str to float
        One target and its value, or a pair.
    mode, confidence, label_noise
        As in `calibrate`.
    candidates : int
        The number of values fixed in advance that share the level, this one included.
    looks : int
        The number of calibrations, on more and more rows, that share the level.
    """

    target: dict[str, float]
    mode: Mode | None = None
    confidence: float = 0.9
    label_noise: float = 0.0
    candidates: int = 1
    looks: int = 1

    def __post_init__(self) -> None:
        """Refuse what no rule can promise."""
        self._check_target()
        self._check_mode()
        self._check_numbers()

    def _check_target(self) -> None:
        for name in self.target:
            find_target(name)
        if len(self.target) != 1 and not is_pair(self.target):
            got = ", ".join(self.target) or "none"
            message = (
                f"expected one target out of {', '.join(TARGETS)}, or two: "
                f"{PAIRS_IN_WORDS}; got {got}."
            )
            raise InputError(message)
        checked = {
            name: TARGETS[name].check(value) for name, value in self.target.items()
        }
        object.__setattr__(self, "target", checked)

    def _check_mode(self) -> None:
        if self.mode not in (None, "confidence", "expectation"):
            message = f"expected mode 'confidence' or 'expectation', got {self.mode!r}."
            raise InputError(message)
        name = next(iter(self.target))
        if self.mode is not None and not self.promised:
            message = f"{name} promises nothing: leave mode (--on-average) out."
            raise InputError(message)
        if self.mode != "expectation":
            return
        if len(self.target) == 2:
            pair = " and ".join(self.target)
            message = (
                f"{pair} together have no rule on average. Leave mode (--on-average) "
                "out."
            )
            raise InputError(message)
        if not self.targets[0].in_expectation:
            message = (
                f"there is no rule for {name} on average. Leave mode (--on-average) "
                "out."
            )
            raise InputError(message)
        if self.candidates > 1:
            message = (
                "several values share the confidence, and a promise on average has "
                "none. Give one value, or leave mode (--on-average) out."
            )
            raise InputError(message)

    def _check_numbers(self) -> None:
        confidence = as_real(self.confidence, "confidence")
        if not 0 < confidence < 1:
            got = shown_number(self.confidence)
            message = f"expected confidence between 0 and 1, got {got}."
            raise InputError(message)
        object.__setattr__(self, "confidence", confidence)
        number = as_real(self.label_noise, "label_noise")
        if not 0 <= number < 0.5:
            message = (
                "expected label_noise from 0 to below 0.5, the share of labels that "
                f"may be wrong, got {shown_number(self.label_noise)}."
            )
            raise InputError(message)
        object.__setattr__(self, "label_noise", number)

    @property
    def targets(self) -> list[Target]:
        """The one or two targets."""
        return [TARGETS[name] for name in self.target]

    @property
    def needs_labels(self) -> bool:
        """Whether one of the targets is about rows that are right or wrong."""
        return any(target.needs_labels for target in self.targets)

    @property
    def promised(self) -> bool:
        """Whether every target promises something about rows to come."""
        return all(target.promised for target in self.targets)

    @property
    def rule_words(self) -> str:
        """How the threshold is found, in one sentence."""
        if len(self.target) == 2:
            return pair_rule_words(self.targets)
        rule = self.targets[0].rule
        if self.promise_mode == "expectation" and rule.words_on_average:
            return rule.words_on_average
        return rule.words

    @property
    def promise_mode(self) -> Mode:
        """The mode, by default "confidence"."""
        return self.mode or "confidence"

    @property
    def delta(self) -> float:
        """The probability with which the promise may be broken.

        Candidate values share it (Bonferroni), so all promises that pass hold together,
        and the same rows may choose among them.
        """
        return (1 - self.confidence) / (self.candidates * self.looks)

    @property
    def tested_values(self) -> dict[str, float]:
        """The values that are tested if a share `label_noise` of the labels is wrong.

        Rates of accepted errors are tested at (1 - label_noise) of their limit.
        """
        # Labels call at least a share 1 - noise of the true errors errors. So if the
        # true rate is above r, the rate by the labels is above (1 - noise) r, whatever
        # else the wrong labels do.
        return {
            name: value * (1 - self.label_noise)
            if TARGETS[name].scaled_by_noise
            else value
            for name, value in self.target.items()
        }

    def cut_all(self, sample: Sample) -> Cut:
        """Return the cut of all rows together, at the request's delta."""
        return self.cut(sample, self.delta)

    def cut(self, sample: Sample, delta: float) -> Cut:
        """Return the cut; its promise is broken with probability delta at most."""
        options = self._rule_options(delta)
        cuts = {
            name: TARGETS[name].rule.cut(sample, value, options)
            for name, value in self.tested_values.items()
        }
        return next(iter(cuts.values())) if len(cuts) == 1 else pair_cut(sample, cuts)

    def _rule_options(self, delta: float) -> RuleOptions:
        if len(self.target) == 2:
            delta = pair_delta(self.target, delta)
        return RuleOptions(self.promise_mode, delta)

    def can_promise(self, sample: Sample, groups: int) -> bool:
        """Return whether this number of rows is enough if groups share the level.

        Only the number of rows decides. For FRR and TRR it is the number of correct
        rows or of errors, which their rules condition on; else that of all rows.
        """
        # The scores must not choose which groups share the level (see `cut_groups`).
        options = self._rule_options(self.delta / groups)
        about_all = [target for target in self.targets if target.rests_on == "all"]
        cuts = (
            target.rule.cut(
                _ideal_sample(sample, target), self.tested_values[target.name], options
            )
            for target in about_all or self.targets
        )
        return not any(cut.too_few_rows for cut in cuts)


def requested_targets(
    target: Mapping[str, TargetValue] | None, **named: TargetValue
) -> dict[str, Any]:
    """Return the targets that were requested: by keyword, or by name in a dict.

    Examples
    --------
    >>> requested_targets({"joint": 0.01}, risk=0.05, frr=None)
    {'risk': 0.05, 'joint': 0.01}
    """
    requested = {name: value for name, value in named.items() if value is not None}
    by_name = {} if target is None else target
    if not isinstance(by_name, Mapping) or set(requested) & set(by_name):
        message = (
            "expected target as a dict of targets that no other option names, such as "
            f"{{'share': 0.5}}, got {by_name!r}. Name each target once."
        )
        raise InputError(message)
    for name in by_name:
        find_target(name)
    return {**requested, **by_name}


def make_requests(
    *,
    mode: Mode | None = None,
    confidence: float = 0.9,
    label_noise: float = 0.0,
    **target: Any,
) -> list[Request]:
    """Return a request for each candidate value of a target, the strictest first.

    Examples
    --------
    >>> [request.target for request in make_requests(risk=[0.05, 0.01])]
    [{'risk': 0.01}, {'risk': 0.05}]
    >>> [request.target for request in make_requests(risk=0.05, coverage=0.5)]
    [{'risk': 0.05, 'coverage': 0.5}]
    """
    requested = {name: value for name, value in target.items() if value is not None}
    candidates = _candidate_targets(requested)
    return [
        Request(
            candidate,
            mode,
            confidence,
            label_noise,
            len(candidates),
        )
        for candidate in candidates
    ]


def _candidate_targets(target: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one target per value that was fixed in advance, the strictest first."""
    lists = [n for n, value in target.items() if isinstance(value, (list, tuple))]
    if not lists:
        return [target]
    name, values = lists[0], list(target[lists[0]])
    if len(target) > 1 or name not in TARGETS or not TARGETS[name].promised:
        message = (
            "several values are for a single target out of risk, joint, frr, trr and "
            f"coverage; got {' and '.join(target)}. Give one value each."
        )
        raise InputError(message)
    checked = {TARGETS[name].check(value) for value in values}
    if len(values) < 2 or len(checked) < len(values):
        message = (
            f"expected two or more different values of {name}, got {values!r}. Give "
            "a single value as it is."
        )
        raise InputError(message)
    strictest_first = sorted(checked, reverse=TARGETS[name].at_least)
    return [{name: value} for value in strictest_first]


def choose_request(sample: Sample, requests: list[Request]) -> Request:
    """Return the strictest request that the rows allow, or the last if none is."""
    if len(requests) == 1 or (requests[0].needs_labels and not sample.labelled):
        return requests[0]
    allowed = (request for request in requests if not request.cut_all(sample).failed)
    return next(allowed, requests[-1])


def needs_labels(target: dict[str, Any]) -> bool:
    """Return whether a requested target needs labels; a value of None requests none."""
    requested = [name for name, value in target.items() if value is not None]
    return any(TARGETS[name].needs_labels for name in requested if name in TARGETS)


def _ideal_sample(sample: Sample, target: Target) -> Sample:
    """Return as many rows of the kind that a target rests on, in perfect order."""
    n_errors = sample.n_errors if sample.labelled else 0
    sizes = {"all": len(sample), "correct": len(sample) - n_errors, "errors": n_errors}
    size = min(max(1, sizes[target.rests_on]), IDEAL_ROWS)
    errors = np.full(size, target.rests_on == "errors")
    return Rows(np.arange(float(size)), errors if sample.labelled else None)
