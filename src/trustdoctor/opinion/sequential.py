"""Margins at which views stop being asked, and the gate on the one score they make."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates import TARGETS, Gate, Margins, calibrate_scores
from trustdoctor.predictions import Opinions

LEVEL = 0.002
"""Share of the rows on one side that margins let stop early on the other."""


def calibrate_opinions(
    found: Opinions,
    views: Sequence[str],
    *,
    share: float = 0.25,
    level: float = LEVEL,
    seed: int = 0,
    **target: Any,
) -> Gate:
    """Learn margins on a share of the rows, and set the threshold on the others."""
    errors = found.predictions.errors
    _check(share, level, seed, target, len(errors))
    order = np.random.default_rng(seed).permutation(len(errors))
    size = min(max(1, round(share * len(order))), len(order) - 1)
    learn, rest = np.split(order, [size])
    provisional = _provisional(found.scores[learn], errors[learn], target)
    also = _spare(errors, learn, target)
    margins = learn_margins(found.doubts[also], provisional, tuple(views), level=level)
    scores = margins.sequential(found.doubts[rest])
    gate = calibrate_scores(scores, errors[rest], **target)
    certificate = gate.certificate
    assert certificate is not None
    note = (
        f"{len(also):,} rows on which the promise does not rest learned the margins at "
        f"which views stop being asked; rates that are not promised were seen on them, "
        f"too. Views: {', '.join(views)}."
    )
    certificate = replace(certificate, notes=(*certificate.notes, note))
    return replace(gate, margins=margins, certificate=certificate)


def _check(
    share: Any, level: Any, seed: Any, target: dict[str, Any], rows: int
) -> None:
    """Refuse options that no second opinion can be calibrated with."""
    real = all(isinstance(value, (int, float)) for value in (share, level))
    if not (real and 0 < share < 1 and 0 <= level < 0.5):
        message = (
            f"expected a share between 0 and 1 and a level below 0.5, got {share!r} "
            f"and {level!r}."
        )
        raise InputError(message)
    for name in ("score", "temperature", "groups", "grouped_by"):
        if name in target:
            message = f"{name} has no meaning for a second opinion. Leave it out."
            raise InputError(message)
    if not (type(seed) is int and seed >= 0) or rows < 2:
        message = f"expected two rows or more and a seed of 0 or more, got {seed!r}."
        raise InputError(message)


def _provisional(scores: Array, errors: Array, target: dict[str, Any]) -> Gate:
    """Guess the threshold, without the caution that few rows would ask for."""
    asked = [one for name, one in TARGETS.items() if name in target]
    loose = len(asked) == 1 and asked[0].promised and asked[0].in_expectation
    mode = {"mode": "expectation"} if loose else {}
    return calibrate_scores(scores, errors, **(target | mode))


def _spare(errors: Array, learn: Array, target: dict[str, Any]) -> Array:
    """Return the rows that may learn margins: those that do not set the threshold.

    A threshold for TRR rests on errors alone, so every correct row is spare, and the
    other way round for FRR.
    """
    rests = {TARGETS[name].rests_on for name in target if name in TARGETS}
    spare = np.zeros(len(errors), bool)
    spare[learn] = True
    if rests == {"errors"}:
        spare |= ~errors
    elif rests == {"correct"}:
        spare |= errors
    return np.flatnonzero(spare)


def learn_margins(
    doubts: Array, gate: Gate, views: tuple[str, ...], *, level: float
) -> Margins:
    """Learn how far from the threshold a doubt is settled, from rows with all views.

    The margin for accepting after k passes is such that a share `level` of the rows
    that all views would reject lie below; for rejecting, the other way round.
    """
    rejected = ~gate.accept(doubts[:, -1])
    threshold = gate.threshold
    if gate.state != "threshold" or rejected.all() or not rejected.any():
        endless = (np.inf,) * len(views)
        return Margins(views, endless, endless)
    low = np.quantile(doubts[rejected][:, :-1], level, axis=0)
    high = np.quantile(doubts[~rejected][:, :-1], 1 - level, axis=0)
    accept = threshold - low
    reject = np.maximum(high - threshold, -accept)
    return Margins(views, tuple(map(float, accept)), tuple(map(float, reject)))
