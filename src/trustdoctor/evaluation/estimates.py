"""Numbers with their intervals: what evaluations are made of."""

from dataclasses import dataclass, field

from trustdoctor.arrays import Array
from trustdoctor.metrics import (
    AREAS,
    CROSSINGS,
    RANK_METRICS,
    Counts,
    Estimate,
    Interval,
    Points,
    Share,
    Sketch,
    area_interval,
    counts,
    few_note,
    share,
    undefined,
)

_NO_VALUE = "some metrics need both right and wrong rows"
_NO_INTERVAL = "no interval: all rows are right, or all are wrong"


@dataclass(frozen=True)
class Settings:
    """How the evaluation was made."""

    points: Points = field(default_factory=Points)
    temperature: float = 1.0
    confidence: float = 0.95


def accuracy(wrong: Array, confidence: float) -> Share:
    """Return the share of correct rows."""
    return share(int((~wrong).sum()), len(wrong), confidence=confidence)


def measure_rows(every: Counts, settings: Settings) -> dict[str, Estimate]:
    """Return every metric of rank, with its interval; rows are counted by score."""
    runs, at = every.runs(), settings.points
    missing = _missing(runs)
    out = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            out[name] = Estimate(None, note=_NO_VALUE)
            continue
        value = _value(name, every if name == "aupr_correct" else runs, at)
        if runs.n_errors == 0 or runs.n_correct == 0:
            out[name] = Estimate(value, note=_NO_INTERVAL)
            continue
        ends, note = _interval(name, value, every, settings)
        out[name] = Estimate(value, *ends, note)
    return out


def measure_sketch(sketch: Sketch, settings: Settings) -> dict[str, Estimate]:
    """Return every metric of rank of a sketched score.

    The value stands in the middle of its bounds, and the interval holds both what the
    ranges and what the rows leave open.
    """
    cells, at = sketch.counts, settings.points
    missing = _missing(cells)
    out = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            out[name] = Estimate(None, note=_NO_VALUE)
            continue
        least, most = sketch.bounds(name, points=at)
        value, within = (least + most) / 2, (most - least) / 2
        if sketch.n_errors == 0 or sketch.n_correct == 0:
            note = _NO_INTERVAL
            out[name] = Estimate(value, note=note, within=within)
            continue
        tied = _value(name, cells, at)
        (low, high), note = _interval(name, tied, cells, settings)
        low, high = least + low - tied, most + high - tied
        out[name] = Estimate(value, max(0.0, low), min(1.0, high), note, within)
    return out


def note_of(c: Counts) -> str:
    """Return what to know of intervals of these rows; most of the time nothing."""
    return few_note(int(c.n_errors), int(c.n_correct))


def _missing(c: Counts) -> set[str]:
    """Return the metrics that do not exist on these rows."""
    return {*undefined(c), *(("aupr_correct",) if c.n_correct == 0 else ())}


def _value(name: str, c: Counts, at: Points) -> float:
    if name == "aupr_correct":
        return float(counts.aupr(c.swapped()))
    return float(RANK_METRICS[name](c, at))


def _interval(
    name: str, value: float, c: Counts, settings: Settings
) -> tuple[Interval, str]:
    """Return an interval, and what to know of it."""
    note, level = note_of(c), settings.confidence
    if name in AREAS:
        return area_interval(name, c, confidence=level, value=value), note
    arms = CROSSINGS[name](c, settings.points, level)
    return arms.interval, note or arms.note


def short(estimate: Estimate) -> str:
    """Show the number alone, in percent; a dash where it does not exist."""
    return "-" if estimate.value is None else f"{estimate.value * 100:.2f}"
