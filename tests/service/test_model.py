"""The model that the service runs, against numpy, scikit-learn, a guarded graph."""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.request import urlopen

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.http as triton
import uvicorn
from onnx import TensorProto, helper, numpy_helper

import trustdoctor as td
from trustdoctor.adapters.onnx import export
from trustdoctor.errors import FileError, InputError
from trustdoctor.service.access import Access
from trustdoctor.service.app import App
from trustdoctor.service.model import OnnxModel
from trustdoctor.service.service import Service
from trustdoctor.service.settings import Settings
from trustdoctor.service.store import open_database

C = 6
WEIGHTS = np.random.default_rng(0).normal(size=(4, C)).astype(np.float32)
FLOAT = TensorProto.FLOAT


def save(path, nodes, outputs, *, inputs=None, weights=WEIGHTS, **options):
    """Write a model of x (n, 4), whose weights are called w."""
    graph = helper.make_graph(
        [
            helper.make_node(op, node_inputs, node_outputs, **attributes)
            for op, node_inputs, node_outputs, attributes in nodes
        ],
        "g",
        inputs or [helper.make_tensor_value_info("x", FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path, **options)
    return path


MATMUL = ("MatMul", ["x", "w"], ["z"], {})
SOFTMAX = ("Softmax", ["z"], ["y"], {"axis": -1})


def softmax_model(path, **options):
    return save(path, [MATMUL, SOFTMAX], [("y", FLOAT, ["n", C])], **options)


def logits_model(path, name="logits"):
    linear = ("MatMul", ["x", "w"], [name], {})
    return save(path, [linear], [(name, FLOAT, ["n", C])])


@pytest.fixture
def x(rng):
    return rng.normal(size=(50, 4)).astype(np.float32)


def test_metadata_is_as_the_protocol_wants_it(tmp_path):
    model = OnnxModel(softmax_model(tmp_path / "cats.onnx"))
    assert model.metadata() == {
        "name": "cats",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, C]},
            {"name": "doubt", "datatype": "FP64", "shape": [-1]},
            {"name": "accepted", "datatype": "BOOL", "shape": [-1]},
        ],
    }
    assert repr(model) == "OnnxModel('cats', logits of z)"
    assert OnnxModel(tmp_path / "cats.onnx", "pets").metadata()["name"] == "pets"


def test_the_logits_behind_a_softmax_are_decided_on(tmp_path, x):
    model = OnnxModel(softmax_model(tmp_path / "m.onnx"))
    outputs = model.run({"x": 300 * x})
    kind, z = model.logits_or_probs(outputs)
    assert kind == "logits"
    assert "behind the final Softmax" in model.why
    assert np.allclose(z, 300 * x @ WEIGHTS, rtol=1e-4, atol=1e-2)
    assert (outputs["y"] == 0).any()  # the logits know what the probabilities lost
    assert np.allclose(outputs["y"].sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["logits", "probs"])
def test_an_output_is_recognised_by_its_name(name, tmp_path, x):
    linear, soft = MATMUL, ("Softmax", ["z"], ["p"], {"axis": -1})
    last = ("Mul", ["z" if name == "logits" else "p", "one"], [name], {})
    constant = ("Constant", [], ["one"], {"value_float": 1.0})
    save(tmp_path / "m.onnx", [linear, soft, constant, last], [(name, FLOAT, ["n", C])])
    if name == "probs":  # called so, and the graph does not show it
        with pytest.raises(InputError, match="cannot tell which output"):
            OnnxModel(tmp_path / "m.onnx")
    model = OnnxModel(
        tmp_path / "m.onnx", **({} if name == "logits" else {"probs": name})
    )
    kind, scores = model.logits_or_probs(model.run({"x": x}))
    z = x @ WEIGHTS
    expected = z if name == "logits" else np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert kind == name
    assert np.allclose(scores, expected, atol=1e-5)
    assert list(model.outputs) == [name, "doubt", "accepted"]


@pytest.mark.parametrize("shortlist", [None, 0.9])
@pytest.mark.parametrize("make", [softmax_model, logits_model])
def test_a_guarded_model_is_decided_on_as_it_decides(make, shortlist, tmp_path, rng):
    x = rng.normal(size=(800, 4)).astype(np.float32)
    plain = OnnxModel(make(tmp_path / "m.onnx"))
    z = plain.logits_or_probs(plain.run({"x": x}))[1]
    labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    rows = td.Predictions.from_logits(z, labels)
    gate = td.calibrate(rows, score="alpha", frr=0.2, shortlist=shortlist)
    export(tmp_path / "m.onnx", gate, tmp_path / "guarded.onnx")
    model = OnnxModel(tmp_path / "guarded.onnx")
    assert model.metadata()["outputs"] == plain.metadata()["outputs"]
    outputs = model.run({"x": x})
    assert set(outputs).isdisjoint({"doubt", "accepted", "shortlist"})
    kind, returned = model.logits_or_probs(outputs)
    assert kind == "logits"
    assert np.array_equal(returned, z)
    session = onnxruntime.InferenceSession(tmp_path / "guarded.onnx")
    doubt, accepted = session.run(["doubt", "accepted"], {"x": x})
    screened = gate.screen(td.Predictions.from_logits(returned))
    assert np.allclose(screened.doubts, doubt, atol=1e-5)
    near = np.abs(screened.doubts - gate.threshold) < 1e-5
    assert np.array_equal(screened.accepted[~near], accepted[~near])


def test_a_table_stands_for_the_dicts_of_a_zipmap(tmp_path):
    from skl2onnx import to_onnx
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32) / 16
    fitted = LogisticRegression().fit(x[:300], y[:300])
    converted = to_onnx(fitted, x[:1])
    (tmp_path / "m.onnx").write_bytes(converted.SerializeToString())
    model = OnnxModel(tmp_path / "m.onnx")
    assert [model.outputs[name].datatype for name in model.outputs] == [
        *("INT64", "FP32", "FP64", "BOOL"),
    ]
    outputs = model.run({"X": x})
    kind, scores = model.logits_or_probs(outputs)
    assert kind == "probs"
    assert np.allclose(scores, fitted.predict_proba(x), atol=1e-5)
    assert np.array_equal(outputs["output_probability"], scores)
    assert np.array_equal(outputs["output_label"], fitted.predict(x))


def test_weights_in_another_file_are_found_from_anywhere(tmp_path, x, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    outside = {
        "save_as_external_data": True,
        "location": "m.weights",
        "size_threshold": 0,
    }
    softmax_model(tmp_path / "models" / "m.onnx", **outside)
    assert (tmp_path / "models" / "m.weights").stat().st_size == WEIGHTS.nbytes
    monkeypatch.chdir(tmp_path / "elsewhere")
    model = OnnxModel("../models/m.onnx")
    assert np.allclose(
        model.logits_or_probs(model.run({"x": x}))[1], x @ WEIGHTS, atol=1e-5
    )


def test_every_type_that_the_protocol_has(tmp_path):
    kinds = {
        "BOOL": np.bool_,
        **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
        **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
        **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
    }
    numbers = {
        n: helper.np_dtype_to_tensor_dtype(np.dtype(k)) for n, k in kinds.items()
    }
    numbers["BYTES"] = TensorProto.STRING
    infos = [helper.make_tensor_value_info("x", FLOAT, ["n", 4])]
    infos += [
        helper.make_tensor_value_info(n, t, [None, 2]) for n, t in numbers.items()
    ]
    nodes = [("Identity", [name], [f"out_{name}"], {}) for name in numbers]
    nodes.append(("MatMul", ["x", "w"], ["logits"], {}))
    outputs = [(f"out_{name}", kind, [None, 2]) for name, kind in numbers.items()]
    outputs.append(("logits", FLOAT, ["n", C]))
    model = OnnxModel(save(tmp_path / "m.onnx", nodes, outputs, inputs=infos))
    inputs = {name: np.ones((1, 2), kind) for name, kind in kinds.items()}
    inputs |= {"BYTES": np.array([["a", "é"]], object), "x": np.ones((1, 4), "f4")}
    results = model.run(inputs)
    for name in numbers:
        assert model.inputs[name].datatype == name
        assert model.outputs[f"out_{name}"].datatype == name
        assert np.array_equal(results[f"out_{name}"], inputs[name])


def test_threads_share_a_model(tmp_path, x):
    model = OnnxModel(softmax_model(tmp_path / "m.onnx"))
    batches = [x[at : at + 5] for at in range(0, 50, 5)]
    alone = [model.logits_or_probs(model.run({"x": batch}))[1] for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda batch: model.run({"x": batch}), batches * 30))
    for at, outputs in enumerate(results):
        assert np.array_equal(model.logits_or_probs(outputs)[1], alone[at % 10])


def test_one_thread_works_on_a_request_by_default(tmp_path):
    code = (
        "import os, sys\n"
        "from trustdoctor.service.model import OnnxModel\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "kept = OnnxModel(sys.argv[1], threads=int(sys.argv[2]))\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    path = softmax_model(tmp_path / "m.onnx")

    def started(threads):
        command = [sys.executable, "-c", code, path, str(threads)]
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(completed.stdout)

    assert started(4) - started(1) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package, tmp_path):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from trustdoctor.errors import MissingPackageError\n"
        "from trustdoctor.service.model import OnnxModel\n"
        "try:\n"
        "    OnnxModel(sys.argv[1])\n"
        "except MissingPackageError as error:\n"
        "    print(error)\n"
    )
    path = softmax_model(tmp_path / "m.onnx")
    completed = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert f"needs {package}, which is not installed" in completed.stdout
    assert 'pip install "trustdoctor[onnx]"' in completed.stdout


def refused(path, kind=InputError, **options):
    """The one line that a model is refused by."""
    with pytest.raises(kind) as raised:
        OnnxModel(path, **options)
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_two_candidates_or_none_are_refused(tmp_path, x):
    second = ("Mul", ["z", "z"], ["z2"], {})
    soft = ("Softmax", ["z2"], ["y2"], {"axis": -1})
    outputs = [("y", FLOAT, ["n", C]), ("y2", FLOAT, ["n", C])]
    save(tmp_path / "two.onnx", [MATMUL, SOFTMAX, second, soft], outputs)
    logits_model(tmp_path / "none.onnx", "scores")
    for name in ("two.onnx", "none.onnx"):
        message = refused(tmp_path / name)
        assert "cannot tell which output holds logits or probabilities" in message
        assert "logits=NAME or probs=NAME (--logits, --probs)" in message
    model = OnnxModel(tmp_path / "two.onnx", probs="y2")
    kind, scores = model.logits_or_probs(model.run({"x": x}))
    z = (x @ WEIGHTS) ** 2
    expected = np.exp(z - z.max(1, keepdims=True))
    assert kind == "probs"
    assert np.allclose(scores, expected / expected.sum(1, keepdims=True), atol=1e-5)
    model = OnnxModel(tmp_path / "none.onnx", logits="scores")
    assert np.allclose(
        model.logits_or_probs(model.run({"x": x}))[1], x @ WEIGHTS, atol=1e-5
    )
    assert "no tensor 'what'" in refused(tmp_path / "two.onnx", logits="what")
    assert "got both" in refused(tmp_path / "two.onnx", logits="y", probs="y")


def test_a_model_with_such_outputs_of_another_kind_is_refused(tmp_path):
    doubt = ("Abs", ["logits"], ["doubt"], {})
    linear = ("MatMul", ["x", "w"], ["logits"], {})
    outputs = [("logits", FLOAT, ["n", C]), ("doubt", FLOAT, ["n", C])]
    save(tmp_path / "m.onnx", [linear, doubt], outputs)
    message = refused(tmp_path / "m.onnx")
    assert "got doubt in" in message
    assert "trustdoctor export did not write. Call them something else" in message


def test_tensors_that_cannot_be_logits_are_refused(tmp_path):
    most = ("ArgMax", ["logits"], ["best"], {"axis": 1, "keepdims": 1})
    linear = ("MatMul", ["x", "w"], ["logits"], {})
    outputs = [("logits", FLOAT, ["n", C]), ("best", TensorProto.INT64, ["n", 1])]
    save(tmp_path / "m.onnx", [linear, most], outputs)
    message = refused(tmp_path / "m.onnx", probs="best")
    assert "expected floats (rows, classes) to decide on, got tensor(int64)" in message
    path, single_class = tmp_path / "one.onnx", [("logits", FLOAT, ["n", 1])]
    save(path, [linear], single_class, weights=WEIGHTS[:, :1])
    assert "of shape ['n', 1] as 'logits'" in refused(path)


def test_types_that_the_protocol_cannot_carry_are_refused(tmp_path):
    linear = ("MatMul", ["x", "w"], ["logits"], {})
    narrow = ("Cast", ["logits"], ["b"], {"to": TensorProto.BFLOAT16})
    outputs = [("logits", FLOAT, ["n", C]), ("b", TensorProto.BFLOAT16, ["n", C])]
    save(tmp_path / "m.onnx", [linear, narrow], outputs)
    message = refused(tmp_path / "m.onnx")
    assert "got tensor(bfloat16) as 'b'" in message
    assert "Export it without" in message


def test_files_that_are_not_models(tmp_path):
    (tmp_path / "noise.onnx").write_bytes(bytes(range(256)))
    (tmp_path / "empty.onnx").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "folder.onnx").mkdir()
    for name in ("noise", "empty", "pipe", "folder", "absent"):
        message = refused(tmp_path / f"{name}.onnx", FileError)
        assert "as an ONNX model" in message, name
    softmax_model(tmp_path / "m.onnx", save_as_external_data=True, location="gone",
                  size_threshold=0)  # fmt: skip
    (tmp_path / "gone").unlink()
    assert "onnxruntime cannot load" in refused(tmp_path / "m.onnx", FileError)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "\x1b[31m"])
def test_names_that_are_invalid_in_a_url(name, tmp_path):
    path = softmax_model(tmp_path / "m.onnx")
    assert "a name that can stand in a URL" in refused(path, name=name)


def test_inputs_that_the_model_cannot_run_on_are_the_senders_mistake(
    tmp_path, x, capfd
):
    halves = ("Reshape", ["x", "two"], ["pairs"], {})
    two = ("Constant", [], ["two"], {"value_ints": [2, -1, 4]})
    first = ("Gather", ["pairs", "zero"], ["half"], {"axis": 0})
    zero = ("Constant", [], ["zero"], {"value_int": 0})
    linear = ("MatMul", ["half", "w"], ["logits"], {})
    nodes = [two, halves, zero, first, linear]
    model = OnnxModel(save(tmp_path / "m.onnx", nodes, [("logits", FLOAT, ["m", C])]))
    assert model.logits_or_probs(model.run({"x": x}))[1].shape == (25, C)
    with pytest.raises(InputError, match="expected inputs that the model m runs on"):
        model.run({"x": x[:3]})
    with pytest.raises(InputError) as raised:
        model.run({})
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_a_request_without_rows_is_refused(tmp_path, x):
    model = OnnxModel(softmax_model(tmp_path / "m.onnx"))
    with pytest.raises(InputError, match="Send at least one row"):
        model.logits_or_probs(model.run({"x": x[:0]}))


@contextmanager
def serving(folder, model, gate):
    """Yield the address of a service that runs in a thread."""
    database = open_database(str(folder / "rows.sqlite"), fast=True)
    service = Service(database, gate, Settings())
    app = App(service, Access([], {"127.0.0.1"}, service.secret), model)
    service.start()
    config = uvicorn.Config(app, port=0, lifespan="on", log_config=None, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def tensor(x, *, binary):
    infer_input = triton.InferInput("x", list(x.shape), "FP32")
    return infer_input.set_data_from_numpy(x, binary_data=binary)


def requested_outputs(*names, binary):
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


GATE = td.Gate(0.5, score="alpha")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    model = OnnxModel(softmax_model(folder / "cats.onnx"))
    with serving(folder, model, GATE) as address:
        yield address


@pytest.fixture
def client(address):
    with triton.InferenceServerClient(address, concurrency=8) as client:
        yield client


def test_the_service_says_what_it_serves(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("cats")
    assert client.get_server_metadata() == {
        "name": "trustdoctor",
        "version": td.__version__,
        "extensions": ["binary_tensor_data"],
    }
    metadata = client.get_model_metadata("cats")
    assert (metadata["name"], metadata["platform"]) == ("cats", "onnxruntime_onnx")
    assert [output["name"] for output in metadata["outputs"]] == [
        "y",
        "doubt",
        "accepted",
    ]
    assert not client.is_model_ready("dogs")


@pytest.mark.parametrize("out", [True, False])
@pytest.mark.parametrize("sent", [True, False])
def test_the_service_decides_on_what_the_model_says(sent, out, client, x):
    names = ("accepted", "y", "doubt")
    answer = client.infer(
        "cats",
        [tensor(x, binary=sent)],
        outputs=requested_outputs(*names, binary=out),
        request_id=f"{sent}-{out}",
    )
    z = (x @ WEIGHTS).astype(np.float64)
    expected = td.alpha(z)
    doubt, accepted = answer.as_numpy("doubt"), answer.as_numpy("accepted")
    assert (doubt.dtype, accepted.dtype) == (np.float64, np.bool_)
    assert np.allclose(doubt, expected, atol=1e-5)
    assert np.array_equal(accepted, doubt <= GATE.threshold)
    assert 0.1 < accepted.mean() < 0.9
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert np.allclose(answer.as_numpy("y"), p, atol=1e-5)
    response = answer.get_response()
    assert [output["name"] for output in response["outputs"]] == list(names)
    assert response["id"] == f"{sent}-{out}"


def test_all_outputs_are_returned_by_default(client, x):
    answer = client.infer("cats", [tensor(x, binary=True)])
    assert answer.as_numpy("y").shape == (50, C)
    assert answer.as_numpy("doubt").shape == answer.as_numpy("accepted").shape == (50,)
    assert answer.as_numpy("z") is None


def test_rows_are_stored_by_the_requests_id(address, client, x):
    first = client.infer("cats", [tensor(x[:3], binary=True)], request_id="again")
    with urlopen(f"http://{address}/v1/rows/again/2") as answer:
        row = json.load(answer)
    assert row["id"] == "again/2"
    assert row["doubt"] == first.as_numpy("doubt")[2]
    second = client.infer("cats", [tensor(x[:3], binary=False)], request_id="again")
    assert np.array_equal(second.as_numpy("doubt"), first.as_numpy("doubt"))
    with pytest.raises(triton.InferenceServerException) as raised:
        client.infer("cats", [tensor(x[3:6], binary=True)], request_id="again")
    assert raised.value.status() == "409"


def test_many_clients_at_once_get_their_own_rows(address, x):
    def ask(at):
        with triton.InferenceServerClient(address) as client:
            batch = x[at % 40 : at % 40 + 1 + at % 7]
            answer = client.infer("cats", [tensor(batch, binary=at % 2 == 0)])
            return np.abs(answer.as_numpy("doubt") - td.alpha(batch @ WEIGHTS)).max()

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(ask, range(80))) < 1e-5


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"name": "cats", "x": np.ones((2, 5))}, "400", "the shape [-1, 4]"),
        ({"name": "cats", "x": np.ones((0, 4))}, "400", "at least one row"),
        ({"name": "cats", "x": np.full((1, 4), np.nan)}, "400", "NaN"),
        ({"name": "dogs", "x": np.ones((2, 4))}, "404", "name of a model (cats)"),
        ({"name": "cats", "x": np.ones((2, 4)), "out": "z"}, "400", "got 'z'"),
    ],
)
def test_a_client_gets_the_reason_of_a_refusal(change, status, words, client):
    outputs = requested_outputs(change["out"], binary=True) if "out" in change else None
    x_input = tensor(change["x"].astype(np.float32), binary=True)
    with pytest.raises(triton.InferenceServerException) as raised:
        client.infer(change["name"], [x_input], outputs=outputs)
    assert raised.value.status() == status
    assert words in raised.value.message()


def test_a_certain_row_has_a_doubt_in_json_too(tmp_path):
    logs = ("Log", ["x"], ["logits"], {})
    save(tmp_path / "m.onnx", [logs], [("logits", FLOAT, ["n", 4])])
    x = np.array([[1, 0, 0, 0], [0.5, 0.25, 0.25, 0]], np.float32)
    with (
        serving(tmp_path, OnnxModel(tmp_path / "m.onnx"), GATE) as address,
        triton.InferenceServerClient(address) as client,
    ):
        plain, raw = (
            client.infer(
                "m",
                [tensor(x, binary=True)],
                outputs=requested_outputs("doubt", "accepted", "logits", binary=binary),
                request_id="sure",
            )
            for binary in (False, True)
        )
    assert plain.get_output("doubt")["data"][0] == "-inf"
    for answer in (plain, raw):
        # Of p = (1/2, 1/4, 1/4): g = sum p^2 = 3/8, alpha = log((1 - g) / g).
        assert np.allclose(answer.as_numpy("doubt"), [-np.inf, np.log(5 / 3)])
        assert answer.as_numpy("accepted").tolist() == [True, False]
        assert np.array_equal(np.exp(answer.as_numpy("logits")), x)
