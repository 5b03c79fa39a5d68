"""A function of inputs to logits, for a model of any known kind."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trustdoctor.errors import InputError

Predictor = Callable[[Any], Any]


def predictor(model: Any) -> Predictor:
    """Return a function of inputs to logits, for a model of any known kind."""
    if isinstance(model, (str, Path)) and str(model).endswith(".onnx"):
        from trustdoctor.adapters import onnx

        return onnx.predictor(model)
    if isinstance(model, (str, Path, tuple)):
        from trustdoctor.adapters import transformers

        return transformers.predictor(model)
    if hasattr(model, "predict_proba"):
        from trustdoctor.adapters import sklearn

        return sklearn.predictor(model)
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
