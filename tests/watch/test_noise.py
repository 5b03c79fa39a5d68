"""Wrong labels: the null hypotheses hold for any noise up to the stated bound."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch.streams import AUDIT, calibrated, decided, evidence, rows

import trustdoctor as td
from trustdoctor import gates
from trustdoctor.errors import InputError
from trustdoctor.watch import (
    CORRECT,
    WRONG,
    RateTest,
    Review,
    StreamLabels,
    StreamRows,
    follow,
    require_state,
)
from trustdoctor.watch.bets import ODDS, Bet, Null, noisy_ratios

SHARE = st.floats(0.001, 0.999)
FR, TR, FA, TA = range(4)
ROLES = {"frr": (FR, TA, TR), "trr": (FA, TR, TA), "risk": (FA, TA, None)}
"""Of each rate: labelled rows that are hits, misses, and opposed."""
REVIEW = Review(1.0, 0.1)


def labelled(cells, correct, errors):
    """Return the probabilities of labelled kinds, given shares of wrong labels."""
    fr, tr, fa, ta = cells
    return np.array(
        [
            fr * (1 - correct) + tr * errors,
            tr * (1 - errors) + fr * correct,
            fa * (1 - errors) + ta * correct,
            ta * (1 - correct) + fa * errors,
        ]
    )


@given(
    name=st.sampled_from(sorted(ROLES)),
    rates=st.tuples(SHARE, SHARE),
    value=SHARE,
    other=st.floats(0, 1),
    wrong=st.floats(0, 1),
    noise=st.floats(0.001, 0.4),
    split_noise=st.tuples(st.sampled_from((0, 0.5, 1)), st.sampled_from((0, 0.5, 1))),
)
def test_no_noise_and_no_prevalence_make_evidence_at_the_edge(
    name, rates, value, other, wrong, noise, split_noise
):
    """The mean of every alternative after a drawn row, from the definition."""
    if name == "risk":
        cells = ((1 - wrong) * other, (1 - wrong) * (1 - other), wrong * value)
        cells = np.array([*cells, wrong * (1 - value)])
    else:
        frr, trr = (value, other) if name == "frr" else (other, value)
        cells = np.array([frr, 0, 0, 1 - frr]) * (1 - wrong)
        cells += np.array([0, trr, 1 - trr, 0]) * wrong
    drawn = labelled(cells, *(noise * share for share in split_noise))
    drawn *= np.array(rates)[[0, 0, 1, 1]]
    target = gates.TARGETS[name]
    low, high = (value, 1.0) if target.at_least else (0.0, value)
    test = RateTest(name, target, low, high, 0.1, 1000, noise=noise)
    null = test._reviewed_null(Review(*rates))
    end = 1 - null.low if target.at_least else null.high
    hits, misses, opposed = ROLES[name]
    ratios = noisy_ratios(end, noise) if null.noise else None
    if ratios is None:
        ratios = np.log(ODDS / (1 + end * (ODDS - 1))), -np.log1p(end * (ODDS - 1)), 0.0
    change = drawn[hits] * np.expm1(ratios[0]) + drawn[misses] * np.expm1(ratios[1])
    if opposed is not None:
        change = change + drawn[opposed] * np.expm1(ratios[2])
    assert (change <= 1e-9).all()


def test_the_nulls_of_risk_and_joint():
    for name, rates, expected in (
        ("risk", None, 0.05 + 0.95 * 0.02),
        ("risk", REVIEW, 0.05 + 0.95 * 0.02),
        ("joint", REVIEW, 0.1 * (0.05 + 0.95 * 0.02)),
        ("joint", None, 0.05 + 0.95 * 0.02),
    ):
        target = gates.TARGETS[name]
        test = RateTest(name, target, 0.0, 0.05, 0.1, 1000, noise=0.02)
        assert test._reviewed_null(rates) == pytest.approx((0.0, expected, 0.0))
        assert replace(test, noise=0.0)._reviewed_null(None) is None


@pytest.mark.parametrize("null", [(0.0, 0.05), (0.9, 1.0), (0.2, 0.4), (0.0, 1.0)])
@pytest.mark.sampled(2)
def test_rows_added_at_once_are_rows_added_one_by_one(null):
    rng = np.random.default_rng(0)
    slow, fast = Bet(*null), Bet(*null)
    noisy_null = Null(*null, 0.03)
    for size in (300, 1, 0, 5000):
        n = (rng.random(size) < 0.6).astype(int)
        counted = n * (rng.random(size) < 0.1)
        opposed = (1 - n) * (rng.random(size) < 0.5)
        evidences = []
        for row in zip(n.tolist(), counted.tolist(), opposed.tolist(), strict=True):
            slow = slow.add(*row[:2], null=noisy_null, opposed=row[2])
            evidences.append(slow.evidence)
        fast, after = fast.add_each(n, counted, null=noisy_null, opposed=opposed)
        assert after == pytest.approx(evidences, rel=1e-9, abs=1e-9)
        assert fast.evidence == pytest.approx(slow.evidence, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "target", [{"frr": 0.1}, {"trr": 0.8}, {"risk": 0.05}, {"joint": 0.04}], ids=str
)
@pytest.mark.sampled(2)
def test_rows_that_are_followed_count_as_updates_do(target):
    gate, rng = calibrated(**target), np.random.default_rng(0)
    followed = gate.watch(review=AUDIT, label_noise=0.03)
    updated = gate.watch(review=AUDIT, label_noise=0.03)
    accepted, wrong = rng.random(200) < 0.8, rng.random(200) < 0.3
    drawn = rng.random(200) < np.where(accepted, 0.2, 1.0)
    keys = 1 + np.flatnonzero(drawn)
    stream_labels = StreamLabels(keys, np.where(wrong[drawn], WRONG, CORRECT))
    follow(
        followed,
        [StreamRows(accepted, drawn, keys, Review(**AUDIT))],
        stream_labels,
        1.0,
    )
    for row in range(200):
        label = [wrong[row] if drawn[row] else np.nan]
        updated.update(decided(accepted[[row]]), label, reviewed=drawn[[row]], at=1.0)
    assert evidence(followed) == pytest.approx(evidence(updated), abs=1e-9)


def test_without_noise_opposed_rows_say_nothing():
    bet = Bet(0.0, 0.1).add(10, 3)
    assert bet.add(0, 0, start=False, opposed=50).evidence == bet.evidence


@pytest.mark.parametrize("target", [{"frr": 0.1}, {"trr": 0.8}], ids=str)
def test_rows_without_a_label_count_in_the_promises_favour(target):
    """Evidence without a label never exceeds that with it, whatever the label."""
    gate, (name,) = calibrated(**target), target
    accepted = np.array([True, False, True, False, True, False] * 5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        errors = rng.random(30) < 0.5
        lost = rng.random(30) < 0.3
        full, partial = (gate.watch(label_noise=0.05, deadline=None) for _ in range(2))
        full.update(decided(accepted), errors, ids=range(30))
        partial.update(
            decided(accepted),
            np.where(lost, np.nan, errors),
            ids=range(30),
            reviewed=[True] * 30,
        )
        assert evidence(partial)[name] <= evidence(full)[name] + 1e-9
        lost_rows = np.flatnonzero(lost)
        partial.label(
            errors=[None] * len(lost_rows),
            undecided=[True] * len(lost_rows),
            ids=lost_rows,
        )
        assert evidence(partial)[name] <= evidence(full)[name] + 1e-9


@pytest.mark.parametrize(
    "target", [{"frr": 0.1}, {"trr": 0.8}, {"risk": 0.05}, {"joint": 0.04}], ids=str
)
@pytest.mark.sampled(2)
def test_wrong_labels_at_the_edge_do_not_alarm(target):
    """Streams with wrong labels, with and without `label_noise`; none is missing."""
    gate, (name, value) = calibrated(**target), *target.items()
    aware_alarms = unaware_alarms = 0
    cells = {
        "frr": (0.9 * value, 0.08, 0.02, 0.9 * (1 - value)),
        "trr": (0.1, 0.1 * value, 0.1 * (1 - value), 0.8),
        "risk": (0.1, 0.1, 0.8 * value, 0.8 * (1 - value)),
        "joint": (0.1, 0.1, value, 0.8 - value),
    }[name]
    for seed in range(10):
        rng = np.random.default_rng(seed)
        watches = [gate.watch(label_noise=noise) for noise in (0.0, 0.03)]
        for _ in range(20):
            kind = rng.choice(4, 1000, p=cells)
            mistaken = rng.random(1000) < 0.03
            wrong = ((kind == TR) | (kind == FA)) ^ mistaken
            for watch in watches:
                watch.update(decided(kind >= FA), wrong)
        unaware_alarms += watches[0].tests[name].alarm is not None
        aware_alarms += watches[1].tests[name].alarm is not None
    assert aware_alarms == 0
    assert (
        unaware_alarms == 10 or name == "frr"
    )  # nearly all labelled correct are correct


def test_a_broken_promise_is_still_found():
    gate, rng = calibrated(risk=0.05), np.random.default_rng(0)
    watch = gate.watch(review=AUDIT, label_noise=0.02)
    for _ in range(40):
        wrong = (rng.random(500) < 0.15) ^ (rng.random(500) < 0.02)
        drawn = rng.random(500) < 0.2
        watch.update(
            decided([True] * 500), np.where(drawn, wrong, np.nan), reviewed=drawn
        )
    assert watch.verdict("risk") == "alarm"


def test_the_words_say_that_labels_may_be_wrong():
    gate = calibrated(risk=0.05)
    watch = gate.watch(label_noise=0.02)
    watch.update(decided([True] * 1000), np.arange(1000) < 60)
    assert "Up to 2% of the labels may be wrong" in repr(watch)
    assert "above what was promised, but within chance and wrong labels" in repr(watch)
    assert watch.to_dict()["label_noise"] == 0.02
    assert "may be wrong" not in repr(gate.watch().update([0.1], [False]))


@pytest.mark.parametrize("noise", [-0.1, 0.5, 1, math.nan, "0.02"])
def test_invalid_label_noise_is_refused(noise):
    with pytest.raises(InputError, match=r"expected label_noise from 0 to below 0\.5"):
        calibrated().watch(label_noise=noise)


@pytest.mark.parametrize("suffix", [".json", ".db"])
def test_a_state_keeps_its_noise(suffix, tmp_path):
    gate, path = calibrated(frr=0.1), tmp_path / f"state{suffix}"
    rng = np.random.default_rng(0)
    doubts, errors = rows(rng, 200)
    for _ in range(2):
        with td.Watch.open(path, gate, label_noise=0.02) as watch:
            watch.update(doubts, errors)
    with td.Watch.open(path, gate) as watch:
        assert watch.label_noise == 0.02
        watch.update(doubts, errors)
    for noise, same in ((0.02, True), (0.0, False)):
        uninterrupted = gate.watch(label_noise=noise)
        for _ in range(3):
            uninterrupted.update(doubts, errors)
        near = pytest.approx(evidence(uninterrupted), abs=1e-12)
        assert (evidence(watch) == near) is same
    for use in (
        lambda: require_state(path, gate, label_noise=0.01),
        lambda: td.Watch.open(path, gate, label_noise=0.01).__enter__(),
    ):
        with pytest.raises(
            InputError, match=r"started with label_noise 0\.02, got 0\.01"
        ):
            use()


def test_a_custom_target_cannot_be_distinguished_from_wrong_labels():
    own_target = replace(gates.TARGETS["risk"], name="own", review_effect="even")
    gate = calibrated(risk=0.05)
    watch = gate.watch(label_noise=0.02)
    watch.tests["risk"].target = own_target
    assert watch.verdict("risk") == "cannot tell"
    assert "labels may be wrong" in watch.untestable("risk")


def test_a_watch_takes_the_noise_that_its_gate_was_calibrated_with(rng, tmp_path):
    errors = rng.random(3000) < 0.1
    scores = rng.normal(size=3000) + 3 * errors
    gate = td.calibrate_scores(scores, errors, risk=0.05, label_noise=0.02)
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded.certificate.label_noise == 0.02
    assert loaded.watch().label_noise == 0.02
    assert loaded.watch(label_noise=0.0).label_noise == 0.0
    assert td.calibrate_scores(scores, errors, risk=0.05).watch().label_noise == 0.0
