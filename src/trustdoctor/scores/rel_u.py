"""REL-U: doubt learned from the softmax of errors."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, row_product
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import FittedScore
from trustdoctor.scores.registry import register


@register
@dataclass(frozen=True, eq=False)
class RelU(FittedScore):
    r"""Relative uncertainty: how alike the softmax is to those of errors.

    .. math:: \log\, p^\top D p, \quad D = \mathrm{relu}\bigl(\lambda\,
              E[p p^\top | \text{error}] - (1 - \lambda)\, E[p p^\top |
              \text{correct}]\bigr)

    with a zero diagonal, scaled to mean 1 and shrunk to :math:`1 1^\top - I`, whose
    doubt is the Gini impurity.

    Attributes
    ----------
    matrix : array (C, C)
        D.
    temperature : float
        Divides the logits.

    References
    ----------
    Dadalto et al., A Data-Driven Measure of Relative Uncertainty for Misclassification
    Detection, ICLR 2024.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = Predictions.from_logits(rng.normal(size=(200, 3)), rng.integers(0, 3, 200))
    >>> RelU.fit(p)(p).shape
    (200,)
    """

    matrix: Array = field(repr=False)
    temperature: float = 1.0

    name = "rel_u"
    needs = frozenset({"probs"})
    laws = frozenset({"shift"})
    scale = "log"
    reference = "Dadalto et al. 2024"
    settings = tuple(
        {"balance": balance, "shrink": shrink}
        for balance in (0.3, 0.5, 0.7)
        for shrink in (0.1, 0.5)
    )
    from_errors = True

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        d = self.matrix
        square = d.ndim == 2 and d.shape[0] == d.shape[1] >= 2
        good = square and np.isfinite(d).all() and (d >= 0).all()
        if not (good and (d.diagonal() == 0).all()):
            message = (
                "expected a square matrix with a zero diagonal and no negative number."
            )
            raise InputError(message)
        if not 0 < self.temperature < np.inf:
            message = f"expected a temperature above 0, got {self.temperature}."
            raise InputError(message)

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        *,
        balance: float = 0.5,
        shrink: float = 0.1,
        temperature: float = 1.0,
    ) -> "RelU":
        """Fit D on labelled rows; `balance` is lambda, `shrink` the share of Gini."""
        real = all(isinstance(v, (int, float)) for v in (balance, shrink, temperature))
        if not (real and 0 <= balance <= 1 and 0 <= shrink <= 1 and temperature > 0):
            message = (
                f"expected balance and shrink from 0 to 1 and a temperature above 0, "
                f"got {balance!r}, {shrink!r} and {temperature!r}."
            )
            raise InputError(message)
        cls.check_fit(predictions, labels=True)
        p, wrong = _softmax(predictions.logits, temperature), predictions.errors
        if wrong.all() or not wrong.any():
            message = "REL-U needs rows of both kinds to fit on. Give it more rows."
            raise InputError(message)
        moments = [p[kind].T @ p[kind] / kind.sum() for kind in (wrong, ~wrong)]
        raw = np.maximum(balance * moments[0] - (1 - balance) * moments[1], 0)
        gini = 1 - np.eye(len(raw))
        raw = raw * gini
        mean = raw.sum() / gini.sum()
        learned = raw / mean if mean > 0 else gini
        return cls((1 - shrink) * learned + shrink * gini, float(temperature))

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        self.check(predictions)
        if predictions.n_classes != len(self.matrix):
            message = (
                f"expected {len(self.matrix)} classes, got {predictions.n_classes}."
            )
            raise InputError(message)
        z = predictions.logits.astype(np.float64)
        # p'Dp = e (A + e B) / (1 + e S)^2, relative to the second logit: with the top
        # class m, w_j = exp(z_j - z_2) for j != m and e = exp(z_2 - z_m), A sums
        # (D_mj + D_jm) w_j, B is w'Dw and S sums w_j. So wide gaps do not underflow.
        top, rows = predictions.predicted, np.arange(len(z))
        others = z.copy()
        others[rows, top] = -np.inf
        second = others.max(1)
        certain = np.isneginf(second)
        second = np.where(certain, z[rows, top], second)
        with np.errstate(divide="ignore", over="ignore"):
            gap = (second - z[rows, top]) / self.temperature
            w = np.exp((others - second[:, None]) / self.temperature)
            near = ((self.matrix + self.matrix.T)[top] * w).sum(1)
            far = (row_product(w, self.matrix) * w).sum(1)
            e = np.exp(gap)
            doubt = gap + np.log(near + e * far) - 2 * np.log1p(e * w.sum(1))
        return np.where(certain, -np.inf, doubt)


def _softmax(logits: Any, temperature: float) -> Array:
    z = np.asarray(logits, np.float64)
    with np.errstate(over="ignore"):
        e = np.exp((z - z.max(1, keepdims=True)) / temperature)
    return np.asarray(e / e.sum(1, keepdims=True))
