"""What the charts of a watch show: its updates, thinned where there are many."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trustdoctor.report.template import MOST_NAME, shorten
from trustdoctor.watch import HistoryEntry, RateEstimate, RateTest, Watch

MOST_POINTS = 400
"""Updates that a chart shows: more lie on top of each other."""

MOST_GROUPS = 5
"""Groups that a chart shows."""

_SURE = 30  # rows from which on a rate says something
_MANY = 40  # windows: more cannot be seen one by one
_FAR = 6.0  # the chart of evidence goes to 1 in 10^6
_DIGITS = 9

Values = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    """One number per update, None where there is none.

    Attributes
    ----------
    name : str
        What it is.
    values, low, high : sequences of float or None
        The ends are empty where there is no interval.
    rows, windows : sequences of int or None
        What an estimate rests on, and its window; empty where there are none. A line
        breaks where the window changes.
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


@dataclass(frozen=True)
class Chart:
    """A chart over the updates.

    Attributes
    ----------
    id, title, axis : str
    unit : str
        "percent", or "chance" for the logarithm (to base 10) of a chance of 1 in N.
    lines : tuple of Line
    limits : tuple of (float, str)
        Lines that it is measured against, and what to write beside them.
    alarms : tuple of (int, str)
        Numbers of updates that brought one, and why.
    notes : tuple of str
    range : (float, float)
        Of the y axis; what lies beyond is drawn at the edge.
    guides : tuple of sequences
        Of these the extremes are kept; by default of all values.
    """

    id: str
    title: str
    axis: str
    unit: str
    lines: tuple[Line, ...]
    limits: tuple[tuple[float, str], ...] = ()
    alarms: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()
    range: tuple[float, float] = (0.0, 1.0)
    guides: tuple[Values, ...] = field(default=(), repr=False)

    @property
    def heads(self) -> list[str]:
        """The columns of its table."""
        named = [
            f"{line.key}: {line.name}" if line.key else line.name for line in self.lines
        ]
        return ["update", "time (UTC)", *named]

    def payload(self, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
        """Return what the script draws."""
        guides = self.guides or tuple(line.values for line in self.lines)
        at = thin(len(entries), guides, [number - 1 for number, _ in self.alarms])
        return {
            "id": self.id,
            "axis": self.axis,
            "unit": self.unit,
            "updates": len(entries),
            "x": [i + 1 for i in at],
            "times": [math.floor(entries[i].time) for i in at],
            "lines": [_picked(line, at) for line in self.lines],
            "limits": [list(limit) for limit in self.limits],
            "alarms": [number for number, _ in self.alarms],
            "range": list(self.range),
        }


def _picked(line: Line, at: list[int]) -> dict[str, Any]:
    def pick(values: Sequence[Any]) -> list[Any]:
        return [_rounded(values[i]) for i in at] if values else []

    return {
        "name": line.name,
        "key": line.key,
        "dots": line.dots,
        "values": pick(line.values),
        "low": pick(line.low),
        "high": pick(line.high),
        "rows": pick(line.rows),
        "windows": pick(line.windows),
    }


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value


def thin(
    n: int, guides: Sequence[Values], always: Iterable[int], most: int = MOST_POINTS
) -> list[int]:
    """Return at most so many of n positions: extremes, ends, and some always.

    Examples
    --------
    >>> thin(9, [[0, 1, 9, 1, 0, -5, 0, 2, 0]], always=[3], most=6)
    [0, 2, 3, 5, 8]
    """
    if n <= most:
        return list(range(n))
    kept = {0, n - 1, *always}
    parts = max(1, (most - len(kept)) // (2 * max(1, len(guides))))
    for guide in guides:
        values = np.array([np.nan if v is None else v for v in guide])
        for part in np.array_split(np.arange(n), parts):
            known = part[~np.isnan(values[part])]
            if len(known):
                kept.add(int(known[values[known].argmin()]))
                kept.add(int(known[values[known].argmax()]))
    return sorted(kept)


def make_charts(
    watch: Watch, entries: Sequence[HistoryEntry], names: Callable[[str], str]
) -> Iterator[Chart]:
    """Yield the charts of a watch; `names` says what a rate is called."""
    for name, test in watch.tests.items():
        if watch.verdict(name) != "cannot tell":  # such numbers mislead
            yield _rate_chart(test, entries, names(name))
            yield _evidence_chart(test, entries, names(name))
    yield from _label_chart(entries)
    yield from _expected_chart(entries)


def shown_groups(test: RateTest) -> list[Any]:
    """Return the groups to show: those of an alarm, then the worst."""
    blamed = () if test.alarm is None else test.alarm.groups
    known = [group for group in blamed if group in test.current]
    return list(dict.fromkeys([*known, *test.worst_groups(MOST_GROUPS)]))[:MOST_GROUPS]


def _rate_chart(test: RateTest, entries: Sequence[HistoryEntry], title: str) -> Chart:
    lines = list(_estimates(test, entries))
    alone = test.groups is None
    side = "high" if test.target.at_least else "low"
    guides = [getattr(line, side) for line in lines]
    if alone:
        guides = [end for line in lines for end in (line.low, line.high)]
    if not test.needs_labels and alone:
        dots = _of_each(entries)
        lines.insert(0, dots)
        guides.append(dots.values)
    return Chart(
        f"rate-{test.name}",
        title,
        "%",
        "percent",
        tuple(lines),
        _limits(test),
        _alarms(test, entries),
        () if alone else ("The bars are the intervals at the end of each window.",),
        _rate_range(lines, [value for value, _ in _limits(test)]),
        tuple(guides),
    )


def _estimates(test: RateTest, entries: Sequence[HistoryEntry]) -> Iterator[Line]:
    if test.groups is None:
        yield _estimate("estimate", "", test.name, entries)
        return
    for group, letter in zip(shown_groups(test), "ABCDE", strict=False):
        name = shorten(group, MOST_NAME)
        yield _estimate(name, letter, f"{test.name}[{group}]", entries)


def _estimate(
    name: str, letter: str, key: str, entries: Sequence[HistoryEntry]
) -> Line:
    seen: list[RateEstimate | None] = [entry.estimates.get(key) for entry in entries]
    if len(seen) > MOST_POINTS:
        seen = _of_windows(seen)
    columns = {
        field: [None if one is None else getattr(one, field) for one in seen]
        for field in RateEstimate._fields
    }
    return Line(
        name,
        columns["value"],
        columns["low"],
        columns["high"],
        columns["n"],
        columns["window"],
        letter,
    )


def _of_windows(seen: list[RateEstimate | None]) -> list[RateEstimate | None]:
    """Return the last estimate of each window alone, where there are many windows."""
    last = {one.window: at for at, one in enumerate(seen) if one is not None}
    if len(last) < _MANY:
        return seen
    kept = set(last.values())
    return [one if at in kept else None for at, one in enumerate(seen)]


def _of_each(entries: Sequence[HistoryEntry]) -> Line:
    return Line(
        "this update",
        [entry.accepted / entry.rows if entry.rows else None for entry in entries],
        rows=[entry.rows or None for entry in entries],
        dots=True,
    )


def _limits(test: RateTest) -> tuple[tuple[float, str], ...]:
    ends = ((test.low, "at least", 0.0), (test.high, "at most", 1.0))
    return tuple(
        (end, f"{how} {round(100 * end, 2):g}%")
        for end, how, nothing in ends
        if end != nothing
    )


def _alarms(
    test: RateTest, entries: Sequence[HistoryEntry]
) -> tuple[tuple[int, str], ...]:
    why = "" if test.alarm is None else shorten(test.alarm.reason)
    return tuple(
        (number, f"Alarm at update {number:,}, {entry.when:%Y-%m-%d %H:%M} UTC: {why}.")
        for number, entry in enumerate(entries, 1)
        if test.name in entry.alarms
    )


def _rate_range(lines: Sequence[Line], limits: Sequence[float]) -> tuple[float, float]:
    """Return the range of what is known well: the limits and the ends of windows."""
    known = [value for line in lines for value in _sure(line, _SURE)]
    known = known or [value for line in lines for value in _sure(line, 0)]
    every = [*known, *limits]
    if not every:
        return 0.0, 1.0
    low, high = min(every), max(every)
    room = max(0.08 * (high - low), 0.002)
    return max(0.0, low - room), min(1.0, high + room)


def _sure(line: Line, least: int) -> Iterator[float]:
    """Yield values of enough rows, and the interval at the end of each window."""
    last: dict[Any, int] = {}
    for at, value in enumerate(line.values):
        if value is not None and (not line.rows or (line.rows[at] or 0) >= least):
            yield value
            last[line.windows[at] if line.windows else at] = at
    for at in last.values() if line.low else ():
        for end in (line.low[at], line.high[at]):
            if end is not None:
                yield end


def _evidence_chart(
    test: RateTest, entries: Sequence[HistoryEntry], title: str
) -> Chart:
    logs = [entry.evidence.get(test.name) for entry in entries]
    tens = [None if log is None else max(0.0, log / math.log(10)) for log in logs]
    limit = test.limit / math.log(10)
    reach = max([limit * 1.3, *(ten for ten in tens if ten is not None)])
    top = max(_FAR, limit * 1.3)
    notes = ("What is rarer still is drawn at the upper edge.",) if reach > top else ()
    return Chart(
        f"evidence-{test.name}",
        f"{title}: how surprising it is",
        "1 in so many cases",
        "chance",
        (Line("chance", tens),),
        ((limit, f"alarm at 1 in {1 / test.level:,.0f}"),),
        _alarms(test, entries),
        notes,
        (0.0, min(reach, top)),
    )


def _label_chart(entries: Sequence[HistoryEntry]) -> Iterator[Chart]:
    """Yield the shares of rows drawn for review that have no label, if any."""
    if not any(entry.waiting or entry.unresolved for entry in entries):
        return
    waiting = np.array([entry.waiting for entry in entries])
    lost = np.cumsum([entry.unresolved for entry in entries])
    drawn = np.cumsum([entry.labels for entry in entries]) + lost + waiting
    shares = [
        [
            part / whole if whole else None
            for part, whole in zip(own, drawn, strict=True)
        ]
        for own in (waiting.tolist(), lost.tolist())
    ]
    lines = (
        Line("waiting", shares[0], key="W"),
        Line("given up", shares[1], key="G"),
    )
    yield Chart(
        "labels",
        "Rows drawn for review that have no label",
        "% of those drawn so far",
        "percent",
        lines,
        notes=("Rows given up count in the promise's favour.",),
        range=(0.0, _rate_range(lines, [0.0])[1]),
    )


def _expected_chart(entries: Sequence[HistoryEntry]) -> Iterator[Chart]:
    """Yield what the model expects of itself, where it does."""
    for name in ("accuracy", "risk"):
        ends = [entry.expected.get(name) for entry in entries]
        if not any(ends):
            continue
        value, low, high = (
            [None if end is None else end[place] for end in ends] for place in range(3)
        )
        line = Line("expected", value, low, high)
        yield Chart(
            f"expected-{name}",
            f"Expected {name}, by the model's own probabilities: no guarantee",
            "%",
            "percent",
            (line,),
            notes=(
                "No guarantee: a model that is sure of its new errors expects none.",
            ),
            range=_rate_range([line], []),
        )
