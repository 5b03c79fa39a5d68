"""All metrics of all scores on labelled predictions, with their intervals."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor import intervals, metrics
from trustdoctor.curves import Array
from trustdoctor.errors import InputError
from trustdoctor.estimate import (
    FEW,
    Estimate,
    Settings,
    accuracy,
    around,
    deviations,
    measure_rows,
    percent,
)
from trustdoctor.intervals import FEW_ERRORS, Samples
from trustdoctor.metrics import Points
from trustdoctor.output import write_text
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Tell
from trustdoctor.scores import SCORES, find_score, score_all

DEFAULT_SCORES = ("alpha", "beta", "msp", "entropy", "energy")


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
    predictions : Predictions or None
        What was evaluated, for charts and the page.
    counted : bool
        Whether rows were counted in ranges of scores and not kept. Differences are
        then not paired: their intervals hold whatever the scores have in common, and
        are wider for it.
    """

    n: int
    n_classes: int
    n_errors: int
    accuracy: Estimate
    calibration: dict[str, Estimate]
    scores: dict[str, dict[str, Estimate]]
    differences: tuple[Difference, ...] = field(repr=False)
    settings: Settings
    predictions: Predictions | None = field(default=None, repr=False, compare=False)
    counted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers; None for what does not exist."""
        content = asdict(replace(self, predictions=None))
        del content["predictions"]
        return {"trustdoctor": "evaluation", "schema": 1, **content}

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        if path is not None:
            write_text(path, text)
        return text

    def to_html(self, path: str | Path | None = None, **extras: Any) -> str:
        """Return one self-contained page, and write it to `path` if one is given.

        Parameters
        ----------
        path : optional
        extras
            Fields of `trustdoctor.report.Extras`: class_names, ids, texts, ...
        """
        from trustdoctor.report import Extras, render

        if self.predictions is None:
            message = "this evaluation has no predictions with it; evaluate them again."
            raise InputError(message)
        known = Extras.__dataclass_fields__
        for name in extras:
            if name not in known:
                message = f"expected options out of {', '.join(known)}, got {name!r}."
                raise InputError(message)
        page = render(self, self.predictions, Extras(**extras))
        if path is not None:
            write_text(path, page)
        return page

    def _repr_html_(self) -> str | None:
        """Show the page in a notebook."""
        from trustdoctor.report import frame

        return None if self.predictions is None else frame(self.to_html())

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
        coverage = self.settings.points.coverage
        share = f"{round(100 * (1 - coverage), 6):g}%"
        if coverage * self.n > self.n - 1:
            return (
                f"{self.n_errors} of {self.n} predictions are wrong; with so few rows "
                f"rejecting {share} of them rejects none."
            )
        digits = 1 if self.n_errors > 0.02 * self.n else 2
        ends = f"[{risk.low:.{digits}%}, {risk.high:.{digits}%}]"
        return (
            f"Rejecting the {share} most doubtful predictions by {name} "
            f"leaves {risk.value:.{digits}%} errors {ends} instead of "
            f"{self.n_errors / self.n:.{digits}%}."
        )

    def __repr__(self) -> str:
        """Show the main metrics as a small table."""
        head = (
            f"Evaluation: {self.n:,} rows, {self.n_classes} classes, "
            f"{self.n_errors:,} errors, accuracy {percent(self.accuracy)}"
        )
        columns = ("auroc", "frr_at_trr", "aurc", "risk_at_coverage")
        at = self.settings.points
        titles: tuple[str, ...] = ("AUROC", f"FRR@{at.trr * 100:g}TRR", "AURC")
        titles += (f"risk@{at.coverage * 100:g}cov",)
        lines = [head, f"{'score':<10}" + "".join(f"{t:>14}" for t in titles)]
        for name, found in self.scores.items():
            cells = "".join(f"{percent(found[c]):>14}" for c in columns)
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
    progress: Tell | None = None,
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
    if not isinstance(predictions, Predictions):
        message = (
            f"expected Predictions, got {type(predictions).__name__}. Build them with "
            "Predictions.from_logits or from_probs."
        )
        raise InputError(message)
    if not (isinstance(seed, int) and seed >= 0):
        message = f"expected a seed of 0 or more, got {seed!r}."
        raise InputError(message)
    settings = Settings(points or Points(), temperature, confidence, seed)
    tell = progress or (lambda _share, _task: None)
    names = default_scores(scores, logits=not predictions.from_probabilities)
    wrong = predictions.errors
    tell(0.0, f"scoring {', '.join(names)}")
    found = score_all(predictions, names, temperature=temperature)
    tell(0.3, "drawing bootstrap samples")
    samples = intervals.bootstrap(list(found.values()), wrong, seed=seed)
    results = {}
    for i, name in enumerate(names):
        tell(0.5 + 0.4 * i / len(names), f"measuring {name}")
        results[name] = measure_rows(found[name], wrong, samples[i], settings)
    tell(0.9, "comparing scores")
    return Evaluation(
        n=len(wrong),
        n_classes=predictions.n_classes,
        n_errors=int(wrong.sum()),
        accuracy=accuracy(wrong, confidence),
        calibration=_calibration(predictions, settings),
        scores=results,
        differences=_differences(found, wrong, results, samples, settings),
        settings=settings,
        predictions=predictions,
    )


def default_scores(scores: Sequence[str] | None, *, logits: bool) -> list[str]:
    """Return the scores asked for; by default those that the predictions allow."""
    if isinstance(scores, str):
        message = f"expected a list of scores, got the string {scores!r}. Use [...]."
        raise InputError(message)
    if scores is not None:
        if not scores:
            message = f"expected at least one score out of {', '.join(SCORES)}."
            raise InputError(message)
        return list(dict.fromkeys(find_score(name).name for name in scores))
    return [name for name in DEFAULT_SCORES if logits or SCORES[name].needs != "logits"]


def _calibration(predictions: Predictions, settings: Settings) -> dict[str, Estimate]:
    rows = metrics.calibration_rows(predictions, temperature=settings.temperature)
    bins, gap, nll, brier = rows.bins, rows.gap, rows.nll, rows.brier
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
        "confidence": around(float(said.mean()), drawn[:, 0], settings, ""),
        "ece": around(ece, ece_drawn - ece_drawn.mean(), settings, few),
        "brier": around(float(brier.mean()), drawn[:, 1], settings, few),
        "nll": around(float(finite.mean()), drawn[:, 2], settings, few)
        if np.isfinite(nll).all()
        else Estimate(
            None, note=f"infinite: {np.isinf(nll).sum()} labels had probability 0"
        ),
    }


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
        name: deviations("frr_at_trr", sample, settings.points)
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
