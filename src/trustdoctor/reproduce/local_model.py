"""A torch model of the user's own: its class in a file, its weights in another."""

import hashlib
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.errors import FileError, InputError, missing_package

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise missing_package(
        what="running a model", package="PyTorch", extra="torch"
    ) from error


@dataclass(frozen=True, eq=False)
class LocalModel:
    """An image classifier and how its inputs are normalised.

    Attributes
    ----------
    name : str
        The weights' file without its suffix.
    model : torch.nn.Module
    mean, std : tuple of float
        One per channel: the model takes (pixel / 255 - mean) / std.
    source : bytes
        The file that the model's class is in.
    """

    name: str
    model: nn.Module = field(repr=False)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: bytes = field(default=b"", repr=False)

    @property
    def scale(self) -> list[float]:
        """The factors from a magnitude in pixels to one of the model's input."""
        return [1 / s for s in self.std]

    def inputs(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Turn images (n, height, width, 3) into the model's input."""
        x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2) / 255
        mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (self.mean, self.std))
        return (x - mean) / std

    def batches(
        self, pixels: NDArray[np.uint8], labels: NDArray[np.int64], size: int = 256
    ) -> list[tuple[Tensor, Tensor]]:
        """Turn images and labels into batches."""
        x, y = self.inputs(pixels), torch.from_numpy(np.asarray(labels, np.int64))
        return list(zip(torch.split(x, size), torch.split(y, size), strict=True))

    def digest(self) -> str:
        """Return a name for the model: its code, weights and normalisation."""
        digest = hashlib.blake2b(self.source, digest_size=8)
        digest.update(repr((self.mean, self.std)).encode())
        # By name: the order of a state dict is that of the code, which may change.
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def size(self) -> int:
        """Return how many weights the model has."""
        return sum(weights.numel() for weights in self.model.parameters())

    def blocks(self) -> tuple[str, ...]:
        """Return the layers before the last: containers opened, lone layers left out.

        These are the blocks of a convolutional net; if there are none, its layers.
        """
        children = list(self.model.named_children())
        blocks = [
            (f"{name}.{inner}", block)
            for name, child in children
            if isinstance(child, nn.Sequential)
            for inner, block in child.named_children()
        ]
        return tuple(
            name
            for name, block in blocks or children[:-1]
            if any(True for _ in block.parameters())
        )


def load_model(spec: str, weights: str | Path | None) -> LocalModel:
    """Build the model that FILE.py:NAME names, and give it its weights.

    The file may define MEAN and STD, one number per channel; without them the model
    takes pixels from 0 to 1. The file is run: name only one that you trust.
    """
    path, _, name = spec.rpartition(":")
    file = Path(path)
    if not path or file.suffix != ".py" or not name:
        message = f"expected a model as FILE.py:NAME, got {spec!r}."
        raise InputError(message)
    if weights is None:
        message = "a model needs its weights: --weights FILE.safetensors."
        raise InputError(message)
    module = _run_file(file)
    try:
        model = getattr(module, name)()
    except Exception as error:
        message = f"{file} has no {name}() that builds a model: {error}."
        raise InputError(message) from error
    if not isinstance(model, nn.Module):
        message = f"{name}() of {file} did not return a torch.nn.Module."
        raise InputError(message)
    give_weights(model, read_weights(Path(weights)), Path(weights))
    mean, std = (
        _per_channel(module, name, default)
        for name, default in (("MEAN", 0), ("STD", 1))
    )
    if min(std) <= 0:
        message = f"expected STD of {file} as numbers above 0, got {std}."
        raise InputError(message)
    return LocalModel(Path(weights).stem, model.eval(), mean, std, file.read_bytes())


def _per_channel(module: Any, name: str, default: float) -> tuple[float, float, float]:
    """Return one number per channel that the model's file defines."""
    values = getattr(module, name, (default,) * 3)
    try:
        red, green, blue = (float(value) for value in values)
    except (TypeError, ValueError) as error:
        message = f"expected {name} as three numbers, one per channel, got {values!r}."
        raise InputError(message) from error
    return red, green, blue


def _run_file(file: Path) -> Any:
    try:
        spec = importlib.util.spec_from_file_location(f"_model_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        message = f"cannot run {file}: {type(error).__name__}: {error}."
        raise FileError(message) from error
    return module


def read_weights(weights: Path) -> dict[str, Tensor]:
    """Read tensors by their names from a safetensors file."""
    from safetensors.torch import load_file

    if not weights.is_file():  # a pipe would be waited for
        message = f"there is no file {weights} with the model's weights."
        raise FileError(message)
    try:
        return dict(load_file(weights))
    except Exception as error:
        message = f"cannot read the weights {weights} as safetensors: {error}."
        raise FileError(message) from error


def give_weights(model: nn.Module, state: dict[str, Tensor], weights: Path) -> None:
    """Load weights into a model; refuse weights that do not fit it."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        message = f"the weights {weights} do not fit the model: {error}"
        raise InputError(message) from error
