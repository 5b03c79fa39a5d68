"""Counts at distinct scores: by hand, in runs, instead of scores, with rounding."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics.rank_samples import draw, samples

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import Ranking, count_runs, counts, score_counts
from trustdoctor.metrics.score_counts import are_apart, last_of_each


@pytest.fixture
def sliced(monkeypatch):
    """Rows that count as many, and so are counted in slices."""
    monkeypatch.setattr(score_counts, "_SLICED_ROWS", 1)
    monkeypatch.setattr(score_counts, "cores", lambda: 3)
    rng = np.random.default_rng(1)
    errors = rng.random(500) < 0.2
    return (rng.normal(size=500) + errors).round(1), errors


def runs_by_hand(scores, errors):
    """Count, row by row, between and at the scores of the errors."""
    values = sorted(set(scores[errors].tolist()))
    groups = [[0, 0] for _ in range(2 * len(values) + 1)]
    for score, error in zip(scores.tolist(), errors.tolist(), strict=True):
        below = sum(value < score for value in values)
        at = 2 * below + (score in values)
        groups[at][error] += 1
    return np.array(groups).T


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_runs_are_those_counted_row_by_row(sliced, dtype, share):
    scores = (10 * sliced[0]).astype(dtype)
    errors = np.random.default_rng(2).random(len(scores)) < share
    counted = count_runs(scores, errors)
    expected = runs_by_hand(scores, errors)
    assert np.array_equal([counted.correct, counted.errors], expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_distinct_score_is_counted(sliced, share):
    scores = sliced[0]
    errors = np.random.default_rng(2).random(len(scores)) < share
    counted = counts(scores, errors)
    values = np.unique(scores)
    assert np.array_equal(counted.scores, values)
    wrong = [(scores[errors] == value).sum() for value in values]
    right = [(scores[~errors] == value).sum() for value in values]
    assert np.array_equal([counted.correct, counted.errors], [right, wrong])


def test_zeros_of_both_signs_are_one_score():
    counted = counts([0.0, -0.0, 0.0], [True, False, False])
    assert (counted.correct.tolist(), counted.errors.tolist()) == ([2], [1])
    counted = count_runs([0.0, -0.0, 0.0], [True, False, False])
    assert counted.correct.tolist() == [0, 2, 0]


METRICS = {name: getattr(td, name) for name in (*td.metrics.RANK_METRICS, "delong")} | {
    "measure": td.measure,
    "interpolated": partial(td.frr_at_trr, interpolate=True),
    "aupr_correct": partial(td.aupr, positive="correct"),
}
CURVES = {
    "roc": td.roc,
    "risk_coverage": td.risk_coverage,
    "confusion": partial(td.confusion, threshold=0.3),
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@given(data=samples())
@pytest.mark.sampled(3)
def test_counts_give_what_scores_and_errors_give(metric, dtype, data):
    scores, errors = data[0].astype(dtype), data[1]
    c = td.counts(scores, errors)
    assert metric(c) == metric(scores, errors)
    assert metric(c) == metric(scores, errors)  # the second time, too


def test_counts_of_many_rows_give_the_same_to_the_bit(rng):
    for step in (0.0, 0.1):
        scores, errors = draw(rng, 20_000, step=step)
        c = td.counts(scores, errors)
        for name, metric in METRICS.items():
            assert metric(c) == metric(scores, errors), name


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
@given(data=samples())
def test_curves_of_counts_are_those_of_scores_and_errors(curve, data):
    ours, theirs = curve(td.counts(*data)), curve(*data)
    np.testing.assert_equal(ours, theirs)


@given(data=samples(), threshold=st.floats(-60, 60))
def test_confusions_of_counts(data, threshold):
    scores = data[0].astype(np.float32)
    ours = td.confusion(td.counts(scores, data[1]), threshold=threshold)
    assert ours == td.confusion(scores, data[1], threshold=threshold)


def test_three_metrics_of_counts_share_one_sort(rng, monkeypatch):
    scores, errors = draw(rng)
    c, sorts = td.counts(scores, errors), []
    monkeypatch.setattr(score_counts, "sort", sorts.append)
    td.auroc(c), td.frr_at_trr(c), td.aurc(c), td.roc(c), td.measure(c)
    assert not sorts


FUNCTIONS = METRICS | CURVES


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_counts_come_alone(function):
    c = td.counts([1.0, 2.0, 3.0], [False, True, False])
    with pytest.raises(InputError, match="counts know their errors"):
        function(c, [False, True, False])


def test_scores_come_with_errors():
    sketch = td.Sketch()
    for scores in ([1.0, 2.0], np.ones(3), sketch, "scores", None):
        kind = type(scores).__name__
        for function in METRICS.values():
            with pytest.raises(InputError, match=f"got {kind} without errors. Pass"):
                function(scores)
    with pytest.raises(InputError, match="as 2 booleans"):
        td.confusion([1.0, 2.0], threshold=0.3)


def test_counts_without_scores_have_no_thresholds():
    c = td.counts([1.0, 2.0, 3.0], [False, True, False]).reversed()
    assert td.auroc(c) == 0.5
    for curve in CURVES.values():
        with pytest.raises(InputError, match="expected counts with their scores"):
            curve(c)


def test_no_threshold_lies_between_tied_scores():
    c = td.counts([1.0, 1.000001, 2.0], [False, True, False], rounding=1e-5)
    assert c.correct.tolist() == [1, 1]
    for threshold in (0.5, 1.000001, 1.5):
        assert td.confusion(c, threshold=threshold).n == 3
    with pytest.raises(InputError, match="between groups of tied scores"):
        td.confusion(c, threshold=1.0000005)


INF = np.inf
R = 2.0**-10

VALUES = st.lists(
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


@given(VALUES)
def test_scores_are_linked_to_the_next_within_rounding(values):
    ordered = np.sort(np.array(values) + 0.0)
    last = last_of_each(ordered, R)
    groups = linked(ordered.tolist(), R)
    assert set(ordered[last]) >= {end for _, end in groups}
    for start, end in groups:  # a chain that is short is one group
        if start == end or end - start <= 4 * R * max(1, min(abs(start), abs(end))):
            assert not ((ordered[last] >= start) & (ordered[last] < end)).any()


@given(VALUES)
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
    plain, rounded = counts(levels, wrong), counts(moved, wrong, rounding=R)
    assert np.array_equal(plain.correct, rounded.correct)
    assert np.array_equal(plain.errors, rounded.errors)
    assert (rounded.lowest <= plain.scores + R).all()
    assert (plain.scores <= rounded.scores + R).all()
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
    tied, rows = sketch.tied(R), counts(scores, wrong, rounding=R)
    for name in ("correct", "errors", "lowest", "scores"):
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
