import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import trustdoctor as td
from trustdoctor.adapters.onnx import check_gate, export, predict
from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.scores import find_logit_score, find_score, logit_scores

C = 6


def model_of(path, *, last=None, kind=np.float32, opset=17, name="y", classes=C):
    """A linear model (n, 4) -> (n, C), with `last` as its final op."""
    rng = np.random.default_rng(0)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    weights = numpy_helper.from_array(rng.normal(size=(4, classes)).astype(kind), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z" if last else name])]
    if last:
        nodes.append(helper.make_node(last, ["z"], [name], axis=-1))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", number, ["n", 4])],
        [helper.make_tensor_value_info(name, number, ["n", classes])],
        [weights],
    )
    onnx_model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)]
    )
    onnx_model.ir_version = 9
    onnx.save(onnx_model, path)
    return path


def run(path, x, *names):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (fed,) = session.get_inputs()
    return session.run(list(names), {fed.name: x})


def agree(doubt, accepted, expected, threshold, *, within=1e-5):
    """Check doubts to 1e-5, and decisions farther than that from the threshold."""
    finite = np.isfinite(expected)
    scale = np.maximum(1, np.abs(expected[finite]))
    assert (np.abs(doubt[finite] - expected[finite]) / scale).max(initial=0) < within
    assert np.array_equal(doubt[~finite], expected[~finite])
    far = np.abs(expected - threshold) > within * np.maximum(1, np.abs(expected))
    assert np.array_equal(accepted[far], (expected <= threshold)[far])
    return int((~far).sum())


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("score", logit_scores())
@pytest.mark.sampled(3)
def test_every_score_is_the_librarys(score, opset, tmp_path, rng):
    x = rng.normal(size=(300, 4)).astype(np.float32)
    x[:20] *= 500  # gaps of a thousand
    model = model_of(tmp_path / "m.onnx", opset=opset, name="logits")
    for temperature in (1.0, 2.5):
        (z,) = run(model, x, "logits")
        expected = find_logit_score(score).function(z, temperature=temperature)
        threshold = float(np.median(expected))
        gate = td.Gate(threshold, find_score(score, temperature=temperature))
        export(model, gate, tmp_path / "g.onnx")
        onnx.checker.check_model(str(tmp_path / "g.onnx"), full_check=True)
        doubt, accepted = run(tmp_path / "g.onnx", x, "doubt", "accepted")
        agree(doubt, accepted, expected, threshold)
        assert run(tmp_path / "g.onnx", x[:1], "doubt")[0].shape == (1,)
    grown = (tmp_path / "g.onnx").stat().st_size - model.stat().st_size
    assert grown < 10_000


def errors_of(model, x, rng, **options):
    """A model's predictions, with labels drawn from its own softmax."""
    p = predict(model, x, **options)
    probs = np.exp(p.logits - p.logits.max(1, keepdims=True)).astype(np.float64)
    drawn = (probs / probs.sum(1, keepdims=True)).cumsum(1) > rng.random((len(x), 1))
    return td.Predictions(p.logits, drawn.argmax(1), p.from_probabilities)


FITTED = {
    "rel_u": lambda p: td.RelU.fit(p, temperature=1.5),
    "fusion": lambda p: td.Fusion.fit(p, scores=["alpha", "entropy", "energy"]),
}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", FITTED)
def test_a_fitted_score_decides_as_in_python(name, kind, tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", kind=kind, name="logits")
    x = rng.normal(size=(1500, 4)).astype(kind)
    x[:100] *= 50  # gaps of hundreds, which float32 has no softmax for
    p = errors_of(model, x, rng)
    score = FITTED[name](p[::3])
    gate = td.calibrate(p[1::3], score=score, frr=0.2)
    export(model, gate, tmp_path / "g.onnx")
    z, doubt, accepted = run(tmp_path / "g.onnx", x, "logits", "doubt", "accepted")
    new = td.Predictions.from_logits(z)
    expected = gate.screen(new)
    within = 1e-2 if kind == np.float16 else 1e-5
    near = agree(doubt, accepted, expected.doubts, gate.threshold, within=within)
    assert near <= 2 or kind == np.float16
    assert 0.05 < accepted.mean() < 0.95
    entry = onnx.load(tmp_path / "g.onnx").metadata_props[0]
    (tmp_path / "gate.json").write_text(entry.value)
    loaded = td.Gate.load(tmp_path / "gate.json").screen(new)
    assert np.array_equal(loaded.doubts, expected.doubts)


def test_fitted_scores_of_probabilities(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", last="Softmax")
    x = rng.normal(size=(900, 4)).astype(np.float32)
    x[:30] *= 300  # some answers are 0 and 1
    p = errors_of(model, x, rng, probs="y")
    assert np.isneginf(p.logits).any()
    for score in (td.RelU.fit(p), td.Fusion.fit(p, scores=["beta", "margin", "gen"])):
        gate = td.calibrate(p, score=score, coverage=0.7)
        export(model, gate, tmp_path / "g.onnx", probs="y")
        doubt, accepted = run(tmp_path / "g.onnx", x, "doubt", "accepted")
        agree(doubt, accepted, score(p), gate.threshold)


def test_scores_that_no_graph_can_compute_are_refused(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", name="logits")
    x = rng.normal(size=(300, 4)).astype(np.float32)
    p = errors_of(model, x, rng)
    with_features = td.Predictions.from_logits(p.logits, p.labels, features=x)
    gate = td.calibrate(
        with_features, score=td.KNN.fit(with_features, k=5), coverage=0.8
    )
    with pytest.raises(InputError, match="cannot hold the score 'knn'"):
        export(model, gate, tmp_path / "g.onnx")
    fusion = td.Fusion.fit(p, scores=["alpha", "margin"])
    for name in ("rel_u", "mine"):
        fused = td.Gate(0.0, score=replace(fusion, names=("alpha", name)))
        with pytest.raises(InputError, match=f"cannot hold the score '{name}'"):
            export(model, fused, tmp_path / "g.onnx")
    assert not (tmp_path / "g.onnx").exists()


@pytest.mark.parametrize("last", ["Softmax", "LogSoftmax"])
def test_the_logits_behind_a_final_softmax_are_taken(last, tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", last=last, name="anything")
    x = 400 * rng.normal(size=(100, 4)).astype(np.float32)
    source = export(model, td.Gate(-3.0, score="energy"), tmp_path / "g.onnx")
    assert (source.tensor, source.probs) == ("z", False)
    assert f"behind the final {last}" in source.why
    z = x @ onnx.numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    doubt, accepted = run(tmp_path / "g.onnx", x, "doubt", "accepted")
    agree(doubt, accepted, td.energy(z), -3.0)


@pytest.mark.parametrize("score", ["alpha", "beta", "entropy", "gen", "margin"])
def test_probabilities_alone_will_do(score, tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", last="Softmax")
    x = rng.normal(size=(200, 4)).astype(np.float32)
    x[:30] *= 300  # some answers are 0 and 1
    (probs,) = run(model, x, "y")
    expected = find_logit_score(score).function(td.Predictions.from_probs(probs).logits)
    gate = td.Gate(-1.0, score=score)
    export(model, gate, tmp_path / "g.onnx", probs="y")
    doubt, accepted = run(tmp_path / "g.onnx", x, "doubt", "accepted")
    agree(doubt, accepted, expected, -1.0)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_precisions(kind, tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", kind=kind, name="logits")
    x = rng.normal(size=(100, 4)).astype(kind)
    export(model, td.Gate(-0.5, score="alpha"), tmp_path / "g.onnx")
    z, doubt, accepted = run(tmp_path / "g.onnx", x, "logits", "doubt", "accepted")
    assert doubt.dtype == (np.float32 if kind == np.float16 else np.float64)
    # The runtime may work in float32 and round the logits alone to float16.
    within = 1e-2 if kind == np.float16 else 1e-5
    agree(doubt, accepted, td.alpha(z.astype(np.float64)), -0.5, within=within)


@pytest.mark.parametrize("score", ["alpha", "margin", "max_logit"])
def test_rows_that_overflow_in_half_precision_are_rejected(score, tmp_path):
    """Also where the runtime works in float32 and rounds the output alone."""
    model = model_of(tmp_path / "m.onnx", kind=np.float16, name="logits", classes=3)
    onnx_model = onnx.load(model)
    weights = np.zeros((4, 3), np.float16)
    weights[:2] = [[300, 1, 1], [1, 300, -300]]
    onnx_model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    onnx.save(onnx_model, model)
    gate = td.Gate(0.0, score=score, state="accept-all")
    export(model, gate, tmp_path / "g.onnx")
    x = np.zeros((5, 4), np.float16)
    x[:, :2] = [[1, 2], [300, 2], [-300, -300], [218.3, 0], [-300, 0]]
    z, doubt, accepted = run(tmp_path / "g.onnx", x, "logits", "doubt", "accepted")
    assert np.isposinf(z[1:3]).any(1).all()
    assert np.isneginf(z[4]).any()
    assert accepted.tolist() == [True, False, False, True, True]
    assert np.isnan(doubt).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("state", ["accept-all", "reject-all"])
def test_gates_without_a_threshold(state, tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", name="logits")
    gate = td.Gate(0.0, score="beta", state=state)
    export(model, gate, tmp_path / "g.onnx")
    x = 1e4 * rng.normal(size=(50, 4)).astype(np.float32)
    (accepted,) = run(tmp_path / "g.onnx", x, "accepted")
    assert accepted.all() if state == "accept-all" else not accepted.any()


def test_weights_in_other_files_stay_there(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", name="logits", classes=500)
    onnx.save(
        onnx.load(model),
        tmp_path / "e.onnx",
        save_as_external_data=True,
        location="e.bin",
        size_threshold=100,
    )
    (tmp_path / "out").mkdir()
    export(
        tmp_path / "e.onnx", td.Gate(0.0, score="alpha"), tmp_path / "out" / "g.onnx"
    )
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"g.onnx", "g.onnx.data"}
    x = rng.normal(size=(20, 4)).astype(np.float32)
    z, doubt = run(tmp_path / "out" / "g.onnx", x, "logits", "doubt")
    np.testing.assert_allclose(doubt, td.alpha(z), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zipmap", [True, False])
def test_scikit_learns_models(zipmap, tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    for kind in (LogisticRegression(max_iter=300), RandomForestClassifier(10)):
        fitted = kind.fit(x[:900], y[:900])
        onnx_model = skl2onnx.to_onnx(fitted, x[:1], options={"zipmap": zipmap})
        (tmp_path / "m.onnx").write_bytes(onnx_model.SerializeToString())
        p = predict(tmp_path / "m.onnx", x[900:], labels=y[900:])
        assert p.from_probabilities
        gate = td.calibrate(p, coverage=0.9, score="alpha")
        source = export(tmp_path / "m.onnx", gate, tmp_path / "g.onnx")
        assert source.probs
        doubt, accepted = run(tmp_path / "g.onnx", x[900:], "doubt", "accepted")
        agree(doubt, accepted, td.alpha(p.logits), gate.threshold)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.soak
def test_resnet_20(shared, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from trustdoctor.reproduce.local_model import load_model

    local = load_model(
        f"{shared / 'models' / 'nets.py'}:ResNet20",
        shared / "models" / "resnet-20.safetensors",
    )
    x = torch.randn(8, 3, 32, 32)
    torch.onnx.export(
        local.model,
        (x,),
        tmp_path / "m.onnx",
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: "rows"},),
        verbose=False,
    )
    gate = td.Gate(-2.0, score="alpha")
    export(tmp_path / "m.onnx", gate, tmp_path / "g.onnx")
    z, doubt, accepted = run(
        tmp_path / "g.onnx", x.numpy(), "logits", "doubt", "accepted"
    )
    agree(doubt, accepted, td.alpha(z), -2.0)


def test_older_models_are_converted(tmp_path, rng):
    old = model_of(tmp_path / "old.onnx", opset=11, last="Softmax")
    export(old, td.Gate(0.0, score="alpha"), tmp_path / "g.onnx")
    x = rng.normal(size=(9, 4)).astype(np.float32)
    y, doubt = run(tmp_path / "g.onnx", x, "y", "doubt")
    np.testing.assert_allclose(doubt, td.alpha(np.log(y)), rtol=1e-4, atol=1e-4)


def test_a_temperature_keeps_the_digits(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", name="logits", classes=1000)
    x = (300 * rng.normal(size=(200, 4))).astype(np.float32)
    for score in ("alpha", "beta", "msp", "margin"):
        gate = td.Gate(-1.0, find_score(score, temperature=3.0))
        export(model, gate, tmp_path / "g.onnx")
        z, doubt = run(tmp_path / "g.onnx", x, "logits", "doubt")
        expected = find_logit_score(score).function(z, temperature=3.0)
        agree(doubt, expected <= -1, expected, -1.0)


@pytest.mark.filterwarnings("ignore")
def test_probabilities_are_not_believed_by_their_name(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import load_iris
    from sklearn.linear_model import RidgeClassifier
    from sklearn.svm import SVC

    x, y = load_iris(return_X_y=True)
    gate = td.Gate(0.0, score="alpha")
    for kind in (SVC(), RidgeClassifier()):
        onnx_model = skl2onnx.to_onnx(
            kind.fit(x, y), x[:1].astype(np.float32), options={"zipmap": False}
        )
        (tmp_path / "m.onnx").write_bytes(onnx_model.SerializeToString())
        with pytest.raises(InputError, match="cannot tell"):
            export(tmp_path / "m.onnx", gate, tmp_path / "g.onnx")


def test_energy_of_probabilities_is_refused(tmp_path):
    model = model_of(tmp_path / "m.onnx", last="Softmax")
    z = np.random.default_rng(0).normal(size=(200, C))
    p = td.Predictions.from_logits(z, np.arange(200) % C)
    fused = td.Fusion.fit(p, scores=["alpha", "energy"])
    for score in ("energy", "max_logit", fused):
        with pytest.raises(InputError, match="needs true logits"):
            export(model, td.Gate(0.0, score=score), tmp_path / "g.onnx", probs="y")


def softmax_over(path, axis):
    onnx_model = onnx.load(model_of(path, last="Softmax"))
    onnx_model.graph.node[-1].attribute[0].i = axis
    onnx.save(onnx_model, path)
    return path


def test_a_softmax_over_the_rows_is_not_recognised(tmp_path):
    gate = td.Gate(0.0, score="alpha")
    with pytest.raises(InputError, match="cannot tell"):
        export(softmax_over(tmp_path / "m.onnx", 0), gate, tmp_path / "g.onnx")
    export(softmax_over(tmp_path / "m.onnx", 1), gate, tmp_path / "g.onnx")


def test_logits_and_their_softmax_are_one_answer(tmp_path):
    onnx_model = onnx.load(model_of(tmp_path / "m.onnx", last="Softmax"))
    onnx_model.graph.node[0].output[0] = onnx_model.graph.node[1].input[0] = "logits"
    onnx_model.graph.output.append(
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", C])
    )
    onnx.save(onnx_model, tmp_path / "m.onnx")
    source = export(
        tmp_path / "m.onnx", td.Gate(0.0, score="beta"), tmp_path / "g.onnx"
    )
    assert source.tensor == "logits"


def test_the_inputs_weights_are_never_written_over(tmp_path):
    onnx.save(
        onnx.load(model_of(tmp_path / "m.onnx", name="logits", classes=500)),
        tmp_path / "a.onnx",
        save_as_external_data=True,
        location="b.onnx.data",
        size_threshold=0,
    )
    with pytest.raises(OutputError, match="weights"):
        export(tmp_path / "a.onnx", td.Gate(0.0, score="beta"), tmp_path / "b.onnx")
    onnx.load(tmp_path / "a.onnx")


def test_names_that_are_taken_are_avoided(tmp_path, rng):
    onnx_model = onnx.load(model_of(tmp_path / "m.onnx", name="logits"))
    onnx_model.graph.node[0].input[1] = "trustdoctor/1"
    onnx_model.graph.initializer[0].name = "trustdoctor/1"
    onnx.save(onnx_model, tmp_path / "m.onnx")
    export(tmp_path / "m.onnx", td.Gate(0.0, score="beta"), tmp_path / "g.onnx")
    x = rng.normal(size=(3, 4)).astype(np.float32)
    assert run(tmp_path / "g.onnx", x, "doubt")[0].shape == (3,)
    onnx_model.graph.input[0].name = onnx_model.graph.node[0].input[0] = "doubt"
    onnx.save(onnx_model, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="'doubt' already"):
        export(tmp_path / "m.onnx", td.Gate(0.0, score="beta"), tmp_path / "h.onnx")


def test_a_batch_of_fixed_size_is_filled_up(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", name="logits")
    x = rng.normal(size=(10, 4)).astype(np.float32)
    expected = predict(model, x)
    onnx_model = onnx.load(model)
    for value in (onnx_model.graph.input[0], onnx_model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(onnx_model, model)
    np.testing.assert_allclose(predict(model, x).logits, expected.logits, rtol=1e-6)


def test_inputs_that_a_model_cannot_run_on_are_named(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", last="LogSoftmax")
    p = predict(model, rng.normal(size=(5, 4)))  # float64, brought to the model's type
    assert not p.from_probabilities
    for x, options in (
        (np.zeros((3, 7)), {}),
        (np.zeros((3, 4)), {"logits": "nothing"}),
        (np.zeros((0, 4)), {}),
        (np.zeros((3, 4)), {"batch_size": 0}),
    ):
        with pytest.raises(InputError):
            predict(model, x, **options)


def test_predict_runs_in_batches(tmp_path, rng):
    model = model_of(tmp_path / "m.onnx", last="Softmax")
    x = rng.normal(size=(70, 4)).astype(np.float32)
    p = predict(model, x, labels=np.zeros(70, int), batch_size=32)
    assert p.from_probabilities
    np.testing.assert_allclose(np.exp(p.logits), run(model, x, "y")[0], rtol=1e-5)
    plain = predict(model_of(tmp_path / "z.onnx"), x, logits="y")
    assert not plain.from_probabilities


def test_unsupported_exports_are_refused_by_name(tmp_path):
    model = model_of(tmp_path / "m.onnx")
    gate = td.Gate(0.0, score="alpha")
    with pytest.raises(InputError, match="--logits"):
        export(model, gate, tmp_path / "g.onnx")
    with pytest.raises(InputError, match="no tensor 'q'"):
        export(model, gate, tmp_path / "g.onnx", logits="q")
    with pytest.raises(InputError, match="got both"):
        export(model, gate, tmp_path / "g.onnx", logits="y", probs="y")
    with pytest.raises(OutputError, match="the input itself"):
        export(model, gate, model, logits="y")
    with pytest.raises(InputError, match="names no score"):
        check_gate(td.Gate(0.0))
    p = td.Predictions.from_logits(
        np.stack([np.arange(400.0), np.zeros(400)], 1), (np.arange(400) % 5) // 4
    )
    grouped = td.calibrate(p, frr=0.2, score="alpha", groups=np.arange(400) % 2)
    with pytest.raises(InputError, match="groups"):
        check_gate(grouped)
    export(model, gate, tmp_path / "g.onnx", logits="y")
    with pytest.raises(InputError, match="guarded"):
        export(tmp_path / "g.onnx", gate, tmp_path / "h.onnx", logits="y")
    one_class = model_of(tmp_path / "one.onnx", classes=1)
    with pytest.raises(InputError, match="one column"):
        export(one_class, gate, tmp_path / "h.onnx", logits="y")
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(FileError, match="ONNX"):
        export(tmp_path / "bad.onnx", gate, tmp_path / "h.onnx")
    assert not (tmp_path / "h.onnx").exists()


def test_the_command_says_what_it_took(tmp_path):
    model_of(tmp_path / "m.onnx", last="Softmax")
    td.Gate(-1.5, score="alpha").save(tmp_path / "gate.json")
    program = Path(sys.executable).with_name("trustdoctor")
    process = subprocess.run(
        [program, "export", "m.onnx", "--gate", "gate.json", "-o", "g.onnx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "behind the final Softmax" in process.stdout
    entry = onnx.load(tmp_path / "g.onnx").metadata_props[0]
    assert entry.key == "trustdoctor.gate"
    (tmp_path / "again.json").write_text(entry.value)
    assert td.Gate.load(tmp_path / "again.json").threshold == -1.5
    assert (
        onnx.load(tmp_path / "g.onnx").graph.output[-1].type.tensor_type.elem_type
        == TensorProto.BOOL
    )
