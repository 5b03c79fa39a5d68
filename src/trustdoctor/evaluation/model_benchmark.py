"""Scores compared over several models: mean ranks, wins, ties and losses.

Each model's rows are split at random several times; one part fits the scores that are
fitted, the other judges all of them. Values are means over the splits. Whether a score
wins on a model is a paired interval on rows that did not fit it; how a score does in
general is an interval over models, which are few: a t interval of the mean difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError, MissingPackageError, UndefinedMetricError
from trustdoctor.evaluation.differences import ranking_difference
from trustdoctor.metrics import (
    Estimate,
    Points,
    Ranking,
    ResultTable,
    Tabular,
    check_confidence,
    counts,
    measure,
)
from trustdoctor.predictions import Answers, Predictions
from trustdoctor.scores import (
    BASELINE,
    SCORES,
    FittedScore,
    LogitScore,
    Score,
    available_scores,
    find_score,
    same_ranking,
    setting_name,
)

if TYPE_CHECKING:
    import polars as pl

METRICS = ("auroc", "frr_at_trr", "aurc", "augrc")
"""What a benchmark measures, by the names of the functions."""

HIGHER_IS_BETTER = frozenset({"auroc"})


@dataclass(frozen=True)
class ScoreOnModel:
    """What one score did on one model.

    Attributes
    ----------
    values : dict of str to float
        Each metric, as the mean over splits.
    rank : float
        Of its AUROC among the scores, 1 for the best; equal ones share a rank.
    differences : dict of str to Estimate
        Each metric less the baseline's, paired, with its interval: on all rows, or on
        the judging rows of the first split for a score that is fitted.
    """

    values: dict[str, float]
    rank: float
    differences: dict[str, Estimate]


@dataclass(frozen=True, repr=False)
class Benchmark(Tabular):
    """Scores on several models, with the protocol by which they were compared.

    Attributes
    ----------
    models : dict of str to dict of str to ScoreOnModel
        By model, then by score.
    rows : dict of str to (int, int)
        Rows and errors of each model.
    baseline : str
        The score that the others are compared with.
    splits, seed, fit_share, confidence, points
        The protocol.
    skipped : tuple of str
        Scores that some model's rows do not allow, and why.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = 3 * rng.normal(size=(600, 4))
    >>> p = Predictions.from_logits(z, (z + 2 * rng.normal(size=z.shape)).argmax(1))
    >>> result = benchmark({"model": p}, scores=["alpha", "energy"], splits=2)
    >>> result.scores, result.record("alpha")
    (['msp', 'alpha', 'energy'], (0, 1, 0))
    """

    models: dict[str, dict[str, ScoreOnModel]]
    rows: dict[str, tuple[int, int]]
    baseline: str
    splits: int
    seed: int
    fit_share: float
    confidence: float
    points: Points = field(default_factory=Points)
    skipped: tuple[str, ...] = ()

    @property
    def scores(self) -> list[str]:
        """The scores that were measured on every model, by mean rank."""
        names = [
            name
            for name in next(iter(self.models.values()))
            if all(name in results for results in self.models.values())
        ]
        return sorted(names, key=self.mean_rank)

    def mean_rank(self, score: str) -> float:
        """Return the mean over models of a score's rank."""
        return float(np.mean([results[score].rank for results in self.models.values()]))

    def record(self, score: str, metric: str = "auroc") -> tuple[int, int, int]:
        """Return on how many models a score wins, ties and loses against the baseline.

        It wins where the interval of the paired difference excludes 0.
        """
        sign = 1 if metric in HIGHER_IS_BETTER else -1
        wins = losses = 0
        for results in self.models.values():
            gap = results[score].differences[metric]
            if gap.low is None or gap.high is None:
                continue
            low, high = sorted((sign * gap.low, sign * gap.high))
            wins += low > 0
            losses += high < 0
        return wins, len(self.models) - wins - losses, losses

    def mean_difference(self, score: str, metric: str = "auroc") -> Estimate:
        """Return the mean over models of a metric less the baseline's.

        The interval is Student's over models: what to expect of another model like
        these.
        """
        from scipy.special import stdtrit

        gaps = np.array(
            [
                results[score].values[metric] - results[self.baseline].values[metric]
                for results in self.models.values()
            ]
        )
        mean, n = float(gaps.mean()), len(gaps)
        if n < 2:
            return Estimate(mean, n=n, note="one model: no interval over models")
        spread = float(gaps.std(ddof=1)) / np.sqrt(n)
        half = float(stdtrit(n - 1, (1 + self.confidence) / 2)) * spread
        return Estimate(mean, mean - half, mean + half, n=n)

    def table(self) -> ResultTable:
        """Return the scores over all models, the best mean rank first."""
        trr = f"FRR@{self.points.trr * 100:g}TRR"
        against = f"against {self.baseline}"
        columns = {
            "score": "score",
            "mean_rank": "mean rank (AUROC)",
            "record": "wins/ties/losses",
            "auroc": f"AUROC {against}",
            "frr_at_trr": f"{trr} {against}",
            "aurc": f"AURC {against}",
            "augrc": f"AUGRC {against}",
        }
        rows: list[dict[str, Any]] = []
        for score in self.scores:
            cells: dict[str, Any] = {
                "score": score,
                "mean_rank": f"{self.mean_rank(score):.2f}",
                "record": "-",
            }
            if score != self.baseline:
                cells["record"] = "/".join(map(str, self.record(score)))
                cells |= {m: self.mean_difference(score, m) for m in METRICS}
            rows.append(cells)
        return ResultTable(columns, rows, frozenset(METRICS))

    def model_table(self, metric: str = "auroc") -> ResultTable:
        """Return one metric of every score on every model, in percent."""
        if metric not in METRICS:
            message = f"expected a metric out of {', '.join(METRICS)}, got {metric!r}."
            raise InputError(message)
        columns = {"score": "score"} | {model: model for model in self.models}
        rows = [
            {"score": score}
            | {
                model: f"{100 * results[score].values[metric]:.2f}"
                for model, results in self.models.items()
            }
            for score in self.scores
        ]
        return ResultTable(columns, rows)

    def to_frame(self) -> "pl.DataFrame":
        """Return every value in polars: one row per model and score.

        Columns NAME, and NAME_difference with its NAME_difference_low and _high.
        """
        columns = {"model": "", "score": "", "rank": ""}
        columns |= {n: "" for m in METRICS for n in (m, f"{m}_difference")}
        rows = [
            {"model": model, "score": score, "rank": result.rank, **result.values}
            | {f"{m}_difference": gap for m, gap in result.differences.items()}
            for model, results in self.models.items()
            for score, result in results.items()
        ]
        return ResultTable(columns, rows).to_frame()

    def protocol(self) -> str:
        """Return how the scores were compared, in two sentences."""
        models = f"{len(self.models)} model{'s' * (len(self.models) != 1)}"
        return (
            f"{models}, {self.splits} random splits (seed {self.seed}): "
            f"{self.fit_share:.0%} of the rows fit the scores that are fitted, the "
            "others judge. Differences are means over models with "
            f"{self.confidence:.0%} intervals over models; a win or a loss is a paired "
            f"{self.confidence:.0%} interval of AUROC on one model that excludes 0; "
            "it is not corrected for the number of scores; that of a fitted score is "
            "from the first split."
        )

    def __repr__(self) -> str:
        """Show the protocol and the best scores."""
        table = self.table()
        shown = ResultTable(table.columns, table.rows[:7], table.signed)
        more = len(table.rows) - len(shown.rows)
        rest = [f"and {more} more: table().to_text() has all"] if more > 0 else []
        return "\n".join([self.protocol(), shown.to_text(), *rest])


def benchmark(  # noqa: PLR0913 - options, by keyword only
    models: Mapping[str, Predictions],
    *,
    scores: Sequence[str | Score] | Mapping[str, str | Score] | str = "all",
    splits: int = 20,
    fit_share: float = 0.5,
    baseline: str = BASELINE,
    points: Points | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Benchmark:
    """Compare scores over several models.

    Parameters
    ----------
    models : dict of str to Predictions
        Labelled rows of each model, which it was not trained on.
    scores : sequence of str or Score, dict, or "all"
        Names from `SCORES`, with parameters if you like; a name of a fitted score is
        fitted on each split. "all": all that every model's rows allow.
    splits : int
        Random splits of each model's rows.
    fit_share : float
        The share of the rows that fit scores; the others judge.
    baseline : str
        The score that the others are compared with.
    points : Points, optional
        Where FRR@TRR is taken.
    confidence : float
        Of every interval.
    seed : int
        Of the splits.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def answers(noise):
    ...     z = 3 * rng.normal(size=(600, 4))
    ...     labels = (z + noise * rng.normal(size=z.shape)).argmax(1)
    ...     return Predictions.from_logits(z, labels)
    >>> models = {"good": answers(1.0), "weak": answers(3.0)}
    >>> result = benchmark(models, scores=["alpha", "energy"], splits=3)
    >>> result.scores[-1], result.record("energy")[0]
    ('energy', 0)
    """
    _check_options(models, splits, fit_share, confidence, seed)
    at = points or Points()
    contestants, skipped = _contestants(models, scores, baseline)
    results, rows = {}, {}
    for model, predictions in models.items():
        trial = _ModelTrial(predictions, contestants, baseline, at, confidence)
        results[model] = trial.run(splits, fit_share, seed)
        rows[model] = (len(trial.errors), int(trial.errors.sum()))
    return Benchmark(
        models=results,
        rows=rows,
        baseline=baseline,
        splits=splits,
        seed=seed,
        fit_share=fit_share,
        confidence=confidence,
        points=at,
        skipped=tuple(skipped),
    )


Contestant = Score | type[FittedScore]
"""A score that is ready, or one that every split fits."""


def _check_options(
    models: Any, splits: Any, fit_share: Any, confidence: float, seed: Any
) -> None:
    if not isinstance(models, Mapping) or not models:
        message = f"expected models as a dict by name, got {type(models).__name__}."
        raise InputError(message)
    for name, predictions in models.items():
        if not isinstance(predictions, Predictions) or isinstance(predictions, Answers):
            message = (
                f"expected Predictions with logits or probabilities of {name}, got "
                f"{type(predictions).__name__}."
            )
            raise InputError(message)
    if type(splits) is not int or splits < 1:
        message = f"expected 1 split or more, got {splits!r}."
        raise InputError(message)
    if not (isinstance(fit_share, float) and 0 < fit_share < 1):
        message = f"expected fit_share between 0 and 1, got {fit_share!r}."
        raise InputError(message)
    if type(seed) is not int or seed < 0:
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    check_confidence(confidence)


def _contestants(
    models: Mapping[str, Predictions], scores: Any, baseline: str
) -> tuple[dict[str, Contestant], list[str]]:
    """Return the scores by name, and which ones the rows do not allow."""
    requested = _requested(models, scores)
    if baseline not in requested:
        requested = {baseline: find_score(baseline), **requested}
    contestants, skipped = {}, []
    for name, score in requested.items():
        lacking = sorted(
            {need for p in models.values() for need in score.needs - _available(p)}
        )
        if lacking:
            skipped.append(f"{name} needs {', '.join(lacking)} of every model")
        else:
            contestants[name] = score
    if scores != "all" and skipped:
        message = f"{skipped[0]}. Leave it out, or give predictions that have them."
        raise InputError(message)
    return contestants, skipped


def _requested(models: Mapping[str, Predictions], scores: Any) -> dict[str, Contestant]:
    if scores == "all":
        plain = set.intersection(*(set(available_scores(p)) for p in models.values()))
        names = [name for name in SCORES if name in plain]
        fitted = {
            name: entry for name, entry in SCORES.items() if isinstance(entry, type)
        }
        return {name: find_score(name) for name in names} | fitted
    if isinstance(scores, str):
        message = f"expected a list of scores or 'all', got {scores!r}. Use [...]."
        raise InputError(message)
    pairs = (
        list(scores.items())
        if isinstance(scores, Mapping)
        else [(None, score) for score in scores]
    )
    requested: dict[str, Contestant] = {}
    for name, score in pairs:
        entry = SCORES.get(score) if isinstance(score, str) else None
        ready = entry if isinstance(entry, type) else find_score(score)
        own_name = ready.name if isinstance(ready, type) else setting_name(ready)
        requested[name or own_name] = ready
    return requested


def _available(predictions: Predictions) -> set[str]:
    available = {"probs"} if predictions.from_probabilities else {"probs", "logits"}
    return available | ({"features"} if predictions.features is not None else set())


class _ModelTrial:
    """The splits of one model."""

    def __init__(
        self,
        predictions: Predictions,
        contestants: dict[str, Contestant],
        baseline: str,
        points: Points,
        confidence: float,
    ) -> None:
        self.rows = predictions.labelled("a benchmark")
        self.errors = self.rows.errors
        self.contestants, self.baseline = contestants, baseline
        self.settings = points, confidence
        # A score that needs no fitting is computed once, for all splits.
        self.doubts = {
            name: np.asarray(score(self.rows))
            for name, score in contestants.items()
            if not isinstance(score, type)
        }

    def run(self, splits: int, fit_share: float, seed: int) -> dict[str, ScoreOnModel]:
        """Return what each score did."""
        values: dict[str, list[dict[str, float]]] = {n: [] for n in self.contestants}
        differences: dict[str, dict[str, Estimate]] = {}
        generator = np.random.default_rng(seed)
        for split in range(splits):
            order = generator.permutation(len(self.rows))
            fit, judge = np.split(order, [int(fit_share * len(order))])
            self._check_split(fit, judge)
            for name, score in self.contestants.items():
                doubts, rounding = self._judged_doubts(name, score, fit, judge)
                tied = counts(doubts, self.errors[judge], rounding=rounding)
                measured = measure(tied, metrics=METRICS, points=self.settings[0])
                values[name].append(measured)
                if split == 0:
                    differences[name] = self._differences(name, doubts, judge)
        means = {
            name: {m: float(np.mean([v[m] for v in of_splits])) for m in METRICS}
            for name, of_splits in values.items()
        }
        ranks = _ranks({name: value["auroc"] for name, value in means.items()})
        return {
            name: ScoreOnModel(means[name], ranks[name], differences[name])
            for name in self.contestants
        }

    def _check_split(self, *parts: Array) -> None:
        for rows in parts:
            n_errors = int(self.errors[rows].sum())
            if not 0 < n_errors < len(rows):
                message = (
                    f"expected right and wrong rows in each part, got {n_errors} wrong "
                    f"of {len(rows)}. Give it more rows."
                )
                raise UndefinedMetricError(message)

    def _judged_doubts(
        self, name: str, score: Contestant, fit: Array, judge: Array
    ) -> tuple[Array, float]:
        """Return the doubts about the judging rows, and how rounding moves them."""
        if not isinstance(score, type):
            return np.asarray(self.doubts[name][judge]), score.rounding
        try:
            fitted: Score = score.fit(self.rows[fit])
        except MissingPackageError:
            raise
        except InputError as error:
            message = f"{name} cannot be fitted: {error}"
            raise InputError(message) from error
        return np.asarray(fitted(self.rows[judge])), fitted.rounding

    def _differences(
        self, name: str, doubts: Array, judge: Array
    ) -> dict[str, Estimate]:
        """Return each metric less the baseline's: on all rows unless it is fitted."""
        score = self.contestants[name]
        baseline = self.contestants[self.baseline]
        is_fitted = isinstance(score, type)
        rows = judge if is_fitted else np.arange(len(self.errors))
        judged_doubts = doubts if is_fitted else self.doubts[name]
        assert not isinstance(baseline, type)  # `find_score` returned it
        if isinstance(score, LogitScore) and same_ranking(score, baseline):
            return dict.fromkeys(METRICS, Estimate(0.0, 0.0, 0.0))
        errors = self.errors[rows]
        first = Ranking(
            judged_doubts, errors, 0.0 if isinstance(score, type) else score.rounding
        )
        second = Ranking(self.doubts[self.baseline][rows], errors, baseline.rounding)
        return {
            metric: ranking_difference(metric, first, second, self.settings)
            for metric in METRICS
        }


def _ranks(values: dict[str, float]) -> dict[str, float]:
    """Return the rank of each value, 1 for the largest; ties share their mean rank.

    Examples
    --------
    >>> _ranks({"a": 0.9, "b": 0.8, "c": 0.9})
    {'a': 1.5, 'b': 3.0, 'c': 1.5}
    """
    array = np.round(list(values.values()), 9)
    return {
        name: float((array > value).sum() + ((array == value).sum() + 1) / 2)
        for name, value in zip(values, array, strict=True)
    }
