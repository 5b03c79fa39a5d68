"""Figure 2: the curves of TRR over FRR."""

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import thin_curve
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.methods import ScoredMethod, methods_in_paper
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, require_both_kinds
from trustdoctor.reproduce.table1 import describe

TITLE = "Figure 2: ROC curves"
AT = (0.5, 0.8, 0.9, 0.95, 0.99)
COLUMNS = ("method", "scenario", *(f"FRR at\nTRR {trr:.0%}" for trr in AT))
SCENARIOS = ("TBB", "PBB paper", "PBB deployed")
WORDS = (
    "FRR is the share of the right predictions that are rejected, TRR that of the "
    "wrong ones; the red line marks TRR 95%. In the paper's figure the perturbed "
    "predictions are judged (`PBB paper`); `PBB deployed` judges the clean ones, with "
    "the same scores. {protocol}"
)
PROTOCOLS = {
    "exact": "Curves go through every distinct score, from (0, 0) to (1, 1).",
    "grid": "Curves are as published, on a grid of thresholds and without end points; "
    "a dash is a TRR that no threshold of the grid reaches.",
}


def run(options: Options) -> Report:
    """Draw the curves of all available methods."""
    tables: list[Table] = []
    pictures: list[Picture] = []
    exhibits, left_out = require_both_kinds(options)
    notes = list(left_out)
    for exhibit in exhibits:
        methods = methods_in_paper(exhibit)
        notes += describe(exhibit, methods)
        curves = {
            (scored.method, scored.scenario): scored.curve(options)
            for scored in methods
            if isinstance(scored, ScoredMethod)
        }
        rows = [(*key, *_at(*curve)) for key, curve in curves.items()]
        tables.append(Table(f"{exhibit.title}, in %", COLUMNS, tuple(rows)))
        pictures.append(_picture(exhibit, curves))
    words = WORDS.format(protocol=PROTOCOLS[options.protocol])
    return Report("roc", TITLE, tuple(tables), words, tuple(pictures), tuple(notes))


def _at(frr: Array, trr: Array) -> list[Cell]:
    return [
        100 * float(np.interp(at, trr, frr)) if trr[0] <= at <= trr[-1] else None
        for at in AT
    ]


def points(
    curve: tuple[Array, Array],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return few points along a curve, for a picture."""
    x, y = thin_curve(*curve)
    return tuple(x.tolist()), tuple(y.tolist())


def _picture(
    exhibit: Exhibit, curves: dict[tuple[str, str], tuple[Array, Array]]
) -> Picture:
    panels = []
    for scenario in SCENARIOS:
        lines = tuple(
            Line(method, *points(curve))
            for (method, curve_scenario), curve in curves.items()
            if curve_scenario == scenario
        )
        if lines:
            panels.append(Panel(scenario, "FRR", "TRR", lines, level=0.95))
    return Picture(exhibit.slug, exhibit.title, tuple(panels), columns=3)
