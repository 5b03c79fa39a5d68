"""A threshold without labels, as if the model's own probabilities were true."""

from dataclasses import replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates.certificate import Certificate
from trustdoctor.gates.classes import classes_of
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.outcome import Outcome
from trustdoctor.gates.rules import accepting, place
from trustdoctor.gates.sample import Rows
from trustdoctor.gates.targets import TARGETS, Expected, Target, find_target
from trustdoctor.metrics import matching_temperature, top_probability
from trustdoctor.predictions import (
    Answers,
    Predictions,
    refuse_decisions,
    require_predictions,
)
from trustdoctor.scores import Score, find_score


def calibrate_unlabelled(
    predictions: Predictions,
    *,
    score: str | Score = "alpha",
    temperature: float = 1.0,
    accuracy: float | None = None,
    **target: float | None,
) -> Gate:
    """Set a threshold without labels, as if the model's own probabilities were true.

    There is no guarantee, and the certificate says so.

    Parameters
    ----------
    predictions : Predictions
    score, temperature
        The score that the gate uses.
    accuracy : float, optional
        A known accuracy; the probabilities are taken at the temperature at which their
        mean confidence is that.
    target
        frr, trr, risk, joint or coverage, on the rates that the model expects of
        itself.

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
    one, value = _asked({k: v for k, v in target.items() if v is not None})
    ready = find_score(score, temperature=temperature)
    scores = np.asarray(ready(predictions))
    matched = 1.0 if accuracy is None else matching_temperature(predictions, accuracy)
    right = top_probability(predictions, temperature=matched)
    order = np.argsort(scores, kind="stable")
    rows = Rows(scores, rounding=ready.rounding)
    state, threshold = _expected_cut(rows, right[order], one, value)
    gate = Gate(threshold, ready, state=state)  # type: ignore[arg-type]
    seen = Outcome.of(gate.accept(scores))
    certificate = Certificate(
        target={one.name: value},
        rule="The rates that the model's own probabilities expect set the threshold.",
        assumption=_assumption(matched, known=accuracy is not None),
        mode="none",
        confidence=0.9,
        n=len(scores),
        observed=dict(seen.rates(confidence=0.9)),
        trivial="" if state == "threshold" else "the model expects so of every row",
        fingerprint=rows.fingerprint,
        notes=("No labels were used.",),
    )
    return replace(gate, certificate=certificate, classes=classes_of(predictions))


def _asked(target: dict[str, float]) -> tuple[Target, float]:
    """Return the one target that is asked for, and its value."""
    able = [name for name, one in TARGETS.items() if one.expected is not None]
    if len(target) != 1 or set(target) - set(able):
        message = (
            f"expected one target out of {', '.join(able)}, got "
            f"{', '.join(target) or 'none'}. The others need labels."
        )
        raise InputError(message)
    ((name, value),) = target.items()
    one = find_target(name)
    return one, one.check(value)


def _assumption(matched: float, *, known: bool) -> str:
    at = f", at temperature {matched:.4g} to match the accuracy," if known else ""
    return f"The model's probabilities{at} are true, which nobody checked."


def _expected_cut(
    rows: Rows, right: Array, target: Target, value: float
) -> tuple[Any, float]:
    """Return state and threshold; how probable rows are right is in their order."""
    accepted = np.cumsum(rows.counts.correct)
    ends = accepted - 1
    correct, errors = np.cumsum(right)[ends], np.cumsum(1 - right)[ends]
    expected = Expected(1.0 * accepted, correct, errors, len(rows))
    assert target.expected is not None
    passing = np.flatnonzero(target.expected(expected, value))
    if not len(passing):
        return "reject-all", -np.inf
    at = passing[0] if target.safe == "accept" else passing[-1]
    if at == len(ends) - 1:
        return "accept-all", np.inf
    return "threshold", place(accepting(rows, int(accepted[at])), rows)
