"""Mahalanobis over several layers: the paper's white-box baseline."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trustdoctor import tensors
from trustdoctor.adapters.torch.doctor import (
    Examination,
    check_positive,
    movable,
    predictions,
    step_size,
    tracked,
)
from trustdoctor.adapters.torch.model import (
    Batch,
    Forward,
    batches,
    call,
    check_model,
    count_batches,
    device_of,
    untouched,
)
from trustdoctor.errors import InputError, LabelsMissingError
from trustdoctor.progress import bar
from trustdoctor.scores.distance import ClassMoments, Mahalanobis

MAGNITUDE = 0.0031
"""The paper's magnitude of the adversarial examples."""

Array = NDArray[np.float64]


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
        One a layer, on its output averaged over all but the channels.
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
        """
        check_positive("magnitude", magnitude)
        check_positive("steps", steps)
        device = device_of(check_model(model), None)
        moments = [ClassMoments() for _ in layers]
        with bar(quiet=quiet) as tell, untouched(model, mode="eval"):
            with _watching(model, layers) as seen:
                for batch in _labelled(train, batch_size, tell, "class means"):
                    with torch.no_grad():
                        call(model, batch.to(device), forward)
                    for moment, features in zip(moments, seen(), strict=True):
                        moment.update(features, batch.labels)
            distances = tuple(
                Mahalanobis.from_moments(m, on="features", ridge=ridge) for m in moments
            )
            generator = torch.Generator(device=device).manual_seed(seed)
            rows: list[Array] = []
            adversarial: list[Array] = []
            for batch in _labelled(held_out, batch_size, tell, "adversarial examples"):
                clean = _correct_rows(model, batch.to(device), forward)
                if not len(clean):
                    continue
                moved = attack(
                    model, clean, magnitude, scale=scale, steps=steps,
                    forward=forward, generator=generator,
                )  # fmt: skip
                for part, out in ((clean, rows), (moved, adversarial)):
                    out.append(
                        _layer_distances(model, part, forward, layers, distances)[1]
                    )
        if not rows:
            message = "expected held-out rows that the model gets right, got none."
            raise InputError(message)
        x = np.concatenate([*rows, *adversarial])
        y = np.arange(len(x)) >= sum(map(len, rows))
        weights, bias = logistic_regression(x, y)
        return cls(tuple(layers), distances, weights, bias)

    def __call__(
        self,
        model: nn.Module,
        data: Any,
        *,
        batch_size: int = 256,
        forward: Forward | None = None,
        quiet: bool = False,
    ) -> Examination:
        """Examine data with the model that this was fitted on."""
        device = device_of(model, None)
        total = count_batches(data, batch_size)
        found = []
        with bar(quiet=quiet) as tell, untouched(model, mode="eval"):
            parts = batches(data, batch_size=batch_size, labelled=None)
            for i, batch in enumerate(parts):
                tell(i / total if total else 0.0, f"batch {i + 1}")
                logits, distances = _layer_distances(
                    model, batch.to(device), forward, self.layers, self.distances
                )
                found.append(
                    (logits, distances @ self.weights + self.bias, batch.labels)
                )
        clean, scores, labels = zip(*found, strict=True)
        return Examination(predictions(clean, labels), np.concatenate(scores))

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file, whole or not at all."""
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights}
        for i, distance in enumerate(self.distances):
            arrays |= {f"means_{i}": distance.means, f"factor_{i}": distance.factor}
        fields = {
            "layers": list(self.layers),
            "bias": self.bias,
            "ridge": self.distances[0].ridge,
        }
        tensors.save(path, "whitebox", arrays, fields)

    @classmethod
    def load(cls, path: str | Path) -> "WhiteBox":
        """Read what `save` wrote."""
        arrays, fields = tensors.load(path, "whitebox")
        with tensors.complaining(path):
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


def logistic_regression(
    x: Array, y: NDArray[np.bool_], *, penalty: float = 1.0, most: int = 100
) -> tuple[Array, float]:
    """Return weights and bias of an L2-penalised fit, by Newton's method.

    The columns are standardised for the fit; the weights returned are for x as it is.
    """
    centre, spread = x.mean(0), x.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    z = np.column_stack([(x - centre) / spread, np.ones(len(x))])
    ridge = np.full(z.shape[1], penalty)
    ridge[-1] = 0.0
    w = np.zeros(z.shape[1])
    for _ in range(most):
        p = 0.5 * (1 + np.tanh(z @ w / 2))
        gradient = z.T @ (p - y) + ridge * w
        hessian = (z * (p * (1 - p))[:, None]).T @ z + np.diag(ridge + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        w = w - step * min(1.0, 5.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-10:
            break
    weights = w[:-1] / spread
    return weights, float(w[-1] - weights @ centre)


@contextmanager
def _watching(model: nn.Module, layers: Sequence[str]) -> Iterator[Any]:
    """Yield a function that returns what the layers put out in the last call."""
    modules = dict(model.named_modules())
    missing = [name for name in layers if name not in modules]
    if missing or not layers:
        some = ", ".join(name for name in list(modules)[1:9])
        what = f"there is no layer {missing[0]!r}" if missing else "no layer was named"
        message = f"{what}; the model has: {some}, ..."
        raise InputError(message)
    seen: dict[str, Tensor] = {}

    def remember(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, (tuple, list)) else output
            seen[name] = _features(first.detach())

        return hook

    handles = [modules[name].register_forward_hook(remember(name)) for name in layers]
    try:
        yield lambda: [_seen(seen, name) for name in layers]
    finally:
        for handle in handles:
            handle.remove()


def _seen(seen: dict[str, Tensor], name: str) -> Tensor:
    if name in seen:
        return seen[name]
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
    with _watching(model, layers) as seen, torch.no_grad():
        logits = call(model, batch, forward)
        columns = [
            score.function(features).cpu().numpy()
            for score, features in zip(distances, seen(), strict=True)
        ]
    return logits, np.column_stack(columns)


def _correct_rows(model: nn.Module, batch: Batch, forward: Forward | None) -> Batch:
    assert batch.labels is not None
    with torch.no_grad():
        right = call(model, batch, forward).argmax(1).cpu() == batch.labels.cpu()
    kept = {
        place: value[right.to(value.device)] if isinstance(value, Tensor) else value
        for place, value in batch.inputs.items()
    }
    return Batch(kept, batch.labels.cpu()[right])


def _labelled(data: Any, batch_size: int, tell: Any, what: str) -> Iterator[Batch]:
    total = count_batches(data, batch_size)
    for i, batch in enumerate(batches(data, batch_size=batch_size, labelled=None)):
        if batch.labels is None:
            message = "fitting needs batches with labels: (input, labels) or a dict."
            raise LabelsMissingError(message)
        tell(i / total if total else 0.0, what)
        yield batch
