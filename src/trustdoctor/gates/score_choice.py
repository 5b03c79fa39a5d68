"""What score="auto" does: some rows tune the score, and the others calibrate it.

Rows that chose the score are not exchangeable with rows to come: its doubts separate
their errors better. So they have no part in the threshold (sample splitting).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import InputError
from trustdoctor.gates.gate import Gate
from trustdoctor.gates.request import Request
from trustdoctor.metrics import (
    Ranking,
    auroc_difference,
    frr_difference,
    paired_frr,
)
from trustdoctor.predictions import (
    Predictions,
    refuse_decisions,
    require_all_classes,
    require_predictions,
)
from trustdoctor.scores import (
    BASELINE,
    Score,
    available_scores,
    find_score,
)
from trustdoctor.tuning import TUNED_FOR, Tuned

AUTO = "auto"
"""The name that stands for the score that some of the rows choose."""

CHOOSING_SHARE = 1 / 3
"""The share of the labelled rows that choose; the others set the threshold."""

MOST_CHOOSING = 2000
"""Rows that choose, at most: more add little, and calibration needs them."""

SEED = 0
"""Of the permutation that splits them."""

GAIN_CONFIDENCE = 0.95
DEFAULT_TRR = 0.95
"""Where the gain in FRR is stated if the target does not name a TRR."""


@dataclass(frozen=True, eq=False)
class ScoreChoice:
    """A score that some rows chose, and the other rows, to calibrate it on.

    Attributes
    ----------
    score : Score
        The tuned score, or softmax response if nothing was better.
    verdict : str
        What was chosen, and by which rows; empty if there was only one score.
    choosing_rows, calibrating_rows : integer arrays
        The rows that chose, and the rows that are left to calibrate on.
    """

    score: Score
    verdict: str
    choosing_rows: NDArray[np.int64]
    calibrating_rows: NDArray[np.int64]

    def notes(self, gate: Gate, predictions: Predictions) -> list[str]:
        """Say what was chosen, and what it gained on the rows that calibrated the gate.

        `predictions` are those rows, which had no part in the choice.
        """
        if not len(self.choosing_rows):
            return [f"These rows allow one score, {self.score.name}: none was chosen."]
        certificate = gate.certificate
        assert certificate is not None
        notes = [f"{self.verdict} {certificate.n:,} other rows set the threshold."]
        if self.score.name == BASELINE:
            return notes
        rows = predictions.labelled("judging a score")
        trr = certificate.target.get("trr")
        if trr is None and gate.state == "threshold" and not gate.groups:
            doubts = np.asarray(self.score(rows))
            trr = float((doubts[rows.errors] > gate.threshold).mean())
        if trr is None or not 0 < trr < 1:
            trr = DEFAULT_TRR
        gain = gain_over_baseline(self.score, rows, trr)
        if gain is None:
            return notes
        if gain.is_clear:
            return [*notes, gain.words]
        total = f"{len(self.choosing_rows) + len(self.calibrating_rows):,}"
        unclear = f"{gain.words} That is no clear gain: msp would have all {total}."
        return [*notes, unclear]


def choose_score(
    predictions: Predictions, request: Request, *, temperature: float = 1.0
) -> ScoreChoice:
    """Tune a score to the request's target, on a third of the labelled rows.

    The rows that choose are drawn at random, the same in every run, 2,000 at most. If
    there is only one score, no row chooses. If there are several candidate values,
    `request` is for the strictest: which of them passes is not known yet.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(600, 3)) * 3
    >>> labels = np.where(rng.random(600) < 0.8, logits.argmax(1), 0)
    >>> p = Predictions.from_logits(logits, labels)
    >>> choice = choose_score(p, Request({"frr": 0.1}))
    >>> len(choice.choosing_rows), len(choice.calibrating_rows)
    (200, 400)
    """
    require_predictions(predictions)
    refuse_decisions(predictions, "score 'auto'")
    scores = available_scores(predictions)
    if len(scores) == 1:  # there is nothing to choose
        score = find_score(scores[0], temperature=temperature)
        return ScoreChoice(
            score, "", np.zeros(0, np.int64), np.arange(len(predictions))
        )
    require_all_classes(predictions, "score 'auto'")
    _check_choice(temperature, request)
    predictions.labelled("choosing a score")  # refuses rows without any label
    labelled = np.flatnonzero(predictions.has_label)
    order = labelled[np.random.default_rng(SEED).permutation(len(labelled))]
    n_choosing = min(MOST_CHOOSING, int(CHOOSING_SHARE * len(order)))
    choosing, calibrating = np.split(order, [n_choosing])
    tuned = _tuned_score(predictions[choosing], request)
    return ScoreChoice(
        tuned.only_member or tuned,
        tuned.verdict(),
        choosing,
        np.append(calibrating, np.flatnonzero(~predictions.has_label)),
    )


def _check_choice(temperature: float, request: Request) -> None:
    if "threshold" in request.target:
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


def _tuned_score(rows: Predictions, request: Request) -> Tuned:
    tuned_for = {n: value for n, value in request.target.items() if n in TUNED_FOR}
    try:
        return Tuned.fit(rows, target=tuned_for or None)
    except InputError as error:
        message = (
            f"score 'auto' chooses on {CHOOSING_SHARE:.0%} of the rows, here "
            f"{len(rows):,}: {error}"
        )
        raise InputError(message) from error


class Gain(NamedTuple):
    """A comparison with softmax response, and whether the score is clearly better."""

    words: str
    is_clear: bool


def gain_over_baseline(score: Score, rows: Predictions, trr: float) -> Gain | None:
    """Compare a score with softmax response on labelled rows that did not choose it.

    With paired intervals: of AUROC by DeLong et al. (1988), of FRR at `trr` by Newcombe
    (1998). None if all rows are right, or all wrong.
    """
    # The threshold has no part in a ranking, so the rows that set it may judge.
    errors = rows.errors
    if errors.all() or not errors.any():
        return None
    ranking, baseline = (
        Ranking(s(rows), errors, s.rounding) for s in (score, find_score(BASELINE))
    )
    auroc_gain = auroc_difference(ranking, baseline, confidence=GAIN_CONFIDENCE)
    frr, baseline_frr = (
        paired_frr(r, trr=trr, confidence=GAIN_CONFIDENCE) for r in (ranking, baseline)
    )
    frr_change = frr_difference(frr, baseline_frr, errors)
    words = (
        f"On {len(errors):,} rows that did not choose it, against {BASELINE}: AUROC "
        f"{auroc_gain.percent(sign=True)}, FRR@{trr * 100:.3g}TRR "
        f"{frr_change.percent(sign=True)} points."
    )
    return Gain(words, (auroc_gain.low or 0) > 0 or (frr_change.high or 0) < 0)
