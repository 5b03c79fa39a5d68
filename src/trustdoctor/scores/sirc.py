"""SIRC: softmax response, raised where the norm of the features is small."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from trustdoctor.arrays import Array, as_features
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import FittedScore
from trustdoctor.scores.registry import register
from trustdoctor.scores.softmax import msp


@register
@dataclass(frozen=True, eq=False)
class SIRC(FittedScore):
    r"""Softmax response, raised where features are small compared with training rows.

    .. math:: \log\bigl((1 - p_m)(1 + e^{-b (\|f\|_1 - a)})\bigr), \quad
              a = \mu - 3 \sigma, \quad b = 1 / \sigma

    with mean :math:`\mu` and standard deviation :math:`\sigma` of the norms of the
    training rows' features. Each row has `n_features` features.

    References
    ----------
    Xia & Bouganis, Augmenting Softmax Information for Selective Classification with
    Out-of-Distribution Data, ACCV 2022.

    Examples
    --------
    >>> features = np.ones((4, 2)) + np.eye(4, 2)
    >>> p = Predictions.from_logits(np.eye(4, 2), features=features)
    >>> SIRC.fit(p)(p).shape
    (4,)
    """

    a: float
    b: Annotated[float, Meta(gt=0)]
    n_features: Annotated[int, Meta(ge=1)]

    name = "sirc"
    needs = frozenset({"probs", "features"})
    laws = frozenset({"permutation", "shift", "direction"})
    scale = "log"
    reference = "Xia & Bouganis 2022"

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        if not (np.isfinite(self.a) and 0 < self.b < np.inf):
            message = f"expected a finite a and b above 0, got {self.a} and {self.b}."
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions) -> "SIRC":
        """Fit on the features of training rows."""
        cls.check_fit(predictions)
        x = as_features(predictions.features)
        norms = np.abs(x).sum(1)
        deviation = float(norms.std())
        # Norms that are equal but for rounding (the rows of a softmax) tell nothing.
        if not deviation > 1e-9 * float(norms.mean()):
            message = "expected features whose norms differ, got equal norms."
            raise InputError(message)
        return cls(float(norms.mean()) - 3 * deviation, 1 / deviation, x.shape[1])

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        self.check(predictions)
        x = as_features(predictions.features, width=self.n_features)
        norms = np.abs(x).sum(1)
        doubt = np.asarray(msp(predictions), np.float64)
        with np.errstate(over="ignore"):
            # log(1 + exp(x)) without overflow.
            return doubt + np.logaddexp(0.0, -self.b * (norms - self.a))
