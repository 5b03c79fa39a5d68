"""Alpha against softmax response on every model here, and over the models."""

import math

import numpy as np
from scipy.stats import t as student

from trustdoctor.metrics import Estimate
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.cases import PBB, TBB, Case, make_case
from trustdoctor.reproduce.experiment import Options
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
    """Compare the two on all predictions that are there."""
    exhibits, notes = different_models(options)
    rows: list[tuple[Cell, ...]] = []
    for one in exhibits:
        options.tell(exhibits.index(one) / len(exhibits), one.name)
        rows += [_row(one, case, sr) for case, sr in _pairs(one)]
    for scenario in ("TBB", "PBB"):
        rows += _over([row for row in rows if row[1] == scenario])
    tables = [Table(f"{TITLE}, in % and points", COLUMNS, tuple(rows))]
    repeated = [row for row in map(_repeats, exhibits) if row]
    if repeated:
        tables.append(Table("Repeated rows", REPEATS, tuple(repeated)))
    words = WORDS.format(pbb="PBB", repeats=REPEATED if repeated else "")
    return Report("models", TITLE, tuple(tables), words, (_picture(rows),), notes)


def _pairs(one: Exhibit) -> list[tuple[Case, Case]]:
    sr = make_case("sr", "TBB", TBB["sr"], one.clean, one.clean)
    pairs = [(make_case("alpha", "TBB", TBB["alpha"], one.clean, one.clean), sr)]
    moved = one.perturbed(PBB["alpha"])
    if moved is not None:
        pairs.append((make_case("alpha", "PBB", PBB["alpha"], moved, one.clean), sr))
    return pairs


def _row(one: Exhibit, case: Case, sr: Case) -> tuple[Cell, ...]:
    gain, change = case.minus(sr)
    name = f"{one.name}{' *' if _binary(one) else ''}"
    return (name, case.scenario, one.accuracy, gain, change, verdict(gain))


def verdict(gain: Estimate) -> str:
    """Say in a word which of the two is better by AUROC, if that is clear."""
    if gain.value is None or gain.low is None or gain.high is None:
        return "-"
    if gain.low > 0:
        return "better"
    return "worse" if gain.high < 0 else "alike"


def _binary(one: Exhibit) -> bool:
    return bool(one.clean.predictions.logits.shape[1] == 2)


def _over(rows: list[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    """Return the mean over models of more than two classes, with its interval."""
    many = [row for row in rows if not str(row[0]).endswith("*")]
    if len(many) < 2:
        return []
    means = []
    for column in (3, 4):
        cells = [row[column] for row in many]
        values = [
            c.value for c in cells if isinstance(c, Estimate) and c.value is not None
        ]
        means.append(mean_over(values))
    name = f"{OVER} ({len(many)})"
    return [(name, rows[0][1], None, *means, verdict(means[0]))]


def mean_over(values: list[float]) -> Estimate:
    """Return a mean with its t interval of 95%."""
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(student.ppf(0.975, len(values) - 1)) * error
    return Estimate(mean, mean - reach, mean + reach)


def _repeats(one: Exhibit) -> tuple[Cell, ...] | None:
    """Count the distinct rows, where many are repeats."""
    p = one.clean.predictions
    assert p.labels is not None
    # Equal texts get equal logits but for what padding does to their last digits.
    whole = np.column_stack([p.logits.round(5), p.labels])
    _, first = np.unique(whole, axis=0, return_index=True)
    if len(first) > MOST_REPEATED * len(p) or p.from_probabilities:
        return None
    case = make_case("alpha", "TBB", TBB["alpha"], one.clean, one.clean)
    judged = [c.judge(Options())[0] for c in (case, case.take(np.sort(first)))]
    return (one.name, len(p), len(first), *judged)


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
