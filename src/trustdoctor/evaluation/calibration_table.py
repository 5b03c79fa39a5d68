"""What rows say of the softmax: in memory all of them, in pieces their sums."""

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.kernels import _native
from trustdoctor.metrics import (
    ECE_BINS,
    Gaps,
    Said,
    calibration_rows,
    laws_of_sums,
    missed,
    surprise,
)
from trustdoctor.predictions import Answers, Predictions

_UNIT = 2.0**30  # sums are kept in whole steps of 1 / _UNIT


_LARGEST = 2.0**105  # more, as of logits beyond 1e15, is not told apart


_EXACT = 1 << 22


_MANY = 1 << 17  # of so many rows the skewness does not matter


_TERMS = ("confidence", "brier", "nll")


def said(
    predictions: Predictions, *, temperature: float, doubts: dict[str, Array]
) -> Said:
    """Sum labelled rows up; `doubts` are alpha and beta of them."""
    if len(predictions) >= _MANY:
        sums = SaidSums(temperature)
        sums.update(predictions, doubts)
        return sums.said()
    rows = calibration_rows(predictions, temperature=temperature, doubts=doubts)
    return Said.of(rows, predictions.errors, number=ECE_BINS)


class SaidSums:
    """Sums of whole numbers: the order of batches and merges changes nothing."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self._bins = np.zeros((4, ECE_BINS), object)  # of 1, gap, gap^2 and |gap|
        self._sums = np.zeros((2, len(_TERMS)), object)  # of terms and their squares
        self._infinite = 0
        self._errors = 0
        self._worst_brier = 2.0

    def update(self, predictions: Predictions, doubts: dict[str, Array]) -> None:
        """Add labelled rows; `doubts` are alpha and beta of them."""
        self._errors += int(predictions.errors.sum())
        if isinstance(predictions, Answers):
            self._worst_brier = 1.0
        plain = not isinstance(predictions, Answers) and predictions.decisions is None
        if _native.available and plain:
            self._sum_up(predictions, doubts)
        else:
            self._sum_rows(predictions, doubts)

    def merge(self, other: "SaidSums") -> None:
        """Add the rows of another."""
        self._bins = self._bins + other._bins
        self._sums = self._sums + other._sums
        self._infinite += other._infinite
        self._errors += other._errors
        self._worst_brier = min(self._worst_brier, other._worst_brier)

    def said(self) -> Said:
        """Return what the rows say."""
        rows, *parts = self._bins.astype(float) / _UNIT
        n = round(rows.sum())
        sums, squares = self._sums.astype(float) / _UNIT
        means = {name: float(own) / n for name, own in zip(_TERMS, sums, strict=True)}
        most = (1.0, self._worst_brier, surprise(min(1.0, means["confidence"])))
        laws = {
            name: laws_of_sums(n, float(sums[j]), float(squares[j]), most[j])
            for j, name in enumerate(_TERMS)
        }
        gaps = Gaps(rows, *parts)
        return Said(gaps, means, laws, self._errors, self._infinite, self._worst_brier)

    def _sum_rows(self, predictions: Predictions, doubts: dict[str, Array]) -> None:
        """Add what the rows say of the softmax, or of the confidence given."""
        wrong, at = predictions.errors, self.temperature
        rows = calibration_rows(predictions, temperature=at, doubts=doubts)
        gap = rows.gap
        for i, values in enumerate((np.ones(len(wrong)), gap, gap**2, np.abs(gap))):
            self._bins[i] += _binned(rows.bins, values)
        infinite = np.isinf(rows.nll)
        self._infinite += int(infinite.sum())
        terms = (~wrong - gap, rows.brier, np.where(infinite, 0.0, rows.nll))
        for j, values in enumerate(terms):
            self._sums[0, j] += _whole(values)
            self._sums[1, j] += _whole(values**2)

    def _sum_up(self, predictions: Predictions, doubts: dict[str, Array]) -> None:
        """Add what the C kernel sums up."""
        apart = missed(predictions, temperature=self.temperature)
        alpha, beta = (np.ascontiguousarray(doubts[name]) for name in ("alpha", "beta"))
        bins, rest = _native.calibration(alpha, beta, predictions.errors, apart)
        bins[0] <<= 30
        self._bins += bins.astype(object)
        self._sums += np.array(rest[:6], object).reshape(3, 2).T
        self._infinite += rest[6]


def _binned(bins: Array, values: Array) -> Array:
    """Sum whole steps within each bin."""
    out = np.zeros(ECE_BINS, object)
    for start in range(0, len(values), _EXACT):  # so many add up exactly in a float
        part = slice(start, start + _EXACT)
        steps = np.rint(values[part] * _UNIT)
        out += np.bincount(bins[part], steps, ECE_BINS).astype(np.int64)
    return out


def _whole(values: Array) -> int:
    """Sum whole steps, without overflow."""
    scaled = np.rint(values * _UNIT)
    if len(values) * float(scaled.max(initial=0.0)) < 2.0**52:  # exact in a float
        return int(scaled.sum())
    return sum(map(int, np.minimum(scaled, _LARGEST)))
