"""All metrics of all scores on labelled predictions, with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from trustdoctor import envelope
from trustdoctor.arrays import Array, as_errors, as_scores
from trustdoctor.atomic import write_text
from trustdoctor.errors import InputError
from trustdoctor.evaluation.differences import (
    Difference,
    better_score_sentence,
    gains_over,
    paired_differences,
    ranking_difference,
)
from trustdoctor.evaluation.duplicates import repeated_rows, repeats
from trustdoctor.evaluation.label_checks import (
    check_labels,
    confidence_range,
    constant_scores,
    no_probability_note,
    reversed_scores,
)
from trustdoctor.kernels import map_threads
from trustdoctor.metrics import (
    AREAS,
    CURVE_POINTS,
    ECE_BINS,
    RANK_METRICS,
    CalibrationSummary,
    Counts,
    CurvePoint,
    Estimate,
    PairedFrr,
    Points,
    Ranking,
    ResultTable,
    Sketch,
    Tabular,
    area_interval,
    aupr,
    calibration_terms,
    few_note,
    paired_frr,
    share,
    undefined,
)
from trustdoctor.predictions import (
    OUTSIDE,
    Answers,
    Intake,
    Predictions,
    require_predictions,
)
from trustdoctor.progress import Tell
from trustdoctor.scores import (
    SCORES,
    LogitScore,
    Score,
    available_scores,
    find_score,
    score_together,
    setting_name,
)

if TYPE_CHECKING:
    import polars as pl

DEFAULT_SCORES = ("alpha", "beta", "msp", "entropy", "energy")

SOFTMAX = ("alpha", "beta")
"""The scores that confidence, ECE, Brier score and NLL are computed from."""

ScoreSelection = Sequence[str | Score] | Mapping[str, str | Score] | str | None
"""Scores to evaluate: a list, a dict by names of one's own, "all", or the default."""

SHOWN_METRICS = ("auroc", "frr_at_trr", "aurc", "risk_at_coverage")
"""The metrics of a printed evaluation."""

_NO_VALUE = "some metrics need both right and wrong rows"
_NO_INTERVAL = "no interval: all rows are right, or all are wrong"


@dataclass(frozen=True)
class EvaluationSettings:
    """The parameters of an evaluation's metrics.

    Attributes
    ----------
    points : Points
        Where FRR@TRR, TRR@FRR, risk@coverage and coverage@risk are taken.
    temperature : float
        Divides the logits.
    confidence : float
        Of every interval.
    """

    points: Points = field(default_factory=Points)
    temperature: float = 1.0
    confidence: float = 0.95


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """All metrics of several scores on the same labelled rows, with intervals.

    Attributes
    ----------
    n, n_classes, n_errors : int
        Rows with a label, classes (0 for answers with a confidence), and wrong
        predictions.
    row_kind : str
        The form of the rows: "logits of 3 classes", "probabilities of 3 classes",
        "confidence" or "doubt".
    accuracy : Estimate
        With its Clopper-Pearson interval.
    calibration : dict of str to Estimate
        "confidence" (the mean probability of the class decided on, the largest unless
        a system decides otherwise), "ece", "brier" and "nll" of the probabilities, of
        the softmax of the logits, or of the confidences. Empty where those are not
        probabilities.
    scores : dict of str to dict of str to Estimate
        For each score all rank metrics, under the names of the functions.
    differences : tuple of Difference
        AUROC and FRR@TRR of each score less those of each later one, paired; not of
        two that rank alike, as beta and msp do.
    settings : EvaluationSettings
        The parameters of the metrics.
    warnings : tuple of str
        What a reader should know or check of the rows, one sentence each.
    odd_labels : tuple of str
        Those of the warnings for which `calibrate` refuses the labels.
    predictions : Predictions or None
        The rows with a label, for charts and the page.
    doubts : dict of str to array (n,)
        The scores of the rows, for charts and the page.
    errors : bool array (n,), or None
        Which of the rows are wrong.
    streamed : bool
        Whether rows were counted in ranges of scores and not stored. Differences are
        then not paired: their intervals hold whatever the scores have in common, and
        are wider for it.
    labelled_rows : integer array, or None
        The numbers of the rows that have a label; None if all have.
    roundings : dict of str to float
        How far rounding may move each score.
    clustered_by : str
        The column within whose values errors are correlated; "" if there is none.
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
    row_kind: str
    n_errors: int
    accuracy: Estimate
    calibration: dict[str, Estimate]
    scores: dict[str, dict[str, Estimate]]
    differences: tuple[Difference, ...] = field(repr=False)
    settings: EvaluationSettings
    warnings: tuple[str, ...] = ()
    odd_labels: tuple[str, ...] = ()
    predictions: Predictions | None = field(default=None, repr=False, compare=False)
    streamed: bool = False
    doubts: dict[str, Array] = field(default_factory=dict, repr=False, compare=False)
    errors: Array | None = field(default=None, repr=False, compare=False)
    labelled_rows: Array | None = field(default=None, repr=False, compare=False)
    roundings: dict[str, float] = field(default_factory=dict, repr=False, compare=False)
    clustered_by: str = ""
    clusters: Array | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers; None for what does not exist.

        If the rows are stored, "least_doubtful_errors" lists those of each score.
        """
        no_rows: dict[str, Any] = {"predictions": None, "doubts": {}}
        no_rows |= {"errors": None, "labelled_rows": None, "clusters": None}
        # Without the rows first: asdict would copy them.
        content = asdict(replace(self, **no_rows))
        for name in (*no_rows, "roundings"):
            del content[name]
        if self.predictions is not None:
            content["least_doubtful_errors"] = {
                name: self.least_doubtful_errors(name) for name in self.scores
            }
        return content

    def least_doubtful_errors(
        self, score: str, *, limit: int = 10
    ) -> list[dict[str, Any]]:
        """Return the errors that a score doubts least, the least doubtful first.

        No score tells errors that look exactly like correct rows: look at these.

        Parameters
        ----------
        score : str
            One of `scores`.
        limit : int
            The largest number of errors to return.

        Returns
        -------
        list of dict
            "row" (its number in all rows, from 0), "id", "doubt" (None if it is
            infinite), "predicted" and "label" (by name if classes have names); None
            for what is unknown.

        Examples
        --------
        >>> p = Predictions.from_logits([[4.0, 0], [3, 0], [1, 0]], [0, 1, 1])
        >>> evaluation = evaluate(p, scores=["alpha"])
        >>> [error["row"] for error in evaluation.least_doubtful_errors("alpha")]
        [1, 2]
        """
        predictions, doubts = self._stored_predictions(), self.doubts[score]
        errors = np.flatnonzero(predictions.errors)
        rows = errors[np.argsort(doubts[errors], kind="stable")[:limit]]
        numbers = rows if self.labelled_rows is None else self.labelled_rows[rows]
        judged = predictions.correctness_only
        labels = predictions.require_labels("errors")
        return [
            {
                "row": int(number),
                "id": None if predictions.ids is None else str(predictions.ids[row]),
                "doubt": float(doubts[row]) if np.isfinite(doubts[row]) else None,
                "predicted": _class_of(predictions, int(predictions.predicted[row])),
                "label": None if judged else _class_of(predictions, int(labels[row])),
            }
            for row, number in zip(rows, numbers, strict=True)
        ]

    def _stored_predictions(self) -> Predictions:
        """Return the rows, or say that streaming did not store them."""
        if self.predictions is None:
            message = (
                "this evaluation stores no predictions, as it was streamed. Evaluate "
                "them in memory."
            )
            if not self.streamed:
                message = (
                    "this evaluation is of scores alone. Evaluate predictions: "
                    "evaluate(p, scores=...)."
                )
            raise InputError(message)
        return self.predictions

    def to_json(self, path: str | None = None) -> str:
        """Return JSON, and write it to `path` if one is given."""
        text = envelope.dump("evaluation", 2, self.to_dict())
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

        predictions, names = self._stored_predictions(), Extras.__dataclass_fields__
        for name in extras:
            if name not in names:
                message = f"expected options out of {', '.join(names)}, got {name!r}."
                raise InputError(message)
        page = render(self, predictions, Extras(**extras))
        if path is None:
            return page
        write_text(path, page)
        return Path(path)

    def table(self, metrics: Sequence[str] = SHOWN_METRICS) -> ResultTable:
        """Return the metrics of each score, with their intervals.

        Parameters
        ----------
        metrics : sequence of str
            Names of the functions, as in `scores`.
        """
        columns = {"score": "score"}
        columns |= {name: self._title(name) for name in metrics}
        rows = [{"score": name, **values} for name, values in self.scores.items()]
        return ResultTable(columns, rows)

    def to_frame(self) -> "pl.DataFrame":
        """Return all metrics in polars, as columns NAME, NAME_low and NAME_high."""
        return self.table((*RANK_METRICS, "aupr_correct")).to_frame()

    def _title(self, metric: str) -> str:
        """Return a metric's name as papers write it, with its point of the curve."""
        points = self.settings.points
        titles = {
            "auroc": "AUROC",
            "aurc": "AURC",
            "eaurc": "E-AURC",
            "augrc": "AUGRC",
            "aupr": "AUPR",
            "aupr_correct": "AUPR of correct rows",
            "frr_at_trr": f"FRR@{points.trr * 100:g}TRR",
            "trr_at_frr": f"TRR@{points.frr * 100:g}FRR",
            "risk_at_coverage": f"risk@{points.coverage * 100:g}cov",
            "coverage_at_risk": f"cov@{points.risk * 100:g}risk",
        }
        if metric not in (*titles, *RANK_METRICS):
            message = f"expected metrics out of {', '.join(titles)}, got {metric!r}."
            raise InputError(message)
        return titles.get(metric, metric)

    def difference(self, first: str, second: str, metric: str = "auroc") -> Estimate:
        """Return a metric of one score less that of another, paired, with its interval.

        Parameters
        ----------
        first, second : str
            Two of `scores`.
        metric : str
            "auroc", "frr_at_trr", "aurc", "eaurc", "augrc", "aupr", "aupr_correct" or
            "risk_at_coverage".

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> errors = rng.random(900) < 0.2
        >>> good, weak = (rng.normal(size=900) + k * errors for k in (2, 1))
        >>> evaluation = evaluate_scores({"good": good, "weak": weak}, errors)
        >>> evaluation.difference("good", "weak", "aurc").high < 0
        True
        """
        if self.errors is None:
            self._stored_predictions()
        assert self.errors is not None
        unknown = [name for name in (first, second) if name not in self.scores]
        if unknown:
            names = ", ".join(self.scores)
            message = f"expected two scores out of {names}, got {unknown[0]!r}."
            raise InputError(message)
        if self.errors.all() or not self.errors.any():
            return Estimate(None, note=_NO_INTERVAL)
        rankings = [
            Ranking(self.doubts[name], self.errors, self.roundings.get(name, 0.0))
            for name in (first, second)
        ]
        settings = self.settings.points, self.settings.confidence
        return ranking_difference(metric, rankings[0], rankings[1], settings)

    def verdict(self, score: str | None = None) -> str:
        """Return in words what rejecting by a score does; by default the first.

        If another of the scores ranks errors clearly better, the verdict names it.
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
        rejected = f"{round(100 * (1 - coverage), 6):g}%"
        if coverage * self.n > self.n - 1:
            return (
                f"{self.n_errors} of {self.n} predictions are wrong; with so few rows "
                f"rejecting {rejected} of them rejects none."
            )
        digits = 1 if self.n_errors > 0.02 * self.n else 2
        interval = f"[{risk.low:.{digits}%}, {risk.high:.{digits}%}]"
        level = self.settings.confidence
        gains = gains_over(name, self.differences, confidence=level)
        better = better_score_sentence(name, gains, rows="these rows")
        careful = f" Careful: {better}." if better else ""
        return (
            f"Rejecting the {rejected} most doubtful predictions by {name} "
            f"leaves {risk.value:.{digits}%} errors {interval} instead of "
            f"{self.n_errors / self.n:.{digits}%}.{careful}"
        )

    @property
    def stated_by(self) -> str:
        """What states how sure the model is, in words for a sentence.

        It is called what it came as: a support vector machine's margins, given as
        logits, are not a softmax, nor are the probabilities of a forest.
        """
        form = self.row_kind.partition(" ")[0]
        plural = {"logits": "logits", "confidence": "confidences"}
        return f"{plural[form]}, as probabilities," if form in plural else form

    def __repr__(self) -> str:
        """Show the main metrics as a small table."""
        classes = f"{self.n_classes} classes, " if self.n_classes else ""
        lines = [
            f"Evaluation: {self.n:,} rows, {classes}{self.n_errors:,} errors, "
            f"accuracy {self.accuracy.percent()}"
        ]
        return "\n".join([*lines, self.table().to_text(), self.verdict()])


def evaluate(  # noqa: PLR0913 - options, by keyword only
    predictions: Predictions,
    *,
    scores: ScoreSelection = None,
    points: Points | None = None,
    temperature: float = 1.0,
    confidence: float = 0.95,
    progress: Tell | None = None,
) -> Evaluation:
    """Measure how well scores tell right predictions from wrong ones.

    Parameters
    ----------
    predictions : Predictions
        With labels; rows without one are left out.
    scores : sequence of str or Score, dict, or "all", optional
        Names from `SCORES`, with parameters if you like ("pnorm:p=4",
        "alpha:temperature=0.7"), or fitted scores; a dict gives them names of your own:
        ``{"kNN 5": a, "kNN 50": b}``. By default alpha, beta, msp, entropy and, for
        true logits, energy; for answers their confidence. "all": every score that needs
        no fitting.
    points : Points, optional
        Where FRR@TRR, TRR@FRR, risk@coverage and coverage@risk are taken.
    temperature : float
        Divides the logits, for the scores and for the calibration metrics.
    confidence : float
        Of every interval.
    progress : callable, optional
        Is passed the share of the work done and the next task.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> p = Predictions.from_logits([[4.0, 0], [3, 0], [1, 0], [0, 1]], [0, 0, 1, 1])
    >>> evaluation = evaluate(p, scores=["alpha"])
    >>> evaluation.n_errors, round(evaluation.scores["alpha"]["auroc"].value, 3)
    (1, 0.833)
    """
    settings = EvaluationSettings(points or Points(), temperature, confidence)
    require_predictions(predictions)
    tell = progress or (lambda _share, _task: None)
    labelled = predictions.labelled("an evaluation")
    allowed, errors = available_scores(labelled), labelled.errors
    scorers = named_scores(scores, allowed, temperature=temperature)
    tell(0.0, f"scoring {', '.join(scorers)}")
    # alpha and beta come from the same pass: confidence and Brier score need them.
    softmax = {
        name: find_score(name, temperature=temperature)
        for name in SOFTMAX
        if name in allowed
    }
    scored = score_together(labelled, [*scorers.values(), *softmax.values()])
    doubts = dict(zip(scorers, scored, strict=False))
    softmax_doubts = dict(zip(softmax, scored[len(scorers) :], strict=True))
    roundings = {name: score.rounding for name, score in scorers.items()}
    measurements = _measure_all(doubts, errors, roundings, settings, tell)
    estimates = {name: m.estimates for name, m in measurements.items()}
    outside = labelled.outside
    softmax_inside = {k: v[~outside] for k, v in softmax_doubts.items()}
    calibration = calibration_estimates(labelled.inside, softmax_inside, settings)
    tell(0.8, "comparing scores")
    labels = check_labels(predictions, softmax_doubts)
    odd = (*labels.odd, *reversed_scores(estimates, probable=bool(calibration)))
    n, n_errors = len(errors), int(errors.sum())
    return Evaluation(
        n=n,
        n_classes=labelled.n_classes,
        row_kind=labelled.row_kind,
        n_errors=n_errors,
        accuracy=share(n - n_errors, n, confidence=confidence),
        calibration=calibration,
        scores=estimates,
        differences=_differences(scorers, measurements, confidence),
        settings=settings,
        odd_labels=odd,
        warnings=(
            *odd,
            *Intake.of(predictions).lines(),
            *_outside_note(outside),
            *_drawn_note(predictions),
            *no_probability_note(confidence_range(labelled)),
            *labels.notes,
            *repeats(ids=predictions.ids, features=predictions.features),
            *repeated_rows(predictions),
            *constant_scores(
                {name: m.ranking.counts for name, m in measurements.items()}
            ),
        ),
        predictions=labelled,
        doubts=softmax_doubts | doubts,
        errors=errors,
        roundings=roundings,
        labelled_rows=(
            None if labelled is predictions else np.flatnonzero(predictions.has_label)
        ),
    )


def _drawn_note(predictions: Predictions) -> tuple[str, ...]:
    if not predictions.draw_design:
        return ()
    return (
        "These rows were drawn to be labelled, for risk only among the least doubtful: "
        "accuracy and all rates are those of the drawn rows, not of the pool.",
    )


def _outside_note(outside: Array) -> tuple[str, ...]:
    if not outside.any():
        return ()
    return (
        f"{int(outside.sum()):,} rows belong to no class, and count as errors; "
        "confidence, ECE, Brier score and NLL are those of the other rows.",
    )


def evaluate_scores(
    scores: Mapping[str, ArrayLike],
    errors: ArrayLike,
    *,
    points: Points | None = None,
    confidence: float = 0.95,
) -> Evaluation:
    """Measure scores of your own on the same rows, with paired differences.

    Parameters
    ----------
    scores : dict of str to array (n,)
        The doubts by each score: higher means trust less.
    errors : bool array (n,)
        Where the predictions are wrong.
    points, confidence
        As in `evaluate`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(900) < 0.2
    >>> good, weak = (rng.normal(size=900) + k * errors for k in (2, 1))
    >>> evaluation = evaluate_scores({"good": good, "weak": weak}, errors)
    >>> gap = next(d for d in evaluation.differences if d.metric == "auroc")
    >>> gap.first, gap.second, gap.low > 0
    ('good', 'weak', True)
    """
    if not isinstance(scores, Mapping) or not scores:
        message = f"expected scores as a dict by name, got {type(scores).__name__}."
        raise InputError(message)
    settings = EvaluationSettings(points or Points(), 1.0, confidence)
    doubts = {str(name): as_scores(values) for name, values in scores.items()}
    lengths = {name: len(values) for name, values in doubts.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{n:,} of {name}" for name, n in lengths.items())
        message = f"expected scores of the same rows, got {listed}."
        raise InputError(message)
    n = next(iter(lengths.values()))
    wrong = as_errors(errors, rows=n)
    roundings = dict.fromkeys(doubts, 0.0)
    measurements = _measure_all(doubts, wrong, roundings, settings)
    estimates = {name: m.estimates for name, m in measurements.items()}
    odd = reversed_scores(estimates, probable=False)
    n_errors = int(wrong.sum())
    return Evaluation(
        n=n,
        n_classes=0,
        row_kind="scores of your own",
        n_errors=n_errors,
        accuracy=share(n - n_errors, n, confidence=confidence),
        calibration={},
        scores=estimates,
        differences=_differences(dict.fromkeys(doubts), measurements, confidence),
        settings=settings,
        odd_labels=odd,
        warnings=(
            *odd,
            *constant_scores({k: m.ranking.counts for k, m in measurements.items()}),
        ),
        doubts=doubts,
        errors=wrong,
    )


def named_scores(
    scores: ScoreSelection, allowed: Sequence[str], *, temperature: float = 1.0
) -> dict[str, Score]:
    """Return the requested scores by name; by default those that rows allow.

    `allowed` are the names that the rows allow.
    """
    if scores == "all":
        scores = allowed
    if isinstance(scores, str):
        message = f"expected a list of scores or 'all', got {scores!r}. Use [...]."
        raise InputError(message)
    if scores is None:
        scores = [name for name in DEFAULT_SCORES if name in allowed] or allowed
    if not scores:
        message = f"expected at least one score out of {', '.join(SCORES)}."
        raise InputError(message)
    if isinstance(scores, Mapping):
        return {
            str(name): _at_temperature(find_score(score), temperature)
            for name, score in scores.items()
        }
    by_name: dict[str, Score] = {}
    for score in map(find_score, scores):
        name = setting_name(score)
        if by_name.setdefault(name, score) != score:
            message = (
                f"two different scores are called {name!r}. Name them: scores={{'first "
                "name': ..., 'second name': ...}."
            )
            raise InputError(message)
    return {n: _at_temperature(score, temperature) for n, score in by_name.items()}


def _at_temperature(score: Score, temperature: float) -> Score:
    """Return a formula of the logits at a temperature; a fitted score has none."""
    if not isinstance(score, LogitScore):
        return score
    return find_score(score, temperature=temperature)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """All rank metrics of one score, and what differences to other scores need.

    `frr` is None unless there are both right and wrong rows.
    """

    ranking: Ranking
    estimates: dict[str, Estimate]
    frr: PairedFrr | None


def _measure_all(
    doubts: dict[str, Array],
    errors: Array,
    roundings: dict[str, float],
    settings: EvaluationSettings,
    tell: Tell = lambda _share, _task: None,
) -> dict[str, _Measurement]:
    """Measure every score; the last of them while the others are ranked."""
    rankings = []
    for i, (name, values) in enumerate(doubts.items()):
        tell(0.2 + 0.5 * i / len(doubts), f"measuring {name}")
        rankings.append(Ranking(values, errors, roundings[name]))
    measured = map_threads(lambda ranking: _measure(ranking, settings), rankings)
    return dict(zip(doubts, measured, strict=True))


def _differences(
    scores: Mapping[str, Score | None],
    measurements: dict[str, _Measurement],
    confidence: float,
) -> tuple[Difference, ...]:
    """Return paired differences; none where all rows are right, or all are wrong."""
    frr = {name: m.frr for name, m in measurements.items() if m.frr is not None}
    return paired_differences(scores, frr, confidence=confidence) if frr else ()


def _measure(ranking: Ranking, settings: EvaluationSettings) -> _Measurement:
    c, frr = ranking.counts, None
    if c.n_errors and c.n_correct:
        trr, confidence = settings.points.trr, settings.confidence
        frr = paired_frr(ranking, trr=trr, confidence=confidence)
    point = None if frr is None else frr.point
    return _Measurement(ranking, rank_estimates(c, settings, frr_point=point), frr)


def rank_estimates(
    c: Counts, settings: EvaluationSettings, *, frr_point: CurvePoint | None = None
) -> dict[str, Estimate]:
    """Return every rank metric with its interval, from the counts at every score.

    `frr_point` is FRR at the TRR of the settings, if it is known.
    """
    runs, points = c.runs, settings.points
    n_errors, n_correct = int(runs.n_errors), int(runs.n_correct)
    missing, note = _missing_metrics(runs), few_note(n_errors, n_correct)
    estimates = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            estimates[name] = Estimate(None, note=_NO_VALUE)
            continue
        # Runs of correct rows are one group each: the same value, and much faster
        # where errors are few. AUPR of the correct rows needs every score.
        value = _metric(name, c if name == "aupr_correct" else runs, points)
        # Every interval needs a variance within each kind of rows.
        if not (n_errors and n_correct):
            estimates[name] = Estimate(value, note=_NO_INTERVAL)
            continue
        point = frr_point if name == "frr_at_trr" else None
        estimates[name] = _with_interval(name, value, c, settings, note, point)
    return estimates


def sketch_estimates(
    sketch: Sketch, settings: EvaluationSettings
) -> dict[str, Estimate]:
    """Return every rank metric of a sketched score, with its interval.

    The value is the middle of its bounds, and the interval covers both what the ranges
    of scores and what the sample of rows leave open.
    """
    cells, points = sketch.counts, settings.points
    n_errors, n_correct = sketch.n_errors, sketch.n_correct
    missing, note = _missing_metrics(cells), few_note(n_errors, n_correct)
    estimates = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            estimates[name] = Estimate(None, note=_NO_VALUE)
            continue
        least, most = sketch.bounds(name, points=points)
        value, within = (least + most) / 2, (most - least) / 2
        if not (n_errors and n_correct):
            estimates[name] = Estimate(value, note=_NO_INTERVAL, within=within)
            continue
        tied = _metric(name, cells, points)
        # The interval of cells as ties, moved by what the order within cells may do.
        of_tied = _with_interval(name, tied, cells, settings, note)
        assert of_tied.low is not None
        assert of_tied.high is not None
        low, high = least + of_tied.low - tied, most + of_tied.high - tied
        estimates[name] = Estimate(
            value,
            max(0.0, low),
            min(1.0, high),
            note=of_tied.note,
            within=within,
        )
    return estimates


def _missing_metrics(c: Counts) -> set[str]:
    """Return the metrics that do not exist on these rows."""
    return {*undefined(c), *(("aupr_correct",) if c.n_correct == 0 else ())}


def _metric(name: str, c: Counts, points: Points) -> float:
    if name == "aupr_correct":
        return aupr(c, positive="correct")
    return float(RANK_METRICS[name](c, points))


def _with_interval(  # noqa: PLR0913 - what an interval depends on
    name: str,
    value: float,
    c: Counts,
    settings: EvaluationSettings,
    note: str,
    point: CurvePoint | None = None,
) -> Estimate:
    """Return a metric with its interval; `point` is that of the curve, if known."""
    confidence = settings.confidence
    if name in AREAS:
        interval = area_interval(name, c, confidence=confidence, value=value)
        return Estimate(value, *interval, note=note)
    point = point or CURVE_POINTS[name](c, settings.points, confidence)
    return Estimate(value, *point.interval, note=note or point.note)


def calibration_estimates(
    predictions: Predictions, doubts: dict[str, Array], settings: EvaluationSettings
) -> dict[str, Estimate]:
    """Return mean confidence, ECE, Brier score and NLL of labelled rows.

    `doubts` are alpha and beta of the rows. Nothing where there are no probabilities.
    """
    if isinstance(predictions, Answers) and predictions.confidence is None:
        return {}
    rows = calibration_terms(
        predictions, temperature=settings.temperature, doubts=doubts
    )
    summary = CalibrationSummary.of(rows, predictions.errors, n_bins=ECE_BINS)
    return summary.estimates(confidence=settings.confidence)


def percent_value(estimate: Estimate) -> str:
    """Show the number alone, in percent; a dash where it does not exist."""
    return "-" if estimate.value is None else f"{estimate.value * 100:.2f}"


def _class_of(predictions: Predictions, label: int) -> str | int | None:
    """Return a class by its name, or by its number; None where answers have neither."""
    names = predictions.class_names
    if label == OUTSIDE:
        return "outside"
    if names is None:
        return label if predictions.answers_known else None
    return names[label] if label < len(names) else None
