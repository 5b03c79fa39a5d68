"""All metrics of all scores on labelled predictions, with their intervals."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from trustdoctor import curves, intervals, metrics
from trustdoctor.curves import Array, Counts, count, count_runs
from trustdoctor.errors import InputError
from trustdoctor.intervals import FEW_ERRORS, Interval, Samples
from trustdoctor.metrics import RANK_METRICS, Points
from trustdoctor.output import write_text
from trustdoctor.predictions import Predictions
from trustdoctor.scores import SCORES, find_score

DEFAULT_SCORES = ("alpha", "beta", "msp", "entropy", "energy")
FEW = f"few errors: below {FEW_ERRORS} this interval is approximate"

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it does not exist, and why.

    Attributes
    ----------
    value, low, high : float or None
        The number and the ends of its interval.
    note : str
        What to know about it; empty most of the time.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """A metric of one score less that of another, on the same rows."""

    metric: str
    first: str
    second: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Settings:
    """How the evaluation was made."""

    points: Points = field(default_factory=Points)
    temperature: float = 1.0
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes
    ----------
    n, n_classes, n_errors : int
        Rows, classes, and wrong predictions.
    accuracy : Estimate
        With its Clopper-Pearson interval.
    calibration : dict of str to Estimate
        "confidence" (the mean largest probability), "ece", "brier" and "nll" of the
        softmax.
    scores : dict of str to dict of str to Estimate
        For each score all metrics of rank, under the names of the functions.
    differences : tuple of Difference
        AUROC and FRR@TRR of each score less those of each later one, paired.
    settings : Settings
        The parameters of the metrics.
    """

    n: int
    n_classes: int
    n_errors: int
    accuracy: Estimate
    calibration: dict[str, Estimate]
    scores: dict[str, dict[str, Estimate]]
    differences: tuple[Difference, ...] = field(repr=False)
    settings: Settings

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers; None for what does not exist."""
        return {"trustdoctor": "evaluation", "schema": 1, **asdict(self)}

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        if path is not None:
            write_text(path, text)
        return text

    def verdict(self, score: str | None = None) -> str:
        """Say in words what rejecting by a score does; by default the first."""
        name = score or next(iter(self.scores))
        if self.n_errors == 0:
            return (
                f"All {self.n:,} predictions are correct: there is no error to detect, "
                "and no score can be judged on these rows."
            )
        if self.n_errors == self.n:
            return (
                f"All {self.n:,} predictions are wrong: there is nothing to accept. "
                "Check that the labels number the classes as the columns do."
            )
        risk = self.scores[name]["risk_at_coverage"]
        assert risk.value is not None
        share = 1 - self.settings.points.coverage
        return (
            f"Rejecting the {share:.0%} most doubtful predictions by {name} leaves "
            f"{risk.value:.1%} errors {_percent_interval(risk)} instead of "
            f"{self.n_errors / self.n:.1%}."
        )

    def __repr__(self) -> str:
        """Show the main metrics as a small table."""
        head = (
            f"Evaluation: {self.n:,} rows, {self.n_classes} classes, "
            f"{self.n_errors:,} errors, accuracy {_percent(self.accuracy)}"
        )
        columns = ("auroc", "frr_at_trr", "aurc", "risk_at_coverage")
        at = self.settings.points
        titles: tuple[str, ...] = ("AUROC", f"FRR@{at.trr * 100:g}TRR", "AURC")
        titles += (f"risk@{at.coverage * 100:g}cov",)
        lines = [head, f"{'score':<10}" + "".join(f"{t:>14}" for t in titles)]
        for name, found in self.scores.items():
            cells = "".join(f"{_percent(found[c]):>14}" for c in columns)
            lines.append(f"{name:<10}{cells}")
        return "\n".join([*lines, self.verdict()])


def evaluate(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    scores: Sequence[str] | None = None,
    points: Points | None = None,
    temperature: float = 1.0,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure how well scores tell right predictions from wrong ones.

    Parameters
    ----------
    predictions : Predictions
        With labels.
    scores : sequence of str, optional
        Names from `SCORES`; by default alpha, beta, msp, entropy and, for true
        logits, energy.
    points : Points, optional
        Where FRR@TRR, TRR@FRR, risk@coverage and coverage@risk are taken.
    temperature : float
        Divides the logits, for the scores and for the calibration metrics.
    confidence : float
        Of every interval.
    seed : int
        Of the bootstrap.
    progress : callable, optional
        Told the share of the work done and what comes next.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> p = Predictions.from_logits([[4.0, 0], [3, 0], [1, 0], [0, 1]], [0, 0, 1, 1])
    >>> found = evaluate(p, scores=["alpha"])
    >>> found.n_errors, round(found.scores["alpha"]["auroc"].value, 3)
    (1, 0.833)
    """
    settings = Settings(points or Points(), temperature, confidence, seed)
    tell = progress or (lambda _share, _task: None)
    names = _names(predictions, scores)
    wrong = predictions.errors
    found: dict[str, Array] = {}
    for i, name in enumerate(names):
        tell(0.3 * i / len(names), f"scoring {name}")
        found[name] = SCORES[name](predictions, temperature=temperature)
    tell(0.3, "drawing bootstrap samples")
    samples = intervals.bootstrap(list(found.values()), wrong, seed=seed)
    results = {}
    for i, name in enumerate(names):
        tell(0.5 + 0.4 * i / len(names), f"measuring {name}")
        results[name] = _measure(found[name], wrong, samples[i], settings)
    tell(0.9, "comparing scores")
    n_errors = int(wrong.sum())
    right = len(wrong) - n_errors
    low, high = intervals.clopper_pearson(right, len(wrong), confidence=confidence)
    return Evaluation(
        n=len(wrong),
        n_classes=predictions.n_classes,
        n_errors=n_errors,
        accuracy=Estimate(right / len(wrong), low, high),
        calibration=_calibration(predictions, settings),
        scores=results,
        differences=_differences(found, wrong, results, samples, settings),
        settings=settings,
    )


def _names(predictions: Predictions, scores: Sequence[str] | None) -> list[str]:
    if isinstance(scores, str):
        message = f"expected a list of scores, got the string {scores!r}. Use [...]."
        raise InputError(message)
    if scores is not None:
        if not scores:
            message = f"expected at least one score out of {', '.join(SCORES)}."
            raise InputError(message)
        return list(dict.fromkeys(find_score(name).name for name in scores))
    logits = not predictions.from_probabilities
    return [name for name in DEFAULT_SCORES if logits or SCORES[name].needs != "logits"]


def _measure(
    scores: Array, wrong: Array, samples: Samples, settings: Settings
) -> dict[str, Estimate]:
    runs, at = count_runs(scores, wrong), settings.points
    exact = {name: float(metric(runs, at)) for name, metric in RANK_METRICS.items()}
    exact["aupr_correct"] = float(curves.aupr(count(scores, wrong).swapped()))
    missing = set(metrics.undefined(runs))
    if runs.n_correct == 0:
        missing.add("aupr_correct")
    out = {}
    for name, value in exact.items():
        if name in missing:
            out[name] = Estimate(None, note="needs rows of both kinds")
            continue
        low, high = _interval(name, value, runs, samples, settings)
        note = FEW if _few(runs) and name not in _EXACT_WHEN_FEW else ""
        out[name] = Estimate(value, low, high, note)
    return out


_EXACT_WHEN_FEW = ("auroc", "frr_at_trr", "trr_at_frr")
_STRATIFIED = ("frr_at_trr", "trr_at_frr")


def _interval(
    name: str, value: float, runs: Counts, samples: Samples, settings: Settings
) -> Interval:
    at, confidence = settings.points, settings.confidence
    if name == "auroc":
        return intervals.delong_counts(runs, confidence=confidence)
    if name == "frr_at_trr" and _few(runs):
        return intervals.frr_at_trr_few(runs, trr=at.trr, confidence=confidence)
    if name == "trr_at_frr" and _few(runs):
        low, high = intervals.frr_at_trr_few(
            runs.swapped(), trr=1 - at.frr, confidence=confidence
        )
        return 1 - high, 1 - low
    low, high = intervals.quantiles(_deviations(name, samples, at), confidence)
    return max(0.0, value + low), min(1.0, value + high)


def _deviations(name: str, samples: Samples, at: Points) -> Array:
    """How far the metric of each bootstrap sample is from that of the rows."""
    drawn = samples.strata if name in _STRATIFIED else samples.rows
    if name == "aupr_correct":
        return curves.aupr(drawn.swapped()) - curves.aupr(samples.sample.swapped())
    metric = RANK_METRICS[name]
    return metric(drawn, at) - metric(samples.sample, at)


def _few(c: Counts) -> bool:
    return bool(min(c.n_errors, c.n_correct) < FEW_ERRORS)


def _calibration(predictions: Predictions, settings: Settings) -> dict[str, Estimate]:
    temperature = settings.temperature
    nll = metrics.nll_rows(predictions, temperature=temperature)
    brier = metrics.brier_rows(predictions, temperature=temperature)
    bins, gap = metrics.ece_parts(predictions, temperature=temperature)
    wrong = predictions.errors
    said: Array = ~wrong - gap
    finite = np.where(np.isfinite(nll), nll, 0.0)
    in_bin = np.zeros((len(gap), metrics.ECE_BINS))
    in_bin[np.arange(len(gap)), bins] = gap
    drawn = intervals.bootstrap_means(
        np.column_stack([said, brier, finite, in_bin]), seed=settings.seed
    )
    mean_gap = in_bin.mean(0)
    ece = float(np.abs(mean_gap).sum())
    # The ECE of a draw is biased upwards; centred, its spread is what is wanted.
    ece_drawn = np.abs(mean_gap + drawn[:, 3:]).sum(1)
    few = FEW if min(wrong.sum(), (~wrong).sum()) < FEW_ERRORS else ""
    return {
        "confidence": _around(float(said.mean()), drawn[:, 0], settings, ""),
        "ece": _around(ece, ece_drawn - ece_drawn.mean(), settings, few),
        "brier": _around(float(brier.mean()), drawn[:, 1], settings, few),
        "nll": _around(float(finite.mean()), drawn[:, 2], settings, few)
        if np.isfinite(nll).all()
        else Estimate(
            None, note=f"infinite: {np.isinf(nll).sum()} labels had probability 0"
        ),
    }


def _around(value: float, drawn: Array, settings: Settings, note: str) -> Estimate:
    low, high = intervals.quantiles(drawn, settings.confidence)
    return Estimate(value, max(0.0, value + low), value + high, note)


def _differences(
    found: dict[str, Array],
    wrong: Array,
    results: dict[str, dict[str, Estimate]],
    samples: list[Samples],
    settings: Settings,
) -> tuple[Difference, ...]:
    if wrong.all() or not wrong.any():
        return ()
    names = list(found)
    places = {name: intervals.placements(found[name], wrong) for name in names}
    paired = samples[0].joint and min(wrong.sum(), (~wrong).sum()) >= FEW_ERRORS
    drawn = {
        name: _deviations("frr_at_trr", sample, settings.points)
        for name, sample in zip(names, samples, strict=True)
        if paired
    }
    out = []
    for a, b in combinations(names, 2):
        low, high = intervals.placements_difference(
            places[a], places[b], confidence=settings.confidence
        )
        change = _gap("auroc", results[a], results[b])
        known = math.isfinite(low)
        out.append(
            Difference("auroc", a, b, change, low, high)
            if known
            else Difference("auroc", a, b, change)
        )
        change = _gap("frr_at_trr", results[a], results[b])
        if paired:
            low, high = intervals.quantiles(drawn[a] - drawn[b], settings.confidence)
            ends = change + low, change + high
            out.append(Difference("frr_at_trr", a, b, change, *ends))
        else:
            out.append(Difference("frr_at_trr", a, b, change))
    return tuple(out)


def _gap(metric: str, first: dict[str, Estimate], second: dict[str, Estimate]) -> float:
    a, b = first[metric].value, second[metric].value
    assert a is not None
    assert b is not None
    return a - b


def _percent(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{estimate.value * 100:.2f}"


def _percent_interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"[{estimate.low:.1%}, {estimate.high:.1%}]"
