"""What score="auto" does: some rows tune the score, and others calibrate it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import as_groups
from trustdoctor.errors import InputError
from trustdoctor.gates.calibration import calibrate, fixed_values
from trustdoctor.gates.certifying import with_notes
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.targets import TARGETS
from trustdoctor.metrics import (
    Ranking,
    auroc_difference,
    frr_difference,
    frr_parts,
)
from trustdoctor.predictions import (
    Predictions,
    TopK,
    refuse_decisions,
    require_predictions,
)
from trustdoctor.scores import (
    BASELINE,
    Score,
    available_scores,
    find_score,
)
from trustdoctor.tuning import TUNED_FOR, Tuned

SHARE = 1 / 3
"""How many of the labelled rows choose; the others set the threshold."""

MOST = 2000
"""Rows that choose, at most: more would add little, and calibration wants them."""

SEED = 0
"""Of the permutation that parts them."""

CONFIDENCE = 0.95
USUAL_TRR = 0.95


@dataclass(frozen=True, eq=False)
class Auto:
    """A score that some rows chose, and the others, to calibrate it on.

    Attributes
    ----------
    score : Score
        Tuned; softmax response where nothing stood out.
    why : str
        What was chosen, and by which rows; empty where there was one score alone.
    chosen, rest : integer arrays
        The rows that chose, and the rows that are left to calibrate on.
    predictions : Predictions
        All rows.
    """

    score: Score
    why: str
    chosen: NDArray[np.int64]
    rest: NDArray[np.int64]
    predictions: Predictions

    def calibrate(self, **options: Any) -> Gate:
        """Calibrate on the rows that chose nothing; options as in `calibrate`.

        Groups that are given as an array are those of all rows, these and the others.
        """
        groups = options.get("groups")
        if groups is not None and not isinstance(groups, str):
            every = as_groups(groups, rows=len(self.predictions))
            options["groups"] = every[self.rest]
        rows = self.predictions[self.rest]
        if not len(self.chosen):
            gate = calibrate(rows, score=self.score, **options)
            only = f"These rows allow one score, {self.score.name}: none was chosen."
            return with_notes(gate, only)
        gate = calibrate(rows, score=self.score, **options)
        assert gate.certificate is not None
        notes = [f"{self.why} {gate.certificate.n:,} other rows set the threshold."]
        notes += self._gain(gate, rows, gate.certificate.target.get("trr"))
        return with_notes(gate, *notes)

    def _gain(self, gate: Gate, rows: Predictions, trr: float | None) -> list[str]:
        """Say what the score gained on rows that did not choose it."""
        if self.score.name == BASELINE:
            return []
        rows = rows.labelled("judging a score")
        if trr is None and gate.state == "threshold" and not gate.groups:
            doubts = np.asarray(self.score(rows))
            trr = float((doubts[rows.errors] > gate.threshold).mean())
        at = trr if trr is not None and 0 < trr < 1 else USUAL_TRR
        gain = describe_gain(self.score, rows, float(at))
        if gain and not gain.clear:
            every = f"{len(self.predictions):,}"
            return [f"{gain.words} That is no clear gain: msp would have all {every}."]
        return [gain.words] if gain else []


def choose_auto(
    predictions: Predictions | TopK, *, temperature: float = 1.0, **options: Any
) -> Auto:
    """Tune a score to the target among the options, on a third of the labelled rows.

    The rows that choose are a random part, the same at every run, of 2,000 at most.
    Where there is one score alone no row chooses.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(600, 3)) * 3
    >>> labels = np.where(rng.random(600) < 0.8, logits.argmax(1), 0)
    >>> found = choose_auto(Predictions.from_logits(logits, labels), frr=0.1)
    >>> len(found.chosen), len(found.rest)
    (200, 400)
    """
    require_predictions(predictions)
    assert isinstance(predictions, Predictions)
    refuse_decisions(predictions, "score 'auto'")
    options = {name: value for name, value in options.items() if value is not None}
    scores = available_scores(predictions)
    if len(scores) == 1:  # there is nothing to choose
        score = find_score(scores[0], temperature=temperature)
        none, every = np.zeros(0, np.int64), np.arange(len(predictions))
        return Auto(score, "", none, every, predictions)
    _check(temperature, options)
    predictions.labelled("choosing a score")  # says where there are no labels
    rows = np.flatnonzero(predictions.has_label)
    order = rows[np.random.default_rng(SEED).permutation(len(rows))]
    chosen, others = np.split(order, [min(MOST, int(SHARE * len(order)))])
    rest = np.append(others, np.flatnonzero(~predictions.has_label))
    found = _tuned(predictions[chosen], options)
    score = found.only_member or found
    return Auto(score, found.verdict(), chosen, rest, predictions)


def _check(temperature: float, options: dict[str, Any]) -> None:
    if "threshold" in options:
        message = (
            "score 'auto' chooses a score, and a threshold belongs to one. Name it, as "
            "score='alpha'."
        )
        raise InputError(message)
    if temperature != 1:
        message = (
            f"score 'auto' chooses temperatures itself, got {temperature!r}. Leave it "
            "out, or name a score."
        )
        raise InputError(message)


def _tuned(rows: Predictions, options: dict[str, Any]) -> Tuned:
    # Of several values the strictest: which of them will pass is not known yet.
    asked = fixed_values({name: options[name] for name in TARGETS if name in options})[
        0
    ]
    for name, value in asked.items():
        TARGETS[name].check(value)
    known = {name: value for name, value in asked.items() if name in TUNED_FOR}
    try:
        return Tuned.fit(rows, for_=known or None)
    except InputError as error:
        message = (
            f"score 'auto' chooses on {SHARE:.0%} of the rows, here {len(rows):,}: "
            f"{error}"
        )
        raise InputError(message) from error


class Gain(NamedTuple):
    """How a score compares with softmax response, and whether it is clearly better."""

    words: str
    clear: bool


def describe_gain(score: Score, rows: Predictions, trr: float) -> Gain | None:
    """Compare a score with softmax response on labelled rows that did not choose it.

    None for rows of one kind. The threshold has no part in a ranking, so the rows that
    set it can tell.
    """
    wrong = rows.errors
    if wrong.all() or not wrong.any():
        return None
    own, base = (
        Ranking(s(rows), wrong, s.rounding) for s in (score, find_score(BASELINE))
    )
    gain = auroc_difference(own, base, confidence=CONFIDENCE)
    first, second = (
        frr_parts(one, trr=trr, confidence=CONFIDENCE) for one in (own, base)
    )
    change = frr_difference(first, second, wrong)
    words = (
        f"On {len(wrong):,} rows that did not choose it, against {BASELINE}: AUROC "
        f"{gain.percent(sign=True)}, FRR@{trr * 100:.3g}TRR "
        f"{change.percent(sign=True)} points."
    )
    return Gain(words, (gain.low or 0) > 0 or (change.high or 0) < 0)
