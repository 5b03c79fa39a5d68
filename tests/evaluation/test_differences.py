"""The verdict names a score that ranks errors clearly better."""

import re

import numpy as np
import pytest
from laws import tied
from scipy.stats import norm

import trustdoctor as td
from trustdoctor.evaluation import Tally
from trustdoctor.evaluation.differences import gains_over


@pytest.fixture
def odd(rng):
    """Rows whose errors only the largest logit reveals."""
    z = rng.normal(size=(3000, 3)) * 3
    labels = np.where(z.max(1) > 1, z.argmax(1), (z.argmax(1) + 1) % 3)
    return td.Predictions.from_logits(z, labels)


def test_the_verdict_names_the_better_score(odd):
    names = ["msp", "alpha", "max_logit", "entropy"]
    evaluation = td.evaluate(odd, scores=names)
    areas = {n: td.auroc(td.SCORES[n](odd), odd.errors) for n in names}
    best = max(areas, key=areas.get)
    assert best == "max_logit"
    verdict = re.search(
        r"Careful: on these rows (\w+) ranks errors better than msp \(AUROC "
        r"\+([\d.]+) \[\+([\d.]+), \+([\d.]+)\] points\)\.$",
        evaluation.verdict(),
    )
    assert verdict[1] == best
    gain = areas[best] - areas["msp"]
    low, high = td.delong_difference(
        td.SCORES[best](odd), td.SCORES["msp"](odd), odd.errors
    )
    wider = norm.ppf(1 - 0.025 / 3) / norm.ppf(0.975)  # three others, all together
    expected = gain, gain - wider * (gain - low), gain + wider * (high - gain)
    assert [float(verdict[i]) for i in (2, 3, 4)] == pytest.approx(
        [100 * number for number in expected], abs=0.006
    )
    assert "Careful" not in evaluation.verdict("max_logit")


def test_counted_rows_say_it_where_the_wider_interval_is_clear(odd):
    for scores, clear in ((["msp", "max_logit"], True), (["msp", "alpha"], False)):
        tally = Tally(scores)
        tally.update(odd)
        evaluation = tally.evaluate()
        assert evaluation.streamed
        assert ("Careful" in evaluation.verdict()) == clear


def test_equal_scores_are_not_distinguished(rng):
    """Labels are drawn by the softmax: msp is as good as any."""
    z = rng.normal(size=(4000, 3)) * 2
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((4000, 1))).argmax(1)
    rows = td.Predictions.from_logits(z, labels)
    assert "Careful" not in td.evaluate(rows, scores=["msp", "alpha"]).verdict()


def test_gains_are_the_others_less_the_one_in_use(odd):
    names = ["alpha", "msp", "energy"]
    evaluation = td.evaluate(odd, scores=names)
    gains = gains_over("msp", evaluation.differences, confidence=0.95)
    assert set(gains) == {"alpha", "energy"}
    wider = norm.ppf(1 - 0.025 / 2) / norm.ppf(0.975)
    for name, gain in gains.items():
        pair = [tied(td.SCORES[score_name](odd)) for score_name in (name, "msp")]
        true = td.delong_difference(*pair, odd.errors)
        auroc, base = (td.auroc(doubts, odd.errors) for doubts in pair)
        value = auroc - base
        assert gain.value == pytest.approx(value)
        assert gain.low == pytest.approx(value - wider * (value - true[0]))
        assert gain.high == pytest.approx(value + wider * (true[1] - value))
