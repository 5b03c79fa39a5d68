"""Documents are regular files of a bounded size, in strict JSON."""

import json
import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

from trustdoctor import envelope
from trustdoctor.errors import FileError


@pytest.fixture(autouse=True)
def _in_time():
    """What would wait for ever fails."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(path, limit=envelope.LIMIT):
    with pytest.raises(FileError) as caught:
        envelope.read_bounded(path, "gate", limit)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_special_files_are_refused_without_waiting(tmp_path):
    assert "got a folder" in refused(tmp_path)
    assert "got a device" in refused("/dev/zero")
    fifo, loop, named = (tmp_path / name for name in ("fifo", "loop", "socket"))
    os.mkfifo(fifo)
    assert "got a pipe" in refused(fifo)
    loop.symlink_to(loop)
    assert "cannot read the gate" in refused(loop)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(named))
        assert "a socket" in refused(named)
    assert "no such file" in refused(tmp_path / "absent")
    assert "null" in refused("a\0b")
    assert "no such file" in refused(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe"))
    assert "cannot read the gate" in refused("\ud800")
    assert "too long" in refused(tmp_path / ("x" * 300))


def test_a_pipe_that_replaces_a_file_is_not_waited_for(tmp_path, monkeypatch):
    plain, fifo = tmp_path / "plain", tmp_path / "fifo"
    plain.write_text("{}")
    os.mkfifo(fifo)
    before = plain.stat()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: before)
    assert "got a pipe" in refused(fifo)


def test_sizes_are_bounded(tmp_path):
    path = tmp_path / "gate.json"
    path.write_text("x" * 10)
    assert envelope.read_bounded(path, "gate", 10) == "x" * 10
    assert "at most 9 bytes" in refused(path, 9)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    assert "at most 64,000,000 bytes" in refused(path)


def test_text_is_utf_8(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffKüche".encode())
    assert envelope.read_bounded(path, "list") == "Küche"
    path.write_bytes("Küche".encode("latin-1"))
    assert "the byte 0xfc at 1" in refused(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"a": 1, "a": 1}', "'a' twice"),
        ('[{"b": {"a": 1, "c": 2, "a": 1}}]', "'a' twice"),
        ("NaN", "NaN"),
        ('{"a": [-Infinity]}', "-Infinity"),
        ("1e400", "too large"),
        ("-1e400", "too large"),
        ("9" * 5000, "beyond 64 bits"),
        (str(10**400), "beyond 64 bits"),
        (str(1 << 64), "beyond 64 bits"),
        (str(-(1 << 63) - 1), "beyond 64 bits"),
        ("[" * 40 + "]" * 40, "32 deep"),
        ("[" * 100_000, "32 deep"),
        ('{"a":' * 100_000, "32 deep"),
        (r'["\ud800"]', "unpaired surrogate"),
        (r'{"\udc00": 1}', "unpaired surrogate"),
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
    ],
)
def test_ambiguous_json_is_refused(text, match):
    with pytest.raises(ValueError, match=match) as caught:
        envelope.parse(text)
    assert len(str(caught.value)) < 200


def test_what_json_says_plainly_is_read():
    content = {
        "a": [1, -2.5, "ü😀", None, True, {}],
        "b": -(1 << 63),
        "c": (1 << 64) - 1,
    }
    assert envelope.parse(json.dumps(content)) == content
    assert envelope.parse("[" * 32 + "]" * 32) == json.loads("[" * 32 + "]" * 32)


@pytest.mark.parametrize("schema", ["true", "1.0", '"1"', "[1]", "null", "3"])
def test_a_schema_must_be_a_supported_integer(schema, tmp_path):
    path = tmp_path / "gate.json"
    path.write_text(f'{{"trustdoctor": "gate", "schema": {schema}}}')
    with pytest.raises(FileError, match="expected a gate of schema 1 or 2"):
        envelope.load(path, "gate", schemas=(1, 2))
    path.write_text('{"trustdoctor": "gate", "schema": 1}')
    assert envelope.load(path, "gate", schemas=(1, 2)) == {"schema": 1}


def test_messages_stay_short(tmp_path):
    path = tmp_path / "gate.json"
    path.write_text(json.dumps({"trustdoctor": "gate", "schema": "x" * 10**6}))
    with pytest.raises(FileError) as caught:
        envelope.load(path, "gate", schemas=(1,))
    assert len(str(caught.value)) < 400
    with pytest.raises(FileError) as caught:
        envelope.check_fields({"x" * 10**6: 1, "\x1b[31m": 2}, set())
    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)


class Cell(envelope.Document):
    n: envelope.Count
    at: envelope.Number = 0.0
    ends: tuple[tuple[float, float], ...] = ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"n": True}, "n: expected int, got bool."),
        ({"n": 1.0}, "n: expected int, got float."),
        ({"n": -1}, "n: expected int >= 0."),
        ({"n": 1 << 53}, "n: expected int <= 9007199254740991."),
        ({"n": 1, "at": "nan"}, "at: invalid enum value 'nan'."),
        (
            {"n": 1, "ends": [[1, 2], [3]]},
            "ends[1]: expected array of length 2, got 1.",
        ),
        ({"n": 1, "m": 2}, "unknown field m."),
        ({"at": 2.5}, "missing field n."),
        ([], "expected object, got array."),
    ],
)
def test_a_document_of_another_form_is_refused_by_its_path(content, message):
    with pytest.raises(FileError) as caught:
        envelope.convert(content, Cell)
    assert str(caught.value) == message


def test_a_document_of_its_form_is_read():
    cell = envelope.convert({"n": 3, "at": "-inf", "ends": [[0, 1.5]]}, Cell)
    assert (cell.n, envelope.read_number(cell.at), cell.ends) == (
        3,
        -np.inf,
        ((0, 1.5),),
    )
    assert envelope.convert([[1, 2]], list[tuple[int, int]]) == [(1, 2)]


def test_names_that_a_document_makes_up_are_quoted_and_cut():
    with pytest.raises(FileError) as caught:
        envelope.convert({"n": 1, "`\n\x1b" * 10**5: 2}, Cell)
    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)
