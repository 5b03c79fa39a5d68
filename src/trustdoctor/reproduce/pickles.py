"""Pickles of plain values and arrays of numbers, read without the pickle machine.

A few opcodes are known, and none imports anything: if a pickle names what rebuilds an
array in numpy, a stand-in takes its bytes, if they are as many as its shape announces.
"""

# Why not `pickle.Unpickler` with a `find_class` of its own: in C a high position in the
# memo costs gigabytes. The one in pure Python asks for the memory of a bytearray before
# it reads, unpacks a text byte by byte as arguments, sets attributes of stand-ins, and
# hashes a deep tuple as the key of a dict, which ends the process. A subclass that
# prevents all this needs as many lines as this module, on undocumented attributes.

import math
import pickletools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEPS = 2_000_000
"""Opcodes of a pickle at most; the largest batch of CIFAR has a tenth of them."""

_NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def read_pickle(content: bytes) -> dict[Any, Any]:
    """Return the dict that a pickle of protocol 2 to 5 holds.

    Texts of Python 2 are bytes. What is not plain values and arrays of numbers raises
    a ValueError or another plain exception.
    """
    values = _Machine(len(content)).run(content)
    if type(values) is not dict:
        message = "it holds no dict"
        raise ValueError(message)
    return {
        key: value.numbers() if type(value) is _PickledArray else value
        for key, value in values.items()
    }


class _NumberType:
    """A type of numbers, complete once its byte order is known."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, ""

    def build(self, _machine: "_Machine", state: Any) -> None:
        """Take the byte order; all the rest is as it is for plain numbers."""
        order = (
            _short_text(state[1]) if type(state) is tuple and len(state) == 8 else ""
        )
        plain = (3, None, None, None, -1, -1, 0)
        if order not in ("<", ">", "|") or (*state[:1], *state[2:]) != plain:
            message = "an array in it holds no plain numbers"
            raise ValueError(message)
        self.order = order

    def dtype(self) -> Any:
        """Return numpy's type."""
        if not self.order:
            message = "an array in it has no byte order"
            raise ValueError(message)
        return np.dtype(self.order + self.code)


class _PickledArray:
    """An array, empty until it is built."""

    def __init__(self, values: NDArray[Any] | None = None) -> None:
        self.values = values

    def build(self, machine: "_Machine", state: Any) -> None:
        """Take the version, the shape, the type, whether by column, and the bytes."""
        _, shape, number_type, by_column, raw = state
        order = "F" if by_column is True else "C"
        self.values = _array_of_bytes(machine, raw, number_type, shape, order)

    def numbers(self) -> NDArray[Any]:
        """Return the array."""
        if self.values is None:
            message = "an array in it was never filled"
            raise ValueError(message)
        return self.values


def _array_of_bytes(
    machine: "_Machine", raw: Any, number_type: Any, shape: Any, order: Any
) -> NDArray[Any]:
    valid = type(number_type) is _NumberType and order in ("C", "F")
    valid = valid and type(raw) is bytes
    if not valid or type(shape) is not tuple or not 0 < len(shape) <= 32:
        message = "an array in it is not made as numpy makes one"
        raise ValueError(message)
    dtype = number_type.dtype()
    # Each size by itself: the product of two huge ones and a zero is small.
    most = len(raw) // dtype.itemsize
    sizes_fit = all(type(n) is int and 0 <= n <= most for n in shape)
    if not sizes_fit or math.prod(shape) * dtype.itemsize != len(raw):
        message = f"{len(raw):,} bytes do not fill an array of the shape announced"
        raise ValueError(message)
    machine.spend(len(raw))
    if dtype.kind == "b":  # numpy counts on 0 and 1
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape, order=order)
    return np.frombuffer(raw, dtype).reshape(shape, order=order)


def _short_text(value: Any) -> str:
    """Return a short text, which Python 2 has as bytes."""
    if type(value) is bytes:
        return value[:8].decode("latin-1")
    return value if type(value) is str else ""


def _encode(machine: "_Machine", text: Any, encoding: Any) -> bytes:
    """Return bytes, as Python 3 spells them in protocol 2."""
    if type(text) is not str or _short_text(encoding) != "latin1":
        message = "it encodes something else than bytes"
        raise ValueError(message)
    machine.spend(len(text))
    return text.encode("latin-1")


def _dtype(_machine: "_Machine", code: Any, *_copy: Any) -> _NumberType:
    if _short_text(code) not in _NUMBERS:
        message = "an array in it holds no plain numbers"
        raise ValueError(message)
    return _NumberType(_short_text(code))


def _reconstruct(
    _machine: "_Machine", _type: Any, _shape: Any, _code: Any
) -> _PickledArray:
    return _PickledArray()


def _frombuffer(
    machine: "_Machine", raw: Any, number_type: Any, shape: Any, order: Any
) -> _PickledArray:
    return _PickledArray(_array_of_bytes(machine, raw, number_type, shape, order))


def _ndarray(_machine: "_Machine", *_arguments: Any) -> None:
    message = "it asks for an array without a type"
    raise ValueError(message)


_STAND_INS: dict[str, Callable[..., Any]] = {
    "_codecs encode": _encode,
    "numpy dtype": _dtype,
    "numpy ndarray": _ndarray,
    "numpy.core.multiarray _reconstruct": _reconstruct,
    "numpy._core.multiarray _reconstruct": _reconstruct,
    "numpy.core.numeric _frombuffer": _frombuffer,
    "numpy._core.numeric _frombuffer": _frombuffer,
}


class _Machine:
    """Follows opcodes; plain values, number types, arrays and stand-ins are stacked."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        # Each byte is encoded once and put into an array once.
        self.bytes_left = 2 * size

    def run(self, content: bytes) -> Any:
        """Follow all opcodes and return what they make."""
        for step, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            name = opcode.name
            if step == STEPS:
                message = f"it has more than {STEPS:,} steps"
                raise ValueError(message)
            if name in _IDLE:
                continue
            if name in _PUSHED:
                self.push(_PUSHED[name](argument))
            elif name in _ACTIONS:
                _ACTIONS[name](self, argument)
            else:
                message = f"it asks for the opcode {name}"
                raise ValueError(message)
        return self.stack.pop()

    def spend(self, size: int) -> None:
        """Count bytes that are made, so that one text is not copied for ever."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            message = "it makes more bytes than the file has"
            raise ValueError(message)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _argument: Any) -> None:
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.below.pop()
        return items

    def take(self, n: int) -> tuple[Any, ...]:
        return tuple([self.stack.pop() for _ in range(n)][::-1])

    def top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            message = f"it fills something else than a {kind.__name__}"
            raise ValueError(message)
        return self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def update(self, items: list[Any]) -> None:
        keys = items[::2]  # the hash of a deep tuple ends the process
        if any(type(key) not in (bytes, str, int) for key in keys):
            message = "a key in it is neither a text nor a number"
            raise ValueError(message)
        self.top(dict).update(zip(keys, items[1::2], strict=True))

    def put(self, key: Any) -> None:
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def push_stand_in(self, name: str) -> None:
        if name not in _STAND_INS:
            message = f"it asks for {name[:80].replace(' ', '.')!r}"
            raise ValueError(message)
        self.push(_STAND_INS[name])

    def reduce(self, _argument: Any) -> None:
        function, arguments = self.take(2)
        if type(function) is not FunctionType or type(arguments) is not tuple:
            message = "it calls what is no function"
            raise ValueError(message)
        self.push(function(self, *arguments))

    def build(self, _argument: Any) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) not in (_NumberType, _PickledArray):
            message = "it sets the state of something else than an array"
            raise ValueError(message)
        self.stack[-1].build(self, state)


def _unchanged(argument: Any) -> Any:
    return argument


_IDLE = ("PROTO", "FRAME", "STOP")

_PUSHED: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "EMPTY_TUPLE": lambda _: (),
    "BYTEARRAY8": bytes,
    "BINSTRING": lambda text: text.encode("latin-1"),
    "SHORT_BINSTRING": lambda text: text.encode("latin-1"),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _unchanged),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _unchanged),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _unchanged),
}

_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "TUPLE": lambda m, _: m.push(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.push(m.take(1)),
    "TUPLE2": lambda m, _: m.push(m.take(2)),
    "TUPLE3": lambda m, _: m.push(m.take(3)),
    "APPEND": lambda m, _: m.extend([m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "SETITEM": lambda m, _: m.update(list(m.take(2))),
    "SETITEMS": lambda m, _: m.update(m.since_mark()),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": lambda m, key: m.push(m.memo[key]),
    "LONG_BINGET": lambda m, key: m.push(m.memo[key]),
    "GLOBAL": _Machine.push_stand_in,
    "STACK_GLOBAL": lambda m, _: m.push_stand_in(" ".join(m.take(2))),
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
