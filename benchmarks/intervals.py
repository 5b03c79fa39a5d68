"""How often the intervals cover, and how wide they are: writes docs/intervals.md.

Scores of correct rows are normal; those of errors are shifted, so that the AUROC is
known; the second score of each pair is another draw that agrees with the first as
scores of one model do. Scores of few values are such scores, cut into groups: rows are
drawn as counts of the groups. A model's confidence is simulated as calibrated, as too
high and as too low. Every true value is an integral. Run:
python benchmarks/intervals.py
"""

import argparse
import math
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.special import expit, ndtr, ndtri

from trustdoctor import Predictions, clopper_pearson
from trustdoctor.evaluation.evaluations import (
    EvaluationSettings,
    calibration_estimates,
    rank_estimates,
)
from trustdoctor.metrics import (
    FEW_ROWS,
    RANK_METRICS,
    TIED_NOTE,
    Counts,
    Estimate,
    Points,
    Ranking,
    area_interval,
    aupr,
    auroc,
    auroc_difference,
    counts,
    frr_difference,
    paired_frr,
)
from trustdoctor.scores import score_all

PAGE = Path(__file__).parents[1] / "docs" / "intervals.md"
ROWS = (200, 2_000, 20_000)
ERRORS = (4, 10, 40, 200, 2_000)
AUROCS = (0.7, 0.92, 0.983, 0.998)
STEPS = (0.0, 0.25)  # scores as they are, and rounded
TIED_ERRORS = (20, 40, 200, 2_000)  # of 20,000 rows no fewer than 40
TIED_AUROCS = (0.75, 0.95)  # before the scores are tied
SAID = (1.0, 1.5, 0.7)  # times the true log-odds: calibrated, too sure, not sure enough
SPREAD = 2.0  # of the log-odds
ALIKE = 0.9  # correlation of the two scores of a pair
WORSE = 0.15  # by how much the second one's shift is smaller
ASKED = 0.93
SAMPLES = {"rank": 300, "tied": 300, "calibrated": 2_000, "hidden": 2_000}
"""Per cell: as many as make the whole run half an hour on two cores."""

RANKED = (*RANK_METRICS, "aupr_correct")
PAIRED = ("auroc difference", "frr_at_trr difference")
CALIBRATED = ("confidence", "ece", "brier", "nll")


def cells():
    """Yield rows, errors, what decides how good the score is, and how it is rounded."""
    for n in ROWS:
        for errors in (k for k in ERRORS if k < n):
            yield from ((n, errors, auroc, step) for auroc in AUROCS for step in STEPS)


def tied_cells():
    """Yield rows, errors, how good the score is, and which few values it takes."""
    for n in ROWS:
        for errors in (k for k in TIED_ERRORS if n <= 500 * k and k < n):
            yield from (
                (n, errors, auroc, ties) for auroc in TIED_AUROCS for ties in TIES
            )


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
        return aupr(c, positive="correct")
    return float(RANK_METRICS[name](c, Points()))


def confidence_cuts(digits):
    """Return the doubts at which a confidence of `digits` digits is rounded otherwise.

    Confidences are those of two classes, their log-odds 2.2 less 1.5 times the doubt.
    """
    half = 0.5 * 10.0**-digits
    confidences = np.arange(1 - half, 0.5, -2 * half)
    return (2.2 - np.log(confidences / (1 - confidences))) / 1.5


TIES = {
    "two values": np.array([0.5]),
    "four values": ndtri(
        [0.5, 0.8, 0.95]
    ),  # shares of the correct rows, as of 1.0, ...
    "one digit": confidence_cuts(1),
    "two digits": confidence_cuts(2),
}
"""Where a normal doubt is cut into groups that are tied."""


@cache
def tied_masses(shifted, other, ties):
    """Return the share of rows in each pair of groups of two scores that agree."""
    edges = np.concatenate([[-np.inf], TIES[ties], [np.inf]])
    width = 1e-3
    doubts = np.arange(-9, 9, width) + width / 2
    masses = ndtr(doubts + width / 2) - ndtr(doubts - width / 2)
    # Of the second score given the first: normal, since both are.
    noise = math.sqrt(1 - ALIKE**2)
    below = ndtr((edges - other - ALIKE * doubts[:, None]) / noise)
    group = np.searchsorted(TIES[ties], doubts + shifted)
    joint = np.zeros((len(edges) - 1, len(edges) - 1))
    np.add.at(joint, group, masses[:, None] * np.diff(below, axis=1))
    return joint / joint.sum()


def tied_estimates(rng, cell):
    """As `estimates_of_ranks`, of counts drawn at once for all groups."""
    n, errors, auroc, ties = cell
    n_errors = 0
    while not 0 < n_errors < n:
        n_errors = rng.binomial(n, errors / n)
    kinds = [
        rng.multinomial(rows, tied_masses(*shifts, ties).ravel())
        for rows, shifts in (
            (n - n_errors, (0.0, 0.0)),
            (n_errors, (shift(auroc), shift(auroc) - WORSE)),
        )
    ]
    rows = np.concatenate([np.repeat(np.arange(len(kind)), kind) for kind in kinds])
    scores = [places.astype(float) for places in np.divmod(rows, len(TIES[ties]) + 1)]
    return estimates_of_pair(scores, np.arange(n) >= n - n_errors)


def tied_counts(cell):
    """Return the law of the two scores of a tied world, as counts of many rows."""
    n, errors, auroc, ties = cell
    correct = tied_masses(0.0, 0.0, ties)
    wrong = tied_masses(shift(auroc), shift(auroc) - WORSE, ties)
    rate = errors / n * (1 - 1e-9)  # a risk of 1% is at most 1%, whatever sums round to
    return [
        Counts(1e10 * (1 - rate) * correct.sum(axis), 1e10 * rate * wrong.sum(axis))
        for axis in (1, 0)
    ]


def tied_truth(cell):
    values, values_of_other = (
        {name: min(max(metric(name, c), 0.0), 1.0) for name in RANKED}
        for c in tied_counts(cell)
    )
    return with_gaps(values, values_of_other)


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
    normal, other = rng.standard_normal((2, n))
    other = ALIKE * normal + math.sqrt(1 - ALIKE**2) * other
    scores = (normal + shift(auroc) * wrong, other + (shift(auroc) - WORSE) * wrong)
    return [rounded(s, step) for s in scores], wrong


def estimates_of_ranks(rng, cell):
    """Every metric of one draw, and the differences of the pair."""
    return estimates_of_pair(*draw_ranks(rng, *cell))


def estimates_of_pair(scores, wrong):
    first, second = (Ranking(s, wrong) for s in scores)
    estimates = rank_estimates(first.counts, EvaluationSettings())
    paired_rates = [paired_frr(ranking, trr=0.95) for ranking in (first, second)]
    note = estimates["auroc"].note
    pairs = (
        auroc_difference(first, second),
        frr_difference(*paired_rates, wrong),
    )
    return estimates | {
        name: replace(e, note=note or e.note)
        for name, e in zip(PAIRED, pairs, strict=True)
    }


def rank_truth(cell):
    n, errors, auroc, step = cell
    values = true_values(errors / n, shift(auroc), step)
    values_of_other = true_values(errors / n, shift(auroc) - WORSE, step)
    return with_gaps(values, values_of_other)


def with_gaps(values, values_of_other):
    gaps = [values[name] - values_of_other[name] for name in ("auroc", "frr_at_trr")]
    return values | dict(zip(PAIRED, gaps, strict=True))


def hidden_cells():
    """Yield rows, errors, the shift of errors, and the share that has none."""
    for errors in (40, 150):
        yield from (
            (2_000, errors, far, share) for far in (4, 6) for share in (0.01, 0.02)
        )


def hidden_estimates(rng, cell):
    """Return the AUROC, where a share of the errors looks as correct rows do."""
    n, errors, far, share = cell
    wrong = rng.random(n) < errors / n
    scores = rng.standard_normal(n) + far * (wrong & (rng.random(n) >= share))
    c = counts(scores, wrong)
    ends = area_interval("auroc", c)
    return {"auroc": Estimate(auroc(c), *ends)}


def hidden_truth(cell):
    _, _, far, share = cell
    return {"auroc": (1 - share) * float(ndtr(far / math.sqrt(2))) + share / 2}


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
    """Return the mean of the log-odds that gives this rate of errors."""
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
    return calibration_estimates(p, doubts, EvaluationSettings())


def exact_width(name, cell, true):
    """Return the width of Clopper and Pearson's interval for a share like this one.

    Of the rows that the metric is a share of: those of the rarer kind for AUROC and the
    like, all rows for most. The FRR at a TRR is where the curve meets a share of the
    errors: between the ends of that share's interval. Where scores are tied it is a
    share of the rows, since the threshold is one of few.
    """
    n, errors = cell[:2]
    if name.startswith("frr_at_trr") and cell[3] not in TIES:
        ends = clopper_pearson(0.95 * errors, errors)
        low, high = (ndtr(float(ndtri(end)) - shift(cell[2])) for end in ends)
        return high - low
    of_rarer = ("auroc", "aupr", "trr_at_frr", PAIRED[0])
    rows_of_share = min(errors, n - errors) if name in of_rarer else n
    low, high = clopper_pearson(min(1.0, abs(true)) * rows_of_share, rows_of_share)
    # Where both scores are tied, two such shares differ.
    return (high - low) * (math.sqrt(2) if name == PAIRED[1] else 1.0)


def simulate(job):
    """Return coverage, width, and whether there is a note, of each estimate."""
    kind, cell, samples, seed = job
    draw, truth = KINDS[kind]
    numbers = [list(TIES).index(x) if x in TIES else x for x in cell]
    seeds = [seed, *map(int, np.array(numbers) * 1000)]
    rng, true = np.random.default_rng(seeds), truth(cell)
    ends, values, notes = (defaultdict(list) for _ in range(3))
    for _ in range(samples):
        for name, e in draw(rng, cell).items():
            if e.value is not None and e.low is not None:
                ends[name].append((e.low, e.high))
                values[name].append(e.value)
                notes[name].append(e.note)
    out = {}
    for name, pairs in ends.items():
        low, high = np.array(pairs).T
        span = np.diff(np.quantile(values[name], [0.025, 0.975]))[0]
        width = max(span, exact_width(name, cell, true[name]))
        # Where many rows are tied, an interval may have to reach the next score,
        # which few samples do: it says so in its note.
        noted = np.array(notes[name])
        free = (noted == "") if kind == "tied" else (noted != TIED_NOTE)
        widths = high - low
        mean = min(widths.mean(), widths[free].mean()) if free.any() else 0.0
        out[name] = (
            float(((low <= true[name]) & (true[name] <= high)).mean()),
            float(mean / width),
            float((noted != "").mean()),
            float((high == low).mean()),
        )
    return kind, cell, out


KINDS = {
    "rank": (estimates_of_ranks, rank_truth),
    "tied": (tied_estimates, tied_truth),
    "calibrated": (calibrated_estimates, calibrated_truth),
    "hidden": (hidden_estimates, hidden_truth),
}


def failures(results, samples):
    """Cells that cover too seldom without a note, or are too wide, or have no width."""
    for kind, cell, coverages in results:
        if kind == "hidden":
            continue  # what no interval can know
        lowest = ASKED - 3 * math.sqrt(ASKED * (1 - ASKED) / samples[kind])
        for name, (covered, width, noted, empty) in coverages.items():
            may = cell[1] < FEW_ROWS and noted > 0.5
            if (covered < lowest and not may) or width > 2 or empty:
                yield name, cell, covered, width


CELLS = {
    "rank": cells,
    "tied": tied_cells,
    "calibrated": calibrated_cells,
    "hidden": hidden_cells,
}


def jobs(samples, seed=0):
    for kind, of_kind in CELLS.items():
        yield from ((kind, cell, samples[kind], seed) for cell in of_kind())


def table(results, kind, names, value, worst):
    """One line for each number of rows and errors: the worst of all its cells."""
    values_by_place = defaultdict(list)
    for of_kind, cell, coverages in results:
        for name in names:
            if of_kind == kind and name in coverages:
                values_by_place[cell[:2], name].append(coverages[name])
    titles = [name.replace("_", " ") for name in names]
    lines = ["| rows | errors | " + " | ".join(titles) + " |"]
    lines.append("|---:" * (len(names) + 2) + "|")
    for place in sorted({place for place, _ in values_by_place}):
        shown = [
            worst(value(coverage) for coverage in values_by_place[place, name])
            for name in names
        ]
        cells_ = " | ".join(f"{number:.3g}" for number in shown)
        lines.append(f"| {place[0]:,} | {place[1]:,} | {cells_} |")
    return "\n".join(lines)


def rounding(step):
    return f", {step}" if step in TIES else ", rounded" if step else ""


def hidden_table(results):
    lines = ["| errors | that are hidden | the others are apart by | AUROC covers |"]
    lines.append("|---:" * 4 + "|")
    for kind, (_, errors, far, share), coverages in results:
        if kind == "hidden":
            covered = coverages["auroc"][0]
            lines.append(f"| {errors} | {share:.0%} | {far} sd | {covered:.0%} |")
    return "\n".join(lines)


def page(results, samples):
    lines = [HEAD.format(**samples, bound=ASKED)]
    for title, kind, names in (
        ("Metrics of rank", "rank", RANKED),
        (FEW_VALUES, "tied", RANKED),
        ("Differences between two scores on the same rows", "rank", PAIRED),
        ("Differences, scores of few values", "tied", PAIRED),
        ("Calibration", "calibrated", CALIBRATED),
    ):
        covered = table(results, kind, names, lambda coverage: 100 * coverage[0], min)
        wide = table(results, kind, names, lambda coverage: coverage[1], max)
        lines += [f"## {title}\n", *([TIED] if title == FEW_VALUES else [])]
        lines += ["Lowest coverage, in percent:\n", covered]
        lines += ["", "Largest width:\n", wide, ""]
    lines += [HIDDEN.format(table=hidden_table(results)), "## What fails\n"]
    failed = [
        f"- {name}, {cell[0]:,} rows, {cell[1]:,} errors, {cell[2]:g}"
        f"{rounding(cell[3])}: covers {covered:.1%}, width {width:.3g}"
        for name, cell, covered, width in failures(results, samples)
    ]
    lines += failed or ["Nothing."]
    if any("coverage_at_risk" in line for line in failed):
        lines += ["", SATURATED]
    return "\n".join(lines) + "\n"


HEAD = """# Intervals

How often the 95% intervals of `evaluate` and `compare` hold the true value, and how
wide they are, by simulation: `python benchmarks/intervals.py`, {rank:,} samples per
cell, {calibrated:,} for calibration. Each line is the worst of several cells: AUROC
0.7, 0.92, 0.983 and 0.998, with scores as they are and rounded to quarters; for
calibration a model that is calibrated, too sure (log-odds times 1.5) and not sure
enough (times 0.7). Rows are wrong at random, so the number of errors varies about the
one given.

Asked for: at least {bound:.0%}, less three standard errors; below 20 errors, or 20
correct rows, less is allowed, and the interval carries a note. A width is the mean
width of the intervals, divided by the larger of two: the range that holds 95% of the
estimates themselves, and the width of the Clopper-Pearson interval of such a share.
Asked for: at most 2. No interval has width zero.

How they are made: areas and means from the mean, variance and third moment of what each
row contributes, with one row more than was seen towards the worse end, which has the
next score beyond the outermost row's; points of curves from order statistics and
Clopper-Pearson; the ECE by asking which true gaps would look like the ones seen.
Nothing is drawn at random, so the same rows give the same interval.
"""


FEW_VALUES = "Metrics of rank, scores of few values"


TIED = """Two and four values (as 0.8, 0.9, 0.95 and 1.0), and confidences rounded to
one digit and to two; before that the AUROC is 0.75 and 0.95. An interval of what is
read off a curve may reach from one score to the next, since no threshold lies between:
it says so in its note. Widths leave out intervals with a note, where those without are
narrower; the range of estimates is that of all.
"""


HIDDEN = """## What no interval can know

Errors that look exactly as correct rows do, and so few that a sample may hold none of
them, do not show in the sample. Here are 2,000 rows; the scores of the other errors lie
far above those of correct rows. The AUROC's 95% intervals hold the true one this often,
without a note:

{table}

So look at the errors that a score doubts least: the page lists them under "the most
confident errors", and the JSON of `diagnose` under `least_doubtful_errors`.
"""


SATURATED = """Coverage at a risk is 1 where fewer errors than that are made, and most
samples say exactly so. In some the errors seen are nearly too many, and less coverage
cannot be ruled out: the interval is wide there, while the estimate hardly varies. With
few values of the score the same holds of each of them."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, help="of every kind of cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    samples = dict.fromkeys(SAMPLES, options.samples) if options.samples else SAMPLES
    job_list = sorted(jobs(samples, options.seed), key=lambda job: -job[1][0])
    results = []
    with ProcessPoolExecutor() as pool:
        for result in pool.map(simulate, job_list):
            results.append(result)
            print(len(results), "of", len(job_list), *result[:2], flush=True)
    options.out.write_text(page(results, samples))
    failed = list(failures(results, samples))
    for line in failed:
        print("fails:", *line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
