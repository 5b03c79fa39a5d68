"""The Open Inference Protocol: requests into arrays, arrays into answers.

Tensors travel as JSON, or in binary after it (the extension for binary tensors). JSON
has no NaN and no infinities. In tensors of floats they are the words "nan", "inf" and
"-inf", in both directions and as in `/v1/decide`: what stays is JSON that every reader
takes, no row is lost, and numpy reads the words, `tritonclient` therefore, too.
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
"""The header that says how many bytes of a body are JSON, where tensors follow."""

TYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    **{f"UINT{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "BYTES": np.object_,
}
"""The protocol's datatypes, as numpy has them; BYTES are text."""

MOST_AXES = 64
"""More of them no array has."""

_NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_NOT_HERE = {
    "sequence_id": "sequences",
    "shared_memory_region": "shared memory",
    "classification": "classification",
}
"""Parameters of extensions that would change the answer, and are not offered."""


@dataclass(frozen=True)
class TensorSpec:
    """What a model takes or gives.

    Attributes
    ----------
    datatype : str
        One of `TYPES`.
    shape : tuple of int
        -1 where any size will do; () where nothing is known of it.
    """

    datatype: str
    shape: tuple[int, ...]

    def fits(self, shape: list[int]) -> bool:
        """Tell whether an array of this shape is one."""
        same = len(shape) == len(self.shape) and all(
            own in (-1, size) for own, size in zip(self.shape, shape, strict=True)
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
    asked : dict of bool
        The outputs to send, in order, and whether in binary.
    parameters : dict
        As the request had them.
    """

    id: str | None
    inputs: dict[str, Array]
    asked: dict[str, bool]
    parameters: dict[str, Any] = field(default_factory=dict)


class InputTensor(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor with its entries, or with the size of those after the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class RequestedOutput(msgspec.Struct, forbid_unknown_fields=True):
    """An output to send; without any, all are sent."""

    name: str
    parameters: dict[str, Any] | None = None


class InferenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request to infer, as JSON."""

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
    header_length: int | None,
    inputs: Mapping[str, TensorSpec],
    outputs: Collection[str],
) -> InferenceRequest:
    """Read a request to infer.

    Parameters
    ----------
    body : bytes
    header_length : int or None
        How many bytes of it are JSON; None for all.
    inputs : dict of Tensor
        What the model takes.
    outputs : names
        What can be asked for; all of it is where a request names none.

    Examples
    --------
    >>> body = b'''{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2],
    ...             "data": [[0.5, 2]]}]}'''
    >>> found = parse_request(body, None, {"x": TensorSpec("FP32", (-1, 2))}, ["y"])
    >>> found.inputs["x"], found.asked
    (array([[0.5, 2. ]], dtype=float32), {'y': False})
    """
    request, rest = _split(body, header_length)
    parameters = _parameters(request.parameters, "the request")
    return InferenceRequest(
        request.id or None,
        _read_inputs(request.inputs, rest, inputs),
        _read_outputs(request.outputs or [], parameters, outputs),
        parameters,
    )


def _split(body: bytes, length: int | None) -> tuple[InferenceBody, memoryview]:
    """Return the JSON of a body, and the bytes after it."""
    if length is not None and not 0 < length <= len(body):
        message = (
            f"expected 1 to {len(body):,} bytes of JSON, got {length:,} in {LENGTH}. "
            "Send the length of the JSON alone."
        )
        raise InputError(message)
    end = len(body) if length is None else length
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


def _parameters(given: dict[str, Any] | None, where: str) -> dict[str, Any]:
    """Return parameters, without those of extensions that are not offered."""
    given = given or {}
    for name, what in _NOT_HERE.items():
        if given.get(name):
            message = (
                f"expected tensors in the request itself, got {name} in {where}: "
                f"{what} is not offered. Leave it out."
            )
            raise InputError(message)
    return given


def _flag(given: dict[str, Any], name: str, default: bool) -> bool:  # noqa: FBT001
    value = given.get(name, default)
    if type(value) is not bool:
        message = f"expected true or false as {name}, got {shown(value)}. Send one."
        raise InputError(message)
    return value


def _read_outputs(
    given: list[RequestedOutput], parameters: dict[str, Any], offered: Collection[str]
) -> dict[str, bool]:
    """Return which outputs are asked for, and which of them in binary."""
    default = _flag(parameters, "binary_data_output", default=False)
    asked: dict[str, bool] = {}
    for one in given:
        if one.name not in offered or one.name in asked:
            twice = " twice" if one.name in asked else ""
            message = (
                f"expected outputs from {', '.join(offered)}, got {shown(one.name)}"
                f"{twice}. Ask for each once, or for none to get all."
            )
            raise InputError(message)
        own = _parameters(one.parameters, f"the output {shown(one.name)}")
        asked[one.name] = _flag(own, "binary_data", default)
    return asked or dict.fromkeys(offered, default)


def _read_inputs(
    given: list[InputTensor], rest: memoryview, takes: Mapping[str, TensorSpec]
) -> dict[str, Array]:
    """Return the arrays of all inputs; those in binary follow each other."""
    names = [one.name for one in given]
    if sorted(names) != sorted(takes):
        message = (
            f"expected the inputs {', '.join(takes)}, got {shown(names)}. Send each of "
            "them once."
        )
        raise InputError(message)
    arrays, at = {}, 0
    for one in given:
        _check(one, takes[one.name])
        size = _binary_size(one)
        start, at = at, at + (size or 0)
        if at > len(rest):
            got = f"{len(rest) - start:,} after the JSON"
            raise _wrong(one, f"{size:,} bytes", got, f"Send them, and {LENGTH}.")
        flat = _from_json(one) if size is None else _from_bytes(one, rest[start:at])
        arrays[one.name] = _shaped(one, flat)
    if at != len(rest):
        message = (
            f"expected {at:,} bytes after the JSON, got {len(rest):,}. Send what "
            "binary_data_size says."
        )
        raise InputError(message)
    return arrays


def _wrong(one: InputTensor, expected: str, got: str, do: str) -> InputError:
    message = f"expected {expected} as the input {one.name}, got {got}. {do}"
    return InputError(message)


def _check(one: InputTensor, takes: TensorSpec) -> None:
    """Refuse another datatype or shape than a model's."""
    if one.datatype != takes.datatype:
        raise _wrong(one, takes.datatype, shown(one.datatype), "Convert it first.")
    sizes = one.shape
    if len(sizes) > MOST_AXES or min(sizes, default=0) < 0 or not takes.fits(sizes):
        wanted = f"the shape {list(takes.shape)}, -1 being any size,"
        do = "Send rows as the model takes them."
        raise _wrong(one, wanted, shown(sizes), do)


def _binary_size(one: InputTensor) -> int | None:
    """Return how many bytes after the JSON are an input's; None where it is JSON."""
    own = _parameters(one.parameters, f"the input {one.name}")
    size = own.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        wanted = "bytes in number (binary_data_size)"
        raise _wrong(one, wanted, shown(size), "Send a whole number.")
    if (size is None) == (one.data is None):
        got = "neither" if size is None else "both"
        raise _wrong(one, "data or binary_data_size", got, "Send one of them.")
    return size


def _shaped(one: InputTensor, flat: Array) -> Array:
    """Return an array of the shape that an input names."""
    if len(flat) == math.prod(one.shape):
        # Where one size is 0, another may be beyond 64 bits.
        with contextlib.suppress(ValueError):
            return flat.reshape(one.shape)
    wanted = f"as many entries as the shape {shown(one.shape)} has"
    raise _wrong(one, wanted, f"{len(flat):,}", "Send data and shape that agree.")


def _from_json(one: InputTensor) -> Array:
    """Return the entries of an input, flat, whether they came nested or not."""
    flat = _flat(one)
    kind, kinds = np.dtype(TYPES[one.datatype]), set(map(type, flat))
    if kind.kind == "f":
        return _floats(one, flat, kinds)
    wanted = {"b": bool, "O": str}.get(kind.kind, int)
    if not kinds <= {wanted}:
        raise _odd(one, next(x for x in flat if type(x) is not wanted))
    try:
        return np.array(flat, kind)
    except OverflowError:
        ends = np.iinfo(kind)
        outside = next(x for x in flat if not ends.min <= x <= ends.max)
        raise _odd(one, outside) from None


def _flat(one: InputTensor) -> list[Any]:
    data = one.data or []
    if not data or type(data[0]) is not list:
        return data
    for size in one.shape[1:]:
        if any(type(part) is not list or len(part) != size for part in data):
            wanted = f"data that are flat, or nested as the shape {shown(one.shape)},"
            raise _wrong(one, wanted, "other lists", "Send lists of these sizes.")
        data = list(chain.from_iterable(data))
    return data


def _floats(one: InputTensor, flat: list[Any], kinds: set[type]) -> Array:
    if str in kinds:
        flat = [_WORDS.get(x, x) if type(x) is str else x for x in flat]
        kinds = set(map(type, flat))
    if not kinds <= {int, float}:
        raise _odd(one, next(x for x in flat if type(x) not in (int, float)))
    try:
        wide = np.array(flat, np.float64)
    except OverflowError:  # a whole number of more than 308 digits
        raise _odd(one, max(flat, key=abs)) from None
    with np.errstate(over="ignore"):
        array = wide.astype(TYPES[one.datatype])
    lost = np.isinf(array) & np.isfinite(wide)
    if lost.any():
        raise _odd(one, flat[int(lost.argmax())])
    return array


def _odd(one: InputTensor, entry: Any) -> InputError:
    """Return the error of an entry that its datatype cannot hold."""
    do = {
        "b": "Send true or false.",
        "O": "Send text.",
        "f": 'Send numbers in its range, or "nan", "inf" or "-inf".',
    }.get(np.dtype(TYPES[one.datatype]).kind, "Send whole numbers in its range.")
    return _wrong(one, one.datatype, shown(entry), do)


def _from_bytes(one: InputTensor, raw: memoryview) -> Array:
    """Return the entries of an input, flat, from their bytes (little-endian)."""
    if one.datatype == "BYTES":
        return _texts(one, raw)
    kind = np.dtype(TYPES[one.datatype])
    size = kind.itemsize * math.prod(one.shape)
    if len(raw) != size:
        do = "Send a binary_data_size that agrees with datatype and shape."
        raise _wrong(one, f"{size:,} bytes", f"{len(raw):,}", do)
    if kind == np.bool_:
        numbers = np.frombuffer(raw, np.uint8)
        if (numbers > 1).any():
            raise _odd(one, int(numbers.max()))
        return numbers.view(np.bool_)
    found = np.frombuffer(raw, kind.newbyteorder("<"))
    return np.require(found, kind, ["ALIGNED"])  # the JSON before has any length


def _texts(one: InputTensor, raw: memoryview) -> Array:
    """Return texts, each after its length in four bytes."""
    found, at = [], 0
    while at < len(raw):
        start = at + 4
        (size,) = struct.unpack_from("<I", raw, at) if start <= len(raw) else (0,)
        at = start + size
        try:
            found.append(str(raw[start:at], "utf-8"))
        except UnicodeDecodeError:
            got = f"other bytes in entry {len(found)}"
            raise _wrong(one, "text in UTF-8", got, "Encode it so.") from None
    if at > len(raw):
        wanted = "lengths in four bytes, each before its bytes,"
        raise _wrong(one, wanted, "fewer bytes", "Send them whole.")
    return np.array(found, np.object_)


def encode_response(  # noqa: PLR0913 - parts of an answer, each of them in the protocol
    name: str,
    version: str,
    request_id: str,
    outputs: Mapping[str, Array],
    asked: Mapping[str, bool],
    parameters: dict[str, Any] | None = None,
) -> tuple[bytes, dict[str, str]]:
    """Return the body of an answer, and its headers.

    Parameters
    ----------
    name, version : str
        The model's.
    request_id : str
    outputs : dict of arrays
    asked : dict of bool
        Those to send, in order, and whether in binary: as `Inference.asked`.
    parameters : dict, optional
        What else the answer says.

    Examples
    --------
    >>> outputs = {"doubt": np.array([-2.5, -np.inf])}
    >>> body, _ = encode_response("m", "1", "r1", outputs, {"doubt": False})
    >>> msgspec.json.decode(body)["outputs"]
    [{'name': 'doubt', 'shape': [2], 'datatype': 'FP64', 'data': [-2.5, '-inf']}]
    """
    listed, raw = [], []
    for one, binary in asked.items():
        array = outputs[one]
        said = {"name": one, "shape": array.shape, "datatype": _NAMES[array.dtype]}
        if binary:
            raw.append(_to_bytes(array))
            size = {"binary_data_size": len(raw[-1])}
            listed.append({**said, "parameters": size})
        else:
            listed.append({**said, "data": _to_json(array)})
    answer = {"model_name": name, "model_version": version, "id": request_id}
    more = {} if parameters is None else {"parameters": parameters}
    header = msgspec.json.encode({**answer, **more, "outputs": listed})
    if not any(asked.values()):
        return header, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", LENGTH: str(len(header))}
    return b"".join([header, *raw]), headers


def _to_json(array: Array) -> list[Any]:
    flat = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [x if math.isfinite(x) else str(x) for x in flat]
    return flat


def _to_bytes(array: Array) -> bytes:
    if array.dtype == np.object_:
        texts = [text.encode() for text in array.ravel()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
