"""Alpha against softmax response, on every model and over the models."""

import math

import numpy as np
from scipy.stats import t as student

from trustdoctor.metrics import Estimate
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.methods import PBB, TBB, ScoredMethod, score_method
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, different_models

TITLE = "Alpha against softmax response, model by model"
COLUMNS = ("model", "scenario", "accuracy", "AUROC\n- SR", "FRR95\n- SR", "verdict")
REPEATS = ("data", "rows", "of them\ndistinct", "AUROC\nall rows", "AUROC\none of each")
OVER = "all models"
MOST_REPEATED = 0.9
WORDS = (
    "Alpha less SR on the same rows, by the errors of the clean prediction: each line "
    "is one model, with a paired interval of 95%. `all models` is the mean over the "
    "models of more than two classes and a t interval over them, each model counted "
    "once; models that share a test set are not independent of each other, so it is "
    "rather too narrow. With two classes alpha and SR rank alike, and those models are "
    "left out of the mean. `{pbb}` moves the input as the paper does.{repeats}"
)
REPEATED = (
    " Rows whose logits (to five decimals) and labels are equal repeat one text: "
    "intervals that take them for independent rows are too narrow. `AUROC one of each` "
    "counts every distinct row once."
)


def run(options: Options) -> Report:
    """Compare the two on all available predictions."""
    exhibits, notes = different_models(options)
    rows: list[tuple[Cell, ...]] = []
    for exhibit in exhibits:
        options.tell(exhibits.index(exhibit) / len(exhibits), exhibit.name)
        rows += [_row(exhibit, alpha, sr) for alpha, sr in _alpha_and_sr(exhibit)]
    for scenario in ("TBB", "PBB"):
        rows += _mean_rows([row for row in rows if row[1] == scenario])
    tables = [Table(f"{TITLE}, in % and points", COLUMNS, tuple(rows))]
    repeats = [row for row in map(_repeats_row, exhibits) if row]
    if repeats:
        tables.append(Table("Repeated rows", REPEATS, tuple(repeats)))
    words = WORDS.format(pbb="PBB", repeats=REPEATED if repeats else "")
    return Report("models", TITLE, tuple(tables), words, (_picture(rows),), notes)


def _alpha_and_sr(exhibit: Exhibit) -> list[tuple[ScoredMethod, ScoredMethod]]:
    """Pair alpha with softmax response: black-box, and perturbed if that is there."""
    clean, perturbed = exhibit.clean, exhibit.perturbed(PBB["alpha"])
    sr = score_method("sr", "TBB", TBB["sr"], clean, clean)
    alphas = [score_method("alpha", "TBB", TBB["alpha"], clean, clean)]
    if perturbed is not None:
        alphas.append(score_method("alpha", "PBB", PBB["alpha"], perturbed, clean))
    return [(alpha, sr) for alpha in alphas]


def _row(exhibit: Exhibit, alpha: ScoredMethod, sr: ScoredMethod) -> tuple[Cell, ...]:
    gain, change = alpha.minus(sr)
    name = f"{exhibit.name}{' *' if _binary(exhibit) else ''}"
    return (name, alpha.scenario, exhibit.accuracy, gain, change, verdict(gain))


def verdict(gain: Estimate) -> str:
    """Say in a word which of the two is better by AUROC, if that is clear."""
    if gain.value is None or gain.low is None or gain.high is None:
        return "-"
    if gain.low > 0:
        return "better"
    return "worse" if gain.high < 0 else "alike"


def _binary(exhibit: Exhibit) -> bool:
    return bool(exhibit.clean.predictions.logits.shape[1] == 2)


def _mean_rows(rows: list[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    """Return the mean over models of more than two classes, with its interval."""
    several_classes = [row for row in rows if not str(row[0]).endswith("*")]
    if len(several_classes) < 2:
        return []
    # Between models, not rows: a paired interval of one model says nothing of others.
    means = []
    for column in (3, 4):
        cells = [row[column] for row in several_classes]
        values = [
            c.value for c in cells if isinstance(c, Estimate) and c.value is not None
        ]
        means.append(mean_over(values))
    name = f"{OVER} ({len(several_classes)})"
    return [(name, rows[0][1], None, *means, verdict(means[0]))]


def mean_over(values: list[float]) -> Estimate:
    """Return a mean with its t interval of 95%."""
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(student.ppf(0.975, len(values) - 1)) * error
    return Estimate(mean, mean - reach, mean + reach)


def _repeats_row(exhibit: Exhibit) -> tuple[Cell, ...] | None:
    """Count the distinct rows, if many are repeats."""
    p = exhibit.clean.predictions
    assert p.labels is not None
    # Equal texts get equal logits but for what padding does to their last digits.
    rows = np.column_stack([p.logits.round(5), p.labels])
    _, first = np.unique(rows, axis=0, return_index=True)
    if len(first) > MOST_REPEATED * len(p) or p.from_probabilities:
        return None
    alpha = score_method("alpha", "TBB", TBB["alpha"], exhibit.clean, exhibit.clean)
    areas = [a.judge(Options())[0] for a in (alpha, alpha.take(np.sort(first)))]
    return (exhibit.name, len(p), len(first), *areas)


def _picture(rows: list[tuple[Cell, ...]]) -> Picture:
    """Draw the differences, a point and its interval per model."""
    panels = []
    for scenario in ("TBB", "PBB"):
        shown = [row for row in rows if row[1] == scenario]
        gains = [row[3] for row in shown if isinstance(row[3], Estimate)]
        if not gains:
            continue
        x = tuple(float(i) for i in range(len(gains)))
        values, low, high = (
            tuple(float(getattr(gain, end) or 0.0) for gain in gains)
            for end in ("value", "low", "high")
        )
        line = Line("alpha less SR", x, values, low, high, joined=False)
        names = tuple("\n".join(str(row[0]).replace(",", "").split()) for row in shown)
        panels.append(
            Panel(scenario, "", "AUROC, points", (line,), level=0.0, ticks=names)
        )
    return Picture("gains", TITLE, tuple(panels), columns=1)
