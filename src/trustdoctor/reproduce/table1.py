"""Table 1: every method on every data set that there are predictions for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trustdoctor.adapters.datasets import DATASETS
from trustdoctor.errors import InputError
from trustdoctor.reproduce.cases import PBB, Case, Missing, pbb_cases, tbb_cases
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, find_exhibits

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
WORDS = (
    "The paper's numbers stand beside those of the predictions that are here; models "
    "and images differ unless they are the authors' own. {protocol} PBB counts errors "
    "in two ways: `paper` those of the perturbed prediction, as the paper does, and "
    "`deployed` those of the clean prediction, which is the one that a user acts on. "
    "The perturbation turns right predictions into wrong ones that are easy to detect: "
    "what `PBB paper` gains over `PBB deployed` is those. ODIN and energy have epsilon "
    "0 there, so the two ways coincide."
)
BINARY = (
    " With the two classes of {names}, alpha, beta and SR are increasing functions of "
    "one another, so their exact numbers coincide; the paper's differ from each other "
    "there (IMDb: AUROC 84.4, 84.4, 83.7), which ranks cannot."
)


def run(options: Options) -> Report:
    """Fill the table with what is there, and say what is not."""
    exhibits = require_exhibits(options)
    tables: list[Table] = []
    notes: list[str] = []
    for one in exhibits:
        cases = cases_in_paper(one)
        tables.append(_table(one, cases, options))
        notes += describe(one, cases)
    words = WORDS.format(protocol=PROTOCOLS[options.protocol])
    binary = [
        one.dataset.title
        for one in exhibits
        if one.clean.predictions.logits.shape[1] == 2
    ]
    if binary:
        words += BINARY.format(names=", ".join(binary))
    notes += absent(exhibits, options)
    return Report("table1", TITLE, tuple(tables), words, notes=tuple(notes))


def require_exhibits(options: Options) -> list[Exhibit]:
    """Find predictions, or say how to name some."""
    if (options.predictions, options.data) == (None, None):
        message = (
            "this needs predictions: --data DIR with data sets and prediction files "
            "(DIR/MODEL-DATASET-test.npz), or --predictions FILE --dataset NAME."
        )
        raise InputError(message)
    return find_exhibits(options)


def _table(one: Exhibit, cases: list[Case | Missing], options: Options) -> Table:
    theirs = paper("table1")[one.dataset.name]
    rows = [_row(case, theirs["methods"], options) for case in cases]
    order = list(theirs["methods"])
    rows.sort(key=lambda row: order.index(str(row[0])))
    title = f"{one.title} (the paper's: {theirs['accuracy']}), in %"
    return Table(title, COLUMNS, tuple(rows))


def describe(one: Exhibit, cases: list[Case | Missing]) -> Iterator[str]:
    """Say what the exhibit was read from, and what it lacks."""
    name = f"{one.dataset.title}, {one.model}"
    if one.files:
        yield f"{name}: read from {', '.join(one.files)}."
    lacks = [
        f"{case.method} {case.scenario} needs {case.why}"
        for case in cases
        if isinstance(case, Missing)
    ]
    if lacks:
        yield f"{name}: {'; '.join(lacks)}."


def cases_in_paper(one: Exhibit) -> list[Case | Missing]:
    """Return the methods that the paper has numbers for on this data set."""
    methods = paper("table1")[one.dataset.name]["methods"]
    if one.bench is not None:
        one.bench.runs += 3  # alpha, beta and Mahalanobis
    cases: list[Case | Missing] = list(tbb_cases(one))
    if any("PBB" in cells for cells in methods.values()):
        cases += pbb_cases(one)
    return [c for c in cases if c.scenario[:3] in methods.get(c.method, {})]


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


def _one_way(case: Case) -> bool:
    """Tell whether clean and perturbed predictions are the same, as at epsilon 0."""
    return case.method in PBB and PBB[case.method].epsilon == 0


def absent(exhibits: list[Exhibit], options: Options) -> Iterator[str]:
    """Say for each data set of the table without predictions what it needs."""
    there = {one.dataset.name for one in exhibits}
    folder = options.data or Path("DIR")
    for name, dataset in DATASETS.items():
        if name in there:
            continue
        if options.data is not None and dataset.locate(options.data) is not None:
            n = len(dataset.load(options.data))
            yield (
                f"{dataset.title}: {n:,} rows are present, predictions are not: put "
                f"them at {folder / f'MODEL-{name}-test.npz'}, or name a --model."
            )
        else:
            predictions = folder / f"MODEL-{name}-test.npz"
            yield f"{dataset.where(folder)}, or its predictions at {predictions}."
