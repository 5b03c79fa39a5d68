"""Table 1: every method on every data set with predictions."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from trustdoctor.metrics import Estimate
from trustdoctor.predictions import Predictions
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.methods import (
    PBB,
    TBB,
    MissingMethod,
    ScoredMethod,
    methods_in_paper,
    score_method,
)
from trustdoctor.reproduce.public import look_over
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import (
    Exhibit,
    ModelOutput,
    ScoreSetting,
    check_sources,
    find_exhibits,
)
from trustdoctor.reproduce.sweep import ROWS, choose

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
OTHER_PROTOCOL = {"exact": "grid", "grid": "exact"}
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
    """Fill the table from the available predictions, and say what is missing."""
    check_sources(options)
    exhibits = find_exhibits(options)
    tables: list[Table] = []
    panels: list[Panel] = []
    notes: list[str] = []
    words = WORDS.format(protocol=PROTOCOLS[options.protocol])
    for _, same_data in groupby(exhibits, lambda exhibit: exhibit.dataset.name):
        group = list(same_data)
        public = look_over(group, options)
        for exhibit in group:
            if exhibit in public.in_brief:
                continue
            methods = methods_in_paper(exhibit)
            tables.append(_table(exhibit, methods, options))
            panels.append(_panel(tables[-1]))
            tables += _comparison_with_sr(exhibit, methods, options)
            tables += _chosen_settings(exhibit, options)
            notes += describe(exhibit, methods)
        tables += public.tables
        notes += public.notes
        words += public.words
    words += _two_class_note(exhibits)
    pictures = (Picture("auroc", PICTURED, tuple(panels), columns=1),) if panels else ()
    tables += absent(exhibits, options)
    return Report("table1", TITLE, tuple(tables), words, pictures, tuple(notes))


def _two_class_note(exhibits: list[Exhibit]) -> str:
    binary = {
        exhibit.dataset.title: None
        for exhibit in exhibits
        if exhibit.clean.predictions.logits.shape[1] == 2
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


def _table(
    exhibit: Exhibit, methods: list[ScoredMethod | MissingMethod], options: Options
) -> Table:
    theirs = paper("table1")[exhibit.dataset.name]
    net = f"the paper's {theirs['net']}: {theirs['accuracy']}"
    if exhibit.clean.by_authors:
        net = f"the authors' own predictions; the paper has {theirs['accuracy']}"
    printed = theirs["methods"]
    rows = [_row(method, printed, options) for method in methods]
    order = list(printed)
    rows.sort(key=lambda row: order.index(str(row[0])))
    title = f"{exhibit.title} ({net}), in %"
    return Table(title, COLUMNS, tuple(rows))


def describe(
    exhibit: Exhibit, methods: list[ScoredMethod | MissingMethod]
) -> Iterator[str]:
    """Yield notes on the exhibit's files and on what is missing."""
    if exhibit.files:
        yield f"{exhibit.name}: read from {', '.join(exhibit.files)}."
    needs = [
        f"{missing.method} {missing.scenario} needs {missing.needs}"
        for missing in methods
        if isinstance(missing, MissingMethod)
    ]
    if needs:
        yield f"{exhibit.name}: {'; '.join(needs)}."


def _row(
    method: ScoredMethod | MissingMethod, printed: dict[str, Any], options: Options
) -> tuple[Cell, ...]:
    names = method.method, method.scenario
    auroc, frr = (float(n) for n in printed[method.method][method.scenario[:3]])
    if isinstance(method, MissingMethod):
        return (*names, auroc, None, frr, None)
    options.tell(0.9, f"judging {method.method}")
    ours = method.judge(options)
    if method.scenario == "PBB deployed" and not _same_predictions(method):
        return (*names, None, ours[0], None, ours[1])
    return (*names, auroc, ours[0], frr, ours[1])


def _comparison_with_sr(
    exhibit: Exhibit, methods: list[ScoredMethod | MissingMethod], options: Options
) -> Iterator[Table]:
    """Show each method by the other protocol, and against SR on the same rows."""
    if exhibit.clean.predictions.errors.mean() in (0, 1):
        return
    other = OTHER_PROTOCOL[options.protocol]
    scored = [method for method in methods if isinstance(method, ScoredMethod)]
    (sr,) = (method for method in scored if method.method == "sr")
    order = list(paper("table1")[exhibit.dataset.name]["methods"])
    rows: list[tuple[Cell, ...]] = []
    for method in sorted(scored, key=lambda method: order.index(method.method)):
        options.tell(0.9, f"{exhibit.name}: {method.method} against SR")
        metrics = method.judge(replace(options, protocol=other))
        # Under the paper's protocol PBB has other errors than SR: no pairs.
        same_errors = np.array_equal(method.errors, sr.errors)
        paired = same_errors and method is not sr
        gains = method.minus(sr) if paired else (None, None)
        accuracy = 100 * (1 - float(method.errors.mean()))
        rows.append((method.method, method.scenario, accuracy, *metrics, *gains))
    columns = (
        "method",
        "scenario",
        "accuracy",
        f"AUROC\n{other}",
        f"FRR95\n{other}",
        "AUROC\n- SR",
        "FRR95\n- SR",
    )
    title = (
        f"The {other} numbers, and differences to SR on the same rows, {exhibit.name}, "
        "in %"
    )
    yield Table(title, columns, tuple(rows))


def _chosen_settings(exhibit: Exhibit, options: Options) -> Iterator[Table]:
    """Show settings chosen on labelled rows, judged on others against SR."""
    if "PBB" not in paper("table1")[exhibit.dataset.name]["methods"]["alpha"]:
        return
    choice = choose(exhibit, options)
    if choice is None:
        return
    best, rows = choice
    sr = score_method("sr", "TBB", TBB["sr"], exhibit.clean, exhibit.clean).take(rows)
    cells: list[tuple[Cell, ...]] = [("sr", "-", *sr.judge(options), None, None)]
    for name, setting in best.items():
        scored = _score_at(exhibit, setting, rows)
        t_and_eps = f"{setting.temperature:g}, {setting.epsilon:g}"
        cells.append((name, t_and_eps, *scored.judge(options), *scored.minus(sr)))
    title = (
        f"T and eps chosen on {ROWS:,} labelled rows by the AUROC as deployed, judged "
        f"on {len(rows):,} others, {exhibit.name}, in %"
    )
    columns = ("method", "T, eps", "AUROC", "FRR95", "AUROC\n- SR", "FRR95\n- SR")
    yield Table(title, columns, tuple(cells))


def _score_at(exhibit: Exhibit, setting: ScoreSetting, rows: Any) -> ScoredMethod:
    """Score some rows at a setting, and judge the clean predictions."""
    model_run, clean = exhibit.model_run, exhibit.clean.take(rows)
    assert model_run is not None
    output = clean
    if setting.epsilon:
        logits = model_run.logits(*setting, images=model_run.images[rows])
        output = ModelOutput(Predictions.from_logits(logits, clean.predictions.labels))
    return score_method(setting.score, "PBB deployed", setting, output, clean)


def _same_predictions(scored: ScoredMethod) -> bool:
    """Return whether clean and perturbed predictions are the same, as at epsilon 0."""
    return scored.method in PBB and PBB[scored.method].epsilon == 0


def absent(exhibits: list[Exhibit], options: Options) -> Iterator[Table]:
    """Yield the paper's rows for data sets without predictions, and what they need."""
    if options.data is None:
        return
    present = {exhibit.dataset.name for exhibit in exhibits}
    for name, dataset in DATASETS.items():
        if name in present or options.dataset not in (None, name):
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
