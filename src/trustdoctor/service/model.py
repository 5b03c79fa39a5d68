"""An ONNX model that the service runs itself, by onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trustdoctor.arrays import Array, describe
from trustdoctor.envelope import shown
from trustdoctor.errors import FileError, InputError, missing_package
from trustdoctor.service.open_inference import TensorSpec

VERSION = "1"
"""A file has no versions, and the protocol asks for one."""

ADDED_OUTPUTS = {
    "doubt": TensorSpec("FP64", (-1,)),
    "accepted": TensorSpec("BOOL", (-1,)),
}
"""The outputs that the service adds to those of a model."""

GUARD_OUTPUTS = (*ADDED_OUTPUTS, "shortlist")
"""The outputs of the gate that `trustdoctor export` put into a model."""

TYPES = {
    "tensor(bool)": "BOOL",
    **{f"tensor(uint{bits})": f"UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"tensor(int{bits})": f"INT{bits}" for bits in (8, 16, 32, 64)},
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
"""What the protocol calls onnxruntime's types."""


class OnnxModel:
    """A model in a file; threads may share it.

    The gate decides on the input of a final Softmax, or on an output with a usual name
    of logits or probabilities. A guarded model, which `trustdoctor export` wrote,
    works, too: the service decides on its logits, by the gate that it serves.

    Parameters
    ----------
    path : path
        An ONNX file.
    name : str, optional
        Its name in URLs; by default that of the file, without its suffix.
    logits, probs : str, optional
        The tensor (an output, or any other) that holds them, if neither the graph nor
        a name tells.
    threads : int
        Threads that work on one request.

    Attributes
    ----------
    name : str
    kind : str
        What the gate decides on: "logits" or "probs".
    tensor : str
        Which tensor holds them.
    why : str
        Why this tensor, in words.
    inputs, outputs : dict of TensorSpec
        By name; doubt and accepted come last.

    Examples
    --------
    >>> OnnxModel("model.onnx")  # doctest: +SKIP
    OnnxModel('model', logits of z)
    """

    def __init__(
        self,
        path: str | Path,
        name: str | None = None,
        *,
        logits: str | None = None,
        probs: str | None = None,
        threads: int = 1,
    ) -> None:
        from trustdoctor.adapters.onnx import find_scores  # says what to install

        file = Path(path)
        self.name = _checked_name(file.stem if name is None else name)
        graph_model = _load(file)
        scores = find_scores(graph_model, logits=logits, probs=probs)
        self.kind = "probs" if scores.probs else "logits"
        self.tensor, self.why = scores.tensor, scores.why
        self._output_tensors = _output_tensors(graph_model, file)
        tensors = {self.tensor, *self._output_tensors.values()}
        self._session = _session(graph_model, file, tensors, threads)
        infos = {info.name: info for info in self._session.get_outputs()}
        _require_scores(infos[self.tensor], file)
        self.outputs = {
            output: _tensor(infos[tensor], file)
            for output, tensor in self._output_tensors.items()
        } | ADDED_OUTPUTS
        self.inputs = {
            info.name: _tensor(info, file) for info in self._session.get_inputs()
        }

    def __repr__(self) -> str:
        """Say which model it is, and what the gate decides on."""
        return f"OnnxModel({self.name!r}, {self.kind} of {self.tensor})"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs, and beside them the tensor that the gate decides on.

        Parameters
        ----------
        inputs : dict of arrays
            By name, as `protocol.parse` returns them.
        """
        tensors = self._output_tensors | {self.tensor: self.tensor}
        try:
            arrays = self._session.run(list(tensors.values()), dict(inputs))
        except Exception as error:  # onnxruntime's have no common class
            message = (
                f"expected inputs that the model {self.name} runs on, got others: "
                f"{_one_line(error)}. Send rows as the model takes them."
            )
            raise InputError(message) from error
        return dict(zip(tensors, arrays, strict=True))

    def logits_or_probs(self, outputs: Mapping[str, Array]) -> tuple[str, Array]:
        """Return "logits" or "probs", and the array (n, C) of what `run` returned."""
        array = outputs[self.tensor]
        if array.ndim != 2 or 0 in array.shape:
            message = (
                f"expected {self.kind} (rows, classes) from the model {self.name}, got "
                f"{describe(array)}. Send at least one row, as the model takes them."
            )
            raise InputError(message)
        return self.kind, array

    def metadata(self) -> dict[str, Any]:
        """Return what `GET /v2/models/{name}` says."""
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "onnxruntime_onnx",
            "inputs": _metadata(self.inputs),
            "outputs": _metadata(self.outputs),
        }


def _metadata(tensors: dict[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": spec.datatype, "shape": list(spec.shape)}
        for name, spec in tensors.items()
    ]


def _checked_name(name: str) -> str:
    if not name or not name.isprintable() or "/" in name:
        message = (
            f"expected a name that can stand in a URL, got {shown(name)}. Name the "
            "model by letters and digits."
        )
        raise InputError(message)
    return name


def _load(path: Path) -> Any:
    """Return a model without the weights that lie in other files."""
    import onnx

    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            message = "it is not a regular file"
            raise ValueError(message)
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        message = f"cannot read {path} as an ONNX model: {_one_line(error)}."
        raise FileError(message) from error
    if not model.graph.node:
        message = f"cannot read {path} as an ONNX model: it has no nodes."
        raise FileError(message)
    return model


def _output_tensors(model: Any, path: Path) -> dict[str, str]:
    """Return the tensor to read for each output.

    That of a ZipMap is its input: a table, and not dictionaries of each row.
    """
    zipped = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "ZipMap"
    }
    names = [value.name for value in model.graph.output]
    if any(entry.key == "trustdoctor.gate" for entry in model.metadata_props):
        names = [name for name in names if name not in GUARD_OUTPUTS]
    clashes = [name for name in names if name in ADDED_OUTPUTS]
    if clashes:
        message = (
            f"expected a model without outputs called {' or '.join(ADDED_OUTPUTS)}, "
            f"which the service adds, got {', '.join(clashes)} in {path}, which "
            "trustdoctor export did not write. Call them something else."
        )
        raise InputError(message)
    return {name: zipped.get(name, name) for name in names}


def _session(model: Any, path: Path, tensors: set[str], threads: int) -> Any:
    """Return a session of onnxruntime that gives these tensors."""
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_package(
            what="running a model", package="onnxruntime", extra="onnx"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors are raised; a log would say them twice
    # Weights in other files lie beside the model's own, not where the service runs.
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path",
        str(path.resolve().parent),
    )
    is_unchanged = _set_outputs(model.graph, tensors)
    source = str(path) if is_unchanged else model.SerializeToString()
    try:
        return onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        message = f"onnxruntime cannot load {path}: {_one_line(error)}. Export it anew."
        raise FileError(message) from error


def _set_outputs(graph: Any, tensors: set[str]) -> bool:
    """Make these tensors a graph's only outputs; return whether they were already.

    onnxruntime then leaves out what leads to no other, as the score of a guarded model.
    """
    outputs = {value.name: value for value in graph.output}
    if set(outputs) == tensors:
        return True
    staying = [value for name, value in outputs.items() if name in tensors]
    del graph.output[:]
    graph.output.extend(staying)
    for name in sorted(tensors - set(outputs)):
        graph.output.add().name = name
    return False


def _require_scores(info: Any, path: Path) -> None:
    """Refuse a tensor that cannot be logits or probabilities (rows, classes)."""
    is_float = TYPES.get(info.type, "").startswith("FP")
    sizes = info.shape  # empty if unknown
    is_table = not sizes or (len(sizes) == 2 and sizes[1] not in (0, 1))
    if not is_float or not is_table:
        message = (
            f"expected floats (rows, classes) to decide on, got {info.type} of shape "
            f"{sizes} as {info.name!r} in {path}. Name another: logits=NAME or "
            "probs=NAME (--logits, --probs)."
        )
        raise InputError(message)


def _tensor(info: Any, path: Path) -> TensorSpec:
    """Return the protocol's type and shape of an input or an output."""
    if info.type not in TYPES:
        message = (
            f"expected tensors of numbers, booleans or text, got {info.type} as "
            f"{info.name!r} in {path}, which the protocol cannot carry. Export it "
            "without."
        )
        raise InputError(message)
    sizes = (size if isinstance(size, int) else -1 for size in info.shape)
    return TensorSpec(TYPES[info.type], tuple(sizes))


def _one_line(error: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())[:300].rstrip(".")
