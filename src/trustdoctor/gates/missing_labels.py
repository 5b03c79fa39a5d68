"""Rows without labels: calibration without any, and rows that a promise leaves out."""

import math
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
from trustdoctor.gates.sample import Rows, Sample, cdf
from trustdoctor.gates.targets import TARGETS, Expected, Target, find_target
from trustdoctor.metrics import matching_temperature, top_probability
from trustdoctor.predictions import (
    Answers,
    Predictions,
    refuse_decisions,
    require_predictions,
)
from trustdoctor.scores import Score, find_score

SAME_DOUBTS_LEVEL = 1e-3
"""Below this p-value a note says that rows with and without a label differ."""

# In simulations where only errors lost their labels, the test below noticed 58% of the
# gates that were calibrated on 3,000 rows and 5% of those on 300; most broke their
# promise. So the cause is named whether or not a difference shows.
MISSING_CAUSE = (
    "Whether a label is missing may depend on whether the prediction is right, which "
    "these rows cannot show: the promise then breaks without a sign. Draw the rows to "
    "label at random, for example by trustdoctor split FILE --part 500 -o to_label.csv "
    "rest.csv."
)


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
    expectation, value = _single_expectation(
        {name: value for name, value in target.items() if value is not None}
    )
    scorer = find_score(score, temperature=temperature)
    scores = np.asarray(scorer(predictions))
    matched = 1.0 if accuracy is None else matching_temperature(predictions, accuracy)
    confidences = top_probability(predictions, temperature=matched)
    order = np.argsort(scores, kind="stable")
    rows = Rows(scores, rounding=scorer.rounding)
    state, threshold = _expected_cut(rows, confidences[order], expectation, value)
    gate = Gate(threshold, scorer, state=state)
    outcome = Outcome.of(gate.accept(scores))
    certificate = Certificate(
        target={expectation.name: value},
        rule="The rates that the model's own probabilities expect set the threshold.",
        assumption=_assumption(matched, accuracy_given=accuracy is not None),
        mode="none",
        confidence=0.9,
        n=len(scores),
        accepted=outcome.accepted,
        trivial=""
        if state == "threshold"
        else "the model expects this rate of all rows",
        fingerprint=rows.fingerprint,
        notes=("No labels were used.",),
    )
    return replace(gate, certificate=certificate, classes=classes_of(predictions))


def _single_expectation(target: dict[str, float]) -> tuple[Target, float]:
    """Return the requested target, which must have an expected rate, and its value."""
    names = [name for name, entry in TARGETS.items() if entry.expected is not None]
    if len(target) != 1 or set(target) - set(names):
        message = (
            f"expected one target out of {', '.join(names)}, got "
            f"{', '.join(target) or 'none'}. The others need labels."
        )
        raise InputError(message)
    ((name, value),) = target.items()
    entry = find_target(name)
    return entry, entry.check(value)


def _assumption(matched: float, *, accuracy_given: bool) -> str:
    clause = (
        f", at temperature {matched:.4g} to match the accuracy,"
        if accuracy_given
        else ""
    )
    return f"The model's probabilities{clause} are true, which nobody checked."


def _expected_cut(
    rows: Rows, confidences: Array, target: Target, value: float
) -> tuple[Any, float]:
    """Return state and threshold; `confidences` are in the order of the scores."""
    accepted = np.cumsum(rows.counts.correct)
    last_accepted = accepted - 1
    correct = np.cumsum(confidences)[last_accepted]
    errors = np.cumsum(1 - confidences)[last_accepted]
    expected = Expected(1.0 * accepted, correct, errors, len(rows))
    assert target.expected is not None
    passing = np.flatnonzero(target.expected(expected, value))
    if not len(passing):
        return "reject-all", -np.inf
    group = passing[0] if target.safe == "accept" else passing[-1]
    if group == len(accepted) - 1:
        return "accept-all", np.inf
    return "threshold", place(accepting(rows, int(accepted[group])), rows)


def same_doubts_p_value(labelled: Sample, unlabelled: Sample) -> float:
    """Return the p-value of a two-sample Kolmogorov-Smirnov test on the doubts.

    With D the largest distance of the two distribution functions, it is
    P(K >= sqrt(m n / (m + n)) D), K having Kolmogorov's distribution.

    References
    ----------
    Smirnov, Table for Estimating the Goodness of Fit of Empirical Distributions, 1948.

    Examples
    --------
    >>> labelled, unlabelled = Rows(np.arange(150.0)), Rows(np.arange(150.0, 200.0))
    >>> same_doubts_p_value(labelled, unlabelled) < 1e-9
    True
    """
    from scipy.special import kolmogorov  # takes a moment to import

    # The asymptotic distribution is that of continuous scores; ties can only lower D
    # (Noether, Note on the Kolmogorov Statistic in the Discrete Case, 1963), so they
    # make the test conservative.
    thresholds = np.union1d(
        *(np.asarray(sample.counts.scores, float) for sample in (labelled, unlabelled))
    )
    distance = np.abs(cdf(labelled, thresholds) - cdf(unlabelled, thresholds)).max()
    m, n = len(labelled), len(unlabelled)
    effective_size = m * n / (m + n)
    return float(kolmogorov(math.sqrt(effective_size) * distance))


def missing_label_notes(labelled: Sample, unlabelled: Sample) -> tuple[str, ...]:
    """Say that labels are missing, and whether the doubts of those rows differ."""
    if not (len(labelled) and len(unlabelled)):
        return ()
    rows = "row has" if len(unlabelled) == 1 else "rows have"
    scope = (
        f"The promise is for rows like the labelled ones: {len(unlabelled):,} of "
        f"{len(labelled) + len(unlabelled):,} {rows} no label and had no part in it."
    )
    p = same_doubts_p_value(labelled, unlabelled)
    if p >= SAME_DOUBTS_LEVEL:
        return (scope, MISSING_CAUSE)
    return (
        scope,
        MISSING_CAUSE,
        f"Careful: rows without a label have other doubts (p = {p:.1g}), so labels "
        "were not drawn at random. Rows like those are not covered by the promise.",
    )
