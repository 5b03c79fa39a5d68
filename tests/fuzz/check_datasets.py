"""Published data sets, which `reproduce` reads: formats that others chose."""

import gzip
import io
import json
import pickle
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.io

from fuzz.capture import called, refusal
from fuzz.verdicts import EQUAL, REFUSED, report
from trustdoctor.reproduce import formats

if TYPE_CHECKING:
    from fuzz.cases import Case

IMAGES = 3


def _pixels() -> Any:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (IMAGES, 3072), np.uint8)


def cifar(protocol: int = 2) -> bytes:
    """Return a batch of CIFAR-10, which names numpy's own functions."""
    content = {b"data": _pixels(), b"labels": [1, 0, 9], b"batch_label": b"a batch"}
    return pickle.dumps(content, protocol=protocol)


def svhn(*, packed: bool) -> bytes:
    out = io.BytesIO()
    pixels = _pixels().reshape(IMAGES, 32, 32, 3).transpose(1, 2, 3, 0)
    content = {"X": pixels, "y": np.array([[1], [10], [3]], np.uint8)}
    scipy.io.savemat(out, content, do_compression=packed)
    return b"MATLAB 5.0 MAT-file".ljust(116) + out.getvalue()[116:]  # without the time


def idx(*shape: int) -> bytes:
    values = np.arange(np.prod(shape)).astype(np.uint8) % 10
    head = struct.pack(f">{len(shape)}I", *shape)
    return bytes((0, 0, 8, len(shape))) + head + values.tobytes()


def reviews() -> bytes:
    rows = [{"overall": float(i % 5 + 1), "reviewText": f"text {i}"} for i in range(9)]
    return gzip.compress("\n".join(map(json.dumps, rows)).encode(), mtime=0)


READERS: dict[str, Callable[[Any], Any]] = {
    "batch": lambda folder: formats.cifar_pickles({"test": ["batch"]}, b"labels")(
        folder, "test"
    ),
    "test_32x32.mat": lambda folder: formats.read_svhn(
        folder / "test_32x32.mat", "test"
    ),
    "t10k-images-idx3-ubyte": lambda folder: formats.read_idx(folder, "test"),
    "reviews.json.gz": lambda folder: formats.read_amazon(
        folder / "reviews.json.gz", "test"
    ),
}


def judge(case: "Case") -> str:
    """Read a data set: refused, or as many labels as examples."""
    read = called(lambda: READERS[case.kind.target](case.folder))
    if refusal(read):
        return REFUSED
    if len(read.values) != len(read.labels):
        report("rows lost or made", f"{len(read.values)} and {len(read.labels)}")
    if case.kind.target == "test_32x32.mat":
        try:
            expected = scipy.io.loadmat(case.target)["X"].transpose(3, 0, 1, 2)
        except Exception:  # then there is nothing to compare with
            return EQUAL
        if not np.array_equal(expected, read.values):
            report("scores of other numbers", "other pixels than scipy reads")
    return EQUAL
