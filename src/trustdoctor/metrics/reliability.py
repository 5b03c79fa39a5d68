"""How far the softmax can be taken at its word: ECE, Brier score, NLL."""

from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import beta, find_score, score_all

ENDLESS = 1e9
"""A distance between logits that counts as infinite."""

ECE_BINS = 15


def ece(
    predictions: Predictions,
    *,
    bins: int = ECE_BINS,
    equal_mass: bool = False,
    temperature: float = 1.0,
) -> float:
    """Return the expected calibration error of the top label.

    The mean over rows of |accuracy - confidence| of their bin of the largest softmax
    probability. Of two classes, too, that is the most probable one's, from 1/2 to 1,
    and not the positive one's: what other libraries call the ECE of a binary classifier
    may be another number. It is too large for few rows; `evaluate` gives its interval.
    Where the decisions are the system's own, the probability is that of the class
    decided on.

    Parameters
    ----------
    predictions : Predictions
        With labels.
    bins : int
        How many.
    equal_mass : bool
        Bins with as many rows each instead of bins of equal width; rows of the same
        confidence stay together.
    temperature : float
        Divides the logits.

    References
    ----------
    Guo et al., On Calibration of Modern Neural Networks, ICML 2017.

    Examples
    --------
    >>> p = Predictions.from_probs([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    >>> round(ece(p), 6)
    0.25
    >>> p = Predictions.from_probs([[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]], [0, 1, 0])
    >>> round(ece(p, bins=1), 4), round(ece(p, bins=3, equal_mass=True), 4)
    (0.0667, 0.4)
    """
    if not (type(bins) is int and bins >= 1):
        message = f"expected a number of bins of 1 or more, got {bins!r}."
        raise InputError(message)
    said = _confidence(predictions, temperature)
    own, gap = _ece_parts(predictions.errors, said, bins)
    if equal_mass:
        own = _equal_mass(said, bins)
    return float(np.abs(np.bincount(own, gap, bins)).sum() / len(gap))


def _equal_mass(said: Array, bins: int) -> Array:
    edges = np.quantile(said, np.arange(1, bins) / bins, method="lower")
    return np.searchsorted(edges, said, "left")


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
    predictions = predictions.without_decisions()
    doubt = beta(predictions, temperature=temperature)
    return _nll(predictions, doubt, temperature)


def brier_rows(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Squared distance of each softmax from its one-hot label (n,)."""
    predictions.require_labels("the Brier score")
    return calibration_rows(predictions, temperature=temperature).brier


def ece_parts(
    predictions: Predictions,
    *,
    temperature: float = 1.0,
    doubt: Array | None = None,
) -> tuple[Array, Array]:
    """Return each row's confidence bin, and its correctness less its confidence.

    `doubt` is beta of the rows, where it is known already.
    """
    return _ece_parts(predictions.errors, _confidence(predictions, temperature, doubt))


def _confidence(
    predictions: Predictions, temperature: float, doubt: Array | None = None
) -> Array:
    """Return the probability of the class decided on, or the confidence given."""
    if isinstance(predictions, Answers):
        return _stated(predictions)
    if doubt is None:
        doubt = find_score("beta", temperature=temperature)(predictions)
    return _sigmoid(-doubt)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What each row says of the softmax, from one pass over the logits.

    Attributes
    ----------
    bins, gap : arrays (n,)
        The bin of its confidence, and its correctness less its confidence.
    nll, brier : arrays (n,)
    worst_brier : float
        The largest that a row's Brier score can be.
    """

    bins: Array
    gap: Array
    nll: Array
    brier: Array
    worst_brier: float = 2.0


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
    plain = predictions.without_decisions()
    if doubts is None or plain is not predictions:
        doubts = score_all(plain, ["alpha", "beta"], temperature=temperature)
    nll = _nll(plain, doubts["beta"], temperature)
    brier = _sigmoid(-doubts["alpha"]) - 2 * np.exp(-nll) + 1
    about = doubts["beta"] if plain is predictions else None
    parts = ece_parts(predictions, temperature=temperature, doubt=about)
    return Calibration(*parts, nll, brier)


def _answer_rows(predictions: Answers) -> Calibration:
    stated, wrong = _stated(predictions), predictions.errors
    bins, gap = _ece_parts(wrong, stated)
    with np.errstate(divide="ignore"):
        nll = -np.log(np.where(wrong, 1 - stated, stated))
    return Calibration(bins, gap, nll + 0.0, gap**2, worst_brier=1.0)


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


def _ece_parts(
    wrong: Array, confidence: Array, bins: int = ECE_BINS
) -> tuple[Array, Array]:
    own = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return own, ~wrong - confidence


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))
