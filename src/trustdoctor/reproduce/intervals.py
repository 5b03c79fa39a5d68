"""The table of interval sizes: why the paper's D_beta falls behind softmax response."""

from trustdoctor.metrics import auroc, frr_at_trr
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.grid import METHODS, evaluate_grid, published_values
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, require_both_kinds
from trustdoctor.scores import find_score

TITLE = "Table of interval sizes (appendix C.3)"
COLUMNS = (
    "thresholds",
    "method",
    "AUROC paper",
    "AUROC here",
    "FRR95 paper",
    "FRR95 here",
    "ends at",
)
WORDS = (
    "D_beta's ratio falls as the largest "
    "probability rises, so D_beta and softmax response rank predictions alike and must "
    "have the same curve. On the grid they do not: the largest stored probability of "
    "{saturated} of the rows is exactly 1, these rows tie at beta's smallest ratio, no "
    "threshold of the grid rejects them, and the curve stops before its end. Softmax "
    "response rejects at or below its threshold and so reaches the end. The exact "
    "evaluation puts a threshold at every score and loses nothing."
)
Cells = tuple[tuple[Cell, ...], ...]
SCORE_OF = {"alpha": "alpha", "beta": "beta", "sr": "msp"}


def run(options: Options) -> Report:
    """Evaluate softmax outputs on grids of 10 to 10,000 thresholds, and exactly."""
    exhibits, notes = require_both_kinds(options)
    tables: list[Table] = []
    pictures: list[Picture] = []
    saturated: list[str] = []
    for i, exhibit in enumerate(exhibits):
        options.tell(i / len(exhibits), exhibit.name)
        rows, exact = _on_grids(exhibit), _exactly(exhibit)
        grid = f"{exhibit.title}; published evaluation (grid), in %"
        tables.append(Table(grid, COLUMNS, rows))
        title = f"{exhibit.name}; exact, in %"
        tables.append(Table(title, ("method", "AUROC", "FRR@95TRR"), exact))
        share = f"{100 * float((exhibit.clean.softmax().max(1) == 1).mean()):.1f}%"
        alone = len(exhibits) == 1
        saturated.append(share if alone else f"{share} ({exhibit.name})")
        pictures.append(
            _picture("auroc" if alone else exhibit.slug, exhibit, rows, exact)
        )
    words = WORDS.format(saturated=", ".join(saturated))
    return Report("intervals", TITLE, tuple(tables), words, tuple(pictures), notes)


def _on_grids(exhibit: Exhibit) -> Cells:
    """Evaluate as published, beside the paper's numbers for these data, if any."""
    probs, errors = exhibit.clean.softmax(), exhibit.clean.predictions.errors
    theirs = paper("intervals") if exhibit.dataset.name == "cifar10" else {}
    rows: list[tuple[Cell, ...]] = []
    for size in (10, 100, 1000, 10_000):
        for method in METHODS:
            values = published_values(probs, method)
            grid = evaluate_grid(values, errors, below=method == "sr", size=size)
            printed = theirs.get(str(size), {}).get(method, (None, None))
            ends = "/".join(f"{100 * end:.1f}" for end in grid.reach)
            area = (printed[0], 100 * grid.auroc)
            rows.append((size, method, *area, printed[1], 100 * grid.frr, ends))
    return tuple(rows)


def _exactly(exhibit: Exhibit) -> Cells:
    p = exhibit.clean.predictions
    rows: list[tuple[Cell, ...]] = []
    for method in METHODS:
        scores = find_score(SCORE_OF[method])(p)
        frr = frr_at_trr(scores, p.errors)
        rows.append((method, 100 * auroc(scores, p.errors), 100 * frr))
    return tuple(rows)


def _picture(name: str, exhibit: Exhibit, rows: Cells, exact: Cells) -> Picture:
    """Draw AUROC over the number of thresholds, beside the exact one."""
    panels = []
    for method, value in ((str(row[0]), row[1]) for row in exact):
        method_rows = [row for row in rows if row[1] == method]
        sizes = tuple(float(str(row[0])) for row in method_rows)
        lines = tuple(
            Line(label, sizes, tuple(float(str(row[column])) for row in method_rows))
            for label, column in (("paper", 2), ("here", 3))
            if method_rows[0][column] is not None
        )
        level = float(str(value))
        panels.append(
            Panel(method, "thresholds", "AUROC %", lines, level=level, log_x=True)
        )
    title = (
        f"AUROC on a grid of thresholds, {exhibit.name}; the dashed red line is exact"
    )
    return Picture(name, title, tuple(panels), columns=3)
