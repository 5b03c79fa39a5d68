"""Files of fitted scores that were changed by somebody else."""

import json
import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustdoctor import RelU, load_score
from trustdoctor.errors import FileError

MATRIX = (1 - np.eye(3)).astype("<f8")
CONTENT = MATRIX.tobytes()
PLAIN = {"temperature": 1.0}
HEADER = {"trustdoctor": "score", "schema": 2, "name": "rel_u", "plain": PLAIN}
TENSOR = {"dtype": "F64", "shape": [3, 3], "data_offsets": [0, 72]}


def file_of(header, content=CONTENT, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + content


def fields(**changed):
    return {"__metadata__": {"json": json.dumps(HEADER | changed)}, "matrix": TENSOR}


def plain(**changed):
    return fields(plain=PLAIN | changed)


def tensor(content=CONTENT, **changed):
    return file_of({**fields(), "matrix": TENSOR | changed}, content)


def text(header):
    return file_of({"__metadata__": {"json": header}, "matrix": TENSOR})


def load(folder, content):
    (folder / "a.safetensors").write_bytes(content)
    return load_score(folder / "a.safetensors")


def test_the_format_is_as_it_is_written_here(tmp_path):
    score = load(tmp_path, file_of(fields()))
    assert isinstance(score, RelU)
    assert np.array_equal(score.matrix, MATRIX)
    score.save(tmp_path / "b.safetensors")
    assert load_score(tmp_path / "b.safetensors").digest == score.digest


ONE, META = json.dumps(TENSOR), json.dumps(fields()["__metadata__"])
TWICE = f'{{"__metadata__": {META}, "matrix": {ONE}, "matrix": {ONE}}}'.encode()
OTHER = json.dumps(json.dumps(HEADER))
META_TWICE = f'{{"__metadata__": {{"json": "", "json": {OTHER}}}, "matrix": {ONE}}}'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "8 bytes"),
        (b"<html>404</html>", "announces a header"),
        (file_of(b"{}", b"", 1 << 63), "announces a header"),
        (file_of(b"{}", b"", 2**64 - 1), "announces a header"),
        (file_of(b"{}", b"", 10**9), "announces a header"),
        (file_of(b"{}", b"", 100), "header"),
        (file_of(fields(), CONTENT[:-8]), "not fully covered"),
        (file_of(fields(), CONTENT + b"1234"), "not fully covered"),
        (file_of(b'{"a":' * 10**6), "nested"),
        (file_of(b"\xff\xfe"), "decode"),
        (tensor(shape=[2**62, 2**62]), "overflow"),
        (tensor(shape=[-3, -3]), "-3"),
        (tensor(b"", shape=[0, 2**60], data_offsets=[0, 0]), "too big"),
        (tensor(data_offsets=[72, 0]), "offset"),
        (tensor(data_offsets=[0, 2**64]), "beyond 64 bits"),
        (tensor(dtype="F16"), "data type"),
        (tensor(dtype="BF16", shape=[36]), "bfloat16"),
        (tensor(dtype="F8_E4M3", shape=[72]), "float8"),
        (tensor(dtype="C64", shape=[3, 3]), "complex64"),
        (tensor(dtype="X"), "X"),
        (tensor((MATRIX * np.nan).tobytes()), "square matrix"),
        (tensor(np.where(MATRIX > 0, np.inf, 0).tobytes()), "square matrix"),
        (file_of(TWICE), "'matrix' twice"),
        (file_of(META_TWICE.encode()), "'json' twice"),
        (text('{"trustdoctor": "rel_u", "trustdoctor": "sirc"}'), "twice"),
        (text("[" * 10**6), "nested"),
        (text("NaN"), "NaN"),
        (text("[]"), "expected a score of trustdoctor"),
        (file_of({"matrix": TENSOR}), "expected a score of trustdoctor"),
        (file_of(fields(trustdoctor=["score"])), "expected a score of trustdoctor"),
        (file_of(fields(trustdoctor="gate")), "got a gate"),
        (file_of(fields(schema=True)), "expected a score of schema 2"),
        (file_of(fields(schema=2.0)), "expected a score of schema 2"),
        (file_of(fields(schema=1)), "an earlier version of trustdoctor wrote"),
        (file_of(fields(schema=3)), "the version of trustdoctor that wrote it"),
        (file_of(fields(name=["rel_u"])), "name: expected str, got array"),
        (file_of(fields(name="alpha")), "'alpha' is not registered"),
        (file_of(fields(plain=[])), "plain: expected object, got array"),
        (file_of(fields(more=1)), "unknown field more"),
        (file_of(plain(temperature=float("nan"))), "NaN"),
        (file_of(plain(temperature=10**400)), "beyond 64 bits"),
        (file_of(plain(temperature=0)), "temperature: expected float > 0"),
        (file_of(plain(temperature=True)), "temperature: expected float, got bool"),
        (file_of(plain(temperature="1")), "temperature: expected float, got str"),
        (file_of(plain(temperature=[1])), "temperature: expected float, got array"),
        (file_of(plain(matrix=1)), "unknown field matrix"),
        (file_of(plain(more=1)), "unknown field more"),
        (
            file_of({"__metadata__": plain(matrix=[[0]])["__metadata__"]}, b""),
            "missing or unknown arrays: 'matrix'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_scores_are_refused(content, why, tmp_path):
    with pytest.raises(FileError, match=r"a\.safetensors") as refused:
        load(tmp_path, content)
    assert why in str(refused.value)


def test_pipes_and_folders_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, tmp_path / "none", "/dev/zero"):
        with pytest.raises(FileError, match="there is no file"):
            load_score(place)


@given(st.data())
def test_a_damaged_file_is_refused_or_read(tmp_path_factory, data):
    content = bytearray(file_of(fields()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    try:
        score = load(tmp_path_factory.mktemp("damaged"), bytes(content))
    except FileError:
        return
    assert score.matrix.shape == (3, 3)
    assert np.isfinite(score.matrix).all()


def test_the_command_line_says_it_in_one_line(tmp_path, run):
    path = tmp_path / "a.safetensors"
    np.savez(tmp_path / "p.npz", logits=2 * np.eye(3), labels=np.arange(3))
    for content in (text("[" * 100_000), tensor(dtype="BF16", shape=[36])):
        path.write_bytes(content)
        score = run(
            *("calibrate", tmp_path / "p.npz", "--score", path, "--coverage", "0.9"),
            *("-o", tmp_path / "gate.json"),
        )
        assert score.returncode == 2
        assert score.stderr.count("\n") == 1
        assert not (tmp_path / "gate.json").exists()
