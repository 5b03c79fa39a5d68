"""Policies of a cascade, against a row-by-row walk in plain Python."""

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


def awkward_doubts(rows, stages, *, separate=False, seed=0):
    """Doubts with many ties and both infinities, and whether labels are wrong."""
    rng = np.random.default_rng(seed)
    doubts = rng.normal(size=(rows, stages)).round(1)
    doubts[rng.random(doubts.shape) < 0.05] = -INF
    doubts[rng.random(doubts.shape) < 0.05] = INF
    return StageDoubts(doubts, rng.random((rows, stages)) < 0.3, separate)


def thresholds_to_try(stages, seed=0):
    rng = np.random.default_rng(seed)
    inner_thresholds = [np.unique(rng.normal(size=4).round(1)) for _ in range(stages)]
    return [
        np.concatenate([[-INF], thresholds, [INF]]) for thresholds in inner_thresholds
    ]


def walk_row(doubts, wrong, thresholds, costs, *, separate):
    """One row: what it costs, whether it is accepted and wrong, and who was asked."""
    cost, visited, is_wrong = 0.0, [], None
    for k, threshold in enumerate(thresholds):
        later = [t for t in thresholds[k:] if t > -INF]
        settles = threshold > -INF if separate else bool(later)
        if not settles:
            continue
        cost, is_wrong = cost + costs[k], bool(wrong[k])
        visited.append(k)
        if threshold > -INF and doubts[k] <= threshold:
            return cost, True, is_wrong, visited
    return cost + costs[-1], False, is_wrong, visited


def by_hand(stage_doubts, costs, thresholds):
    """The same as `count_some`, of one policy."""
    rows = zip(stage_doubts.doubts.tolist(), stage_doubts.wrong.tolist(), strict=True)
    walks = [
        walk_row(*row, thresholds, costs, separate=stage_doubts.separate)
        for row in rows
    ]
    return {
        "cost": sum(walk[0] for walk in walks) / len(walks),
        "accepted": sum(walk[1] for walk in walks),
        "wrong": sum(walk[1] and walk[2] for walk in walks),
        "errors": sum(bool(walk[2]) for walk in walks),
        "asked": [
            sum(k in walk[3] for walk in walks)
            for k in range(stage_doubts.doubts.shape[1])
        ],
    }


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_counts_are_those_of_a_walk_row_by_row(stages, separate):
    for seed in range(3):
        stage_doubts = awkward_doubts(60, stages, separate=separate, seed=seed)
        costs = np.sort(np.random.default_rng(seed).integers(0, 9, stages + 1)).tolist()
        grid = thresholds_to_try(stages, seed)
        all_counts = count_all(stage_doubts, costs, grid)
        assert all_counts.thresholds.tolist() == [list(t) for t in product(*grid)]
        some_counts = count_some(stage_doubts, costs, all_counts.thresholds)
        for i, thresholds in enumerate(all_counts.thresholds.tolist()):
            if max(thresholds) == -INF:  # nobody is asked, so nothing is wrong
                assert all_counts.accepted[i] == some_counts.accepted[i] == 0
                continue
            expected = by_hand(stage_doubts, costs, thresholds)
            for name in FIELDS:
                for counts in (all_counts, some_counts):
                    count = getattr(counts, name)[i]
                    is_close = np.allclose(count, expected[name], rtol=1e-12)
                    assert is_close, (thresholds, name)


def test_counts_of_more_rows_than_there_are_cells():
    stage_doubts = awkward_doubts(5000, 2, seed=9)
    all_counts = count_all(stage_doubts, [0, 1, 10], list_thresholds(stage_doubts))
    some_counts = count_some(stage_doubts, [0, 1, 10], all_counts.thresholds)
    stopping = (all_counts.thresholds > -INF).any(1)
    for name in FIELDS:
        assert np.allclose(
            getattr(all_counts, name)[stopping], getattr(some_counts, name)[stopping]
        )


def test_a_confusion_has_every_row_once():
    stage_doubts = awkward_doubts(200, 2)
    counts = count_some(stage_doubts, [0, 1, 10], np.array([[-0.5, 0.3], [INF, -INF]]))
    for i, thresholds in enumerate(counts.thresholds.tolist()):
        rows = zip(
            stage_doubts.doubts.tolist(), stage_doubts.wrong.tolist(), strict=True
        )
        walks = [
            walk_row(*row, thresholds, [0, 1, 10], separate=False)[1:3] for row in rows
        ]
        confusion = counts.confusion(i)
        assert (confusion.accepted_correct, confusion.accepted_errors) == (
            walks.count((True, False)),
            walks.count((True, True)),
        )
        assert (confusion.rejected_correct, confusion.rejected_errors) == (
            walks.count((False, False)),
            walks.count((False, True)),
        )


def test_at_minus_infinity_no_row_stops():
    doubts = np.array([-INF, -1.0, INF])
    assert accepts(doubts, -INF).tolist() == [False, False, False]
    assert accepts(doubts, -1.0).tolist() == [True, True, False]
    assert accepts(doubts, INF).tolist() == [True, True, True]


def test_a_stage_is_asked_only_if_its_answer_can_settle_a_row():
    for thresholds in product([-INF, 0.0, INF], repeat=3):
        stopping = [k for k, at in enumerate(thresholds) if at > -INF]
        assert asked_stages(thresholds, separate=True) == stopping
        together = [k for k in range(3) if any(j >= k for j in stopping)]
        assert asked_stages(thresholds, separate=False) == together


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_thresholds_are_few_and_of_the_rows(stages):
    for rows in (20, 300, 5000):
        stage_doubts = awkward_doubts(rows, stages, seed=rows)
        grid = list_thresholds(stage_doubts)
        assert len(grid) == stages
        assert math.prod(map(len, grid)) <= MAX_POLICIES
        for k, thresholds in enumerate(grid):
            assert (thresholds[0], thresholds[-1]) == (-INF, INF)
            assert (np.diff(thresholds[1:-1]) > 0).all()
            finite = stage_doubts.doubts[:, k][np.isfinite(stage_doubts.doubts[:, k])]
            ends = finite.min(), finite.max()
            assert ((thresholds[1:-1] >= ends[0]) & (thresholds[1:-1] <= ends[1])).all()


def policy_counts(rates, costs, *, accepted=None):
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


def test_the_front_has_the_undominated_policies():
    """By the definition, every policy against every other."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        size = 60
        counts = policy_counts(
            np.zeros(size),
            rng.integers(0, 9, size),
            accepted=rng.choice([0, 10, 100], size),
        )
        p_values, cost = rng.integers(0, 9, size) / 10, counts.cost
        accepting = np.flatnonzero(counts.accepted > 0)

        def beaten(i, accepting=accepting, p_values=p_values, cost=cost):
            better = (p_values[accepting] <= p_values[i]) & (cost[accepting] <= cost[i])
            return (
                better
                & ((p_values[accepting] < p_values[i]) | (cost[accepting] < cost[i]))
            ).any()

        expected = {(p_values[i], cost[i]) for i in accepting if not beaten(i)}
        front = find_front(counts, p_values)
        assert [(p_values[i], cost[i]) for i in front] == sorted(expected)
        assert (np.diff(cost[front]) < 0).all()
        for i in front:
            same = accepting[
                (p_values[accepting] == p_values[i]) & (cost[accepting] == cost[i])
            ]
            assert counts.accepted[i] == counts.accepted[same].max()


@pytest.mark.parametrize(
    ("target", "value", "denominator", "limit"),
    [("risk", 0.05, "accepted", 0.05), ("joint", 0.03, 400, 0.03),
     ("trr", 0.9, "errors", 0.1)],
)  # fmt: skip
def test_p_values_are_those_of_the_binomial(target, value, denominator, limit):
    stage_doubts = awkward_doubts(400, 2, seed=5)
    counts = count_some(
        stage_doubts, [0, 1, 10], np.array([[-1.5, -1.0], [INF, 0], [0, 1]])
    )
    denominator = (
        denominator if isinstance(denominator, int) else getattr(counts, denominator)
    )
    expected = stats.binom.cdf(counts.wrong, denominator, limit)
    np.testing.assert_allclose(counts.p_values(target, value), expected, rtol=1e-9)
    np.testing.assert_array_equal(counts.rate(target), counts.wrong / denominator)


@pytest.mark.parametrize("target", CASCADE_TARGETS)
def test_what_accepts_nothing_or_errs_never_proves_nothing_of_itself(target):
    counts = policy_counts([0.0], [1.0], accepted=[0])
    p_value = {"risk": 1.0, "joint": 0.9**200, "trr": 0.9**60}[target]
    value = 0.9 if target == "trr" else 0.1
    assert counts.p_values(target, value)[0] == pytest.approx(p_value)


def test_a_sequence_ends_at_its_first_failure():
    """By hand: 5 of 100 may be 0.1 (p = 0.058), 6 may not (p = 0.117), 0 may again."""
    tested = policy_counts([0.02, 0.05, 0.06, 0.0], [4, 3, 2, 1])
    p = stats.binom.cdf([2, 5, 6, 0], 100, 0.1)
    assert ((p <= 0.1) == [True, True, False, True]).all()
    assert count_passed(tested, "risk", 0.1, 0.1) == 2
    assert count_passed(tested[np.arange(2)], "risk", 0.1, 0.1) == 2
    assert count_passed(tested[np.array([2, 0])], "risk", 0.1, 0.1) == 0


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("target", CASCADE_TARGETS)
def test_policies_are_listed_by_falling_cost_after_safer_ones(target, separate):
    """None of them is beaten by another in expected p-value and cost together."""
    rng = np.random.default_rng(0)
    doubts = rng.normal(size=(600, 2))
    wrong = rng.random((600, 2)) < 1 / (1 + np.exp(2 - 2 * doubts))
    stage_doubts, costs = StageDoubts(doubts, wrong, separate), [0, 1, 10]
    value = 0.8 if target == "trr" else 0.1
    options = {"rows": 1200, "delta": 0.1}
    listed = list_policies(stage_doubts, costs, target, value, **options)
    repeated = count_some(stage_doubts, costs, listed.thresholds)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(repeated, name), getattr(listed, name))
    assert (listed.accepted > 0).all()
    denominator = listed.denominator(target)
    expected = stats.binom.cdf(
        np.ceil(2 * listed.wrong), 2 * denominator, CASCADE_TARGETS[target].limit(value)
    )
    assert (np.diff(listed.cost[2:]) < 0).all()
    assert (np.diff(expected[2:]) >= 0).all()
    for k in range(2):  # all thresholds of these lie lower than where the front begins
        assert (listed.thresholds[k] <= listed.thresholds[2]).all()
        assert expected[k] <= 0.01
