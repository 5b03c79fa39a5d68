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
        return replace(
            self, inputs={k: _copy(v, device) for k, v in self.inputs.items()}
        )

    def as_tensors(self) -> "Batch":
        """Return the batch with tensors where it has arrays of numpy."""
        return replace(self, inputs={k: _tensor(v) for k, v in self.inputs.items()})

    def replaced(self, place: Place, value: Tensor) -> "Batch":
        """Return the batch with one input exchanged."""
        return replace(self, inputs={**self.inputs, place: value})

    def part(self, rows: slice) -> "Batch":
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
class Takes:
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


ONE_INPUT = Takes(any_name=False, positions=1)


def taken_by(function: Callable[..., Any], *, after: int = 0) -> Takes:
    """Look at a function's parameters, those that come after the first few.

    Examples
    --------
    >>> taken_by(lambda model, x, mask=None: x, after=1).positions
    2
    """
    try:
        given = list(inspect.signature(function).parameters.values())[after:]
    except (TypeError, ValueError):  # not written in Python: nothing is known
        return Takes()
    kinds = {one.kind for one in given}
    by_place = [
        p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return Takes(
        frozenset(p.name for p in given if p.kind in by_name),
        inspect.Parameter.VAR_KEYWORD in kinds,
        None if inspect.Parameter.VAR_POSITIONAL in kinds else len(by_place),
    )


@dataclass(frozen=True)
class Layout:
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
    >>> Layout().batch((x, y)).labels
    tensor([0, 1, 2, 3])
    >>> list(Layout(inputs=0).batch((x, y, y)).inputs)
    [0]
    """

    inputs: Any = None
    labels: Place | None = None
    labelled: bool | None = None
    takes: Takes = Takes()

    def __post_init__(self) -> None:
        """Refuse what names no part of a batch."""
        if self.labelled is not None and (
            self.labels is not None or self.inputs is not None
        ):
            message = "labelled= says what inputs= and labels= say. Leave it out."
            raise InputError(message)
        if self.labels is not None and self.labels in self._named():
            message = f"inputs= and labels= name the same part, {self.labels!r}."
            raise InputError(message)
        for name in (*self._named(), *([] if self.labels is None else [self.labels])):
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
        if isinstance(item, (tuple, list)) and item and not _texts(item):
            return self._of_tuple(item)
        if not isinstance(item, (Tensor, np.ndarray, list, tuple)):
            message = (
                f"expected a batch as a tensor, a dict or a tuple of tensors, got "
                f"{type(item).__name__}."
            )
            raise InputError(message)
        if self.labels is not None or self._named() not in ((), (0,)):
            message = (
                "expected batches with the parts that inputs= and labels= name, got "
                f"{describe_inputs(item)}. Leave them out, or give tuples or dicts."
            )
            raise InputError(message)
        return Batch({0: item})

    def _named(self) -> tuple[Place, ...]:
        """Return what `inputs` names."""
        if self.inputs is None:
            return ()
        several = isinstance(self.inputs, (tuple, list))
        return tuple(self.inputs) if several else (self.inputs,)

    def _of_tuple(self, item: Any) -> Batch:
        at, labels = self._places(item)
        if len(at) == 1 and not isinstance(item[at[0]], (Tensor, np.ndarray)):
            inner = Layout(labelled=False, takes=self.takes).batch(item[at[0]]).inputs
        else:
            inner = {i: item[place] for i, place in enumerate(at)}
        return _made(inner, None if labels is None else item[labels])

    def _places(self, item: Any) -> tuple[list[int], int | None]:
        """Return the positions of the inputs, and that of the labels."""
        n = len(item)
        if self.inputs is not None or self.labels is not None:
            return self._said(item)
        if n == 1 or self.labelled is False:
            return list(range(n)), None
        if self.labelled:
            return list(range(n - 1)), n - 1
        if self.takes.positions == 1 or _integers(item[1]):
            return [0], 1
        if any(_integers(part) or _one_hot(part) for part in item[1:]):
            message = (
                f"expected batches of (input, labels), got {n} parts "
                f"({describe_inputs(*item)}), and the model may take several. Say "
                "which is which, as in inputs=(0, 1), labels=2."
            )
            raise InputError(message)
        return list(range(n)), None

    def _said(self, item: Any) -> tuple[list[int], int | None]:
        """Return the positions that were named; labels come after the inputs."""
        n = len(item)
        labels = None if self.labels is None else _position(self.labels, n)
        if self.inputs is None:
            assert labels is not None
            return list(range(labels)) or list(range(1, n)), labels
        at = [_position(place, n) for place in self._named()]
        after = max(at) + 1
        if labels is None and after < n:
            known = _integers(item[after]) or _one_hot(item[after])
            labels = after if known else None
        return at, labels

    def _of_dict(self, item: Mapping[Any, Any]) -> Batch:
        missing = [
            name for name in (*self._named(), self.labels) if name not in (None, *item)
        ]
        if missing:
            message = (
                f"expected batches with a key {missing[0]!r}, got the keys "
                f"{_listed(item)}. Name them with inputs= and labels=."
            )
            raise InputError(message)
        key = self._label_key(item) if self.labels is None else self.labels
        rest = {name: value for name, value in item.items() if name != key}
        names = self._named() or self._input_keys(rest)
        given: dict[Place, Any] = {}
        for i, name in enumerate(names):
            given[name if self._by_name(name) else i] = item[name]
        return _made(given, None if key is None else item[key])

    def _label_key(self, item: Mapping[Any, Any]) -> Place | None:
        """Find the labels; `y` and `target` may be inputs of the model's own."""
        own = self.takes.names - {"labels", "label"} | set(self._named())
        found = [name for name in LABELS if name in item and name not in own]
        if len(found) > 1:
            message = (
                f"expected one key of labels, got {_listed(found)}. Name one with "
                "labels=."
            )
            raise InputError(message)
        return found[0] if found else None

    def _input_keys(self, rest: dict[Any, Any]) -> list[Any]:
        """Find the inputs; what is left out must not look like one."""
        takes = self.takes
        clear = len(rest) == 1 or takes.any_name or set(rest) <= takes.names
        if rest and clear:
            return list(rest)
        common = [name for name in rest if name in INPUTS]
        chosen = [name for name in rest if name in takes.names]
        if not chosen and len(common) == 1:
            chosen = common
        others = [value for name, value in rest.items() if name not in chosen]
        if chosen and not any(_like_input(value) for value in others):
            return chosen
        own = f", which names {_listed(takes.names)}" if takes.names else ""
        message = (
            f"expected a batch whose input can be told from its keys, got "
            f"{_listed(rest) or 'labels alone'} for the model{own}. Name what it "
            f"takes, as in inputs={next(iter(rest), 'x')!r}."
        )
        raise InputError(message)

    def _by_name(self, name: Place) -> bool:
        any_name = self.takes.any_name and not isinstance(self.inputs, str)
        return isinstance(name, str) and (name in self.takes.names or any_name)


def _made(inputs: dict[Place, Any], labels: Any) -> Batch:
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


def _position(place: Place, parts: int) -> int:
    if isinstance(place, str) or not -parts <= place < parts:
        message = (
            f"expected inputs= and labels= as positions from 0 to {parts - 1} in "
            f"batches that are tuples, got {place!r}."
        )
        raise InputError(message)
    return place % parts


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, names)))


def _texts(parts: Any) -> bool:
    return all(isinstance(part, str) for part in parts)


def _integers(part: Any) -> bool:
    """Tell whether a part is a vector of integers."""
    if isinstance(part, np.ndarray):
        return part.ndim == 1 and part.dtype.kind in "biu"
    return isinstance(part, Tensor) and part.ndim == 1 and not part.is_floating_point()


def _one_hot(part: Any) -> bool:
    known = isinstance(part, (Tensor, np.ndarray))
    if not (known and part.ndim == 2 and part.shape[1] > 1):
        return False
    return bool(((part == 0) | (part == 1)).all() and (part.sum(1) == 1).all())


def _like_input(value: Any) -> bool:
    """Tell whether a part could be an input: not a name, a number, a row's index."""
    return isinstance(value, (Tensor, np.ndarray)) and not _integers(value)


def batches(
    data: Any, *, batch_size: int, layout: Layout
) -> tuple[Iterator[Batch], int | None]:
    """Cut one tensor, tuple or dict into batches, or take batches as they come.

    A data set of torch's is loaded in its order. Lists and other iterables hold
    batches. Returns the batches, and how many there are where that is known.
    """
    check_batch_size(batch_size)
    if isinstance(data, (Tensor, np.ndarray, Mapping, tuple)):
        whole = layout.batch(data)
        starts = range(0, len(whole), batch_size)
        return (whole.part(slice(at, at + batch_size)) for at in starts), len(starts)
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
    """Refuse what is not a number of rows."""
    if type(batch_size) is not int or batch_size < 1:
        message = f"expected batch_size as a whole number above 0, got {batch_size!r}."
        raise InputError(message)
    return batch_size
