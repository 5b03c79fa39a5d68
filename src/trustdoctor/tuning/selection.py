"""The search of `tune`: which scores of a family rank the errors of some rows best.

Each score is compared with softmax response on the same rows: by AUROC, or by the
section of the ROC curve where a gate will work. What counts is the gain less a multiple
of its standard error, so that a score that differs much from softmax response has to
gain more than one that hardly differs.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from trustdoctor.arrays import Array, as_real, shown_number
from trustdoctor.errors import InputError
from trustdoctor.metrics import Ranking
from trustdoctor.metrics.score_counts import exact_product
from trustdoctor.predictions import Predictions
from trustdoctor.scores import LogitScore, find_logit_score

FAMILY = (
    "alpha",
    *(f"alpha:temperature={t}" for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1.5, 2, 3)),
    *(f"beta:temperature={t}" for t in (0.3, 0.5, 0.7, 1.5, 2, 3)),
    "margin",
    "entropy",
    "gen",
    "max_logit",
    "energy",
    *(f"pnorm:p={p}" for p in (1, 1.5, 2, 3, 4, 5, 6)),
    *(f"normalised_margin:p={p}" for p in (2, 3, 4, 5)),
    *(
        f"normalised_alpha:p={p},t={t}"
        for p in (2, 3, 4, 5)
        for t in (0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
    ),
)
"""The candidates of `tune`. All are scores of the logits: one pass of the model."""

MIN_ROWS = 10
"""The least number of errors, and of correct predictions, to choose on."""

MIN_GAIN = 1e-4
"""A gain must be larger: rounding alone may make a smaller one."""

STANDARD_ERRORS = {"all": 0.5, "section": 1.0}
"""How many standard errors are subtracted from a gain in AUROC, or over a section.

A low bar, since a score that passes it by chance costs little (docs/tuning.md, where
there is nothing to find); higher over a section, which rests on fewer rows.
"""

TRR_MARGIN = 0.2
"""A section reaches this far below and above the promised TRR."""

MIN_SECTION_ROWS = 5
"""With fewer errors (or correct predictions) in a section, AUROC is used instead."""

TUNED_FOR = ("risk", "trr", "joint", "cost", "frr", "coverage")
"""Targets that a score can be chosen for; of several the first one counts."""


def candidates(predictions: Predictions) -> dict[str, LogitScore]:
    """Return the scores of the family that these predictions suffice for, by name."""
    available = {"probs"} if predictions.from_probabilities else {"probs", "logits"}
    family = {name: find_logit_score(name) for name in FAMILY}
    return {name: score for name, score in family.items() if score.needs <= available}


@dataclass(frozen=True)
class CurveSection:
    """The section of a ROC curve that scores are compared on.

    Attributes
    ----------
    axis : str
        "trr": the mean FRR over TRRs from `low` to `high`. "frr": the mean TRR over
        FRRs from `low` to `high`. "all": AUROC.
    low, high : float
    """

    axis: Literal["all", "trr", "frr"] = "all"
    low: float = 0.0
    high: float = 1.0

    @property
    def standard_errors(self) -> float:
        """How many standard errors to subtract from a gain."""
        return STANDARD_ERRORS["all" if self.axis == "all" else "section"]


def section_for(
    target: Mapping[str, float] | None, baseline: Array, errors: Array
) -> CurveSection:
    """Return the section where a gate for a target works, found by the baseline score.

    Examples
    --------
    >>> errors = np.arange(100) >= 90
    >>> section_for({"frr": 0.1}, np.arange(100.0), errors)
    CurveSection(axis='frr', low=0.0, high=0.2)
    """
    if target is None:
        return CurveSection()
    name = _check_target(target)
    value = float(target[name])
    counts = Ranking(baseline, errors).counts
    n, n_errors, n_correct = len(errors), int(counts.n_errors), int(counts.n_correct)
    # What each threshold accepts, from none to all.
    accepted_errors = np.append(0, np.cumsum(counts.errors))
    accepted_correct = np.append(0, np.cumsum(counts.correct))
    accepted = accepted_errors + accepted_correct
    if name in ("frr", "coverage"):
        frr = value
        if name == "coverage":
            threshold = np.argmax(accepted >= exact_product(value, np.asarray(n)))
            frr = float(1 - accepted_correct[threshold] / n_correct)
        section = CurveSection("frr", 0.0, min(1.0, 2 * frr))
        return (
            section if section.high * n_correct >= MIN_SECTION_ROWS else CurveSection()
        )
    trr = value
    if name == "cost":
        cost = value * accepted_errors + (n - accepted)
        trr = float(1 - accepted_errors[np.argmin(cost)] / n_errors)
    elif name in ("risk", "joint"):
        allowed_errors = value * (accepted if name == "risk" else n)
        threshold = np.flatnonzero(accepted_errors <= allowed_errors)[-1]
        trr = float(1 - accepted_errors[threshold] / n_errors)
    low, high = max(0.0, trr - TRR_MARGIN), min(1.0, trr + TRR_MARGIN)
    if trr == 0 or (high - low) * n_errors < MIN_SECTION_ROWS:
        return CurveSection()
    return CurveSection("trr", low, high)


def _check_target(target: Any) -> str:
    """Return the name of the target that counts; check all of them."""
    if not (isinstance(target, Mapping) and target and {*target} <= {*TUNED_FOR}):
        message = (
            f"expected a target out of {', '.join(TUNED_FOR)}, such as trr=0.95, got "
            f"{target!r}."
        )
        raise InputError(message)
    for name, value in target.items():
        highest = math.inf if name == "cost" else 1
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number and 0 < as_real(value, name) < highest):
            limits = "above 0" if name == "cost" else "between 0 and 1"
            message = f"expected {name} {limits}, got {shown_number(value)}."
            raise InputError(message)
    return next(name for name in TUNED_FOR if name in target)


@dataclass(frozen=True)
class SectionArea:
    """The mean of a ROC curve over a section: larger is better.

    Attributes
    ----------
    value : float
    error_placements, correct_placements : arrays
        What each error, and each correct prediction, contributes to it: DeLong's
        structural components.
    """

    value: float
    error_placements: Array
    correct_placements: Array


def section_area(doubts: Array, errors: Array, section: CurveSection) -> SectionArea:
    """Measure how well a score ranks rows over a section of the ROC curve."""
    if section.axis == "frr":
        # TRR over FRRs is FRR over TRRs of the reversed doubts, with errors and correct
        # predictions exchanged.
        turned = CurveSection("trr", 1 - section.high, 1 - section.low)
        area = section_area(-doubts, ~errors, turned)
        return SectionArea(area.value, area.correct_placements, area.error_placements)
    if section.axis == "trr":
        # The errors that thresholds with such TRRs part: those from rank
        # (1 - high) n to rank (1 - low) n.
        ranked = np.sort(doubts[errors])
        n_errors = np.asarray(len(ranked))
        first = math.floor(float(exact_product(1 - section.high, n_errors)))
        last = math.ceil(float(exact_product(1 - section.low, n_errors)))
        ranked = ranked[first : max(first + 1, last)]
        doubts = np.concatenate([ranked, doubts[~errors]])
        errors = np.arange(len(doubts)) < len(ranked)
    of_errors, of_correct = Ranking(doubts, errors).placements
    return SectionArea(float(of_errors.mean()), of_errors, of_correct)


def cautious_gains(
    doubts: Iterable[Array], baseline: Array, errors: Array, section: CurveSection
) -> Array:
    """Return each score's gain over the baseline, less some standard errors.

    Parameters
    ----------
    doubts : iterable of arrays (n,)
    baseline : array (n,)
        The doubts by softmax response.
    errors : bool array (n,)
    section : CurveSection

    References
    ----------
    DeLong, DeLong & Clarke-Pearson, Comparing the Areas under Two or More Correlated
    Receiver Operating Characteristic Curves, Biometrics 1988.
    """
    base, gains = section_area(baseline, errors, section), []
    for candidate in doubts:
        area = section_area(candidate, errors, section)
        # DeLong's variance of a difference: that of the differences of the placements,
        # which covers the correlation of two scores of the same rows.
        variance = sum(
            float(differences.var()) / len(differences)
            for differences in (
                area.error_placements - base.error_placements,
                area.correct_placements - base.correct_placements,
            )
        )
        gain = area.value - base.value
        gains.append(gain - section.standard_errors * math.sqrt(variance))
    return np.array(gains)


def check_rows(errors: Array) -> None:
    """Refuse rows that are too few to choose on."""
    n_errors, n_correct = int(errors.sum()), int((~errors).sum())
    if min(n_errors, n_correct) < MIN_ROWS:
        message = (
            f"choosing a score needs {MIN_ROWS} errors and {MIN_ROWS} correct rows, "
            f"got {n_errors} and {n_correct}. Name a score, as alpha, or give it more "
            "rows."
        )
        raise InputError(message)
