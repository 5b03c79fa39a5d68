"""Appendix B: two Gaussians and a linear model, where the optimum is known."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.metrics import Estimate, auroc, roc
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Options, paper
from trustdoctor.reproduce.grid import evaluate_grid, published_values
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.scores import alpha, beta, msp

TITLE = "Logistic regression on two Gaussians (appendix B)"
VARIANCES = (2.0, 4.0, 16.0)
READINGS = (
    ("2", 2.0, "variance 2"),
    ("2", 4.0, "sd 2"),
    ("4", 4.0, "variance 4"),
    ("4", 16.0, "sd 4"),
)
POINTS, TRAIN, SPLITS, EPOCHS, RATE = 5_000, 6_700, 8, 5, 0.1
SCORES = ("d_star", "alpha", "beta", "sr", "sr_star")
NAMES = {"d_star": "D*", "alpha": "alpha", "beta": "beta", "sr": "SR", "sr_star": "SR*"}
GRID = 601
WORDS = (
    "Each model is trained on one row at a time, {epochs} epochs at rate {rate}; the "
    "paper does not say how large its batches were. Its Bayes accuracies, 83 and 78, "
    "fit variances 2 and 4 (analytically 84.1 and 76.0), not standard deviations 2 and "
    "4 (76.0 and 63.8). Its AUROCs decide less: `AUROC gap` is the mean distance "
    "between its five and ours, and no reading meets them all. With two classes alpha, "
    "beta and SR are "
    "increasing functions of one another: their exact AUROCs are identical, and the "
    "paper's 78 against 70 at sigma 4 cannot come from ranks. SR*, the softmax "
    "response of the true posterior, is at most D*, up to chance, and equal to it "
    "where the model decides as Bayes does. Proposition 1: no discriminator has a "
    "smaller sum of the two errors than 1 - TV, and Definition 1 at gamma = 1, which "
    "rejects where the odds of an error exceed P(error) / P(correct), has just that. "
    "Appendix B rejects where the odds exceed 1 instead, and its {type_1} + {type_2} = "
    "{total:.4f} is not the minimum."
)


@dataclass(frozen=True, eq=False)
class Split:
    """A trained model and its test rows."""

    weights: Array
    x: Array
    y: Array
    variance: float

    @property
    def errors(self) -> Array:
        """Where the model is wrong."""
        return self.predicted(self.x) != self.y

    def predicted(self, x: Array) -> Array:
        """Return 1 or -1."""
        return np.where(logit(self.weights, x) > 0, 1, -1)

    def odds(self, x: Array) -> Array:
        """Return the log odds of an error, by the true posterior: D*."""
        return -self.predicted(x) * posterior(x, self.variance)

    def scores(self, x: Array) -> dict[str, Array]:
        """Return every score at points (n, 2)."""
        logits = two_logits(logit(self.weights, x))
        return {
            "d_star": self.odds(x),
            "alpha": alpha(logits),
            "beta": beta(logits),
            "sr": msp(logits),
            "sr_star": msp(two_logits(posterior(x, self.variance))),
        }


def run(options: Options) -> Report:
    """Train on eight splits for each variance, and compare with the optimum."""
    splits = {
        variance: [
            _split(options, variance, i, (k * SPLITS + i) / (len(VARIANCES) * SPLITS))
            for i in range(SPLITS)
        ]
        for k, variance in enumerate(VARIANCES)
    }
    theirs = paper("gaussian")
    tables = (
        _readings(splits, theirs, options),
        _aurocs(splits, theirs, options),
        _bayes(splits),
        _proposition(splits, theirs),
    )
    words = WORDS.format(
        epochs=EPOCHS,
        rate=RATE,
        type_1=theirs["type_1"],
        type_2=theirs["type_2"],
        total=theirs["type_1"] + theirs["type_2"],
    )
    return Report("gaussian", TITLE, tables, words, (_picture(splits),))


def logit(weights: Array, x: Array) -> Array:
    """Return the logit of class 1 under the linear model."""
    return np.asarray(x @ weights[:2] + weights[2])


def posterior(x: Array, variance: float) -> Array:
    """Return the true logit of class 1: 2 mu'x / variance with mu = (1, 1)."""
    return np.asarray(2 * x.sum(1) / variance)


def two_logits(z: Array) -> Array:
    """Write a binary logit as two."""
    return np.stack([np.zeros_like(z), z], 1)


def bayes_accuracy(variance: float) -> float:
    """Return the accuracy of the Bayes classifier: Phi(|mu| / sd)."""
    return 0.5 * (1 + math.erf(math.sqrt(2 / variance) / math.sqrt(2)))


def _split(options: Options, variance: float, i: int, share: float) -> Split:
    options.tell(share, f"variance {variance:g}, split {i + 1}")
    # The splits of a variance share their points: only the permutation differs.
    rng = np.random.default_rng([options.seed, int(variance)])
    y = np.repeat([-1, 1], POINTS)
    x = y[:, None] + rng.normal(0, math.sqrt(variance), (2 * POINTS, 2))
    order = np.random.default_rng([options.seed, int(variance), i]).permutation(len(x))
    rows, test = order[:TRAIN], order[TRAIN:]
    facts = [options.seed, variance, i, POINTS, TRAIN, EPOCHS, RATE]
    arrays = options.steps.take(
        "split", facts, lambda: {"weights": train(x[rows], y[rows])}
    )
    return Split(arrays["weights"], x[test], y[test], variance)


def train(x: Array, y: Array) -> Array:
    """Return (w1, w2, b) after gradient descent on the logistic loss, row by row."""
    w1 = w2 = b = 0.0
    rows = list(zip(x[:, 0].tolist(), x[:, 1].tolist(), y.tolist(), strict=True))
    for _ in range(EPOCHS):
        for x1, x2, label in rows:
            margin = label * (w1 * x1 + w2 * x2 + b)
            # exp(710) overflows, and the pull is zero long before.
            pull = RATE * label / (1 + math.exp(min(margin, 700)))
            w1, w2, b = w1 + pull * x1, w2 + pull * x2, b + pull
    return np.array([w1, w2, b])


def _readings(
    splits: dict[float, list[Split]], theirs: dict[str, Any], options: Options
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for sigma, variance, reading in READINGS:
        ours = [100 * (1 - s.errors.mean()) for s in splits[variance]]
        bayes = [
            100 * ((posterior(s.x, variance) > 0) == (s.y > 0)).mean()
            for s in splits[variance]
        ]
        printed = theirs["accuracy"][sigma]
        rows += [
            (
                f"sigma {sigma}",
                reading,
                f"{min(printed)}..{max(printed)}",
                f"{min(ours):.1f}..{max(ours):.1f}",
                theirs["bayes"][sigma],
                float(np.mean(bayes)),
                100 * bayes_accuracy(variance),
                _gap(splits[variance], theirs["auroc"][sigma], options),
            )
        ]
    columns = (
        "paper",
        "read as",
        "models\npaper",
        "models\nhere",
        "Bayes\npaper",
        "Bayes\nhere",
        "Bayes\nanalytic",
        "AUROC\ngap",
    )
    title = "Accuracy on the test rows under both readings of sigma, in %"
    return Table(title, columns, tuple(rows))


def _gap(splits: list[Split], printed: dict[str, float], options: Options) -> float:
    """Return how far our AUROCs are from the paper's, on average."""
    ours = [
        100 * np.mean([_auroc(split, name, options) for split in splits])
        for name in SCORES
    ]
    return float(
        np.mean([abs(a - printed[n]) for a, n in zip(ours, SCORES, strict=True)])
    )


def _aurocs(
    splits: dict[float, list[Split]], theirs: dict[str, Any], options: Options
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for sigma, variance, reading in READINGS:
        areas = [
            [_auroc(s, name, options) for name in SCORES] for s in splits[variance]
        ]
        for j, name in enumerate(SCORES):
            values = [100 * row[j] for row in areas]
            rows.append(
                (
                    f"sigma {sigma}",
                    reading,
                    NAMES[name],
                    theirs["auroc"][sigma][name],
                    Estimate(float(np.mean(values)), min(values), max(values)),
                )
            )
    title = f"AUROC, {options.protocol}, mean [least, most] of {SPLITS} splits, in %"
    return Table(title, ("paper", "read as", "score", "paper", "here"), tuple(rows))


def _bayes(splits: dict[float, list[Split]]) -> Table:
    """Return the AUROCs where the model is the Bayes classifier itself."""
    rows: list[tuple[Cell, ...]] = []
    for variance in VARIANCES:
        areas = []
        for split in splits[variance]:
            best = replace(split, weights=np.array([2.0, 2.0, 0.0]) / variance)
            scores = best.scores(best.x)
            areas.append([100 * auroc(scores[n], best.errors) for n in SCORES])
        rows.append((f"variance {variance:g}", *np.mean(areas, axis=0).tolist()))
    columns = ("", *(NAMES[name] for name in SCORES))
    return Table(
        "AUROC where the model decides as Bayes does, in %", columns, tuple(rows)
    )


def _auroc(split: Split, name: str, options: Options) -> float:
    scores = split.scores(split.x)[name]
    if options.protocol == "exact":
        return auroc(scores, split.errors)
    if name in ("d_star", "sr_star"):
        odds = posterior(split.x, split.variance)
        p = 1 / (1 + np.exp(-np.abs(odds)))
        values = p if name == "sr_star" else np.exp(scores)
    else:
        z = two_logits(logit(split.weights, split.x)).astype(np.float32)
        e = np.exp(z - z.max(1, keepdims=True))
        values = published_values(e / e.sum(1, keepdims=True), name)
    return evaluate_grid(values, split.errors, below=name.startswith("sr")).auroc


def quadrature(split: Split) -> tuple[Array, Array, Array]:
    """Return a grid of points, and the densities of correct and wrong predictions."""
    reach = 1 + 7 * math.sqrt(split.variance)  # all but 1e-11 of the mass
    axis = np.linspace(-reach, reach, GRID)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    density = [
        np.exp(-((x - y) ** 2).sum(1) / (2 * split.variance)) for y in (-1.0, 1.0)
    ]
    right = np.where(split.predicted(x) > 0, density[1], density[0])
    wrong = density[0] + density[1] - right
    total = (right + wrong).sum()
    return x, right / total, wrong / total


def least_sum(scores: Array, right: Array, wrong: Array) -> float:
    """Return the smallest Type-I + Type-II error over all thresholds."""
    order = np.argsort(scores, kind="stable")
    correct, errors = right[order] / right.sum(), wrong[order] / wrong.sum()
    ends = np.append(np.diff(scores[order]) > 0, True)  # ties go together
    return float(min(1.0, (np.cumsum(errors) + 1 - np.cumsum(correct))[ends].min()))


def _proposition(splits: dict[float, list[Split]], theirs: dict[str, Any]) -> Table:
    columns = ("what", "variance 2", "variance 4", "variance 16")
    sums = {v: [_sums(s) for s in splits[v]] for v in VARIANCES}
    rows: list[tuple[Cell, ...]] = [
        (rule, *(_mean([row[rule] for row in sums[v]]) for v in VARIANCES))
        for rule in sums[VARIANCES[0]][0]
    ]
    printed = f"{theirs['type_1']} + {theirs['type_2']}"
    rows.append((f"the paper's, at sigma 2: {printed}", None, None, None))
    title = (
        "Type-I + Type-II error (FRR + 1 - TRR), mean over the splits; +- is the 95% "
        "Monte Carlo error of one split"
    )
    return Table(title, columns, tuple(rows))


def _mean(pairs: list[tuple[float, float]]) -> str:
    """Return the mean, and the Monte Carlo error of a single split."""
    value, error = np.mean(pairs, axis=0)
    return f"{value:.4f} +- {error:.4f}" if error else f"{value:.4f}"


def _sums(split: Split) -> dict[str, tuple[float, float]]:
    x, right, wrong = quadrature(split)
    tv = 0.5 * float(np.abs(right / right.sum() - wrong / wrong.sum()).sum())
    errors, odds = split.errors, split.odds(split.x)
    sums = {"1 - TV, by quadrature": (1 - tv, 0.0)}
    n = (~errors).sum(), errors.sum()
    # Definition 1 at gamma = 1 compares with the prior odds, appendix B with 1.
    prior = math.log(errors.mean() / (1 - errors.mean()))
    for rule, cut in (("odds > P1/P0 (Definition 1)", prior), ("odds > 1", 0.0)):
        rejected = odds > cut
        rates = rejected[~errors].mean(), (~rejected)[errors].mean()
        spread = [r * (1 - r) / k for r, k in zip(rates, n, strict=True)]
        sums[f"{rule}, test rows"] = sum(rates), 1.96 * math.sqrt(sum(spread))
        if cut == 0.0:
            for kind, rate in zip(("I", "II"), rates, strict=True):
                sums[f"  of these Type {kind}"] = (float(rate), 0.0)
    for name, scores in split.scores(x).items():
        least = least_sum(scores, right, wrong)
        sums[f"best threshold of {NAMES[name]}, by quadrature"] = (least, 0.0)
    return sums


def _picture(splits: dict[float, list[Split]]) -> Picture:
    at = np.linspace(0, 1, 201)
    panels = []
    for variance in VARIANCES:
        lines = []
        for name in ("d_star", "alpha", "beta", "sr", "sr_star"):
            curves = []
            for split in splits[variance]:
                frr, trr, _ = roc(split.scores(split.x)[name], split.errors)
                curves.append(np.interp(at, frr, trr))
            low, mean, high = (f(curves, axis=0) for f in (np.min, np.mean, np.max))
            points = (tuple(v.tolist()) for v in (at, mean, low, high))
            lines.append(Line(NAMES[name], *points))
        panels.append(Panel(f"variance {variance:g}", "FRR", "TRR", tuple(lines)))
    title = "ROC over eight splits: mean and range"
    return Picture("roc", title, tuple(panels), columns=3)
