"""Drawing rows for review: by their ids, at the rates."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest
from watch.streams import AUDIT, calibrated, rows

import trustdoctor as td
from trustdoctor.errors import InputError

GATE = calibrated()
N = 20_000
KEPT = np.random.default_rng(0).random(N) < 0.7


def test_rows_are_drawn_at_the_rates():
    watch = GATE.watch(review={"rejected": 0.5, "accepted": 0.02})
    drawn = watch.draw(KEPT, ids=np.arange(N))
    for kept, rate in ((KEPT, 0.02), (~KEPT, 0.5)):
        assert binomtest(int(drawn[kept].sum()), int(kept.sum()), rate).pvalue > 1e-3
    every = GATE.watch(review={"rejected": 1, "accepted": 0}).draw(KEPT, ids=range(N))
    assert np.array_equal(every, ~KEPT)


def test_the_same_rows_are_drawn_again_in_any_order_and_by_any_replica():
    ids, mixed = np.arange(N), np.random.default_rng(1).permutation(N)
    drawn = GATE.watch(review=AUDIT).draw(KEPT, ids=ids)
    again = GATE.watch(review=AUDIT, level=0.05).draw(KEPT[mixed], ids=ids[mixed])
    assert np.array_equal(again, drawn[mixed])
    one_by_one = GATE.watch(review=AUDIT)
    assert [
        bool(one_by_one.draw(KEPT[i : i + 1], ids=ids[i : i + 1])[0])
        for i in range(100)
    ] == drawn[:100].tolist()
    texts = GATE.watch(review=AUDIT).draw(KEPT, ids=[str(i) for i in ids])
    assert np.array_equal(texts, drawn)


def test_a_higher_rate_draws_the_same_rows_and_more():
    few, more = (
        GATE.watch(review={"rejected": 1, "accepted": a}).draw(KEPT, ids=range(N))
        for a in (0.1, 0.3)
    )
    assert not (few & ~more).any()
    assert more.sum() > few.sum()


def test_another_gate_draws_other_rows():
    """Neighbouring ids and other gates are as independent as chance."""
    ours = GATE.watch(review=AUDIT).draw(np.ones(N, bool), ids=range(N))
    theirs = (
        calibrated(trr=0.8).watch(review=AUDIT).draw(np.ones(N, bool), ids=range(N))
    )
    assert binomtest(int((ours & theirs).sum()), N, 0.04).pvalue > 1e-3
    assert binomtest(int((ours[1:] & ours[:-1]).sum()), N - 1, 0.04).pvalue > 1e-4


def test_what_was_screened_and_predictions_bring_their_ids():
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(400, 3))
    labels = np.where(rng.random(400) < 0.8, z.argmax(1), 0)
    names = [f"row {i}" for i in range(400)]
    p = td.Predictions.from_logits(z, labels, ids=names)
    gate = td.calibrate(p, frr=0.1)
    watch = gate.watch(review=AUDIT)
    drawn = watch.draw(gate.screen(p))
    assert np.array_equal(watch.draw(p), drawn)
    assert np.array_equal(watch.draw(gate.screen(p).accepted, ids=names), drawn)
    assert np.array_equal(watch.draw(p, ids=pl.Series(names)), drawn)
    assert 0 < drawn.sum() < 400
    bare = td.Predictions.from_logits(z)
    with pytest.raises(InputError, match="by their ids"):
        watch.draw(gate.screen(bare).accepted)


def test_no_rows_draw_nothing():
    assert GATE.watch(review=AUDIT).draw(np.zeros(0, bool), ids=[]).shape == (0,)


@pytest.mark.parametrize(
    ("accepted", "ids"),
    [
        ([True], ["a", "b"]),
        ([True, False], ["a", None]),
        ([0.5, 1.0], ["a", "b"]),
        ([[True, False]], ["a", "b"]),
        (True, ["a"]),
        ("yes", ["a"]),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused(accepted, ids):
    with pytest.raises(InputError):
        GATE.watch(review=AUDIT).draw(accepted, ids=ids)


def test_without_rates_nothing_is_drawn():
    with pytest.raises(InputError, match="expected review rates to draw rows by"):
        GATE.watch().draw([True], ids=["a"])


def test_drawing_updating_and_labelling_go_together():
    """What is drawn is counted as drawn; the rates are found to hold."""
    watch, rng = GATE.watch(review=AUDIT), np.random.default_rng(0)
    for day in range(5):
        doubts, errors = rows(rng, 300)
        ids = [f"{day}-{row}" for row in range(300)]
        drawn = watch.draw(GATE.accept(doubts), ids=ids)
        watch.update(doubts, ids=ids, reviewed=drawn)
        own = np.flatnonzero(drawn)
        watch.label(errors=errors[own], ids=[ids[row] for row in own])
    assert watch.verdict("frr") == "holds"
    assert len(watch.queue) == 0
    assert watch.totals.labels == watch.sampling.accepted.drawn + (
        watch.sampling.rejected.drawn
    )
    seen = watch.tests["frr"].estimate()
    truth = (GATE.accept(rows(rng, 100_000, rate=0.0)[0]) == 0).mean()
    assert seen.low < truth < seen.high
