"""The gate inside an ONNX graph: it travels with the model, whatever runs it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from trustdoctor.adapters.onnx.graph import (
    GraphBuilder,
    add_check,
    add_decision,
    add_score,
    add_sum_check,
    check_score,
    needs_logits,
)
from trustdoctor.adapters.onnx.model_file import (
    load_model,
    require_other_weights,
    save_model,
)
from trustdoctor.adapters.onnx.score_tensor import Taken, find_scores
from trustdoctor.adapters.onnx.shortlist import add_shortlist, check_width
from trustdoctor.atomic import require_apart, require_writable
from trustdoctor.errors import InputError
from trustdoctor.gates import Gate, check_same_classes
from trustdoctor.predictions import plain_name

FLOATS = {
    TensorProto.FLOAT16: np.float16,
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
}

HALF_INFINITY = 65520.0
"""From here on a number becomes infinite in float16."""


def export(
    model: str | Path,
    gate: Gate,
    output: str | Path,
    *,
    logits: str | None = None,
    probs: str | None = None,
) -> Taken:
    """Append a gate's score and decision to a model, as the outputs doubt and accepted.

    A gate with a shortlist adds an output shortlist: the classes that a rejected row
    may be, as a mask (rows, classes); all of them mean a full review.

    A row that cannot be scored (NaN, a largest logit that is not finite, probabilities
    that do not sum to 1 within 0.01) has the doubt NaN and is rejected by every gate;
    its list is a full review.

    Parameters
    ----------
    model : path
        An ONNX file, opset 13 or newer, in float16, float32 or float64. Weights in
        external files are kept external.
    gate : Gate
        Of a score that is a function of the logits, without groups.
    output : path
        Where to write the guarded model.
    logits, probs : str, optional
        The tensor (an output, or any other) that holds them. By default the logits
        behind a final Softmax, or an output with a usual name.

    Returns
    -------
    Taken
        The tensor that is scored, and why.
    """
    check_gate(gate)
    loaded, external = load_model(Path(model))
    target = require_writable(output)
    require_apart([target], [Path(model)])
    source = find_scores(loaded, logits=logits, probs=probs)
    if source.probs and needs_logits(gate.require_score()):
        message = (
            f"the score {gate.score_name} needs true logits, and {source.tensor!r} "
            "holds probabilities. Name the logits, or calibrate alpha, beta or msp."
        )
        raise InputError(message)
    if external:
        require_other_weights(Path(model), target)
    _append(loaded, gate, source)
    save_model(loaded, target, external=external)
    return source


def check_gate(gate: Gate) -> None:
    """Refuse a gate that no graph of the logits can hold, and say why."""
    if gate.score is None:
        message = (
            "this gate names no score: it was calibrated on scores of perturbed inputs "
            "or of views, which the logits do not give. Make one with "
            "calibrate(predictions, score=...)."
        )
        raise InputError(message)
    if gate.groups or (gate.shortlist is not None and gate.shortlist.groups):
        message = (
            f"this gate has thresholds for groups ({gate.grouped_by}), which the graph "
            "does not know. Calibrate one without."
        )
        raise InputError(message)
    if gate.decided_by:
        message = (
            f"this gate is about decisions of the system's own ({gate.decided_by}), "
            "which the graph does not know. Calibrate one without cutoff and predicted."
        )
        raise InputError(message)
    check_score(gate.score)


def outputs_of(gate: Gate) -> tuple[str, ...]:
    """Return the names of the outputs that a gate adds to a model."""
    lists = () if gate.shortlist is None else ("shortlist",)
    return ("doubt", "accepted", *lists)


def _append(model: Any, gate: Gate, source: Taken) -> None:
    graph = model.graph
    tensor_names = {name for node in graph.node for name in node.output}
    tensor_names |= {value.name for value in (*graph.input, *graph.initializer)}
    for name in outputs_of(gate):
        if name in tensor_names:
            message = f"the model has a tensor {name!r} already: is it guarded?"
            raise InputError(message)
    dtype, classes = _type_of(model, source.tensor)
    check_same_classes(gate, _named_classes(graph, classes))
    # In float16 a score would have three digits; its infinity is still the model's.
    half = dtype == np.float16
    largest = HALF_INFINITY if half else math.inf
    builder = GraphBuilder(graph, np.float32 if half else dtype, tensor_names)
    tensor = builder.cast(source.tensor) if half else source.tensor
    logits = builder("Log", tensor) if source.probs else tensor
    gate_classes = gate.classes
    width = gate_classes if isinstance(gate_classes, int) else len(gate_classes or ())
    if width and not classes:  # rows of another width fail when the model runs
        logits = builder("Reshape", logits, builder.constant([0, width]))
    valid = add_check(builder, logits, largest)
    if source.probs:
        valid = builder("And", valid, add_sum_check(builder, tensor))
    score = add_score(builder, logits, gate.require_score())
    doubt_type = helper.np_dtype_to_tensor_dtype(np.dtype(builder.dtype))
    doubt = [valid, score, builder.number(math.nan)]
    builder.add_output("doubt", doubt_type, ["rows"], "Where", *doubt)
    below = add_decision(builder, gate)
    builder.add_output("accepted", TensorProto.BOOL, ["rows"], "And", valid, below)
    if gate.shortlist is not None:
        check_width(gate.shortlist, source.tensor, classes)
        add_shortlist(builder, logits, gate.shortlist, valid, largest)
    entry = model.metadata_props.add()
    entry.key, entry.value = "trustdoctor.gate", gate.to_json()


def _type_of(model: Any, tensor: str) -> tuple[Any, int]:
    """Return a tensor's type and its number of classes, 0 if that is unknown.

    They are found by shape inference if they are not declared.
    """
    typed = model
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except Exception:  # a model too large for it; what is declared must do
        typed = model
    values = (*typed.graph.value_info, *typed.graph.output, *typed.graph.input)
    for value in values:
        if value.name == tensor and value.type.HasField("tensor_type"):
            element_type = value.type.tensor_type.elem_type
            shape = value.type.tensor_type.shape.dim
            if element_type not in FLOATS or (shape and len(shape) != 2):
                message = f"expected {tensor!r} as real numbers (rows, classes)."
                raise InputError(message)
            if shape and shape[1].dim_value == 1:
                message = (
                    f"{tensor!r} has one column. Let the model put out one per class."
                )
                raise InputError(message)
            return FLOATS[element_type], shape[1].dim_value if shape else 0
    return np.float32, 0


def _named_classes(graph: Any, size: int) -> int | tuple[str, ...] | None:
    """Return a model's classes, by the names that scikit-learn's converters give them.

    A `size` of 0 is not known; None if neither names nor a size are.
    """
    name_lists = set()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name.startswith("classlabels_"):
                labels = helper.get_attribute_value(attribute)
                name_lists.add(tuple(plain_name(_text(label)) for label in labels))
    fitting = [names for names in name_lists if size in (0, len(names))]
    if len(fitting) != 1:
        return size or None
    # Converters write numbers from 0 on for classes that have no names.
    numbers = tuple(map(str, range(len(fitting[0]))))
    return len(numbers) if fitting[0] == numbers else fitting[0]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
