"""What a reader should know or check of the rows behind an evaluation."""

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation.suspect_rows import count_labels, repeats, suspected_rows
from trustdoctor.evaluation.suspicions import LabelCounts
from trustdoctor.metrics import Estimate
from trustdoctor.predictions import Answers, Intake, Predictions

BEYOND = (
    "Confidences go beyond 0 to 1, so how far they can be taken at their word is not "
    "measured. Give --percent if they are percentages."
)


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
        *_beyond(labelled),
        *counts.warnings(predictions.class_names, rows),
        *repeats(ids=predictions.ids, features=predictions.features),
    )


def kept_rows(predictions: Predictions) -> Array | None:
    """Return the rows that have a label; None where all have."""
    return None if predictions.known.all() else np.flatnonzero(predictions.known)


def _beyond(predictions: Predictions) -> tuple[str, ...]:
    """Say that confidences are not probabilities, where they are not."""
    if not isinstance(predictions, Answers) or predictions.given != "confidence":
        return ()
    return (BEYOND,) if predictions.confidence is None else ()


def reversed_scores(scores: dict[str, dict[str, Estimate]]) -> tuple[str, ...]:
    """Say that errors are less doubtful than correct rows, where that is clear."""
    name, area = next((n, found["auroc"]) for n, found in scores.items())
    if area.high is None or area.high >= 0.5:
        return ()
    how = "Check the labels."
    if name in ("confidence", "doubt"):
        how = (
            "Check which way the numbers go. If they are the probability of one class, "
            "give --probs NAME --positive LABEL."
        )
    return (f"Errors are less doubtful by {name} than correct answers are. {how}",)
