"""Scores with parameters, and tuned ones, decide in a graph as in Python."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import trustdoctor as td
from trustdoctor.adapters.onnx import export
from trustdoctor.errors import InputError
from trustdoctor.scores import find_logit_score
from trustdoctor.tuning import FAMILY
from trustdoctor.tuning.tuned_score import N_KNOTS

KINDS = {np.float32: 1e-5, np.float64: 1e-9, np.float16: 1e-2}

PARAMETERS = [
    "pnorm",
    "pnorm:p=1",
    "pnorm:p=1.5",
    "pnorm:p=4",
    "pnorm:p=100",
    "normalised_alpha",
    "normalised_alpha:p=4,t=0.1",
    "normalised_alpha:p=2,t=0.05",
    "normalised_alpha:t=1000",
    "normalised_margin",
    "normalised_margin:p=5",
    "gen:exponent=0.3",
]


def model_of(path, classes, kind):
    """A model whose logits are its input."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["logits"])],
        "g",
        [helper.make_tensor_value_info("x", number, ["n", classes])],
        [helper.make_tensor_value_info("logits", number, ["n", classes])],
    )
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx_model.ir_version = 9
    onnx.save(onnx_model, path)
    return path


def awkward(classes, kind, rng):
    """Rows of all sizes, flat and tied ones, and classes that are ruled out."""
    z = rng.normal(size=(240, classes)) * rng.exponential(5, size=(240, 1))
    z[:20] *= 500
    z[20:40] *= 1e-3
    z[40:50] = 1.5
    z[50:55] = 0
    z[55:60, :2] = z[55:60].max(1, keepdims=True) + 1
    z = z.astype(kind)
    z[60:70, 1:] = -np.inf  # certain
    z[70:80, 2:] = -np.inf  # of two classes
    if classes > 2:
        z[80:90, 0] = -np.inf
    largest = 60_000 if kind is np.float16 else np.finfo(kind).max * 0.9
    z[90:100] = largest * np.sign(rng.normal(size=(10, classes)))
    z[100:110] = largest / 4 * rng.random((10, classes))
    z[110:120] = np.finfo(kind).tiny * rng.normal(size=(10, classes))
    return z


def check(score, z, path, within):
    """Compare a gate in a graph with the one in Python; return both decisions."""
    expected = np.asarray(score(td.Predictions.from_logits(z)), np.float64)
    threshold = float(np.median(expected))
    model = model_of(path / "m.onnx", z.shape[1], z.dtype)
    export(model, td.Gate(threshold, score=score), path / "g.onnx")
    onnx.checker.check_model(str(path / "g.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(
        path / "g.onnx", providers=["CPUExecutionProvider"]
    )
    doubt, accepted = session.run(["doubt", "accepted"], {"x": z})
    finite = np.abs(expected) < 1e30
    room = within * np.maximum(1, np.abs(expected))
    assert (np.abs(doubt[finite] - expected[finite]) < room[finite]).all()
    # Gaps that float32 cannot hold are -inf to some kernels, and 1e35 or so to others.
    assert (np.sign(doubt[~finite]) == np.sign(expected[~finite])).all()
    assert (np.abs(doubt[~finite]) > 9e29).all()
    far = ~finite | (np.abs(expected - threshold) > room)
    assert np.array_equal(accepted[far], (expected <= threshold)[far])
    return expected


@pytest.mark.parametrize("classes", [2, 40])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.sampled(3)
def test_scores_with_parameters(name, kind, classes, tmp_path, rng):
    score = find_logit_score(name)
    expected = check(score, awkward(classes, kind, rng), tmp_path, KINDS[kind])
    assert np.isneginf(expected[60:70]).all()


def fit(members, z):
    """A tuned score of some members: its knots are quantiles, made to rise."""
    p, at = td.Predictions.from_logits(z), np.linspace(0, 1, N_KNOTS)
    knots = [
        np.quantile(find_logit_score(name)(p).astype(float), at) for name in members
    ]
    rising = np.stack(
        [
            member_knots + at * max(0.01, np.ptp(member_knots) / 20)
            for member_knots in knots
        ]
    )
    ranks = np.tile(at, (len(members), 1))
    return td.Tuned(tuple(members), 99, 20, 59, "AUROC", rising, ranks)


MEMBERS = [
    ["alpha", "margin"],
    ["pnorm:p=4", "normalised_alpha:p=3,t=0.14", "normalised_margin:p=3"],
    ["alpha:temperature=0.1", "beta:temperature=3", "entropy"],
    ["max_logit", "energy", "gen", "msp"],
    list(FAMILY),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", MEMBERS, ids=len)
def test_mean_ranks(members, kind, classes, tmp_path, rng):
    """Steep quantiles enlarge what other runtimes round."""
    z = rng.normal(size=(1000, classes)) * rng.exponential(5, size=(1000, 1))
    score = fit(members, z.astype(kind))
    expected = check(score, awkward(classes, kind, rng), tmp_path, 10 * KINDS[kind])
    assert np.isneginf(expected[60:70]).all()


@pytest.mark.parametrize("name", ["msp", "alpha:temperature=2", "pnorm:p=4"])
def test_a_tuned_score_of_one_member_is_that_member(name, tmp_path, rng):
    none = np.empty((1, 0))
    score = td.Tuned((name,), 99, 20, 59, "AUROC", none, none)
    z = awkward(5, np.float32, rng)
    expected = check(score, z, tmp_path, 1e-5)
    assert np.array_equal(
        expected, find_logit_score(name)(td.Predictions.from_logits(z))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_gate_of_auto_decides_alike(kind, tmp_path, rng):
    z = rng.normal(size=(1500, 5))
    z *= rng.exponential(5, size=(1500, 1)) / np.linalg.norm(z, axis=1, keepdims=True)
    first, second = np.sort(z / np.linalg.norm(z, axis=1, keepdims=True))[:, :-3:-1].T
    wrong = rng.random(1500) < np.exp(-8 * (first - second))
    z = z.astype(kind)
    p = td.Predictions.from_logits(z, (z.argmax(1) + wrong) % 5)
    gate = td.calibrate(p, score="auto", trr=0.8)
    assert len(gate.score.members) > 1
    export(model_of(tmp_path / "m.onnx", 5, kind), gate, tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    (accepted,) = session.run(["accepted"], {"x": z})
    screened = gate.screen(td.Predictions.from_logits(z))
    near = np.abs(screened.doubts - gate.threshold) < KINDS[kind]
    assert np.array_equal(accepted[~near], screened.accepted[~near])
    assert near.sum() <= (40 if kind is np.float16 else 1)
    assert 0.2 < accepted.mean() < 0.9
    entry = onnx.load(tmp_path / "g.onnx").metadata_props[0]
    assert json.loads(entry.value)["score"]["name"] == "tuned"
    (tmp_path / "gate.json").write_text(entry.value)
    assert td.Gate.load(tmp_path / "gate.json") == gate


def test_members_that_need_logits_are_not_for_probabilities(tmp_path, rng):
    model = onnx.load(model_of(tmp_path / "m.onnx", 4, np.float32))
    model.graph.node[0].op_type = "Softmax"
    model.graph.node[0].output[0] = model.graph.output[0].name = "y"
    onnx.save(model, tmp_path / "m.onnx")
    z = rng.normal(size=(300, 4)).astype(np.float32)
    for members in (["alpha", "energy"], ["max_logit", "msp"]):
        gate = td.Gate(0.5, score=fit(members, z))
        with pytest.raises(InputError, match="needs true logits"):
            export(tmp_path / "m.onnx", gate, tmp_path / "g.onnx", probs="y")
    score = fit(["alpha", "pnorm:p=4", "normalised_margin"], z)
    export(
        tmp_path / "m.onnx", td.Gate(0.5, score=score), tmp_path / "g.onnx", probs="y"
    )
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    z[:20] *= 300  # some answers are 0 and 1
    probs, doubt = session.run(["y", "doubt"], {"x": z})
    expected = score(td.Predictions.from_probs(probs))
    assert np.isneginf(expected).any()
    finite = np.isfinite(expected)
    np.testing.assert_allclose(doubt[finite], expected[finite], rtol=1e-4, atol=1e-4)
    assert np.array_equal(doubt[~finite], expected[~finite])


@pytest.mark.parametrize("mask", [-np.inf, -1e4, -1e9, np.finfo("f4").min])
def test_masks_that_are_numbers(mask, tmp_path, rng):
    """Rows with one class left are far from the others, which keep their ranks."""
    z = 2.5 * rng.normal(size=(3000, 6))
    wrong = rng.random(3000) < 1 / (1 + np.exp(-5 * (td.margin(z) + 0.6)))
    z[(np.arange(3000) % 40 == 0)[:, None] & (z < z.max(1, keepdims=True))] = mask
    z = z.astype(np.float32)
    p = td.Predictions.from_logits(z, (z.argmax(1) + wrong) % 6)
    gate = td.calibrate(p, score="auto", coverage=0.8)
    export(model_of(tmp_path / "m.onnx", 6, np.float32), gate, tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    (accepted,) = session.run(["accepted"], {"x": z})
    assert (accepted != gate.screen(p).accepted).sum() <= 1
