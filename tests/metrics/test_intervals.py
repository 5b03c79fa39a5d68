"""Shares with Clopper and Pearson's interval, and how numbers are shown."""

import pytest
from scipy import stats

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.metrics import (
    FEW_NOTE,
    FEW_ROWS,
    Estimate,
    few_note,
    normal_quantile,
    share,
)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (481, 10_000)])
def test_clopper_pearson_meets_scipy(k, n):
    true = stats.binomtest(k, n).proportion_ci(0.9, "exact")
    assert td.clopper_pearson(k, n, confidence=0.9) == pytest.approx(tuple(true))


def test_parts_of_a_row_lie_between_whole_ones():
    ends = [td.clopper_pearson(k, 10.5) for k in (2, 2.5, 3)]
    assert ends == sorted(ends)
    low, high = td.clopper_pearson(2.5, 10.5)
    assert stats.beta(2.5, 9).cdf(low) == pytest.approx(0.025)
    assert stats.beta(3.5, 8).cdf(high) == pytest.approx(0.975)


@pytest.mark.parametrize("confidence", [0, 1, 95, float("nan")])
def test_a_bad_confidence_is_refused(confidence):
    with pytest.raises(InputError, match="confidence between 0 and 1"):
        td.clopper_pearson(1, 2, confidence=confidence)


@pytest.mark.parametrize(("k", "n"), [(5, 3), (-1, 3)])
def test_successes_beyond_the_rows_are_refused(k, n):
    with pytest.raises(InputError, match="successes from 0 to n"):
        td.clopper_pearson(k, n)


def test_a_share_keeps_the_rows_that_it_is_made_of():
    estimate = share(3, 12, confidence=0.9)
    assert (estimate.value, estimate.count, estimate.n) == (0.25, 3, 12)
    assert (estimate.low, estimate.high) == td.clopper_pearson(3, 12, confidence=0.9)
    empty = share(0, 0)
    assert (empty.value, empty.low, empty.high) == (None, None, None)


@pytest.mark.parametrize(
    ("estimate", "sign", "shown"),
    [
        (Estimate(0.25, 0.2, 0.3), False, "25.00 [20.00, 30.00]"),
        (Estimate(0.25, -0.2, 0.3), True, "+25.00 [-20.00, +30.00]"),
        (Estimate(0.25), False, "25.00"),
        (Estimate(None, note="needs rows of both kinds"), False, "-"),
    ],
)
def test_estimates_are_shown_in_percent(estimate, sign, shown):
    assert estimate.percent(sign=sign) == shown


def test_normal_quantiles_leave_the_confidence_between_them():
    for confidence in (0.5, 0.9, 0.999):
        z = normal_quantile(confidence)
        inside = stats.norm.cdf(z) - stats.norm.cdf(-z)
        assert inside == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("errors", "correct", "note"),
    [
        (FEW_ROWS - 1, 300, FEW_NOTE),
        (FEW_ROWS, FEW_ROWS, ""),
        (300, FEW_ROWS - 1, FEW_NOTE.replace("errors", "correct rows")),
        (1, 1, FEW_NOTE),
    ],
)
def test_few_rows_of_a_kind_carry_a_note(errors, correct, note):
    assert few_note(errors, correct) == note
    assert str(FEW_ROWS) in FEW_NOTE
