"""How far a model's confidence can be taken at its word: ECE, Brier score, NLL.

The ECE of few rows is too large even for a perfectly calibrated model: in each bin the
accuracy misses the confidence by chance. Its interval takes that into account: it holds
the true gaps, proportional to the observed ones, under which the observed ECE would be
plausible. It reaches 0 where chance alone explains the observed ECE. The intervals of
the mean confidence, the Brier score and the NLL are those of means (`bootstrap.py`),
with one unseen row at either end. docs/intervals.md says how often they cover.

References
----------
Guo et al., On Calibration of Modern Neural Networks, ICML 2017.
Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather
Review 1950.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array, as_real
from trustdoctor.errors import InputError
from trustdoctor.metrics.bootstrap import (
    Moments,
    moments_of_mean,
    moments_of_sums,
    unseen_values,
)
from trustdoctor.metrics.intervals import (
    Estimate,
    Interval,
    check_confidence,
    few_note,
    normal_quantile,
)
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import beta, find_score, score_all

INFINITE_GAP = 1e9
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
    Where predictions came with decisions, it is the probability of the class decided
    on.

    Parameters
    ----------
    predictions : Predictions
        With labels.
    bins : int
        The number of bins.
    equal_mass : bool
        Bins with equally many rows instead of bins of equal width; rows of the same
        confidence stay together.
    temperature : float
        Divides the logits.

    References
    ----------
    Guo et al., On CalibrationTerms of Modern Neural Networks, ICML 2017.

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
    confidence = _confidence(predictions, temperature)
    bin_numbers, gap = _binned_gaps(predictions.errors, confidence, bins)
    if equal_mass:
        bin_numbers = _equal_mass_bins(confidence, bins)
    return float(np.abs(np.bincount(bin_numbers, gap, bins)).sum() / len(gap))


def _equal_mass_bins(confidence: Array, bins: int) -> Array:
    edges = np.quantile(confidence, np.arange(1, bins) / bins, method="lower")
    return np.searchsorted(edges, confidence, "left")


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
    return calibration_terms(predictions, temperature=temperature).brier


def confidence_gaps(
    predictions: Predictions,
    *,
    temperature: float = 1.0,
    doubt: Array | None = None,
) -> tuple[Array, Array]:
    """Return each row's confidence bin, and its correctness less its confidence.

    `doubt` is beta of the rows, if it is known already.
    """
    confidence = _confidence(predictions, temperature, doubt)
    return _binned_gaps(predictions.errors, confidence)


def _confidence(
    predictions: Predictions, temperature: float, doubt: Array | None = None
) -> Array:
    """Return the probability of the predicted class, or the confidence of answers."""
    if isinstance(predictions, Answers):
        return _stated_confidence(predictions)
    if doubt is None:
        doubt = find_score("beta", temperature=temperature)(predictions)
    return _sigmoid(-doubt)


@dataclass(frozen=True, eq=False)
class CalibrationTerms:
    """What each row adds to ECE, NLL and Brier score, from one pass over the logits.

    Attributes
    ----------
    bins, gap : arrays (n,)
        The bin of its confidence, and its correctness less its confidence.
    nll, brier : arrays (n,)
    worst_brier : float
        The largest possible Brier score of a row.
    """

    bins: Array
    gap: Array
    nll: Array
    brier: Array
    worst_brier: float = 2.0


def calibration_terms(
    predictions: Predictions,
    *,
    temperature: float = 1.0,
    doubts: dict[str, Array] | None = None,
) -> CalibrationTerms:
    """Return the terms of confidence, ECE, NLL and Brier score of each row.

    `doubts` are alpha and beta of the rows, if they are known already. The Brier score
    of answers with a confidence is that of correct against wrong, from 0 to 1.
    """
    predictions.require_labels("calibration")
    if isinstance(predictions, Answers):
        return _answer_terms(predictions)
    plain = predictions.without_decisions()
    if doubts is None or plain is not predictions:
        doubts = score_all(plain, ["alpha", "beta"], temperature=temperature)
    nll = _nll(plain, doubts["beta"], temperature)
    # |p - onehot|^2 = sum p^2 - 2 p_label + 1, and sigmoid(-alpha) is sum p^2.
    brier = _sigmoid(-doubts["alpha"]) - 2 * np.exp(-nll) + 1
    doubt = doubts["beta"] if plain is predictions else None
    gaps = confidence_gaps(predictions, temperature=temperature, doubt=doubt)
    return CalibrationTerms(*gaps, nll, brier)


def _answer_terms(predictions: Answers) -> CalibrationTerms:
    confidence, wrong = _stated_confidence(predictions), predictions.errors
    bins, gap = _binned_gaps(wrong, confidence)
    with np.errstate(divide="ignore"):
        nll = -np.log(np.where(wrong, 1 - confidence, confidence))
    return CalibrationTerms(bins, gap, nll + 0.0, gap**2, worst_brier=1.0)


def _stated_confidence(predictions: Answers) -> Array:
    confidence = predictions.confidence
    if confidence is None:
        message = (
            "expected confidences from 0 to 1, got others: they are not probabilities, "
            "so there is no ECE, Brier score or NLL."
        )
        raise InputError(message)
    return confidence


def _nll(predictions: Predictions, doubt: Array, temperature: float) -> Array:
    """-log p_label is log(1 + exp(beta)), and the label's distance from the top."""
    nll = np.log1p(np.exp(doubt.astype(np.float64)))  # beta is at most log(C - 1)
    nll[predictions.errors] += label_gaps(predictions, temperature=temperature)
    return nll


def label_gaps(predictions: Predictions, *, temperature: float = 1.0) -> Array:
    """Return how far the label's logit is below the top, over T, for wrong rows.

    Beyond `INFINITE_GAP` it is infinite: the label's probability is 0 in any
    arithmetic, and sums of such distances overflow.
    """
    wrong = np.flatnonzero(predictions.errors)
    labels = predictions.require_labels("calibration")[wrong]
    z, rows = predictions.logits[wrong].astype(np.float64), np.arange(len(wrong))
    top = z[rows, predictions.predicted[wrong]]
    with np.errstate(over="ignore"):
        gaps = (top - z[rows, labels]) / temperature
    return np.where(gaps > INFINITE_GAP, np.inf, gaps)


def _binned_gaps(
    wrong: Array, confidence: Array, bins: int = ECE_BINS
) -> tuple[Array, Array]:
    bin_numbers = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return bin_numbers, ~wrong - confidence


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))


_FEW_IN_BIN = 10  # gaps of correct, or of wrong rows, in total: fewer vary by chance


@dataclass(frozen=True, eq=False)
class BinGaps:
    """Rows in each bin of confidence.

    Attributes
    ----------
    rows : array (bins,)
        The number of rows.
    gaps, squares, sizes : arrays (bins,)
        Sums of each row's correctness less its confidence, of its square, and of its
        absolute value.
    """

    rows: Array
    gaps: Array
    squares: Array
    sizes: Array

    @classmethod
    def of(cls, bins: Array, gap: Array, *, n_bins: int) -> "BinGaps":
        """Sum rows by their bin."""
        sums = (np.ones(len(gap)), gap, gap**2, np.abs(gap))
        return cls(*(np.bincount(bins, values, n_bins) for values in sums))

    @property
    def ece(self) -> float:
        """The expected calibration error."""
        return float(np.abs(self.gaps).sum() / self.rows.sum())

    @property
    def variances(self) -> Array:
        """Of each bin's share of the mean gap.

        Where the gaps of correct or of wrong rows add up to little, at least that of a
        calibrated model: for a confidence p, the mean of p (1 - p), which is that of
        the gap's size less its square.
        """
        n = self.rows.sum()
        rows = np.maximum(self.rows, 1)
        observed = self.squares - self.gaps**2 / rows
        calibrated = self.sizes - self.squares
        # Correct rows have gaps above 0, wrong ones below.
        fewest = np.minimum(self.sizes + self.gaps, self.sizes - self.gaps) / 2
        cautious = np.maximum(observed, calibrated)
        variances = np.where(fewest < _FEW_IN_BIN, cautious, observed)
        return np.asarray(variances / n**2)


def ece_interval(bins: BinGaps, *, confidence: float = 0.95) -> Interval:
    """Return the interval of the ECE; it holds the ECE of the rows themselves, too.

    It inverts a test (Neyman 1937): were the true gaps s times the observed ones, the
    ECE would have the moments of a sum of folded normal numbers; the interval holds all
    s under which the observed ECE is within z deviations of their mean.
    """
    z = normal_quantile(check_confidence(confidence))
    observed_gaps = np.abs(bins.gaps) / bins.rows.sum()
    variances, ece = bins.variances, bins.ece

    def plausible(scale: float) -> tuple[float, float]:
        """Between what an ECE would be if the true gaps were `scale` the observed."""
        mean, variance = _folded_normal(scale * observed_gaps, variances)
        half = z * math.sqrt(variance)
        return mean - half, mean + half

    low = _least_scale(lambda scale: plausible(scale)[1] >= ece, 1.0)
    high = _least_scale(lambda scale: plausible(scale)[0] >= ece, math.inf)
    return low * ece, min(1.0, max(ece, high * ece))


def _folded_normal(means: Array, variances: Array) -> tuple[float, float]:
    """Return mean and variance of a sum of absolute values of normal numbers.

    E|X| = d sqrt(2 / pi) exp(-(m / d)^2 / 2) + m (1 - 2 Phi(-m / d)) for a mean m and a
    deviation d (Leone, Nelson & Nottingham, The Folded Normal Distribution, 1961).
    """
    from scipy.special import ndtr

    deviations = np.sqrt(np.maximum(variances, 1e-24))
    steps = means / deviations
    density = np.exp(-(steps**2) / 2) * math.sqrt(2 / math.pi)
    folded = deviations * density + means * (1 - 2 * ndtr(-steps))
    folded_variances = means**2 + variances - folded**2
    return float(folded.sum()), max(0.0, float(folded_variances.sum()))


def _least_scale(reached: Callable[[float], bool], most: float) -> float:
    """Return the least scale, from 0, at which something is reached: binary search."""
    if reached(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not reached(high):
        if high >= most:
            return most
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class CalibrationSummary:
    """The sums of rows that calibration and its intervals need.

    Attributes
    ----------
    gaps : BinGaps
    means : dict of str to float
        "confidence", "brier" and "nll".
    moments : dict of str to (Moments, Moments)
        Of each mean with an unseen row: a small one, and a large one.
    n_errors : int
    n_infinite : int
        Labels whose probability was 0.
    worst_brier : float
        The largest possible Brier score.
    """

    gaps: BinGaps
    means: dict[str, float]
    moments: dict[str, tuple[Moments, Moments]]
    n_errors: int
    n_infinite: int
    worst_brier: float = 2.0

    @classmethod
    def of(
        cls, terms: CalibrationTerms, wrong: Array, *, n_bins: int
    ) -> "CalibrationSummary":
        """Sum the terms of rows."""
        infinite = np.isinf(terms.nll)
        finite = np.where(infinite, 0.0, terms.nll)
        confidence = np.asarray(~wrong - terms.gap)
        worst_nll = max(
            two_class_nll(float(confidence.mean())), 2 * float(finite.max())
        )
        values = {
            "confidence": (confidence, 1.0),
            "brier": (terms.brier, terms.worst_brier),
            "nll": (finite, worst_nll),
        }
        moments = {
            name: (
                moments_of_mean(of_rows, -unseen_values(-of_rows, 0.0)),
                moments_of_mean(of_rows, unseen_values(of_rows, most)),
            )
            for name, (of_rows, most) in values.items()
        }
        return cls(
            BinGaps.of(terms.bins, terms.gap, n_bins=n_bins),
            {name: float(of_rows.mean()) for name, (of_rows, _) in values.items()},
            moments,
            int(wrong.sum()),
            int(infinite.sum()),
            terms.worst_brier,
        )

    def estimates(self, *, confidence: float = 0.95) -> dict[str, Estimate]:
        """Return "confidence", "ece", "brier" and "nll" with their intervals."""
        n = int(self.gaps.rows.sum())
        note = few_note(self.n_errors, n - self.n_errors)
        interval = ece_interval(self.gaps, confidence=confidence)
        estimates = {name: self._mean(name, note, confidence) for name in self.moments}
        estimates["ece"] = Estimate(self.gaps.ece, *interval, note=note)
        if self.n_infinite:
            labels = "label" if self.n_infinite == 1 else "labels"
            note = f"NLL is infinite: {self.n_infinite:,} {labels} had probability 0"
            estimates["nll"] = Estimate(None, note=note)
        return {name: estimates[name] for name in ("confidence", "ece", "brier", "nll")}

    def _mean(self, name: str, note: str, confidence: float) -> Estimate:
        tail, value = (1 - confidence) / 2, self.means[name]
        small, large = self.moments[name]
        low = max(0.0, min(small.quantile(tail), value))
        high = max(large.quantile(1 - tail), value)
        worst = {"confidence": 1.0, "brier": self.worst_brier}.get(name, math.inf)
        return Estimate(value, low, min(high, worst), note=note)


def moments_from_sums(
    n: int, total: float, squares: float, most: float
) -> tuple[Moments, Moments]:
    """Return the moments of a mean from sums of n values and of their squares.

    With an unseen row of value 0, and with one of value `most`.
    """
    moments = []
    for unseen in (0.0, most):
        mean = (total + unseen) / (n + 1)
        central = max(0.0, squares + unseen**2 - (total + unseen) * mean)
        moments.append(moments_of_sums(mean, n + 1, central, 0.0))
    return moments[0], moments[1]


def two_class_nll(confidence: float) -> float:
    """Return the NLL of a wrong row of this confidence, of two classes.

    Examples
    --------
    >>> round(two_class_nll(0.5), 3)
    0.693
    """
    return -math.log(max(1 - confidence, 1e-12))


COLDEST, HOTTEST = 1e-6, 1e6
"""Beyond these temperatures every row is certain, or all classes are equally likely."""


def top_probability(rows: Array | Predictions, *, temperature: float = 1.0) -> Array:
    """Return the largest softmax probability of each row of logits, in float64.

    Examples
    --------
    >>> top_probability(np.log([[0.8, 0.2]])).round(6)
    array([0.8])
    """
    doubt = beta(rows, temperature=temperature).astype(np.float64)
    return np.asarray(1 / (1 + np.exp(doubt)))  # beta is at most log(C - 1)


def matching_temperature(rows: Array | Predictions, accuracy: float) -> float:
    """Return the temperature at which the mean confidence is the accuracy.

    The confidence of every row falls as the temperature rises, so there is at most one.

    References
    ----------
    Clarté et al., Expectation Consistency for Calibration of Neural Networks, UAI 2023.

    Examples
    --------
    >>> z = 3 * np.log([[0.8, 0.2], [0.6, 0.4]])
    >>> round(matching_temperature(z, 0.7), 6)
    3.0
    """
    accuracy = as_real(accuracy, "accuracy")
    low, high = math.log(COLDEST), math.log(HOTTEST)
    most, least = (_mean_confidence(rows, log_t) for log_t in (low, high))
    if not least < accuracy < most:
        message = (
            f"no temperature makes the mean confidence {accuracy:.4g}: expected an "
            f"accuracy between {least:.4g} and {most:.4g}. Check it, and the order of "
            "the classes."
        )
        raise InputError(message)
    for _ in range(42):  # to 1e-11 of the temperature
        middle = (low + high) / 2
        if _mean_confidence(rows, middle) > accuracy:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _mean_confidence(rows: Array | Predictions, log_temperature: float) -> float:
    temperature = math.exp(log_temperature)
    return float(top_probability(rows, temperature=temperature).mean())
