"""Every way of calling a torch model leaves the model as it was."""

from types import SimpleNamespace

import pytest
import torch

import trustdoctor as td
from trustdoctor.adapters.torch import Doctor, WhiteBox, predictor, radius, sweep
from trustdoctor.errors import InputError


class Noted(Exception):  # noqa: N818 - no mistake
    """What the model raises."""


def restless(model):
    """Let every call of the model change its buffers, and raise at call `last`."""
    model.register_buffer("n_calls", torch.zeros(3))
    model.calls, model.last, plain = 0, 0, model.forward

    def forward(x):
        answer = plain(x)
        model.calls += 1
        model.n_calls += 1
        model.norm.num_batches_tracked += 5
        model.norm.running_mean = model.norm.running_mean.clone()
        model.norm.register_buffer("late", torch.ones(2))
        if model.calls == model.last:
            raise Noted
        return answer

    model.forward = forward
    return model


def mixed(model, mode):
    """Set modes, flags and gradients that differ between layers."""
    model.train(mode == "train")
    odd = model.drop if mode == "train" else model.norm
    odd.train(mode != "train")
    model.conv.weight.requires_grad_(requires_grad=False)
    model.head.weight.grad = torch.full_like(model.head.weight, 2.0)
    return model


GRID = {"temperatures": [1.0], "epsilons": [0.0, 0.1], "quiet": True}
LAYERS = ["conv", "head"]

# Each takes the model, images, and whatever else the call needs.
CALLS = {
    "doctor": lambda m, x, _: Doctor(m)(x),
    "doctor as it is": lambda m, x, _: Doctor(m, mode="as-is")(x),
    "perturbed": lambda m, x, _: Doctor(m, epsilon=0.1, batch_size=9)(x),
    "perturbed as it is": lambda m, x, _: Doctor(m, epsilon=0.1, mode="as-is")(x),
    "first order": lambda m, x, _: Doctor(m, epsilon=0.1, order=1)(x),
    "screened": lambda m, x, _: Doctor(m, batch_size=9).screen(x, td.Gate(0.0)),
    "sweep": lambda m, x, _: sweep(m, x, **GRID),
    "radius": lambda m, x, _: radius(m, x, quiet=True),
    "whitebox fit": lambda m, x, beside: WhiteBox.fit(
        m, [(x, beside.labels)], [(x, beside.right)], layers=LAYERS
    ),
    "whitebox": lambda m, x, beside: beside.whitebox(m, x),
    "predictor": lambda m, x, _: predictor(m)(x),
    "function": lambda m, x, _: Doctor(lambda x: 2 * m(x), epsilon=0.1)(x),
    "opinion of a function": lambda m, x, _: td.SecondOpinion(
        lambda x: 2 * m(x), td.image_views(1)
    )(x),
    "opinion": lambda m, x, _: td.SecondOpinion(m, td.image_views(1))(x),
}


@pytest.fixture
def beside(small, images):
    """Further arguments of the calls: labels, and a fitted score."""
    labels, right = torch.arange(20) % 4, small.eval()(images.clone()).argmax(1)
    whitebox = WhiteBox.fit(small, [(images, labels)], [(images, right)], layers=LAYERS)
    return SimpleNamespace(labels=labels, right=right, whitebox=whitebox)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", CALLS)
def test_a_model_is_left_as_found(name, mode, small, images, beside, state):
    model = restless(mixed(small, mode))
    before, pixels = state(model), images.clone()
    CALLS[name](model, images, beside)
    assert state(model) == before
    assert torch.equal(images, pixels)
    assert not images.requires_grad
    calls = model.calls
    assert calls > 0
    for last in {1, calls}:
        model.calls, model.last = 0, last
        with pytest.raises(Noted):
            CALLS[name](model, images, beside)
        assert state(model) == before
        assert torch.equal(images, pixels)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", CALLS)
def test_a_backward_pass_may_wait(name, mode, small, images, beside):
    """A training step may look at its model between its forward and backward."""
    mixed(small, mode)
    weights = [w for w in small.parameters() if w.requires_grad]
    loss = small(images.clone()).square().sum()
    expected = torch.autograd.grad(loss, weights, retain_graph=True)
    CALLS[name](small, images, beside)
    gradients = torch.autograd.grad(loss, weights)
    assert all(map(torch.equal, gradients, expected))


@pytest.mark.parametrize("name", ["doctor", "sweep", "predictor"])
def test_another_device_is_refused_and_nothing_moves(name, small, images, state):
    before = state(small)
    ask = {
        "doctor": lambda device: Doctor(small, device=device)(images),
        "sweep": lambda device: sweep(small, images, device=device, **GRID),
        "predictor": lambda device: predictor(small, device=device)(images),
    }[name]
    ask("cpu")
    for device, word in (("meta", r"the model is on cpu"), ("nowhere", "torch device")):
        with pytest.raises(InputError, match=word):
            ask(device)
    assert state(small) == before
