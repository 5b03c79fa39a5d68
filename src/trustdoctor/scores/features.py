"""Scores by the features of training rows: SIRC, kNN, trust score, ViM.

scikit-learn finds the nearest neighbours. kNN and trust score keep the training
features.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_features, row_product
from trustdoctor.errors import InputError, missing_package
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import FittedScore
from trustdoctor.scores.registry import register
from trustdoctor.scores.softmax import energy, msp

_ALL_LAWS = frozenset({"permutation", "shift", "direction"})


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
    laws = _ALL_LAWS
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


@register
@dataclass(frozen=True, eq=False)
class KNN(FittedScore):
    r"""The distance to the k-th nearest training row, features scaled to length 1.

    .. math:: \| f / \|f\|_2 - g_{(k)} \|_2

    with :math:`g_{(k)}` the k-th nearest of the training rows' features of length 1.

    Attributes
    ----------
    train_features : array (n, d)
        Training features of length 1.
    k : int

    References
    ----------
    Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.

    Examples
    --------
    >>> train = Predictions.from_logits(np.eye(3), features=np.eye(3))
    >>> f = [[2.0, 0, 0], [1, 1, 0]]
    >>> KNN.fit(train, k=1)(Predictions.from_logits(f, features=f)).round(3)
    array([0.   , 0.765])
    """

    train_features: Array = field(repr=False)
    k: Annotated[int, Meta(ge=1)] = 50

    name = "knn"
    needs = frozenset({"features"})
    laws = _ALL_LAWS
    reference = "Sun et al. 2022"
    fit_options = ({"k": 5}, {"k": 50})

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        as_features(self.train_features)
        if not (type(self.k) is int and 1 <= self.k <= len(self.train_features)):
            message = (
                f"expected k from 1 to {len(self.train_features)}, got {self.k!r}."
            )
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions, *, k: int = 50) -> "KNN":
        """Keep the features of training rows."""
        cls.check_fit(predictions)
        return cls(_unit_length(as_features(predictions.features)), k)

    @cached_property
    def _index(self) -> Any:
        return _neighbour_index(self.train_features, self.k)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the distance of each row."""
        self.check(predictions)
        x = as_features(predictions.features, width=self.train_features.shape[1])
        return _farthest_distance(self._index, self.train_features, _unit_length(x))


@register
@dataclass(frozen=True, eq=False)
class TrustScore(FittedScore):
    r"""Log of the distance to the predicted class over that to the nearest other class.

    .. math:: \log \frac{d(f, m)}{\min_{c \neq m} d(f, c)}, \quad
              d(f, c) = \min_{i : y_i = c} \| f - f_i \|_2

    with m the predicted class. The paper's trust score is exp(-doubt). Training rows
    are not filtered by density first (the paper's alpha is 0).

    Attributes
    ----------
    train_features : array (n, d)
    train_labels : integer array (n,)

    References
    ----------
    Jiang et al., To Trust Or Not To Trust A Classifier, NeurIPS 2018.

    Examples
    --------
    >>> train = Predictions.from_logits(np.eye(2), [0, 1], features=[[0.0], [1.0]])
    >>> new = Predictions.from_logits([[2.0, 0.0]], features=[[0.25]])
    >>> TrustScore.fit(train)(new).round(3)
    array([-1.099])
    """

    train_features: Array = field(repr=False)
    train_labels: NDArray[np.int64] = field(repr=False)

    name = "trust_score"
    needs = frozenset({"probs", "features"})
    laws = frozenset({"shift"})
    scale = "log"
    reference = "Jiang et al. 2018"

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        as_features(self.train_features)
        y = self.train_labels
        valid = y.shape == (len(self.train_features),) and y.dtype.kind in "iu"
        if not valid or len(np.unique(y)) < 2:
            message = (
                f"expected {len(self.train_features)} integer labels of at least two "
                "classes."
            )
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions) -> "TrustScore":
        """Keep the features of training rows and their classes."""
        cls.check_fit(predictions, labels=True)
        labelled = predictions.inside  # rows outside are no class to be near to
        labels = labelled.require_labels("fitting")
        return cls(as_features(labelled.features), labels)

    @cached_property
    def _indices(self) -> dict[int, tuple[Any, Array]]:
        """For each class, an index of its training features, and these."""
        by_class = {
            label: self.train_features[self.train_labels == label]
            for label in np.unique(self.train_labels).tolist()
        }
        return {c: (_neighbour_index(f, 1), f) for c, f in by_class.items()}

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt about each row's predicted class."""
        self.check(predictions)
        x = as_features(predictions.features, width=self.train_features.shape[1])
        distances = np.stack(
            [_farthest_distance(*index, x) for index in self._indices.values()], 1
        )
        classes = np.array(list(self._indices))
        is_predicted = classes[None, :] == predictions.predicted[:, None]
        if not is_predicted.any(1).all():
            message = (
                "a predicted class has no training row. Fit on rows of all classes."
            )
            raise InputError(message)
        to_predicted = np.where(is_predicted, distances, np.inf).min(1)
        to_nearest_other = np.where(is_predicted, np.inf, distances).min(1)
        # A row that equals a training row has distance 0, whose logarithm is -inf; a
        # row that equals rows of two classes would have -inf - -inf.
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(to_predicted, tiny)) - np.log(
            np.maximum(to_nearest_other, tiny)
        )


@register
@dataclass(frozen=True, eq=False)
class ViM(FittedScore):
    r"""Virtual-logit matching: features outside their principal subspace.

    .. math:: \alpha \|R^\top (f - \mu)\|_2 - \log \sum_j e^{z_j}

    with R the directions of least variance of training features, and alpha such that
    the virtual logit is on average as large as the largest true one.

    Attributes
    ----------
    mean : array (d,)
    residual_basis : array (d, d - n_components)
        R.
    alpha : float

    References
    ----------
    Wang et al., ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> f, z = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    >>> p = Predictions.from_logits(z, features=f)
    >>> ViM.fit(p, n_components=2)(p).shape
    (50,)
    """

    mean: Array = field(repr=False)
    residual_basis: Array = field(repr=False)
    alpha: float

    name = "vim"
    needs = frozenset({"logits", "features"})
    laws = frozenset({"permutation", "direction"})
    reference = "Wang et al. 2022"

    def __post_init__(self) -> None:
        """Refuse values that no such score has."""
        as_features(self.residual_basis, rows=len(self.mean))
        if self.mean.ndim != 1 or not np.isfinite([*self.mean, self.alpha]).all():
            message = "expected a mean and directions of as many numbers."
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions, *, n_components: int | None = None) -> "ViM":
        """Fit on features and logits of training rows.

        `n_components` is the dimension of the principal subspace; by default half of
        that of the features.
        """
        cls.check_fit(predictions)
        x = as_features(predictions.features)
        z = predictions.logits.astype(np.float64)
        n_features = x.shape[1]
        n_components = n_features // 2 if n_components is None else n_components
        if not 0 < n_components < n_features:
            message = (
                f"expected n_components from 1 to {n_features - 1}, got "
                f"{n_components!r}."
            )
            raise InputError(message)
        mean = x.mean(0)
        _, vectors = np.linalg.eigh(np.cov((x - mean).T))  # of rising variance
        basis = np.ascontiguousarray(vectors[:, : n_features - n_components])
        residuals = np.linalg.norm((x - mean) @ basis, axis=1)
        if not residuals.mean() > 1e-9 * np.linalg.norm(x - mean, axis=1).mean():
            message = (
                "nothing is left of the features outside their principal subspace. "
                "Lower n_components."
            )
            raise InputError(message)
        return cls(mean, basis, float(z.max(1).sum() / residuals.sum()))

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        self.check(predictions)
        x = as_features(predictions.features, width=len(self.mean))
        residuals = np.linalg.norm(
            row_product(x - self.mean, self.residual_basis), axis=1
        )
        return np.asarray(self.alpha * residuals + energy(predictions))


def _unit_length(x: Array) -> Array:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1)


def _farthest_distance(index: Any, train: Array, rows: Array) -> Array:
    """Return the distance to the farthest of the k nearest training rows."""
    nearest = index.kneighbors(rows, return_distance=False)
    # The index's own distances come from matrix products, whose rounding depends on the
    # number of rows; a row's doubt must not depend on the other rows of its batch.
    gaps = (np.linalg.norm(rows - train[column], axis=1) for column in nearest.T)
    return np.max(list(gaps), axis=0)


def _neighbour_index(train: Array, k: int) -> Any:
    try:
        from sklearn.neighbors import NearestNeighbors
    except ImportError as error:
        raise missing_package(
            what="finding nearest neighbours", package="scikit-learn", extra="sklearn"
        ) from error
    return NearestNeighbors(n_neighbors=k).fit(train)
