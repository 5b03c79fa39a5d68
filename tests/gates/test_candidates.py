"""Several values fixed in advance: the strictest that passes, all at one confidence."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import Means
from trustdoctor.errors import InputError
from trustdoctor.gates import CalibrationSketch
from trustdoctor.gates.request import Request, choose_request, make_requests
from trustdoctor.gates.rules import threshold_of
from trustdoctor.gates.sample import Rows
from trustdoctor.scores import find_score

VALUES = {
    "risk": [0.01, 0.02, 0.05, 0.1],
    "joint": [0.0001, 0.01, 0.03],
    "frr": [0.0001, 0.01, 0.05],
    "trr": [0.9999, 0.99, 0.9],
    "coverage": [0.99999, 0.99, 0.9],
}


def rows(n=2000, seed=0, classes=4):
    """Draw logits and labels by the probabilities that they stand for."""
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, classes))
    p = np.exp(z)
    p /= p.sum(1, keepdims=True)
    y = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_logits(z, y)


ROWS = rows()


def alone(value, m, name, p=ROWS, **options):
    """Ask for one value at its share of the level."""
    return td.calibrate(p, **{name: value}, confidence=1 - 0.1 / m, **options)


def passes(gate):
    return gate.certificate.guarantee and gate.state != "reject-all"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("order", [1, -1])
def test_the_strictest_that_passes_is_taken_at_its_share_of_the_level(name, order):
    values = VALUES[name]
    gate = td.calibrate(ROWS, **{name: values[::order]})
    m = len(values)
    passing = [v for v in values if passes(alone(v, m, name))]
    # Of frr and coverage too few rows accept everything, which is no promise on them.
    passing = [v for v in passing if not alone(v, m, name).certificate.trivial]
    assert 0 < len(passing) < m  # so that there is something to choose
    assert gate.certificate.target == {name: passing[0]}
    assert gate.threshold == alone(passing[0], m, name).threshold
    assert gate.threshold != td.calibrate(ROWS, **{name: passing[0]}).threshold
    assert gate.certificate.confidence == 0.9
    assert gate.certificate.candidates == m


def test_where_none_passes_the_last_says_why():
    gate = td.calibrate(ROWS, risk=[1e-5, 2e-5])
    assert (gate.state, gate.certificate.target) == ("reject-all", {"risk": 2e-5})
    (note,) = (n for n in gate.certificate.notes if "fixed in advance" in n)
    assert "0.002% is the least strict of 2 values fixed in advance" in note
    assert "none passed" in note


def test_the_certificate_says_which_values_and_what_the_choice_cost():
    gate = td.calibrate(ROWS, risk=[0.1, 0.02, 0.05])
    (value,) = gate.certificate.target.values()
    first, second = (n for n in gate.certificate.notes if "choice" in n)
    assert f"{100 * value:g}% is the strictest of 3 values" in first
    assert "(2%, 5%, 10%)" in first
    assert "tested at 1/3 of the level" in first
    costs = [
        f"{(calibrated.threshold >= ROWS_DOUBTS).mean():.1%}"
        for calibrated in (td.calibrate(ROWS, risk=value), gate)
    ]
    assert costs[0] != costs[1]
    assert (
        f"would accept {costs[0]} of these rows; with the choice it is {costs[1]}"
        in (second)
    )
    single = td.calibrate(ROWS, risk=0.05).certificate
    assert not any("fixed in advance" in note for note in single.notes)


ROWS_DOUBTS = td.alpha(ROWS.logits)


def test_the_promise_holds_over_the_choice_and_a_naive_choice_breaks_it():
    """Scores of two values: of the first 10.02% are wrong, of all rows 20.02%.

    So 10% is broken wherever it passes, and 20% wherever it accepts all rows; by errors
    of other rows, so that the naive choice, each value at the full level, errs by both.
    """
    values, draws, delta = [0.1, 0.2], 1500, 0.2
    share, risks = 0.35, np.array([0.1002, 0.2002])
    second = (risks[1] - share * risks[0]) / (1 - share)
    random = np.random.default_rng(0)
    broken = {1: 0, 2: 0}
    for _ in range(draws):
        scores = (random.random(1500) > share).astype(float)
        errors = random.random(1500) < np.where(scores == 0, risks[0], second)
        sample = Rows(scores, errors)
        for m in broken:
            requests = [
                Request({"risk": v}, confidence=1 - delta, candidates=m) for v in values
            ]
            cuts = [ask.cut(sample, ask.delta) for ask in requests]
            at = next((i for i, cut in enumerate(cuts) if not cut.failed), None)
            if m == 2:
                assert (
                    choose_request(sample, requests)
                    is requests[1 if at is None else at]
                )
            if at is not None:
                every = (
                    cuts[at].state == "accept-all"
                    or threshold_of(cuts[at], sample) >= 1
                )
                broken[m] += risks[int(every)] > values[at]
    error = 3 * np.sqrt(delta * (1 - delta) / draws)
    assert broken[2] / draws <= delta + error
    assert broken[1] / draws > delta + error


@pytest.mark.parametrize("name", VALUES)
def test_groups_share_the_level_of_each_value(name):
    gate = td.calibrate(ROWS, **{name: VALUES[name]}, groups="predicted")
    (value,) = gate.certificate.target.values()
    single = alone(value, len(VALUES[name]), name, groups="predicted")
    assert gate.groups == single.groups
    # Groups have separate thresholds, which the pooled cut does not show.
    assert not any("Requested alone" in note for note in gate.certificate.notes)


@pytest.mark.parametrize("name", VALUES)
def test_clusters_auto_and_lists_take_several_values(name):
    clusters, values = np.arange(2000) // 2, VALUES[name]
    for more in ({"clusters": clusters}, {"score": "auto"}, {"shortlist": 0.9}):
        gate = td.calibrate(ROWS, **{name: values}, **more)
        assert gate.certificate.candidates == len(values)
        assert gate.certificate.target[name] in values
        assert gate.state == "threshold"


def test_lists_need_other_rows_than_chose_the_value(tmp_path):
    """Which order statistic the threshold is, depends on the rows then."""
    gate = td.calibrate(ROWS, shortlist=0.9, joint=VALUES["joint"])
    assert any("set the lists and had no part" in n for n in gate.certificate.notes)
    plain = td.calibrate(ROWS, joint=VALUES["joint"])
    plain.save(tmp_path / "gate.json")
    with pytest.raises(InputError, match="joint at one of several values: its lists"):
        td.shortlist(td.Gate.load(tmp_path / "gate.json"), ROWS, level=0.9)
    assert td.shortlist(plain, rows(seed=1), level=0.9).shortlist is not None


@pytest.mark.parametrize("name", VALUES)
def test_counted_rows_choose_as_rows_do(name):
    state = CalibrationSketch(find_score("alpha"), needs_labels=name != "coverage")
    for rows in np.split(np.arange(2000), [700, 900]):
        sketch = state.fresh()
        sketch.update(ROWS[rows])
        state.merge(sketch)
    counted = state.calibrate(**{name: VALUES[name]})
    at_once = td.calibrate(ROWS, **{name: VALUES[name]})
    assert counted.certificate.target == at_once.certificate.target
    assert counted.certificate.candidates == len(VALUES[name])
    agreed = (counted.threshold >= ROWS_DOUBTS) == (at_once.threshold >= ROWS_DOUBTS)
    assert agreed.mean() > 0.995


def test_coverage_without_labels_takes_a_value_that_the_rows_allow():
    """Not just the strictest, of which 30 rows can promise nothing."""
    unlabelled = td.Predictions.from_logits(ROWS.logits[:30])
    gate = td.calibrate(unlabelled, coverage=[0.99, 0.5])
    assert (gate.state, gate.certificate.target) == ("threshold", {"coverage": 0.5})
    assert gate.threshold == alone(0.5, 2, "coverage", unlabelled).threshold


def targets(options):
    return [request.target for request in make_requests(**options)]


def test_values_are_sorted_from_the_strictest():
    assert targets({"trr": (0.8, 0.95)}) == [{"trr": 0.95}, {"trr": 0.8}]
    assert targets({"frr": [0.2, 0.1]}) == [{"frr": 0.1}, {"frr": 0.2}]
    assert targets({"frr": 0.2}) == [{"frr": 0.2}]


NONSENSE = [
    ({"risk": []}, "two or more different values of risk, got []"),
    ({"risk": [0.1]}, "Give a single value as it is"),
    ({"risk": [0.1, 0.1]}, "two or more different values"),
    ({"risk": [[0.1], [0.2]]}, "expected a number as risk, got [0.1]"),
    ({"risk": ["1%", "2%"]}, "expected a number as risk, got '1%'"),
    ({"risk": "1%,2%"}, "expected a number as risk, got '1%,2%'"),
    ({"risk": [0.1, 2]}, "between 0 and 1 (0.05 means 5%), got 2"),
    ({"risk": [0.1, True]}, "got True"),
    ({"risk": [0.1, float("nan")]}, "got nan"),
    ({"risk": [0.1, 0.2], "coverage": 0.5}, "coverage; got risk and coverage"),
    ({"frr": [0.1, 0.2], "trr": [0.8, 0.9]}, "coverage; got frr and trr"),
    ({"cost": [2, 3]}, "a single target out of"),
    ({"threshold": [0.1, 0.2]}, "a single target out of"),
    ({"target": {"nonsense": [0.1, 0.2]}}, "expected a target out of"),
    ({"frr": [0.1, 0.2], "mode": "expectation"}, "several values share the confidence"),
]


@pytest.mark.parametrize(("options", "match"), NONSENSE, ids=lambda v: str(v)[:40])
def test_nonsense_is_refused_in_one_line(options, match):
    for more in ({}, {"score": "auto"}, {"shortlist": 0.9}):
        with pytest.raises(InputError) as caught:
            td.calibrate(ROWS, **options, **more)
        assert "\n" not in str(caught.value)
        if not more:
            assert match in str(caught.value)


def test_those_that_take_one_value_say_so():
    z = ROWS.logits
    match = "expected a number as risk"
    with pytest.raises(InputError, match=match):
        td.calibrate_unlabelled(ROWS, risk=[0.1, 0.2])
    with pytest.raises(InputError, match=match):
        td.Cascade.calibrate([z, z], ROWS.labels, risk=[0.1, 0.2], costs=[0, 1, 9])


def test_the_file_the_watch_and_screen_know_the_chosen_value(tmp_path):
    gate = td.calibrate(ROWS, risk=[0.001, 0.05])
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded.certificate == gate.certificate
    assert loaded.certificate.candidates == 2
    assert "choices" not in td.calibrate(ROWS, risk=0.05).to_json()
    new = rows(seed=1)
    assert np.array_equal(loaded.screen(new).accepted, gate.screen(new).accepted)
    report = loaded.watch().update(new)
    assert "5%" in str(loaded.certificate.promise())
    assert not report.alarm


@pytest.fixture
def file(tmp_path):
    table = {f"logit_{i}": ROWS.logits[:, i] for i in range(4)}
    path = tmp_path / "rows.csv"
    pl.DataFrame(table | {"label": ROWS.labels}).write_csv(path)
    return path


def test_the_command_line_takes_values_with_commas(file, tmp_path, run):
    gate = tmp_path / "gate.json"
    completed = run("calibrate", file, "--risk", "0.1%, 0.05,10%", "-o", gate)
    assert completed.returncode == 0, completed.stderr
    assert "5% is the strictest of 3 values" in " ".join(completed.stdout.split())
    same = td.calibrate(ROWS, risk=[0.001, 0.05, 0.1])
    assert td.Gate.load(gate).threshold == pytest.approx(same.threshold)
    decided = tmp_path / "decided.csv"
    assert run("screen", file, "--gate", gate, "-o", decided).returncode == 0
    assert len(pl.read_csv(decided)) == 2000
    completed = run("check", file, "--gate", gate, "--state", tmp_path / "state.json")
    assert completed.returncode == 0, completed.stderr


def test_a_file_too_large_to_read_chooses_as_well(file, tmp_path, run, monkeypatch):
    gates = [tmp_path / "read.json", tmp_path / "counted.json"]
    arguments = ["calibrate", file, "--joint", "0.01%,1%,3%", "-q"]
    for gate in gates:
        assert run(*arguments, "-o", gate).returncode == 0
        monkeypatch.setattr(Means, "reads_at_once", lambda *_args, **_options: False)
    targets = [td.Gate.load(gate).certificate.target for gate in gates]
    assert targets == [{"joint": 0.01}] * 2


@pytest.mark.parametrize(
    ("risk", "match"),
    [
        ("1%,,5%", "got ''"),
        ("1%;5%", "got '1%;5%'"),
        ("1%,", "got ''"),
        ("1%,1%", "two or more different values of risk"),
        ("1%,1", "between 0 and 1"),
        ("5,1", "Did you mean 0.05 or 5%?"),
    ],
)
def test_mistakes_end_in_one_line_and_exit_code_2(risk, match, file, run, tmp_path):
    completed = run("calibrate", file, "--risk", risk, "-o", tmp_path / "gate.json")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert match in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_where_none_passes_the_exit_code_is_3_with_advice(file, run, tmp_path):
    gate = tmp_path / "gate.json"
    completed = run("calibrate", file, "--risk", "0.001%,0.002%", "-o", gate)
    assert completed.returncode == 3, completed.stderr
    assert "--risk" in completed.stderr
    assert not gate.exists()
