"""Predictions of an ONNX model, run by onnxruntime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.adapters.onnx.model_file import load_model
from trustdoctor.adapters.onnx.score_tensor import (
    find_scores,
    nodes_by_output,
    score_tensor_of_output,
)
from trustdoctor.errors import InputError, missing_package
from trustdoctor.predictions import Predictions

INPUT_TYPES = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}


def predict(  # noqa: PLR0913 - options, by keyword only
    path: str | Path,
    array: Any,
    *,
    labels: Any = None,
    batch_size: int = 256,
    logits: str | None = None,
    probs: str | None = None,
) -> Predictions:
    """Run a model with onnxruntime and return its predictions.

    Parameters
    ----------
    path : path
    array : array (n, ...)
        Rows for the model's one input.
    labels : array (n,), optional
    batch_size : int
    logits, probs : str, optional
        The output that holds them, if its name does not tell.
    """
    rows = np.asarray(array)
    if not len(rows) or type(batch_size) is not int or batch_size < 1:
        message = "expected at least one row, and a batch_size of 1 or more."
        raise InputError(message)
    model, _ = load_model(Path(path))
    output, is_probs = _runnable_output(model, logits, probs)
    values = _run(Path(path), output, rows, batch_size)
    make = Predictions.from_probs if is_probs else Predictions.from_logits
    return make(values, labels)


def predictor(path: str | Path, **options: Any) -> Callable[[Any], Predictions]:
    """Return a function of inputs to predictions, for `SecondOpinion`."""
    return lambda array: predict(path, array, **options)


def _run(path: Path, output: str, rows: NDArray[Any], batch_size: int) -> NDArray[Any]:
    """Return an output of the model on rows, batch by batch."""
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_package(
            what="running a model", package="onnxruntime", extra="onnx"
        ) from error
    n = len(rows)
    try:
        session = onnxruntime.InferenceSession(
            str(path), providers=["CPUExecutionProvider"]
        )
        (model_input,) = session.get_inputs()
        rows = rows.astype(INPUT_TYPES.get(model_input.type, rows.dtype))
        if isinstance(model_input.shape[0], int):  # a batch of fixed size is filled up
            batch_size = model_input.shape[0]
            padding = -len(rows) % batch_size
            rows = np.concatenate([rows, np.repeat(rows[-1:], padding, axis=0)])
        batches = []
        for start in range(0, len(rows), batch_size):
            inputs = {model_input.name: rows[start : start + batch_size]}
            batches.append(_as_table(session.run([output], inputs)[0]))
    except Exception as error:  # onnxruntime has an exception for each of its codes
        first = str(error).strip().splitlines()[0]
        message = f"the model {path} does not run on rows of {rows.shape[1:]}: {first}."
        raise InputError(message) from error
    return np.concatenate(batches)[:n]


def _as_table(answer: Any) -> NDArray[Any]:
    """Return rows of numbers; a ZipMap answers with one dict per row."""
    if isinstance(answer, list):
        return np.array([list(row.values()) for row in answer])
    return np.asarray(answer)


def _runnable_output(
    model: Any, logits: str | None, probs: str | None
) -> tuple[str, bool]:
    """Return an output to run, and whether it holds probabilities."""
    source = find_scores(model, logits=logits, probs=probs)
    if logits is not None or probs is not None:
        return source.tensor, source.probs
    # onnxruntime runs outputs alone; the logits may lie behind a Softmax within the
    # graph, and then the output is that of the Softmax.
    nodes = nodes_by_output(model.graph)
    outputs = [value.name for value in model.graph.output]
    name = next(o for o in outputs if score_tensor_of_output(o, nodes) is not None)
    is_softmax = "LogSoftmax" not in source.why and source.tensor != name
    return name, is_softmax or source.probs
