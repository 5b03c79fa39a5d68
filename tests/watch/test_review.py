"""Review rates, draws by ids, and reviews that do not follow the rates."""

import json
import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from watch.streams import ALL, AUDIT, TARGETS, calibrated, decided, evidence, rows

import trustdoctor as td
from trustdoctor import gates
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import Target
from trustdoctor.metrics import Confusion
from trustdoctor.watch import Review
from trustdoctor.watch.review import COMPARED_TOGETHER, Preference, Sampling

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
    rate = review.reviewed_rate(target, value)
    assert 0 <= rate <= 1
    if name != "joint" or value != 1:
        assert review.overall_rate(target, rate) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("name", ["frr", "trr", "risk", "joint"])
def test_the_null_is_the_rate_among_the_rows_reviewed(name, rates):
    """100,000 rows with a known rate of everything, thinned at the review rates."""
    rng, n = np.random.default_rng(3), 100_000
    review, target = Review(*rates), gates.TARGETS[name]
    wrong = rng.random(n) < 0.2
    accepted = rng.random(n) < np.where(wrong, 0.3, 0.9)
    drawn = rng.random(n) < np.where(accepted, review.accepted, review.rejected)
    rate = {"frr": 0.1, "trr": 0.7, "risk": 0.06 / 0.78, "joint": 0.06}[name]

    def table(of):
        sides = (
            (~accepted & ~wrong),
            (~accepted & wrong),
            (accepted & wrong),
            (accepted & ~wrong),
        )
        return Confusion(*(int((side & of).sum()) for side in sides))

    numerator, denominator = target.fraction(table(drawn))
    if name == "joint":
        denominator = n  # thinning: of all rows
    outcome = binomtest(numerator, denominator, review.reviewed_rate(target, rate))
    assert outcome.pvalue > 1e-3


@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.sampled(2)
def test_at_the_edge_known_rates_alarm_at_most_at_the_level(target, rates):
    """40 streams of 10 batches; rates change in each second one."""
    (name,), (value,) = target, target.values()
    gate, rng, alarms = calibrated(**target), np.random.default_rng(1), 0
    for _ in range(40):
        watch = gate.watch(level=0.4)
        for batch in range(10):
            review = Review(*rates) if batch % 2 else Review(1.0, 0.5)
            n = int(rng.integers(20, 400))
            wrong, accepted = _at_the_edge(rng, n, name, value)
            drawn = rng.random(n) < np.where(accepted, review.accepted, review.rejected)
            watch.update(decided(accepted), wrong, reviewed=drawn, review=review)
        alarms += watch.tests[name].peak >= watch.tests[name].limit
    level = watch.tests[name].level
    assert 0.1 < level < 0.2
    assert binomtest(alarms, 40, level, alternative="greater").pvalue > 1e-3


def _at_the_edge(rng, n, name, value):
    """Draw errors and decisions so that the rate is the value itself."""
    wrong = rng.random(n) < (value / 0.5 if name == "joint" else 0.2)
    accepted = rng.random(n) < np.where(wrong, 0.5, 0.9)
    if name == "frr":
        accepted = np.where(wrong, accepted, rng.random(n) >= value)
    elif name == "trr":
        accepted = np.where(wrong, rng.random(n) >= value, accepted)
    elif name == "risk":
        wrong = np.where(accepted, rng.random(n) < value, wrong)
    return wrong, accepted


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_review_rates_of_one_change_nothing(target):
    gate = calibrated(**target)
    doubts, errors = rows(np.random.default_rng(1), 500)
    with_rates = gate.watch(review=ALL).update(doubts, errors)
    plain = gate.watch().update(doubts, errors)
    assert evidence(with_rates) == pytest.approx(evidence(plain), abs=1e-9)


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
def test_rates_that_make_a_target_untestable_are_reported(rates, blind):
    odd = Target("odd", "{}", "", {}, fraction=lambda c: (c.rejected_correct, c.n))
    targets = [*(gates.TARGETS[name] for name in ("frr", "trr", "risk", "joint")), odd]
    assert {
        target.name for target in targets if Review(*rates).untestable(target)
    } == blind


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_without_an_audit_it_is_inconclusive(target):
    """Rejected rows are reviewed, accepted ones never: with rates, and without."""
    gate, rng = calibrated(**target), np.random.default_rng(5)
    (name,) = target
    for review in (None, {"rejected": 1.0, "accepted": 0.0}):
        watch = gate.watch(review=review)
        for _ in range(20):
            doubts, errors = rows(rng, 100)
            labels_of_rejected = np.where(gate.accept(doubts), np.nan, errors)
            watch.update(doubts, labels_of_rejected)
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
            accepted = rng.random(n) < 0.8
            drawn = rng.random(n) < 0.1
            counted = map(int, (accepted.sum(), drawn.sum(), (accepted & drawn).sum()))
            sampling = sampling.add(None, n, *counted)
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
    """Rejected rows have labels, and a fifth of the accepted; no rate is given."""
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
def test_invalid_review_rates_are_refused(review):
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


DRAW_GATE = calibrated()
N_DRAWS = 20_000
ACCEPTED = np.random.default_rng(0).random(N_DRAWS) < 0.7


def test_rows_are_drawn_at_the_rates():
    watch = DRAW_GATE.watch(review={"rejected": 0.5, "accepted": 0.02})
    drawn = watch.draw(ACCEPTED, ids=np.arange(N_DRAWS))
    for side, rate in ((ACCEPTED, 0.02), (~ACCEPTED, 0.5)):
        assert binomtest(int(drawn[side].sum()), int(side.sum()), rate).pvalue > 1e-3
    denominator = DRAW_GATE.watch(review={"rejected": 1, "accepted": 0}).draw(
        ACCEPTED, ids=range(N_DRAWS)
    )
    assert np.array_equal(denominator, ~ACCEPTED)


def test_the_same_rows_are_drawn_again_in_any_order_and_by_any_replica():
    ids, mixed = np.arange(N_DRAWS), np.random.default_rng(1).permutation(N_DRAWS)
    drawn = DRAW_GATE.watch(review=AUDIT).draw(ACCEPTED, ids=ids)
    repeated = DRAW_GATE.watch(review=AUDIT, level=0.05).draw(
        ACCEPTED[mixed], ids=ids[mixed]
    )
    assert np.array_equal(repeated, drawn[mixed])
    one_by_one = DRAW_GATE.watch(review=AUDIT)
    assert [
        bool(one_by_one.draw(ACCEPTED[i : i + 1], ids=ids[i : i + 1])[0])
        for i in range(100)
    ] == drawn[:100].tolist()
    texts = DRAW_GATE.watch(review=AUDIT).draw(ACCEPTED, ids=[str(i) for i in ids])
    assert np.array_equal(texts, drawn)


def test_a_higher_rate_draws_the_same_rows_and_more():
    smaller, larger = (
        DRAW_GATE.watch(review={"rejected": 1, "accepted": a}).draw(
            ACCEPTED, ids=range(N_DRAWS)
        )
        for a in (0.1, 0.3)
    )
    assert not (smaller & ~larger).any()
    assert larger.sum() > smaller.sum()


def test_another_gate_draws_other_rows():
    """Neighbouring ids and other gates are as independent as chance."""
    ours = DRAW_GATE.watch(review=AUDIT).draw(
        np.ones(N_DRAWS, bool), ids=range(N_DRAWS)
    )
    theirs = (
        calibrated(trr=0.8)
        .watch(review=AUDIT)
        .draw(np.ones(N_DRAWS, bool), ids=range(N_DRAWS))
    )
    assert binomtest(int((ours & theirs).sum()), N_DRAWS, 0.04).pvalue > 1e-3
    assert binomtest(int((ours[1:] & ours[:-1]).sum()), N_DRAWS - 1, 0.04).pvalue > 1e-4


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
    assert DRAW_GATE.watch(review=AUDIT).draw(np.zeros(0, bool), ids=[]).shape == (0,)


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
def test_impossible_draws_are_refused(accepted, ids):
    with pytest.raises(InputError):
        DRAW_GATE.watch(review=AUDIT).draw(accepted, ids=ids)


def test_without_rates_nothing_is_drawn():
    with pytest.raises(InputError, match="expected review rates to draw rows by"):
        DRAW_GATE.watch().draw([True], ids=["a"])


def test_drawing_updating_and_labelling_go_together():
    """Drawn rows are counted as drawn, and the rates pass their test."""
    watch, rng = DRAW_GATE.watch(review=AUDIT), np.random.default_rng(0)
    for day in range(5):
        doubts, errors = rows(rng, 300)
        ids = [f"{day}-{row}" for row in range(300)]
        drawn = watch.draw(DRAW_GATE.accept(doubts), ids=ids)
        watch.update(doubts, ids=ids, reviewed=drawn)
        drawn_rows = np.flatnonzero(drawn)
        watch.label(errors=errors[drawn_rows], ids=[ids[row] for row in drawn_rows])
    assert watch.verdict("frr") == "holds"
    assert len(watch.queue) == 0
    assert watch.totals.labels == watch.sampling.accepted.drawn + (
        watch.sampling.rejected.drawn
    )
    estimate = watch.tests["frr"].estimate()
    truth = (DRAW_GATE.accept(rows(rng, 100_000, rate=0.0)[0]) == 0).mean()
    assert estimate.low < truth < estimate.high


GATES = {
    name: calibrated(**{name: value})
    for name, value in {"frr": 0.1, "trr": 0.8, "risk": 0.05, "joint": 0.04}.items()
}


def choose(rng, doubts, rate, first):
    """Return a share of rows: at random (0), the most doubtful (1) or the easiest."""
    order = rng.permutation(len(doubts)) if not first else np.argsort(-first * doubts)
    drawn = np.zeros(len(doubts), bool)
    drawn[order[: math.ceil(rate * len(doubts))]] = True
    return drawn


def watched(gate, accepted=0, rejected=0, batches=20, size=300, *, rates=AUDIT):
    """Return a watch of reviews of each kind that prefer some rows, or none."""
    rng, watch = np.random.default_rng(0), gate.watch(review=rates)
    for _ in range(batches):
        doubts, errors = rows(rng, size)
        is_accepted, drawn = gate.accept(doubts), np.zeros(size, bool)
        for kind, name, first in (
            (is_accepted, "accepted", accepted),
            (~is_accepted, "rejected", rejected),
        ):
            drawn[kind] = choose(rng, doubts[kind], rates[name], first)
        watch.update(doubts, np.where(drawn, errors, np.nan), reviewed=drawn)
    return watch


@pytest.mark.parametrize("first", [1, -1], ids=["doubtful first", "easy first"])
@pytest.mark.parametrize("name", GATES)
def test_a_preference_among_accepted_rows_cannot_tell(name, first):
    watch = watched(GATES[name], accepted=first)
    assert watch.verdict(name) == "cannot tell"
    assert watch.verdict("accepted") != "cannot tell"  # which needs no labels
    assert "reviewed accepted rows have other doubts" in repr(watch)
    assert watch.to_dict()["tests"][name]["reason"] == watch.untestable(name)
    assert watched(GATES[name]).verdict(name) == "holds"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("frr", "cannot tell"), ("trr", "cannot tell"), ("risk", "holds")],
)
def test_rejected_rows_matter_where_they_count(name, verdict):
    watch = watched(GATES[name], rejected=1, rates={"rejected": 0.3, "accepted": 0.2})
    assert watch.verdict(name) == verdict
    assert ("reviewed rejected rows" in watch.untestable(name)) == (verdict != "holds")


def mean_evidence(doubts, drawn):
    """Return the mean evidence of one batch over all draws of `drawn` rows."""
    values = []
    for rows_drawn in combinations(range(len(doubts)), drawn):
        mask = np.isin(np.arange(len(doubts)), rows_drawn)
        kind = Preference().compare(np.array(doubts, float), mask)
        values.append(math.exp(kind.evidence))
    return np.mean(values)


@pytest.mark.parametrize("drawn", range(9))
@pytest.mark.parametrize(
    "doubts",
    [range(8), [0, 0, 0, 0, 0, 0, 0, 1], [1, 1, 2, 2, 2, 3, 3, math.inf], [5] * 8],
    ids=str,
)
def test_the_mean_evidence_of_plain_draws_is_at_most_1(doubts, drawn):
    """Over all draws there are: the bound over all looks follows."""
    assert mean_evidence(list(doubts), drawn) <= 1 + 1e-12


def test_plain_draws_of_drifting_rows_never_differ():
    """Rates change, doubts drift, batches are small and large."""
    peaks = []
    for seed in range(40):
        rng, kind = np.random.default_rng(seed), Preference()
        for t in range(60):
            review = td.watch.Review(1.0, float(rng.choice([0.05, 0.5, 1.0])))
            doubts = rng.normal(t / 10, 1, int(rng.integers(1, 300))).round(1)
            drawn = rng.random(len(doubts)) < review.accepted
            kind = kind.add(doubts, drawn, review)
        peaks.append(kind.peak)
        assert not kind.differs
    assert np.mean(np.exp(peaks) >= 10) <= 0.15  # at most 10%, by Ville's inequality


@pytest.mark.parametrize("size", [1, 7, 500])
def test_a_preference_is_found_in_batches_of_any_size(size):
    """Audited is what is in the upper half, so that a draw needs no other row."""
    rng, kind = np.random.default_rng(0), Preference()
    for _ in range(3000 // size):
        doubts = rng.normal(size=size)
        kind = kind.add(doubts, (doubts > 0) & (rng.random(size) < 0.1), None)
        assert len(kind.doubts) < COMPARED_TOGETHER
    assert kind.differs


@pytest.mark.parametrize("age", [0, 50, 1000])
def test_a_long_plain_history_does_not_hide_a_preference(age):
    rng, kind = np.random.default_rng(0), Preference()
    for t in range(age + 15):
        doubts = rng.normal(size=200)
        kind = kind.add(doubts, choose(rng, doubts, 0.02, int(t >= age)), None)
        assert t >= age or not kind.differs
    assert kind.differs


def test_rows_of_different_rates_are_not_put_together():
    """Few rows of high doubt and rate, then few of low ones, again and again."""
    rng, kind = np.random.default_rng(0), Preference()
    for t in range(400):
        review = td.watch.Review(1.0, (0.9, 0.1)[t % 2])
        doubts = rng.normal(3 * (t % 2), 1, 20)
        kind = kind.add(doubts, rng.random(20) < review.accepted, review)
    assert not kind.differs


@pytest.mark.parametrize("first", [0, 1])
def test_late_labels_are_compared_with_the_rows_they_come_with(first):
    """Which rows were drawn is not given: labels come a day late, with all rows."""
    gate, rng = GATES["risk"], np.random.default_rng(0)
    for way in ("ids", "batch"):
        watch = gate.watch()
        for day in range(20):
            doubts, errors = rows(rng, 200)
            names = {"ids": [f"{day}-{k}" for k in range(200)]}
            names = names if way == "ids" else {"batch": str(day)}
            accepted = gate.accept(doubts)
            drawn = ~accepted
            drawn[accepted] = choose(rng, doubts[accepted], 0.3, first)
            watch.update(doubts, **names)
            watch.label(doubts, np.where(drawn, errors, np.nan), **names)
        assert watch.verdict("risk") == ("cannot tell" if first else "holds")


def test_labels_that_are_all_a_day_late_are_conclusive_under_drift():
    gate, rng, before = GATES["frr"], np.random.default_rng(0), None
    watch = gate.watch()
    for day in range(30):
        doubts, errors = rows(rng, 200, shift=-day / 10)
        watch.update(doubts, ids=[f"{day}-{k}" for k in range(200)])
        if before is not None:
            watch.label(*before, ids=[f"{day - 1}-{k}" for k in range(200)])
        before = doubts, errors
    assert not watch.sampling.among_accepted.starts


def test_an_earlier_alarm_is_reported_as_doubtful():
    gate = GATES["risk"]
    watch = gate.watch(review={"rejected": 1.0, "accepted": 0.5})
    watch.update(decided([True] * 80), np.where(np.arange(80) % 2, 1, np.nan))
    for _ in range(20):
        doubts = np.linspace(-3, -2, 100)
        watch.update(doubts, np.where(doubts > -2.5, 1, np.nan))
    assert watch.verdict("risk") == "alarm"
    assert "The alarm of risk may be false: the reviewed accepted" in repr(watch)


def test_an_alarm_waits_where_a_preference_is_likely():
    """Most doubtful first, at the edge of the promise: no stream alarms before."""
    gate, alarms = GATES["risk"], 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        watch = gate.watch(review={"rejected": 1.0, "accepted": 0.05})
        for _ in range(30):
            doubts = rng.uniform(-3, 0, 300)
            errors = rng.random(300) < (doubts + 3) / 30
            drawn = choose(rng, doubts, 0.05, 1)
            watch.update(doubts, np.where(drawn, errors, np.nan), reviewed=drawn)
        alarms += watch.alarm and watch.tests["risk"].alarm is not None
        assert watch.verdict("risk") in ("cannot tell", "alarm")
    assert alarms <= 1


@pytest.mark.parametrize("suffix", [".json", ".db"])
def test_states_keep_what_was_compared(suffix, tmp_path):
    """Also rows that wait to be compared, of infinite doubt."""
    path, rng = tmp_path / f"state{suffix}", np.random.default_rng(0)
    gate = GATES["risk"]
    uninterrupted = gate.watch(review=AUDIT)
    for _ in range(8):
        doubts, errors = rows(rng, 50)
        doubts[0] = math.inf
        drawn = choose(rng, doubts, 0.2, 1)
        labels = np.where(drawn, errors, np.nan)
        uninterrupted.update(doubts, labels, reviewed=drawn)
        with td.Watch.open(path, gate, review=AUDIT) as watch:
            watch.update(doubts, labels, reviewed=drawn)
    for name in ("among_accepted", "among_rejected"):
        actual, expected = (getattr(w.sampling, name) for w in (watch, uninterrupted))
        assert actual.evidence == expected.evidence
        assert actual.doubts.tolist() == expected.doubts.tolist()
        assert actual.drawn.tolist() == expected.drawn.tolist()
    assert watch.sampling.among_accepted.starts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drawn", [1]),
        ("drawn", [2]),
        ("unstaked", 0.0),
        ("log_sums", []),
        ("log_sums", ["inf"] * 50),
        ("starts", -1),
        ("peak", -1.0),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(name, value, tmp_path):
    path = tmp_path / "state.json"
    GATES["risk"].watch().save(path)
    content = json.loads(path.read_text())
    content["sampling"]["among_accepted"][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="changed or damaged"):
        td.Watch.load(path, GATES["risk"])
