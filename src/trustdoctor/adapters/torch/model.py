"""Calling a torch model: batches in, logits out, nothing left changed."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trustdoctor.adapters.errors import as_input_errors
from trustdoctor.adapters.torch.batches import (
    Batch,
    BatchLayout,
    Place,
    batches,
    call_signature,
)
from trustdoctor.errors import InputError
from trustdoctor.progress import Tell, bar

__all__ = [
    "Batch",
    "Forward",
    "Function",
    "Place",
    "as_device",
    "as_model",
    "call",
    "check_model",
    "device_of",
    "embedded",
    "lay_out",
    "networks",
    "perturbed_place",
    "predictor",
    "run",
    "untouched",
]

Forward = Callable[..., Tensor]
Result = TypeVar("Result")


class Function(nn.Module):
    """A plain function as a model, with the networks that it refers to."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.networks = nn.ModuleList(networks(function))

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*inputs, **named)


def networks(function: Callable[..., Any]) -> list[nn.Module]:
    """Return the networks that a function names, holds or belongs to.

    Examples
    --------
    >>> net = nn.Linear(2, 3)
    >>> networks(lambda x: net(x).softmax(1))
    [Linear(in_features=2, out_features=3, bias=True)]
    """
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        near = [function.func, *function.args, *function.keywords.values()]
    elif inspect.isfunction(function):
        referenced = inspect.getclosurevars(function)
        near = [*referenced.nonlocals.values(), *referenced.globals.values()]
    else:
        owner = getattr(function, "__self__", function)
        near = [owner, *getattr(owner, "__dict__", {}).values()]
    modules = [value for value in near if isinstance(value, nn.Module)]
    return list({id(module): module for module in modules}.values())


def as_model(model: Any) -> nn.Module:
    """Return a network: the model itself, or one around a function of inputs to logits.

    Networks that a function refers to are treated as models are.
    """
    if isinstance(model, nn.Module):
        return model
    if callable(model) and not isinstance(model, type):
        return Function(model)
    name = type(model).__name__
    if isinstance(model, type):
        name = f"the class {model.__name__}"
    message = (
        f"expected a torch.nn.Module or a function of inputs to logits, got {name}."
    )
    raise InputError(message)


def lay_out(
    model: nn.Module,
    forward: Forward | None = None,
    *,
    inputs: Any = None,
    labels: Place | None = None,
    labelled: bool | None = None,
) -> BatchLayout:
    """Return how to sort the batches of a model; see `BatchLayout`."""
    if forward is not None:
        takes = call_signature(forward, after=1)
    else:
        function = model.function if isinstance(model, Function) else model.forward
        takes = call_signature(function)
    return BatchLayout(inputs, labels, labelled, takes)


def check_model(model: Any) -> nn.Module:
    """Refuse an object that is not a torch module."""
    if not isinstance(model, nn.Module):
        message = f"expected a torch.nn.Module, got {type(model).__name__}."
        raise InputError(message)
    return model


def call(model: nn.Module, batch: Batch, forward: Forward | None) -> Tensor:
    """Return the logits (n, C) of a batch."""
    args = [v for k, v in batch.inputs.items() if isinstance(k, int)]
    named = {k: v for k, v in batch.inputs.items() if isinstance(k, str)}
    with as_input_errors(*batch.inputs.values()):
        output = forward(model, *args, **named) if forward else model(*args, **named)
    logits = output if forward else _pick(output)
    if not isinstance(logits, Tensor):
        message = (
            f"expected logits as a tensor, got {type(logits).__name__}. Pass forward=, "
            "a function of the model and its inputs that returns the logits."
        )
        raise InputError(message)
    if logits.ndim != 2 or logits.shape[1] < 2 or not _real(logits):
        message = (
            f"expected logits of shape (n, C) with C >= 2, got {logits.dtype} of shape "
            f"{tuple(logits.shape)}. Pass forward= to pick or reshape them."
        )
        if _real(logits) and logits.numel() == len(batch):
            message += f" {ONE_OUTPUT}"
        raise InputError(message)
    _check_rows(logits, batch)
    return logits


ONE_OUTPUT = (
    "If the one output is the log odds of the second of two classes: "
    "forward=lambda m, x: torch.nn.functional.pad(m(x).reshape(-1, 1), (1, 0))."
)


def _check_rows(logits: Tensor, batch: Batch) -> None:
    """Refuse logits of other rows than the batch's, or of other classes."""
    if len(logits) != len(batch):
        message = f"expected logits for each of {len(batch)} rows, got {len(logits)}."
        raise InputError(message)
    if batch.classes and batch.classes != logits.shape[1]:
        message = (
            f"expected one-hot labels with a column for each of {logits.shape[1]} "
            f"classes, got {batch.classes} columns. Give the model's own classes."
        )
        raise InputError(message)


def _pick(output: Any) -> Any:
    """Find the logits in what a model returns."""
    if isinstance(output, Tensor):
        return output
    if hasattr(output, "logits"):
        return output.logits
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    if isinstance(output, (tuple, list)) and output:
        return output[0]
    return output


def perturbed_place(batch: Batch, perturb: Place | None) -> Place:
    """Return which input the perturbation moves."""
    if perturb is not None:
        if perturb not in batch.inputs:
            names = ", ".join(map(str, batch.inputs))
            message = f"there is no input {perturb!r} to perturb; there are: {names}."
            raise InputError(message)
        return perturb
    real = [k for k, v in batch.inputs.items() if isinstance(v, Tensor) and _real(v)]
    if len(real) == 1 or (real and 0 in real):
        return real[0]
    if real:
        names = ", ".join(map(str, real))
        message = (
            f"several inputs could be perturbed ({names}). Name one with perturb=."
        )
        raise InputError(message)
    if "input_ids" in batch.inputs:
        return "input_ids"
    message = (
        "expected an input of floating type to perturb, got integers alone, which have "
        "no gradient. Use epsilon=0, or hand token ids in as input_ids to a model with "
        "get_input_embeddings."
    )
    raise InputError(message)


def embedded(model: nn.Module, batch: Batch) -> Batch:
    """Exchange token ids for their embeddings (our extension of the method)."""
    find: Any = getattr(model, "get_input_embeddings", None)
    if find is None:
        message = (
            "token ids have no gradient, and this model has no get_input_embeddings to "
            "perturb their embeddings instead. Use epsilon=0, or pass the embeddings "
            "in as inputs_embeds."
        )
        raise InputError(message)
    inputs = dict(batch.inputs)
    with torch.no_grad():
        inputs["inputs_embeds"] = find()(inputs.pop("input_ids"))
    return Batch(inputs, batch.labels)


@contextmanager
def untouched(model: nn.Module, *, mode: str) -> Iterator[None]:
    """Restore the model's modes and buffers afterwards, also after an exception.

    Parameters and their `.grad` are never written to in the first place.
    """
    before = [
        (module, module.training, _buffer_copies(module)) for module in model.modules()
    ]
    try:
        if mode == "eval":
            model.eval()
        yield
    finally:
        for module, training, buffers in before:
            module.training = training
            for name in set(module._buffers) - set(buffers):
                delattr(module, name)
            for name, (tensor, content) in buffers.items():
                module._buffers[name] = tensor
                if tensor is not None:
                    # A backward pass that waits must not see this as a change.
                    tensor.data.copy_(content)


def _buffer_copies(module: nn.Module) -> dict[str, tuple[Tensor | None, Any]]:
    """Return each buffer with a copy of its content."""
    return {
        name: (buffer, None if buffer is None else buffer.detach().clone())
        for name, buffer in module._buffers.items()
    }


def device_of(model: nn.Module, device: Any) -> torch.device:
    """Return the model's device; refuse another one."""
    here = next((p.device for p in model.parameters()), None)
    if device is None:
        return here or torch.device("cpu")
    requested = as_device(device)
    same = here is None or (
        here.type == requested.type and requested.index in (None, here.index)
    )
    if not same:
        message = (
            f"the model is on {here}, and device={requested} was asked for. Move it "
            f"first: model.to({str(requested)!r})."
        )
        raise InputError(message)
    return here or requested


def as_device(device: Any) -> torch.device:
    """Return a torch device; refuse what does not name one."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        message = f"expected a torch device, got {device!r}."
        raise InputError(message) from error


def _real(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def run(  # noqa: PLR0913 - options, by keyword only
    model: Any,
    data: Any,
    work: Callable[[int, Batch, torch.device], Result],
    *,
    batch_size: int = 256,
    layout: BatchLayout | None = None,
    device: Any = None,
    mode: str = "eval",
    total: int | None = None,
    quiet: bool = False,
    progress: Tell | None = None,
) -> list[Result]:
    """Work on batch after batch: the one loop over a torch model.

    Parameters
    ----------
    work : callable
        Takes the batch's number, the batch as it came, and where the model is.
    layout : BatchLayout, optional
        What the parts of a batch are; by default what can be told from the model.
    mode : str
        "eval", or "as-is". The model is left as found either way.
    total : int, optional
        How many batches there will be, where the data does not tell.
    model, data, batch_size, device, quiet, progress
        As in `Doctor` and `sweep`.
    """
    model = as_model(model)
    model_device = device_of(model, device)
    layout = layout or lay_out(model)
    all_batches, n_batches = batches(data, batch_size=batch_size, layout=layout)
    total, results = total or n_batches, []
    with bar(quiet=quiet or progress is not None) as tell, untouched(model, mode=mode):
        for i, batch in enumerate(all_batches):
            (progress or tell)(i / total if total else 0.0, f"batch {i + 1}")
            results.append(work(i, batch.as_tensors(), model_device))
    if not results:
        message = "expected at least one batch, got none."
        raise InputError(message)
    return results


def predictor(
    model: Any, *, device: Any = None, forward: Forward | None = None
) -> Callable[[Any], Any]:
    """Return a function of inputs to logits, for `SecondOpinion`.

    The model is in eval mode while it is asked, and as before afterwards. A function
    gets its inputs as they come.
    """
    network = as_model(model)

    def logits(_i: int, batch: Batch, device: torch.device) -> Tensor:
        with torch.no_grad():
            return call(network, batch.to(device), forward).cpu()

    def predict(inputs: Any) -> Tensor:
        with as_input_errors(inputs):
            value = torch.as_tensor(inputs)
        kinds = [p.dtype for p in network.parameters() if p.is_floating_point()]
        if value.is_floating_point() and kinds:
            value = value.to(kinds[0])
        return run(network, [Batch({0: value})], logits, device=device, quiet=True)[0]

    def call_function(inputs: Any) -> Any:
        with untouched(network, mode="eval"), as_input_errors(inputs):
            return model(inputs)

    plain = isinstance(network, Function) and forward is None
    return call_function if plain else predict
