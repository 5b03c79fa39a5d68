"""The sketch: bounds that hold, merges to the bit, thresholds on the safe side."""

import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor import calibrate_scores as calibrate
from trustdoctor.demo import bundled_file
from trustdoctor.errors import (
    FileError,
    InputError,
    LabelsMissingError,
    UndefinedMetricError,
)
from trustdoctor.kernels import _native
from trustdoctor.metrics import CELLS, RANK_METRICS, Points, Sketch, aupr, measure

SMALL = 1 << 13
KINDS = {
    "normal": lambda rng, n: 10 * rng.normal(size=n),
    "float32": lambda rng, n: (10 * rng.normal(size=n)).astype(np.float32),
    "all equal": lambda rng, n: np.full(n, rng.normal()),
    "two values": lambda rng, n: rng.choice([-1.0, 3.5], n),
    "infinities": lambda rng, n: rng.choice(
        [-np.inf, np.inf, *rng.normal(size=5000)], n
    ),
    "one cluster": lambda rng, n: 1 + rng.random(n) * 1e-13 * rng.integers(1, 1000),
    "far apart": lambda rng, n: rng.choice([1e-310, 1e-3, 1e300], n) * rng.random(n),
    "clusters": lambda rng, n: (
        rng.choice(rng.normal(size=40), n) * (1 + 1e-12 * rng.random(n))
    ),
    "zeros": lambda rng, n: rng.choice([0.0, -0.0, 1e-320], n) * rng.random(n),
    "atoms": lambda rng, n: np.round(rng.normal(size=n), rng.integers(1, 6)),
}


def draw(kind, rng, n):
    scores = KINDS[kind](rng, n)
    errors = rng.random(n) < rng.random()
    errors[:2] = True, False
    return scores, errors


def sketch_of(scores, errors, n_parts=1, cells=SMALL):
    sketch = Sketch(cells=cells)
    for rows in np.array_split(np.arange(len(scores)), n_parts):
        sketch.update(scores[rows], errors[rows])
    return sketch


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_the_exact_value_in_each_of_100_random_cases(kind):
    rng = np.random.default_rng(sum(map(ord, kind)))
    loose = 0
    for _ in range(100):
        scores, errors = draw(kind, rng, int(rng.integers(20, 25_000)))
        sketch = sketch_of(scores, errors, int(rng.integers(1, 4)))
        loose += not sketch.exact
        at = Points(*rng.uniform(0.01, 0.99, 4))
        for name, value in measure(scores, errors, points=at).items():
            low, high = sketch.bounds(name, points=at)
            assert low - 1e-11 <= value <= high + 1e-11, (name, sketch)
            if sketch.exact:
                assert low == high == pytest.approx(value, abs=1e-12)
        low, high = sketch.bounds("aupr_correct")
        value = aupr(scores, errors, positive="correct")
        assert low - 1e-11 <= value <= high + 1e-11
    few_distinct = ("all equal", "two values", "infinities", "zeros")
    assert (loose > 0) == (kind not in few_distinct)


@pytest.mark.parametrize("kind", KINDS)
def test_merging_is_associative_and_commutative_to_the_bit(kind):
    rng = np.random.default_rng(1)
    scores, errors = draw(kind, rng, 60_000)
    at_once = sketch_of(scores, errors).to_bytes()
    assert sketch_of(scores, errors, 7).to_bytes() == at_once
    order = rng.permutation(len(scores))
    assert sketch_of(scores[order], errors[order], 3).to_bytes() == at_once
    cuts = np.split(np.arange(len(scores)), [5_000, 20_000])
    pickled = [sketch_of(scores[c], errors[c]).to_bytes() for c in cuts]
    for chosen in permutations(pickled):
        first, second, third = map(Sketch.from_bytes, chosen)
        second.merge(third)
        first.merge(second)
        assert first.to_bytes() == at_once
        first, second, third = map(Sketch.from_bytes, chosen)
        first.merge(second)
        first.merge(third)
        assert first.to_bytes() == at_once


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_compiled_kernel_the_sketch_is_the_same(kind, monkeypatch):
    scores, errors = draw(kind, np.random.default_rng(2), 30_000)
    compiled = sketch_of(scores, errors, 2).to_bytes()
    monkeypatch.setattr(_native, "available", False)
    assert sketch_of(scores, errors, 5).to_bytes() == compiled


def test_scores_of_several_types_go_together():
    sketch = Sketch()
    errors = np.array([True, False])
    for kind in (np.float16, np.float32, np.float64, np.int64):
        sketch.update(np.array([1, 2], kind), errors)
    assert len(sketch) == 8
    assert sketch.bounds("auroc") == (0.0, 0.0)


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False), st.booleans()), min_size=1, max_size=60
    )
)
def test_few_rows_are_kept_exactly(rows):
    scores, errors = np.array([s for s, _ in rows]), np.array([e for _, e in rows])
    sketch = sketch_of(scores, errors, 3 if len(rows) > 3 else 1)
    assert sketch.exact
    for name, value in measure(scores, errors).items():
        assert sketch.bounds(name) == pytest.approx((value, value), abs=1e-12)


TARGETS = [
    {"frr": 0.05},
    {"frr": 0.05, "mode": "expectation"},
    {"trr": 0.9},
    {"joint": 0.03},
    {"coverage": 0.8},
    {"risk": 0.05},
    {"risk": 0.05, "mode": "expectation"},
    {"frr": 0.2, "trr": 0.5},
    {"cost": 5.0},
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("kind", ["normal", "one cluster", "clusters", "far apart"])
def test_thresholds_stay_on_the_safe_side(target, kind):
    rng = np.random.default_rng(3)
    for _ in range(5):
        errors = rng.random(20_000) < 0.1
        scores = np.where(errors, *[draw(kind, rng, 20_000)[0] for _ in range(2)])
        rank = scores.argsort().argsort() / len(scores)
        errors = rng.random(20_000) < rank**3 / 3
        exact = calibrate(scores, errors, **target)
        ours = calibrate(sketch_of(scores, errors), **target)
        accepted, exactly_accepted = ours.accept(scores), exact.accept(scores)
        observed = ours.certificate.observed
        assert observed["coverage"].value == accepted.mean()
        assert ("risk" in observed) == accepted.any()
        if accepted.any():
            assert observed["risk"].value == pytest.approx(errors[accepted].mean())
        if len({"frr", "trr"} & set(target)) == 2:
            if ours.state == "threshold":
                (low, high), ends = (
                    ours.certificate.feasible,
                    exact.certificate.feasible,
                )
                assert ends[0] <= low <= ours.threshold <= high <= ends[1]
        elif {"frr", "coverage"} & set(target):
            assert (accepted >= exactly_accepted).all()
        elif {"trr", "joint", "risk"} & set(target):
            assert (accepted <= exactly_accepted).all()


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_an_exact_sketch_calibrates_as_the_rows_do(target):
    rng = np.random.default_rng(4)
    errors = rng.random(5000) < 0.1
    scores = np.round(rng.normal(size=5000) + 2 * errors, 2)
    gate, same = calibrate(scores, errors, **target), None
    same = calibrate(sketch_of(scores, errors), **target)
    assert (same.threshold, same.state) == (gate.threshold, gate.state)
    assert same.certificate.observed == gate.certificate.observed


def test_a_promise_for_each_group():
    rng = np.random.default_rng(5)
    errors = rng.random(9000) < 0.1
    scores, groups = rng.normal(size=9000) + 2 * errors, rng.integers(0, 3, 9000)
    sketches = {
        g: sketch_of(scores[groups == g], errors[groups == g]) for g in range(3)
    }
    ours = calibrate(sketch_of(scores, errors, cells=CELLS), frr=0.1, groups=sketches)
    exact = calibrate(scores, errors, frr=0.1, groups=groups)
    for name, rule in exact.groups.items():
        assert ours.groups[name].threshold >= rule.threshold
        assert ours.groups[name].n == rule.n
    with pytest.raises(InputError, match="sketches by name"):
        calibrate(sketch_of(scores, errors), frr=0.1, groups=groups)


def test_a_threshold_within_a_range_leaves_its_rates_open():
    rng = np.random.default_rng(6)
    scores, errors = rng.normal(size=200_000), rng.random(200_000) < 0.1
    sketch = sketch_of(scores, errors)
    wide = np.flatnonzero(sketch.cells.low < sketch.cells.high)[100]
    inside = float(sketch.cells.low[wide])
    gate = calibrate(sketch, threshold=inside)
    assert gate.certificate.observed == {}
    assert "was not counted" in gate.certificate.notes[0]


def test_rows_without_errors_give_coverage_alone():
    sketch = Sketch()
    sketch.update(np.arange(1000.0))
    gate = calibrate(sketch, coverage=0.9)
    assert gate.certificate.n_errors is None
    assert set(gate.certificate.observed) == {"coverage"}
    with pytest.raises(InputError, match="needs to know which"):
        calibrate(sketch, frr=0.1)
    with pytest.raises(LabelsMissingError):
        sketch.bounds("auroc")
    other, merged = Sketch(), Sketch()
    other.update(np.arange(5.0), np.ones(5, bool))
    merged.update(np.arange(5.0))
    merged.update(np.arange(1000.0))
    other.merge(sketch)  # labels of a part are dropped
    assert other.to_bytes() == merged.to_bytes()
    assert not pickle.loads(pickle.dumps(sketch)).labelled


def test_mistakes_are_named():
    sketch = Sketch(cells=SMALL)
    with pytest.raises(InputError, match="empty sketch"):
        calibrate(sketch, frr=0.1)
    with pytest.raises(InputError, match="NaN"):
        sketch.update([np.nan], [True])
    sketch.update([1.0], [True])
    with pytest.raises(InputError, match="Leave errors out"):
        calibrate(sketch, [True], frr=0.1)
    with pytest.raises(UndefinedMetricError, match="both kinds"):
        sketch.bounds("auroc")
    with pytest.raises(InputError, match="expected a metric"):
        sketch.bounds("accuracy")
    with pytest.raises(InputError, match="one size"):
        sketch.merge(Sketch())
    with pytest.raises(InputError, match="at least 8192"):
        Sketch(cells=10)
    for content in (b"", b"nonsense", b"PK\x03\x04", sketch.to_bytes()[:-9]):
        with pytest.raises(FileError, match="a sketch's bytes"):
            Sketch.from_bytes(content)


@pytest.mark.parametrize("score", ["alpha", "msp", "energy"])
def test_bounds_are_narrow_on_a_real_model(score):

    p = td.read(bundled_file())
    rng, sketch = np.random.default_rng(7), Sketch()
    doubts = td.SCORES[score](p).astype(np.float64)
    step = np.abs(np.diff(np.sort(doubts[np.isfinite(doubts)]))).mean()
    for _ in range(4):
        rows = rng.integers(0, len(p), 500_000)  # jittered, so that none is equal
        sketch.update(doubts[rows] + step * rng.normal(size=len(rows)), p.errors[rows])
    assert not sketch.exact
    assert len(sketch.to_bytes()) < 10_000_000
    for name in ("auroc", "frr_at_trr", "aurc"):
        low, high = sketch.bounds(name)
        assert high - low <= 1e-4, name


def test_every_metric_of_rank_has_bounds():
    sketch = sketch_of(*draw("normal", np.random.default_rng(8), 20_000))
    for name in RANK_METRICS:
        low, high = sketch.bounds(name)
        assert 0 <= low <= high <= 1
