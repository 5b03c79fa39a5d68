"""The radius of a linear model is known."""

import torch

from trustdoctor.adapters.torch import radius


def test_the_radius_of_a_linear_model_is_exact():
    torch.manual_seed(0)
    model, x = torch.nn.Linear(5, 3), torch.randn(40, 5)
    found = radius(model, x, batch_size=7, quiet=True)
    z = model(x).detach()
    top, second = z.topk(2, 1).indices.T
    w = model.weight.detach()
    gap = z.gather(1, top[:, None])[:, 0] - z.gather(1, second[:, None])[:, 0]
    expected = -gap / (w[top] - w[second]).abs().sum(1)
    torch.testing.assert_close(torch.from_numpy(found.scores), expected)
    scaled = radius(model, x, scale=2.0, quiet=True)
    torch.testing.assert_close(torch.from_numpy(scaled.scores), expected / 2)
