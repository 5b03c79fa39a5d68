"""Policies of a cascade: a threshold for each stage, what they cost, which pass.

Pareto testing (Laufer-Goldshtein et al., Efficiently Controlling Multiple Risks with
Pareto Testing, ICLR 2023): some rows list the policies that nothing beats in cost and
in the p-value that they let expect of the other rows. Those test them one after
another, from the likeliest to pass on, by falling cost. The first that fails ends it,
so all that pass keep the promise together at the confidence of one test.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trustdoctor.arrays import Array
from trustdoctor.gates import at_most_each, between
from trustdoctor.metrics import Confusion

MOST_CELLS = 1 << 19
"""Policies that are counted, at most."""

FEWEST, FINEST = 20, 100
"""Thresholds of a stage: one for every ten rows, between these."""


SAFER, SURE = (0.5, 0.75), 0.1
"""Shares of the ranks of the first policy, for those that are tested before it; they
are if their p-value is expected to be at most this share of the level."""


class Kind(NamedTuple):
    """How a cascade's promise is counted.

    Attributes
    ----------
    limit : callable
        From the target's value to the largest rate of what may go wrong.
    whole : str
        Among which rows: "accepted", "rows", or "errors".
    """

    limit: Callable[[float], float]
    whole: str


KINDS = {
    "risk": Kind(lambda value: value, "accepted"),
    "joint": Kind(lambda value: value, "rows"),
    "trr": Kind(lambda value: 1 - value, "errors"),
}
"""The targets that a cascade can promise."""


@dataclass(frozen=True, eq=False)
class Heard:
    """What all stages say of labelled rows.

    Attributes
    ----------
    doubts : array (n, K)
        After each stage.
    wrong : bool array (n, K)
        Whether the label after each stage is wrong.
    own : bool
        Whether a stage answers by itself: one at which no row stops is not asked, then.
        If stages answer together, only those after the last such are not.
    """

    doubts: Array
    wrong: Array
    own: bool = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.doubts)

    def __getitem__(self, rows: Any) -> "Heard":
        """Return some of the rows."""
        return Heard(self.doubts[rows], self.wrong[rows], self.own)


@dataclass(frozen=True, eq=False)
class Counted:
    """What policies do to rows; all arrays have one entry per policy.

    Attributes
    ----------
    thresholds : array (P, K)
    cost : array (P,)
        Mean per row.
    accepted, wrong, errors : integer arrays (P,)
        Rows accepted, those of them that are wrong, and all whose last label is.
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

    def __getitem__(self, at: Any) -> "Counted":
        """Return some of the policies."""
        return Counted(
            self.thresholds[at],
            self.cost[at],
            self.accepted[at],
            self.wrong[at],
            self.errors[at],
            self.asked[at],
            self.rows,
        )

    def whole(self, target: str) -> NDArray[np.int64]:
        """Return of how many rows the target's rate is."""
        kind = KINDS[target].whole
        if kind == "rows":
            return np.full(len(self), self.rows)
        return self.accepted if kind == "accepted" else self.errors

    def rate(self, target: str) -> Array:
        """Return the rate that the target bounds."""
        return np.asarray(self.wrong / np.maximum(self.whole(target), 1))

    def p_values(self, target: str, value: float, *, rows: int | None = None) -> Array:
        """Return the p-value of each policy's rate being above the target.

        With `rows`, of what is to be expected of so many others.
        """
        wrong, whole = self.wrong, self.whole(target)
        if rows is not None:
            share = rows / self.rows
            wrong, whole = np.ceil(wrong * share), np.floor(whole * share)
        limit = KINDS[target].limit(value)
        return np.asarray(at_most_each(np.minimum(wrong, whole), whole, limit))

    def confusion(self, at: int) -> Confusion:
        """Return what one policy does."""
        accepted, fa = int(self.accepted[at]), int(self.wrong[at])
        tr = int(self.errors[at]) - fa
        return Confusion(self.rows - accepted - tr, tr, fa, accepted - fa)


def accepts(doubts: Array, threshold: float) -> NDArray[np.bool_]:
    """Return which rows stop at a stage; none at -inf, however sure they are."""
    return np.asarray((doubts <= threshold) & (threshold > -np.inf))


def asked_stages(thresholds: Sequence[float], *, own: bool) -> list[int]:
    """Return the stages that are asked: those whose answer can settle a row.

    Examples
    --------
    >>> asked_stages([-np.inf, 1.0, -np.inf], own=False)
    [0, 1]
    >>> asked_stages([-np.inf, 1.0, -np.inf], own=True)
    [1]
    """
    open_ = [k for k, at in enumerate(thresholds) if at > -np.inf]
    if own or not open_:
        return open_
    return list(range(open_[-1] + 1))


def list_thresholds(heard: Heard) -> list[Array]:
    """Return thresholds to try for each stage, by ranks of its doubts, and both ends.

    Each lies half way to the next doubt, which leaves room for other rounding.
    """
    n, stages = heard.doubts.shape
    size = min(FINEST, max(FEWEST, n // 10), int(MOST_CELLS ** (1 / stages)) - 2)
    shares = np.linspace(0, 1, size + 1)[1:-1]
    at = np.ceil(shares * n).astype(int) - 1
    out = []
    for k in range(stages):
        distinct = np.unique(heard.doubts[:, k])
        ranked = np.sort(heard.doubts[:, k])[at[at >= 0]]
        place = np.searchsorted(distinct, np.unique(ranked))
        place = place[place < len(distinct) - 1]
        inner = [
            between(float(distinct[i]), float(distinct[i + 1]), float(distinct[i]))
            for i in place
        ]
        kept = np.unique([t for t in inner if np.isfinite(t)])
        out.append(np.concatenate([[-np.inf], kept, [np.inf]]))
    return out


def count_all(heard: Heard, costs: Sequence[float], grid: list[Array]) -> Counted:
    """Count what every combination of thresholds does, in one pass over the rows."""
    n, stages = heard.doubts.shape
    shape = tuple(map(len, grid))
    # A row stops at a stage iff the threshold's place is not below its own.
    places = [
        np.maximum(np.searchsorted(grid[k], heard.doubts[:, k]), 1)
        for k in range(stages)
    ]
    accepted, wrong, missed = (np.zeros(shape, np.int64) for _ in range(3))
    asked = np.zeros((*shape, stages), np.int64)
    for k in range(stages):
        rest = (1,) * (stages - k - 1)
        some = shape[: k + 1]
        every = _histogram(places[: k + 1], some, None)
        stopped = np.cumsum(every, axis=k)
        bad = _histogram(places[: k + 1], some, heard.wrong[:, k])
        accepted += stopped.reshape(some + rest)
        wrong += np.cumsum(bad, axis=k).reshape(some + rest)
        came = stopped[..., -1:]  # the last threshold is inf
        asked[..., k] = np.broadcast_to(came.reshape(came.shape + rest), shape)
        before, none = (slice(None),) * k, (0,) * (stages - k - 1)
        asked[(*before, 0, *(() if heard.own else none), ..., k)] = 0
        until = np.cumsum(bad, axis=k)
        some_open = (*before, slice(min(k, 1), None))
        missed[(*some_open, *none)] = (until[..., -1:] - until)[some_open]
    spent = asked @ np.asarray(costs[:-1], float) + costs[-1] * (n - accepted)
    mesh = np.stack(np.meshgrid(*grid, indexing="ij"), -1).reshape(-1, stages)
    return Counted(
        mesh,
        spent.ravel() / n,
        accepted.ravel(),
        wrong.ravel(),
        (wrong + missed).ravel(),
        asked.reshape(-1, stages),
        n,
    )


def _histogram(
    places: list[Array], shape: tuple[int, ...], kept: Array | None
) -> NDArray[np.int64]:
    """Count rows by place, those that went past every earlier threshold.

    The last axis is the place itself; of earlier axes an entry counts the rows whose
    place is above it.
    """
    at = np.ravel_multi_index(places, shape)
    if kept is not None:
        at = at[kept]
    out = np.bincount(at, minlength=math.prod(shape)).reshape(shape)
    for axis in range(len(shape) - 1):
        above = np.flip(np.cumsum(np.flip(out, axis), axis), axis)
        out = above - out
    return np.asarray(out, np.int64)


def count_some(heard: Heard, costs: Sequence[float], thresholds: Array) -> Counted:
    """Count what some policies do, one after another."""
    n, stages = heard.doubts.shape
    size = len(thresholds)
    accepted, wrong, errors = (np.zeros(size, np.int64) for _ in range(3))
    asked = np.zeros((size, stages), np.int64)
    for i, own in enumerate(thresholds):
        still, last = np.ones(n, bool), 0
        for k in asked_stages(own, own=heard.own):
            asked[i, k] = still.sum()
            stop = still & accepts(heard.doubts[:, k], own[k])
            accepted[i] += stop.sum()
            wrong[i] += (stop & heard.wrong[:, k]).sum()
            still, last = still & ~stop, k
        errors[i] = wrong[i] + (still & heard.wrong[:, last]).sum()
    spent = asked @ np.asarray(costs[:-1], float) + costs[-1] * (n - accepted)
    return Counted(thresholds, spent / n, accepted, wrong, errors, asked, n)


def find_front(counted: Counted, p: Array) -> NDArray[np.int64]:
    """Return the policies that nothing beats in p-value and cost, by falling cost."""
    order = np.lexsort((-counted.accepted, counted.cost, p))
    order = order[counted.accepted[order] > 0]
    cost = counted.cost[order]
    best = np.minimum.accumulate(np.append(np.inf, cost))[:-1]
    return order[cost < best]


def list_policies(  # noqa: PLR0913 - what is listed, and for what
    chosen: Heard,
    costs: Sequence[float],
    target: str,
    value: float,
    *,
    rows: int,
    delta: float,
) -> Counted:
    """Return policies to test on so many other rows, in the order of the tests.

    The first of the front fits these rows closely. Safer ones come before it, where
    they accept enough that one error more would not stop them.
    """
    grid = list_thresholds(chosen)
    counted = count_all(chosen, costs, grid)
    expected = counted.p_values(target, value, rows=rows)
    front = counted.thresholds[find_front(counted, expected)]
    first = _safer(front[0], grid)
    safer = count_some(chosen, costs, first)
    sure = safer.p_values(target, value, rows=rows) <= delta * SURE
    kept = np.flatnonzero(sure & (safer.accepted > 0))
    every = np.concatenate([first[kept], front])
    return count_some(chosen, costs, every)


def _safer(thresholds: Array, grid: list[Array]) -> Array:
    """Return policies whose thresholds lie lower, by shares of their ranks."""
    own = [int(np.searchsorted(g, t)) for g, t in zip(grid, thresholds, strict=True)]
    return np.array(
        [
            [g[int(share * at)] for g, at in zip(grid, own, strict=True)]
            for share in SAFER
        ]
    )


def count_passed(tested: Counted, target: str, value: float, delta: float) -> int:
    """Return how many policies pass before the first fails."""
    failed = tested.p_values(target, value) > delta
    return int(failed.argmax()) if failed.any() else len(tested)
