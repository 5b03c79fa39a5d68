"""Review rates: what a promised rate is among the rows reviewed, by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from watch.streams import ALL, AUDIT, TARGETS, calibrated, decided, evidence, rows

from trustdoctor import gates
from trustdoctor.errors import InputError
from trustdoctor.gates import Target
from trustdoctor.metrics import Confusion
from trustdoctor.watch import Review
from trustdoctor.watch.review import Sampling

SHARES = st.floats(0.01, 1.0)
RATES = [
    (1.0, 0.2),
    pytest.param((1.0, 0.02), marks=pytest.mark.soak),
    pytest.param((0.5, 0.05), marks=pytest.mark.soak),
    pytest.param((1.0, 1.0), marks=pytest.mark.soak),
]


@pytest.mark.parametrize("name", ["frr", "trr", "risk", "joint", "coverage"])
@given(rejected=SHARES, accepted=SHARES, value=st.floats(0, 1))
def test_among_and_whole_are_inverses(name, rejected, accepted, value):
    review, target = Review(rejected, accepted), gates.TARGETS[name]
    seen = review.reviewed_rate(target, value)
    assert 0 <= seen <= 1
    if name != "joint" or value != 1:
        assert review.overall_rate(target, seen) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("name", ["frr", "trr", "risk", "joint"])
def test_the_null_is_the_rate_among_the_rows_reviewed(name, rates):
    """100,000 rows with a known rate of everything, thinned at the review rates."""
    rng, n = np.random.default_rng(3), 100_000
    review, target = Review(*rates), gates.TARGETS[name]
    wrong = rng.random(n) < 0.2
    kept = rng.random(n) < np.where(wrong, 0.3, 0.9)
    drawn = rng.random(n) < np.where(kept, review.accepted, review.rejected)
    rate = {"frr": 0.1, "trr": 0.7, "risk": 0.06 / 0.78, "joint": 0.06}[name]

    def table(of):
        sides = ((~kept & ~wrong), (~kept & wrong), (kept & wrong), (kept & ~wrong))
        return Confusion(*(int((side & of).sum()) for side in sides))

    part, every = target.counts(table(drawn))
    if name == "joint":
        every = n  # thinning: of all rows
    found = binomtest(part, every, review.reviewed_rate(target, rate))
    assert found.pvalue > 1e-3


@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_at_the_edge_known_rates_alarm_at_most_at_the_level(target, rates):
    """40 streams of 10 batches; rates change in each second one."""
    (name,), (value,) = target, target.values()
    gate, rng, alarms = calibrated(**target), np.random.default_rng(1), 0
    for _ in range(40):
        watch = gate.watch(level=0.4)
        for batch in range(10):
            review = Review(*rates) if batch % 2 else Review(1.0, 0.5)
            n = int(rng.integers(20, 400))
            wrong, kept = _at_the_edge(rng, n, name, value)
            drawn = rng.random(n) < np.where(kept, review.accepted, review.rejected)
            watch.update(decided(kept), wrong, reviewed=drawn, review=review)
        alarms += watch.tests[name].peak >= watch.tests[name].limit
    level = watch.tests[name].level
    assert 0.1 < level < 0.2
    assert binomtest(alarms, 40, level, alternative="greater").pvalue > 1e-3


def _at_the_edge(rng, n, name, value):
    """Draw errors and decisions so that the rate is the value itself."""
    wrong = rng.random(n) < (value / 0.5 if name == "joint" else 0.2)
    kept = rng.random(n) < np.where(wrong, 0.5, 0.9)
    if name == "frr":
        kept = np.where(wrong, kept, rng.random(n) >= value)
    elif name == "trr":
        kept = np.where(wrong, rng.random(n) >= value, kept)
    elif name == "risk":
        wrong = np.where(kept, rng.random(n) < value, wrong)
    return wrong, kept


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_equal_rates_of_one_are_no_rates_but_for_chance(target):
    gate = calibrated(**target)
    doubts, errors = rows(np.random.default_rng(1), 500)
    known = gate.watch(review=ALL).update(doubts, errors)
    plain = gate.watch().update(doubts, errors)
    assert evidence(known) == pytest.approx(evidence(plain), abs=1e-9)


def test_changed_rates_begin_another_window():
    gate = calibrated()
    watch = gate.watch(review=AUDIT)
    rng = np.random.default_rng(0)
    for rates in (None, None, {"rejected": 0.5, "accepted": 0.5}):
        doubts, errors = rows(rng, 200)
        review = watch.review if rates is None else Review(**rates)
        reviewed = rng.random(200) < np.where(
            gate.accept(doubts), review.accepted, review.rejected
        )
        watch.update(doubts, errors, reviewed=reviewed, review=rates)
    assert watch.review == Review(0.5, 0.5)
    assert watch.tests["frr"].estimate().window == 2
    assert watch.tests["accepted"].estimate().window == 1


@pytest.mark.parametrize(
    ("rates", "blind"),
    [
        ((1.0, 0.0), {"frr", "trr", "risk", "joint", "odd"}),
        ((0.0, 0.5), {"frr", "trr", "odd"}),
        ((1.0, 0.5), {"odd"}),
        ((0.5, 0.5), set()),
    ],
    ids=["none", "accepted", "uneven", "even"],
)
def test_rates_that_show_nothing_are_said(rates, blind):
    odd = Target("odd", "{}", "", {}, counts=lambda at: (at.rejected_correct, at.n))
    targets = [*(gates.TARGETS[name] for name in ("frr", "trr", "risk", "joint")), odd]
    assert {one.name for one in targets if Review(*rates).untestable(one)} == blind


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_without_an_audit_it_cannot_tell(target):
    """Rejected rows are reviewed, accepted ones never: with rates, and without."""
    gate, rng = calibrated(**target), np.random.default_rng(5)
    (name,) = target
    for review in (None, {"rejected": 1.0, "accepted": 0.0}):
        watch = gate.watch(review=review)
        for _ in range(20):
            doubts, errors = rows(rng, 100)
            known = np.where(gate.accept(doubts), np.nan, errors)
            watch.update(doubts, known)
            assert watch.verdict(name) in ("cannot tell", "no rows yet")
        assert watch.verdict(name) == "cannot tell"
        assert not watch.alarm
        assert "the labels cannot show whether the promise holds" in repr(watch)
        assert "--review-accepted 0.02" in watch.untestable(name)


@pytest.mark.parametrize("target", [{"frr": 0.1}, {"trr": 0.8}, {"joint": 0.04}])
def test_labels_that_were_chosen_are_noticed(target):
    gate, rng = calibrated(**target), np.random.default_rng(5)
    (name,) = target
    watch = gate.watch()
    for _ in range(10):
        doubts, errors = rows(rng, 200)
        drawn = rng.random(200) < np.where(gate.accept(doubts), 0.1, 1.0)
        watch.update(doubts, np.where(drawn, errors, np.nan))
    assert watch.verdict(name) == "cannot tell"
    assert "not a random sample" in watch.untestable(name)


def test_risk_needs_no_rates():
    gate, rng = calibrated(risk=0.05), np.random.default_rng(5)
    watch = gate.watch()
    for _ in range(10):
        doubts, errors = rows(rng, 200)
        drawn = rng.random(200) < np.where(gate.accept(doubts), 0.2, 1.0)
        watch.update(doubts, np.where(drawn, errors, np.nan))
    assert watch.verdict("risk") == "holds"


def test_rates_that_do_not_hold_are_noticed():
    gate, rng = calibrated(), np.random.default_rng(5)
    watch = gate.watch(review=AUDIT)
    for _ in range(10):
        doubts, errors = rows(rng, 200)
        drawn = rng.random(200) < np.where(gate.accept(doubts), 0.4, 1.0)
        watch.update(doubts, np.where(drawn, errors, np.nan))
    assert watch.verdict("frr") == "cannot tell"
    assert "correct the rates" in watch.untestable("frr")


def test_random_labels_seldom_look_chosen():
    """Share of looks at which a random tenth of the rows seems chosen."""
    rng, wrong, looks = np.random.default_rng(0), 0, 0
    for _ in range(50):
        sampling = Sampling()
        for _ in range(50):
            n = int(rng.integers(5, 300))
            kept = rng.random(n) < 0.8
            drawn = rng.random(n) < 0.1
            found = map(int, (kept.sum(), drawn.sum(), (kept & drawn).sum()))
            sampling = sampling.add(None, n, *found)
            wrong += bool(sampling.untestable(gates.TARGETS["frr"]))
            looks += 1
    assert wrong / looks < 0.01


def test_what_labels_once_showed_is_not_forgotten():
    frr = gates.TARGETS["frr"]
    chosen = Sampling().add(None, 400, 300, 100, 40)  # 75 accepted are expected
    assert "not a random sample" in chosen.untestable(frr)
    later = chosen.add(None, 400, 300, 40, 30)  # as expected
    assert "not a random sample" in later.untestable(frr)
    assert not later.untestable(gates.TARGETS["risk"])


def test_labels_that_come_a_day_late_seldom_look_chosen():
    rng, wrong, looks = np.random.default_rng(0), 0, 0
    for _ in range(20):
        watch, before = calibrated().watch(), None
        for _ in range(15):
            doubts, errors = rows(rng, 300)
            watch.update(doubts)
            if before is not None:
                watch.label(*before)
                wrong += watch.verdict("frr") == "cannot tell"
                looks += 1
            before = doubts, errors
    assert wrong / looks < 0.02


@pytest.mark.parametrize("n", [5, 20])
def test_labels_chosen_in_small_batches_seldom_alarm(n):
    """Rejected rows have labels, and a fifth of the accepted; nobody said so."""
    gate, alarms = calibrated(), 0
    for seed in range(20):
        rng, watch = np.random.default_rng(seed), gate.watch()
        for _ in range(30):
            doubts, errors = rows(rng, n)
            drawn = rng.random(n) < np.where(gate.accept(doubts), 0.2, 1.0)
            watch.update(doubts, np.where(drawn, errors, np.nan))
        alarms += watch.verdict("frr") == "alarm"
    assert alarms <= 2


@pytest.mark.parametrize(
    "review",
    [
        3,
        "all",
        {"accepted": 1.5},
        {"accepted": -0.1},
        {"accepted": math.nan},
        {"rejected": True},
        {"rejected": "1"},
        {"rejects": 1.0},
        {"accepted": None},
        [1.0, 0.5],
    ],
    ids=str,
)
def test_what_is_no_rate_is_refused(review):
    with pytest.raises(InputError, match="review rate") as refused:
        calibrated().watch(review=review)
    assert "\n" not in str(refused.value)
    watch = calibrated().watch()
    with pytest.raises(InputError, match="review rate"):
        watch.update([0.1], review=review)
    assert watch.totals.rows == 0


def test_rates_are_taken_as_numpy_gives_them():
    assert Review(np.float32(0.5), np.int64(1)) == Review(0.5, 1.0)
    assert Review.of({"accepted": 0.02}) == Review(1.0, 0.02)
