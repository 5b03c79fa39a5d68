"""How certain a measured number is: estimates, and the exact interval of a share.

Areas are in `areas.py`, points of curves in `curve_points.py`, differences in
`differences.py`, calibration errors in `reliability.py`. `docs/intervals.md` says how
often each interval covers.
"""

from dataclasses import dataclass

from trustdoctor.arrays import as_real, shown_number
from trustdoctor.errors import InputError

FEW_ROWS = 20
"""With fewer errors, or correct rows, an interval carries a note: docs/intervals.md."""


FEW_NOTE = f"few errors: below {FEW_ROWS} an interval may be too narrow"


def few_note(errors: int, correct: int) -> str:
    """Return a note for intervals that rest on few errors or correct rows, or "".

    Examples
    --------
    >>> few_note(4, 300), few_note(40, 300)
    ('few errors: below 20 an interval may be too narrow', '')
    """
    if errors < FEW_ROWS:
        return FEW_NOTE
    return FEW_NOTE.replace("errors", "correct rows") if correct < FEW_ROWS else ""


Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it does not exist, and why as a note.

    Attributes
    ----------
    value, low, high : float or None
        The number and the ends of its interval.
    n : int or None
        Of a share of rows: of how many.
    note : str
        A reservation; empty most of the time.
    within : float
        How far the value may be from that of the rows themselves; above 0 only where
        rows were counted in ranges of scores.

    Examples
    --------
    >>> Estimate(0.25, 0.2, 0.3).percent()
    '25.00 [20.00, 30.00]'
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""
    within: float = 0.0

    @property
    def count(self) -> int:
        """Of a share of rows: how many of them."""
        return round((self.value or 0.0) * (self.n or 0))

    def percent(self, *, sign: bool = False) -> str:
        """Show the number and its interval in percent; a dash where there is none."""
        if self.value is None:
            return "-"
        form = "+.2f" if sign else ".2f"
        text = f"{self.value * 100:{form}}"
        if self.low is None or self.high is None:
            return text
        return f"{text} [{self.low * 100:{form}}, {self.high * 100:{form}}]"


def share(count: int, n: int, *, confidence: float = 0.95) -> Estimate:
    """Return `count` of `n` rows as a share with its Clopper-Pearson interval.

    Examples
    --------
    >>> share(1, 4).value, share(0, 0).value
    (0.25, None)
    """
    if not n:
        return Estimate(None, n=n)
    low, high = clopper_pearson(count, n, confidence=confidence)
    return Estimate(count / n, low, high, n)


def clopper_pearson(
    successes: float, n: float, *, confidence: float = 0.95
) -> Interval:
    """Exact interval of a rate of `successes` in `n` independent rows.

    Its ends are the rates under which a count at least, or at most, as extreme has
    probability (1 - confidence) / 2: quantiles of beta distributions.

    References
    ----------
    Clopper & Pearson, Biometrika 1934.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 10)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.3085)
    """
    from scipy.special import betaincinv

    tail = (1 - check_confidence(confidence)) / 2
    if not 0 <= successes <= n:
        message = f"expected successes from 0 to n, got {successes!r} of {n!r}."
        raise InputError(message)
    low = betaincinv(successes, n - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, n - successes, 1 - tail) if successes < n else 1.0
    return float(low), float(high)


def normal_quantile(confidence: float) -> float:
    """Return the z for which a normal number lies in [-z, z] with this probability."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))


def check_confidence(confidence: float) -> float:
    """Return a confidence between 0 and 1 as a float; refuse anything else."""
    number = as_real(confidence, "confidence")
    if not 0 < number < 1:
        got = shown_number(confidence)
        message = f"expected a confidence between 0 and 1, got {got}."
        raise InputError(message)
    return number
