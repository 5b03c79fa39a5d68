"""What a gate would promise and do if it were made from other rows like these.

A promise that was chosen after a look at several on the same rows is no promise. So a
page that lets a reader choose shows previews: for values that are fixed in advance,
what calibrations on as many rows give. The gate is then made from rows that had no
part in the choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trustdoctor.gates.asked import Ask
from trustdoctor.gates.outlook import LIKELY, Outlook, look_ahead_each, rows_enough
from trustdoctor.gates.sample import Sample

PREVIEW_VALUES: Mapping[str, tuple[float, ...]] = {
    "risk": (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3),
    "frr": (0.01, 0.02, 0.05, 0.1, 0.2),
    "coverage": (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99),
}
"""Values that a page offers. They do not depend on the rows."""


DRAWS = 50
"""Calibrations that are simulated for each value: a page waits for many values."""


@dataclass(frozen=True)
class Preview:
    """What calibrations on rows like these give for one value of a target.

    Attributes
    ----------
    target : str
    value : float
    confidence : float
        Of the promise.
    outlook : Outlook
        Of calibrations on as many rows.
    """

    target: str
    value: float
    confidence: float
    outlook: Outlook

    @property
    def likely(self) -> bool:
        """Whether most calibrations can promise the value."""
        return self.outlook.decides >= LIKELY


def preview_gates(
    rows: Sample,
    values: Mapping[str, Sequence[float]] = PREVIEW_VALUES,
    *,
    confidence: float = 0.9,
    size: int | None = None,
) -> tuple[Preview, ...]:
    """Simulate calibrations on other rows like these, for every value.

    Parameters
    ----------
    rows : Sample
        With errors and correct rows.
    values : dict of str to sequence of float
        By target, each asked for alone.
    confidence : float
    size : int, optional
        Rows of a calibration; by default as many as these.

    Examples
    --------
    >>> import numpy as np
    >>> from trustdoctor.gates.sample import Rows
    >>> easy = Rows(np.arange(1000.0), np.arange(1000) >= 900)
    >>> (preview,) = preview_gates(easy, {"risk": [0.05]})
    >>> preview.likely, round(preview.outlook.median, 1)
    (True, 0.9)
    """
    requests = [
        Ask({target: value}, confidence=confidence)
        for target, every in values.items()
        for value in every
    ]
    rules = [request.at_once for request in requests]
    looks = look_ahead_each(rows, rules, rows=size, draws=DRAWS)
    return tuple(
        Preview(target, value, confidence, look)
        for request, look in zip(requests, looks, strict=True)
        for target, value in request.target.items()
    )


def rows_for(rows: Sample, preview: Preview) -> int | None:
    """Return how many rows like these are enough for most calibrations to succeed.

    None where no number that was tried is, or where as many as these are.
    """
    request = Ask({preview.target: preview.value}, confidence=preview.confidence)
    looks = rows_enough(rows, request.at_once, draws=DRAWS)
    return looks[1].rows if len(looks) > 1 else None
