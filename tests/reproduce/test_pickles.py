"""Pickles of CIFAR: every layout that exists is read, and none does anything else."""

import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustdoctor.errors import FileError
from trustdoctor.reproduce import pickles
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.pickles import read_pickle

N = 6
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 3072), dtype=np.uint8)
LABELS = [3, 0, 9, 1, 3, 2]
CONTENT = {b"batch_label": b"testing batch", b"labels": LABELS, b"data": PIXELS}


def named(module, name):
    return f"c{module}\n{name}\n".encode()


def text(value):
    """Write a text as Python 3 does."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def old(value):
    """Write a text as Python 2 does."""
    return b"U" + bytes([len(value)]) + value


def raw(value):
    return b"B" + struct.pack("<I", len(value)) + value


MULTIARRAY = named("numpy._core.multiarray", "_reconstruct")
EMPTY = MULTIARRAY + named("numpy", "ndarray") + b"K\x00\x85" + raw(b"b") + b"\x87R"
STATE = b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00"


def dtype(code, order="|", state=STATE):
    built = b"(K\x03" + text(order) + state + b"tb"
    return named("numpy", "dtype") + text(code) + b"\x89\x88\x87R" + built


def array(shape, kind, content):
    numbers = b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in shape)
    return EMPTY + b"(K\x01(" + numbers + b"t" + kind + b"\x89" + content + b"tb"


def batch(data):
    """Return a batch with that as its data."""
    labels = b"](" + b"".join(bytes((75, label)) for label in LABELS) + b"e"
    return b"\x80\x03}(" + raw(b"data") + data + raw(b"labels") + labels + b"u."


def python2():
    """Return a batch byte for byte as the published ones begin and end."""
    labels = b"".join(bytes((75, label)) for label in LABELS)
    names = b"".join(
        old(b"cat_%d.png" % i) + b"r" + struct.pack("<I", 300 + i) for i in range(N)
    )
    return (
        (b"\x80\x02}q\x01(" + old(b"batch_label") + b"q\x02")
        + (old(b"testing batch 1 of 1") + b"q\x03" + old(b"labels") + b"q\x04]q\x05(")
        + (labels + b"e" + old(b"data") + b"q\x06")
        + (named("numpy.core.multiarray", "_reconstruct") + b"q\x07")
        + (
            named("numpy", "ndarray")
            + b"q\x08K\x00\x85"
            + old(b"b")
            + b"\x87Rq\x09(K\x01"
        )
        + (b"K\x06M\x00\x0c\x86" + named("numpy", "dtype") + b"q\x0a" + old(b"u1"))
        + (b"K\x00K\x01\x87Rq\x0b(K\x03" + old(b"|") + STATE + b"tb\x89T")
        + (struct.pack("<I", PIXELS.size) + PIXELS.tobytes() + b"tb")
        + (old(b"filenames") + b"q\x0c](" + names + b"eu.")
    )


def write(folder, content):
    (folder / "cifar-10-batches-py").mkdir(exist_ok=True)
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    return folder


def load(folder, content):
    return DATASETS["cifar10"].load(write(folder, content), rows=N)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5, "Python 2"])
@pytest.mark.parametrize("numpy1", [True, False])
def test_every_layout_is_read(protocol, numpy1, tmp_path):
    if protocol == "Python 2":
        content = python2()
        assert pickle.loads(content, encoding="bytes")[b"labels"] == LABELS
    else:
        content = pickle.dumps(CONTENT, protocol)
    if numpy1 and protocol in (2, 3):  # frames and short texts know their length
        content = content.replace(b"numpy._core", b"numpy.core")
    examples = load(tmp_path, content)
    planes = PIXELS.reshape(N, 3, 32, 32)
    assert np.array_equal(examples.values, planes.transpose(0, 2, 3, 1))
    assert examples.labels.tolist() == LABELS


KINDS = ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_of_every_kind(protocol, order):
    arrays = {
        kind: np.arange(24).reshape(2, 3, 4).astype(order + kind) for kind in KINDS
    }
    arrays["by column"] = np.asfortranarray(arrays["d"])
    values = read_pickle(pickle.dumps(arrays, protocol))
    assert list(values) == list(arrays)
    for name, expected in arrays.items():
        assert values[name].dtype == expected.dtype
        assert np.array_equal(values[name], expected)


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a"]),
        np.array([None]),
        np.array([1j]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([(1, 2)], "i4,i4"),
        np.float64(3),
        np.longdouble(3),
        {1, 2},
        frozenset({1}),
        range(3),
        print,
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused(value, tmp_path):
    for protocol in (0, 2, 3, 4, 5):
        content = pickle.dumps({**CONTENT, b"more": [value]}, protocol)
        with pytest.raises(FileError, match="Download it again"):
            load(tmp_path, content)


CRASH = array([N], dtype("O8"), raw(b"A" * 8 * N))
"""Bytes as pointers: the state of the type says that it holds no objects."""


def test_bytes_do_not_become_pointers(tmp_path):
    write(tmp_path, batch(CRASH))
    np.savez(tmp_path / "m-cifar10-test.npz", logits=2 * np.eye(10))
    command = [sys.executable, "-m", "trustdoctor", "reproduce", "table1", "--data"]
    run = subprocess.run(
        [*command, tmp_path], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "no plain numbers" in run.stderr


DEEP = b"\x80\x02})" + b"\x85" * 300_000 + b"Ns."
MEMO = b"\x80\x02Nr\xff\xff\xff\xff."
RUN = """
import resource, sys
from pathlib import Path
from trustdoctor.errors import FileError
from trustdoctor.reproduce.datasets import DATASETS
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for folder in sys.argv[1:]:
    try:
        DATASETS["cifar10"].load(Path(folder))
    except FileError as error:
        assert not isinstance(error.__cause__, MemoryError)
    else:
        raise SystemExit(folder)
"""


def test_no_pickle_ends_the_process(tmp_path):
    """A deep key, a far place in the memo, and a type that is a structure inside."""
    fields = b"(" + text("a") + b"t}" + text("a") + dtype("O8") + b"K\x00\x86s"
    inner = dtype("V8", "|", b"N" + fields + b"K\x08K\x01K\x00")
    inside = batch(array([1], inner, raw(b"A" * 8)))
    hostile = {"deep": DEEP, "memo": MEMO, "inner": inside}
    folders = []
    for name, content in hostile.items():
        (tmp_path / name).mkdir()
        folders.append(write(tmp_path / name, content))
    run = subprocess.run(
        [sys.executable, "-c", RUN, *folders], capture_output=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, b"")


BYTES = dtype("u1")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (array([10**12], BYTES, raw(b"abcd")), "of the shape announced"),
        (array([-1], BYTES, raw(b"abcd")), "of the shape announced"),
        (array([2, 3], BYTES, raw(b"abcd")), "of the shape announced"),
        (array([0, 1 << 60], BYTES, raw(b"")), "of the shape announced"),
        (array([1], dtype("u8"), raw(b"abcd")), "of the shape announced"),
        (array([4], BYTES, b"N"), "not made as numpy"),
        (array([4], b"N", raw(b"abcd")), "not made as numpy"),
        (array([], BYTES, raw(b"a")), "not made as numpy"),
        (array([4], dtype("u1", "x"), raw(b"abcd")), "no plain numbers"),
        (array([4], dtype("u1", "|", STATE[:-1] + b"\x3f"), raw(b"abcd")), "no plain"),
        (array([4], dtype("S1"), raw(b"abcd")), "no plain numbers"),
        (array([4], named("numpy", "dtype"), raw(b"abcd")), "not made as numpy"),
        (EMPTY, "never filled"),
        (EMPTY + b"}" + text("values") + b"K\x01sb", "unpack"),
        (b"]}" + text("__class__") + b"K\x01sb", "state of something else"),
        (named("numpy", "ndarray") + b"K\x01\x85R", "without a type"),
        (named("os", "system") + text("true") + b"\x85R", "asks for 'os.system'"),
        (b"N" + text("a") + b"\x85R", "calls what is no function"),
        (named("numpy", "dtype") + b"]R", "calls what is no function"),
        (named("numpy", "dtype") + b")\x81", "opcode NEWOBJ"),
        (b"(" + b"inumpy\ndtype\n", "opcode INST"),
        (b"\x82\x01", "opcode EXT1"),
        (b"Pname\n", "opcode PERSID"),
        (b"\x97", "opcode NEXT_BUFFER"),
        (b"\x8b\xff\xff\xff\x7f", "not enough data"),
        (b"B\xff\xff\xff\xff", "only"),
        (b"\x96" + b"\xff" * 8, "byte count"),
        (b"h\x63", "it has no 99"),
        (b"t", "pop from empty list"),
        (b"}]Ns", "neither a text nor a number"),
        (b"K\x01K\x02a", "else than a list"),
        (named("_codecs", "encode") + text("a") + text("rot13") + b"\x86R", "encodes"),
        (named("_codecs", "encode") + b"K\x01" + text("latin1") + b"\x86R", "encodes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_make_no_array_are_refused(data, why, tmp_path):
    with pytest.raises(FileError, match="Download it again") as refused:
        load(tmp_path, batch(data))
    assert why in str(refused.value)


def test_one_text_is_not_copied_for_ever(tmp_path):
    encoded = named("_codecs", "encode") + b"h\x01" + text("latin1") + b"\x86R"
    copies = b"](" + text("a" * 10_000) + b"q\x01" + encoded * 3000 + b"e"
    with pytest.raises(FileError, match="more bytes than the file has"):
        load(tmp_path, batch(copies))


def test_steps_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, "STEPS", 30)
    with pytest.raises(FileError, match="more than 30 steps"):
        load(tmp_path, python2())


@pytest.mark.parametrize(
    "labels",
    [
        [1.0] * N,
        [True] * N,
        [-1] * N,
        [100] * N,
        [1 << 70] * N,
        ["1"] * N,
        [1] * (N - 1),
        [],
        None,
        [[1]] * N,
        tuple(LABELS),
    ],
)
def test_labels_are_numbers_of_classes(labels, tmp_path):
    with pytest.raises(FileError, match="Download it again"):
        load(tmp_path, pickle.dumps({**CONTENT, b"labels": labels}, 2))


@pytest.mark.parametrize(
    "data",
    [
        PIXELS.astype(np.int64),
        PIXELS.astype(np.int8),
        PIXELS.T,
        PIXELS[:, :-1],
        PIXELS[:-1],
        PIXELS.ravel(),
        PIXELS.tolist(),
        None,
    ],
)
def test_pixels_are_bytes_of_their_shape(data, tmp_path):
    with pytest.raises(FileError, match="Download it again"):
        load(tmp_path, pickle.dumps({**CONTENT, b"data": data}, 2))


WHOLE = [python2(), *(pickle.dumps(CONTENT, protocol) for protocol in (2, 3, 4, 5))]
FRAMES = [
    [i for i in range(len(pickled)) if i < 400 or i > len(pickled) - 400]
    for pickled in WHOLE
]


@given(st.data())
def test_a_damaged_pickle_is_refused_or_read(tmp_path_factory, data):
    layout = data.draw(st.integers(0, len(WHOLE) - 1))
    content = bytearray(WHOLE[layout])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.sampled_from(FRAMES[layout]))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([None, None, len(content) // 2, 50]))
    folder = tmp_path_factory.mktemp("damaged")
    try:
        examples = load(folder, bytes(content[:cut]))
    except FileError:
        pass
    else:
        assert examples.values.shape == (N, 32, 32, 3)
        assert examples.values.dtype == np.uint8
        assert examples.labels.shape == (N,)
        assert examples.labels.dtype == np.int64
