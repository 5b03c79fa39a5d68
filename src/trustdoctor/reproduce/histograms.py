"""Figure 1: the scores of right and of wrong predictions."""

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import histogram
from trustdoctor.report import RIGHT, WRONG, Bars, Panel, Picture
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.methods import (
    PBB,
    ScoredMethod,
    methods_in_paper,
    score_method,
)
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, require_exhibits
from trustdoctor.reproduce.table1 import describe

TITLE = "Figure 1: scores of right and wrong predictions"
COLUMNS = (
    "method",
    "scenario",
    "overlap\nin %",
    "median\nright",
    "median\nwrong",
    "at the\nlow end",
)
RISE = ("model", "method", "softmax\n1, in %", "these\nrise", "others\nrise")
WORDS = (
    "The overlap is the area that the two histograms share: 100 where a score tells "
    "nothing, 0 where one threshold parts right from wrong. {scale} Rows beyond the "
    "0.1% and 99.9% quantiles are counted in the outermost bars; `at the low end` is "
    "how many of all rows share the smallest value. `PBB paper` colours rows by "
    "whether the perturbed prediction is right, `PBB deployed` by whether the clean "
    "one is. A row whose largest softmax is 1 in float32 has no gradient by the naive "
    "formula, so that nothing perturbs it; by the stable one it rises like the others."
)
SCALES = {
    "exact": "Scores are on the log scale, higher meaning trust less.",
    "grid": "The values are those that the published evaluation puts thresholds on, "
    "(1 - g) / g and its kin; for SR and ODIN higher means trust more.",
}


def run(options: Options) -> Report:
    """Draw the histograms of all available methods."""
    tables: list[Table] = []
    pictures: list[Picture] = []
    notes: list[str] = []
    rise_rows: tuple[tuple[Cell, ...], ...] = ()
    for exhibit in require_exhibits(options):
        methods = methods_in_paper(exhibit)
        notes += describe(exhibit, methods)
        scored = [method for method in methods if isinstance(method, ScoredMethod)]
        histograms = [shares(_values(m, options), m.errors) for m in scored]
        rows = [_row(m, h, options) for m, h in zip(scored, histograms, strict=True)]
        tables.append(Table(exhibit.title, COLUMNS, tuple(rows)))
        pictures.append(_picture(exhibit, scored, histograms, options))
        rise_rows += rises(exhibit)
    if rise_rows:
        title = "Median rise in doubt at the perturbed input"
        tables.append(Table(title, RISE, rise_rows))
    words = WORDS.format(scale=SCALES[options.protocol])
    return Report(
        "histograms", TITLE, tuple(tables), words, tuple(pictures), tuple(notes)
    )


def rises(exhibit: Exhibit) -> tuple[tuple[Cell, ...], ...]:
    """Return how far the perturbation raised the doubt of saturated and other rows."""
    saturated = exhibit.clean.softmax().astype(np.float32).max(1) == 1
    rows: list[tuple[Cell, ...]] = []
    for method, setting in PBB.items():
        perturbed = exhibit.perturbed(setting) if setting.epsilon else None
        if perturbed is None:
            continue
        before, after = (
            score_method(method, "PBB", setting, output, exhibit.clean).scores
            for output in (exhibit.clean, perturbed)
        )
        with np.errstate(invalid="ignore"):  # a row may stay certain, at -inf
            rise = after - before
        medians = [_median(rise[kind]) for kind in (saturated, ~saturated)]
        share = 100 * float(saturated.mean())
        rows.append((exhibit.name, method, share, *medians))
    return tuple(rows)


def shares(values: Array, errors: Array) -> tuple[Array, Array, Array]:
    """Return edges and the shares of right and of wrong rows between them."""
    edges, right, wrong = histogram(values, errors)
    n = max(1, int((~errors).sum())), max(1, int(errors.sum()))
    return edges, right / n[0], wrong / n[1]


def _values(scored: ScoredMethod, options: Options) -> Array:
    return scored.values if options.protocol == "grid" else scored.scores


def _row(
    scored: ScoredMethod, histogram: tuple[Array, Array, Array], options: Options
) -> tuple[Cell, ...]:
    _, right, wrong = histogram
    values = _values(scored, options)
    medians = [_median(values[kind]) for kind in (~scored.errors, scored.errors)]
    lowest = int((values == values.min()).sum())
    overlap = 100 * float(np.minimum(right, wrong).sum())
    return (scored.method, scored.scenario, overlap, *medians, lowest)


def _median(values: Array) -> float | str:
    """Return the median, in words if it is infinite."""
    median = float(np.median(values)) if len(values) else float("nan")
    return median if np.isfinite(median) else str(median)


def _picture(
    exhibit: Exhibit,
    scored: list[ScoredMethod],
    histograms: list[tuple[Array, Array, Array]],
    options: Options,
) -> Picture:
    x = "value" if options.protocol == "grid" else "doubt"
    panels = []
    for method, (edges, right, wrong) in zip(scored, histograms, strict=True):
        bars = tuple(
            Bars(label, tuple(edges.tolist()), tuple(heights.tolist()), colour)
            for label, heights, colour in (
                ("right", right, RIGHT),
                ("wrong", wrong, WRONG),
            )
        )
        title = f"{method.method}, {method.scenario}"
        panels.append(Panel(title, x, "share of the rows", bars=bars))
    return Picture(exhibit.slug, exhibit.title, tuple(panels), columns=4)
