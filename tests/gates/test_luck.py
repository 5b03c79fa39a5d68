"""Gates that passed because almost no error was possible at their size."""

import json

import numpy as np
import pytest
from scipy.stats import binom

import trustdoctor as td


def flags(scores, errors, n, runs, risk, seed=0):
    """Return which of many gates are not trivial, flagged, and broken on all rows."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(runs):
        some = rng.choice(len(scores), n, replace=False)
        gate = td.calibrate_scores(scores[some], errors[some], risk=risk)
        kept = gate.accept(scores)
        broken = bool(kept.any() and errors[kept].mean() > risk)
        out.append((gate.state != "reject-all", gate.certificate.luck, broken))
    return np.array(out).T


@pytest.mark.soak
def test_gates_that_were_luck_are_flagged(shared):
    """IMDb: one calibration in eight accepts anything, and most of those break."""
    p = td.read(shared / "predictions" / "minilm-imdb-test.npz")
    able, luck, broken = flags(td.alpha(p), p.errors, 500, 500, risk=0.01)
    assert 0.05 < able.mean() < 0.25
    assert broken.mean() <= 0.1
    assert (broken & able).sum() / able.sum() > 0.4
    assert (luck & broken).sum() / broken.sum() > 0.75
    assert not (luck & ~able).any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("n", "risk"), [(500, 0.05), (2000, 0.02)])
def test_gates_on_enough_rows_are_not(n, risk, rng):
    errors = rng.random(50_000) < 0.1
    scores = rng.normal(size=50_000) + 2 * errors
    able, luck, _ = flags(scores, errors, n, 200, risk=risk)
    assert able.mean() > 0.9
    assert luck.mean() < 0.03


@pytest.mark.more
def test_no_gate_is_luck_where_one_error_is_allowed(rng):
    """By scipy: the flag needs that one error would have failed."""
    errors = rng.random(4000) < 0.2
    scores = rng.normal(size=4000) + errors
    for seed in range(150):
        some = np.random.default_rng(seed).choice(4000, 300)
        gate = td.calibrate_scores(scores[some], errors[some], risk=0.05)
        if gate.certificate.luck:
            kept = int(gate.accept(scores[some]).sum())
            assert binom.cdf(1, kept, 0.05) > 0.01
            assert not errors[some][gate.accept(scores[some])].any()


def lucky(first=250):
    """No error among the first rows, then every third."""
    errors = (np.arange(500) >= first) & (np.arange(500) % 3 == 0)
    return np.arange(500.0), errors


def test_the_flag_is_in_the_text_the_file_and_the_gate(tmp_path):
    gate = td.calibrate_scores(*lucky(), risk=0.01)
    assert gate.certificate.luck
    assert "Careful: it passed with no error among 252 accepted rows" in str(
        gate.certificate.notes
    )
    assert "careful: it passed by luck" in repr(gate)
    gate.save(tmp_path / "gate.json")
    assert json.loads((tmp_path / "gate.json").read_text())["certificate"]["luck"]
    assert td.Gate.load(tmp_path / "gate.json").certificate.luck


def test_groups_that_were_lucky_are_named():
    scores, errors = (np.tile(part, 2) for part in lucky(330))
    errors[500:] = np.arange(500) >= 495
    groups = np.repeat(["bad", "good"], 500)
    found = td.calibrate_scores(scores, errors, risk=0.01, groups=groups).certificate
    assert found.luck
    said = [note for note in found.notes if "no error among" in note]
    assert "in group bad" in said[0]
    assert "good" not in said[0]


def test_promises_say_what_their_confidence_counts(rng):
    scores = rng.normal(size=2000)
    errors = rng.random(2000) < 0.1
    found = td.calibrate_scores(scores, errors, frr=0.1, confidence=0.95).certificate
    assert "at least 95 of 100 keep the promise" in found.notes[-1]
    for options in ({"frr": 0.1, "mode": "expectation"}, {"cost": 5}):
        notes = td.calibrate_scores(scores, errors, **options).certificate.notes
        assert not any("of 100" in note for note in notes)


def test_gates_that_decide_nothing_say_why():
    gate = td.calibrate_scores([1.0, 2.0, 3.0], [False] * 3, trr=0.95)
    assert repr(gate).startswith("Gate(reject all, because 0 errors are too few")
    gate = td.calibrate_scores([1.0, 2.0, 3.0], [False] * 3, frr=0.05)
    assert repr(gate).startswith("Gate(accept all, because 3 rows of the kind")
