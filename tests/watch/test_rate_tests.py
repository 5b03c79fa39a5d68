"""Which rates of a gate are tested, and between which limits."""

import numpy as np
import pytest
from scipy.stats import beta
from watch.streams import ALL, AUDIT, TARGETS, calibrated, decided, rows

import trustdoctor as td
from trustdoctor import gates
from trustdoctor.errors import InputError
from trustdoctor.gates import Cut, Rule, Target


@pytest.mark.parametrize("target", [*TARGETS, {"coverage": 0.8}], ids=str)
def test_the_level_is_split_and_the_promise_is_the_null(target):
    watch = calibrated(**target).watch(level=0.2)
    (name,), (value,) = target, target.values()
    assert list(watch.tests) == ["accepted", name]
    levels = [test.level for test in watch.tests.values()]
    assert levels == pytest.approx([0.09, 0.09])
    test = watch.tests[name]
    assert (test.low, test.high) == (
        (value, 1.0) if test.target.at_least else (0.0, value)
    )


def test_accepting_is_tested_against_what_calibration_saw():
    """Between Clopper-Pearson's limits, at a tenth of the level's part."""
    gate = calibrated()
    n_accepted = int(gate.accept(rows(np.random.default_rng(7), 3000)[0]).sum())
    test, tail = gate.watch(level=0.1).tests["accepted"], 0.1 / 10 / 2 / 2
    assert test.low == pytest.approx(beta.ppf(tail, n_accepted, 3001 - n_accepted))
    assert test.high == pytest.approx(
        beta.ppf(1 - tail, n_accepted + 1, 3000 - n_accepted)
    )


def test_drift_is_found_without_labels():
    for shift, frr in ((1.0, 0.1), (-1.0, 0.3)):
        watch, rng = calibrated(frr=frr).watch(), np.random.default_rng(0)
        for _ in range(20):
            watch.update(rows(rng, 200, shift=shift)[0])
        assert watch.verdict("accepted") == "alarm"
        assert watch.verdict("frr") == "no rows yet"
        assert "the accept rate has changed" in repr(watch)


@pytest.mark.parametrize("target", [{"risk": 0.05}, {"trr": 0.9}, {"joint": 0.04}])
def test_a_broken_promise_is_found_with_labels(target):
    gate, rng = calibrated(**target), np.random.default_rng(0)
    watch = gate.watch()
    for _ in range(30):
        doubts, errors = rows(rng, 200)
        doubts[errors] -= 1.5  # errors that look like correct predictions
        watch.update(doubts, errors)
    (name,) = target
    assert watch.verdict(name) == "alarm"
    assert "the promise no longer holds" in repr(watch)


def test_a_promised_coverage_is_tested_separately():
    rng = np.random.default_rng(0)
    gate = td.calibrate_scores(rng.normal(size=2000), coverage=0.9)
    accepting = gate.watch().update(np.full(3000, -9.0))
    assert accepting.verdict("accepted") == "alarm"
    assert accepting.verdict("coverage") == "holds"
    assert "does not hold" not in repr(accepting)
    rejecting = gate.watch()
    for _ in range(20):
        rejecting.update(rng.normal(size=200) + 0.5)
    assert rejecting.verdict("coverage") == "alarm"
    assert "the promise no longer holds" in repr(rejecting)


@pytest.mark.parametrize(
    "target",
    [
        {"frr": 0.1},
        {"risk": 0.05},
        *(
            pytest.param(target, marks=pytest.mark.soak)
            for target in (
                {"trr": 0.9},
                {"joint": 0.04},
                {"coverage": 0.9},
                {"frr": 0.1, "mode": "expectation"},
                {"trr": 0.9, "mode": "expectation"},
            )
        ),
    ],
    ids=str,
)
def test_nothing_changed_seldom_alarms(target):
    """30 calibrations, each watched over 15 batches, at level 0.1.

    An alarm of a gate whose promise the calibration broke is not a false one; in
    confidence mode another tenth may.
    """
    alarms = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        watch = td.calibrate_scores(*rows(rng, 1000), **target).watch(level=0.1)
        for _ in range(15):
            watch.update(*rows(rng, 130))
        alarms += watch.alarm
    assert alarms <= 8  # of 30, at 0.1: beyond with probability 0.002


def trivial(state, **target):
    """Return a gate that decides nothing, with a promise."""
    rng = np.random.default_rng(0)
    errors = rng.random(300) < (0.0 if state == "accept-all" else 0.9)
    gate = td.calibrate_scores(rng.normal(size=300), errors, **target)
    assert gate.state == state
    return gate


def test_a_gate_that_keeps_its_promise_anyway_has_nothing_to_watch():
    for gate in (
        trivial("reject-all", risk=0.01),
        td.calibrate_scores([1.0, 2.0], coverage=0.99),
    ):
        watch = gate.watch().update([0.1, 5.0], [True, False] if gate else None)
        assert watch.tests == {}
        assert not watch.alarm
        assert "nothing to watch" in repr(watch)
        assert watch.to_dict()["tests"] == {}
        assert watch.totals.rows == 2


def test_a_gate_that_accepts_all_may_still_break_its_risk():
    gate = trivial("accept-all", risk=0.05)
    watch = gate.watch(level=0.1)
    assert list(watch.tests) == ["risk"]
    assert watch.tests["risk"].level == pytest.approx(0.09)
    watch.update(decided([True] * 200), [True] * 60 + [False] * 140)
    assert watch.verdict("risk") == "alarm"


def test_gates_without_a_certificate_are_refused():
    with pytest.raises(InputError, match="no certificate"):
        td.Gate(0.0).watch()


def test_gates_that_promise_nothing_are_watched_for_drift_alone():
    rng = np.random.default_rng(0)
    p = td.Predictions.from_logits(rng.normal(size=(500, 3)) * 3)
    assert list(td.calibrate_unlabelled(p, frr=0.1).watch().tests) == ["accepted"]
    everything = td.calibrate_unlabelled(p, risk=0.9)
    assert everything.state == "accept-all"
    assert "promise" not in repr(everything.watch())  # it made none
    gate = td.calibrate_scores(*rows(rng, 500), cost=10)
    assert list(gate.watch().tests) == ["accepted"]


@pytest.fixture
def plugin():
    """Custom targets, given by their fraction among the reviewed rows."""
    registered = []

    def register(fraction, **options):
        target = Target(
            "toy",
            "at most {}%, as a toy",
            "A toy.",
            Rule("A quantile.", lambda rows, *_: Cut(score=rows.of_kind("all").kth(
                int(0.8 * len(rows)))[1])),
            fraction=fraction,
            **options,
        )  # fmt: skip
        registered.append(td.register_target(target))
        return calibrated(target={"toy": 0.5})

    yield register
    for target in registered:
        del gates.TARGETS[target.name]


def test_a_custom_target_cannot_be_tested_under_unequal_review_rates(plugin):
    gate = plugin(lambda at: (at.rejected_correct + at.accepted_errors, at.n))
    doubts, errors = rows(np.random.default_rng(0), 500)
    drawn = np.random.default_rng(1).random(500) < np.where(gate.accept(doubts), 0.2, 1)
    watch = gate.watch(review=AUDIT).update(doubts, errors, reviewed=drawn)
    assert watch.verdict("toy") == "cannot tell"
    assert watch.tests["toy"].n == 0
    assert "at one rate" in repr(watch)
    even = gate.watch(review=ALL).update(doubts, errors)
    assert even.verdict("toy") == "holds"
    assert even.tests["toy"].n == 500


def test_a_custom_share_may_be_a_lower_bound(plugin):
    """At least half of all rows are right and accepted; three quarters are."""
    gate = plugin(
        lambda at: (at.accepted_correct, at.n), at_least=True, review_effect="share"
    )
    watch, rng = gate.watch(review=AUDIT), np.random.default_rng(0)
    for at in range(20):
        doubts, errors = rows(rng, 100)
        drawn = rng.random(100) < np.where(gate.accept(doubts), 0.2, 1)
        ids = [f"{at}-{row}" for row in range(100)]
        watch.update(doubts, ids=ids, reviewed=drawn)
        assert watch.verdict("toy") in ("holds", "no rows yet")
        drawn_rows = np.flatnonzero(drawn)
        for batch in (drawn_rows[::2], drawn_rows[1::2]):
            watch.label(errors=errors[batch], ids=[ids[row] for row in batch])
            assert watch.verdict("toy") in ("holds", "no rows yet")
    estimate = watch.tests["toy"].estimate()
    assert estimate.low < 0.72 < estimate.high
    assert watch.tests["toy"].peak < 2


@pytest.mark.parametrize("level", [0, 1, -1, 1e-300, np.nan, np.inf, "0.1", True, None])
def test_a_level_is_a_probability_that_can_be_split(level):
    with pytest.raises(InputError, match="expected level between 1e-09 and 1"):
        calibrated().watch(level=level)
    assert not calibrated().watch(level=1e-9).alarm


@pytest.mark.parametrize("window", [0, -1, 1.5, "9", None, True, 10**18])
def test_a_window_is_a_number_of_rows(window):
    with pytest.raises(InputError, match="expected a window"):
        calibrated().watch(window=window)
