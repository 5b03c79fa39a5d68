"""Asking models in turn, only about rows still in doubt, and the run of a cascade."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.gates import Decisions
from trustdoctor.opinion.policies import accepts
from trustdoctor.opinion.stages import Stages
from trustdoctor.predictions import Predictions

if TYPE_CHECKING:
    from trustdoctor.opinion.cascade import Cascade

MAX_LOGIT_GAP = 40.0
"""How far below the top a logit may be that stands for a probability of 0."""

PERSON = "a person"
"""The last stage, which every cascade has."""

Ask = Callable[[int, Array], Predictions]
"""From the number of the pass and some rows to the predictions for them."""

Settle = Callable[[int, Array, Predictions], Array]
"""From these and the predictions to the rows that need no further pass, as a mask."""


@dataclass(frozen=True, eq=False, repr=False)
class Cascaded(Decisions):
    """The decision of a cascade on each row.

    `doubts`, `predicted` and `accepted` are those where the row stopped; rows that are
    not accepted go on.

    Attributes
    ----------
    passes : integer array (n,)
        The number of models that were asked about each row.
    costs : array (n,)
        The cost of each row: of all models that were asked, and of a person if they
        all doubt.
    goes_to : array (n,) of str
        The stage that a row goes to next; "" if it is accepted.
    predictions : Predictions
        The answers, combined or a model's own, where the rows stopped.
    """

    _: KW_ONLY
    passes: NDArray[np.int64]
    costs: Array
    goes_to: NDArray[Any]
    predictions: Predictions

    def _columns(self) -> dict[str, Any]:
        return super()._columns() | {
            "asked": self.passes,
            "cost": self.costs,
            "goes_to": [stage or None for stage in self.goes_to.tolist()],
        }


class CascadeRun:
    """Rows on their way through a cascade, and the decisions so far."""

    def __init__(self, cascade: "Cascade", stages: Stages, asked: list[int]) -> None:
        n = stages.rows
        self.cascade, self.stages, self.asked = cascade, stages, asked
        self.scores, self.accepted = np.zeros(n), np.zeros(n, bool)
        self.predicted, self.passes = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.costs = np.zeros(n)
        self.log_prob_sums: Array | None = None
        self.logits: Array = np.zeros((n, 0))
        self.from_probabilities = False

    def settle(self, i: int, rows: Array, predictions: Predictions) -> Array:
        """Take predictions of the i-th asked stage; return which rows stop there."""
        self._require_classes(predictions)
        k = self.asked[i]
        sums = None if self.log_prob_sums is None else self.log_prob_sums[rows]
        answer, sums = self.cascade.answer(k, predictions, sums)
        if not i:
            self.logits = np.array(answer.logits, np.float64)
            self.log_prob_sums = sums
        else:
            self.logits[rows] = answer.logits
            if self.log_prob_sums is not None:
                self.log_prob_sums[rows] = sums
        self.from_probabilities |= answer.from_probabilities
        doubts = np.asarray(self.cascade.scorer(answer), np.float64)
        stops = accepts(doubts, self.cascade.thresholds[k])
        self.scores[rows], self.accepted[rows] = doubts, stops
        self.predicted[rows] = answer.predicted
        self.passes[rows] += 1
        self.costs[rows] += self.cascade.costs[k]
        return stops

    def _require_classes(self, predictions: Predictions) -> None:
        classes = self.cascade.classes
        count = classes if isinstance(classes, int | None) else len(classes)
        if count not in (None, predictions.n_classes):
            message = (
                f"expected {count} classes, as in the cascade's calibration, got "
                f"{predictions.n_classes}. Calibrate it on rows like these."
            )
            raise InputError(message)
        if isinstance(classes, tuple) and predictions.class_names is not None:
            unknown = sorted(set(predictions.class_names) - set(classes))
            if unknown:
                message = (
                    f"expected the classes of the cascade's calibration, got "
                    f"{unknown[0]!r}. Calibrate it on rows like these."
                )
                raise InputError(message)

    def decisions(self) -> Cascaded:
        """Return the decisions after the last stage."""
        cascade = self.cascade
        later = [cascade.stages[k] for k in cascade.asked if k > self.asked[-1]]
        goes_to = np.where(self.accepted, "", (later or [PERSON])[0]).astype(object)
        to_person = np.asarray(goes_to == PERSON)
        costs = self.costs + np.where(to_person, cascade.costs[-1], 0.0)
        names, ids = self.stages.names_now, self.stages.ids
        answers = Predictions(self.logits, self.stages.labels, self.from_probabilities)
        answers = replace(answers, class_names=names, ids=ids)
        predicted: Array = self.predicted
        # Classes 0, 1, ... that a model declares remain the numbers that labels are.
        if names is not None and names != tuple(map(str, range(len(names)))):
            predicted = np.array(names, object)[predicted]
        shortlist = None
        if cascade.shortlist is not None:
            shortlist = cascade.shortlist.rejected_sets(answers, ~to_person)
        return Cascaded(
            self.scores,
            self.accepted,
            predicted,
            passes=self.passes,
            costs=costs,
            goes_to=goes_to,
            predictions=answers,
            ids=ids,
            shortlist=shortlist,
        )


def ask_lazily(rows: int, passes: int, ask: Ask, settle: Settle) -> None:
    """Ask pass after pass, each about the rows that no earlier pass has settled.

    If a row's answers do not depend on the rows beside it, the decisions are those of
    asking about all rows in every pass.
    """
    unsettled = np.arange(rows)
    for k in range(passes):
        if not len(unsettled):
            return
        settled = settle(k, unsettled, ask(k, unsettled))
        unsettled = unsettled[~settled]


def finite_logits(predictions: Predictions) -> Array:
    """Return logits that can be averaged: none more than MAX_LOGIT_GAP below the top.

    The limit holds for probabilities, and for logits of -inf.
    """
    # The logarithm of a probability of 0 is -inf, and would settle a row by one answer
    # alone, whatever the others say.
    logits = predictions.logits.astype(np.float64)
    top = logits.max(1, keepdims=True)
    gap = MAX_LOGIT_GAP if predictions.from_probabilities else np.inf
    logits = np.where(np.isneginf(logits), top - MAX_LOGIT_GAP, logits)
    return np.maximum(logits, top - gap)


def log_probs(predictions: Predictions) -> Array:
    """Return the logarithms of probabilities that can be averaged, (n, C)."""
    from scipy import special

    # In C order, so that the memory layout of the logits cannot change the last bit
    # of a sum over classes.
    logits = np.ascontiguousarray(finite_logits(predictions))
    return np.asarray(special.log_softmax(logits, axis=1))
