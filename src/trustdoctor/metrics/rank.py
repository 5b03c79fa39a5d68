"""How good a score is: exact, tie-aware, with error as the positive class.

TRR is the share of the errors that are rejected, FRR the share of the correct
predictions that are. A row is rejected iff its score is above the threshold. Other
libraries call "FPR95" the share of *errors accepted* when 95% of the correct rows
are; `frr_at_trr` is the opposite quantity.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.metrics import counts
from trustdoctor.metrics.counts import Counts, count, count_runs


@dataclass(frozen=True)
class Confusion:
    """Counts of decisions, and the rates they make.

    Attributes
    ----------
    rejected_correct, rejected_errors, accepted_errors, accepted_correct : int
        In other words false rejections, true rejections, false acceptances and true
        acceptances.

    Examples
    --------
    >>> decisions = Confusion(1, 3, accepted_errors=1, accepted_correct=15)
    >>> decisions.coverage, decisions.risk
    (0.8, 0.0625)
    """

    rejected_correct: int
    rejected_errors: int
    accepted_errors: int
    accepted_correct: int

    @classmethod
    def of(cls, accepted: Array, errors: Array) -> "Confusion":
        """Count the decisions on rows: two boolean arrays (n,).

        Examples
        --------
        >>> Confusion.of(np.array([True, True]), np.array([False, True])).risk
        0.5
        """
        n_accepted, n_errors = int(accepted.sum()), int(errors.sum())
        accepted_errors = int((accepted & errors).sum())
        rejected_errors = n_errors - accepted_errors
        return cls(
            len(accepted) - n_accepted - rejected_errors,
            rejected_errors,
            accepted_errors,
            n_accepted - accepted_errors,
        )

    def __add__(self, other: "Confusion") -> "Confusion":
        """Count the decisions on the rows of both."""
        return Confusion(
            self.rejected_correct + other.rejected_correct,
            self.rejected_errors + other.rejected_errors,
            self.accepted_errors + other.accepted_errors,
            self.accepted_correct + other.accepted_correct,
        )

    @property
    def n(self) -> int:
        """All rows."""
        return self.n_accepted + self.n_rejected

    @property
    def n_accepted(self) -> int:
        """Accepted rows."""
        return self.accepted_correct + self.accepted_errors

    @property
    def n_rejected(self) -> int:
        """Rejected rows."""
        return self.rejected_correct + self.rejected_errors

    @property
    def n_correct(self) -> int:
        """Correct predictions."""
        return self.accepted_correct + self.rejected_correct

    @property
    def n_errors(self) -> int:
        """Wrong predictions."""
        return self.accepted_errors + self.rejected_errors

    @property
    def frr(self) -> float:
        """Share of the correct predictions that are rejected; NaN without any."""
        return _ratio(self.rejected_correct, self.n_correct)

    @property
    def trr(self) -> float:
        """Share of the errors that are rejected; NaN without any."""
        return _ratio(self.rejected_errors, self.n_errors)

    @property
    def coverage(self) -> float:
        """Share of all rows that are accepted."""
        return _ratio(self.n_accepted, self.n)

    @property
    def risk(self) -> float:
        """Share of errors among the accepted rows; NaN without any."""
        return _ratio(self.accepted_errors, self.n_accepted)


def confusion(scores: Any, errors: Any, *, threshold: float) -> Confusion:
    """Count the decisions of a threshold: a score above it is rejected.

    Examples
    --------
    >>> confusion([0.1, 0.4, 0.6, 0.9], [False, True, False, True], threshold=0.5)
    Confusion(rejected_correct=1, rejected_errors=1, accepted_errors=1, \
accepted_correct=1)
    """
    if math.isnan(threshold):
        message = "expected a threshold, got NaN. Give a number."
        raise InputError(message)
    s = as_scores(scores)
    wrong = as_errors(errors, rows=len(s))
    # In float64: a threshold between two float32 scores must not be rounded to one.
    return Confusion.of(s.astype(np.float64) <= threshold, wrong)


def roc(scores: Any, errors: Any) -> tuple[Array, Array, Array]:
    """FRR and TRR at every distinct threshold, from accepting to rejecting all.

    Returns
    -------
    frr, trr, thresholds : arrays (k + 1,) for k distinct scores
        The last point rejects every row; no threshold does that when rows score
        -inf, so its threshold is NaN.

    Examples
    --------
    >>> frr, trr, thresholds = roc([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> frr, trr
    (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    c = _existing(count(scores, errors), "auroc")
    frr = np.cumsum(c.correct[::-1]) / c.n_correct
    trr = np.cumsum(c.errors[::-1]) / c.n_errors
    assert c.highest is not None
    thresholds = np.append(c.highest[::-1], np.nan)
    return np.append(0.0, frr), np.append(0.0, trr), thresholds


def risk_coverage(scores: Any, errors: Any) -> tuple[Array, Array, Array]:
    """Coverage and selective risk at every distinct threshold.

    Returns
    -------
    coverage, risk, thresholds : arrays (k,) for k distinct scores

    Examples
    --------
    >>> risk_coverage([0.1, 0.4, 0.6, 0.9], [False, True, False, True])[1]
    array([0.        , 0.5       , 0.33333333, 0.5       ])
    """
    c = count(scores, errors)
    assert c.highest is not None
    accepted = np.cumsum(c.correct + c.errors)
    return accepted / accepted[-1], np.cumsum(c.errors) / accepted, c.highest


def auroc(scores: Any, errors: Any) -> float:
    """Area under the ROC of errors against doubt; ties count one half.

    Examples
    --------
    >>> auroc([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    0.75
    """
    return float(counts.auroc(_runs(scores, errors, "auroc")))


def frr_at_trr(
    scores: Any, errors: Any, *, trr: float = 0.95, interpolate: bool = False
) -> float:
    """Return the smallest FRR of a threshold that rejects at least `trr` of the errors.

    Parameters
    ----------
    scores, errors
        As everywhere.
    trr : float
        The share of the errors to reject.
    interpolate : bool
        Return the point of the linearly interpolated ROC instead. Rows of equal score
        are rejected together, so where many are tied no threshold may reach it.

    Examples
    --------
    >>> scores, errors = [0.1, 0.5, 0.5, 0.5], [False, False, True, True]
    >>> frr_at_trr(scores, errors, trr=0.5)
    0.5
    >>> frr_at_trr(scores, errors, trr=0.5, interpolate=True)
    0.25
    """
    _check_rate("trr", trr)
    c = _runs(scores, errors, "frr_at_trr")
    return float(counts.frr_at_trr(c, trr=trr, interpolate=interpolate))


def trr_at_frr(
    scores: Any, errors: Any, *, frr: float = 0.05, interpolate: bool = False
) -> float:
    """Return the largest TRR of a threshold that rejects at most `frr` of the correct.

    Parameters
    ----------
    scores, errors
        As everywhere.
    frr : float
        The share of the correct rows that may be rejected.
    interpolate : bool
        As for `frr_at_trr`.

    Examples
    --------
    >>> trr_at_frr([0.1, 0.4, 0.6, 0.9], [False, True, False, True], frr=0.5)
    1.0
    """
    _check_rate("frr", frr)
    c = _runs(scores, errors, "trr_at_frr")
    return float(counts.trr_at_frr(c, frr=frr, interpolate=interpolate))


def aurc(scores: Any, errors: Any) -> float:
    """Area under the risk-coverage curve: mean over k of the k best rows' risk.

    Tied rows count as the mean over all their orders.

    References
    ----------
    Geifman et al., Bias-Reduced Uncertainty Estimation, ICLR 2019.

    Examples
    --------
    >>> round(aurc([0.1, 0.4, 0.6, 0.9], [False, True, False, True]), 4)
    0.3333
    """
    return float(counts.aurc(count_runs(scores, errors)))


def eaurc(scores: Any, errors: Any) -> float:
    """AURC less that of a perfect ranking of the same rows.

    Examples
    --------
    >>> abs(round(eaurc([0.1, 0.4, 0.6, 0.9], [False, False, True, True]), 9))
    0.0
    """
    return float(counts.eaurc(count_runs(scores, errors)))


def augrc(scores: Any, errors: Any) -> float:
    """Area under the generalised risk-coverage curve, by trapezoids.

    It equals (1 - AUROC) accuracy (1 - accuracy) + (1 - accuracy)^2 / 2.

    References
    ----------
    Traub et al., Overcoming Common Flaws in the Evaluation of Selective
    Classification Systems, NeurIPS 2024.

    Examples
    --------
    >>> augrc([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    0.1875
    """
    return float(counts.augrc(count_runs(scores, errors)))


def aupr(scores: Any, errors: Any, *, positive: str = "errors") -> float:
    """Average precision of finding the errors, or the correct rows.

    Parameters
    ----------
    scores, errors
        As everywhere.
    positive : str
        "errors" (most doubtful first) or "correct" (least doubtful first).

    Examples
    --------
    >>> round(aupr([0.1, 0.4, 0.6, 0.9], [False, True, False, True]), 4)
    0.8333
    """
    if positive == "errors":
        return float(counts.aupr(_runs(scores, errors, "aupr")))
    if positive == "correct":
        c = count(scores, errors).swapped()
        return float(counts.aupr(_existing(c, "aupr")))
    message = f"expected positive='errors' or 'correct', got {positive!r}."
    raise InputError(message)


def risk_at_coverage(scores: Any, errors: Any, *, coverage: float = 0.9) -> float:
    """Share of errors among the ceil(coverage n) least doubtful rows.

    Examples
    --------
    >>> risk_at_coverage([0.1, 0.4, 0.6, 0.9], [False, True, False, True], coverage=0.5)
    0.5
    """
    _check_coverage(coverage)
    return float(counts.risk_at_coverage(count_runs(scores, errors), coverage=coverage))


def coverage_at_risk(scores: Any, errors: Any, *, risk: float = 0.01) -> float:
    """Return the largest coverage whose observed risk is at most `risk`.

    This looks at the rows it is given; it promises nothing for others.

    Examples
    --------
    >>> coverage_at_risk([0.1, 0.4, 0.6, 0.9], [False, True, False, True], risk=0.4)
    0.75
    """
    _check_rate("risk", risk)
    return float(counts.coverage_at_risk(count_runs(scores, errors), risk=risk))


@dataclass(frozen=True)
class Points:
    """Where the metrics that need a point of the curve are taken.

    Examples
    --------
    >>> Points(trr=0.9).frr
    0.05
    """

    trr: float = 0.95
    frr: float = 0.05
    coverage: float = 0.9
    risk: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what is not a rate."""
        for name in ("trr", "frr", "risk"):
            _check_rate(name, getattr(self, name))
        _check_coverage(self.coverage)


RankMetric = Callable[[Counts, Points], Array]


RANK_METRICS: dict[str, RankMetric] = {
    "auroc": lambda c, _: counts.auroc(c),
    "frr_at_trr": lambda c, at: counts.frr_at_trr(c, trr=at.trr),
    "trr_at_frr": lambda c, at: counts.trr_at_frr(c, frr=at.frr),
    "aurc": lambda c, _: counts.aurc(c),
    "eaurc": lambda c, _: counts.eaurc(c),
    "augrc": lambda c, _: counts.augrc(c),
    "aupr": lambda c, _: counts.aupr(c),
    "risk_at_coverage": lambda c, at: counts.risk_at_coverage(c, coverage=at.coverage),
    "coverage_at_risk": lambda c, at: counts.coverage_at_risk(c, risk=at.risk),
}
"""The metrics that depend on the order of the scores alone, on counted rows."""


def measure(
    scores: Any,
    errors: Any,
    *,
    metrics: Sequence[str] = tuple(RANK_METRICS),
    points: Points | None = None,
) -> dict[str, float]:
    """Return several metrics of rank at once, from one pass over the sorted scores.

    Parameters
    ----------
    scores, errors
        As everywhere.
    metrics : sequence of str
        Names of the functions here; by default all of `RANK_METRICS`. Those that do
        not exist, as AUROC without an error, are left out of the result.
    points : Points, optional
        Where FRR@TRR, TRR@FRR, risk@coverage and coverage@risk are taken.

    Examples
    --------
    >>> found = measure([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> found["auroc"], found["frr_at_trr"]
    (0.75, 0.5)
    """
    unknown = sorted(set(metrics) - set(RANK_METRICS))
    if unknown:
        message = (
            f"expected metrics out of {', '.join(RANK_METRICS)}, got {unknown[0]!r}."
        )
        raise InputError(message)
    c, at = count_runs(scores, errors), points or Points()
    missing = undefined(c)
    return {m: float(RANK_METRICS[m](c, at)) for m in metrics if m not in missing}


def undefined(c: Counts) -> frozenset[str]:
    """Return the metrics that have no value on these rows."""
    both = {"auroc", "frr_at_trr", "trr_at_frr"}
    if c.n_errors == 0:
        return frozenset({*both, "aupr"})
    return frozenset(both if c.n_correct == 0 else ())


def _runs(scores: Any, errors: Any, metric: str) -> Counts:
    return _existing(count_runs(scores, errors), metric)


def _existing(c: Counts, metric: str) -> Counts:
    """Return the counts, or say that the metric does not exist on them."""
    if metric in undefined(c):
        message = (
            f"{metric} needs rows of both kinds, got {c.n_errors} errors and "
            f"{c.n_correct} correct predictions. Give it more rows."
        )
        raise UndefinedMetricError(message)
    return c


def _ratio(count: int, n: int) -> float:
    return count / n if n else float("nan")


def _check_coverage(coverage: float) -> None:
    _check_rate("coverage", coverage)
    if coverage == 0:
        message = "expected a coverage above 0, got 0. Nothing accepted has no risk."
        raise InputError(message)


def _check_rate(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        message = f"expected {name} from 0 to 1, got {value!r}. 0.05 means 5%."
        raise InputError(message)
