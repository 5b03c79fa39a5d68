"""How far an input is from where the prediction would change, to first order."""

from typing import Any

import numpy as np
import torch

from trustdoctor.adapters.torch.batches import Batch, Place
from trustdoctor.adapters.torch.doctor import (
    Examination,
    first_order,
    predictions,
    step_size,
    tracked,
)
from trustdoctor.adapters.torch.model import Forward, as_model, lay_out, run
from trustdoctor.scores import margin


def radius(  # noqa: PLR0913 - options, by keyword only
    model: Any,
    data: Any,
    *,
    scale: Any = None,
    batch_size: int = 256,
    forward: Forward | None = None,
    perturb: Place | None = None,
    inputs: Any = None,
    labels: Place | None = None,
    labelled: bool | None = None,
    quiet: bool = False,
) -> Examination:
    r"""Score inputs by minus the robust radius.

    .. math:: -\frac{z_1 - z_2}{\|\nabla_x (z_1 - z_2)\|_1}

    with the two largest logits: the least change of every input coordinate that would
    make them equal, were the model linear.

    Parameters
    ----------
    model, data, scale, batch_size, forward, perturb, inputs, labels, labelled, quiet
        As in `Doctor`; `scale` puts the radius into other units than the input's.

    Examples
    --------
    >>> from torch import nn
    >>> found = radius(nn.Linear(4, 3), torch.randn(10, 4), quiet=True)
    >>> found.scores.shape, bool((found.scores <= 0).all())
    ((10,), True)
    """
    model = as_model(model)
    layout = lay_out(model, forward, inputs=inputs, labels=labels, labelled=labelled)

    def work(_i: int, batch: Batch, device: torch.device) -> Any:
        with tracked(model, batch.to(device), forward, perturb) as traced:
            gap = margin(traced.logits)
            gradient = traced.gradient(gap)
        reach = first_order(step_size(1.0, scale, gradient), gradient)
        gap = gap.detach()
        doubt = torch.where(gap < 0, gap / reach, gap)  # where nothing moves it, -inf
        return traced.logits.detach(), doubt.float().cpu().numpy(), batch.labels

    results = run(model, data, work, batch_size=batch_size, layout=layout, quiet=quiet)
    logits, doubts, labels_by_batch = zip(*results, strict=True)
    return Examination(predictions(logits, labels_by_batch), np.concatenate(doubts))
