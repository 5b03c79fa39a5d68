"""What a gate is worth with few labels: fills docs/few_labels.md.

``python benchmarks/few_labels.py SHARED`` calibrates on 100 to 1,000 rows of every
file, again and again, by the rules of 0.2 and of now, on rows drawn where labels count,
on average, and by MAPIE where it is installed. ``--draws`` sets how many calibrations
each cell has, ``--only main`` or ``--only plan`` runs a section. Seeds are fixed.

A file is the population: rows are drawn from it with replacement, so the true risk and
coverage of every threshold are known exactly. Doubts and errors go straight to the
rules, as they do in ``td.calibrate``.
"""

import argparse
import math
import sys
import time
import warnings
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
from pages import fill, processor, table

import trustdoctor as td
from trustdoctor.gates.label_plan import plan_sample
from trustdoctor.gates.request import Request
from trustdoctor.gates.risk import _two_sequences, risk_cut
from trustdoctor.gates.rules import threshold_of
from trustdoctor.gates.sample import Rows
from trustdoctor.metrics import top_probability
from trustdoctor.scores import default_score, find_score

PAGE = Path(__file__).parents[1] / "docs" / "few_labels.md"
PREDICTIONS = (
    "resnet-20-cifar10",
    "densenet-bc-100-12-cifar10",
    "resnet-20-svhn",
    "resnet-56-cifar100",
    "minilm-imdb",
)
ANSWERS = "mmlu-qwen3-32b"
ROUNDED = f"{ANSWERS}, rounded"
RISKS = (0.02, 0.05, 0.1)
LABELS = (100, 200, 300, 500, 1000)
DELTA = 0.1
MAPIE_DRAWS = 200
"""Calibrations per cell with MAPIE, at most: it takes four times as long."""

MAPIE_METHODS = {
    "MAPIE, Holm": "bonferroni_holm",
    "MAPIE, fixed sequence": "fixed_sequence",
}

SHOWN_RISK, SHOWN_LABELS = 0.05, (200, 500)
"""What the table of single files shows."""

PLANNED = (
    "resnet-20-cifar10",
    "densenet-bc-100-12-cifar10",
    "resnet-20-svhn",
    "resnet-56-cifar100",
    "minilm-imdb",
    ANSWERS,
)
PLAN_LABELS, PLAN_RISKS, GROWTH = (200, 500), (0.02, 0.05, 0.1), (2, 5)
PLANS = 25
"""Plans per cell, each from other labels."""


class File:
    """All rows of a file, which are the population.

    Attributes
    ----------
    predictions : Predictions
    doubts, errors : array (n,)
    model_doubts : array (n,)
        Minus the probability that the model gives its answer, which is what MAPIE gets.
    """

    def __init__(self, predictions, *, has_confidence=False):
        """Score all rows."""
        score = find_score(default_score(predictions))
        self.predictions, self.errors = predictions, predictions.errors
        self.doubts = np.asarray(score(predictions), float)
        self.model_doubts = self.doubts
        if not has_confidence:
            self.model_doubts = -top_probability(predictions)
        self.ascending, self.errors_below = self._curve(self.doubts)
        self.model_curve = self._curve(self.model_doubts)

    def _curve(self, doubts):
        """Return the doubts, ascending, and the errors among the first 0, 1, ..."""
        order = np.argsort(doubts, kind="stable")
        return doubts[order], np.append(0, np.cumsum(self.errors[order]))

    def truth_for_model(self, probability):
        """Return coverage and risk of a threshold on the model's probability."""
        ascending, errors_below = self.model_curve
        accepted = int(np.searchsorted(ascending, -probability, side="right"))
        risk = errors_below[accepted] / accepted if accepted else 0.0
        return accepted / len(self.doubts), risk

    def truth(self, threshold):
        """Return the coverage and the risk of a threshold."""
        accepted = int(np.searchsorted(self.ascending, threshold, side="right"))
        risk = self.errors_below[accepted] / accepted if accepted else 0.0
        return accepted / len(self.doubts), risk

    def oracle(self, risk):
        """Return the largest coverage with at most this risk."""
        ends = np.append(np.flatnonzero(np.diff(self.ascending)) + 1, len(self.doubts))
        keeping = ends[self.errors_below[ends] <= risk * ends + 1e-9]
        return keeping[-1] / len(self.doubts) if len(keeping) else 0.0


def read_files(shared):
    """Return the files by name."""
    folder = shared / "predictions"
    paths = {name: folder / f"{name}-test.npz" for name in PREDICTIONS}
    for path in sorted((folder / "public").glob("*-test.npz")):
        paths[path.stem.removesuffix("-test")] = path
    files = {name: File(td.read(path)) for name, path in paths.items()}
    answers = td.read(
        shared / "answers" / f"{ANSWERS}.csv",
        confidence="confidence",
        predicted="answer",
        labels="truth",
    )
    files[ANSWERS] = File(answers, has_confidence=True)
    confidence = np.round(answers.confidence, 1)
    rounded = td.Predictions.from_confidence(confidence, correct=~answers.errors)
    files[ROUNDED] = File(rounded, has_confidence=True)
    return files


def threshold(cut, sample):
    """Return a cut's threshold; -inf and inf where it decides nothing."""
    if cut.state == "threshold":
        return threshold_of(cut, sample)
    return np.inf if cut.state == "accept-all" else -np.inf


def by_mapie(method, probability, errors, risk):
    """Return the threshold on the probability that MAPIE chooses; inf if none."""
    from mapie.risk_control import BinaryClassificationController

    controller = BinaryClassificationController(
        lambda x: np.column_stack([1 - x[:, 0], x[:, 0]]),
        risk="precision",
        target_level=1 - risk,
        confidence_level=1 - DELTA,
        fwer_method=method,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where no threshold is valid
        controller.calibrate(probability[:, None], (~errors).astype(int))
    best = controller.best_predict_param
    return np.inf if best is None else float(best)


def run_cell(file, risk, labels, options, seed):
    """Return by rule an array (draws, 2): coverage and risk of each calibration."""
    rng = np.random.default_rng(seed)
    now = partial(risk_cut, risk=risk, mode="confidence", delta=DELTA)
    rules = {
        "two sequences (0.2)": partial(_two_sequences, risk=risk, delta=DELTA),
        "now": now,
        "on average": partial(risk_cut, risk=risk, mode="expectation", delta=DELTA),
    }
    limits = draw_limits(file, risk, labels)
    pools = {
        name: np.flatnonzero(file.doubts <= limit) for name, limit in limits.items()
    }
    methods = MAPIE_METHODS if options.mapie else {}
    outcomes = {name: [] for name in (*rules, *limits, *methods)}
    for k in range(options.draws):
        rows = rng.integers(0, len(file.doubts), labels)
        sample = Rows(file.doubts[rows], file.errors[rows])
        for name, rule in rules.items():
            outcomes[name].append(file.truth(threshold(rule(sample), sample)))
        for name, pool in pools.items():
            drawn_rows = pool[rng.integers(0, len(pool), labels)]
            sample = Rows(file.doubts[drawn_rows], file.errors[drawn_rows])
            drawn_threshold = min(threshold(now(sample), sample), limits[name])
            outcomes[name].append(file.truth(drawn_threshold))
        for name, method in methods.items() if k < MAPIE_DRAWS else ():
            probability = -file.model_doubts[rows]
            best = by_mapie(method, probability, file.errors[rows], risk)
            outcomes[name].append(file.truth_for_model(best))
    return {name: np.array(values) for name, values in outcomes.items()}


def draw_limits(file, risk, labels):
    """Return the largest doubt that may be drawn, without and with the accuracy.

    It depends on the pool, not on which rows are then drawn.
    """
    accuracy = 1 - float(file.errors.mean())
    return {
        name: td.draw(file.predictions, labels=labels, risk=risk, accuracy=known).limit
        for name, known in (("drawn, accuracy known", accuracy), ("drawn", None))
    }


def summary(values, risk):
    """Return mean coverage, and the shares that accept nothing and are broken."""
    return (
        values[:, 0].mean(),
        (values[:, 0] == 0).mean(),
        (values[:, 1] > risk + 1e-12).mean(),
    )


def make_main(files, options):
    """Return the tables of all rules, of the rule on average, and of single files."""
    options.mapie = find_spec("mapie") is not None
    peer = "MAPIE is not installed here and is left out."
    if options.mapie:
        peer = (
            f"MAPIE {version('mapie')} controls the precision of `accepted` at 1 - r, "
            "over its own 100 thresholds on the probability that the model gives its "
            f"answer ({min(MAPIE_DRAWS, options.draws)} calibrations per cell)."
        )
    cells = {}
    tasks = list(product(files, RISKS, LABELS))
    for seed, (name, risk, labels) in enumerate(tasks):
        cells[name, risk, labels] = run_cell(files[name], risk, labels, options, seed)
        if sys.stderr.isatty():
            print(f"\r{seed + 1} of {len(tasks)} cells", end="", file=sys.stderr)
    oracle = np.mean([f.oracle(risk) for f in files.values() for risk in RISKS])
    introduction = (
        f"Mean over {len(files) * len(RISKS)} cells: {len(files)} files, r of 2%, 5% "
        f"and 10%; {options.draws} calibrations each, with confidence 0.9. Entries: "
        "coverage / share of calibrations that accept nothing. The last column is the "
        "share of calibrations whose true risk is above r, in the worst cell. "
        f"The best threshold of each file covers {oracle:.3f}. {peer}"
    )
    text = "\n\n".join([introduction, rules_table(cells)])
    return {
        "main": text,
        "average": average_table(cells),
        "files": files_table(files, cells),
    }


def rules_table(cells):
    """Return coverage and empty calibrations by rule and number of labels."""
    rules = {
        "two sequences (0.2)": "two sequences, the rule of 0.2",
        "now": "exact boundary, the rule of now",
        "drawn": "the same on drawn labels",
        "drawn, accuracy known": "the same, accuracy known",
        "MAPIE, Holm": "MAPIE, its default (Holm)",
        "MAPIE, fixed sequence": "MAPIE, fixed sequence",
        "on average": "on average",
    }
    lines = []
    for rule, words in rules.items():
        if rule not in next(iter(cells.values())):
            continue
        line = [words]
        for labels in LABELS:
            values = [
                summary(cell[rule], risk)
                for (_, risk, n), cell in cells.items()
                if n == labels
            ]
            coverage, empty, _ = np.mean(values, axis=0)
            line.append(f"{coverage:.3f} / {empty:.2f}")
        worst = max(
            summary(cell[rule], risk)[2] for (_, risk, _), cell in cells.items()
        )
        lines.append([*line, "-" if rule == "on average" else f"{worst:.3f}"])
    head = ["rule", *(f"n = {labels:,}" for labels in LABELS), "most broken"]
    return table(head, lines)


def average_table(cells):
    """Return what the rule on average does to single calibrations."""
    lines = []
    for labels in LABELS:
        means, above, accepting, errors = [], [], [], []
        for (_, risk, n), cell in cells.items():
            if n != labels:
                continue
            coverages, risks = cell["on average"].T
            means.append(risks.mean() / risk)
            errors.append(risks.std() / risk / np.sqrt(len(risks)))
            above.append((risks > risk + 1e-12).mean())
            if (coverages > 0).sum() >= 20:
                accepting.append(risks[coverages > 0].mean() / risk)
        worst = int(np.argmax(means))
        lines.append(
            [
                f"{labels:,}",
                f"{np.mean(means):.3f}",
                f"{means[worst]:.3f} ± {errors[worst]:.3f}",
                f"{np.mean(above):.0%}",
                f"{max(above):.0%}",
                f"{max(accepting):.2f}" if accepting else "-",
            ]
        )
    head = [
        "labels",
        "mean risk / r",
        "largest, ± its standard error",
        "calibrations above r, mean",
        "most",
        "mean risk / r where anything is accepted, largest",
    ]
    return table(head, lines)


def files_table(files, cells):
    """Return single files at one risk: all rows labelled alike, and drawn ones."""
    lines = []
    for name, file in files.items():
        line = [name]
        for labels in SHOWN_LABELS:
            for rule in ("now", "drawn", "drawn, accuracy known"):
                coverage, empty, _ = summary(
                    cells[name, SHOWN_RISK, labels][rule], SHOWN_RISK
                )
                line.append(f"{coverage:.2f} / {empty:.0%}")
        lines.append([*line, f"{file.oracle(SHOWN_RISK):.2f}"])
    words = ("plain", "drawn", "accuracy known")
    head = ["file", *(f"{n} {w}" for n in SHOWN_LABELS for w in words), "best"]
    return table(head, lines)


def plan_cell(file, risk, labels, draws, rng):
    """Return stated (plans, 2, 2) and real (2, 2) chances and coverages."""
    request = Request({"risk": risk})
    sizes = [k * labels for k in GROWTH]

    def sample(n):
        rows = rng.integers(0, len(file.doubts), n)
        return Rows(file.doubts[rows], file.errors[rows])

    real = []
    for size in sizes:
        coverages = []
        for _ in range(draws):
            drawn = sample(size)
            cut = request.cut_all(drawn)
            if not cut.failed:
                coverages.append(file.truth(threshold(cut, drawn))[0])
        typical = float(np.median(coverages)) if coverages else np.nan
        real.append((len(coverages) / draws, typical))
    stated = []
    while len(stated) < PLANS:
        drawn = sample(labels)
        if drawn.n_errors in (0, len(drawn)):  # a plan is refused
            continue
        outlooks = plan_sample(drawn, request, sizes).outlooks
        stated.append(
            [(o.decides, o.median if o.decides else np.nan) for o in outlooks]
        )
    return np.array(stated), np.array(real)


def make_plan(files, options):
    """Return stated against real chances and coverages."""
    lines, apart, single, open_chances = [], [], [], []
    rng = np.random.default_rng(1)
    for name, risk, labels in product(PLANNED, PLAN_RISKS, PLAN_LABELS):
        stated, real = plan_cell(files[name], risk, labels, options.draws, rng)
        line = [name, f"{risk:g}", f"{labels:,}"]
        for i, k in enumerate(GROWTH):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # nothing decides
                mean = np.nanmean(stated[:, i], axis=0)
            chance, coverage = real[i]
            # Where calibrations hardly ever decide, there is no coverage to foresee.
            seen = chance >= 0.05 and np.isfinite(mean[1])
            if not seen:
                mean[1] = coverage = np.nan
            apart.append((k, *np.abs(mean - (chance, coverage))))
            single += [(k, *np.abs(plan - (chance, coverage))) for plan in stated[:, i]]
            if 0.03 <= chance <= 0.97:
                open_chances.append(abs(mean[0] - chance))
            line.append(f"{mean[0]:.0%} / {chance:.0%}")
            line.append(f"{mean[1]:.2f} / {coverage:.2f}" if seen else "-")
        lines.append(line)
    head = ["file", "risk", "labels"]
    for k in GROWTH:
        head += [f"{k}n: chance", f"{k}n: coverage"]
    apart, single = np.array(apart), np.array(single)
    sentences = [
        f"{k} times as many labels: the mean statement is "
        f"{100 * np.mean(apart[apart[:, 0] == k, 1]):.1f} points of chance and "
        f"{100 * np.nanmean(apart[apart[:, 0] == k, 2]):.1f} points of coverage from "
        f"what was seen; a single plan "
        f"{100 * np.mean(single[single[:, 0] == k, 1]):.1f} and "
        f"{100 * np.nanmean(single[single[:, 0] == k, 2]):.1f}."
        for k in GROWTH
    ]
    introduction = (
        f"Stated / seen. {PLANS} plans per cell, each from other labels; seen are the "
        f"calibrations that decide, and the median coverage of these, of "
        f"{options.draws} on as many fresh rows. Mean absolute differences over "
        f"{len(PLANNED)} files: {' '.join(sentences)} Where 3% to 97% of calibrations "
        f"decide ({len(open_chances)} entries), the mean statement of the chance is "
        f"{100 * np.mean(open_chances):.1f} points off."
    )
    return {"plan": "\n\n".join([introduction, table(head, lines)])}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--only", choices=("main", "plan"))
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    files = read_files(options.shared)
    sections = {"main": make_main, "plan": make_plan}
    for name, make in sections.items():
        if options.only in (None, name):
            start = time.perf_counter()
            texts = make(files, options)
            minutes = (time.perf_counter() - start) / 60
            command = f"python benchmarks/few_labels.py SHARED --only {name}"
            texts[f"{name} run"] = (
                f"Made by `{command} --draws {options.draws}` in about "
                f"{math.ceil(minutes)} minutes of one core ({processor()})."
            )
            fill(options.out, "With few labels", texts)


if __name__ == "__main__":
    main()
