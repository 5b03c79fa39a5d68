import trustdoctor as td
from trustdoctor.report.offers import best_score, say_alike


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
    evaluation = td.evaluate(shifted, scores=["energy", "alpha"])
    assert best_score(evaluation) == "alpha"
    assert say_alike(evaluation, "alpha").endswith("clearly better than all others.")
    assert say_alike(td.evaluate(p, scores=["alpha"]), "alpha") == ""
