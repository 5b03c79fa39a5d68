"""Numbers with their intervals: what evaluations are made of."""

from dataclasses import dataclass, field

from trustdoctor import curves, intervals, metrics
from trustdoctor.curves import Array, Counts, count, count_runs
from trustdoctor.intervals import FEW_ERRORS, Interval, Samples
from trustdoctor.metrics import RANK_METRICS, Points
from trustdoctor.sketch import Sketch

FEW = f"few errors: below {FEW_ERRORS} this interval is approximate"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it does not exist, and why.

    Attributes
    ----------
    value, low, high : float or None
        The number and the ends of its interval.
    note : str
        What to know about it; empty most of the time.
    within : float
        How far the value may be from that of the rows themselves; above 0 only where
        rows were counted in ranges of scores.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    within: float = 0.0


@dataclass(frozen=True)
class Settings:
    """How the evaluation was made."""

    points: Points = field(default_factory=Points)
    temperature: float = 1.0
    confidence: float = 0.95
    seed: int = 0


def accuracy(wrong: Array, confidence: float) -> Estimate:
    """Return the share of correct rows."""
    right, n = int((~wrong).sum()), len(wrong)
    low, high = intervals.clopper_pearson(right, n, confidence=confidence)
    return Estimate(right / n, low, high)


def measure_rows(
    scores: Array, wrong: Array, samples: Samples, settings: Settings
) -> dict[str, Estimate]:
    """Return every metric of rank of one score, with its interval."""
    runs, at = count_runs(scores, wrong), settings.points
    exact = {name: float(metric(runs, at)) for name, metric in RANK_METRICS.items()}
    exact["aupr_correct"] = float(curves.aupr(count(scores, wrong).swapped()))
    missing = set(metrics.undefined(runs))
    if runs.n_correct == 0:
        missing.add("aupr_correct")
    out = {}
    for name, value in exact.items():
        if name in missing:
            out[name] = Estimate(None, note="needs rows of both kinds")
            continue
        if runs.n_errors == 0 or runs.n_correct == 0:
            out[name] = Estimate(value, note="no interval: rows of one kind alone")
            continue
        low, high = _interval(name, value, runs, samples, settings)
        note = FEW if _few(runs) and name not in _EXACT_WHEN_FEW else ""
        out[name] = Estimate(value, low, high, note)
    return out


def measure_sketch(sketch: Sketch, settings: Settings) -> dict[str, Estimate]:
    """Return every metric of rank of a sketched score.

    The value stands in the middle of its bounds, and the interval holds both what the
    ranges and what the rows leave open.
    """
    counts, at = sketch.counts, settings.points
    samples = intervals.bootstrap_counts(counts, seed=settings.seed)
    missing = set(metrics.undefined(counts))
    if sketch.n_correct == 0:
        missing.add("aupr_correct")
    out = {}
    for name in (*RANK_METRICS, "aupr_correct"):
        if name in missing:
            out[name] = Estimate(None, note="needs rows of both kinds")
            continue
        least, most = sketch.bounds(name, points=at)
        value, within = (least + most) / 2, (most - least) / 2
        if sketch.n_errors == 0 or sketch.n_correct == 0:
            note = "no interval: rows of one kind alone"
            out[name] = Estimate(value, note=note, within=within)
            continue
        tied = (
            curves.aupr(counts.swapped())
            if name == "aupr_correct"
            else RANK_METRICS[name](counts, at)
        )
        low, high = _interval(name, float(tied), counts, samples, settings)
        low, high = least + low - float(tied), most + high - float(tied)
        note = FEW if _few(counts) and name not in _EXACT_WHEN_FEW else ""
        out[name] = Estimate(value, max(0.0, low), min(1.0, high), note, within)
    return out


_EXACT_WHEN_FEW = ("auroc", "frr_at_trr", "trr_at_frr")
_STRATIFIED = ("frr_at_trr", "trr_at_frr")


def _interval(
    name: str, value: float, runs: Counts, samples: Samples, settings: Settings
) -> Interval:
    at, confidence = settings.points, settings.confidence
    if name == "auroc":
        return intervals.delong_counts(runs, confidence=confidence)
    if name == "frr_at_trr" and _few(runs):
        return intervals.frr_at_trr_few(runs, trr=at.trr, confidence=confidence)
    if name == "trr_at_frr" and _few(runs):
        low, high = intervals.frr_at_trr_few(
            runs.swapped(), trr=1 - at.frr, confidence=confidence
        )
        return 1 - high, 1 - low
    low, high = intervals.quantiles(deviations(name, samples, at), confidence)
    return max(0.0, value + low), min(1.0, value + high)


def deviations(name: str, samples: Samples, at: Points) -> Array:
    """Return how far the metric of each bootstrap sample is from that of the rows."""
    drawn = samples.strata if name in _STRATIFIED else samples.rows
    if name == "aupr_correct":
        return curves.aupr(drawn.swapped()) - curves.aupr(samples.sample.swapped())
    metric = RANK_METRICS[name]
    return metric(drawn, at) - metric(samples.sample, at)


def _few(c: Counts) -> bool:
    return bool(min(c.n_errors, c.n_correct) < FEW_ERRORS)


def around(value: float, drawn: Array, settings: Settings, note: str) -> Estimate:
    """Put an interval around a value from bootstrap deviations."""
    low, high = intervals.quantiles(drawn, settings.confidence)
    return Estimate(value, max(0.0, value + low), value + high, note)


def percent(estimate: Estimate) -> str:
    """Show a share in percent, or a dash where it does not exist."""
    return "-" if estimate.value is None else f"{estimate.value * 100:.2f}"
