"""Differences between scores, and which score ranks errors clearly better."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations

from trustdoctor.errors import InputError
from trustdoctor.kernels import map_threads
from trustdoctor.metrics import (
    AREAS,
    Estimate,
    PairedFrr,
    Points,
    Ranking,
    area_difference,
    auroc_difference,
    few_note,
    frr_difference,
    normal_quantile,
    paired_frr,
    risk_difference,
)
from trustdoctor.scores import Score, same_ranking

# With many rows a gain is clear long before it matters to anybody.
CLEAR_GAIN = 0.005
"""The least gain in AUROC that is reported, where it is clear."""


@dataclass(frozen=True, kw_only=True)
class Difference(Estimate):
    """A metric of one score less that of another, on the same rows."""

    metric: str
    first: str
    second: str


def paired_differences(
    scores: Mapping[str, Score | None],
    frr: dict[str, PairedFrr],
    *,
    confidence: float,
) -> tuple[Difference, ...]:
    """Return AUROC and FRR at a TRR of each score less those of each later one.

    `frr` holds, by the score's name, its ranking and what its FRR leaves open.
    """

    def compare(pair: tuple[str, str]) -> tuple[Difference, Difference]:
        first, second = pair
        rankings = frr[first].ranking, frr[second].ranking
        counts = rankings[0].counts
        note = few_note(int(counts.n_errors), int(counts.n_correct))
        auroc = auroc_difference(*rankings, confidence=confidence)
        rate = frr_difference(frr[first], frr[second], rankings[0].wrong)
        return (
            _difference("auroc", first, second, replace(auroc, note=note)),
            _difference(
                "frr_at_trr", first, second, replace(rate, note=note or rate.note)
            ),
        )

    return tuple(chain.from_iterable(map_threads(compare, distinct_pairs(scores))))


def unpaired_differences(
    scores: Mapping[str, Score | None], estimates: dict[str, dict[str, Estimate]]
) -> tuple[Difference, ...]:
    """Return the same from the estimates alone, where no rows are at hand.

    Their intervals hold whatever two scores have in common: the ends of the two
    intervals that are farthest apart.
    """
    # Counts of each score alone do not tell which rows both rank high, so DeLong's
    # covariance (Biometrics, 1988) cannot be estimated.
    differences = []
    for a, b in distinct_pairs(scores):
        for metric in ("auroc", "frr_at_trr"):
            first, second = estimates[a][metric], estimates[b][metric]
            if first.value is None or second.value is None:
                return ()
            gap = Estimate(
                first.value - second.value,
                (first.low or 0.0) - (second.high or 0.0),
                (first.high or 0.0) - (second.low or 0.0),
                note=first.note,
            )
            differences.append(_difference(metric, a, b, gap))
    return tuple(differences)


def distinct_pairs(scores: Mapping[str, Score | None]) -> list[tuple[str, str]]:
    """Return all pairs of names but those whose scores rank any rows alike.

    None stands for scores of the user's own, of which nothing is known.
    """
    return [
        (a, b)
        for (a, first), (b, second) in combinations(scores.items(), 2)
        if first is None or second is None or not same_ranking(first, second)
    ]


def ranking_difference(
    metric: str, first: Ranking, second: Ranking, settings: tuple[Points, float]
) -> Estimate:
    """Return a metric of the first ranking less that of the second, paired."""
    points, confidence = settings
    if metric in AREAS:
        gap = area_difference(metric, first, second, confidence=confidence)
    elif metric == "risk_at_coverage":
        coverage = points.coverage
        gap = risk_difference(first, second, coverage=coverage, confidence=confidence)
    elif metric == "frr_at_trr":
        a, b = (
            paired_frr(ranking, trr=points.trr, confidence=confidence)
            for ranking in (first, second)
        )
        gap = frr_difference(a, b, first.wrong)
    else:
        names = ", ".join((*AREAS, "frr_at_trr", "risk_at_coverage"))
        message = f"expected a metric out of {names}, got {metric!r}."
        raise InputError(message)
    note = few_note(int(first.counts.n_errors), int(first.counts.n_correct))
    return replace(gap, note=note or gap.note)


def _difference(metric: str, first: str, second: str, gap: Estimate) -> Difference:
    return Difference(
        value=gap.value,
        low=gap.low,
        high=gap.high,
        note=gap.note,
        metric=metric,
        first=first,
        second=second,
    )


def better_score_sentence(name: str, gains: dict[str, Estimate], *, rows: str) -> str:
    """Return which score ranks errors clearly better than `name`; "" if none does.

    Parameters
    ----------
    name : str
    gains : dict of str to Estimate
        AUROC of each other score less that of `name`, with simultaneous intervals.
    rows : str
        What they were measured on.

    Examples
    --------
    >>> gains = {"gen": Estimate(0.02, 0.01, 0.03)}
    >>> better_score_sentence("msp", gains, rows="these rows")
    'on these rows gen ranks errors better than msp (AUROC +2.00 [+1.00, +3.00] points)'
    """
    best = clearly_better(gains)
    if best is None:
        return ""
    gain = gains[best].percent(sign=True)
    return f"on {rows} {best} ranks errors better than {name} (AUROC {gain} points)"


def clearly_better(gains: dict[str, Estimate]) -> str | None:
    """Return the score with the largest gain that is clear and worth reporting.

    Examples
    --------
    >>> clearly_better({"gen": Estimate(0.02, 0.01, 0.03), "max": Estimate(0.1, -1, 1)})
    'gen'
    """
    clear = {
        name: gain.value or 0.0
        for name, gain in gains.items()
        if (gain.low or 0) > 0 and (gain.value or 0) >= CLEAR_GAIN
    }
    return max(clear, key=lambda name: clear[name]) if clear else None


def gains_over(
    name: str, differences: Iterable[Difference], *, confidence: float
) -> dict[str, Estimate]:
    """Return AUROC of the other scores less that of one, from paired differences.

    Each interval holds at `confidence` by itself. Widened by the ratio of the normal
    quantiles, all hold together (Bonferroni).
    """
    gains = {}
    for d in differences:
        if d.metric != "auroc" or name not in (d.first, d.second):
            continue
        if d.value is None or d.low is None or d.high is None:
            continue
        if d.second == name:
            gains[d.first] = (d.value, d.low, d.high)
        else:
            gains[d.second] = (-d.value, -d.high, -d.low)
    # Intervals are nearly normal; a ratio of quantiles keeps their skewness.
    level = 1 - (1 - confidence) / max(1, len(gains))
    factor = normal_quantile(level) / normal_quantile(confidence)
    return {
        other: Estimate(
            gain, gain - factor * (gain - low), gain + factor * (high - gain)
        )
        for other, (gain, low, high) in gains.items()
    }
