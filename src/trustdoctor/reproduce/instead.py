"""What a user can do instead, on the same models: tune, ask twice, promise."""

from dataclasses import dataclass, replace

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates import calibrate_scores
from trustdoctor.metrics import Estimate
from trustdoctor.opinion import image_views
from trustdoctor.predictions import Predictions
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.cases import PBB, TBB, make_case
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.settings import JUDGES
from trustdoctor.reproduce.sources import Exhibit, different_models
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
class Parted:
    """The rows of one model, parted at random into three."""

    one: Exhibit
    tuning: Array
    calibrating: Array
    judging: Array

    @classmethod
    def of(cls, one: Exhibit, options: Options) -> "Parted":
        """Permute the rows and part them."""
        n = len(one.clean.predictions)
        size = min(LABELLED, n // 3)
        order = np.random.default_rng(options.seed).permutation(n)
        judging = order[2 * size : 2 * size + JUDGES]
        return cls(one, order[:size], order[size : 2 * size], np.sort(judging))

    def part(self, rows: Array) -> Predictions:
        """Return the clean predictions of some rows."""
        return self.one.clean.predictions[rows]


def run(options: Options) -> Report:
    """Judge what the library offers beside the paper's methods."""
    exhibits, notes = different_models(options)
    rows: list[tuple[Cell, ...]] = []
    promises: list[tuple[Cell, ...]] = []
    for i, one in enumerate(exhibits):
        options.tell(i / len(exhibits), one.name)
        parted = Parted.of(one, options)
        errors = [part.errors.sum() for part in map(parted.part, _rows(parted))]
        if min(errors) < FEW_ERRORS:
            notes += (f"{one.name}: left out, since a part has hardly any errors.",)
            continue
        tuned = tune(parted.part(parted.tuning))
        rows += _judged(parted, tuned)
        promises += _promised(parted, tuned)
    tables = (
        Table("Methods on rows that chose nothing, in %", COLUMNS, tuple(rows)),
        Table("Half of the errors, promised, in %", PROMISES, tuple(promises)),
    )
    words = WORDS.format(
        labelled=LABELLED, three=3 * LABELLED, judges=JUDGES, splits=SPLITS
    )
    return Report("instead", TITLE, tables, words, (_picture(rows),), notes)


def _rows(parted: Parted) -> tuple[Array, Array, Array]:
    return parted.tuning, parted.calibrating, parted.judging


def _judged(parted: Parted, tuned: Score) -> list[tuple[Cell, ...]]:
    """Judge each method that there is on the same rows."""
    one, rows = parted.one, parted.judging
    sr = make_case("SR", "", TBB["sr"], one.clean, one.clean).take(rows)
    cases = [make_case("alpha", "", TBB["alpha"], one.clean, one.clean).take(rows)]
    moved = one.perturbed(PBB["alpha"])
    if moved is not None:
        pbb = make_case("alpha PBB", "", PBB["alpha"], moved, one.clean)
        cases.append(pbb.take(rows))
    part = parted.part(rows)
    own = replace(sr, same_rank=False)
    cases.append(replace(own, method="tuned", scores=np.asarray(tuned(part))))
    if one.bench is not None:
        doubts = second_opinion(parted, rows)
        cases.append(replace(own, method="second opinion", scores=doubts))
    shown: list[tuple[Cell, ...]] = [(one.name, "SR", *sr.judge(Options()), None, None)]
    shown += [(one.name, c.method, *c.judge(Options()), *c.minus(sr)) for c in cases]
    return shown


def second_opinion(parted: Parted, rows: Array) -> Array:
    """Doubt the clean prediction by the mean logits of an image and its views."""
    bench = parted.one.bench
    assert bench is not None
    views = image_views(5, layout="NHWC")
    digits = parted.one.dataset.name in DIGITS  # a digit's mirror image is none
    taken = [view for view in views if "flip" not in view.name] if digits else views[:1]
    clean = parted.part(rows)
    said = [clean.logits]
    for view in taken:
        pixels = np.ascontiguousarray(view(bench.images[rows]))
        said.append(bench.logits(images=pixels))
    mean = np.mean([z - z.mean(1, keepdims=True) for z in said], axis=0)
    beta = find_logit_score("beta").function
    return np.asarray(beta(mean, predicted=clean.predicted))


def _promised(parted: Parted, tuned: Score) -> list[tuple[Cell, ...]]:
    """Promise half of the model's error rate many times, and count what held."""
    one = parted.one
    everything = one.clean.predictions
    promised = round(float(parted.part(parted.tuning).errors.mean()) / 2, 3)
    others = np.delete(np.arange(len(everything)), parted.tuning)
    size = len(parted.calibrating)
    shown: list[tuple[Cell, ...]] = []
    for name, score in (("SR", find_score("msp")), ("tuned", tuned)):
        doubts = np.asarray(score(everything))
        outcomes = []
        for split in range(SPLITS):
            order = np.random.default_rng([split, 7]).permutation(others)
            fitting, judging = order[:size], order[size:]
            gate = calibrate_scores(
                doubts[fitting], everything.errors[fitting], risk=promised
            )
            accepted = np.asarray(gate.accept(doubts[judging]))
            wrong = int((everything.errors[judging] & accepted).sum())
            n = int(accepted.sum())
            outcomes.append((n / len(judging), wrong / max(n, 1)))
        answered, risks = np.array(outcomes).T
        held = f"{int((risks <= promised).sum())} of {SPLITS}"
        means = (100 * float(answered.mean()), 100 * float(risks.mean()))
        all_errors = 100 * float(everything.errors.mean())
        shown.append((one.name, all_errors, 100 * promised, name, *means, held))
    return shown


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
        there = [(x, e) for x, e in points if isinstance(e, Estimate)]
        x, gains = zip(*there, strict=True)
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
