"""Perturbation on ResNet-20: agreement with stored logits, and cost: ``make bench``.

Costs are ratios to the bare passes of the same model on the same batches, measured in
turns in one run. The model and the images come from the data folder; without it a
network of the same shape with random weights and inputs is timed, and nothing compared.
"""

import argparse
import importlib.util
import io
import os
import statistics
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch

import trustdoctor as td
from trustdoctor.adapters.torch import EPSILONS, TEMPERATURES, Doctor, sweep

SHARED = Path(
    os.environ.get("TRUSTDOCTOR_SHARED", Path(__file__).parents[2] / "shared")
)
STORED = {
    "pbb_alpha_T1.0_eps0.00035": ("alpha", 1.0),
    "pbb_beta_T1.5_eps0.00035": ("beta", 1.5),
    "pbb_odin_T1.3_eps0.00035": ("odin", 1.3),
    "pbb_odin_T1000.0_eps0.00035": ("odin", 1000.0),
}


def load():
    """Return the model, all normalised test images, the stored arrays, and 1 / std."""
    from PIL import Image
    from safetensors.torch import load_file

    spec = importlib.util.spec_from_file_location("nets", SHARED / "models" / "nets.py")
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    table = pl.read_parquet(SHARED / "data" / "cifar10-test.parquet")
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in table["image"]])
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (nets.MEAN, nets.STD))
    x = (torch.tensor(pixels).permute(0, 3, 1, 2) / 255 - mean) / std
    model = nets.ResNet20()
    model.load_state_dict(load_file(SHARED / "models" / "resnet-20.safetensors"))
    with np.load(SHARED / "predictions" / "resnet-20-cifar10-test.npz") as file:
        stored = dict(file)
    return model.eval(), x, stored, [1 / s for s in nets.STD]


def agreement(model, x, stored, scale):
    """Compare with the stored perturbed logits of all 10,000 rows."""
    clean = td.Predictions.from_logits(stored["logits"], stored["labels"])
    for name, (score, t) in STORED.items():
        options = {"score": score, "temperature": t, "epsilon": 0.00035, "scale": scale}
        examination = Doctor(model, **options)(x)
        distance = np.abs(examination.perturbed.logits - stored[name]).max(1)
        print(
            f"{name}: {100 * (distance < 1e-3).mean():.2f}% of {len(distance):,} "
            "within 1e-3 "
            f"(at least 99.5); deployed AUROC "
            f"{100 * td.auroc(examination.scores, clean.errors):.2f}",
            flush=True,
        )
    plain = 100 * td.auroc(td.alpha(clean.logits), clean.errors)
    print(f"alpha without perturbation: AUROC {plain:.2f} (90.41)")
    for score, lowest in (("alpha", 0.99), ("beta", 0.90), ("odin", None)):
        options = {"score": score, "epsilon": 0.0001, "scale": scale}
        before = Doctor(model, score=score)(x).scores
        rise = Doctor(model, **options)(x).scores - before
        foreseen = Doctor(model, order=1, **options)(x).scores - before
        right_way = (rise < 0) if score == "odin" else (rise > 0)
        line = (
            f"{score} at eps 0.0001: {100 * right_way.mean():.2f}% step the right way"
        )
        if lowest:
            r = np.corrcoef(rise, foreseen)[0, 1]
            line += f"; first order correlates {r:.3f} (above {lowest})"
        print(line, flush=True)


def bare(model, batch, *, forwards):
    """Run the passes that nobody can do without."""
    leaf = batch.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(td.alpha(model(leaf)).sum(), leaf)
    if forwards == 2:
        with torch.no_grad():
            model(batch + 1e-4 * gradient.sign())


def cost(model, x, scale, rows):
    """Time the wrapper against bare passes, in turns."""
    batches = list(x[:rows].split(256))
    for order, passes in ((2, "2 forward + 1 backward"), (1, "1 forward + 1 backward")):
        doctor = Doctor(model, epsilon=0.00035, scale=scale, order=order)
        ratios = []
        for _ in range(7):
            start = time.perf_counter()
            doctor(batches)
            ours = time.perf_counter() - start
            start = time.perf_counter()
            for batch in batches:
                bare(model, batch, forwards=order)
            ratios.append(ours / (time.perf_counter() - start))
        print(
            f"Doctor, order {order}: {statistics.median(ratios):.3f}x the bare "
            f"{passes} "
            "(at most 1.1x)",
            flush=True,
        )


def sweep_cost(model, x, scale, rows):
    """Time the full grid against one-setting calls, of which 22 are timed."""
    sample = x[:rows]
    settings = [(t, e) for t in TEMPERATURES for e in EPSILONS[1::12]]
    for order, requirement in ((2, "at least 2.7x"), (1, "at least 20x")):
        start = time.perf_counter()
        sweep(model, sample, scores=["alpha"], scale=scale, order=order)
        ours = time.perf_counter() - start
        start = time.perf_counter()
        for t, e in settings:
            Doctor(model, temperature=t, epsilon=e, scale=scale, order=order)(sample)
        theirs = (time.perf_counter() - start) * 253 / len(settings)
        start = time.perf_counter()
        Doctor(model)(sample)
        theirs += (time.perf_counter() - start) * 11
        print(
            f"sweep of 11 x 24 settings on {rows} rows, order {order}: {ours:.1f} s; "
            f"264 calls of Doctor {theirs:.1f} s ({len(settings) + 1} timed): "
            f"{theirs / ours:.1f}x ({requirement})",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agreement", action="store_true", help="all 10,000 rows")
    arguments = parser.parse_args()
    if SHARED.is_dir():
        model, x, stored, scale = load()
        if arguments.agreement:
            agreement(model, x, stored, scale)
    else:
        print("no data folder: random weights and inputs")
        from torch import nn

        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()]
        for _ in range(10):
            layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
        model, x, scale = (
            nn.Sequential(*layers, *head).eval(),
            torch.randn(1024, 3, 32, 32),
            1,
        )
    cost(model, x, scale, 1024)
    sweep_cost(model, x, scale, 256)


if __name__ == "__main__":
    main()
