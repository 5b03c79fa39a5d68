"""The gate inside an ONNX graph: it travels with the model, whatever runs it."""

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trustdoctor.adapters.asking import refuse_multi_label
from trustdoctor.atomic import require_apart, require_writable, same_file
from trustdoctor.errors import FileError, InputError, OutputError, missing_package
from trustdoctor.gates import Gate, check_same_classes
from trustdoctor.predictions import Predictions, plain_name

try:
    import onnx
    import onnx.version_converter
    from onnx import TensorProto, helper
except ImportError as error:
    raise missing_package(
        what="the ONNX adapter", package="onnx", extra="onnx"
    ) from error

from trustdoctor.adapters.onnx.graph import (
    Maker,
    add_check,
    add_decision,
    add_score,
    add_sum_check,
    check_score,
    needs_logits,
)
from trustdoctor.adapters.onnx.lists import check_width, put_out_lists

LEAST_OPSET = 13
LOGITS = ("logits",)
PROBS = ("probs", "probabilities", "output_probability")
FLOATS = {
    TensorProto.FLOAT16: np.float16,
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
}
LABELS = ("label", "output_label")
"""What scikit-learn's converters call the classes that a model predicts."""

FOLLOWED = ("Identity", "Cast", "ZipMap", "Softmax", "LogSoftmax", "Sigmoid")
"""Operators that are followed back to what they take."""

HALF_INFINITY = 65520.0
"""From here on a number becomes infinite in float16."""

NUMPY = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}


@dataclass(frozen=True)
class Taken:
    """Which tensor of the graph the score is taken of.

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
        behind a final Softmax, or an output called as such things are called.

    Returns
    -------
    Taken
        What was taken, and why.
    """
    check_gate(gate)
    loaded, external = _load(Path(model))
    target = require_writable(output)
    require_apart([target], [Path(model)])
    taken = find_scores(loaded, logits=logits, probs=probs)
    if taken.probs and needs_logits(gate.scorer):
        message = (
            f"the score {gate.score} needs true logits, and {taken.tensor!r} holds "
            "probabilities. Name the logits, or calibrate alpha, beta or msp."
        )
        raise InputError(message)
    if external:
        _keep_weights(Path(model), target)
    _append(loaded, gate, taken)
    _save(loaded, target, external=external)
    return taken


def check_gate(gate: Gate) -> None:
    """Refuse gates that no graph of the logits can hold, by name."""
    if gate.score is None:
        message = (
            "this gate names no score: it was calibrated on scores of its own "
            "(perturbed inputs, views), which the logits do not give. Make one with "
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
    check_score(gate.scorer)


def find_scores(
    model: Any, *, logits: str | None = None, probs: str | None = None
) -> Taken:
    """Return the tensor to score, never guessing what it holds."""
    if logits is not None and probs is not None:
        message = "expected logits or probs, got both. Name one."
        raise InputError(message)
    check_graph(model.graph)
    made = {name: node for node in model.graph.node for name in node.output}
    known = {*made, *(value.name for value in model.graph.input)}
    named = logits if logits is not None else probs
    outputs = [value.name for value in model.graph.output]
    if named is not None:
        if named not in known:
            message = f"the model has no tensor {named!r}; its outputs are {outputs}."
            raise InputError(message)
        _refuse_sigmoids(model.graph, named, made)
        return Taken(named, probs is not None, "as named")
    seen = [taken for name in outputs if (taken := _from_output(name, made))]
    found = list({(taken.tensor, taken.probs): taken for taken in seen}.values())
    if len(found) == 1:
        _refuse_sigmoids(model.graph, found[0].tensor, made)
        return found[0]
    message = (
        f"cannot tell which output holds logits or probabilities: {outputs}. Name it: "
        "logits=NAME or probs=NAME (--logits, --probs)."
    )
    raise InputError(message)


def _from_output(name: str, made: dict[str, Any]) -> Taken | None:
    """Return what an output is scored by, where the graph or its name tells."""
    source = _behind(name, made)
    node = made.get(source)
    zipped = _zipped(name, made)
    if node is not None and _is_softmax(node):
        why = f"the logits behind the final {node.op_type} ({name})"
        return Taken(node.input[0], probs=False, why=why)
    if name.lower() in LOGITS:
        return Taken(name, probs=False, why=f"the output {name}")
    named = zipped is not None or name.lower() in PROBS
    if named and _gives_probs(node):
        why = f"the output {name}"
        return Taken(zipped or name, probs=True, why=why)
    return None


def _behind(name: str, made: dict[str, Any]) -> str:
    """Return the tensor whose numbers a tensor holds, under whatever names and types.

    The graph was checked: each node comes after those that it takes from.
    """
    node = made.get(name)
    while node is not None and node.op_type in ("Identity", "Cast", "ZipMap"):
        name = node.input[0]
        node = made.get(name)
    return name


def _zipped(name: str, made: dict[str, Any]) -> str | None:
    """Return the tensor that a ZipMap makes an output of; None where there is none."""
    zipped, node = None, made.get(name)
    while node is not None and node.op_type in ("Identity", "Cast", "ZipMap"):
        zipped = node.input[0] if node.op_type == "ZipMap" else zipped
        node = made.get(node.input[0])
    return zipped


def check_graph(graph: Any) -> None:
    """Refuse what is no graph from inputs to outputs, as one with a cycle.

    Its nodes are then in order, so that following them backwards comes to an end.
    """
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    known = {value.name for value in graph.input}
    if not known - constants:
        message = "expected a model that takes rows, got one without inputs."
        raise InputError(message)
    known |= constants | {""}  # which stands for an input that is left out
    for node in graph.node:
        early = [name for name in node.input if name not in known]
        alone = node.op_type in FOLLOWED and not node.input
        if early or alone:
            what = repr(early[0]) if early else "a tensor"
            message = (
                f"expected nodes in the order of what they need: {node.op_type} "
                f"{node.name!r} needs {what}, which nothing before it gives. Export "
                "the model anew."
            )
            raise InputError(message)
        known.update(node.output)


def _refuse_sigmoids(graph: Any, tensor: str, made: dict[str, Any]) -> None:
    """Refuse a model that says of each class by itself whether it holds."""
    for value in graph.output:
        shape = value.type.tensor_type.shape.dim
        if value.name in LABELS and len(shape) == 2 and shape[1].dim_value > 1:
            refuse_multi_label(f"the output {value.name!r} with several labels a row")
    source = _behind(tensor, made)
    ends = {_behind(value.name, made) for value in graph.output} | {source}
    if any(_is_softmax(node) and node.input[0] == tensor for node in graph.node):
        ends -= {source}  # whatever they are, a Softmax chooses among them
    for name in ends:
        node = made.get(name)
        if node is None or node.op_type != "Sigmoid":
            continue
        if source in (name, _behind(node.input[0], made)):
            refuse_multi_label(f"a Sigmoid of every class in {tensor!r}")


def _is_softmax(node: Any) -> bool:
    """Tell a Softmax over the classes, the last axis."""
    known = node.op_type in ("Softmax", "LogSoftmax")
    return known and _option(node, "axis", -1) in (-1, 1)


def _gives_probs(node: Any) -> bool:
    """Tell whether a node's numbers are probabilities, whatever they are called.

    scikit-learn's converters call decision values probabilities, too.
    """
    if node is None or node.op_type == "Normalizer":
        return node is None or _option(node, "norm", b"MAX") == b"L1"
    if node.op_type == "TreeEnsembleClassifier":
        return True
    scaled = _option(node, "post_transform", b"NONE") in (b"SOFTMAX", b"LOGISTIC")
    return node.op_type == "LinearClassifier" and scaled


def _option(node: Any, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


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
        What the model's one input takes.
    labels : array (n,), optional
    batch_size : int
    logits, probs : str, optional
        The output that holds them, where its name does not tell.
    """
    rows = np.asarray(array)
    if not len(rows) or type(batch_size) is not int or batch_size < 1:
        message = "expected at least one row, and a batch_size of 1 or more."
        raise InputError(message)
    loaded, _ = _load(Path(path))
    name, is_probs = _runnable(loaded, logits, probs)
    found = _run(Path(path), name, rows, batch_size)
    make = Predictions.from_probs if is_probs else Predictions.from_logits
    return make(found, labels)


def _run(path: Path, name: str, rows: NDArray[Any], batch_size: int) -> NDArray[Any]:
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
        (fed,) = session.get_inputs()
        rows = rows.astype(NUMPY.get(fed.type, rows.dtype))
        if isinstance(fed.shape[0], int):  # a batch of fixed size is filled up
            batch_size = fed.shape[0]
            spare = -len(rows) % batch_size
            rows = np.concatenate([rows, np.repeat(rows[-1:], spare, axis=0)])
        parts = [
            _table(session.run([name], {fed.name: rows[start : start + batch_size]})[0])
            for start in range(0, len(rows), batch_size)
        ]
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        message = f"the model {path} does not run on rows of {rows.shape[1:]}: {first}."
        raise InputError(message) from error
    return np.concatenate(parts)[:n]


def _table(answer: Any) -> NDArray[Any]:
    """Return rows of numbers; a ZipMap answers with one dict per row."""
    if isinstance(answer, list):
        return np.array([list(row.values()) for row in answer])
    return np.asarray(answer)


def _runnable(model: Any, logits: str | None, probs: str | None) -> tuple[str, bool]:
    """Return an output to run, and whether it holds probabilities."""
    outputs = [value.name for value in model.graph.output]
    taken = find_scores(model, logits=logits, probs=probs)
    if logits is not None or probs is not None:
        return taken.tensor, taken.probs
    made = {name: node for node in model.graph.node for name in node.output}
    name = next(name for name in outputs if _from_output(name, made) is not None)
    behind = "LogSoftmax" not in taken.why and taken.tensor != name
    return name, behind or taken.probs


def _load(path: Path) -> tuple[Any, bool]:
    """Return the model, and whether its weights lie in other files."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            message = "it is not a regular file"
            raise ValueError(message)
        bare = onnx.load(str(path), load_external_data=False)
        external = any(
            tensor.data_location == TensorProto.EXTERNAL
            for tensor in bare.graph.initializer
        )
        model = onnx.load(str(path)) if external else bare
    except Exception as error:
        message = f"cannot read {path} as an ONNX model: {str(error).splitlines()[0]}."
        raise FileError(message) from error
    if not model.graph.node:
        message = f"cannot read {path} as an ONNX model: it has no nodes."
        raise FileError(message)
    versions = {o.domain: o.version for o in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx"))
    if opset is None:
        model.opset_import.append(helper.make_opsetid("", 17))
    elif opset < LEAST_OPSET:
        check_graph(model.graph)  # the converter would follow a cycle for ever
        model = _converted(model, path, opset)
    return model, external


def _converted(model: Any, path: Path, opset: int) -> Any:
    """Bring an old model to a newer opset, as sklearn-onnx's are often old."""
    try:
        return onnx.version_converter.convert_version(model, 17)
    except Exception as error:
        message = (
            f"expected opset {LEAST_OPSET} or newer, {path} has {opset} and cannot be "
            f"converted: {str(error).splitlines()[0]}. Export it anew."
        )
        raise InputError(message) from error


def _save(model: Any, target: Path, *, external: bool) -> None:
    """Write the model, and its weights beside it, whole or not at all."""
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            inside = Path(scratch) / target.name
            options: dict[str, Any] = {}
            if external:
                options = {
                    "save_as_external_data": True,
                    "location": f"{target.name}.data",
                }
            onnx.save(model, str(inside), **options)
            _check(inside)
            for file in sorted(Path(scratch).iterdir(), key=lambda f: f == inside):
                shutil.move(file, target.parent / file.name)
    except OSError as error:
        message = f"cannot write {target}: {(error.strerror or str(error)).lower()}."
        raise OutputError(message) from error


def _keep_weights(model: Path, target: Path) -> None:
    """Refuse to write over the files that hold the input's own weights."""
    data = target.parent / f"{target.name}.data"
    for tensor in onnx.load(str(model), load_external_data=False).graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                own = model.parent / entry.value
                if same_file(own) in map(same_file, (data, target)):
                    message = f"{own} holds the input's weights. Name another output."
                    raise OutputError(message)


def _check(path: Path) -> None:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        message = f"the guarded model is not valid ONNX: {first}. Was the model?"
        raise InputError(message) from error


def outputs_of(gate: Gate) -> tuple[str, ...]:
    """Return the names of the outputs that a gate adds to a model."""
    lists = () if gate.shortlist is None else ("shortlist",)
    return ("doubt", "accepted", *lists)


def _append(model: Any, gate: Gate, taken: Taken) -> None:
    graph = model.graph
    taken_names = {name for node in graph.node for name in node.output}
    taken_names |= {v.name for v in (*graph.input, *graph.initializer)}
    for name in outputs_of(gate):
        if name in taken_names:
            message = f"the model has a tensor {name!r} already: is it guarded?"
            raise InputError(message)
    kind, classes = _type_of(model, taken.tensor)
    check_same_classes(gate, _named_classes(graph, classes))
    half = kind == np.float16
    largest = HALF_INFINITY if half else math.inf
    maker = Maker(graph, np.float32 if half else kind, taken_names)
    given = maker.cast(taken.tensor) if half else taken.tensor
    z = maker("Log", given) if taken.probs else given
    wanted = gate.classes if isinstance(gate.classes, int) else len(gate.classes or ())
    if wanted and not classes:  # rows of another width fail when the model runs
        z = maker("Reshape", z, maker.constant([0, wanted]))
    fine = add_check(maker, z, largest)
    if taken.probs:
        fine = maker("And", fine, add_sum_check(maker, given))
    scored = [fine, add_score(maker, z, gate.scorer), maker.number(math.nan)]
    number = helper.np_dtype_to_tensor_dtype(np.dtype(maker.dtype))
    maker.put_out("doubt", number, ["rows"], "Where", *scored)
    below = add_decision(maker, gate)
    maker.put_out("accepted", TensorProto.BOOL, ["rows"], "And", fine, below)
    if gate.shortlist is not None:
        check_width(gate.shortlist, taken.tensor, classes)
        put_out_lists(maker, z, gate.shortlist, fine, largest)
    entry = model.metadata_props.add()
    entry.key, entry.value = "trustdoctor.gate", gate.to_json()


def _type_of(model: Any, tensor: str) -> tuple[Any, int]:
    """Return a tensor's type and how many classes it has, 0 where that is unknown.

    They are found by shape inference where they are not declared.
    """
    typed = model
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except Exception:  # a model too large for it; what is declared must do
        typed = model
    values = (*typed.graph.value_info, *typed.graph.output, *typed.graph.input)
    for value in values:
        if value.name == tensor and value.type.HasField("tensor_type"):
            kind = value.type.tensor_type.elem_type
            shape = value.type.tensor_type.shape.dim
            if kind not in FLOATS or (shape and len(shape) != 2):
                message = f"expected {tensor!r} as real numbers (rows, classes)."
                raise InputError(message)
            if shape and shape[1].dim_value == 1:
                message = (
                    f"{tensor!r} has one column. Let the model put out one per class."
                )
                raise InputError(message)
            return FLOATS[kind], shape[1].dim_value if shape else 0
    return np.float32, 0


def _named_classes(graph: Any, size: int) -> int | tuple[str, ...] | None:
    """Return a model's classes, by the names that scikit-learn's converters give them.

    Numbers from 0 on are no names: they may stand for any. A size of 0 is not known.
    """
    found = set()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name.startswith("classlabels_"):
                values = helper.get_attribute_value(attribute)
                found.add(tuple(plain_name(_text(value)) for value in values))
    fitting = [names for names in found if size in (0, len(names))]
    if len(fitting) != 1:
        return size or None
    numbers = tuple(map(str, range(len(fitting[0]))))
    return len(numbers) if fitting[0] == numbers else fitting[0]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def predictor(path: str | Path, **options: Any) -> Callable[[Any], Predictions]:
    """Return a function of inputs to predictions, for `SecondOpinion`."""
    return lambda array: predict(path, array, **options)
