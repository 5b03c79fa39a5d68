"""Files of ONNX models: read with what is wrong in one line, written whole."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter
from onnx import TensorProto, helper

from trustdoctor.adapters.onnx.score_tensor import check_graph
from trustdoctor.atomic import file_identity
from trustdoctor.errors import FileError, InputError, OutputError

MIN_OPSET = 13
"""Since opset 13 Softmax has one axis, and axes of ReduceSum are an input."""

CONVERTED_OPSET = 17
"""The opset of models without one, and of converted old ones."""


def load_model(path: Path) -> tuple[Any, bool]:
    """Return the model, and whether its weights lie in other files."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait
            message = "it is not a regular file"
            raise ValueError(message)
        bare = onnx.load(str(path), load_external_data=False)
        external = any(
            tensor.data_location == TensorProto.EXTERNAL
            for tensor in bare.graph.initializer
        )
        model = onnx.load(str(path)) if external else bare
    except Exception as error:  # protobuf, files, weights: each has its own
        message = f"cannot read {path} as an ONNX model: {str(error).splitlines()[0]}."
        raise FileError(message) from error
    if not model.graph.node:
        message = f"cannot read {path} as an ONNX model: it has no nodes."
        raise FileError(message)
    versions = {opset.domain: opset.version for opset in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx"))
    if opset is None:
        # A graph of ai.onnx.ml operators alone, as of trees, may declare no other.
        model.opset_import.append(helper.make_opsetid("", CONVERTED_OPSET))
    elif opset < MIN_OPSET:
        check_graph(model.graph)  # the converter would follow a cycle for ever
        model = _converted(model, path, opset)
    return model, external


def _converted(model: Any, path: Path, opset: int) -> Any:
    """Bring an old model to a newer opset, as sklearn-onnx's are often old."""
    try:
        return onnx.version_converter.convert_version(model, CONVERTED_OPSET)
    except Exception as error:
        message = (
            f"expected opset {MIN_OPSET} or newer, {path} has {opset} and cannot be "
            f"converted: {str(error).splitlines()[0]}. Export it anew."
        )
        raise InputError(message) from error


def save_model(model: Any, target: Path, *, external: bool) -> None:
    """Write the model, and its weights beside it, whole or not at all."""
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            scratch_file = Path(scratch) / target.name
            options: dict[str, Any] = {}
            if external:
                options = {
                    "save_as_external_data": True,
                    "location": f"{target.name}.data",
                }
            onnx.save(model, str(scratch_file), **options)
            _check_valid(scratch_file)
            # The weights first: a model beside weights of another would be read.
            files = Path(scratch).iterdir()
            for file in sorted(files, key=lambda file: file == scratch_file):
                shutil.move(file, target.parent / file.name)
    except OSError as error:
        message = f"cannot write {target}: {(error.strerror or str(error)).lower()}."
        raise OutputError(message) from error


def require_other_weights(model: Path, target: Path) -> None:
    """Refuse to write over the files that hold the input's own weights."""
    data = target.parent / f"{target.name}.data"
    for tensor in onnx.load(str(model), load_external_data=False).graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                weights = model.parent / entry.value
                if file_identity(weights) in map(file_identity, (data, target)):
                    message = (
                        f"{weights} holds the input's weights. Name another output."
                    )
                    raise OutputError(message)


def _check_valid(path: Path) -> None:
    try:
        # By path: models above 2 GB do not fit into one message of protobuf.
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        message = f"the guarded model is not valid ONNX: {first}. Was the model?"
        raise InputError(message) from error
