"""How far rounding moves a score: every kernel and runtime against double precision.

Logits are multiples of 1/8, so that single precision holds them exactly and all
difference is of the arithmetic. An error is counted in units in the last place of
single precision, for the size of the score (1 near 0), as `trustdoctor.scores.ROUNDING`
is, which must be larger. ``python benchmarks/rounding.py``.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from pages import processor

import trustdoctor as td
from trustdoctor.adapters.onnx import export
from trustdoctor.kernels import _native
from trustdoctor.scores import ROUNDING, find_logit_score, find_score, logit_scores

ULP = 2.0**-23
CLASSES = (2, 3, 10, 100, 1000)
SCALES = (0.25, 1.0, 4.0, 16.0, 60.0)
TEMPERATURES = (0.5, 1.0, 2.0)


def quantised(rng, rows, classes, scale):
    """Return logits that are multiples of 1/8."""
    return np.round(8 * scale * rng.normal(size=(rows, classes))) / 8


def exported(score, classes, temperature, folder):
    """Return ONNX Runtime's score of float32 logits."""
    make, ends = onnx.helper, []
    for name in ("x", "logits"):
        shape = ["n", classes]
        ends.append(make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    same = make.make_node("Identity", ["x"], ["logits"])
    graph = make.make_graph([same], "g", ends[:1], ends[1:])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, folder / "model.onnx")
    gate = td.Gate(0.0, find_score(score, temperature=temperature))
    export(folder / "model.onnx", gate, folder / "guarded.onnx")
    session = onnxruntime.InferenceSession(
        folder / "guarded.onnx", providers=["CPUExecutionProvider"]
    )
    name = session.get_outputs()[1].name
    return lambda z: session.run([name], {"x": z.astype(np.float32)})[0]


def kernels():
    """Set one way in which arrays are scored after another, and name it."""
    widest = _native.isa
    for isa in _native.instruction_sets():
        _native.isa = _native.ISAS.index(isa)
        yield isa
    _native.isa = widest
    _native.available = False
    yield "numpy"
    _native.available = True


def ulps(doubts, exact):
    """Return the largest error where both are finite."""
    doubts = np.asarray(doubts, np.float64)
    finite = np.isfinite(doubts) & np.isfinite(exact)
    error = np.abs(doubts - exact)[finite] / np.maximum(1, np.abs(exact[finite]))
    return float(error.max(initial=0)) / ULP


def measure(score, rows, rng, folder):
    """Return the largest error of every runtime, in units in the last place."""
    worst: dict[str, float] = {}
    function = find_logit_score(score).function
    for classes in CLASSES:
        for t in TEMPERATURES:
            onnx_score = exported(score, classes, t, folder)
            for scale in SCALES:
                z = quantised(rng, rows * 10 // classes + 20, classes, scale)
                single, exact = z.astype(np.float32), function(z, temperature=t)
                doubts_by_runtime = {
                    f"{kernel}, float32": function(single, temperature=t)
                    for kernel in kernels()
                }
                tensor = torch.from_numpy(single)
                doubts_by_runtime["torch"] = function(tensor, temperature=t).numpy()
                doubts_by_runtime["ONNX Runtime"] = onnx_score(single)
                for name, doubts in doubts_by_runtime.items():
                    worst[name] = max(worst.get(name, 0), ulps(doubts, exact))
    return worst


def main() -> int:
    """Print the errors; return 1 where one is larger than what is allowed for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="of ten classes")
    arguments = parser.parse_args()
    rng, largest = np.random.default_rng(0), 0.0
    print(f"{processor()}; largest error in units in the last place of float32")
    with tempfile.TemporaryDirectory() as folder:
        for score in logit_scores():
            worst = measure(score, arguments.rows, rng, Path(folder))
            largest = max(largest, *worst.values())
            cells = ", ".join(f"{name} {value:.1f}" for name, value in worst.items())
            print(f"{score:18} {cells}", flush=True)
    allowed = ROUNDING / ULP
    print(f"largest {largest:.1f}, allowed for {allowed:g}")
    return int(largest > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
