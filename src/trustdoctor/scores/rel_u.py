"""REL-U: which pairs of probable classes go with errors, learned from labelled rows."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from trustdoctor.arrays import Array, row_product
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import FittedScore
from trustdoctor.scores.registry import register


@register
@dataclass(frozen=True, eq=False)
class RelU(FittedScore):
    r"""Relative uncertainty: how similar the softmax is to that of errors.

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
    temperature: Annotated[float, Meta(gt=0)] = 1.0

    name = "rel_u"
    needs = frozenset({"probs"})
    laws = frozenset({"shift"})
    scale = "log"
    reference = "Dadalto et al. 2024"
    fit_options = tuple(
        {"balance": balance, "shrink": shrink}
        for balance in (0.3, 0.5, 0.7)
        for shrink in (0.1, 0.5)
    )
    learns_from_errors = True

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        d = self.matrix
        square = d.ndim == 2 and d.shape[0] == d.shape[1] >= 2
        valid = square and np.isfinite(d).all() and (d >= 0).all()
        if not (valid and (d.diagonal() == 0).all()):
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
        options = (balance, shrink, temperature)
        numbers = all(isinstance(option, (int, float)) for option in options)
        if not (numbers and 0 <= balance <= 1 and 0 <= shrink <= 1 and temperature > 0):
            message = (
                f"expected balance and shrink from 0 to 1 and a temperature above 0, "
                f"got {balance!r}, {shrink!r} and {temperature!r}."
            )
            raise InputError(message)
        cls.check_fit(predictions, labels=True)
        p, errors = _softmax(predictions.logits, temperature), predictions.errors
        if errors.all() or not errors.any():
            message = (
                "REL-U needs errors and correct predictions to fit on. Give it more "
                "rows."
            )
            raise InputError(message)
        of_errors, of_correct = (
            p[rows].T @ p[rows] / rows.sum() for rows in (errors, ~errors)
        )
        gini = 1 - np.eye(p.shape[1])
        raw = np.maximum(balance * of_errors - (1 - balance) * of_correct, 0) * gini
        mean = raw.sum() / gini.sum()
        learned = raw / mean if mean > 0 else gini
        # A few hundred errors say little about C^2 pairs of classes: shrink.
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
        other_logits = z.copy()
        other_logits[rows, top] = -np.inf
        second = other_logits.max(1)
        certain = np.isneginf(second)
        second = np.where(certain, z[rows, top], second)
        with np.errstate(divide="ignore", over="ignore"):
            gap = (second - z[rows, top]) / self.temperature
            w = np.exp((other_logits - second[:, None]) / self.temperature)
            with_top = ((self.matrix + self.matrix.T)[top] * w).sum(1)
            among_others = (row_product(w, self.matrix) * w).sum(1)
            e = np.exp(gap)
            doubt = gap + np.log(with_top + e * among_others)
            doubt = doubt - 2 * np.log1p(e * w.sum(1))
        return np.where(certain, -np.inf, doubt)


def _softmax(logits: Any, temperature: float) -> Array:
    z = np.asarray(logits, np.float64)
    with np.errstate(over="ignore"):
        e = np.exp((z - z.max(1, keepdims=True)) / temperature)
    return np.asarray(e / e.sum(1, keepdims=True))
