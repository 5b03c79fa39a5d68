"""The rules for selective risk, walked by hand and against MAPIE."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.gates import Rows, rules
from trustdoctor.gates import risk as risk_rules
from trustdoctor.metrics import count_runs


def draw(rng, n=2000, rate=0.1):
    errors = rng.random(n) < rate
    return rng.normal(size=n) + 2 * errors, errors


def walk_by_hand(scores, errors, risk, start, level):
    """Fixed-sequence testing, one distinct threshold after another."""
    best = 0
    for t in np.unique(scores):
        accepted = scores <= t
        j = int(accepted.sum())
        if j < start:
            continue
        if binom.cdf(int(errors[accepted].sum()), j, risk) > level:
            break
        best = j
    return best


@given(
    n=st.integers(20, 300),
    seed=st.integers(0, 50),
    risk=st.sampled_from([0.05, 0.2, 0.4]),
    tied=st.booleans(),
)
def test_the_risk_sequences_are_those_walked_by_hand(n, seed, risk, tied):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.2
    scores = rng.normal(size=n) + 2 * errors
    scores = np.round(scores) if tied else scores
    cut = risk_rules.risk_sequence(
        Rows(scores, errors), risk, delta=0.1, min_coverage=0.3
    )
    expected = 0
    for share, level in ((0.3, 0.09), (0.05, 0.01)):
        start = max(
            int(np.ceil(np.log(level) / np.log(1 - risk))),
            int(np.ceil(Fraction(str(share)) * n)),
        )
        expected = max(expected, walk_by_hand(scores, errors, risk, start, level))
    if expected == 0:
        assert cut.state == "reject-all"
    elif expected == n:
        assert cut.state == "accept-all"
    else:
        assert (scores <= cut.score).sum() == expected


@given(n=st.integers(20, 300), seed=st.integers(0, 50))
def test_sgr_and_grid_stop_where_their_bounds_hold(n, seed):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.1
    scores = rng.normal(size=n) + 3 * errors
    level = {"sgr": 0.1 / np.ceil(np.log2(n)), "grid": 0.1 / 20}
    for name, cut in (
        ("sgr", risk_rules.risk_sgr(Rows(scores, errors), 0.2, delta=0.1)),
        ("grid", risk_rules.risk_grid(Rows(scores, errors), 0.2, delta=0.1)),
    ):
        if cut.state == "reject-all":
            continue
        accepted = scores <= (cut.score if cut.state == "threshold" else np.inf)
        p = binom.cdf(errors[accepted].sum(), accepted.sum(), 0.2)
        assert p <= level[name] * (1 + 1e-9)


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_more_rows_do_not_help_where_the_search_starts_badly():
    """Risk is lowest in the middle, where no sequence starts."""
    rng = np.random.default_rng(0)
    scores = np.arange(4000.0)
    errors = (rng.random(4000) < 0.3) & ((scores < 1500) | (scores > 3900))
    certificate = td.calibrate_scores(scores, errors, risk=0.15).certificate
    assert "risk does not fall with this score" in certificate.trivial
    assert "too few" not in certificate.trivial
    assert len(certificate.outlook) == 1  # no number of rows is enough
    grid = td.calibrate_scores(scores, errors, risk=0.15, method="grid")
    assert grid.state == "accept-all"


def test_learn_then_test_agrees_with_mapie(rng):
    """The same grid of thresholds: the same p-values, and the same ones pass."""
    from mapie.risk_control.fwer_control import control_fwer
    from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

    for _ in range(20):
        scores, errors = draw(rng, 500)
        order = np.argsort(scores)
        accepted = np.arange(150, 501)
        wrong = np.cumsum(errors[order])[accepted - 1]
        ours = rules.binomial_cdfs(wrong, accepted, 0.05)
        exact = accepted * (wrong / accepted) == wrong  # theirs rounds up otherwise
        theirs = compute_hoeffding_bentkus_p_value(
            wrong / accepted, accepted, 0.05, binary=True
        )[:, 0]
        assert (theirs[exact] <= ours[exact] * (1 + 1e-9)).all()
        below = theirs < np.exp(-1e-9) * ours  # where Hoeffding's bound is lower
        assert not (below & exact & (ours < 0.1)).any()
        passed = control_fwer(ours, 0.1, "fixed_sequence")
        first = int(wrong[0])
        if rules.binomial_cdf(first, 150, 0.05) > 0.1:
            assert len(passed) == 0
        else:
            walked = risk_rules._last_passing(
                count_runs(scores, errors), 150, 0.05, 0.1
            )
            assert walked == accepted[passed[-1]]
        grid = accepted[[i * 25 + 24 for i in range(14)]]
        p = rules.binomial_cdfs(np.cumsum(errors[order])[grid - 1], grid, 0.05)
        assert set(control_fwer(p, 0.1, "bonferroni")) == set(
            np.flatnonzero(p <= 0.1 / 14)
        )


@pytest.mark.parametrize("method", ["sequence", "sgr", "grid"])
def test_thresholds_that_passed_are_listed_with_scipys_p_values(method, rng, tmp_path):
    scores, errors = draw(rng, 3000)
    gate = td.calibrate_scores(scores, errors, risk=0.05, method=method)
    listed = gate.certificate.passed
    assert 1 <= len(listed) <= 20
    assert listed[-1].threshold == gate.threshold
    assert [passed.accepted for passed in listed] == sorted(
        {o.accepted for o in listed}
    )
    for passed in listed:
        accepted = scores <= passed.threshold
        assert (accepted.sum(), errors[accepted].sum()) == (
            passed.accepted,
            passed.errors,
        )
        assert passed.p_value == pytest.approx(
            binom.cdf(passed.errors, passed.accepted, 0.05)
        )
        assert passed.p_value <= passed.level <= 0.09
    gate.save(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())["certificate"]
    assert content["passed"][-1] == [listed[-1].threshold, *listed[-1][1:]]
    assert td.Gate.load(tmp_path / "gate.json") == gate
    assert len(gate.certificate.passed_lines()) == len(listed) + 2


def test_nothing_is_listed_where_nothing_is_tested(rng):
    certificate = td.calibrate_scores(*draw(rng), frr=0.1).certificate
    assert (certificate.passed, certificate.passed_lines()) == ((), [])
    assert "passed" not in certificate.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"passed": 3},
        {"passed": [1]},
        {"passed": [[0.1, 2, 3]]},
        {"passed": [[0.1, 2, 3, 0.1, 0.1]]},
        {"passed": [["x", 3, 2, 0.1, 0.1]]},
        {"passed": [[0.1, 3, 2, 7, 0.1]]},
        {"passed_by_chance": "no"},
        {"passed_by_chance": 1},
    ],
)
def test_lists_that_are_not_understood_are_refused(change, rng, tmp_path):
    path = tmp_path / "gate.json"
    td.calibrate_scores(*draw(rng), risk=0.05).save(path)
    content = json.loads(path.read_text())
    content["certificate"] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="not valid"):
        td.Gate.load(path)
