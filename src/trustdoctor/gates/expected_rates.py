"""Calibration without labels: as if the model's own probabilities were true."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import classes_of
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.outcome import Outcome
from trustdoctor.gates.request import TargetValue, requested_targets
from trustdoctor.gates.rules import cut_accepting, threshold_of
from trustdoctor.gates.sample import Rows
from trustdoctor.gates.targets import TARGETS, ExpectedCounts, Target, find_target
from trustdoctor.metrics import matching_temperature, top_probability
from trustdoctor.predictions import (
    Answers,
    Predictions,
    refuse_decisions,
    require_predictions,
)
from trustdoctor.scores import Score, find_score


def calibrate_unlabelled(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    risk: float | None = None,
    frr: float | None = None,
    trr: float | None = None,
    joint: float | None = None,
    coverage: float | None = None,
    target: Mapping[str, TargetValue] | None = None,
    score: str | Score = "alpha",
    temperature: float = 1.0,
    accuracy: float | None = None,
) -> Gate:
    """Set a threshold without labels, as if the model's own probabilities were true.

    The expected errors among accepted rows are the sum of 1 - max p over them. There is
    no guarantee, and the certificate says so.

    Parameters
    ----------
    predictions : Predictions
    risk, frr, trr, joint, coverage : float
        One of them: a rate that the model expects of itself.
    target : dict, optional
        The same by name, for targets of your own.
    score, temperature
        The score that the gate uses.
    accuracy : float, optional
        A known accuracy: the probabilities are scaled by the temperature at which the
        mean confidence equals it.

    Examples
    --------
    >>> logits = np.random.default_rng(0).normal(size=(500, 3)) * 3
    >>> gate = calibrate_unlabelled(Predictions.from_logits(logits), risk=0.05)
    >>> gate.certificate.guarantee
    False
    """
    require_predictions(predictions)
    if isinstance(predictions, Answers):
        message = (
            "calibration without labels trusts the model's probabilities of classes, "
            "and answers have none. Pass correct, or ask for coverage."
        )
        raise InputError(message)
    refuse_decisions(predictions, "calibration without labels")
    target_entry, value = _single_target(
        requested_targets(
            target, risk=risk, frr=frr, trr=trr, joint=joint, coverage=coverage
        )
    )
    gate_score = find_score(score, temperature=temperature)
    doubts = np.asarray(gate_score(predictions))
    scale = 1.0 if accuracy is None else matching_temperature(predictions, accuracy)
    confidences = top_probability(predictions, temperature=scale)
    order = np.argsort(doubts, kind="stable")
    rows = Rows(doubts, rounding=gate_score.rounding)
    state, threshold = _expected_cut(rows, confidences[order], target_entry, value)
    gate = Gate(threshold, gate_score, state=state)
    outcome = Outcome.of(gate.accept(doubts))
    certificate = Certificate(
        target={target_entry.name: value},
        rule="The rates that the model's own probabilities expect set the threshold.",
        assumption=_assumption(None if accuracy is None else scale),
        mode="none",
        confidence=0.9,
        n=len(doubts),
        accepted=outcome.accepted,
        trivial=""
        if state == "threshold"
        else "the model expects this rate of all rows",
        fingerprint=rows.fingerprint,
        notes=("No labels were used.",),
    )
    return replace(gate, certificate=certificate, classes=classes_of(predictions))


def _single_target(target: dict[str, float]) -> tuple[Target, float]:
    """Return the requested target, whose rate the model must expect, and its value."""
    names = [name for name, entry in TARGETS.items() if entry.expected_to_hold]
    if len(target) != 1 or set(target) - set(names):
        message = (
            f"expected one target out of {', '.join(names)}, got "
            f"{', '.join(target) or 'none'}. The others need labels."
        )
        raise InputError(message)
    ((name, value),) = target.items()
    entry = find_target(name)
    return entry, entry.check(value)


def _assumption(matching: float | None) -> str:
    """Say that the probabilities, at the matching temperature, are taken as true."""
    clause = ""
    if matching is not None:
        clause = f", at temperature {matching:.4g} to match the accuracy,"
    return f"The model's probabilities{clause} are true, which nobody checked."


def _expected_cut(
    rows: Rows, confidences: Array, target: Target, value: float
) -> tuple[Any, float]:
    """Return state and threshold; `confidences` are in the order of the scores."""
    # A threshold accepts all rows of a tied score or none, so only the sums up to the
    # last row of each group count. Without errors, all rows count as correct.
    accepted = np.cumsum(rows.counts.correct)
    last_accepted = accepted - 1
    expected = ExpectedCounts(
        accepted=1.0 * accepted,
        correct=np.cumsum(confidences)[last_accepted],
        errors=np.cumsum(1 - confidences)[last_accepted],
        rows=len(rows),
    )
    assert target.expected_to_hold is not None
    passing = np.flatnonzero(target.expected_to_hold(expected, value))
    if not len(passing):
        return "reject-all", -np.inf
    group = passing[0] if target.safe_side == "accept" else passing[-1]
    if group == len(accepted) - 1:
        return "accept-all", np.inf
    return "threshold", threshold_of(cut_accepting(rows, int(accepted[group])), rows)
