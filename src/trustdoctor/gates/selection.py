"""Choosing score and temperature on some rows, to calibrate on others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_groups
from trustdoctor.errors import InputError
from trustdoctor.gates.calibration import calibrate
from trustdoctor.gates.certifying import with_notes
from trustdoctor.gates.gate import Gate
from trustdoctor.metrics import auroc
from trustdoctor.predictions import Predictions, require_predictions
from trustdoctor.scores import find_score


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

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(400, 3)) * 3
    >>> labels = np.where(rng.random(400) < 0.8, logits.argmax(1), 0)
    >>> found = select(Predictions.from_logits(logits, labels), scores=["alpha"])
    >>> found.calibrate(frr=0.1).score
    'alpha'
    """

    score: str
    temperature: float
    table: dict[tuple[str, float], float]
    chosen: NDArray[np.int64]
    rest: NDArray[np.int64]
    predictions: Predictions

    def calibrate(self, **options: Any) -> Gate:
        """Calibrate on the rows that chose nothing; options as in `calibrate`.

        Groups that are given as an array are those of all rows, these and the others.
        """
        if options.get("clusters") is not None:
            message = (
                "rows of one cluster must not both choose and calibrate. Give clusters "
                "to calibrate(predictions, score='auto', clusters=...)."
            )
            raise InputError(message)
        groups = options.get("groups")
        if groups is not None and not isinstance(groups, str):
            every = as_groups(groups, rows=len(self.chosen) + len(self.rest))
            options["groups"] = every[self.rest]
        gate = calibrate(
            self.predictions[self.rest],
            score=self.score,
            temperature=self.temperature,
            **options,
        )
        assert gate.certificate is not None
        note = (
            f"{len(self.chosen):,} rows chose {self.score} at temperature "
            f"{self.temperature:g} among {len(self.table)} candidates; "
            f"{gate.certificate.n:,} other rows set the threshold."
        )
        return with_notes(gate, note)


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
    listed = scores and not isinstance(scores, str)
    if not (listed and temperatures and 0 < share < 1):
        message = "expected a list of scores, temperatures and a share between 0 and 1."
        raise InputError(message)
    require_predictions(predictions)
    chosen, rest = _parted(predictions, share, seed)
    part = predictions[chosen]
    table = {
        (name, float(t)): auroc(find_score(name, temperature=t)(part), part.errors)
        for name in scores
        for t in temperatures
    }
    score, temperature = max(table, key=lambda pair: table[pair])
    return Selection(score, temperature, table, chosen, rest, predictions)


def _parted(predictions: Predictions, share: float, seed: int) -> tuple[Any, Any]:
    """Return a random share of the rows that have a label, and all other rows."""
    known = predictions.labelled("choosing a score").known
    rows = np.flatnonzero(predictions.known)
    order = rows[np.random.default_rng(seed).permutation(len(known))]
    chosen, rest = np.split(order, [int(share * len(order))])
    return chosen, np.append(rest, np.flatnonzero(~predictions.known))
