"""Proposition 2, inequality (3) and the Markov bound, on random posteriors."""

import math
from functools import partial

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.report import Line, Panel, Picture
from trustdoctor.reproduce.experiment import Arrays, Options
from trustdoctor.reproduce.report import Cell, Report, Table
from trustdoctor.reproduce.sources import Exhibit, find_exhibits

TITLE = "Proposition 2 and what follows it (section 3)"
CLASSES = (2, 3, 5, 10, 30, 100, 300, 1000)
ROWS = 1_000_000
SLACK = 1e-12
"""What rounding may take from an inequality that holds with equality."""

BINS = 40
COLUMNS = (
    "C",
    "posteriors",
    "lower\nbound",
    "upper\nbound",
    "(3)\nupper",
    "(3)\nlower",
    "1 - g\n<= 2 Pe",
    "Markov",
    "Renyi",
    "smallest gap\nto the upper",
)
REAL = ("predictions", "C", "posteriors", "1 - g\n<= 2 Pe", "Renyi")
WORDS = (
    "Posteriors are drawn from Dirichlet laws, the model's near the true one or far "
    "from it. Proposition 2 bounds the error probability of the model's decision by "
    "(1 - sqrt g) - Delta and (1 - g) + Delta. Inequality (3) bounds how often the "
    "model's own draw and the truth disagree on whether the decision is wrong, here "
    "with the two drawn independently. Its upper half holds. Its lower half, "
    "max(Pe, Pe^) - P(Y^ = Y), holds for two classes alone: with three, draw and truth "
    "can be two different wrong classes, and so agree that the decision is wrong, "
    "which the proof in appendix A.3 leaves out. What always holds is |Pe - Pe^|. For "
    "the model's own posterior Pe <= 1 - g <= 2 Pe. The Markov bound takes its "
    "cross-entropy from half of the rows and is checked on the other half; its column "
    "counts samples, the others posteriors. "
    "The quadratic Renyi entropy by its standard definition is -log g itself, and at "
    "most the Shannon entropy; the paper prints it with a factor of 2, which does not "
    "hold. On real predictions (--predictions, --data, --model) the true posterior is "
    "unknown, so only what needs none is checked."
)


def run(options: Options) -> Report:
    """Count violations among a million pairs of true and model posteriors."""
    rows: list[tuple[Cell, ...]] = []
    real = [_real_row(exhibit) for exhibit in find_exhibits(options, labelled=False)]
    extremes_by_classes: dict[int, Array] = {}
    for i, classes in enumerate(CLASSES):
        options.tell(i / len(CLASSES), f"{classes} classes")
        each = ROWS // len(CLASSES)
        facts = [options.seed, classes, each]
        step = partial(_count_violations, *facts)
        arrays = options.steps.take("violations", facts, step)
        counts = [int(count) for count in arrays["counts"]]
        rows.append((classes, each, *counts, f"{float(arrays['gap']):.2e}"))
        extremes_by_classes[classes] = arrays["extremes"]
    tables = [Table("Violations", COLUMNS, tuple(rows))]
    if real:
        title = "Violations on real predictions, by what needs no true posterior"
        tables.append(Table(title, REAL, tuple(real)))
    notes: tuple[str, ...] = ()
    if options.data is not None and not real:
        notes = (f"There are no predictions in {options.data}.",)
    return Report(
        "bounds", TITLE, tuple(tables), WORDS, (_picture(extremes_by_classes),), notes
    )


def _count_violations(seed: int, classes: int, posteriors: int) -> Arrays:
    """Draw posteriors chunk by chunk, of 2,000,000 numbers each."""
    rng = np.random.default_rng([seed, classes])
    counts, smallest_gap = np.zeros(7, int), math.inf
    extremes = np.stack([np.full(BINS, np.inf), np.full(BINS, -np.inf)])
    chunk = max(1, 2_000_000 // classes)
    for start in range(0, posteriors, chunk):
        true, model = draw(rng, min(chunk, posteriors - start), classes)
        chunk_counts, gap = check(true, model)
        counts, smallest_gap = counts + chunk_counts, min(smallest_gap, gap)
        _update_extremes(extremes, model)
    return {"counts": counts, "gap": np.array(smallest_gap), "extremes": extremes}


def _update_extremes(extremes: Array, model: Array) -> None:
    """Note how near the error probability comes to its bounds, by 1 - g."""
    g, pe = (model**2).sum(1), 1 - model.max(1)
    bins = np.minimum(BINS - 1, (BINS * (1 - g)).astype(int))
    np.minimum.at(extremes[0], bins, pe - (1 - np.sqrt(g)))
    np.maximum.at(extremes[1], bins, pe - (1 - g))


def draw(rng: np.random.Generator, n: int, classes: int) -> tuple[Array, Array]:
    """Return true and model posteriors, from equal to unrelated."""
    peak = 10 ** rng.uniform(-2, 1, (n, 1))
    true = _simplex(rng.standard_gamma(np.broadcast_to(peak, (n, classes))))
    other = _simplex(rng.standard_gamma(np.broadcast_to(peak, (n, classes))))
    mix = rng.choice([0.0, 0.01, 0.3, 1.0], (n, 1))
    return true, _simplex((1 - mix) * true + mix * other)


def check(true: Array, model: Array) -> tuple[Array, float]:
    """Count violations of each inequality; return also the smallest upper gap."""
    g = (model**2).sum(1)
    pe = 1 - true[np.arange(len(true)), model.argmax(1)]
    # Pinsker's inequality turns the divergence into Delta, the bound of the paper.
    divergence = np.where(true > 0, true * np.log(true / model), 0).sum(1)
    delta = 2 * np.sqrt(2 * np.maximum(divergence, 0))
    upper = 1 - g + delta - pe
    outside_g, renyi = check_model(model)
    violations = [
        ((1 - np.sqrt(g)) - delta > pe + SLACK).sum(),
        (upper < -SLACK).sum(),
        *_inequality_3(true, model, pe),
        outside_g,
        _markov(true, model, delta),
        renyi,
    ]
    return np.array(violations), float(upper.min())


def _markov(true: Array, model: Array, delta: Array, eta: float = 0.1) -> int:
    """Return 1 if Delta exceeds its Markov bound on more than a share `eta`.

    The cross-entropy that the bound stands on is that of the other half of the rows: on
    the same rows the bound would hold by arithmetic.
    """
    half = len(true) // 2
    if not half:
        return 0
    cross = -np.where(true > 0, true * np.log(model), 0).sum(1)
    bound = 2 * math.sqrt(2 * float(cross[:half].mean()) / eta)
    return int((delta[half:] >= bound).mean() > eta)


def _inequality_3(true: Array, model: Array, pe: Array) -> tuple[int, int]:
    """Count violations of max(Pe, Pe^) - P(Y^ = Y) <= P(E^ != E) <= P(Y^ != Y)."""
    model_pe = 1 - model.max(1)
    agree = (true * model).sum(1)
    apart = pe * (1 - model_pe) + model_pe * (1 - pe)
    upper = apart > 1 - agree + SLACK
    lower = np.maximum(pe, model_pe) - agree > apart + SLACK
    return int(upper.sum()), int(lower.sum())


def check_model(model: Array) -> tuple[int, int]:
    """Count violations of what needs no true posterior: Pe <= 1 - g <= 2 Pe, Renyi."""
    g, pe = (model**2).sum(1), 1 - model.max(1)
    shannon = -(model * np.log(np.maximum(model, 1e-300))).sum(1)
    outside_g = (pe > 1 - g + SLACK) | (1 - g > 2 * pe + SLACK)
    return int(outside_g.sum()), int((-np.log(g) > shannon + SLACK).sum())


def _real_row(exhibit: Exhibit) -> tuple[Cell, ...]:
    model = _simplex(exhibit.clean.softmax().astype(np.float64))
    outside_g, renyi = check_model(model)
    return (exhibit.name, model.shape[1], len(model), outside_g, renyi)


def _picture(extremes_by_classes: dict[int, Array]) -> Picture:
    panels = []
    for classes in (2, 10, 1000):
        counted = np.isfinite(extremes_by_classes[classes][0])
        low, high = extremes_by_classes[classes][:, counted]
        x = (np.arange(BINS)[counted] + 0.5) / BINS
        lower = 1 - np.sqrt(1 - x)
        lines = [("1 - sqrt g", lower), ("1 - g", x)]
        lines += [("least Pe seen", lower + low), ("greatest Pe seen", x + high)]
        curves = tuple(
            Line(label, tuple(x.tolist()), tuple(y.tolist())) for label, y in lines
        )
        title = f"{classes} classes"
        panels.append(
            Panel(title, "1 - g", "error probability of the decision", curves)
        )
    title = "Proposition 2 for a model that is right about itself (Delta = 0)"
    return Picture("bounds", title, tuple(panels), columns=3)


def _simplex(weights: Array) -> Array:
    # Gamma draws of small shape underflow to 0, of which there is no logarithm.
    weights = np.maximum(weights, 1e-300)
    return np.asarray(weights / weights.sum(1, keepdims=True))
