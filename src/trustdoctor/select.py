"""Choosing score and temperature on some rows, to calibrate on others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.calibrate import calibrate, fingerprint
from trustdoctor.certificate import Certificate
from trustdoctor.curves import Array
from trustdoctor.errors import InputError
from trustdoctor.gate import Gate
from trustdoctor.intervals import clopper_pearson
from trustdoctor.metrics import auroc
from trustdoctor.predictions import Predictions
from trustdoctor.rules import Rows, exact
from trustdoctor.scores import SCORES, beta, find_score


@dataclass(frozen=True, eq=False)
class Selection:
    """What `select` chose.

    Attributes
    ----------
    score, temperature
        The pair with the largest AUROC on the choosing rows.
    table : dict of (score, temperature) to float
        AUROC of every pair on the choosing rows, best chosen: optimistic.
    chosen, rest : integer arrays
        The rows that chose, and the rows that are left to calibrate on.
    """

    score: str
    temperature: float
    table: dict[tuple[str, float], float]
    chosen: NDArray[np.int64]
    rest: NDArray[np.int64]
    predictions: Predictions

    def calibrate(self, **options: Any) -> Gate:
        """Calibrate on the rows that chose nothing; options as in `calibrate`."""
        p, rows = self.predictions, self.rest
        scores = find_score(self.score).function(
            p.logits[rows], temperature=self.temperature
        )
        gate = calibrate(
            scores,
            p.errors[rows],
            score=self.score,
            temperature=self.temperature,
            **options,
        )
        assert gate.certificate is not None
        note = (
            f"{len(self.chosen):,} rows chose {self.score} at temperature "
            f"{self.temperature:g} among {len(self.table)} candidates; {len(rows):,} "
            "other rows set the threshold."
        )
        notes = (*gate.certificate.notes, note)
        return replace(gate, certificate=replace(gate.certificate, notes=notes))


def select(
    predictions: Predictions,
    *,
    scores: Sequence[str] = ("alpha", "msp"),
    temperatures: Sequence[float] = (1.0,),
    share: float = 0.5,
    seed: int = 0,
) -> Selection:
    """Choose score and temperature by AUROC on a share of the rows, permuted.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(400, 3)) * 3
    >>> labels = np.where(rng.random(400) < 0.8, logits.argmax(1), 0)
    >>> p = Predictions.from_logits(logits, labels)
    >>> found = select(p, scores=["alpha", "msp"])
    >>> len(found.chosen), len(found.rest)
    (200, 200)
    """
    if not (scores and temperatures and 0 < share < 1):
        message = "expected scores, temperatures and a share between 0 and 1."
        raise InputError(message)
    wrong = predictions.errors
    order = np.random.default_rng(seed).permutation(len(wrong))
    chosen, rest = np.split(order, [int(share * len(order))])
    part = Predictions(predictions.logits[chosen], None, predictions.from_probabilities)
    table = {
        (find_score(name).name, float(t)): auroc(
            SCORES[name](part, temperature=t), wrong[chosen]
        )
        for name in scores
        for t in temperatures
    }
    score, temperature = max(table, key=lambda pair: table[pair])
    return Selection(score, temperature, table, chosen, rest, predictions)


def calibrate_unlabelled(  # noqa: PLR0913 - options, by keyword only
    logits: Any,
    *,
    frr: float | None = None,
    trr: float | None = None,
    risk: float | None = None,
    coverage: float | None = None,
    score: str = "alpha",
    temperature: float = 1.0,
    accuracy: float | None = None,
) -> Gate:
    """Set a threshold without labels, as if the model's own probabilities were true.

    There is no guarantee, and the certificate says so.

    Parameters
    ----------
    logits : array (n, C), or Predictions
    frr, trr, risk, coverage : float
        One target, on the rates that the model expects of itself.
    score, temperature
        The score that the gate uses.
    accuracy : float, optional
        A known accuracy; the probabilities are taken at the temperature at which their
        mean confidence is that.

    Examples
    --------
    >>> logits = np.random.default_rng(0).normal(size=(500, 3)) * 3
    >>> calibrate_unlabelled(logits, risk=0.05).certificate.guarantee
    False
    """
    asked = {"frr": frr, "trr": trr, "risk": risk, "coverage": coverage}
    target = {k: float(v) for k, v in asked.items() if v is not None}
    if len(target) != 1 or not all(0 < v < 1 for v in target.values()):
        message = (
            f"expected one target between 0 and 1 out of {', '.join(asked)}, got "
            f"{target or 'none'}."
        )
        raise InputError(message)
    p = logits if isinstance(logits, Predictions) else Predictions.from_logits(logits)
    scores = find_score(score)(p, temperature=temperature)
    matched = 1.0 if accuracy is None else _matching_temperature(p.logits, accuracy)
    right = _confidence(p.logits, matched)
    order = np.argsort(scores, kind="stable")
    state, threshold = _expected_cut(scores[order], right[order], target)
    certificate = Certificate(
        target=target,
        rule="The rates that the model's own probabilities expect set the threshold.",
        assumption=(
            "The model's probabilities"
            + (
                f", at temperature {matched:.4g} to match the accuracy,"
                if accuracy
                else ""
            )
            + " are true, which nobody checked."
        ),
        mode="none",
        confidence=0.0,
        n=len(scores),
        trivial="" if state == "threshold" else "the model expects so of every row",
        fingerprint=fingerprint(Rows(scores)),
        notes=("No labels were used.",),
    )
    gate = Gate(threshold, score, temperature, state)
    kept = int(gate.accept(scores).sum())
    seen = (kept / len(scores), *clopper_pearson(kept, len(scores)))
    return replace(gate, certificate=replace(certificate, observed={"coverage": seen}))


def _expected_cut(scores: Array, right: Array, target: dict[str, float]) -> Any:
    """Return state and threshold for scores in ascending order."""
    ((name, value),) = target.items()
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], [True]))
    accepted = ends + 1.0
    hits, faults = np.cumsum(right)[ends], np.cumsum(1 - right)[ends]
    if name == "coverage":
        good = accepted >= float(exact(value)) * len(scores)
    elif name == "frr":
        good = hits >= (1 - value) * hits[-1]
    elif name == "trr":
        good = faults <= (1 - value) * faults[-1]
    else:
        good = faults <= value * accepted
    least = name in ("coverage", "frr")
    passing = np.flatnonzero(good)
    if not len(passing):
        return "reject-all", -np.inf
    at = passing[0] if least else passing[-1]
    if at == len(ends) - 1:
        return "accept-all", np.inf
    low, high = float(scores[ends[at]]), float(scores[ends[at] + 1])
    return "threshold", low + (high - low) / 2 if np.isfinite(low) else low


def _confidence(logits: Array, temperature: float) -> Array:
    doubt = beta(logits, temperature=temperature)
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(doubt.astype(np.float64))))


def _matching_temperature(logits: Array, accuracy: float) -> float:
    """Return the temperature at which the mean confidence is the accuracy."""
    least = 1 / logits.shape[1]
    if not least < accuracy < 1:
        message = f"expected accuracy between {least:.3g} and 1, got {accuracy!r}."
        raise InputError(message)
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        if _confidence(logits, middle).mean() > accuracy:
            low = middle
        else:
            high = middle
    found = float(np.sqrt(low * high))
    if abs(_confidence(logits, found).mean() - accuracy) > 1e-3:
        message = f"no temperature makes the mean confidence {accuracy!r}."
        raise InputError(message)
    return found
