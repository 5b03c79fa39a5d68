"""How well scores rank: exact, tie-aware, with errors as the positive class.

TRR is the share of the errors that are rejected, FRR the share of the correct
predictions that are. A row is rejected iff its score is above the threshold. Other
libraries call "FPR95" the share of *errors accepted* when 95% of the correct rows
are; `frr_at_trr` is the opposite quantity.

Every function takes `scores` (n,) and `errors` (n,), or `Counts` alone in the place of
scores: `counts(scores, errors)` sorts the rows once for all of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.errors import InputError, UndefinedMetricError
from trustdoctor.metrics import score_counts
from trustdoctor.metrics.score_counts import Counts, as_counts, as_runs


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


def confusion(scores: Any, errors: Any = None, *, threshold: float) -> Confusion:
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
    if isinstance(scores, Counts):
        return _counted_confusion(as_counts(scores, errors), threshold)
    s = as_scores(scores)
    wrong = as_errors(errors, rows=len(s))
    # In float64: a threshold between two float32 scores must not be rounded to one.
    return Confusion.of(s.astype(np.float64) <= threshold, wrong)


def _counted_confusion(c: Counts, threshold: float) -> Confusion:
    highest = _require_scores(c).astype(np.float64)
    lowest = highest if c.lowest is None else c.lowest.astype(np.float64)
    accepted = int(np.searchsorted(highest, threshold, "right"))
    if accepted < len(lowest) and lowest[accepted] <= threshold:
        message = (
            f"expected a threshold between groups of tied scores, got {threshold!r}: "
            f"scores from {lowest[accepted]} to {highest[accepted]} are tied."
        )
        raise InputError(message)
    errors, correct = int(c.errors[:accepted].sum()), int(c.correct[:accepted].sum())
    return Confusion(
        int(c.n_correct) - correct, int(c.n_errors) - errors, errors, correct
    )


def _require_scores(c: Counts) -> Array:
    if c.scores is None:
        message = (
            "expected counts with their scores, got counts without any. Make them with "
            "counts(scores, errors)."
        )
        raise InputError(message)
    return c.scores


def roc(scores: Any, errors: Any = None) -> tuple[Array, Array, Array]:
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
    c = _require_defined("auroc", as_counts(scores, errors))
    frr = np.cumsum(c.correct[::-1]) / c.n_correct
    trr = np.cumsum(c.errors[::-1]) / c.n_errors
    thresholds = np.append(_require_scores(c)[::-1], np.nan)
    return np.append(0.0, frr), np.append(0.0, trr), thresholds


def risk_coverage(scores: Any, errors: Any = None) -> tuple[Array, Array, Array]:
    """Coverage and selective risk at every distinct threshold.

    Returns
    -------
    coverage, risk, thresholds : arrays (k,) for k distinct scores

    References
    ----------
    El-Yaniv & Wiener, On the Foundations of Noise-free Selective Classification,
    JMLR 2010.

    Examples
    --------
    >>> risk_coverage([0.1, 0.4, 0.6, 0.9], [False, True, False, True])[1]
    array([0.        , 0.5       , 0.33333333, 0.5       ])
    """
    c = as_counts(scores, errors)
    accepted = np.cumsum(c.correct + c.errors)
    coverage, risk = accepted / accepted[-1], np.cumsum(c.errors) / accepted
    return coverage, risk, _require_scores(c)


def auroc(scores: Any, errors: Any = None) -> float:
    """Area under the ROC: P(an error scores above a correct row) + P(tie) / 2.

    References
    ----------
    Hanley & McNeil, The Meaning and Use of the Area under a ROC Curve, Radiology 1982.

    Examples
    --------
    >>> auroc([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    0.75
    """
    return float(score_counts.auroc(_defined_runs("auroc", scores, errors)))


def frr_at_trr(
    scores: Any, errors: Any = None, *, trr: float = 0.95, interpolate: bool = False
) -> float:
    """Return the smallest FRR of a threshold that rejects at least `trr` of the errors.

    Parameters
    ----------
    scores, errors : arrays (n,)
        Or `Counts` alone.
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
    c = _defined_runs("frr_at_trr", scores, errors)
    return float(score_counts.frr_at_trr(c, trr=trr, interpolate=interpolate))


def trr_at_frr(
    scores: Any, errors: Any = None, *, frr: float = 0.05, interpolate: bool = False
) -> float:
    """Return the largest TRR of a threshold that rejects at most `frr` of the correct.

    Parameters
    ----------
    scores, errors : arrays (n,)
        Or `Counts` alone.
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
    c = _defined_runs("trr_at_frr", scores, errors)
    return float(score_counts.trr_at_frr(c, frr=frr, interpolate=interpolate))


def aurc(scores: Any, errors: Any = None) -> float:
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
    return float(score_counts.aurc(as_runs(scores, errors)))


def eaurc(scores: Any, errors: Any = None) -> float:
    """AURC less that of a perfect ranking of the same rows.

    Examples
    --------
    >>> abs(round(eaurc([0.1, 0.4, 0.6, 0.9], [False, False, True, True]), 9))
    0.0
    """
    return float(score_counts.eaurc(as_runs(scores, errors)))


def augrc(scores: Any, errors: Any = None) -> float:
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
    return float(score_counts.augrc(as_runs(scores, errors)))


def aupr(scores: Any, errors: Any = None, *, positive: str = "errors") -> float:
    """Average precision of finding the errors, or the correct rows.

    Parameters
    ----------
    scores, errors : arrays (n,)
        Or `Counts` alone.
    positive : str
        "errors" (most doubtful first) or "correct" (least doubtful first).

    Examples
    --------
    >>> round(aupr([0.1, 0.4, 0.6, 0.9], [False, True, False, True]), 4)
    0.8333
    """
    if positive == "errors":
        return float(score_counts.aupr(_defined_runs("aupr", scores, errors)))
    if positive == "correct":
        # Runs merge correct rows of different scores, which this one tells apart.
        c = _require_defined("aupr", as_counts(scores, errors).swapped())
        return float(score_counts.aupr(c))
    message = f"expected positive='errors' or 'correct', got {positive!r}."
    raise InputError(message)


def risk_at_coverage(
    scores: Any, errors: Any = None, *, coverage: float = 0.9
) -> float:
    """Share of errors among the ceil(coverage n) least doubtful rows.

    Where a group of tied rows is accepted in part, the mean over all their orders.

    Examples
    --------
    >>> risk_at_coverage([0.1, 0.4, 0.6, 0.9], [False, True, False, True], coverage=0.5)
    0.5
    """
    _check_coverage(coverage)
    c = as_runs(scores, errors)
    return float(score_counts.risk_at_coverage(c, coverage=coverage))


def coverage_at_risk(scores: Any, errors: Any = None, *, risk: float = 0.01) -> float:
    """Return the largest coverage whose observed risk is at most `risk`.

    This describes the given rows; it promises nothing about others. `calibrate` finds
    a threshold with a promise.

    Examples
    --------
    >>> coverage_at_risk([0.1, 0.4, 0.6, 0.9], [False, True, False, True], risk=0.4)
    0.75
    """
    _check_rate("risk", risk)
    c = as_runs(scores, errors)
    return float(score_counts.coverage_at_risk(c, risk=risk))


@dataclass(frozen=True)
class Points:
    """Operating points: where the metrics that need a point of the curve are taken.

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
    "auroc": lambda c, _: score_counts.auroc(c),
    "frr_at_trr": lambda c, at: score_counts.frr_at_trr(c, trr=at.trr),
    "trr_at_frr": lambda c, at: score_counts.trr_at_frr(c, frr=at.frr),
    "aurc": lambda c, _: score_counts.aurc(c),
    "eaurc": lambda c, _: score_counts.eaurc(c),
    "augrc": lambda c, _: score_counts.augrc(c),
    "aupr": lambda c, _: score_counts.aupr(c),
    "risk_at_coverage": lambda c, at: score_counts.risk_at_coverage(
        c, coverage=at.coverage
    ),
    "coverage_at_risk": lambda c, at: score_counts.coverage_at_risk(c, risk=at.risk),
}
"""The metrics that depend on the order of the scores alone, on counted rows."""


def measure(
    scores: Any,
    errors: Any = None,
    *,
    metrics: Sequence[str] = tuple(RANK_METRICS),
    points: Points | None = None,
) -> dict[str, float]:
    """Return several rank metrics from one pass over the sorted scores.

    Parameters
    ----------
    scores, errors : arrays (n,)
        Or `Counts` alone.
    metrics : sequence of str
        Names of the functions here; by default all of `RANK_METRICS`. Those that are
        undefined, as AUROC without an error, are left out of the result.
    points : Points, optional
        Where FRR@TRR, TRR@FRR, risk@coverage and coverage@risk are taken.

    Examples
    --------
    >>> values = measure([0.1, 0.4, 0.6, 0.9], [False, True, False, True])
    >>> values["auroc"], values["frr_at_trr"]
    (0.75, 0.5)
    """
    unknown = sorted(set(metrics) - set(RANK_METRICS))
    if unknown:
        names = ", ".join(RANK_METRICS)
        message = f"expected metrics out of {names}, got {unknown[0]!r}."
        raise InputError(message)
    c, points = as_runs(scores, errors), points or Points()
    missing = undefined(c)
    return {
        name: float(RANK_METRICS[name](c, points))
        for name in metrics
        if name not in missing
    }


def undefined(c: Counts) -> frozenset[str]:
    """Return the metrics that have no value on these rows."""
    of_both_kinds = {"auroc", "frr_at_trr", "trr_at_frr"}
    if c.n_errors == 0:
        return frozenset({*of_both_kinds, "aupr"})
    return frozenset(of_both_kinds if c.n_correct == 0 else ())


def _defined_runs(metric: str, scores: Any, errors: Any) -> Counts:
    return _require_defined(metric, as_runs(scores, errors))


def _require_defined(metric: str, c: Counts) -> Counts:
    """Return the counts, or say that the metric is undefined on them."""
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
        message = "expected a coverage above 0, got 0. Accepting nothing has no risk."
        raise InputError(message)


def _check_rate(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        message = f"expected {name} from 0 to 1, got {value!r}. 0.05 means 5%."
        raise InputError(message)
