"""Data as they come: rows all at once, or in batches with their labels."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trustdoctor.adapters.asking import as_classes, describe_inputs
from trustdoctor.arrays import Array, as_labels
from trustdoctor.errors import InputError
from trustdoctor.gates import Screened
from trustdoctor.predictions import Opinions, Predictions

if TYPE_CHECKING:
    from trustdoctor.adapters.torch.batches import Batch


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows, which can be counted and picked.

    Attributes
    ----------
    rows
        An array, a tensor, a list or a table.
    labels : array (n,), or None
    classes : int
        How many columns the labels had, where they were one-hot; otherwise 0.
    """

    rows: Any
    labels: Array | None = None
    classes: int = 0

    def __len__(self) -> int:
        """Return how many rows there are."""
        shape = getattr(self.rows, "shape", None)  # a sparse matrix has no length
        return int(shape[0]) if shape else len(self.rows)

    def pick(self, at: Array) -> Any:
        """Return some of the rows."""
        if hasattr(self.rows, "iloc"):  # a table of pandas
            return self.rows.iloc[at]
        if isinstance(self.rows, (list, tuple)):
            return [self.rows[i] for i in at]
        return self.rows[at]

    def judged(self, said: Predictions) -> Predictions:
        """Return what the model said of the rows with their labels."""
        rows, classes = said.logits.shape
        if self.classes and self.classes != classes:
            message = (
                f"expected one-hot labels with a column for each of {classes} classes, "
                f"got {self.classes} columns. Give the model's own classes."
            )
            raise InputError(message)
        known = as_labels(self.labels, rows, classes)
        return Predictions(said.logits, known, said.from_probabilities)


def split(
    data: Any, labels: Any, *, batch_size: int, inputs: Any, key: Any
) -> tuple[Iterator[Part], int | None]:
    """Return the parts that data come in, and how many, where that is known.

    A DataLoader, another iterable of batches, a data set, a dict and a tuple (input,
    labels) bring their labels along; `inputs` and `key` name the two. Everything else
    is rows, all in one part.
    """
    if not _in_batches(data):
        check_rows(data)
        known, classes = (None, 0) if labels is None else as_classes(labels)
        return iter([Part(data, known, classes)]), 1
    if labels is not None:
        message = (
            "expected labels in the batches or beside rows, got batches and labels. "
            "Leave the labels out; labels= of SecondOpinion names them in a batch."
        )
        raise InputError(message)
    from trustdoctor.adapters.torch.batches import ONE_INPUT, Layout, batches

    layout = Layout(inputs, key, takes=ONE_INPUT)
    found, total = batches(data, batch_size=batch_size, layout=layout)
    return map(_part, found), total


def _in_batches(data: Any) -> bool:
    if isinstance(data, tuple) and data:
        return isinstance(data[0], list) or getattr(data[0], "ndim", 0) > 1
    homes = {kind.__module__ for kind in type(data).__mro__}
    if isinstance(data, Mapping) or any(
        h.startswith("torch.utils.data") for h in homes
    ):
        return True
    return isinstance(data, Iterable) and not hasattr(data, "__getitem__")


def check_rows(data: Any) -> None:
    """Refuse what cannot be counted and picked."""
    rows = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not rows or isinstance(data, (str, bytes)):
        message = (
            f"expected rows that can be counted and picked (an array, a tensor, a "
            f"list, a table), or batches (a DataLoader), got {type(data).__name__}."
        )
        raise InputError(message)
    if len(data) == 0:
        message = "expected at least one row, got none."
        raise InputError(message)


def _part(batch: "Batch") -> Part:
    if len(batch.inputs) != 1:
        message = (
            "expected one input per batch, of which views are made, got "
            f"{describe_inputs(*batch.inputs.values())}. Name one with inputs=."
        )
        raise InputError(message)
    (rows,) = batch.inputs.values()
    labels = None if batch.labels is None else batch.labels.numpy()
    return Part(rows, labels, batch.classes)


def join_predictions(said: list[Predictions]) -> Predictions:
    """Join what was said of one batch after another."""
    if len({(one.n_classes, one.from_probabilities) for one in said}) > 1:
        message = "the model gave other numbers of classes from batch to batch."
        raise InputError(message)
    if len({one.class_names for one in said}) > 1:
        message = "the model gave other names of classes from batch to batch."
        raise InputError(message)
    known = [one.labels for one in said if one.labels is not None]
    if known and len(known) != len(said):
        message = "expected labels in all batches or in none, got some without."
        raise InputError(message)
    logits = np.concatenate([one.logits for one in said])
    labels = np.concatenate(known) if known else None
    names = said[0].class_names
    if said[0].from_probabilities:
        whole = Predictions(logits, labels, from_probabilities=True)
        return replace(whole, class_names=names)
    # which refuses probabilities by mistake
    return Predictions.from_logits(logits, labels, class_names=names)


def join_opinions(found: list[Opinions]) -> Opinions:
    """Join opinions on one batch after another."""
    _check_some(found)
    return Opinions(
        join_predictions([one.predictions for one in found]),
        np.concatenate([one.doubts for one in found]),
        np.concatenate([one.answers for one in found]),
        np.concatenate([one.confidence for one in found]),
    )


def join_screened(done: list[Screened]) -> Screened:
    """Join decisions on one batch after another."""
    _check_some(done)
    return Screened(
        np.concatenate([one.scores for one in done]),
        np.concatenate([one.accepted for one in done]),
        np.concatenate([one.predicted for one in done]),
        np.concatenate([one.passes for one in done if one.passes is not None]),
        join_predictions([one.predictions for one in done if one.predictions]),
    )


def _check_some(found: list[Any]) -> None:
    if not found:
        message = "expected at least one row, got none."
        raise InputError(message)
