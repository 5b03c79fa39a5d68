"""Ways in that led to a wrong gate in version 0.1, and what they get now."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import trustdoctor as td
from trustdoctor.errors import InputError


@pytest.fixture(scope="module")
def forest():
    """Probabilities of a random forest on 3,600 + 3,600 rows, and their labels."""
    x, y = make_classification(
        9000, 20, n_informative=6, n_classes=4, flip_y=0.1, random_state=0
    )
    model = RandomForestClassifier(100, random_state=0).fit(x[:1800], y[:1800])
    probs = model.predict_proba(x[1800:])
    return np.split(probs, 2), np.split(y[1800:], 2)


def test_probabilities_are_not_read_as_logits(forest):
    (probs, _), (labels, _) = forest
    with pytest.raises(InputError, match=r"Use Predictions\.from_probs"):
        td.calibrate(td.alpha(probs), trr=0.8, score="alpha")
    with pytest.raises(InputError, match=r"Use Predictions\.from_probs"):
        td.Predictions.from_logits(probs, labels)


def test_the_way_out_keeps_its_promise(forest):
    """What the message says to do gives the TRR and the risk that are promised."""
    (probs, new), (labels, later) = forest
    p, q = (td.Predictions.from_probs(a, b) for a, b in ((probs, labels), (new, later)))
    for target, rate in (({"trr": 0.8}, "trr"), ({"risk": 0.15}, "risk")):
        gate = td.calibrate(p, score="alpha", **target)
        estimate = td.Outcome.of_predictions(q, gate.screen(q).accepted).rates()[rate]
        (value,) = target.values()
        assert estimate.high >= value if rate == "trr" else estimate.low <= value


def test_raw_scores_never_reach_calibrate(rng):
    z = rng.normal(size=(200, 3))
    errors = rng.random(200) < 0.2
    energy = td.energy(z)
    with pytest.raises(InputError, match=r"calibrate_scores\(scores, errors"):
        td.calibrate(energy, frr=0.05, score="alpha")
    with pytest.raises(TypeError, match="positional"):
        td.calibrate(energy, errors, frr=0.05, score="alpha")
    with pytest.raises(InputError, match="Use calibrate"):
        td.calibrate_scores(td.Predictions.from_logits(z), frr=0.05)


def test_custom_scores_make_a_gate_without_a_score_name(rng):
    errors = rng.random(2000) < 0.2
    doubts = rng.normal(size=2000) + errors
    gate = td.calibrate_scores(doubts, errors, frr=0.05)
    assert gate.score is None
    with pytest.raises(InputError, match="names no score"):
        gate.screen(td.Predictions.from_logits(rng.normal(size=(5, 3))))
    assert gate.accept(doubts).mean() > 0.5


def test_an_array_is_screened_only_as_the_declared_kind(rng):
    gate = td.Gate(-1.0, score="alpha")
    z = 3 * rng.normal(size=(20, 3))
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    with pytest.raises(InputError, match="kind='logits' or kind='probs'"):
        gate.screen(z)
    with pytest.raises(InputError, match="kind='guess'"):
        gate.screen(z, kind="guess")
    with pytest.raises(InputError, match="all rows are probabilities"):
        gate.screen(probs, kind="logits")
    with pytest.raises(InputError, match="these look like logits"):
        gate.screen(z, kind="probs")
    with pytest.raises(InputError, match="Leave kind out"):
        gate.screen(td.Predictions.from_logits(z), kind="logits")
    by_logits, by_probs = (
        gate.screen(z, kind="logits"),
        gate.screen(probs, kind="probs"),
    )
    assert np.array_equal(by_logits.accepted, by_probs.accepted)
    assert np.array_equal(by_logits.predicted, z.argmax(1))
    np.testing.assert_allclose(by_logits.doubts, by_probs.doubts, rtol=1e-9)
