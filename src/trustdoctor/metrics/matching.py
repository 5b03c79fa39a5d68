"""The temperature at which the mean confidence is a known accuracy."""

import math

import numpy as np

from trustdoctor.arrays import Array, as_real
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.scores import beta

COLDEST, HOTTEST = 1e-6, 1e6
"""Temperatures beyond them make every row certain, or every class alike."""


def top_probability(rows: Array | Predictions, *, temperature: float = 1.0) -> Array:
    """Return the largest softmax probability of each row of logits, in float64.

    Examples
    --------
    >>> top_probability(np.log([[0.8, 0.2]])).round(6)
    array([0.8])
    """
    doubt = beta(rows, temperature=temperature).astype(np.float64)
    return np.asarray(1 / (1 + np.exp(doubt)))  # beta is at most log(C - 1)


def matching_temperature(rows: Array | Predictions, accuracy: float) -> float:
    """Return the temperature at which the mean confidence is the accuracy.

    The confidence of every row falls as the temperature rises, so there is one at most.

    Examples
    --------
    >>> z = 3 * np.log([[0.8, 0.2], [0.6, 0.4]])
    >>> round(matching_temperature(z, 0.7), 6)
    3.0
    """
    accuracy = as_real(accuracy, "accuracy")
    low, high = math.log(COLDEST), math.log(HOTTEST)
    most, least = (_mean_confidence(rows, end) for end in (low, high))
    if not least < accuracy < most:
        message = (
            f"no temperature makes the mean confidence {accuracy:.4g}: expected an "
            f"accuracy between {least:.4g} and {most:.4g}. Check it, and the order of "
            "the classes."
        )
        raise InputError(message)
    for _ in range(42):  # to 1e-11 of the temperature
        middle = (low + high) / 2
        if _mean_confidence(rows, middle) > accuracy:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _mean_confidence(rows: Array | Predictions, warmth: float) -> float:
    """Return the mean confidence at a temperature, given by its logarithm."""
    return float(top_probability(rows, temperature=math.exp(warmth)).mean())
