"""The rules for selective risk: walked by hand, row by row, and against MAPIE."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.gates import Rows, rules
from trustdoctor.gates import risk as risk_rules
from trustdoctor.gates.boundary import MOST_ROWS_TESTED, find_boundary
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


def accepted_by_sequences(scores, errors, risk, sequences):
    """Return how many rows the better of some sequences (share, level) accepts."""
    n, best = len(scores), 0
    for share, level in sequences:
        start = max(
            int(np.ceil(np.log(level) / np.log(1 - risk))),
            int(np.ceil(Fraction(str(share)) * n)),
        )
        best = max(best, walk_by_hand(scores, errors, risk, start, level))
    return best


def accepts(cut, scores, expected):
    """Tell whether a cut accepts this number of rows, by its state and its score."""
    if expected == 0:
        return cut.state == "reject-all"
    if expected == len(scores):
        return cut.state == "accept-all"
    return cut.state == "threshold" and (scores <= cut.score).sum() == expected


def limits_by_hand(n, risk, level):
    """Return the most errors among k = 0, ..., n rows that pass, and -1 for none."""
    limits = np.full(n + 1, -1)
    for k in range(1, n + 1):
        limits[k] = (binom.cdf(np.arange(k + 1), k, risk) <= level).sum() - 1
    return limits


def walk_passes(n, risk, level, sequence_level=0.0):
    """Return how probably a walk of Bernoulli errors passes either way, row by row.

    Those ways are the limits at `level` among any number of rows, and those at
    `sequence_level` at the one number from 0.3 n on where that is most probable.
    """
    limits, errors = limits_by_hand(n, risk, level), np.arange(n + 1)
    outside = [np.eye(n + 1)[0]]  # probable numbers of errors, no limit having been met
    for k in range(1, n + 1):
        walk = (1 - risk) * outside[-1] + risk * np.append(0, outside[-1][:-1])
        outside.append(np.where(errors <= limits[k], 0, walk))
    crossed = 1 - outside[-1].sum()
    if not sequence_level:
        return crossed
    first_limits = limits_by_hand(n, risk, sequence_level)
    escapes, worst = np.ones(n + 1), 0.0
    for k in range(n, int(np.ceil(Fraction("0.3") * n)) - 1, -1):
        passes = errors <= first_limits[k]
        worst = max(worst, (outside[k] * escapes)[passes].sum())
        free = np.where(errors <= limits[k], 0, escapes)  # none met from row k on
        escapes = (1 - risk) * free + risk * np.append(free[1:], 1)
    return crossed + worst


@pytest.mark.parametrize("risk", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("delta", [0.1, 0.025])
@pytest.mark.parametrize("n", [40, 150, 199, 200, 450])
def test_the_boundary_takes_the_largest_level_that_walks_allow(n, delta, risk):
    """By a walk that is followed row by row, at the level and 3% above it."""
    boundary = find_boundary(n, risk, delta)
    assert boundary.sequence_level == (0.8 * delta if n >= 200 else 0)
    limits = limits_by_hand(n, risk, boundary.level)
    rises = np.flatnonzero(np.diff(limits)) + 1
    assert np.array_equal(boundary.steps, rises)
    chance = walk_passes(n, risk, boundary.level, boundary.sequence_level)
    assert chance <= delta * (1 + 1e-9)
    if boundary.level < 0.97 * delta:
        higher = walk_passes(n, risk, 1.03 * boundary.level, boundary.sequence_level)
        assert higher > delta


@given(
    n=st.integers(20, 300),
    seed=st.integers(0, 50),
    risk=st.sampled_from([0.05, 0.2, 0.4]),
    tied=st.booleans(),
)
def test_the_threshold_is_the_last_within_the_boundary_or_the_sequence(
    n, seed, risk, tied
):
    """Every distinct threshold is tested by hand; from 200 rows on a walk helps."""
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.2
    scores = rng.normal(size=n) + 2 * errors
    scores = np.round(scores) if tied else scores
    cut = risk_rules.risk_cut(Rows(scores, errors), risk, mode="confidence", delta=0.1)
    expected, level = 0, find_boundary(n, risk, 0.1).level
    for t in np.unique(scores):
        accepted = scores <= t
        if binom.cdf(errors[accepted].sum(), accepted.sum(), risk) <= level:
            expected = int(accepted.sum())
    if n >= 200:
        sequence = accepted_by_sequences(scores, errors, risk, [(0.3, 0.08)])
        expected = max(expected, sequence)
    assert accepts(cut, scores, expected)


@given(
    n=st.integers(20, 300),
    seed=st.integers(0, 50),
    risk=st.sampled_from([0.05, 0.2, 0.4]),
    tied=st.booleans(),
)
def test_the_two_sequences_are_those_walked_by_hand(n, seed, risk, tied):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.2
    scores = rng.normal(size=n) + 2 * errors
    scores = np.round(scores) if tied else scores
    cut = risk_rules._two_sequences(Rows(scores, errors), risk, 0.1)
    sequences = [(0.3, 0.09), (0.05, 0.01)]
    assert accepts(cut, scores, accepted_by_sequences(scores, errors, risk, sequences))


@pytest.mark.parametrize("n", [MOST_ROWS_TESTED, MOST_ROWS_TESTED + 1])
def test_beyond_the_most_rows_tested_two_sequences_take_over(n):
    scores, errors = draw(np.random.default_rng(2), n)
    cut = risk_rules.risk_cut(Rows(scores, errors), 0.04, mode="confidence", delta=0.1)
    levels = sorted({passed.level for passed in cut.passed})
    if n > MOST_ROWS_TESTED:
        sequences = [(0.3, 0.09), (0.05, 0.01)]
        by_hand = accepted_by_sequences(scores, errors, 0.04, sequences)
        assert accepts(cut, scores, by_hand)
        assert levels == pytest.approx([0.01, 0.09])
    else:
        assert levels == pytest.approx([find_boundary(n, 0.04, 0.1).level, 0.08])


@given(
    n=st.integers(1, 300),
    seed=st.integers(0, 50),
    risk=st.sampled_from([0.05, 0.2, 0.4]),
    tied=st.booleans(),
)
def test_on_average_one_more_error_among_one_more_row_keeps_the_risk(
    n, seed, risk, tied
):
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.2
    scores = rng.normal(size=n) + 2 * errors
    scores = np.round(scores) if tied else scores
    cut = risk_rules.risk_cut(Rows(scores, errors), risk, mode="expectation", delta=0.1)
    expected = 0
    for t in np.unique(scores):
        accepted = scores <= t
        n_errors, n_accepted = int(errors[accepted].sum()), int(accepted.sum())
        if Fraction(n_errors + 1, n_accepted + 1) <= Fraction(str(risk)):
            expected = n_accepted
    assert accepts(cut, scores, expected)
    assert cut.passed == ()


def test_a_gate_on_average_says_what_its_promise_is(rng, tmp_path):
    scores, errors = draw(rng)
    gate = td.calibrate_scores(scores, errors, risk=0.05, mode="expectation")
    sure = td.calibrate_scores(scores, errors, risk=0.05)
    assert gate.threshold > sure.threshold
    certificate = gate.certificate
    assert (certificate.mode, certificate.passed) == ("expectation", ())
    assert certificate.rule.startswith("The last threshold at which one more error")
    assert "on average over calibrations" in certificate.notes[0]
    gate.save(tmp_path / "gate.json")
    assert td.Gate.load(tmp_path / "gate.json") == gate


def test_on_average_too_few_rows_are_told_from_too_many_errors():
    for n, match in ((18, "at least 19 are needed"), (19, "")):
        gate = td.calibrate_scores(
            np.arange(float(n)), np.zeros(n, bool), risk=0.05, mode="expectation"
        )
        assert (gate.state == "reject-all") == (n < 19)
        assert match in gate.certificate.trivial
    errors = np.arange(100) % 2 == 0
    gate = td.calibrate_scores(np.arange(100.0), errors, risk=0.05, mode="expectation")
    assert gate.state == "reject-all"
    assert "no threshold accepts enough rows" in gate.certificate.trivial


def test_the_risk_on_average_is_at_most_the_target():
    """Over 2,000 calibrations of 60 rows; the true risk of a threshold is exact."""
    rng, risks = np.random.default_rng(3), []
    for _ in range(2000):
        scores, errors = draw(rng, 60)
        cut = risk_rules.average_risk_cut(Rows(scores, errors), 0.06)
        if cut.state == "reject-all":
            risks.append(0.0)
            continue
        threshold = cut.score if cut.state == "threshold" else np.inf
        wrong, right = 0.1 * norm.cdf(threshold - 2), 0.9 * norm.cdf(threshold)
        risks.append(wrong / (wrong + right))
    assert np.mean(risks) <= 0.06 + 3 * np.std(risks) / np.sqrt(len(risks))


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_more_rows_do_not_help_where_the_search_starts_badly():
    """Risk is lowest in the middle, where no sequence starts; the boundary looks there.

    Of half of these rows every threshold is tested, of all those of two sequences.
    """
    rng, n = np.random.default_rng(0), 2 * MOST_ROWS_TESTED
    scores = np.arange(float(n))
    errors = (rng.random(n) < 0.3) & ((scores < 0.375 * n) | (scores > 0.975 * n))
    certificate = td.calibrate_scores(scores, errors, risk=0.15).certificate
    assert "risk does not fall with this score" in certificate.trivial
    assert "too few" not in certificate.trivial
    assert len(certificate.outlook) == 1  # no number of rows is enough
    half = td.calibrate_scores(scores[::2], errors[::2], risk=0.15)
    assert half.state == "accept-all"


def test_too_few_rows_are_the_reason_where_some_threshold_keeps_the_risk():
    """Risk is 30% at first and 6.9% farther on, which five times the rows show."""
    for n, state in ((200, "reject-all"), (1000, "threshold")):
        place = np.arange(n) / n
        early = (place < 0.15) & (np.arange(n) % 10 < 3)
        late = (place >= 0.65) & (np.arange(n) % 2 == 0)
        gate = td.calibrate_scores(np.arange(float(n)), early | late, risk=0.1)
        assert gate.state == state
        if state == "reject-all":
            assert "too few to prove the risk" in gate.certificate.trivial


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


@pytest.mark.parametrize("n", [150, MOST_ROWS_TESTED, 2 * MOST_ROWS_TESTED])
def test_thresholds_that_passed_are_listed_with_scipys_p_values(n, rng, tmp_path):
    """By the boundary alone, with a sequence beside it, and by two sequences."""
    scores, errors = draw(rng, n)
    gate = td.calibrate_scores(scores, errors, risk=0.05)
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
