"""Public nets: other nets than the paper's, and often several of one data set.

The one whose accuracy is nearest to the paper's is shown with all methods. All of them
stand in one table, with the scores that need nothing but clean predictions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trustdoctor.metrics import Estimate
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.methods import (
    TBB,
    MissingMethod,
    methods_in_paper,
    score_method,
)
from trustdoctor.reproduce.report import Cell, Table
from trustdoctor.reproduce.sources import Exhibit

METHODS = ("alpha", "beta", "sr")
COLUMNS = ("net", "accuracy", "method", "AUROC", "FRR95")
ALONE = (
    " On {data}, {net} (public), not the paper's net, has accuracy {accuracy:.2f}, the "
    "paper's {theirs}"
)
NEAREST = "; of {n} public nets it is the nearest, and shown with all methods"


@dataclass(frozen=True)
class Overview:
    """The public nets of one data set, taken together.

    Attributes
    ----------
    in_brief : tuple of Exhibit
        Those that the one table is enough for.
    tables : tuple of Table
        That table, if there are several nets.
    words : str
        Which net is the nearest to the paper's, and how alpha and SR compare.
    notes : tuple of str
        What the nets in brief were read from, and what they lack.
    """

    in_brief: tuple[Exhibit, ...] = ()
    tables: tuple[Table, ...] = ()
    words: str = ""
    notes: tuple[str, ...] = ()


def look_over(exhibits: list[Exhibit], options: Options) -> Overview:
    """Take the public nets among the exhibits of one data set together."""
    nets = [exhibit for exhibit in exhibits if exhibit.public]
    if not nets:
        return Overview()
    theirs = paper("table1")[nets[0].dataset.name]
    nearest = min(nets, key=lambda exhibit: abs(exhibit.accuracy - theirs["accuracy"]))
    words = ALONE.format(
        data=nearest.dataset.title,
        net=nearest.net,
        accuracy=nearest.accuracy,
        theirs=theirs["accuracy"],
    )
    if len(nets) == 1:
        return Overview(words=f"{words}.")
    table = _table(nets, theirs, options)
    words += f"{NEAREST.format(n=len(nets))}.{_alpha_minus_sr(table)}"
    in_brief = tuple(
        exhibit for exhibit in nets if exhibit.only_clean and exhibit is not nearest
    )
    return Overview(in_brief, (table,), words, tuple(_notes(in_brief)))


def _table(nets: list[Exhibit], theirs: dict[str, Any], options: Options) -> Table:
    """Return the scores of all nets below the paper's, the most accurate net first."""
    rows: list[tuple[Cell, ...]] = []
    for method in METHODS:
        auroc, frr = map(float, theirs["methods"][method]["TBB"])
        rows.append(("the paper's", theirs["accuracy"], method, auroc, frr))
    for exhibit in sorted(nets, key=lambda exhibit: -exhibit.accuracy):
        options.tell(0.9, f"judging {exhibit.name}")
        for method in METHODS:
            clean = exhibit.clean
            scored = score_method(method, "TBB", TBB[method], clean, clean)
            rows.append((exhibit.net, exhibit.accuracy, method, *scored.judge(options)))
    title = (
        f"{nets[0].dataset.title}: {len(nets)} public nets, none of them the paper's, "
        "by accuracy, in %"
    )
    return Table(title, COLUMNS, tuple(rows))


def _alpha_minus_sr(table: Table) -> str:
    """Say by how much the two differ, on each of the nets and in the paper."""
    areas: dict[str, list[float]] = {method: [] for method in METHODS}
    for _, _, method, auroc, _ in table.rows:
        value = auroc.value if isinstance(auroc, Estimate) else auroc
        if isinstance(value, float):
            areas[str(method)].append(value)
    theirs, *ours = (
        f"{round(alpha - sr, 2) + 0.0:+.2f}"  # never -0.00
        for alpha, sr in zip(areas["alpha"], areas["sr"], strict=True)
    )
    if not ours:
        return ""
    ends = sorted(ours, key=float)
    return (
        f" Over these nets the AUROC of alpha minus that of SR goes from {ends[0]} to "
        f"{ends[-1]} (the paper's: {theirs})."
    )


def _notes(nets: tuple[Exhibit, ...]) -> Iterator[str]:
    """Say what the nets were read from, and what all of them lack."""
    if not nets:
        return
    title = f"{nets[0].dataset.title}, other public nets"
    files = ", ".join(file for exhibit in nets for file in exhibit.files)
    yield f"{title}: read from {files}."
    missing_by_net = [
        [
            f"{missing.method} {missing.scenario}"
            for missing in methods_in_paper(exhibit)
            if isinstance(missing, MissingMethod)
        ]
        for exhibit in nets
    ]
    missing_everywhere = [
        name
        for name in missing_by_net[0]
        if all(name in missing for missing in missing_by_net)
    ]
    if missing_everywhere:
        names = ", ".join(missing_everywhere)
        yield (
            f"{title}: {names} are missing, since there is nothing but "
            "clean predictions of the test rows."
        )
