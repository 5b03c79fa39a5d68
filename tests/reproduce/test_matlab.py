"""MATLAB files, against SciPy's writer and reader."""

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from trustdoctor.errors import FileError
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.matlab import read_matlab

N = 5
PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3, N), dtype=np.uint8)
DIGITS = np.array([[10, 1, 2, 9, 5]]).T
HEAD = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H2s", 0x100, b"IM")


def saved(content, **options):
    buffer = io.BytesIO()
    savemat(buffer, content, **options)
    return buffer.getvalue()


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def inside(kind, shape, name, values):
    dims = struct.pack(f"<{len(shape)}i", *shape)
    flags = element(6, struct.pack("<II", kind, 0))
    return flags + element(5, dims) + element(1, name) + values


def matrix(*elements):
    return element(14, inside(*elements))


def packed(content):
    compressed = zlib.compress(content)
    return struct.pack("<II", 15, len(compressed)) + compressed


def load(folder, content):
    (folder / "test_32x32.mat").write_bytes(content)
    return DATASETS["svhn"].load(folder, rows=N)


KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


@pytest.mark.parametrize("do_compression", [True, False])
def test_arrays_equal_those_that_scipy_wrote(do_compression, rng):
    expected = {kind: rng.integers(0, 100, (3, 2, 4)).astype(kind) for kind in KINDS}
    expected |= {"y": np.ones((1, 1)), "quite_a_long_name": np.zeros((0, 3), "u1")}
    passed_over = {
        "cell": np.array([1, "a"], object),
        "struct": {"a": {"b": 1}},
        "text": "a",
        "complex": np.array([[1j]]),
    }
    content = saved({**passed_over, **expected}, do_compression=do_compression)
    arrays = read_matlab(content, most=1 << 20)
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(arrays[name], array)


@pytest.mark.parametrize("name", ["double", "matrix", "minus", "multi", "3dmatrix"])
def test_files_of_matlab_itself(name):
    """Those that SciPy is tested by: of several versions and of both byte orders."""
    folder = Path(scipy.io.__file__).parent / "matlab" / "tests" / "data"
    files = sorted(folder.glob(f"test{name}_[567]*.mat"))
    if not files:
        pytest.skip("this SciPy came without its tests")
    for file in files:
        by_scipy = loadmat(file)
        arrays = read_matlab(file.read_bytes(), most=1 << 20)
        assert arrays.keys() == {name for name in by_scipy if not name.startswith("__")}
        for array_name, array in arrays.items():
            assert np.array_equal(array, by_scipy[array_name]), file


@pytest.mark.parametrize("kind", ["u1", "f8"])
def test_svhn_is_read(kind, tmp_path):
    content = saved({"X": PIXELS, "y": DIGITS.astype(kind)}, do_compression=True)
    examples = load(tmp_path, content)
    assert np.array_equal(examples.values, PIXELS.transpose(3, 0, 1, 2))
    assert examples.labels.tolist() == [0, 1, 2, 9, 5]


def nested(depth):
    """Return a cell within a cell within a cell."""
    hidden = inside(1, (1, 1), b"X", b"")
    last = matrix(9, (1, 1), b"", element(2, b"\1"))
    sizes = len(last) + (len(hidden) + 8) * np.arange(depth, 0, -1) - 8
    tags = np.stack([np.full(depth, 14), sizes], 1).astype("<u4")
    return HEAD + b"".join(tag.tobytes() + hidden for tag in tags) + last


RUN = """
import sys
from pathlib import Path
from trustdoctor.errors import FileError
from trustdoctor.reproduce.datasets import DATASETS
for folder in sys.argv[1:]:
    try:
        DATASETS["svhn"].load(Path(folder))
    except FileError:
        continue
    raise SystemExit(folder)
"""
BYTE = element(2, b"\1")
HUGE = struct.pack("<II", 14, 1 << 31)


def test_no_file_ends_the_process(tmp_path):
    """SciPy follows cells until the stack is full, and crashes on an odd type."""
    untyped = HEAD + matrix(9, (1,), b"X", element(14, b"\1"))
    folders = []
    for name, content in (("deep", nested(100_000)), ("untyped", untyped)):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "test_32x32.mat").write_bytes(content)
    run = subprocess.run(
        [sys.executable, "-c", RUN, *folders], capture_output=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "version 5"),
        (b"<html>" * 50, "version 5"),
        (saved({"X": np.ones((2, 2))}, format="4"), "version 5"),
        (HEAD, "no 'X'"),
        (HEAD + HUGE, "there are fewer"),
        (HEAD + matrix(9, (10**9,), b"X", BYTE), "do not fill"),
        (HEAD + matrix(9, (-1, -1), b"X", BYTE), "not made as"),
        (HEAD + matrix(9, (1,) * 33, b"X", BYTE), "not made as"),
        (HEAD + matrix(9, (1,), b"X", b""), "not made as"),
        (HEAD + matrix(9, (1,), b"X", element(2, b"")), "do not fill"),
        (HEAD + matrix(9, (1,), b"X", element(2, b"\1\1")), "do not fill"),
        (HEAD + matrix(9, (1,), b"X", BYTE) * 2, "twice"),
        (HEAD + packed(HUGE), "more than a data set has"),
        (HEAD + packed(struct.pack("<II", 14, 0) + bytes(1 << 24)), "others are there"),
        (HEAD + packed(matrix(9, (1,), b"X", BYTE)[:-8]), "others are there"),
        (HEAD + struct.pack("<II", 15, 4) + b"abcd", "header"),
        (HEAD + element(14, b"\1"), "unpack"),
        (saved({"X": PIXELS, "y": DIGITS})[:-9], "there are fewer"),
        (saved({"X": PIXELS, "y": DIGITS + 1}), "digits from 1 to 10"),
        (saved({"X": PIXELS, "y": DIGITS + 0.5}), "digits from 1 to 10"),
        (saved({"X": PIXELS, "y": np.full((N, 1), np.nan)}), "digits from 1 to 10"),
        (saved({"X": PIXELS, "y": DIGITS[1:]}), "expected bytes of the shape"),
        (saved({"X": PIXELS / 255, "y": DIGITS}), "expected bytes of the shape"),
        (saved({"X": {"a": 1}, "y": DIGITS}), "no 'X'"),
        (saved({"X": np.array([1, "a"], object), "y": DIGITS}), "no 'X'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_files_are_refused(content, why, tmp_path):
    with pytest.raises(FileError, match="Download it again") as refused:
        load(tmp_path, content)
    assert why in str(refused.value)


WHOLE = [
    saved({"X": PIXELS, "y": DIGITS}, do_compression=True),
    saved({"y": DIGITS, "X": PIXELS}, do_compression=False),
]


@given(st.data())
def test_a_damaged_file_is_refused_or_read(tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    try:
        examples = load(tmp_path_factory.mktemp("damaged"), bytes(content))
    except FileError:
        pass
    else:
        assert examples.values.shape == (N, 32, 32, 3)
        assert examples.values.dtype == np.uint8
        assert 0 <= examples.labels.min() <= examples.labels.max() < 10
