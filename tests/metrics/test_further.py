"""One row more than was seen: where it lies, and that ranks alone decide."""

import math

import numpy as np
import pytest
from metrics.ranked import draw
from scipy.stats import norm

from trustdoctor.evaluation.evaluations import EvaluationSettings, rank_estimates
from trustdoctor.metrics import Counts, Points, count, count_runs, counts
from trustdoctor.metrics.further import (
    OUTERMOST,
    STEPS,
    beyond,
    largest,
    outermost,
    tail,
    with_further,
)


@pytest.mark.parametrize("step", [0.0, 0.5])
@pytest.mark.parametrize("change", [np.exp, np.arctan, lambda s: 3 * s**3 - 7])
def test_monotone_maps_of_the_scores_change_no_interval(rng, step, change):
    scores, errors = draw(rng, 120, step=step)
    settings = EvaluationSettings(Points(trr=0.9, risk=0.05))
    found = rank_estimates(count(change(scores), errors), settings)
    assert found == rank_estimates(count(scores, errors), settings)


@pytest.mark.parametrize(
    ("options", "more_errors", "more_correct"),
    [({}, 1, 1), ({"correct": False}, 1, 0), ({"errors": False}, 0, 1)],
)
def test_one_row_more_of_each_kind_is_counted(rng, options, more_errors, more_correct):
    for step in (0.0, 0.5):
        c = count(*draw(rng, 120, step=step))
        found = with_further(c, **options)
        assert found.n_errors == pytest.approx(c.n_errors + more_errors)
        assert found.n_correct == pytest.approx(c.n_correct + more_correct)


def test_a_further_row_never_flatters(rng):
    for _ in range(50):
        c = count(*draw(rng, 30, step=rng.choice([0.0, 0.5])))
        worse = with_further(c)
        assert counts.auroc(worse) <= counts.auroc(c) + 1e-12
        assert counts.aurc(with_further(c, correct=False)) >= counts.aurc(c) - 1e-12


def test_a_single_error_by_hand():
    """Two correct rows on either side: it is at 0 on the normal scale."""
    c = Counts(np.array([2, 0, 2]), np.array([0, 1, 0]))
    found = tail(c)
    assert (found.first, found.step, found.others) == (0.0, 1.0, 4.0)
    thirds = np.clip(norm.cdf([math.log(x / 6) for x in (5, 3, 1)]) * 5 - 0.5, 0, 4)
    assert found.below(STEPS) == pytest.approx(thirds)
    assert thirds[2] == 0
    # Below the error the two correct rows are tied: one more error ties with them.
    worse = with_further(c, correct=False)
    assert worse.errors == pytest.approx([1, 1, 0])
    assert counts.auroc(worse) == pytest.approx((2 + 1) / 2 / 4)
    apart = with_further(Counts(np.ones(5), np.array([0, 0, 1, 0, 0])), correct=False)
    assert apart.errors == pytest.approx([2 / 3, 1 / 3, 1, 0, 0])  # at 0, 0.9 and 1.7


@pytest.mark.parametrize(
    ("correct", "errors", "further"),
    [
        ([100, 70], [10, 20], [11, 20]),  # the least doubtful value has errors
        ([100, 70], [0, 30], [1, 30]),  # it has none: the next may be there
        ([80, 60, 30], [0, 12, 18], [1, 12, 18]),
    ],
)
def test_of_tied_rows_the_next_is_beyond_the_whole_group(correct, errors, further):
    """To split it would put its own errors above the next, and look better."""
    c = Counts(np.array(correct), np.array(errors))
    worse = with_further(c, correct=False)
    assert worse.errors == pytest.approx(further)
    assert worse.correct.tolist() == correct
    assert counts.auroc(worse) < counts.auroc(c)
    mirrored = with_further(c.swapped(), errors=False)
    assert mirrored.correct == pytest.approx(further[::-1])


def test_a_further_row_never_flatters_tied_rows(rng):
    for values in (2, 4, 10):
        for _ in range(50):
            scores = rng.integers(0, values, 200) + (errors := rng.random(200) < 0.2)
            c = count(np.minimum(scores, values - 1), errors)
            worse = with_further(c)
            assert counts.auroc(worse) < counts.auroc(c)
            assert counts.aupr(worse) <= counts.aupr(c) + 0.02
            assert counts.aurc(with_further(c, correct=False)) > counts.aurc(c)


def test_tied_rows_are_half_below():
    z, step = outermost(Counts(np.array([4]), np.array([2])), 1)
    assert z.tolist() == [0, 0]
    assert step == 0
    assert tail(Counts(np.array([4]), np.array([2]))).step == 0.5  # the least


def test_the_outermost_errors_by_hand():
    """Correct rows at 0 to 8, errors above 1, 4, 6 and 8 of them."""
    scores = [*range(9), 0.5, 3.5, 5.5, 7.5]
    errors = np.arange(13) >= 9
    z, step = outermost(count(scores, errors), 2)
    true = norm.ppf([1.5 / 10, 4.5 / 10, 6.5 / 10])
    assert z == pytest.approx(true)
    assert step == pytest.approx(((true[2] - true[0]) + (true[2] - true[1])) / 2)
    assert tail(count_runs(scores, errors)).step == pytest.approx(max(0.5, step))


def test_no_more_than_the_ten_outermost_errors_count(rng):
    correct, wrong = rng.normal(size=300), np.sort(rng.normal(size=40) + 2)
    moved = wrong.copy()
    moved[OUTERMOST + 1 :] += 5
    errors = np.arange(340) >= 300
    one, other = (tail(count_runs([*correct, *w], errors)) for w in (wrong, moved))
    assert one == other
    moved[OUTERMOST] -= 0.5
    assert tail(count_runs([*correct, *np.sort(moved)], errors)) != one


def test_a_value_beyond_the_largest_by_hand():
    found = beyond(np.arange(100.0), 1000.0)
    assert found == pytest.approx(99 + 5.5 * STEPS)  # 1 to 10 above the eleventh
    assert beyond(np.array([1.0, 3.0]), 9.0) == pytest.approx(3 + 2 * STEPS)


def test_no_value_is_beyond_the_most_there_can_be():
    assert beyond(np.arange(100.0), 100.0) == pytest.approx([100, 100, 100])
    for alike in (np.array([3.0]), np.full(20, 3.0)):
        assert beyond(alike, 7.0).tolist() == [7]  # nothing shows how far


def test_the_largest_values_are_found(rng):
    values = rng.normal(size=5000)
    assert np.array_equal(largest(values, 11), np.sort(values)[::-1][:11])
    assert largest(values[:3], 11).tolist() == sorted(values[:3], reverse=True)


@pytest.mark.parametrize("at", [0, 10_000, 19_999])
def test_of_many_values_the_largest_is_among_them(rng, at):
    values = rng.random(20_000)
    values[at] = 2
    found = largest(values, 11)
    assert found[0] == 2
    assert (np.diff(found) <= 0).all()
    assert np.isin(found, values).all()
    assert (found <= np.sort(values)[::-1][:11]).all()
    assert found[-1] > 0.99
