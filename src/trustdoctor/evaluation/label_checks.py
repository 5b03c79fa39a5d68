"""Checks of labelled rows: labels that cannot be right, scores that tell nothing."""

import math
from typing import Any, NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.evaluation.label_counts import LEAST_ROWS, LabelCounts, SuspectedPair
from trustdoctor.metrics import Counts, Estimate, calibration_rows
from trustdoctor.metrics import counts as of_counts
from trustdoctor.predictions import Answers, Predictions, require_predictions
from trustdoctor.scores import score_all


class LabelReport(NamedTuple):
    """What looks wrong about labels, in a sentence each.

    Attributes
    ----------
    odd : tuple of str
        Why nothing may rest on them.
    notes : tuple of str
        What else to check.
    """

    odd: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them, the odd ones first."""
        return (*self.odd, *self.notes)


def check_labels(
    predictions: Predictions, doubts: dict[str, Array] | None = None
) -> LabelReport:
    """Return what looks wrong about the labels of rows in memory.

    Parameters
    ----------
    predictions : Predictions
        Some rows have a label.
    doubts : dict of str to array, optional
        Hold beta of these rows, if there are probabilities.

    Examples
    --------
    >>> logits = np.eye(4)[np.arange(80) % 4] * 3
    >>> late = Predictions.from_logits(logits, (np.arange(80) + 1) % 4)
    >>> check_labels(late).odd[0][:26]
    'Labels seem to count from '
    """
    rows = predictions.labelled("a check of labels")
    if doubts is None:
        doubts = {} if isinstance(rows, Answers) else score_all(rows, ["beta"])
    counts = LabelCounts()
    count_labels(counts, rows, doubts)
    count_neighbours(counts, predictions, doubts)
    suspects = [suspected_rows(rows, pair) for pair in counts.pairs()]
    if not predictions.has_label.all():
        numbers = np.flatnonzero(predictions.has_label)
        suspects = [numbers[pair_rows] for pair_rows in suspects]
    odd, lines = counts.odd(), counts.warnings(predictions.class_names, suspects)
    return LabelReport(odd, lines[len(odd) :])


def count_labels(
    counts: LabelCounts, predictions: Predictions, doubts: dict[str, Array]
) -> None:
    """Count the labels of rows that all have one; `doubts` hold beta of the rows.

    Examples
    --------
    >>> p, counts = Predictions.from_logits([[2.0, 0], [1, 0]], [0, 1]), LabelCounts()
    >>> count_labels(counts, p, {"beta": np.array([-2.0, -1.0])})
    >>> len(counts), counts.n_right
    (2, 1)
    """
    labels = predictions.require_labels("counting labels")
    names, answered = None, ~predictions.abstained
    if isinstance(predictions, Answers):
        names = None if predictions.correctness_only else predictions.class_names
    confidence = _confidence(predictions, doubts)
    if not answered.all():
        predictions, labels = predictions[answered], labels[answered]
        confidence = None if confidence is None else confidence[answered]
    counts.update(
        labels, predictions.predicted, confidence, predictions.n_classes, names=names
    )


def count_neighbours(
    counts: LabelCounts, predictions: Predictions, doubts: dict[str, Array]
) -> None:
    """Count which labels fit the row beside theirs.

    Rows are in their order, with or without a label; `doubts` hold beta of those with.
    """
    judged = isinstance(predictions, Answers) and predictions.correctness_only
    if predictions.labels is None or judged:
        return
    confidence = np.zeros(len(predictions))
    known = predictions.has_label
    own = _confidence(predictions, doubts, known)
    if own is not None:
        confidence[known] = own
    counts.compare_rows(
        predictions.labels, predictions.predicted, None if own is None else confidence
    )


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
    predictions.labelled("label quality")
    if not predictions.n_classes:
        message = (
            "expected logits or probabilities, got answers with one confidence each. "
            "Label quality is the probability of the label: give those of all classes."
        )
        raise InputError(message)
    known = predictions.has_label
    out = np.full(len(known), np.nan)
    if known.any():
        rows = predictions if known.all() else predictions[known]
        out[known] = -calibration_rows(rows, temperature=temperature).nll
    return out


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
        names.index(of) if isinstance(of, str) else of
        for of in (pair.label, pair.predicted)
    )
    rows = np.flatnonzero((labels == label) & (predictions.predicted == predicted))
    if len(rows) and predictions.n_classes:
        rows = rows[np.argsort(label_quality(predictions[rows]), kind="stable")]
    return rows


def _confidence(
    predictions: Predictions, doubts: dict[str, Array], rows: Any = slice(None)
) -> Array | None:
    """Return how probable it is that predictions of some rows are right."""
    if isinstance(predictions, Answers):
        given = predictions.confidence
        return None if given is None else given[rows]
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(doubts["beta"])))


Ends = tuple[float, float]
"""The lowest and the highest of some numbers; (inf, -inf) of none."""


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
