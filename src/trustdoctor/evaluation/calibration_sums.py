"""Sums that mean confidence, ECE, Brier score and NLL of streamed rows follow from."""

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.kernels import _native
from trustdoctor.metrics import (
    ECE_BINS,
    BinGaps,
    CalibrationSummary,
    calibration_terms,
    label_gaps,
    moments_from_sums,
    two_class_nll,
)
from trustdoctor.predictions import Answers, Predictions

# Sums are stored in whole steps of 2^-30, as integers of any size: additions of floats
# would depend on the order of batches and merges.
_STEPS = 2.0**30

_LARGEST = 2.0**105  # larger terms, as of logits beyond 1e15, count as this

_EXACT_ROWS = 1 << 22  # as many terms of 2^30 steps add up exactly in a float

_TERMS = ("confidence", "brier", "nll")


class CalibrationSums:
    """Whole-number sums of calibration terms: the order of batches changes nothing.

    Examples
    --------
    >>> from trustdoctor.scores import score_all
    >>> rows = Predictions.from_probs([[0.8, 0.2], [0.6, 0.4]], [0, 1])
    >>> sums = CalibrationSums(temperature=1.0)
    >>> sums.update(rows, score_all(rows, ["alpha", "beta"]))
    >>> round(sums.summary().means["confidence"], 3)
    0.7
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        # By bin: rows, and sums of the gap, of its square and of its size.
        self._bins = np.zeros((4, ECE_BINS), object)
        # Of each term, and of its square.
        self._sums = np.zeros((2, len(_TERMS)), object)
        self._n_infinite = 0
        self._n_errors = 0
        self._worst_brier = 2.0

    def update(self, predictions: Predictions, doubts: dict[str, Array]) -> None:
        """Add labelled rows; `doubts` are alpha and beta of them."""
        self._n_errors += int(predictions.errors.sum())
        if isinstance(predictions, Answers):
            self._worst_brier = 1.0
            self._add_rows(predictions, doubts)
        elif _native.available and predictions.decisions is None:
            self._add_with_kernel(predictions, doubts)
        else:
            self._add_rows(predictions, doubts)

    def merge(self, other: "CalibrationSums") -> None:
        """Add the rows that another object summed up."""
        self._bins = self._bins + other._bins
        self._sums = self._sums + other._sums
        self._n_infinite += other._n_infinite
        self._n_errors += other._n_errors
        self._worst_brier = min(self._worst_brier, other._worst_brier)

    def summary(self) -> CalibrationSummary:
        """Return the means and the moments that intervals follow from."""
        rows, *gap_sums = self._bins.astype(float) / _STEPS
        n = round(rows.sum())
        sums, squares = self._sums.astype(float) / _STEPS
        means = {
            name: float(total) / n for name, total in zip(_TERMS, sums, strict=True)
        }
        largest = (1.0, self._worst_brier, two_class_nll(min(1.0, means["confidence"])))
        moments = {
            name: moments_from_sums(n, float(sums[j]), float(squares[j]), largest[j])
            for j, name in enumerate(_TERMS)
        }
        return CalibrationSummary(
            BinGaps(rows, *gap_sums),
            means,
            moments,
            self._n_errors,
            self._n_infinite,
            self._worst_brier,
        )

    def _add_rows(self, predictions: Predictions, doubts: dict[str, Array]) -> None:
        """Add rows with numpy: answers, decisions, and where no kernel was built."""
        correct = ~predictions.errors
        rows = calibration_terms(
            predictions, temperature=self.temperature, doubts=doubts
        )
        gap = rows.gap
        for i, values in enumerate((np.ones(len(gap)), gap, gap**2, np.abs(gap))):
            self._bins[i] += _sum_by_bin(rows.bins, values)
        infinite = np.isinf(rows.nll)
        self._n_infinite += int(infinite.sum())
        terms = (correct - gap, rows.brier, np.where(infinite, 0.0, rows.nll))
        for j, values in enumerate(terms):
            self._sums[0, j] += _sum_in_steps(values)
            self._sums[1, j] += _sum_in_steps(values**2)

    def _add_with_kernel(
        self, predictions: Predictions, doubts: dict[str, Array]
    ) -> None:
        """Add rows of a softmax: one pass in C, where numpy takes a dozen."""
        distance = label_gaps(predictions, temperature=self.temperature)
        alpha, beta = (np.ascontiguousarray(doubts[name]) for name in ("alpha", "beta"))
        bins, totals = _native.calibration(alpha, beta, predictions.errors, distance)
        bins[0] <<= 30  # the kernel counts rows, not steps
        self._bins += bins.astype(object)
        self._sums += np.array(totals[:6], object).reshape(3, 2).T
        self._n_infinite += totals[6]


def _sum_by_bin(bins: Array, values: Array) -> Array:
    """Return the sum of the values of each bin, in whole steps."""
    sums = np.zeros(ECE_BINS, object)
    for start in range(0, len(values), _EXACT_ROWS):
        block = slice(start, start + _EXACT_ROWS)
        steps = np.rint(values[block] * _STEPS)
        sums += np.bincount(bins[block], steps, ECE_BINS).astype(np.int64)
    return sums


def _sum_in_steps(values: Array) -> int:
    """Return the sum of the values in whole steps, without overflow."""
    steps = np.rint(values * _STEPS)
    if len(values) * float(steps.max(initial=0.0)) < 2.0**52:  # exact in a float
        return int(steps.sum())
    return sum(map(int, np.minimum(steps, _LARGEST)))
