"""REL-U, SIRC and fusion against a few lines of their own."""

import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor import SIRC, Fusion, RelU
from trustdoctor.errors import InputError


def rows(n=600, classes=4, seed=0, features=None):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    labels = np.where(rng.random(n) < 0.7, z.argmax(1), rng.integers(0, classes, n))
    return td.Predictions.from_logits(z, labels, features=features)


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_rel_u_is_its_formula(temperature):
    p = rows()
    score = RelU.fit(p, balance=0.6, shrink=0.2, temperature=temperature)
    q = softmax(p.logits / temperature, axis=1)
    outer = np.einsum("ni,nj->nij", q, q)
    d = np.maximum(0.6 * outer[p.errors].mean(0) - 0.4 * outer[~p.errors].mean(0), 0)
    np.fill_diagonal(d, 0)
    off = ~np.eye(4, dtype=bool)
    d = 0.8 * d / d[off].mean() + 0.2 * off
    expected = np.log(np.einsum("ni,ij,nj->n", q, d, q))
    np.testing.assert_allclose(score(p), expected, rtol=1e-9)


def test_rel_u_shrunk_whole_is_gini():
    p = rows()
    gini = 1 - (softmax(p.logits, axis=1) ** 2).sum(1)
    np.testing.assert_allclose(np.exp(RelU.fit(p, shrink=1.0)(p)), gini, rtol=1e-9)


def test_sirc_is_its_formula():
    rng = np.random.default_rng(1)
    train = rng.normal(size=(300, 5)) + 2
    f = rng.normal(size=(50, 5)) + 1.5
    p = rows(50, features=f)
    norms = np.abs(train).sum(1)
    a, b = norms.mean() - 3 * norms.std(), 1 / norms.std()
    top = softmax(p.logits, axis=1).max(1)
    expected = (1 - top) * (1 + np.exp(-b * (np.abs(f).sum(1) - a)))
    np.testing.assert_allclose(
        np.exp(SIRC.fit(rows(300, features=train))(p)), expected, rtol=1e-7
    )


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
    for given in ({"balance": 2.0}, {"temperature": 0.0}, {"shrink": "a"}):
        with pytest.raises(InputError, match="from 0 to 1"):
            RelU.fit(p, **given)
    with pytest.raises(InputError, match="penalty above 0"):
        Fusion.fit(p, penalty=-1.0)
    with pytest.raises(InputError, match="norms differ"):
        SIRC.fit(rows(50, features=np.random.default_rng(0).dirichlet(np.ones(4), 50)))
    right = td.Predictions.from_logits(p.logits, p.predicted)
    with pytest.raises(InputError, match="errors and correct"):
        RelU.fit(right)
    with pytest.raises(InputError, match="expected 4 classes"):
        RelU.fit(p)(rows(classes=3))
    with pytest.raises(InputError, match="norms differ"):
        SIRC.fit(rows(4, features=np.ones((4, 2))))
    with pytest.raises(InputError, match="needs features"):
        SIRC(0.0, 1.0, 2)(p)
    with pytest.raises(InputError, match="errors and correct"):
        Fusion.fit(right)
    certain = np.full((20, 4), -np.inf)
    certain[:, 0] = 0.0
    sure = td.Predictions.from_logits(certain, np.arange(20) % 2)
    with pytest.raises(InputError, match="the score alpha is infinite on all rows"):
        Fusion.fit(sure)
    with pytest.raises(InputError, match="a list of scores"):
        Fusion.fit(p, scores="alpha")
