"""An ONNX model that the service runs itself, by onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trustdoctor.arrays import Array, describe
from trustdoctor.envelope import shown
from trustdoctor.errors import FileError, InputError, missing_package
from trustdoctor.service.open_inference import TensorSpec

VERSION = "1"
"""A file has no versions; the protocol wants one."""

ADDED = {"doubt": TensorSpec("FP64", (-1,)), "accepted": TensorSpec("BOOL", (-1,))}
"""The outputs that the service adds to a model's own."""

GUARDED = (*ADDED, "shortlist")
"""The outputs of a guarded model that hold what its own gate says."""

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


class Model:
    """A model in a file; threads may share it.

    The gate decides on the logits behind a final Softmax, or on an output called as
    such things are called. A guarded model, which `trustdoctor export` wrote, works,
    too: the service decides on its logits, by the gate that it serves.

    Parameters
    ----------
    path : path
        An ONNX file.
    name : str, optional
        What it is called in URLs; by default as the file, without its suffix.
    logits, probs : str, optional
        The tensor (an output, or any other) that holds them, where neither the graph
        nor a name tells.
    threads : int
        How many work on one request.

    Attributes
    ----------
    name : str
    kind : str
        What the gate decides on: "logits" or "probs".
    tensor : str
        Which tensor holds them.
    why : str
        How it was found, in words.
    inputs, outputs : dict of Tensor
        By name; doubt and accepted come last.

    Examples
    --------
    >>> Model("model.onnx")  # doctest: +SKIP
    Model('model', logits of z)
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
        graph = _load(file)
        taken = find_scores(graph, logits=logits, probs=probs)
        self.kind = "probs" if taken.probs else "logits"
        self.tensor, self.why = taken.tensor, taken.why
        self._fetched = _fetched(graph, file)
        tensors = {self.tensor, *self._fetched.values()}
        self._session = _session(graph, file, tensors, threads)
        made = {one.name: one for one in self._session.get_outputs()}
        _check_decided(made[self.tensor], file)
        own = {one: _tensor(made[its], file) for one, its in self._fetched.items()}
        self.outputs = own | ADDED
        taken_in = self._session.get_inputs()
        self.inputs = {one.name: _tensor(one, file) for one in taken_in}

    def __repr__(self) -> str:
        """Say which model it is, and what the gate decides on."""
        return f"Model({self.name!r}, {self.kind} of {self.tensor})"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs, and beside them the tensor that the gate decides on.

        Parameters
        ----------
        inputs : dict of arrays
            By name, as `protocol.parse` returns them.
        """
        named = self._fetched | {self.tensor: self.tensor}
        try:
            arrays = self._session.run(list(named.values()), dict(inputs))
        except Exception as error:  # onnxruntime's have no common class
            message = (
                f"expected inputs that the model {self.name} runs on, got others: "
                f"{_said(error)}. Send rows as the model takes them."
            )
            raise InputError(message) from error
        return dict(zip(named, arrays, strict=True))

    def answers(self, outputs: Mapping[str, Array]) -> tuple[str, Array]:
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
            "inputs": _listed(self.inputs),
            "outputs": _listed(self.outputs),
        }


def _listed(tensors: dict[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": one.datatype, "shape": list(one.shape)}
        for name, one in tensors.items()
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
        message = f"cannot read {path} as an ONNX model: {_said(error)}."
        raise FileError(message) from error
    if not model.graph.node:
        message = f"cannot read {path} as an ONNX model: it has no nodes."
        raise FileError(message)
    return model


def _fetched(model: Any, path: Path) -> dict[str, str]:
    """Return which tensor each output is: what a ZipMap makes dicts of is a table."""
    zipped = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "ZipMap"
    }
    names = [value.name for value in model.graph.output]
    if any(entry.key == "trustdoctor.gate" for entry in model.metadata_props):
        names = [name for name in names if name not in GUARDED]
    taken = [name for name in names if name in ADDED]
    if taken:
        message = (
            f"expected a model without outputs called {' or '.join(ADDED)}, which the "
            f"service adds, got {', '.join(taken)} in {path}, which trustdoctor export "
            "did not write. Call them something else."
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
    source = str(path) if _keep(model.graph, tensors) else model.SerializeToString()
    try:
        return onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        message = f"onnxruntime cannot load {path}: {_said(error)}. Export it anew."
        raise FileError(message) from error


def _keep(graph: Any, tensors: set[str]) -> bool:
    """Let a graph put out these tensors alone; return whether it did already.

    What leads to no other output, as the score of a guarded model, is then left out.
    """
    own = {value.name: value for value in graph.output}
    if set(own) == tensors:
        return True
    kept = [value for name, value in own.items() if name in tensors]
    del graph.output[:]
    graph.output.extend(kept)
    for name in sorted(tensors - set(own)):
        graph.output.add().name = name
    return False


def _check_decided(found: Any, path: Path) -> None:
    """Refuse a tensor that cannot be logits or probabilities (rows, classes)."""
    floats = TYPES.get(found.type, "").startswith("FP")
    sizes = found.shape
    narrow = bool(sizes) and (len(sizes) != 2 or sizes[1] in (0, 1))
    if not floats or narrow:
        message = (
            f"expected floats (rows, classes) to decide on, got {found.type} of shape "
            f"{sizes} as {found.name!r} in {path}. Name another: logits=NAME or "
            "probs=NAME (--logits, --probs)."
        )
        raise InputError(message)


def _tensor(found: Any, path: Path) -> TensorSpec:
    """Return an input or an output as the protocol has it."""
    if found.type not in TYPES:
        message = (
            f"expected tensors of numbers, booleans or text, got {found.type} as "
            f"{found.name!r} in {path}, which the protocol cannot carry. Export it "
            "without."
        )
        raise InputError(message)
    sizes = (size if isinstance(size, int) else -1 for size in found.shape)
    return TensorSpec(TYPES[found.type], tuple(sizes))


def _said(error: Exception) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split())[:300].rstrip(".")
