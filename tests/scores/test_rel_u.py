"""REL-U against its formula, in double precision and in many digits."""

import warnings

import mpmath
import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor import RelU
from trustdoctor.errors import InputError


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


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_rel_u_of_the_largest_logits_is_a_number(temperature):
    score = td.RelU(td.RelU.fit(rows(classes=3)).matrix, temperature)
    z = np.array(
        [
            [1e308, 0, -1e308],
            [1e308, 1e308, 1e308],
            [1e308, 1e308, -1e308],
            [1.7e308, -1.7e308, -1.7e308],
            [-1e308, -1e308, -1.1e308],
            [5e-324, 0, 0],
            [1e308, -np.inf, -np.inf],
            [3.0, 2.0, 1.0],
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubt = score(td.Predictions.from_logits(z))
    assert not np.isnan(doubt).any()
    assert (doubt < np.inf).all()
    assert np.isneginf(doubt[[0, 3, 6]]).all() or (doubt[[0, 3]] < -1e306).all()
    assert np.isfinite(doubt[[1, 2, 4, 5, 7]]).all()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_rel_u_is_its_formula_in_many_digits(temperature):
    score = td.RelU(td.RelU.fit(rows(classes=3)).matrix, temperature)
    z = np.array([[900.0, -900, 3], [5, 4, 3], [1e5, 1e5 - 1, 0], [0.1, 0, -1e5]])
    doubt = score(td.Predictions.from_logits(z))
    mpmath.mp.dps = 50
    for row, value in zip(z, doubt, strict=True):
        top = mpmath.mpf(max(row))
        e = [mpmath.exp((mpmath.mpf(v) - top) / mpmath.mpf(temperature)) for v in row]
        total = mpmath.fsum(e)
        shares = [exponential / total for exponential in e]
        exact = mpmath.log(
            mpmath.fsum(
                mpmath.mpf(float(score.matrix[i, j])) * shares[i] * shares[j]
                for i in range(3)
                for j in range(3)
            )
        )
        assert value == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


def test_mistakes_are_named():
    p = rows()
    for options in ({"balance": 2.0}, {"temperature": 0.0}, {"shrink": "a"}):
        with pytest.raises(InputError, match="from 0 to 1"):
            RelU.fit(p, **options)
    with pytest.raises(InputError, match="errors and correct"):
        RelU.fit(td.Predictions.from_logits(p.logits, p.predicted))
    with pytest.raises(InputError, match="expected 4 classes"):
        RelU.fit(p)(rows(classes=3))
