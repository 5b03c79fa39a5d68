"""Scores that rounding alone may tell apart are tied: groups, cells and rankings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor.metrics import Ranking, count
from trustdoctor.metrics.counts import are_apart, last_of_each

INF = np.inf
R = 2.0**-10

scores = st.lists(
    st.one_of(
        st.integers(-40, 40).map(lambda k: k * R),  # near one another
        st.floats(-50, 50),
        st.sampled_from([-INF, INF, 0.0, -0.0]),
    ),
    min_size=1,
    max_size=60,
)


def linked(ordered, rounding):
    """Where a group ends, one score after another."""
    ends, start = [], ordered[0]
    for low, high in zip(ordered, [*ordered[1:], None], strict=True):
        if high is None or (
            low != high and high - low > 2 * rounding * max(1, min(abs(low), abs(high)))
        ):
            ends.append((start, low))
            start = high
    return ends


@given(scores)
def test_scores_are_linked_to_the_next_within_rounding(values):
    ordered = np.sort(np.array(values) + 0.0)
    last = last_of_each(ordered, R)
    whole = linked(ordered.tolist(), R)
    assert set(ordered[last]) >= {end for _, end in whole}
    for start, end in whole:  # a chain that is short is one group
        if start == end or end - start <= 4 * R * max(1, min(abs(start), abs(end))):
            assert not ((ordered[last] >= start) & (ordered[last] < end)).any()


@given(scores)
def test_no_group_is_wider_than_a_few_roundings(values):
    ordered = np.sort(np.array(values) + 0.0)
    last = last_of_each(ordered, R)
    first = np.append(0, last[:-1] + 1)
    for start, end in zip(ordered[first], ordered[last], strict=True):
        assert start == end or end - start <= 8 * R * max(1, abs(start), abs(end))
    assert ordered[last[-1]] == ordered[-1]


def test_a_long_chain_is_not_one_group():
    ordered = np.arange(0, 1, R / 2)
    last = last_of_each(ordered, R)
    assert 200 < len(last) < 600
    assert np.array_equal(last_of_each(ordered), np.arange(len(ordered)))


def test_infinities_are_apart_from_all_but_themselves():
    low, high = np.array([-INF, -INF, 1e300, INF]), np.array([-INF, 0, INF, INF])
    assert are_apart(low, high, R).tolist() == [False, True, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_rankings_and_counts_do_not_see_rounding(seed):
    rng = np.random.default_rng(seed)
    levels = rng.integers(-8, 8, 300) / 2.0
    wrong = rng.random(300) < 0.3
    moved = levels + rng.uniform(-R, R, 300)
    plain, rounded = count(levels, wrong), count(moved, wrong, rounding=R)
    assert np.array_equal(plain.correct, rounded.correct)
    assert np.array_equal(plain.errors, rounded.errors)
    assert (rounded.lowest <= plain.highest + R).all()
    assert (plain.highest <= rounded.highest + R).all()
    first, second = Ranking(levels, wrong), Ranking(moved, wrong, R)
    assert first.same_order(second)
    assert second.same_order(first)
    assert not first.same_order(Ranking(moved, wrong))
    change = rng.permutation(levels)
    assert not first.same_order(Ranking(change, wrong))


@pytest.mark.parametrize("seed", range(5))
def test_sketches_tie_what_rows_tie(seed):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=500), 2) + rng.uniform(-R, R, 500)
    wrong = rng.random(500) < 0.3
    sketch = td.Sketch()
    sketch.update(scores, wrong)
    tied, rows = sketch.tied(R), count(scores, wrong, rounding=R)
    for name in ("correct", "errors", "lowest", "highest"):
        assert np.array_equal(getattr(tied.counts, name), getattr(rows, name)), name
    assert tied.exact
    assert (len(tied), tied.n_errors) == (len(sketch), sketch.n_errors)
    assert len(sketch.counts.correct) > len(rows.correct)


def test_cells_of_several_scores_are_joined_to_none():
    """Nothing is known of the order within them."""
    sketch = td.Sketch(cells=1 << 13)
    rng = np.random.default_rng(0)
    sketch.update(rng.normal(size=100_000), rng.random(100_000) < 0.1)
    before = sketch.cells
    assert not (before.low == before.high).all()
    tied = sketch.tied(2.0**-19)
    assert not tied.exact
    wide = before.low != before.high
    assert np.isin(before.low[wide], tied.cells.low).all()
    assert tied.bounds("auroc")[0] <= sketch.bounds("auroc")[1]
