"""Fusion: several scores weighted by a logistic regression on the errors."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import ROUNDING, FittedScore
from trustdoctor.scores.registry import SCORES, logit_scores, register, score_all


@register
@dataclass(frozen=True, eq=False)
class Fusion(FittedScore):
    r"""The log odds of an error by a logistic regression on several scores.

    .. math:: b + \sum_k w_k (s_k - \mu_k) / \sigma_k

    Attributes
    ----------
    names : tuple of str
        The scores.
    bounds : array (2, k)
        The least and the largest finite score of the fit, to which scores are clipped.
    means, deviations, weights : arrays (k,)
        Scores are standardised, then weighted.
    bias : float

    References
    ----------
    Hosmer & Lemeshow, Applied Logistic Regression, 2000.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = Predictions.from_logits(rng.normal(size=(500, 3)), rng.integers(0, 3, 500))
    >>> Fusion.fit(p, scores=["alpha", "margin"])(p).shape
    (500,)
    """

    names: tuple[str, ...]
    bounds: Array = field(repr=False)
    means: Array = field(repr=False)
    deviations: Array = field(repr=False)
    weights: Array
    bias: float

    name = "fusion"
    needs = frozenset({"probs"})
    laws = frozenset({"permutation"})
    scale = "odds"
    reference = "Hosmer & Lemeshow 2000"
    fit_options = (
        {"penalty": 1.0},
        {"penalty": 100.0},
    )
    learns_from_errors = True

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        needs = [SCORES[name].needs for name in self.names if name in SCORES]
        object.__setattr__(self, "needs", frozenset({"probs"}).union(*needs))
        k = (len(self.names),)
        columns = (self.means, self.deviations, self.weights)
        valid = all(c.shape == k and np.isfinite(c).all() for c in columns)
        valid = valid and self.bounds.shape == (2, *k) and bool(np.isfinite(self.bias))
        valid = valid and bool((self.bounds[0] <= self.bounds[1]).all())
        valid = valid and bool(np.isfinite(self.bounds).all())
        if not (valid and (self.deviations > 0).all()):
            message = "expected bounds, means, deviations and weights, one per score."
            raise InputError(message)

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """How far rounding moves the sum if it moves all terms the same way."""
        sizes = np.maximum(1.0, np.abs(self.bounds).max(0))
        return float(ROUNDING * (np.abs(self.weights) / self.deviations) @ sizes)

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        *,
        scores: Sequence[str] | None = None,
        penalty: float = 1.0,
    ) -> "Fusion":
        """Fit on labelled rows.

        Parameters
        ----------
        predictions : Predictions
        scores : sequence of str, optional
            Names of scores of the logits; by default all that the predictions allow.
        penalty : float
            The weight of the L2 penalty on the weights of the standardised scores.
        """
        cls.check_fit(predictions, labels=True)
        if isinstance(scores, str):
            message = f"expected a list of scores, got the string {scores!r}."
            raise InputError(message)
        if not (isinstance(penalty, (int, float)) and penalty > 0):
            message = f"expected a penalty above 0, got {penalty!r}."
            raise InputError(message)
        names = tuple(scores or logit_scores(logits=not predictions.from_probabilities))
        errors = predictions.errors
        if errors.all() or not errors.any():
            message = (
                "a fusion needs errors and correct predictions to fit on. Give it more "
                "rows."
            )
            raise InputError(message)
        columns = _score_columns(predictions, names)
        bounds = _finite_bounds(columns, names)
        design, means, deviations = standardise(np.clip(columns, *bounds))
        weights, bias = fit_logistic(design, errors, penalty=penalty)
        return cls(names, bounds, means, deviations, weights, bias)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        # Unclipped, one infinite score (a certain row) would outweigh all others, and
        # two of opposite sign would give NaN.
        columns = np.clip(_score_columns(predictions, self.names), *self.bounds)
        terms = (columns - self.means) / self.deviations * self.weights
        return terms.sum(1) + self.bias


def _score_columns(predictions: Predictions, names: Sequence[str]) -> Array:
    """Return the scores of each row, (n, k)."""
    scores = score_all(predictions, names)
    return np.column_stack([np.asarray(scores[n], np.float64) for n in names])


def _finite_bounds(columns: Array, names: Sequence[str]) -> Array:
    """Return the least and the largest finite score of each column, (2, k)."""
    finite = np.isfinite(columns)
    infinite = np.flatnonzero(~finite.any(0))
    if len(infinite):
        message = (
            f"the score {names[infinite[0]]} is infinite on all rows. Leave it out."
        )
        raise InputError(message)
    low = np.where(finite, columns, np.inf).min(0)
    return np.stack([low, np.where(finite, columns, -np.inf).max(0)])


def fit_logistic(x: Array, y: Array, *, penalty: float = 1.0) -> tuple[Array, float]:
    r"""Return weights and bias of an L2-penalised logistic regression.

    .. math:: \min_{w, b}\; -\sum_i \log P(y_i \mid x_i) + \frac{\lambda}{2} \|w\|^2,
              \quad P(y = 1 \mid x) = 1 / (1 + e^{-w^\top x - b})

    with `penalty` :math:`\lambda`; the bias is not penalised. By Newton steps
    (iteratively reweighted least squares), on columns of similar scale.

    Examples
    --------
    >>> weights, bias = fit_logistic(np.array([[-1.0], [1.0]]), np.array([False, True]))
    >>> bool(weights[0] > 0), bool(abs(bias) < 1e-9)
    (True, True)
    """
    z = np.column_stack([x, np.ones(len(x))])
    ridge = np.full(z.shape[1], penalty)
    ridge[-1] = 0.0
    w = np.zeros(z.shape[1])
    for _ in range(100):
        p = 0.5 * (1 + np.tanh(z @ w / 2))  # the sigmoid, without overflow
        gradient = z.T @ (p - y) + ridge * w
        hessian = (z * (p * (1 - p))[:, None]).T @ z + np.diag(ridge + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        # Far from the optimum the Hessian is nearly singular: full steps overshoot.
        w = w - step * min(1.0, 5.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-10:
            break
    return w[:-1], float(w[-1])


def standardise(x: Array) -> tuple[Array, Array, Array]:
    """Return columns of mean 0 and standard deviation 1, means and deviations."""
    means, deviations = x.mean(0), x.std(0)
    deviations = np.where(deviations > 0, deviations, 1.0)
    return (x - means) / deviations, means, deviations
