"""A score tuned to a model: the best of a family on labelled rows, averaged by rank."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.envelope import Count
from trustdoctor.errors import InputError, OddLabelsWarning
from trustdoctor.evaluation import check_labels
from trustdoctor.predictions import Predictions, require_predictions
from trustdoctor.scores import (
    BASELINE,
    ROUNDING,
    FittedScore,
    LogitScore,
    find_logit_score,
    register,
    score_together,
)
from trustdoctor.tuning.selection import (
    MIN_GAIN,
    TUNED_FOR,
    candidates,
    cautious_gains,
    check_rows,
    section_for,
)

N_AVERAGED = 5
"""How many of the best scores are averaged, at most."""

N_KNOTS = 65
"""Quantiles that represent the distribution of a score."""

NEAR_BEST = 0.01
"""Scores are averaged whose gain is within this of the best, or at least half of it."""

TIED = 1e-3
"""Quantiles closer than this, relative to their size or to the interquartile range, are
merged."""


@register
@dataclass(frozen=True, eq=False)
class Tuned(FittedScore):
    r"""The mean rank of a row among tuning rows, over a few scores.

    .. math:: \frac{1}{k} \sum_{i=1}^k F_i(s_i)

    with :math:`F_i` the share of the tuning rows whose doubt by the i-th score is
    smaller: interpolated between quantiles, and linear beyond the first and last of
    them. So a row's doubt depends on that row only. `tune` makes such a score.

    Attributes
    ----------
    members : tuple of str
        The scores with their parameters; "msp" alone if none gained.
    n, n_errors : int
        Tuning rows, and errors among them.
    n_candidates : int
        Scores that were compared.
    target : str
        What they were chosen for: "AUROC", or a target as "trr 0.95".
    knots, ranks : array (k, 65)
        Quantiles of each score, rising, and their ranks; empty for a single score,
        which is used unchanged.

    References
    ----------
    The family is that of Granese et al., DOCTOR, NeurIPS 2021, and of Cattelan & Silva,
    How to Fix a Broken Confidence Estimator, UAI 2024.

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
    n: Count
    n_errors: Count
    n_candidates: Count
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
        """Refuse values that no such score has."""
        _check_curves(self.knots, self.ranks, len(self.members))
        needs = frozenset[str]().union(*(score.needs for score in self.scores))
        if not needs <= {"probs", "logits"}:
            message = f"expected members that are scores of logits, got {self.members}."
            raise InputError(message)
        object.__setattr__(self, "needs", needs)
        laws = [score.laws for score in self.scores]
        object.__setattr__(self, "laws", type(self).laws.intersection(*laws))

    @cached_property
    def scores(self) -> list[LogitScore]:
        """The members as scores."""
        return [find_logit_score(name) for name in self.members]

    @property
    def only_member(self) -> LogitScore | None:
        """The member if there is just one; else None."""
        return self.scores[0] if len(self.members) == 1 else None

    @property
    def ranks_as(self) -> str:  # type: ignore[override]
        """The score that ranks rows alike if there is one member."""
        only = self.only_member
        return "" if only is None else only.ranks_as or only.name

    @property
    def temperature(self) -> float:  # type: ignore[override]
        """That of the member if there is one; else 1."""
        return 1.0 if self.only_member is None else self.only_member.temperature

    @cached_property
    def rounding(self) -> float:  # type: ignore[override]
        """How far rounding moves the mean rank where the ranks rise fastest."""
        if self.only_member is not None:
            return self.only_member.rounding
        slopes = np.diff(self.ranks, axis=1) / np.diff(self.knots, axis=1)
        sizes = np.maximum(1.0, np.abs(self.knots[:, 1:]))
        return float(ROUNDING * (slopes * sizes).max(1).mean())

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        *,
        target: Mapping[str, float] | None = None,
        average: int = N_AVERAGED,
    ) -> "Tuned":
        """Choose on labelled rows, as `tune` does, without checking the labels."""
        cls.check_fit(predictions, labels=True)
        if type(average) is not int or average < 1:
            message = f"expected average as a whole number from 1, got {average!r}."
            raise InputError(message)
        rows = predictions.labelled("choosing a score")
        errors = rows.errors
        check_rows(errors)
        family = candidates(rows)
        baseline, *doubts = score_together(
            rows, [find_logit_score(BASELINE), *family.values()]
        )
        section = section_for(target, baseline, errors)
        gains = cautious_gains(doubts, baseline, errors, section)
        by_name = dict(zip(family, doubts, strict=True))
        best = _best(dict(zip(family, gains.tolist(), strict=True)), average)
        curves = {name: _rank_curve(by_name[name]) for name in best}
        members = {name: curve for name, curve in curves.items() if curve is not None}
        # A single score needs no ranks to be averaged: its own doubts serve.
        if len(members) < 2:
            members = dict.fromkeys(members or [BASELINE], _NO_CURVE)
        return cls(
            tuple(members),
            len(errors),
            int(errors.sum()),
            len(family),
            _describe_target(target),
            np.stack([knots for knots, _ in members.values()]),
            np.stack([ranks for _, ranks in members.values()]),
        )

    def __call__(self, predictions: Predictions) -> Array:
        """Return the doubt of each row."""
        self.check(predictions)
        doubts = score_together(predictions, self.scores)
        if len(doubts) == 1:
            return np.asarray(doubts[0])
        ranks = map(_interpolate, doubts, self.knots, self.ranks)
        return np.asarray(sum(ranks) / len(self.members))

    def verdict(self) -> str:
        """Say what was chosen, and on which rows.

        Examples
        --------
        >>> none = np.empty((1, 0))
        >>> Tuned(("msp",), 900, 60, 59, "AUROC", none, none).verdict()[:52]
        'None of 59 scores stands out against msp for AUROC o'
        """
        rows = f"{self.n:,} rows with {self.n_errors:,} errors"
        if self.members == (BASELINE,):
            return (
                f"None of {self.n_candidates} scores stands out against {BASELINE} for "
                f"{self.target} on {rows}: it stays {BASELINE}."
            )
        names = [n.replace(":temperature=", " at temperature ") for n in self.members]
        listed = " and ".join(
            [", ".join(names[:-1]), names[-1]] if len(names) > 1 else names
        )
        mean = "the mean rank by " if len(names) > 1 else ""
        return f"{rows} chose {mean}{listed}, for {self.target}."


def tune(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    risk: float | None = None,
    frr: float | None = None,
    trr: float | None = None,
    joint: float | None = None,
    coverage: float | None = None,
    cost: float | None = None,
    average: int = N_AVERAGED,
) -> Tuned:
    """Choose the score that suits a model, on labelled rows whose labels are checked.

    The candidates are alpha and beta at several temperatures, the other scores of the
    softmax and of the logits, MaxLogit-pNorm, and alpha and margin of normalised
    logits: one pass of the model for all of them. The best are averaged by rank. If
    none gains more over softmax response than half a standard error (a whole one with
    a target), the choice is softmax response.

    The rows that chose a score must neither calibrate a gate nor judge the score: use
    other rows, or `calibrate(..., score="auto")`, which splits them.

    Parameters
    ----------
    predictions : Predictions
        With labels and at least 10 errors; rows that the model was not trained on.
        1,000 to 2,000 rows are a good number. A warning names labels that look wrong.
    risk, frr, trr, joint, coverage, cost : float, optional
        What will be promised: scores are then compared near that point of the ROC
        curve instead of by AUROC. Of several the first of risk, trr, joint, cost, frr
        and coverage counts.
    average : int
        How many of the best are averaged, at most.

    Returns
    -------
    Tuned
        A score for `calibrate`, `evaluate`, gates and files; its `verdict` says what
        was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(600, 2)) * 3
    >>> p = Predictions.from_logits(z, np.where(rng.random(600) < 0.9, z.argmax(1), 0))
    >>> tune(p).members  # with two classes all scores of the softmax rank alike
    ('msp',)
    """
    require_predictions(predictions)
    targets = {
        "risk": risk,
        "frr": frr,
        "trr": trr,
        "joint": joint,
        "coverage": coverage,
        "cost": cost,
    }
    requested = {name: value for name, value in targets.items() if value is not None}
    tuned = Tuned.fit(predictions, target=requested or None, average=average)
    odd = check_labels(predictions).odd
    if odd:
        warnings.warn(" ".join(odd), OddLabelsWarning, stacklevel=2)
    return tuned


def _check_curves(knots: Any, ranks: Any, k: int) -> None:
    """Refuse anything but k rising curves; a single score has empty ones."""
    shape = (k, N_KNOTS) if k > 1 else (k, 0)
    arrays = isinstance(knots, np.ndarray) and isinstance(ranks, np.ndarray)
    valid = k >= 1 and arrays and knots.shape == ranks.shape == shape
    valid = valid and knots.dtype.kind == ranks.dtype.kind == "f"
    if valid:
        widths, heights = np.diff(knots, axis=1), np.diff(ranks, axis=1)
        with np.errstate(all="ignore"):
            slopes = heights / widths
        finite = np.isfinite(knots).all() and np.isfinite(slopes).all()
        valid = finite and bool((widths > 0).all() and (heights > 0).all())
    if not valid:
        message = "expected rising knots and ranks, one row per member."
        raise InputError(message)


def _best(gains: dict[str, float], average: int) -> list[str]:
    """Return the scores to average, the best first; none if none gains."""
    highest = max(gains.values())
    if highest <= MIN_GAIN:
        return []
    limit = min(highest - NEAR_BEST, highest / 2)
    near = [name for name in gains if gains[name] >= limit]
    return sorted(near, key=lambda name: -gains[name])[:average]


def _describe_target(target: Mapping[str, float] | None) -> str:
    """Return the target that counts, as `section_for` takes it."""
    name = next((name for name in TUNED_FOR if name in (target or {})), None)
    return "AUROC" if target is None or name is None else f"{name} {target[name]:g}"


_NO_CURVE = np.empty(0), np.empty(0)


def _rank_curve(doubts: Array) -> tuple[Array, Array] | None:
    """Return rising quantiles of doubts and their ranks; None if all are equal."""
    finite = np.sort(doubts[np.isfinite(doubts)].astype(np.float64))
    if not len(finite):
        return None
    levels = np.linspace(0, 1, N_KNOTS)
    with np.errstate(over="ignore", invalid="ignore"):
        quantiles = np.quantile(finite, levels)
        # Doubts that rounding alone tells apart must share a rank, whatever computes
        # them. Relative to the whole range, one row masked by -1e30 would merge all
        # other rows, hence the interquartile range.
        middle = quantiles[3 * N_KNOTS // 4] - quantiles[N_KNOTS // 4]
        steps = np.diff(quantiles, prepend=quantiles[0])
        group = np.cumsum(steps > TIED * np.maximum(np.abs(quantiles), middle))
    if group[-1] < 1 or not np.isfinite(quantiles).all():
        return None
    sizes = np.bincount(group)
    knots = np.bincount(group, quantiles) / sizes
    ranks = np.bincount(group, levels) / sizes
    # The groups are brought back to N_KNOTS knots: the shape of a file does not vary.
    positions, groups = np.linspace(0, len(knots) - 1, N_KNOTS), np.arange(len(knots))
    knots = np.interp(positions, groups, knots)
    ranks = np.interp(positions, groups, ranks)
    with np.errstate(all="ignore"):
        slopes = np.diff(ranks) / np.diff(knots)
    return (knots, ranks) if np.isfinite(slopes).all() else None


def _interpolate(doubts: Array, knots: Array, ranks: Array) -> Array:
    """Return the ranks of doubts; linear beyond the first and the last knot."""
    x = np.asarray(doubts, np.float64)
    first_slope, last_slope = np.diff(ranks)[[0, -1]] / np.diff(knots)[[0, -1]]
    below, above = np.minimum(x - knots[0], 0), np.maximum(x - knots[-1], 0)
    return np.asarray(
        np.interp(x, knots, ranks) + first_slope * below + last_slope * above
    )
