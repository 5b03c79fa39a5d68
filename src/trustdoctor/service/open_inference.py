"""The Open Inference Protocol: requests into arrays, arrays into answers.

Tensors travel as JSON, or in binary after it (the extension for binary tensors). JSON
has no NaN and no infinities. In tensors of floats they are the words "nan", "inf" and
"-inf", in both directions and as in `/v1/decide`: so the JSON is valid, no row is lost,
and numpy reads the words, and with it `tritonclient`.
"""

import contextlib
import math
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from trustdoctor.arrays import Array
from trustdoctor.envelope import shown
from trustdoctor.errors import InputError

LENGTH = "Inference-Header-Content-Length"
"""The header that says how many bytes of a body are JSON, if binary tensors follow."""

TYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    **{f"UINT{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "BYTES": np.object_,
}
"""The protocol's datatypes, as numpy has them; BYTES are text."""

MOST_AXES = 64
"""Of an array of numpy 2, at most."""

_NAMES = {np.dtype(dtype): name for name, dtype in TYPES.items()}
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_UNSUPPORTED = {
    "sequence_id": "sequences",
    "shared_memory_region": "shared memory",
    "classification": "classification",
}
"""Parameters of extensions that would change the answer, and are not offered."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a model takes or gives.

    Attributes
    ----------
    datatype : str
        One of `TYPES`.
    shape : tuple of int
        -1 for any size; () if the model says nothing of it.
    """

    datatype: str
    shape: tuple[int, ...]

    def fits(self, shape: list[int]) -> bool:
        """Tell whether an array of this shape is one."""
        same = len(shape) == len(self.shape) and all(
            expected in (-1, size)
            for expected, size in zip(self.shape, shape, strict=True)
        )
        return same or not self.shape


@dataclass(frozen=True)
class InferenceRequest:
    """A request that was read.

    Attributes
    ----------
    id : str or None
    inputs : dict of arrays
        By name; every input of the model.
    binary_by_output : dict of bool
        The outputs to send, in order, and whether in binary.
    parameters : dict
        As the request had them.
    """

    id: str | None
    inputs: dict[str, Array]
    binary_by_output: dict[str, bool]
    parameters: dict[str, Any] = field(default_factory=dict)


class InputTensor(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor with its entries, or with the size of those after the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class RequestedOutput(msgspec.Struct, forbid_unknown_fields=True):
    """An output to send."""

    name: str
    parameters: dict[str, Any] | None = None


class InferenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request to infer, as JSON; without `outputs` all are sent."""

    inputs: list[InputTensor]
    id: str | None = None
    outputs: list[RequestedOutput] | None = None
    parameters: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(InferenceBody)


def read_length(header: str | None) -> int | None:
    """Return how many bytes of a body are JSON, as its header says.

    Examples
    --------
    >>> read_length("120"), read_length(None)
    (120, None)
    """
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and len(header) < 19):
        message = f"expected a whole number as {LENGTH}, got {shown(header)}. Send one."
        raise InputError(message)
    return int(header)


def parse_request(
    body: bytes,
    json_length: int | None,
    inputs: Mapping[str, TensorSpec],
    outputs: Collection[str],
) -> InferenceRequest:
    """Read a request to infer.

    Parameters
    ----------
    body : bytes
    json_length : int or None
        How many bytes of it are JSON; None for all.
    inputs : dict of TensorSpec
        What the model takes.
    outputs : names
        What the model gives; a request that names none gets all of them.

    Examples
    --------
    >>> body = b'''{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2],
    ...             "data": [[0.5, 2]]}]}'''
    >>> request = parse_request(body, None, {"x": TensorSpec("FP32", (-1, 2))}, ["y"])
    >>> request.inputs["x"], request.binary_by_output
    (array([[0.5, 2. ]], dtype=float32), {'y': False})
    """
    content, binary = _split(body, json_length)
    parameters = _supported_parameters(content.parameters, "the request")
    return InferenceRequest(
        content.id or None,
        _read_inputs(content.inputs, binary, inputs),
        _read_outputs(content.outputs or [], parameters, outputs),
        parameters,
    )


def _split(body: bytes, json_length: int | None) -> tuple[InferenceBody, memoryview]:
    """Return the JSON of a body, and the bytes after it."""
    if json_length is not None and not 0 < json_length <= len(body):
        message = (
            f"expected 1 to {len(body):,} bytes of JSON, got {json_length:,} in "
            f"{LENGTH}. Send the length of the JSON alone."
        )
        raise InputError(message)
    end = len(body) if json_length is None else json_length
    try:
        return _decoder.decode(memoryview(body)[:end]), memoryview(body)[end:]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        message = (
            "expected a request of the Open Inference Protocol as JSON, got something "
            f"else: {reason}. Send inputs of name, shape, datatype and data; NaN and "
            f"infinities as words; binary tensors with {LENGTH}."
        )
        raise InputError(message) from error


def _supported_parameters(
    parameters: dict[str, Any] | None, place: str
) -> dict[str, Any]:
    """Return parameters, or refuse those of extensions that are not offered."""
    parameters = parameters or {}
    for name, extension in _UNSUPPORTED.items():
        if parameters.get(name):
            message = (
                f"expected tensors in the request itself, got {name} in {place}: "
                f"{extension} is not offered. Leave it out."
            )
            raise InputError(message)
    return parameters


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:  # noqa: FBT001
    flag = parameters.get(name, default)
    if type(flag) is not bool:
        message = f"expected true or false as {name}, got {shown(flag)}. Send one."
        raise InputError(message)
    return flag


def _read_outputs(
    requested: list[RequestedOutput],
    parameters: dict[str, Any],
    offered: Collection[str],
) -> dict[str, bool]:
    """Return which outputs to send, and which of them in binary."""
    default = _flag(parameters, "binary_data_output", default=False)
    binary_by_output: dict[str, bool] = {}
    for output in requested:
        if output.name not in offered or output.name in binary_by_output:
            twice = " twice" if output.name in binary_by_output else ""
            message = (
                f"expected outputs from {', '.join(offered)}, got {shown(output.name)}"
                f"{twice}. Ask for each once, or for none to get all."
            )
            raise InputError(message)
        place = f"the output {shown(output.name)}"
        own_parameters = _supported_parameters(output.parameters, place)
        binary_by_output[output.name] = _flag(own_parameters, "binary_data", default)
    return binary_by_output or dict.fromkeys(offered, default)


def _read_inputs(
    tensors: list[InputTensor], binary: memoryview, specs: Mapping[str, TensorSpec]
) -> dict[str, Array]:
    """Return the arrays of all inputs; the binary ones follow each other."""
    names = [tensor.name for tensor in tensors]
    if sorted(names) != sorted(specs):
        message = (
            f"expected the inputs {', '.join(specs)}, got {shown(names)}. Send each of "
            "them once."
        )
        raise InputError(message)
    arrays, end = {}, 0
    for tensor in tensors:
        _check_spec(tensor, specs[tensor.name])
        size = _binary_size(tensor)
        start, end = end, end + (size or 0)
        if end > len(binary):
            got = f"{len(binary) - start:,} after the JSON"
            raise _error(tensor, f"{size:,} bytes", got, f"Send them, and {LENGTH}.")
        entries = (
            _from_json(tensor)
            if size is None
            else _from_bytes(tensor, binary[start:end])
        )
        arrays[tensor.name] = _shaped(tensor, entries)
    if end != len(binary):
        message = (
            f"expected {end:,} bytes after the JSON, got {len(binary):,}. Send what "
            "binary_data_size says."
        )
        raise InputError(message)
    return arrays


def _error(tensor: InputTensor, expected: str, got: str, advice: str) -> InputError:
    message = f"expected {expected} as the input {tensor.name}, got {got}. {advice}"
    return InputError(message)


def _check_spec(tensor: InputTensor, spec: TensorSpec) -> None:
    """Refuse another datatype or shape than the model's."""
    if tensor.datatype != spec.datatype:
        got = shown(tensor.datatype)
        raise _error(tensor, spec.datatype, got, "Convert it first.")
    shape = tensor.shape
    if len(shape) > MOST_AXES or min(shape, default=0) < 0 or not spec.fits(shape):
        expected = f"the shape {list(spec.shape)}, -1 being any size,"
        raise _error(
            tensor, expected, shown(shape), "Send rows as the model takes them."
        )


def _binary_size(tensor: InputTensor) -> int | None:
    """Return how many bytes after the JSON are an input's; None if it is JSON."""
    parameters = _supported_parameters(tensor.parameters, f"the input {tensor.name}")
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        expected = "a number of bytes (binary_data_size)"
        raise _error(tensor, expected, shown(size), "Send a whole number.")
    if (size is None) == (tensor.data is None):
        got = "neither" if size is None else "both"
        raise _error(tensor, "data or binary_data_size", got, "Send one of them.")
    return size


def _shaped(tensor: InputTensor, entries: Array) -> Array:
    """Return entries in the shape that their tensor names."""
    if len(entries) == math.prod(tensor.shape):
        # If one size is 0, the product says nothing of another beyond 64 bits.
        with contextlib.suppress(ValueError):
            return entries.reshape(tensor.shape)
    expected = f"as many entries as the shape {shown(tensor.shape)} has"
    got = f"{len(entries):,}"
    raise _error(tensor, expected, got, "Send data and shape that agree.")


def _from_json(tensor: InputTensor) -> Array:
    """Return the entries of a tensor, flat, whether they came nested or not."""
    entries = _flat_entries(tensor)
    dtype, kinds = np.dtype(TYPES[tensor.datatype]), set(map(type, entries))
    if dtype.kind == "f":
        return _floats(tensor, entries, kinds)
    expected = {"b": bool, "O": str}.get(dtype.kind, int)
    if not kinds <= {expected}:
        raise _entry_error(tensor, next(x for x in entries if type(x) is not expected))
    try:
        return np.array(entries, dtype)
    except OverflowError:
        limits = np.iinfo(dtype)
        outside = next(x for x in entries if not limits.min <= x <= limits.max)
        raise _entry_error(tensor, outside) from None


def _flat_entries(tensor: InputTensor) -> list[Any]:
    entries = tensor.data or []
    if not entries or type(entries[0]) is not list:
        return entries
    for size in tensor.shape[1:]:
        if any(type(nested) is not list or len(nested) != size for nested in entries):
            expected = (
                f"data that are flat, or nested as the shape {shown(tensor.shape)},"
            )
            raise _error(tensor, expected, "other lists", "Send lists of these sizes.")
        entries = list(chain.from_iterable(entries))
    return entries


def _floats(tensor: InputTensor, entries: list[Any], kinds: set[type]) -> Array:
    if str in kinds:
        entries = [_WORDS.get(x, x) if type(x) is str else x for x in entries]
        kinds = set(map(type, entries))
    if not kinds <= {int, float}:
        odd = next(x for x in entries if type(x) not in (int, float))
        raise _entry_error(tensor, odd)
    try:
        doubles = np.array(entries, np.float64)
    except OverflowError:  # a whole number of more than 308 digits
        raise _entry_error(tensor, max(entries, key=abs)) from None
    with np.errstate(over="ignore"):
        array = doubles.astype(TYPES[tensor.datatype])
    overflowed = np.isinf(array) & np.isfinite(doubles)
    if overflowed.any():
        raise _entry_error(tensor, entries[int(overflowed.argmax())])
    return array


def _entry_error(tensor: InputTensor, entry: Any) -> InputError:
    """Return the error for an entry that its datatype cannot hold."""
    advice = {
        "b": "Send true or false.",
        "O": "Send text.",
        "f": 'Send numbers in its range, or "nan", "inf" or "-inf".',
    }.get(np.dtype(TYPES[tensor.datatype]).kind, "Send whole numbers in its range.")
    return _error(tensor, tensor.datatype, shown(entry), advice)


def _from_bytes(tensor: InputTensor, binary: memoryview) -> Array:
    """Return the entries of a tensor, flat, from their bytes (little-endian)."""
    if tensor.datatype == "BYTES":
        return _texts(tensor, binary)
    dtype = np.dtype(TYPES[tensor.datatype])
    size = dtype.itemsize * math.prod(tensor.shape)
    if len(binary) != size:
        advice = "Send a binary_data_size that agrees with datatype and shape."
        raise _error(tensor, f"{size:,} bytes", f"{len(binary):,}", advice)
    if dtype == np.bool_:
        # A view of other bytes as booleans is neither true nor false to numpy.
        numbers = np.frombuffer(binary, np.uint8)
        if (numbers > 1).any():
            raise _entry_error(tensor, int(numbers.max()))
        return numbers.view(np.bool_)
    entries = np.frombuffer(binary, dtype.newbyteorder("<"))
    # The JSON before has any length, so the bytes may lie unaligned, and onnxruntime,
    # which is C++, must not read them so.
    return np.require(entries, dtype, ["ALIGNED"])


def _texts(tensor: InputTensor, binary: memoryview) -> Array:
    """Return texts, each of which comes after its length in four bytes."""
    texts, end = [], 0
    while end < len(binary):
        start = end + 4
        (size,) = (
            struct.unpack_from("<I", binary, end) if start <= len(binary) else (0,)
        )
        end = start + size
        try:
            texts.append(str(binary[start:end], "utf-8"))
        except UnicodeDecodeError:
            got = f"other bytes in entry {len(texts)}"
            raise _error(tensor, "text in UTF-8", got, "Encode it so.") from None
    if end > len(binary):
        expected = "lengths in four bytes, each before its bytes,"
        raise _error(tensor, expected, "fewer bytes", "Send them whole.")
    return np.array(texts, np.object_)


def encode_response(  # noqa: PLR0913 - the protocol has these parts
    model_name: str,
    model_version: str,
    request_id: str,
    outputs: Mapping[str, Array],
    binary_by_output: Mapping[str, bool],
    parameters: dict[str, Any] | None = None,
) -> tuple[bytes, dict[str, str]]:
    """Return the body of a response, and its headers.

    Parameters
    ----------
    model_name, model_version : str
    request_id : str
    outputs : dict of arrays
    binary_by_output : dict of bool
        Those to send, in order, and whether in binary.
    parameters : dict, optional
        What else the response says.

    Examples
    --------
    >>> outputs = {"doubt": np.array([-2.5, -np.inf])}
    >>> body, _ = encode_response("m", "1", "r1", outputs, {"doubt": False})
    >>> msgspec.json.decode(body)["outputs"]
    [{'name': 'doubt', 'shape': [2], 'datatype': 'FP64', 'data': [-2.5, '-inf']}]
    """
    tensors: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for name, is_binary in binary_by_output.items():
        array = outputs[name]
        tensor = {"name": name, "shape": array.shape, "datatype": _NAMES[array.dtype]}
        if is_binary:
            binary.append(_to_bytes(array))
            size = {"binary_data_size": len(binary[-1])}
            tensors.append({**tensor, "parameters": size})
        else:
            tensors.append({**tensor, "data": _to_json(array)})
    content = {
        "model_name": model_name,
        "model_version": model_version,
        "id": request_id,
        **({} if parameters is None else {"parameters": parameters}),
        "outputs": tensors,
    }
    header = msgspec.json.encode(content)
    if not binary:
        return header, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", LENGTH: str(len(header))}
    return b"".join([header, *binary]), headers


def _to_json(array: Array) -> list[Any]:
    entries = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [x if math.isfinite(x) else str(x) for x in entries]
    return entries


def _to_bytes(array: Array) -> bytes:
    if array.dtype == np.object_:
        texts = [text.encode() for text in array.ravel()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
