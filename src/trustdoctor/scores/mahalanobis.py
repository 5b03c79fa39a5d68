"""Scores that measure how far a row is from the training rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from trustdoctor.arrays import Array, row_product, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import FittedScore, check_needs
from trustdoctor.scores.registry import register

Source = Literal["softmax", "logits", "features"]
SOURCES = ("softmax", "logits", "features")


class ClassMoments:
    """Class means and the scatter within classes, gathered in one pass.

    Memory is bounded by C means and one d x d matrix, whatever the number of rows.
    Batches are merged as Chan et al. (1979) do, so that a large mean does no harm.
    """

    def __init__(self) -> None:
        self.counts: Array = np.zeros(0)
        self.means: Array = np.zeros((0, 0))
        self.scatter: Array = np.zeros((0, 0))

    def update(self, features: Any, labels: Any) -> None:
        """Add rows (n, d) with labels (n,)."""
        x = np.asarray(to_numpy(features), np.float64)
        y = to_numpy(labels)
        if x.ndim != 2 or y.shape != (len(x),) or y.dtype.kind not in "iu":
            message = (
                f"expected features (n, d) and n integer labels, got shapes {x.shape} "
                f"and {y.shape} ({y.dtype})."
            )
            raise InputError(message)
        y = y.astype(np.int64)  # small unsigned types cannot hold -1
        if len(y) and y.min() < 0:
            message = f"expected labels of 0 or more, got {int(y.min())}."
            raise InputError(message)
        if self.scatter.size and x.shape[1] != len(self.scatter):
            message = (
                f"expected {len(self.scatter)} features per row, got {x.shape[1]}."
            )
            raise InputError(message)
        if not np.isfinite(x).all():
            message = "expected finite features, got NaN or infinity. Fix those rows."
            raise InputError(message)
        self._grow(int(y.max(initial=-1)) + 1, x.shape[1])
        for c in np.unique(y):
            self._merge(int(c), x[y == c])

    def _grow(self, classes: int, width: int) -> None:
        if not self.scatter.size:
            self.means = np.zeros((0, width))
            self.scatter = np.zeros((width, width))
        missing = max(0, classes - len(self.counts))
        self.counts = np.append(self.counts, np.zeros(missing))
        self.means = np.vstack([self.means, np.zeros((missing, width))])

    def _merge(self, c: int, rows: Array) -> None:
        mean = rows.mean(0)
        centred = rows - mean
        gap = mean - self.means[c]
        before, new = self.counts[c], len(rows)
        self.scatter += centred.T @ centred
        self.scatter += np.outer(gap, gap) * (before * new / (before + new))
        self.means[c] += gap * (new / (before + new))
        self.counts[c] += new


@register
@dataclass(frozen=True, eq=False)
class Mahalanobis(FittedScore):
    r"""The squared Mahalanobis distance to the nearest class.

    .. math:: \min_c\, (f - \mu_c)^\top \Sigma^{-1} (f - \mu_c)

    with class means and one covariance, pooled within classes. Solved by Cholesky;
    `ridge` times the mean variance is added to the diagonal. Its perturbation steps
    towards less doubt, as in its paper.

    Attributes
    ----------
    means : array (C, d)
    factor : array (d, d)
        The lower Cholesky factor of the covariance.
    on : str
        What f is: the "softmax" (its first C - 1 entries: all of them are linearly
        dependent), the "logits", or "features" handed in as they are.
    ridge : float

    References
    ----------
    Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples
    and Adversarial Attacks, NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[5.0, 0], [4, 1], [0, 5], [1, 3]])
    >>> score = Mahalanobis.fit(Predictions.from_logits(logits, [0, 0, 1, 1]))
    >>> score(Predictions.from_logits([[4.5, 0.5], [-9.0, 9.0]])).argmax()
    np.int64(1)
    """

    means: Array = field(repr=False)
    factor: Array = field(repr=False)
    on: Source = "logits"
    ridge: float = 1e-9

    name = "mahalanobis"
    needs = frozenset({"logits"})
    laws = frozenset()
    reference = "Lee et al. 2018"
    step = -1
    settings = ({"on": "features", "ridge": 1e-3},)

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        if self.on not in SOURCES:
            message = f"expected on out of {', '.join(SOURCES)}, got {self.on!r}."
            raise InputError(message)
        object.__setattr__(self, "needs", _needs(self.on))
        if not (isinstance(self.ridge, (int, float)) and 0 <= self.ridge < np.inf):
            message = f"expected a ridge of 0 or more, got {self.ridge!r}."
            raise InputError(message)
        means, factor = self.means, self.factor
        fits = means.ndim == 2 and factor.shape == (means.shape[1],) * 2
        fits = fits and len(means) > 0 and bool((np.diagonal(factor) != 0).all())
        if not (fits and np.isfinite(means).all() and np.isfinite(factor).all()):
            message = "expected class means (C, d) and a regular factor (d, d)."
            raise InputError(message)

    @classmethod
    def fit(
        cls,
        predictions: Predictions | Iterable[Predictions],
        *,
        on: Source = "logits",
        ridge: float = 1e-9,
    ) -> "Mahalanobis":
        """Fit on labelled training rows.

        Parameters
        ----------
        predictions : Predictions, or iterable of them
            With labels, and with features for on="features". An iterable is read once,
            batch by batch.
        on, ridge
            See the attributes.
        """
        if on not in SOURCES:
            message = f"expected on out of {', '.join(SOURCES)}, got {on!r}."
            raise InputError(message)
        if isinstance(predictions, Predictions):
            predictions = [predictions]
        moments = ClassMoments()
        for part in predictions:
            check_needs(cls.name, _needs(on), part)
            rows = part.features if on == "features" else part.logits
            labels = part.require_labels("fitting Mahalanobis")
            moments.update(_coordinates(to_numpy(rows), on), labels)
        return cls.from_moments(moments, on=on, ridge=ridge)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the squared distance of each row to the nearest class."""
        self.check(predictions)
        by_features = self.on == "features"
        rows = predictions.features if by_features else predictions.logits
        return np.asarray(self.function(rows))

    @classmethod
    def from_moments(
        cls, moments: ClassMoments, *, on: Source, ridge: float
    ) -> "Mahalanobis":
        """Build the score from moments gathered elsewhere."""
        return cls(moments.means, _factor(moments, ridge), on, ridge)

    def function(self, logits: Any, *, temperature: float = 1.0) -> Any:
        """Return the distance of each row (n, d); torch stays differentiable."""
        if temperature != 1:
            message = (
                f"Mahalanobis is fitted at temperature 1 and has no other, got "
                f"{temperature!r}. Leave it at 1."
            )
            raise InputError(message)
        rows = logits if is_torch_array(logits) else to_numpy(logits)
        f = _coordinates(rows, self.on) if rows.ndim == 2 else rows
        if f.ndim != 2 or f.shape[1] != self.means.shape[1]:
            message = (
                f"expected rows of {self.means.shape[1]} {self.on} coordinates as in "
                f"the fit, got shape {tuple(f.shape)}."
            )
            raise InputError(message)
        if is_torch_array(f):
            return self._nearest_torch(f)
        if not np.isfinite(f).all():
            message = (
                "expected finite rows, got NaN or infinity. Fix or remove those rows."
            )
            raise InputError(message)
        white = row_product(np.asarray(f, np.float64), self._whitening)
        return _least(np, white, self._centres)

    @cached_property
    def _whitening(self) -> Array:
        """The matrix that makes the covariance the identity."""
        return _solve(self.factor, np.eye(len(self.factor))).T

    @cached_property
    def _centres(self) -> Array:
        return row_product(self.means, self._whitening)

    def _nearest_torch(self, f: Any) -> Any:
        xp = array_namespace(f)
        wide = xp.astype(f, xp.float64)
        factor = xp.asarray(self.factor, device=f.device)
        white = xp.linalg.solve_triangular(factor, wide.T, upper=False).T
        return _least(xp, white, xp.asarray(self._centres, device=f.device))


def _needs(on: Source) -> frozenset[str]:
    return frozenset({"probs" if on == "softmax" else on})


def _least(xp: Any, white: Any, centres: Any) -> Any:
    """Return the squared distance to the nearest centre, one centre after another."""
    nearest = None
    for centre in centres:
        with np.errstate(over="ignore", invalid="ignore"):  # farther than any number
            gaps = white - centre
            distance = xp.sum(gaps * gaps, axis=-1)
        nearest = distance if nearest is None else xp.minimum(nearest, distance)
    return nearest


def _coordinates(rows: Any, on: Source) -> Any:
    if on != "softmax":
        return rows
    xp = array_namespace(rows)
    e = xp.exp(rows - xp.max(rows, axis=-1, keepdims=True))
    return (e / xp.sum(e, axis=-1, keepdims=True))[..., :-1]


def _factor(moments: ClassMoments, ridge: float) -> Array:
    empty = np.flatnonzero(moments.counts == 0)
    if not len(moments.counts) or len(empty):
        what = f"class {empty[0]} has none" if len(empty) else "there are none"
        message = f"expected training rows of every class, but {what}."
        raise InputError(message)
    covariance = moments.scatter / moments.counts.sum()
    spread = float(np.trace(covariance)) / len(covariance)
    if not (spread > 0 and ridge >= 0):
        message = (
            f"expected training rows that differ within a class and a ridge of 0 or "
            f"more, got mean variance {spread:.3g} and ridge {ridge!r}."
        )
        raise InputError(message)
    try:
        return np.linalg.cholesky(covariance + ridge * spread * np.eye(len(covariance)))
    except np.linalg.LinAlgError as error:
        message = f"the covariance is singular at ridge {ridge!r}. Raise the ridge."
        raise InputError(message) from error


def _solve(factor: Array, columns: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, columns, lower=True))
