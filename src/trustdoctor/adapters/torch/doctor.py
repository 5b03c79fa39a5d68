"""Doubt at a perturbed input: the partially black-box half of DOCTOR."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trustdoctor.adapters.torch.batches import Batch, Place, check_batch_size
from trustdoctor.adapters.torch.model import (
    Forward,
    as_model,
    call,
    embedded,
    lay_out,
    perturbed_place,
    run,
)
from trustdoctor.errors import InputError
from trustdoctor.evaluation import Protocols, evaluate_perturbed
from trustdoctor.gates import Gate, Screened
from trustdoctor.predictions import Predictions
from trustdoctor.scores import find_logit_score

Mode = Literal["eval", "as-is"]


class Objective(Protocol):
    """What `Doctor` needs of a score: a doubt on logits, and which way to step."""

    @property
    def name(self) -> str:
        """The score's name."""

    @property
    def perturbation_sign(self) -> int:
        """+1 to step towards more doubt, -1 towards less."""

    @property
    def about_class(self) -> bool:
        """Whether `function` takes the class that the doubt is about."""

    @property
    def function(self) -> Callable[..., Any]:
        """Takes logits and ``temperature=`` to the doubt of each row."""


@dataclass(frozen=True, eq=False)
class Examination:
    """The predictions and scores that `Doctor` computed.

    Attributes
    ----------
    predictions : Predictions
        The clean logits, and the labels if there were any. These are the
        predictions that the scores judge.
    scores : array (n,)
        The doubt at the perturbed input. For a score about one class (beta, msp,
        margin, ODIN) it is about the class predicted at the clean input.
    perturbed : Predictions or None
        The logits at the perturbed input; None without perturbation and where the
        first-order form did without them.
    perturbed_scores : array (n,), or None
        The doubt about the prediction at the perturbed input, which the paper judges:
        `scores`, but for a score about one class. None where `perturbed` is.

    Examples
    --------
    >>> data, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
    >>> found = Doctor(nn.Flatten(), score="beta", epsilon=0.1)([(data, labels)])
    >>> both = found.evaluate()
    >>> both.deployed.n_errors, both.paper.n_errors
    (1, 1)
    """

    predictions: Predictions
    scores: NDArray[Any]
    perturbed: Predictions | None = None
    perturbed_scores: NDArray[Any] | None = None

    def evaluate(self, **options: Any) -> Protocols:
        """Evaluate the scores under both protocols; options as `evaluate_perturbed`."""
        self.predictions.require_labels("an examination's evaluation")
        errors = self.predictions.errors
        if self.perturbed is None:
            return evaluate_perturbed(self.scores, errors, **options)
        return evaluate_perturbed(
            self.scores,
            errors,
            self.perturbed.errors,
            self.perturbed_scores,
            **options,
        )


class Doctor:
    r"""Wraps a classifier; called with inputs, it returns predictions and doubts.

    .. math:: \tilde x = x + \epsilon \, \mathrm{scale} \odot
              \mathrm{sign}(\nabla_x s(x))

    The doubt is :math:`s(\tilde x)`; the prediction that it judges is that of the
    clean input, also where the perturbed input would get another. ODIN and
    Mahalanobis step the other way, as their papers do.

    Parameters
    ----------
    model : torch.nn.Module, or function
        Left as found: modes, parameters, their gradients, buffers. A function takes
        inputs to logits; the networks that it names are left as found, too.
    score : str or score object
        A name from `SCORES` or "odin", or a fitted score such as `Mahalanobis`. ODIN's
        own paper sets temperature 1000 and epsilon 0.0014; DOCTOR's 1.3 and 0.
    temperature : float
        Divides the logits.
    epsilon : float
        The magnitude, in units of the model's input; 0 is the black-box case and
        needs no gradient.
    scale : number, sequence or Tensor, optional
        Multiplies epsilon; a vector holds one number per channel (dimension 1). With
        inputs (pixel - mean) / std, 1 / std makes epsilon a magnitude in pixels.
    order : int
        2 evaluates the model at the perturbed input; 1 takes the first-order form
        s(x) + epsilon sum(scale |grad s|), which saves that pass.
    batch_size : int
        For data that come as one tensor.
    device : optional
        Where the model is; only needed for models without parameters.
    forward : callable, optional
        ``forward(model, *inputs, **inputs)`` returning the logits, for models that
        return them in a way of their own.
    perturb : str or int, optional
        The name or position of the input to perturb, where there are several. Token ids
        (`input_ids`) are perturbed through their embeddings (`inputs_embeds`), which
        is our extension: the paper perturbs images alone.
    mode : str
        "eval", or "as-is" to leave dropout and batch normalisation as they are set.
    inputs, labels : int, str, or several, optional
        Which parts of a batch they are: positions in tuples, keys of dicts. By default
        tuples are (input, labels, ...) and dicts have usual keys. An input is handed
        on by name where the model takes that name. One-hot labels become classes.
    labelled : bool, optional
        True: the last part of a tuple is the labels, the others are inputs. False: all
        are inputs.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> found = Doctor(model, score="alpha", epsilon=0.01)(torch.randn(10, 4))
    >>> found.scores.shape, found.predictions.logits.shape
    ((10,), (10, 3))
    """

    def __init__(  # noqa: PLR0913 - options, by keyword only
        self,
        model: Any,
        *,
        score: "str | Objective" = "alpha",
        temperature: float = 1.0,
        epsilon: float = 0.0,
        scale: Any = None,
        order: Literal[1, 2] = 2,
        batch_size: int = 256,
        device: Any = None,
        forward: Forward | None = None,
        perturb: Place | None = None,
        mode: Mode = "eval",
        inputs: Any = None,
        labels: Place | None = None,
        labelled: bool | None = None,
    ) -> None:
        self.model = as_model(model)
        self.objective = find_objective(score)
        self.temperature = check_positive("temperature", temperature)
        self.epsilon = check_epsilon(epsilon)
        self.scale = scale
        self.order = check_choice("order", order, (1, 2))
        self.batch_size = check_batch_size(batch_size)
        self.device = device
        self.forward = forward
        self.perturb = perturb
        self.mode = check_choice("mode", mode, ("eval", "as-is"))
        named = {"inputs": inputs, "labels": labels, "labelled": labelled}
        self.layout = lay_out(self.model, forward, **named)

    def __call__(self, data: Any, *, quiet: bool = False) -> Examination:
        """Examine a tensor, a dict of tensors, an iterable of batches or a DataLoader.

        Parameters
        ----------
        data
            See `trustdoctor.adapters.torch.batches.BatchLayout` for what a batch is.
        quiet : bool
            Show no progress bar.
        """
        results = run(
            self.model,
            data,
            self._examine_batch,
            batch_size=self.batch_size,
            layout=self.layout,
            device=self.device,
            mode=self.mode,
            quiet=quiet,
        )
        clean_logits, perturbed_logits, rises, labels = zip(*results, strict=True)
        judged = predictions(clean_logits, labels)
        if self.order == 1 and self.epsilon:
            return Examination(judged, self._score(judged) + _join(rises))
        if self.epsilon == 0:
            return Examination(judged, self._score(judged))
        perturbed = predictions(perturbed_logits, labels)
        scores = self._score(perturbed, judged)
        about = self._score(perturbed) if self.objective.about_class else scores
        return Examination(judged, scores, perturbed, about)

    def screen(
        self, data: Any, gate: Gate, *, groups: Any = None, quiet: bool = False
    ) -> Screened:
        """Examine data, and decide on each row by a gate.

        The gate must be calibrated on what this very doctor finds. One that names a
        score stands for that score of clean logits, so with perturbation it must name
        none: make it with `calibrate_scores`.
        """
        self._check(gate)
        return self.decide(self(data, quiet=quiet), gate, groups=groups)

    def decide(
        self, examination: Examination, gate: Gate, *, groups: Any = None
    ) -> Screened:
        """Decide on rows that this doctor has examined."""
        self._check(gate)
        screened = gate.decide(
            examination.scores, examination.predictions, groups=groups
        )
        return replace(screened, predictions=examination.predictions)

    def _check(self, gate: Gate) -> None:
        if gate.score is None:
            return
        scored_by = (gate.score_name, gate.temperature)
        if self.epsilon or scored_by != (self.objective.name, self.temperature):
            message = (
                f"the gate is for {gate.score_name} of clean logits at temperature "
                f"{gate.temperature:g}, which this doctor does not score by. Calibrate "
                "one on its scores with calibrate_scores."
            )
            raise InputError(message)

    def _examine_batch(self, _i: int, batch: Batch, device: torch.device) -> Any:
        return (*self._examine(batch.to(device)), batch.labels)

    def _score(
        self, predictions: Predictions, judged: Predictions | None = None
    ) -> NDArray[Any]:
        """Score the joined logits, to the bit as `td.alpha` and the others would."""
        about = judged.predicted if judged is not None else None
        logits = predictions.logits
        return np.asarray(doubt(self.objective, logits, self.temperature, about))

    def _examine(self, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return clean logits, perturbed logits, and the first-order rise in doubt."""
        if self.epsilon == 0:
            return self._clean(batch), None, None
        with tracked(self.model, batch, self.forward, self.perturb) as traced:
            gradient = traced.gradient(
                doubt(self.objective, traced.logits, self.temperature)
            )
        clean = traced.logits.detach()
        size = self.objective.perturbation_sign * step_size(
            self.epsilon, self.scale, gradient
        )
        if self.order == 1:
            return clean, None, first_order(size, gradient)
        return clean, traced.logits_at(size * gradient.sign()), None

    @torch.no_grad()
    def _clean(self, batch: Batch) -> Tensor:
        return call(self.model, batch, self.forward)


@dataclass(eq=False)
class Traced:
    """A batch that went through the model in a way that can be differentiated."""

    model: nn.Module
    forward: Forward | None
    batch: Batch
    place: Place
    leaf: Tensor
    logits: Tensor

    def gradient(self, doubt: Tensor, *, keep: bool = False) -> Tensor:
        """Return the gradient of each row's doubt by its input."""
        (gradient,) = torch.autograd.grad(
            doubt.sum(), self.leaf, retain_graph=keep, allow_unused=True
        )
        if gradient is None:
            message = f"the logits do not depend on the input {self.place!r}."
            raise InputError(message)
        return gradient

    @torch.no_grad()
    def logits_at(self, shift: Tensor) -> Tensor:
        """Return the logits at the shifted input."""
        inputs = self.batch.replaced(self.place, self.leaf.detach() + shift)
        return call(self.model, inputs, self.forward)


def movable(
    model: nn.Module, batch: Batch, perturb: Place | None
) -> tuple[Batch, Place]:
    """Return which input a perturbation moves; token ids become their embeddings."""
    place = perturbed_place(batch, perturb)
    if place == "input_ids":
        return embedded(model, batch), "inputs_embeds"
    value = batch.inputs[place]
    if not value.is_floating_point():
        message = f"the input {place!r} is {value.dtype} and has no gradient."
        raise InputError(message)
    return batch, place


@contextmanager
def tracked(
    model: nn.Module, batch: Batch, forward: Forward | None, perturb: Place | None
) -> Iterator[Traced]:
    """Run the model on a batch so that its logits can be differentiated."""
    batch, place = movable(model, batch, perturb)
    value = batch.inputs[place]
    with torch.inference_mode(mode=False), torch.enable_grad():
        leaf = value.detach().clone().requires_grad_()
        # A copy goes in: models may work in place, which a leaf does not allow.
        logits = call(model, batch.replaced(place, leaf.clone()), forward)
        if not logits.requires_grad:
            message = (
                "the logits do not depend on the input through operations that can be "
                "differentiated. Look for no_grad, detach or numpy in the model."
            )
            raise InputError(message)
        yield Traced(model, forward, batch, place, leaf, logits)


def doubt(
    objective: Objective, logits: Any, temperature: float, predicted: Any = None
) -> Any:
    """Score logits; for a score about one class, about the class `predicted`."""
    if predicted is None or not objective.about_class:
        return objective.function(logits, temperature=temperature)
    return objective.function(logits, temperature=temperature, predicted=predicted)


def step_size(epsilon: float, scale: Any, like: Tensor) -> Tensor:
    """Return epsilon times scale in a shape that multiplies the input."""
    if scale is None:
        return torch.tensor(epsilon, dtype=like.dtype, device=like.device)
    try:
        factors = torch.as_tensor(scale, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError) as error:
        message = f"expected scale as numbers, got {scale!r}."
        raise InputError(message) from error
    if not ((factors >= 0) & torch.isfinite(factors)).all():
        message = "expected scale as numbers of 0 or more, got others."
        raise InputError(message)
    size = epsilon * factors
    if size.ndim == 1 and like.ndim > 2:
        size = size.reshape(1, -1, *[1] * (like.ndim - 2))
    try:
        size.expand_as(like)
    except RuntimeError:
        message = (
            f"expected scale as one number, or one per channel of an input of shape "
            f"{tuple(like.shape)}, got shape {tuple(size.shape)}."
        )
        raise InputError(message) from None
    return size


def first_order(size: Tensor, gradient: Tensor) -> Tensor:
    """Return the sum of size |gradient| of each row; NaN where it is not finite.

    Towards less doubt an infinite step would make a row fully certain.
    """
    # In half precision a sum over all pixels can overflow.
    wide = torch.promote_types(gradient.dtype, torch.float32)
    rise = (size * gradient.abs()).flatten(1).sum(1, dtype=wide)
    return torch.where(rise.isfinite(), rise, torch.nan)


def predictions(logits: Any, labels: Any) -> Predictions:
    """Join batches of logits and labels."""
    arrays = [np.asarray(to_cpu(batch)) for batch in labels if batch is not None]
    if arrays and len(arrays) != len(labels):
        message = "expected labels in all batches or in none, got some without."
        raise InputError(message)
    joined = np.concatenate(arrays) if arrays else None
    return Predictions.from_logits(_join(logits), joined)


def _join(tensors: Any) -> NDArray[Any]:
    return torch.cat([to_cpu(tensor) for tensor in tensors]).numpy()


def to_cpu(tensor: Any) -> Any:
    """Bring a tensor to the host; half precision becomes float32."""
    tensor = torch.as_tensor(tensor).detach().cpu()
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def find_objective(score: "str | Objective") -> "Objective":
    """Return a score by its name, or the fitted score itself."""
    if not isinstance(score, str):
        if not all(
            hasattr(score, name) for name in ("name", "perturbation_sign", "function")
        ):
            message = f"expected a score's name or a fitted score, got {score!r}."
            raise InputError(message)
        return score
    return find_logit_score(score)


def check_positive(name: str, value: float) -> float:
    """Refuse a value that is not finite and above zero."""
    if not (isinstance(value, Real) and 0 < float(value) < math.inf):
        message = f"expected {name} above 0, got {value!r}."
        raise InputError(message)
    return float(value)


def check_epsilon(value: float) -> float:
    """Refuse a magnitude below zero."""
    if not (isinstance(value, Real) and 0 <= float(value) < 1e30):
        message = f"expected epsilon of 0 or more, got {value!r}. 0 perturbs nothing."
        raise InputError(message)
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        message = f"expected {name} out of {choices}, got {value!r}."
        raise InputError(message)
    return value
