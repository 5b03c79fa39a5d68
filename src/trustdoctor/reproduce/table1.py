"""Table 1: every method on every data set that there are predictions for."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from trustdoctor.metrics import Estimate
from trustdoctor.predictions import Predictions
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.cases import (
    PBB,
    TBB,
    Case,
    Missing,
    cases_in_paper,
    make_case,
)
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.public import look_over
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.settings import ROWS, choose
from trustdoctor.reproduce.sources import (
    Answers,
    Exhibit,
    Setting,
    check_sources,
    find_exhibits,
)

PICTURED = "AUROC of Table 1: the paper's, and ours with intervals of 95%"
IMAGES = ("cifar10", "cifar100", "tinyimagenet", "svhn")
TITLE = "Table 1: all methods, totally and partially black-box"
COLUMNS = (
    "method",
    "scenario",
    "AUROC\npaper",
    "AUROC\nhere",
    "FRR95\npaper",
    "FRR95\nhere",
)
PROTOCOLS = {
    "exact": "Every distinct score is a threshold; the intervals are of 95%.",
    "grid": "Evaluated as published, on a grid of thresholds; beta and SR rank alike, "
    "and where they differ the grid is why (see `reproduce intervals`).",
}
PROTOCOLS_BY_NAME = {"exact": "grid", "grid": "exact"}
"""For each protocol the other one."""
WORDS = (
    "The paper's numbers stand beside those of the predictions that are here; models "
    "and images differ unless they are the authors' own. {protocol} PBB counts errors "
    "in two ways: `paper` those of the perturbed prediction, as the paper does, and "
    "`deployed` those of the clean prediction, which is the one that a user acts on. "
    "The perturbation turns right predictions into wrong ones that are easy to detect: "
    "where `PBB paper` is better than `PBB deployed`, these are why. ODIN and energy "
    "have epsilon 0 there, so the two ways coincide."
)
BINARY = (
    " With the two classes of {names}, alpha, beta and SR are increasing functions of "
    "one another, so their exact numbers coincide; the paper's differ from each other "
    "there (IMDb: AUROC 84.4, 84.4, 83.7), which ranks cannot."
)


def run(options: Options) -> Report:
    """Fill the table with what is there, and say what is not."""
    check_sources(options)
    exhibits = find_exhibits(options)
    tables: list[Table] = []
    panels: list[Panel] = []
    notes: list[str] = []
    words = WORDS.format(protocol=PROTOCOLS[options.protocol])
    for _, same_data in groupby(exhibits, lambda one: one.dataset.name):
        group = list(same_data)
        public = look_over(group, options)
        for one in (one for one in group if one not in public.in_brief):
            cases = cases_in_paper(one)
            tables.append(_table(one, cases, options))
            panels.append(_panel(tables[-1]))
            tables += _compared(one, cases, options)
            tables += _chosen(one, options)
            notes += describe(one, cases)
        tables += public.tables
        notes += public.notes
        words += public.words
    words += _on_two_classes(exhibits)
    pictures = (Picture("auroc", PICTURED, tuple(panels), columns=1),) if panels else ()
    tables += absent(exhibits, options)
    return Report("table1", TITLE, tuple(tables), words, pictures, tuple(notes))


def _on_two_classes(exhibits: list[Exhibit]) -> str:
    binary = {
        one.dataset.title: None
        for one in exhibits
        if one.clean.predictions.logits.shape[1] == 2
    }
    return BINARY.format(names=", ".join(binary)) if binary else ""


def _panel(table: Table) -> Panel:
    """Draw the AUROCs of a table: the paper's, and ours with their intervals."""
    names = tuple(f"{row[0]}\n{row[1]}" for row in table.rows)
    theirs, ours = [], []
    for x, row in enumerate(table.rows):
        if isinstance(row[2], float):
            theirs.append((float(x), row[2], row[2], row[2]))
        if isinstance(row[3], Estimate) and row[3].value is not None:
            value = row[3].value
            ends = row[3].low or value, row[3].high or value
            ours.append((float(x), value, *ends))
    lines = tuple(
        Line(
            label,
            *(tuple(column) for column in zip(*points, strict=True)),
            joined=False,
        )
        for label, points in (("paper", theirs), ("here", ours))
        if points
    )
    return Panel(table.title, "", "AUROC %", lines, ticks=names)


def _table(one: Exhibit, cases: list[Case | Missing], options: Options) -> Table:
    theirs = paper("table1")[one.dataset.name]
    net = f"the paper's {theirs['net']}: {theirs['accuracy']}"
    if one.clean.authors:
        net = f"the authors' own predictions; the paper has {theirs['accuracy']}"
    rows = [_row(case, theirs["methods"], options) for case in cases]
    order = list(theirs["methods"])
    rows.sort(key=lambda row: order.index(str(row[0])))
    title = f"{one.title} ({net}), in %"
    return Table(title, COLUMNS, tuple(rows))


def describe(one: Exhibit, cases: list[Case | Missing]) -> Iterator[str]:
    """Say what the exhibit was read from, and what it lacks."""
    if one.files:
        yield f"{one.name}: read from {', '.join(one.files)}."
    lacks = [
        f"{case.method} {case.scenario} needs {case.why}"
        for case in cases
        if isinstance(case, Missing)
    ]
    if lacks:
        yield f"{one.name}: {'; '.join(lacks)}."


def _row(
    case: Case | Missing, methods: dict[str, Any], options: Options
) -> tuple[Cell, ...]:
    printed = methods[case.method][case.scenario[:3]]
    auroc, frr = (float(number) for number in printed)
    if isinstance(case, Missing):
        return (case.method, case.scenario, auroc, None, frr, None)
    options.tell(0.9, f"judging {case.method}")
    ours = case.judge(options)
    if case.scenario == "PBB deployed" and not _one_way(case):
        return (case.method, case.scenario, None, ours[0], None, ours[1])
    return (case.method, case.scenario, auroc, ours[0], frr, ours[1])


def _compared(
    one: Exhibit, cases: list[Case | Missing], options: Options
) -> Iterator[Table]:
    """Show each method by the other protocol, and against SR on the same rows."""
    if one.clean.predictions.errors.mean() in (0, 1):
        return
    other = PROTOCOLS_BY_NAME[options.protocol]
    by_other = f"The {other} numbers, and differences to SR on the same rows"
    there = [case for case in cases if isinstance(case, Case)]
    (sr,) = (case for case in there if case.method == "sr")
    order = list(paper("table1")[one.dataset.name]["methods"])
    rows: list[tuple[Cell, ...]] = []
    for case in sorted(there, key=lambda case: order.index(case.method)):
        options.tell(0.9, f"{one.name}: {case.method} against SR")
        judged = case.judge(replace(options, protocol=other))
        # Under the paper's protocol PBB has other errors than SR: no pairs.
        same = np.array_equal(case.errors, sr.errors)
        minus = case.minus(sr) if same and case is not sr else (None, None)
        accuracy = 100 * (1 - float(case.errors.mean()))
        rows.append((case.method, case.scenario, accuracy, *judged, *minus))
    columns = (
        "method",
        "scenario",
        "accuracy",
        f"AUROC\n{other}",
        f"FRR95\n{other}",
        "AUROC\n- SR",
        "FRR95\n- SR",
    )
    title = f"{by_other}, {one.name}, in %"
    yield Table(title, columns, tuple(rows))


def _chosen(one: Exhibit, options: Options) -> Iterator[Table]:
    """Show settings chosen on labelled rows, judged on others against SR."""
    if "PBB" not in paper("table1")[one.dataset.name]["methods"]["alpha"]:
        return
    found = choose(one, options)
    if found is None:
        return
    best, rows = found
    sr = make_case("sr", "TBB", TBB["sr"], one.clean, one.clean).take(rows)
    shown: list[tuple[Cell, ...]] = [("sr", "-", *sr.judge(options), None, None)]
    for name, setting in best.items():
        case = _at_setting(one, setting, rows)
        at = f"{setting.temperature:g}, {setting.epsilon:g}"
        judged = (*case.judge(options), *case.minus(sr))
        shown.append((name, at, *judged))
    title = (
        f"T and eps chosen on {ROWS:,} labelled rows by the AUROC as deployed, judged "
        f"on {len(rows):,} others, {one.name}, in %"
    )
    columns = ("method", "T, eps", "AUROC", "FRR95", "AUROC\n- SR", "FRR95\n- SR")
    yield Table(title, columns, tuple(shown))


def _at_setting(one: Exhibit, setting: Setting, rows: Any) -> Case:
    """Score some rows at a setting, and judge the clean predictions."""
    bench, clean = one.bench, one.clean.take(rows)
    assert bench is not None
    answers = clean
    if setting.epsilon:
        logits = bench.logits(*setting, images=bench.images[rows])
        answers = Answers(Predictions.from_logits(logits, clean.predictions.labels))
    return make_case(setting.score, "PBB deployed", setting, answers, clean)


def _one_way(case: Case) -> bool:
    """Tell whether clean and perturbed predictions are the same, as at epsilon 0."""
    return case.method in PBB and PBB[case.method].epsilon == 0


def absent(exhibits: list[Exhibit], options: Options) -> Iterator[Table]:
    """Show the paper's rows for data sets without predictions, and what they need."""
    if options.data is None:
        return
    there = {one.dataset.name for one in exhibits}
    for name, dataset in DATASETS.items():
        if name in there or options.dataset not in (None, name):
            continue
        place = options.data / f"MODEL-{name}-test.npz"
        title = f"{dataset.where(options.data)}, or its predictions at {place}"
        if dataset.locate(options.data) is not None:
            title = f"{dataset.title} is present, predictions are not: put {place}"
            title += ", or name a --model" if dataset.name in IMAGES else ""
        rows = [
            (method, scenario, float(auroc), None, float(frr), None)
            for method, cells in paper("table1")[name]["methods"].items()
            for scenario, (auroc, frr) in cells.items()
        ]
        yield Table(title, COLUMNS, tuple(rows))
