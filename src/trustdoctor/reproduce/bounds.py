"""Proposition 2, inequality (3) and the Markov bound, on random posteriors."""

import math

import numpy as np

from trustdoctor.curves import Array
from trustdoctor.reproduce.experiment import Options
from trustdoctor.reproduce.report import Cell, Report, Table

TITLE = "Proposition 2 and what follows it (section 3)"
CLASSES = (2, 3, 5, 10, 30, 100, 300, 1000)
ROWS = 1_000_000
SLACK = 1e-12
COLUMNS = (
    "C",
    "posteriors",
    "lower bound",
    "upper bound",
    "1 - g <= 2 Pe",
    "Markov",
    "Renyi",
    "smallest gap to the upper bound",
)
WORDS = (
    "Posteriors are drawn from Dirichlet laws, the model's near the true one or far "
    "from it. Proposition 2 bounds the error probability of the model's decision by "
    "(1 - sqrt g) - Delta and (1 - g) + Delta; for the model's own posterior "
    "Pe <= 1 - g <= 2 Pe. The Markov bound is checked with the mean KL divergence in "
    "the place of the cross-entropy, which is never smaller. The quadratic Renyi "
    "entropy by its standard definition is -log g itself, and at most the Shannon "
    "entropy; the paper prints it with a factor of 2, which does not hold."
)


def run(options: Options) -> Report:
    """Look for a violation among a million pairs of true and model posteriors."""
    rng = np.random.default_rng(options.seed)
    each = ROWS // len(CLASSES)
    rows: list[tuple[Cell, ...]] = []
    for i, classes in enumerate(CLASSES):
        options.tell(i / len(CLASSES), f"{classes} classes")
        broken, tightest = np.zeros(5, int), math.inf
        left = each
        while left > 0:
            n = min(left, max(1, 2_000_000 // classes))
            found, gap = check(*draw(rng, n, classes))
            broken, tightest, left = broken + found, min(tightest, gap), left - n
        counts = [int(count) for count in broken]
        rows.append((classes, each, *counts, f"{tightest:.2e}"))
    table = Table("Violations", COLUMNS, tuple(rows))
    return Report("bounds", TITLE, (table,), WORDS)


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
    pe_model = 1 - model.max(1)
    divergence = np.where(true > 0, true * np.log(true / model), 0).sum(1)
    delta = 2 * np.sqrt(2 * np.maximum(divergence, 0))
    shannon = -(model * np.log(model)).sum(1)
    eta = 0.1
    far = (delta >= 2 * math.sqrt(2 * divergence.mean() / eta)).mean()
    upper = 1 - g + delta - pe
    broken = [
        ((1 - np.sqrt(g)) - delta > pe + SLACK).sum(),
        (upper < -SLACK).sum(),
        ((pe_model > 1 - g + SLACK) | (1 - g > 2 * pe_model + SLACK)).sum(),
        int(far > eta),
        (-np.log(g) > shannon + SLACK).sum(),
    ]
    return np.array(broken), float(upper.min())


def _simplex(weights: Array) -> Array:
    weights = np.maximum(weights, 1e-300)
    return np.asarray(weights / weights.sum(1, keepdims=True))
