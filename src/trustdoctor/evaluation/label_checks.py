"""Checks of labelled rows: labels that cannot be right, scores that tell nothing."""

import math

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.evaluation.label_counts import (
    LEAST_ROWS,
    LabelCounts,
    LabelReport,
    SuspectedPair,
)
from trustdoctor.metrics import Counts, Estimate, auroc, calibration_terms
from trustdoctor.predictions import (
    UNKNOWN,
    Answers,
    Predictions,
    require_predictions,
)
from trustdoctor.scores import Score, find_score, score_all, score_together

Range = tuple[float, float]
"""The lowest and the highest of some numbers; (inf, -inf) of none."""

NEARLY_ALL = 0.99
"""A score is nearly constant if this share of the rows has one value."""

# Scores whose range is smaller, relative to their size, differ by rounding alone: a
# float32 has seven digits.
_ROUNDING = 1e-6


def label_quality(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Return log p(label) of each row (n,): the lower, the more suspicious the label.

    It is taken from the logits, so rows differ where their probabilities would be
    rounded to 0 or 1. It is -inf where a probability of 0 was given, and NaN where a
    row has no label.

    Parameters
    ----------
    predictions : Predictions
        With labels. For the mean over several views of each row, build them with
        `Predictions.from_logits` from the mean of the views' log-probabilities.
    temperature : float
        Divides the logits.

    References
    ----------
    Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR
    2021; its exponential is called self-confidence there.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 1, 1])
    >>> label_quality(p).round(3).tolist()
    [-0.105, -1.609, -0.916]
    >>> np.argsort(label_quality(p))[:2].tolist()  # the two to look at first
    [1, 2]

    With the mean over views, here of shape (views, n, C):

    >>> from scipy.special import log_softmax
    >>> views = np.array([[[3.0, 0], [2, 0]], [[3, 1], [0, 1]]])
    >>> p = Predictions.from_logits(log_softmax(views, -1).mean(0), [0, 1])
    >>> label_quality(p).round(3).tolist()
    [-0.079, -0.974]
    """
    require_predictions(predictions)
    labelled = predictions.labelled("label quality")
    if not predictions.n_classes:
        message = (
            "expected logits or probabilities, got answers with one confidence each. "
            "Label quality is the probability of the label: give those of all classes."
        )
        raise InputError(message)
    quality = np.full(len(predictions), np.nan)
    if len(labelled):
        terms = calibration_terms(labelled, temperature=temperature)
        quality[predictions.has_label] = -terms.nll
    return quality


def check_labels(
    predictions: Predictions, doubts: dict[str, Array] | None = None
) -> LabelReport:
    """Return what looks wrong about the labels of rows in memory.

    Parameters
    ----------
    predictions : Predictions
        Some rows have a label.
    doubts : dict of str to array, optional
        Hold beta of the rows that have a label, if there are probabilities.

    Examples
    --------
    >>> logits = np.eye(4)[np.arange(80) % 4] * 3
    >>> late = Predictions.from_logits(logits, (np.arange(80) + 1) % 4)
    >>> check_labels(late).odd[0][:26]
    'Labels seem to count from '
    """
    labelled = predictions.labelled("a check of labels")
    if doubts is None:
        needs_beta = not isinstance(labelled, Answers)
        doubts = score_all(labelled, ["beta"]) if needs_beta else {}
    counts = LabelCounts()
    count_labels(counts, predictions, doubts)
    numbers = np.flatnonzero(predictions.has_label)
    return counts.report(
        predictions.class_names, lambda pair: numbers[suspected_rows(labelled, pair)]
    )


def score_and_check_labels(
    predictions: Predictions, score: Score
) -> tuple[Array, LabelReport]:
    """Return the doubts by a score, and what looks wrong about the labels.

    Some rows have a label. A check needs beta of the rows, which shares the pass over
    the logits with a score that has a C kernel.
    """
    if isinstance(predictions, Answers):
        return np.asarray(score(predictions)), check_labels(predictions)
    doubts, beta = score_together(predictions, [score, find_score("beta")])
    of_labelled = {"beta": beta[predictions.has_label]}
    return np.asarray(doubts), check_labels(predictions, of_labelled)


def count_labels(
    counts: LabelCounts, predictions: Predictions, doubts: dict[str, Array]
) -> None:
    """Count the labels of rows, and which of them fit the row beside theirs.

    Parameters
    ----------
    counts : LabelCounts
    predictions : Predictions
        In the order of the rows, with or without a label.
    doubts : dict of str to array
        Hold beta of the rows that have a label, if there are probabilities.

    Examples
    --------
    >>> p, counts = Predictions.from_logits([[2.0, 0], [1, 0]], [0, 1]), LabelCounts()
    >>> count_labels(counts, p, {"beta": np.array([-2.0, -1.0])})
    >>> len(counts), counts.n_correct
    (2, 1)
    """
    labelled, has_label = predictions.labelled("counting labels"), predictions.has_label
    confidence = _confidence(labelled, doubts)
    if not has_label.all() and confidence is not None:
        of_labelled, confidence = confidence, np.zeros(len(has_label))
        confidence[has_label] = of_labelled
    names = None
    if isinstance(predictions, Answers) and not predictions.correctness_only:
        names = predictions.class_names
    # Rows outside of all classes say nothing of how labels were numbered.
    labels = predictions.labels
    if labels is not None and predictions.outside.any():
        labels = np.where(predictions.outside, UNKNOWN, labels)
    counts.update(
        labels,
        predictions.predicted,
        confidence,
        predictions.n_classes,
        names=names,
    )


def _confidence(labelled: Predictions, doubts: dict[str, Array]) -> Array | None:
    """Return how probable it is that predictions are right; None: it is not known."""
    if isinstance(labelled, Answers):
        return labelled.confidence
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(doubts["beta"])))


def suspected_rows(predictions: Predictions, pair: SuspectedPair) -> Array:
    """Return the rows of a pair (k,), the most suspicious first.

    Answers without probabilities come in their own order.

    Examples
    --------
    >>> p = Predictions.from_logits([[0.0, 2], [0, 5], [3, 0]], [0, 0, 0])
    >>> suspected_rows(p, SuspectedPair(0, 1, 2, 3, 0.94, 0.95)).tolist()
    [1, 0]
    """
    labels = predictions.require_labels("finding the rows of a pair")
    names = predictions.class_names or ()
    label, predicted = (
        names.index(name) if isinstance(name, str) else name
        for name in (pair.label, pair.predicted)
    )
    rows = np.flatnonzero((labels == label) & (predictions.predicted == predicted))
    if len(rows) and predictions.n_classes:
        rows = rows[np.argsort(label_quality(predictions[rows]), kind="stable")]
    return rows


def confidence_range(predictions: Predictions) -> Range:
    """Return the lowest and the highest confidence that answers came with."""
    if not isinstance(predictions, Answers) or predictions.signal != "confidence":
        return math.inf, -math.inf
    # A doubt of inf marks an ambiguous answer, whatever its confidence.
    finite = -predictions.doubts[np.isfinite(predictions.doubts)]
    return (
        float(finite.min(initial=math.inf)),
        float(finite.max(initial=-math.inf)),
    )


def no_probability_note(confidences: Range) -> tuple[str, ...]:
    """Return that confidences are not probabilities, where they are not.

    Examples
    --------
    >>> no_probability_note((0.1, 0.9))
    ()
    >>> no_probability_note((-1.25, 3.5))[0][:57]
    'Confidences go from -1.25 to 3.5: they are not probabilit'
    """
    low, high = confidences
    if not low <= high or (low >= 0 and high <= 1):
        return ()
    percent = 0 <= low < high <= 100
    advice = " Divide percentages by 100 (--percent)." if percent else ""
    return (
        f"Confidences go from {low:.4g} to {high:.4g}: they are not probabilities, so "
        f"how far they can be taken at their word is not measured.{advice}",
    )


def reversed_scores(
    scores: dict[str, dict[str, Estimate]], *, probable: bool
) -> tuple[str, ...]:
    """Return that errors are less doubtful than correct rows, where that is clear.

    Parameters
    ----------
    scores : dict of str to dict of str to Estimate
        As in `Evaluation.scores`; the first is judged.
    probable : bool
        Whether a confidence can be a probability.
    """
    name, estimates = next(iter(scores.items()))
    high = estimates["auroc"].high
    if high is None or high >= 0.5:
        return ()
    return (_reversed_sentence(name, probable=probable),)


def reversed_note(counts: Counts, score: str) -> str:
    """Return that errors are clearly less doubtful than correct rows; "" otherwise.

    By the rank-sum test of Mann and Whitney at 0.001, with its correction for ties
    (Lehmann, Nonparametrics, 1975, section 1.4): intervals of AUROC are too narrow
    where nearly all rows are tied.
    """
    n, n_errors = int(counts.n_correct + counts.n_errors), int(counts.n_errors)
    n_pairs = n_errors * (n - n_errors)
    if n < LEAST_ROWS or not n_pairs:
        return ""
    ties = (counts.correct + counts.errors).astype(float)
    tie_term = (ties**3 - ties).sum() / (n * (n - 1))
    free = n + 1 - tie_term  # 0 where all rows are tied
    deviation = np.sqrt(free / 12 / n_pairs)  # of AUROC, over all orders of the rows
    # 3.1: the normal quantile of 0.001.
    clear = auroc(counts) < 0.5 - 3.1 * deviation and free > 0
    return _reversed_sentence(score) if clear else ""


def _reversed_sentence(score: str, *, probable: bool = False) -> str:
    advice = "Check the labels."
    if score in ("confidence", "doubt"):
        advice = "Check which way the numbers go."
        if probable:
            advice += (
                " If they are the probability of one class, give --probs NAME "
                "--positive LABEL."
            )
    return f"Errors are less doubtful by {score} than correct answers are. {advice}"


def is_constant(counts: Counts, *, share: float = 1.0) -> bool:
    """Return whether a share of the rows has one score, or all but for rounding.

    Examples
    --------
    >>> from trustdoctor.metrics import counts
    >>> is_constant(counts([0.5, 0.5, 0.5], [True, False, False]))
    True
    """
    sizes = counts.correct + counts.errors
    assert counts.scores is not None
    low, high = float(counts.scores[0]), float(counts.scores[-1])
    if low == high or high - low <= _ROUNDING * max(abs(low), abs(high)) < np.inf:
        return True
    return bool(share < 1 and sizes.max() >= share * sizes.sum())


def constant_scores(counts_by_score: dict[str, Counts]) -> tuple[str, ...]:
    """Return which scores are the same for all rows, or for nearly all."""
    names = [
        name
        for name, counts in counts_by_score.items()
        if counts.n_correct + counts.n_errors >= LEAST_ROWS
        and is_constant(counts, share=NEARLY_ALL)
    ]
    if not names:
        return ()
    plural = len(names) > 1
    listed = ", ".join(names[:-1]) + " and " * plural + names[-1]
    fully = all(is_constant(counts_by_score[name]) for name in names)
    rows = "all" if fully else f"{NEARLY_ALL:.0%} or more of the"
    return (
        f"{listed} {'have' if plural else 'has'} one value for {rows} rows: "
        f"{'they' if plural else 'it'} cannot tell rows apart, and no threshold can. "
        "Give the model's probabilities as they are, neither rounded nor decided.",
    )
