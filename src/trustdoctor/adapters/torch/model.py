"""Calling a torch model: batches in, logits out, nothing left changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trustdoctor.errors import InputError
from trustdoctor.progress import Tell, bar

Forward = Callable[..., Tensor]
Place = int | str
Result = TypeVar("Result")


@dataclass(frozen=True)
class Batch:
    """The inputs of one call of the model, and the labels if there are any.

    Attributes
    ----------
    inputs : dict
        Positional inputs under 0, 1, ...; named ones under their names.
    labels : Tensor (n,), or None
    """

    inputs: dict[Place, Any]
    labels: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        for value in self.inputs.values():
            if isinstance(value, Tensor) and value.ndim:
                return len(value)
        message = "expected a batch with at least one tensor of rows, got none."
        raise InputError(message)

    def to(self, device: torch.device) -> "Batch":
        """Return copies of the inputs on a device; the caller's stay as they are."""
        return Batch({k: _copy(v, device) for k, v in self.inputs.items()}, self.labels)

    def replaced(self, place: Place, value: Tensor) -> "Batch":
        """Return the batch with one input exchanged."""
        return Batch({**self.inputs, place: value}, self.labels)


def batches(data: Any, *, batch_size: int, labelled: bool | None) -> Iterator[Batch]:
    """Cut a tensor or a dict of tensors into batches, or take them as they come.

    A batch is a tensor, a dict of the model's keyword inputs (its `labels` or `label`
    being the labels), or a tuple: (input, labels) where the second is a vector of
    integers, positional inputs otherwise; `labelled` says which where that is wrong.
    A tuple handed in as the data is one batch; lists and other iterables hold batches.
    """
    check_batch_size(batch_size)
    if isinstance(data, tuple):
        data = [data]
    if isinstance(data, Tensor):
        for start in range(0, len(data), batch_size):
            yield Batch({0: data[start : start + batch_size]})
    elif isinstance(data, Mapping):
        rows = len(_batch(data, labelled=labelled))
        for start in range(0, rows, batch_size):
            rows_here = slice(start, start + batch_size)
            part = {
                k: v[rows_here] if _rowwise(v, rows) else v for k, v in data.items()
            }
            yield _batch(part, labelled=labelled)
    elif isinstance(data, Iterable) and not isinstance(data, str):
        for item in data:
            yield _batch(item, labelled=labelled)
    else:
        message = (
            f"expected a tensor, a dict of tensors, or batches (a DataLoader), got "
            f"{type(data).__name__}."
        )
        raise InputError(message)


def check_batch_size(batch_size: int) -> int:
    """Refuse what is not a number of rows."""
    if type(batch_size) is not int or batch_size < 1:
        message = f"expected batch_size as a whole number above 0, got {batch_size!r}."
        raise InputError(message)
    return batch_size


def check_model(model: Any) -> nn.Module:
    """Refuse what is not a torch model."""
    if not isinstance(model, nn.Module):
        message = f"expected a torch.nn.Module, got {type(model).__name__}."
        raise InputError(message)
    return model


def count_batches(data: Any, batch_size: int) -> int | None:
    """Return how many batches there will be, where that can be known."""
    if isinstance(data, Tensor):
        return -(-len(data) // check_batch_size(batch_size))
    try:
        return len(data)
    except TypeError:
        return None


def _batch(item: Any, *, labelled: bool | None) -> Batch:
    if isinstance(item, Batch):
        return item
    if isinstance(item, Tensor):
        return Batch({0: item})
    if isinstance(item, Mapping):
        inputs = dict(item)
        labels = inputs.pop("labels", inputs.pop("label", None))
        return Batch(inputs, labels)
    if isinstance(item, (tuple, list)) and item:
        last = item[-1]
        vector = isinstance(last, Tensor) and last.ndim == 1 and not _real(last)
        if labelled if labelled is not None else (len(item) == 2 and vector):
            inner = _batch(item[0] if len(item) == 2 else item[:-1], labelled=False)
            return Batch(inner.inputs, last)
        return Batch(dict(enumerate(item)))
    message = (
        f"expected a batch as a tensor, a dict or a tuple of tensors, got "
        f"{type(item).__name__}."
    )
    raise InputError(message)


def call(model: nn.Module, batch: Batch, forward: Forward | None) -> Tensor:
    """Return the logits (n, C) of a batch."""
    args = [v for k, v in batch.inputs.items() if isinstance(k, int)]
    named = {k: v for k, v in batch.inputs.items() if isinstance(k, str)}
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
        raise InputError(message)
    if len(logits) != len(batch):
        message = f"expected logits for each of {len(batch)} rows, got {len(logits)}."
        raise InputError(message)
    return logits


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


def perturbed_place(batch: Batch, perturb: str | None) -> Place:
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
    """Leave the model as it was: modes and buffers, also when an exception flies.

    Parameters and their `.grad` are never written to in the first place.
    """
    found = [
        (module, module.training, {n: _kept(b) for n, b in module._buffers.items()})
        for module in model.modules()
    ]
    try:
        if mode == "eval":
            model.eval()
        yield
    finally:
        for module, training, buffers in found:
            module.training = training
            for name in set(module._buffers) - set(buffers):
                delattr(module, name)
            for name, (tensor, content) in buffers.items():
                module._buffers[name] = tensor
                if tensor is not None:
                    # A backward pass that waits must not see this as a change.
                    tensor.data.copy_(content)


def _kept(buffer: Tensor | None) -> tuple[Tensor | None, Any]:
    return buffer, None if buffer is None else buffer.detach().clone()


def device_of(model: nn.Module, device: Any) -> torch.device:
    """Return where the model is, refusing another device than that."""
    here = next((p.device for p in model.parameters()), None)
    if device is None:
        return here or torch.device("cpu")
    asked = as_device(device)
    same = here is None or (
        here.type == asked.type and asked.index in (None, here.index)
    )
    if not same:
        message = (
            f"the model is on {here}, and device={asked} was asked for. Move it first: "
            f"model.to({str(asked)!r})."
        )
        raise InputError(message)
    return here or asked


def as_device(device: Any) -> torch.device:
    """Refuse what is not a device."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        message = f"expected a torch device, got {device!r}."
        raise InputError(message) from error


def _rowwise(value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == rows


def _copy(value: Any, device: torch.device) -> Any:
    return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value


def _real(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def run(  # noqa: PLR0913 - options, by keyword only
    model: nn.Module,
    data: Any,
    work: Callable[[int, Batch, torch.device], Result],
    *,
    batch_size: int = 256,
    labelled: bool | None = None,
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
    mode : str
        "eval", or "as-is". The model is left as found either way.
    total : int, optional
        How many batches there will be, where the data does not tell.
    model, data, batch_size, labelled, device, quiet, progress
        As in `Doctor` and `sweep`.
    """
    where = device_of(check_model(model), device)
    total = total or count_batches(data, batch_size)
    found = []
    with bar(quiet=quiet or progress is not None) as tell, untouched(model, mode=mode):
        parts = batches(data, batch_size=batch_size, labelled=labelled)
        for i, batch in enumerate(parts):
            (progress or tell)(i / total if total else 0.0, f"batch {i + 1}")
            found.append(work(i, batch, where))
    if not found:
        message = "expected at least one batch, got none."
        raise InputError(message)
    return found


def predictor(
    model: nn.Module, *, device: Any = None, forward: Forward | None = None
) -> Callable[[Any], Tensor]:
    """Return a function of inputs to logits, for `SecondOpinion`.

    The model is in eval mode while it is asked, and as before afterwards.
    """
    check_model(model)

    def answer(_i: int, batch: Batch, where: torch.device) -> Tensor:
        with torch.no_grad():
            return call(model, batch.to(where), forward).cpu()

    def predict(inputs: Any) -> Tensor:
        value = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs)
        kinds = [p.dtype for p in model.parameters() if p.is_floating_point()]
        if value.is_floating_point() and kinds:
            value = value.to(kinds[0])
        return run(model, [Batch({0: value})], answer, device=device, quiet=True)[0]

    return predict
