"""All metrics of all scores on labelled predictions, with their intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor import envelope
from trustdoctor.arrays import Array
from trustdoctor.atomic import write_text
from trustdoctor.errors import InputError
from trustdoctor.evaluation.calibration_table import said
from trustdoctor.evaluation.differences import (
    Difference,
    gains_over,
    paired_differences,
    say_better,
)
from trustdoctor.evaluation.duplicates import repeated_rows, repeats
from trustdoctor.evaluation.label_checks import (
    LabelReport,
    check_labels,
    confidence_ends,
    constant_scores,
    reversed_scores,
    say_beyond,
)
from trustdoctor.kernels import map_threads
from trustdoctor.metrics import (
    AREAS,
    CROSSINGS,
    RANK_METRICS,
    Counts,
    Estimate,
    Interval,
    Points,
    Ranking,
    Share,
    Sketch,
    area_interval,
    counts,
    few_note,
    share,
    undefined,
)
from trustdoctor.predictions import Answers, Intake, Predictions, require_predictions
from trustdoctor.progress import Tell
from trustdoctor.scores import (
    SCORES,
    LogitScore,
    Score,
    available_scores,
    find_score,
    score_all,
)

DEFAULT_SCORES = ("alpha", "beta", "msp", "entropy", "energy")
SOFTMAX = ("alpha", "beta")
"""The scores that the calibration metrics are made of."""


@dataclass(frozen=True)
class Settings:
    """How the evaluation was made."""

    points: Points = field(default_factory=Points)
    temperature: float = 1.0
    confidence: float = 0.95


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes
    ----------
    n, n_classes, n_errors : int
        Rows with a label, classes (0 for answers with a confidence), and wrong
        predictions.
    described : str
        What a row came as: "logits of 3 classes", "probabilities of 3 classes",
        "confidence" or "doubt".
    accuracy : Estimate
        With its Clopper-Pearson interval.
    calibration : dict of str to Estimate
        "confidence" (the mean probability of the class decided on, the largest unless
        a system decides otherwise), "ece", "brier" and "nll" of the probabilities, of
        the softmax of the logits, or of the confidences. Empty where those are not
        probabilities.
    scores : dict of str to dict of str to Estimate
        For each score all metrics of rank, under the names of the functions.
    differences : tuple of Difference
        AUROC and FRR@TRR of each score less those of each later one, paired; not of
        two that rank alike, as beta and msp do.
    settings : Settings
        The parameters of the metrics.
    warnings : tuple of str
        What a reader should know or check of the rows, one sentence each.
    odd_labels : tuple of str
        Those that say why the labels cannot be right: `calibrate` refuses them.
    predictions : Predictions or None
        The rows with a label, for charts and the page.
    doubts : dict of str to array (n,)
        The scores of the rows, for charts and the page.
    counted : bool
        Whether rows were counted in ranges of scores and not kept. Differences are
        then not paired: their intervals hold whatever the scores have in common, and
        are wider for it.
    kept : integer array, or None
        The numbers of the rows that have a label; None where all have.
    clustered_by : str
        The column within whose values errors go together; empty where there is none.
    clusters : array (n,), or None
        Its values.

    Examples
    --------
    >>> p = Predictions.from_logits([[4.0, 0], [3, 0], [1, 0], [0, 1]], [0, 0, 1, 1])
    >>> evaluate(p, scores=["alpha"]).accuracy.percent()
    '75.00 [19.41, 99.37]'
    """

    n: int
    n_classes: int
    described: str
    n_errors: int
    accuracy: Estimate
    calibration: dict[str, Estimate]
    scores: dict[str, dict[str, Estimate]]
    differences: tuple[Difference, ...] = field(repr=False)
    settings: Settings
    warnings: tuple[str, ...] = ()
    odd_labels: tuple[str, ...] = ()
    predictions: Predictions | None = field(default=None, repr=False, compare=False)
    counted: bool = False
    doubts: dict[str, Array] = field(default_factory=dict, repr=False, compare=False)
    kept: Array | None = field(default=None, repr=False, compare=False)
    clustered_by: str = ""
    clusters: Array | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers; None for what does not exist.

        Where the rows are at hand, "least_doubtful_errors" has those of each score.
        """
        rows: dict[str, Any] = {"predictions": None, "doubts": {}}
        rows |= {"kept": None, "clusters": None}
        content = asdict(replace(self, **rows))
        for name in rows:
            del content[name]
        if self.predictions is not None:
            content["least_doubtful_errors"] = {
                name: self.least_doubtful_errors(name) for name in self.scores
            }
        return content

    def least_doubtful_errors(
        self, score: str, *, most: int = 10
    ) -> list[dict[str, Any]]:
        """Return the errors that a score doubts least, the least doubtful first.

        No interval knows of errors that look exactly as correct rows do: look at these.

        Parameters
        ----------
        score : str
            One of `scores`.
        most : int
            How many at most.

        Returns
        -------
        list of dict
            "row" (its number in the rows that were given, from 0), "id", "doubt" (None
            for an infinite one), "predicted" and "label" (by name where classes have
            names); None for what is not known.

        Examples
        --------
        >>> p = Predictions.from_logits([[4.0, 0], [3, 0], [1, 0]], [0, 1, 1])
        >>> found = evaluate(p, scores=["alpha"])
        >>> [error["row"] for error in found.least_doubtful_errors("alpha")]
        [1, 2]
        """
        if self.predictions is None:
            message = "this evaluation has no predictions with it; evaluate them again."
            raise InputError(message)
        p, doubts = self.predictions, self.doubts[score]
        errors = np.flatnonzero(p.errors)
        rows = errors[np.argsort(doubts[errors], kind="stable")[:most]]
        return [
            {
                "row": int(row if self.kept is None else self.kept[row]),
                "id": None if p.ids is None else str(p.ids[row]),
                "doubt": float(doubts[row]) if np.isfinite(doubts[row]) else None,
                "predicted": _class_of(p, int(p.predicted[row])),
                "label": None
                if isinstance(p, Answers) and p.correctness_only
                else _class_of(p, int(p.require_labels("errors")[row])),
            }
            for row in rows
        ]

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        text = envelope.dump("evaluation", 1, self.to_dict())
        if path is not None:
            write_text(path, text)
        return text

    def to_html(self, path: str | Path | None = None, **extras: Any) -> str | Path:
        """Write one self-contained page and return its path; without one, the page.

        Parameters
        ----------
        path : str or Path, optional
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
        if path is None:
            return page
        write_text(path, page)
        return Path(path)

    def _repr_html_(self) -> str | None:
        """Show the page in a notebook."""
        from trustdoctor.report import frame

        return None if self.predictions is None else frame(str(self.to_html()))

    def verdict(self, score: str | None = None) -> str:
        """Say in words what rejecting by a score does; by default the first.

        Where another of the scores ranks errors clearly better, it says that, too.
        """
        name = score or next(iter(self.scores))
        if self.n_errors == 0:
            return (
                f"All {self.n:,} predictions are correct: there is no error to detect, "
                "and no score can be judged on these rows."
            )
        if self.n_errors == self.n:
            check = "that the labels number the classes as the columns do"
            if not self.n_classes:
                check = "which column tells what is right"
            return (
                f"All {self.n:,} predictions are wrong: there is nothing to accept. "
                f"Check {check}."
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
        level = self.settings.confidence
        gains = gains_over(name, self.differences, confidence=level)
        better = say_better(name, gains, where="these rows")
        better = better and f" Careful: {better}."
        return (
            f"Rejecting the {share} most doubtful predictions by {name} "
            f"leaves {risk.value:.{digits}%} errors {ends} instead of "
            f"{self.n_errors / self.n:.{digits}%}.{better}"
        )

    @property
    def stated_by(self) -> str:
        """What states how sure the model is, in words for a sentence.

        It is called what it came as: a support vector machine's margins, given as
        logits, are not a softmax, nor are the probabilities of a forest.
        """
        called = {"logits": "logits", "confidence": "confidences"}
        came_as = self.described.partition(" ")[0]
        if came_as not in called:
            return came_as
        return f"{called[came_as]}, as probabilities,"

    def __repr__(self) -> str:
        """Show the main metrics as a small table."""
        head = (
            f"Evaluation: {self.n:,} rows, "
            + (f"{self.n_classes} classes, " if self.n_classes else "")
            + f"{self.n_errors:,} errors, accuracy {short(self.accuracy)}"
        )
        columns = ("auroc", "frr_at_trr", "aurc", "risk_at_coverage")
        at = self.settings.points
        titles: tuple[str, ...] = ("AUROC", f"FRR@{at.trr * 100:g}TRR", "AURC")
        titles += (f"risk@{at.coverage * 100:g}cov",)
        wide = max(10, *(len(name) + 1 for name in self.scores))
        lines = [head, f"{'score':<{wide}}" + "".join(f"{t:>14}" for t in titles)]
        for name, found in self.scores.items():
            cells = "".join(f"{short(found[c]):>14}" for c in columns)
            lines.append(f"{name:<{wide}}{cells}")
        return "\n".join([*lines, self.verdict()])


def evaluate(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    scores: Sequence[str | Score] | None = None,
    points: Points | None = None,
    temperature: float = 1.0,
    confidence: float = 0.95,
    seed: int | None = None,  # noqa: ARG001 - taken, so that older calls still work
    progress: Tell | None = None,
) -> Evaluation:
    """Measure how well scores tell right predictions from wrong ones.

    Parameters
    ----------
    predictions : Predictions
        With labels; rows that have none are left out.
    scores : sequence of str or Score, optional
        Names from `SCORES`, or fitted scores; by default alpha, beta, msp, entropy
        and, for true logits, energy; for answers their confidence.
    points : Points, optional
        Where FRR@TRR, TRR@FRR, risk@coverage and coverage@risk are taken.
    temperature : float
        Divides the logits, for the scores and for the calibration metrics.
    confidence : float
        Of every interval.
    seed : int, optional
        Not used: intervals are computed, not drawn.
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
    settings = Settings(points or Points(), temperature, confidence)
    require_predictions(predictions)
    tell = progress or (lambda _share, _task: None)
    every_row, predictions = predictions, predictions.labelled("an evaluation")
    allowed, wrong = available_scores(predictions), predictions.errors
    asked = default_scores(scores, allowed)
    tell(0.0, f"scoring {', '.join(score.name for score in asked)}")
    # One pass also gives alpha and beta, which confidence and Brier score stand on.
    more = [name for name in SOFTMAX if name in allowed]
    every = score_all(predictions, [*asked, *more], temperature=temperature)
    found = {score.name: every[score.name] for score in asked}
    rankings = _ranked(asked, found, wrong, tell)
    results = _measured(rankings, settings)
    calibration = _calibration(predictions, every, settings)
    tell(0.8, "comparing scores")
    caution = cautions(every_row, every)
    odd = (*caution.odd, *reversed_scores(results, probable=bool(calibration)))
    return Evaluation(
        n=len(wrong),
        n_classes=predictions.n_classes,
        described=predictions.row_kind,
        n_errors=int(wrong.sum()),
        accuracy=accuracy(wrong, confidence),
        calibration=calibration,
        scores=results,
        differences=paired_differences(asked, rankings, settings.points, confidence),
        settings=settings,
        odd_labels=odd,
        warnings=(
            *odd,
            *caution.notes,
            *constant_scores({n: ranking.counts for n, ranking in rankings.items()}),
        ),
        predictions=predictions,
        doubts=every,
        kept=kept_rows(every_row),
    )


def _class_of(predictions: Predictions, label: int) -> str | int | None:
    """Return a class by its name, or by its number; None where answers have neither."""
    names = predictions.class_names
    if names is None:
        return None if isinstance(predictions, Answers) else label
    return names[label] if label < len(names) else None


def _ranked(
    asked: Sequence[Score], found: dict[str, Array], wrong: Array, tell: Tell
) -> dict[str, Ranking]:
    """Put the rows in order by every score."""
    out = {}
    for i, score in enumerate(asked):
        tell(0.2 + 0.5 * i / len(asked), f"measuring {score.name}")
        out[score.name] = Ranking(found[score.name], wrong, score.rounding)
    return out


def _measured(
    rankings: dict[str, Ranking], settings: Settings
) -> dict[str, dict[str, Estimate]]:
    """Return every metric of every score."""
    measured = map_threads(
        lambda ranking: measure_rows(ranking.counts, settings), list(rankings.values())
    )
    return dict(zip(rankings, measured, strict=True))


def _no_probability(predictions: Predictions) -> bool:
    return isinstance(predictions, Answers) and predictions.confidence is None


def default_scores(
    scores: Sequence[str | Score] | None, allowed: Sequence[str]
) -> list[Score]:
    """Return the scores asked for; by default those that the predictions allow."""
    if isinstance(scores, str):
        message = f"expected a list of scores, got the string {scores!r}. Use [...]."
        raise InputError(message)
    if scores is None:
        scores = [name for name in DEFAULT_SCORES if name in allowed] or allowed
    if not scores:
        message = f"expected at least one score out of {', '.join(SCORES)}."
        raise InputError(message)
    found: dict[str, Score] = {}
    for score in map(find_score, scores):
        if found.setdefault(score.name, score) != score:
            message = f"two different scores are called {score.name!r}. Give one."
            raise InputError(message)
        if isinstance(score, LogitScore) and score.temperature != 1:
            message = (
                f"expected temperature= for all scores, not one of {score.name}'s."
            )
            raise InputError(message)
    return list(found.values())


def _calibration(
    predictions: Predictions, doubts: dict[str, Array], settings: Settings
) -> dict[str, Estimate]:
    if _no_probability(predictions):
        return {}  # no probabilities, so nothing to take at its word
    found = said(predictions, temperature=settings.temperature, doubts=doubts)
    return found.estimates(confidence=settings.confidence)


def cautions(predictions: Predictions, doubts: dict[str, Array]) -> LabelReport:
    """Say what is odd about labels, and what else to check of rows.

    `doubts` are of those with a label.
    """
    report = check_labels(predictions, doubts)
    notes = (
        *Intake.of(predictions).lines(),
        *say_beyond(confidence_ends(predictions.labelled("an evaluation"))),
        *report.notes,
        *repeats(ids=predictions.ids, features=predictions.features),
        *repeated_rows(predictions),
    )
    return LabelReport(report.odd, notes)


def kept_rows(predictions: Predictions) -> Array | None:
    """Return the rows that have a label; None where all have."""
    return (
        None if predictions.has_label.all() else np.flatnonzero(predictions.has_label)
    )


_NO_VALUE = "some metrics need both right and wrong rows"


_NO_INTERVAL = "no interval: all rows are right, or all are wrong"


def accuracy(wrong: Array, confidence: float) -> Share:
    """Return the share of correct rows."""
    return share(int((~wrong).sum()), len(wrong), confidence=confidence)


def measure_rows(every: Counts, settings: Settings) -> dict[str, Estimate]:
    """Return every metric of rank, with its interval; rows are counted by score."""
    runs, at = every.runs(), settings.points
    missing = _missing(runs)
    out = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            out[name] = Estimate(None, note=_NO_VALUE)
            continue
        value = _value(name, every if name == "aupr_correct" else runs, at)
        if runs.n_errors == 0 or runs.n_correct == 0:
            out[name] = Estimate(value, note=_NO_INTERVAL)
            continue
        ends, note = _interval(name, value, every, settings)
        out[name] = Estimate(value, *ends, note)
    return out


def measure_sketch(sketch: Sketch, settings: Settings) -> dict[str, Estimate]:
    """Return every metric of rank of a sketched score.

    The value stands in the middle of its bounds, and the interval holds both what the
    ranges and what the rows leave open.
    """
    cells, at = sketch.counts, settings.points
    missing = _missing(cells)
    out = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            out[name] = Estimate(None, note=_NO_VALUE)
            continue
        least, most = sketch.bounds(name, points=at)
        value, within = (least + most) / 2, (most - least) / 2
        if sketch.n_errors == 0 or sketch.n_correct == 0:
            note = _NO_INTERVAL
            out[name] = Estimate(value, note=note, within=within)
            continue
        tied = _value(name, cells, at)
        (low, high), note = _interval(name, tied, cells, settings)
        low, high = least + low - tied, most + high - tied
        out[name] = Estimate(value, max(0.0, low), min(1.0, high), note, within)
    return out


def note_of(c: Counts) -> str:
    """Return what to know of intervals of these rows; most of the time nothing."""
    return few_note(int(c.n_errors), int(c.n_correct))


def _missing(c: Counts) -> set[str]:
    """Return the metrics that do not exist on these rows."""
    return {*undefined(c), *(("aupr_correct",) if c.n_correct == 0 else ())}


def _value(name: str, c: Counts, at: Points) -> float:
    if name == "aupr_correct":
        return float(counts.aupr(c.swapped()))
    return float(RANK_METRICS[name](c, at))


def _interval(
    name: str, value: float, c: Counts, settings: Settings
) -> tuple[Interval, str]:
    """Return an interval, and what to know of it."""
    note, level = note_of(c), settings.confidence
    if name in AREAS:
        return area_interval(name, c, confidence=level, value=value), note
    arms = CROSSINGS[name](c, settings.points, level)
    return arms.interval, note or arms.note


def short(estimate: Estimate) -> str:
    """Show the number alone, in percent; a dash where it does not exist."""
    return "-" if estimate.value is None else f"{estimate.value * 100:.2f}"
