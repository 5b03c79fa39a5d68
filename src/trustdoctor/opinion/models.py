"""Models of any known kind as functions of inputs to logits, and rows to ask about."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.adapters.errors import as_input_errors
from trustdoctor.arrays import Array, as_labels
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions, plain_name

Predictor = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class InputRows:
    """Rows that a model can be asked about, with their labels if they are known.

    Attributes
    ----------
    rows
        An array, a tensor, a list or a table.
    labels : array (n,), or None
    one_hot_width : int
        The number of columns if the labels were one-hot, otherwise 0.
    """

    rows: Any
    labels: Array | None = None
    one_hot_width: int = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        shape = getattr(self.rows, "shape", None)  # a sparse matrix has no length
        return int(shape[0]) if shape else len(self.rows)

    def pick(self, indices: Array) -> Any:
        """Return the rows at these indices."""
        if hasattr(self.rows, "iloc"):  # a pandas table: [] would look for columns
            return self.rows.iloc[indices]
        if isinstance(self.rows, (list, tuple)):
            return [self.rows[i] for i in indices]
        return self.rows[indices]

    def with_labels(self, predictions: Predictions) -> Predictions:
        """Return predictions for these rows together with their labels."""
        logits = predictions.logits
        rows, classes = logits.shape
        if self.one_hot_width and self.one_hot_width != classes:
            message = (
                f"expected one-hot labels with a column for each of {classes} classes, "
                f"got {self.one_hot_width} columns. Give the model's own classes."
            )
            raise InputError(message)
        labels = as_labels(self.labels, rows, classes)
        return Predictions(logits, labels, predictions.from_probabilities)


def predictor(model: Any, *, max_length: int | None = None) -> Predictor:
    """Return a function of inputs to logits, for a model of any known kind.

    `max_length` is for models of texts from Hugging Face.
    """
    is_hugging_face = isinstance(model, (str, Path, tuple))
    is_hugging_face = is_hugging_face and not str(model).endswith(".onnx")
    if max_length is not None and not is_hugging_face:
        message = (
            "max_length is for a Hugging Face model, a folder or (model, tokenizer), "
            f"got {type(model).__name__}. Leave it out."
        )
        raise InputError(message)
    if isinstance(model, (str, Path)) and str(model).endswith(".onnx"):
        from trustdoctor.adapters import onnx

        return onnx.predictor(model)
    if isinstance(model, (str, Path, tuple)):
        from trustdoctor.adapters import transformers

        return transformers.predictor(model, max_length=max_length)
    if hasattr(model, "predict_proba") and not isinstance(model, type):
        from trustdoctor.adapters import sklearn

        return sklearn.predictor(model)
    if isinstance(model, Endpoint):
        return model
    # If torch was never imported, a function cannot refer to a network.
    if callable(model) and not isinstance(model, type) and "torch" in sys.modules:
        from trustdoctor.adapters import torch

        return torch.predictor(model)
    if callable(model) and not isinstance(model, type):
        return model
    message = (
        f"expected a model (a function of inputs to logits, a torch module, a "
        f"scikit-learn classifier, ...), got {type(model).__name__}."
    )
    raise InputError(message)


def class_names_of(model: Any) -> tuple[str, ...] | None:
    """Return the classes that a model declares, in the order of its answers."""
    classes = model.choices if isinstance(model, Endpoint) else None
    if hasattr(model, "predict_proba") and not isinstance(model, type):
        classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    return tuple(map(plain_name, np.asarray(classes).tolist()))


def ask_model(ask: Predictor, inputs: Any, rows: int) -> Predictions:
    """Return a model's predictions for some rows, checked."""
    with as_input_errors(inputs):
        answer = ask(inputs)
    predictions = (
        answer if isinstance(answer, Predictions) else Predictions.from_logits(answer)
    )
    if len(predictions) != rows:
        message = f"the model gave {len(predictions)} answers to {rows} rows."
        raise InputError(message)
    return predictions


def check_rows(data: Any) -> None:
    """Refuse data whose rows cannot be counted and picked."""
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


def join_predictions(batches: list[Predictions]) -> Predictions:
    """Join predictions for one batch after another."""
    if len({(batch.n_classes, batch.from_probabilities) for batch in batches}) > 1:
        message = "the model gave different numbers of classes from batch to batch."
        raise InputError(message)
    if len({batch.class_names for batch in batches}) > 1:
        message = "the model gave different names of classes from batch to batch."
        raise InputError(message)
    label_arrays = [batch.labels for batch in batches if batch.labels is not None]
    if label_arrays and len(label_arrays) != len(batches):
        message = "expected labels in all batches or in none, got some without."
        raise InputError(message)
    logits = np.concatenate([batch.logits for batch in batches])
    labels = np.concatenate(label_arrays) if label_arrays else None
    names = batches[0].class_names
    if batches[0].from_probabilities:
        joined = Predictions(logits, labels, from_probabilities=True)
        return replace(joined, class_names=names)
    # `from_logits` refuses probabilities that were passed off as logits; a batch
    # alone may be too small to tell.
    return Predictions.from_logits(logits, labels, class_names=names)
