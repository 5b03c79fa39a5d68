"""A function of inputs to logits, for a model of any known kind."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trustdoctor.adapters.asking import complaining
from trustdoctor.adapters.endpoint import Endpoint
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions, plain_name

Predictor = Callable[[Any], Any]


def predictor(model: Any) -> Predictor:
    """Return a function of inputs to logits, for a model of any known kind."""
    if isinstance(model, (str, Path)) and str(model).endswith(".onnx"):
        from trustdoctor.adapters import onnx

        return onnx.predictor(model)
    if isinstance(model, (str, Path, tuple)):
        from trustdoctor.adapters import transformers

        return transformers.predictor(model)
    if hasattr(model, "predict_proba") and not isinstance(model, type):
        from trustdoctor.adapters import sklearn

        return sklearn.predictor(model)
    if isinstance(model, Endpoint):
        return model
    # Where torch was never imported, a function cannot refer to a network.
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
    """Return the classes that a model says it knows, in the order of its answers."""
    own = model.choices if isinstance(model, Endpoint) else None
    if hasattr(model, "predict_proba") and not isinstance(model, type):
        own = getattr(model, "classes_", None)
    return None if own is None else tuple(map(plain_name, np.asarray(own).tolist()))


def ask_model(ask: Predictor, inputs: Any, rows: int) -> Predictions:
    """Return what a model says of some rows, checked."""
    with complaining(inputs):
        answer = ask(inputs)
    found = (
        answer if isinstance(answer, Predictions) else Predictions.from_logits(answer)
    )
    if len(found) != rows:
        message = f"the model gave {len(found)} answers to {rows} rows."
        raise InputError(message)
    return found
