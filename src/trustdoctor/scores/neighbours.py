"""Scores by the training rows nearby: kNN, trust score, ViM.

Neighbours are found by scikit-learn. Training features are kept with the score.
"""

from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trustdoctor import tensors
from trustdoctor.errors import InputError, MissingPackageError
from trustdoctor.predictions import to_numpy
from trustdoctor.scores import energy
from trustdoctor.scores.relative import as_features

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KNN:
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
    >>> score = KNN.fit(np.eye(3), k=1)
    >>> score(np.array([[2.0, 0, 0], [1, 1, 0]])).round(3)
    array([0.   , 0.765])
    """

    train: Array = field(repr=False)
    k: int = 50

    name: ClassVar[str] = "knn"
    needs: ClassVar[str] = "features"

    @classmethod
    def fit(cls, features: Any, *, k: int = 50) -> "KNN":
        """Keep the features (n, d) of training rows."""
        x = _unit(as_features(features))
        if not (type(k) is int and 1 <= k <= len(x)):
            message = f"expected k from 1 to {len(x)}, got {k!r}."
            raise InputError(message)
        return cls(x, k)

    @cached_property
    def _index(self) -> Any:
        return _neighbours(self.train, self.k)

    def __call__(self, features: Any) -> Array:
        """Return the distance of each row."""
        x = as_features(features, width=self.train.shape[1])
        return self._index.kneighbors(_unit(x))[0][:, -1]

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file."""
        tensors.save(path, self.name, {"train": self.train}, {"k": self.k})

    @classmethod
    def load(cls, path: str | Path) -> "KNN":
        """Read what `save` wrote."""
        arrays, fields = tensors.load(path, cls.name)
        with tensors.complaining(path):
            return cls(arrays["train"], fields["k"])


@dataclass(frozen=True, eq=False)
class TrustScore:
    """Log of the distance to the predicted class over that to the nearest other one.

    References
    ----------
    Jiang et al., To Trust Or Not To Trust A Classifier, NeurIPS 2018.

    Examples
    --------
    >>> score = TrustScore.fit(np.array([[0.0], [1.0]]), [0, 1])
    >>> score(np.array([[0.25]]), [0]).round(3)
    array([-1.099])
    """

    train: Array = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)

    name: ClassVar[str] = "trust_score"
    needs: ClassVar[str] = "features"

    @classmethod
    def fit(cls, features: Any, labels: Any) -> "TrustScore":
        """Keep the features (n, d) of training rows and their classes."""
        x, y = as_features(features), to_numpy(labels)
        if y.shape != (len(x),) or y.dtype.kind not in "iu" or len(np.unique(y)) < 2:
            message = f"expected {len(x)} integer labels of two classes or more."
            raise InputError(message)
        return cls(x, y.astype(np.int64))

    @cached_property
    def _indices(self) -> dict[int, Any]:
        classes = np.unique(self.labels).tolist()
        return {c: _neighbours(self.train[self.labels == c], 1) for c in classes}

    def __call__(self, features: Any, predicted: Any) -> Array:
        """Return the doubt of each row, given its predicted class."""
        x = as_features(features, width=self.train.shape[1])
        about = to_numpy(predicted)
        if about.shape != (len(x),):
            message = f"expected {len(x)} predicted classes, got shape {about.shape}."
            raise InputError(message)
        near = {c: i.kneighbors(x)[0][:, 0] for c, i in self._indices.items()}
        table = np.stack(list(near.values()), 1)
        own = np.array(list(near))[None, :] == about[:, None]
        if not own.any(1).all():
            message = "a predicted class has no training row. Fit on rows of all."
            raise InputError(message)
        ours = np.where(own, table, np.inf).min(1)
        others = np.where(own, np.inf, table).min(1)
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(ours, tiny)) - np.log(np.maximum(others, tiny))

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file."""
        arrays = {"train": self.train, "labels": self.labels}
        tensors.save(path, self.name, arrays, {})

    @classmethod
    def load(cls, path: str | Path) -> "TrustScore":
        """Read what `save` wrote."""
        arrays, _ = tensors.load(path, cls.name)
        with tensors.complaining(path):
            return cls(arrays["train"], arrays["labels"])


@dataclass(frozen=True, eq=False)
class ViM:
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
    >>> ViM.fit(f, z, kept=2)(f, z).shape
    (50,)
    """

    mean: Array = field(repr=False)
    rest: Array = field(repr=False)
    alpha: float

    name: ClassVar[str] = "vim"
    needs: ClassVar[str] = "features"

    @classmethod
    def fit(cls, features: Any, logits: Any, *, kept: int | None = None) -> "ViM":
        """Fit on features (n, d) and logits (n, C) of training rows.

        `kept` directions count as the main ones; by default half of them.
        """
        x = as_features(features)
        z = np.asarray(to_numpy(logits), np.float64)
        kept = x.shape[1] // 2 if kept is None else kept
        if not 0 < kept < x.shape[1] or len(z) != len(x):
            message = (
                f"expected as many logits as features, and to keep 1 to "
                f"{x.shape[1] - 1} directions, got {len(z)}, {len(x)} and {kept!r}."
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

    def __call__(self, features: Any, logits: Any) -> Array:
        """Return the doubt of each row."""
        x, z = as_features(features, width=len(self.mean)), to_numpy(logits)
        if len(z) != len(x):
            message = f"expected logits of {len(x)} rows, got {len(z)}."
            raise InputError(message)
        left = np.linalg.norm((x - self.mean) @ self.rest, axis=1)
        return np.asarray(self.alpha * left + energy(z))

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file."""
        arrays = {"mean": self.mean, "rest": self.rest}
        tensors.save(path, self.name, arrays, {"alpha": self.alpha})

    @classmethod
    def load(cls, path: str | Path) -> "ViM":
        """Read what `save` wrote."""
        arrays, fields = tensors.load(path, cls.name)
        with tensors.complaining(path):
            return cls(arrays["mean"], arrays["rest"], fields["alpha"])


def _unit(x: Array) -> Array:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1)


def _neighbours(train: Array, k: int) -> Any:
    try:
        library = import_module("sklearn.neighbors")
    except ImportError as error:
        message = (
            "nearest neighbours need scikit-learn, which is not installed: "
            'pip install "trustdoctor[sklearn]"'
        )
        raise MissingPackageError(message) from error
    return library.NearestNeighbors(n_neighbors=k).fit(train)
