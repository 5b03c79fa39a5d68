"""The exact boundary for selective risk: how many errors may be among the k first rows.

A gate that accepts the k least doubtful of n rows may let in c_k errors. Let W_k be the
number of errors if each row were wrong with probability r, independently: for every
score and every population, the errors among the k first rows are at least those of such
a walk at all thresholds at once whose risk is above r. So if the limits c_k were fixed
before a label was seen,

    P(a threshold whose risk is above r passes) <= P(W_k <= c_k for some k),

and the right-hand side is computed here, exactly. c_k is the largest number of errors
whose binomial test has a p-value of at most d', and d' is as large as the probability
allows.

The walk can meet the boundary only where the boundary rises: a walk above c_(k-1) stays
above c_k = c_(k-1). So the boundary is held as its steps, the least k at which j errors
pass, and the dynamic programme has one stage per step instead of one per row.

Proof of the inequality. Let F(t) and G(t) be the shares of rows accepted, and wrongly
accepted, at a threshold t; t is bad if G(t) > r F(t). Up to the last bad threshold,
match the errors by quantile to slots of mass r dF, the earliest first, and the correct
rows to slots of mass (1 - r) dF; errors that are left fill the free slots. For a bad t,
G >= r F, so the wrong slots up to t come from errors up to t, and correct rows up to t
stay up to t. A row's slot is wrong with probability r, independently of its place: that
is the walk.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.gates.rules import as_fraction, binomial_cdf, binomial_cdfs

MOST_ROWS_TESTED = 2000
"""Beyond as many rows two sequences of tests take over.

They are as good there if the risk falls with the score, and take no dynamic programme.
"""

FEWEST_FOR_SEQUENCE = 200
"""From as many rows on a sequence of tests stands beside the boundary."""

SEQUENCE_SHARE = 0.8
"""Its share of the level; the boundary gets what the two leave together."""

SEQUENCE_START = 0.3
"""The coverage at which it starts."""

_HALVINGS = 13
"""Of the interval that holds the boundary's level: to a thousandth of it."""


@dataclass(frozen=True)
class Boundary:
    """The limits on errors, and the level of the sequence beside them.

    Attributes
    ----------
    steps : array (limits,)
        The least number of accepted rows at which 0, 1, 2, ... errors pass.
    level : float
        The p-value at which they pass.
    sequence_level : float
        That of the sequence of tests; 0 if there is none.
    """

    steps: Array
    level: float
    sequence_level: float = 0.0

    def passes(self, accepted: Array, errors: Array) -> Array:
        """Tell which thresholds pass, by the rows and errors that they accept.

        Examples
        --------
        >>> find_boundary(100, 0.1, 0.1).passes(np.array([40, 40]), np.array([0, 1]))
        array([ True, False])
        """
        limits = np.searchsorted(self.steps, accepted, side="right") - 1
        return np.asarray(errors <= limits)


@lru_cache(maxsize=512)
def find_boundary(n: int, risk: float, delta: float) -> Boundary:
    """Return the boundary for n rows that a bad threshold passes with at most `delta`.

    From `FEWEST_FOR_SEQUENCE` rows on that includes the sequence of tests, which starts
    at a coverage of `SEQUENCE_START` and goes on until one fails.

    Examples
    --------
    >>> boundary = find_boundary(300, 0.05, 0.1)
    >>> boundary.steps[:4]
    array([ 80, 118, 152, 183])
    """
    sequence_level = SEQUENCE_SHARE * delta if n >= FEWEST_FOR_SEQUENCE else 0.0
    # The probability is a step function of the level, so halving finds a level that is
    # valid, and about the largest one. The lower end always is: n tests at an n-th of
    # what the sequence leaves. A 32nd mostly is, too, and then is where to start.
    spare = delta - sequence_level
    low, high = spare / n, delta
    if _pass_probability(n, risk, delta, sequence_level) <= delta:
        low = delta
    elif n > 32 and _pass_probability(n, risk, spare / 32, sequence_level) <= delta:
        low = spare / 32
    for _ in range(_HALVINGS if low < high else 0):
        middle = math.sqrt(low * high)
        if _pass_probability(n, risk, middle, sequence_level) <= delta:
            low = middle
        else:
            high = middle
    return Boundary(rising_steps(n, risk, low), low, sequence_level)


def rising_steps(n: int, risk: float, level: float) -> Array:
    """Return the least k up to n at which 0, 1, 2, ... errors have such a p-value.

    Examples
    --------
    >>> rising_steps(60, 0.1, 0.05)
    array([29, 46])
    """
    if binomial_cdf(0, n, risk) > level:
        return np.zeros(0, np.int64)
    low, high = 0, n  # the most errors that pass among all rows, by halving
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_cdf(middle, n, risk) <= level:
            low = middle
        else:
            high = middle
    errors = np.arange(low + 1)
    # The p-value of j errors falls as rows are added: the least k by halving, at once.
    fails, passes = errors.copy(), np.full(len(errors), n)
    while (passes - fails > 1).any():
        middle = (fails + passes) // 2
        passed = binomial_cdfs(errors, middle, risk) <= level
        passes = np.where(passed, middle, passes)
        fails = np.where(passed, fails, middle)
    return passes


def crossing_probability(steps: Array, risk: float) -> float:
    """Return the probability that a Bernoulli walk meets the boundary.

    Examples
    --------
    >>> crossing_probability(np.array([2]), 0.5), crossing_probability([2, 3], 0.5)
    (0.25, 0.5)
    """
    return _walks_above(np.asarray(steps), risk, len(steps))[0]


def _pass_probability(
    n: int, risk: float, level: float, sequence_level: float
) -> float:
    """Return the largest probability with which a bad threshold passes either way."""
    steps = rising_steps(n, risk, level)
    limits = rising_steps(n, risk, sequence_level) if sequence_level else steps
    # Walks with more errors than any limit pass neither way, and are left out.
    size = max(len(steps), len(limits), 1)
    crossed, above = _walks_above(steps, risk, size)
    if not sequence_level:
        return crossed
    # A bad threshold passes the sequence only if the first bad one does, at which k0
    # rows are accepted: the worst k0 counts. With a limit that does not change the
    # probability falls as rows are added, so only its rises count, and the start.
    start = math.ceil(as_fraction(SEQUENCE_START) * n)
    escapes = _escapes(steps, risk, size)
    worst = 0.0
    for first in np.unique(np.append(limits[limits > start], start)).tolist():
        limit = int(np.searchsorted(limits, first, side="right")) - 1
        passed = int(np.searchsorted(steps, first, side="right"))
        before = steps[passed - 1] if passed else 0
        walks = _after(above[passed], first - before, risk)[: limit + 1]
        if passed < len(steps):
            survive = _before(escapes[passed], int(steps[passed]) - first, risk)
            walks = walks * survive[: len(walks)]
        worst = max(worst, float(walks.sum()))
    return crossed + worst


def _walks_above(steps: Array, risk: float, size: int) -> tuple[float, list[Array]]:
    """Return the probability of meeting the boundary, and the walks that have not.

    Those are the probabilities of 0, 1, ... errors, `size` numbers, at the start and
    after each step.
    """
    crossed, before = 0.0, 0
    walks = np.zeros(max(size, 1))
    walks[0] = 1.0
    above = [walks]
    for limit, step in enumerate(steps.tolist()):
        walks = _after(walks, step - before, risk)
        crossed += float(walks[limit])
        walks[limit], before = 0.0, step
        above.append(walks)
    return crossed, above


def _escapes(steps: Array, risk: float, size: int) -> list[Array]:
    """Return the probability to meet the boundary at no later step, from each step.

    By the number of errors just before it is looked whether they are too few.
    """
    escapes = [np.ones(size)]
    for limit in range(len(steps) - 1, -1, -1):
        later = escapes[-1]
        if limit < len(steps) - 1:
            later = _before(later, int(steps[limit + 1] - steps[limit]), risk)
        escape = later.copy()
        escape[: limit + 1] = 0.0
        escapes.append(escape)
    return escapes[:0:-1]


def _after(walks: Array, rows: int, risk: float) -> Array:
    """Return the probabilities of 0, 1, ... errors as many rows later."""
    return np.convolve(walks, _binomial(rows, risk, len(walks)))[: len(walks)]


def _before(escapes: Array, rows: int, risk: float) -> Array:
    """Return the probabilities to escape as many rows earlier."""
    added = _binomial(rows, risk, len(escapes))
    # More errors than the last limit always escape: by the ones, and the mass beyond.
    later = np.append(escapes, np.ones(len(added) - 1))
    return np.asarray(np.correlate(later, added, "valid") + max(0.0, 1 - added.sum()))


@lru_cache(maxsize=4096)
def _binomial(rows: int, risk: float, size: int) -> Array:
    """Return the probabilities of 0, 1, ... errors among rows, at most `size`."""
    from scipy.special import gammaln

    errors = np.arange(min(rows + 1, max(size, 1)))
    logs = gammaln(rows + 1) - gammaln(errors + 1) - gammaln(rows - errors + 1)
    logs = logs + errors * math.log(risk) + (rows - errors) * math.log1p(-risk)
    probabilities = np.exp(logs)
    kept = int(np.flatnonzero(probabilities > 1e-300)[-1]) + 1
    return np.asarray(probabilities[:kept])
