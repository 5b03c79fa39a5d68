"""How often the intervals cover, and how wide they are: writes docs/intervals.md.

Scores of correct rows are normal; those of errors are shifted, so that the AUROC is
known; the second score of each pair is another draw that agrees with the first as
scores of one model do. A model's confidence is simulated as calibrated, as too high
and as too low. Every true value is an integral. Run: python benchmarks/intervals.py
"""

import argparse
import math
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from scipy.special import expit, ndtr, ndtri

from trustdoctor import Predictions, clopper_pearson
from trustdoctor.evaluation.estimates import Settings, measure_rows
from trustdoctor.evaluation.said import said
from trustdoctor.metrics import (
    FEW,
    RANK_METRICS,
    Counts,
    Points,
    Ranking,
    auroc_difference,
    counts,
    frr_difference,
    frr_parts,
)
from trustdoctor.scores import score_all

PAGE = Path(__file__).parents[1] / "docs" / "intervals.md"
ROWS = (200, 2_000, 20_000)
ERRORS = (4, 10, 40, 200, 2_000)
AUROCS = (0.7, 0.92, 0.983, 0.998)
STEPS = (0.0, 0.25)  # scores as they are, and rounded
SAID = (1.0, 1.5, 0.7)  # times the true log-odds: calibrated, too sure, not sure enough
SPREAD = 2.0  # of the log-odds
ALIKE = 0.9  # correlation of the two scores of a pair
WORSE = 0.15  # by how much the second one's shift is smaller
ASKED = 0.93

RANKED = (*RANK_METRICS, "aupr_correct")
PAIRED = ("auroc difference", "frr_at_trr difference")
CALIBRATED = ("confidence", "ece", "brier", "nll")


def cells():
    """Yield rows, errors, what decides how good the score is, and how it is rounded."""
    for n in ROWS:
        for errors in (k for k in ERRORS if k < n):
            yield from ((n, errors, auroc, step) for auroc in AUROCS for step in STEPS)


def calibrated_cells():
    """Yield rows, errors, how the confidence is said, and how it is rounded."""
    for n in ROWS:
        for errors in (k for k in ERRORS if k < n):
            yield from ((n, errors, factor, step) for factor in SAID for step in STEPS)


def shift(auroc):
    return math.sqrt(2) * float(ndtri(auroc))


def rounded(values, step):
    return np.round(values / step) * step if step else values


def metric(name, c):
    if name == "aupr_correct":
        return float(counts.aupr(c.swapped()))
    return float(RANK_METRICS[name](c, Points()))


@cache
def true_values(rate, shifted, step):
    """Every metric of rank at a share of errors, by the law of the scores."""
    width = step or 5e-4
    grid = rounded(np.arange(-9, shifted + 9, width), width)

    def masses(mean):
        return ndtr(grid + width / 2 - mean) - ndtr(grid - width / 2 - mean)

    c = Counts(1e10 * (1 - rate) * masses(0.0), 1e10 * rate * masses(shifted))
    return {name: metric(name, c) for name in RANKED}


def draw_ranks(rng, n, errors, auroc, step):
    """Two scores of the same rows, and which rows are wrong; both kinds occur."""
    wrong = np.zeros(n, bool)
    while wrong.all() or not wrong.any():
        wrong = rng.random(n) < errors / n
    one, other = rng.standard_normal((2, n))
    other = ALIKE * one + math.sqrt(1 - ALIKE**2) * other
    scores = (one + shift(auroc) * wrong, other + (shift(auroc) - WORSE) * wrong)
    return [rounded(s, step) for s in scores], wrong


def rank_estimates(rng, cell):
    """Every metric of one draw, and the differences of the pair."""
    scores, wrong = draw_ranks(rng, *cell)
    first, second = (Ranking(s, wrong) for s in scores)
    found = measure_rows(first.counts, Settings())
    parts = [frr_parts(ranking, trr=0.95) for ranking in (first, second)]
    note = found["auroc"].note
    pairs = (
        auroc_difference(first, second),
        frr_difference(*parts, wrong),
    )
    return found | {name: (e, note) for name, e in zip(PAIRED, pairs, strict=True)}


def rank_truth(cell):
    n, errors, auroc, step = cell
    own = true_values(errors / n, shift(auroc), step)
    other = true_values(errors / n, shift(auroc) - WORSE, step)
    gaps = [own[name] - other[name] for name in ("auroc", "frr_at_trr")]
    return own | dict(zip(PAIRED, gaps, strict=True))


def log_odds(mean, step):
    """Return the true log-odds of the predicted of two classes, and their masses."""
    width = step or 1e-3
    grid = rounded(np.arange(0, mean + 9 * SPREAD, width), width)
    edges = np.append(grid - width / 2, grid[-1] + width / 2)
    edges[0] = 0.0
    masses = np.diff(ndtr((edges - mean) / SPREAD))
    return grid, masses / masses.sum()


@cache
def mean_for(rate, step):
    """Return the mean of the log-odds that makes so many errors."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        grid, masses = log_odds(middle, step)
        wrong = float((masses * expit(-grid)).sum())
        low, high = (middle, high) if wrong > rate else (low, middle)
    return high


def calibrated_truth(cell):
    n, errors, factor, step = cell
    grid, masses = log_odds(mean_for(errors / n, step), step)
    right, sure = expit(grid), expit(factor * grid)
    gaps = np.bincount(np.minimum(sure * 15, 14).astype(int), masses * (right - sure))
    square = right * (1 - sure) ** 2 + (1 - right) * sure**2
    log = -right * np.log(sure) - (1 - right) * np.log(expit(-factor * grid))
    return {
        "confidence": float((masses * sure).sum()),
        "ece": float(np.abs(gaps).sum()),
        "brier": float(2 * (masses * square).sum()),
        "nll": float((masses * log).sum()),
    }


def calibrated_estimates(rng, cell):
    n, errors, factor, step = cell
    grid, masses = log_odds(mean_for(errors / n, step), step)
    drawn = np.searchsorted(np.cumsum(masses), rng.random(n) * 0.999999999)
    true = grid[drawn]
    wrong = rng.random(n) > expit(true)
    p = Predictions.from_logits(
        np.column_stack([factor * true + 1e-12, np.zeros(n)]), wrong.astype(int)
    )
    doubts = score_all(p, ["alpha", "beta"])
    return said(p, temperature=1.0, doubts=doubts).estimates()


def exact_width(name, cell, true):
    """Return the width of Clopper and Pearson's interval for a share like this one.

    Of the rows that the metric is a share of: those of the rarer kind for AUROC and the
    like, all rows for most. The FRR at a TRR is where the curve meets a share of the
    errors: between the ends of that share's interval.
    """
    n, errors = cell[:2]
    if name.startswith("frr_at_trr"):
        ends = clopper_pearson(0.95 * errors, errors)
        low, high = (ndtr(float(ndtri(end)) - shift(cell[2])) for end in ends)
        return high - low
    of_rarer = ("auroc", "aupr", "trr_at_frr", PAIRED[0])
    whole = min(errors, n - errors) if name in of_rarer else n
    low, high = clopper_pearson(min(1.0, abs(true)) * whole, whole)
    return high - low


def simulate(job):
    """Return coverage, width, and whether there is a note, of each estimate."""
    kind, cell, samples, seed = job
    draw, truth = KINDS[kind]
    rng, true = (
        np.random.default_rng([seed, *map(int, np.array(cell) * 1000)]),
        truth(cell),
    )
    ends, values, noted = defaultdict(list), defaultdict(list), defaultdict(int)
    for _ in range(samples):
        for name, found in draw(rng, cell).items():
            e, note = found if isinstance(found, tuple) else (found, found.note)
            if e.value is not None and e.low is not None:
                ends[name].append((e.low, e.high))
                values[name].append(e.value)
                noted[name] += bool(note)
    out = {}
    for name, pairs in ends.items():
        low, high = np.array(pairs).T
        span = np.diff(np.quantile(values[name], [0.025, 0.975]))[0]
        width = max(span, exact_width(name, cell, true[name]))
        out[name] = (
            float(((low <= true[name]) & (true[name] <= high)).mean()),
            float((high - low).mean() / width),
            noted[name] / len(pairs),
            float((high == low).mean()),
        )
    return kind, cell, out


KINDS = {
    "rank": (rank_estimates, rank_truth),
    "calibrated": (calibrated_estimates, calibrated_truth),
}


def failures(results, samples):
    """Cells that cover too seldom without a note, or are too wide, or have no width."""
    least = ASKED - 3 * math.sqrt(ASKED * (1 - ASKED) / samples)
    for _, cell, found in results:
        for name, (covered, width, noted, empty) in found.items():
            may = cell[1] < FEW and noted > 0.5
            if (covered < least and not may) or width > 2 or empty:
                yield name, cell, covered, width


def jobs(samples, seed=0):
    yield from (("rank", cell, samples, seed) for cell in cells())
    yield from (("calibrated", cell, samples, seed) for cell in calibrated_cells())


def table(results, names, value, worst):
    """One line for each number of rows and errors: the worst of all its cells."""
    found = defaultdict(list)
    for _, cell, own in results:
        for name in names:
            if name in own:
                found[cell[:2], name].append(own[name])
    titles = [name.replace("_", " ") for name in names]
    lines = ["| rows | errors | " + " | ".join(titles) + " |"]
    lines.append("|---:" * (len(names) + 2) + "|")
    for place in sorted({place for place, _ in found}):
        shown = [worst(value(own) for own in found[place, name]) for name in names]
        cells_ = " | ".join(f"{number:.3g}" for number in shown)
        lines.append(f"| {place[0]:,} | {place[1]:,} | {cells_} |")
    return "\n".join(lines)


def page(results, samples):
    lines = [HEAD.format(samples=samples, bound=ASKED)]
    for title, names in (
        ("Metrics of rank", RANKED),
        ("Differences between two scores on the same rows", PAIRED),
        ("Calibration", CALIBRATED),
    ):
        covered = table(results, names, lambda own: 100 * own[0], min)
        wide = table(results, names, lambda own: own[1], max)
        lines += [f"## {title}\n", "Lowest coverage, in percent:\n", covered]
        lines += ["", "Largest width:\n", wide, ""]
    lines.append("## What fails\n")
    failed = [
        f"- {name}, {cell[0]:,} rows, {cell[1]:,} errors, {cell[2]:g}"
        f"{', rounded' if cell[3] else ''}: covers {covered:.1%}, width {width:.3g}"
        for name, cell, covered, width in failures(results, samples)
    ]
    lines += failed or ["Nothing."]
    if any("coverage_at_risk" in line for line in failed):
        lines += ["", SATURATED]
    return "\n".join(lines) + "\n"


HEAD = """# Intervals

How often the 95% intervals of `evaluate` and `compare` hold the true value, and how
wide they are, by simulation: `python benchmarks/intervals.py`, {samples:,} samples per
cell. Each line is the worst of several cells: AUROC 0.7, 0.92, 0.983 and 0.998, with
scores as they are and rounded to quarters; for calibration a model that is calibrated,
too sure (log-odds times 1.5) and not sure enough (times 0.7). Rows are wrong at random,
so the number of errors varies about the one given.

Asked for: at least {bound:.0%}, less three standard errors; below 20 errors, or 20
correct rows, less is allowed, and the interval carries a note. A width is the mean
width of the intervals, divided by the larger of two: the range that holds 95% of the
estimates themselves, and the width of the Clopper-Pearson interval of such a share.
Asked for: at most 2. No interval has width zero.

How they are made: areas and means from the mean, variance and third moment of what each
row contributes, with one row more than was seen towards the worse end; points of curves
from order statistics and Clopper-Pearson; the ECE by asking which true gaps would look
like the ones seen. Nothing is drawn at random, so the same rows give the same interval.
"""


SATURATED = """Coverage at a risk is 1 where fewer errors than that are made, and most
samples say exactly so. In some the errors seen are nearly too many, and less coverage
cannot be ruled out: the interval is wide there, while the estimate hardly varies."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    todo = sorted(jobs(given.samples, given.seed), key=lambda job: -job[1][0])
    results = []
    with ProcessPoolExecutor() as pool:
        for result in pool.map(simulate, todo):
            results.append(result)
            print(len(results), "of", len(todo), *result[:2], flush=True)
    given.out.write_text(page(results, given.samples))
    failed = list(failures(results, given.samples))
    for line in failed:
        print("fails:", *line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
