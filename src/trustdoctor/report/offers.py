"""What a gate from rows like these would promise, in words: for a page and a terminal.

The words are about the gate that `calibrate` makes, not about the threshold that just
meets a value on these rows: that one promises nothing (docs/guides/usual_threshold.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates import (
    PREVIEW_VALUES,
    Preview,
    Rows,
    draw_from_clusters,
    preview_gates,
    sufficient_rows,
)
from trustdoctor.metrics import ThresholdGrid

NO_OFFER = "These labels cannot be right, so no promise can rest on them."
"""Instead of a gate, where `calibrate` refuses the labels."""

WORTH = 0.1
"""A page does not open with a gate that answers less than this share of the rows."""


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
        What such a gate typically accepts; None where it is seldom made.
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
        Also say how many rows would be enough, where these are too few.

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
    previews = preview_gates(rows, _useful(float(errors.mean())), size=size)
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
    useful = _useful(without)
    values = {"risk": useful["risk"], "frr": useful["frr"]}
    previews = preview_gates(rows, values)
    offers = [
        _offer(preview, _next_likely(preview, previews), rows, count_rows=False)
        for preview in previews
    ]
    return choose_opening(offers, without)


def choose_opening(offers: Sequence[Offer], without: float) -> Offer:
    """Return the offer that a page opens with.

    That is the largest risk of at most half of what it is `without` a gate; where this
    cannot be promised, the smallest that can; where none is worth a gate, few correct
    predictions lost.
    """
    risks = [offer for offer in offers if offer.target == "risk"]
    worthy = [o for o in risks if o.likely and (o.coverage or 0) >= WORTH]
    halved = [o for o in worthy if o.value <= without / 2]
    if halved:
        return halved[-1]
    if worthy:
        return worthy[0]
    frr = [offer for offer in offers if offer.target == "frr"]
    likely = [offer for offer in frr if offer.likely] or frr
    return next((o for o in likely if o.value == 0.05), likely[0])


def without_promise(offers: Sequence[Offer], why: str) -> tuple[Offer, ...]:
    """Return offers of rows whose labels cannot be right: they offer nothing."""
    return tuple(
        replace(offer, likely=False, headline=NO_OFFER, detail=why, coverage=None)
        for offer in offers
    )


def place_of(offer: Offer, chart: ThresholdGrid) -> int:
    """Return which threshold of a chart to show: about where such a gate lies.

    Where no gate is to be expected, the one that just meets the value on these rows.

    Examples
    --------
    >>> from trustdoctor.metrics import threshold_grid
    >>> chart = threshold_grid(np.arange(10.0), np.arange(10) > 7)
    >>> offer = Offer("risk", 0.1, True, "", "", coverage=0.5)
    >>> float(chart.coverage[place_of(offer, chart)])
    0.5
    """
    if offer.coverage is not None:
        return int(np.argmin(np.abs(chart.coverage - offer.coverage)))
    reached: Array = getattr(chart, offer.target)
    if offer.target == "coverage":
        return int(np.argmax(reached >= offer.value - _TINY))
    meets = np.flatnonzero((reached <= offer.value + _TINY) & (chart.coverage > 0))
    if not len(meets):
        return len(reached) - 1
    return int(meets[-1] if offer.target == "risk" else meets[0])


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


def _useful(without: float) -> Mapping[str, Sequence[float]]:
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
    preview: Preview, other: Preview | None, rows: Rows, *, count_rows: bool
) -> Offer:
    look, promise = preview.outlook, _promise(preview.target, preview.value)
    if preview.likely:
        headline = (
            f"With a promise of {promise} (confidence {preview.confidence:.0%}): "
            f"{_percent(look.median)} answered automatically, "
            f"{_percent(1 - look.median)} go to a person."
        )
        detail = _spread(preview)
        return _made(preview, headline, detail, look.median)
    headline = (
        f"{_capital(promise)} cannot be promised with {look.rows:,} rows like these"
    )
    if look.decides >= 0.15:
        headline += " reliably"
    if other is not None:
        easier = _promise(other.target, other.value, short=True)
        headline += f"; {easier} can, for {_percent(other.outlook.median)} of the rows"
    enough = sufficient_rows(rows, preview) if count_rows else None
    detail = (
        f"Simulated: it can be promised in {look.frequency} calibrations on as many "
        "rows"
    )
    if enough is not None:
        detail += f", and in most of those on about {enough:,}"
    elif count_rows:
        detail += ", and no number of rows that was tried is enough"
    coverage = look.median if look.decides >= 0.5 else None
    return _made(preview, f"{headline}.", f"{detail}.", coverage)


def _made(
    preview: Preview, headline: str, detail: str, coverage: float | None
) -> Offer:
    return Offer(
        preview.target, preview.value, preview.likely, headline, detail, coverage
    )


def _spread(preview: Preview) -> str:
    """Say how much a gate from other rows may differ."""
    look = preview.outlook
    low, high = _percent(look.low), _percent(look.high)
    each = f"{low} of the rows" if low == high else f"between {low} and {high}"
    words = (
        f"Simulated: four of five such gates, each made from {look.rows:,} rows like "
        f"these, answer {each}"
    )
    if look.decides < 0.95:
        words += f"; it can be promised in {look.frequency} calibrations"
    return f"{words}."


def _promise(target: str, value: float, *, short: bool = False) -> str:
    percent = f"{100 * value:.6g}%"
    if target == "coverage":
        percent = f"{100 * (1 - value):.6g}%"
    return percent if short else _PROMISES[target].format(percent)


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


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
