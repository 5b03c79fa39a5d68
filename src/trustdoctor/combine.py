"""Two scores mixed into one, the mixture chosen on some rows and judged on others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trustdoctor.curves import Array
from trustdoctor.errors import InputError
from trustdoctor.estimate import Estimate
from trustdoctor.intervals import delong, delong_difference
from trustdoctor.metrics import auroc
from trustdoctor.predictions import as_errors, as_scores


@dataclass(frozen=True)
class Combination:
    """What `combine` found.

    Attributes
    ----------
    names : tuple of str
        The two scores.
    weight : float
        Of the second; the doubt is (1 - weight) first + weight second.
    n_chosen, n_judged : int
        Rows that chose the weight, and other rows that judge it.
    auroc : dict of str to Estimate
        Of "combined" and of each score alone, on the judging rows.
    gains : dict of str to Estimate
        AUROC of the combination less that of each score, paired.
    """

    names: tuple[str, str]
    weight: float
    n_chosen: int
    n_judged: int
    auroc: dict[str, Estimate]
    gains: dict[str, Estimate]

    def function(self, first: Any, second: Any) -> Array:
        """Mix two scores of the same rows."""
        return mix(as_scores(first), as_scores(second), self.weight)

    def verdict(self) -> str:
        """Say whether the combination brought anything."""
        better = [n for n in self.names if (self.gains[n].low or 0) > 0]
        parts = ", ".join(
            f"{100 * (g.value or 0):+.2f} [{100 * (g.low or 0):+.2f}, "
            f"{100 * (g.high or 0):+.2f}] over {n}"
            for n, g in self.gains.items()
        )
        mixture = f"Weight {self.weight:g} on {self.names[1]}: AUROC {parts}"
        if len(better) == len(self.names):
            return f"{mixture}. The combination beats both on {self.n_judged:,} rows."
        return (
            f"{mixture}. The combination is not clearly better than the better of the "
            f"two on {self.n_judged:,} rows."
        )


def combine(  # noqa: PLR0913 - options, by keyword only
    first: Any,
    second: Any,
    errors: Any,
    *,
    names: tuple[str, str] = ("alpha", "beta"),
    weights: Sequence[float] = tuple(np.arange(21) / 20),
    seed: int = 0,
) -> Combination:
    """Choose the mixture of two scores by AUROC on half of the rows, judge on the rest.

    Rows are permuted first. The paper names the combination of its two scores as
    future work; this is it, and `verdict` says when it brings nothing.

    Examples
    --------
    >>> errors = np.arange(400) % 4 == 0
    >>> found = combine(errors + 0.1 * np.arange(400), np.zeros(400), errors)
    >>> found.n_chosen, found.n_judged
    (200, 200)
    """
    a, b = as_scores(first), as_scores(second)
    wrong = as_errors(errors, rows=len(a))
    if len(a) != len(b):
        message = f"expected two scores of the same rows, got {len(a)} and {len(b)}."
        raise InputError(message)
    order = np.random.default_rng(seed).permutation(len(a))
    chosen, judged = np.split(order, [len(order) // 2])
    found = [auroc(mix(a[chosen], b[chosen], w), wrong[chosen]) for w in weights]
    weight = float(weights[int(np.argmax(found))])
    mixed, rest = mix(a[judged], b[judged], weight), wrong[judged]
    columns = {"combined": mixed, names[0]: a[judged], names[1]: b[judged]}
    return Combination(
        names=names,
        weight=weight,
        n_chosen=len(chosen),
        n_judged=len(judged),
        auroc={
            name: Estimate(auroc(s, rest), *delong(s, rest))
            for name, s in columns.items()
        },
        gains={
            name: Estimate(
                auroc(mixed, rest) - auroc(columns[name], rest),
                *delong_difference(mixed, columns[name], rest),
            )
            for name in names
        },
    )


def mix(first: Array, second: Array, weight: float) -> Array:
    """Return (1 - weight) first + weight second; an end leaves the other out."""
    if weight in (0, 1):  # 0 times -inf is no number
        return second if weight else first
    return np.asarray((1 - weight) * first + weight * second)
