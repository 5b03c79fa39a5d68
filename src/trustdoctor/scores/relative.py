"""Scores that are fitted: REL-U, SIRC, and the logistic fusion of several."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trustdoctor import tensors
from trustdoctor.errors import InputError, RowError
from trustdoctor.predictions import Predictions, as_errors, to_numpy
from trustdoctor.scores import msp

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RelU:
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

    name: ClassVar[str] = "rel_u"
    needs: ClassVar[str] = "probs"

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
        return cls((1 - shrink) * learned + shrink * gini, temperature)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        p = _softmax(predictions.logits, self.temperature)
        if p.shape[1] != len(self.matrix):
            message = f"expected {len(self.matrix)} classes, got {p.shape[1]}."
            raise InputError(message)
        with np.errstate(divide="ignore"):
            return np.log(((p @ self.matrix) * p).sum(1))

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file."""
        fields = {"temperature": self.temperature}
        tensors.save(path, self.name, {"matrix": self.matrix}, fields)

    @classmethod
    def load(cls, path: str | Path) -> "RelU":
        """Read what `save` wrote."""
        arrays, fields = tensors.load(path, cls.name)
        with tensors.complaining(path):
            return cls(arrays["matrix"], fields["temperature"])


@dataclass(frozen=True, eq=False)
class SIRC:
    r"""Softmax response, raised where features are small for training rows.

    .. math:: \log\bigl((1 - p_m)(1 + e^{-b (\|f\|_1 - a)})\bigr), \quad
              a = \mu - 3 \sigma, \quad b = 1 / \sigma

    with mean and deviation of the norms of training features.

    References
    ----------
    Xia & Bouganis, Augmenting Softmax Information for Selective Classification with
    Out-of-Distribution Data, ACCV 2022.

    Examples
    --------
    >>> score = SIRC.fit(np.ones((4, 2)) + np.eye(4, 2))
    >>> p = Predictions.from_logits([[2.0, 0.0]])
    >>> score(p, np.ones((1, 2))).shape
    (1,)
    """

    a: float
    b: float

    name: ClassVar[str] = "sirc"
    needs: ClassVar[str] = "features"

    @classmethod
    def fit(cls, features: Any) -> "SIRC":
        """Fit on features (n, d) of training rows."""
        norms = np.abs(as_features(features)).sum(1)
        spread = float(norms.std())
        if not spread > 1e-9 * float(norms.mean()):
            message = "expected features whose norms differ, got equal ones."
            raise InputError(message)
        return cls(float(norms.mean()) - 3 * spread, 1 / spread)

    def __call__(self, predictions: Predictions, features: Any) -> Array:
        """Return the doubt of each row."""
        norms = np.abs(as_features(features, rows=len(predictions))).sum(1)
        doubt = np.asarray(msp(predictions.logits), np.float64)
        return doubt + np.logaddexp(0.0, -self.b * (norms - self.a))

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file."""
        arrays = {"ends": np.array([self.a, self.b])}
        tensors.save(path, self.name, arrays, {})

    @classmethod
    def load(cls, path: str | Path) -> "SIRC":
        """Read what `save` wrote."""
        arrays, _ = tensors.load(path, cls.name)
        with tensors.complaining(path):
            return cls(*map(float, arrays["ends"]))


@dataclass(frozen=True, eq=False)
class Fusion:
    """The log odds of an error by a logistic regression on several scores.

    Attributes
    ----------
    names : tuple of str
        The scores.
    ends : array (2, k)
        The least and the largest finite score of the fit: rows beyond count as there.
    means, spreads, weights : arrays (k,)
        Scores are standardised, then weighted.
    bias : float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(500) < 0.3
    >>> score = Fusion.fit({"a": rng.normal(size=500) + errors}, errors)
    >>> bool(score.weights[0] > 0)
    True
    """

    names: tuple[str, ...]
    ends: Array = field(repr=False)
    means: Array = field(repr=False)
    spreads: Array = field(repr=False)
    weights: Array
    bias: float

    name: ClassVar[str] = "fusion"
    needs: ClassVar[str] = "labels"

    @classmethod
    def fit(
        cls, scores: dict[str, Any], errors: Any, *, penalty: float = 1.0
    ) -> "Fusion":
        """Fit on scores of labelled rows; `penalty` is a ridge, scores standardised."""
        if not (isinstance(penalty, (int, float)) and penalty > 0):
            message = f"expected a penalty above 0, got {penalty!r}."
            raise InputError(message)
        x = _columns(scores)
        wrong = as_errors(errors, rows=len(x))
        ends = _ends(x)
        x = np.clip(x, *ends)
        if wrong.all() or not wrong.any():
            message = "a fusion needs rows of both kinds to fit on. Give it more rows."
            raise InputError(message)
        means, spreads = x.mean(0), x.std(0)
        spreads = np.where(spreads > 0, spreads, 1.0)
        design = np.column_stack([(x - means) / spreads, np.ones(len(x))])
        weights = _logistic(design, wrong, penalty)
        bias = float(weights[-1])
        return cls(tuple(scores), ends, means, spreads, weights[:-1], bias)

    def __call__(self, scores: dict[str, Any]) -> Array:
        """Return the doubt of rows from their scores."""
        missing = [name for name in self.names if name not in scores]
        if missing:
            message = f"expected the score {missing[0]!r}, got {', '.join(scores)}."
            raise InputError(message)
        x = np.clip(_columns({name: scores[name] for name in self.names}), *self.ends)
        return np.asarray((x - self.means) / self.spreads @ self.weights + self.bias)

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file."""
        arrays = {n: getattr(self, n) for n in ("ends", "means", "spreads", "weights")}
        fields = {"names": list(self.names), "bias": self.bias}
        tensors.save(path, self.name, arrays, fields)

    @classmethod
    def load(cls, path: str | Path) -> "Fusion":
        """Read what `save` wrote."""
        arrays, fields = tensors.load(path, cls.name)
        with tensors.complaining(path):
            names, ends = tuple(fields["names"]), arrays["ends"]
            means, spreads = arrays["means"], arrays["spreads"]
            weights, bias = arrays["weights"], float(fields["bias"])
            return cls(names, ends, means, spreads, weights, bias)


def _columns(scores: dict[str, Any]) -> Array:
    """Stack scores by columns."""
    if not (isinstance(scores, dict) and scores):
        message = "expected scores by name, as {'alpha': ..., 'margin': ...}."
        raise InputError(message)
    columns = []
    for name, values in scores.items():
        column = to_numpy(values)
        number = column.ndim == 1 and column.dtype.kind in "fiu"
        if not number or np.isnan(column).any():
            message = f"expected the score {name!r} as numbers, one a row."
            raise InputError(message)
        columns.append(column.astype(np.float64))
    if len({len(column) for column in columns}) != 1:
        message = "expected scores of the same rows, got other numbers of them."
        raise InputError(message)
    return np.column_stack(columns)


def _ends(x: Array) -> Array:
    """Return the least and the largest finite score of each column."""
    finite = np.isfinite(x)
    if not finite.any(0).all():
        message = "expected scores of which some are finite, got one of infinities."
        raise InputError(message)
    low = np.where(finite, x, np.inf).min(0)
    return np.stack([low, np.where(finite, x, -np.inf).max(0)])


def _logistic(design: Array, wrong: Any, penalty: float) -> Array:
    """Fit by Newton's method; the last column, the bias, is not penalised."""
    ridge = np.full(design.shape[1], penalty)
    ridge[-1] = 1e-9
    weights = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -500, 500)))
        slope = design.T @ (p - wrong) + ridge * weights
        curve = (design * (p * (1 - p))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    return weights


def as_features(
    features: Any, *, rows: int | None = None, width: int | None = None
) -> Array:
    """Check features: finite numbers (n, d)."""
    x = to_numpy(features)
    many = "n" if rows is None else str(rows)
    wrong = x.ndim != 2 or (rows is not None and len(x) != rows) or len(x) == 0
    if wrong or x.dtype.kind not in "fiub":
        message = (
            f"expected finite features ({many}, d), got {x.dtype} of shape {x.shape}."
        )
        raise InputError(message)
    x = x.astype(np.float64)
    if width is not None and x.shape[1] != width:
        message = f"expected {width} features a row, as in the fit, got {x.shape[1]}."
        raise InputError(message)
    bad = ~np.isfinite(x).all(1)
    if bad.any():
        message = "expected finite features, got NaN or infinity at row {row}."
        raise RowError(message, int(bad.argmax()))
    return x


def _softmax(logits: Any, temperature: float) -> Array:
    z = np.asarray(logits, np.float64) / temperature
    e = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))
