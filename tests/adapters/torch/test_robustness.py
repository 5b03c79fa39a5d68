"""The radius of a linear model is known."""

import pytest
import torch

import trustdoctor as td
from trustdoctor.adapters.torch import radius
from trustdoctor.errors import InputError


def test_the_radius_of_a_linear_model_is_exact():
    torch.manual_seed(0)
    model, x = torch.nn.Linear(5, 3), torch.randn(40, 5)
    examination = radius(model, x, batch_size=7, quiet=True)
    z = model(x).detach()
    top, second = z.topk(2, 1).indices.T
    w = model.weight.detach()
    gap = z.gather(1, top[:, None])[:, 0] - z.gather(1, second[:, None])[:, 0]
    expected = -gap / (w[top] - w[second]).abs().sum(1)
    torch.testing.assert_close(torch.from_numpy(examination.scores), expected)
    scaled = radius(model, x, scale=2.0, quiet=True)
    torch.testing.assert_close(torch.from_numpy(scaled.scores), expected / 2)


def test_a_nan_gradient_gives_a_nan_score():
    def model(x):  # the slope of a root at 0 is infinite, and none of it is NaN
        return torch.cat([2 + x[:, :1].sqrt() + 0 * x[:, 1:].sqrt(), 0 * x[:, :1]], 1)

    x = torch.tensor([[1.0, 1], [0, 1], [1, 0]])
    examination = radius(model, x, quiet=True)
    assert torch.from_numpy(examination.scores).isnan().tolist() == [False, True, True]
    with pytest.raises(InputError, match="NaN at row 1"):
        td.Gate(0.0, state="accept-all").accept(examination.scores)


def test_a_tie_that_nothing_moves_is_a_tie():
    examination = radius(lambda x: 0 * x, torch.ones(1, 2), quiet=True)
    assert examination.scores.tolist() == [0]
    sure = radius(
        lambda x: 0 * x + torch.tensor([1.0, 0]), torch.ones(1, 2), quiet=True
    )
    assert sure.scores.tolist() == [-torch.inf]
