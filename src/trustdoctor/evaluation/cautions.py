"""What a reader should know or check of the rows behind an evaluation."""

import math

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation.suspect_rows import (
    LabelReport,
    check_labels,
    repeated_rows,
    repeats,
)
from trustdoctor.evaluation.suspicions import LEAST_ROWS
from trustdoctor.metrics import Counts, Estimate
from trustdoctor.metrics import counts as of_counts
from trustdoctor.predictions import Answers, Intake, Predictions

Ends = tuple[float, float]
"""The lowest and the highest of some numbers; (inf, -inf) of none."""


def cautions(predictions: Predictions, doubts: dict[str, Array]) -> LabelReport:
    """Say what is odd about labels, and what else to check of rows.

    `doubts` are of those with a label.
    """
    report = check_labels(predictions, doubts)
    notes = (
        *Intake.of(predictions).lines(),
        *say_beyond(confidence_ends(predictions.labelled("an evaluation"))),
        *report.notes,
        *repeats(ids=predictions.ids, features=predictions.features),
        *repeated_rows(predictions),
    )
    return LabelReport(report.odd, notes)


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
    return (_reversed(name, probable=probable),)


def _reversed(name: str, *, probable: bool = False) -> str:
    how = "Check the labels."
    if name in ("confidence", "doubt"):
        how = "Check which way the numbers go."
        if probable:
            how += (
                " If they are the probability of one class, give --probs NAME "
                "--positive LABEL."
            )
    return f"Errors are less doubtful by {name} than correct answers are. {how}"


SAME = 0.99
"""A score is nearly constant if so large a share of the rows has one value."""

_ROUNDING = 1e-6  # scores that differ less, relative to their size, are one


def is_constant(counts: Counts, *, share: float = 1.0) -> bool:
    """Tell whether a share of the rows has one score, or all but for rounding.

    Examples
    --------
    >>> from trustdoctor.metrics import count
    >>> is_constant(count([0.5, 0.5, 0.5], [True, False, False]))
    True
    """
    sizes = counts.correct + counts.errors
    assert counts.highest is not None
    low, high = float(counts.highest[0]), float(counts.highest[-1])
    if low == high or high - low <= _ROUNDING * max(abs(low), abs(high)) < np.inf:
        return True
    return bool(share < 1 and sizes.max() >= share * sizes.sum())


def constant_scores(by_score: dict[str, Counts]) -> tuple[str, ...]:
    """Say which scores are the same for all rows, or for nearly all."""
    names = [
        name
        for name, counts in by_score.items()
        if counts.n_correct + counts.n_errors >= LEAST_ROWS
        and is_constant(counts, share=SAME)
    ]
    if not names:
        return ()
    every = all(is_constant(by_score[name]) for name in names)
    it = "they" if len(names) > 1 else "it"
    some = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
    return (
        f"{some} {'have' if len(names) > 1 else 'has'} one value for "
        f"{'all' if every else f'{SAME:.0%} or more of the'} rows: "
        f"{it} cannot tell rows apart, and no threshold can. Give the model's "
        "probabilities as they are, neither rounded nor decided.",
    )


def reversed_line(counts: Counts, score: str) -> str:
    """Say that errors are clearly less doubtful than correct rows; "" otherwise.

    By the rank-sum test of Mann and Whitney at 0.001, with its correction for ties:
    intervals of AUROC are too narrow where nearly all rows are tied.
    """
    n, wrong = int(counts.n_correct + counts.n_errors), int(counts.n_errors)
    pairs = wrong * (n - wrong)
    if n < LEAST_ROWS or not pairs:
        return ""
    tied = (counts.correct + counts.errors).astype(float)
    free = n + 1 - (tied**3 - tied).sum() / (n * (n - 1))
    spread = np.sqrt(free / 12 / pairs)  # of AUROC, over all orders of the rows
    clear = of_counts.auroc(counts) < 0.5 - 3.1 * spread and free > 0
    return _reversed(score) if clear else ""
