"""What a reader should know or check of the rows behind an evaluation."""

import math

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation.suspect_rows import count_labels, repeats, suspected_rows
from trustdoctor.evaluation.suspicions import LabelCounts
from trustdoctor.metrics import Estimate
from trustdoctor.predictions import Answers, Intake, Predictions

Ends = tuple[float, float]
"""The lowest and the highest of some numbers; (inf, -inf) of none."""


def cautions(predictions: Predictions, doubts: dict[str, Array]) -> tuple[str, ...]:
    """Say what is odd about rows and labels; `doubts` are of those with a label."""
    labelled, kept = predictions.labelled("an evaluation"), kept_rows(predictions)
    counts = LabelCounts()
    count_labels(counts, labelled, doubts)
    rows = [suspected_rows(labelled, pair) for pair in counts.pairs()]
    if kept is not None:
        rows = [kept[own] for own in rows]
    return (
        *Intake.of(predictions).lines(),
        *say_beyond(confidence_ends(labelled)),
        *counts.warnings(predictions.class_names, rows),
        *repeats(ids=predictions.ids, features=predictions.features),
    )


def kept_rows(predictions: Predictions) -> Array | None:
    """Return the rows that have a label; None where all have."""
    return None if predictions.known.all() else np.flatnonzero(predictions.known)


def confidence_ends(predictions: Predictions) -> Ends:
    """Return the lowest and the highest confidence that answers came with."""
    if not isinstance(predictions, Answers) or predictions.given != "confidence":
        return math.inf, -math.inf
    # A doubt of inf marks an ambiguous answer, whatever its confidence.
    finite = -predictions.doubts[np.isfinite(predictions.doubts)]
    return (
        float(finite.min(initial=math.inf)),
        float(finite.max(initial=-math.inf)),
    )


def say_beyond(ends: Ends) -> tuple[str, ...]:
    """Say that confidences are not probabilities, where they are not.

    Examples
    --------
    >>> say_beyond((0.1, 0.9))
    ()
    >>> say_beyond((-1.25, 3.5))[0][:57]
    'Confidences go from -1.25 to 3.5: they are not probabilit'
    """
    low, high = ends
    if not low <= high or (low >= 0 and high <= 1):
        return ()
    how = " Give --percent if they are percentages." if 0 <= low < high <= 100 else ""
    return (
        f"Confidences go from {low:.4g} to {high:.4g}: they are not probabilities, so "
        f"how far they can be taken at their word is not measured.{how}",
    )


def reversed_scores(
    scores: dict[str, dict[str, Estimate]], *, probable: bool
) -> tuple[str, ...]:
    """Say that errors are less doubtful than correct rows, where that is clear.

    Parameters
    ----------
    scores : dict of str to dict of str to Estimate
        As in `Evaluation.scores`.
    probable : bool
        Whether a confidence can be a probability.
    """
    name, area = next((n, found["auroc"]) for n, found in scores.items())
    if area.high is None or area.high >= 0.5:
        return ()
    how = "Check the labels."
    if name in ("confidence", "doubt"):
        how = "Check which way the numbers go."
        if probable:
            how += (
                " If they are the probability of one class, give --probs NAME "
                "--positive LABEL."
            )
    return (f"Errors are less doubtful by {name} than correct answers are. {how}",)
