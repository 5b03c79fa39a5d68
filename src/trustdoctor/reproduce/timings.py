"""Seconds per score: the published loops, the same on a grid, and exactly."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import measure
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.cases import TBB, Case, fit, make_case
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.grid import evaluate_grid
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Answers, Exhibit, require_both_kinds

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
    """Time every method on all predictions that are there."""
    exhibits, notes = require_both_kinds(options)
    tables, panels = [], []
    for i, one in enumerate(exhibits):
        share = i / len(exhibits), 1 / len(exhibits)
        table = _table(one, options, *share)
        tables.append(table)
        panels.append(_panel(table, "" if len(exhibits) == 1 else one.name))
    picture = Picture("seconds", TITLE, tuple(panels))
    words = WORDS.format(size=SIZE)
    return Report("timings", TITLE, tuple(tables), words, (picture,), notes)


def _table(one: Exhibit, options: Options, done: float, share: float) -> Table:
    """Time the methods on one exhibit; `done` and `share` are of the whole work."""
    theirs = paper("timings")
    found: list[tuple[Cell, ...]] = []
    for i, method in enumerate(METHODS):
        options.tell(done + share * i / len(METHODS), f"the loops of {method}")
        loops, grid, exact = _times(method, one.clean)
        pbb = theirs["PBB"].get("odin" if method == "sr" else method)
        shown = [f"{seconds:.4f}" for seconds in (grid, exact)]
        times = f"{loops / exact:,.0f}"
        found.append((method, theirs["TBB"][method], pbb, loops, *shown, times))
    n, classes = one.clean.predictions.logits.shape
    title = f"Seconds, {one.name}: {n:,} rows of {classes} classes"
    return Table(title, COLUMNS, tuple(found))


def _panel(table: Table, title: str) -> Panel:
    at = tuple(float(i) for i in range(len(table.rows)))
    lines = tuple(
        Line(
            label,
            at,
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


def _times(method: str, answers: Answers) -> tuple[float, float, float]:
    probs, errors = answers.softmax(), answers.predictions.errors
    fitted = fit(answers, "softmax") if method == "mhlnb" else None
    wrong, below = errors.tolist(), method == "sr"

    def case() -> Case:
        if fitted is None:
            return make_case(method, "TBB", TBB[method], answers, answers)
        scores = np.asarray(fitted.function(answers.predictions.logits))
        return Case(method, "TBB", scores, errors, scores)

    def loops() -> None:
        values = case().values.tolist() if fitted else values_published(probs, method)
        thresholds = np.linspace(min(values), max(values), SIZE)
        area_published(*count_published(values, wrong, thresholds, below=below))

    def grid() -> None:
        evaluate_grid(case().values, errors, below=below, size=SIZE)

    def exact() -> None:
        measure(case().scores, errors)

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
