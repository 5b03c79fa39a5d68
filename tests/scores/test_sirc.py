"""SIRC against its formula."""

import numpy as np
import pytest
from scipy.special import softmax

import trustdoctor as td
from trustdoctor import SIRC
from trustdoctor.errors import InputError


def rows(n, features=None, *, classes=4):
    logits = 2 * np.random.default_rng(0).normal(size=(n, classes))
    return td.Predictions.from_logits(logits, features=features)


def test_sirc_is_its_formula():
    rng = np.random.default_rng(1)
    train = rng.normal(size=(300, 5)) + 2
    f = rng.normal(size=(50, 5)) + 1.5
    p = rows(50, f)
    norms = np.abs(train).sum(1)
    a, b = norms.mean() - 3 * norms.std(), 1 / norms.std()
    top = softmax(p.logits, axis=1).max(1)
    expected = (1 - top) * (1 + np.exp(-b * (np.abs(f).sum(1) - a)))
    np.testing.assert_allclose(
        np.exp(SIRC.fit(rows(300, train))(p)), expected, rtol=1e-7
    )


def test_mistakes_are_named():
    p = rows(50)
    equal_norms = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    for features in (equal_norms, np.ones((50, 2))):
        with pytest.raises(InputError, match="norms differ"):
            SIRC.fit(rows(50, features))
    with pytest.raises(InputError, match="needs features"):
        SIRC(0.0, 1.0, 2)(p)
    with pytest.raises(InputError, match="b above 0"):
        SIRC(0.0, -1.0, 2)
