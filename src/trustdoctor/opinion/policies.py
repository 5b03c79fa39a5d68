"""Policies of a cascade: a threshold for each stage, what they cost, which pass.

Pareto testing (Laufer-Goldshtein et al., Efficiently Controlling Multiple Risks with
Pareto Testing, ICLR 2023): some rows list the policies that no other beats both in cost
and in the p-value to be expected on the remaining rows. Those rows test them one after
another, from the likeliest to pass on, by falling cost. The first that fails ends it,
so all that pass keep the promise together at the confidence of one test.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.gates import binomial_cdfs, midpoint
from trustdoctor.metrics import Confusion, Estimate

MAX_POLICIES = 1 << 19
"""The largest number of policies that are counted."""

MIN_THRESHOLDS, MAX_THRESHOLDS = 20, 100
"""Bounds on the thresholds of a stage; between them there is one for every ten rows."""

SAFER_SHARES = (0.5, 0.75)
"""Safer policies that are tested before the first: shares of its thresholds' ranks."""

SURE_SHARE = 0.1
"""They are tested if their expected p-value is at most this share of the level."""

COST_CONFIDENCE = 0.95
"""The confidence of the intervals of costs."""


class BoundedRate(NamedTuple):
    """The rate that a cascade's promise bounds.

    Attributes
    ----------
    limit : callable
        From the target's value to the largest rate.
    denominator : str
        The rows that the rate is a share of: "accepted", "rows", or "errors".
    """

    limit: Callable[[float], float]
    denominator: str


CASCADE_TARGETS = {
    "risk": BoundedRate(lambda value: value, "accepted"),
    "joint": BoundedRate(lambda value: value, "rows"),
    "trr": BoundedRate(lambda value: 1 - value, "errors"),
}
"""The targets that a cascade can promise."""


@dataclass(frozen=True, eq=False)
class StageDoubts:
    """Doubts and errors of labelled rows after each stage.

    Attributes
    ----------
    doubts : array (n, K)
        After each stage.
    wrong : bool array (n, K)
        Whether the label after each stage is wrong.
    separate : bool
        Whether each stage answers by itself: then a stage at which no row stops is not
        asked. If stages answer together, only those after the last one at which a row
        stops are left out.
    """

    doubts: Array
    wrong: Array
    separate: bool = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.doubts)

    def __getitem__(self, rows: Any) -> "StageDoubts":
        """Return some of the rows."""
        return StageDoubts(self.doubts[rows], self.wrong[rows], self.separate)


@dataclass(frozen=True, eq=False)
class PolicyCounts:
    """What policies do to rows; all arrays have one entry per policy.

    Attributes
    ----------
    thresholds : array (P, K)
    cost : array (P,)
        Mean per row.
    accepted, wrong, errors : integer arrays (P,)
        Rows accepted, those of them that are wrong, and all whose last label is wrong.
    asked : integer array (P, K)
        Rows that each stage was asked about.
    rows : int
    """

    thresholds: Array
    cost: Array
    accepted: NDArray[np.int64]
    wrong: NDArray[np.int64]
    errors: NDArray[np.int64]
    asked: NDArray[np.int64]
    rows: int

    def __len__(self) -> int:
        """Return the number of policies."""
        return len(self.cost)

    def __getitem__(self, policies: Any) -> "PolicyCounts":
        """Return some of the policies."""
        return PolicyCounts(
            self.thresholds[policies],
            self.cost[policies],
            self.accepted[policies],
            self.wrong[policies],
            self.errors[policies],
            self.asked[policies],
            self.rows,
        )

    def denominator(self, target: str) -> NDArray[np.int64]:
        """Return the number of rows that the target's rate is a share of."""
        denominator = CASCADE_TARGETS[target].denominator
        if denominator == "rows":
            return np.full(len(self), self.rows)
        return self.accepted if denominator == "accepted" else self.errors

    def rate(self, target: str) -> Array:
        """Return the rate that the target bounds."""
        return np.asarray(self.wrong / np.maximum(self.denominator(target), 1))

    def p_values(self, target: str, value: float, *, rows: int | None = None) -> Array:
        """Return the p-value of each policy's rate being above the target.

        With `rows`, the p-value to be expected on this number of other rows.
        """
        wrong, denominator = self.wrong, self.denominator(target)
        if rows is not None:
            share = rows / self.rows
            # The cautious side of both, since other rows will not repeat these counts.
            wrong, denominator = np.ceil(wrong * share), np.floor(denominator * share)
        limit = CASCADE_TARGETS[target].limit(value)
        at_most = np.minimum(wrong, denominator)
        return np.asarray(binomial_cdfs(at_most, denominator, limit))

    def confusion(self, policy: int) -> Confusion:
        """Return the decisions of one policy, counted."""
        accepted, fa = int(self.accepted[policy]), int(self.wrong[policy])
        tr = int(self.errors[policy]) - fa
        return Confusion(self.rows - accepted - tr, tr, fa, accepted - fa)


def accepts(doubts: Array, threshold: float) -> NDArray[np.bool_]:
    """Return which rows stop at a stage; none at -inf, however sure they are."""
    # A doubt of -inf (a probability of 1) is at most -inf, too.
    return np.asarray((doubts <= threshold) & (threshold > -np.inf))


def asked_stages(thresholds: Sequence[float], *, separate: bool) -> list[int]:
    """Return the stages that are asked: those whose answer can settle a row.

    Examples
    --------
    >>> asked_stages([-np.inf, 1.0, -np.inf], separate=False)
    [0, 1]
    >>> asked_stages([-np.inf, 1.0, -np.inf], separate=True)
    [1]
    """
    stopping = [k for k, threshold in enumerate(thresholds) if threshold > -np.inf]
    if separate or not stopping:
        return stopping
    return list(range(stopping[-1] + 1))


def list_thresholds(stage_doubts: StageDoubts) -> list[Array]:
    """Return thresholds to try for each stage, by ranks of its doubts, and both ends.

    Each lies half way to the next doubt, which leaves room for other rounding.
    """
    n, stages = stage_doubts.doubts.shape
    size = min(MAX_THRESHOLDS, max(MIN_THRESHOLDS, n // 10))
    size = min(size, int(MAX_POLICIES ** (1 / stages)) - 2)
    shares = np.linspace(0, 1, size + 1)[1:-1]
    ranks = np.ceil(shares * n).astype(int) - 1
    grid = []
    for k in range(stages):
        distinct = np.unique(stage_doubts.doubts[:, k])
        ranked = np.sort(stage_doubts.doubts[:, k])[ranks[ranks >= 0]]
        places = np.searchsorted(distinct, np.unique(ranked))
        places = places[places < len(distinct) - 1]
        midpoints = [
            midpoint(float(distinct[i]), float(distinct[i + 1]), float(distinct[i]))
            for i in places
        ]
        finite = np.unique([t for t in midpoints if np.isfinite(t)])
        grid.append(np.concatenate([[-np.inf], finite, [np.inf]]))
    return grid


def count_all(
    stage_doubts: StageDoubts, costs: Sequence[float], grid: list[Array]
) -> PolicyCounts:
    """Count what every combination of thresholds does, in one pass over the rows."""
    # Half a million policies on ten thousand rows, one after another, would be five
    # billion comparisons; cumulative sums over a histogram of the rows need one pass.
    n, stages = stage_doubts.doubts.shape
    shape = tuple(map(len, grid))
    # A row stops at a stage iff the threshold's place in the grid is not below its own,
    # which is at least 1: nothing stops at -inf, the first threshold.
    places = [
        np.maximum(np.searchsorted(grid[k], stage_doubts.doubts[:, k]), 1)
        for k in range(stages)
    ]
    accepted, wrong, missed = (np.zeros(shape, np.int64) for _ in range(3))
    asked = np.zeros((*shape, stages), np.int64)
    for k in range(stages):
        later_axes = (1,) * (stages - k - 1)
        shape_so_far = shape[: k + 1]
        reached = _histogram(places[: k + 1], shape_so_far, None)
        stopped = np.cumsum(reached, axis=k)
        wrong_rows = stage_doubts.wrong[:, k]
        reached_wrong = _histogram(places[: k + 1], shape_so_far, wrong_rows)
        stopped_wrong = np.cumsum(reached_wrong, axis=k)
        accepted += stopped.reshape(shape_so_far + later_axes)
        wrong += stopped_wrong.reshape(shape_so_far + later_axes)
        arrived = stopped[..., -1:]  # the last threshold is inf: all that arrive stop
        asked[..., k] = np.broadcast_to(
            arrived.reshape(arrived.shape + later_axes), shape
        )
        # A stage at -inf settles no row. It is not asked, if it answers by itself, or
        # if all later ones are at -inf, too.
        earlier, all_later_off = (slice(None),) * k, (0,) * (stages - k - 1)
        later = () if stage_doubts.separate else all_later_off
        asked[(*earlier, 0, *later, ..., k)] = 0
        # A rejected row's label is that of the last stage at which rows can stop: k
        # here, if k is open and all later ones are off (or k is the first).
        last_open = (*earlier, slice(min(k, 1), None))
        missed_wrong = stopped_wrong[..., -1:] - stopped_wrong
        missed[(*last_open, *all_later_off)] = missed_wrong[last_open]
    spent = asked @ np.asarray(costs[:-1], float) + costs[-1] * (n - accepted)
    mesh = np.stack(np.meshgrid(*grid, indexing="ij"), -1).reshape(-1, stages)
    return PolicyCounts(
        mesh,
        spent.ravel() / n,
        accepted.ravel(),
        wrong.ravel(),
        (wrong + missed).ravel(),
        asked.reshape(-1, stages),
        n,
    )


def _histogram(
    places: list[Array], shape: tuple[int, ...], mask: Array | None
) -> NDArray[np.int64]:
    """Count rows by place, those that went past every earlier threshold.

    The last axis is the place itself; of earlier axes an entry counts the rows whose
    place is above it.
    """
    cells = np.ravel_multi_index(places, shape)
    if mask is not None:
        cells = cells[mask]
    histogram = np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
    for axis in range(len(shape) - 1):
        at_or_above = np.flip(np.cumsum(np.flip(histogram, axis), axis), axis)
        histogram = at_or_above - histogram
    return np.asarray(histogram, np.int64)


def count_some(
    stage_doubts: StageDoubts, costs: Sequence[float], policies: Array
) -> PolicyCounts:
    """Count what some policies do, one after another; `policies` (P, K) thresholds."""
    n, stages = stage_doubts.doubts.shape
    size = len(policies)
    accepted, wrong, errors = (np.zeros(size, np.int64) for _ in range(3))
    asked = np.zeros((size, stages), np.int64)
    for i, thresholds in enumerate(policies):
        in_doubt, last = np.ones(n, bool), 0
        for k in asked_stages(thresholds, separate=stage_doubts.separate):
            asked[i, k] = in_doubt.sum()
            stops = in_doubt & accepts(stage_doubts.doubts[:, k], thresholds[k])
            accepted[i] += stops.sum()
            wrong[i] += (stops & stage_doubts.wrong[:, k]).sum()
            in_doubt, last = in_doubt & ~stops, k
        errors[i] = wrong[i] + (in_doubt & stage_doubts.wrong[:, last]).sum()
    spent = asked @ np.asarray(costs[:-1], float) + costs[-1] * (n - accepted)
    return PolicyCounts(policies, spent / n, accepted, wrong, errors, asked, n)


def find_front(counts: PolicyCounts, p_values: Array) -> NDArray[np.int64]:
    """Return the policies that nothing beats in p-value and cost, by falling cost."""
    order = np.lexsort((-counts.accepted, counts.cost, p_values))
    order = order[counts.accepted[order] > 0]
    cost = counts.cost[order]
    cheapest_before = np.minimum.accumulate(np.append(np.inf, cost))[:-1]
    return order[cost < cheapest_before]


def list_policies(  # noqa: PLR0913 - what is listed, and for what
    stage_doubts: StageDoubts,
    costs: Sequence[float],
    target: str,
    value: float,
    *,
    rows: int,
    delta: float,
) -> PolicyCounts:
    """Return policies to test on `rows` other rows, in the order of the tests."""
    grid = list_thresholds(stage_doubts)
    counts = count_all(stage_doubts, costs, grid)
    expected = counts.p_values(target, value, rows=rows)
    front = counts.thresholds[find_front(counts, expected)]
    # The first of the front fits the listing rows closely, and may fail on others,
    # which would end the tests. Safer ones come before it, if they accept enough that
    # one error more would not stop them.
    safer = count_some(stage_doubts, costs, _safer_policies(front[0], grid))
    sure = safer.p_values(target, value, rows=rows) <= delta * SURE_SHARE
    useful = np.flatnonzero(sure & (safer.accepted > 0))
    policies = np.concatenate([safer.thresholds[useful], front])
    return count_some(stage_doubts, costs, policies)


def _safer_policies(thresholds: Array, grid: list[Array]) -> Array:
    """Return policies whose thresholds lie lower, by shares of their ranks."""
    ranks = [int(np.searchsorted(g, t)) for g, t in zip(grid, thresholds, strict=True)]
    return np.array(
        [
            [g[int(share * rank)] for g, rank in zip(grid, ranks, strict=True)]
            for share in SAFER_SHARES
        ]
    )


def count_passed(counts: PolicyCounts, target: str, value: float, delta: float) -> int:
    """Return the number of policies that pass before the first fails."""
    failed = counts.p_values(target, value) > delta
    return int(failed.argmax()) if failed.any() else len(counts)


@dataclass(frozen=True)
class Alone:
    """What a cascade, or one model alone, does to the rows of the test.

    Attributes
    ----------
    name : str
    cost : Estimate
        Mean per row, with its interval.
    rate : float
        What the promise bounds: the risk, the joint rate, or the share of errors that
        are accepted.
    person : float
        The share of the rows that goes to a person.
    more : Estimate or None
        Its cost less the cascade's, paired; None for the cascade itself.
    """

    name: str
    cost: Estimate
    rate: float
    person: float
    more: Estimate | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """What policies cost on the rows that tested them, which did not list them.

    Attributes
    ----------
    target : str
        "risk", "joint" or "trr".
    limit : float
        The largest rate that the promise allows: for trr, of errors that are accepted.
    rows, listed_by : int
        The numbers of rows that tested, and of other rows that listed the policies.
    whole : Alone
        The cascade.
    alone : tuple of Alone
        Each model by itself, with its own gate for the same promise.
    asked : tuple of float
        The share of the rows that each model was asked about.
    policies : array (P, 2)
        Rate and cost of policies, thinned out.
    tested : array (T, 2)
        Rate and cost of those that were tested, in their order.
    passed : int
        The number of these that passed; the last of them is the cascade's.
    curves : dict of str to array (k, 2)
        Rate and cost of each model by itself, at many thresholds.
    """

    target: str
    limit: float
    rows: int
    listed_by: int
    whole: Alone
    alone: tuple[Alone, ...]
    asked: tuple[float, ...]
    policies: Array
    tested: Array
    passed: int
    curves: dict[str, Array] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Tell whether all fields are equal; NaN equals itself."""
        if not isinstance(other, Measured):
            return NotImplemented
        return repr(self._plain_fields()) == repr(other._plain_fields())

    def __hash__(self) -> int:
        """Return the same for those that are equal."""
        return hash((self.target, self.limit, self.rows, self.passed))

    def _plain_fields(self) -> list[Any]:
        curves = {name: np.asarray(c).tolist() for name, c in self.curves.items()}
        arrays = [self.policies.tolist(), self.tested.tolist(), curves]
        plain = [self.target, self.limit, self.rows, self.listed_by, self.passed]
        return [*plain, self.whole, self.alone, self.asked, *arrays]
