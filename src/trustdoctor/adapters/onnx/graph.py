"""Scores as nodes of an ONNX graph, in the stable form of the kernels."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from trustdoctor.errors import InputError
from trustdoctor.gates import Gate
from trustdoctor.predictions import PROBS_TOLERANCE
from trustdoctor.scores import (
    Fusion,
    LogitScore,
    RelU,
    Score,
    default_parameters,
    find_logit_score,
)
from trustdoctor.tuning import Tuned

PREFIX = "trustdoctor"


class Maker:
    """Adds nodes to a graph and returns the names of what they put out."""

    def __init__(self, graph: Any, dtype: Any, taken: set[str]) -> None:
        self.graph, self.dtype, self.count, self.taken = graph, dtype, 0, taken

    def name(self) -> str:
        """Return a name that is not taken."""
        self.count += 1
        name = f"{PREFIX}/{self.count}"
        return self.name() if name in self.taken else name

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **options: Any) -> Any:
        """Add a node; return the name of its output, or of all where there are more."""
        names = [self.name() for _ in range(outputs)]
        self.graph.node.append(helper.make_node(op, list(inputs), names, **options))
        return names[0] if outputs == 1 else names

    def put_out(self, name: str, kind: int, shape: Any, op: str, *inputs: str) -> None:
        """Add a node that the graph puts out under a name."""
        self.graph.node.append(helper.make_node(op, list(inputs), [name]))
        self.graph.output.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, value: Any) -> str:
        """Add a constant."""
        name = self.name()
        array = np.asarray(value)
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """Add a number of the graph's own type."""
        return self.constant(np.array(value, self.dtype))

    def cast(self, tensor: str) -> str:
        """Bring a tensor to the graph's own type."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return str(self("Cast", tensor, to=kind))

    def total(self, tensor: str) -> str:
        """Sum over the classes."""
        return str(self("ReduceSum", tensor, self.constant([1]), keepdims=0))

    def how_many(self, tensor: str) -> str:
        """Count what is true over the classes."""
        return self.total(self.cast(tensor))

    def best(self, tensor: str, k: int) -> Any:
        """Return the k largest of each row and their places, as columns (n, 1)."""
        values, places = self("TopK", tensor, self.constant([k]), outputs=2, axis=1)
        if k == 1:
            return [values], [places]
        sizes = self.constant([1] * k)
        return (
            self("Split", values, sizes, outputs=k, axis=1),
            self("Split", places, sizes, outputs=k, axis=1),
        )


class _Row:
    """What all scores stand on: B, the sums behind it, and their guards."""

    def __init__(
        self, m: Maker, z: str, temperature: float, p: float | None = None
    ) -> None:
        self.m, self.temperature, self.classes, self.lead = m, temperature, "", ""
        self.exponent = 1.0
        if p is not None:
            z, self.lead, self.classes = _normalise(m, z, p)
        zero, one, none = m.number(0.0), m.number(1.0), m.number(-math.inf)
        (first, second), (place, _) = m.best(z, 2)
        self.z, self.highest = z, first
        self.first = m("Squeeze", first, m.constant([1]))
        cool = m.number(temperature)
        width = m("Gather", m("Shape", z), m.constant([1]), axis=0)
        at = m("Squeeze", place, m.constant([1]))
        hot = m("OneHot", at, width, m.constant(np.array([0, 1], np.float32)))
        self.top = m("Cast", hot, to=TensorProto.BOOL)
        self.u = m("Div", m("Sub", z, first), cool)
        gap = m("Div", m("Sub", second, first), cool)
        self.gap = m("Squeeze", gap, m.constant([1]))
        offset = m("Where", m("IsInf", gap), zero, gap)
        self.offset = m("Squeeze", offset, m.constant([1]))
        self.below = m("Where", self.top, none, m("Sub", self.u, offset))
        self.e = m("Exp", self.below)
        self.s = m.total(self.e)
        empty = m("Equal", self.s, zero)
        self.safe = m("Where", empty, one, self.s)
        self.b = m("Add", self.offset, m("Log", self.s))
        self.a = m("Exp", self.b)
        self.log1p_a = m("Log", m("Add", one, self.a))
        self.one, self.zero = one, zero


def needs_logits(score: Score) -> bool:
    """Tell whether probabilities are not enough for a score."""
    return "logits" in score.needs


def check_score(score: Score) -> None:
    """Refuse a score that is not a function of the logits, or not known here."""
    names = [score.name]
    if isinstance(score, Fusion):
        names = list(score.names)
    elif isinstance(score, Tuned):
        names = [member.name for member in score.scores]
    known = {*_FORMULAS} | ({RelU.name} if isinstance(score, RelU) else set())
    unknown = [name for name in names if name.partition(":")[0] not in known]
    if unknown:
        message = (
            f"an ONNX graph cannot hold the score {unknown[0]!r}: it is not a formula "
            "of the logits that is written there. Calibrate another."
        )
        raise InputError(message)


def add_check(m: Maker, z: str, largest: float) -> str:
    """Add whether rows of logits can be scored; return the name of the tensor.

    No logit may be NaN or +inf, and one at least must be above -inf. `largest` is what
    counts as infinite: a runtime may hand on wider numbers than the model's type has.
    """
    fine = m("Less", z, m.number(largest))  # never of NaN
    there = m("Greater", z, m.number(-largest))
    none_bad = m("Equal", m.how_many(m("Not", fine)), m.number(0.0))
    return str(m("And", none_bad, m("Greater", m.how_many(there), m.number(0.0))))


def add_sum_check(m: Maker, probs: str) -> str:
    """Add whether rows of probabilities sum to 1, nearly."""
    miss = m("Abs", m("Sub", m.total(probs), m.number(1.0)))
    return str(m("LessOrEqual", miss, m.number(PROBS_TOLERANCE)))


def add_score(m: Maker, z: str, score: Score) -> str:
    """Add a score of the logits z; return the name of its tensor."""
    check_score(score)
    if isinstance(score, RelU):
        return _rel_u(m, z, score)
    if isinstance(score, Fusion):
        return _fusion(m, z, score)
    if isinstance(score, Tuned):
        return _tuned(m, z, score)
    assert isinstance(score, LogitScore)
    return _formula(m, z, score)


def add_decision(m: Maker, gate: Gate) -> str:
    """Add whether doubts are at most a threshold; return the name of the tensor."""
    threshold = {"accept-all": math.inf, "reject-all": -math.inf}.get(
        gate.state, gate.threshold
    )
    wide = m("Cast", "doubt", to=TensorProto.DOUBLE)
    compare = "Less" if gate.state == "reject-all" else "LessOrEqual"
    return str(m(compare, wide, m.constant(np.array(threshold, np.float64))))


def _formula(m: Maker, z: str, score: LogitScore) -> str:
    """Return a formula of the logits, with its parameters."""
    options = {**default_parameters(score.function), **score.parameters}
    warm = 1.0 if score.registered_name == "normalised_margin" else score.temperature
    row = _Row(m, z, options.get("t", warm), options.get("p"))
    row.exponent = options.get("exponent", 1.0)
    return str(_FORMULAS[score.registered_name](m, row))


def _tuned(m: Maker, z: str, score: Tuned) -> str:
    """Return the mean rank: each a sum of ramps between quantiles, and two beyond."""
    if score.only_member is not None:
        return _formula(m, z, score.only_member)
    ranked = []
    for own, knots, ranks in zip(score.scores, score.knots, score.ranks, strict=True):
        wide, high = np.diff(knots), np.diff(ranks)
        x = m("Unsqueeze", _formula(m, z, own), m.constant([1]))
        past = m("Sub", x, m.constant(knots[None, :-1].astype(m.dtype)))
        along = m("Mul", past, m.constant((1 / wide)[None].astype(m.dtype)))
        least, most = np.zeros_like(wide), np.ones_like(wide)
        least[0], most[-1] = -np.inf, np.inf
        low, top = (m.constant(end[None].astype(m.dtype)) for end in (least, most))
        ramps = m("Min", m("Max", along, low), top)
        part = m.total(m("Mul", ramps, m.constant(high[None].astype(m.dtype))))
        ranked.append(m("Add", part, m.number(float(ranks[0]))))
    return str(m("Div", m("Sum", *ranked), m.number(float(len(ranked)))))


def _rel_u(m: Maker, z: str, score: RelU) -> str:
    """Return log(p' D p), p the softmax of z / T; D has no diagonal."""
    # p = (t + w e) / (1 + a): t is 1 at the top, w e the odds of the others. So p' D p
    # is w (t' D e + e' D t + w e' D e) / (1 + a)^2, where w alone may underflow.
    r, d = _Row(m, z, score.temperature), score.matrix
    both, one = (m.constant(part.astype(m.dtype)) for part in (d + d.T, d))
    near = m.total(m("Mul", m("MatMul", m.cast(r.top), both), r.e))
    far = m.total(m("Mul", m("MatMul", r.e, one), r.e))
    inner = m("Add", near, m("Mul", m("Exp", r.offset), far))
    outer = m("Mul", m.number(2.0), r.log1p_a)
    return str(m("Sub", m("Add", r.offset, m("Log", inner)), outer))


def _fusion(m: Maker, z: str, score: Fusion) -> str:
    """Return the weighted sum of the standardised scores."""
    total = m.number(score.bias)
    for k, name in enumerate(score.names):
        low, high = (m.number(float(end)) for end in score.bounds[:, k])
        own = m("Min", m("Max", _formula(m, z, find_logit_score(name)), low), high)
        centred = m("Sub", own, m.number(float(score.means[k])))
        weight = m.number(float(score.weights[k] / score.deviations[k]))
        total = m("Add", total, m("Mul", weight, centred))
    return str(total)


def _alpha(m: Maker, r: _Row) -> str:
    """Return B + log(2 + exp(B) - exp(B2 - B)) - log(1 + exp(B2))."""
    squares = m.total(m("Mul", r.e, r.e))
    scale = m("Exp", r.offset)
    ratio = m("Div", m("Mul", scale, squares), r.safe)
    inner = m("Sub", m("Add", m.number(2.0), r.a), ratio)
    second = m("Mul", m("Mul", scale, scale), squares)
    outer = m("Log", m("Add", r.one, second))
    return str(m("Sub", m("Add", r.b, m("Log", inner)), outer))


def _energy(m: Maker, r: _Row) -> str:
    warm = m("Mul", m.number(r.temperature), r.log1p_a)
    return str(m("Neg", m("Add", r.first, warm)))


def _entropy(m: Maker, r: _Row) -> str:
    # H = a (log1p(a) / a + k / (1 + a)), k the mean of -u under e / s
    small = m("Less", r.a, m.number(1e-3))
    safe = m("Where", small, r.one, r.a)
    series = m("Sub", r.one, m("Mul", m.number(0.5), r.a))
    square = m("Mul", m("Mul", m.number(1 / 3), r.a), r.a)
    ratio = m(
        "Where",
        small,
        m("Add", series, square),
        m("Div", m("Log", m("Add", r.one, safe)), safe),
    )
    finite = m("Where", m("Equal", r.e, r.zero), r.zero, r.below)
    mean = m("Div", m.total(m("Mul", r.e, finite)), r.safe)
    k = m("Neg", m("Add", r.offset, mean))
    inner = m("Add", ratio, m("Div", k, m("Add", r.one, r.a)))
    return str(m("Add", r.b, m("Log", inner)))


def _pnorm(m: Maker, r: _Row) -> str:
    """Return minus the lead of rows whose lengths were taken out; msp for C = 2."""
    certain = m("Equal", r.classes, r.one)
    doubt = m("Where", certain, m.number(-math.inf), m("Neg", r.lead))
    two = m("Equal", r.classes, m.number(2.0))
    return str(m("Where", two, m("Sub", r.b, r.log1p_a), doubt))


def _normalise(m: Maker, z: str, p: float) -> tuple[str, str, str]:
    """Return logits without their length, leads, and how many are above -inf."""
    column, zero, one = m.constant([1]), m.number(0.0), m.number(1.0)
    there = m("Greater", z, m.number(-math.inf))
    classes = m.how_many(there)
    count = m("Unsqueeze", classes, column)
    below = _below(m, z, there)
    mean = m("Div", m("Unsqueeze", m.total(below), column), count)
    centred = m("Where", there, m("Sub", below, mean), zero)
    scale, flat = _scale(m, centred)
    small = m("Div", centred, scale)
    # What is above the mean is as much as what is below.
    above = m("Mul", m.number(2.0), m("Relu", small))
    sizes = above if p == 1 else m("Pow", m("Abs", small), m.number(p))
    total = m("Unsqueeze", m.total(sizes), column)
    root = m("Pow", m("Where", flat, one, total), m.number(1 / p))
    length = m("Mul", scale, root)
    lead = m("Squeeze", m("Neg", m("Div", mean, length)), column)
    kept = m("Where", m("Equal", count, m.number(2.0)), z, m("Div", below, length))
    return m("Where", there, kept, z), lead, classes


def _below(m: Maker, z: str, there: str) -> str:
    """Return how far logits are below the top, the farthest at -1; 0 where masked."""
    (highest,), _ = m.best(z, 1)
    kept = m("Where", there, z, highest)
    small, (widest,) = m.number(1 / 16), m.best(m("Abs", kept), 1)[0]
    apart = m("Sub", m("Mul", kept, small), m("Mul", highest, small))
    wide = m("Greater", widest, m.number(1.0))
    below = m("Where", wide, apart, m("Sub", kept, highest))
    return str(m("Div", below, _scale(m, below)[0]))


def _scale(m: Maker, sizes: str) -> tuple[str, str]:
    """Return the largest size of each row, 1 for 0, and where it is 0."""
    (largest,), _ = m.best(m("Abs", sizes), 1)
    flat = m("Equal", largest, m.number(0.0))
    return m("Where", flat, m.number(1.0), largest), flat


def _gen(m: Maker, r: _Row) -> str:
    column = m.constant([1])
    log_z = m("Unsqueeze", r.log1p_a, column)
    log_p = m("Sub", r.u, log_z)
    wrong = m("Sub", m("Unsqueeze", r.b, column), log_z)
    small = m("Where", r.top, m.number(-1.0), log_p)
    others = m("Log", m("Sub", r.one, m("Exp", small)))
    terms = m("Add", log_p, m("Where", r.top, wrong, others))
    terms = m("Mul", m.number(r.exponent), terms)
    (highest,), _ = m.best(terms, 1)
    safe = m("Where", m("IsInf", highest), r.zero, highest)
    total = m.total(m("Exp", m("Sub", terms, safe)))
    return str(m("Add", m("Squeeze", safe, column), m("Log", total)))


_FORMULAS: dict[str, Callable[[Maker, _Row], str]] = {
    "alpha": _alpha,
    "beta": lambda _m, r: r.b,
    "msp": lambda m, r: m("Sub", r.b, r.log1p_a),
    "entropy": _entropy,
    "margin": lambda _m, r: r.gap,
    "max_logit": lambda m, r: m("Div", r.first, m.number(-r.temperature)),
    "energy": _energy,
    "gen": _gen,
    "pnorm": _pnorm,
    "normalised_alpha": _alpha,
    "normalised_margin": lambda _m, r: r.gap,
}
