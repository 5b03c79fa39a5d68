"""A score tuned to a model: the best of a family on labelled rows, averaged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores.contract import ROUNDING, FittedScore, LogitScore
from trustdoctor.scores.registry import BASELINE, register
from trustdoctor.scores.tuning import (
    CLEAR,
    check_rows,
    find_member,
    find_part,
    lower_gains,
    score_family,
)

AVERAGED = 5
"""How many of the best scores are averaged."""

KNOTS = 65
"""Points that a score's ranks are kept at."""

NEAR = 0.01
"""A score is averaged if it gains so much less than the best, or half as much as it."""

TIED = 1e-3
"""Quantiles that are nearer, relative to their size or to the middle half, are one."""


@register
@dataclass(frozen=True, eq=False)
class Tuned(FittedScore):
    """The mean rank of a row among the rows that chose, over a few scores.

    `tune` makes it. It costs one pass of the model, and depends on one row alone: ranks
    are read off quantiles of the rows that chose, and go on in a straight line beyond.

    Attributes
    ----------
    members : tuple of str
        The scores, with their parameters; "msp" alone where none stood out.
    n, n_errors : int
        Rows that chose, and errors among them.
    tried : int
        Scores that were tried.
    target : str
        What they were chosen for: "AUROC", or a target as "trr 0.95".
    knots, ranks : array (k, 65)
        Quantiles of each score, rising, and their ranks; empty for one score alone,
        which is used as it is.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 5)) * rng.exponential(5, size=(2000, 1))
    >>> near = np.sort(z / np.linalg.norm(z, axis=1, keepdims=True))[:, -2:]
    >>> wrong = rng.random(2000) < np.exp(-8 * (near[:, 1] - near[:, 0]))
    >>> p = Predictions.from_logits(z, (z.argmax(1) + wrong) % 5)
    >>> score = Tuned.fit(p)
    >>> len(score.members), score(p).shape
    (5, (2000,))
    """

    members: tuple[str, ...]
    n: int
    n_errors: int
    tried: int
    target: str
    knots: Array = field(repr=False)
    ranks: Array = field(repr=False)

    name = "tuned"
    needs = frozenset({"probs"})
    laws = frozenset({"permutation", "shift"})
    reference = "a search over Granese et al. 2021, Cattelan & Silva 2024"
    learns_from_errors = True
    fit_call = "td.tune(predictions)"

    def __post_init__(self) -> None:
        """Refuse what cannot be such a score."""
        named = isinstance(self.members, (tuple, list)) and isinstance(self.target, str)
        named = named and all(isinstance(name, str) for name in self.members)
        counts = (self.n, self.n_errors, self.tried)
        if not (named and all(type(k) is int and k >= 0 for k in counts)):
            message = "expected names of scores, and counts of rows that chose them."
            raise InputError(message)
        object.__setattr__(self, "members", tuple(self.members))
        _check_curves(self.knots, self.ranks, len(self.members))
        needs = frozenset[str]().union(*(one.needs for one in self.scores))
        if not needs <= {"probs", "logits"}:
            message = f"expected members that are scores of logits, got {self.members}."
            raise InputError(message)
        object.__setattr__(self, "needs", needs)
        laws = [one.laws for one in self.scores]
        object.__setattr__(self, "laws", type(self).laws.intersection(*laws))

    @property
    def ranks_as(self) -> str:
        """The score that ranks rows alike, where it is one alone."""
        return "" if self.alone is None else self.alone.ranks_as or self.alone.name

    @property
    def temperature(self) -> float:
        """That of the one score that it is; else 1."""
        return 1.0 if self.alone is None else self.alone.temperature

    @cached_property
    def rounding(self) -> float:  # type: ignore[override]
        """How far rounding moves the mean rank, where the ranks rise fastest."""
        if self.alone is not None:
            return self.alone.rounding
        slopes = np.diff(self.ranks, axis=1) / np.diff(self.knots, axis=1)
        sizes = np.maximum(1.0, np.abs(self.knots[:, 1:]))
        return float(ROUNDING * (slopes * sizes).max(1).mean())

    @cached_property
    def scores(self) -> list[LogitScore]:
        """The scores, ready to call."""
        return [find_member(name) for name in self.members]

    @property
    def alone(self) -> LogitScore | None:
        """The one score that it is, where none are averaged."""
        return self.scores[0] if len(self.members) == 1 else None

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        *,
        for_: Mapping[str, float] | None = None,
        average: int = AVERAGED,
    ) -> "Tuned":
        """Choose on labelled rows; `tune` says how."""
        cls.check_fit(predictions, labels=True)
        if type(average) is not int or average < 1:
            message = f"expected average as a whole number from 1, got {average!r}."
            raise InputError(message)
        rows = predictions.labelled("choosing a score")
        wrong = rows.errors
        check_rows(wrong)
        base, every = find_member(BASELINE)(rows), score_family(rows)
        part = find_part(base, wrong, for_)
        for_ = for_ and {name: float(value) for name, value in for_.items()}
        lower = lower_gains(every.values(), wrong, base, part)
        best = _best(dict(zip(every, lower.tolist(), strict=True)), average)
        curves = {name: _curve(every[name]) for name in best}
        kept = {name: curve for name, curve in curves.items() if curve is not None}
        if len(kept) < 2:
            kept = dict.fromkeys(kept or [BASELINE], _NONE)
        return cls(
            tuple(kept),
            len(wrong),
            int(wrong.sum()),
            len(every),
            _words(for_),
            np.stack([knots for knots, _ in kept.values()]),
            np.stack([ranks for _, ranks in kept.values()]),
        )

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        self.check(predictions)
        doubts = [score(predictions) for score in self.scores]
        if len(doubts) == 1:
            return np.asarray(doubts[0])
        placed = map(_placed, doubts, self.knots, self.ranks)
        return np.asarray(sum(placed) / len(self.members))

    def verdict(self) -> str:
        """Say what was chosen, and by which rows, in words.

        Examples
        --------
        >>> none = np.empty((1, 0))
        >>> Tuned(("msp",), 900, 60, 59, "AUROC", none, none).verdict()[:52]
        'None of 59 scores stands out against msp for AUROC o'
        """
        rows = f"{self.n:,} rows with {self.n_errors:,} errors"
        if self.members == (BASELINE,):
            return (
                f"None of {self.tried} scores stands out against {BASELINE} for "
                f"{self.target} on {rows}: it stays {BASELINE}."
            )
        names = [n.replace(":temperature=", " at temperature ") for n in self.members]
        named = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        mean = "the mean rank by " if len(self.members) > 1 else ""
        return f"{rows} chose {mean}{named}, for {self.target}."


def _check_curves(knots: Any, ranks: Any, k: int) -> None:
    """Refuse what is not k rising curves; one score alone has none."""
    shape = (k, KNOTS) if k > 1 else (k, 0)
    arrays = isinstance(knots, np.ndarray) and isinstance(ranks, np.ndarray)
    good = k >= 1 and arrays and knots.shape == ranks.shape == shape
    good = good and knots.dtype.kind == ranks.dtype.kind == "f"
    if good:
        wide, high = np.diff(knots, axis=1), np.diff(ranks, axis=1)
        with np.errstate(all="ignore"):
            slopes = high / wide
        finite = np.isfinite(knots).all() and np.isfinite(slopes).all()
        good = finite and bool((wide > 0).all() and (high > 0).all())
    if not good:
        message = "expected rising knots and ranks, one row for each member."
        raise InputError(message)


def _best(lower: dict[str, float], average: int) -> list[str]:
    """Return the scores to average, the best first; none where none gains."""
    most = max(lower.values())
    if most <= CLEAR:
        return []
    near = [name for name in lower if lower[name] >= min(most - NEAR, most / 2)]
    return sorted(near, key=lambda name: -lower[name])[:average]


def _words(target: Mapping[str, float] | None) -> str:
    named = ", ".join(f"{name} {value:g}" for name, value in (target or {}).items())
    return named or "AUROC"


_NONE = np.empty(0), np.empty(0)


def _curve(doubts: Array) -> tuple[Array, Array] | None:
    """Return quantiles of doubts, rising, and their ranks; None for equal doubts."""
    finite = np.sort(doubts[np.isfinite(doubts)].astype(np.float64))
    if not len(finite):
        return None
    at = np.linspace(0, 1, KNOTS)
    with np.errstate(over="ignore", invalid="ignore"):
        every = np.quantile(finite, at)
        # Doubts that differ by rounding alone share a rank, whatever computes them.
        middle = every[3 * KNOTS // 4] - every[KNOTS // 4]
        apart = np.diff(every, prepend=every[0])
        same = np.cumsum(apart > TIED * np.maximum(np.abs(every), middle))
    if same[-1] < 1 or not np.isfinite(every).all():
        return None
    count = np.bincount(same)
    knots, ranks = np.bincount(same, every) / count, np.bincount(same, at) / count
    index, old = np.linspace(0, len(knots) - 1, KNOTS), np.arange(len(knots))
    knots, ranks = np.interp(index, old, knots), np.interp(index, old, ranks)
    with np.errstate(all="ignore"):
        slopes = np.diff(ranks) / np.diff(knots)
    return (knots, ranks) if np.isfinite(slopes).all() else None


def _placed(doubts: Array, knots: Array, ranks: Array) -> Array:
    """Return the ranks of doubts, which go on in a straight line beyond the ends."""
    x = np.asarray(doubts, np.float64)
    first, last = np.diff(ranks)[[0, -1]] / np.diff(knots)[[0, -1]]
    below, above = np.minimum(x - knots[0], 0), np.maximum(x - knots[-1], 0)
    return np.asarray(np.interp(x, knots, ranks) + first * below + last * above)
