"""Pickles of plain values and arrays of numbers, read without the pickle machine.

A few opcodes are known, and none imports anything: where a pickle names what rebuilds
an array in numpy, a stand-in takes its bytes, if they are as many as its shape
announces. Python's own machine is not used at all: there a high position in the memo
costs gigabytes, and a deep tuple as the key of a dict ends the process.
"""

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
    found = _Machine(len(content)).run(content)
    if type(found) is not dict:
        message = "it holds no dict"
        raise ValueError(message)
    return {
        key: value.numbers() if type(value) is _Array else value
        for key, value in found.items()
    }


class _Kind:
    """A type of numbers, once its byte order is known."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, ""

    def build(self, _machine: "_Machine", state: Any) -> None:
        """Take the byte order; all the rest is as it is for plain numbers."""
        order = _word(state[1]) if type(state) is tuple and len(state) == 8 else ""
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


class _Array:
    """An array, empty until it is built."""

    def __init__(self, values: NDArray[Any] | None = None) -> None:
        self.values = values

    def build(self, machine: "_Machine", state: Any) -> None:
        """Take the version, the shape, the type, whether by column, and the bytes."""
        _, shape, kind, by_column, raw = state
        order = "F" if by_column is True else "C"
        self.values = _filled(machine, raw, kind, shape, order)

    def numbers(self) -> NDArray[Any]:
        """Return the array."""
        if self.values is None:
            message = "an array in it was never filled"
            raise ValueError(message)
        return self.values


def _filled(
    machine: "_Machine", raw: Any, kind: Any, shape: Any, order: Any
) -> NDArray[Any]:
    good = type(raw) is bytes and type(kind) is _Kind and order in ("C", "F")
    if not good or type(shape) is not tuple or not 0 < len(shape) <= 32:
        message = "an array in it is not made as numpy makes one"
        raise ValueError(message)
    dtype = kind.dtype()
    most = len(raw) // dtype.itemsize
    whole = all(type(n) is int and 0 <= n <= most for n in shape)
    if not whole or math.prod(shape) * dtype.itemsize != len(raw):
        message = f"{len(raw):,} bytes do not fill an array of the shape announced"
        raise ValueError(message)
    machine.spend(len(raw))
    if dtype.kind == "b":  # numpy counts on 0 and 1
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape, order=order)
    return np.frombuffer(raw, dtype).reshape(shape, order=order)


def _word(value: Any) -> str:
    """Return a short text, which Python 2 has as bytes."""
    if type(value) is bytes:
        return value[:8].decode("latin-1")
    return value if type(value) is str else ""


def _encode(machine: "_Machine", text: Any, encoding: Any) -> bytes:
    """Return bytes, as Python 3 spells them in protocol 2."""
    if type(text) is not str or _word(encoding) != "latin1":
        message = "it encodes something else than bytes"
        raise ValueError(message)
    machine.spend(len(text))
    return text.encode("latin-1")


def _dtype(_machine: "_Machine", code: Any, *_copy: Any) -> _Kind:
    if _word(code) not in _NUMBERS:
        message = "an array in it holds no plain numbers"
        raise ValueError(message)
    return _Kind(_word(code))


def _reconstruct(_machine: "_Machine", _kind: Any, _shape: Any, _code: Any) -> _Array:
    return _Array()


def _frombuffer(
    machine: "_Machine", raw: Any, kind: Any, shape: Any, order: Any
) -> _Array:
    return _Array(_filled(machine, raw, kind, shape, order))


def _ndarray(_machine: "_Machine", *_given: Any) -> None:
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
    """Follows opcodes; a stack holds plain values, `_Kind`, `_Array` and stand-ins."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.left = 2 * size  # each byte is encoded once and put into an array once

    def run(self, content: bytes) -> Any:
        """Follow all opcodes and return what they make."""
        for step, (opcode, given, _) in enumerate(pickletools.genops(content)):
            name = opcode.name
            if step == STEPS:
                message = f"it has more than {STEPS:,} steps"
                raise ValueError(message)
            if name in _IDLE:
                continue
            if name in _PUSHED:
                self.push(_PUSHED[name](given))
            elif name in _ACTIONS:
                _ACTIONS[name](self, given)
            else:
                message = f"it asks for the opcode {name}"
                raise ValueError(message)
        return self.stack.pop()

    def spend(self, size: int) -> None:
        """Count bytes that are made, so that one text is not copied for ever."""
        self.left -= size
        if self.left < 0:
            message = "it makes more bytes than the file has"
            raise ValueError(message)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _given: Any) -> None:
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
        keys = items[::2]
        if any(type(key) not in (bytes, str, int) for key in keys):
            message = "a key in it is neither a text nor a number"
            raise ValueError(message)
        self.top(dict).update(zip(keys, items[1::2], strict=True))

    def put(self, at: Any) -> None:
        self.memo[len(self.memo) if at is None else at] = self.stack[-1]

    def name(self, named: str) -> None:
        if named not in _STAND_INS:
            message = f"it asks for {named[:80].replace(' ', '.')!r}"
            raise ValueError(message)
        self.push(_STAND_INS[named])

    def reduce(self, _given: Any) -> None:
        function, given = self.take(2)
        if type(function) is not FunctionType or type(given) is not tuple:
            message = "it calls what is no function"
            raise ValueError(message)
        self.push(function(self, *given))

    def build(self, _given: Any) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) not in (_Kind, _Array):
            message = "it sets the state of something else than an array"
            raise ValueError(message)
        self.stack[-1].build(self, state)


def _same(given: Any) -> Any:
    return given


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
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _same),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _same),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _same),
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
    "BINGET": lambda m, at: m.push(m.memo[at]),
    "LONG_BINGET": lambda m, at: m.push(m.memo[at]),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": lambda m, _: m.name(" ".join(m.take(2))),
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
