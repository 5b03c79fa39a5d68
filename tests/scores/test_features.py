"""SIRC, kNN, trust score and ViM against their formulas and distances one by one."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from trustdoctor import KNN, SIRC, Predictions, TrustScore, ViM
from trustdoctor.errors import InputError

RNG = np.random.default_rng(0)
TRAIN, LABELS = RNG.normal(size=(200, 6)), RNG.integers(0, 3, 200)
ROWS, ABOUT = RNG.normal(size=(40, 6)), RNG.integers(0, 3, 40)
Z_TRAIN, Z = RNG.normal(size=(200, 3)), RNG.normal(size=(40, 3))
Z[np.arange(40), ABOUT] += 9  # so that these are the predicted classes
SEEN = Predictions.from_logits(Z_TRAIN, LABELS, features=TRAIN)
NEW = Predictions.from_logits(Z, features=ROWS)


def train_rows(**changes):
    columns = {"logits": Z_TRAIN, "labels": LABELS, "features": TRAIN} | changes
    return Predictions.from_logits(**columns)


@pytest.mark.parametrize("k", [1, 7, 200])
def test_knn_is_the_kth_distance(k):
    unit = TRAIN / np.linalg.norm(TRAIN, axis=1, keepdims=True)
    rows = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    distances = np.linalg.norm(rows[:, None] - unit[None], axis=2)
    expected = np.sort(distances, 1)[:, k - 1]
    np.testing.assert_allclose(KNN.fit(SEEN, k=k)(NEW), expected, rtol=1e-6)


def test_trust_score_is_the_ratio_of_distances():
    distances = np.linalg.norm(ROWS[:, None] - TRAIN[None], axis=2)
    expected = []
    for row, c in zip(distances, ABOUT, strict=True):
        expected.append(np.log(row[c == LABELS].min() / row[c != LABELS].min()))
    np.testing.assert_allclose(TrustScore.fit(SEEN)(NEW), expected, rtol=1e-6)


def test_vim_is_its_formula():
    mean = TRAIN.mean(0)
    _, _, directions = np.linalg.svd(TRAIN - mean)
    residual_basis = directions[4:].T
    residuals = np.linalg.norm((TRAIN - mean) @ residual_basis, axis=1)
    alpha = Z_TRAIN.max(1).sum() / residuals.sum()
    virtual = alpha * np.linalg.norm((ROWS - mean) @ residual_basis, axis=1)
    expected = virtual - logsumexp(Z, axis=1)
    np.testing.assert_allclose(ViM.fit(SEEN, n_components=4)(NEW), expected)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="expected k from 1"):
        KNN.fit(SEEN, k=0)
    with pytest.raises(InputError, match="needs features"):
        KNN.fit(train_rows(features=None), k=1)
    with pytest.raises(InputError, match="two classes"):
        TrustScore.fit(train_rows(labels=np.zeros(200, int)))
    with pytest.raises(InputError, match="needs the true labels"):
        TrustScore.fit(train_rows(labels=None))
    without_a_class = train_rows(labels=np.where(LABELS == 2, 0, LABELS))
    with pytest.raises(InputError, match="no training row"):
        TrustScore.fit(without_a_class)(NEW)
    narrow = Predictions.from_logits(Z, features=ROWS[:, :2])
    with pytest.raises(InputError, match="as in the fit"):
        KNN.fit(SEEN, k=1)(narrow)
    with pytest.raises(InputError, match="nothing is left"):
        ViM.fit(train_rows(features=RNG.normal(size=(200, 600))))
    with pytest.raises(InputError, match="expected n_components from 1 to 5"):
        ViM.fit(SEEN, n_components=6)


def logit_rows(n, features=None, *, classes=4):
    logits = 2 * np.random.default_rng(0).normal(size=(n, classes))
    return Predictions.from_logits(logits, features=features)


def test_sirc_is_its_formula():
    rng = np.random.default_rng(1)
    train = rng.normal(size=(300, 5)) + 2
    f = rng.normal(size=(50, 5)) + 1.5
    p = logit_rows(50, f)
    norms = np.abs(train).sum(1)
    a, b = norms.mean() - 3 * norms.std(), 1 / norms.std()
    top = softmax(p.logits, axis=1).max(1)
    expected = (1 - top) * (1 + np.exp(-b * (np.abs(f).sum(1) - a)))
    np.testing.assert_allclose(
        np.exp(SIRC.fit(logit_rows(300, train))(p)), expected, rtol=1e-7
    )


def test_mistakes_with_sirc_are_named():
    p = logit_rows(50)
    equal_norms = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    for features in (equal_norms, np.ones((50, 2))):
        with pytest.raises(InputError, match="norms differ"):
            SIRC.fit(logit_rows(50, features))
    with pytest.raises(InputError, match="needs features"):
        SIRC(0.0, 1.0, 2)(p)
    with pytest.raises(InputError, match="b above 0"):
        SIRC(0.0, -1.0, 2)
