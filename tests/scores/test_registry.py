"""Several scores at once give exactly the numbers that each gives alone."""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.kernels import _native
from trustdoctor.scores import find_logit_score, find_score, score_all, score_together
from trustdoctor.tuning import FAMILY


@pytest.fixture
def rows(rng):
    return td.Predictions.from_logits(rng.normal(size=(500, 7)).astype(np.float32))


@pytest.mark.parametrize("available", [True, False])
def test_scores_together_are_the_scores_alone(available, rows, monkeypatch):
    monkeypatch.setattr(_native, "available", available and _native.available)
    scores = [find_logit_score(name) for name in (*FAMILY, "msp", "alpha", "msp")]
    together = score_together(rows, scores)
    assert len(together) == len(scores)
    for score, doubts in zip(scores, together, strict=True):
        assert np.array_equal(doubts, score(rows)), score.name


def test_decisions_are_doubted_as_each_score_does(rng):
    probs = rng.dirichlet(np.ones(3), 50)
    decided = td.Predictions.from_probs(probs, predicted=rng.integers(0, 3, 50))
    scores = [find_score(name) for name in ("beta", "msp", "margin")]
    for score, doubts in zip(scores, score_together(decided, scores), strict=True):
        assert np.array_equal(doubts, score(decided))


def test_a_temperature_is_that_of_scores_of_the_logits(rows):
    fitted = td.RelU(1 - np.eye(7))
    doubts = score_all(rows, ["alpha", "gen", fitted], temperature=2.0)
    assert list(doubts) == ["alpha", "gen", "rel_u"]
    assert np.array_equal(doubts["alpha"], td.alpha(rows, temperature=2.0))
    assert np.array_equal(doubts["rel_u"], fitted(rows))


def test_scores_that_the_rows_do_not_suffice_for_are_refused(rows):
    with pytest.raises(InputError, match="needs features"):
        score_together(rows, [find_score("alpha"), td.SIRC(0.0, 1.0, 2)])
