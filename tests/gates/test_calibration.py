import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import certification, rules
from trustdoctor.gates import risk as risk_rules
from trustdoctor.metrics import count_runs


@pytest.fixture(scope="module")
def guarantees(benchmark_of):
    """The simulation of benchmarks/guarantees.py, in a small form here."""
    return benchmark_of("guarantees")


def pytest_generate_tests(metafunc):
    if "rule" in metafunc.fixturenames:
        metafunc.parametrize("rule", range(15))


LONG = pytest.mark.soak  # the other half of the cells


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("n", "kind"),
    [
        (30, "tied"),
        (500, "continuous"),
        (500, "one-hot"),
        pytest.param(30, "continuous", marks=LONG),
        pytest.param(30, "one-hot", marks=LONG),
        pytest.param(500, "tied", marks=LONG),
    ],
)
def test_promises_hold_in_simulation(rule, kind, n, guarantees, monkeypatch):
    monkeypatch.setattr(certification, "outlooks", guarantees.without_outlooks)
    runs = 150 if len(guarantees.RULES[rule][2]) == 1 else 60  # two take longer
    for accuracy in (0.6, 0.99):
        task = (guarantees.RULES[rule], n, accuracy, kind, runs, 7)
        figure, bound, within = guarantees.judge(guarantees.cell(task), runs)
        assert within, (guarantees.RULES[rule], n, accuracy, kind, figure, bound)


def test_a_broken_rule_would_be_seen(guarantees, monkeypatch):
    """The check can fail: thresholds one target too generous."""
    honest = td.calibrate_scores

    def careless(scores, errors, **options):
        return honest(scores, errors, **{**options, "frr": options["frr"] * 1.3})

    monkeypatch.setattr(guarantees.td, "calibrate_scores", careless)
    task = (guarantees.RULES[0], 5000, 0.9, "continuous", 150, 7)
    assert not guarantees.judge(guarantees.cell(task), 150)[2]


def draw(rng, n=2000, rate=0.1):
    errors = rng.random(n) < rate
    return rng.normal(size=n) + 2 * errors, errors


TARGETS = (
    {"frr": 0.05},
    {"trr": 0.95},
    {"risk": 0.04},
    {"joint": 0.02},
    {"coverage": 0.9},
    {"cost": 20},
    {"frr": 0.4, "trr": 0.8},
)
targets = pytest.mark.parametrize("target", TARGETS, ids=["-".join(t) for t in TARGETS])


@targets
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_gate_decides_the_calibration_rows_as_the_one_in_memory(
    target, dtype, rng, tmp_path
):
    scores, errors = draw(rng)
    for values in (scores.astype(dtype), np.round(scores, 1).astype(dtype)):
        gate = td.calibrate_scores(values, errors, **target)
        gate.save(tmp_path / "gate.json")
        again = td.Gate.load(tmp_path / "gate.json")
        assert again == gate
        assert np.array_equal(again.accept(values), gate.accept(values))
        tensor = again.accept(torch.tensor(values))
        assert np.array_equal(tensor.numpy(), gate.accept(values))


def scipy_interval(numerator, denominator, confidence):
    interval = binomtest(numerator, denominator).proportion_ci(
        confidence, method="exact"
    )
    return interval.low, interval.high


@targets
def test_the_certificate_says_what_was_seen(target, rng):
    scores, errors = draw(rng)
    gate = td.calibrate_scores(scores, errors, **target)
    c = gate.certificate
    assert c.target == {k: float(v) for k, v in target.items()}
    assert (c.n, c.n_errors) == (2000, errors.sum())
    assert c.trivial == ""
    at = td.confusion(scores, errors, threshold=gate.threshold)
    for name in ("frr", "trr", "risk", "coverage"):
        estimate = c.observed[name]
        assert estimate.value == pytest.approx(getattr(at, name))
        ends = scipy_interval(*td.TARGETS[name].fraction(at), confidence=0.9)
        assert (estimate.low, estimate.high) == pytest.approx(ends)
    assert gate.gamma is None  # it names no score
    assert c.rule
    assert "exchangeable" in c.assumption
    assert c.guarantee == ("cost" not in target)
    assert ("no guarantee" in repr(gate)) == ("cost" in target)


@targets
def test_the_order_of_rows_does_not_matter(target, rng):
    scores, errors = draw(rng)
    order = rng.permutation(2000)
    first = td.calibrate_scores(scores, errors, **target)
    assert (
        td.calibrate_scores(scores[order], errors[order], **target).threshold
        == first.threshold
    )


@pytest.mark.parametrize(
    "target", [{"frr": 0.05}, {"trr": 0.95}, {"joint": 0.02}, {"coverage": 0.9}]
)
def test_more_confidence_is_more_cautious(target, rng):
    scores, errors = draw(rng)
    sure, plain, mean = (
        td.calibrate_scores(scores, errors, **target, **options).threshold
        for options in (
            {"confidence": 0.99},
            {"confidence": 0.9},
            {"mode": "expectation"},
        )
    )
    if "frr" in target or "coverage" in target:
        assert sure > plain > mean
    else:
        assert sure < plain < mean


def test_coverage_needs_no_errors(rng):
    scores, errors = draw(rng)
    gate = td.calibrate_scores(scores, coverage=0.9)
    assert gate.threshold == td.calibrate_scores(scores, errors, coverage=0.9).threshold
    assert set(gate.certificate.observed) == {"coverage"}
    assert gate.certificate.n_errors is None


def test_few_rows_get_a_plain_answer():
    gate = td.calibrate_scores([1.0, 2.0, 3.0], [False] * 3, frr=0.05)
    assert gate.state == "accept-all"
    assert "too few" in gate.certificate.trivial
    assert "(at least 45 are needed" in gate.certificate.trivial  # 0.95^45 < 0.1
    gate = td.calibrate_scores([1.0, 2.0, 3.0], [False] * 3, trr=0.95)
    assert gate.state == "reject-all"
    assert "0 errors are too few" in gate.certificate.trivial
    assert gate.certificate.outlook == ()
    gate = td.calibrate_scores(np.arange(10.0), np.arange(10) >= 8, trr=0.95)
    first, enough = gate.certificate.outlook
    assert first.decides == 0
    assert 200 <= enough.rows <= 500  # 45 errors at one in five
    gate = td.calibrate_scores(np.arange(10.0), np.zeros(10, bool), risk=0.01)
    needed = math.ceil(math.log(0.09) / math.log(0.99))
    assert "too few to prove the risk" in gate.certificate.trivial
    assert f"(at least {needed} are needed" in gate.certificate.trivial


@pytest.mark.parametrize("method", ["sequence", "sgr", "grid"])
@pytest.mark.parametrize("seed", range(4))
def test_an_unreachable_risk_is_said(method, seed):
    """A useless score: no number of rows would help."""
    rng = np.random.default_rng(seed)
    errors = rng.random(5000) < 0.4
    gate = td.calibrate_scores(rng.normal(size=5000), errors, risk=0.02, method=method)
    assert gate.state == "reject-all"
    assert "has a risk below" in gate.certificate.trivial
    assert [look.decides < 0.1 for look in gate.certificate.outlook] == [True]


def test_the_rows_said_to_be_enough_are(rng):
    scores, errors = draw(rng, 40)  # 45 are needed in any case
    first, enough = td.calibrate_scores(scores, errors, risk=0.05).certificate.outlook
    promised = [
        td.calibrate_scores(*draw(rng, enough.rows), risk=0.05).state == "threshold"
        for _ in range(20)
    ]
    assert first.rows == 40
    assert np.mean(promised) > 0.5


def test_least_cost_says_what_it_costs(rng):
    scores, errors = draw(rng)
    gate = td.calibrate_scores(scores, errors, cost=20)
    spent = np.where(gate.accept(scores), 20 * errors, 1).mean()
    assert f"costs {spent:.4f} rejections per row" in gate.certificate.notes[0]


def test_groups_are_integers_or_strings_and_fit(rng):
    scores, errors = draw(rng, 3000)
    names = np.where(rng.random(3000) < 0.5, "eu", "us")
    gate = td.calibrate_scores(scores, errors, frr=0.1, groups=names.astype(object))
    assert set(gate.groups) == {"eu", "us"}
    with pytest.raises(InputError, match="groups like 'eu'"):
        gate.accept(scores, groups=np.zeros(3000, int))
    objects = np.array([np.int64(i % 2) for i in range(3000)], object)
    assert set(td.calibrate_scores(scores, errors, frr=0.1, groups=objects).groups) == {
        0,
        1,
    }


def test_gates_by_predicted_class_find_the_groups(rng):
    z = rng.normal(size=(3000, 3)) * 3
    p = td.Predictions.from_logits(z, np.where(rng.random(3000) < 0.8, z.argmax(1), 0))
    gate = td.calibrate(p, frr=0.1, groups="predicted")
    assert gate.grouped_by == "predicted"
    expected = gate.accept(td.alpha(p), groups=p.predicted)
    assert np.array_equal(gate.screen(p).accepted, expected)
    by_hand = td.calibrate_scores(td.alpha(p), p.errors, frr=0.1, groups=p.predicted)
    assert by_hand.groups == gate.groups


def test_gates_by_the_rows_own_groups_find_them(rng):
    z = rng.normal(size=(3000, 3)) * 3
    labels = np.where(rng.random(3000) < 0.8, z.argmax(1), 0)
    sites = rng.choice(["north", "south"], 3000)
    p = td.Predictions.from_logits(z, labels, groups=sites)
    gate = td.calibrate(p, frr=0.1, groups="given")
    assert set(gate.groups) == {"north", "south"}
    expected = gate.accept(td.alpha(p), groups=sites)
    assert np.array_equal(gate.screen(p).accepted, expected)
    named = td.calibrate(p, frr=0.1, groups=sites, grouped_by="site")
    assert named.groups == gate.groups
    assert named.grouped_by == "site"
    bare = td.Predictions.from_logits(z)
    with pytest.raises(InputError, match=r"groups \(site\), and no groups were given"):
        named.screen(bare)
    assert np.array_equal(named.screen(bare, groups=sites).accepted, expected)
    with pytest.raises(InputError, match="groups='given' with predictions that have"):
        td.calibrate(td.Predictions.from_logits(z, labels), frr=0.1, groups="given")


def test_frr_and_trr_that_exclude_each_other_are_said(rng):
    scores, errors = draw(rng, 20_000)
    gate = td.calibrate_scores(scores, errors, frr=0.01, trr=0.99)
    assert gate.state == "reject-all"
    assert "no threshold does both" in gate.certificate.trivial
    assert not gate.certificate.guarantee
    assert gate.watch().tests == {}  # it rejects every row
    gate = td.calibrate_scores(scores, errors, frr=0.4, trr=0.8)
    least, most = gate.certificate.feasible
    assert least < gate.threshold < most
    at = td.confusion(scores, errors, threshold=gate.threshold)
    assert at.frr < 0.4
    assert at.trr > 0.8


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_certain_errors_make_reject_all(rng):
    scores = np.where(np.arange(400) % 4 == 0, -np.inf, rng.normal(size=400))
    errors = np.arange(400) % 4 == 0
    for target in ({"trr": 0.9}, {"joint": 0.01}):
        gate = td.calibrate_scores(scores, errors, **target)
        assert gate.state == "reject-all"
        assert not gate.accept(scores).any()


def test_groups_have_promises_of_their_own(rng):
    scores, errors = draw(rng, 6000)
    groups = rng.choice(["a", "b", "rare"], 6000, p=[0.6, 0.395, 0.005])
    scores = scores + 3.0 * (groups == "b")
    gate = td.calibrate_scores(scores, errors, frr=0.05, groups=groups)
    assert gate.groups["b"].threshold > gate.groups["a"].threshold + 2
    assert [r.promised for r in gate.groups.values()] == [True, True, False]
    assert gate.groups["rare"].threshold == gate.threshold
    notes = " ".join(gate.certificate.notes)
    assert "2 groups share" in notes
    assert "confidence 0.95" in notes
    assert "rare" in notes
    accepted = gate.accept(scores, groups=groups)
    for name in ("a", "b"):
        correct = (groups == name) & ~errors
        assert 0.03 < (~accepted[correct]).mean() < 0.05
    unseen = gate.accept([gate.threshold], groups=["new"])
    assert unseen.tolist() == [True]


def test_group_gates_round_trip_and_ask_for_groups(rng, tmp_path):
    scores, errors = draw(rng, 3000)
    groups = rng.integers(0, 3, 3000)
    gate = td.calibrate_scores(scores, errors, trr=0.9, groups=groups)
    gate.save(tmp_path / "gate.json")
    again = td.Gate.load(tmp_path / "gate.json")
    assert again == gate
    accepted = again.accept(torch.tensor(scores), groups=groups)
    assert np.array_equal(accepted.numpy(), gate.accept(scores, groups=groups))
    with pytest.raises(InputError, match="no groups were given"):
        gate.accept(scores)
    with pytest.raises(InputError, match="one per row"):
        gate.accept(scores, groups=groups[:5])


def test_group_promises_hold_together():
    """All of three promises at once, over simulated calibrations."""
    broken = 0
    for seed in range(300):
        scores, errors = draw(np.random.default_rng(seed), 900)
        groups = np.arange(900) % 3
        gate = td.calibrate_scores(scores, errors, frr=0.1, groups=groups)
        tails = [
            math.erfc(r.threshold / math.sqrt(2)) / 2 for r in gate.groups.values()
        ]
        broken += max(tails) > 0.1
    assert broken / 300 <= 0.1 + 3 * math.sqrt(0.09 / 300)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "one target"),
        ({"frr": 0.1, "joint": 0.1}, "one target"),
        ({"frr": 5}, "5%"),
        ({"frr": 0}, "between 0 and 1"),
        ({"cost": 0.5}, "cost"),
        ({"risk": 0.1, "mode": "expectation"}, "no rule for risk"),
        ({"cost": 5, "mode": "confidence"}, "leave mode out"),
        ({"frr": 0.1, "mode": "hope"}, "mode"),
        ({"frr": 0.1, "trr": 0.9, "mode": "expectation"}, "no rule"),
        ({"frr": "0.1"}, "number"),
        ({"frr": 0.1, "confidence": "x"}, "confidence"),
        ({"frr": 0.1, "groups": [True, False]}, "integers or strings"),
        ({"frr": 0.1, "groups": np.array([1, "a"], object)}, "integers or strings"),
        ({"frr": 0.1, "method": "sgr"}, "risk alone"),
        ({"risk": 0.1, "method": "magic"}, "magic"),
        ({"frr": 0.1, "confidence": 90}, "confidence"),
        ({"risk": 0.1, "min_coverage": 0}, "min_coverage"),
        ({"frr": 0.1, "score": "alpha"}, "its gate has no score"),
        ({"frr": 0.1, "temperature": 2.0}, "its gate has no score"),
        ({"beauty": 0.1}, "expected a target out of frr, trr"),
        ({"frr": 0.1, "groups": [1]}, "one per row"),
    ],
)
def test_wrong_questions_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        td.calibrate_scores([0.1, 0.2], [True, False], **options)


def test_errors_are_asked_for():
    with pytest.raises(InputError, match="needs to know which"):
        td.calibrate_scores([0.1, 0.2], frr=0.1)


@pytest.mark.parametrize(
    "change",
    [
        {"target": 3},
        {"target": {"frr": "low"}},
        {"observed": {"frr": 0.5}},
        {"notes": [1]},
        {"surprise": 1},
        {"target": {}},
        {"target": {"foo": 0.1}},
        {"target": {"frr": 7}},
        {"mode": "bar"},
        {"confidence": "x"},
        {"n": "many"},
        {"n_errors": 99_999},
        {"fingerprint": None},
        {"observed": {"coverage": []}},
        {"observed": 3},
        {"feasible": [1]},
    ],
)
def test_certificates_that_are_not_understood_are_refused(change, rng, tmp_path):
    path = tmp_path / "gate.json"
    td.calibrate_scores(*draw(rng), frr=0.1).save(path)
    content = json.loads(path.read_text())
    content["certificate"] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="certificate"):
        td.Gate.load(path)


@pytest.mark.parametrize("empty", [{}, [], "", 0])
def test_an_empty_certificate_is_no_certificate(empty, rng, tmp_path):
    path = tmp_path / "gate.json"
    td.calibrate_scores(*draw(rng), frr=0.1).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"certificate": empty}))
    with pytest.raises(FileError, match="certificate"):
        td.Gate.load(path)


def test_a_gamma_that_does_not_fit_is_refused(rng, tmp_path):
    path = tmp_path / "gate.json"
    td.calibrate_scores(*draw(rng), frr=0.1).save(path)
    content = json.loads(path.read_text()) | {"gamma": 3.0}
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="gamma"):
        td.Gate.load(path)


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


def test_groups_that_are_all_too_small_promise_nothing(rng):
    scores, errors = draw(rng, 400)
    gate = td.calibrate_scores(scores, errors, frr=0.05, groups=np.arange(400) % 20)
    assert not gate.certificate.guarantee
    assert gate.certificate.promise().startswith("no guarantee")
    assert "No group has enough rows" in gate.certificate.notes[0]
    assert {rule.threshold for rule in gate.groups.values()} == {gate.threshold}
    assert list(gate.watch().tests) == ["accepted"]


def test_groups_without_a_promise_have_no_share_of_the_risk(rng):
    """A large group beside many tiny ones is calibrated as if it were alone."""
    scores, errors = draw(rng, 2000)
    groups = np.where(np.arange(2000) < 1900, 0, np.arange(2000))
    alone = td.calibrate_scores(scores[:1900], errors[:1900], frr=0.05)
    gate = td.calibrate_scores(scores, errors, frr=0.05, groups=groups)
    assert [g for g, rule in gate.groups.items() if rule.promised] == [0]
    assert gate.groups[0].threshold == alone.threshold
    assert gate.threshold == td.calibrate_scores(scores, errors, frr=0.05).threshold
    assert "1 group carries the risk" in gate.certificate.notes[0]
    risky = td.calibrate_scores(scores, errors, risk=0.05, groups=groups)
    alone = td.calibrate_scores(scores[:1900], errors[:1900], risk=0.05)
    assert risky.groups[0].threshold == alone.threshold


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", [{"frr": 0.1}, {"risk": 0.1}, {"trr": 0.6}])
def test_promises_of_groups_hold_together(target, rng):
    """Three groups, one of them often too small; the truth by many more rows."""
    names = np.array(["a", "b", "small"])
    truth, wrong = draw(rng, 100_000)
    broken = 0
    for _ in range(200):
        scores, errors = draw(rng, 400)
        groups = rng.choice(names, 400, p=[0.6, 0.33, 0.07])
        gate = td.calibrate_scores(scores, errors, groups=groups, **target)
        bad = False
        for name, rule in gate.groups.items():
            accepted = gate.accept(truth, groups=np.full(100_000, name))
            at = {"frr": (~accepted)[~wrong].mean(), "trr": (~accepted)[wrong].mean()}
            at["risk"] = wrong[accepted].mean() if accepted.any() else 0.0
            ((kind, value),) = target.items()
            fails = at[kind] < value if kind == "trr" else at[kind] > value
            bad |= rule.promised and fails
        broken += bad
    assert broken / 200 <= 0.1 + 3 * np.sqrt(0.09 / 200)
