"""Figure 1: the scores of right and of wrong predictions."""

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import histogram
from trustdoctor.report import RIGHT, WRONG, Bars, Panel, Picture
from trustdoctor.reproduce.cases import PBB, Case, cases_in_paper, make_case
from trustdoctor.reproduce.experiment import Options
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
    """Draw the histograms of what is there."""
    tables: list[Table] = []
    pictures: list[Picture] = []
    notes: list[str] = []
    risen: tuple[tuple[Cell, ...], ...] = ()
    for one in require_exhibits(options):
        cases = cases_in_paper(one)
        notes += describe(one, cases)
        shown = [case for case in cases if isinstance(case, Case)]
        found = [shares(_values(case, options), case.errors) for case in shown]
        rows = [_row(c, h, options) for c, h in zip(shown, found, strict=True)]
        tables.append(Table(one.title, COLUMNS, tuple(rows)))
        pictures.append(_picture(one, shown, found, options))
        risen += rises(one)
    if risen:
        tables.append(Table("Median rise in doubt at the perturbed input", RISE, risen))
    words = WORDS.format(scale=SCALES[options.protocol])
    return Report(
        "histograms", TITLE, tuple(tables), words, tuple(pictures), tuple(notes)
    )


def rises(one: Exhibit) -> tuple[tuple[Cell, ...], ...]:
    """Return how far the perturbation raised the doubt of saturated and other rows."""
    saturated = one.clean.softmax().astype(np.float32).max(1) == 1
    rows: list[tuple[Cell, ...]] = []
    for method, setting in PBB.items():
        moved = one.perturbed(setting) if setting.epsilon else None
        if moved is None:
            continue
        clean, after = (
            make_case(method, "PBB", setting, answers, one.clean).scores
            for answers in (one.clean, moved)
        )
        with np.errstate(invalid="ignore"):  # a row may stay certain, at -inf
            rise = after - clean
        middle = [_median(rise[kind]) for kind in (saturated, ~saturated)]
        share = 100 * float(saturated.mean())
        rows.append((one.name, method, share, *middle))
    return tuple(rows)


def shares(values: Array, errors: Array) -> tuple[Array, Array, Array]:
    """Return edges and the shares of right and of wrong rows between them."""
    edges, right, wrong = histogram(values, errors)
    n = max(1, int((~errors).sum())), max(1, int(errors.sum()))
    return edges, right / n[0], wrong / n[1]


def _values(case: Case, options: Options) -> Array:
    return case.values if options.protocol == "grid" else case.scores


def _row(
    case: Case, found: tuple[Array, Array, Array], options: Options
) -> tuple[Cell, ...]:
    _, right, wrong = found
    values = _values(case, options)
    middle = [_median(values[kind]) for kind in (~case.errors, case.errors)]
    lowest = int((values == values.min()).sum())
    overlap = 100 * float(np.minimum(right, wrong).sum())
    return (case.method, case.scenario, overlap, *middle, lowest)


def _median(values: Array) -> float | str:
    """Return the median, in words where it is infinite."""
    middle = float(np.median(values)) if len(values) else float("nan")
    return middle if np.isfinite(middle) else str(middle)


def _picture(
    one: Exhibit,
    cases: list[Case],
    found: list[tuple[Array, Array, Array]],
    options: Options,
) -> Picture:
    x = "value" if options.protocol == "grid" else "doubt"
    panels = []
    for case, (edges, right, wrong) in zip(cases, found, strict=True):
        bars = tuple(
            Bars(label, tuple(edges.tolist()), tuple(heights.tolist()), colour)
            for label, heights, colour in (
                ("right", right, RIGHT),
                ("wrong", wrong, WRONG),
            )
        )
        title = f"{case.method}, {case.scenario}"
        panels.append(Panel(title, x, "share of the rows", bars=bars))
    return Picture(one.slug, one.title, tuple(panels), columns=4)
