"""Intervals of what the softmax says of itself: mean confidence, ECE, Brier score, NLL.

The ECE of few rows is too large even for a perfectly calibrated model: in each bin the
accuracy misses the confidence by chance. Its interval knows: it holds those gaps, in
proportion to the ones seen, whose own ECE of so many rows would look like this one. It
reaches 0 where no gap at all explains what was seen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics.further import beyond
from trustdoctor.metrics.intervals import (
    Estimate,
    Interval,
    check_confidence,
    few_note,
    normal_quantile,
)
from trustdoctor.metrics.reliability import Calibration
from trustdoctor.metrics.skewed import Spread, mean_spread, spread_of_sums

_FEW_IN_BIN = 10  # gaps of right, or of wrong rows, in all: with less, chance tells


@dataclass(frozen=True, eq=False)
class Gaps:
    """Rows in each bin of confidence.

    Attributes
    ----------
    rows : array (bins,)
        How many.
    gaps, squares, sizes : arrays (bins,)
        Sums of each row's correctness less its confidence, of its square, and of its
        size.
    """

    rows: Array
    gaps: Array
    squares: Array
    sizes: Array

    @classmethod
    def of(cls, bins: Array, gap: Array, *, number: int) -> "Gaps":
        """Sum rows up by their bin."""
        sums = (np.ones(len(gap)), gap, gap**2, np.abs(gap))
        return cls(*(np.bincount(bins, values, number) for values in sums))

    @property
    def ece(self) -> float:
        """The expected calibration error."""
        return float(np.abs(self.gaps).sum() / self.rows.sum())

    @property
    def variances(self) -> Array:
        """Of each bin's share of the mean gap.

        Where the gaps of right or of wrong rows add up to little, at least that of a
        calibrated model: for a confidence p, p (1 - p) is the gap's size less its
        square.
        """
        n = self.rows.sum()
        rows = np.maximum(self.rows, 1)
        seen = self.squares - self.gaps**2 / rows
        calibrated = self.sizes - self.squares
        # Right rows have gaps above 0, wrong ones below.
        fewest = np.minimum(self.sizes + self.gaps, self.sizes - self.gaps) / 2
        few = fewest < _FEW_IN_BIN
        return np.asarray(np.where(few, np.maximum(seen, calibrated), seen) / n**2)


def ece_interval(found: Gaps, *, confidence: float = 0.95) -> Interval:
    """Return the interval of the ECE; it holds the ECE of the rows themselves, too."""
    z = normal_quantile(check_confidence(confidence))
    seen = np.abs(found.gaps) / found.rows.sum()
    variances, ece = found.variances, found.ece

    def ends(share: float) -> tuple[float, float]:
        """Where an ECE would be, were the true gaps `share` of the ones seen."""
        mean, variance = _folded(share * seen, variances)
        half = z * math.sqrt(variance)
        return mean - half, mean + half

    low = _first(lambda share: ends(share)[1] >= ece, 1.0)
    high = _first(lambda share: ends(share)[0] >= ece, math.inf)
    return low * ece, min(1.0, max(ece, high * ece))


def _folded(means: Array, variances: Array) -> tuple[float, float]:
    """Return mean and variance of a sum of absolute values of normal numbers."""
    from scipy.special import ndtr

    deviations = np.sqrt(np.maximum(variances, 1e-24))
    steps = means / deviations
    density = np.exp(-(steps**2) / 2) * math.sqrt(2 / math.pi)
    folded = deviations * density + means * (1 - 2 * ndtr(-steps))
    spread = means**2 + variances - folded**2
    return float(folded.sum()), max(0.0, float(spread.sum()))


def _first(reached: Callable[[float], bool], most: float) -> float:
    """Return the least share, from 0, at which something is reached, by halving."""
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
class Said:
    """What rows say of the softmax, summed up.

    Attributes
    ----------
    gaps : Gaps
    means : dict of str to float
        "confidence", "brier" and "nll".
    laws : dict of str to (Spread, Spread)
        Of each mean with one row more than was seen: a small one, and a large one.
    errors : int
    infinite : int
        Labels whose probability was 0.
    worst_brier : float
        The largest that a Brier score can be.
    """

    gaps: Gaps
    means: dict[str, float]
    laws: dict[str, tuple[Spread, Spread]]
    errors: int
    infinite: int
    worst_brier: float = 2.0

    @classmethod
    def of(cls, rows: Calibration, wrong: Array, *, number: int) -> "Said":
        """Sum rows up."""
        infinite = np.isinf(rows.nll)
        finite = np.where(infinite, 0.0, rows.nll)
        said = np.asarray(~wrong - rows.gap)
        worst = max(surprise(float(said.mean())), 2 * float(finite.max()))
        terms = {
            "confidence": (said, 1.0),
            "brier": (rows.brier, rows.worst_brier),
            "nll": (finite, worst),
        }
        laws = {
            name: (
                mean_spread(values, -beyond(-values, 0.0)),
                mean_spread(values, beyond(values, most)),
            )
            for name, (values, most) in terms.items()
        }
        return cls(
            Gaps.of(rows.bins, rows.gap, number=number),
            {name: float(values.mean()) for name, (values, _) in terms.items()},
            laws,
            int(wrong.sum()),
            int(infinite.sum()),
            rows.worst_brier,
        )

    def estimates(self, *, confidence: float = 0.95) -> dict[str, Estimate]:
        """Return "confidence", "ece", "brier" and "nll" with their intervals."""
        n = int(self.gaps.rows.sum())
        few = few_note(self.errors, n - self.errors)
        ends = ece_interval(self.gaps, confidence=confidence)
        out = {name: self._mean(name, few, confidence) for name in self.laws}
        out["ece"] = Estimate(self.gaps.ece, *ends, few)
        if self.infinite:
            labels = "label" if self.infinite == 1 else "labels"
            note = f"NLL is infinite: {self.infinite:,} {labels} had probability 0"
            out["nll"] = Estimate(None, note=note)
        return {name: out[name] for name in ("confidence", "ece", "brier", "nll")}

    def _mean(self, name: str, few: str, confidence: float) -> Estimate:
        share, value = (1 - confidence) / 2, self.means[name]
        small, large = self.laws[name]
        low = max(0.0, min(small.quantile(share), value))
        high = max(large.quantile(1 - share), value)
        worst = {"confidence": 1.0, "brier": self.worst_brier}.get(name, math.inf)
        return Estimate(value, low, min(high, worst), few)


def laws_of_sums(
    n: int, total: float, squares: float, most: float
) -> tuple[Spread, Spread]:
    """Return the laws of a mean from sums of n values and of their squares.

    With one row more, of value 0 and of value `most`.
    """
    laws = []
    for further in (0.0, most):
        whole = total + further
        mean = whole / (n + 1)
        central = max(0.0, squares + further**2 - whole * mean)
        laws.append(spread_of_sums(mean, n + 1, central, 0.0))
    return laws[0], laws[1]


def surprise(confidence: float) -> float:
    """Return the NLL of a wrong row of this confidence, of two classes.

    Examples
    --------
    >>> round(surprise(0.5), 3)
    0.693
    """
    return -math.log(max(1 - confidence, 1e-12))
