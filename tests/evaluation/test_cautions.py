"""Scores that tell no rows apart, or tell them the wrong way round."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, norm

import trustdoctor as td
from trustdoctor.evaluation import Tally, is_constant, reversed_line
from trustdoctor.metrics import count


def test_a_constant_score_is_named_in_memory_and_in_pieces():
    rng = np.random.default_rng(0)
    hard = td.Predictions.from_probs(np.eye(3)[rng.integers(0, 3, 200)], [0, 1] * 100)
    tally = Tally()
    tally.update(hard)
    for found in (td.evaluate(hard), tally.evaluate()):
        (line,) = [line for line in found.warnings if "tell rows apart" in line]
        assert line.startswith("alpha, beta, msp and entropy have one value for all")


def test_a_nearly_constant_score():
    confidence = np.where(np.arange(1000) < 992, 1.0, 0.7)
    answers = td.Predictions.from_confidence(
        confidence, correct=np.arange(1000) % 9 > 0
    )
    lines = td.evaluate(answers).warnings
    assert any("confidence has one value for 99% or more" in line for line in lines)


@pytest.mark.parametrize(
    ("scores", "constant"),
    [
        ([-np.inf] * 9, True),
        (1 / 3 + 1e-9 * np.arange(9), True),
        ([-np.inf] * 8 + [0.0], False),
        (np.arange(9.0), False),
    ],
)
def test_what_is_constant(scores, constant):
    assert is_constant(count(scores, [True] + [False] * 8)) is constant


def test_random_scores_are_not_turned():
    """One in 1,000 may be; errors below correct rows are."""
    rng = np.random.default_rng(0)
    wrong = np.arange(300) < 60
    lines = [reversed_line(count(rng.normal(size=300), wrong), "s") for _ in range(300)]
    assert sum(map(bool, lines)) <= 2
    answers = np.round(rng.random(300))  # ties
    for scores in (answers, np.minimum(rng.random(300), 0.02)):
        for power in (0.1, 0.25, 0.4):
            less = np.where(wrong & (rng.random(300) < power), scores.min(), scores)
            test = mannwhitneyu(
                less[wrong], less[~wrong], alternative="less", use_continuity=False
            )
            said = bool(reversed_line(count(less, wrong), "s"))
            assert said == (test.pvalue < norm.sf(3.1))
    turned = rng.normal(size=300) - wrong
    assert "Errors are less doubtful by s" in reversed_line(count(turned, wrong), "s")
