"""Mutations of NPY and NPZ files, and of safetensors: of heads, shapes and archives."""

import io
import json
import struct
import zipfile
from random import Random

import numpy as np

from fuzz import mutate_bytes, mutate_json

SHAPES = (
    "()", "(60,)", "(59,)", "(61,)", "(60, 4)", "(60, 3)", "(60, 5)", "(120, 2)",
    "(4, 60)", "(30, 4)", "(200, 4)", "(0, 4)", "(60, 0)", "(-60, 4)", "(60, -4)",
    "(-1, -4)", "(1,)", "(1000000000000, 4)", "(60, 4, 1)", "(9223372036854775807, 4)",
    "(60, 100000000000)", "(18446744073709551616, 4)", "(True, 4)", "(60.0, 4)", "60",
    "[60, 4]", "('60', 4)", "(240, 1)", "(240,)", "None", "(60, 4,) * 2", "(60, 2, 2)",
    "(1" + "0" * 400 + ",)",
)  # fmt: skip
KINDS = (
    "<f8", ">f8", "<f4", "<f2", "|f1", "<f16", "<i8", ">i8", "<i4", "<u8", "|u1", "|b1",
    "<c16", "<U5", "<U1", "<U0", "|S8", "|S0", "|V8", "|O", "O", "<M8[s]", "<m8[s]",
    "f8", "<f9", "float64", "object", "", "<f8, <f8", "int", "double", "|V0",
    "<U1000000000",
)  # fmt: skip


def _head(data: bytes) -> tuple[int, int]:
    """Return where the header of an array begins and ends."""
    wide = data[6:7] != b"\x01"
    width = 4 if wide else 2
    length = int.from_bytes(data[8 : 8 + width], "little")
    return 8 + width, 8 + width + length


def head(rng: Random, data: bytes) -> bytes:
    """Announce another shape, type or order in the header, with its length adjusted."""
    start, end = _head(data)
    text = data[start:end].decode("latin-1")
    try:
        shape = text[text.index("(") : text.index(")") + 1]
        kind = text.split("'descr': ")[1].split(",")[0].strip("'\" ")
    except (ValueError, IndexError):
        return mutate_bytes.flip(rng, data)
    chance = rng.random()
    if chance < 0.45:
        text = text.replace(shape, rng.choice(SHAPES))
    elif chance < 0.8:
        text = text.replace(kind, rng.choice(KINDS))
    elif chance < 0.9:
        swapped = {"True": "False", "False": "True"}
        order = "True" if "True" in text else "False"
        text = text.replace(order, swapped[order])
    else:
        odd = ("{" * 3, "__import__('os')", "'x': 1, ", "9" * 5000, "\0", "(" * 500)
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(odd) + text[at:]
    content = text.encode("latin-1", "replace")
    if data[6:7] == b"\x01" and len(content) < 65536:
        return data[:8] + struct.pack("<H", len(content)) + content + data[end:]
    return data[:8] + struct.pack("<I", len(content)) + content + data[end:]


def body(rng: Random, data: bytes) -> bytes:
    """Cut the numbers short, add some, or make some odd; the header stays."""
    _, end = _head(data)
    numbers = data[end:]
    change = rng.randrange(3)
    if change == 0:
        return data[: end + rng.randrange(len(numbers) + 1)]
    if change == 1:
        return data + rng.randbytes(rng.choice((1, 8, 32, 1000)))
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, -0.0])
    value = odd[rng.randrange(len(odd))].tobytes()
    at = end + 8 * rng.randrange(max(len(numbers) // 8, 1))
    return data[:at] + value + data[at + 8 :]


ARRAY: tuple[mutate_bytes.Mutator, ...] = (*[head] * 3, *[body] * 2)
NAMES = (
    "labels.npy", "logits.npy", "probs.npy", "Labels.npy", "label.npy", "x.npy",
    "logits", "../logits.npy", "/logits.npy", "logits.npy/", "", "a/logits.npy",
    "\0.npy", "é.npy", "features.npy", "ids.npy", "confidence.npy", "logits.npy.npy",
    "pbb_1.npy",
)  # fmt: skip


def _zipped(rng: Random, members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    kinds = (
        zipfile.ZIP_STORED,
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_LZMA,
    )
    with zipfile.ZipFile(out, "w", rng.choice(kinds)) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, archive.compression)
    return out.getvalue()


def archive(rng: Random, data: bytes) -> bytes:
    """Change a member, a name, or the list of members; sums are right again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive_file:
            members = [(n, archive_file.read(n)) for n in archive_file.namelist()]
    except Exception:  # what an earlier mutation left is no archive any more
        return rng.choice(mutate_bytes.BYTES)(rng, data)
    if not members:
        return data
    at = rng.randrange(len(members))
    name, content = members[at]
    chance = rng.random()
    if chance < 0.7:
        members[at] = name, rng.choice(ARRAY)(rng, content)
    elif chance < 0.8:
        members[at] = rng.choice(NAMES), content
    elif chance < 0.9:
        members.insert(rng.randrange(len(members) + 1), (rng.choice(NAMES), content))
    else:
        del members[at]
    return _zipped(rng, members)


def directory(rng: Random, data: bytes) -> bytes:
    """Change bytes of the archive's list of members: sizes, flags, methods, sums."""
    start = data.find(b"PK\x01\x02")
    marks = (start, data.find(b"PK\x03\x04"), data.find(b"PK\x05\x06"))
    at = rng.choice([mark for mark in marks if mark >= 0] or [0])
    place = at + rng.choice((4, 6, 8, 10, 14, 16, 18, 20, 22, 24, 26, 28, 30, 42, 46))
    width = rng.choice((1, 2, 4))
    value = rng.choice(mutate_bytes.NUMBERS) % 256**width
    return data[:place] + value.to_bytes(width, "little") + data[place + width :]


ARCHIVE: tuple[mutate_bytes.Mutator, ...] = (*[archive] * 5, directory)


def tensors(rng: Random, data: bytes) -> bytes:
    """Change the JSON that a safetensors file begins with."""
    length = int.from_bytes(data[:8], "little")
    text, tensor_bytes = data[8 : 8 + length], data[8 + length :]
    try:
        tree = json.loads(text)
        inner_json = tree["__metadata__"]["json"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return rng.choice(mutate_bytes.BYTES)(rng, data)
    if rng.random() < 0.5:
        changed = (
            mutate_json.document(rng, inner_json).decode("utf-8", "replace").strip()
        )
        tree["__metadata__"]["json"] = changed
        text = json.dumps(tree).encode()
    else:
        text = mutate_json.document(rng, text).strip()
    return len(text).to_bytes(8, "little") + text + tensor_bytes


TENSORS: tuple[mutate_bytes.Mutator, ...] = (tensors,)
