"""What a gate inside an ONNX graph costs, against the same graph without it.

``python benchmarks/export.py [../shared]``: a model of one matrix, and ResNet-20 from
that folder where it is there. The two are run in turn, and the shortest times compared.
"""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import trustdoctor as td
from trustdoctor.adapters.onnx import export


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )


def seconds(run, repeat):
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def compare(name, model, x, repeat):
    """Export, guard and time a torch model."""
    folder = Path(tempfile.mkdtemp())
    torch.onnx.export(
        model,
        (torch.from_numpy(x),),
        folder / "m.onnx",
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: "rows"},),
        verbose=False,
    )
    export(folder / "m.onnx", td.Gate(-2.0, score="alpha"), folder / "g.onnx")
    plain, guarded = session(folder / "m.onnx"), session(folder / "g.onnx")
    times = [float("inf"), float("inf")]
    for _ in range(5):  # in turn, so that noise hits both
        for i, model_session in enumerate((plain, guarded)):
            run = partial(model_session.run, None, {"x": x})
            times[i] = min(times[i], seconds(run, repeat))
    size = [sum(f.stat().st_size for f in folder.glob(f"{n}.onnx*")) for n in "mg"]
    print(
        f"{name}, batch of {len(x)}: {times[0] * 1e6:.0f} us bare, "
        f"{times[1] * 1e6:.0f} us guarded: {times[1] / times[0] - 1:+.1%} "
        f"({(times[1] - times[0]) * 1e6:+.0f} us), "
        f"{(size[1] - size[0]) / 1000:+.1f} kB",
        flush=True,
    )


def agreement(local, folder):
    """Compare graph and library on real images, and count rows near the threshold."""
    from trustdoctor.reproduce.datasets import DATASETS

    rows = DATASETS["cifar10"].load(folder).values[::10]
    x = local.inputs(rows)
    path = Path(tempfile.mkdtemp()) / "m.onnx"
    torch.onnx.export(
        local.model,
        (x[:64],),
        path,
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: "rows"},),
        verbose=False,
    )
    gate = td.Gate(-2.0, score="alpha")
    export(path, gate, path.with_name("g.onnx"))
    run = session(path.with_name("g.onnx")).run
    z, doubt, accepted = run(["logits", "doubt", "accepted"], {"x": x.numpy()})
    wanted = td.alpha(z.astype(np.float64))
    gap = np.abs(doubt - wanted) / np.maximum(1, np.abs(wanted))
    near = np.abs(wanted - gate.threshold) <= 1e-5 * np.maximum(1, np.abs(wanted))
    same = (accepted == (wanted <= gate.threshold))[~near].all()
    print(
        f"ResNet-20 on {len(x):,} test images: doubt within {gap.max():.1e} (1e-5), "
        f"decisions {'equal' if same else 'DIFFERENT'} on all rows but {near.sum()} "
        "nearer to the threshold"
    )


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 64), dtype=np.float32)
    compare("one matrix, 10 classes", torch.nn.Linear(64, 10).eval(), x, 200)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared") / "models"
    if folder.is_dir():
        from trustdoctor.reproduce.local_model import load_model

        local = load_model(
            f"{folder / 'nets.py'}:ResNet20", folder / "resnet-20.safetensors"
        )
        images = rng.standard_normal((64, 3, 32, 32), dtype=np.float32)
        compare("ResNet-20 (under 3%)", local.model, images, 10)
        agreement(local, folder.parent)


if __name__ == "__main__":
    main()
