"""What a batch may be: a tensor, a tuple or a dict, with labels or without."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trustdoctor.adapters.errors import describe_inputs
from trustdoctor.arrays import as_classes
from trustdoctor.errors import InputError

Place = int | str

INPUTS = (
    *("x", "input", "inputs", "features", "data", "image", "images", "img"),
    *("pixel_values", "input_ids", "inputs_embeds", "input_values", "input_features"),
    *("text", "texts"),
)
"""Keys under which data sets keep the input."""

LABELS = ("labels", "label", "y", "target", "targets")
"""Keys under which data sets keep the labels."""


@dataclass(frozen=True)
class Batch:
    """The inputs of one call of the model, and the labels if there are any.

    Attributes
    ----------
    inputs : dict
        Positional inputs under 0, 1, ...; named ones under their names.
    labels : Tensor (n,), or None
    classes : int
        How many columns the labels had, where they were one-hot; otherwise 0.
    """

    inputs: dict[Place, Any]
    labels: Tensor | None = None
    classes: int = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        for value in self.inputs.values():
            size = _rows(value)
            if size is not None:
                return size
        message = "expected a batch with at least one tensor of rows, got none."
        raise InputError(message)

    def to(self, device: torch.device) -> "Batch":
        """Return copies of the inputs on a device; the caller's stay as they are."""
        # Also on the same device: a model may work in place (ReLU(inplace=True)).
        return replace(
            self, inputs={k: _copy(v, device) for k, v in self.inputs.items()}
        )

    def as_tensors(self) -> "Batch":
        """Return the batch with tensors where it has arrays of numpy."""
        return replace(self, inputs={k: _tensor(v) for k, v in self.inputs.items()})

    def replaced(self, place: Place, value: Tensor) -> "Batch":
        """Return the batch with one input exchanged."""
        return replace(self, inputs={**self.inputs, place: value})

    def take(self, rows: slice) -> "Batch":
        """Return some rows; inputs that have no rows stay as they are."""
        n = len(self)
        inputs = {k: v[rows] if _rows(v) == n else v for k, v in self.inputs.items()}
        labels = None if self.labels is None else self.labels[rows]
        return Batch(inputs, labels, self.classes)


def _rows(value: Any) -> int | None:
    if isinstance(value, (Tensor, np.ndarray)):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, (list, tuple)) else None


def _copy(value: Any, device: torch.device) -> Any:
    return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.as_tensor(value)
    return value


@dataclass(frozen=True)
class CallSignature:
    """What a model can be called with.

    Attributes
    ----------
    names : frozenset of str
        The inputs that it names.
    any_name : bool
        Whether it takes others by name as well.
    positions : int, or None
        How many inputs it takes by position; None where that is not known.
    """

    names: frozenset[str] = frozenset()
    any_name: bool = True
    positions: int | None = None


ONE_INPUT = CallSignature(any_name=False, positions=1)


def call_signature(function: Callable[..., Any], *, after: int = 0) -> CallSignature:
    """Return a function's signature, without its first `after` parameters.

    Examples
    --------
    >>> call_signature(lambda model, x, mask=None: x, after=1).positions
    2
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())[after:]
    except (TypeError, ValueError):  # not written in Python: nothing is known
        return CallSignature()
    kinds = [p.kind for p in parameters]
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    by_position = (inspect.Parameter.POSITIONAL_ONLY, either)
    by_name = (either, inspect.Parameter.KEYWORD_ONLY)
    any_position = inspect.Parameter.VAR_POSITIONAL in kinds
    return CallSignature(
        frozenset(p.name for p in parameters if p.kind in by_name),
        inspect.Parameter.VAR_KEYWORD in kinds,
        None if any_position else sum(kind in by_position for kind in kinds),
    )


@dataclass(frozen=True)
class BatchLayout:
    """Which parts of a batch are the inputs, and which are the labels.

    A batch is a tensor, a tuple, or a dict. Of a tuple the first part is the input and
    the second the labels, where the model takes one input or the second is a vector of
    integers; parts after them are left out. A tuple without labels holds positional
    inputs. Of a dict the labels are under `LABELS`; the other parts are inputs by name,
    where the model takes those names. What remains in doubt is refused.

    Attributes
    ----------
    inputs : int, str, or several
        Positions in a tuple, or keys of a dict.
    labels : int or str
        The position or key of the labels.
    labelled : bool
        Whether the last part of a tuple is the labels.
    takes : Takes
        What the model can be called with.

    Examples
    --------
    >>> x, y = torch.zeros(4, 3), torch.arange(4)
    >>> BatchLayout().batch((x, y)).labels
    tensor([0, 1, 2, 3])
    >>> list(BatchLayout(inputs=0).batch((x, y, y)).inputs)
    [0]
    """

    inputs: Any = None
    labels: Place | None = None
    labelled: bool | None = None
    takes: CallSignature = CallSignature()

    def __post_init__(self) -> None:
        """Refuse positions and keys that cannot name an input or the labels."""
        if self.labelled is not None and (
            self.labels is not None or self.inputs is not None
        ):
            message = "labelled= says what inputs= and labels= say. Leave it out."
            raise InputError(message)
        if self.labels is not None and self.labels in self._input_places():
            message = f"inputs= and labels= name the same part, {self.labels!r}."
            raise InputError(message)
        label_places = () if self.labels is None else (self.labels,)
        for name in (*self._input_places(), *label_places):
            if isinstance(name, bool) or not isinstance(name, (int, str)):
                message = (
                    "expected inputs= and labels= as positions in a tuple or keys of a "
                    f"dict, got {name!r}."
                )
                raise InputError(message)

    def batch(self, item: Any) -> Batch:
        """Sort the parts of a batch."""
        if isinstance(item, Batch):
            return item
        if isinstance(item, Mapping):
            return self._of_dict(item)
        if isinstance(item, (tuple, list)) and item and not _all_texts(item):
            return self._of_tuple(item)
        if not isinstance(item, (Tensor, np.ndarray, list, tuple)):
            message = (
                f"expected a batch as a tensor, a dict or a tuple of tensors, got "
                f"{type(item).__name__}."
            )
            raise InputError(message)
        if self.labels is not None or self._input_places() not in ((), (0,)):
            message = (
                "expected batches with the parts that inputs= and labels= name, got "
                f"{describe_inputs(item)}. Leave them out, or give tuples or dicts."
            )
            raise InputError(message)
        return Batch({0: item})

    def _input_places(self) -> tuple[Place, ...]:
        """Return the places that `inputs` names."""
        if self.inputs is None:
            return ()
        several = isinstance(self.inputs, (tuple, list))
        return tuple(self.inputs) if several else (self.inputs,)

    def _of_tuple(self, item: Any) -> Batch:
        places, label_place = self._places(item)
        first = item[places[0]]
        if len(places) == 1 and not isinstance(first, (Tensor, np.ndarray)):
            nested = BatchLayout(labelled=False, takes=self.takes)
            inputs = nested.batch(first).inputs
        else:
            inputs = {i: item[place] for i, place in enumerate(places)}
        labels = None if label_place is None else item[label_place]
        return _batch_with_classes(inputs, labels)

    def _places(self, item: Any) -> tuple[list[int], int | None]:
        """Return the positions of the inputs, and that of the labels."""
        n = len(item)
        if self.inputs is not None or self.labels is not None:
            return self._named_places(item)
        if n == 1 or self.labelled is False:
            return list(range(n)), None
        if self.labelled:
            return list(range(n - 1)), n - 1
        if self.takes.positions == 1 or _is_integer_vector(item[1]):
            return [0], 1
        if any(map(_like_labels, item[1:])):
            message = (
                f"expected batches of (input, labels), got {n} parts "
                f"({describe_inputs(*item)}), and the model may take several. Say "
                "which is which, as in inputs=(0, 1), labels=2."
            )
            raise InputError(message)
        return list(range(n)), None

    def _named_places(self, item: Any) -> tuple[list[int], int | None]:
        """Return the positions that were named; labels come after the inputs."""
        n = len(item)
        labels = None if self.labels is None else _position(self.labels, n)
        if self.inputs is None:
            assert labels is not None
            return list(range(labels)) or list(range(1, n)), labels
        places = [_position(place, n) for place in self._input_places()]
        after = max(places) + 1
        if labels is None and after < n:
            labels = after if _like_labels(item[after]) else None
        return places, labels

    def _of_dict(self, item: Mapping[Any, Any]) -> Batch:
        named = (*self._input_places(), self.labels)
        missing = [name for name in named if name not in (None, *item)]
        if missing:
            message = (
                f"expected batches with a key {missing[0]!r}, got the keys "
                f"{_sorted_names(item)}. Name them with inputs= and labels=."
            )
            raise InputError(message)
        key = self._label_key(item) if self.labels is None else self.labels
        others_by_key = {name: value for name, value in item.items() if name != key}
        names = self._input_places() or self._input_keys(others_by_key)
        inputs: dict[Place, Any] = {}
        for i, name in enumerate(names):
            inputs[name if self._by_name(name) else i] = item[name]
        return _batch_with_classes(inputs, None if key is None else item[key])

    def _label_key(self, item: Mapping[Any, Any]) -> Place | None:
        """Find the labels; `y` and `target` may be inputs of the model's own."""
        input_names = self.takes.names - {"labels", "label"} | set(self._input_places())
        keys = [name for name in LABELS if name in item and name not in input_names]
        if len(keys) > 1:
            message = (
                f"expected one key of labels, got {_sorted_names(keys)}. Name one with "
                "labels=."
            )
            raise InputError(message)
        return keys[0] if keys else None

    def _input_keys(self, candidates: dict[Any, Any]) -> list[Any]:
        """Find the inputs; no value left out may look like one."""
        takes = self.takes
        # One that is left out by mistake would change the logits without a word.
        clear = len(candidates) == 1 or takes.any_name or set(candidates) <= takes.names
        if candidates and clear:
            return list(candidates)
        common = [name for name in candidates if name in INPUTS]
        chosen = [name for name in candidates if name in takes.names]
        if not chosen and len(common) == 1:
            chosen = common
        left_out = [value for name, value in candidates.items() if name not in chosen]
        if chosen and not any(_like_input(value) for value in left_out):
            return chosen
        model = "the model"
        if takes.names:
            model += f", which names {_sorted_names(takes.names)}"
        message = (
            f"expected a batch whose input can be told from its keys, got "
            f"{_sorted_names(candidates) or 'labels alone'} for {model}. Name what it "
            f"takes, as in inputs={next(iter(candidates), 'x')!r}."
        )
        raise InputError(message)

    def _by_name(self, name: Place) -> bool:
        any_name = self.takes.any_name and not isinstance(self.inputs, str)
        return isinstance(name, str) and (name in self.takes.names or any_name)


def _batch_with_classes(inputs: dict[Place, Any], labels: Any) -> Batch:
    """Return a batch whose labels are one class per row."""
    batch = Batch(inputs)
    if labels is None:
        return batch
    classes, width = as_classes(labels)
    if len(classes) != len(batch):
        message = (
            f"expected one label per row, got {len(classes)} labels for {len(batch)} "
            f"rows ({describe_inputs(*inputs.values())}). Name the parts of a batch "
            "with inputs= and labels=."
        )
        raise InputError(message)
    return Batch(inputs, torch.as_tensor(classes), width)


def _position(place: Place, n: int) -> int:
    if isinstance(place, str) or not -n <= place < n:
        message = (
            f"expected inputs= and labels= as positions from 0 to {n - 1} in "
            f"batches that are tuples, got {place!r}."
        )
        raise InputError(message)
    return place % n


def _sorted_names(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, names)))


def _all_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_integer_vector(value: Any) -> bool:
    """Return whether this is a vector of integers."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "biu"
    return (
        isinstance(value, Tensor) and value.ndim == 1 and not value.is_floating_point()
    )


def _is_one_hot(value: Any) -> bool:
    if not isinstance(value, (Tensor, np.ndarray)) or value.ndim != 2:
        return False
    if value.shape[1] < 2:  # a column of ones is no label
        return False
    return bool(((value == 0) | (value == 1)).all() and (value.sum(1) == 1).all())


def _like_labels(value: Any) -> bool:
    return _is_integer_vector(value) or _is_one_hot(value)


def _like_input(value: Any) -> bool:
    """Return whether this could be an input: not a name, a number, a row's index."""
    return isinstance(value, (Tensor, np.ndarray)) and not _is_integer_vector(value)


def batches(
    data: Any, *, batch_size: int, layout: BatchLayout
) -> tuple[Iterator[Batch], int | None]:
    """Cut one tensor, tuple or dict into batches, or take batches as they come.

    A data set of torch's is loaded in its order. Lists and other iterables hold
    batches. Returns the batches, and how many there are where that is known.
    """
    check_batch_size(batch_size)
    if isinstance(data, (Tensor, np.ndarray, Mapping, tuple)):
        all_rows = layout.batch(data)
        starts = range(0, len(all_rows), batch_size)
        cuts = (slice(start, start + batch_size) for start in starts)
        return map(all_rows.take, cuts), len(starts)
    if isinstance(data, Dataset):
        data = DataLoader(data, batch_size=batch_size)
    if not isinstance(data, Iterable) or isinstance(data, str):
        message = (
            f"expected a tensor, a dict of tensors, or batches (a DataLoader), got "
            f"{type(data).__name__}."
        )
        raise InputError(message)
    try:
        total = len(data)  # type: ignore[arg-type]
    except TypeError:
        total = None
    return (layout.batch(item) for item in data), total


def check_batch_size(batch_size: int) -> int:
    """Refuse a batch size that is not a whole number above 0."""
    if type(batch_size) is not int or batch_size < 1:
        message = f"expected batch_size as a whole number above 0, got {batch_size!r}."
        raise InputError(message)
    return batch_size
