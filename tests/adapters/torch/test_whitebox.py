import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import trustdoctor as td
from trustdoctor.adapters.torch import WhiteBox
from trustdoctor.adapters.torch.model import Batch
from trustdoctor.adapters.torch.whitebox import _regression, attack
from trustdoctor.errors import FileError, InputError, LabelsMissingError


@pytest.fixture(scope="module")
def trained():
    """A small net on three clouds that overlap."""
    torch.manual_seed(0)
    labels = torch.arange(900) % 3
    x = torch.randn(900, 5) + 1.2 * nn.functional.one_hot(labels, 5)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        loss = nn.functional.cross_entropy(model(x[:300]), labels[:300])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model, [(x[i : i + 300], labels[i : i + 300]) for i in (0, 300, 600)]


def fitted(trained, **options):
    model, (train, held_out, _) = trained
    layers = ["0", "1", "2"]
    options = {"layers": layers, "magnitude": 0.4} | options
    return WhiteBox.fit(model, [train], [held_out], **options)


def test_the_regression_meets_scikit_learn(rng):
    x = rng.normal(size=(500, 3)) * [1, 10, 0.1] + 5
    y = rng.random(500) < 1 / (1 + np.exp(-(x[:, 0] - 5 + 0.2 * (x[:, 1] - 5))))
    weights, bias = _regression([(x[~y], x[y])])
    z = (x - x.mean(0)) / x.std(0)
    peer = LogisticRegression(C=1.0, tol=1e-10).fit(z, y)
    assert weights * x.std(0) == pytest.approx(peer.coef_[0], rel=1e-5)
    ours, theirs = x @ weights + bias, peer.decision_function(z)
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_separable_sample_does_not_run_away():
    x = np.arange(20.0)[:, None]
    weights, bias = _regression([(x[:10], x[10:])])
    assert np.isfinite(weights).all()
    assert abs(9.5 * weights[0] + bias) < 1e-6


def test_the_attack_stays_within_reach_and_raises_the_loss(trained):
    model, (_, (x, labels), _) = trained
    moved = attack(model, Batch({0: x}, labels), 0.3, scale=None)
    shift = (moved.inputs[0] - x).abs()
    assert shift.max() <= 0.3 + 1e-6
    loss = nn.functional.cross_entropy
    before = loss(model(x), labels, reduction="none")
    after = loss(model(moved.inputs[0]), labels, reduction="none")
    assert (after > before).float().mean() > 0.95


def test_adversarial_examples_are_distinguished_from_clean_ones(trained):
    model, (_, _, (x, labels)) = trained
    right = model(x).argmax(1) == labels
    clean = Batch({0: x[right]}, labels[right])
    moved = attack(model, clean, 2.0)
    score = fitted(trained, magnitude=2.0)
    doubts = [score(model, batch.inputs[0]).scores for batch in (clean, moved)]
    adversarial = np.arange(2 * len(doubts[0])) >= len(doubts[0])
    assert td.auroc(np.concatenate(doubts), adversarial) > 0.6


def test_the_doubt_is_the_weighted_sum_of_distances(trained):
    model, (_, _, (x, labels)) = trained
    score = fitted(trained)
    examination = score(model, [(x, labels)])
    total = score.bias
    with torch.no_grad():
        for layer, distance, weight in zip(
            model, score.distances, score.weights, strict=True
        ):
            x = layer(x)
            total = total + weight * distance.function(x.numpy())
    assert examination.scores == pytest.approx(total, rel=1e-6)
    assert examination.predictions.labels.tolist() == labels.tolist()


def test_feature_maps_are_averaged_over_positions(small, images):
    labels = torch.arange(20) % 4
    small.eval()
    calibration_batches = [(images, small(images.clone()).argmax(1))]
    score = WhiteBox.fit(
        small, [(images, labels)], calibration_batches, layers=["conv", "head"]
    )
    assert score.distances[0].means.shape == (4, 8)
    assert not small.conv._forward_hooks


def test_files_round_trip(trained, tmp_path):
    model, (_, _, (x, _)) = trained
    score = fitted(trained)
    score.save(tmp_path / "wb.safetensors")
    loaded = WhiteBox.load(tmp_path / "wb.safetensors")
    assert loaded.layers == score.layers
    assert np.array_equal(loaded(model, x).scores, score(model, x).scores)
    with pytest.raises(FileError, match="a whitebox score, not a mahalanobis"):
        td.Mahalanobis.load(tmp_path / "wb.safetensors")


def test_labels_may_be_bytes(trained):
    model, batches = trained
    bytes_ = model, [(x, labels.to(torch.uint8)) for x, labels in batches]
    assert np.array_equal(fitted(bytes_).weights, fitted(trained).weights)


def test_the_same_seed_gives_the_same_fit(trained):
    assert np.array_equal(fitted(trained).weights, fitted(trained).weights)


def test_mistakes_are_refused(trained):
    model, (train, held_out, _) = trained
    for layers in ([], ["head"]):
        with pytest.raises(InputError, match="the model has"):
            fitted(trained, layers=layers)
    for options in ({"steps": -1}, {"magnitude": 0.0}):
        with pytest.raises(InputError, match="above 0"):
            fitted(trained, **options)
    idle = nn.Sequential(model)
    idle.unused = nn.Identity()
    idle.forward = model.forward
    with pytest.raises(InputError, match="was not called"):
        WhiteBox.fit(idle, [train], [held_out], layers=["unused"])
    with pytest.raises(LabelsMissingError, match="labels"):
        WhiteBox.fit(model, train[0], [held_out], layers=["0"])
    wrong = (held_out[0], (model(held_out[0]).argmax(1) + 1) % 3)
    with pytest.raises(InputError, match="gets right"):
        WhiteBox.fit(model, [train], [wrong], layers=["0"])


def test_a_layer_that_overflows_is_not_trusted():
    """For either sign of its weight, even though the logits are finite."""
    model = nn.Sequential(nn.Identity(), nn.Tanh(), nn.Linear(2, 2)).double()
    x = torch.tensor([[1.0, 0], [1e200, 0]], dtype=torch.float64)  # squared: infinite
    near = td.Mahalanobis(np.eye(2), np.eye(2), "features")
    for weight in (-1.0, 1.0):
        score = WhiteBox(("0",), (near,), np.array([weight]), 0.0)
        examination = score(model, x, quiet=True)
        assert np.isfinite(examination.predictions.logits).all()
        assert np.isnan(examination.scores).tolist() == [False, True]
