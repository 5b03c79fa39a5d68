"""What a calibration on rows like these would give, by drawing such rows again.

The rows are drawn from a population that this sample suggests: correct rows as they
are, errors smoothed over the scores near them. Without the smoothing no drawn sample
has an error before the first one of these rows, and the stated shares would be far
from the observed ones (benchmarks/guarantees.py, section outlook).

References
----------
Silverman and Young, The Bootstrap: To Smooth or Not to Smooth?, Biometrika 1987.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates.rules import Cut, place
from trustdoctor.gates.sample import CountedRows, Sample
from trustdoctor.metrics import Counts

DRAWS = 100
"""Calibrations that are simulated; a share of them is then known to 10 points."""

LIKELY = 0.8
"""Rows are called enough where this share of the calibrations decides something."""

MOST_TIMES = 1_000
"""More rows than these times as many are not looked at."""

_CELLS = 1024  # groups of scores; more change what a gate accepts by less than 0.1%

_KERNEL = 0.7

FindCut = Callable[[Sample], Cut]


class Outlook(NamedTuple):
    """What calibrations on rows like these would give.

    Attributes
    ----------
    rows : int
        Rows of each calibration.
    decides : float
        The share of the calibrations that can promise what was asked, and do not
        accept or reject everything for lack of rows.
    low, median, high : float
        The coverage of those that do: between `low` and `high` in four of five.
    """

    rows: int
    decides: float
    low: float
    median: float
    high: float

    def words(self) -> str:
        """Say how often a calibration succeeds.

        "About", because one sample can be lucky: see docs/guarantees.md.

        Examples
        --------
        >>> Outlook(1000, 0.31, 0.2, 0.3, 0.4).words()
        'with 1,000 rows like these in about 3 of 10 calibrations'
        >>> Outlook(50, 0.0, 0.0, 0.0, 0.0).words()
        'with 50 rows like these in none of 10 calibrations'
        """
        return f"with {self.rows:,} rows like these in {self.often} calibrations"

    @property
    def often(self) -> str:
        """How many calibrations succeed, in words.

        Examples
        --------
        >>> Outlook(1000, 0.05, 0.2, 0.3, 0.4).often
        'about 1 of 10'
        """
        if self.decides < 0.05:
            return "none of 10" if self.decides == 0 else "fewer than 1 of 20"
        if self.decides >= 0.95:
            return "nearly all"
        return f"about {math.floor(10 * self.decides + 0.5)} of 10"


def look_ahead(
    sample: Sample, find_cut: FindCut, *, rows: int | None = None, draws: int = DRAWS
) -> Outlook:
    """Simulate calibrations on as many rows like these, or on another number of them.

    Parameters
    ----------
    sample : Sample
    find_cut : callable
        The rule: from a sample to its cut.
    rows : int, optional
        Of each calibration; by default as many as the sample has.
    draws : int

    Examples
    --------
    >>> from trustdoctor.gates.risk import risk_sequence
    >>> from trustdoctor.gates.sample import Rows
    >>> def rule(sample):
    ...     return risk_sequence(sample, 0.1, delta=0.1, min_coverage=0.3)
    >>> easy = Rows(np.arange(500.0), np.arange(500) >= 450)
    >>> look_ahead(easy, rule).decides
    1.0
    """
    return look_ahead_each(sample, [find_cut], rows=rows, draws=draws)[0]


def look_ahead_each(
    sample: Sample,
    rules: Sequence[FindCut],
    *,
    rows: int | None = None,
    draws: int = DRAWS,
) -> list[Outlook]:
    """Simulate calibrations by several rules, all on the same drawn rows."""
    size = len(sample) if rows is None else rows
    return _look(Population.of(sample), rules, size, draws)


def rows_enough(
    sample: Sample, find_cut: FindCut, *, draws: int = DRAWS
) -> tuple[Outlook, ...]:
    """Return the outlook on as many rows, and on so many that most calibrations decide.

    The second is missing where no number of rows that was tried is enough.
    """
    population = Population.of(sample)
    (first,) = _look(population, [find_cut], len(sample), draws)
    looks = dict[int, Outlook]()

    def likely(rows: int) -> bool:
        (looks[rows],) = _look(population, [find_cut], rows, draws)
        return looks[rows].decides >= LIKELY

    # A rule that mostly decides keeps its promise on the population, and more rows only
    # show that better; so the largest number alone tells whether any is enough.
    numbers = _round_numbers(len(sample))
    if not numbers or not likely(numbers[-1]):
        return (first,)
    at = bisect_left(numbers[:-1], 1, key=likely)
    return first, looks[numbers[at]]


def fails(cut: Cut) -> bool:
    """Tell whether a calibration could not promise what was asked."""
    return cut.short or cut.broken or cut.state == "reject-all"


def _look(
    population: "Population", rules: Sequence[FindCut], rows: int, draws: int
) -> list[Outlook]:
    """Simulate calibrations by several rules, all on the same drawn rows."""
    coverages: list[list[float]] = [[] for _ in rules]
    random = np.random.default_rng(0)  # the same rows get the same answer
    for _ in range(draws):
        drawn = population.draw(rows, random)
        for accepted, find_cut in zip(coverages, rules, strict=True):
            cut = find_cut(drawn)
            if not fails(cut):
                accepted.append(_coverage(cut, drawn))
    return [
        Outlook(rows, len(accepted) / draws, *_ends(accepted)) for accepted in coverages
    ]


def _ends(coverages: list[float]) -> tuple[float, float, float]:
    """Return between what four of five gates from other rows lie, and the middle.

    Draws scatter as such gates do about their own middle. That middle lies elsewhere
    for other rows, and scatters as much; so both together scatter by a factor of
    sqrt(2) more than the draws.
    """
    if not coverages:
        return 0.0, 0.0, 0.0
    low, median, high = np.quantile(coverages, (0.1, 0.5, 0.9)).tolist()
    wider = math.sqrt(2)
    return (
        max(0.0, median - wider * (median - low)),
        median,
        min(1.0, median + wider * (high - median)),
    )


def _round_numbers(rows: int) -> list[int]:
    """Return 1, 2, 3 and 5 times powers of ten above a number of rows."""
    least = math.floor(math.log10(rows))
    steps = [k * 10**power for power in range(least, least + 4) for k in (1, 2, 3, 5)]
    return [step for step in steps if rows < step <= MOST_TIMES * rows]


def _coverage(cut: Cut, sample: CountedRows) -> float:
    if cut.state != "threshold":
        return float(cut.state == "accept-all")
    counts = sample.confusion(place(cut, sample))
    return counts.coverage


@dataclass(frozen=True, eq=False)
class Population:
    """Correct and wrong rows at every score, from which samples are drawn.

    Attributes
    ----------
    counts : Counts
    errors : array (groups,)
        How many errors are expected in each group: those seen, smoothed.
    """

    counts: Counts
    errors: Array

    @classmethod
    def of(cls, sample: Sample) -> "Population":
        """Return what a sample shows, in at most `_CELLS` groups."""
        counts = _merged(sample.counts)
        return cls(counts, _smoothed_errors(counts))

    def draw(self, rows: int, random: np.random.Generator) -> CountedRows:
        """Draw a sample."""
        c = self.counts
        shares = np.concatenate([c.correct, self.errors])
        drawn = random.multinomial(rows, shares / shares.sum())
        correct, errors = np.split(drawn, 2)
        filled = correct + errors > 0
        assert c.highest is not None
        return CountedRows(Counts(correct[filled], errors[filled], c.highest[filled]))


def _merged(counts: Counts) -> Counts:
    """Count neighbouring groups together where there are many, about equal in rows."""
    groups = len(counts.errors)
    if groups <= _CELLS:
        return counts
    through = np.cumsum(counts.correct + counts.errors)
    ends = np.searchsorted(through, np.linspace(0, through[-1], _CELLS + 1)[1:])
    ends = np.unique(np.minimum(ends, groups - 1))
    starts = np.append(0, ends[:-1] + 1)
    assert counts.highest is not None
    return Counts(
        np.add.reduceat(counts.correct, starts),
        np.add.reduceat(counts.errors, starts),
        counts.highest[ends],
    )


def _smoothed_errors(counts: Counts) -> Array:
    """Smooth the errors over neighbouring groups, by a normal kernel.

    Scores have no scale of their own, so the kernel lives on the normal scores of the
    correct rows (as in `luck`). Its width is 0.7 sd m^(-1/5) for m errors: of the usual
    order for a density, and with this factor stated and observed shares agree best on
    real files; 1.06, the usual factor, states too little, 0.4 too much.
    """
    from scipy.special import ndtr, ndtri

    right, wrong = counts.n_correct, counts.n_errors
    if not right or not wrong:
        return counts.errors.astype(float)
    through = np.cumsum(counts.correct)
    places = ndtri((through - counts.correct / 2 + 0.5) / (right + 1))
    # One error more, 1.5 above the correct rows, keeps the spread of few errors sane.
    mean = (counts.errors @ places + 1.5) / (wrong + 1)
    spread = math.sqrt((counts.errors @ (places - mean) ** 2 + 1) / (wrong + 1))
    width = _KERNEL * spread * wrong**-0.2
    ends = ndtri((through + 0.25) / (right + 0.5))
    ends[-1] = math.inf
    at = np.flatnonzero(counts.errors)
    below = ndtr((ends[:, None] - places[at]) / width) @ counts.errors[at]
    return np.asarray(np.maximum(np.diff(below, prepend=0.0), 0.0))
