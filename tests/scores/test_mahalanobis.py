import json

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from scipy.special import softmax
from sklearn.covariance import EmpiricalCovariance

from trustdoctor import Mahalanobis, Predictions
from trustdoctor.errors import FileError, InputError
from trustdoctor.scores import ClassMoments


def draw(rng, n=400, d=6, classes=3):
    labels = rng.integers(0, classes, n)
    mixing = rng.normal(size=(d, d))
    return rng.normal(size=(n, d)) @ mixing + 3 * labels[:, None], labels


def fit(rows, labels, **options):
    """Fit on rows as they are: features of predictions that say nothing else."""
    options.setdefault("space", "features")
    return Mahalanobis.fit(predictions(rows, labels), **options)


def predictions(rows, labels=None):
    return Predictions(np.asarray(rows), labels, features=np.asarray(rows))


def reference(rows, labels, queries, ridge=0.0):
    """scikit-learn's covariance of centred rows, scipy's distance with its inverse."""
    classes = np.unique(labels)
    means = np.array([rows[labels == c].mean(0) for c in classes])
    centred = rows - means[np.searchsorted(classes, labels)]
    sigma = EmpiricalCovariance(assume_centered=True).fit(centred).covariance_
    sigma = sigma + ridge * np.trace(sigma) / len(sigma) * np.eye(len(sigma))
    inverse = np.linalg.inv(sigma)
    return [min(mahalanobis(q, m, inverse) ** 2 for m in means) for q in queries]


def test_distances_meet_scikit_learn_and_scipy(rng):
    rows, labels = draw(rng)
    queries = rng.normal(size=(20, 6)) * 4
    distances = fit(rows, labels).function(queries)
    assert distances == pytest.approx(reference(rows, labels, queries), rel=1e-6)


def test_a_singular_covariance_is_ridged_as_stated(rng):
    rows, labels = draw(rng)
    rows = np.column_stack([rows, rows[:, 0] - rows[:, 1]])
    queries = rows[:20] + 0.1 * rng.normal(size=(20, 7)) @ np.diag([1] * 6 + [0])
    queries[:, 6] = queries[:, 0] - queries[:, 1]
    distances = fit(rows, labels, ridge=1e-6).function(queries)
    true = reference(rows, labels, queries, ridge=1e-6)
    assert distances == pytest.approx(true, rel=1e-6)
    with pytest.raises(InputError, match="ridge"):
        fit(np.zeros((4, 2)), np.array([0, 0, 1, 1]))


def test_a_class_with_one_row_counts(rng):
    rows, labels = draw(rng)
    labels[labels == 2] = 1
    labels[7] = 2
    queries = rng.normal(size=(10, 6)) * 4
    distances = fit(rows, labels).function(queries)
    assert distances == pytest.approx(reference(rows, labels, queries), rel=1e-6)
    assert fit(rows, labels).function(rows[[7]])[0] == pytest.approx(0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64])
def test_labels_of_every_integer_type(dtype, rng):
    rows, labels = draw(rng)
    distances = fit(rows, labels.astype(dtype)).function(rows)
    assert np.array_equal(distances, fit(rows, labels).function(rows))


def test_batches_in_one_pass_give_the_same(rng):
    rows, labels = draw(rng)
    rows += 1e6  # a large mean must do no harm
    all_at_once = fit(rows, labels)
    p = predictions(rows, labels)
    in_batches = Mahalanobis.fit(
        (p[i : i + 7] for i in range(0, 400, 7)), space="features"
    )
    queries = rng.normal(size=(10, 6)) + 1e6
    assert in_batches.function(queries) == pytest.approx(
        all_at_once.function(queries), rel=1e-6
    )


def test_the_softmax_is_taken_without_its_last_entry(rng):
    z, labels = draw(rng, d=4, classes=4)
    p = softmax(z, axis=1)[:, :-1]
    distances = fit(z, labels, space="softmax").function(z[:20])
    assert distances == pytest.approx(
        reference(p, labels, p[:20], ridge=1e-9), rel=1e-5
    )
    order = [2, 0, 3, 1]  # which entry is left out does not matter
    turned = fit(z[:, order], labels, space="softmax").function(z[:20, order])
    assert turned == pytest.approx(distances, rel=1e-4)


@pytest.mark.parametrize("space", ["softmax", "logits", "features"])
def test_torch_agrees_and_differentiates(space, rng):
    rows, labels = draw(rng)
    score = fit(rows / 5, labels, space=space)
    x = torch.tensor(rows[:8] / 5, requires_grad=True)
    assert np.allclose(score.function(x).detach(), score.function(rows[:8] / 5))
    assert torch.autograd.gradcheck(score.function, x)


def test_files_round_trip_without_pickle(rng, tmp_path):
    rows, labels = draw(rng)
    score = fit(rows, labels, space="softmax", ridge=1e-5)
    path = tmp_path / "score.safetensors"
    score.save(path)
    loaded = Mahalanobis.load(path)
    assert (loaded.space, loaded.ridge) == ("softmax", 1e-5)
    assert np.array_equal(loaded.function(rows), score.function(rows))
    all_at_once = path.read_bytes()
    for content in (b"", b"junk", all_at_once[:50]):
        path.write_bytes(content)
        with pytest.raises(FileError, match="cannot read"):
            Mahalanobis.load(path)
    with pytest.raises(FileError, match="no file"):
        Mahalanobis.load(tmp_path / "absent")


def header(name, schema=2):
    content = {"trustdoctor": "score", "schema": schema, "name": name, "plain": {}}
    return {"json": json.dumps(content)}


def test_files_of_other_things_are_refused(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "other.safetensors"
    for metadata, match in (
        (None, "expected a score"),
        ({"json": "[1]"}, "expected a score"),
        (header("knn"), "holds a knn score"),
        (header("mahalanobis", schema=9), "of schema 2"),
        (header("mahalanobis"), "missing or unknown"),
    ):
        save_file({"x": np.zeros(2)}, path, metadata)
        with pytest.raises(FileError, match=match):
            Mahalanobis.load(path)


def test_predictions_are_scored_by_what_they_hold(rng):
    rows, labels = draw(rng, d=4, classes=3)
    p = Predictions.from_logits(rows, labels, features=rows[:, :2])
    for space, needs in (("softmax", "probs"), ("logits", "logits")):
        score = Mahalanobis.fit(p, space=space)
        assert score.needs == {needs}
        assert np.array_equal(score(p), score.function(rows))
    score = Mahalanobis.fit(p)
    assert score.space == "features"
    assert np.array_equal(score(p), score.function(rows[:, :2]))
    with pytest.raises(InputError, match="needs features"):
        score(Predictions.from_logits(rows))
    probs = Predictions.from_probs(softmax(rows, axis=1))
    with pytest.raises(InputError, match="needs true logits"):
        Mahalanobis.fit(p, space="logits")(probs)
    with pytest.raises(InputError, match="needs true logits"):
        Mahalanobis.fit(probs)


def test_mistakes_are_refused(rng):
    rows, labels = draw(rng)
    p = predictions(rows, labels)
    for bad, match in (
        (predictions(rows, labels + 1), "class 0 has none"),
        ([], "none"),
        (predictions(rows, np.where(labels == 1, -1, labels)), "label of every row"),
        (predictions(rows), "needs the true labels"),
        ([p, predictions(rows[:, :2], labels)], "features per row"),
        (predictions(np.where(rows > 9, np.nan, rows), labels), "finite"),
        (Predictions(rows, labels), "needs features"),
    ):
        with pytest.raises(InputError, match=match):
            Mahalanobis.fit(bad, space="features")
    for bad, match in (
        ((rows, labels[:3]), "integer labels"),
        ((rows, labels * 1.0), "integer labels"),
        ((rows[0], labels[:6]), "expected features"),
    ):
        with pytest.raises(InputError, match=match):
            ClassMoments().update(*bad)
    with pytest.raises(InputError, match="expected space"):
        Mahalanobis.fit(p, space="pixels")
    score = fit(rows, labels)
    with pytest.raises(InputError, match="6 features coordinates"):
        score.function(rows[:, :3])
    with pytest.raises(InputError, match="temperature 1"):
        score.function(rows, temperature=2.0)
    with pytest.raises(InputError, match="got shape"):
        score.function(rows[0])
    with pytest.raises(InputError, match="finite"):
        score.function(rows * np.nan)


def test_moments_stay_small():
    moments = ClassMoments()
    rng = np.random.default_rng(0)
    for _ in range(50):
        moments.update(rng.normal(size=(1000, 4)), rng.integers(0, 3, 1000))
    assert moments.means.shape == (3, 4)
    assert moments.scatter / moments.counts.sum() == pytest.approx(np.eye(4), abs=0.05)
