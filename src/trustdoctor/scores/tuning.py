"""The search of `tune`: which scores of a family rank the errors of some rows best.

Each score is compared with softmax response on the same rows: by AUROC, or by the part
of the ROC curve where a gate will work. What counts is its gain less a share of the
gain's standard error: a bold score has to gain more than one that hardly differs.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_real, shown_number
from trustdoctor.errors import InputError
from trustdoctor.kernels import check_temperature, place, sort
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import LogitScore
from trustdoctor.scores.registry import find_logit_score

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
"""What `tune` tries: one pass of the model each."""

LEAST = 10
"""Errors, and correct rows, that are enough to choose by."""

CLEAR = 1e-4
"""A smaller gain is none: rounding alone may make it."""

CAUTION = {"auroc": 0.5, "part": 1.0}
"""Standard errors that are taken off a gain; a part of a curve is seen less well."""

AROUND = 0.2
"""How far on either side of a promised TRR the ROC curve counts."""

FEWEST = 5
"""Rows of the kind that a part of a curve is made of; with fewer the whole is used."""

TUNED_FOR = ("risk", "trr", "joint", "cost", "frr", "coverage")
"""What scores can be chosen for; the first that is named counts."""


def find_member(name: str) -> LogitScore:
    """Return a score of the family, a temperature in its name included.

    Examples
    --------
    >>> find_member("alpha:temperature=2").temperature
    2.0
    """
    plain, tempered, warm = name.partition(":temperature=")
    score = find_logit_score(plain)
    if not tempered:
        return score
    try:
        temperature = float(warm)
    except ValueError:
        message = f"expected a temperature as in {plain}:temperature=2, got {name!r}."
        raise InputError(message) from None
    check_temperature(temperature)
    return score.with_temperature(temperature)


def score_family(predictions: Predictions) -> dict[str, Array]:
    """Return the doubts of the family, as far as these predictions have it."""
    met = {"probs"} if predictions.from_probabilities else {"probs", "logits"}
    found = {name: find_member(name) for name in FAMILY}
    return {n: score(predictions) for n, score in found.items() if score.needs <= met}


@dataclass(frozen=True)
class Part:
    """The part of a ROC curve that scores are compared on.

    Attributes
    ----------
    side : str
        "errors": FRR over TRRs from `low` to `high`. "correct": TRR over such FRRs.
        "all": AUROC.
    """

    side: str = "all"
    low: float = 0.0
    high: float = 1.0

    @property
    def caution(self) -> float:
        """Standard errors to take off a gain."""
        return CAUTION["auroc" if self.side == "all" else "part"]


def find_part(base: Array, wrong: Array, target: Mapping[str, float] | None) -> Part:
    """Return the part of the curve where a gate for a target works, by the base score.

    Examples
    --------
    >>> wrong = np.arange(100) >= 90
    >>> find_part(np.arange(100.0), wrong, {"frr": 0.1})
    Part(side='correct', low=0.0, high=0.2)
    """
    if target is None:
        return Part()
    name = _check_target(target)
    value = float(target[name])
    n, errors = len(wrong), int(wrong.sum())
    k, taken = _accepted(base, wrong)
    if name in ("frr", "coverage"):
        at = np.argmax(k >= _count(value, n))
        kept = k[at] - taken[at]
        frr = value if name == "frr" else 1 - kept / (n - errors)
        part = Part("correct", 0.0, min(1.0, 2 * frr))
        return part if part.high * (n - errors) >= FEWEST else Part()
    if name == "cost":
        let = taken[np.argmin(value * taken + (n - k))]
    else:
        most = {"risk": value * k, "joint": np.full(len(k), value * n)}
        fits = taken <= most.get(name, (1 - value) * errors)
        let = taken[np.flatnonzero(fits)[-1]]
    trr = value if name == "trr" else 1 - let / errors
    part = Part("errors", max(0.0, trr - AROUND), min(1.0, trr + AROUND))
    whole = trr == 0 or (part.high - part.low) * errors < FEWEST
    return Part() if whole else part


def _accepted(base: Array, wrong: Array) -> tuple[Array, Array]:
    """Return how many rows each threshold accepts, and errors among them."""
    order = np.argsort(base, kind="stable")
    ranked = base[order]
    last = np.append(ranked[1:] > ranked[:-1], True)  # ties stay together
    k = np.append(0, np.flatnonzero(last) + 1)
    return k, np.append(0, np.cumsum(wrong[order]))[k]


def _check_target(target: Any) -> str:
    """Return the name of the target that counts, all of them checked."""
    if not (isinstance(target, Mapping) and target and {*target} <= {*TUNED_FOR}):
        message = (
            f"expected for_ out of {', '.join(TUNED_FOR)}, as for_=dict(trr=0.95), got "
            f"{target!r}."
        )
        raise InputError(message)
    for name, value in target.items():
        most = math.inf if name == "cost" else 1
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and 0 < as_real(value, name) < most):
            where = "above 0" if name == "cost" else "between 0 and 1"
            message = f"expected {name} {where}, got {shown_number(value)}."
            raise InputError(message)
    return next(name for name in TUNED_FOR if name in target)


@dataclass(frozen=True)
class _Value:
    """How well a score ranks, and what its errors and correct rows contribute."""

    value: float
    of_errors: Array
    of_correct: Array


def _value(doubts: Array, wrong: Array, part: Part) -> _Value:
    """Return AUROC, or the mean of the curve over a part of it: larger is better."""
    if part.side == "correct":  # the curve seen from the other side
        part = Part("errors", 1 - part.high, 1 - part.low)
        turned = _value(-doubts, ~wrong, part)
        return _Value(turned.value, turned.of_correct, turned.of_errors)
    errors, correct = doubts[wrong], doubts[~wrong]
    ranked = sort(errors.copy())
    if part.side == "errors":
        low = math.floor(_count(1 - part.high, len(ranked)))
        high = max(low + 1, math.ceil(_count(1 - part.low, len(ranked))))
        errors = ranked = ranked[low:high]
    above = _shares(errors, sort(correct.copy()))
    return _Value(float(above.mean()), above, 1 - _shares(correct, ranked))


def _count(share: float, n: int) -> float:
    """Return so many of n rows, 2 where 0.2 of 10 came out as 1.9999999999999996."""
    return round(share * n, 9)


def _shares(own: Array, others: Array) -> Array:
    """Return the share of the others, sorted, that is below each, ties half."""
    rank = np.argsort(own, kind="stable")
    out = np.empty(len(own))
    below, through = place(own[rank], others)
    out[rank] = (below + through) / (2 * len(others))
    return out


def lower_gains(
    doubts: Iterable[Array], wrong: Array, base: Array, part: Part
) -> Array:
    """Return each score's gain over softmax response, less what caution takes off.

    Parameters
    ----------
    doubts : arrays (n,)
    wrong : bool array (n,)
    base : array (n,)
        Softmax response.
    part : Part
    """
    plain, gains = _value(base, wrong, part), []
    for own in doubts:
        found = _value(own, wrong, part)
        spread = sum(
            float((a - b).var()) / len(a)
            for a, b in (
                (found.of_errors, plain.of_errors),
                (found.of_correct, plain.of_correct),
            )
        )
        gains.append(found.value - plain.value - part.caution * math.sqrt(spread))
    return np.array(gains)


def check_rows(wrong: Array) -> None:
    """Refuse rows that are too few to choose by."""
    errors, correct = int(wrong.sum()), int((~wrong).sum())
    if min(errors, correct) < LEAST:
        message = (
            f"choosing a score needs {LEAST} errors and {LEAST} correct rows, got "
            f"{errors} and {correct}. Name a score, as alpha, or give it more rows."
        )
        raise InputError(message)
