"""Several scores weighted into one by a logistic regression."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array, as_errors, to_numpy
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import ROUNDING, FittedScore
from trustdoctor.scores.logistic import fit_logistic, standardise
from trustdoctor.scores.registry import SCORES, plain_scores, register, score_all


@register
@dataclass(frozen=True, eq=False)
class Fusion(FittedScore):
    """The log odds of an error by a logistic regression on several scores.

    `fit` fuses scores of the registry. `fit_scores` and `mix` do the same with scores
    of your own, under names of your own; such a fusion cannot score predictions.

    Attributes
    ----------
    names : tuple of str
        The scores.
    ends : array (2, k)
        The least and the largest finite score of the fit: rows beyond count as there.
    means, spreads, weights : arrays (k,)
        Scores are standardised, then weighted.
    bias : float
    own : bool
        Whether the scores are the user's own, so that predictions do not give them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(500) < 0.3
    >>> score = Fusion.fit_scores({"a": rng.normal(size=500) + errors}, errors)
    >>> bool(score.weights[0] > 0)
    True
    """

    names: tuple[str, ...]
    ends: Array = field(repr=False)
    means: Array = field(repr=False)
    spreads: Array = field(repr=False)
    weights: Array
    bias: float
    own: bool = False

    name = "fusion"
    needs = frozenset({"probs"})
    laws = frozenset({"permutation"})
    scale = "odds"
    reference = "a logistic regression"
    settings = (
        {"penalty": 1.0},
        {"penalty": 100.0},
    )
    from_errors = True

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        object.__setattr__(self, "names", tuple(map(str, self.names)))
        own = [SCORES[name].needs for name in self.names if name in SCORES]
        object.__setattr__(self, "needs", frozenset({"probs"}).union(*own))
        k = (len(self.names),)
        columns = (self.means, self.spreads, self.weights)
        good = all(c.shape == k and np.isfinite(c).all() for c in columns)
        good = good and self.ends.shape == (2, *k) and bool(np.isfinite(self.bias))
        good = good and bool((self.ends[0] <= self.ends[1]).all())
        if not (good and np.isfinite(self.ends).all() and (self.spreads > 0).all()):
            message = "expected ends, means, spreads and weights, one per score."
            raise InputError(message)

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """How far rounding moves the sum, where it moves every part the same way."""
        sizes = np.maximum(1.0, np.abs(self.ends).max(0))
        return float(ROUNDING * (np.abs(self.weights) / self.spreads) @ sizes)

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
            Names of plain scores; by default all that the predictions allow.
        penalty : float
            A ridge on the weights of the standardised scores.
        """
        cls.check_fit(predictions, labels=True)
        if isinstance(scores, str):
            message = f"expected a list of scores, got the string {scores!r}."
            raise InputError(message)
        names = scores or plain_scores(logits=not predictions.from_probabilities)
        columns = score_all(predictions, names)
        found = cls.fit_scores(columns, predictions.errors, penalty=penalty)
        return replace(found, own=False)

    @classmethod
    def fit_scores(
        cls, scores: dict[str, Any], errors: Any, *, penalty: float = 1.0
    ) -> "Fusion":
        """Fit on scores of labelled rows, by name."""
        if not (isinstance(penalty, (int, float)) and penalty > 0):
            message = f"expected a penalty above 0, got {penalty!r}."
            raise InputError(message)
        x = _columns(scores)
        wrong = as_errors(errors, rows=len(x))
        if wrong.all() or not wrong.any():
            message = "a fusion needs rows of both kinds to fit on. Give it more rows."
            raise InputError(message)
        ends = _ends(x)
        design, means, spreads = standardise(np.clip(x, *ends))
        weights, bias = fit_logistic(design, wrong, penalty=penalty)
        return cls(tuple(scores), ends, means, spreads, weights, bias, own=True)

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        if self.own:
            message = "this fusion is of scores of your own. Call mix with them."
            raise InputError(message)
        return self.mix(score_all(predictions, self.names))

    def mix(self, scores: dict[str, Any]) -> Array:
        """Return the doubt of rows from their scores, by name."""
        missing = [name for name in self.names if name not in scores]
        if missing:
            message = f"expected the score {missing[0]!r}, got {', '.join(scores)}."
            raise InputError(message)
        x = np.clip(_columns({name: scores[name] for name in self.names}), *self.ends)
        return ((x - self.means) / self.spreads * self.weights).sum(1) + self.bias


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
            message = f"expected the score {name!r} as numbers, one per row."
            raise InputError(message)
        columns.append(column.astype(np.float64))
    if len({len(column) for column in columns}) != 1:
        message = "expected scores of the same rows, got different numbers of them."
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
