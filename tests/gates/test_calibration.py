import json
import math

import numpy as np
import pytest
import torch
from benchmark_scripts import load_benchmark
from scipy.stats import binomtest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import certification


@pytest.fixture(scope="module")
def guarantees(benchmark_of):
    """The simulation of benchmarks/guarantees.py, in a small form here."""
    return benchmark_of("guarantees")


def pytest_generate_tests(metafunc):
    if "rule" in metafunc.fixturenames:
        n_rules = len(load_benchmark("guarantees").RULES)
        metafunc.parametrize("rule", range(n_rules))


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
        loaded = td.Gate.load(tmp_path / "gate.json")
        assert loaded == gate
        assert np.array_equal(loaded.accept(values), gate.accept(values))
        tensor = loaded.accept(torch.tensor(values))
        assert np.array_equal(tensor.numpy(), gate.accept(values))


def scipy_interval(numerator, denominator, confidence):
    interval = binomtest(numerator, denominator).proportion_ci(
        confidence, method="exact"
    )
    return interval.low, interval.high


@targets
def test_the_certificate_reports_the_observed_rates(target, rng):
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
    needed = math.ceil(math.log(0.1) / math.log(0.99))
    assert "too few to prove the risk" in gate.certificate.trivial
    assert f"(at least {needed} are needed" in gate.certificate.trivial
    for n, state in ((needed - 1, "reject-all"), (needed, "accept-all")):
        gate = td.calibrate_scores(np.arange(n), np.zeros(n, bool), risk=0.01)
        assert gate.state == state


@pytest.mark.parametrize("n", [1000, 6000])
@pytest.mark.parametrize("seed", range(4))
def test_an_unreachable_risk_is_reported(n, seed):
    """A useless score: no number of rows would help."""
    rng = np.random.default_rng(seed)
    errors = rng.random(n) < 0.4
    gate = td.calibrate_scores(rng.normal(size=n), errors, risk=0.02)
    assert gate.state == "reject-all"
    assert "has a risk below" in gate.certificate.trivial
    assert [look.decides < 0.1 for look in gate.certificate.outlook] == [True]


def test_the_reported_number_of_rows_is_enough(rng):
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


def test_an_frr_and_a_trr_that_exclude_each_other_are_refused(rng):
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


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "one target"),
        ({"frr": 0.1, "joint": 0.1}, "one target"),
        ({"frr": 5}, "5%"),
        ({"frr": 0}, "between 0 and 1"),
        ({"cost": 0.5}, "cost"),
        ({"risk": 0.1, "coverage": 0.5, "mode": "expectation"}, "no rule"),
        ({"cost": 5, "mode": "confidence"}, "leave mode"),
        ({"frr": 0.1, "mode": "hope"}, "mode"),
        ({"frr": 0.1, "trr": 0.9, "mode": "expectation"}, "no rule"),
        ({"frr": "0.1"}, "number"),
        ({"frr": 0.1, "confidence": "x"}, "confidence"),
        ({"frr": 0.1, "groups": [True, False]}, "integers or strings"),
        ({"frr": 0.1, "groups": np.array([1, "a"], object)}, "integers or strings"),
        ({"frr": 0.1, "confidence": 90}, "confidence"),
        ({"target": {"beauty": 0.1}}, "expected a target out of frr, trr"),
        ({"frr": 0.1, "target": {"frr": 0.1}}, "Name each target once"),
        ({"target": 0.1}, "expected target as a dict"),
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
def test_an_empty_certificate_is_refused(empty, rng, tmp_path):
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
