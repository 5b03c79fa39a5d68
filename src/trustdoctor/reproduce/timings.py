"""Seconds per score: the published loops, the same on a grid, and exactly."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import measure
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.grid import evaluate_grid
from trustdoctor.reproduce.methods import (
    TBB,
    ScoredMethod,
    fit_mahalanobis,
    score_method,
)
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, ModelOutput, require_both_kinds

TITLE = "Seconds per score (appendix C.1)"
SIZE = 10_000
METHODS = ("alpha", "beta", "sr", "mhlnb")
COLUMNS = (
    "method",
    "paper\nTBB",
    "paper\nPBB",
    "loops\nhere",
    "grid\nhere",
    "exact\nhere",
    "loops /\nexact",
)
WORDS = (
    "{size:,} thresholds, on this machine: the score of each row, and AUROC and FRR at "
    "95% TRR of all. The loops are the "
    "published evaluation typed from its description: for each threshold a decision on "
    "each row in Python, and counts. `grid` finds the same numbers by sorting, `exact` "
    "goes through every distinct score. The paper's seconds are of its own machine, "
    "and its PBB column may hold more than the evaluation. Mahalanobis is fitted on "
    "these very rows here, for its time alone."
)


def run(options: Options) -> Report:
    """Time every method on all available predictions."""
    exhibits, notes = require_both_kinds(options)
    tables, panels = [], []
    for i, exhibit in enumerate(exhibits):
        table = _table(exhibit, options, i / len(exhibits), 1 / len(exhibits))
        tables.append(table)
        panels.append(_panel(table, "" if len(exhibits) == 1 else exhibit.name))
    picture = Picture("seconds", TITLE, tuple(panels))
    words = WORDS.format(size=SIZE)
    return Report("timings", TITLE, tuple(tables), words, (picture,), notes)


def _table(exhibit: Exhibit, options: Options, start: float, share: float) -> Table:
    """Time the methods on one exhibit, from `start` of the whole work on."""
    theirs = paper("timings")
    rows: list[tuple[Cell, ...]] = []
    for i, method in enumerate(METHODS):
        options.tell(start + share * i / len(METHODS), f"the loops of {method}")
        loops, grid, exact = _times(method, exhibit.clean)
        pbb = theirs["PBB"].get("odin" if method == "sr" else method)
        shown = [f"{seconds:.4f}" for seconds in (grid, exact)]
        times = f"{loops / exact:,.0f}"
        rows.append((method, theirs["TBB"][method], pbb, loops, *shown, times))
    n, classes = exhibit.clean.predictions.logits.shape
    title = f"Seconds, {exhibit.name}: {n:,} rows of {classes} classes"
    return Table(title, COLUMNS, tuple(rows))


def _panel(table: Table, title: str) -> Panel:
    x = tuple(float(i) for i in range(len(table.rows)))
    lines = tuple(
        Line(
            label,
            x,
            tuple(float(str(row[column])) for row in table.rows),
            joined=False,
        )
        for label, column in (
            ("paper, TBB", 1),
            ("loops", 3),
            ("grid", 4),
            ("exact", 5),
        )
    )
    names = tuple(str(row[0]) for row in table.rows)
    return Panel(title, "", "seconds", lines, log_y=True, ticks=names)


def _times(method: str, output: ModelOutput) -> tuple[float, float, float]:
    """Return the seconds of the published loops, of the grid and of every score."""
    probs, errors = output.softmax(), output.predictions.errors
    mahalanobis = fit_mahalanobis(output, "softmax") if method == "mhlnb" else None
    error_list, below = errors.tolist(), method == "sr"

    def scored() -> ScoredMethod:
        if mahalanobis is None:
            return score_method(method, "TBB", TBB[method], output, output)
        scores = np.asarray(mahalanobis.function(output.predictions.logits))
        return ScoredMethod(method, "TBB", scores, errors, scores)

    def loops() -> None:
        if mahalanobis is None:
            values = values_published(probs, method)
        else:
            values = scored().values.tolist()
        thresholds = np.linspace(min(values), max(values), SIZE)
        area_published(*count_published(values, error_list, thresholds, below=below))

    def grid() -> None:
        evaluate_grid(scored().values, errors, below=below, size=SIZE)

    def exact() -> None:
        measure(scored().scores, errors)

    # The loops take a thousand times as long: one run of them is exact enough.
    return _seconds(loops, 1), _seconds(grid, 3), _seconds(exact, 3)


def _seconds(work: Callable[[], None], repeat: int) -> float:
    """Return the shortest of a few runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def values_published(probs: Any, method: str) -> list[float]:
    """Return (1 - g) / g, (1 - p) / p or p of each row, in loops."""
    values = []
    for row in probs.astype(np.float64).tolist():
        if method == "alpha":
            g = sum(p * p for p in row)
            values.append((1 - g) / g)
        else:
            top = max(row)
            values.append(top if method == "sr" else (1 - top) / top)
    return values


def thresholds_published(values: list[float]) -> Array:
    """Return the thresholds that Table 1 of the paper was made with."""
    low, high = min(values), max(values)
    return np.linspace(low, high, int((high - low) * 10_000))


def count_published(
    values: list[float],
    errors: list[bool],
    thresholds: Iterable[float],
    *,
    below: bool = False,
) -> tuple[list[float], list[float]]:
    """Return FRR and TRR at each threshold, in loops."""
    frr, trr = [], []
    for gamma in thresholds:
        fr = tr = fa = ta = 0
        for value, wrong in zip(values, errors, strict=True):
            reject = value <= gamma if below else value > gamma
            if reject and not wrong:
                fr += 1
            elif reject and wrong:
                tr += 1
            elif not reject and wrong:
                fa += 1
            else:
                ta += 1
        frr.append(fr / (fr + ta))
        trr.append(tr / (tr + fa))
    return frr, trr


def area_published(frr: list[float], trr: list[float]) -> tuple[float, float]:
    """Return AUROC and FRR at 95% TRR."""
    x, y = np.sort(frr), np.sort(trr)
    return float(np.trapezoid(y, x)), float(np.interp(0.95, y, x))
