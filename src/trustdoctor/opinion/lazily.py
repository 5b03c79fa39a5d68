"""Asking in turn, and only about rows still in doubt: one runner for all that asks."""

from collections.abc import Callable

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.predictions import Predictions

LEAST = 40.0
"""How far below the top a logit may be, where a probability of 0 stands for it."""

Ask = Callable[[int, Array], Predictions]
"""From the number of the pass and some rows to what is said of them."""

Settle = Callable[[int, Array, Predictions], Array]
"""From the same and what was said to which of the rows need no further pass."""


def ask_lazily(rows: int, passes: int, ask: Ask, settle: Settle) -> None:
    """Ask pass after pass, each about the rows that no pass before has settled.

    A row's answers must not depend on the rows beside it; then asking lazily gives what
    asking about all rows would.
    """
    still = np.arange(rows)
    for k in range(passes):
        if not len(still):
            return
        done = settle(k, still, ask(k, still))
        still = still[~done]


def finite_logits(said: Predictions) -> Array:
    """Return logits that can be averaged: nothing is less than LEAST below the top.

    A probability of 0 would otherwise settle a row by one answer alone.
    """
    z = said.logits.astype(np.float64)
    top = z.max(1, keepdims=True)
    least = LEAST if said.from_probabilities else np.inf
    return np.maximum(np.where(np.isneginf(z), top - LEAST, z), top - least)


def log_softmax(said: Predictions) -> Array:
    """Return the logarithms of probabilities that can be averaged, (n, C)."""
    z = np.ascontiguousarray(finite_logits(said))
    shifted = z - z.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
