"""Rows drawn for labelling: uniform, within a share, and promised of nothing beyond."""

import math
from dataclasses import replace

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates import decides_nothing
from trustdoctor.gates.label_draw import LabelDraw, best_share


def world(n, seed=0, noise=2.0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, 4))
    labels = (logits + noise * rng.normal(size=logits.shape)).argmax(1)
    return td.Predictions.from_logits(logits, labels, ids=[f"r{i}" for i in range(n)])


POOL = world(6000)
ACCURACY = float((~POOL.errors).mean())


def test_rows_are_the_least_doubtful_share_and_uniform_in_it(monkeypatch):
    drawn = td.draw(POOL, labels=400, risk=0.1, accuracy=ACCURACY)
    doubts = td.alpha(POOL)
    below = np.flatnonzero(doubts <= drawn.limit)
    assert len(below) == pytest.approx(drawn.share * 6000)
    assert 0.1 <= drawn.share < 1
    assert set(drawn.rows) <= set(below)
    share = drawn.share
    monkeypatch.setattr(
        "trustdoctor.gates.label_draw.best_share", lambda *_, **__: share
    )
    counts = np.zeros(6000)
    for seed in range(300):
        counts[
            td.draw(POOL, labels=400, risk=0.1, accuracy=ACCURACY, seed=seed).rows
        ] += 1
    expected = 300 * 400 / len(below)
    assert counts[below].mean() == pytest.approx(expected)
    spread = counts[below].var() / (expected * (1 - 400 / len(below)))
    assert 0.9 < spread < 1.1
    order = below[np.argsort(doubts[below])]
    first, last = np.array_split(counts[order], 2)
    assert abs(first.mean() - last.mean()) < 4 * math.sqrt(2 * expected / len(first))


def test_a_larger_draw_contains_the_first_and_the_order_of_rows_is_nothing():
    first = td.draw(POOL, labels=100, risk=0.1)
    more = td.draw(POOL, labels=250, risk=0.1, after=first)
    assert set(first.rows) < set(more.rows)
    assert (more.limit, more.seed, len(more.rows)) == (first.limit, first.seed, 250)
    order = np.random.default_rng(1).permutation(6000)
    shuffled = td.draw(POOL[order], labels=100, risk=0.1)
    assert set(order[shuffled.rows]) == set(first.rows)
    for options, match in (
        ({"labels": 100}, "more than the 100 labels"),
        ({"labels": 200, "score": "entropy"}, "by alpha"),
    ):
        with pytest.raises(InputError, match=match):
            td.draw(POOL, risk=0.1, after=first, **options)


@pytest.mark.parametrize("target", ["frr", "trr", "joint", "coverage"])
def test_other_targets_are_about_all_rows(target):
    drawn = td.draw(POOL, labels=200, **{target: 0.1})
    assert drawn.share == 1
    assert math.isinf(drawn.limit)
    assert f"{target} is about all rows" in drawn.words()
    gate = td.calibrate(POOL[drawn.rows], draw=drawn, **{target: 0.1})
    plain = td.calibrate(POOL[drawn.rows], **{target: 0.1})
    assert (gate.threshold, gate.state) == (plain.threshold, plain.state)


def test_rows_for_a_shortlist_are_rejected_ones():
    gate = td.calibrate(POOL[:2000], frr=0.1)
    drawn = td.draw(POOL[2000:], labels=150, gate=gate)
    assert gate.screen(POOL[2000:][drawn.rows]).review.all()
    listed = td.shortlist(gate, POOL[2000:][drawn.rows])
    assert listed.shortlist.rule.rows == 150


def test_the_promise_holds_for_all_rows_of_the_pool():
    rng = np.random.default_rng(5)
    doubts, errors, broken, made = td.alpha(POOL), POOL.errors, 0, 0
    plan = td.draw(POOL, labels=200, risk=0.1, accuracy=ACCURACY)
    below = np.flatnonzero(doubts <= plan.limit)
    for _ in range(150):
        rows = rng.choice(below, 200, replace=False)
        gate = td.calibrate(POOL[rows], risk=0.1, draw=replace(plan, rows=rows))
        accepted = gate.screen(POOL).accepted
        assert not accepted[doubts > plan.limit].any()
        made += accepted.any()
        broken += accepted.any() and errors[accepted].mean() > 0.1
    assert made > 75
    assert broken <= 150 * 0.1 + 3 * math.sqrt(150 * 0.1 * 0.9)


def test_fewer_calibrations_accept_nothing_than_with_labels_of_all_rows():
    rng = np.random.default_rng(6)
    p = world(6000, seed=1, noise=2.5)
    plan = td.draw(p, labels=150, risk=0.1, accuracy=float((~p.errors).mean()))
    below = np.flatnonzero(td.alpha(p) <= plan.limit)
    idle = {"drawn": 0, "plain": 0}
    for _ in range(40):
        rows = rng.choice(below, 150, replace=False)
        gate = td.calibrate(p[rows], risk=0.1, draw=plan)
        idle["drawn"] += gate.state == "reject-all"
        rows = rng.choice(6000, 150, replace=False)
        idle["plain"] += td.calibrate(p[rows], risk=0.1).state == "reject-all"
    assert idle["drawn"] < idle["plain"] - 8


def test_a_gate_that_accepts_the_whole_share_rejects_the_rest():
    easy = world(3000, noise=1.0)
    share = float((td.alpha(easy) <= -1.0).mean())
    drawn = replace(td.draw(easy, labels=300, risk=0.2), limit=-1.0, share=share)
    below = np.flatnonzero(td.alpha(easy) <= -1.0)[:300]
    gate = td.calibrate(easy[below], risk=0.2, draw=drawn)
    assert (gate.state, gate.threshold) == ("threshold", -1.0)
    assert not decides_nothing(gate)
    assert gate.certificate.drawn_share == share
    assert "are rejected" in " ".join(gate.certificate.notes)
    watch = gate.watch()
    watch.update(easy)
    assert not watch.alarm  # the coverage at calibration is that of the drawn rows


def test_looks_share_the_level():
    drawn = td.draw(POOL, labels=400, risk=0.1)
    planned = td.draw(POOL, labels=400, risk=0.1, looks=3)
    rows = np.flatnonzero(td.alpha(POOL) <= min(drawn.limit, planned.limit))[:400]
    once = td.calibrate(POOL[rows], risk=0.1, draw=drawn)
    thrice = td.calibrate(POOL[rows], risk=0.1, draw=planned)
    assert {p.level for p in thrice.certificate.passed} < {
        p.level / 2 for p in once.certificate.passed
    } or max(p.level for p in thrice.certificate.passed) < max(
        p.level for p in once.certificate.passed
    )


def test_rows_that_were_not_drawn_are_refused():
    drawn = td.draw(POOL, labels=200, risk=0.1, accuracy=ACCURACY)
    rows = POOL[drawn.rows]
    far = np.argsort(td.alpha(POOL))[-200:]
    for p, options, match in (
        (rows[:-1], {"risk": 0.1}, "expected the 200 rows that were drawn, got 199"),
        (POOL[far], {"risk": 0.1}, "200 rows have a doubt above"),
        (rows, {"frr": 0.1}, "frr is about all rows"),
        (rows, {"risk": 0.1, "score": "msp"}, "drawn by alpha"),
        (rows, {"risk": 0.1, "score": "auto"}, "choose no score"),
        (rows, {"risk": 0.1, "shortlist": 0.9}, "set no lists"),
    ):
        with pytest.raises(InputError, match=match) as refusal:
            td.calibrate(p, draw=drawn, **options)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "one of risk, frr"),
        ({"risk": 0.1, "frr": 0.1}, "one of risk, frr"),
        ({"risk": 2}, "risk between 0 and 1"),
        ({"risk": 0.1, "labels": 0}, "labels of 1 or more"),
        ({"risk": 0.1, "labels": 9999}, "expected at most"),
        ({"risk": 0.1, "seed": -1}, "seed of 0 or more"),
        ({"risk": 0.1, "looks": 0}, "looks of 1 or more"),
        ({"risk": 0.1, "accuracy": 1.5}, "accuracy"),
        ({"target": {"beauty": 0.1}}, "expected a target out of"),
    ],
)
def test_impossible_draws_are_refused_in_one_line(options, match):
    with pytest.raises(InputError, match=match) as refusal:
        td.draw(POOL, **({"labels": 100} | options))
    assert "\n" not in str(refusal.value)


def test_a_design_that_was_changed_is_refused():
    text = td.draw(POOL, labels=50, risk=0.1).to_text()
    assert LabelDraw.from_text(text).labels == 50
    for broken in ("", "{}", text[:-3], text.replace("draw-1", "draw-9"), "NaN"):
        with pytest.raises(InputError, match="what trustdoctor draw wrote"):
            LabelDraw.from_text(broken)


def test_answers_with_a_confidence_are_drawn_by_it():
    rng = np.random.default_rng(8)
    confidence = rng.beta(8, 2, 4000)
    correct = rng.random(4000) < confidence**2
    pool = td.Predictions.from_confidence(confidence, correct)
    drawn = td.draw(pool, labels=200, risk=0.2, accuracy=float(correct.mean()))
    assert drawn.score == "confidence"
    assert (confidence[drawn.rows] >= -drawn.limit).all()
    doubts = td.Predictions.from_doubt(rng.random(500))
    assert td.draw(doubts, labels=50, risk=0.1).share == 1


def test_the_share_is_small_where_only_few_rows_are_safe():
    safe = np.repeat([0.0, 0.5], [300, 700])
    assert best_share(safe, 0.05, 200) <= 0.4
    assert best_share(np.zeros(1000), 0.05, 200) == 1.0
