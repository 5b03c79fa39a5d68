"""What a page says of a gate is what gates on other rows then do."""

import re

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.metrics import threshold_grid
from trustdoctor.report.offers import choose_opening, make_offers, place_of


def draw(rng, n, accuracy=0.9, separation=2.5):
    errors = rng.random(n) >= accuracy
    return rng.normal(size=n) + separation * errors, errors


def offer_of(offers, target, value):
    (offer,) = [o for o in offers if (o.target, o.value) == (target, value)]
    return offer


@pytest.mark.parametrize(
    ("target", "value"), [("risk", 0.02), ("frr", 0.1), ("coverage", 0.8)]
)
def test_gates_on_other_rows_do_what_was_offered(target, value, rng):
    offer = offer_of(make_offers(*draw(rng, 2000)), target, value)
    coverages = []
    for _ in range(30):
        gate = td.calibrate_scores(*draw(rng, 2000), **{target: value})
        coverages.append(gate.accept(draw(rng, 20_000)[0]).mean())
    assert offer.likely
    assert offer.coverage == pytest.approx(np.median(coverages), abs=0.05)
    ends = [int(n) / 100 for n in re.findall(r"([\d]+)%", offer.detail)]
    low, high = min(ends), max(ends)
    inside = np.mean([low - 0.03 <= c <= high + 0.03 for c in coverages])
    assert inside >= 0.6  # four of five are promised


def test_it_says_that_a_value_cannot_be_promised_and_which_can(rng):
    """The threshold that just meets the risk on these rows is never the headline."""
    scores, errors = draw(rng, 150, accuracy=0.85, separation=3.0)
    offers = make_offers(scores, errors, count_rows=True)
    offer = offer_of(offers, "risk", 0.01)
    assert td.coverage_at_risk(scores, errors, risk=0.01) > 0  # on these very rows
    assert not offer.likely
    assert offer.headline.startswith(
        "At most 1% wrong among the automatic answers cannot be promised with 150 rows"
    )
    can = re.search(
        r"; at most |; ([\d.]+)% can, for (\d+)% of the rows", offer.headline
    )
    easier = offer_of(offers, "risk", float(can[1]) / 100)
    assert easier.likely
    assert f"{100 * easier.coverage:.0f}" == can[2]
    assert re.search(
        r"in (fewer than 1 of 20|none of 10|about \d+ of 10) calibrations", offer.detail
    )
    enough = re.search(r"in most of those on about ([\d,]+)\.", offer.detail)
    n = int(enough[1].replace(",", ""))
    promise_held = [
        td.calibrate_scores(*draw(rng, n, 0.85, 3.0), risk=0.01).state == "threshold"
        for _ in range(20)
    ]
    assert np.mean(promise_held) > 0.5


def test_more_rows_for_the_gate_allow_more(rng):
    scores, errors = draw(rng, 300)
    on_few_rows = offer_of(make_offers(scores, errors), "risk", 0.01)
    on_many_rows = offer_of(make_offers(scores, errors, 10_000), "risk", 0.01)
    assert on_many_rows.likely > on_few_rows.likely
    assert "each made from 10,000 rows" in on_many_rows.detail


@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.99])
def test_a_page_opens_with_a_promise_that_can_be_made(accuracy, rng):
    scores, errors = draw(rng, 5000, accuracy, 3.0)
    offers = make_offers(scores, errors)
    opened = choose_opening(offers, errors.mean())
    assert opened.target == "risk"
    assert opened.likely
    assert opened.value < errors.mean()
    chart = threshold_grid(scores, errors)
    at = place_of(opened, chart)
    assert chart.coverage[at] == pytest.approx(opened.coverage, abs=0.01)


def test_where_no_risk_can_be_promised_few_right_answers_are_lost(rng):
    errors = rng.random(500) < 0.3
    offers = make_offers(rng.random(500), errors)  # an uninformative score
    opened = choose_opening(offers, errors.mean())
    assert (opened.target, opened.value) == ("frr", 0.05)


def test_risks_are_offered_below_what_there_is_without_a_gate(rng):
    offers = make_offers(*draw(rng, 1000, accuracy=0.97))
    risks = [o.value for o in offers if o.target == "risk"]
    assert max(risks) < 0.03 + 0.02
    assert {o.target for o in offers} == {"risk", "frr", "coverage"}
