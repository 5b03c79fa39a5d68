"""REL-U, SIRC and fusion against a few lines of their own."""

import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor.errors import FileError, InputError
from trustdoctor.scores.relative import SIRC, Fusion, RelU


def rows(n=600, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    labels = np.where(rng.random(n) < 0.7, z.argmax(1), rng.integers(0, classes, n))
    return td.Predictions.from_logits(z, labels)


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
    train, p = rng.normal(size=(300, 5)) + 2, rows(50)
    f = rng.normal(size=(50, 5)) + 1.5
    norms = np.abs(train).sum(1)
    a, b = norms.mean() - 3 * norms.std(), 1 / norms.std()
    top = softmax(p.logits, axis=1).max(1)
    expected = (1 - top) * (1 + np.exp(-b * (np.abs(f).sum(1) - a)))
    np.testing.assert_allclose(np.exp(SIRC.fit(train)(p, f)), expected, rtol=1e-7)


def test_fusion_meets_scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    p = rows(2000)
    scores = {name: td.SCORES[name](p) for name in ("alpha", "margin", "energy")}
    x = StandardScaler().fit_transform(np.column_stack(list(scores.values())))
    for penalty in (1.0, 30.0):
        theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=5000)
        theirs.fit(x, p.errors)
        ours = Fusion.fit(scores, p.errors, penalty=penalty)
        np.testing.assert_allclose(ours.weights, theirs.coef_[0], atol=1e-5)
        np.testing.assert_allclose(ours(scores), theirs.decision_function(x), atol=1e-4)


def test_they_are_saved_without_pickle(tmp_path):
    p, path = rows(), tmp_path / "score.safetensors"
    relu = RelU.fit(p, temperature=2.0)
    relu.save(path)
    assert (RelU.load(path)(p) == relu(p)).all()
    with pytest.raises(FileError, match="no sirc score"):
        SIRC.load(path)
    f = np.random.default_rng(2).normal(size=(len(p), 3))
    sirc = SIRC.fit(f)
    sirc.save(path)
    assert (SIRC.load(path)(p, f) == sirc(p, f)).all()
    scores = {"alpha": td.alpha(p.logits), "margin": td.margin(p.logits)}
    fusion = Fusion.fit(scores, p.errors)
    fusion.save(path)
    assert (Fusion.load(path)(scores) == fusion(scores)).all()
    sure = {name: np.append(values[:3], -np.inf) for name, values in scores.items()}
    alone = {name: values[3:] for name, values in sure.items()}
    assert fusion(sure)[3] == fusion(alone)[0]  # whatever the other rows are


def test_mistakes_are_named():
    p = rows()
    for given in ({"balance": 2.0}, {"temperature": 0.0}, {"shrink": "a"}):
        with pytest.raises(InputError, match="from 0 to 1"):
            RelU.fit(p, **given)
    with pytest.raises(InputError, match="penalty above 0"):
        Fusion.fit({"a": np.arange(9.0)}, np.arange(9) % 2 == 0, penalty=-1.0)
    with pytest.raises(InputError, match="norms differ"):
        SIRC.fit(np.random.default_rng(0).dirichlet(np.ones(4), 50))
    right = td.Predictions.from_logits(p.logits, p.predicted)
    with pytest.raises(InputError, match="both kinds"):
        RelU.fit(right)
    with pytest.raises(InputError, match="expected 4 classes"):
        RelU.fit(p)(rows(classes=3))
    with pytest.raises(InputError, match="norms differ"):
        SIRC.fit(np.ones((4, 2)))
    with pytest.raises(InputError, match="finite features"):
        SIRC(0.0, 1.0)(p, np.ones((3, 2)))
    with pytest.raises(InputError, match="both kinds"):
        Fusion.fit({"a": np.arange(5.0)}, np.zeros(5, bool))
    fusion = Fusion.fit({"a": np.arange(9.0)}, np.arange(9) % 2 == 0)
    with pytest.raises(InputError, match="expected the score 'a'"):
        fusion({"b": np.arange(9.0)})
    with pytest.raises(InputError, match="one a row"):
        Fusion.fit({"a": np.full(9, np.nan)}, np.arange(9) % 2 == 0)
