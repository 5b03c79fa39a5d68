"""What a cascade costs, against each model alone, on rows that did not list it."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import OddLabelsWarning
from trustdoctor.gates import calibrate_scores
from trustdoctor.metrics import Estimate, normal_quantile
from trustdoctor.opinion.cascade import Cascade
from trustdoctor.opinion.measured import Alone, Measured
from trustdoctor.opinion.policies import (
    KINDS,
    Counted,
    Heard,
    accepts,
    count_all,
    list_thresholds,
)
from trustdoctor.predictions import Predictions

SHOWN = 1500
"""Policies that are kept for the picture, at most."""

LEVEL = 0.95
"""Of the intervals of costs."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """What is asked of a cascade, checked.

    Attributes
    ----------
    target : str
    value : float
    costs : tuple of float
    confidence : float
    share : float
    seed : int
    """

    target: str
    value: float
    costs: tuple[float, ...]
    confidence: float
    share: float
    seed: int


def _mean(values: Array) -> Estimate:
    """Return the mean of a cost, with its interval."""
    mean, n = float(values.mean()), len(values)
    half = normal_quantile(LEVEL) * float(values.std()) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half)


def spent_and_accepted(
    heard: Heard, cascade: Cascade
) -> tuple[Array, NDArray[np.bool_]]:
    """Return what each row costs, and which are accepted."""
    n = len(heard)
    spent, still = np.zeros(n), np.ones(n, bool)
    for k in cascade.asked:
        spent[still] += cascade.costs[k]
        still &= ~accepts(heard.doubts[:, k], cascade.thresholds[k])
    spent[still] += cascade.costs[-1]
    return spent, ~still


@dataclass(frozen=True, eq=False)
class Model:
    """A model by itself: its doubts and errors, and what its own gate does."""

    name: str
    cost: float
    doubts: Array
    wrong: Array
    accepted: Array


def each_alone(
    every: list[Predictions], bare: Cascade, wanted: Wanted, rows: Array, test: Array
) -> list[Model]:
    """Calibrate each model by itself for the same promise, on all rows."""
    out = []
    for k, said in enumerate(every):
        doubts = np.asarray(bare.scorer(said), np.float64)
        wrong = said.errors
        asked: dict[str, Any] = {wanted.target: wanted.value}
        asked["confidence"] = wanted.confidence
        with warnings.catch_warnings():  # the cascade itself has warned of the labels
            warnings.simplefilter("ignore", OddLabelsWarning)
            gate = calibrate_scores(doubts[rows], wrong[rows], **asked)
        kept = np.asarray(gate.accept(doubts[test]))
        own = bare.stages[k], wanted.costs[k]
        out.append(Model(*own, doubts[test], wrong[test], kept))
    return out


def measure_cascade(  # noqa: PLR0913 - what is measured, and on what
    cascade: Cascade,
    heard: Heard,
    choose: Array,
    test: Array,
    tested: Counted,
    passed: int,
    wanted: Wanted,
    alone: list[Model],
) -> Measured:
    """Say what policies cost on the rows that tested, and each model alone."""
    target, rows, person = wanted.target, heard[test], wanted.costs[-1]
    spent, accepted = spent_and_accepted(rows, cascade)
    own = tested[np.array([passed - 1])]
    rate, going = float(own.rate(target)[0]), float((~accepted).mean())
    grid = list_thresholds(heard[choose])
    return Measured(
        target,
        KINDS[target].limit(wanted.value),
        len(test),
        len(choose),
        Alone("cascade", _mean(spent), rate, going),
        tuple(_compared(model, spent, target, person) for model in alone),
        tuple((own.asked[0] / len(test)).tolist()),
        _cloud(count_all(rows, wanted.costs, grid), target, wanted),
        _points(tested.rate(target), tested.cost),
        passed,
        {model.name: _curve(model, target, person) for model in alone},
    )


def _compared(model: Model, spent: Array, target: str, person: float) -> Alone:
    """Say what a model alone does, and what it costs more than the cascade."""
    cost = model.cost + person * ~model.accepted
    rate = _rate(model.accepted, model.wrong, target)
    going = float((~model.accepted).mean())
    return Alone(model.name, _mean(cost), rate, going, _mean(cost - spent))


def _rate(accepted: Array, wrong: Array, target: str) -> float:
    """Return the rate that the target bounds, of decisions on a model alone."""
    wholes = {"accepted": accepted.sum(), "rows": len(wrong), "errors": wrong.sum()}
    whole = int(wholes[KINDS[target].whole])
    return float((accepted & wrong).sum() / max(1, whole))


def _cloud(counted: Counted, target: str, wanted: Wanted) -> Array:
    """Return rate and cost of some policies, near enough to be of interest."""
    rate = counted.rate(target)
    limit = KINDS[target].limit(wanted.value)
    near = np.flatnonzero((rate <= 3 * limit) & (counted.accepted > 0))
    if len(near) > SHOWN:
        near = np.random.default_rng(wanted.seed).choice(near, SHOWN, replace=False)
    return _points(rate[near], counted.cost[near])


def _curve(model: Model, target: str, person: float) -> Array:
    """Return rate and cost of a model alone, at a hundred thresholds."""
    at = np.quantile(model.doubts, np.linspace(0.01, 1, 100), method="lower")
    points = []
    for threshold in np.unique(at):
        kept = model.doubts <= threshold
        cost = model.cost + person * float((~kept).mean())
        points.append((_rate(kept, model.wrong, target), cost))
    return _points(*np.array(points).T)


def _points(rate: Array, cost: Array) -> Array:
    """Return points of a picture, in six digits as its file has them."""
    pairs = zip(rate.tolist(), cost.tolist(), strict=True)
    return np.array([[float(f"{x:.6g}") for x in pair] for pair in pairs])
