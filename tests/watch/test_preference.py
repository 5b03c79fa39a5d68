"""Reviews that prefer doubtful rows, or easy ones, are found; plain draws are not."""

import json
import math
from itertools import combinations

import numpy as np
import pytest
from watch.streams import AUDIT, calibrated, decided, rows

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.watch.review import COMPARED_TOGETHER, Preference

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
        kept, drawn = gate.accept(doubts), np.zeros(size, bool)
        for kind, name, first in (
            (kept, "accepted", accepted),
            (~kept, "rejected", rejected),
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
    """Return the mean evidence of one batch over all draws of so many rows."""
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
    """Nobody said which rows were drawn: the labels come a day late, with all rows."""
    gate, rng = GATES["risk"], np.random.default_rng(0)
    for way in ("ids", "batch"):
        watch = gate.watch()
        for day in range(20):
            doubts, errors = rows(rng, 200)
            names = {"ids": [f"{day}-{k}" for k in range(200)]}
            names = names if way == "ids" else {"batch": str(day)}
            kept = gate.accept(doubts)
            drawn = ~kept
            drawn[kept] = choose(rng, doubts[kept], 0.3, first)
            watch.update(doubts, **names)
            watch.label(doubts, np.where(drawn, errors, np.nan), **names)
        assert watch.verdict("risk") == ("cannot tell" if first else "holds")


def test_all_labels_a_day_late_tell_even_where_doubts_drift():
    gate, rng, before = GATES["frr"], np.random.default_rng(0), None
    watch = gate.watch()
    for day in range(30):
        doubts, errors = rows(rng, 200, shift=-day / 10)
        watch.update(doubts, ids=[f"{day}-{k}" for k in range(200)])
        if before is not None:
            watch.label(*before, ids=[f"{day - 1}-{k}" for k in range(200)])
        before = doubts, errors
    assert not watch.sampling.among_accepted.starts


def test_an_earlier_alarm_is_told_to_be_doubtful():
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
    whole = gate.watch(review=AUDIT)
    for _ in range(8):
        doubts, errors = rows(rng, 50)
        doubts[0] = math.inf
        drawn = choose(rng, doubts, 0.2, 1)
        labels = np.where(drawn, errors, np.nan)
        whole.update(doubts, labels, reviewed=drawn)
        with td.Watch.open(path, gate, review=AUDIT) as watch:
            watch.update(doubts, labels, reviewed=drawn)
    for name in ("among_accepted", "among_rejected"):
        kept, wanted = (getattr(w.sampling, name) for w in (watch, whole))
        assert kept.evidence == wanted.evidence
        assert kept.doubts.tolist() == wanted.doubts.tolist()
        assert kept.drawn.tolist() == wanted.drawn.tolist()
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
