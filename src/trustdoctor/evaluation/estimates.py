"""Numbers with their intervals: what evaluations are made of."""

from dataclasses import dataclass, field

from trustdoctor.arrays import Array
from trustdoctor.errors import InputError
from trustdoctor.metrics import (
    FEW_ERRORS,
    RANK_METRICS,
    Counts,
    Estimate,
    Interval,
    Points,
    Samples,
    Share,
    Sketch,
    count,
    count_runs,
    counts,
    intervals,
    resampling,
    share,
    undefined,
)

FEW = f"few errors: below {FEW_ERRORS} this interval is approximate"


@dataclass(frozen=True)
class Settings:
    """How the evaluation was made."""

    points: Points = field(default_factory=Points)
    temperature: float = 1.0
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a seed that no generator takes."""
        if not (isinstance(self.seed, int) and self.seed >= 0):
            message = f"expected a seed of 0 or more, got {self.seed!r}."
            raise InputError(message)


def accuracy(wrong: Array, confidence: float) -> Share:
    """Return the share of correct rows."""
    return share(int((~wrong).sum()), len(wrong), confidence=confidence)


def measure_rows(
    scores: Array, wrong: Array, samples: Samples, settings: Settings
) -> dict[str, Estimate]:
    """Return every metric of rank of one score, with its interval."""
    runs, at = count_runs(scores, wrong), settings.points
    exact = {name: float(metric(runs, at)) for name, metric in RANK_METRICS.items()}
    exact["aupr_correct"] = float(counts.aupr(count(scores, wrong).swapped()))
    missing = set(undefined(runs))
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
    cells, at = sketch.counts, settings.points
    samples = resampling.bootstrap_counts(cells, seed=settings.seed)
    missing = set(undefined(cells))
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
            counts.aupr(cells.swapped())
            if name == "aupr_correct"
            else RANK_METRICS[name](cells, at)
        )
        low, high = _interval(name, float(tied), cells, samples, settings)
        low, high = least + low - float(tied), most + high - float(tied)
        note = FEW if _few(cells) and name not in _EXACT_WHEN_FEW else ""
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
        return counts.aupr(drawn.swapped()) - counts.aupr(samples.sample.swapped())
    metric = RANK_METRICS[name]
    return metric(drawn, at) - metric(samples.sample, at)


def _few(c: Counts) -> bool:
    return bool(min(c.n_errors, c.n_correct) < FEW_ERRORS)


def around(
    value: float, drawn: Array, settings: Settings, note: str, *, least: float = 0.0
) -> Estimate:
    """Put an interval around a value from bootstrap deviations."""
    low, high = intervals.quantiles(drawn, settings.confidence)
    return Estimate(value, max(least, value + low), value + high, note)


def short(estimate: Estimate) -> str:
    """Show the number alone, in percent; a dash where it does not exist."""
    return "-" if estimate.value is None else f"{estimate.value * 100:.2f}"
