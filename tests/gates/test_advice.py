"""Advice on gates that decide nothing, and on scores that rank better."""

import re

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.engines import Means, find_engine
from trustdoctor.engines.local import LocalEngine
from trustdoctor.files import find_source
from trustdoctor.gates import (
    Gate,
    Rows,
    advise,
    advise_unlabelled,
    better_score,
    decides_nothing,
    make_requests,
    remarks,
    run_calibration,
)
from trustdoctor.gates.calibration import Calibration
from trustdoctor.gates.groups import GroupThreshold
from trustdoctor.metrics import Sketch, auroc, delong_difference


def draw(rng, n=1000, rate=0.1, gap=2.0):
    errors = rng.random(n) < rate
    return rng.normal(size=n) + gap * errors, errors


def advised(text):
    """The first setting that was tried, and the share that it accepts."""
    first = re.search(r"optimistic: (.*?) would accept (\d+)% of them", text)
    words = first[1].split()
    names = [word.removeprefix("--") for word in words[::2]]
    values = [float(v) if v[0].isdigit() else v for v in words[1::2]]
    return dict(zip(names, values, strict=True)), int(first[2])


TRIVIAL = [
    {"risk": 0.0005},
    {"risk": 0.6},
    {"trr": 0.9999},
    {"frr": 0.0001},
    {"coverage": 0.9999},
    {"joint": 0.0001},
    {"joint": 0.4},
    {"frr": 0.01, "trr": 0.99},
]


@pytest.mark.parametrize("target", TRIVIAL, ids=str)
def test_the_advised_value_does_what_is_promised(target, rng):
    scores, errors = draw(rng)
    before = td.calibrate_scores(scores, errors, **target)
    assert before.state != "threshold"
    text = advise(Rows(scores, errors), make_requests(**target))
    setting, share = advised(text)
    gate = td.calibrate_scores(scores, errors, **setting)
    assert gate.state == "threshold"
    coverage = gate.accept(scores).mean()
    assert 0.01 <= coverage <= 0.99
    assert round(100 * coverage) == share
    if set(setting) == set(
        target
    ):  # values closer to the requested one decide too little
        name = next(n for n in setting if setting[n] != target[n])
        nearer = setting | {name: setting[name] + 0.1 * (target[name] - setting[name])}
        coverage = td.calibrate_scores(scores, errors, **nearer).accept(scores).mean()
        assert not 0.01 < coverage < 0.99


@pytest.mark.parametrize("cost", [1.0, 1e6])
def test_another_cost_is_named(cost, rng):
    scores, errors = draw(rng, rate=0.2, gap=1.0)
    scores = np.clip(np.round(scores), -1, 1)
    assert td.calibrate_scores(scores, errors, cost=cost).state != "threshold"
    setting, share = advised(advise(Rows(scores, errors), make_requests(cost=cost)))
    gate = td.calibrate_scores(scores, errors, **setting)
    assert round(100 * gate.accept(scores).mean()) == share
    assert set(setting) == {"cost"}


@pytest.mark.parametrize("target", TRIVIAL, ids=str)
def test_a_sketch_is_advised_as_its_rows_are(target, rng):
    scores, errors = draw(rng)
    sketch = Sketch()
    sketch.update(scores, errors)
    assert sketch.exact
    assert advise(sketch, make_requests(**target)) == advise(
        Rows(scores, errors), make_requests(**target)
    )


def test_few_errors_are_advised_targets_that_need_none(rng):
    scores, errors = draw(rng, 400, rate=0.02)
    text = advise(Rows(scores, errors), make_requests(trr=0.95))
    assert re.search(r"--trr 0\.\d+ would .*; --frr 0.05 would accept 9\d%", text)
    none = Rows(scores, np.zeros(400, bool))
    assert advised(advise(none, make_requests(trr=0.95)))[0] == {"frr": 0.05}
    assert advised(advise(none, make_requests(risk=0.5)))[0] == {"frr": 0.05}
    every = Rows(scores, np.ones(400, bool))
    assert advised(advise(every, make_requests(risk=0.05)))[0] == {"coverage": 0.9}


def test_a_gate_that_decides_gets_no_advice(rng):
    scores, errors = draw(rng)
    assert advise(Rows(scores, errors), make_requests(frr=0.1)) == ""


def test_it_says_so_when_nothing_helps():
    constant = Rows(np.zeros(50), np.arange(50) % 2 == 0)
    text = advise(constant, make_requests(risk=0.05))
    assert text == "No other target or score that was tried on these rows decides more."


def test_shared_risk_is_shared_in_the_trials(rng):
    scores, errors = draw(rng)
    plain, _ = advised(advise(Rows(scores, errors), make_requests(trr=0.9999)))
    shared, _ = advised(
        advise(Rows(scores, errors), make_requests(trr=0.9999), groups=9)
    )
    assert shared["trr"] < plain["trr"]


@pytest.fixture
def odd(rng):
    """Rows whose errors only the largest logit reveals."""
    z = rng.normal(size=(3000, 3)) * 3
    labels = np.where(z.max(1) > 1, z.argmax(1), (z.argmax(1) + 1) % 3)
    return td.Predictions.from_logits(z, labels)


def test_another_score_is_named_where_it_keeps_the_promise(odd):
    calibration = run_calibration(odd, make_requests(risk=0.01))
    assert decides_nothing(calibration.gate)
    text, more_labels = remarks(calibration)
    assert more_labels.startswith("More labels, estimated from these: with 6,000")
    share = re.search(r"--score max_logit would accept (\d+)% of them", text)[1]
    other = td.calibrate(odd, score="max_logit", risk=0.01)
    assert round(100 * other.screen(odd).accepted.mean()) == int(share)


def test_a_better_score_is_named_with_delongs_interval(odd):
    text = better_score(odd, td.calibrate(odd, frr=0.1))
    name = re.search(r"on these rows (\w+) ranks errors better than alpha", text)[1]
    candidates = [n for n in td.SCORES if n in _plain() and n != "alpha"]
    areas = {n: auroc(td.SCORES[n](odd), odd.errors) for n in [*candidates, "alpha"]}
    assert name == max(areas, key=areas.get)
    low, high = delong_difference(
        td.SCORES[name](odd),
        td.SCORES["alpha"](odd),
        odd.errors,
        confidence=1 - 0.05 / len(candidates),
    )
    gain = areas[name] - areas["alpha"]
    assert f"{100 * gain:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}] points" in text
    assert "Let other rows choose: --score auto, or compare." in text
    assert better_score(odd, Gate(0.0, score=name)) == ""


def _plain():
    from trustdoctor.scores import logit_scores

    return logit_scores()


def test_no_score_is_called_better_than_the_best(rng):
    """Labels are drawn by the softmax, so that beta ranks as well as anything can."""
    named = 0
    for _ in range(60):
        z = rng.normal(size=(400, 3)) * 2
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        labels = (p.cumsum(1) > rng.random((400, 1))).argmax(1)
        rows = td.Predictions.from_logits(z, labels)
        named += bool(better_score(rows, Gate(0.0, score="beta")))
    assert named <= 3


def test_a_difference_that_is_clear_but_small_is_not_worth_a_word(rng):
    n = 60_000
    z = rng.normal(size=(n, 3)) * 2
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    rows = td.Predictions.from_logits(z, labels)
    alpha, beta = td.alpha(z), td.beta(z)
    low, _ = delong_difference(beta, alpha, rows.errors)
    assert low > 0
    assert auroc(beta, rows.errors) - auroc(alpha, rows.errors) < 0.005
    assert better_score(rows, Gate(0.0, score="alpha")) == ""


def test_rows_of_one_kind_do_not_distinguish_scores(odd):
    for same_kind in (odd[odd.errors], odd[~odd.errors]):
        assert better_score(same_kind, Gate(0.0, score="alpha")) == ""


def test_groups_that_differ_decide_something():
    accept_all = Gate(0.0, state="accept-all")
    assert decides_nothing(accept_all)
    same = {"a": GroupThreshold(0.0, "accept-all")}
    assert decides_nothing(Gate(0.0, state="accept-all", groups=same))
    for state in ("threshold", "reject-all"):
        other = same | {"b": GroupThreshold(0.0, state)}
        assert not decides_nothing(Gate(0.0, state="accept-all", groups=other))
    assert not decides_nothing(Gate(0.0))


def test_a_threshold_by_hand_always_decides(odd):
    gate = td.calibrate(odd, threshold=1e9)
    assert not decides_nothing(gate)
    rows = Rows(td.alpha(odd.logits), odd.errors)
    calibration = Calibration(gate, make_requests(threshold=1e9), rows)
    assert list(remarks(calibration)) == []


def test_without_labels_another_value_is_named(rng):
    rows = td.Predictions.from_logits(rng.normal(size=(500, 3)))
    gate = td.calibrate_unlabelled(rows, risk=0.01)
    assert decides_nothing(gate)
    setting, share = advised(advise_unlabelled(rows, {"risk": 0.01}))
    coverage = td.calibrate_unlabelled(rows, **setting).screen(rows).accepted.mean()
    assert round(100 * coverage) == share


class StreamingOnly(LocalEngine):
    """It never reads all rows at once."""

    in_memory = False


def test_streamed_rows_are_remarked_on_as_rows_in_memory(odd, tmp_path):
    np.savez(tmp_path / "rows.npz", logits=odd.logits, labels=odd.labels)
    source = find_source(tmp_path / "rows.npz")
    remarks_by_means = {}
    for engine in (find_engine("local"), StreamingOnly()):
        lines = remarks_by_means[type(engine)] = []
        means = Means(engine, 10**9)
        options = {"trr": 0.99999, "means": means, "remark": lines.append}
        assert decides_nothing(engines.calibrate_files(source, **options))
    here, streamed = remarks_by_means.values()
    assert here == streamed
    assert "--trr 0.9" in here[0]


def test_rows_without_a_label_have_no_part_in_advice(odd):
    labels = [None if i < 1000 else k for i, k in enumerate(odd.labels)]
    partly_labelled = td.Predictions.from_logits(odd.logits, labels)
    remarks_by_means = {}
    for name, rows in (("all", partly_labelled), ("labelled", odd[1000:])):
        remarks_by_means[name] = [
            *remarks(run_calibration(rows, make_requests(trr=0.99999))),
            *remarks(run_calibration(rows, make_requests(frr=0.1))),
        ]
    assert remarks_by_means["all"] == remarks_by_means["labelled"]
    starts = [text.partition(" ")[0] for text in remarks_by_means["all"]]
    assert starts == ["Tried", "More", "Careful:", "More"]


def test_advice_on_several_values_is_typed_with_the_others():
    """Alone the value would have the whole level, and accept something else."""
    rows = Rows(np.arange(100.0), np.arange(100) >= 95)
    advice = advise(rows, make_requests(risk=[0.001, 0.002, 0.005]))
    value = float(re.search(r"--risk 0\.001,0\.002,(0\.\d+) would accept", advice)[1])
    values = [0.001, 0.002, value]
    gate = td.calibrate_scores(rows.scores, rows.errors, risk=values)
    assert f"{gate.certificate.observed['coverage'].value:.0%} of them" in advice
