"""Rows on their way through a cascade, and what was decided on them."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.opinion.policies import accepts
from trustdoctor.opinion.stages import Stages
from trustdoctor.predictions import Predictions

if TYPE_CHECKING:
    from trustdoctor.opinion.cascade import Cascade

PERSON = "a person"
"""The last stage, which every cascade has."""


class Cascaded(NamedTuple):
    """What a cascade decided on each row.

    Attributes
    ----------
    scores : array (n,)
        The doubts where the rows stopped.
    accepted : bool array (n,)
        Whether a model's answer is accepted; the others go on.
    predicted : array (n,)
        The label where the row stopped.
    passes : integer array (n,)
        How many models were asked about each row.
    costs : array (n,)
        What each row costs: of all models that were asked, and of a person where all
        were asked and doubt.
    goes_to : array (n,) of str
        The stage that a row goes to next; "" where it is accepted.
    predictions : Predictions
        What the models said where the rows stopped, together or alone.
    ids : array (n,), or None
    shortlist : bool array (n, C), or None
        For rows that go to a person, where the cascade has lists.
    """

    scores: Array
    accepted: NDArray[np.bool_]
    predicted: Array
    passes: NDArray[np.int64]
    costs: Array
    goes_to: NDArray[Any]
    predictions: Predictions
    ids: Array | None = None
    shortlist: NDArray[np.bool_] | None = None


class Way:
    """How far rows have come, and what was decided on them."""

    def __init__(self, cascade: "Cascade", taken: Stages, asked: list[int]) -> None:
        n = taken.rows
        self.cascade, self.taken, self.asked = cascade, taken, asked
        self.scores, self.accepted = np.zeros(n), np.zeros(n, bool)
        self.predicted, self.passes = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.spent = np.zeros(n)
        self.total: Array | None = None
        self.logits: Array = np.zeros((n, 0))
        self.probabilities = False

    def settle(self, i: int, still: Array, said: Predictions) -> Array:
        """Take what the i-th stage asked said of rows; return which stop there."""
        self._require_classes(said)
        k = self.asked[i]
        total = None if self.total is None else self.total[still]
        answer, total = self.cascade.answer(k, said, total)
        if not i:
            self.logits = np.array(answer.logits, np.float64)
            self.total = total
        else:
            self.logits[still] = answer.logits
            if self.total is not None:
                self.total[still] = total
        self.probabilities |= answer.from_probabilities
        doubts = np.asarray(self.cascade.scorer(answer), np.float64)
        stop = accepts(doubts, self.cascade.thresholds[k])
        self.scores[still], self.accepted[still] = doubts, stop
        self.predicted[still] = answer.predicted
        self.passes[still] += 1
        self.spent[still] += self.cascade.costs[k]
        return stop

    def _require_classes(self, said: Predictions) -> None:
        own = self.cascade.classes
        size = own if isinstance(own, int) or own is None else len(own)
        if size not in (None, said.n_classes):
            message = (
                f"expected {size} classes, as in the cascade's calibration, got "
                f"{said.n_classes}. Calibrate it on rows like these."
            )
            raise InputError(message)
        if isinstance(own, tuple) and said.class_names is not None:
            strange = sorted(set(said.class_names) - set(own))
            if strange:
                message = (
                    f"expected the classes of the cascade's calibration, got "
                    f"{strange[0]!r}. Calibrate it on rows like these."
                )
                raise InputError(message)

    def done(self) -> Cascaded:
        """Return what was decided."""
        cascade = self.cascade
        later = [cascade.stages[k] for k in cascade.asked if k > self.asked[-1]]
        goes_to = np.where(self.accepted, "", (later or [PERSON])[0]).astype(object)
        person = np.asarray(goes_to == PERSON)
        costs = self.spent + np.where(person, cascade.costs[-1], 0.0)
        names = self.taken.names_now
        said = Predictions(self.logits, self.taken.labels, self.probabilities)
        said = replace(said, class_names=names, ids=self.taken.ids)
        lists = None
        if cascade.shortlist is not None:
            lists = cascade.shortlist.rejected_sets(said, ~person)
        return Cascaded(
            self.scores,
            self.accepted,
            self.predicted,
            self.passes,
            costs,
            goes_to,
            said,
            self.taken.ids,
            lists,
        )
