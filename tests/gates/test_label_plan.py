"""What more labels would buy: stated against what more labels give."""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError, LabelsMissingError, UndefinedMetricError
from trustdoctor.gates.risk import risk_cut
from trustdoctor.gates.rules import threshold_of
from trustdoctor.gates.sample import Rows


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, 4))
    labels = (logits + 1.5 * rng.normal(size=logits.shape)).argmax(1)
    return td.Predictions.from_logits(logits, labels)


def test_stated_chances_are_near_what_more_labels_give():
    population = rows(40_000, seed=1)
    doubts, errors = td.alpha(population), population.errors
    rng, gaps = np.random.default_rng(2), []
    for _ in range(24):
        sample = population[rng.choice(40_000, 150, replace=False)]
        outlooks = td.plan(sample, risk=0.05).outlooks
        assert [o.rows for o in outlooks] == [150, 300, 750]
        for outlook in outlooks[1:]:
            made = []
            for _ in range(20):
                drawn = rng.choice(40_000, outlook.rows, replace=False)
                labelled = Rows(doubts[drawn], errors[drawn])
                cut = risk_cut(labelled, 0.05, mode="confidence", delta=0.1)
                made.append(float((doubts <= threshold_of(cut, labelled)).mean()))
            gaps.append(outlook.decides * outlook.median - np.mean(made))
    assert abs(np.mean(gaps)) < 0.08


def test_numbers_of_labels_may_be_named_and_it_shows_a_table():
    plan = td.plan(rows(200), risk=0.1, labels=[100, 1000])
    assert [o.rows for o in plan.outlooks] == [100, 1000]
    assert plan.outlooks[0].decides <= plan.outlooks[1].decides
    frame = plan.to_frame()
    assert frame["labels"].to_list() == [100, 1000]
    assert "no promise" in repr(plan)


def test_what_cannot_be_planned_is_refused():
    p = rows(100)
    with pytest.raises(InputError, match="one target"):
        td.plan(p, risk=0.1, coverage=0.5)
    with pytest.raises(InputError, match="one target"):
        td.plan(p)
    with pytest.raises(InputError, match="labels of 1 or more"):
        td.plan(p, risk=0.1, labels=[0])
    with pytest.raises(LabelsMissingError):
        td.plan(td.Predictions.from_logits(p.logits), risk=0.1)
    with pytest.raises(UndefinedMetricError, match="right and wrong rows"):
        td.plan(p[~p.errors], risk=0.1)
