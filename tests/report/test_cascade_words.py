"""The wording about a cascade, with numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.opinion import Alone
from trustdoctor.report.cascade_page import (
    combined,
    cost_words,
    decimals,
    doubtful_gains,
    format_of_costs,
    headline,
    list_steps,
    require_measured,
    visible_range,
)


def test_rows_flow_as_worked_out_on_paper(by_hand):
    small, large, person = list_steps(by_hand)
    assert [small.asked, large.asked, person.asked] == [1.0, 0.25, 0.12]
    assert [small.stops, large.stops, person.stops] == pytest.approx([0.75, 0.13, 0.12])
    assert [small.before, large.before, person.before] == pytest.approx([0, 0.75, 0.88])
    assert [small.adds, large.adds, person.adds] == pytest.approx([0, 0.25, 1.2])
    assert [small.rule, large.rule] == ["alpha at most -2.5", "alpha at most -1.25"]
    assert headline(by_hand) == (
        "large is asked about 25.0% of the rows, a person gets 12.0%. That costs 1.45 "
        "per row; small alone 1.69, large alone 2.36."
    )
    assert "mean of their log-prob" in combined(by_hand)[0]


@pytest.mark.parametrize("combine", ["average", "own"])
def test_shares_and_costs_add_up_to_those_of_the_cascade(combine, three_models):
    every, labels = three_models
    cascade = td.Cascade.calibrate(
        every, labels, trr=0.8, costs=[1, 2, 4, 30], combine=combine
    )
    steps = list_steps(cascade)
    assert sum(step.stops for step in steps) == pytest.approx(1)
    cost = cascade.measured.whole.cost.value
    assert sum(step.adds for step in steps) == pytest.approx(cost)


def test_stages_that_are_not_asked_are_named(by_hand):
    measured = replace(
        by_hand.measured,
        asked=(0.0, 1.0),
        whole=replace(by_hand.measured.whole, person=0.3),
    )
    own_models = replace(
        by_hand, combine="own", thresholds=(-np.inf, np.inf), measured=measured
    )
    small, large, _ = list_steps(own_models)
    assert (small.rule, small.asked, small.stops) == ("not asked", 0.0, 0.0)
    assert (large.rule, large.asked) == ("always", 1.0)
    assert large.stops == pytest.approx(0.7)
    assert headline(own_models).startswith("Only large is asked, a person gets 30.0%. ")
    assert combined(own_models) == []
    average = replace(
        own_models, combine="average", measured=replace(measured, asked=(1.0, 1.0))
    )
    small, large, _ = list_steps(average)
    assert (small.rule, small.asked, small.stops) == ("never", 1.0, 0.0)


def test_a_gain_that_is_not_clear_is_named(by_hand):
    assert list(doubtful_gains(by_hand.measured)) == []
    small, large = by_hand.measured.alone
    alone = (
        replace(small, more=td.Estimate(0.1, -0.1, 0.3)),
        replace(large, more=td.Estimate(-0.2, -0.3, -0.1)),
    )
    assert list(doubtful_gains(replace(by_hand.measured, alone=alone))) == [
        "Whether the cascade costs less than small alone is not clear.",
        "large alone costs less on these rows: a gate for it would do.",
    ]


@pytest.mark.parametrize(
    ("scale", "shown"),
    [(1.0, "1.45"), (1e-3, "0.00145"), (8.0, "11.60"), (700.0, "1,015"), (0.0, "0.00")],
)
def test_costs_have_enough_digits_at_any_scale(scale, shown, by_hand):
    measured = by_hand.measured

    def scaled(model):
        ends = (model.cost.value, model.cost.low, model.cost.high)
        cost = td.Estimate(*(scale * end for end in ends))
        return replace(model, cost=cost)

    measured = replace(
        measured, whole=scaled(measured.whole), alone=tuple(map(scaled, measured.alone))
    )
    assert f"{measured.whole.cost.value:{format_of_costs(measured)}}" == shown


def test_costs_are_shown_with_their_interval():
    assert cost_words(td.Estimate(-0.5, -1.0, 0.25), ",.2f", sign=True) == (
        "-0.50 [-1.00, +0.25]"
    )
    assert cost_words(None, ",.2f") == ""
    assert decimals(1e-30) == 12


def test_the_view_shows_the_limit_the_cascade_and_every_model(by_hand, calibrated):
    for measured in (by_hand.measured, calibrated.measured):
        (lowest, highest), (low, high) = visible_range(measured)
        assert lowest < measured.limit < highest <= 1
        for point in (measured.whole, *measured.alone):
            assert lowest <= point.rate <= highest
            assert low <= point.cost.value <= high
        near = measured.policies[measured.policies[:, 0] <= highest, 1]
        assert 0 <= low <= near.min()
    free = replace(by_hand.measured.whole, cost=td.Estimate(0.0, 0.0, 0.0))
    flat = replace(
        by_hand.measured,
        whole=free,
        alone=(replace(free, name="small"),),
        policies=np.zeros((1, 2)),
        tested=np.zeros((1, 2)),
        curves={"small": np.zeros((1, 2))},
    )
    low, high = visible_range(flat).costs
    assert low < high


def test_a_cascade_without_costs_is_refused():
    bare = td.Cascade(("small", "large"), (-2.0, -1.0), (0.0, 1.0, 10.0))
    with pytest.raises(InputError, match=r"made by hand. Make it with Cascade.calib"):
        require_measured(bare)
    with pytest.raises(InputError, match="expected a Cascade, got Alone"):
        require_measured(Alone("small", td.Estimate(1.0), 0.1, 0.1))
