"""The Mahalanobis distance of a row to the nearest class of the training rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from msgspec import Meta

from trustdoctor.arrays import Array, row_product, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions, require_predictions
from trustdoctor.scores.contract import FittedScore, check_needs
from trustdoctor.scores.registry import register

Space = Literal["softmax", "logits", "features"]
SPACES = ("softmax", "logits", "features")


class ClassMoments:
    """Class means and the pooled scatter within classes, computed in one pass.

    Memory is bounded by C means and one d x d matrix, whatever the number of rows.

    References
    ----------
    Chan, Golub & LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances, 1979.
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
        y = y.astype(np.int64)  # small unsigned types cannot hold the initial -1 below
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
        for label in np.unique(y):
            self._merge(int(label), x[y == label])

    def _grow(self, n_classes: int, n_features: int) -> None:
        if not self.scatter.size:
            self.means = np.zeros((0, n_features))
            self.scatter = np.zeros((n_features, n_features))
        n_missing = max(0, n_classes - len(self.counts))
        self.counts = np.append(self.counts, np.zeros(n_missing))
        self.means = np.vstack([self.means, np.zeros((n_missing, n_features))])

    def _merge(self, label: int, rows: Array) -> None:
        # Chan et al.: sums of squares about the class mean, corrected by the distance
        # of the two means. Plain sums of squares would cancel where the mean is large.
        mean = rows.mean(0)
        centred = rows - mean
        gap = mean - self.means[label]
        n_before, n_new = self.counts[label], len(rows)
        self.scatter += centred.T @ centred
        self.scatter += np.outer(gap, gap) * (n_before * n_new / (n_before + n_new))
        self.means[label] += gap * (n_new / (n_before + n_new))
        self.counts[label] += n_new


@register
@dataclass(frozen=True, eq=False)
class Mahalanobis(FittedScore):
    r"""The squared Mahalanobis distance to the nearest class.

    .. math:: \min_c\, (f - \mu_c)^\top \Sigma^{-1} (f - \mu_c)

    with class means :math:`\mu_c` and one covariance :math:`\Sigma`, pooled within
    classes and factored by Cholesky; `ridge` times the mean variance is added to its
    diagonal. The input perturbation goes towards less doubt, as in the paper.

    Attributes
    ----------
    means : array (C, d)
    factor : array (d, d)
        The lower Cholesky factor of the covariance.
    space : str
        What f is: the "softmax" (its first C - 1 entries, since all C are linearly
        dependent), the "logits", or the "features".
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
    space: Space = "logits"
    ridge: Annotated[float, Meta(ge=0)] = 1e-9

    name = "mahalanobis"
    needs = frozenset({"logits"})
    laws = frozenset()
    reference = "Lee et al. 2018"
    perturbation_sign = -1
    fit_options = ({"space": "features", "ridge": 1e-3},)

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        _check_space(self.space)
        object.__setattr__(self, "needs", _needs(self.space))
        if not 0 <= self.ridge < np.inf:
            message = f"expected a ridge of 0 or more, got {self.ridge!r}."
            raise InputError(message)
        means, factor = self.means, self.factor
        valid = means.ndim == 2 and factor.shape == (means.shape[1],) * 2
        valid = valid and len(means) > 0 and bool((np.diagonal(factor) != 0).all())
        if not (valid and np.isfinite(means).all() and np.isfinite(factor).all()):
            message = "expected class means (C, d) and a regular factor (d, d)."
            raise InputError(message)

    @classmethod
    def fit(
        cls,
        predictions: Predictions | Iterable[Predictions],
        *,
        space: Space | None = None,
        ridge: float = 1e-9,
    ) -> "Mahalanobis":
        """Fit on labelled training rows.

        Parameters
        ----------
        predictions : Predictions, or iterable of them
            With labels, and with features for space="features". An iterable is read
            once, batch by batch.
        space : str, optional
            By default the features where the predictions have them, else the logits.
        ridge : float
            See the attributes.
        """
        if space is not None:
            _check_space(space)
        if isinstance(predictions, Predictions):
            predictions = [predictions]
        moments = ClassMoments()
        for batch in predictions:
            require_predictions(batch)
            batch = batch.inside  # noqa: PLW2901 - rows of no class have no mean
            if space is None:
                space = "logits" if batch.features is None else "features"
            check_needs(cls.name, _needs(space), batch)
            rows = batch.features if space == "features" else batch.logits
            labels = batch.require_labels("fitting Mahalanobis")
            moments.update(_coordinates(to_numpy(rows), space), labels)
        return cls.from_moments(moments, space=space or "logits", ridge=ridge)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the squared distance of each row to the nearest class."""
        self.check(predictions)
        in_features = self.space == "features"
        rows = predictions.features if in_features else predictions.logits
        return np.asarray(self.function(rows))

    @classmethod
    def from_moments(
        cls, moments: ClassMoments, *, space: Space, ridge: float
    ) -> "Mahalanobis":
        """Build the score from the moments of training rows."""
        return cls(moments.means, _cholesky_factor(moments, ridge), space, ridge)

    def function(self, logits: Any, *, temperature: float = 1.0) -> Any:
        """Return the squared distance of each row (n, d); differentiable in torch."""
        if temperature != 1:
            message = (
                f"expected temperature 1, at which Mahalanobis is fitted, got "
                f"{temperature!r}. Leave it out."
            )
            raise InputError(message)
        rows = logits if is_torch_array(logits) else to_numpy(logits)
        f = _coordinates(rows, self.space) if rows.ndim == 2 else rows
        if f.ndim != 2 or f.shape[1] != self.means.shape[1]:
            message = (
                f"expected rows of {self.means.shape[1]} {self.space} coordinates as "
                f"in the fit, got shape {tuple(f.shape)}."
            )
            raise InputError(message)
        if is_torch_array(f):
            return self._nearest_torch(f)
        if not np.isfinite(f).all():
            message = (
                "expected finite rows, got NaN or infinity. Fix or remove those rows."
            )
            raise InputError(message)
        # In whitened coordinates the distance is Euclidean. row_product, since the
        # rounding of a matrix product depends on the number of rows.
        whitened = row_product(np.asarray(f, np.float64), self._whitening)
        return _nearest_distance(np, whitened, self._whitened_means)

    @cached_property
    def _whitening(self) -> Array:
        """The matrix that makes the covariance the identity."""
        from scipy.linalg import solve_triangular

        identity = np.eye(len(self.factor))
        return np.asarray(solve_triangular(self.factor, identity, lower=True)).T

    @cached_property
    def _whitened_means(self) -> Array:
        return row_product(self.means, self._whitening)

    def _nearest_torch(self, f: Any) -> Any:
        xp = array_namespace(f)
        wide = xp.astype(f, xp.float64)
        factor = xp.asarray(self.factor, device=f.device)
        whitened = xp.linalg.solve_triangular(factor, wide.T, upper=False).T
        means = xp.asarray(self._whitened_means, device=f.device)
        return _nearest_distance(xp, whitened, means)


def _check_space(space: str) -> None:
    if space not in SPACES:
        message = f"expected space out of {', '.join(SPACES)}, got {space!r}."
        raise InputError(message)


def _needs(space: Space) -> frozenset[str]:
    return frozenset({"probs" if space == "softmax" else space})


def _nearest_distance(xp: Any, rows: Any, centres: Any) -> Any:
    """Return the squared distance of each row to the nearest centre."""
    # One centre after another: all at once would take n x C x d numbers.
    nearest = None
    for centre in centres:
        with np.errstate(over="ignore", invalid="ignore"):  # farther than any number
            gaps = rows - centre
            distance = xp.sum(gaps * gaps, axis=-1)
        nearest = distance if nearest is None else xp.minimum(nearest, distance)
    return nearest


def _coordinates(rows: Any, space: Space) -> Any:
    if space != "softmax":
        return rows
    xp = array_namespace(rows)
    e = xp.exp(rows - xp.max(rows, axis=-1, keepdims=True))
    return (e / xp.sum(e, axis=-1, keepdims=True))[..., :-1]


def _cholesky_factor(moments: ClassMoments, ridge: float) -> Array:
    empty = np.flatnonzero(moments.counts == 0)
    if not len(moments.counts) or len(empty):
        reason = f"class {empty[0]} has none" if len(empty) else "there are none"
        message = f"expected training rows of every class, but {reason}."
        raise InputError(message)
    covariance = moments.scatter / moments.counts.sum()
    variance = float(np.trace(covariance)) / len(covariance)
    if not (variance > 0 and ridge >= 0):
        message = (
            f"expected training rows that differ within a class and a ridge of 0 or "
            f"more, got mean variance {variance:.3g} and ridge {ridge!r}."
        )
        raise InputError(message)
    try:
        return np.linalg.cholesky(
            covariance + ridge * variance * np.eye(len(covariance))
        )
    except np.linalg.LinAlgError as error:
        message = f"the covariance is singular at ridge {ridge!r}. Raise the ridge."
        raise InputError(message) from error
