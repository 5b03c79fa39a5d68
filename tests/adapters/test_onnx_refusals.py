"""Graphs that are none, and gates of other classes: refused before anything is made."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from sklearn.linear_model import LogisticRegression

import trustdoctor as td
from trustdoctor.adapters.onnx import export, find_scores, predict
from trustdoctor.errors import InputError, TrustDoctorError


def model_of(path, nodes, *, shape=("n", 3), inputs=("x",)):
    weights = onnx.numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])
            for name in inputs
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [weights],
    )
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx_model.ir_version = 9
    onnx.save(onnx_model, path)
    return path


LINEAR = [helper.make_node("MatMul", ["x", "w"], ["logits"])]


def node(op, takes, gives):
    return helper.make_node(op, takes, gives)


@pytest.mark.parametrize(
    ("nodes", "inputs"),
    [
        ([node("Identity", ["logits"], ["logits"])], ["x"]),
        ([node("Cast", ["a"], ["logits"]), node("Cast", ["logits"], ["a"])], ["x"]),
        ([node("ZipMap", ["logits"], ["logits"])], ["x"]),
        ([node("Softmax", ["logits"], ["logits"])], ["x"]),
        ([node("Identity", [], ["logits"])], ["x"]),
        ([node("Softmax", [], ["logits"])], ["x"]),
        ([node("Sigmoid", [], ["logits"])], ["x"]),
        ([node("Add", ["w", "nowhere"], ["logits"])], ["x"]),
        ([node("Identity", ["z"], ["logits"]), node("Relu", ["x"], ["z"])], ["x"]),
        ([node("Identity", ["w"], ["logits"])], []),
        ([node("Identity", ["w"], ["logits"])], ["w"]),
    ],
)
@pytest.mark.parametrize("opset", [11, 17])
def test_graphs_that_are_none_are_refused(nodes, inputs, opset, tmp_path):
    path = model_of(tmp_path / "m.onnx", nodes, inputs=inputs)
    model = onnx.load(path)
    model.opset_import[0].version = opset
    onnx.save(model, path)
    gate = td.Gate(0.0, score="alpha")
    for ask in (
        lambda: export(path, gate, tmp_path / "g.onnx"),
        lambda: export(path, gate, tmp_path / "g.onnx", logits="logits"),
        lambda: predict(path, np.ones((2, 4), np.float32)),
        lambda: find_scores(model),
    ):
        with pytest.raises(TrustDoctorError) as refused:
            ask()
        assert "\n" not in str(refused.value)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def gate_of(classes, *, names=None, score="alpha"):
    rng = np.random.default_rng(0)
    p = td.Predictions.from_logits(
        4 * rng.normal(size=(300, classes)),
        rng.integers(0, classes, 300),
        class_names=names,
    )
    return td.calibrate(p, frr=0.2, score=score)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", [None, tuple("abcdefghij")], ids=["number", "names"])
def test_a_gate_of_other_classes_is_refused(names, tmp_path, run):
    path = model_of(tmp_path / "m.onnx", LINEAR)
    gate = gate_of(10, names=names)
    with pytest.raises(InputError, match="expected rows of 10 classes"):
        export(path, gate, tmp_path / "g.onnx")
    gate.save(tmp_path / "gate.json")
    options = ("--gate", tmp_path / "gate.json", "-o", tmp_path / "g.onnx")
    process = run("export", path, *options)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "got 3" in process.stderr
    assert not (tmp_path / "g.onnx").exists()
    export(path, gate_of(3, names=names and names[:3]), tmp_path / "g.onnx")


@pytest.mark.filterwarnings("ignore")
def test_classes_that_are_not_declared_are_checked_as_the_model_runs(tmp_path):
    """Where shapes are not inferred either: Reshape by a tensor that comes with it."""
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, ["k"])
    reshape = node("Reshape", ["y", "shape"], ["logits"])
    path = model_of(tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"]), reshape])
    model = onnx.load(path)
    model.graph.input.append(shape)
    for size in model.graph.output[0].type.tensor_type.shape.dim:
        size.ClearField("value")
    onnx.save(model, path)
    fed = {"x": np.ones((3, 4), np.float32), "shape": np.array([3, 3])}
    for classes, works in ((3, True), (2, False)):
        guarded = tmp_path / f"{classes}.onnx"
        export(path, gate_of(classes), guarded)
        session = onnxruntime.InferenceSession(guarded)
        if works:
            assert session.run(["doubt"], fed)[0].shape == (3,)
        else:
            with pytest.raises(Exception, match="reshape"):
                session.run(["doubt"], fed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize(
    ("labels", "names", "fits"),
    [
        (["cat", "dog", "emu"], ("cat", "dog", "emu"), True),
        (["cat", "dog", "emu"], ("emu", "cat", "dog"), True),  # alpha knows no order
        (["cat", "dog", "emu"], ("cat", "dog", "yak"), False),
        (["cat", "dog", "emu"], None, True),
        ([0, 1, 2], ("cat", "dog", "yak"), True),  # they may stand for any
        ([5, 7, 9], ("5", "7", "9"), True),
        ([5, 7, 9], ("0", "1", "2"), False),
    ],
)
def test_names_of_classes_are_compared(zipmap, labels, names, fits, tmp_path, rng):
    from skl2onnx import to_onnx

    x = rng.normal(size=(60, 4)).astype(np.float32)
    model = LogisticRegression().fit(x, np.array(labels)[np.arange(60) % 3])
    path, options = tmp_path / "m.onnx", {"zipmap": zipmap}
    path.write_bytes(to_onnx(model, x[:1], options=options).SerializeToString())
    gate = gate_of(3, names=names)
    if fits:
        export(path, gate, tmp_path / "g.onnx")
        return
    with pytest.raises(InputError, match="which is none of them"):
        export(path, gate, tmp_path / "g.onnx")
