"""A shortlist as nodes of an ONNX graph, in float64 as in Python."""

import math

import numpy as np
from onnx import TensorProto

from trustdoctor.adapters.onnx.graph import Maker
from trustdoctor.errors import InputError
from trustdoctor.gates import Shortlist


def check_width(short: Shortlist, tensor: str, classes: int) -> None:
    """Refuse a tensor of other classes than a shortlist's; 0 are not known."""
    if classes not in (0, short.n_classes):
        message = (
            f"expected {short.n_classes:,} classes, as in the shortlist's calibration, "
            f"and {tensor!r} has {classes:,}. Calibrate on this model's predictions."
        )
        raise InputError(message)


def put_out_lists(
    m: Maker, z: str, short: Shortlist, sound: str, largest: float
) -> None:
    """Add the lists of rows that are not accepted, as the output shortlist (n, C).

    A row that is not `sound` may be any class. What is below minus `largest` counts as
    -inf: a runtime may hand on wider numbers than the model's type has.
    """
    if largest < math.inf:
        there = m("Greater", z, m.number(-largest))
        z = m("Where", there, z, m.number(-math.inf))
    shape = m.constant([0, short.n_classes])  # rows of another width fail
    listed, column = _listed(m, m("Reshape", z, shape), short), m.constant([1])
    every = m("Not", sound)
    if short.max_size is not None:
        most = m.number(float(short.max_size))
        every = m("Or", every, m("Greater", m.how_many(listed), most))
    listed = m("Or", listed, m("Unsqueeze", every, column))
    rejected = m("Unsqueeze", m("Not", "accepted"), column)
    size = ["rows", short.n_classes]
    m.put_out("shortlist", TensorProto.BOOL, size, "And", listed, rejected)


def _listed(m: Maker, z: str, short: Shortlist) -> str:
    """Return which classes are no stranger than the threshold; the first one is on."""
    (highest,), (place,) = m.best(z, 1)
    if short.method == "lac":
        strange = _surprise(m, z, highest)
    else:
        strange = _ranked(m, z, highest, short)
    limit = m.constant(np.array(short.rule.threshold, np.float64))
    top = m("Equal", m.constant(np.arange(short.n_classes)[None]), place)
    return str(m("Or", m("LessOrEqual", strange, limit), top))


def _surprise(m: Maker, z: str, highest: str) -> str:
    """Return -log p of every class."""
    wide, top = (m("Cast", part, to=TensorProto.DOUBLE) for part in (z, highest))
    below = m("Sub", wide, top)
    total = m("ReduceSum", m("Exp", below), m.constant([1]), keepdims=1)
    return str(m("Sub", m("Log", total), below))


def _ranked(m: Maker, z: str, highest: str, short: Shortlist) -> str:
    """Return minus the mass from a class on downwards, ranks beyond some cost."""
    size = short.n_classes
    ordered, order = m("TopK", z, m.constant([size]), outputs=2, axis=1)
    p = m("Exp", m("Neg", _surprise(m, ordered, highest)))
    rest = m("CumSum", p, m.constant(1), reverse=1)
    penalty = float(short.penalty) if short.method == "raps" else 0.0
    beyond = np.maximum(np.arange(1, size + 1) - short.free, 0)
    ranked = m("Sub", m.constant((penalty * beyond)[None]), rest)
    return str(m("ScatterElements", p, order, ranked, axis=1))
