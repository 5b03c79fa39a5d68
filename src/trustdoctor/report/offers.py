"""What a page or a terminal recommends: a score, and what a gate would promise.

The words are about the gate that `calibrate` makes, not about the threshold that just
meets a value on these rows: that one promises nothing (docs/guides/usual_threshold.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.evaluation import Evaluation, gains_over
from trustdoctor.gates import (
    PREVIEW_VALUES,
    Preview,
    Rows,
    draw_from_clusters,
    more_rows,
    preview_gates,
    sufficient_rows,
)
from trustdoctor.metrics import ThresholdGrid
from trustdoctor.report.template import sentence

NO_OFFER = "These labels cannot be right, so no promise can rest on them."
"""Instead of a gate, if `calibrate` refuses the labels."""

WORTH = 0.1
"""A page does not open with a gate that answers less than this share of the rows."""

ROUND_RISKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)

FEW_LABELS = 1000
"""Up to as many rows a page also says what more labels would buy."""

FRR = 0.05
"""What is offered if no such risk can be had."""

PRICE = 20
"""The number of reviews that an error costs as much as, at first."""


@dataclass(frozen=True)
class Offer:
    """One value of a target, and what a gate for it would do.

    Attributes
    ----------
    target : str
    value : float
    likely : bool
        Whether most calibrations on as many rows can promise it.
    headline, detail : str
        In words.
    coverage : float or None
        What such a gate typically accepts; None if it is seldom made.
    """

    target: str
    value: float
    likely: bool
    headline: str
    detail: str
    coverage: float | None


def make_offers(
    scores: Array,
    errors: Array,
    size: int | None = None,
    *,
    clusters: Array | None = None,
    count_rows: bool = False,
) -> tuple[Offer, ...]:
    """Return an offer for every value that makes sense on these rows.

    Parameters
    ----------
    scores : array (n,)
    errors : bool array (n,)
        Some, and not all.
    size : int, optional
        Rows that the gate will be made from; by default as many as these.
    clusters : array (n,), optional
        Of each the gate draws one row, as `calibrate` does.
    count_rows : bool
        Also say how many rows would be enough, if these are too few.

    Examples
    --------
    >>> scores = np.arange(2000.0)
    >>> offers = make_offers(scores, scores >= 1800)
    >>> print(next(o.headline for o in offers if (o.target, o.value) == ("risk", 0.05)))
    With a promise of at most 5% wrong among the automatic answers (confidence 90%): \
90% answered automatically, 10% go to a person.
    """
    rows = _independent(scores, errors, clusters)
    if size is not None:
        size = max(1, size * len(rows) // len(scores))
    previews = preview_gates(rows, _useful_values(float(errors.mean())), size=size)
    return tuple(
        _offer(preview, _next_likely(preview, previews), rows, count_rows=count_rows)
        for preview in previews
    )


def _independent(scores: Array, errors: Array, clusters: Array | None) -> Rows:
    """Return the rows that a gate is made of, one of each cluster."""
    rows = Rows(scores, errors)
    if clusters is None:
        return rows
    return rows[draw_from_clusters(clusters, rows=len(rows))]


def make_opening(scores: Array, errors: Array, clusters: Array | None = None) -> Offer:
    """Return the offer that a page of these rows would open with."""
    rows = _independent(scores, errors, clusters)
    without = float(errors.mean())
    values = _useful_values(without)
    previews = preview_gates(rows, {"risk": values["risk"], "frr": values["frr"]})
    offers = [
        _offer(preview, _next_likely(preview, previews), rows, count_rows=False)
        for preview in previews
    ]
    return choose_opening(offers, without)


def choose_opening(offers: Sequence[Offer], without: float) -> Offer:
    """Return the offer that a page opens with.

    That is the largest risk of at most half of what it is `without` a gate; if this
    cannot be promised, the smallest that can; if none is worth a gate, few correct
    predictions lost.
    """
    risks = [offer for offer in offers if offer.target == "risk"]
    worthy = [o for o in risks if o.likely and (o.coverage or 0) >= WORTH]
    halving = [o for o in worthy if o.value <= without / 2]
    if halving:
        return halving[-1]
    if worthy:
        return worthy[0]
    frr = [offer for offer in offers if offer.target == "frr"]
    likely = [offer for offer in frr if offer.likely] or frr
    return next((o for o in likely if o.value == FRR), likely[0])


def without_promise(offers: Sequence[Offer], reason: str) -> tuple[Offer, ...]:
    """Return offers of rows whose labels cannot be right: they offer nothing."""
    return tuple(
        replace(offer, likely=False, headline=NO_OFFER, detail=reason, coverage=None)
        for offer in offers
    )


def place_of(offer: Offer, grid: ThresholdGrid) -> int:
    """Return which threshold of a grid to show: about where such a gate lies.

    If no gate is to be expected, the one that just meets the value on these rows.

    Examples
    --------
    >>> from trustdoctor.metrics import threshold_grid
    >>> grid = threshold_grid(np.arange(10.0), np.arange(10) > 7)
    >>> offer = Offer("risk", 0.1, True, "", "", coverage=0.5)
    >>> float(grid.coverage[place_of(offer, grid)])
    0.5
    """
    if offer.coverage is not None:
        return int(np.argmin(np.abs(grid.coverage - offer.coverage)))
    rates: Array = getattr(grid, offer.target)
    if offer.target == "coverage":
        return int(np.argmax(rates >= offer.value - _TINY))
    places = np.flatnonzero((rates <= offer.value + _TINY) & (grid.coverage > 0))
    if not len(places):
        return len(rates) - 1
    return int(places[-1] if offer.target == "risk" else places[0])


def about_place(offer: Offer) -> str:
    """Say what the threshold of `place_of` is."""
    return TYPICAL if offer.coverage is not None else USUAL_CHOICE


_TINY = 1e-9  # rates of counts, against decimals

TYPICAL = (
    "About where such a gate lies. What it does to these very rows promises nothing "
    "for others."
)
USUAL_CHOICE = (
    "The threshold that just meets the value on these very rows. Other rows often "
    "break it: it is no promise."
)


def _useful_values(without: float) -> Mapping[str, Sequence[float]]:
    """Return the values that are offered: of risks those below what it is now."""
    risks = [value for value in PREVIEW_VALUES["risk"] if value < without]
    return {**PREVIEW_VALUES, "risk": risks or PREVIEW_VALUES["risk"][:1]}


def _next_likely(preview: Preview, previews: Sequence[Preview]) -> Preview | None:
    """Return the nearest easier value of the same target that can be promised."""
    sign = -1 if preview.target == "coverage" else 1
    easier = [
        other
        for other in previews
        if other.target == preview.target
        and other.likely
        and sign * other.value > sign * preview.value
    ]
    return min(easier, key=lambda other: sign * other.value, default=None)


def _offer(
    preview: Preview, easier: Preview | None, rows: Rows, *, count_rows: bool
) -> Offer:
    """Return a preview in words; `easier` is a value that can be promised."""
    outlook = preview.outlook
    if preview.likely:
        headline, detail = _likely_words(preview), _spread(preview)
        if preview.target == "risk" and len(rows) <= FEW_LABELS:
            detail += _more_labels(rows, preview)
        coverage: float | None = outlook.median
    else:
        headline = _unlikely_words(preview, easier)
        detail = _chances(preview, rows, count_rows=count_rows)
        coverage = outlook.median if outlook.decides >= 0.5 else None
    return Offer(
        preview.target, preview.value, preview.likely, headline, detail, coverage
    )


def _likely_words(preview: Preview) -> str:
    """Say what is promised, and what such a gate answers."""
    promise, coverage = _promise(preview), preview.outlook.median
    return (
        f"With a promise of {promise} (confidence {preview.confidence:.0%}): "
        f"{_percent(coverage)} answered automatically, "
        f"{_percent(1 - coverage)} go to a person."
    )


def _unlikely_words(preview: Preview, easier: Preview | None) -> str:
    """Say what cannot be promised, and what can."""
    outlook = preview.outlook
    words = (
        f"{sentence(_promise(preview))} cannot be promised with {outlook.rows:,} rows "
        "like these"
    )
    if outlook.decides >= 0.15:
        words += " reliably"
    if easier is not None:
        coverage = _percent(easier.outlook.median)
        words += f"; {_promised_percent(easier)} can, for {coverage} of the rows"
    return f"{words}."


def _chances(preview: Preview, rows: Rows, *, count_rows: bool) -> str:
    """Say how often it can be promised, and how many rows would be enough."""
    words = (
        f"Simulated: it can be promised in {preview.outlook.frequency} calibrations on "
        "as many rows"
    )
    if count_rows:
        enough = sufficient_rows(rows, preview)
        words += (
            ", and no number of rows that was tried is enough"
            if enough is None
            else f", and in most of those on about {enough:,}"
        )
    return f"{words}."


def _spread(preview: Preview) -> str:
    """Say how much a gate from other rows may differ."""
    outlook = preview.outlook
    low, high = _percent(outlook.low), _percent(outlook.high)
    answered = f"{low} of the rows" if low == high else f"between {low} and {high}"
    words = (
        f"Simulated: four of five such gates, each made from {outlook.rows:,} rows "
        f"like these, answer {answered}"
    )
    if outlook.decides < 0.95:
        words += f"; it can be promised in {outlook.frequency} calibrations"
    return f"{words}."


def _more_labels(rows: Rows, preview: Preview) -> str:
    """Say what twice and five times as many labels would buy."""
    parts = [
        f"{outlook.rows:,} labels {_percent(outlook.median)} "
        f"[{_percent(outlook.low)}, {_percent(outlook.high)}]"
        for outlook in more_rows(rows, preview)
        if outlook.decides
    ]
    return f" With {', with '.join(parts)}, by the same estimate." if parts else ""


def _promise(preview: Preview) -> str:
    return _PROMISES[preview.target].format(_promised_percent(preview))


def _promised_percent(preview: Preview) -> str:
    value = preview.value
    # A promise of coverage is told as the budget of rows that people review.
    return f"{100 * (1 - value if preview.target == 'coverage' else value):.6g}%"


_PROMISES = {
    "risk": "at most {} wrong among the automatic answers",
    "frr": "at most {} of the right answers lost",
    "coverage": "at most {} of the rows to a person",
}


def _percent(share: float) -> str:
    """Return a share for reading: whole percents, tenths near the ends.

    Examples
    --------
    >>> _percent(0.6612), _percent(0.9965), _percent(1.0)
    ('66%', '99.7%', '100%')
    """
    near = 0 < share < 0.02 or 0.98 < share < 1
    digits = 1 if near and round(share, 2) != share else 0
    return f"{100 * share:.{digits}f}%"


def best_score(evaluation: Evaluation) -> str:
    """Return the first score, or of those that rank errors clearly better the best."""
    first = next(iter(evaluation.scores))
    gains = gains_over(
        first, evaluation.differences, confidence=evaluation.settings.confidence
    )
    clear = {
        name: gain.value or 0.0 for name, gain in gains.items() if (gain.low or 0) > 0
    }
    return max(clear, key=lambda name: clear[name]) if clear else first


def say_alike(evaluation: Evaluation, best: str) -> str:
    """Say in one sentence which scores are as good as the best one here."""
    names = list(evaluation.scores)
    if len(names) < 2:
        return ""
    gains = gains_over(
        best, evaluation.differences, confidence=evaluation.settings.confidence
    )
    worse = [name for name, gain in gains.items() if (gain.high or 0) < 0]
    alike = [name for name in names if name != best and name not in worse]
    if not worse:
        return (
            f"On these rows no score is clearly better than another; {best} is shown."
        )
    if not alike:
        return f"On these rows {best} ranks errors clearly better than all others."
    return (
        f"On these rows {best} ranks errors clearly better than {_enumerated(worse)}, "
        f"and does not differ clearly from {_enumerated(alike)}."
    )


def _enumerated(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def round_risks(without: float) -> list[float]:
    """Return round risks of at most half of that without a gate, the largest first.

    Examples
    --------
    >>> round_risks(0.05)
    [0.02, 0.01, 0.005, 0.002, 0.001]
    """
    return [risk for risk in reversed(ROUND_RISKS) if risk <= without / 2]
