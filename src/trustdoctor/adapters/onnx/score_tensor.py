"""The tensor of an ONNX graph that holds logits or probabilities: named, or found."""

from dataclasses import dataclass
from typing import Any

from onnx import helper

from trustdoctor.adapters.errors import refuse_multi_label
from trustdoctor.errors import InputError

LOGITS = ("logits",)
PROBS = ("probs", "probabilities", "output_probability")
LABELS = ("label", "output_label")
"""The names of the predicted classes in graphs of scikit-learn's converters."""

RENAMING = ("Identity", "Cast", "ZipMap")
"""Operators that hand on numbers under another name or type."""

FOLLOWED = (*RENAMING, "Softmax", "LogSoftmax", "Sigmoid")
"""Operators that are followed back to their inputs."""


@dataclass(frozen=True)
class Taken:
    """The tensor of the graph from which the score is computed.

    Attributes
    ----------
    tensor : str
    probs : bool
        Whether it holds probabilities; else logits.
    why : str
        How it was found, in words.
    """

    tensor: str
    probs: bool
    why: str


def find_scores(
    model: Any, *, logits: str | None = None, probs: str | None = None
) -> Taken:
    """Return the tensor to score, never guessing what it holds."""
    if logits is not None and probs is not None:
        message = "expected logits or probs, got both. Name one."
        raise InputError(message)
    check_graph(model.graph)
    nodes = nodes_by_output(model.graph)
    tensors = {*nodes, *(value.name for value in model.graph.input)}
    named = logits if logits is not None else probs
    outputs = [value.name for value in model.graph.output]
    if named is not None:
        if named not in tensors:
            message = f"the model has no tensor {named!r}; its outputs are {outputs}."
            raise InputError(message)
        _refuse_sigmoids(model.graph, named, nodes)
        return Taken(named, probs is not None, "as named")
    candidates: dict[tuple[str, bool], Taken] = {}
    for name in outputs:
        source = score_tensor_of_output(name, nodes)
        if source is not None:
            candidates[source.tensor, source.probs] = source
    if len(candidates) == 1:
        (source,) = candidates.values()
        _refuse_sigmoids(model.graph, source.tensor, nodes)
        return source
    message = (
        f"cannot tell which output holds logits or probabilities: {outputs}. Name it: "
        "logits=NAME or probs=NAME (--logits, --probs)."
    )
    raise InputError(message)


def nodes_by_output(graph: Any) -> dict[str, Any]:
    """Return the node that makes each tensor."""
    return {name: node for node in graph.node for name in node.output}


def score_tensor_of_output(name: str, nodes: dict[str, Any]) -> Taken | None:
    """Return the tensor that scores an output, if the graph or its name tells."""
    source = _source(name, nodes)
    node = nodes.get(source)
    zipped = _zipped_tensor(name, nodes)
    if node is not None and _is_softmax(node):
        why = f"the logits behind the final {node.op_type} ({name})"
        return Taken(node.input[0], probs=False, why=why)
    if name.lower() in LOGITS:
        return Taken(name, probs=False, why=f"the output {name}")
    named_probs = zipped is not None or name.lower() in PROBS
    if named_probs and _gives_probs(node):
        why = f"the output {name}"
        return Taken(zipped or name, probs=True, why=why)
    return None


def _source(name: str, nodes: dict[str, Any]) -> str:
    """Return the tensor from which a tensor has its numbers, by whatever names.

    The graph was checked: each node comes after those that give its inputs.
    """
    node = nodes.get(name)
    while node is not None and node.op_type in RENAMING:
        name = node.input[0]
        node = nodes.get(name)
    return name


def _zipped_tensor(name: str, nodes: dict[str, Any]) -> str | None:
    """Return the tensor of which a ZipMap makes an output; None without a ZipMap."""
    zipped, node = None, nodes.get(name)
    while node is not None and node.op_type in RENAMING:
        zipped = node.input[0] if node.op_type == "ZipMap" else zipped
        node = nodes.get(node.input[0])
    return zipped


def check_graph(graph: Any) -> None:
    """Refuse a graph whose nodes are not in order from inputs to outputs.

    A graph with a cycle has no such order; following it backwards would not end.
    """
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    available = {value.name for value in graph.input}
    if not available - constants:
        message = "expected a model that takes rows, got one without inputs."
        raise InputError(message)
    available |= constants | {""}  # "" stands for an input that is left out
    for node in graph.node:
        missing = [name for name in node.input if name not in available]
        without_inputs = node.op_type in FOLLOWED and not node.input
        if missing or without_inputs:
            needed = repr(missing[0]) if missing else "a tensor"
            message = (
                f"expected nodes in the order of what they need: {node.op_type} "
                f"{node.name!r} needs {needed}, which nothing before it gives. Export "
                "the model anew."
            )
            raise InputError(message)
        available.update(node.output)


def _refuse_sigmoids(graph: Any, tensor: str, nodes: dict[str, Any]) -> None:
    """Refuse a model that says of each class by itself whether it holds."""
    for value in graph.output:
        shape = value.type.tensor_type.shape.dim
        if value.name in LABELS and len(shape) == 2 and shape[1].dim_value > 1:
            refuse_multi_label(f"the output {value.name!r} with several labels a row")
    source = _source(tensor, nodes)
    ends = {_source(value.name, nodes) for value in graph.output} | {source}
    if any(_is_softmax(node) and node.input[0] == tensor for node in graph.node):
        ends -= {source}  # whatever they are, a Softmax chooses among them
    for name in ends:
        node = nodes.get(name)
        if node is None or node.op_type != "Sigmoid":
            continue
        if source in (name, _source(node.input[0], nodes)):
            refuse_multi_label(f"a Sigmoid of every class in {tensor!r}")


def _is_softmax(node: Any) -> bool:
    """Tell a Softmax over the classes, the last axis."""
    is_softmax = node.op_type in ("Softmax", "LogSoftmax")
    return is_softmax and _attribute(node, "axis", -1) in (-1, 1)


def _gives_probs(node: Any) -> bool:
    """Tell whether a node's numbers are probabilities, whatever they are called."""
    # scikit-learn's converters call decision values "probabilities", too: only these
    # operators, with these settings, put out numbers that sum to 1.
    if node is None or node.op_type == "Normalizer":
        return node is None or _attribute(node, "norm", b"MAX") == b"L1"
    if node.op_type == "TreeEnsembleClassifier":
        return True
    scaled = _attribute(node, "post_transform", b"NONE") in (b"SOFTMAX", b"LOGISTIC")
    return node.op_type == "LinearClassifier" and scaled


def _attribute(node: Any, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default
