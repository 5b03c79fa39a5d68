"""What the charts of a watch show: its updates, thinned out if there are many.

Axes, limits and words are made in `assets/time_series.js`, as for the service's page.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from trustdoctor.report.template import MOST_NAME, shorten
from trustdoctor.watch import HistoryEntry, RateEstimate, RateTest, Watch, wording

MOST_POINTS = 400
"""Updates that a chart shows: more lie on top of each other."""

MOST_GROUPS = 5
"""Groups that a chart shows."""

_MOST_WINDOWS = 40  # more cannot be told apart
_DIGITS = 9

Values = Sequence[float | None]


@dataclass(frozen=True)
class Series:
    """One number per update, None if there is none.

    Attributes
    ----------
    name : str
    values, low, high : sequences of float or None
        The ends of intervals are empty if there are none.
    rows, windows : sequences of int or None
        The rows of an estimate, and its window; empty for other numbers. A line breaks
        where the window changes.
    key : str
        A letter beside the line, by which it is told from others.
    dots : bool
        Whether its points are not joined.
    """

    name: str
    values: Values
    low: Values = ()
    high: Values = ()
    rows: Sequence[int | None] = ()
    windows: Sequence[int | None] = ()
    key: str = ""
    dots: bool = False

    def pick(self, places: list[int]) -> dict[str, Any]:
        """Return some of the numbers, as the script takes them."""
        picked: dict[str, Any] = {"name": self.name}
        picked |= {"key": self.key} if self.key else {}
        picked |= {"dots": True} if self.dots else {}
        for name in ("values", "low", "high", "rows", "windows"):
            numbers = getattr(self, name)
            if numbers:
                picked[name] = [_rounded(numbers[place]) for place in places]
        return picked


def _rounded(number: Any) -> Any:
    return round(number, _DIGITS) if isinstance(number, float) else number


@dataclass(frozen=True)
class Chart:
    """A chart over the updates.

    Attributes
    ----------
    id, title, axis : str
    kind : str
        "rates", or "evidence" for its natural logarithm.
    lines : tuple of Series
    test : dict
        The limits of the test: `low` and `high` of a rate, `limit` of evidence.
    alarms : tuple of (int, str)
        Numbers of updates that brought one, and why.
    notes : tuple of str
    guides : tuple of sequences
        Of these the extremes are kept; by default of all values.
    from_zero : bool
        Whether the axis begins at zero.
    """

    id: str
    title: str
    axis: str
    kind: Literal["rates", "evidence"]
    lines: tuple[Series, ...]
    test: dict[str, float] | None = None
    alarms: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()
    guides: tuple[Values, ...] = field(default=(), repr=False)
    from_zero: bool = False

    @property
    def heads(self) -> list[str]:
        """The columns of its table."""
        names = [
            f"{line.key}: {line.name}" if line.key else line.name for line in self.lines
        ]
        return ["update", "time (UTC)", *names]

    def payload(self, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
        """Return what the script draws."""
        guides = self.guides or tuple(line.values for line in self.lines)
        alarms = [number for number, _ in self.alarms]
        places = thin(len(entries), guides, [number - 1 for number in alarms])
        return {
            "id": self.id,
            "kind": self.kind,
            "axis": self.axis,
            "total": len(entries),
            "updates": [place + 1 for place in places],
            "times": [math.floor(entries[place].time) for place in places],
            "lines": [line.pick(places) for line in self.lines],
            "test": self.test,
            "alarms": alarms,
            "from_zero": self.from_zero,
        }


def thin(
    n: int, guides: Sequence[Values], always: Iterable[int], limit: int = MOST_POINTS
) -> list[int]:
    """Return at most `limit` of n positions: extremes, ends, and some always.

    Examples
    --------
    >>> thin(9, [[0, 1, 9, 1, 0, -5, 0, 2, 0]], always=[3], limit=6)
    [0, 2, 3, 5, 8]
    """
    if n <= limit:
        return list(range(n))
    kept = {0, n - 1, *always}
    n_stretches = max(1, (limit - len(kept)) // (2 * max(1, len(guides))))
    for guide in guides:
        values = np.array([np.nan if value is None else value for value in guide])
        for stretch in np.array_split(np.arange(n), n_stretches):
            places = stretch[~np.isnan(values[stretch])]
            if len(places):
                kept.add(int(places[values[places].argmin()]))
                kept.add(int(places[values[places].argmax()]))
    return sorted(kept)


def make_charts(
    watch: Watch, entries: Sequence[HistoryEntry], title: Callable[[str], str]
) -> Iterator[Chart]:
    """Yield the charts of a watch; `title` returns the name of a rate."""
    for name, test in watch.tests.items():
        if watch.verdict(name) != "cannot tell":  # such numbers mislead
            yield _rate_chart(test, entries, title(name))
            yield _evidence_chart(test, entries, title(name))
    yield from _label_chart(entries)
    yield from _expected_charts(entries)


def _rate_chart(test: RateTest, entries: Sequence[HistoryEntry], title: str) -> Chart:
    lines = list(_estimate_lines(test, entries))
    notes: tuple[str, ...] = ()
    if test.groups is not None:
        notes = ("The bars are the intervals at the end of each window.",)
        side = "high" if test.target.at_least else "low"
        guides = [getattr(line, side) for line in lines]
    else:
        guides = [end for line in lines for end in (line.low, line.high)]
        if not test.needs_labels:
            dots = _update_shares(entries)
            lines.insert(0, dots)
            guides.append(dots.values)
    return Chart(
        f"rate-{test.name}",
        title,
        "%",
        "rates",
        tuple(lines),
        {"low": test.low, "high": test.high},
        _alarms(test, entries),
        notes,
        tuple(guides),
    )


def _estimate_lines(
    test: RateTest, entries: Sequence[HistoryEntry]
) -> Iterator[Series]:
    if test.groups is None:
        yield _estimates("estimate", "", test.name, entries)
        return
    groups = wording.shown_groups(test, MOST_GROUPS)
    for group, letter in zip(groups, "ABCDE", strict=False):
        name = shorten(group, MOST_NAME)
        yield _estimates(name, letter, f"{test.name}[{group}]", entries)


def _estimates(
    name: str, letter: str, key: str, entries: Sequence[HistoryEntry]
) -> Series:
    estimates: list[RateEstimate | None] = [e.estimates.get(key) for e in entries]
    if len(estimates) > MOST_POINTS:
        estimates = _last_of_windows(estimates)
    columns = {
        field: [None if e is None else getattr(e, field) for e in estimates]
        for field in RateEstimate._fields
    }
    return Series(
        name,
        columns["value"],
        columns["low"],
        columns["high"],
        columns["n"],
        columns["window"],
        letter,
    )


def _last_of_windows(estimates: list[RateEstimate | None]) -> list[RateEstimate | None]:
    """Return only the last estimate of each window, if there are many windows."""
    last = {e.window: place for place, e in enumerate(estimates) if e is not None}
    if len(last) < _MOST_WINDOWS:
        return estimates
    places = set(last.values())
    return [e if place in places else None for place, e in enumerate(estimates)]


def _update_shares(entries: Sequence[HistoryEntry]) -> Series:
    """Return the share of the rows that each update accepted."""
    return Series(
        "this update",
        [entry.accepted / entry.rows if entry.rows else None for entry in entries],
        rows=[entry.rows or None for entry in entries],
        dots=True,
    )


def _alarms(
    test: RateTest, entries: Sequence[HistoryEntry]
) -> tuple[tuple[int, str], ...]:
    reason = "" if test.alarm is None else shorten(test.alarm.reason)
    return tuple(
        (
            number,
            f"Alarm at update {number:,}, {entry.when:%Y-%m-%d %H:%M} UTC: {reason}.",
        )
        for number, entry in enumerate(entries, 1)
        if test.name in entry.alarms
    )


def _evidence_chart(
    test: RateTest, entries: Sequence[HistoryEntry], title: str
) -> Chart:
    return Chart(
        f"evidence-{test.name}",
        f"{title}: how surprising it is",
        "1 in N cases",
        "evidence",
        (Series("chance", [entry.evidence.get(test.name) for entry in entries]),),
        {"limit": test.limit},
        _alarms(test, entries),
    )


def _label_chart(entries: Sequence[HistoryEntry]) -> Iterator[Chart]:
    """Yield the shares of rows drawn for review that have no label, if any."""
    if not any(entry.waiting or entry.unresolved for entry in entries):
        return
    waiting = np.array([entry.waiting for entry in entries])
    given_up = np.cumsum([entry.unresolved for entry in entries])
    drawn = np.cumsum([entry.labels for entry in entries]) + given_up + waiting

    def shares(counts: Any) -> list[float | None]:
        pairs = zip(counts.tolist(), drawn.tolist(), strict=True)
        return [count / total if total else None for count, total in pairs]

    yield Chart(
        "labels",
        "Rows drawn for review that have no label",
        "% of those drawn so far",
        "rates",
        (
            Series("waiting", shares(waiting), key="W"),
            Series("given up", shares(given_up), key="G"),
        ),
        notes=("Rows given up count in the promise's favour.",),
        from_zero=True,
    )


def _expected_charts(entries: Sequence[HistoryEntry]) -> Iterator[Chart]:
    """Yield what the model expects of itself, if it does."""
    for name in ("accuracy", "risk"):
        estimates = [entry.expected.get(name) for entry in entries]
        if not any(estimates):
            continue
        value, low, high = (
            [None if estimate is None else estimate[k] for estimate in estimates]
            for k in range(3)
        )
        yield Chart(
            f"expected-{name}",
            f"Expected {name}, by the model's own probabilities: no guarantee",
            "%",
            "rates",
            (Series("expected", value, low, high),),
            notes=(
                "No guarantee: a model that is sure of its new errors expects none.",
            ),
        )
