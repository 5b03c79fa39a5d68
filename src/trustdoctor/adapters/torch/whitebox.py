"""Mahalanobis over several layers: the paper's white-box baseline."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trustdoctor.adapters.torch.batches import Batch, Place
from trustdoctor.adapters.torch.doctor import (
    Examination,
    check_positive,
    movable,
    predictions,
    step_size,
    tracked,
)
from trustdoctor.adapters.torch.model import (
    Forward,
    call,
    check_model,
    device_of,
    lay_out,
    run,
)
from trustdoctor.arrays import Array
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.scores import (
    ClassMoments,
    Mahalanobis,
    fit_logistic,
    standardise,
    storage,
)

MAGNITUDE = 0.0031
"""The paper's magnitude of the adversarial examples."""


@dataclass(frozen=True, eq=False)
class WhiteBox:
    r"""Distances at several layers, weighted by a logistic regression.

    The doubt is the log odds :math:`b + \sum_l w_l M_l(x)` of being an adversarial
    example, where :math:`M_l` is the Mahalanobis distance to the nearest class at layer
    l. The regression tells correctly classified rows from adversarial examples made of
    them by projected gradient descent.

    Attributes
    ----------
    layers : tuple of str
        Names of modules, as in ``model.named_modules()``.
    distances : tuple of Mahalanobis
        One per layer, on its output averaged over all but the channels.
    weights : array (layers,)
    bias : float

    References
    ----------
    Lee et al., NeurIPS 2018; Granese et al., DOCTOR, NeurIPS 2021, appendix C.
    """

    layers: tuple[str, ...]
    distances: tuple[Mahalanobis, ...] = field(repr=False)
    weights: Array
    bias: float

    @classmethod
    def fit(  # noqa: PLR0913 - options, by keyword only
        cls,
        model: nn.Module,
        train: Any,
        held_out: Any,
        *,
        layers: Sequence[str],
        magnitude: float = MAGNITUDE,
        scale: Any = None,
        steps: int = 10,
        ridge: float = 1e-6,
        batch_size: int = 256,
        forward: Forward | None = None,
        inputs: Any = None,
        labels: Place | None = None,
        seed: int = 0,
        quiet: bool = False,
    ) -> "WhiteBox":
        """Fit class means and covariances on `train`, the regression on `held_out`.

        Parameters
        ----------
        train, held_out
            Batches with labels, as `Doctor` takes them.
        layers : sequence of str
            Names of modules.
        magnitude : float
            Of the adversarial examples, in units of the input; `scale` as in `Doctor`.
        steps : int
            Of the attack, each a quarter of the magnitude, from a random start.
        ridge : float
            As in `Mahalanobis`.
        batch_size, forward, inputs, labels, quiet
            As in `Doctor`.
        """
        check_positive("magnitude", magnitude)
        check_positive("steps", steps)
        layout = lay_out(check_model(model), forward, inputs=inputs, labels=labels)
        options: dict[str, Any] = {
            "batch_size": batch_size,
            "quiet": quiet,
            "layout": layout,
        }
        distances = _class_distances(model, train, layers, ridge, forward, **options)
        generator = torch.Generator(device=device_of(model, None)).manual_seed(seed)

        def work(_i: int, batch: Batch, device: torch.device) -> Any:
            clean = _correct_rows(model, _labelled(batch).to(device), forward)
            if not len(clean):
                return None
            adversarial = attack(
                model,
                clean,
                magnitude,
                scale=scale,
                steps=steps,
                forward=forward,
                generator=generator,
            )
            return [
                _layer_distances(model, inputs, forward, layers, distances)[1]
                for inputs in (clean, adversarial)
            ]

        pairs = run(model, held_out, work, **options)
        weights, bias = _regression([pair for pair in pairs if pair is not None])
        return cls(tuple(layers), distances, weights, bias)

    def __call__(  # noqa: PLR0913 - options, by keyword only
        self,
        model: nn.Module,
        data: Any,
        *,
        batch_size: int = 256,
        forward: Forward | None = None,
        inputs: Any = None,
        labels: Place | None = None,
        quiet: bool = False,
    ) -> Examination:
        """Examine data with the model that this was fitted on; options as in `fit`."""
        layout = lay_out(check_model(model), forward, inputs=inputs, labels=labels)

        def work(_i: int, batch: Batch, device: torch.device) -> Any:
            logits, distances = _layer_distances(
                model, batch.to(device), forward, self.layers, self.distances
            )
            return logits, self._doubts(distances), batch.labels

        options: dict[str, Any] = {"batch_size": batch_size, "quiet": quiet}
        results = run(model, data, work, layout=layout, **options)
        logits, scores, labels_by_batch = zip(*results, strict=True)
        return Examination(predictions(logits, labels_by_batch), np.concatenate(scores))

    def _doubts(self, distances: Array) -> Array:
        """Weight distances; NaN where one is not finite, whatever its weight's sign."""
        finite = np.isfinite(distances).all(1, keepdims=True)
        # An infinite distance times a negative weight would make the row trusted.
        distances = np.where(finite, distances, np.nan)
        return np.asarray(distances @ self.weights + self.bias)

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file, whole or not at all."""
        arrays: dict[str, Array] = {"weights": self.weights}
        for i, distance in enumerate(self.distances):
            arrays |= {f"means_{i}": distance.means, f"factor_{i}": distance.factor}
        fields = {
            "layers": list(self.layers),
            "bias": self.bias,
            "ridge": self.distances[0].ridge,
        }
        storage.save(path, "whitebox", arrays, fields)

    @classmethod
    def load(cls, path: str | Path) -> "WhiteBox":
        """Read what `save` wrote."""
        kind, arrays, fields = storage.load(path)
        if kind != "whitebox":
            message = f"{path} holds a {kind} score, not a whitebox score."
            raise FileError(message)
        with storage.naming_path(path):
            distances = tuple(
                Mahalanobis(
                    arrays[f"means_{i}"],
                    arrays[f"factor_{i}"],
                    "features",
                    fields["ridge"],
                )
                for i in range(len(fields["layers"]))
            )
            weights, bias = arrays["weights"], fields["bias"]
            return cls(tuple(fields["layers"]), distances, weights, bias)


def attack(  # noqa: PLR0913 - options, by keyword only
    model: nn.Module,
    batch: Batch,
    magnitude: float,
    *,
    scale: Any = None,
    steps: int = 10,
    forward: Forward | None = None,
    generator: torch.Generator | None = None,
) -> Batch:
    """Return adversarial examples by projected gradient descent, in the maximum norm.

    Each step raises the cross-entropy of the labels by a quarter of the magnitude, from
    a random start.

    References
    ----------
    Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, 2018.
    """
    assert batch.labels is not None
    labels = batch.labels
    batch, place = movable(model, batch, None)
    origin = batch.inputs[place]
    reach = step_size(magnitude, scale, origin).expand_as(origin)
    noise = torch.rand(
        origin.shape, generator=generator, device=origin.device, dtype=origin.dtype
    )
    shift = (2 * noise - 1) * reach
    labels = labels.to(origin.device).long()
    for _ in range(steps):
        moved = batch.replaced(place, origin + shift)
        with tracked(model, moved, forward, None) as traced:
            loss = nn.functional.cross_entropy(traced.logits, labels, reduction="none")
            gradient = traced.gradient(loss)
        shift = (shift + gradient.sign() * reach / 4).clamp(-reach, reach)
    return batch.replaced(place, origin + shift)


def _class_distances(
    model: nn.Module,
    train: Any,
    layers: Sequence[str],
    ridge: float,
    forward: Forward | None,
    **options: Any,
) -> tuple[Mahalanobis, ...]:
    """Fit the distance to the nearest class at each layer."""
    moments = [ClassMoments() for _ in layers]
    with _layer_outputs(check_model(model), layers) as outputs:

        def work(_i: int, batch: Batch, device: torch.device) -> None:
            with torch.no_grad():
                call(model, _labelled(batch).to(device), forward)
            for moment, features in zip(moments, outputs(), strict=True):
                moment.update(features, batch.labels)

        run(model, train, work, **options)
    return tuple(
        Mahalanobis.from_moments(m, space="features", ridge=ridge) for m in moments
    )


def _regression(pairs: list[Any]) -> tuple[Array, float]:
    """Tell clean rows from adversarial ones; the weights are for distances as such."""
    if not pairs:
        message = "expected held-out rows that the model gets right, got none."
        raise InputError(message)
    rows, adversarial = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    x = np.concatenate([rows, adversarial])
    design, means, spreads = standardise(x)
    weights, bias = fit_logistic(design, np.arange(len(x)) >= len(rows))
    # The regression saw standardised distances; new rows come as they are.
    weights = weights / spreads
    return weights, float(bias - weights @ means)


@contextmanager
def _layer_outputs(model: nn.Module, layers: Sequence[str]) -> Iterator[Any]:
    """Yield a function that returns the layers' outputs of the last call."""
    modules = dict(model.named_modules())
    missing = [name for name in layers if name not in modules]
    if missing or not layers:
        names = ", ".join(name for name in list(modules)[1:9])
        problem = "no layer was named"
        if missing:
            problem = f"there is no layer {missing[0]!r}"
        message = f"{problem}; the model has: {names}, ..."
        raise InputError(message)
    outputs: dict[str, Tensor] = {}

    def hook_for(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, (tuple, list)) else output
            outputs[name] = _features(first.detach())

        return hook

    handles = [modules[name].register_forward_hook(hook_for(name)) for name in layers]
    try:
        yield lambda: [_output_of(outputs, name) for name in layers]
    finally:
        for handle in handles:
            handle.remove()


def _output_of(outputs: dict[str, Tensor], name: str) -> Tensor:
    if name in outputs:
        return outputs[name]
    message = f"the layer {name!r} was not called; name layers that every row passes."
    raise InputError(message)


def _features(output: Tensor) -> Tensor:
    """Average over all but rows and channels (tokens: rows and features)."""
    if output.ndim == 3:
        return output.mean(1)
    return output.flatten(2).mean(2) if output.ndim > 3 else output


def _layer_distances(
    model: nn.Module,
    batch: Batch,
    forward: Forward | None,
    layers: Sequence[str],
    distances: Sequence[Mahalanobis],
) -> tuple[Tensor, Array]:
    with _layer_outputs(model, layers) as outputs, torch.no_grad():
        logits = call(model, batch, forward)
        columns = [
            score.function(features).cpu().numpy()
            for score, features in zip(distances, outputs(), strict=True)
        ]
    return logits, np.column_stack(columns)


def _correct_rows(model: nn.Module, batch: Batch, forward: Forward | None) -> Batch:
    assert batch.labels is not None
    with torch.no_grad():
        # An attack on a row that is wrong already need not change anything.
        correct = call(model, batch, forward).argmax(1).cpu() == batch.labels.cpu()
    inputs = {
        place: value[correct.to(value.device)] if isinstance(value, Tensor) else value
        for place, value in batch.inputs.items()
    }
    return Batch(inputs, batch.labels.cpu()[correct])


def _labelled(batch: Batch) -> Batch:
    if batch.labels is None:
        message = "fitting needs batches with labels: (input, labels) or a dict."
        raise LabelsMissingError(message)
    if batch.labels.is_floating_point():  # NaN stands for a missing label
        message = "fitting needs a label for every row, and some are NaN. Drop those."
        raise LabelsMissingError(message)
    return batch
