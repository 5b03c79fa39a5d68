import pytest

import trustdoctor as td
from trustdoctor.metrics import positions
from trustdoctor.report.advice import best_score, opening, say_alike


def rows(rng, n=4000):
    """Return a model that errs as often as it says."""
    logits = 2.5 * rng.normal(size=(n, 6))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return td.Predictions.from_logits(logits, labels)


def test_the_first_score_is_shown_unless_another_is_clearly_better(rng):
    p = rows(rng)
    same = td.evaluate(p, scores=["alpha", "msp"])
    assert best_score(same) == "alpha"
    assert "no score is clearly better" in say_alike(same, "alpha")
    shift = 9 * rng.normal(size=(len(p), 1))  # which energy takes for confidence
    shifted = td.Predictions.from_logits(p.logits + shift, p.labels)
    found = td.evaluate(shifted, scores=["energy", "alpha"])
    assert best_score(found) == "alpha"
    assert say_alike(found, "alpha").endswith("clearly better than all others.")
    assert say_alike(td.evaluate(p, scores=["alpha"]), "alpha") == ""


@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.99])
def test_it_opens_with_a_round_risk_that_some_threshold_meets(accuracy, rng):
    n = 5000
    wrong = rng.random(n) > accuracy
    chart = positions(rng.normal(size=n) + 3 * wrong, wrong)
    opened = opening(chart)
    assert opened["target"] == "risk"
    assert chart.risk[opened["at"]] <= opened["value"] <= wrong.mean() / 2
    later = slice(opened["at"] + 1, None)
    assert (chart.risk[later] > opened["value"]).all()  # none answers more


def test_where_no_risk_can_be_had_it_opens_with_few_right_answers_lost(rng):
    wrong = rng.random(500) < 0.3
    chart = positions(rng.random(500), wrong)  # a score that tells nothing
    opened = opening(chart)
    assert opened["target"] == "frr"
    assert chart.frr[opened["at"]] <= 0.05
