"""Saying that another score ranks errors clearly better than the one in use."""

from collections.abc import Iterable
from typing import Any

from trustdoctor.metrics import Estimate, normal_quantile

CLEAR_GAIN = 0.005
"""A gain in AUROC that is worth a word, where it is clear."""


def say_better(name: str, gains: dict[str, Estimate], *, where: str) -> str:
    """Say which score ranks errors clearly better than `name`; empty where none does.

    Parameters
    ----------
    name : str
    gains : dict of str to Estimate
        AUROC of each other score less that of `name`, with intervals that hold all
        together.
    where : str
        What they were measured on.

    Examples
    --------
    >>> say_better("msp", {"gen": Estimate(0.02, 0.01, 0.03)}, where="these rows")
    'on these rows gen ranks errors better than msp (AUROC +2.00 [+1.00, +3.00] points)'
    """
    best = clearly_better(gains)
    if best is None:
        return ""
    gain = gains[best].percent(sign=True)
    return f"on {where} {best} ranks errors better than {name} (AUROC {gain} points)"


def clearly_better(gains: dict[str, Estimate]) -> str | None:
    """Return the score with the largest gain that is clear and worth a word.

    Examples
    --------
    >>> clearly_better({"gen": Estimate(0.02, 0.01, 0.03), "max": Estimate(0.1, -1, 1)})
    'gen'
    """
    clear = {
        other: gain.value or 0.0
        for other, gain in gains.items()
        if (gain.low or 0) > 0 and (gain.value or 0) >= CLEAR_GAIN
    }
    return max(clear, key=lambda other: clear[other]) if clear else None


def gains_over(
    name: str, differences: Iterable[Any], *, confidence: float
) -> dict[str, Estimate]:
    """Return AUROC of the other scores less that of one, from paired differences.

    Each interval holds at `confidence` by itself; it is widened as the normal quantile
    is, so that all of them hold together.
    """
    found = {}
    for d in differences:
        ends = (d.value, d.low, d.high)
        if d.metric != "auroc" or name not in (d.first, d.second) or None in ends:
            continue
        if d.second == name:
            found[d.first] = ends
        else:
            found[d.second] = (-d.value, -d.high, -d.low)
    level = 1 - (1 - confidence) / max(1, len(found))
    wider = normal_quantile(level) / normal_quantile(confidence)
    return {
        other: Estimate(gain, gain - wider * (gain - low), gain + wider * (high - gain))
        for other, (gain, low, high) in found.items()
    }
