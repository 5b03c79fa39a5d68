"""A shortlist as nodes of an ONNX graph, in float64 as in Python."""

import math

import numpy as np
from onnx import TensorProto

from trustdoctor.adapters.onnx.graph import GraphBuilder
from trustdoctor.errors import InputError
from trustdoctor.gates import Shortlist


def check_width(shortlist: Shortlist, tensor: str, classes: int) -> None:
    """Refuse a tensor with other classes than a shortlist's; 0 are not known."""
    if classes not in (0, shortlist.n_classes):
        message = (
            f"expected {shortlist.n_classes:,} classes, as in the shortlist's "
            f"calibration, and {tensor!r} has {classes:,}. Calibrate on this model's "
            "predictions."
        )
        raise InputError(message)


def add_shortlist(
    builder: GraphBuilder, logits: str, shortlist: Shortlist, valid: str, largest: float
) -> None:
    """Add the lists of rows that are not accepted, as the output shortlist (n, C).

    A row that is not `valid` may be any class. What is below minus `largest` counts as
    -inf: a runtime may hand on wider numbers than the model's type has.
    """
    if largest < math.inf:
        finite = builder("Greater", logits, builder.number(-largest))
        logits = builder("Where", finite, logits, builder.number(-math.inf))
    shape = builder.constant([0, shortlist.n_classes])  # rows of another width fail
    listed = _listed_classes(builder, builder("Reshape", logits, shape), shortlist)
    full_review = builder("Not", valid)
    if shortlist.max_size is not None:
        max_size = builder.number(float(shortlist.max_size))
        too_long = builder("Greater", builder.count_true(listed), max_size)
        full_review = builder("Or", full_review, too_long)
    column = builder.constant([1])
    listed = builder("Or", listed, builder("Unsqueeze", full_review, column))
    rejected = builder("Unsqueeze", builder("Not", "accepted"), column)
    size = ["rows", shortlist.n_classes]
    builder.add_output("shortlist", TensorProto.BOOL, size, "And", listed, rejected)


def _listed_classes(builder: GraphBuilder, logits: str, shortlist: Shortlist) -> str:
    """Return the classes up to the threshold, and the predicted one, as a mask."""
    (top,), (predicted,) = builder.largest(logits, 1)
    if shortlist.method == "lac":
        nonconformity = _surprise(builder, logits, top)
    else:
        nonconformity = _ranked_mass(builder, logits, top, shortlist)
    threshold = builder.constant(np.array(shortlist.rule.threshold, np.float64))
    classes = builder.constant(np.arange(shortlist.n_classes)[None])
    is_predicted = builder("Equal", classes, predicted)
    conforming = builder("LessOrEqual", nonconformity, threshold)
    return str(builder("Or", conforming, is_predicted))


def _surprise(builder: GraphBuilder, logits: str, top: str) -> str:
    """Return -log p of every class."""
    logits, top = (builder("Cast", t, to=TensorProto.DOUBLE) for t in (logits, top))
    below = builder("Sub", logits, top)
    exponentials = builder("Exp", below)
    total = builder("ReduceSum", exponentials, builder.constant([1]), keepdims=1)
    return str(builder("Sub", builder("Log", total), below))


def _ranked_mass(
    builder: GraphBuilder, logits: str, top: str, shortlist: Shortlist
) -> str:
    """Return minus the mass from a class on downwards; far ranks cost a penalty."""
    size = shortlist.n_classes
    ordered, order = builder(
        "TopK", logits, builder.constant([size]), outputs=2, axis=1
    )
    p = builder("Exp", builder("Neg", _surprise(builder, ordered, top)))
    mass_from_here = builder("CumSum", p, builder.constant(1), reverse=1)
    penalty = float(shortlist.penalty) if shortlist.method == "raps" else 0.0
    beyond_free = np.maximum(np.arange(1, size + 1) - shortlist.free, 0)
    penalties = builder.constant((penalty * beyond_free)[None])
    ranked = builder("Sub", penalties, mass_from_here)
    return str(builder("ScatterElements", p, order, ranked, axis=1))
