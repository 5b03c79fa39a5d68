"""What a user can do instead, on the same models: tune, ask twice, promise."""

from dataclasses import dataclass, replace

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates import calibrate_scores
from trustdoctor.metrics import Estimate
from trustdoctor.opinion import image_views
from trustdoctor.predictions import Predictions
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.methods import PBB, TBB, score_method
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, different_models
from trustdoctor.reproduce.sweep import JUDGES
from trustdoctor.scores import Score, find_logit_score, find_score
from trustdoctor.tuning import tune

TITLE = "What to do instead: tune, ask twice, promise"
LABELLED = 1_000
"""Rows that tune, and as many that calibrate."""

FEW_ERRORS = 10
SPLITS = 100
COLUMNS = ("model", "method", "AUROC", "FRR95", "AUROC\n- SR", "FRR95\n- SR")
PROMISES = (
    "model",
    "errors\nof all",
    "promised\nat most",
    "score",
    "answered",
    "errors\namong these",
    "held",
)
DIGITS = ("svhn",)
WORDS = (
    "Rows are permuted and parted: {labelled:,} tune, {labelled:,} calibrate (a third "
    "each where there are fewer than {three:,}), and at most {judges:,} of the others "
    "judge all methods by the errors of the clean prediction. `tuned` is `td.tune`, "
    "`second opinion` averages the logits of the image and of its mirror image (of "
    "digits: of two shifts by 2 pixels), which takes a model that can be run, and "
    "`alpha PBB` is the paper's setting. Differences are to SR on the same rows, "
    "paired, with intervals of 95%. The promise is `td.calibrate(risk=...)` for half "
    "of the model's error rate, which holds in 90 of 100 calibrations or more. It is "
    "made on {splits} random draws of {labelled:,} rows (or a third) that did not "
    "tune; `answered` is the mean share of the other rows that the gate accepts, with "
    "the mean rate of errors among them, and `held` counts the draws where that rate "
    "is at most the promised one, on the rows that are left, which are a sample, too."
)


@dataclass(frozen=True, eq=False)
class RowSplit:
    """The rows of one model, split at random into three."""

    exhibit: Exhibit
    tuning: Array
    calibrating: Array
    judging: Array

    @classmethod
    def of(cls, exhibit: Exhibit, options: Options) -> "RowSplit":
        """Permute the rows and split them."""
        n = len(exhibit.clean.predictions)
        size = min(LABELLED, n // 3)
        order = np.random.default_rng(options.seed).permutation(n)
        judging = order[2 * size : 2 * size + JUDGES]
        return cls(exhibit, order[:size], order[size : 2 * size], np.sort(judging))

    def predictions(self, rows: Array) -> Predictions:
        """Return the clean predictions of some rows."""
        return self.exhibit.clean.predictions[rows]

    def fewest_errors(self) -> int:
        """Return the number of errors in the set with the fewest."""
        sets = (self.tuning, self.calibrating, self.judging)
        return min(int(self.predictions(rows).errors.sum()) for rows in sets)


def run(options: Options) -> Report:
    """Judge the library's own methods beside the paper's."""
    exhibits, notes = different_models(options)
    rows: list[tuple[Cell, ...]] = []
    promises: list[tuple[Cell, ...]] = []
    for i, exhibit in enumerate(exhibits):
        options.tell(i / len(exhibits), exhibit.name)
        split = RowSplit.of(exhibit, options)
        if split.fewest_errors() < FEW_ERRORS:
            notes += (f"{exhibit.name}: left out, since a part has hardly any errors.",)
            continue
        tuned = tune(split.predictions(split.tuning))
        rows += _method_rows(split, tuned)
        promises += _promise_rows(split, tuned)
    tables = (
        Table("Methods on rows that chose nothing, in %", COLUMNS, tuple(rows)),
        Table("Half of the errors, promised, in %", PROMISES, tuple(promises)),
    )
    words = WORDS.format(
        labelled=LABELLED, three=3 * LABELLED, judges=JUDGES, splits=SPLITS
    )
    return Report("instead", TITLE, tables, words, (_picture(rows),), notes)


def _method_rows(split: RowSplit, tuned: Score) -> list[tuple[Cell, ...]]:
    """Judge each available method on the same rows."""
    exhibit, clean, rows = split.exhibit, split.exhibit.clean, split.judging
    sr = score_method("SR", "", TBB["sr"], clean, clean).take(rows)
    methods = [score_method("alpha", "", TBB["alpha"], clean, clean).take(rows)]
    perturbed = exhibit.perturbed(PBB["alpha"])
    if perturbed is not None:
        pbb = score_method("alpha PBB", "", PBB["alpha"], perturbed, clean)
        methods.append(pbb.take(rows))
    # `same_rank` is about SR's own ranks, which these scores do not have.
    other = replace(sr, same_rank=False)
    doubts = np.asarray(tuned(split.predictions(rows)))
    methods.append(replace(other, method="tuned", scores=doubts))
    if exhibit.model_run is not None:
        doubts = second_opinion(split, rows)
        methods.append(replace(other, method="second opinion", scores=doubts))
    options = Options()
    return [
        (exhibit.name, "SR", *sr.judge(options), None, None),
        *((exhibit.name, m.method, *m.judge(options), *m.minus(sr)) for m in methods),
    ]


def second_opinion(split: RowSplit, rows: Array) -> Array:
    """Doubt the clean prediction by the mean logits of an image and its views."""
    model_run = split.exhibit.model_run
    assert model_run is not None
    views = image_views(5, layout="NHWC")
    digits = split.exhibit.dataset.name in DIGITS  # a digit's mirror image is none
    views = [v for v in views if "flip" not in v.name] if digits else views[:1]
    clean = split.predictions(rows)
    logits = [clean.logits]
    for view in views:
        pixels = np.ascontiguousarray(view(model_run.images[rows]))
        logits.append(model_run.logits(images=pixels))
    # A constant added to all logits of a view changes nothing: centre, then average.
    mean = np.mean([z - z.mean(1, keepdims=True) for z in logits], axis=0)
    beta = find_logit_score("beta").function
    return np.asarray(beta(mean, predicted=clean.predicted))


def _promise_rows(split: RowSplit, tuned: Score) -> list[tuple[Cell, ...]]:
    """Promise half of the model's error rate many times, and count what held."""
    p = split.exhibit.clean.predictions
    tuning_errors = split.predictions(split.tuning).errors
    promised = round(float(tuning_errors.mean()) / 2, 3)
    untuned = np.delete(np.arange(len(p)), split.tuning)
    size = len(split.calibrating)
    rows: list[tuple[Cell, ...]] = []
    for name, score in (("SR", find_score("msp")), ("tuned", tuned)):
        doubts = np.asarray(score(p))
        outcomes = []
        for draw in range(SPLITS):
            order = np.random.default_rng([draw, 7]).permutation(untuned)
            fitting, judging = order[:size], order[size:]
            gate = calibrate_scores(doubts[fitting], p.errors[fitting], risk=promised)
            accepted = np.asarray(gate.accept(doubts[judging]))
            wrong = int((p.errors[judging] & accepted).sum())
            n = int(accepted.sum())
            outcomes.append((n / len(judging), wrong / max(n, 1)))
        answered, risks = np.array(outcomes).T
        times_held = f"{int((risks <= promised).sum())} of {SPLITS}"
        means = (100 * float(answered.mean()), 100 * float(risks.mean()))
        error_rate = 100 * float(p.errors.mean())
        rows.append(
            (split.exhibit.name, error_rate, 100 * promised, name, *means, times_held)
        )
    return rows


def _picture(rows: list[tuple[Cell, ...]]) -> Picture:
    """Draw each method's AUROC less SR's, model by model."""
    models = list(dict.fromkeys(str(row[0]) for row in rows))
    methods = list(dict.fromkeys(str(row[1]) for row in rows if row[4] is not None))
    lines = []
    for j, method in enumerate(methods):
        points = [
            (models.index(str(row[0])) + 0.12 * (j - len(methods) / 2), row[4])
            for row in rows
            if row[1] == method
        ]
        drawn = [(x, gain) for x, gain in points if isinstance(gain, Estimate)]
        x, gains = zip(*drawn, strict=True)
        values, low, high = (
            tuple(float(getattr(gain, end) or 0.0) for gain in gains)
            for end in ("value", "low", "high")
        )
        lines.append(Line(method, x, values, low, high, joined=False))
    names = tuple("\n".join(name.replace(",", "").split()) for name in models)
    panel = Panel(
        "", "", "AUROC less SR's, points", tuple(lines), level=0.0, ticks=names
    )
    return Picture("gains", TITLE, (panel,), columns=1)
