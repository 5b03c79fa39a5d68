"""Scores and decisions of the service are those of the gate itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from service.house import NAMES, draw_rows

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.service.problems import ProblemError
from trustdoctor.service.schemas import DecideRequest
from trustdoctor.service.scoring import (
    GateVersion,
    ScoredRows,
    Scorer,
    join_requests,
    require_served,
)

ROWS = draw_rows(60, 5)
NAMED = draw_rows(2000, 1, names=NAMES)
PLAIN = draw_rows(2000, 1)
TEAMS = np.array(["north", "south"])[np.arange(2000) % 2]


def as_topk(p, k=3):
    probs = softmax(np.asarray(p.logits, float), 1)
    order = np.argsort(-probs, 1)[:, :k]
    return order, np.take_along_axis(probs, order, 1)


def version(gate):
    return GateVersion(1, gate)


def screen(gate, kind, values, **more):
    return version(gate).screen(
        DecideRequest(kind, np.asarray(values).tolist(), **more)
    )


def check(scored: ScoredRows, expected, names=None):
    """Compare with what `gate.screen` says."""
    assert scored.doubts == np.asarray(expected.doubts, float).tolist()
    assert scored.accepted == np.asarray(expected.accepted).tolist()
    predicted = np.asarray(expected.predicted).tolist()
    assert scored.predicted == (
        predicted
        if names is None
        else [at if isinstance(at, str) else names[at] for at in predicted]
    )


@pytest.mark.parametrize("score", ["alpha", "beta", "msp", "entropy"])
def test_logits_and_probs(score):
    gate = td.calibrate(PLAIN, score=score, frr=0.1)
    logits = np.asarray(ROWS.logits, float)
    check(screen(gate, "logits", logits), gate.screen(logits, kind="logits"))
    probs = softmax(logits, 1)
    check(screen(gate, "probs", probs), gate.screen(probs, kind="probs"))


def test_topk_by_number_and_by_name():
    classes, probs = as_topk(ROWS)
    for rows, names in ((PLAIN, None), (NAMED, NAMES)):
        gate = td.calibrate(rows, score="alpha", frr=0.1)
        predictions = td.Predictions.from_topk(probs, classes, n_classes=4)
        expected = gate.screen(predictions)
        numbers = classes.tolist()
        check(screen(gate, "topk", probs, classes=numbers), expected, names)
        if names is not None:
            named = [[names[at] for at in row_numbers] for row_numbers in numbers]
            check(screen(gate, "topk", probs, classes=named), expected, names)


def test_names_of_no_class_are_refused():
    gate = td.calibrate(NAMED, score="alpha", frr=0.1)
    with pytest.raises(ProblemError, match="by number or name, got 'emu'"):
        screen(gate, "topk", [[0.9]], classes=[["emu"]])


@pytest.mark.parametrize("kind", ["confidence", "doubt"])
def test_confidence_and_doubt(kind):
    sure = softmax(np.asarray(PLAIN.logits, float), 1).max(1)
    make = getattr(td.Predictions, f"from_{kind}")
    value = sure if kind == "confidence" else -np.log(sure)
    gate = td.calibrate(
        make(value, PLAIN.labels == PLAIN.predicted), score=kind, frr=0.1
    )
    scored = screen(gate, kind, value[:50], predicted=["a"] * 50)
    expected = gate.screen(make(value[:50]))
    assert scored.accepted == expected.accepted.tolist()
    assert scored.doubts == np.asarray(expected.doubts).tolist()
    assert scored.predicted == ["a"] * 50


def test_certain_rows():
    gate = td.calibrate(PLAIN, score="alpha", frr=0.1)
    scored = screen(gate, "probs", [[1.0, 0, 0, 0], [0.25] * 4])
    assert scored.doubts[0] == -np.inf
    assert scored.accepted == [True, False]


def test_shortlists_of_rejected_rows():
    for rows, names in ((PLAIN, range(4)), (NAMED, NAMES)):
        gate = td.calibrate(rows, score="alpha", frr=0.1, shortlist=0.9)
        logits = np.asarray(ROWS.logits, float)
        p = td.Predictions.from_logits(logits, class_names=rows.class_names)
        expected = gate.screen(p)
        scored = screen(gate, "logits", logits)
        for shortlist, mask, accepted in zip(
            scored.shortlists, expected.shortlist, expected.accepted, strict=True
        ):
            chosen = {names[at] for at in np.flatnonzero(mask)}
            assert (shortlist is None) == accepted
            assert set(shortlist or ()) == (set() if accepted else chosen)


def test_thresholds_of_groups():
    gate = td.calibrate(
        PLAIN, score="alpha", risk=0.15, groups=TEAMS, grouped_by="team"
    )
    logits, teams = np.asarray(ROWS.logits, float), TEAMS[:60]
    expected = gate.screen(td.Predictions.from_logits(logits), groups=teams)
    check(screen(gate, "logits", logits, groups=teams.tolist()), expected)
    with pytest.raises(ProblemError, match="expected a group in every row"):
        screen(gate, "logits", logits)
    with pytest.raises(InputError, match="expected groups like 'north'"):
        screen(gate, "logits", logits, groups=[3] * 60)


@pytest.mark.parametrize("rows", [PLAIN, NAMED], ids=["numbers", "names"])
@pytest.mark.parametrize("groups", [None, ["a"] * 60], ids=["no groups", "groups"])
def test_thresholds_of_predicted_classes(rows, groups):
    # A row's group is not its class.
    gate = td.calibrate(rows, score="alpha", risk=0.15, groups="predicted")
    logits = np.asarray(ROWS.logits, float)
    p = td.Predictions.from_logits(logits, class_names=rows.class_names)
    names = None if rows is PLAIN else NAMES
    check(screen(gate, "logits", logits, groups=groups), gate.screen(p), names)


@pytest.mark.parametrize("rows", [PLAIN, NAMED], ids=["numbers", "names"])
def test_topk_and_thresholds_of_predicted_classes(rows):
    gate = td.calibrate(rows, score="alpha", risk=0.15, groups="predicted")
    classes, probs = as_topk(ROWS, 4)
    scored = screen(gate, "topk", probs, classes=classes.tolist())
    p = td.Predictions.from_probs(softmax(np.asarray(ROWS.logits, float), 1))
    predicted = np.asarray(p.predicted).tolist()
    groups = predicted if rows is PLAIN else [NAMES[at] for at in predicted]
    expected = gate.accept(scored.doubts, groups=groups)
    assert scored.accepted == expected.tolist()


@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_fitted_scores_need_their_features(kind):
    rng = np.random.default_rng(0)
    features = np.asarray(PLAIN.logits)[:, :2] + rng.normal(size=(2000, 2))
    rows = td.Predictions.from_logits(PLAIN.logits, PLAIN.labels, features=features)
    gate = td.calibrate(rows, score=td.SCORES["knn"].fit(rows), frr=0.1)
    values = np.asarray(ROWS.logits, float)
    inputs = values if kind == "logits" else softmax(values, 1)
    make = getattr(td.Predictions, f"from_{kind}")
    expected = gate.screen(make(inputs, features=features[:60]))
    check(screen(gate, kind, inputs, features=features[:60].tolist()), expected)
    with pytest.raises(InputError, match="features"):
        screen(gate, kind, inputs)


def test_gates_that_cannot_be_served():
    gate = td.calibrate(PLAIN, score="alpha", frr=0.1)
    with pytest.raises(InputError, match="it names no score"):
        require_served(replace(gate, score=None))
    require_served(gate)
    require_served(td.Gate(0.0, score="beta"))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 99))
def test_rows_scored_together_are_scored_alone(sizes, seed):
    gate = td.calibrate(PLAIN, score="alpha", frr=0.1, shortlist=0.9)
    rng = np.random.default_rng(seed)
    requests = [
        DecideRequest("logits", rng.normal(size=(n, 4)).tolist())
        if rng.random() < 0.7
        else DecideRequest("probs", rng.dirichlet(np.ones(4), n).tolist())
        for n in sizes
    ]
    together = Scorer().score(version(gate), requests)
    for rows, scored in zip(requests, together, strict=True):
        (alone,) = Scorer().score(version(gate), [rows])
        assert scored.doubts == alone.doubts
        assert scored.accepted == alone.accepted
        assert scored.predicted == alone.predicted
        assert scored.shortlists == alone.shortlists


def test_one_wrong_request_is_not_the_others_fault():
    gate = td.calibrate(PLAIN, score="alpha", frr=0.1)
    good, wide = (
        DecideRequest("logits", [[1.0, 0, 0, 0]]),
        DecideRequest("logits", [[1.0] * 5]),
    )
    odd = DecideRequest("probs", [[0.5, 0.6, 0.2, 0.1]])
    fine = DecideRequest("probs", [[0.5, 0.3, 0.1, 0.1]])
    results = Scorer().score(version(gate), [good, wide, odd, fine, good])
    kinds = [isinstance(result, ScoredRows) for result in results]
    assert kinds == [True, False, False, True, True]
    assert "expected rows of 4 classes" in str(results[1])


def test_probabilities_sent_as_logits_are_reported():
    gate = td.calibrate(PLAIN, score="alpha", frr=0.1)
    scorer, probs = Scorer(), np.random.default_rng(0).dirichlet(np.ones(4), 9)
    rows = [DecideRequest("logits", [row]) for row in probs.tolist()]
    early = [scorer.score(version(gate), [row])[0] for row in rows]
    assert all(isinstance(scored, ScoredRows) for scored in early)
    (refusal,) = scorer.score(version(gate), rows[:1])
    assert 'Send them as "probs"' in str(refusal)
    (scored,) = scorer.score(
        version(gate), [DecideRequest("logits", [[3.0, -1.0, 0.0, 0.0]])]
    )
    assert isinstance(scored, ScoredRows)
    (scored,) = scorer.score(version(gate), rows[:1])
    assert isinstance(scored, ScoredRows)


def test_joining_keeps_everything():
    first = DecideRequest("topk", [[0.9]], None, [[1]], groups=["a"], features=[[1.0]])
    second = DecideRequest(
        "topk", [[0.8], [0.7]], None, [[2], [3]], None, ["b", "c"], [[2.0]] * 2
    )
    joined = join_requests([first, second])
    assert joined.values == [[0.9], [0.8], [0.7]]
    assert joined.classes == [[1], [2], [3]]
    assert joined.groups == ["a", "b", "c"]
    assert joined.features == [[1.0], [2.0], [2.0]]
