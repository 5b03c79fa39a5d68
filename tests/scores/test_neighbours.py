"""kNN, trust score and ViM against distances taken one by one."""

import numpy as np
import pytest
from scipy.special import logsumexp

from trustdoctor.errors import InputError
from trustdoctor.scores.neighbours import KNN, TrustScore, ViM

RNG = np.random.default_rng(0)
TRAIN, LABELS = RNG.normal(size=(200, 6)), RNG.integers(0, 3, 200)
ROWS, ABOUT = RNG.normal(size=(40, 6)), RNG.integers(0, 3, 40)


@pytest.mark.parametrize("k", [1, 7, 200])
def test_knn_is_the_kth_distance(k):
    unit = TRAIN / np.linalg.norm(TRAIN, axis=1, keepdims=True)
    own = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    distances = np.linalg.norm(own[:, None] - unit[None], axis=2)
    expected = np.sort(distances, 1)[:, k - 1]
    np.testing.assert_allclose(KNN.fit(TRAIN, k=k)(ROWS), expected, rtol=1e-6)


def test_trust_score_is_the_ratio_of_distances():
    distances = np.linalg.norm(ROWS[:, None] - TRAIN[None], axis=2)
    expected = []
    for row, c in zip(distances, ABOUT, strict=True):
        expected.append(np.log(row[c == LABELS].min() / row[c != LABELS].min()))
    score = TrustScore.fit(TRAIN, LABELS)
    np.testing.assert_allclose(score(ROWS, ABOUT), expected, rtol=1e-6)


def test_vim_is_its_formula():
    z_train, z = RNG.normal(size=(200, 3)), RNG.normal(size=(40, 3))
    mean = TRAIN.mean(0)
    _, _, directions = np.linalg.svd(TRAIN - mean)
    rest = directions[4:].T
    left = np.linalg.norm((TRAIN - mean) @ rest, axis=1)
    alpha = z_train.max(1).sum() / left.sum()
    virtual = alpha * np.linalg.norm((ROWS - mean) @ rest, axis=1)
    expected = virtual - logsumexp(z, axis=1)
    np.testing.assert_allclose(ViM.fit(TRAIN, z_train, kept=4)(ROWS, z), expected)


def test_they_are_saved_without_pickle(tmp_path):
    path = tmp_path / "score.safetensors"
    knn = KNN.fit(TRAIN, k=3)
    knn.save(path)
    assert (KNN.load(path)(ROWS) == knn(ROWS)).all()
    trust = TrustScore.fit(TRAIN, LABELS)
    trust.save(path)
    assert (TrustScore.load(path)(ROWS, ABOUT) == trust(ROWS, ABOUT)).all()
    vim = ViM.fit(TRAIN, TRAIN[:, :3])
    vim.save(path)
    assert (ViM.load(path)(ROWS, ROWS[:, :3]) == vim(ROWS, ROWS[:, :3])).all()


def test_mistakes_are_named():
    with pytest.raises(InputError, match="expected k from 1"):
        KNN.fit(TRAIN, k=0)
    with pytest.raises(InputError, match="finite features"):
        KNN.fit(np.full((3, 2), np.nan), k=1)
    with pytest.raises(InputError, match="two classes"):
        TrustScore.fit(TRAIN, np.zeros(200, int))
    with pytest.raises(InputError, match="no training row"):
        TrustScore.fit(TRAIN, LABELS)(ROWS, np.full(40, 9))
    with pytest.raises(InputError, match="as in the fit"):
        KNN.fit(TRAIN, k=1)(ROWS[:, :2])
    with pytest.raises(InputError, match="predicted classes"):
        TrustScore.fit(TRAIN, LABELS)(ROWS, ABOUT[:3])
    with pytest.raises(InputError, match="logits of 40 rows"):
        ViM.fit(TRAIN, TRAIN[:, :3])(ROWS, ROWS[:1, :3])
    with pytest.raises(InputError, match="nothing is left"):
        ViM.fit(RNG.normal(size=(20, 60)), RNG.normal(size=(20, 3)))
    with pytest.raises(InputError, match="directions"):
        ViM.fit(TRAIN, TRAIN, kept=6)
