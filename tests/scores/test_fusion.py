"""Fusion against scikit-learn's logistic regression."""

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor import Fusion
from trustdoctor.errors import InputError


def rows(n=600, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    labels = np.where(rng.random(n) < 0.7, z.argmax(1), rng.integers(0, classes, n))
    return td.Predictions.from_logits(z, labels)


def test_fusion_meets_scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    p = rows(2000)
    names = ["alpha", "margin", "energy"]
    scores = {name: td.SCORES[name](p) for name in names}
    x = StandardScaler().fit_transform(np.column_stack(list(scores.values())))
    for penalty in (1.0, 30.0):
        theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=5000)
        theirs.fit(x, p.errors)
        ours = Fusion.fit(p, scores=names, penalty=penalty)
        np.testing.assert_allclose(ours.weights, theirs.coef_[0], atol=1e-5)
        np.testing.assert_allclose(ours(p), theirs.decision_function(x), atol=1e-4)


def test_a_fusion_clips_scores_beyond_those_of_its_fit():
    p = rows()
    fusion = Fusion.fit(p, scores=["alpha", "margin"])
    certain = np.full((1, 4), -np.inf)
    certain[0, 0] = 0.0
    doubt = fusion(td.Predictions.from_logits(certain))
    by_hand = (fusion.bounds[0] - fusion.means) / fusion.deviations * fusion.weights
    assert doubt == by_hand.sum() + fusion.bias


def test_mistakes_are_named():
    p = rows()
    with pytest.raises(InputError, match="penalty above 0"):
        Fusion.fit(p, penalty=-1.0)
    with pytest.raises(InputError, match="errors and correct"):
        Fusion.fit(td.Predictions.from_logits(p.logits, p.predicted))
    certain = np.full((20, 4), -np.inf)
    certain[:, 0] = 0.0
    sure = td.Predictions.from_logits(certain, np.arange(20) % 2)
    with pytest.raises(InputError, match="the score alpha is infinite on all rows"):
        Fusion.fit(sure)
    with pytest.raises(InputError, match="a list of scores"):
        Fusion.fit(p, scores="alpha")
