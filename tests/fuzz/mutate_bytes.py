"""Mutations of bytes, regardless of their meaning."""

from collections.abc import Callable
from random import Random

Mutator = Callable[[Random, bytes], bytes]

NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1)
NUMBERS += (2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def place(rng: Random, data: bytes) -> int:
    """Return a position in the data, often near its start or end, where headers are."""
    near = rng.random()
    if near < 0.25:
        return rng.randrange(min(len(data), 64) + 1)
    if near < 0.5:
        return len(data) - rng.randrange(min(len(data), 300) + 1)
    return rng.randrange(len(data) + 1)


def piece(rng: Random, data: bytes) -> tuple[int, int]:
    """Return the start and end of a piece."""
    start = place(rng, data)
    most = rng.choice((1, 4, 16, 64, 512, max(len(data), 1)))
    return start, min(start + rng.randint(1, most), len(data))


def flip(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = min(place(rng, data), len(out) - 1)
        if at >= 0:
            out[at] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwrite(rng: Random, data: bytes) -> bytes:
    start, end = piece(rng, data)
    return data[:start] + rng.randbytes(end - start) + data[end:]


def number(rng: Random, data: bytes) -> bytes:
    """Write a whole number over some bytes, as lengths and offsets are."""
    width = rng.choice((1, 2, 4, 8))
    at = place(rng, data)
    value = rng.choice(NUMBERS) % 256**width
    order = rng.choice(("little", "little", "big"))
    return data[:at] + value.to_bytes(width, order) + data[at + width :]


def truncate(rng: Random, data: bytes) -> bytes:
    return data[: place(rng, data)]


def behead(rng: Random, data: bytes) -> bytes:
    return data[rng.randint(1, 64) :]


def insert(rng: Random, data: bytes) -> bytes:
    at = place(rng, data)
    more = rng.choice((rng.randbytes(rng.randint(1, 40)), b"\0" * rng.randint(1, 4096)))
    return data[:at] + more + data[at:]


def delete(rng: Random, data: bytes) -> bytes:
    start, end = piece(rng, data)
    return data[:start] + data[end:]


def repeat(rng: Random, data: bytes) -> bytes:
    start, end = piece(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 20)) + data[end:]


def exchange(rng: Random, data: bytes) -> bytes:
    """Swap two pieces that lie one after the other."""
    a, b, c = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def zeros(rng: Random, data: bytes) -> bytes:
    start, end = piece(rng, data)
    return data[:start] + bytes(end - start) + data[end:]


def twice(rng: Random, data: bytes) -> bytes:
    return data + data[: rng.choice((len(data), len(data) // 2))]


def keep(rng: Random, data: bytes) -> bytes:
    del rng
    return data


def nothing(rng: Random, data: bytes) -> bytes:
    del data
    return rng.choice((b"", b"\n", b" ", b"\0", b"\xff\xfe", b"\xef\xbb\xbf"))


BYTES: tuple[Mutator, ...] = (
    flip, flip, overwrite, number, number, truncate, behead, insert, delete, repeat,
    exchange, zeros, twice, nothing,
)  # fmt: skip
