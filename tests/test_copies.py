"""What can be sent to another process arrives whole, and serves several threads."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import trustdoctor as td

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(900, 4))
P = td.Predictions.from_logits(Z, (Z + RNG.normal(size=Z.shape)).argmax(1))
NEW = td.Predictions.from_logits(3 * RNG.normal(size=(200, 4)))


def double(rows):
    return 2 * np.asarray(rows)


def ask(rows):
    return np.asarray(rows)[:, :3]


GATES = {
    "a name": td.calibrate(P, risk=0.3),
    "parameters": td.calibrate(P, score="pnorm:p=4,temperature=2", frr=0.1),
    "fitted": td.calibrate(P, score=td.RelU.fit(P), frr=0.1),
    "tuned": td.calibrate(P, score=td.tune(P), frr=0.1),
    "groups": td.calibrate(P, frr=0.1, groups="predicted"),
    "lists": td.calibrate(P, frr=0.1, shortlist=0.9),
}


@pytest.mark.parametrize("name", GATES)
def test_gates_are_pickled(name):
    gate = GATES[name]
    copy = pickle.loads(pickle.dumps(gate))
    assert copy == gate
    expected, screened = gate.screen(NEW), copy.screen(NEW)
    assert np.array_equal(screened.doubts, expected.doubts)
    assert np.array_equal(screened.accepted, expected.accepted)


@pytest.mark.parametrize("name", GATES)
def test_threads_may_share_a_gate(name):
    gate = GATES[name]
    expected = gate.screen(NEW).accepted
    with ThreadPoolExecutor(8) as pool:
        for accepted in pool.map(lambda _: gate.screen(NEW).accepted, range(40)):
            assert np.array_equal(accepted, expected)


def test_views_and_second_opinions_are_pickled():
    images = RNG.normal(size=(5, 1, 8, 8))
    for view in td.image_views(11):
        copy = pickle.loads(pickle.dumps(view))
        assert copy.name == view.name
        assert np.array_equal(copy(images), view(images))
    for view in td.text_views(window=2):
        copy = pickle.loads(pickle.dumps(view))
        assert copy(["A,  b c!"]) == view(["A,  b c!"])
    rows = RNG.normal(size=(50, 5))
    views = [*td.table_views(rows, count=2), td.View("double", double)]
    opinion = td.SecondOpinion(ask, views)
    copy = pickle.loads(pickle.dumps(opinion))
    assert np.array_equal(copy(rows).doubts, opinion(rows).doubts)


def test_results_are_pickled():
    for result in (td.evaluate(P), td.compare(P), GATES["a name"].screen(NEW)):
        assert repr(pickle.loads(pickle.dumps(result))) == repr(result)
