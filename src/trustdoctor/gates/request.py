"""What is asked of a calibration, checked: targets, confidence, mode and method."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import as_real, shown_number
from trustdoctor.errors import InputError
from trustdoctor.gates.pairs import (
    both_cut,
    is_pair,
    pair_delta,
    pair_rule,
    pair_words,
)
from trustdoctor.gates.rules import Cut, Mode
from trustdoctor.gates.sample import Rows, Sample
from trustdoctor.gates.targets import TARGETS, Target, Terms, find_target

IDEAL_ROWS = 100_000
"""Rows of an ideal sample, at most: where these are too few, no number is enough."""

MIN_COVERAGE = 0.3
"""The coverage where the main sequence of the risk rule starts, by default."""


@dataclass(frozen=True)
class Request:
    """What is asked of a calibration.

    Attributes
    ----------
    target : dict of str to float
        One target and its value, or two that go together.
    mode, method, confidence, min_coverage, label_noise
        As in `calibrate`.
    candidates : int
        Values fixed in advance, of which this is one; they share the level.
    """

    target: dict[str, float]
    mode: Mode | None = None
    method: str | None = None
    confidence: float = 0.9
    min_coverage: float = MIN_COVERAGE
    label_noise: float = 0.0
    candidates: int = 1

    def __post_init__(self) -> None:
        """Refuse what no rule gives."""
        self._check_target()
        self._check_mode()
        for target in self.targets:
            target.rule(self.method)
        self._check_numbers()

    def _check_target(self) -> None:
        for name in self.target:
            find_target(name)
        if len(self.target) != 1 and not is_pair(self.target):
            got = ", ".join(self.target) or "none"
            message = (
                f"expected one target out of {', '.join(TARGETS)}, or two: "
                f"{pair_words()}; got {got}."
            )
            raise InputError(message)
        checked = {n: find_target(n).check(value) for n, value in self.target.items()}
        object.__setattr__(self, "target", checked)

    def _check_mode(self) -> None:
        if self.mode not in (None, "confidence", "expectation"):
            message = f"expected mode 'confidence' or 'expectation', got {self.mode!r}."
            raise InputError(message)
        name = next(iter(self.target))
        if self.mode is not None and not self.promised:
            message = f"{name} carries no promise: leave mode out."
            raise InputError(message)
        if self.mode != "expectation":
            return
        if len(self.target) == 2:
            both = " and ".join(self.target)
            message = f"{both} together have no rule in expectation. Leave mode out."
            raise InputError(message)
        if not self.targets[0].in_expectation:
            message = (
                f"there is no rule for {name} in expectation. Use mode='confidence'."
            )
            raise InputError(message)
        if self.candidates > 1:
            message = (
                "several values share the confidence, and mode='expectation' has none. "
                "Give one value, or leave mode out."
            )
            raise InputError(message)

    def _check_numbers(self) -> None:
        for name in ("confidence", "min_coverage"):
            value = getattr(self, name)
            number = as_real(value, name)
            object.__setattr__(self, name, number)
            if not 0 < number < 1:
                message = f"expected {name} between 0 and 1, got {shown_number(value)}."
                raise InputError(message)
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
        """The targets that are asked for."""
        return [TARGETS[name] for name in self.target]

    @property
    def needs_labels(self) -> bool:
        """Whether one of the targets is about rows that are right or wrong."""
        return any(target.needs_labels for target in self.targets)

    @property
    def promised(self) -> bool:
        """Whether all of the targets carry a promise."""
        return all(target.promised for target in self.targets)

    @property
    def rule_words(self) -> str:
        """How the threshold is found, in one sentence."""
        if len(self.target) == 2:
            return pair_rule(self.targets)
        return self.targets[0].rule(self.method).words

    @property
    def promise_mode(self) -> Mode:
        """The mode, "confidence" where none was named."""
        return self.mode or "confidence"

    @property
    def delta(self) -> float:
        """The probability with which the promise may be broken.

        Candidates share it (Bonferroni), so all promises that pass hold together and
        the choice among them may rest on the same rows.
        """
        return (1 - self.confidence) / self.candidates

    @property
    def tested_values(self) -> dict[str, float]:
        """The values that are tested on labels of which a share `label_noise` is wrong.

        Of the errors that are accepted, labels call at least 1 - noise errors. So where
        the rate of errors is above r, that of errors by their labels is above
        (1 - noise) r, whatever else the wrong labels do.
        """
        return {
            name: value * (1 - self.label_noise)
            if TARGETS[name].scaled_by_noise
            else value
            for name, value in self.target.items()
        }

    def cut_all(self, sample: Sample) -> Cut:
        """Find the cut on all rows together, at the request's own delta."""
        return self.cut(sample, self.delta)

    def cut(self, sample: Sample, delta: float) -> Cut:
        """Find the cut of the target's rule, broken with probability delta at most."""
        is_two = len(self.target) == 2
        rule_delta = pair_delta(self.target, delta) if is_two else delta
        terms = Terms(self.promise_mode, rule_delta, self.min_coverage)
        cuts = {
            name: TARGETS[name].rule(self.method).cut(sample, value, terms)
            for name, value in self.tested_values.items()
        }
        return both_cut(sample, cuts) if is_two else next(iter(cuts.values()))

    def can_promise(self, sample: Sample, groups: int) -> bool:
        """Tell whether this number of rows can carry a promise that groups share.

        Only the number of rows decides, not their scores, which must not choose who
        shares the level. For FRR and TRR it is the number of correct rows or of errors,
        which their rules condition on; else that of all rows.
        """
        delta = self.delta / groups
        if len(self.target) == 2:
            delta = pair_delta(self.target, delta)
        terms = Terms(self.promise_mode, delta, self.min_coverage)
        about_all = [target for target in self.targets if target.rests_on == "all"]
        return not any(
            target.rule(self.method)
            .cut(_ideal_sample(sample, target), self.tested_values[target.name], terms)
            .short
            for target in about_all or self.targets
        )


def make_requests(
    *,
    mode: Mode | None = None,
    method: str | None = None,
    confidence: float = 0.9,
    min_coverage: float = MIN_COVERAGE,
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
    named = {name: value for name, value in target.items() if value is not None}
    candidates = _candidate_targets(named)
    return [
        Request(
            candidate,
            mode,
            method,
            confidence,
            min_coverage,
            label_noise,
            len(candidates),
        )
        for candidate in candidates
    ]


def _candidate_targets(target: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a target's values that were fixed in advance, the strictest first."""
    listed = [n for n, value in target.items() if isinstance(value, (list, tuple))]
    if not listed:
        return [target]
    (name, *others), values = listed, list(target[listed[0]])
    if others or len(target) > 1 or name not in TARGETS or not TARGETS[name].promised:
        message = (
            "several values go with one target that is promised: risk, joint, frr, trr "
            f"or coverage, alone; got {' and '.join(target)}. Give one value each."
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
    """Return the strictest request that the rows allow; the last where none does."""
    if len(requests) == 1 or (requests[0].needs_labels and not sample.labelled):
        return requests[0]
    allowed = (request for request in requests if not request.cut_all(sample).failed)
    return next(allowed, requests[-1])


def needs_labels(target: dict[str, Any]) -> bool:
    """Tell whether one of the targets that are asked for needs labels."""
    names = [name for name, value in target.items() if value is not None]
    return any(TARGETS[name].needs_labels for name in names if name in TARGETS)


def _ideal_sample(sample: Sample, target: Target) -> Sample:
    """Return as many rows of the kind that a target rests on, with the best scores."""
    n_errors = sample.n_errors if sample.labelled else 0
    sizes = {"all": len(sample), "correct": len(sample) - n_errors, "errors": n_errors}
    size = min(max(1, sizes[target.rests_on]), IDEAL_ROWS)
    errors = np.full(size, target.rests_on == "errors")
    return Rows(np.arange(float(size)), errors if sample.labelled else None)
