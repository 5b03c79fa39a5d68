import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustdoctor as td
from trustdoctor.errors import InputError


def answers(probs, k, **options):
    order = np.argsort(-probs, axis=1)[:, :k]
    return td.Predictions.from_topk(
        np.take_along_axis(probs, order, 1), order, **options
    )


@given(
    st.integers(2, 30), st.integers(1, 30), st.floats(0.05, 3), st.integers(0, 2**31)
)
def test_the_true_score_lies_in_the_interval(classes, k, peak, seed):
    k = min(k, classes)
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, peak), 20)
    probs = np.maximum(probs, 1e-7)
    probs /= probs.sum(1, keepdims=True)
    z = np.log(probs)
    for n_classes in (classes, None):
        topk = answers(probs, k, n_classes=n_classes)
        for name in ("alpha", "beta", "msp"):
            low, high = topk.interval(name)
            true = getattr(td, name)(z)
            slack = 1e-6 * np.maximum(1, np.abs(true))
            assert (low - slack <= true).all()
            assert (true <= high + slack).all()
            if name != "alpha":
                assert np.array_equal(low, high)
        np.testing.assert_allclose(topk.doubt("alpha"), topk.interval("alpha")[1])


def test_with_all_classes_the_interval_is_the_score(rng):
    probs = rng.dirichlet(np.ones(8), 200)
    low, high = answers(probs, 8, n_classes=8).interval("alpha")
    np.testing.assert_allclose(low, high, rtol=1e-12)
    np.testing.assert_allclose(low, td.alpha(np.log(probs)), rtol=1e-9)


def test_more_classes_named_narrow_the_interval(rng):
    probs = rng.dirichlet(np.ones(20), 300)
    widths = []
    for k in (1, 3, 5, 20):
        low, high = answers(probs, k, n_classes=20).interval("alpha")
        widths.append((high - low).mean())
    assert widths == sorted(widths, reverse=True)


def test_log_probabilities_next_to_one_keep_their_odds():
    topk = td.Predictions.from_topk([[-1e-13, -40.0]], [[0, 1]], log=True)
    with mpmath.workdps(40):
        p = mpmath.exp(mpmath.mpf(-1e-13))
        expected = float(mpmath.log((1 - p) / p))
    assert topk.interval("beta")[1][0] == pytest.approx(expected, rel=1e-9)


@given(st.integers(2, 6), st.integers(0, 2**31))
def test_an_open_rest_may_go_anywhere(classes, seed):
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.ones(classes), 30)
    returned = true * rng.uniform(0.3, 1, true.shape)  # some tokens were not returned
    columns = np.broadcast_to(np.arange(classes), returned.shape)
    topk = td.Predictions.from_topk(
        returned, columns, n_classes=classes, open_rest=True
    )
    sure = ~topk.ambiguous
    assert (topk.predicted[sure] == true.argmax(1)[sure]).all()
    for name in ("alpha", "beta", "msp"):
        low, high = topk.interval(name)
        score = getattr(td, name)(np.log(true))
        assert (low[sure] - 1e-9 <= score[sure]).all()
        assert (score[sure] <= high[sure] + 1e-9).all()
    assert (topk.doubt("beta")[~sure] == np.inf).all()


def test_gates_decide_on_the_cautious_end():
    probs, classes = [[0.9, 0.05], [0.5, 0.3]], [[3, 1], [0, 2]]
    topk = td.Predictions.from_topk(probs, classes, labels=[3, 2])
    assert topk.predicted.tolist() == [3, 0]
    assert topk.errors.tolist() == [False, True]
    low, high = topk.interval("alpha")
    middle = td.Gate(float((low[1] + high[1]) / 2), score="alpha")
    assert middle.screen(topk).accepted.tolist() == [True, False]
    unsure = td.Predictions.from_topk([[0.4, 0.3]], [[0, 1]], open_rest=True)
    everything = td.Gate(np.inf, score="beta", state="accept-all")
    assert not everything.screen(unsure).accepted.any()
    with pytest.raises(InputError, match="temperature"):
        td.Gate(0.0, td.SCORES["alpha"].with_temperature(2.0)).screen(topk)
    with pytest.raises(InputError, match="alpha, beta, msp"):
        td.Gate(0.0, score="energy").screen(topk)


@pytest.mark.parametrize(
    ("probs", "classes", "word"),
    [
        ([[0.9, 0.3]], [[0, 1]], "at most 1"),
        ([[-0.1, 0.3]], [[0, 1]], "log=True"),
        ([[0.0, 0.0]], [[0, 1]], "at most 1"),
        ([[0.5, 0.3]], [[0, 0]], "twice"),
        ([[0.5, 0.3]], [[0, 9]], "from 0 to"),
        ([[0.5, 0.3]], [[0.0, 1.0]], "whole numbers"),
        ([0.5, 0.3], [0, 1], "shapes"),
    ],
)
def test_invalid_answers_are_refused(probs, classes, word):
    with pytest.raises(InputError, match=word):
        td.Predictions.from_topk(probs, classes, n_classes=5)
    with pytest.raises(InputError, match="labels"):
        _ = td.Predictions.from_topk([[0.5]], [[0]]).errors


def test_what_is_named_bounds_the_odds_where_p_rounds_to_one():
    probs = np.array([[1, 1e-9, 1e-10]], np.float32)
    topk = td.Predictions.from_topk(probs, [[0, 1, 2]], n_classes=10)
    truth = np.log(1.1e-9)
    assert topk.interval("beta")[1][0] >= truth - 1e-3
    assert topk.interval("alpha")[1][0] >= truth


def test_sums_that_miss_one_are_divided_out():
    topk = td.Predictions.from_topk([[0.6, 0.405]], [[0, 1]], n_classes=3)
    assert topk.interval("beta")[1][0] == pytest.approx(np.log(0.405 / 0.6))
    all_classes = td.Predictions.from_topk(
        [[0.5, 0.3, 0.195, 0]], [[0, 1, 2, 3]], n_classes=4
    )
    p = td.Predictions.from_probs([[0.5, 0.3, 0.195, 0]])
    for end in all_classes.interval("alpha"):
        assert end[0] == pytest.approx(td.alpha(p.logits)[0])


def test_invalid_values_are_refused():
    with pytest.raises(InputError, match="n_classes is too small"):
        td.Predictions.from_topk([[0.4, 0.1]], [[0, 1]], n_classes=3)
    with pytest.raises(InputError, match="whole number above 1"):
        td.Predictions.from_topk([[0.4, 0.1]], [[0, 1]], n_classes=2.5)
    for labels in ([np.nan], ["a"]):
        with pytest.raises(InputError, match="label"):
            td.Predictions.from_topk([[0.5]], [[0]], labels)
    with pytest.raises(InputError, match="as numbers"):
        td.Predictions.from_topk([["x"]], [[0]])


def sampled(rng, n=3000, classes=10, k=3, **options):
    probs = rng.dirichlet(np.full(classes, 0.2), n)
    labels = (probs.cumsum(1) < rng.random((n, 1))).sum(1).clip(0, classes - 1)
    return probs, answers(probs, k, n_classes=classes, labels=labels, **options)


def test_top_k_answers_are_evaluated_as_answers_with_a_confidence(rng):
    probs, p = sampled(rng)
    evaluation = td.evaluate(p)
    assert list(evaluation.scores) == ["alpha", "beta", "msp"]
    stated = td.Predictions.from_confidence(probs.max(1), ~p.errors)
    same = td.evaluate(stated)
    assert evaluation.accuracy == same.accuracy
    msp, stated_score = evaluation.scores["msp"], same.scores["confidence"]
    assert msp["auroc"].value == pytest.approx(stated_score["auroc"].value)
    assert td.ece(p) == pytest.approx(td.ece(stated))
    assert np.array_equal(p.confidence, stated.confidence)


def test_rows_ids_and_groups_go_together(rng):
    n = 3000
    ids, groups = np.arange(n), np.where(np.arange(n) % 2, "a", "b")
    _, p = sampled(rng, ids=ids, groups=groups)
    picked = p[100:300]
    assert len(picked) == len(picked.top.probs) == 200
    assert np.array_equal(picked.ids, ids[100:300])
    assert np.array_equal(picked.doubt("beta"), p.doubt("beta")[100:300])
    assert np.array_equal(picked.predicted, p.predicted[100:300])
    gate = td.calibrate(p, score="beta", frr=0.1, groups="given")
    assert sorted(gate.groups) == ["a", "b"]
    screened = gate.screen(picked)
    assert np.array_equal(screened.ids, picked.ids)
    watch = gate.watch().update(picked)
    assert watch is not None


def test_functions_that_need_every_class_refuse_them(rng):
    _, p = sampled(rng)
    for refused in (
        lambda: td.calibrate(p, score="auto", frr=0.1),
        lambda: td.tune(p),
        lambda: td.label_quality(p),
        lambda: td.calibrate_unlabelled(p, risk=0.1),
        lambda: td.evaluate(p, scores=["energy"]),
    ):
        with pytest.raises(InputError, match=r"every class|of all classes|top 3|none"):
            refused()


def test_ambiguous_answers_are_rejected_and_count_as_confidence_0(rng):
    probs, p = sampled(rng)
    columns = np.broadcast_to(np.arange(10), probs.shape)
    cut = td.Predictions.from_topk(
        probs * 0.9, columns, p.labels, n_classes=10, open_rest=True
    )
    assert 0 < cut.ambiguous.sum() < len(cut)
    assert np.array_equal(cut.always_rejected, cut.ambiguous)
    assert (cut.confidence[cut.ambiguous] == 0).all()
    assert (cut.doubts[cut.ambiguous] == np.inf).all()
    screened = td.Gate(np.inf, score="beta", state="accept-all").screen(cut)
    assert np.array_equal(screened.accepted, ~cut.ambiguous)
