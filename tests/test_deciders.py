"""Awkward rows, decided by everything that decides: all accept the same ones.

A row that holds NaN, or whose largest logit is not finite, is accepted by nobody; a
decider either gives it the doubt NaN or refuses it by its number. What the doubts of
the others are is worked out from the definitions in many digits. So are the lists of
rejected rows; one that has no prediction may be any class.

The Triton kernel is tried by hand where there is a GPU:
``pytest tests/test_deciders.py -k triton``.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from exact_scores import (
    INF,
    KINDS,
    NAN,
    SCORES,
    STATES,
    TEMPERATURES,
    C,
    array,
    cases,
    check,
    check_lists,
    exact,
    gate_of,
    good,
    list_gates,
    one_by_one,
    quiet,
    tensor,
)
from sklearn.base import BaseEstimator

import trustdoctor as td
from trustdoctor.engines import Means, find_engine, screen
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import find_source
from trustdoctor.kernels import _native
from trustdoctor.scores import find_logit_score, logit_scores


@pytest.fixture(params=["numpy", *_native.ISAS])
def kernel(request, monkeypatch):
    """Each way in which numpy arrays are scored."""
    if request.param == "numpy":
        monkeypatch.setattr(_native, "available", False)
    elif request.param in _native.instruction_sets():
        monkeypatch.setattr(_native, "isa", _native.ISAS.index(request.param))
    else:
        pytest.skip(f"this processor has no {request.param}")
    return request.param


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kind", KINDS)
def test_numpy(kind):
    rows = array(kind)
    for score, t, state in cases():
        gate = gate_of(score, kind, t, state)

        def decide(at, gate=gate, score=score):
            with quiet(score):
                decisions = gate.screen(rows[at], kind="logits")
            return decisions.doubts, decisions.accepted

        check(one_by_one(kind, decide), score, kind, t, state)


class EchoClassifier(BaseEstimator):
    """A classifier whose decision function returns its input."""

    classes_ = np.arange(C)

    def predict(self, rows):
        return rows.argmax(1)

    def decision_function(self, rows):
        return rows


@pytest.mark.parametrize("kind", KINDS)
def test_lists_in_python(kind):
    from trustdoctor.adapters.sklearn import TrustedClassifier
    from trustdoctor.adapters.torch import Doctor

    rows, doctor = array(kind)[good(kind)], Doctor(torch.nn.Identity())
    tensor_rows, model = tensor(kind)[good(kind)], TrustedClassifier(EchoClassifier())
    model.estimator_, model.classes_ = model.estimator, model.estimator.classes_
    for gate, expected in list_gates(kind):
        model.gate_ = gate
        for decisions in (
            gate.screen(rows, kind="logits"),
            doctor.screen(tensor_rows, gate, quiet=True),
            model.predict_trusted(rows),
        ):
            check_lists(decisions.shortlist, expected, gate, kind)


def spread(rows, classes):
    """The same rows among masked classes, far from one another."""
    wide = np.full((len(rows), classes), -INF, rows.dtype)
    wide[:, np.linspace(0, classes - 1, C).astype(int)] = rows
    return wide


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("classes", [C, 60])
@pytest.mark.parametrize("kind", ["single", "double"])
def test_the_kernel_itself(kind, classes):
    """Without the checks before it; from 49 classes on another path is taken."""
    rows = spread(array(kind), classes)
    for score, t, state in cases(("accept-all",), scores=logit_scores()):
        gate, function = (
            gate_of(score, kind, t, state),
            find_logit_score(score).function,
        )

        def decide(at, gate=gate, function=function, t=t):
            doubts = function(rows[at], temperature=t)
            return doubts, gate.accept(doubts)

        check(one_by_one(kind, decide), score, kind, t, state)


def by_torch(rows, score, kind, t, state):
    """Score tensors: bad rows have the doubt NaN, which the gate refuses."""
    gate = gate_of(score, kind, t, state)
    doubts = find_logit_score(score).function(rows, temperature=t)
    assert doubts.isnan().tolist() == (~good(kind)).tolist()

    def decide(at):
        batch = doubts[torch.from_numpy(at).to(doubts.device)]
        return batch.cpu().numpy(), gate.accept(batch).cpu().numpy()

    check(one_by_one(kind, decide), score, kind, t, state)


@pytest.mark.parametrize("kind", KINDS)
def test_torch(kind):
    for score, t, state in cases(STATES[:3], scores=logit_scores()):
        by_torch(tensor(kind), score, kind, t, state)


@pytest.mark.parametrize("kind", KINDS)
def test_the_torch_doctor(kind):
    from trustdoctor.adapters.torch import Doctor

    model = torch.nn.Identity()
    for score, t, state in cases(scores=logit_scores()):
        doctor = Doctor(model, score=score, temperature=t)
        gate = gate_of(score, kind, t, state)

        def decide(at, doctor=doctor, gate=gate):
            decisions = doctor.screen(tensor(kind)[at], gate, quiet=True)
            return decisions.doubts, decisions.accepted

        check(one_by_one(kind, decide), score, kind, t, state)


@pytest.mark.parametrize("kind", ["half", "bfloat16", "single"])
def test_triton(kind):
    """By hand: the kernel, whole rows in one block and rows over several blocks."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    fused = pytest.importorskip("trustdoctor.kernels.gpu")
    for classes in (C, 60, 5000):
        rows = torch.from_numpy(spread(array(kind), classes)).to(KINDS[kind]).cuda()
        assert fused.can_score(rows)
        for score, t, state in cases(STATES[:3], scores=fused.KINDS):
            by_torch(rows, score, kind, t, state)


def guard(kind, gate, folder, name="logits"):
    """A model that casts its input, double, to `kind`, guarded by a gate."""
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from trustdoctor.adapters.onnx import export

    types = onnx.TensorProto
    to = {"half": types.FLOAT16, "double": types.DOUBLE}.get(kind, types.FLOAT)
    make, value = onnx.helper, onnx.helper.make_tensor_value_info
    inner = types.BFLOAT16 if kind == "bfloat16" else to
    nodes = [
        make.make_node("Cast", ["x"], ["cast"], to=inner),
        make.make_node("Cast", ["cast"], [name], to=to),
    ]
    ends = [value("x", types.DOUBLE, ["n", C])], [value(name, to, ["n", C])]
    graph = make.make_graph(nodes, "g", *ends)
    onnx_model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    onnx_model.ir_version = 9
    onnx.save(onnx_model, folder / "m.onnx")
    export(folder / "m.onnx", gate, folder / "g.onnx")
    session = onnxruntime.InferenceSession(
        folder / "g.onnx", providers=["CPUExecutionProvider"]
    )
    _, *names = [end.name for end in session.get_outputs()]
    return lambda rows: session.run(names, {"x": rows})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_onnx(kind, tmp_path):
    temperatures = TEMPERATURES if kind in ("single", "double") else (1.0,)
    states = STATES[:3] if kind == "single" else STATES[:2]
    for score, t, state in cases(states, temperatures):
        decide = guard(kind, gate_of(score, kind, t, state), tmp_path)
        check(decide(exact(kind)), score, kind, t, state)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_lists_in_onnx(kind, tmp_path):
    for gate, expected in list_gates(kind):
        _, accepted, lists = guard(kind, gate, tmp_path)(exact(kind))
        check_lists(lists, expected, gate, kind)
        assert not lists[accepted].any()


SOUND = 3
PROBS = (
    [0.7, 0.3, 0, 0],
    [0, 1, 0, 0],
    [0.5, 0.495, 0, 0],
    [0.7, 0.3, NAN, 0],
    [0, 0, 0, 0],
    [INF, 0, 0, 0],
    [-0.1, 0.6, 0.5, 0],
    [0.5, 0.5, 0.1, 0],
    [3e38, 0, 0, 0],
    [0.5, 0.3, 0, 0],
)
"""The first few are sound."""


def test_probabilities(tmp_path):
    """What Python refuses as probabilities, the guard inside a model rejects."""
    from trustdoctor.adapters.arrow import Decider

    gate, wide = td.Gate(0.0, score="alpha", state="accept-all"), np.array([*PROBS])
    doubts, accepted = guard("single", gate, tmp_path, "probs")(wide)
    rows = wide.astype(np.float32)
    assert np.array_equal(accepted, np.arange(len(rows)) < SOUND)
    assert np.array_equal(np.isnan(doubts), ~accepted)
    assert gate.screen(rows[:SOUND], kind="probs").accepted.all()
    for row in rows[SOUND:]:
        for decide in (
            lambda row: gate.screen(row[None], kind="probs"),
            lambda row: Decider(gate)(
                pl.DataFrame(named(row[None], "prob")).to_arrow()
            ),
        ):
            with pytest.raises(InputError, match="row 0"):
                decide(row)


def named(rows, name="logit"):
    return {f"{name}_{j}": rows[:, j] for j in range(C)}


@pytest.mark.parametrize("kind", ["half", "single", "double"])
def test_arrow(kind):
    pa = pytest.importorskip("pyarrow")
    from trustdoctor.adapters.arrow import Decider

    arrow_table = pa.table({n: pa.array(v) for n, v in named(array(kind)).items()})
    for score, t, state in cases(temperatures=(1.0,)):
        decider = Decider(gate_of(score, kind, t, state))

        def decide(at, decider=decider, score=score):
            with quiet(score):
                decisions = decider(arrow_table.take(pa.array(at)))
            return decisions["score"].to_numpy(), decisions["accepted"].to_numpy()

        check(one_by_one(kind, decide), score, kind, t, state)


def unwritten(lists):
    """Lists as a mask again."""
    out = np.zeros((len(lists), C), bool)
    for row, text in enumerate(lists):
        on = (
            range(C)
            if text == "full review"
            else map(int, filter(None, text.split(" | ")))
        )
        out[row, list(on)] = True
    return out


@pytest.mark.parametrize("kind", ["half", "single", "double"])
def test_lists_in_arrow(kind):
    pa = pytest.importorskip("pyarrow")
    from trustdoctor.adapters.arrow import Decider

    rows = named(array(kind)[good(kind)])
    arrow_table = pa.table({name: pa.array(column) for name, column in rows.items()})
    for gate, expected in list_gates(kind):
        lists = Decider(gate)(arrow_table)["shortlist"].to_pylist()
        check_lists(unwritten(lists), expected, gate, kind)


def by_engine(name, kind, folder, scores):
    """Screen a Parquet file of the good rows; one with a bad row is refused."""
    means, rows = Means(find_engine(name), 10**9), array(kind)
    fine = good(kind)
    pl.DataFrame(named(rows[fine])).write_parquet(folder / "good.parquet")
    source = find_source(folder / "good.parquet")
    for score, t, state in cases(temperatures=(1.0,), scores=scores):
        gate, output = gate_of(score, kind, t, state), folder / "out.parquet"
        with quiet(score):
            screen(source, gate, output, means=means)
        decisions = pl.read_parquet(output)
        doubts, accepted = np.full(len(rows), NAN), np.zeros(len(rows), bool)
        doubts[fine], accepted[fine] = decisions["score"], decisions["accepted"]
        check((doubts, accepted), score, kind, t, state)
    for bad in np.flatnonzero(~fine):
        with_bad_row = np.concatenate([rows[fine], rows[[bad]]])
        pl.DataFrame(named(with_bad_row)).write_parquet(folder / "bad.parquet")
        gate = gate_of(SCORES[0], kind, 1.0, "accept-all")
        with pytest.raises(FileError, match=rf"row {fine.sum()}\b"):
            screen(find_source(folder / "bad.parquet"), gate, None, means=means)


@pytest.mark.parametrize("kind", ["single", "double"])
def test_streamed(kind, tmp_path):
    by_engine("local", kind, tmp_path, SCORES)


@pytest.mark.soak
def test_ray(tmp_path):
    """In a separate process: Ray reads its token when imported."""
    pytest.importorskip("ray")
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    completed = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def on_ray(folder):
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        for kind in ("single", "double"):
            by_engine("ray", kind, folder, SCORES)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    on_ray(Path(sys.argv[1]))
