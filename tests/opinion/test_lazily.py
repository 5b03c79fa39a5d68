"""Asking lazily: who is asked about what, and logits that can be averaged."""

import numpy as np
import pytest
from scipy import special

import trustdoctor as td
from trustdoctor.opinion import SecondOpinion, View
from trustdoctor.opinion.run import ask_lazily, finite_logits, log_probs
from trustdoctor.predictions import Predictions

INF = np.inf


@pytest.mark.parametrize("rows", [0, 1, 50])
@pytest.mark.parametrize("passes", [0, 1, 3])
def test_only_rows_in_doubt_are_asked_about_and_each_once(rows, passes):
    stops = np.random.default_rng(0).integers(0, 4, rows)  # 3: at no pass
    asked_rows = []

    def ask(k, rows_in_doubt):
        assert len(rows_in_doubt)
        asked_rows.append((k, rows_in_doubt.tolist()))
        return f"answers to pass {k}"

    def settle(k, rows_in_doubt, answers):
        assert answers == f"answers to pass {k}"
        return stops[rows_in_doubt] == k

    ask_lazily(rows, passes, ask, settle)
    expected = [(k, np.flatnonzero(stops >= k).tolist()) for k in range(passes)]
    assert asked_rows == [
        (k, rows_in_doubt) for k, rows_in_doubt in expected if rows_in_doubt
    ]


def test_minus_infinity_and_probabilities_of_zero_count_as_forty_below_the_top():
    logits = Predictions.from_logits([[3.0, -INF, -100.0], [0.0, 1.0, 2.0]])
    assert finite_logits(logits).tolist() == [[3.0, -37.0, -100.0], [0.0, 1.0, 2.0]]
    probs = Predictions.from_probs([[1.0, 0.0, 0.0], [1 - 1e-30, 1e-30, 0.0]])
    assert finite_logits(probs).tolist() == [[0.0, -40.0, -40.0]] * 2


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_log_probs_are_the_log_softmax_in_more_digits(kind):
    rng = np.random.default_rng(0)
    logits = (20 * rng.normal(size=(300, 7))).astype(kind)
    exact = logits.astype(np.longdouble)
    expected = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    log_p = log_probs(Predictions.from_logits(logits))
    np.testing.assert_allclose(log_p, expected.astype(float), rtol=1e-12, atol=1e-15)
    p = special.softmax(logits.astype(np.float64), 1)
    log_p = log_probs(Predictions.from_probs(p))
    np.testing.assert_allclose(np.exp(log_p), p, atol=1e-15)


@pytest.mark.parametrize("classes", [2, 3, 8, 33, 1000])
def test_a_row_does_not_depend_on_its_neighbours(classes):
    """To the bit: that is what makes asking lazily the same as asking about all."""
    rng = np.random.default_rng(classes)
    z = (9 * rng.normal(size=(150, classes))).astype(np.float32)
    z[rng.random(z.shape) < 0.02] = -INF
    z[:, 0] = 1.0
    p = Predictions.from_logits(z)
    all_rows = log_probs(p)
    order = rng.permutation(150)
    subsets = (slice(0, 1), slice(3, 10), slice(1, 150), order, order[:17])
    for subset in subsets:
        assert np.array_equal(log_probs(p[subset]), all_rows[subset])
    columns = Predictions(np.asfortranarray(z), None)
    assert np.array_equal(log_probs(columns), all_rows)


class ZeroProbs:
    """Probabilities of which many are 0."""

    def __init__(self, weights):
        self.weights = weights

    def predict_proba(self, rows):
        p = special.softmax(rows @ self.weights, 1)
        p[p < 0.02] = 0
        return p / p.sum(1, keepdims=True)


WEIGHTS = np.random.default_rng(3).normal(size=(6, 5))
MODELS = {
    "double": lambda x: x @ WEIGHTS,
    "half": lambda x: (x @ WEIGHTS).astype(np.float16),
    "masked": lambda x: np.where(x[:, :5] > 1.5, -INF, x @ WEIGHTS),
    "probabilities": ZeroProbs(WEIGHTS),
}


def one_row(ask, gate, row):
    """A second opinion on one row, computed as documented."""
    margins, threshold = gate.margins, gate.threshold
    total, predicted = 0.0, None
    for k in range(1 + len(ask.views)):
        inputs = row[None] if not k else ask.views[k - 1](row[None])
        answer = ask.predict(inputs)
        if not isinstance(answer, Predictions):
            answer = Predictions.from_logits(answer)
        total = total + finite_logits(answer)
        predicted = answer.predicted if predicted is None else predicted
        doubt = float(td.beta(total / (k + 1), predicted=predicted)[0])
        last = k == len(ask.views)
        if last or doubt <= threshold - margins.accept[k]:
            break
        if doubt > threshold + margins.reject[k]:
            break
    return doubt <= threshold, k + 1, predicted[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch_size", [7, 256])
def test_a_second_opinion_is_its_rule_row_by_row(model, batch_size):
    """Early rejection, the label of the clean input, and no row asked twice."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    labels = ((x + 0.5 * rng.normal(size=x.shape)) @ WEIGHTS).argmax(1)
    views = [
        View(f"v{i}", lambda r, i=i: r + 0.4 * np.sin(9 * r + i)) for i in range(3)
    ]
    ask = SecondOpinion(MODELS[model], views, batch_size=batch_size)
    gate = ask.calibrate(x[:250], labels[:250], trr=0.7, level=0.002)
    decisions = ask.screen(x[250:], gate)
    expected = [one_row(ask, gate, row) for row in x[250:]]
    assert decisions.accepted.tolist() == [row[0] for row in expected]
    assert decisions.passes.tolist() == [row[1] for row in expected]
    assert decisions.predicted.tolist() == [row[2] for row in expected]
    assert {1, 4} <= set(decisions.passes.tolist())
