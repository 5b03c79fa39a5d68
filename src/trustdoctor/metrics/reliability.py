"""How far the softmax can be taken at its word: ECE, Brier score, NLL."""

from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import beta, score_all

ENDLESS = 1e9
"""A distance between logits that counts as infinite."""

ECE_BINS = 15


def ece(predictions: Predictions, *, temperature: float = 1.0) -> float:
    """Return the expected calibration error over 15 bins of equal width.

    The mean over rows of |accuracy - confidence| of their bin of the largest
    softmax probability.

    References
    ----------
    Guo et al., On Calibration of Modern Neural Networks, ICML 2017.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    >>> round(ece(p), 6)
    0.25
    """
    bins, gap = ece_parts(predictions, temperature=temperature)
    return float(np.abs(np.bincount(bins, gap, ECE_BINS)).sum() / len(gap))


def brier(predictions: Predictions, *, temperature: float = 1.0) -> float:
    """Mean squared distance of the softmax from the one-hot label, 0 to 2.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    >>> round(brier(p), 6)
    0.625
    """
    return float(brier_rows(predictions, temperature=temperature).mean())


def nll(predictions: Predictions, *, temperature: float = 1.0) -> float:
    """Mean negative log-likelihood of the labels; inf where one had probability 0.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.5, 0.5]], [0])
    >>> round(nll(p), 4)
    0.6931
    """
    return float(nll_rows(predictions, temperature=temperature).mean())


def nll_rows(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Minus the log-probability of each label (n,)."""
    predictions.require_labels("NLL")
    doubt = beta(predictions, temperature=temperature)
    return _nll(predictions, doubt, temperature)


def brier_rows(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Squared distance of each softmax from its one-hot label (n,)."""
    predictions.require_labels("the Brier score")
    return calibration_rows(predictions, temperature=temperature).brier


def ece_parts(
    predictions: Predictions, *, temperature: float = 1.0, doubt: Array | None = None
) -> tuple[Array, Array]:
    """Return each row's confidence bin, and its correctness less its confidence.

    `doubt` is beta of the rows, where it is known already.
    """
    if isinstance(predictions, Answers):
        return _ece_parts(predictions.errors, _stated(predictions))
    if doubt is None:
        doubt = beta(predictions, temperature=temperature)
    return _ece_parts(predictions.errors, _sigmoid(-doubt))


@dataclass(frozen=True, eq=False)
class Calibration:
    """What each row says of the softmax, from one pass over the logits.

    Attributes
    ----------
    bins, gap : arrays (n,)
        The bin of its confidence, and its correctness less its confidence.
    nll, brier : arrays (n,)
    """

    bins: Array
    gap: Array
    nll: Array
    brier: Array


def calibration_rows(
    predictions: Predictions,
    *,
    temperature: float = 1.0,
    doubts: dict[str, Array] | None = None,
) -> Calibration:
    """Return the terms of confidence, ECE, NLL and Brier score of each row.

    `doubts` are alpha and beta of the rows, where they are known already. Of answers
    with a confidence the Brier score is that of right and wrong, 0 to 1.
    """
    predictions.require_labels("calibration")
    if isinstance(predictions, Answers):
        return _answer_rows(predictions)
    if doubts is None:
        doubts = score_all(predictions, ["alpha", "beta"], temperature=temperature)
    nll = _nll(predictions, doubts["beta"], temperature)
    brier = _sigmoid(-doubts["alpha"]) - 2 * np.exp(-nll) + 1
    parts = _ece_parts(predictions.errors, _sigmoid(-doubts["beta"]))
    return Calibration(*parts, nll, brier)


def _answer_rows(predictions: Answers) -> Calibration:
    stated, wrong = _stated(predictions), predictions.errors
    bins, gap = _ece_parts(wrong, stated)
    with np.errstate(divide="ignore"):
        nll = -np.log(np.where(wrong, 1 - stated, stated))
    return Calibration(bins, gap, nll + 0.0, gap**2)


def _stated(predictions: Answers) -> Array:
    stated = predictions.confidence
    if stated is None:
        message = (
            "expected confidences from 0 to 1, got others: they are not probabilities, "
            "so there is no ECE, Brier score or NLL."
        )
        raise InputError(message)
    return stated


def _nll(predictions: Predictions, doubt: Array, temperature: float) -> Array:
    """-log p_label is log(1 + exp(beta)), and the label's distance from the top."""
    out = np.log1p(np.exp(doubt.astype(np.float64)))  # beta is at most log(C - 1)
    out[predictions.errors] += missed(predictions, temperature=temperature)
    return out


def missed(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Return how far the label's logit is below the top, over T, for wrong rows.

    Beyond `ENDLESS` it is infinite: the label's probability is 0 in any arithmetic, and
    sums of such distances overflow.
    """
    wrong = np.flatnonzero(predictions.errors)
    labels = predictions.require_labels("calibration")[wrong]
    z, rows = predictions.logits[wrong].astype(np.float64), np.arange(len(wrong))
    top = z[rows, predictions.predicted[wrong]]
    with np.errstate(over="ignore"):
        apart = (top - z[rows, labels]) / temperature
    return np.where(apart > ENDLESS, np.inf, apart)


def _ece_parts(wrong: Array, confidence: Array) -> tuple[Array, Array]:
    bins = np.minimum((confidence * ECE_BINS).astype(np.int64), ECE_BINS - 1)
    return bins, ~wrong - confidence


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))
