"""The lists of rejected rows, inside an ONNX graph."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from scipy.special import log_softmax, softmax

import trustdoctor as td
from trustdoctor.adapters.onnx import check_gate, export, outputs_of
from trustdoctor.errors import InputError
from trustdoctor.gates.shortlists import ListRule, Shortlist

KINDS = (np.float16, np.float32, np.float64)
RAPS = {"penalty": 0.05, "free": 2}
NONE = td.Gate(0.0, score="alpha", state="reject-all")


def model_of(path, classes, kind=np.float32, *, op="Identity", name="logits", opset=13):
    """A model that puts out its input, or a function of it."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], [name])],
        "g",
        [helper.make_tensor_value_info("x", number, ["n", classes])],
        [helper.make_tensor_value_info(name, number, ["n", classes])],
    )
    onnx_model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)]
    )
    onnx_model.ir_version = 8
    onnx.save(onnx_model, path)
    return path


def guarded(gate, folder, classes, kind=np.float32, **options):
    """A function of rows to accepted and shortlist of a guarded model."""
    export(model_of(folder / "m.onnx", classes, kind, **options), gate, folder / "g")
    onnx.checker.check_model(str(folder / "g"), full_check=True)
    session = onnxruntime.InferenceSession(
        folder / "g", providers=["CPUExecutionProvider"]
    )
    return lambda rows: session.run(["accepted", "shortlist"], {"x": rows})


def lists(method, threshold, classes, max_size=None):
    options = RAPS if method == "raps" else {}
    rule = ListRule(float(threshold), 99)
    return Shortlist(0.9, rule, classes, method, max_size=max_size, **options)


def by_hand(z, method, threshold):
    """The lists by their textbook definitions, of probabilities."""
    p = softmax(z.astype(np.float64), axis=1)
    out = p >= np.exp(-threshold)
    if method != "lac":
        order = np.argsort(-p, axis=1, kind="stable")
        rank = np.argsort(order, axis=1) + 1
        ordered = np.sort(p, 1)[:, ::-1]
        before = np.cumsum(ordered, 1) - ordered  # the mass of more probable classes
        mass = np.take_along_axis(before, rank - 1, 1)
        cost = RAPS["penalty"] * np.maximum(rank - RAPS["free"], 0)
        out = mass + cost * (method == "raps") <= 1 + threshold
    out[np.arange(len(z)), z.argmax(1)] = True
    return out


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("classes", [3, 7, 1000])
@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
@pytest.mark.sampled(3)
def test_lists_are_those_of_the_definitions(method, classes, opset, tmp_path, rng):
    z = (3 * rng.normal(size=(200, classes))).astype(np.float32)
    z[:20] *= 50
    threshold = np.log(5 * classes) if method == "lac" else -0.2
    gate = replace(NONE, shortlist=lists(method, threshold, classes))
    accepted, masks = guarded(gate, tmp_path, classes, opset=opset)(z)
    expected = by_hand(z, method, threshold)
    assert not accepted.any()
    assert np.array_equal(masks, expected)
    assert 1 < expected.sum(1).mean() < classes


def calibrated(rng, classes, kind, method, **target):
    """Rows whose labels are drawn from their own softmax, and a gate with lists."""
    z = rng.normal(size=(3000, classes)) * rng.exponential(3, size=(3000, 1))
    p = softmax(z.astype(kind).astype(float), axis=1)
    labels = (p.cumsum(1) > rng.random((3000, 1))).argmax(1)
    rows = td.Predictions.from_logits(z.astype(kind), labels)
    options = {"level": 0.8, "method": method, "max_size": classes // 2}
    return rows, td.calibrate(rows, shortlist=options, **target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_a_calibrated_gate_lists_as_in_python(method, kind, tmp_path, rng):
    """But for a class that is exactly as strange as the threshold, which it set."""
    for classes, target in ((4, {"frr": 0.2}), (40, {"risk": 0.3})):
        p, gate = calibrated(rng, classes, kind, method, **target)
        expected, short = gate.screen(p), gate.shortlist
        accepted, masks = guarded(gate, tmp_path, classes, kind)(p.logits)
        apart = np.abs(expected.doubts - gate.threshold) > 1e-5
        assert np.array_equal(accepted[apart], expected.accepted[apart])
        near = np.abs(short.nonconformity(p.logits) - short.rule.threshold) < 1e-12
        certain = ~near.any(1) & apart
        assert np.array_equal(masks[certain], expected.shortlist[certain])
        assert certain.mean() > 0.99
        rejected = ~expected.accepted
        assert 1.2 < expected.shortlist[rejected].sum(1).mean() < classes
        assert expected.shortlist.all(1).any()
        gate_json = onnx.load(tmp_path / "g").metadata_props[0].value
        (tmp_path / "gate.json").write_text(gate_json)
        loaded = td.Gate.load(tmp_path / "gate.json")
        assert loaded == gate
        assert np.array_equal(loaded.screen(p).shortlist, expected.shortlist)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_probabilities_alone_will_do(method, kind, tmp_path, rng):
    probs = softmax(2 * rng.normal(size=(500, 6)), axis=1)
    probs[:50, 0] = 0
    probs = (probs / probs.sum(1, keepdims=True)).astype(kind)
    threshold = 1.5 if method == "lac" else -0.15
    gate = replace(NONE, shortlist=lists(method, threshold, 6))
    _, masks = guarded(gate, tmp_path, 6, kind, name="probs")(probs)
    with np.errstate(divide="ignore"):
        z = np.log(probs.astype(np.float64))
    assert np.array_equal(masks, by_hand(z, method, threshold))
    assert np.array_equal(masks, gate.screen(probs, kind="probs").shortlist)


def test_the_logits_behind_a_softmax_are_listed(tmp_path, rng):
    z = (40 * rng.normal(size=(300, 5))).astype(np.float32)
    gate = replace(NONE, shortlist=lists("lac", 60.0, 5))
    _, masks = guarded(gate, tmp_path, 5, op="Softmax", name="y")(z)
    log_p = log_softmax(z.astype(np.float64), axis=1)
    assert np.array_equal(masks, log_p >= -60)
    assert 0.2 < masks.mean() < 0.9


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_the_ends_of_the_threshold_and_ties(method, tmp_path):
    z = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [-np.inf, 0, -np.inf, 0]], np.float32)
    first = [[False, True, False, False], [True, False, False, False]]
    first.append([False, True, False, False])
    for threshold, expected in ((-np.inf, first), (np.inf, np.ones((3, 4)))):
        gate = replace(NONE, shortlist=lists(method, threshold, 4))
        _, masks = guarded(gate, tmp_path, 4)(z)
        assert np.array_equal(masks, expected)


@pytest.mark.parametrize("state", ["threshold", "accept-all", "reject-all"])
def test_who_has_a_list(state, tmp_path):
    """Rejected rows do; one that cannot be scored gets a full review."""
    z = np.array([[9, 0, 0], [1, 0.9, -5], [1, np.nan, 0], [np.inf, 0, 0]], np.float32)
    gate = td.Gate(-3.0, score="beta", state=state, shortlist=lists("lac", 1.0, 3))
    accepted, masks = guarded(gate, tmp_path, 3)(z)
    accepted_rows = {"threshold": [1, 0], "accept-all": [1, 1], "reject-all": [0, 0]}[
        state
    ]
    assert accepted.tolist() == [*map(bool, accepted_rows), False, False]
    row_lists = [[True, False, False], [True, True, False]]
    expected = [
        [False] * 3 if is_accepted else row
        for is_accepted, row in zip(accepted_rows, row_lists, strict=True)
    ]
    assert masks.tolist() == [*expected, [True] * 3, [True] * 3]
    accepted, masks = guarded(gate, tmp_path, 3)(z[:0])
    assert (accepted.shape, masks.shape) == ((0,), (0, 3))


def test_long_lists_become_full_reviews(tmp_path):
    z = np.log([[0.4, 0.3, 0.2, 0.1], [0.6, 0.3, 0.06, 0.04], [0.97, 0.01, 0.01, 0.01]])
    gate = replace(NONE, shortlist=lists("lac", -np.log(0.15), 4, max_size=2))
    _, masks = guarded(gate, tmp_path, 4, np.float64)(z)
    assert masks.sum(1).tolist() == [4, 2, 1]


def test_whole_penalties(tmp_path):
    """The second class costs 1, the third 2."""
    z = np.log([[0.4, 0.3, 0.2, 0.1]])
    # 1 + 0.4 - 1, 2 + 0.7 - 1 and 3 + 0.9 - 1
    for threshold, expected in ((0.3, 1), (0.5, 2), (1.8, 3), (2.95, 4)):
        rule = ListRule(threshold, 9)
        gate = replace(
            NONE, shortlist=Shortlist(0.9, rule, 4, "raps", penalty=1, free=1)
        )
        _, masks = guarded(gate, tmp_path, 4, np.float64)(z)
        assert masks.sum() == expected


def test_what_is_infinite_in_half_precision_is_improbable(tmp_path):
    """Also where the runtime keeps a wider number: a threshold may be as large."""
    half = helper.np_dtype_to_tensor_dtype(np.dtype(np.float16))
    weights = np.array([[300, 0, -350]], np.float16)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "g",
        [helper.make_tensor_value_info("x", half, ["n", 1])],
        [helper.make_tensor_value_info("logits", half, ["n", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx_model.ir_version = 8
    onnx.save(onnx_model, tmp_path / "m.onnx")
    for threshold, expected in ((1000.0, 1), (131_000.0, 2), (np.inf, 3)):
        gate = replace(NONE, shortlist=lists("lac", threshold, 3))
        export(tmp_path / "m.onnx", gate, tmp_path / "g.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
        x = np.array([[200]], np.float16)
        z, masks = session.run(["logits", "shortlist"], {"x": x})
        assert z.tolist() == [[60_000, 0, -np.inf]]
        assert np.array_equal(masks, gate.screen(z, kind="logits").shortlist)
        assert masks.sum() == expected


def test_a_gate_without_lists_adds_no_output(tmp_path):
    """And a tensor of that name is then nobody's business."""
    assert outputs_of(NONE) == ("doubt", "accepted")
    model = onnx.load(model_of(tmp_path / "m.onnx", 4))
    model.graph.input[0].name = model.graph.node[0].input[0] = "shortlist"
    onnx.save(model, tmp_path / "m.onnx")
    export(tmp_path / "m.onnx", NONE, tmp_path / "g.onnx")
    names = [end.name for end in onnx.load(tmp_path / "g.onnx").graph.output]
    assert names == ["logits", "doubt", "accepted"]
    gate = replace(NONE, shortlist=lists("lac", 1.0, 4))
    with pytest.raises(InputError, match="a tensor 'shortlist' already"):
        export(tmp_path / "m.onnx", gate, tmp_path / "h.onnx")
    assert not (tmp_path / "h.onnx").exists()


def test_other_classes_than_the_lists_are_refused(tmp_path):
    gate = replace(NONE, shortlist=lists("lac", 1.0, 5))
    model = model_of(tmp_path / "m.onnx", 4)
    with pytest.raises(InputError, match=r"expected 5 classes.*'logits' has 4"):
        export(model, gate, tmp_path / "g.onnx")
    assert not (tmp_path / "g.onnx").exists()
    decide = guarded(gate, tmp_path, "classes")  # known when it runs
    assert decide(np.zeros((3, 5), np.float32))[1].shape == (3, 5)
    onnxruntime.set_default_logger_severity(4)
    try:
        with pytest.raises(Exception, match="Reshape"):
            decide(np.zeros((3, 4), np.float32))
    finally:
        onnxruntime.set_default_logger_severity(2)


def test_lists_by_group_are_refused():
    short = replace(lists("lac", 1.0, 4), groups={"a": ListRule(1.0, 9)})
    with pytest.raises(InputError, match="groups"):
        check_gate(replace(NONE, shortlist=short))


def test_the_command_says_that_lists_are_there(tmp_path, run):
    model_of(tmp_path / "m.onnx", 3)
    replace(NONE, shortlist=lists("aps", -0.1, 3)).save(tmp_path / "gate.json")
    process = run(
        "export", "m.onnx", "--gate", "gate.json", "-o", "g.onnx", cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr
    assert "Added doubt (alpha), accepted and shortlist (aps, 90%);" in process.stdout
    last = onnx.load(tmp_path / "g.onnx").graph.output[-1]
    assert last.name == "shortlist"
    assert last.type.tensor_type.elem_type == onnx.TensorProto.BOOL
    assert [d.dim_value for d in last.type.tensor_type.shape.dim] == [0, 3]
