"""Scores by the training rows nearby: kNN, trust score, ViM.

Neighbours are found by scikit-learn. Training features are kept with the score.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array, as_features, row_product
from trustdoctor.errors import InputError, missing_package
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import FittedScore
from trustdoctor.scores.registry import register
from trustdoctor.scores.softmax import energy

_EVERY = frozenset({"permutation", "shift", "direction"})


@register
@dataclass(frozen=True, eq=False)
class KNN(FittedScore):
    """The distance to the k-th nearest training row, features scaled to length 1.

    Attributes
    ----------
    train : array (n, d)
        Training features of length 1.
    k : int

    References
    ----------
    Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.

    Examples
    --------
    >>> train = Predictions.from_logits(np.eye(3), features=np.eye(3))
    >>> seen = [[2.0, 0, 0], [1, 1, 0]]
    >>> KNN.fit(train, k=1)(Predictions.from_logits(seen, features=seen)).round(3)
    array([0.   , 0.765])
    """

    train: Array = field(repr=False)
    k: int = 50

    name = "knn"
    needs = frozenset({"features"})
    laws = _EVERY
    reference = "Sun et al. 2022"
    settings = ({"k": 5}, {"k": 50})

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        as_features(self.train)
        if not (type(self.k) is int and 1 <= self.k <= len(self.train)):
            message = f"expected k from 1 to {len(self.train)}, got {self.k!r}."
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions, *, k: int = 50) -> "KNN":
        """Keep the features of training rows."""
        cls.check_fit(predictions)
        return cls(_unit(as_features(predictions.features)), k)

    @cached_property
    def _index(self) -> Any:
        return _neighbours(self.train, self.k)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the distance of each row."""
        self.check(predictions)
        x = as_features(predictions.features, width=self.train.shape[1])
        return _farthest(self._index, self.train, _unit(x))


@register
@dataclass(frozen=True, eq=False)
class TrustScore(FittedScore):
    """Log of the distance to the predicted class over that to the nearest other one.

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

    train: Array = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)

    name = "trust_score"
    needs = frozenset({"probs", "features"})
    laws = frozenset({"shift"})
    scale = "log"
    reference = "Jiang et al. 2018"

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        as_features(self.train)
        y = self.labels
        whole = y.shape == (len(self.train),) and y.dtype.kind in "iu"
        if not whole or len(np.unique(y)) < 2:
            message = (
                f"expected {len(self.train)} integer labels of two classes or more."
            )
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions) -> "TrustScore":
        """Keep the features of training rows and their classes."""
        cls.check_fit(predictions, labels=True)
        labels = predictions.require_labels("fitting")
        return cls(as_features(predictions.features), labels)

    @cached_property
    def _indices(self) -> dict[int, tuple[Any, Array]]:
        classes = np.unique(self.labels).tolist()
        rows = {c: self.train[self.labels == c] for c in classes}
        return {c: (_neighbours(own, 1), own) for c, own in rows.items()}

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row about its predicted class."""
        self.check(predictions)
        x = as_features(predictions.features, width=self.train.shape[1])
        about = predictions.predicted
        near = {c: _farthest(*found, x) for c, found in self._indices.items()}
        table = np.stack(list(near.values()), 1)
        own = np.array(list(near))[None, :] == about[:, None]
        if not own.any(1).all():
            message = "a predicted class has no training row. Fit on rows of all."
            raise InputError(message)
        ours = np.where(own, table, np.inf).min(1)
        others = np.where(own, np.inf, table).min(1)
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(ours, tiny)) - np.log(np.maximum(others, tiny))


@register
@dataclass(frozen=True, eq=False)
class ViM(FittedScore):
    r"""Virtual-logit matching: what the main directions of the features leave out.

    .. math:: \alpha \|R^\top (f - \mu)\|_2 - \log \sum_j e^{z_j}

    with R the directions of least variance of training features, and alpha such that
    the virtual logit is on average as large as the largest true one.

    References
    ----------
    Wang et al., ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> f, z = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    >>> p = Predictions.from_logits(z, features=f)
    >>> ViM.fit(p, kept=2)(p).shape
    (50,)
    """

    mean: Array = field(repr=False)
    rest: Array = field(repr=False)
    alpha: float

    name = "vim"
    needs = frozenset({"logits", "features"})
    laws = frozenset({"permutation", "direction"})
    reference = "Wang et al. 2022"

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        as_features(self.rest, rows=len(self.mean))
        if self.mean.ndim != 1 or not np.isfinite([*self.mean, self.alpha]).all():
            message = "expected a mean and directions of as many numbers."
            raise InputError(message)

    @classmethod
    def fit(cls, predictions: Predictions, *, kept: int | None = None) -> "ViM":
        """Fit on features and logits of training rows.

        `kept` directions count as the main ones; by default half of them.
        """
        cls.check_fit(predictions)
        x = as_features(predictions.features)
        z = predictions.logits.astype(np.float64)
        kept = x.shape[1] // 2 if kept is None else kept
        if not 0 < kept < x.shape[1]:
            message = (
                f"expected to keep 1 to {x.shape[1] - 1} directions, got {kept!r}."
            )
            raise InputError(message)
        mean = x.mean(0)
        _, vectors = np.linalg.eigh(np.cov((x - mean).T))
        rest = np.ascontiguousarray(vectors[:, : x.shape[1] - kept])
        left = np.linalg.norm((x - mean) @ rest, axis=1)
        if not left.mean() > 1e-9 * np.linalg.norm(x - mean, axis=1).mean():
            message = "nothing is left of the features beyond those directions."
            raise InputError(message)
        return cls(mean, rest, float(z.max(1).sum() / left.sum()))

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        self.check(predictions)
        x = as_features(predictions.features, width=len(self.mean))
        left = np.linalg.norm(row_product(x - self.mean, self.rest), axis=1)
        return np.asarray(self.alpha * left + energy(predictions))


def _unit(x: Array) -> Array:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1)


def _farthest(index: Any, train: Array, rows: Array) -> Array:
    """Return the distance to the farthest of the k nearest training rows.

    The index finds them; distances are taken anew, one pair of rows after another,
    since those of its matrix products depend on the number of rows.
    """
    nearest = index.kneighbors(rows, return_distance=False)
    gaps = (np.linalg.norm(rows - train[at], axis=1) for at in nearest.T)
    return np.max(list(gaps), axis=0)


def _neighbours(train: Array, k: int) -> Any:
    try:
        from sklearn.neighbors import NearestNeighbors
    except ImportError as error:
        what = "finding nearest neighbours"
        raise missing_package(
            what=what, package="scikit-learn", extra="sklearn"
        ) from error
    return NearestNeighbors(n_neighbors=k).fit(train)
