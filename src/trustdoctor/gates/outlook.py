"""What calibrations on rows like these would give, by drawing such rows again.

The rows are drawn from a population that this sample suggests: correct rows as they
are, errors smoothed over nearby scores (a smoothed bootstrap). Without the smoothing no
drawn sample has an error before the first error of these rows, and the stated shares
would be far from the observed ones (docs/guarantees.md shows both;
benchmarks/guarantees.py, section outlook, measures them).

A promise chosen after a look at several on the same rows is no promise. So a page that
lets a reader choose shows previews: for values fixed in advance, what calibrations on
as many rows give. Rows that had no part in the choice then calibrate the gate.

References
----------
Silverman and Young, The Bootstrap: To Smooth or Not to Smooth?, Biometrika 1987.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from trustdoctor.arrays import Array
from trustdoctor.envelope import MOST_ROWS, Rate
from trustdoctor.gates.request import Request
from trustdoctor.gates.rules import Cut, binomial_cdf, least_rows, threshold_of
from trustdoctor.gates.sample import CountedRows, Sample
from trustdoctor.metrics import Counts

DRAWS = 100
"""Simulated calibrations: a share of them is then known to within 10 points."""

PREVIEW_DRAWS = 50
"""Simulated calibrations for each preview: a page waits for many values."""

LIKELY = 0.8
"""The number of rows suffices if this share of the calibrations decides something."""

MAX_GROWTH = 1_000
"""Numbers of rows up to this many times the sample's are tried."""

PREVIEW_VALUES: Mapping[str, tuple[float, ...]] = {
    "risk": (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3),
    "frr": (0.01, 0.02, 0.05, 0.1, 0.2),
    "coverage": (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99),
}
"""The values that a page offers, fixed in advance."""

_MAX_GROUPS = 1024  # of scores; more change what a gate accepts by less than 0.1%
_NORMAL_SCORES = np.linspace(-8.0, 12.0, 2001)

FindCut = Callable[[Sample], Cut]


class Outlook(NamedTuple):
    """What calibrations on rows like these would give.

    Attributes
    ----------
    rows : int
        The rows of each calibration.
    decides : float
        The share of the calibrations that can promise what was requested, and do not
        accept or reject everything for lack of rows.
    low, median, high : float
        The coverage of these: between `low` and `high` in four of five.
    """

    rows: Annotated[int, Meta(gt=0, lt=MOST_ROWS)]
    decides: Rate
    low: Rate
    median: Rate
    high: Rate

    def words(self) -> str:
        """Say how often a calibration succeeds.

        "About", because a sample may have fewer errors than it should have.

        Examples
        --------
        >>> Outlook(1000, 0.31, 0.2, 0.3, 0.4).words()
        'with 1,000 rows like these in about 3 of 10 calibrations'
        >>> Outlook(50, 0.0, 0.0, 0.0, 0.0).words()
        'with 50 rows like these in none of 10 calibrations'
        """
        return f"with {self.rows:,} rows like these in {self.frequency} calibrations"

    @property
    def frequency(self) -> str:
        """The share of the calibrations that succeed, in words.

        Examples
        --------
        >>> Outlook(1000, 0.05, 0.2, 0.3, 0.4).frequency
        'about 1 of 10'
        """
        if self.decides < 0.05:
            return "none of 10" if self.decides == 0 else "fewer than 1 of 20"
        if self.decides >= 0.95:
            return "nearly all"
        return f"about {math.floor(10 * self.decides + 0.5)} of 10"


def simulate_outlook(
    sample: Sample, find_cut: FindCut, *, rows: int | None = None, draws: int = DRAWS
) -> Outlook:
    """Simulate calibrations by one rule; see `simulate_outlooks`.

    Examples
    --------
    >>> from trustdoctor.gates.risk import risk_cut
    >>> from trustdoctor.gates.sample import Rows
    >>> def rule(sample):
    ...     return risk_cut(sample, 0.1, mode="confidence", delta=0.1)
    >>> easy = Rows(np.arange(500.0), np.arange(500) >= 450)
    >>> simulate_outlook(easy, rule).decides
    1.0
    """
    return simulate_outlooks(sample, [find_cut], rows=rows, draws=draws)[0]


def simulate_outlooks(
    sample: Sample,
    rules: Sequence[FindCut],
    *,
    rows: int | None = None,
    draws: int = DRAWS,
) -> list[Outlook]:
    """Simulate calibrations by several rules, all on the same drawn rows.

    Parameters
    ----------
    sample : Sample
    rules : sequence of callable
        From a sample to its cut.
    rows : int, optional
        The rows of each calibration; by default as many as the sample has.
    draws : int
        The number of calibrations.
    """
    n_rows = len(sample) if rows is None else rows
    return simulate(Population.of(sample), rules, n_rows, draws)


def find_sufficient_rows(
    sample: Sample, find_cut: FindCut, *, draws: int = DRAWS
) -> tuple[Outlook, ...]:
    """Return the outlook with as many rows, and that with the fewest that suffice.

    The second is missing if no number of rows that was tried suffices.
    """
    population = Population.of(sample)
    (present,) = simulate(population, [find_cut], len(sample), draws)
    outlooks = dict[int, Outlook]()

    def is_sufficient(rows: int) -> bool:
        (outlooks[rows],) = simulate(population, [find_cut], rows, draws)
        return outlooks[rows].decides >= LIKELY

    # A rule that mostly decides keeps its promise on the population, and more rows only
    # show that better; so the largest number alone tells whether any suffices, and a
    # binary search finds the least.
    sizes = _round_numbers(len(sample))
    if not sizes or not is_sufficient(sizes[-1]):
        return (present,)
    least = sizes[bisect_left(sizes[:-1], 1, key=is_sufficient)]
    return present, outlooks[least]


def simulate(
    population: "Population",
    rules: Sequence[FindCut],
    rows: int,
    draws: int = DRAWS,
) -> list[Outlook]:
    """Simulate calibrations by several rules, all on the same drawn rows."""
    coverages: list[list[float]] = [[] for _ in rules]
    random = np.random.default_rng(0)  # the same rows give the same outlook
    for _ in range(draws):
        drawn = population.draw(rows, random)
        for rule_coverages, find_cut in zip(coverages, rules, strict=True):
            cut = find_cut(drawn)
            if not cut.failed:
                rule_coverages.append(_coverage(cut, drawn))
    return [
        Outlook(rows, len(rule_coverages) / draws, *_coverage_range(rule_coverages))
        for rule_coverages in coverages
    ]


def _coverage(cut: Cut, sample: CountedRows) -> float:
    if cut.state != "threshold":
        return float(cut.state == "accept-all")
    return sample.confusion(threshold_of(cut, sample)).coverage


def _coverage_range(coverages: list[float]) -> tuple[float, float, float]:
    """Return low, median and high: four of five gates from other rows lie within."""
    if not coverages:
        return 0.0, 0.0, 0.0
    low, median, high = np.quantile(coverages, (0.1, 0.5, 0.9)).tolist()
    # Draws scatter as gates from other rows do about their own median. That median
    # scatters as much from sample to sample, and the two variances add up.
    wider = math.sqrt(2)
    return (
        max(0.0, median - wider * (median - low)),
        median,
        min(1.0, median + wider * (high - median)),
    )


def _round_numbers(rows: int) -> list[int]:
    """Return 1, 2, 3 and 5 times powers of ten above a number of rows."""
    power = math.floor(math.log10(rows))
    numbers = [k * 10**p for p in range(power, power + 4) for k in (1, 2, 3, 5)]
    return [number for number in numbers if rows < number <= MAX_GROWTH * rows]


@dataclass(frozen=True, eq=False)
class Population:
    """Correct and wrong rows at every score, from which samples are drawn.

    Attributes
    ----------
    counts : Counts
    errors : array (groups,)
        The expected number of errors in each group: the observed ones, smoothed.
    """

    counts: Counts
    errors: Array

    @classmethod
    def of(cls, sample: Sample) -> "Population":
        """Return the population that a sample suggests."""
        counts = _merge_groups(sample.counts)
        return cls(counts, _smooth_errors(counts))

    def draw(self, rows: int, random: np.random.Generator) -> CountedRows:
        """Draw a sample."""
        c = self.counts
        weights = np.concatenate([c.correct, self.errors])
        drawn = random.multinomial(rows, weights / weights.sum())
        correct, errors = np.split(drawn, 2)
        filled = correct + errors > 0
        assert c.scores is not None
        return CountedRows(Counts(correct[filled], errors[filled], c.scores[filled]))


def _merge_groups(counts: Counts) -> Counts:
    """Return the counts in at most `_MAX_GROUPS` groups of similar numbers of rows."""
    groups = len(counts.errors)
    if groups <= _MAX_GROUPS:
        return counts
    cumulative = np.cumsum(counts.correct + counts.errors)
    bounds = np.linspace(0, cumulative[-1], _MAX_GROUPS + 1)[1:]
    last = np.unique(np.minimum(np.searchsorted(cumulative, bounds), groups - 1))
    first = np.append(0, last[:-1] + 1)
    assert counts.scores is not None
    return Counts(
        np.add.reduceat(counts.correct, first),
        np.add.reduceat(counts.errors, first),
        counts.scores[last],
    )


def _smooth_errors(counts: Counts) -> Array:
    """Smooth the errors over neighbouring groups, by a normal kernel."""
    from scipy.special import ndtr, ndtri

    n_correct, n_errors = counts.n_correct, counts.n_errors
    if not n_correct or not n_errors:
        return counts.errors.astype(float)
    normal_scores, _, spread = _binormal_fit(counts)
    # n^(-1/5) is the usual order of a density's bandwidth (Silverman, Density
    # Estimation, 1986, section 3.4). The factor 0.7 is where stated and observed shares
    # agree best on real files: his 1.06 states too little, 0.4 too much.
    bandwidth = 0.7 * spread * n_errors**-0.2
    upper = ndtri((np.cumsum(counts.correct) + 0.25) / (n_correct + 0.5))
    upper[-1] = math.inf
    groups = np.flatnonzero(counts.errors)
    distances = (upper[:, None] - normal_scores[groups]) / bandwidth
    below = ndtr(distances) @ counts.errors[groups]
    return np.asarray(np.maximum(np.diff(below, prepend=0.0), 0.0))


def _binormal_fit(counts: Counts) -> tuple[Array, float, float]:
    """Return the groups' normal scores, and mean and spread of the errors on them.

    Scores have no scale of their own. By their ranks the correct rows are standard
    normal, and the errors are taken as normal on that scale (the binormal model of ROC
    curves: Dorfman and Alf, 1969).
    """
    from scipy.special import ndtri

    below = np.cumsum(counts.correct) - counts.correct / 2
    normal_scores = ndtri((below + 0.5) / (counts.n_correct + 1))
    # One error more, 1.5 above the correct rows, keeps the fit of few errors sane.
    n = float(counts.n_errors + 1)
    mean = (float(counts.errors @ normal_scores) + 1.5) / n
    squares = float(counts.errors @ (normal_scores - mean) ** 2) + 1
    return normal_scores, mean, math.sqrt(squares / n)


def passed_by_chance(rows: Sample, cut: Cut, risk: float) -> bool:
    """Return whether a gate passed because of an unlikely lack of errors.

    It would have failed with one error among the rows that it accepts, and by a smooth
    fit to all errors, rejected ones included, some were to be expected: a run of rows
    without an error says little if errors begin just after it.

    Examples
    --------
    >>> from trustdoctor.gates.rules import PassedRange
    >>> from trustdoctor.gates.sample import Rows
    >>> separated = Rows(np.arange(300.0), np.arange(300) >= 250)
    >>> cut = Cut(passed=(PassedRange(240, 250, 0.09),))
    >>> passed_by_chance(separated, cut, 0.01)
    False
    >>> scattered = Rows(np.arange(300.0), np.arange(300) % 3 == 2)
    >>> passed_by_chance(scattered, cut, 0.01)
    True
    """
    if not cut.passed or rows.n_errors == len(rows):
        return False
    # Of two tests that end at the same rows, the one that allows more decides.
    farthest = max(cut.passed, key=lambda passed: (passed.last, passed.level))
    if binomial_cdf(1, farthest.last, risk) <= farthest.level:
        return False
    first_tested = max(farthest.first, least_rows(risk, farthest.level))
    expected = _fitted_risk(rows, first_tested / len(rows))
    return (1 - expected) ** first_tested < LIKELY


def _fitted_risk(rows: Sample, coverage: float) -> float:
    """Return the selective risk at a coverage, by the binormal fit."""
    from scipy.special import ndtr

    _, mean, spread = _binormal_fit(rows.counts)
    accuracy = (len(rows) - rows.n_errors + 0.5) / (len(rows) + 1)
    accepted_errors = (1 - accuracy) * ndtr((_NORMAL_SCORES - mean) / spread)
    accepted = accuracy * ndtr(_NORMAL_SCORES) + accepted_errors
    return float(np.interp(coverage, accepted, accepted_errors) / coverage)


@dataclass(frozen=True)
class Preview:
    """What calibrations on rows like these give for one value of a target.

    Attributes
    ----------
    target : str
    value : float
    confidence : float
        The confidence of the promise.
    outlook : Outlook
        What calibrations on as many rows give.
    """

    target: str
    value: float
    confidence: float
    outlook: Outlook

    @property
    def likely(self) -> bool:
        """Whether most calibrations can promise the value."""
        return self.outlook.decides >= LIKELY


def preview_gates(
    rows: Sample,
    values: Mapping[str, Sequence[float]] = PREVIEW_VALUES,
    *,
    confidence: float = 0.9,
    size: int | None = None,
) -> tuple[Preview, ...]:
    """Simulate calibrations on other rows like these, for every value.

    Parameters
    ----------
    rows : Sample
        With errors and correct rows.
    values : dict of str to sequence of float
        The values of each target; each value is requested alone.
    confidence : float
    size : int, optional
        The rows of a calibration; by default as many as these.

    Examples
    --------
    >>> from trustdoctor.gates.sample import Rows
    >>> easy = Rows(np.arange(1000.0), np.arange(1000) >= 900)
    >>> (preview,) = preview_gates(easy, {"risk": [0.05]})
    >>> preview.likely, round(preview.outlook.median, 1)
    (True, 0.9)
    """
    requests = [
        Request({target: value}, confidence=confidence)
        for target, target_values in values.items()
        for value in target_values
    ]
    rules = [request.cut_all for request in requests]
    outlooks = simulate_outlooks(rows, rules, rows=size, draws=PREVIEW_DRAWS)
    return tuple(
        Preview(target, value, confidence, outlook)
        for request, outlook in zip(requests, outlooks, strict=True)
        for target, value in request.target.items()
    )


def more_rows(rows: Sample, preview: Preview) -> list[Outlook]:
    """Return what calibrations on twice and five times as many rows would give."""
    request = Request({preview.target: preview.value}, confidence=preview.confidence)
    population, n = Population.of(rows), preview.outlook.rows
    return [
        simulate(population, [request.cut_all], k * n, PREVIEW_DRAWS)[0] for k in (2, 5)
    ]


def sufficient_rows(rows: Sample, preview: Preview) -> int | None:
    """Return how many rows like these suffice for most calibrations to succeed.

    None if as many as these suffice, or if no number that was tried does.
    """
    request = Request({preview.target: preview.value}, confidence=preview.confidence)
    outlooks = find_sufficient_rows(rows, request.cut_all, draws=PREVIEW_DRAWS)
    return outlooks[1].rows if len(outlooks) > 1 else None
