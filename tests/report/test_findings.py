import numpy as np
import pytest
from scipy.stats import beta

from trustdoctor import Predictions
from trustdoctor.report.findings import by_class, confusions, extremes


@pytest.fixture
def rows(rng):
    logits = rng.normal(size=(400, 5))
    labels = np.where(rng.random(400) < 0.6, logits.argmax(1), rng.integers(0, 5, 400))
    return Predictions.from_logits(logits, labels), rng.random(400) < 0.7


def test_classes_are_counted_by_their_prediction(rows):
    p, accepted = rows
    found = by_class(p, accepted, 0.95)
    assert sum(row.n for row in found) == 400
    risks = [row.risk.value for row in found]
    assert risks == sorted(risks, reverse=True)
    for row in found:
        own = p.predicted == row.label
        correct, errors = own & ~p.errors, own & p.errors
        assert row.accuracy.value == pytest.approx(correct.sum() / own.sum())
        assert row.frr.value == pytest.approx(
            (correct & ~accepted).sum() / correct.sum()
        )
        assert row.trr.value == pytest.approx((errors & ~accepted).sum() / errors.sum())
        slipped, kept = (errors & accepted).sum(), (own & accepted).sum()
        assert row.risk.value == pytest.approx(slipped / kept)
        assert row.risk.high == pytest.approx(
            beta.ppf(0.975, slipped + 1, kept - slipped)
        )


def test_confusions_are_those_that_slip_through(rows):
    p, accepted = rows
    found = confusions(p, accepted)
    for pair in found:
        own = p.errors & (p.labels == pair.label) & (p.predicted == pair.predicted)
        assert (pair.n, pair.accepted) == (own.sum(), (own & accepted).sum())
    slipped = [pair.accepted for pair in found]
    assert slipped == sorted(slipped, reverse=True)
    assert confusions(p, np.zeros(400, bool)) == []


def test_extremes_come_in_order_and_ties_by_row(rows):
    p, _ = rows
    scores = np.round(np.random.default_rng(3).normal(size=400), 1)
    errors, correct = extremes(p, scores)
    wanted = sorted(np.flatnonzero(p.errors), key=lambda row: (scores[row], row))
    assert errors == wanted[:10]
    wanted = sorted(np.flatnonzero(~p.errors), key=lambda row: (-scores[row], row))
    assert correct == wanted[:10]
    few = Predictions.from_logits([[1.0, 0], [0, 1]], [0, 0])
    assert extremes(few, np.array([0.0, 1.0])) == ([1], [0])
