"""Policies of a cascade, against every row walked by itself in plain Python."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from trustdoctor.opinion.policies import (
    CASCADE_TARGETS,
    MAX_POLICIES,
    PolicyCounts,
    StageDoubts,
    accepts,
    asked_stages,
    count_all,
    count_passed,
    count_some,
    find_front,
    list_policies,
    list_thresholds,
)

INF = math.inf
FIELDS = ("cost", "accepted", "wrong", "errors", "asked")


def awkward(rows, stages, *, own=False, seed=0):
    """Doubts with many ties and both infinities, and whether labels are wrong."""
    rng = np.random.default_rng(seed)
    doubts = rng.normal(size=(rows, stages)).round(1)
    doubts[rng.random(doubts.shape) < 0.05] = -INF
    doubts[rng.random(doubts.shape) < 0.05] = INF
    return StageDoubts(doubts, rng.random((rows, stages)) < 0.3, own)


def thresholds_to_try(stages, seed=0):
    rng = np.random.default_rng(seed)
    inner = [np.unique(rng.normal(size=4).round(1)) for _ in range(stages)]
    return [np.concatenate([[-INF], one, [INF]]) for one in inner]


def walk(doubts, wrong, thresholds, costs, *, own):
    """One row: what it costs, whether it is accepted and wrong, and who was asked."""
    spent, asked, bad = 0.0, [], None
    for k, at in enumerate(thresholds):
        later = [t for t in thresholds[k:] if t > -INF]
        settles = at > -INF if own else bool(later)
        if not settles:
            continue
        spent, bad = spent + costs[k], bool(wrong[k])
        asked.append(k)
        if at > -INF and doubts[k] <= at:
            return spent, True, bad, asked
    return spent + costs[-1], False, bad, asked


def by_hand(heard, costs, thresholds):
    """The same as `count_some`, of one policy."""
    rows = zip(heard.doubts.tolist(), heard.wrong.tolist(), strict=True)
    done = [walk(*row, thresholds, costs, own=heard.separate) for row in rows]
    return {
        "cost": sum(one[0] for one in done) / len(done),
        "accepted": sum(one[1] for one in done),
        "wrong": sum(one[1] and one[2] for one in done),
        "errors": sum(bool(one[2]) for one in done),
        "asked": [
            sum(k in one[3] for one in done) for k in range(heard.doubts.shape[1])
        ],
    }


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_counts_are_those_of_every_row_by_itself(stages, own):
    for seed in range(3):
        heard = awkward(60, stages, own=own, seed=seed)
        costs = np.sort(np.random.default_rng(seed).integers(0, 9, stages + 1)).tolist()
        grid = thresholds_to_try(stages, seed)
        every = count_all(heard, costs, grid)
        assert every.thresholds.tolist() == [list(t) for t in product(*grid)]
        some = count_some(heard, costs, every.thresholds)
        for i, thresholds in enumerate(every.thresholds.tolist()):
            if max(thresholds) == -INF:  # nobody is asked, so nothing is wrong
                assert every.accepted[i] == some.accepted[i] == 0
                continue
            wanted = by_hand(heard, costs, thresholds)
            for name in FIELDS:
                for counted in (every, some):
                    found = getattr(counted, name)[i]
                    close = np.allclose(found, wanted[name], rtol=1e-12)
                    assert close, (thresholds, name)


def test_counts_of_more_rows_than_there_are_cells():
    heard = awkward(5000, 2, seed=9)
    every = count_all(heard, [0, 1, 10], list_thresholds(heard))
    some = count_some(heard, [0, 1, 10], every.thresholds)
    open_ = (every.thresholds > -INF).any(1)
    for name in FIELDS:
        assert np.allclose(getattr(every, name)[open_], getattr(some, name)[open_])


def test_a_confusion_has_every_row_once():
    heard = awkward(200, 2)
    counted = count_some(heard, [0, 1, 10], np.array([[-0.5, 0.3], [INF, -INF]]))
    for i, thresholds in enumerate(counted.thresholds.tolist()):
        rows = zip(heard.doubts.tolist(), heard.wrong.tolist(), strict=True)
        done = [walk(*row, thresholds, [0, 1, 10], own=False)[1:3] for row in rows]
        seen = counted.confusion(i)
        assert (seen.accepted_correct, seen.accepted_errors) == (
            done.count((True, False)),
            done.count((True, True)),
        )
        assert (seen.rejected_correct, seen.rejected_errors) == (
            done.count((False, False)),
            done.count((False, True)),
        )


def test_at_minus_infinity_no_row_stops():
    doubts = np.array([-INF, -1.0, INF])
    assert accepts(doubts, -INF).tolist() == [False, False, False]
    assert accepts(doubts, -1.0).tolist() == [True, True, False]
    assert accepts(doubts, INF).tolist() == [True, True, True]


def test_a_stage_is_asked_where_its_answer_can_settle_a_row():
    for thresholds in product([-INF, 0.0, INF], repeat=3):
        open_ = [k for k, at in enumerate(thresholds) if at > -INF]
        assert asked_stages(thresholds, separate=True) == open_
        together = [k for k in range(3) if any(j >= k for j in open_)]
        assert asked_stages(thresholds, separate=False) == together


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_thresholds_are_few_and_of_the_rows(stages):
    for rows in (20, 300, 5000):
        heard = awkward(rows, stages, seed=rows)
        grid = list_thresholds(heard)
        assert len(grid) == stages
        assert math.prod(map(len, grid)) <= MAX_POLICIES
        for k, one in enumerate(grid):
            assert (one[0], one[-1]) == (-INF, INF)
            assert (np.diff(one[1:-1]) > 0).all()
            finite = heard.doubts[:, k][np.isfinite(heard.doubts[:, k])]
            ends = finite.min(), finite.max()
            assert ((one[1:-1] >= ends[0]) & (one[1:-1] <= ends[1])).all()


def counted_of(rates, costs, *, accepted=None):
    """Policies of such rates among 100 accepted rows of 200."""
    size = len(rates)
    accepted = np.full(size, 100) if accepted is None else np.asarray(accepted)
    return PolicyCounts(
        np.arange(size, dtype=float)[:, None],
        np.asarray(costs, float),
        accepted,
        np.rint(np.asarray(rates) * accepted).astype(int),
        np.full(size, 60),
        accepted[:, None],
        200,
    )


def test_the_front_is_what_nothing_beats():
    """By the definition, every policy against every other."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        size = 60
        counted = counted_of(
            np.zeros(size),
            rng.integers(0, 9, size),
            accepted=rng.choice([0, 10, 100], size),
        )
        odds, cost = rng.integers(0, 9, size) / 10, counted.cost
        kept = np.flatnonzero(counted.accepted > 0)

        def beaten(i, kept=kept, odds=odds, cost=cost):
            better = (odds[kept] <= odds[i]) & (cost[kept] <= cost[i])
            return (better & ((odds[kept] < odds[i]) | (cost[kept] < cost[i]))).any()

        wanted = {(odds[i], cost[i]) for i in kept if not beaten(i)}
        front = find_front(counted, odds)
        assert [(odds[i], cost[i]) for i in front] == sorted(wanted)
        assert (np.diff(cost[front]) < 0).all()
        for i in front:
            same = kept[(odds[kept] == odds[i]) & (cost[kept] == cost[i])]
            assert counted.accepted[i] == counted.accepted[same].max()


@pytest.mark.parametrize(
    ("target", "value", "whole", "limit"),
    [("risk", 0.05, "accepted", 0.05), ("joint", 0.03, 400, 0.03),
     ("trr", 0.9, "errors", 0.1)],
)  # fmt: skip
def test_p_values_are_those_of_the_binomial(target, value, whole, limit):
    heard = awkward(400, 2, seed=5)
    counted = count_some(heard, [0, 1, 10], np.array([[-1.5, -1.0], [INF, 0], [0, 1]]))
    whole = whole if isinstance(whole, int) else getattr(counted, whole)
    wanted = stats.binom.cdf(counted.wrong, whole, limit)
    np.testing.assert_allclose(counted.p_values(target, value), wanted, rtol=1e-9)
    np.testing.assert_array_equal(counted.rate(target), counted.wrong / whole)


@pytest.mark.parametrize("target", CASCADE_TARGETS)
def test_what_accepts_nothing_or_errs_never_proves_nothing_of_itself(target):
    counted = counted_of([0.0], [1.0], accepted=[0])
    nothing = {"risk": 1.0, "joint": 0.9**200, "trr": 0.9**60}[target]
    value = 0.9 if target == "trr" else 0.1
    assert counted.p_values(target, value)[0] == pytest.approx(nothing)


def test_a_sequence_ends_at_its_first_failure():
    """By hand: 5 of 100 may be 0.1 (p = 0.058), 6 may not (p = 0.117), 0 may again."""
    tested = counted_of([0.02, 0.05, 0.06, 0.0], [4, 3, 2, 1])
    p = stats.binom.cdf([2, 5, 6, 0], 100, 0.1)
    assert ((p <= 0.1) == [True, True, False, True]).all()
    assert count_passed(tested, "risk", 0.1, 0.1) == 2
    assert count_passed(tested[np.arange(2)], "risk", 0.1, 0.1) == 2
    assert count_passed(tested[np.array([2, 0])], "risk", 0.1, 0.1) == 0


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("target", CASCADE_TARGETS)
def test_policies_are_listed_by_falling_cost_after_safer_ones(target, own):
    """None of them is beaten by another in expected p-value and cost together."""
    rng = np.random.default_rng(0)
    doubts = rng.normal(size=(600, 2))
    wrong = rng.random((600, 2)) < 1 / (1 + np.exp(2 - 2 * doubts))
    heard, costs = StageDoubts(doubts, wrong, own), [0, 1, 10]
    value = 0.8 if target == "trr" else 0.1
    options = {"rows": 1200, "delta": 0.1}
    listed = list_policies(heard, costs, target, value, **options)
    again = count_some(heard, costs, listed.thresholds)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(again, name), getattr(listed, name))
    assert (listed.accepted > 0).all()
    whole = listed.denominator(target)
    expected = stats.binom.cdf(
        np.ceil(2 * listed.wrong), 2 * whole, CASCADE_TARGETS[target].limit(value)
    )
    assert (np.diff(listed.cost[2:]) < 0).all()
    assert (np.diff(expected[2:]) >= 0).all()
    for k in range(2):  # all thresholds of these lie lower than where the front begins
        assert (listed.thresholds[k] <= listed.thresholds[2]).all()
        assert expected[k] <= 0.01
