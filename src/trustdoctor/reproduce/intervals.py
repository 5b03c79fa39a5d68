"""The table of interval sizes: why the paper's D_beta falls behind softmax response."""

from trustdoctor.adapters.plot import Line, Panel, Picture
from trustdoctor.errors import InputError
from trustdoctor.metrics import auroc, frr_at_trr
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.grid import METHODS, evaluate_grid, published_values
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import read_answers
from trustdoctor.scores import SCORES

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
    "On {rows} predictions of accuracy {accuracy}. D_beta's ratio falls as the largest "
    "probability rises, so D_beta and softmax response rank predictions alike and must "
    "have the same curve. On the grid they do not: the largest stored probability of "
    "{saturated} of the rows is exactly 1, these rows tie at beta's smallest ratio, no "
    "threshold of the grid rejects them, and the curve stops before its end. Softmax "
    "response rejects at or below its threshold and so reaches the end. The exact "
    "evaluation puts a threshold at every score and loses nothing."
)
SCORE_OF = {"alpha": "alpha", "beta": "beta", "sr": "msp"}


def run(options: Options) -> Report:
    """Evaluate softmax outputs on grids of 10 to 10,000 thresholds, and exactly."""
    if options.predictions is None:
        message = (
            "intervals needs a file of softmax outputs and labels, as the paper's "
            "authors published theirs: --predictions FILE (NPZ or CSV)."
        )
        raise InputError(message)
    answers = read_answers(options.predictions)
    probs, p = answers.softmax(), answers.predictions
    p.require_labels("intervals")
    theirs = paper("intervals")
    rows: list[tuple[Cell, ...]] = []
    for i, size in enumerate((10, 100, 1000, 10_000)):
        options.tell(i / 5, f"{size} thresholds")
        for method in METHODS:
            found = evaluate_grid(
                published_values(probs, method),
                p.errors,
                below=method == "sr",
                size=size,
            )
            auroc_printed, frr_printed = theirs[str(size)][method]
            ends = "/".join(f"{100 * end:.1f}" for end in found.reach)
            area = (auroc_printed, 100 * found.auroc)
            rows.append((size, method, *area, frr_printed, 100 * found.frr, ends))
    exact: list[tuple[Cell, ...]] = []
    for method in METHODS:
        scores = SCORES[SCORE_OF[method]](p)
        frr = frr_at_trr(scores, p.errors)
        exact.append((method, 100 * auroc(scores, p.errors), 100 * frr))
    tables = (
        Table("Published evaluation (grid), in %", COLUMNS, tuple(rows)),
        Table("Exact, in %", ("method", "AUROC", "FRR@95TRR"), tuple(exact)),
    )
    saturated = f"{100 * float((probs.max(1) == 1).mean()):.1f}%"
    accuracy = f"{100 * (1 - p.errors.mean()):.2f}%"
    words = WORDS.format(rows=f"{len(p):,}", accuracy=accuracy, saturated=saturated)
    return Report("intervals", TITLE, tables, words, (_picture(rows, exact),))


def _picture(rows: list[tuple[Cell, ...]], exact: list[tuple[Cell, ...]]) -> Picture:
    """Draw AUROC over the number of thresholds, beside the exact one."""
    panels = []
    for method, value in ((str(row[0]), row[1]) for row in exact):
        own = [row for row in rows if row[1] == method]
        sizes = tuple(float(str(row[0])) for row in own)
        lines = tuple(
            Line(label, sizes, tuple(float(str(row[column])) for row in own))
            for label, column in (("paper", 2), ("here", 3))
        )
        level = float(str(value))
        panels.append(
            Panel(method, "thresholds", "AUROC %", lines, level=level, log_x=True)
        )
    title = "AUROC on a grid of thresholds; the dashed red line is exact"
    return Picture("auroc", title, tuple(panels), columns=3)
