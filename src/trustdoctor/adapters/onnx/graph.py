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


class GraphBuilder:
    """Adds nodes to a graph; calling it returns the names of a node's outputs."""

    def __init__(self, graph: Any, dtype: Any, used_names: set[str]) -> None:
        self.graph, self.dtype = graph, dtype
        self.count, self.used_names = 0, used_names

    def new_name(self) -> str:
        """Return a name that no tensor has."""
        self.count += 1
        name = f"{PREFIX}/{self.count}"
        return self.new_name() if name in self.used_names else name

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **options: Any) -> Any:
        """Add a node; return the name of its output, or of all if there are more."""
        names = [self.new_name() for _ in range(outputs)]
        self.graph.node.append(helper.make_node(op, list(inputs), names, **options))
        return names[0] if outputs == 1 else names

    def add_output(
        self, name: str, element_type: int, shape: Any, op: str, *inputs: str
    ) -> None:
        """Add a node whose output the graph puts out under a name."""
        self.graph.node.append(helper.make_node(op, list(inputs), [name]))
        info = helper.make_tensor_value_info(name, element_type, shape)
        self.graph.output.append(info)

    def constant(self, value: Any) -> str:
        """Add a constant."""
        name = self.new_name()
        array = np.asarray(value)
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """Add a number of the graph's own type."""
        return self.constant(np.array(value, self.dtype))

    def cast(self, tensor: str) -> str:
        """Bring a tensor to the graph's own type."""
        element_type = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return str(self("Cast", tensor, to=element_type))

    def total(self, tensor: str) -> str:
        """Sum over the classes."""
        return str(self("ReduceSum", tensor, self.constant([1]), keepdims=0))

    def count_true(self, tensor: str) -> str:
        """Count what is true over the classes."""
        return self.total(self.cast(tensor))

    def largest(self, tensor: str, k: int) -> Any:
        """Return the k largest of each row and their places, as columns (n, 1)."""
        # TopK breaks ties by the lower place, as argmax does in numpy.
        values, places = self("TopK", tensor, self.constant([k]), outputs=2, axis=1)
        if k == 1:
            return [values], [places]
        sizes = self.constant([1] * k)
        return (
            self("Split", values, sizes, outputs=k, axis=1),
            self("Split", places, sizes, outputs=k, axis=1),
        )


class _RowTerms:
    """The terms of B = log(sum of exp(z_k - z_top) over the others), for all scores.

    Attributes
    ----------
    a, b, log1p_a : str
        exp(B), B and log(1 + exp(B)).
    u : str
        The logits less the top one, divided by the temperature.
    gap, offset : str
        The runner-up's u; 0 instead if it is -inf.
    below, e, s : str
        Of the others, u less the offset; its exponential; their sum.
    safe : str
        s, or 1 if it is 0.
    top : str
        Where the top class is.
    """

    def __init__(
        self, g: GraphBuilder, z: str, temperature: float, p: float | None = None
    ) -> None:
        self.temperature, self.classes, self.lead = temperature, "", ""
        self.exponent = 1.0
        if p is not None:
            z, self.lead, self.classes = _normalise(g, z, p)
        self.zero, self.one = g.number(0.0), g.number(1.0)
        minus_inf = g.number(-math.inf)
        (first, second), (place, _) = g.largest(z, 2)
        column = g.constant([1])
        self.first = g("Squeeze", first, column)
        divisor = g.number(temperature)
        width = g("Gather", g("Shape", z), column, axis=0)
        top_place = g("Squeeze", place, column)
        # Only one class is the top, even of several with the same logit: OneHot by
        # place, not Equal by value.
        one_hot = g(
            "OneHot", top_place, width, g.constant(np.array([0, 1], np.float32))
        )
        self.top = g("Cast", one_hot, to=TensorProto.BOOL)
        self.u = g("Div", g("Sub", z, first), divisor)
        gap = g("Div", g("Sub", second, first), divisor)
        self.gap = g("Squeeze", gap, column)
        # Exponentials are of u less the runner-up's, which is the largest: the sum is
        # at least 1, and underflows only if every other logit is -inf.
        offset = g("Where", g("IsInf", gap), self.zero, gap)
        self.offset = g("Squeeze", offset, column)
        self.below = g("Where", self.top, minus_inf, g("Sub", self.u, offset))
        self.e = g("Exp", self.below)
        self.s = g.total(self.e)
        is_empty = g("Equal", self.s, self.zero)
        self.safe = g("Where", is_empty, self.one, self.s)
        self.b = g("Add", self.offset, g("Log", self.s))
        self.a = g("Exp", self.b)
        self.log1p_a = g("Log", g("Add", self.one, self.a))


def needs_logits(score: Score) -> bool:
    """Tell whether probabilities are not enough for a score."""
    return "logits" in score.needs


def check_score(score: Score) -> None:
    """Refuse a score that is not a function of the logits, or has no nodes here."""
    names = [score.name]
    if isinstance(score, Fusion):
        names = list(score.names)
    elif isinstance(score, Tuned):
        names = [member.name for member in score.scores]
    supported = {*_FORMULAS} | ({RelU.name} if isinstance(score, RelU) else set())
    unknown = [name for name in names if name.partition(":")[0] not in supported]
    if unknown:
        message = (
            f"an ONNX graph cannot hold the score {unknown[0]!r}: it is not a formula "
            "of the logits that is written there. Calibrate another."
        )
        raise InputError(message)


def add_check(g: GraphBuilder, z: str, largest: float) -> str:
    """Add whether rows of logits can be scored; return the name of the tensor.

    No logit may be NaN or +inf, and one at least must be above -inf. From `largest` on
    a number counts as infinite.
    """
    # A runtime may hand on wider numbers than the model's type has: onnxruntime
    # computes float16 in float32, in which 65520 is not yet infinite.
    below_inf = g("Less", z, g.number(largest))  # false for NaN
    above_minus_inf = g("Greater", z, g.number(-largest))
    bad = g.count_true(g("Not", below_inf))
    none_bad = g("Equal", bad, g.number(0.0))
    finite = g.count_true(above_minus_inf)
    return str(g("And", none_bad, g("Greater", finite, g.number(0.0))))


def add_sum_check(g: GraphBuilder, probs: str) -> str:
    """Add whether rows of probabilities sum to 1, nearly."""
    distance = g("Abs", g("Sub", g.total(probs), g.number(1.0)))
    return str(g("LessOrEqual", distance, g.number(PROBS_TOLERANCE)))


def add_score(g: GraphBuilder, z: str, score: Score) -> str:
    """Add a score of the logits z; return the name of its tensor."""
    check_score(score)
    if isinstance(score, RelU):
        return _rel_u(g, z, score)
    if isinstance(score, Fusion):
        return _fusion(g, z, score)
    if isinstance(score, Tuned):
        return _tuned(g, z, score)
    assert isinstance(score, LogitScore)
    return _formula(g, z, score)


def add_decision(g: GraphBuilder, gate: Gate) -> str:
    """Add whether doubts are at most a threshold; return the name of the tensor."""
    threshold = {"accept-all": math.inf, "reject-all": -math.inf}.get(
        gate.state, gate.threshold
    )
    # In float64: a threshold rounded to float32 would accept rows that Python rejects.
    doubt = g("Cast", "doubt", to=TensorProto.DOUBLE)
    # A doubt of -inf is rejected by reject-all, too: it is not below -inf.
    compare = "Less" if gate.state == "reject-all" else "LessOrEqual"
    return str(g(compare, doubt, g.constant(np.array(threshold, np.float64))))


def _formula(g: GraphBuilder, z: str, score: LogitScore) -> str:
    """Return a formula of the logits, with its parameters."""
    options = {**default_parameters(score.function), **score.parameters}
    # normalised_margin has no temperature; the other normalised scores have t.
    t = 1.0 if score.registered_name == "normalised_margin" else score.temperature
    row = _RowTerms(g, z, options.get("t", t), options.get("p"))
    row.exponent = options.get("exponent", 1.0)
    return str(_FORMULAS[score.registered_name](g, row))


def _tuned(g: GraphBuilder, z: str, score: Tuned) -> str:
    """Return the mean rank: each a sum of ramps between quantiles, and two beyond."""
    if score.only_member is not None:
        return _formula(g, z, score.only_member)
    mean_ranks = []
    for member, knots, ranks in zip(
        score.scores, score.knots, score.ranks, strict=True
    ):
        widths, heights = np.diff(knots), np.diff(ranks)
        doubts = g("Unsqueeze", _formula(g, z, member), g.constant([1]))
        past_knot = g("Sub", doubts, g.constant(knots[None, :-1].astype(g.dtype)))
        share = g("Mul", past_knot, g.constant((1 / widths)[None].astype(g.dtype)))
        # Each ramp rises from 0 to 1 within its knots; the outer two go on for ever.
        lows, highs = np.zeros_like(widths), np.ones_like(widths)
        lows[0], highs[-1] = -np.inf, np.inf
        low, high = (g.constant(end[None].astype(g.dtype)) for end in (lows, highs))
        ramps = g("Min", g("Max", share, low), high)
        risen = g.total(g("Mul", ramps, g.constant(heights[None].astype(g.dtype))))
        mean_ranks.append(g("Add", risen, g.number(float(ranks[0]))))
    count = g.number(float(len(mean_ranks)))
    return str(g("Div", g("Sum", *mean_ranks), count))


def _rel_u(g: GraphBuilder, z: str, score: RelU) -> str:
    """Return log(p' D p), p the softmax of z / T; D has no diagonal."""
    # p = (t + w e) / (1 + a): t is 1 at the top, w e the odds of the others. So p' D p
    # is w (t' D e + e' D t + w e' D e) / (1 + a)^2, where w alone may underflow.
    r, d = _RowTerms(g, z, score.temperature), score.matrix
    symmetric, matrix = (g.constant(array.astype(g.dtype)) for array in (d + d.T, d))
    with_top = g.total(g("Mul", g("MatMul", g.cast(r.top), symmetric), r.e))
    among_others = g.total(g("Mul", g("MatMul", r.e, matrix), r.e))
    inner = g("Add", with_top, g("Mul", g("Exp", r.offset), among_others))
    outer = g("Mul", g.number(2.0), r.log1p_a)
    return str(g("Sub", g("Add", r.offset, g("Log", inner)), outer))


def _fusion(g: GraphBuilder, z: str, score: Fusion) -> str:
    """Return the weighted sum of the standardised scores."""
    total = g.number(score.bias)
    for k, name in enumerate(score.names):
        low, high = (g.number(float(end)) for end in score.bounds[:, k])
        doubts = _formula(g, z, find_logit_score(name))
        clipped = g("Min", g("Max", doubts, low), high)
        centred = g("Sub", clipped, g.number(float(score.means[k])))
        weight = g.number(float(score.weights[k] / score.deviations[k]))
        total = g("Add", total, g("Mul", weight, centred))
    return str(total)


def _alpha(g: GraphBuilder, r: _RowTerms) -> str:
    """Return B + log(2 + exp(B) - exp(B2 - B)) - log(1 + exp(B2))."""
    squares = g.total(g("Mul", r.e, r.e))
    scale = g("Exp", r.offset)
    ratio = g("Div", g("Mul", scale, squares), r.safe)
    inner = g("Sub", g("Add", g.number(2.0), r.a), ratio)
    second = g("Mul", g("Mul", scale, scale), squares)
    outer = g("Log", g("Add", r.one, second))
    return str(g("Sub", g("Add", r.b, g("Log", inner)), outer))


def _energy(g: GraphBuilder, r: _RowTerms) -> str:
    above_top = g("Mul", g.number(r.temperature), r.log1p_a)
    return str(g("Neg", g("Add", r.first, above_top)))


def _entropy(g: GraphBuilder, r: _RowTerms) -> str:
    # H = a (log1p(a) / a + k / (1 + a)), k the mean of -u under e / s. For small a
    # log1p(a) / a is its series: log(1 + a) has lost the digits of a.
    is_small = g("Less", r.a, g.number(1e-3))
    safe_a = g("Where", is_small, r.one, r.a)
    series = g("Sub", r.one, g("Mul", g.number(0.5), r.a))
    square_term = g("Mul", g("Mul", g.number(1 / 3), r.a), r.a)
    ratio = g(
        "Where",
        is_small,
        g("Add", series, square_term),
        g("Div", g("Log", g("Add", r.one, safe_a)), safe_a),
    )
    finite = g("Where", g("Equal", r.e, r.zero), r.zero, r.below)
    mean = g("Div", g.total(g("Mul", r.e, finite)), r.safe)
    k = g("Neg", g("Add", r.offset, mean))
    inner = g("Add", ratio, g("Div", k, g("Add", r.one, r.a)))
    return str(g("Add", r.b, g("Log", inner)))


def _pnorm(g: GraphBuilder, r: _RowTerms) -> str:
    """Return minus the lead of normalised rows; msp for two classes."""
    one_class = g("Equal", r.classes, r.one)
    doubt = g("Where", one_class, g.number(-math.inf), g("Neg", r.lead))
    two_classes = g("Equal", r.classes, g.number(2.0))
    return str(g("Where", two_classes, g("Sub", r.b, r.log1p_a), doubt))


def _normalise(g: GraphBuilder, z: str, p: float) -> tuple[str, str, str]:
    """Return normalised logits, the lead of the top, and how many are above -inf."""
    column, zero, one = g.constant([1]), g.number(0.0), g.number(1.0)
    is_finite = g("Greater", z, g.number(-math.inf))
    classes = g.count_true(is_finite)
    count = g("Unsqueeze", classes, column)
    below = _below_top(g, z, is_finite)
    mean = g("Div", g("Unsqueeze", g.total(below), column), count)
    centred = g("Where", is_finite, g("Sub", below, mean), zero)
    scale, is_flat = _scale(g, centred)
    scaled = g("Div", centred, scale)
    # For p = 1: what is above the mean is as much as what is below.
    above = g("Mul", g.number(2.0), g("Relu", scaled))
    powers = above if p == 1 else g("Pow", g("Abs", scaled), g.number(p))
    total = g("Unsqueeze", g.total(powers), column)
    root = g("Pow", g("Where", is_flat, one, total), g.number(1 / p))
    length = g("Mul", scale, root)
    lead = g("Squeeze", g("Neg", g("Div", mean, length)), column)
    # Two classes always have the same normalised logits: they stay as they are.
    two_classes = g("Equal", count, g.number(2.0))
    normalised = g("Where", two_classes, z, g("Div", below, length))
    return g("Where", is_finite, normalised, z), lead, classes


def _below_top(g: GraphBuilder, z: str, is_finite: str) -> str:
    """Return how far logits are below the top, the farthest at -1; 0 where masked."""
    (top,), _ = g.largest(z, 1)
    finite = g("Where", is_finite, z, top)
    # A sixteenth of large logits, so that their difference does not overflow.
    sixteenth, (largest,) = g.number(1 / 16), g.largest(g("Abs", finite), 1)[0]
    apart = g("Sub", g("Mul", finite, sixteenth), g("Mul", top, sixteenth))
    is_large = g("Greater", largest, g.number(1.0))
    below = g("Where", is_large, apart, g("Sub", finite, top))
    return str(g("Div", below, _scale(g, below)[0]))


def _scale(g: GraphBuilder, values: str) -> tuple[str, str]:
    """Return the largest size of each row, 1 for 0, and where it is 0."""
    (largest,), _ = g.largest(g("Abs", values), 1)
    is_flat = g("Equal", largest, g.number(0.0))
    return g("Where", is_flat, g.number(1.0), largest), is_flat


def _gen(g: GraphBuilder, r: _RowTerms) -> str:
    column = g.constant([1])
    log_z = g("Unsqueeze", r.log1p_a, column)
    log_p = g("Sub", r.u, log_z)
    # log(1 - p) of the top is B - log(1 + a), since 1 - p itself rounds to 0.
    log_not_top = g("Sub", g("Unsqueeze", r.b, column), log_z)
    safe_log_p = g("Where", r.top, g.number(-1.0), log_p)
    log_not_p = g("Log", g("Sub", r.one, g("Exp", safe_log_p)))
    terms = g("Add", log_p, g("Where", r.top, log_not_top, log_not_p))
    terms = g("Mul", g.number(r.exponent), terms)
    (largest,), _ = g.largest(terms, 1)
    offset = g("Where", g("IsInf", largest), r.zero, largest)
    total = g.total(g("Exp", g("Sub", terms, offset)))
    return str(g("Add", g("Squeeze", offset, column), g("Log", total)))


_FORMULAS: dict[str, Callable[[GraphBuilder, _RowTerms], str]] = {
    "alpha": _alpha,
    "beta": lambda _g, r: r.b,
    "msp": lambda g, r: g("Sub", r.b, r.log1p_a),
    "entropy": _entropy,
    "margin": lambda _g, r: r.gap,
    "max_logit": lambda g, r: g("Div", r.first, g.number(-r.temperature)),
    "energy": _energy,
    "gen": _gen,
    "pnorm": _pnorm,
    "normalised_alpha": _alpha,
    "normalised_margin": lambda _g, r: r.gap,
}
