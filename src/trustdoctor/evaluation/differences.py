"""Differences between scores, and which score ranks errors clearly better."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

from trustdoctor.kernels import map_threads
from trustdoctor.metrics import (
    Estimate,
    Points,
    Ranking,
    auroc_difference,
    few_note,
    frr_difference,
    frr_parts,
    normal_quantile,
)
from trustdoctor.scores import Score, same_ranking

CLEAR_GAIN = 0.005
"""A gain in AUROC that is worth a word, where it is clear."""


@dataclass(frozen=True, kw_only=True)
class Difference(Estimate):
    """A metric of one score less that of another, on the same rows."""

    metric: str
    first: str
    second: str


def paired_differences(
    scores: Sequence[Score],
    rankings: dict[str, Ranking],
    points: Points,
    confidence: float,
) -> tuple[Difference, ...]:
    """Return AUROC and FRR at a TRR of each score less those of each later one."""
    first = next(iter(rankings.values()))
    wrong = first.wrong
    if wrong.all() or not wrong.any():
        return ()
    c, level, trr = first.counts, confidence, points.trr
    note = few_note(int(c.n_errors), int(c.n_correct))
    parts = {
        name: frr_parts(ranking, trr=trr, confidence=level)
        for name, ranking in rankings.items()
    }

    def differ(pair: tuple[Score, Score]) -> tuple[Difference, Difference]:
        a, b = (score.name for score in pair)
        gap = auroc_difference(rankings[a], rankings[b], confidence=level)
        change = frr_difference(parts[a], parts[b], wrong)
        return (
            difference("auroc", a, b, replace(gap, note=note)),
            difference("frr_at_trr", a, b, replace(change, note=note or change.note)),
        )

    pairs = [pair for pair in combinations(scores, 2) if not same_ranking(*pair)]
    return tuple(chain.from_iterable(map_threads(differ, pairs)))


def unpaired_differences(
    ready: Sequence[Score], scores: dict[str, dict[str, Estimate]]
) -> tuple[Difference, ...]:
    """Return differences whose intervals hold whatever two scores share."""
    out = []
    pairs = [pair for pair in combinations(ready, 2) if not same_ranking(*pair)]
    for pair in pairs:
        a, b = (score.name for score in pair)
        for metric in ("auroc", "frr_at_trr"):
            first, second = scores[a][metric], scores[b][metric]
            if first.value is None or second.value is None:
                return ()
            change = first.value - second.value
            ends = (first.low, first.high, second.low, second.high)
            low, high, least, most = (end or 0.0 for end in ends)
            gap = Estimate(change, low - most, high - least, first.note)
            out.append(difference(metric, a, b, gap))
    return tuple(out)


def difference(metric: str, first: str, second: str, gap: Estimate) -> Difference:
    """Say of which metric and which scores a gap is."""
    return Difference(
        value=gap.value,
        low=gap.low,
        high=gap.high,
        note=gap.note,
        metric=metric,
        first=first,
        second=second,
    )


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
