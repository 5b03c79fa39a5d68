"""The protocol against `tritonclient`, the specification's examples, and raw bytes."""

import json
import struct
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import given
from hypothesis import strategies as st

from trustdoctor.errors import InputError
from trustdoctor.service.open_inference import (
    LENGTH,
    TensorSpec,
    encode_response,
    parse_request,
    read_length,
)


class _EchoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((body, self.headers[LENGTH]))
        try:
            content, headers = self.server.infer(
                body, read_length(self.headers[LENGTH])
            )
            status = 200
        except InputError as error:
            content, headers = json.dumps({"error": str(error)}).encode(), {}
            status = 400
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(infer):
    """Yield a client of a server that answers by a function of body and length."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EchoHandler)
    server.daemon_threads, server.block_on_close = True, False
    server.infer, server.requests = infer, []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    client = triton.InferenceServerClient(f"127.0.0.1:{server.server_port}")
    client.requests = server.requests
    try:
        yield client
    finally:
        client.close()
        server.shutdown()
        server.server_close()


def echo(takes):
    """A model that puts out what it takes."""

    def infer(body, length):
        parsed = parse_request(body, length, takes, takes)
        return encode_response(
            "echo", "1", parsed.id or "made", parsed.inputs, parsed.binary_by_output
        )

    return infer


def strict(body):
    """JSON as browsers and Go read it: without NaN and Infinity."""
    return json.loads(body, parse_constant=pytest.fail)


INTEGERS = {
    f"{sign}INT{bits}": np.dtype(f"{kind}int{bits}")
    for sign, kind in (("U", "u"), ("", ""))
    for bits in (8, 16, 32, 64)
}
FLOATS = {f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)}
SAMPLES = {
    "BOOL": np.array([[True, False], [False, False]]),
    "BYTES": np.array([["", "cat"], ["Müller", "\0\n"]], object),
    **{
        name: np.array([[np.iinfo(k).min, np.iinfo(k).max], [0, 7]], k)
        for name, k in INTEGERS.items()
    },
    **{
        name: np.array([[np.finfo(k).min, np.finfo(k).tiny], [-0.0, 0.1]], k)
        for name, k in FLOATS.items()
    },
}


def texts(array):
    """What the client hands out as bytes in binary and as text in JSON."""
    decode = np.vectorize(
        lambda item: item.decode() if isinstance(item, bytes) else item
    )
    return decode(array) if array.dtype == object else array


@pytest.mark.parametrize("out", [True, False, None])
@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_datatype_goes_through_a_real_client(name, sent, out):
    array = SAMPLES[name]
    tensor = triton.InferInput("x", list(array.shape), name)
    tensor.set_data_from_numpy(array, binary_data=sent)
    outputs = (
        None if out is None else [triton.InferRequestedOutput("x", binary_data=out)]
    )
    with serving(echo({"x": TensorSpec(name, (-1, 2))})) as client:
        answer = client.infer("echo", [tensor], outputs=outputs, request_id="r1")
        assert (client.requests[0][1] is not None) == sent
    returned = texts(answer.as_numpy("x"))
    assert returned.dtype == texts(array).dtype
    assert np.array_equal(returned, texts(array))
    if name in FLOATS:
        assert np.array_equal(np.signbit(returned), np.signbit(array))
    response = answer.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == (
        "r1",
        "echo",
        "1",
    )
    assert ("parameters" in response["outputs"][0]) == (out is not False)


def test_binary_and_json_in_one_request():
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(3, 5)).astype(np.float32),
        "b": rng.integers(0, 9, (3,)),
        "c": np.array(["x", "yy", "zzz"], object),
        "d": rng.normal(size=(3, 1, 2)),
    }
    types = {"a": "FP32", "b": "INT64", "c": "BYTES", "d": "FP64"}
    takes = {
        name: TensorSpec(types[name], (-1,) * a.ndim) for name, a in arrays.items()
    }
    inputs, outputs = [], []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), types[name])
        inputs.append(tensor.set_data_from_numpy(array, binary_data=name in "bcd"))
        outputs.append(triton.InferRequestedOutput(name, binary_data=name in "acd"))
    with serving(echo(takes)) as client:
        answer = client.infer("echo", inputs[::-1], outputs=outputs)
    for name, array in arrays.items():
        assert np.array_equal(texts(answer.as_numpy(name)), texts(array)), name


@pytest.mark.parametrize("kind", FLOATS)
def test_non_finite_numbers_are_words_in_json(kind):
    array = np.array([[-np.inf, 0.5], [np.nan, np.inf]], FLOATS[kind])
    body, headers = encode_response("m", "1", "r", {"y": array}, {"y": False})
    (output,) = strict(body)["outputs"]
    assert output["data"] == ["-inf", 0.5, "nan", "inf"]
    assert headers == {"Content-Type": "application/json"}
    outputs = [triton.InferRequestedOutput("x", binary_data=False)]
    tensor = triton.InferInput("x", [2, 2], kind).set_data_from_numpy(array)
    with serving(echo({"x": TensorSpec(kind, (-1, -1))})) as client:
        returned = client.infer("echo", [tensor], outputs=outputs).as_numpy("x")
    assert np.array_equal(returned, array, equal_nan=True)
    body_of_words = request(datatype=kind, shape=[2, 2], data=output["data"])
    parsed = parse_request(
        body_of_words, None, {"x": TensorSpec(kind, (-1, -1))}, ["y"]
    ).inputs["x"]
    assert parsed.dtype == FLOATS[kind]
    assert np.array_equal(parsed, array, equal_nan=True)


def test_the_literals_that_the_client_writes_are_refused():
    """rapidjson writes NaN and Infinity, which are not JSON."""
    tensor = triton.InferInput("x", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.array([[1, np.nan]], np.float32), binary_data=False)
    with serving(echo({"x": TensorSpec("FP32", (-1, 2))})) as client:
        with pytest.raises(triton.InferenceServerException) as refusal:
            client.infer("echo", [tensor])
        assert b"NaN" in client.requests[0][0]
    assert "infinities as words" in refusal.value.message()


def test_the_example_of_the_protocol():
    """https://kserve.github.io/website/docs/concepts/architecture/data-plane."""
    body = b"""{
      "id" : "42",
      "inputs" : [
        {"name" : "input0", "shape" : [2, 2], "datatype" : "UINT32",
         "data" : [1, 2, 3, 4]},
        {"name" : "input1", "shape" : [3], "datatype" : "BOOL",
         "data" : [true, false, true]}
      ],
      "outputs" : [{"name" : "output0"}]
    }"""
    takes = {"input0": TensorSpec("UINT32", (2, 2)), "input1": TensorSpec("BOOL", (3,))}
    parsed = parse_request(body, None, takes, ["output0", "output1"])
    assert parsed.id == "42"
    assert parsed.binary_by_output == {"output0": False}
    assert parsed.inputs["input0"].tolist() == [[1, 2], [3, 4]]
    assert parsed.inputs["input1"].tolist() == [True, False, True]
    output = np.array([[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]])
    answer, _ = encode_response(
        "mymodel", "1", "42", {"output0": output}, parsed.binary_by_output
    )
    assert strict(answer) == {
        "model_name": "mymodel",
        "model_version": "1",
        "id": "42",
        "outputs": [
            {
                "name": "output0",
                "shape": [3, 2],
                "datatype": "FP64",
                "data": [1.0, 1.1, 2.0, 2.1, 3.0, 3.1],
            }
        ],
    }


def test_the_bytes_are_those_of_the_extension():
    """Little-endian, row by row; a byte per boolean; four bytes before each text."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "numbers",
                    "shape": [2, 2],
                    "datatype": "UINT32",
                    "parameters": {"binary_data_size": 16},
                },
                {
                    "name": "flags",
                    "shape": [3],
                    "datatype": "BOOL",
                    "parameters": {"binary_data_size": 3},
                },
                {
                    "name": "texts",
                    "shape": [2],
                    "datatype": "BYTES",
                    "parameters": {"binary_data_size": 12},
                },
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    raw = bytes.fromhex("01000000 02000000 03000000 000000ff 01 00 01")
    raw += struct.pack("<I", 1) + b"a" + struct.pack("<I", 3) + "é!".encode()
    takes = {
        "numbers": TensorSpec("UINT32", (-1, 2)),
        "flags": TensorSpec("BOOL", (-1,)),
        "texts": TensorSpec("BYTES", (-1,)),
    }
    parsed = parse_request(head + raw, len(head), takes, ["y", "z"])
    assert parsed.inputs["numbers"].tolist() == [[1, 2], [3, 0xFF000000]]
    assert parsed.inputs["flags"].tolist() == [True, False, True]
    assert parsed.inputs["texts"].tolist() == ["a", "é!"]
    assert parsed.binary_by_output == {"y": True}
    body, headers = encode_response(
        "m", "1", "r", {"y": np.array([1.0, -2.0])}, parsed.binary_by_output
    )
    answer_json = strict(body[: int(headers[LENGTH])])
    assert answer_json["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert "data" not in answer_json["outputs"][0]
    assert body[int(headers[LENGTH]) :] == struct.pack("<dd", 1.0, -2.0)
    assert headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("spaces", range(8))
def test_arrays_are_aligned_wherever_the_json_ends(spaces):
    body = request(datatype="FP64", parameters={"binary_data_size": 16}) + b" " * spaces
    numbers = struct.pack("<dd", 0.5, -3.0)
    takes = {"x": TensorSpec("FP64", (-1, 2))}
    array = parse_request(body + numbers, len(body), takes, ["y"]).inputs["x"]
    assert array.flags.aligned
    assert array.tolist() == [[0.5, -3.0]]


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]])
def test_data_may_be_nested_or_flat(data):
    body = request(shape=[2, 2], data=data)
    parsed = parse_request(body, None, {"x": TensorSpec("FP32", (-1, 2))}, ["y"])
    assert parsed.inputs["x"].tolist() == [[1, 2], [3, 4]]
    assert parsed.inputs["x"].dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "data"),
    [([0, 2], []), ([2, 0], [[], []]), ([2, 0], []), ([], [3.0]), ([1, 1], [[3.0]])],
)
def test_empty_and_single_tensors(shape, data):
    body = request(shape=shape, data=data)
    array = parse_request(body, None, {"x": TensorSpec("FP32", ())}, ["y"]).inputs["x"]
    assert array.shape == tuple(shape)


def test_which_outputs_come_and_how():
    def requested(outputs=None, default=None):
        more = {} if outputs is None else {"outputs": outputs}
        if default is not None:
            more["parameters"] = {"binary_data_output": default}
        return parse_request(
            request(more), None, TAKES, ["y", "doubt"]
        ).binary_by_output

    binary = {"name": "doubt", "parameters": {"binary_data": True}}
    plain = {"name": "doubt", "parameters": {"binary_data": False}}
    assert requested() == requested([]) == {"y": False, "doubt": False}
    assert requested(default=True) == {"y": True, "doubt": True}
    assert requested([binary, {"name": "y"}]) == {"doubt": True, "y": False}
    assert list(requested([binary, {"name": "y"}])) == ["doubt", "y"]
    assert requested([plain, {"name": "y"}], default=True) == {
        "doubt": False,
        "y": True,
    }


def test_an_answer_says_more_in_its_parameters():
    body, _ = encode_response("m", "1", "r", {}, {}, {"gate_version": 3})
    assert strict(body)["parameters"] == {"gate_version": 3}


def test_optional_fields_may_be_null_or_omitted():
    parsed = parse_request(request({"id": None, "outputs": None}), None, TAKES, ["y"])
    assert (parsed.id, parsed.parameters) == (None, {})
    assert parse_request(request({"id": ""}), None, TAKES, ["y"]).id is None
    more = {"parameters": {"group": "north", "priority": 2}}
    assert (
        parse_request(request(more), None, TAKES, ["y"]).parameters["group"] == "north"
    )


TAKES = {"x": TensorSpec("FP32", (-1, 2))}


def request(extra=None, **changes):
    """A request for one input x, changed; None takes something out."""
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 1.5]}
    if "parameters" in changes:
        del tensor["data"]
    tensor = {k: v for k, v in (tensor | changes).items() if v is not None}
    return json.dumps({"inputs": [tensor]} | (extra or {})).encode()


def sized(size):
    return {"binary_data_size": size}


TWICE = [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}] * 2
MISTAKES = {
    "nothing": (b"", "truncated"),
    "not JSON": (b"\xff\xfe", "something else"),
    "a list": (b"[]", "got `array`"),
    "no inputs": (b"{}", "missing required field `inputs`"),
    "a misspelt field": (request({"output": []}), "unknown field `output`"),
    "a number as id": (request({"id": 7}), "Expected `str"),
    "NaN": (b'{"inputs": [NaN]}', "infinities as words"),
    "too large a number": (request().replace(b"0.5", b"1e999"), "out of range"),
    "half a character": (request({"id": "\ud800"}), "something else"),
    "too deep": (request().replace(b"0.5", b"[" * 100_000), "nested too deep"),
    "deep data": (request(data=[[[[0.5]], [[1.5]]]]), "FP32 as the input x, got"),
    "an empty list": (request({"inputs": []}), r"expected the inputs x, got \[\]"),
    "another input": (request(name="z"), r"expected the inputs x, got \['z'\]"),
    "an input twice": (request({"inputs": TWICE}), "each of them once"),
    "another datatype": (request(datatype="FP64"), "expected FP32 as the input x"),
    "no datatype at all": (request(datatype="FLOAT"), "got 'FLOAT'. Convert it"),
    "another width": (request(shape=[1, 3]), r"shape \[-1, 2\], -1 being any size"),
    "more axes": (request(shape=[1, 1, 2]), r"got \[1, 1, 2\]"),
    "a negative size": (request(shape=[-1, 2]), r"got \[-1, 2\]"),
    "a size in words": (request(shape=["1", 2]), "Expected `int`"),
    "too few entries": (request(data=[0.5]), r"shape \[1, 2\] has.*got 1. Send data"),
    "too many entries": (request(data=[0.5] * 3), "got 3. Send data"),
    "ragged data": (request(data=[[0.5], [1, 2]], shape=[2, 2]), "other lists"),
    "half nested data": (request(data=[[0.5, 1], 2], shape=[2, 2]), "other lists"),
    "text for numbers": (request(data=["a", "b"]), "got 'a'. Send numbers"),
    "true for numbers": (request(data=[True, 2]), "got True. Send numbers"),
    "null for numbers": (request(data=[None, 2]), "got None. Send numbers"),
    "beyond float32": (request(data=[1, -1e39]), r"got -1e\+39. Send numbers"),
    "a very long number": (request(data=[1, 10**400]), "got 1000.*Send numbers"),
    "data nowhere": (request(data=None), "data or binary_data_size.*got neither"),
    "data twice": (request(parameters=sized(8), data=[1, 2]), "got both"),
    "no binary data": (request(parameters=sized(8)), f"8 bytes.*0 after.*and {LENGTH}"),
    "a size as text": (request(parameters=sized("8")), "got '8'. Send a whole"),
    "a negative length": (request(parameters=sized(-8)), "got -8. Send a whole"),
    "an unknown output": (request({"outputs": [{"name": "z"}]}), "from y, got 'z'"),
    "an output twice": (request({"outputs": [{"name": "y"}] * 2}), "got 'y' twice"),
    "a flag as number": (
        request({"parameters": {"binary_data_output": 1}}),
        "true or false as binary_data_output, got 1",
    ),
    "a sequence": (request({"parameters": {"sequence_id": 7}}), "sequences is not off"),
    "shared memory": (
        request(parameters={"shared_memory_region": "r"}),
        "shared memory is not offered",
    ),
    "classification": (
        request({"outputs": [{"name": "y", "parameters": {"classification": 3}}]}),
        "classification is not offered",
    ),
}


def refused(body, length=None, takes=TAKES):
    """The one line that a mistake is answered by."""
    with pytest.raises(InputError) as refusal:
        parse_request(body, length, takes, ["y"])
    message = str(refusal.value)
    assert type(refusal.value) is InputError
    assert "\n" not in message
    assert message.startswith("expected ")
    assert ", got " in message
    assert len(message) < 500
    return message


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name):
    body, words = MISTAKES[name]
    with pytest.raises(InputError, match=words):
        parse_request(body, None, TAKES, ["y"])
    refused(body)


@pytest.mark.parametrize(
    ("datatype", "data", "words"),
    [
        ("BOOL", [0, 1], "got 0. Send true or false"),
        ("BYTES", [1, "a"], "got 1. Send text"),
        ("INT64", [1.0, 2], "got 1.0. Send whole numbers"),
        ("INT64", [True, 2], "got True. Send whole numbers"),
        ("INT8", [1, 128], "got 128. Send whole numbers in its range"),
        ("UINT8", [1, -1], "got -1. Send whole"),
        ("UINT64", [1, 1 << 64], "Send whole numbers in its range"),
        ("INT64", [1, -(1 << 63) - 1], "Send whole numbers in its range"),
        ("INT32", ["1", 2], "got '1'. Send whole"),
        ("FP16", [1, 70_000], "got 70000. Send numbers in its range"),
        ("FP64", [1, "Infinity"], 'or "nan", "inf" or "-inf"'),
    ],
)
def test_an_entry_that_its_datatype_cannot_hold(datatype, data, words):
    body = request(datatype=datatype, data=data)
    assert words in refused(body, takes={"x": TensorSpec(datatype, (-1, 2))})


@pytest.mark.parametrize(
    ("datatype", "raw", "words"),
    [
        ("FP32", b"\0" * 7, "expected 8 bytes as the input x, got 7"),
        ("FP32", b"\0" * 9, "expected 8 bytes as the input x, got 9"),
        ("BOOL", b"\0\2", "got 2. Send true or false"),
        ("BYTES", struct.pack("<I", 9) + b"abc", "fewer bytes"),
        ("BYTES", b"\1\0", "fewer bytes"),
        ("BYTES", struct.pack("<I", 1) + b"\xff", "UTF-8 as the input x, got other"),
        ("BYTES", struct.pack("<I", 0), "got 1. Send data and shape that agree"),
    ],
)
def test_bytes_that_do_not_agree_with_datatype_and_shape(datatype, raw, words):
    head = request(datatype=datatype, parameters=sized(len(raw)))
    takes = {"x": TensorSpec(datatype, (-1, 2))}
    assert words in refused(head + raw, len(head), takes)


def test_bytes_before_and_after_the_tensors():
    head, raw = request(parameters=sized(8)), b"\0" * 8
    assert parse_request(head + raw, len(head), TAKES, ["y"]).inputs["x"].tolist() == [
        [0, 0]
    ]
    assert "8 bytes after the JSON, got 9" in refused(head + raw + b"\0", len(head))
    assert "8 bytes as the input x, got 5" in refused(head + raw[:5], len(head))
    assert "trailing characters" in refused(head + raw)
    for length in (0, len(head) + 9):
        assert f"got {length:,} in {LENGTH}" in refused(head + raw, length)
    assert "truncated" in refused(head + raw, len(head) - 1)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "abc", "1_0", "٣", "9" * 30, " 7"])
def test_a_length_that_is_not_one(text):
    with pytest.raises(InputError, match=f"whole number as {LENGTH}, got"):
        read_length(text)


def test_hostile_shapes_cost_nothing():
    takes = {"x": TensorSpec("FP32", ())}  # a model of any shape
    start = time.thread_time()  # whatever else runs on this machine
    for shape in ([1 << 62] * 60, [10**40, 0], [1] * 100_000, [1 << 62] * 100_000):
        empty = [] if 0 in shape else [1.0]
        refused(request(shape=shape, data=empty), takes=takes)
    refused(request({"inputs": [{**TWICE[0], "name": "y" * 9}] * 9000}), takes=takes)
    assert time.thread_time() - start < 2


BODY = request(parameters=sized(8), shape=[1, 2])


@given(
    st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), max_size=3),
    st.binary(max_size=12),
    st.none() | st.integers(-1, len(BODY) + 2),
)
def test_damaged_requests_are_read_or_refused(changes, raw, length):
    body = bytearray(BODY)
    for at, value in changes:
        body[at] = value
    try:
        parsed = parse_request(bytes(body) + raw, length, TAKES, ["y"])
    except InputError:
        refused(bytes(body) + raw, length)
    else:
        assert parsed.inputs["x"].shape[1] == 2


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_data_is_read_or_refused(data):
    try:
        parsed = parse_request(request(data=data), None, TAKES, ["y"])
    except InputError:
        return
    assert parsed.inputs["x"].shape == (1, 2)
