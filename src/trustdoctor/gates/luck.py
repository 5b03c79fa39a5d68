"""Gates that passed only because almost no error was possible at their size."""

import math

import numpy as np

from trustdoctor.gates.rules import Cut, at_most, least_rows
from trustdoctor.gates.sample import Sample

LIKELY = 0.8
"""A gate whose first test passes with this probability is not called luck."""

_SCORES = np.linspace(-8.0, 12.0, 2001)


def is_luck(rows: Sample, cut: Cut, risk: float) -> bool:
    """Tell whether a gate rests on no error, where seeing none was not to be expected.

    It rests on no error where one among the rows that it accepts would have failed.
    What was to be expected is a smooth fit to all errors, those that are rejected
    included: a run of rows without an error says little where errors begin just after.

    Examples
    --------
    >>> from trustdoctor.gates.rules import Stage
    >>> from trustdoctor.gates.sample import Rows
    >>> errors = np.arange(300) >= 250
    >>> apart = Rows(np.arange(300.0), errors)
    >>> is_luck(apart, Cut(stages=(Stage(240, 250, 0.09),)), 0.01)
    False
    >>> often = Rows(np.arange(300.0), np.arange(300) % 3 == 2)
    >>> is_luck(often, Cut(stages=(Stage(240, 250, 0.09),)), 0.01)
    True
    """
    if not cut.stages or rows.n_errors == len(rows):
        return False
    best = max(cut.stages, key=lambda stage: stage.last)
    if at_most(1, best.last, risk) <= best.level:
        return False
    first = max(best.first, least_rows(risk, best.level))
    expected = _fitted_risk(rows, first / len(rows))
    return (1 - expected) ** first < LIKELY


def _fitted_risk(rows: Sample, coverage: float) -> float:
    """Return the risk at a coverage by a binormal fit to the ranks of the errors.

    Correct rows are standard normal by their ranks, errors normal on that scale. One
    error more, 1.5 above, keeps the fit of few errors sane.
    """
    from scipy.special import ndtr, ndtri

    c = rows.counts
    right, wrong = len(rows) - rows.n_errors, rows.n_errors
    below = np.cumsum(c.correct) - c.correct / 2
    places = ndtri((below + 0.5) / (right + 1))
    mean = (float(c.errors @ places) + 1.5) / (wrong + 1)
    spread = math.sqrt((float(c.errors @ (places - mean) ** 2) + 1) / (wrong + 1))
    accuracy = (right + 0.5) / (len(rows) + 1)
    lost = (1 - accuracy) * ndtr((_SCORES - mean) / spread)
    accepted = accuracy * ndtr(_SCORES) + lost
    return float(np.interp(coverage, accepted, lost) / coverage)
